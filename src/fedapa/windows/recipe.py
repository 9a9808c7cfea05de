"""Recipe: everything between a receiver's packet and a net's input, in one frozen value.

A store keeps the first half for each room (receiver to even packets), a room and its model file
keep all of it: what is served is then what was tested. The versioned form is JSON, with the
normaliser's two arrays beside it::

    receiver   device, bandwidth, subcarriers, link_count
    cleaning   gate, rate, longest_gap, low_pass
    cut        window, stride, decimate, subcarrier_step, links, bad_windows
    net input  view, normaliser
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from fedapa.errors import DataError, nearest
from fedapa.windows.normalise import Normaliser

__all__ = ["EMPTY", "LONGEST_GAP", "Recipe"]

EMPTY = 0.1
"""A 20 MHz part whose mean amplitude is below this share of the strongest part's is empty.

Real frames that fill their band stay above 0.6; half-filled ones came up to 0.083.
"""
LONGEST_GAP = 0.5
"""Seconds without a packet that resampling bridges unless told otherwise."""
VIEWS = ("amplitude",)
"""What a window may become before the net."""

_VERSION = 1
_FASTEST = 10_000.0
"""Packets per second; no receiver reports more."""
_RECEIVER = ("device", "bandwidth", "subcarriers", "link_count")
_CUT = ("window", "stride", "decimate", "subcarrier_step", "links", "bad_windows", "view")
_TAPER = 1.65
"""Half the length of the low-pass filter, in periods of its cut-off: a Hamming window then falls
from half to one and a half times the cut-off."""
_LONGEST_REACH = 10_000

Source = Literal["packets", "features", "arrays"]
Links = Literal["first", "stack"]
BadWindows = Literal["refuse", "drop"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a receiver's packets become a net's input."""

    source: Source = "packets"
    """What windows are made of: packets; or they came finished, as a store's features or as arrays
    given in Python. Then nothing but the view and the normaliser says anything."""
    device: str | None = None
    """The receiver, e.g. "nexmon 43455c0"; None where nobody noted it."""
    bandwidth: int | None = None
    """MHz."""
    subcarriers: tuple[int, ...] | None = None
    """Centred indices of those that are kept; None: all that carry data or pilots."""
    link_count: int | None = None
    """Antenna pairs that the receiver reports."""
    gate: float = EMPTY
    """Packets with a 20 MHz part below this share of the strongest are dropped; 0 keeps all."""
    rate: float | None = None
    """Packets per second of the even grid that packets are put onto; None: as they came."""
    longest_gap: float | None = None
    """With a rate: where nothing came for so many seconds a new segment begins; None is 0.5."""
    low_pass: float | None = None
    """Hz; needs a rate."""
    window: int | None = None
    """Packets per window, before decimation; None: not cut yet, or not made of packets."""
    stride: int | None = None
    """Packets from one window to the next; None is ``window``: no overlap."""
    decimate: int = 1
    """Keep every n-th packet after a zero-phase low-pass."""
    subcarrier_step: int = 1
    """Keep every n-th subcarrier of each link, from the first."""
    links: Links = "first"
    """The first antenna pair, or all side by side along the subcarriers."""
    bad_windows: BadWindows = "refuse"
    """What to do with a window that holds NaN or infinity or never changes."""
    view: str = "amplitude"
    """What a window becomes before the net."""
    normaliser: Normaliser | None = None
    """Of the room whose net this is; None before there is one."""

    def __post_init__(self) -> None:
        _choice("source", self.source, get_args(Source))
        _choice("links", self.links, get_args(Links))
        _choice("bad_windows", self.bad_windows, get_args(BadWindows))
        if self.device is not None and not isinstance(self.device, str):
            raise DataError(f"device {self.device!r} is no name of a receiver")
        if not isinstance(self.view, str) or self.view not in VIEWS:
            raise DataError(f"view {self.view!r} is unknown; {nearest(str(self.view), VIEWS)}")
        for name in ("bandwidth", "link_count", "window", "stride"):
            if getattr(self, name) is not None:
                _whole(name, getattr(self, name))
        _whole("decimate", self.decimate)
        _whole("subcarrier_step", self.subcarrier_step)
        if self.subcarriers is not None and not (
            isinstance(self.subcarriers, tuple)
            and self.subcarriers
            and all(type(index) is int for index in self.subcarriers)
        ):
            raise DataError(f"subcarriers {self.subcarriers!r} are no tuple of centred indices")
        if not _is_number(self.gate) or not 0 <= self.gate < 1:
            raise DataError(
                f"gate {_brief(self.gate)} is no share; expected 0, to keep all, to below 1"
            )
        if self.rate is not None and not (_is_number(self.rate) and 0 < self.rate <= _FASTEST):
            raise DataError(
                f"rate {_brief(self.rate)} is no rate of packets; expected above 0, at most "
                f"{_FASTEST:g} per second"
            )
        if self.longest_gap is not None and self.rate is None:
            raise DataError(
                "a longest gap needs a rate: only resampling bridges gaps; give --rate too"
            )
        if not _is_number(self.gap) or not 0 < self.gap < math.inf:
            raise DataError(f"longest gap {_brief(self.gap)} is no number of seconds above 0")
        if self.low_pass is not None:
            self._check_low_pass(self.low_pass)
        if self.window is not None and self.decimate > self.window:
            raise DataError(
                f"decimate {self.decimate} leaves nothing of a window of {self.window}; lower it"
            )
        if self.normaliser is not None and not isinstance(self.normaliser, Normaliser):
            raise DataError(f"normaliser is a {type(self.normaliser).__name__}, no Normaliser")

    def _check_low_pass(self, cutoff: float) -> None:
        if not _is_number(cutoff) or not 0 < cutoff < math.inf:
            raise DataError(f"low-pass {_brief(cutoff)} is no cut-off in Hz above 0")
        if self.rate is None:
            raise DataError(
                f"a low-pass at {cutoff:g} Hz needs even packets; give --rate too, to put them "
                "onto an even grid first"
            )
        if cutoff >= self.rate / 2:
            raise DataError(
                f"a low-pass at {cutoff:g} Hz needs more than {2 * cutoff:g} packets per second, "
                f"not {self.rate:g}"
            )
        if _TAPER * self.rate > _LONGEST_REACH * cutoff:
            raise DataError(
                f"a low-pass at {cutoff:g} Hz looks at more than {_LONGEST_REACH} packets of "
                f"{self.rate:g} per second on both sides; raise it, or lower the rate"
            )

    @property
    def gap(self) -> float:
        """Seconds without a packet after which a new segment begins."""
        return LONGEST_GAP if self.longest_gap is None else self.longest_gap

    @property
    def step(self) -> int:
        """Packets from one window to the next."""
        if self.window is None:
            raise DataError("this recipe has no window yet; give it one: replace(recipe, window=…)")
        return self.stride or self.window

    @property
    def margin(self) -> int:
        """Packets on both sides of a window that its decimation looks at."""
        return 10 * self.decimate if self.decimate > 1 else 0  # half the length of the filter

    @property
    def reach(self) -> int:
        """Packets on both sides of a packet that the low-pass looks at."""
        if self.low_pass is None or self.rate is None:
            return 0
        return math.ceil(_TAPER * self.rate / self.low_pass)

    @property
    def delay(self) -> float:
        """Seconds after a window's last packet until the window is there.

        Both filters look ahead; time stamps are those of the packets, so nothing is shifted. None
        of it is known without a rate: then decimation waits for ``margin`` packets, however long.
        """
        return 0.0 if self.rate is None else (self.margin + self.reach) / self.rate

    @property
    def packets(self) -> int:
        """Rows of a finished window."""
        if self.window is None:
            raise DataError("this recipe has no window yet; give it one: replace(recipe, window=…)")
        return -(-self.window // self.decimate)

    def cut_like(self, other: "Recipe") -> "Recipe":
        """This receiver and cleaning, with the windows of another recipe."""
        return replace(self, **{name: getattr(other, name) for name in _CUT})

    def on_receiver_of(self, other: "Recipe") -> "Recipe":
        """This cleaning and these windows, with the receiver of another recipe."""
        return replace(self, **{name: getattr(other, name) for name in _RECEIVER})

    def differences(self, other: "Recipe") -> list[str]:
        """Where two recipes differ, for a sentence: "rate 50 instead of 40"."""
        told = []
        for name in (field.name for field in fields(self)):
            mine, theirs = self._effective(name), other._effective(name)
            if mine != theirs:
                told.append(f"{name} {_brief(mine)} instead of {_brief(theirs)}")
        return told

    def _effective(self, name: str) -> Any:
        if name == "longest_gap":
            return None if self.rate is None else self.gap
        if name == "stride":
            return None if self.window is None else self.step
        return getattr(self, name)

    def document(self) -> dict[str, Any]:
        """Plain values for JSON; the normaliser's arrays travel beside them."""
        names = [field.name for field in fields(self) if field.name != "normaliser"]
        values = {name: getattr(self, name) for name in names}
        if self.subcarriers is not None:
            values["subcarriers"] = list(self.subcarriers)
        return {"version": _VERSION, **values}

    def to_json(self) -> str:
        """One line of text; equal recipes give equal text."""
        return json.dumps(self.document(), sort_keys=True)

    @classmethod
    def of_document(
        cls, values: object, *, place: str, normaliser: Normaliser | None = None
    ) -> "Recipe":
        """A recipe from plain values; ``place`` names where they stood."""
        if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
            raise DataError(f"{place}: its recipe is {_brief(values)}, no table")
        if (version := values.get("version")) != _VERSION:
            raise DataError(
                f"{place}: recipe version {version!r}, this fedapa reads {_VERSION}; make it again"
            )
        known = {field.name for field in fields(cls)} - {"normaliser"}
        given = {name: value for name, value in values.items() if name != "version"}
        for name in sorted(given.keys() - known):
            raise DataError(f"{place}: recipe: unknown key '{name}'; {nearest(name, known)}")
        if isinstance(given.get("subcarriers"), list):
            given["subcarriers"] = tuple(given["subcarriers"])
        try:
            return cls(**given, normaliser=normaliser)
        except DataError as error:
            raise DataError(f"{place}: its recipe cannot be: {error}") from error

    @classmethod
    def of_json(cls, text: object, *, place: str) -> "Recipe":
        """A recipe from the text of ``to_json``."""
        try:
            values = json.loads(str(text))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{place}: its recipe is no JSON ({error})") from error
        return cls.of_document(values, place=place)

    @classmethod
    def common(cls, recipes: "Sequence[Recipe]") -> "Recipe":
        """What several recipes share; where they differ, the field is left to its default."""
        first, *others = recipes
        shared = {
            field.name: getattr(first, field.name)
            for field in fields(cls)
            if all(getattr(first, field.name) == getattr(other, field.name) for other in others)
        }
        if "rate" not in shared:
            shared = {name: shared[name] for name in shared.keys() - {"longest_gap", "low_pass"}}
        return cls(**shared)


def _brief(value: object) -> str:
    if isinstance(value, tuple) and value:
        return f"{len(value)} from {value[0]} to {value[-1]}"
    if isinstance(value, Normaliser):
        return f"of {len(value.mean)} subcarriers"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(name: str, value: object) -> None:
    if type(value) is not int or value < 1:
        raise DataError(f"{name} {value!r} is no whole number from 1 on")


def _choice(name: str, value: object, known: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in known:
        raise DataError(f"{name} {value!r} is unknown; {nearest(str(value), known)}")
