"""What the server believes: the form of an upload, and whether it is as large as uploads are.

The form is the algorithm's (``Algorithm.uploads``): names, shapes, dtypes, bounds, no NaN. Then an
array is measured by the largest norm of its rows (a prototype, an output channel; a vector is one
row) and compared with what other rooms sent, and each part of an upload ("weights", "prototypes")
with what the room sent before. A room is rejected that

- sends an array with a row beyond ``_CEILING``, with or without others to compare with;
- sends an array ``_FACTOR`` times as large as usual among the rooms, in this round or before it;
- sends a part ``_FACTOR`` times as large as its own last one, unless others send such, too;
- says that it has ``_COUNT_FACTOR`` times as many windows as usual, where that is its weight.

Usual is the lower median, which fewer than half of the rooms cannot move far. Nothing is too small,
and nothing below ``_FACTOR`` is too large: biases begin at 0. Honest rooms stay far within
(docs/decisions/0116): this keeps out what is broken or absurd, not a liar who stays plausible.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

from fedapa.algorithms.algorithm import Form, Payload
from fedapa.errors import PayloadError
from fedapa.payload import Array, Value, decode, leaves
from fedapa.rooms.card import RoomCard

__all__ = ["Accepted", "Sizes", "implausible", "sizes_of", "summary_of", "take"]

_SPARE_BYTES = 4 * 2**20
"""Beside two nets in double precision: what an upload may have besides, e.g. MOON's projection."""
_SPARE_VALUES = 64
"""Beside those that belong there: so many wrong ones are told by name."""
_CEILING = 1e8
"""No row of an honest upload has such a norm, and its square is far from the end of float32."""
_FACTOR = 100.0
"""Between what is usual and what is rejected; honest rooms differ by 3 at most (norms above 1)."""
_LIKE_OTHERS = 10.0
"""Up to so many times the usual norm a room may jump: it was away, or all rooms jumped."""
_COUNT_FACTOR = 10_000.0
"""Between numbers of windows, which honest rooms have from ten to a hundred thousand."""

_Place = TypeVar("_Place")
Accepted: TypeAlias = Mapping[str, Mapping[str, float]]
"""room → part of an upload → the largest norm in the last one that was taken."""


# ---- the form ----------------------------------------------------------------------------------


def take(frame: bytes, card: RoomCard, forms: Mapping[str, Form]) -> Payload:
    """An upload that ``merge`` can take, whoever sent it; anything else is a PayloadError."""
    numbers = sum(math.prod(shape) for shape in card.shapes.values()) + card.classes * card.width
    if len(frame) > (most := 2 * 8 * numbers + _SPARE_BYTES):
        raise PayloadError(f"its upload has {len(frame)} bytes; expected {most} at most")
    upload = decode(frame, "its upload", most=len(forms) + _SPARE_VALUES)
    values = dict(leaves(upload))
    for path in sorted({*values, *forms}):
        if path not in forms:
            raise PayloadError(f"its upload holds '{path}', which its algorithm does not send")
        if path not in values:
            raise PayloadError(f"its upload lacks '{path}'")
        _check_form(f"its upload: {path}", values[path], forms[path], values)
    return upload


def _check_form(place: str, value: Value, form: Form, values: Mapping[str, Value]) -> None:
    if form.shape is None:
        if type(value) not in (int, float):
            raise PayloadError(f"{place} is {value!r:.60}; expected a number")
        array = np.asarray(_float(cast("int | float", value)))
    else:
        if not isinstance(value, np.ndarray) or value.dtype.name not in form.dtypes:
            got = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
            raise PayloadError(f"{place} is {got}; expected {' or '.join(form.dtypes)}")
        shape = tuple(_side(values, side) for side in form.shape)
        if value.shape != shape:
            raise PayloadError(f"{place} has shape {value.shape}; expected {shape}")
        array = value
    numbers = cast("np.ndarray[Any, np.dtype[np.float64]]", array)
    if array.dtype.kind == "f" and not np.isfinite(numbers).all():
        raise PayloadError(f"{place} holds NaN or infinity")
    least, most = form.least, form.most
    low, high = least is not None and numbers < least, most is not None and numbers > most
    if np.any(low) or np.any(high):
        bounds = f"{'any' if least is None else least:} to {'any' if most is None else most}"
        ends = array.min(), array.max()
        if isinstance(value, int) and abs(ends[0]) < _READABLE:
            ends = value, value
        raise PayloadError(f"{place} has values from {ends[0]} to {ends[1]}; expected {bounds}")
    if form.where:
        mask = _mask(values, form.where)
        if mask.shape != array.shape or ((numbers > 0) != mask).any():
            raise PayloadError(f"{place} is not above 0 exactly where {form.where} is true")
    if form.together is not None and numbers.sum() > form.together:
        raise PayloadError(
            f"{place} has the sum {numbers.sum():g}; expected {form.together} at most"
        )


_READABLE = 10.0**15
"""Whole numbers below this are told as they came; of longer ones no text is made."""


