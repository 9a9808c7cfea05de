"""Stillness: does anything move in a room? Its packets answer, without a model and without labels.

A receiver's noise is new in every packet; what a person does lasts for many. So the means of two
neighbouring seconds differ by the noise alone if nobody is there, and the noise is known from
packets next to each other. With f [packets, S] the logarithm of the amplitude, less its mean over
time, less the packet's gain (the median over the subcarriers: steps of the gain control are gone
exactly, and one disturbed subcarrier does not spoil the others)::

    σ²ₛ  = mean (fₜ₊₁,ₛ − fₜ,ₛ)² / 2                        the noise floor of subcarrier s
    mₖ   = mean over s of (ȳₖ₊₁,ₛ − ȳₖ,ₛ)² / (σ²ₛ · (1/nₖ + 1/nₖ₊₁))

with ȳₖ the mean of the nₖ packets of second k. It is Allan's variance (Proc. IEEE 1966) at one
second, by what white noise would give: 1 in an empty room, whatever the receiver, its gain and its
packet rate; slow drifts cancel. Both means leave the greatest tenth out, for packets and
subcarriers that are disturbed, and are divided by what that leaves of squares of a normal variable
(``_KEPT``).

By hand: a floor of σ² = 0.01, 25 packets in each of two seconds, means 0.03 apart: 0.03² / (0.01
· (1/25 + 1/25)) = 0.0009 / 0.0008 = 1.125, no more than noise; 0.3 apart it is 112.5.

What is too much: mₖ is a mean over S squares, so its standard deviation is √(2/S), that of the
level of K pairs of seconds √(3/(S·K)) (neighbouring pairs share a second). The limits are four of
these for a take and five for one of its many seconds, and no less than a margin, since receivers
are not quite white (docs/calibrate.md has the rates).

While packets come (``StillnessMeter``), the level L is the mean of the last K pairs. An empty room
has it around 1; people give anything from there to a thousand, small and great alike::

    odds = N(L; 1, s²) / (1 / (L · ln 1000))        s² = 3/(S·K) + 0.05², L ≥ 1

By hand: S = 40 and K = 4 have s² = 0.01875 + 0.0025 = 0.02125, s = 0.1458. L = 1 has 0.3989 /
0.1458 = 2.737 in an empty room and 1 / 6.908 = 0.1448 with people: odds of 18.9; L = 1.5 is 3.4 s
away, and its odds are 0.079.
"""

import math
from collections import deque
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fedapa.csi.capture import Capture
from fedapa.errors import DataError
from fedapa.processes import one_thread
from fedapa.windows.clean import clean

__all__ = ["FEWEST_SECONDS", "MARGIN", "Stillness", "StillnessMeter", "still"]

FEWEST_SECONDS = 8
"""Of a take of which anything can be said: two breaths."""
MARGIN = 0.15
"""By how much a whole take may be above the noise floor, at least."""
_SUDDEN = 0.5
"""The same of a single second."""
_DEVIATIONS = 4.0
_SUDDEN_DEVIATIONS = 5.0
_TRIMMED = 0.9
"""Share of squares that is kept, the smallest."""
_KEPT = 0.623
"""Mean of the smallest nine tenths of the squares of a standard normal variable: their greatest is
q = 2.7055, and ∫ below it is P(χ²₃ < q) = 0.9 − √(2q/π)·exp(−q/2) = 0.561, by 0.9."""
_FEWEST = 8
"""Packets of a second of which there is a mean."""
_TOLD = 4
"""Times of motion that are told."""
_FLOOR_PAIRS = 4000
"""Neighbouring packets that tell the noise floor, evenly spread: more cost memory, no more."""
_NOT_WHITE = 0.05
"""What the level of an empty room may be off by beside chance."""
_RANGE = math.log(1000.0)
"""Over which levels of people are spread, as a logarithm."""
_MOVING = 3.0
"""A level that only people have."""
_SEEN_MOVING = 30
"""Pairs of seconds with such a level, before stillness says anything: in a room whose motion this
receiver cannot see, people are as still as nobody."""
_FLOOR_SECONDS = 8
"""That tell the noise floor, while packets come."""
_MOST_SUBCARRIERS = 64
"""More cost time and say little more."""
_STALE = 2.0
"""s after which the last seconds are others."""
_MOST_WAITING = 256
"""Pairs of seconds that no window has asked for."""

