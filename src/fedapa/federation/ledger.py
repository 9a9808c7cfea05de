"""Ledger: the releases that a room has made, in a file of its own that only grows.

Unlike a room's states it is of all runs that the room's folder has seen, is written before a noised
set can leave, and stays when states are removed or a round is done anew: what was told stays told.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

from fedapa.errors import RunError
from fedapa.files import write_text
from fedapa.learning.accounting import LARGEST, SMALLEST
from fedapa.learning.private import Unit

__all__ = ["Ledger", "Release"]

_BEFORE: Unit = "window"
"""What releases protected of which a ledger of before does not say it: the least."""


@dataclass(frozen=True)
class Release:
    """One noised set that could leave."""

    multiplier: float
    """Of the noise."""
    unit: Unit
    """What it protects. Protected recordings protect each of their windows, too; protected windows
    say nothing of a recording, which is many."""


@dataclass(frozen=True)
class Ledger:
    """One room's."""

    path: Path

    def releases(self) -> list[Release]:
        """All so far, in their order."""
        if not self.path.is_file():
            return []
        try:
            told = json.loads(self.path.read_text())
            if "multipliers" in told:  # as it was written before it told units
                made = [Release(multiplier, _BEFORE) for multiplier in told["multipliers"]]
            else:
                made = [Release(one["multiplier"], one["unit"]) for one in told["releases"]]
            for one in made:
                if type(one.multiplier) is not float:
                    raise ValueError("a noise multiplier is no number with a point")
                if not SMALLEST <= one.multiplier <= LARGEST:
                    raise ValueError(
                        f"the noise multiplier {one.multiplier:g} is none that a plan asks for, "
                        f"{SMALLEST:g} to {LARGEST:g}"
                    )
                if one.unit not in get_args(Unit):
                    raise ValueError(f"unit '{one.unit}' is unknown")
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(
                f"{self.path}: says no longer what the room has released ({error}); put it back: "
                "without it nobody knows how much of its privacy budget is left"
            ) from error
        return made

    def write(self, releases: Sequence[Release]) -> None:
        """Keep the releases so far, the next one among them."""
        told = {"releases": [asdict(one) for one in releases]}
        write_text(self.path, json.dumps(told) + "\n")
