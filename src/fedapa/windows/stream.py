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
from fedapa.windows.clean import Amplitudes, Cleaner, kept_places
from fedapa.windows.recipe import Recipe

__all__ = ["Windower", "Windows", "window_fault", "window_starts", "window_width"]

_Rows = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Windows:
    """Consecutive windows, and where they stood; as an array it is ``values``."""

    values: _Rows
    """[windows, packets, subcarriers], before the normaliser."""
    starts: npt.NDArray[np.int64]
    """[windows] the number of each one's first packet, counted from the recording's begin after
    cleaning."""
    times: npt.NDArray[np.float64]
    """[windows] seconds, of the first packet."""
    ends: npt.NDArray[np.float64]
    """[windows] seconds, of the last packet."""

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
        self.recipe = recipe
        self._length = recipe.window
        self._cleaner = Cleaner(recipe)
        self._width = 0
        self._segment = 0
        self._begin = 0
        """The recording's packets before this segment."""
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
            packets: the next piece of a capture; or of stored amplitudes, which were cleaned,
                resampled and filtered when they were stored.
        """
        if isinstance(packets, Capture):
            self._cleaner.check(packets)
        subcarriers, links = _shape(packets, self.recipe)
        width = window_width(subcarriers, links, self.recipe)
        if self._width and width != self._width:
            raise DataError(
                f"packets of {width} subcarriers follow packets of {self._width}; a recording has "
                "one width"
            )
        self._width = width
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
        self._segment = self._begin = self._width = 0
        return windows

    def _take(self, piece: Amplitudes) -> list[Windows]:
        made = []
        if piece.segment != self._segment:
            made += self._cut(final=True)
            self._begin += self._packets
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
            return []
        rows = np.concatenate([rows for rows, _ in self._pieces])
        times = np.concatenate([times for _, times in self._pieces])
        values = np.empty((len(due), self.recipe.packets, self._width), np.float32)
        for place, start in enumerate(due):
            first = max(0, start - margin)
            last = min(self._packets, start + length + margin)
            around = rows[first - self._kept_from : last - self._kept_from]
            values[place] = _decimated(around, start - first, self.recipe)
        starts = np.asarray(due, np.int64)
        self._next = due[-1] + self.recipe.step
        windows = Windows(
            values,
            self._begin + starts,
            times[starts - self._kept_from],
            times[starts - self._kept_from + length - 1],
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
            np.empty((0, self.recipe.packets, self._width), np.float32),
            np.empty(0, np.int64),
            np.empty(0),
            np.empty(0),
        )
        every = parts or [empty]
        return Windows(
            np.concatenate([part.values for part in every]),
            np.concatenate([part.starts for part in every]),
            np.concatenate([part.times for part in every]),
            np.concatenate([part.ends for part in every]),
        )


def window_starts(packets: int, recipe: Recipe) -> range:
    """The rows of a recording of so many packets at which windows begin."""
    return range(0, packets - (recipe.window or 0) + 1, recipe.step)


def window_width(subcarriers: int, links: int, recipe: Recipe) -> int:
    """Columns of a window of packets with so many subcarriers and links."""
    kept = -(-subcarriers // recipe.subcarrier_step)
    return kept * (links if recipe.links == "stack" else 1)


def window_fault(window: _Rows) -> str:
    """What makes a window unusable, in words; nothing for a good one."""
    if not np.isfinite(window).all():
        return "holds NaN or infinity"
    if window.size > 1 and window.min() == window.max():
        return f"is constant ({window.flat[0]:g} everywhere)"
    return ""


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
