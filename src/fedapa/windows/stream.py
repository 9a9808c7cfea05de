"""Windower: packets in, windows out, as they come; the only way a window is made.

``feed`` takes a piece of a capture, or amplitudes that a store has kept, of any length. However a
recording is fed, the same windows come out, to the bit: import, training, experiments and a live
counter all go through here. A recording in one go::

    windower = Windower(recipe)
    windows = [*windower.feed(capture), *windower.finish()]
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedapa.csi.capture import Capture
from fedapa.errors import DataError
from fedapa.processes import one_thread
from fedapa.windows.clean import Amplitudes, Cleaner, kept_places
from fedapa.windows.recipe import Recipe
from fedapa.windows.views import View, find_view

__all__ = [
    "Windower",
    "Windows",
    "kept_sides",
    "segment_starts",
    "silent_in",
    "unheard",
    "value_fault",
    "window_shape",
    "window_starts",
]

_Rows = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Windows:
    """Consecutive windows, and where they stood; as an array it is ``values``."""

    values: _Rows
    """[windows, rows, columns] or [windows, numbers], as the recipe's view has them, before the
    normaliser; NaN where a faulty window has no view."""
    starts: npt.NDArray[np.int64]
    """[windows] the number of each one's first packet, counted from the recording's begin after
    cleaning; a gap takes as many numbers as there are from window to window, so that those on both
    sides of it are no neighbours."""
    times: npt.NDArray[np.float64]
    """[windows] seconds, of the first packet."""
    ends: npt.NDArray[np.float64]
    """[windows] seconds, of the last packet."""
    faults: tuple[str, ...]
    """[windows] what makes a window unusable, in words; empty for a good one."""

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[_Rows]:
        return iter(self.values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.array(self.values, dtype=dtype, copy=copy)


class Windower:
    """Makes the windows of a recipe from packets as they come.

    It keeps what the next windows need and no more: about one window, its decimation's margin and
    the low-pass's reach. Where a recipe resamples, a gap begins a new segment and no window spans
    it; without a rate a window is so many packets, however long they took.
    """

    def __init__(self, recipe: Recipe) -> None:
        if recipe.source != "packets" or recipe.window is None:
            what = "no window" if recipe.source == "packets" else f"{recipe.source}, not packets"
            raise DataError(f"a recipe with {what} makes no windows; give it packets per window")
        recipe.check_view()
        self.recipe = recipe
        self._length = recipe.window
        self._view = find_view(recipe.view)
        self._cleaner = Cleaner(recipe)
        self._links = self._subcarriers = 0
        """Of the packets that came; none have yet."""
        self._segment = 0
        self._begin = 0
        """Number of this segment's first packet in the recording."""
        self._begin_segment()

    def _begin_segment(self) -> None:
        self._pieces: list[tuple[_Rows, npt.NDArray[np.float64]]] = []
        """Packets of this segment that windows to come need, joined when one is due."""
        self._kept_from = 0
        self._packets = 0
        self._next = 0
        """The next window's first packet, counted from the segment's begin."""

    @property
    def dropped(self) -> Counter[str]:
        """Packets left out so far, by reason."""
        return self._cleaner.dropped

    def feed(self, packets: Capture | Amplitudes) -> Windows:
        """The windows that are complete with these packets.

        Args:
            packets: the next piece of a capture; or of stored amplitudes, which are cleaned,
                resampled and filtered already.
        """
        if isinstance(packets, Capture):
            self._cleaner.check(packets)
        kept = kept_sides(*_shape(packets, self.recipe), self.recipe)
        before = (self._links, self._subcarriers)
        if self._subcarriers and kept != before:
            raise DataError(
                f"packets of {_width_text(*kept)} follow packets of {_width_text(*before)}; a "
                "recording has one width"
            )
        if not self._subcarriers:
            self.recipe.check_view(kept[1])
        self._links, self._subcarriers = kept
        pieces: Iterable[Amplitudes]
        pieces = (packets,) if isinstance(packets, Amplitudes) else self._cleaner.feed(packets)
        return self._joined([made for piece in pieces for made in self._take(piece)])

    def finish(self) -> Windows:
        """The recording is over: the windows that waited for packets behind them.

        The next packets are another recording's.
        """
        made = [window for piece in self._cleaner.finish() for window in self._take(piece)]
        made += self._cut(final=True)
        windows = self._joined(made)
        self._begin_segment()
        self._segment = self._begin = self._links = self._subcarriers = 0
        return windows

    def _take(self, piece: Amplitudes) -> list[Windows]:
        made = []
        if piece.segment != self._segment:
            made += self._cut(final=True)
            if self._packets:
                self._begin += self._packets + self.recipe.step
            self._segment = piece.segment
            self._begin_segment()
        rows = _selected(piece.amplitude, self.recipe)
        self._pieces.append((rows, piece.timestamps))
        self._packets += len(rows)
        return made + self._cut(final=False)

    def _cut(self, *, final: bool) -> list[Windows]:
        """The windows that are due, with the packets around them as far as decimation looks."""
        length, margin = self._length, self.recipe.margin
        ahead = 0 if final else margin
        due = range(self._next, self._packets - length - ahead + 1, self.recipe.step)
        if not due:
            while self._pieces and self._kept_from + len(self._pieces[0][0]) <= self._next - margin:
                self._kept_from += len(self._pieces.pop(0)[0])  # between two windows that are apart
            return []
        rows = np.concatenate([rows for rows, _ in self._pieces])
        times = np.concatenate([times for _, times in self._pieces])
        values = np.empty((len(due), *self._made_shape()), np.float32)
        faults = []
        # On one thread, one window at a time: it then has the same bits on any number of cores,
        # alone and among others.
        with one_thread():
            for place, start in enumerate(due):
                first = max(0, start - margin)
                last = min(self._packets, start + length + margin)
                around = rows[first - self._kept_from : last - self._kept_from]
                window = _decimated(around, start - first, self.recipe)
                window = window.reshape(len(window), self._links, self._subcarriers)
                faults.append(_fault(window, self._view))
                usable = not faults[-1] or not self._view.needs_signal
                rate = self.recipe.window_rate or 0
                values[place] = self._view(window, rate) if usable else np.nan
        starts = np.asarray(due, np.int64)
        self._next = due[-1] + self.recipe.step
        windows = Windows(
            values,
            self._begin + starts,
            times[starts - self._kept_from],
            times[starts - self._kept_from + length - 1],
            tuple(faults),
        )
        self._forget(rows, times)
        return [windows]

    def _forget(self, rows: _Rows, times: npt.NDArray[np.float64]) -> None:
        begin = min(max(0, self._next - self.recipe.margin), self._packets)
        gone = begin - self._kept_from
        self._pieces = [(rows[gone:].copy(), times[gone:].copy())]
        self._kept_from = begin

    def _joined(self, parts: list[Windows]) -> Windows:
        if len(parts) == 1:
            return parts[0]
        empty = Windows(
            np.empty((0, *self._made_shape()), np.float32),
            np.empty(0, np.int64),
            np.empty(0),
            np.empty(0),
            (),
        )
        every = parts or [empty]
        return Windows(
            np.concatenate([part.values for part in every]),
            np.concatenate([part.starts for part in every]),
            np.concatenate([part.times for part in every]),
            np.concatenate([part.ends for part in every]),
            tuple(fault for part in every for fault in part.faults),
        )

    def _made_shape(self) -> tuple[int, ...]:
        return self._view.shape(self.recipe.packets, self._links, self._subcarriers)


