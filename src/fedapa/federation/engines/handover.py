"""What a worker process is given: the algorithm's settings and its rooms, as bytes of our codec.

Windows go by the name of their file, so that all workers share one copy; windows that are only in
memory are written to a file first. Everything else of a room is a small file, which a worker reads
when it serves the room: of a thousand rooms it has few in memory.
"""

import json
import struct
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast, overload

import numpy as np
from pydantic import TypeAdapter

from fedapa import algorithms
from fedapa.algorithms.algorithm import Algorithm
from fedapa.federation.attack import Attack
from fedapa.payload import Tree, decode, encode
from fedapa.randomness import Key
from fedapa.rooms.room import Room
from fedapa.rooms.task import Task
from fedapa.windows.normalise import Normaliser
from fedapa.windows.origins import Origins
from fedapa.windows.recipe import Recipe
from fedapa.windows.split import Split

__all__ = ["Handover", "RoomFiles", "decode_handover", "encode_handover", "joined", "parted"]

_KEPT = 64
"""Rooms that a worker has in memory."""

_LENGTH = struct.Struct("<q")
_NOTHING = -1


@dataclass(frozen=True, eq=False)
class Handover:
    """What a worker needs to serve any room."""

    algorithm: Algorithm
    rooms: Sequence[Room]
    folder: Path
    """The run's: rooms keep their states and finished nets below it."""
    cards: Mapping[str, str] = field(default_factory=dict)
    """room → the digest of the card by which the server knows it; a room that is not in it computes
    its own."""
    attack: Attack | None = None
    """What ``attackers`` do, in experiments alone."""
    attackers: Sequence[str] = ()


class RoomFiles(Sequence[Room]):
    """Rooms by files that hold them, sorted by name; those asked for last stay in memory."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.names = tuple(sorted(files))
        self._files = files
        self._read: OrderedDict[str, Room] = OrderedDict()

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, place: int) -> Room: ...

    @overload
    def __getitem__(self, place: slice) -> "list[Room]": ...

    def __getitem__(self, place: int | slice) -> "Room | list[Room]":
        if isinstance(place, slice):
            return [self.named(name) for name in self.names[place]]
        return self.named(self.names[place])

    def named(self, name: str) -> Room:
        """The room of that name."""
        if name not in self._read:
            frame = Path(self._files[name]).read_bytes()
            self._read[name] = _room(cast(dict[str, Any], decode(frame, f"room '{name}'")))
        self._read.move_to_end(name)
        while len(self._read) > _KEPT:
            self._read.popitem(last=False)
        return self._read[name]


def encode_handover(given: Handover, spare: Path) -> bytes:
    """A handover as a frame; rooms are written below ``spare``, which must stay."""
    spare.mkdir(parents=True, exist_ok=True)
    files = {}
    for number, room in enumerate(given.rooms):
        path = spare / f"{number:06d}.room"
        path.write_bytes(encode(_tree(room, spare)))
        files[room.name] = str(path)
    return encode(
        {
            "algorithm": json.dumps({"name": given.algorithm.name, **asdict(given.algorithm)}),
            "folder": str(given.folder),
            "cards": dict(given.cards),
            "rooms": files,
            "attack": "" if given.attack is None else json.dumps(asdict(given.attack)),
            "attackers": dict.fromkeys(given.attackers, True),
        }
    )


def decode_handover(frame: bytes) -> Handover:
    """The handover in a frame of ``encode_handover``."""
    tree = cast(dict[str, Any], decode(frame, "what a worker was given"))
    settings = json.loads(tree["algorithm"])
    kind = algorithms.find(settings.pop("name"))
    return Handover(
        algorithm=TypeAdapter(kind).validate_python(settings),
        rooms=RoomFiles(tree["rooms"]),
        folder=Path(tree["folder"]),
        cards=tree["cards"],
        attack=Attack(**json.loads(tree["attack"])) if tree["attack"] else None,
        attackers=tuple(tree["attackers"]),
    )


def joined(frames: Sequence[bytes | None]) -> bytes:
    """Frames one after the other, each behind its length; they have checksums of their own."""
    parts = []
    for frame in frames:
        parts += [_LENGTH.pack(_NOTHING if frame is None else len(frame)), frame or b""]
    return b"".join(parts)


def parted(content: bytes) -> Iterator[bytes | None]:
    """The frames that ``joined`` put together."""
    place = 0
    while place < len(content):
        (length,) = _LENGTH.unpack_from(content, place)
        place += _LENGTH.size
        if length == _NOTHING:
            yield None
            continue
        yield content[place : place + length]
        place += length


_ARRAYS = ("windows", "labels", "split", "recipe", "origins", "further")
"""What of a room is or holds arrays; every other field is a plain fact."""


def _tree(room: Room, spare: Path) -> Tree:
    facts = {
        entry.name: getattr(room, entry.name) for entry in fields(Room) if entry.name not in _ARRAYS
    }
    return {
        "facts": json.dumps({**facts, "key": [room.key.seed, *room.key.path]}),
        "digest": room.digest,
        "windows": str(_file_of(room, spare)),
        "labels": room.labels,
        "further": {
            task.name: {"classes": json.dumps(task.classes), "labels": task.labels}
            for task in room.further
        },
        "split": {entry.name: getattr(room.split, entry.name) for entry in fields(Split)},
        "origins": None
        if room.origins is None
        else {entry.name: getattr(room.origins, entry.name) for entry in fields(Origins)},
        "recipe": room.recipe.to_json(),
        "mean": room.normaliser.mean,
        "deviation": room.normaliser.deviation,
    }


def _room(tree: dict[str, Any]) -> Room:
    facts = json.loads(tree["facts"])
    seed, *path = facts.pop("key")
    recipe = Recipe.of_json(tree["recipe"], place="what a worker was given")
    if facts["answerable"] is not None:
        facts["answerable"] = tuple(facts["answerable"])
    room = Room(
        **{**facts, "classes": tuple(facts["classes"]), "days": tuple(facts["days"])},
        key=Key(seed, tuple(path)),
        windows=np.load(tree["windows"], mmap_mode="r"),
        labels=tree["labels"],
        further=tuple(
            Task(name, tuple(json.loads(task["classes"])), task["labels"])
            for name, task in tree["further"].items()
        ),
        split=Split(**tree["split"]),
        origins=None if tree["origins"] is None else Origins(**tree["origins"]),
        recipe=replace(recipe, normaliser=Normaliser(tree["mean"], tree["deviation"])),
    )
    return room.with_digest(tree["digest"])


def _file_of(room: Room, spare: Path) -> Path:
    """The file that holds the room's windows, and nothing else."""
    windows = room.windows
    if isinstance(windows, np.memmap) and windows.filename is not None:
        path = Path(windows.filename)
        if _is_whole_file(windows, path):
            return path.resolve()
    target = spare / f"{room.name}.npy"
    np.save(target, np.asarray(windows))
    return target


def _is_whole_file(windows: "np.memmap[Any, Any]", path: Path) -> bool:
    """Whether a memory map is what ``np.load`` makes of its file.

    A part of one, a reversed one and one with changes in memory keep the name of their file; a
    map of raw bytes has the name of a file that ``np.load`` cannot read.
    """
    try:
        whole = np.lib.format.open_memmap(path, mode="r")
    except (OSError, ValueError, EOFError):
        return False
    return (
        windows.mode == "r"
        and windows.offset == whole.offset
        and windows.shape == whole.shape
        and windows.strides == whole.strides
        and windows.dtype == whole.dtype
    )
