"""Which room a node is, where its things are, and where its server is; for those that wait."""

import errno
import math
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedapa.errors import DataError, PlanError, files_trouble
from fedapa.windows.labels import check_name

__all__ = ["Connection", "Place", "trouble_of", "writing_trouble"]


@dataclass(frozen=True)
class Place:
    """Which room this is, and where its things are; the owner says so, never a server."""

    room: str
    data: str
    """The store that holds its recordings."""
    folder: str
    """Where it keeps what it learns."""
    epsilon: float | None = None
    """The largest ε of a plan that this room takes part in; None: any, and plans without noise."""
    delta: float = 1e-5
    """With an ε: the largest δ."""
    unit: str = "recording"
    """With an ε: what a plan has to protect, a "recording" or at least a "window"."""

    def __post_init__(self) -> None:
        """Refuse a name that no room has, and limits that every plan is within."""
        check_name(self.room, "room")
        if self.unit not in ("recording", "window"):
            raise PlanError(f"unit '{self.unit}': expected recording or window")
        for name, limit, example in (
            ("epsilon", self.epsilon, "10"),
            ("delta", self.delta, "1e-5"),
        ):
            if limit is not None and not math.isfinite(limit):
                raise PlanError(
                    f"{name} {limit}: expected a number, the largest that a plan may have, e.g. "
                    f"--{name} {example}"
                )

    def limits(self) -> str:
        """What a plan needs for this room to take part, as a sentence; mostly nothing."""
        if self.epsilon is None:
            return ""
        return (
            f"this room takes part where prototypes are noised, with ε = {self.epsilon:g} at most "
            f"(δ = {self.delta:g} at most, unit: {self.unit})"
        )

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Place":
        """From the configuration of a node, its owner's limits included."""
        try:
            return cls(
                str(config["room"]),
                str(config["data"]),
                str(config["folder"]),
                epsilon=float(config["epsilon"]) if "epsilon" in config else None,
                delta=float(config.get("delta", cls.delta)),
                unit=str(config.get("unit", cls.unit)),
            )
        except KeyError as error:
            raise PlanError(
                f"the node's configuration lacks {error}; start it by 'fedapa room'"
            ) from error
        except ValueError as error:
            raise PlanError(f"the node's configuration: {error}; expected a number") from error


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


def writing_trouble(folder: Path) -> str:
    """What to say where a room may not write into its own folder; mostly nothing."""
    for place in _written(folder):
        if os.access(place, os.W_OK):
            continue
        if os.statvfs(place).f_flag & os.ST_RDONLY:
            return (
                f"{place}: is on a file system that is mounted read-only, and a room keeps what it "
                "learns there; mount it writable, or name the folder by ReadWritePaths= in the "
                "systemd unit"
            )
        user = os.geteuid()
        return (
            f"{place}: user {user} may not write there, and a room keeps what it learns in its "
            f"folder; give it to that user: chown -R {user} {shlex.quote(str(folder))}"
        )
    return ""


def _written(folder: Path) -> Iterator[Path]:
    """What a room writes: every folder, and logs, which grow; other files are replaced."""
    for place, _, files in os.walk(folder):
        yield Path(place)
        if Path(place).name == "log":
            yield from (Path(place) / name for name in sorted(files))


def trouble_of(error: OSError, folder: Path) -> str:
    """An error with a file of a room, with the remedy where there is one."""
    said = error.strerror or str(error)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return writing_trouble(folder) or said
    return files_trouble(error) or said
