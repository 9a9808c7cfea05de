"""Cards: what the server may know of a room, before and after it has built itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedapa.windows.labels import Label

__all__ = ["DataCard", "RoomCard"]


@dataclass(frozen=True)
class DataCard:
    """What a room tells of its windows, so that classes and nets can be agreed on."""

    name: str
    labels: tuple[Label, ...]
    """Those that it holds, each once."""
    window_shape: tuple[int, ...]
    """[packets, subcarriers], or [features]."""
    parts: Mapping[str, int]
    """Windows in each part of its split: train, validation, test."""
    synthetic: bool = False


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
    parts: Mapping[str, int] = field(default_factory=dict)
    """Windows in each part of its own split: train, validation, test."""
    split: str = "given"
    """How they were split."""
    window_shape: tuple[int, ...] = ()
    """[packets, subcarriers], or [features]."""
    synthetic: bool = False
    fingerprint: str = ""
    """A short name for its data: other windows, labels, splits or normalisers have another."""
    blind: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What predictors reach there that never look at a window: predictor → metrics."""