def _float(value: float) -> float:
    """A number that somebody sent; whole ones may be longer than a float can be."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _side(values: Mapping[str, Value], side: int | str) -> int:
    """How long a side is; one that a mask of the upload decides, by its true entries."""
    return side if isinstance(side, int) else int(_mask(values, side).sum())


def _mask(values: Mapping[str, Value], name: str) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    mask = values.get(name)
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
        raise PayloadError(f"its upload: {name} is no mask")
    return cast("np.ndarray[Any, np.dtype[np.bool_]]", mask)


# ---- the size ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sizes:
    """How large an upload is."""

    norms: Mapping[tuple[str, str], float]
    """(path, shape) → the largest norm of a row; arrays of other shapes are other arrays."""
    counts: Mapping[str, float]
    """path → by how many windows the room is weighed."""


def sizes_of(upload: Payload, forms: Mapping[str, Form]) -> Sizes:
    """How large an upload of these forms is; what its form bounds on both sides is not measured."""
    norms: dict[tuple[str, str], float] = {}
    counts: dict[str, float] = {}
    for path, value in leaves(upload):
        form = forms[path]
        if form.counted:
            counts[path] = float(cast(float, value))
        elif form.most is None and form.shape is None:
            norms[path, ""] = abs(float(cast(float, value)))  # also of a whole number
        elif form.most is None and np.asarray(value).dtype.kind == "f":
            norms[path, "×".join(map(str, form.shape or ()))] = _largest_norm(np.asarray(value))
    return Sizes(norms, counts)


def summary_of(sizes: Sizes) -> dict[str, float]:
    """What is remembered of an upload: the largest norm in each of its parts."""
    parts: dict[str, float] = {}
    for (path, _), norm in sizes.norms.items():
        part = path.partition("/")[0]
        parts[part] = max(norm, parts.get(part, 0.0))
    return parts


def implausible(uploads: Mapping[str, Sizes], accepted: Accepted) -> dict[str, str]:
    """The rooms whose uploads are not to be believed, and why, whatever the order of rooms.

    Args:
        uploads: of this round.
        accepted: what was taken in earlier rounds, of all rooms that are here.
    """
    parts = {room: summary_of(sizes) for room, sizes in uploads.items()}
    newest = {room: {**accepted.get(room, {}), **own} for room, own in parts.items()}
    of_parts = _usual({**accepted, **newest}.values())
    of_arrays = _usual(sizes.norms for sizes in uploads.values())
    of_counts = _usual(sizes.counts for sizes in uploads.values())
    reasons: dict[str, str] = {}
    for room in sorted(uploads):
        sizes, before = uploads[room], accepted.get(room, {})
        reason = (
            _beyond(sizes.norms, of_arrays)
            or _too_many(sizes.counts, of_counts)
            or _unlike(parts[room], before, of_parts)
        )
        if reason:
            reasons[room] = reason
    return reasons


def _beyond(norms: Mapping[tuple[str, str], float], usual: Mapping[tuple[str, str], float]) -> str:
    """Why an array cannot be, with or without others to compare with."""
    for place, norm in norms.items():
        if norm > _CEILING:
            return f"its upload: {place[0]} has the norm {norm:.3g}; no honest one has {_CEILING:g}"
        if place in usual and norm > _FACTOR * max(usual[place], 1.0):
            return (
                f"its upload: {place[0]} has the norm {norm:.3g}, usual among the rooms is "
                f"{usual[place]:.3g}; more than {_FACTOR:g} times that is not believed"
            )
    return ""


def _too_many(counts: Mapping[str, float], usual: Mapping[str, float]) -> str:
    """Why a number of windows cannot be."""
    for path, count in counts.items():
        if path in usual and count > _COUNT_FACTOR * max(usual[path], 1.0):
            return (
                f"its upload: {path} is {count:g}, usual among the rooms is {usual[path]:g}; more "
                f"than {_COUNT_FACTOR:g} times that is not believed"
            )
    return ""


def _unlike(
    parts: Mapping[str, float], before: Mapping[str, float], usual: Mapping[str, float]
) -> str:
    """Why a part cannot be, after what this room and others sent before."""
    for part, norm in parts.items():
        if part in usual and norm > _FACTOR * max(usual[part], 1.0):
            return (
                f"its upload: {part} has the norm {norm:.3g}, usual among the rooms so far is "
                f"{usual[part]:.3g}; more than {_FACTOR:g} times that is not believed"
            )
        if part in usual and norm <= _LIKE_OTHERS * max(usual[part], 1.0):
            continue
        if part in before and norm > _FACTOR * max(before[part], 1.0):
            return (
                f"its upload: {part} has the norm {norm:.3g}, its own last one had "
                f"{before[part]:.3g}; more than {_FACTOR:g} times that is not believed"
            )
    return ""


def _usual(told: Iterable[Mapping[_Place, float]]) -> dict[_Place, float]:
    """The lower median of what two rooms or more tell, by what they tell it of."""
    by_place: dict[_Place, list[float]] = {}
    for values in told:
        for place, value in values.items():
            by_place.setdefault(place, []).append(value)
    return {
        place: sorted(values)[(len(values) - 1) // 2]
        for place, values in by_place.items()
        if len(values) > 1
    }


def _largest_norm(value: Array) -> float:
    """Of the rows; what float32 cannot square is infinite."""
    values = cast("np.ndarray[Any, np.dtype[np.float32]]", value)
    if not values.size:
        return 0.0
    rows = values.reshape(len(values) if values.ndim > 1 else 1, -1)
    with np.errstate(over="ignore"):
        squares = np.einsum("ij,ij->i", rows, rows)  # (rows,)
    return math.sqrt(float(squares.max()))
