"""Cleaning: from a capture's complex CSI to the amplitudes that windows are cut from.

Null subcarriers go, by device and bandwidth; frames go that do not fill the band they claim to
have; what is left becomes amplitude [packets, subcarriers, links]. On request the uneven packets
of a real network are put onto an even grid and low-passed. All of it works on packets as they
come: however a recording is fed, the same bytes come out.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fedapa.csi.capture import Capture
from fedapa.csi.subcarriers import band_parts, live
from fedapa.errors import DataError
from fedapa.windows.recipe import EMPTY, Recipe

__all__ = [
    "Amplitudes",
    "Cleaner",
    "LowPass",
    "Resampler",
    "band_levels",
    "clean",
    "kept_places",
    "occupied",
]

_MOST_MADE_UP = 100
"""Packets of an even grid for each one that was recorded."""
_SPARSE_START = 10_000
"""So many more may be made up before the packets come that justify them."""
_BLOCK = 4096
"""Packets made at a time: memory does not grow with what was fed."""


@dataclass(frozen=True, eq=False)
class Amplitudes:
    """A capture after cleaning."""

    amplitude: npt.NDArray[np.float32]
    """[packets, subcarriers, links]; link = rx × number of tx + tx."""
    timestamps: npt.NDArray[np.float64]
    """[packets] seconds."""
    subcarriers: npt.NDArray[np.int16]
    """[subcarriers] centred indices of what is left."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Packets left out while cleaning, by reason."""
    segment: int = 0
    """Which part of a capture between two gaps; rises, may skip numbers."""


def clean(
    capture: Capture,
    *,
    gate: float = EMPTY,
    subcarriers: tuple[int, ...] | None = None,
) -> Amplitudes:
    """Amplitudes of the live subcarriers of the fully occupied frames.

    Args:
        capture: what a receiver recorded.
        gate: drop frames with a 20 MHz part below this share of the strongest; 0 keeps all.
        subcarriers: keep these instead, by their centred indices.
    """
    packets = capture.packets
    places = kept_places(capture, subcarriers)
    # Taken, not indexed: its memory is then laid out alike for any number of packets, and sums
    # and absolute values have the same last digits.
    links = math.prod(capture.csi.shape[2:])
    amplitude = np.abs(np.take(capture.csi, places, axis=1)).reshape(packets, len(places), links)
    timestamps = capture.timestamps
    dropped: Counter[str] = Counter()
    if gate > 0:
        full = occupied(capture, gate=gate)
        if not full.all():
            dropped[f"a 20 MHz part of the {capture.bandwidth} MHz is empty"] = int((~full).sum())
            amplitude, timestamps = amplitude[full], timestamps[full]
    return Amplitudes(amplitude, timestamps, capture.subcarriers[places], dict(dropped))


def occupied(capture: Capture, *, gate: float = EMPTY) -> npt.NDArray[np.bool_]:
    """[packets] True for frames with signal in every 20 MHz part of their band."""
    level = band_levels(capture)
    strongest = level.max(axis=1, keepdims=True)
    full: npt.NDArray[np.bool_] = (level >= gate * strongest).all(axis=1) & (strongest[:, 0] > 0)
    return full


def band_levels(capture: Capture) -> npt.NDArray[np.float32]:
    """[packets, parts] mean amplitude of the live subcarriers in each 20 MHz part."""
    places = kept_places(capture, None)
    parts = band_parts(capture.bandwidth, capture.subcarriers[places])
    links = math.prod(capture.csi.shape[2:])
    levels = [
        np.abs(np.take(capture.csi, places[part], axis=1))
        .reshape(capture.packets, len(part) * links)  # (packets, subcarriers·links)
        .mean(axis=1)
        for part in parts
    ]
    return np.stack(levels, axis=1)


def kept_places(capture: Capture, kept: tuple[int, ...] | None) -> npt.NDArray[np.int64]:
    """Where in a capture's subcarriers those lie that are kept; None: all that are live."""
    names = capture.subcarriers.astype("<i2").tobytes()
    return _places_of(capture.device, capture.bandwidth, names, kept)


