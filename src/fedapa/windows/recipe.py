"""Recipe: everything between a receiver's packet and a net's input, in one frozen value.

A store keeps the first half for each room (receiver to even packets), a room and its model file
keep all of it: what is served is then what was tested. The versioned form is JSON, with the
normaliser's two arrays beside it::

    receiver   device, bandwidth, subcarriers, link_count, packet_rate
    cleaning   gate, rate, longest_gap, low_pass
    cut        window or seconds, stride or overlap, decimate, subcarrier_step, links, bad_windows
    net input  view, normaliser
"""

import json
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from fedapa.errors import DataError, nearest
from fedapa.windows.normalise import Normaliser
from fedapa.windows.views import VIEWS, find_view

__all__ = ["EMPTY", "LONGEST_GAP", "USUAL_SECONDS", "Recipe", "told_together"]

EMPTY = 0.1
"""A 20 MHz part whose mean amplitude is below this share of the strongest part's is empty.

Real frames that fill their band stay above 0.6; half-filled ones came up to 0.083.
"""
LONGEST_GAP = 0.5
"""Seconds without a packet that resampling bridges unless told otherwise."""
USUAL_SECONDS = 4.0
"""Of a window, where neither plan nor store says: long enough for steps, short enough to follow."""

_VERSION = 1
_FASTEST = 10_000.0
"""Packets per second; no receiver reports more."""
_RECEIVER = ("device", "bandwidth", "subcarriers", "link_count", "packet_rate")
_CUT = (
    "window",
    "seconds",
    "stride",
    "overlap",
    "decimate",
    "subcarrier_step",
    "links",
    "bad_windows",
    "view",
)
_TAPER = 1.65
"""Half the length of the low-pass filter, in periods of its cut-off: a Hamming window then falls
from half to one and a half times the cut-off."""
_LONGEST_REACH = 10_000
_ROUND_RATES = (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 7.5, 8, 10)
"""Packets per second that receivers are set to, and ten, a hundred, … times these."""
_OFF = 0.02
"""Share that a measured rate is off such a rate at most, to be taken for it."""
_MOST_OVERLAP = 0.95
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)")
_ALIKE = 0.05
"""Share by which numbers of two sentences differ at most, to be told as one."""
_TOLD = 3
"""Sentences about windows that are told; captions have little room."""

