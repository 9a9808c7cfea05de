"""ModelWatch: the newest model file of a room, and which round of which run it is of.

A run has ``models/ROOM.safetensors``, the folder of ``fedapa room`` ``models/RUN/ROOM.safetensors``
for each run that it took part in; there the file that was written last counts. Whoever trains
replaces the file; whoever serves asks ``newer`` now and then.
"""

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedapa.errors import DataError, FedapaError, PlanError, nearest
from fedapa.federation.checkpoint import Checkpoint
from fedapa.rooms.model_file import CountingModel, load_model
from fedapa.toml import parse_toml, read_toml

__all__ = ["ModelWatch", "ServedModel", "simulated_from", "watch_rooms"]

_STATE = re.compile(r"round-(\d{6})\.state")
_TAIL = 1 << 20
"""Bytes of the end of rounds.jsonl that are read."""
_ROOM_KEY = "room.pub"
"""What the folder of ``fedapa room`` has before there is any model."""


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model and where it is from."""

    model: CountingModel
    path: Path
    digest: str
    """SHA-256 of the file."""
    algorithm: str
    """Empty where nobody noted it."""
    round: int | None
    """The last round that its net has seen; None where nobody noted it."""

    def document(self) -> dict[str, Any]:
        """Plain values for JSON; no folder of this machine is in it."""
        return {
            "algorithm": self.algorithm,
            "round": self.round,
            "hash": self.digest[:12],
            "path": self.path.name,
            "classes": list(self.model.classes),
        }


def watch_rooms(place: Path, rooms: list[str] | None = None) -> "dict[str, ModelWatch]":
    """A watch for each room of a run, of a room's folder, or of one model file.

    Args:
        place: the folder or the file.
        rooms: only these; None: all.
    """
    if place.is_file():
        watches = {load_model(place).room: ModelWatch(place)}
    elif not place.exists():
        raise PlanError(f"{place}: there is no such run; train one with: fedapa run --out {place}")
    else:
        found = {path.stem for path in (place / "models").rglob("*.safetensors")}
        if (place / _ROOM_KEY).is_file():
            # Its first model comes with the first run; it waits for that.
            if not found and not rooms:
                raise PlanError(f"{place}: has no model yet; say which room it is: --room NAME")
            found |= set(rooms or ())
        if not found:
            raise DataError(
                f"{place}: holds no model files; give the folder of a run whose rooms have nets, "
                "of a room that took part in one, or a model file"
            )
        watches = {name: ModelWatch(place, name) for name in sorted(found)}
    for name in rooms or ():
        if name not in watches:
            raise PlanError(f"{place}: has no room '{name}'; {nearest(name, watches)}")
    return {name: watch for name, watch in watches.items() if not rooms or name in rooms}


def simulated_from(place: Path) -> tuple[str, int] | None:
    """Preset and seed of the simulated rooms that a run learned in; None where it did not."""
    folder = place if place.is_dir() else place.parent.parent
    data = _plan(folder).get("data", {})
    if not isinstance(data, dict) or not isinstance(data.get("simulated"), str) or "file" in data:
        return None
    seed = data.get("simulated_seed", 0)
    return data["simulated"], seed if isinstance(seed, int) else 0


class ModelWatch:
    """Looks for newer models of one room."""

    def __init__(self, place: Path, room: str | None = None) -> None:
        """A watch.

        Args:
            place: the folder of a run or of a room; without ``room`` the model file itself.
            room: which one.
        """
        self._place, self._room = place, room
        self._seen: tuple[object, ...] | None = None
        self.last: ServedModel | None = None
        self.problem = ""
        """Why the newest file cannot be used, in words; no folder of this machine is in them."""

    def newer(self) -> ServedModel | None:
        """A model that is not the one of before; None where there is none.

        Raises:
            FedapaError: the newest file cannot be used; once for each file.
        """
        path = self._newest()
        if path is None:
            return None
        try:
            status = path.stat()
        except OSError:  # replaced or removed at this moment
            return None
        seen = (path, status.st_mtime_ns, status.st_size, status.st_ino)
        if seen == self._seen:
            return None
        self._seen = seen
        try:
            made = self._loaded(path)
        except FedapaError as error:
            self.problem = str(error).replace(str(path), path.name)
            raise
        self.problem = ""
        return made

    def _loaded(self, path: Path) -> ServedModel | None:
        digest = _digest(path)
        if self.last is not None and digest == self.last.digest:
            return None
        algorithm, round = _origin(path)
        made = ServedModel(load_model(path), path, digest, algorithm, round)
        if self._room is not None and made.model.room != self._room:
            raise DataError(f"{path}: is of room '{made.model.room}', expected '{self._room}'")
        self.last = made
        return made

    def _newest(self) -> Path | None:
        if self._room is None:
            return self._place if self._place.is_file() else None
        name = f"{self._room}.safetensors"
        straight = self._place / "models" / name
        if straight.is_file():
            return straight
        written: list[tuple[float, str, Path]] = []
        for path in (self._place / "models").glob("*/"):
            try:
                written.append(((path / name).stat().st_mtime, path.name, path / name))
            except OSError:
                continue
        return max(written)[2] if written else None


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error


def _origin(path: Path) -> tuple[str, int | None]:
    """Algorithm and round of a model file, as far as what lies around it tells."""
    inside = path.parent.parent
    if (inside / "plan.toml").is_file():
        algorithm = _name_of(_plan(inside).get("algorithm"))
        states, records = inside / "rooms" / path.stem, inside / "rounds.jsonl"
        return algorithm, _kept_round(states) or _last_round(records)
    room = inside.parent
    return _agreed_algorithm(room, path), _kept_round(room / "states" / path.parent.name)


def _agreed_algorithm(room: Path, model: Path) -> str:
    """The algorithm of the last plan that a room agreed to before that model was written."""
    try:
        written = model.stat().st_mtime
        plans = [(file.stat().st_mtime, file) for file in (room / "agreed").iterdir()]
        earlier = [plan for plan in plans if plan[0] <= written]
        tree = Checkpoint(max(earlier)[1]).load() if earlier else None
        plan = parse_toml("" if tree is None else str(tree["plan"]), "plan")
    except (OSError, FedapaError, KeyError):
        return ""
    return _name_of(plan.get("algorithm"))


def _name_of(algorithm: object) -> str:
    named = algorithm.get("name", "") if isinstance(algorithm, dict) else algorithm
    return named if isinstance(named, str) else ""


def _kept_round(states: Path) -> int | None:
    """The round that a room's newest state is of: exchange t scores and keeps what t − 1 made."""
    matches = (_STATE.fullmatch(path.name) for path in states.rglob("*.state"))
    numbers = [int(match[1]) for match in matches if match]
    return max(numbers) - 1 if numbers else None


def _plan(folder: Path) -> dict[str, Any]:
    try:
        return dict(read_toml(folder / "plan.toml"))
    except (FedapaError, OSError):
        return {}


def _last_round(path: Path) -> int | None:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL))
            tail = file.read()
        lines = tail.split(b"\n")
        # The last line may be being written, the first one of the tail is cut off.
        for line in reversed(lines):
            try:
                number = json.loads(line)["round"]
            except (ValueError, KeyError, TypeError):
                continue
            return number if isinstance(number, int) else None
    except OSError:
        pass
    return None