def window_starts(packets: int, recipe: Recipe) -> range:
    """The rows of a recording of so many packets at which windows begin."""
    return range(0, packets - (recipe.window or 0) + 1, recipe.step)


def segment_starts(lengths: Iterable[int], recipe: Recipe) -> list[int]:
    """The same of a recording in segments of so many packets, as ``Windows.starts`` has them."""
    starts: list[int] = []
    begin = 0
    for packets in lengths:
        starts += [begin + start for start in window_starts(packets, recipe)]
        begin += packets + recipe.step
    return starts


def window_shape(subcarriers: int, links: int, recipe: Recipe) -> tuple[int, ...]:
    """Of a finished window of packets with so many subcarriers and links."""
    return find_view(recipe.view).shape(recipe.packets, *kept_sides(subcarriers, links, recipe))


def value_fault(values: _Rows) -> str:
    """What makes numbers unusable as a window, in words; nothing for good ones."""
    if not np.isfinite(values).all():
        return "holds NaN or infinity"
    if values.size > 1 and values.min() == values.max():
        return f"is constant ({values.flat[0]:g} everywhere)"
    return ""


def _fault(window: _Rows, view: View) -> str:
    """What makes a window [packets, links, subcarriers] unusable; nothing for a good one."""
    if (fault := value_fault(window)) or not view.needs_signal:
        return fault
    return (
        fault := unheard(silent_in(window))
    ) and f"{fault}, of which view '{view.name}' makes nothing"