Source = Literal["packets", "features", "arrays"]
Links = Literal["first", "all"]
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
    packet_rate: float | None = None
    """Packets per second as they come; None where nobody noted it."""
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
    seconds: float | None = None
    """How long a window should be, where ``sized`` makes packets of it; None: packets are said, or
    it is what the store recommends."""
    shortened: str = ""
    """Why a window is shorter than it should be, in words; nothing where it is not."""
    stride: int | None = None
    """Packets from one window to the next; None is ``window``: no overlap."""
    overlap: float = 0.0
    """Share of a window that the next one has too, before ``sized`` has made a stride of it."""
    decimate: int = 1
    """Keep every n-th packet after a zero-phase low-pass."""
    subcarrier_step: int = 1
    """Keep every n-th subcarrier of each link, from the first."""
    links: Links = "first"
    """The first antenna pair, or all of them."""
    bad_windows: BadWindows = "refuse"
    """What to do with a window that holds NaN or infinity or never changes."""
    view: str = "amplitude"
    """What a window becomes before the net, by its name in ``windows/views``."""
    normaliser: Normaliser | None = None
    """Of the room whose net this is; None before there is one."""

    def __post_init__(self) -> None:
        _choice("source", self.source, get_args(Source))
        _choice("links", self.links, get_args(Links))
        _choice("bad_windows", self.bad_windows, get_args(BadWindows))
        if self.device is not None and not isinstance(self.device, str):
            raise DataError(f"device {self.device!r} is no name of a receiver")
        if not isinstance(self.shortened, str):
            raise DataError(f"shortened {_brief(self.shortened)} is no reason in words")
        _choice("view", self.view, tuple(VIEWS))
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
        for name in ("rate", "packet_rate"):
            rate = getattr(self, name)
            if rate is not None and not (_is_number(rate) and 0 < rate <= _FASTEST):
                raise DataError(
                    f"{name} {_brief(rate)} is no rate of packets; expected above 0, at most "
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
        self._check_cut()
        if self.normaliser is not None and not isinstance(self.normaliser, Normaliser):
            raise DataError(f"normaliser is a {type(self.normaliser).__name__}, no Normaliser")

    def _check_cut(self) -> None:
        wish = self.seconds
        if wish is not None and (not _is_number(wish) or not 0 < wish < math.inf):
            raise DataError(f"seconds {_brief(wish)} is no length above 0")
        if not _is_number(self.overlap) or not 0 <= self.overlap <= _MOST_OVERLAP:
            raise DataError(
                f"overlap {_brief(self.overlap)} is no share; expected 0 to {_MOST_OVERLAP:g}"
            )
        if self.overlap and self.stride is not None:
            raise DataError(
                f"a stride of {self.stride} packets and an overlap of {self.overlap:g}; give one "
                "of the two"
            )
        if self.window is not None and self.decimate > self.window:
            raise DataError(
                f"decimate {self.decimate} leaves nothing of a window of {self.window}; lower it"
            )

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

    @property
    def window_seconds(self) -> float | None:
        """How long a window is; None where nobody knows."""
        rate = self.rate or self.packet_rate
        return None if rate is None or self.window is None else self.window / rate

    @property
    def links_used(self) -> int:
        """Antenna pairs whose subcarriers stand side by side in a window."""
        return (self.link_count or 1) if self.links == "all" else 1

    @property
    def window_rate(self) -> float | None:
        """Rows per second of a finished window; None where nobody knows."""
        rate = self.rate or self.packet_rate
        return None if rate is None else rate / self.decimate

    def wanted(self, recommended: int | None = None) -> int | None:
        """Packets of a window as it is asked for, however short recordings are.

        Rooms whose receivers were set to one rate need one number of packets: a rate within 2 % of
        a round one is taken for it.

        Args:
            recommended: the store's window, taken where neither packets nor seconds are said.
        """
        if self.window is not None or self.seconds is None:
            return self.window or recommended
        rate = self.rate or self.packet_rate
        if rate is None:
            raise DataError(
                f"windows of {self.seconds:g} s, and nobody noted how many packets per second "
                "there are; import the captures again with --rate, or set data.window"
            )
        return max(1, self.decimate, round(self.seconds * _round_rate(rate)))

    def sized(
        self, *, recommended: int | None = None, longest: int | None = None, why: str = ""
    ) -> "Recipe":
        """With packets for seconds and a stride for the overlap, at this receiver's packet rate.

        Args:
            recommended: the store's window, taken where neither packets nor seconds are said.
            longest: packets that there are at most; a window of seconds, or the recommended one,
                is cut down to them.
            why: the reason for it, in words.
        """
        window, shortened = self.wanted(recommended), self.shortened
        if self.window is None and window is not None and window > (longest or sys.maxsize):
            missing = f"{window} packets" if self.seconds is None else f"{self.seconds:g} s"
            window, shortened = longest, why or f"no recordings for {missing}"
        stride = self.stride
        if self.overlap and window is not None:
            stride = _stride(window, self.overlap)
        return replace(self, window=window, stride=stride, overlap=0.0, shortened=shortened)

    def sentence(self) -> str:
        """What its windows are, for people: length, links, view."""
        if self.source != "packets":
            return {"features": "feature vectors", "arrays": "windows given in Python"}[self.source]
        told = [f"windows of {self.window} packets"]
        rate, lasting = self.rate or self.packet_rate, ""
        if rate is not None and self.window is not None:
            lasting = f"{self.window / rate:.3g} s at {rate:.4g} per second"
            lasting += ", put onto an even grid" if self.rate is not None else ""
        if lasting or self.shortened:
            told[0] += f" ({'; '.join(filter(None, [lasting, self.shortened]))})"
        if self.link_count is not None and self.link_count > 1:
            used = "all" if self.links == "all" else "the first"
            told.append(f"{used} of {self.link_count} links")
        return ", ".join([*told, f"view {self.view}"])

    def check_view(self, subcarriers: int | None = None) -> None:
        """Refuse windows of which the view can make nothing.

        Args:
            subcarriers: that are kept of each link, where it is known.
        """
        if fault := self.view_fault(subcarriers):
            raise DataError(f"view '{self.view}' {fault}, or use view = \"amplitude\"")

    def view_fault(self, subcarriers: int | None = None) -> str:
        """Why the view can make nothing of such windows, and a remedy; nothing where it can."""
        view, rate = find_view(self.view), self.window_rate
        if view.needs_rate and rate is None:
            return (
                "speaks of Hz, and nobody noted how many packets per second there are; import the "
                "captures again with --rate"
            )
        if rate is not None and rate < view.slowest:
            faster = "record faster" if self.decimate == 1 else "lower data.decimate"
            return f"needs {view.slowest:g} packets per second or more, not {rate:.3g}; {faster}"
        if self.packets < view.fewest_packets:
            longer = f"--set data.window={view.fewest_packets * self.decimate}"
            return (
                f"needs {view.fewest_packets} packets per window or more, not {self.packets}; "
                + (self.shortened or f"use a longer window, e.g. {longer}")
            )
        if subcarriers is not None and subcarriers < view.fewest_subcarriers:
            more = "lower data.subcarrier_step" if self.subcarrier_step > 1 else "record more"
            return (
                f"needs {view.fewest_subcarriers} subcarriers per link or more, not {subcarriers}; "
                f"{more}"
            )
        return ""

    def cut_like(self, other: "Recipe") -> "Recipe":
        """This receiver and cleaning, with the windows of another recipe."""
        return replace(self, **{name: getattr(other, name) for name in _CUT})

    def on_receiver_of(self, other: "Recipe") -> "Recipe":
        """This cleaning and these windows, with the receiver of another recipe."""
        return replace(self, **{name: getattr(other, name) for name in _RECEIVER})

    def differences(self, other: "Recipe") -> list[str]:
        """Where two recipes differ, for a sentence: "rate 50 instead of 40"."""
        told = []
        for name in (field.name for field in fields(self) if field.name != "shortened"):
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


def told_together(sentences: Iterable[str]) -> str:
    """What the windows of several rooms are: each sentence once, of many the first few.

    Sentences of the same words whose numbers are within 5 % of each other are told as one, with
    "from to" for the numbers: no two receivers have the same rate to four digits.
    """
    groups: list[list[list[str]]] = []
    for sentence in dict.fromkeys(sentences):
        parts = _NUMBER.split(sentence)  # words at even places, numbers at odd ones
        alike = (group for group in groups if _are_alike(group[0], parts))
        group = next(alike, None)
        if group is None:
            groups.append([parts])
        else:
            group.append(parts)
    told = ["".join(map(_from_to, zip(*group, strict=True))) for group in groups]
    more = [f"and {len(told) - _TOLD} more kinds"] if len(told) > _TOLD else []
    return "; ".join([*told[:_TOLD], *more])


def _are_alike(parts: Sequence[str], others: Sequence[str]) -> bool:
    """Whether two sentences have the same words, and numbers that are nearly the same."""
    if parts[::2] != others[::2]:
        return False
    numbers = zip(parts[1::2], others[1::2], strict=True)
    return all(abs(float(one) - float(other)) <= _ALIKE * float(one) for one, other in numbers)


def _from_to(given: tuple[str, ...]) -> str:
    """One word or number that several sentences have in one place."""
    if len(set(given)) == 1:
        return given[0]
    return f"{min(given, key=float)} to {max(given, key=float)}"


def _round_rate(rate: float) -> float:
    """The round rate that is meant, or the rate itself where there is none near."""
    power = 10.0 ** math.floor(math.log10(rate))
    near = min((step * power for step in _ROUND_RATES), key=lambda found: abs(found - rate))
    return near if abs(near - rate) <= _OFF * near else rate


def _stride(window: int, overlap: float) -> int:
    """Packets from one window to the next, the window's length a multiple of them if it can be.

    Then every window has a neighbour that begins where it ends: those that test must not overlap,
    and are added up over time. Else the neighbour begins a few packets later: a hundredth of a
    window if that can be, or as few as can be. Of equals the step is the longest.
    """
    parts = round(1 / (1 - overlap))
    steps = (-(-window // number) for number in range(parts, 2 * parts))
    few = window // 100
    return min(steps, key=lambda step: (window % step > 0, max(few, -window % step)))


def _brief(value: object) -> str:
    if isinstance(value, tuple) and value:
        return f"{len(value)} from {value[0]} to {value[-1]}"
    if isinstance(value, Normaliser):
        return f"of {len(value.mean)} subcarriers"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _is_number(value: object) -> bool:
    """Whether it is one that a float can be: JSON has whole numbers of any length."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) <= sys.float_info.max


def _whole(name: str, value: object) -> None:
    if type(value) is not int or value < 1:
        raise DataError(f"{name} {value!r} is no whole number from 1 on")


def _choice(name: str, value: object, known: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in known:
        raise DataError(f"{name} {value!r} is unknown; {nearest(str(value), known)}")
