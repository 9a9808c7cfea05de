"""Local: every room trains alone; nothing is exchanged. The yardstick of every comparison.

L = CE; a room is scored with its own net.
"""

from dataclasses import dataclass
from typing import ClassVar

from fedapa.algorithms.algorithm import Algorithm, Dimensions, Group

__all__ = ["Local"]


@dataclass(frozen=True)
class Local(Algorithm):
    """The contract's defaults, by name."""

    name: ClassVar[str] = "local"
    title: ClassVar[str] = "Local"
    travels: ClassVar[str] = "nothing"
    citation: ClassVar[str] = "baseline"
    group: ClassVar[Group] = "paper"
    carries_claim: ClassVar[bool] = True
    several_tasks: ClassVar[bool] = True
    look: ClassVar[int | None] = 1

    def sends(self, sizes: Dimensions) -> tuple[str, int] | None:
        """Nothing."""
        return "0", 0