_Floats: TypeAlias = npt.NDArray[np.float64]
_Second: TypeAlias = tuple[int, _Floats]
"""The number of a second and the logarithms of its packets [packets, S]."""


@dataclass(frozen=True, eq=False)
class Stillness:
    """What moved in a take: 1 is the receiver's noise."""

    level: float
    """Of the whole take: the geometric mean over its seconds."""
    limit: float
    """Above which the take is not still."""
    seconds: _Floats
    """[pairs] s since the take began, at the end of each pair's first second."""
    levels: _Floats
    """[pairs] of each and its neighbours, their median: a single step is no motion."""
    sudden: float
    """Above which a single second is not still."""

    @property
    def is_still(self) -> bool:
        """Whether nothing moved that can be told from noise."""
        return self.level <= self.limit and not self.moving.any()

    @property
    def moving(self) -> npt.NDArray[np.bool_]:
        """[pairs] where something moved."""
        return np.asarray(self.levels > self.sudden)

    def spans(self) -> list[tuple[float, float]]:
        """From when to when something moved, in s since the take began."""
        spans: list[tuple[float, float]] = []
        for second in self.seconds[self.moving].tolist():
            begin, end = second - 1.0, second + 1.0
            if spans and begin <= spans[-1][1]:
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((begin, end))
        return spans

    @property
    def most(self) -> tuple[float, float]:
        """The greatest level of a second, and when that was."""
        place = int(self.levels.argmax())
        return float(self.levels[place]), float(self.seconds[place])

    def evidence(self) -> str:
        """What moved, when and how much, in words; for a still take how still it was."""
        floor = "times the noise floor"
        if self.is_still:
            return f"nothing moved: {self.level:.2f} {floor}, {self.limit:.2f} allowed"
        told = []
        if self.level > self.limit:
            told.append(f"{self.level:.1f} {floor} over the whole take ({self.limit:.2f} allowed)")
        if spans := self.spans():
            greatest, when = self.most
            told.append(f"{greatest:.3g} {floor} at second {when:.0f} ({self.sudden:.1f} allowed)")
            moments = ", ".join(f"{begin:.0f} to {end:.0f}" for begin, end in spans[:_TOLD])
            more = f" and {len(spans) - _TOLD} more times" if len(spans) > _TOLD else ""
            told.append(f"it moved from second {moments}{more}")
        return "; ".join(told)


def still(capture: Capture, *, margin: float = MARGIN) -> Stillness:
    """How still it was while these packets came; raises where they are too few to tell.

    Args:
        capture: one take, all of it.
        margin: by how much a take may be above the floor; raised for a receiver whose noise is not
            white.
    """
    cleaned = clean(capture)
    with one_thread():
        free = _without_gain(cleaned.amplitude)  # (packets, S)
        floor = _floor(free)  # σ²ₛ
        noisy = floor > 0  # a subcarrier that never changes says nothing
        if not noisy.any():
            raise DataError(
                "no subcarrier changes from packet to packet; expected a receiver's raw CSI"
            )
        return _of_seconds(free[:, noisy], floor[noisy], cleaned.timestamps, margin)


