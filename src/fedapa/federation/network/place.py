"""Which room a node is, where its things are, and where its server is; for those that wait."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedapa.errors import DataError, PlanError
from fedapa.windows.labels import check_name

__all__ = ["Connection", "Place"]


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


@dataclass(frozen=True)
class Connection:
    """Where the server is, and what it is known by."""

    server: str
    """HOST:PORT."""
    authority: Path
    """The server's ca.crt."""

    def __post_init__(self) -> None:
        """Refuse what is no address, and a certificate that is not there."""
        host, colon, port = self.server.rpartition(":")
        if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise DataError(f"--server {self.server}: expected HOST:PORT, e.g. example.org:8443")
        if not self.authority.is_file():
            raise DataError(
                f"{self.authority}: no such file; expected the ca.crt of the server's folder"
            )
