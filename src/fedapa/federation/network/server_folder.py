"""A server's folder: what it was made with, who is enrolled, the run that goes on, what it said.

::

    server.json     its name and ports
    ca.crt          for rooms; ca.key stays here, or on paper
    server.crt, server.key
    rooms.json      enrolled rooms: name → public key, and the number of its node
    job.json        the run that goes on, if there is one
    status.json     how far it is, written by the process that runs it
    flower/         the SuperLink's database
    runs/           a directory for each run, see run.py
    log/            what the programs said; refused.jsonl has who was refused and why
"""

import contextlib
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fedapa.errors import DataError, RunError, nearest
from fedapa.federation.network.certificates import (
    fingerprint,
    make_certificates,
    read_public_key,
)
from fedapa.federation.network.logs import LONGEST_LOG, earlier_log
from fedapa.files import folder_aside, locked, write_text
from fedapa.windows.labels import check_name

__all__ = ["Enrolled", "Job", "ServerFolder", "Settings"]


_LEAST_DISK = 2**20
"""Bytes; with fewer a checkpoint may not find room."""


@dataclass(frozen=True)
class Settings:
    """What a server is called and where it listens."""

    name: str
    """The host that rooms call; it is in the certificate."""
    port: int = 8443
    """Where rooms connect."""
    listen: str = "0.0.0.0"
    """The address of that port; "127.0.0.1" is this machine alone."""
    inner_port: int = 18443
    """Where the SuperLink listens, on loopback alone."""

    def __post_init__(self) -> None:
        """Refuse one port for both: the server would take it away from itself."""
        if self.port == self.inner_port:
            raise DataError(
                f"port {self.port} is where the SuperLink listens on loopback; choose another "
                "--port, or when the server is made another --inner-port"
            )


@dataclass(frozen=True)
class Enrolled:
    """A room that may take part."""

    key: str
    """Its public key, as one line."""
    since: float
    """When it was enrolled, in seconds since 1970."""
    node: int | None = None
    """The number of its node, once the SuperLink knows it."""
    expelled: bool = False


@dataclass(frozen=True)
class Job:
    """The run that goes on."""

    run: str
    """The name of its directory below ``runs``."""
    wanted: bool = True
    """Whether it should go on; not after it was finished or failed."""
    since: float = 0.0
    """When it was asked for, in seconds since 1970; again, maybe with another plan."""
    flower_run: int | None = None
    """The number of the last run of Flower's that carried it."""