def _without_gain(amplitude: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """[packets, S] logarithms of the subcarriers of all links that are heard in every packet."""
    parts = []
    for link in range(amplitude.shape[2]):
        heard = (amplitude[:, :, link] > 0).all(axis=0)
        if heard.sum() > 1:
            logarithm = np.log(amplitude[:, heard, link])
            change = logarithm - logarithm.mean(axis=0)
            parts.append(change - np.median(change, axis=1, keepdims=True))
    return np.concatenate(parts, axis=1) if parts else np.empty((len(amplitude), 0), np.float32)


def _floor(free: npt.NDArray[np.float32]) -> _Floats:
    """[S] half the mean square of the change from packet to packet."""
    if len(free) < 2:
        return np.zeros(free.shape[1])
    first = np.unique(np.linspace(0, len(free) - 2, _FLOOR_PAIRS).astype(np.int64))
    return _trimmed(np.square(free[first + 1] - free[first]), axis=0) / 2


def _of_seconds(
    free: npt.NDArray[np.float32],
    floor: _Floats,
    stamps: npt.NDArray[np.float64],
    margin: float,
) -> Stillness:
    numbers, means, counts = _by_second(free, stamps)
    pairs = np.flatnonzero(np.diff(numbers) == 1)
    if len(pairs) + 1 < FEWEST_SECONDS:
        raise DataError(
            f"{min(len(numbers), len(pairs) + 1)} seconds with {_FEWEST} packets or more are too "
            f"few to tell whether anything moved; at least {FEWEST_SECONDS} in a row are needed"
        )
    noise = floor * (1 / counts[pairs] + 1 / counts[pairs + 1])[:, None]  # (pairs, S)
    changed = _trimmed(np.square(means[pairs + 1] - means[pairs]) / noise, axis=1)  # mₖ
    size = len(floor)
    return Stillness(
        level=float(np.exp(np.log(np.maximum(changed, 1e-9)).mean())),
        limit=1 + max(margin, _DEVIATIONS * math.sqrt(3 / (size * len(pairs)))),
        seconds=(numbers[pairs] + 1).astype(np.float64),
        levels=_smoothed(changed),
        sudden=1 + max(_SUDDEN * margin / MARGIN, _SUDDEN_DEVIATIONS * math.sqrt(2 / size)),
    )


def _by_second(
    free: npt.NDArray[np.float32], stamps: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.int64], _Floats, _Floats]:
    """The seconds that have packets enough, their means [seconds, S] and how many packets."""
    second = np.floor(stamps - stamps[0]).astype(np.int64)
    order = np.argsort(second, kind="stable")  # a clock may have been set back
    numbers, first, counts = np.unique(second[order], return_index=True, return_counts=True)
    sums = np.add.reduceat(free[order], first, axis=0, dtype=np.float64)
    enough = counts >= _FEWEST
    return numbers[enough], (sums / counts[:, None])[enough], counts[enough].astype(np.float64)


def _trimmed(squares: npt.NDArray[np.floating], *, axis: int) -> _Floats:
    """The mean of squares of a normal variable, by the smallest of them."""
    ordered = np.moveaxis(np.sort(squares, axis=axis), axis, 0)
    kept = _TRIMMED * len(ordered)
    whole = int(kept)
    total = ordered[:whole].sum(axis=0, dtype=np.float64) + (kept - whole) * ordered[whole]
    return np.asarray(total / kept / _KEPT)


def _smoothed(levels: _Floats) -> _Floats:
    """[pairs] the median of each and its two neighbours; the ends are as their neighbours."""
    middle = np.median(np.lib.stride_tricks.sliding_window_view(levels, 3), axis=1)
    return np.concatenate([middle[:1], middle, middle[-1:]])


