"""Origins: the recording and the place in it of every window, so that neighbours are known.

A room is counted over time in *blocks*: windows of one recording that lie end to end. Where the
step from window to window does not divide a window, a few rows are left out between neighbours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Origins"]

_Index: TypeAlias = npt.NDArray[np.int64]

_LEFT_OUT = 0.1
"""Share of a window that may be left out between neighbours: with more, evidence of 10 s would be
from a longer time. A stride that is made of an overlap leaves out less, of 8 packets or more."""


@dataclass(frozen=True, eq=False)
class Origins:
    """Where the windows of one room come from."""

    recordings: _Index
    """[windows] the number of the recording; equal numbers, one recording."""
    starts: _Index
    """[windows] the first row in that recording."""
    spans: int
    """Rows that a window covers."""
    step: int
    """Rows from one window to the next; more than one step where windows overlap."""

    @classmethod
    def of(
        cls, recordings: Sequence[str], starts: _Index, *, spans: int, step: int | None = None
    ) -> "Origins":
        """From the names of recordings, one for each window; by default windows do not overlap."""
        _, numbers = np.unique(np.asarray(recordings), return_inverse=True)
        return cls(numbers.astype(np.int64), np.asarray(starts, np.int64), spans, step or spans)

    @property
    def _to_neighbour(self) -> int:
        """Rows from a window to the first that does not overlap it; 0 where that lies too far."""
        rows = -(-self.spans // self.step) * self.step
        return rows if rows <= (1 + _LEFT_OUT) * self.spans else 0

    def number(self, index: _Index) -> int:
        """How many recordings some windows come from."""
        return len(np.unique(self.recordings[index]))

    def blocks(self, index: _Index, length: int) -> _Index:
        """[blocks, length] places in ``index`` of windows that lie end to end in one recording.

        Blocks do not overlap: each recording gives as many as fit, from its beginning, and what is
        left of it is in none. Where a window is missing, a block ends and the next begins after it.

        Args:
            index: [n] windows, e.g. of a part of the split.
            length: windows in a block.
        """
        if length < 1 or not len(index):
            return np.zeros((0, max(1, length)), np.int64)
        recordings, starts = self.recordings[index], self.starts[index]
        order = np.lexsort((starts, recordings))
        recordings, starts = recordings[order], starts[order]
        follows = (np.diff(recordings) == 0) & (np.diff(starts) == self._to_neighbour)
        edges = np.flatnonzero(~follows) + 1
        whole = [
            rest[: len(rest) // length * length].reshape(-1, length)  # (blocks, length)
            for rest in np.split(order, edges)
        ]
        return np.concatenate(whole)
