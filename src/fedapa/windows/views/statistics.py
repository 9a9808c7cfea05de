"""Statistics: a window as named numbers with a physical meaning: what moves, how much, how fast.

Their number does not depend on the receiver: subcarriers are averaged in bands that are shares of
all of them, Doppler is in Hz and lags are in seconds. So rooms with 30, 56 or 242 subcarriers, with
one link or nine, at 125 or 1000 packets a second have the same vector, and can learn together. The
gain of the receiver cancels. What stands still is in the levels and the delay profile alone, what a
packet's gain does is in the numbers of the gain alone. ``STATISTICS`` names each number.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fedapa.windows.views.view import Floats, Places, View, without_gain

__all__ = ["STATISTICS", "LinkStatistics", "Statistics", "link_numbers"]

_FASTEST = 125.0
"""Packets per second that are left: faster ones are averaged, nothing of a person is that fast."""
_SUBCARRIERS = 56
"""More are averaged to so many groups."""
_GROUPS = 28
"""Of subcarriers, where every pair of them is looked at."""
_GAIN_STEP = 0.12
"""A change of the logarithm of the gain that is the receiver's amplifier, not the channel."""
_QUIET = np.float32(1e-8)

_Bands = tuple[tuple[float, float], ...]
_DOPPLER: _Bands = (
    (0.2, 0.6),  # breathing
    (0.6, 1.1),
    (1.1, 2),  # limbs
    (2, 4),
    (4, 7),
    (7, 12),
    (12, 20),
    (20, 34),  # walking
    (34, 60),
)
"""Hz."""
_WIDE: _Bands = ((0.2, 0.8), (0.8, 3), (3, 10), (10, 30), (30, 60))
"""Hz."""
_DELAYS = ((1, 2), (2, 3), (3, 5), (5, 8), (8, 15))
"""Steps of the transform over the groups of subcarriers: paths that are so much longer."""
_SHIFTS = (1 / 56, 2 / 56, 4 / 56, 8 / 56, 14 / 56)
_SUBCARRIER_LAGS = (1 / 56, 2 / 56, 4 / 56, 8 / 56, 16 / 56, 32 / 56)
"""Shares of the band."""
_TIME_LAGS = (0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.5, 1.0)
"""Seconds."""
_QUANTILES = (5, 25, 50, 75, 95)
_EIGENVALUES = 8
_PARTS = 8
"""Of a window, to see whether what moves lasts."""


@dataclass(frozen=True, eq=False)
class _Seen:
    """A window, and what several numbers are made from. L links, T rows, S subcarriers."""

    free: Floats
    """[L, T, S] log-amplitude without the packets' gain."""
    gain: Floats
    """[L, T] the logarithm of that gain."""
    rate: float
    """Rows per second."""

    @cached_property
    def shape(self) -> Floats:
        """[L, S] what stands still."""
        return self.free.mean(axis=1)  # type: ignore[no-any-return]

    @cached_property
    def motion(self) -> Floats:
        """[L, T, S] what moves."""
        return self.free - self.shape[:, None]

    @cached_property
    def change(self) -> Floats:
        """[L, T − 1, S] of the motion, from row to row."""
        return self.motion[:, 1:] - self.motion[:, :-1]

    @cached_property
    def variance(self) -> Floats:
        """[L, S]."""
        return np.asarray(np.square(self.motion).mean(axis=1))

    @cached_property
    def spectrum(self) -> npt.NDArray[np.complex64]:
        """[L, S, frequencies] of the tapered motion."""
        by_subcarrier = np.ascontiguousarray(self.motion.transpose(0, 2, 1))  # (L, S, T)
        tapered = by_subcarrier * _taper(self.motion.shape[1])
        return np.asarray(np.fft.rfft(tapered, axis=2), np.complex64)

    @cached_property
    def power(self) -> Floats:
        """[L, S, frequencies]."""
        rows = self.motion.shape[1]
        return _squared(self.spectrum) / np.float32(np.square(_taper(rows)).sum())

    @cached_property
    def frequencies(self) -> npt.NDArray[np.float64]:
        """[frequencies] Hz."""
        return _hertz(self.motion.shape[1], self.rate)

    @cached_property
    def groups(self) -> Floats:
        """[L, T, G] the motion of groups of subcarriers."""
        subcarriers = self.motion.shape[2]
        return self.motion @ _shares(subcarriers, min(_GROUPS, subcarriers))

    @cached_property
    def steady_gain(self) -> tuple[Floats, Floats]:
        """The gain [L, T − 1] without the amplifier's steps, and its changes."""
        changes = np.diff(self.gain, axis=1)
        changes = np.where(np.abs(changes) > _GAIN_STEP, np.float32(0), changes)
        calm = np.cumsum(changes, axis=1)
        return calm - calm.mean(axis=1, keepdims=True), changes