@dataclass(frozen=True)
class ServerFolder:
    """The files of a server."""

    path: Path

    @classmethod
    def make(cls, path: Path, settings: Settings) -> "ServerFolder":
        """A new server: its authority, its certificate, nobody enrolled."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise DataError(f"{path}: is not empty; choose another folder for a new server")
        with folder_aside(path) as made:
            made.chmod(0o700)
            make_certificates(made, settings.name)
            write_text(made / "server.json", json.dumps(asdict(settings), indent=1))
            write_text(made / "rooms.json", "{}")
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> "ServerFolder":
        """The server in a folder; refuses one that holds none."""
        if not (path / "server.json").is_file():
            raise DataError(
                f"{path}: holds no server; make one with 'fedapa server init {path} --name HOST'"
            )
        return cls(path)

    # ---- where things are ------------------------------------------------------------------------

    @property
    def authority(self) -> Path:
        """The certificate that rooms need."""
        return self.path / "ca.crt"

    @property
    def inner_address(self) -> str:
        """Where the SuperLink is."""
        return f"127.0.0.1:{self.settings.inner_port}"

    @property
    def home(self) -> Path:
        """Of Flower."""
        return self.path / "flower"

    def log(self, name: str) -> Path:
        """The file for what a program says."""
        return self.path / "log" / f"{name}.log"

    def run(self, name: str) -> Path:
        """The directory of a run."""
        return self.path / "runs" / check_name(name, "run")

    def plan_file(self, name: str) -> Path:
        """The plan that a run was asked for with."""
        return self.path / "runs" / f"{check_name(name, 'run')}.toml"

    # ---- what they hold --------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        """Its name and ports."""
        return TypeAdapter(Settings).validate_python(self._read("server.json"))

    def rooms(self) -> dict[str, Enrolled]:
        """Everybody who was enrolled, also those that were expelled, by name."""
        try:
            return TypeAdapter(dict[str, Enrolled]).validate_python(self._read("rooms.json"))
        except ValidationError as error:
            raise RunError(
                f"{self.path / 'rooms.json'}: is damaged ({error.errors()[0]['msg'].lower()}); put "
                "back a copy, or enrol the rooms again"
            ) from error

    def keys(self) -> dict[bytes, str]:
        """Public key → room, of those who may take part."""
        return {
            read_public_key(entry.key, f"room '{room}'"): room
            for room, entry in self.rooms().items()
            if not entry.expelled
        }

    def expelled(self) -> set[str]:
        """The fingerprints of the keys that are refused for good."""
        return {self._short(entry.key) for entry in self.rooms().values() if entry.expelled}

    def nodes(self) -> dict[str, int]:
        """Room → node, of those who may take part and that the SuperLink knows."""
        return {
            room: entry.node
            for room, entry in sorted(self.rooms().items())
            if entry.node is not None and not entry.expelled
        }

    def enrol(self, key: str, name: str) -> None:
        """Let the room with this public key take part from now on."""
        check_name(name, "room")
        content = read_public_key(key, "the public key")
        with self._changing() as rooms:
            old = rooms.get(name)
            if old is not None and not old.expelled:
                raise DataError(
                    f"room '{name}' is enrolled already, with key {self._short(old.key)}; expel "
                    "it first, or choose another name"
                )
            for other, entry in rooms.items():
                if read_public_key(entry.key, f"room '{other}'") == content:
                    state = "was expelled" if entry.expelled else "is enrolled"
                    raise DataError(
                        f"this key {state} as room '{other}'; a key is enrolled once: make a new "
                        "one with 'fedapa room init'"
                    )
            if old is not None:  # the key that was expelled stays refused
                rooms[f"{name}.expelled-{int(old.since)}"[:64]] = old
            rooms[name] = Enrolled(key.strip(), time.time())

    def expel(self, name: str) -> None:
        """Refuse a room's key from now on, for good."""
        with self._changing() as rooms:
            if name not in rooms or rooms[name].expelled:
                here = [room for room, entry in rooms.items() if not entry.expelled]
                raise DataError(f"room '{name}' is not enrolled; {nearest(name, here)}")
            rooms[name] = replace(rooms[name], expelled=True)

    def note_node(self, name: str, node: int) -> None:
        """Keep the number that the SuperLink gave a room."""
        with self._changing() as rooms:
            rooms[name] = replace(rooms[name], node=node)

    def short_key(self, name: str) -> str:
        """The fingerprint of a room's key."""
        return self._short(self.rooms()[name].key)

    def save_port(self, port: int) -> None:
        """Listen for rooms at another port from now on."""
        told = asdict(replace(self.settings, port=port))
        write_text(self.path / "server.json", json.dumps(told, indent=1))

    def job(self) -> Job | None:
        """The run that goes on, or went on last."""
        if not (self.path / "job.json").is_file():
            return None
        return TypeAdapter(Job).validate_python(self._read("job.json"))

    def save_job(self, job: Job) -> None:
        """Replace it."""
        write_text(self.path / "job.json", json.dumps(asdict(job)))

    def status(self) -> dict[str, Any]:
        """What the process of the run said last."""
        return self._read("status.json") if (self.path / "status.json").is_file() else {}

    def save_status(self, status: dict[str, Any]) -> None:
        """Say how far the run is."""
        write_text(self.path / "status.json", json.dumps(status))

    def note_refused(self, reason: str, **about: Any) -> None:
        """Remember who was refused, and why, as one line."""
        line = json.dumps({"at": time.time(), "reason": reason, **about})
        path = self.path / "log" / "refused.jsonl"
        with contextlib.suppress(OSError):  # a full disk is no reason to let anybody in
            path.parent.mkdir(exist_ok=True)
            if path.is_file() and path.stat().st_size > LONGEST_LOG:  # somebody is persistent
                path.replace(earlier_log(path))
            with path.open("a") as stream:
                stream.write(line + "\n")

    def refused(self) -> list[dict[str, Any]]:
        """Everybody who was refused, the first one first."""
        path = self.path / "log" / "refused.jsonl"
        if not path.is_file():
            return []
        found = []
        for line in path.read_text().splitlines():
            with contextlib.suppress(ValueError):  # one that a full disk cut short
                found.append(json.loads(line))
        return found

    def disk_trouble(self) -> str:
        """What to say where the disk of this folder is full; mostly nothing."""
        if shutil.disk_usage(self.path).free >= _LEAST_DISK:
            return ""
        return (
            f"{self.path}: there is no room on its disk; the run pauses and nothing is half "
            "written; make room"
        )

    def stamp(self) -> float:
        """Changes whenever somebody was enrolled or expelled."""
        return (self.path / "rooms.json").stat().st_mtime_ns

    @contextlib.contextmanager
    def _changing(self) -> Iterator[dict[str, Enrolled]]:
        path = self.path / "rooms.json"
        with locked(path, wait=True):
            rooms = self.rooms()
            yield rooms
            told = {name: asdict(entry) for name, entry in sorted(rooms.items())}
            write_text(path, json.dumps(told, indent=1))

    def _read(self, name: str) -> Any:
        path = self.path / name
        try:
            return json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise RunError(f"{path}: cannot be read ({error}); put back a copy") from error

    @staticmethod
    def _short(key: str) -> str:
        return fingerprint(read_public_key(key, "the public key"))