class StillnessMeter:
    """How still the last seconds were, while packets of one recording come in order.

    However packets are fed, the same comes out: a pair of seconds is known from the first packet
    behind it on.
    """

    def __init__(self, pairs: int) -> None:
        self._pairs = pairs
        self._moved = 0
        self.restart()

    def restart(self) -> None:
        """Another recording begins; that motion can be seen here stays known."""
        self._start: float | None = None
        self._second = 0
        self._held: list[Capture] = []
        self._last: _Second | None = None
        self._floors: deque[_Floats] = deque(maxlen=_FLOOR_SECONDS)
        self._waiting: deque[tuple[float, float, int]] = deque(maxlen=_MOST_WAITING)
        """(when it was known, level, S) of pairs."""
        self._recent: deque[tuple[float, float, int]] = deque(maxlen=self._pairs)

    def feed(self, capture: Capture) -> None:
        """Take packets; none is older than one before it."""
        stamps = capture.timestamps
        if not len(stamps):
            return
        if self._start is None:
            self._start = float(stamps[0])
        if stamps[-1] < self._start + self._second + 1:  # packets may come one by one
            self._held.append(capture)
            return
        seconds = np.floor(stamps - self._start).astype(np.int64)
        edges = np.flatnonzero(np.diff(seconds, prepend=self._second)).tolist()
        for begin, end in zip([0, *edges], [*edges, len(stamps)], strict=True):
            if begin == end:
                continue
            if seconds[begin] != self._second:
                self._end_second()
                self._second = int(seconds[begin])
            self._held.append(capture.part(slice(begin, end)))

    def odds(self, stamp: float) -> float:
        """How much better the last seconds before ``stamp`` fit nobody than people.

        0 where nothing can be said: too few seconds or packets, or a room never seen to move.
        """
        while self._waiting and self._waiting[0][0] <= stamp:
            pair = self._waiting.popleft()
            if self._recent and pair[0] - self._recent[-1][0] > 1.5:  # not its neighbour
                self._recent.clear()
            self._recent.append(pair)
            self._moved += pair[1] >= _MOVING
        known = len(self._recent) == self._pairs and stamp - self._recent[-1][0] <= _STALE
        if not known or self._moved < _SEEN_MOVING:
            return 0.0
        _, levels, sizes = zip(*self._recent, strict=True)
        level = sum(levels) / self._pairs
        return _odds(level, min(sizes), self._pairs) if math.isfinite(level) else 0.0

    def _end_second(self) -> None:
        held, self._held = self._held, []
        before, self._last = self._last, None
        if sum(piece.packets for piece in held) < _FEWEST:
            return
        with np.errstate(all="ignore"):  # of infinities comes a level that says nothing
            cleaned = clean(Capture.joined(held)).amplitude
            if len(cleaned) >= _FEWEST and cleaned.size:
                self._take_second(cleaned.reshape(len(cleaned), -1), before)

    def _take_second(self, amplitude: npt.NDArray[np.float32], before: _Second | None) -> None:
        """[packets, S] of the second that is over, and the second that was heard before it."""
        every = -(-amplitude.shape[1] // _MOST_SUBCARRIERS)
        amplitude = amplitude[:, ::every].astype(np.float64)
        amplitude[:, ~(amplitude > 0).all(axis=0)] = 1.0  # not always heard: it says nothing
        packets = np.log(amplitude)
        steps = np.diff(packets, axis=0)
        floor = _trimmed(np.square(steps - _middle(steps)), axis=0) / 2  # σ²ₛ of this second
        if self._floors and len(self._floors[0]) != len(floor):
            self._floors.clear()
        self._floors.append(floor)
        self._last = (self._second, packets)
        if before is None or before[0] + 1 != self._second or before[1].shape[1] != len(floor):
            return
        assert self._start is not None
        level, size = self._level(before[1], packets)
        if size:
            self._waiting.append((self._start + self._second + 1, level, size))

    def _level(self, first: _Floats, second: _Floats) -> tuple[float, int]:
        """(mₖ, S) of two neighbouring seconds, gains removed against the first one's mean."""
        floor = np.mean(self._floors, axis=0)
        noisy = floor > 0
        if not noisy.any():
            return 0.0, 0
        reference = first.mean(axis=0)
        means = [
            (change - _middle(change)).mean(axis=0)
            for change in (first - reference, second - reference)
        ]
        noise = floor[noisy] * (1 / len(first) + 1 / len(second))
        squares = np.square(means[1] - means[0])[noisy] / noise
        return float(_trimmed(squares, axis=0)), len(noise)


def _odds(level: float, size: int, pairs: int) -> float:
    deviation = math.sqrt(3 / (size * pairs) + _NOT_WHITE**2)  # s
    level = max(level, 1.0)  # nobody makes a room stiller than noise
    away = (level - 1) / deviation
    nobody = math.exp(-away * away / 2) / (deviation * math.sqrt(2 * math.pi))
    return nobody * level * _RANGE


def _middle(changes: _Floats) -> _Floats:
    """[packets, 1] the median over subcarriers: a packet's gain."""
    return np.asarray(np.median(changes, axis=1, keepdims=True))