# ---- groups of numbers: each takes what was seen and gives [L, numbers] --------------------------


def _level_shape(seen: _Seen) -> Floats:
    shape, size = seen.shape, seen.shape.shape[1]
    steps = [np.abs(shape[:, lag:] - shape[:, :-lag]).mean(axis=1) for lag in _lags(_SHIFTS, size)]
    return np.concatenate(
        [
            shape @ _shares(size, 14),
            _log(np.stack([shape.std(axis=1), *steps], axis=1)),
            _quantiles(shape, (5, 25, 75, 95)),
        ],
        axis=1,
    )


def _delay_profile(seen: _Seen) -> Floats:
    """How long the echoes of the empty room are: the transform of the power over subcarriers."""
    power = np.exp(2 * seen.shape)  # (L, S)
    profile = np.abs(np.fft.rfft(power * np.hanning(power.shape[1]), axis=1))[:, :10]
    missing = 10 - profile.shape[1]
    profile = np.pad(profile, ((0, 0), (0, missing)))
    return np.asarray(np.log(profile[:, 1:] / profile[:, :1] + 1e-3))


def _amount(seen: _Seen) -> Floats:
    varied = np.square(seen.change).mean(axis=1)  # (L, S)
    spread = seen.variance
    means = [amounts.mean(axis=1, keepdims=True) for amounts in (spread, varied)]
    medians = [_quantiles(amounts, (50,)) for amounts in (spread, varied)]
    middle = _log(np.concatenate([*means, *medians], axis=1))
    return np.concatenate([middle, _quantiles(_log(spread), _QUANTILES)], axis=1)


def _doppler(seen: _Seen) -> Floats:
    rows, subcarriers = seen.motion.shape[1:]
    bands = seen.power @ _inside(rows, seen.rate, _DOPPLER).T  # (L, S, bands)
    quarters = bands.transpose(0, 2, 1) @ _shares(subcarriers, 4)  # (L, bands, 4)
    return np.concatenate([_log(bands.mean(axis=1)), _log(quarters).reshape(len(bands), -1)], 1)


def _pitch(seen: _Seen) -> Floats:
    """Centre and width of the logarithm of the Doppler frequency, above the receiver's noise."""
    hertz, power = seen.frequencies, seen.power.mean(axis=1)  # (L, frequencies)
    noise = power[:, hertz >= 0.85 * hertz[-1]].mean(axis=1, keepdims=True)
    within = (hertz >= 0.2) & (hertz < 0.8 * hertz[-1])
    above, pitch = np.maximum(power[:, within] - noise, _QUIET), np.log(hertz[within])
    share = above / above.sum(axis=1, keepdims=True)
    centre = share @ pitch
    width = np.sqrt(np.maximum(share @ pitch**2 - centre**2, 0))
    return np.stack([centre, width], axis=1)


def _doppler_by_delay(seen: _Seen) -> Floats:
    """How fast and how far: what moves at the end of a long path turns over the subcarriers."""
    rows, subcarriers = seen.motion.shape[1:]
    turned = _turns(subcarriers).T @ seen.spectrum  # (L, delays, frequencies)
    scale = np.float32(np.square(_taper(rows)).sum())
    power = _squared(turned) / scale @ _inside(rows, seen.rate, _WIDE).T  # (L, delays, bands)
    last = power.shape[1] - 1
    edges = [(min(low, last), max(high, min(low, last) + 1)) for low, high in _DELAYS]
    both = np.stack([power[:, low:high].mean(axis=1) for low, high in edges], axis=2)
    return _log(both).reshape(len(both), -1)  # (L, bands · delays)