@lru_cache(maxsize=256)
def _places_of(
    device: str, bandwidth: int, names: bytes, kept: tuple[int, ...] | None
) -> npt.NDArray[np.int64]:
    """Remembered: packets may come one by one, and looking places up takes longer than the rest."""
    subcarriers = np.frombuffer(names, "<i2").astype(np.int16)
    if kept is None:
        # Null subcarriers hold what the receiver left there, up to a thousand times the signal.
        places = np.flatnonzero(live(device, bandwidth, subcarriers))
    else:
        places = np.flatnonzero(np.isin(subcarriers, kept))
        if len(places) != len(kept):
            absent = sorted(set(kept) - set(subcarriers.tolist()))
            raise DataError(
                f"the capture ({device}, {bandwidth} MHz) has no subcarrier "
                f"{absent[0] if absent else 'twice'}, the recipe keeps it; use a recipe of this "
                "receiver"
            )
    places.setflags(write=False)
    return places


class Resampler:
    """Puts jittered or lossy packets onto an even grid of ``rate`` per second, by straight lines.

    Where no packet came for longer than ``longest_gap`` seconds nothing is made up: a new segment
    begins there. Segments of a single packet are left out and counted in ``dropped``. A packet of
    the grid is made as soon as a packet behind it is known not to be followed by another with the
    same stamp.
    """

    def __init__(self, *, rate: float, longest_gap: float) -> None:
        self._rate = rate
        self._longest_gap = longest_gap
        self.dropped: Counter[str] = Counter()
        self._segment = 0
        self._packets = 0
        self._last: float | None = None
        self._begin_segment()

    def _begin_segment(self) -> None:
        self._held: Amplitudes | None = None
        """The packets that grid packets to come may lie between; the last of them may change."""
        self._first = 0.0
        self._stamps = 0
        """Distinct stamps of this segment."""
        self._made = 0

    def feed(self, cleaned: Amplitudes) -> Iterator[Amplitudes]:
        """The packets of the grid that are settled by these."""
        times = cleaned.timestamps
        if not len(times):
            return
        steps = np.diff(times, prepend=times[0] if self._last is None else self._last)
        if (steps < 0).any():
            place = int((steps < 0).argmax())
            raise DataError(
                f"packet {self._packets + place} is {-steps[place]:.3f} s older than the one "
                "before it: the clock was set back; cut the file there, or leave the rate out"
            )
        self._packets += len(times)
        self._last = float(times[-1])
        edges = np.flatnonzero(steps > self._longest_gap).tolist()
        after_gap = set(edges)
        for begin, end in zip([0, *edges], [*edges, len(times)], strict=True):
            if begin in after_gap:
                yield from self.finish()
            if end > begin:
                yield from self._extend(cleaned, begin, end)

    def finish(self) -> Iterator[Amplitudes]:
        """The segment is over: what waited for later packets."""
        held = self._held
        if held is not None and self._stamps < 2:
            self.dropped["alone between two gaps"] += self._stamps
        elif held is not None:
            last = float(held.timestamps[-1])
            if (last - self._first) * self._rate > _MOST_MADE_UP * self._stamps:
                self._refuse(self._stamps, last)
            yield from self._grid(held, self._due(last))
        self._begin_segment()
        self._segment += 1

    def _extend(self, cleaned: Amplitudes, begin: int, end: int) -> Iterator[Amplitudes]:
        times, rows = cleaned.timestamps[begin:end], cleaned.amplitude[begin:end]
        known = 0
        if self._held is None:
            self._first = float(times[0])
        else:
            known = len(self._held.timestamps)
            times = np.concatenate([self._held.timestamps, times])
            rows = np.concatenate([self._held.amplitude, rows])
        # Of packets with one stamp the last counts: a line needs one value at one time.
        last = np.append(np.diff(times) > 0, True)
        times, rows = times[last], rows[last]
        before, self._stamps = self._stamps, self._stamps + len(times) - known
        made_up = (times - self._first) * self._rate
        most = _SPARSE_START + _MOST_MADE_UP * (before + 1 + np.arange(len(times)) - known)
        if (made_up > most).any():
            self._refuse(self._stamps, float(times[-1]))
        held = Amplitudes(rows, times, cleaned.subcarriers)
        if len(times) > 1:
            settled = float(times[-2])
            due = self._due(settled)
            ready = Amplitudes(rows[:-1], times[:-1], cleaned.subcarriers)
            while due > self._made and self._first + (due - 1) / self._rate >= settled:
                due -= 1  # it lies between this packet and the one that may still change
            yield from self._grid(ready, due)
        following = self._first + self._made / self._rate
        keep = min(int(np.searchsorted(times, following, side="right")) - 1, len(times) - 2)
        keep = max(0, keep)
        self._held = Amplitudes(rows[keep:].copy(), times[keep:].copy(), held.subcarriers)

    def _due(self, until: float) -> int:
        """How many packets the grid has up to a time."""
        return int((until - self._first) * self._rate + 1e-6) + 1

    def _grid(self, known: Amplitudes, due: int) -> Iterator[Amplitudes]:
        """Grid packets up to number ``due``, between the known ones."""
        times, rows = known.timestamps, known.amplitude
        while self._made < due:
            until = min(due, self._made + _BLOCK)
            grid = self._first + np.arange(self._made, until) / self._rate
            after = np.clip(np.searchsorted(times, grid, side="right"), 1, len(times) - 1)
            share = np.clip((grid - times[after - 1]) / (times[after] - times[after - 1]), 0, 1)
            later = share.astype(np.float32)[:, None, None]
            made = rows[after - 1] * (1 - later) + rows[after] * later
            self._made = until
            yield Amplitudes(made, grid, known.subcarriers, segment=self._segment)

    def _refuse(self, packets: int, last: float) -> None:
        raise DataError(
            f"{packets} packets in {last - self._first:g} s are too few for a rate of "
            f"{self._rate:g} per second: more than {_MOST_MADE_UP} of each would be made up"
        )


