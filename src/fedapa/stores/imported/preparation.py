"""How captures are read and cleaned on their way into a store."""

from dataclasses import dataclass, field

from fedapa.windows.recipe import Recipe

__all__ = ["Preparation"]


@dataclass(frozen=True)
class Preparation:
    """How captures are read and cleaned on their way into the store."""

    chip: str | None = None
    salvage: bool = False
    skip_unreadable: bool = False
    """Leave out files that are no captures or damaged, instead of stopping."""
    recipe: Recipe = field(default_factory=Recipe)
    """Its cleaning; the receiver is each room's own, and windows are cut later."""
