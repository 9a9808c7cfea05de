"""Labels: what a window shows, a count or a category, as a name, an order and a class index."""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from fedapa.errors import DataError, nearest

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "NO_CLASS",
    "Label",
    "check_name",
    "choose_rooms",
    "class_indices",
    "sorted_labels",
]

Label: TypeAlias = int | str
"""Where there may be none, None says so."""

NO_CLASS = -1
"""The class index of a window without a label; nothing is looked up by it."""

_NAME = re.compile(r"[\w][\w .=,+-]{0,63}")


def check_name(name: str, what: str) -> str:
    """A name of a room or recording; it becomes a file name, so its characters are limited."""
    if not _NAME.fullmatch(name) or name != name.strip():
        shown = name if len(name) <= 80 else f"{name[:80]}…"
        raise DataError(
            f"{what} '{shown}': use 1 to 64 letters, digits, spaces and _ . = , + -, "
            "starting with a letter, digit or _"
        )
    return name


def choose_rooms(
    rooms: Iterable[str],
    *,
    only: Sequence[str] | None,
    without: Sequence[str] | None,
    place: str,
) -> tuple[str, ...]:
    """The rooms to use, sorted: ``only`` those, if it is given, and none of ``without``."""
    there = sorted(set(rooms))
    for name in (*(only or ()), *(without or ())):
        if name not in there:
            raise DataError(f"{place}: there is no room '{name}'; {nearest(name, there)}")
    chosen = [room for room in there if room in (only or there) and room not in (without or ())]
    if not chosen:
        raise DataError(
            f"{place}: no room is left of {', '.join(there)}; name others in --only and --without"
        )
    return tuple(chosen)


def class_indices(
    room: str, labels: Sequence[Label | None], classes: Sequence[Label]
) -> "npt.NDArray[np.int64]":
    """Labels as indices into ``classes``, and ``NO_CLASS`` where there is none.

    A label that is not listed is an error, not a guess.
    """
    import numpy as np  # a room that waits checks names without it

    place: dict[Label | None, int] = {label: index for index, label in enumerate(classes)}
    place[None] = NO_CLASS
    for number, label in enumerate(labels):
        if label not in place:
            raise DataError(
                f"room '{room}', window {number}: label {label!r} is not among the classes "
                f"{list(classes)}; add it to the plan's classes or leave the recording out"
            )
    return np.asarray([place[label] for label in labels], np.int64)


def sorted_labels(labels: Iterable[Label | None]) -> tuple[Label, ...]:
    """Each label once: counts in numerical order, then categories by name; None is no label."""
    known = set(labels)
    counts = sorted(label for label in known if isinstance(label, int))
    categories = sorted(label for label in known if isinstance(label, str))
    return (*counts, *categories)
