"""Local: every room trains alone; nothing is exchanged. The yardstick of every comparison."""

from dataclasses import dataclass
from typing import ClassVar

from fedapa.algorithms.algorithm import Algorithm

__all__ = ["Local"]


@dataclass(frozen=True)
class Local(Algorithm):
    """The contract's defaults, by name."""

    name: ClassVar[str] = "local"
    title: ClassVar[str] = "Local"
    travels: ClassVar[str] = "nothing"
    citation: ClassVar[str] = "baseline"