class LowPass:
    """A linear-phase low-pass (windowed sinc, Hamming) at ``cutoff`` Hz for even packets.

    It looks at ``reach`` packets on both sides, so a packet comes out when so many more are there;
    stamps stay with their packets. At the ends of a segment the first and the last packet stand
    for what is missing. Segments of ``reach`` packets or fewer are left out and counted.
    """

    def __init__(self, *, cutoff: float, rate: float, reach: int) -> None:
        places = np.arange(-reach, reach + 1)
        ideal = np.sinc(2 * cutoff / rate * places)
        taps = ideal * (0.54 + 0.46 * np.cos(np.pi * places / max(1, reach)))
        self._taps: list[float] = (taps / taps.sum()).tolist()
        self._reach = reach
        self.dropped: Counter[str] = Counter()
        self._held: Amplitudes | None = None
        """The last 2·reach packets, the first one repeated before the segment's begin."""
        self._packets = 0

    def feed(self, even: Amplitudes) -> Iterator[Amplitudes]:
        """The packets whose neighbours are all there."""
        if not len(even.timestamps):
            return
        if self._held is not None and self._held.segment != even.segment:
            yield from self.finish()
        self._packets += len(even.timestamps)
        yield from self._take(even)

    def finish(self) -> Iterator[Amplitudes]:
        """The segment is over: what waited for later packets."""
        held = self._held
        if held is not None and self._packets <= self._reach:
            reason = f"too few in a row to low-pass, at least {self._reach + 1} are needed"
            self.dropped[reason] += self._packets
        elif held is not None:
            yield from self._take(_repeated(held, self._reach, last=True))
        self._held, self._packets = None, 0

    def _take(self, new: Amplitudes) -> Iterator[Amplitudes]:
        held = self._held
        if held is None:
            held = _repeated(new, self._reach, last=False)
        rows = np.concatenate([held.amplitude, new.amplitude])
        times = np.concatenate([held.timestamps, new.timestamps])
        ready = max(0, len(rows) - 2 * self._reach)
        for first in range(0, ready, _BLOCK):
            count = min(_BLOCK, ready - first)
            part = rows[first : first + count + 2 * self._reach].astype(np.float64)
            # One multiplication and addition after the other: a packet's sum has the same order,
            # hence the same last digit, however many come at once.
            made = self._taps[self._reach] * part[self._reach : self._reach + count]
            for place in range(self._reach):
                mirror = 2 * self._reach - place
                made += self._taps[place] * (
                    part[place : place + count] + part[mirror : mirror + count]
                )
            stamps = times[first + self._reach : first + self._reach + count]
            yield Amplitudes(made.astype(np.float32), stamps, new.subcarriers, segment=held.segment)
        self._held = Amplitudes(
            rows[ready:].copy(), times[ready:].copy(), new.subcarriers, segment=held.segment
        )