def silent_in(window: _Rows) -> npt.NDArray[np.bool_]:
    """[links, subcarriers] what is zero throughout a window [packets, links, subcarriers]."""
    return np.asarray(~np.any(window > 0, axis=0))


def unheard(silent: npt.NDArray[np.bool_]) -> str:
    """What of ``silent_in`` is so, in words: the first of it; mostly nothing."""
    dead = np.flatnonzero(silent.all(axis=1))
    if len(dead):
        return f"has a dead link (link {dead[0] + 1} of {len(silent)} is zero throughout)"
    if silent.any():
        first = np.nonzero(silent)[1][0]
        return f"has a subcarrier that is zero throughout ({first + 1} of {silent.shape[1]})"
    return ""


def kept_sides(subcarriers: int, links: int, recipe: Recipe) -> tuple[int, int]:
    """Links and subcarriers that a recipe keeps of so many."""
    return (links if recipe.links == "all" else 1), -(-subcarriers // recipe.subcarrier_step)


def _width_text(links: int, subcarriers: int) -> str:
    return f"{subcarriers} subcarriers" + (f" and {links} links" if links > 1 else "")


def _shape(packets: Capture | Amplitudes, recipe: Recipe) -> tuple[int, int]:
    """Subcarriers and links that are left of packets after cleaning."""
    if isinstance(packets, Amplitudes):
        return packets.amplitude.shape[1], packets.amplitude.shape[2]
    return len(kept_places(packets, recipe.subcarriers)), math.prod(packets.csi.shape[2:])


def _selected(amplitude: _Rows, recipe: Recipe) -> _Rows:
    """[packets, columns] of the subcarriers and links that the recipe keeps."""
    part = amplitude[:, :: recipe.subcarrier_step]  # (packets, subcarriers, links)
    if recipe.links == "first":
        return np.array(part[:, :, 0], np.float32)
    packets, subcarriers, links = part.shape
    side_by_side = part.transpose(0, 2, 1).reshape(packets, links * subcarriers)
    return np.array(side_by_side, np.float32)  # a copy: the caller's memory may be used again


def _decimated(around: _Rows, start: int, recipe: Recipe) -> _Rows:
    """One window from its packets and those around it; it begins at row ``start`` of them.

    Beyond the ends of a segment its first and last packet stand for what is missing. The rows
    around a window depend on the window alone, so it comes out the same whatever else is cut.
    """
    if recipe.decimate > 1:
        from scipy import signal  # a second to import, and rarely needed

        margin = recipe.margin
        taps = signal.firwin(2 * margin + 1, 0.8 / recipe.decimate)
        around = signal.oaconvolve(
            np.pad(around, ((margin, margin), (0, 0)), mode="edge"), taps[:, None], "valid", axes=0
        )
    inside = around[start : start + (recipe.window or 0) : recipe.decimate]
    return np.asarray(inside, np.float32)
