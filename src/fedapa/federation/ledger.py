"""Ledger: the releases that a room has made, in a file of its own that only grows.

Unlike a room's states it is of all runs that the room's folder has seen, is written before a noised
set can leave, and stays when states are removed or a round is done anew: what was told stays told.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedapa.errors import RunError
from fedapa.files import write_text

__all__ = ["Ledger"]


@dataclass(frozen=True)
class Ledger:
    """One room's."""

    path: Path

    def multipliers(self) -> list[float]:
        """The noise multiplier of each release so far, in their order."""
        if not self.path.is_file():
            return []
        try:
            told = json.loads(self.path.read_text())["multipliers"]
            if not all(type(z) is float and 0 < z < math.inf for z in told):
                raise ValueError("a noise multiplier is no number above 0")
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(
                f"{self.path}: says no longer what the room has released ({error}); put it back: "
                "without it nobody knows how much of its privacy budget is left"
            ) from error
        return list(told)

    def write(self, multipliers: Sequence[float]) -> None:
        """Keep the releases so far, the next one among them."""
        write_text(self.path, json.dumps({"multipliers": list(multipliers)}) + "\n")