def _repeated(packets: Amplitudes, times: int, *, last: bool) -> Amplitudes:
    """The first or last packet so many times."""
    place = -1 if last else 0
    return Amplitudes(
        np.repeat(packets.amplitude[place][None], times, axis=0),
        np.full(times, packets.timestamps[place]),
        packets.subcarriers,
        segment=packets.segment,
    )


class Cleaner:
    """Captures in, even and filtered amplitudes out: the first half of a recipe.

    ``feed`` gives what is settled, ``finish`` what waited for later packets; then it is ready for
    the next recording.
    """

    def __init__(self, recipe: Recipe) -> None:
        if recipe.source != "packets":
            raise DataError(f"a recipe of {recipe.source} has no packets to clean")
        self._recipe = recipe
        self._dropped: Counter[str] = Counter()
        self._begin()

    @property
    def dropped(self) -> Counter[str]:
        """Packets left out so far, by reason."""
        stages = (self._resampler, self._low_pass)
        return sum((stage.dropped for stage in stages if stage is not None), self._dropped)

    def _begin(self) -> None:
        recipe = self._recipe
        self._resampler: Resampler | None = None
        self._low_pass: LowPass | None = None
        if recipe.rate is not None:
            self._resampler = Resampler(rate=recipe.rate, longest_gap=recipe.gap)
            if recipe.low_pass is not None:
                self._low_pass = LowPass(
                    cutoff=recipe.low_pass, rate=recipe.rate, reach=recipe.reach
                )

    def feed(self, capture: Capture) -> Iterator[Amplitudes]:
        """The amplitudes that are settled by these packets."""
        self.check(capture)
        cleaned = clean(capture, gate=self._recipe.gate, subcarriers=self._recipe.subcarriers)
        self._dropped += Counter(cleaned.dropped)
        if self._resampler is None:
            if len(cleaned.timestamps):
                yield cleaned
            return
        for even in self._resampler.feed(cleaned):
            yield from self._smoothed(even)

    def finish(self) -> Iterator[Amplitudes]:
        """The recording is over: what waited for later packets."""
        if self._resampler is not None:
            for even in self._resampler.finish():
                yield from self._smoothed(even)
        if self._low_pass is not None:
            yield from self._low_pass.finish()
        self._dropped = self.dropped
        self._begin()

    def _smoothed(self, even: Amplitudes) -> Iterator[Amplitudes]:
        if self._low_pass is None:
            yield even
        else:
            yield from self._low_pass.feed(even)

    def check(self, capture: Capture) -> None:
        """Refuse packets of another receiver than the recipe's."""
        recipe = self._recipe
        pairs = {
            "device": (capture.device, recipe.device),
            "bandwidth": (capture.bandwidth, recipe.bandwidth),
            "link_count": (math.prod(capture.csi.shape[2:]), recipe.link_count),
        }
        for name, (got, expected) in pairs.items():
            if expected is not None and got != expected:
                raise DataError(
                    f"{name} is {got}, the recipe is for {expected}; use a recipe of this receiver"
                )
