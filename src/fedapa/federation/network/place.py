"""Place: which room a node is, and where its things are; without torch, for those that wait."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedapa.errors import PlanError
from fedapa.windows.labels import check_name

__all__ = ["Place"]


@dataclass(frozen=True)
class Place:
    """Which room this is, and where its things are; the owner says so, never a server."""

    room: str
    data: str
    """The store that holds its recordings."""
    folder: str
    """Where it keeps what it learns."""

    def __post_init__(self) -> None:
        """Refuse a name that no room has."""
        check_name(self.room, "room")

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Place":
        """From the configuration of a node."""
        try:
            return cls(**{name: str(config[name]) for name in ("room", "data", "folder")})
        except KeyError as error:
            raise PlanError(
                f"the node's configuration lacks {error}; start it by 'fedapa room'"
            ) from error
