"""A grid of delays that stands for thousands of moving paths.

Each path is spread with a smooth kernel onto the few grid points around its delay, and each grid
point has a fixed response over the subcarriers: a non-uniform Fourier transform (Barnett et al.
2019), so that a packet costs four additions per path instead of one exponential per path and
subcarrier.
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fedapa.errors import PlanError

__all__ = ["DelayGrid"]

Array: TypeAlias = npt.NDArray[np.float64]
Single: TypeAlias = npt.NDArray[np.float32]

_TAPS = 4
_BETA = 2.3 * _TAPS
_FRACTIONS = 4096


class DelayGrid:
    """Path lengths on a grid, for subcarriers at ``offsets`` Hz from the carrier."""

    def __init__(self, offsets: Array, *, longest: float, speed: float) -> None:
        # Twice as fine as the band needs, so that a kernel of four taps is accurate to 60 dB.
        spacing = float(np.diff(offsets).min())
        self._step = speed / (2 * (2 * float(np.abs(offsets).max()) + spacing))
        self.points = int(longest / self._step) + _TAPS + 1
        fractions = np.arange(_FRACTIONS + 1) / _FRACTIONS
        self._weights = [_kernel(fractions + 1 - tap).astype(np.float32) for tap in range(_TAPS)]
        self._per_step = offsets * self._step / speed  # cycles

    def responses(self) -> npt.NDArray[np.complex128]:
        """[points, subcarriers] what each grid point is over the subcarriers."""
        fine = np.linspace(-_TAPS / 2, _TAPS / 2, 401)
        waves = np.cos(2 * np.pi * self._per_step[:, None] * fine)
        spectrum = np.trapezoid(_kernel(fine) * waves, fine, axis=1)
        # Grid point n stands for a path of (n − 1) steps: the kernel reaches one point further.
        turns = (np.arange(self.points)[:, None] - 1) * self._per_step
        return np.asarray(np.exp(-2j * np.pi * turns) / spectrum)

    def gather(self, lengths: Single, gains: Single, phases: Single) -> npt.NDArray[np.complex64]:
        """[times, points] the sum of all paths [times, …] of a moment, by their lengths in m."""
        times, paths = len(lengths), lengths[0].size
        reach = (self.points - _TAPS) * self._step
        # The scatter below does not look where it writes; NaN is beyond every reach.
        if not 0 <= float(lengths.min()) <= float(lengths.max()) < reach:
            raise PlanError(
                f"a path of {lengths.max():g} m; the grid of delays ends at {reach:g} m, "
                "so keep people inside their room"
            )
        place = lengths * np.float32(1 / self._step)
        first = place.astype(np.int32)
        place -= first.astype(np.float32)  # whole numbers of the grid: exact
        place *= np.float32(_FRACTIONS)
        fraction = place.astype(np.int32)
        real, imaginary = np.cos(phases), np.sin(phases)
        real *= gains
        imaginary *= gains
        spread = np.empty((times, _TAPS, *lengths.shape[1:]), np.complex64)
        columns = np.empty(spread.shape, np.int32)
        for tap, weights in enumerate(self._weights):
            weight = weights.take(fraction, mode="clip")
            np.multiply(weight, real, out=spread.real[:, tap])
            np.multiply(weight, imaginary, out=spread.imag[:, tap])
            np.add(first, np.int32(tap), out=columns[:, tap])
        from scipy import sparse  # as long to import as h5py, and most runs simulate nothing

        # A compressed sparse matrix adds up what falls on one place: the fastest scatter in numpy.
        rows = np.arange(times + 1, dtype=np.int32) * np.int32(_TAPS * paths)
        grid = sparse.csr_array((spread.ravel(), columns.ravel(), rows), shape=(times, self.points))
        return np.asarray(grid.toarray(), np.complex64)


def _kernel(place: Array) -> Array:
    """The exponential of a semicircle: narrow here and in its spectrum."""
    inside = np.maximum(1 - (2 * place / _TAPS) ** 2, 0)
    return np.where(np.abs(place) <= _TAPS / 2, np.exp(_BETA * (np.sqrt(inside) - 1)), 0.0)
