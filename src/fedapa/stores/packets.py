"""The packets of a stored recording as a recipe has them: as they are stored, or evenly spaced.

A store may keep packets as they came, with jitter and losses. Where a recipe has a rate and the
store has none, they go through the same ``Resampler`` as the packets of a live counter.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from fedapa.errors import DataError
from fedapa.stores.store import Recording, Store
from fedapa.windows.clean import Amplitudes, Resampler
from fedapa.windows.recipe import Recipe

__all__ = ["even_rate", "packets_of", "rows_of", "segment_lengths"]

_UNEVEN = 0.05
"""Packets are uneven where more than this share of their intervals is off the median one by more
than half of it, or where such intervals take more than twice this share of the time.

Half an interval tells a lost packet (twice as long) and a burst from jitter. Below that share
windows of so many packets take as long as they should, on average to about that share. The time is
asked, too: a few long silences between bursts are few intervals. The simulated rooms (1 to 3 %) and
three of the six placements of WiAR (below 0.3 %) are even; the other three (6 %) and nearly all
sample captures (14 % or more) are not.
"""
_BURSTS = 2.0
"""Packets come in bursts where the median interval says more than so many times the mean rate: a
grid as dense as the bursts would be mostly made up."""
_BYTES = 1 << 23
"""Of packets read from a store at a time."""
_UNNAMED = np.zeros(0, np.int16)


def even_rate(store: Store, recordings: Sequence[Recording], recipe: Recipe) -> float | None:
    """Packets per second of the grid that a room's packets must be put onto; None: they are even.

    None, too, where packets stay as they came: where their stamps do not say when that was (not
    finite, or a clock was set back), where nobody noted the rate, and where fewer than two come
    within the longest gap that resampling bridges.
    """
    stamps = [store.timestamps(recording) for recording in recordings]
    if recipe.packet_rate is None or not all(np.isfinite(times).all() for times in stamps):
        return None
    intervals = np.concatenate([np.zeros(0), *(np.diff(times) for times in stamps)])
    if (intervals < 0).any() or not (intervals > 0).any():
        return None
    median = np.median(intervals[intervals > 0])
    off = np.abs(intervals - median) > median / 2
    their_time = intervals[off].sum() / intervals.sum()
    if off.mean() <= _UNEVEN and their_time <= 2 * _UNEVEN:
        return None
    bridged = intervals[intervals <= recipe.gap]
    if not bridged.any():
        return None
    mean_rate = len(bridged) / float(bridged.sum())
    in_bursts = recipe.packet_rate > _BURSTS * mean_rate
    rate = mean_rate if in_bursts else recipe.packet_rate
    return rate if rate * recipe.gap >= 2 else None


def packets_of(store: Store, recording: Recording, recipe: Recipe) -> Iterator[Amplitudes]:
    """The packets that windows are cut from, some at a time; on the recipe's grid if it has one."""
    rows = rows_of(store, recording)
    if (rate := _grid_rate(store, recording, recipe)) is not None:
        yield from _resampled(rows, store, recording, rate=rate, longest_gap=recipe.gap)
        return
    for part in rows:
        # When it was is not asked here: rows of a store are told apart by their number.
        yield Amplitudes(part, np.full(len(part), np.nan), _UNNAMED)


def segment_lengths(store: Store, recording: Recording, recipe: Recipe) -> tuple[int, ...]:
    """Rows of each part of a recording between two gaps; only resampling tells parts apart."""
    rate = _grid_rate(store, recording, recipe)
    if rate is None:
        return recording.shape[:1]
    stamps_alone = np.zeros((recording.shape[0], 0, 0), np.float32)  # (packets, nothing, nothing)
    lengths: Counter[int] = Counter()
    for even in _resampled([stamps_alone], store, recording, rate=rate, longest_gap=recipe.gap):
        lengths[even.segment] += len(even.timestamps)
    return tuple(lengths[segment] for segment in sorted(lengths))


def rows_of(store: Store, recording: Recording) -> Iterator[npt.NDArray[np.float32]]:
    """A recording as it is stored, some rows at a time."""
    rows = max(1, _BYTES // (4 * int(np.prod(recording.shape[1:]))))
    for start in range(0, recording.shape[0], rows):
        yield store.read(recording, start, min(start + rows, recording.shape[0]))


def _grid_rate(store: Store, recording: Recording, recipe: Recipe) -> float | None:
    """Of the grid that stored packets are still to be put onto; None: they are as they should."""
    if recipe.rate is None or recording.is_features:
        return None
    return recipe.rate if store.recipe(recording.room).rate is None else None


def _resampled(
    parts: Iterable[npt.NDArray[np.float32]],
    store: Store,
    recording: Recording,
    *,
    rate: float,
    longest_gap: float,
) -> Iterator[Amplitudes]:
    """Consecutive rows of a recording on an even grid, in segments."""
    resampler = Resampler(rate=rate, longest_gap=longest_gap)
    times = store.timestamps(recording)
    start = 0
    for rows in parts:
        stamped = Amplitudes(rows, times[start : start + len(rows)], _UNNAMED)
        yield from _explained(resampler.feed(stamped), store, recording)
        start += len(rows)
    yield from _explained(resampler.finish(), store, recording)


def _explained(
    even: Iterator[Amplitudes], store: Store, recording: Recording
) -> Iterator[Amplitudes]:
    """The same packets; errors name the recording and a remedy."""
    try:
        yield from even
    except DataError as error:
        raise DataError(
            f"{store.path}: room '{recording.room}', recording '{recording.name}': {error}; give "
            "windows in packets, not in seconds, then packets stay as they came: --set "
            f"data.window={recording.shape[0]}"
        ) from error
