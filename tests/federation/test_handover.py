"""What workers are given: rooms and algorithms as bytes of our codec, windows by name."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedapa import Plan, run
from fedapa.algorithms import find, names
from fedapa.algorithms.algorithm import Algorithm, Round
from fedapa.federation.engines.handover import (
    Handover,
    RoomFiles,
    decode_handover,
    encode_handover,
    joined,
    parted,
)
from fedapa.federation.messages import Reply, Request
from fedapa.randomness import Key
from fedapa.rooms.room import Room
from fedapa.stores.arrays import array_digest
from fedapa.windows.normalise import Normaliser
from fedapa.windows.origins import Origins
from fedapa.windows.recipe import Recipe
from fedapa.windows.split import Split
from tests.conftest import MakeRooms


def handed_over(room: Room, spare: Path, algorithm: Algorithm | None = None) -> Handover:
    given = Handover(algorithm or find("local")(), [room], spare)
    return decode_handover(encode_handover(given, spare))


def plain(value: Any) -> Any:
    """Arrays and what holds them, so that they compare."""
    if isinstance(value, Split | Origins):
        return {name: plain(part) for name, part in vars(value).items()}
    return (value.dtype, value.tolist()) if isinstance(value, np.ndarray) else value


def test_everything_of_a_room_arrives(tmp_path: Path, make_rooms: MakeRooms) -> None:
    """Each field has a value that is not its default: a forgotten one is noticed."""
    room = replace(
        make_rooms()[0],
        classes=("none", "sit", 2),
        architecture="tiny",
        normalise_embedding=True,
        initialisation="own",
        key=Key(5) / "somewhere" / 3,
        device="meta",
        synthetic=True,
        days=("monday", "tuesday"),
        split=Split(*map(np.arange, (3, 2, 1)), "day", np.arange(4), "the plan asks for it"),
    )
    (arrived,) = handed_over(room, tmp_path).rooms
    for field in fields(Room):
        value = getattr(arrived, field.name)
        assert plain(value) == plain(getattr(room, field.name)), field.name
    (nobody,) = handed_over(replace(room, origins=None), tmp_path).rooms
    assert nobody.origins is None
    (told,) = handed_over(room.with_digest("told by a store"), tmp_path).rooms
    assert told.digest == "told by a store", "workers do not read all windows to hash them"


def test_windows_on_disk_travel_by_name(tmp_path: Path, make_rooms: MakeRooms) -> None:
    """A worker must map the same file, not carry a copy."""
    room = make_rooms(windows_per_class=100)[0]
    np.save(tmp_path / "windows.npy", room.windows)
    mapped = replace(room, windows=np.load(tmp_path / "windows.npy", mmap_mode="r"))
    given = Handover(find("local")(), [mapped], tmp_path)
    message = encode_handover(given, tmp_path / "spare")
    assert len(message) < room.windows.nbytes
    (arrived,) = decode_handover(message).rooms
    assert isinstance(arrived.windows, np.memmap)
    np.testing.assert_array_equal(arrived.windows, room.windows)
    (part,) = handed_over(replace(mapped, windows=mapped.windows[:5]), tmp_path).rooms
    np.testing.assert_array_equal(part.windows, room.windows[:5])


def test_memory_maps_that_are_not_their_file_travel_as_values(
    tmp_path: Path, make_rooms: MakeRooms
) -> None:
    """Reversed, turned, changed in memory, or of raw bytes: what arrives is what the room has."""
    room = make_rooms(shape=(8, 8))[0]
    values = np.array(room.windows)
    np.save(tmp_path / "windows.npy", values)
    (tmp_path / "raw.bin").write_bytes(values.tobytes())
    mapped = np.load(tmp_path / "windows.npy", mmap_mode="r")
    changed = np.load(tmp_path / "windows.npy", mmap_mode="c")
    changed[0] += 1
    raw = np.memmap(tmp_path / "raw.bin", np.float32, "r", shape=values.shape)
    cases = [mapped[::-1], mapped.transpose(0, 2, 1), changed, raw]
    for windows in cases:
        (arrived,) = handed_over(replace(room, windows=windows), tmp_path).rooms
        np.testing.assert_array_equal(arrived.windows, windows)
        assert arrived.digest == array_digest(windows)


def test_a_worker_has_few_rooms_in_memory(tmp_path: Path, make_rooms: MakeRooms) -> None:
    room = make_rooms()[0]
    rooms = [replace(room, name=f"room {number:03d}") for number in range(70)]
    given = decode_handover(encode_handover(Handover(find("local")(), rooms, tmp_path), tmp_path))
    assert isinstance(given.rooms, RoomFiles)
    assert [one.name for one in given.rooms] == [one.name for one in rooms]
    assert len(given.rooms._read) == 64
    last = given.rooms.named("room 069")
    assert last is given.rooms.named("room 069")
    assert given.rooms.named("room 000").name == "room 000", "it is read again"


def test_frames_are_parted_as_they_were_joined() -> None:
    frames = [b"one", None, b"", b"three" * 1000]
    assert list(parted(joined(frames))) == frames


@pytest.mark.parametrize("name", names())
def test_every_algorithm_arrives_with_its_settings(
    name: str, tmp_path: Path, make_rooms: MakeRooms
) -> None:
    settings = {"name": name, **({"temperature": float("inf")} if name == "fedapa" else {})}
    algorithm = Plan(algorithm=settings, training={"learning_rate": 0.123}).build()
    assert handed_over(make_rooms()[0], tmp_path, algorithm).algorithm == algorithm


@pytest.mark.parametrize("algorithm", ["fedapa", "pooled"])
def test_nothing_of_ours_is_pickled_between_processes(
    algorithm: str, make_rooms: MakeRooms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rooms given in Python, windows in memory: two workers give the bytes of none."""
    plan, rooms = Plan(rounds=2, algorithm=algorithm), make_rooms()
    run(plan, rooms=rooms, out=tmp_path / "0", workers=0)

    def refuse(self: object, _: object) -> None:
        raise AssertionError(f"a {type(self).__name__} was pickled")

    for kind in (Room, Round, Request, Reply, Key, Split, Recipe, Normaliser, Algorithm, Plan):
        monkeypatch.setattr(kind, "__reduce_ex__", refuse)
    run(plan, rooms=rooms, out=tmp_path / "2", workers=2)
    for name in ("rounds.jsonl", "checkpoint"):
        assert (tmp_path / "2" / name).read_bytes() == (tmp_path / "0" / name).read_bytes()
