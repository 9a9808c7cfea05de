"""RoomCard: what the server may know of a room."""

from collections.abc import Mapping
from dataclasses import dataclass

from fedapa.windows.labels import Label

__all__ = ["RoomCard"]


@dataclass(frozen=True)
class RoomCard:
    """What the server may know of a room: never a window, only what a message shows anyway."""

    name: str
    architecture: str
    windows: int
    """Train windows, the weight n_i of weighted means."""
    classes: int
    width: int
    shapes: Mapping[str, tuple[int, ...]]
    """Parameters and buffers of its net, by name."""
    labels: tuple[Label, ...] = ()
    """What the classes mean; all rooms of a federation need the same list."""
    norms: frozenset[str] = frozenset()
    """Those of its arrays that belong to a BatchNorm, found by the type of the module."""
    buffers: frozenset[str] = frozenset()
    """Those of its arrays that are not trained but counted, such as BatchNorm's statistics."""
    validation: int = 0
    """Validation windows."""
    flops: int = 0
    """Of one window through its net."""
    pooled: bool = False
    """Whether it trains on everybody's windows; a control, see rooms/pool.py."""
