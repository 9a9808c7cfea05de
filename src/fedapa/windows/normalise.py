"""Normaliser: z-score per subcarrier or feature, from a room's own train windows; numpy only."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Normaliser"]

_CHUNK = 64  # windows read at a time where order does not matter


@dataclass(frozen=True, eq=False)
class Normaliser:
    """z-score per subcarrier or feature, from the room's own train windows."""

    mean: npt.NDArray[np.float32]
    deviation: npt.NDArray[np.float32]

    @classmethod
    def of(cls, windows: npt.NDArray[np.float32], index: npt.NDArray[np.int64]) -> "Normaliser":
        """The normaliser of the windows at ``index``, read in chunks."""
        width = windows.shape[-1]
        count, total, squares = 0, np.zeros(width), np.zeros(width)
        # Shifted by a first guess of the mean, so that squares do not cancel.
        guess = np.asarray(windows[index[0]], np.float64).reshape(-1, width).mean(axis=0)
        for first in range(0, len(index), _CHUNK):
            rows = np.asarray(windows[index[first : first + _CHUNK]], np.float64)
            rows = rows.reshape(-1, width) - guess  # (windows·packets, subcarriers)
            count += len(rows)
            total += rows.sum(axis=0)
            squares += np.square(rows).sum(axis=0)
        mean = total / count
        deviation = np.sqrt(np.maximum(squares / count - mean**2, 0.0))
        # A subcarrier that never changes carries nothing; it becomes zero, not NaN.
        deviation[deviation < 1e-6 * np.maximum(np.abs(guess + mean), 1e-30)] = 1.0
        return cls((guess + mean).astype(np.float32), deviation.astype(np.float32))

    def __call__(self, windows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Normalised windows in fresh memory, as float32 whatever was given."""
        made = windows - self.mean
        made /= self.deviation
        return np.asarray(made, np.float32)

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same numbers."""
        return isinstance(other, Normaliser) and all(
            np.array_equal(mine, theirs)
            for mine, theirs in ((self.mean, other.mean), (self.deviation, other.deviation))
        )

    def __hash__(self) -> int:
        return hash((self.mean.tobytes(), self.deviation.tobytes()))