def _movements(seen: _Seen) -> Floats:
    """How many independent movements: eigenvalues of the groups' covariance, all and slow ones."""
    links, rows, groups = seen.groups.shape
    block = max(1, round(seen.rate / 15))
    slow = seen.groups[:, : rows // block * block].reshape(links, -1, block, groups).mean(axis=2)
    parts = [_eigenvalues(moving) for moving in (seen.groups, slow - slow.mean(1, keepdims=True))]
    return np.concatenate([*(values for values, _ in parts), *(kinds for _, kinds in parts)], 1)


def _eigenvalues(moving: Floats) -> tuple[Floats, Floats]:
    """The largest as logarithms [L, 8]; their entropy and the logarithm of their number [L, 2]."""
    values = np.linalg.eigvalsh(moving.transpose(0, 2, 1) @ moving / moving.shape[1])[:, ::-1]
    values = np.maximum(values, 1e-10)
    share = values / values.sum(axis=1, keepdims=True)
    kinds = [-(share * np.log(share)).sum(axis=1), -np.log(np.square(share).sum(axis=1))]
    largest = np.log(values[:, :_EIGENVALUES])
    missing = _EIGENVALUES - largest.shape[1]
    return np.pad(largest, ((0, 0), (0, missing)), mode="edge"), np.stack(kinds, axis=1)


def _correlations(seen: _Seen) -> Floats:
    """Of subcarriers apart, and of rows apart."""
    motion, variance = seen.motion, seen.variance
    rows, subcarriers = motion.shape[1:]
    apart = [
        np.einsum("lts,lts->l", motion[:, :, lag:], motion[:, :, :-lag])
        / (np.sqrt(variance[:, lag:] * variance[:, :-lag]).sum(axis=1) * rows + _QUIET)
        for lag in _lags(_SUBCARRIER_LAGS, subcarriers)
    ]
    again = np.fft.irfft(seen.power.mean(axis=1), axis=1)
    again = again / (again[:, :1] + 1e-12)
    farthest = again.shape[1] // 2
    later = [again[:, min(farthest, max(1, round(seen.rate * lag)))] for lag in _TIME_LAGS]
    return np.stack([*apart, *later], axis=1)


def _moments(seen: _Seen) -> Floats:
    unit = seen.motion / np.sqrt(seen.variance + _QUIET)[:, None]
    square = unit * unit
    skewness, kurtosis = (square * unit).mean(axis=1), (square * square).mean(axis=1)  # (L, S)
    sides = [skewness.mean(axis=1), kurtosis.mean(axis=1), np.abs(skewness).mean(axis=1)]
    return np.stack([*sides, _log(kurtosis).mean(axis=1)], axis=1)


def _lasting(seen: _Seen) -> Floats:
    """Least to most of eight parts of the window: one person walks by, a crowd keeps moving."""
    links, rows, subcarriers = seen.motion.shape
    size = rows // _PARTS
    parts = seen.motion[:, : _PARTS * size].reshape(links, _PARTS, size, subcarriers)
    spread = np.square(parts).mean(axis=2) - np.square(parts.mean(axis=2))  # (L, parts, S)
    squares = np.square(seen.change)
    squares = np.concatenate([squares, squares[:, -1:]], axis=1)[:, : _PARTS * size]
    rough = squares.reshape(links, _PARTS, size, subcarriers).mean(axis=2)
    made = []
    for amounts in (spread, rough):
        ordered = np.sort(_log(np.maximum(amounts.mean(axis=2), 0)), axis=1)  # (L, parts)
        made += [ordered[:, [0, 2, 5, 7]], ordered.std(axis=1, keepdims=True)]
    return np.concatenate(made, axis=1)


def _gain(seen: _Seen) -> Floats:
    """What people do to all subcarriers at once; the amplifier's own steps are left out."""
    calm, changes = seen.steady_gain
    packets = calm.shape[1]
    amounts = _log(np.stack([np.square(calm).mean(axis=1), np.square(changes).mean(axis=1)], 1))
    power = _squared(np.fft.rfft(calm * _taper(packets), axis=1))
    bands = power / np.square(_taper(packets)).sum() @ _inside(packets, seen.rate, _WIDE).T
    return np.concatenate([amounts, _log(bands)], axis=1)


def _band_names(bands: _Bands) -> list[str]:
    return [f"{low:g} to {high:g} Hz" for low, high in bands]


_LASTING = ("least", "low", "high", "most", "spread")
_NUMBERS: tuple[tuple[Callable[[_Seen], Floats], Sequence[str]], ...] = (
    (
        _level_shape,
        (
            *(f"level of band {band + 1} of 14" for band in range(14)),
            "log spread of levels",
            *(f"log step of levels {share:.2f} of the band apart" for share in _SHIFTS),
            *(f"{quantile} % quantile of levels" for quantile in (5, 25, 75, 95)),
        ),
    ),
    (_delay_profile, [f"log share of delay {step} in the power" for step in range(1, 10)]),
    (
        _amount,
        (
            "log variance",
            "log variance of changes",
            "log median variance",
            "log median variance of changes",
            *(f"{quantile} % quantile of the log variance" for quantile in _QUANTILES),
        ),
    ),
    (
        _doppler,
        (
            *(f"log power at {band}" for band in _band_names(_DOPPLER)),
            *(
                f"log power at {band} in quarter {quarter + 1} of the band"
                for band in _band_names(_DOPPLER)
                for quarter in range(4)
            ),
        ),
    ),
    (_pitch, ("log centre of the Doppler", "log width of the Doppler")),
    (
        _doppler_by_delay,
        [
            f"log power at {band}, delay {low} to {high - 1}"
            for band in _band_names(_WIDE)
            for low, high in _DELAYS
        ],
    ),
    (
        _movements,
        (
            *(f"log eigenvalue {number + 1}" for number in range(_EIGENVALUES)),
            *(f"log eigenvalue {number + 1} of slow motion" for number in range(_EIGENVALUES)),
            "entropy of the eigenvalues",
            "log number of movements",
            "entropy of the eigenvalues of slow motion",
            "log number of slow movements",
        ),
    ),
    (
        _correlations,
        (
            *(f"correlation {share:.2f} of the band apart" for share in _SUBCARRIER_LAGS),
            *(f"correlation {lag:g} s apart" for lag in _TIME_LAGS),
        ),
    ),
    (_moments, ("skewness", "kurtosis", "mean absolute skewness", "mean log kurtosis")),
    (
        _lasting,
        (
            *(f"log variance of an eighth: {which}" for which in _LASTING),
            *(f"log variance of changes in an eighth: {which}" for which in _LASTING),
        ),
    ),
    (
        _gain,
        (
            "log variance of the gain",
            "log variance of changes of the gain",
            *(f"log power of the gain at {band}" for band in _band_names(_WIDE)),
        ),
    ),
)
STATISTICS = tuple(name for _, names in _NUMBERS for name in names)
"""What the numbers are, in their order."""


class Statistics(View):
    """[numbers], each the mean over the links."""

    name: ClassVar[str] = "statistics"
    about: ClassVar[str] = "named numbers of what moves, how much and how fast"
    needs_rate: ClassVar[bool] = True
    fewest_packets: ClassVar[int] = 32
    fewest_subcarriers: ClassVar[int] = 3
    slowest: ClassVar[float] = 10.0

    def shape(self, packets: int, links: int, subcarriers: int) -> tuple[int, ...]:
        """The same for every receiver."""
        return (len(STATISTICS),)

    def __call__(self, window: Floats, rate: float) -> Floats:
        """The numbers of every link, averaged."""
        return self.of(window, link_numbers(window, rate))

    def of(self, window: Floats, numbers: Floats) -> Floats:
        """The same from ``link_numbers``, which several views begin with."""
        return np.asarray(numbers.mean(axis=0), np.float32)


class LinkStatistics(Statistics):
    """[links · numbers], link after link: which antenna saw it may matter."""

    name: ClassVar[str] = "statistics by link"
    about: ClassVar[str] = "the same numbers for each link"

    def shape(self, packets: int, links: int, subcarriers: int) -> tuple[int, ...]:
        """As many times as there are links."""
        return (links * len(STATISTICS),)

    def of(self, window: Floats, numbers: Floats) -> Floats:
        """The numbers of the first link, then of the next."""
        return numbers.ravel()

    def places(self, shape: tuple[int, ...], links: int) -> Places:
        """Of the links."""
        return Places(links=np.arange(shape[0]).reshape(links, -1))


def link_numbers(window: Floats, rate: float) -> Floats:
    """[L, numbers] of a window [packets, L, subcarriers]."""
    seen = _seen(window, rate)
    made = np.concatenate([compute(seen) for compute, _ in _NUMBERS], axis=1)
    return np.asarray(made, np.float32)


def _seen(window: Floats, rate: float) -> _Seen:
    free, gains = without_gain(window)
    free, gain = free.transpose(1, 0, 2), gains[:, :, 0].T  # (L, packets, …), (L, packets)
    links, packets, subcarriers = free.shape
    if subcarriers > _SUBCARRIERS:
        free = free @ _shares(subcarriers, _SUBCARRIERS)
    fold = max(1, int(rate // _FASTEST))
    if fold > 1:
        kept = packets // fold * fold
        free = free[:, :kept].reshape(links, -1, fold, free.shape[2]).mean(axis=2)
        gain = gain[:, :kept].reshape(links, -1, fold).mean(axis=2)
    return _Seen(np.ascontiguousarray(free), gain, rate / fold)


def _log(values: npt.NDArray[np.floating]) -> Floats:
    return np.asarray(np.log(values + _QUIET), np.float32)


def _squared(values: npt.NDArray[np.complexfloating]) -> Floats:
    return np.asarray(values.real**2 + values.imag**2, np.float32)


def _quantiles(values: Floats, percents: tuple[int, ...]) -> Floats:
    """[L, quantiles] of values [L, n], between neighbours in a straight line."""
    ordered = np.sort(values, axis=1)
    place = np.asarray(percents) / 100 * (values.shape[1] - 1)
    below = np.minimum(place.astype(np.int64), values.shape[1] - 2)
    share = (place - below).astype(np.float32)
    return np.asarray(ordered[:, below] * (1 - share) + ordered[:, below + 1] * share)


def _lags(shares: Sequence[float], size: int) -> list[int]:
    return [min(size - 1, max(1, round(size * share))) for share in shares]


@lru_cache(maxsize=32)
def _taper(rows: int) -> Floats:
    return np.hanning(rows).astype(np.float32)


def _hertz(rows: int, rate: float) -> npt.NDArray[np.float64]:
    return np.asarray(np.arange(rows // 2 + 1) * (rate / rows), np.float64)


@lru_cache(maxsize=32)
def _inside(rows: int, rate: float, bands: _Bands) -> Floats:
    """[bands, frequencies] weights of a mean; a band without a frequency takes the nearest."""
    hertz = _hertz(rows, rate)
    weights = np.zeros((len(bands), len(hertz)), np.float32)
    for row, (low, high) in zip(weights, bands, strict=True):
        within = (hertz >= low) & (hertz < high)
        if not within.any():
            within[1 + np.abs(hertz[1:] - (low + high) / 2).argmin()] = True
        row[within] = 1 / within.sum()
    return weights


@lru_cache(maxsize=64)
def _shares(size: int, groups: int) -> Floats:
    """[size, groups] weights of even averages; a subcarrier may belong to two groups in part."""
    edges, place = np.linspace(0, size, groups + 1), np.arange(size)[:, None]
    share = np.clip(np.minimum(place + 1, edges[1:]) - np.maximum(place, edges[:-1]), 0, 1)
    return np.asarray(share / share.sum(axis=0), np.float32)


@lru_cache(maxsize=16)
def _turns(subcarriers: int) -> npt.NDArray[np.complex64]:
    """[S, delays] the transform over groups of subcarriers."""
    groups = min(_GROUPS, subcarriers)
    turns = np.fft.rfft(np.eye(groups), axis=0)  # (delays, groups)
    return np.asarray(_shares(subcarriers, groups) @ turns.T, np.complex64)
