"""Rooms that join a finished federation: from what it has for them, and nobody else hears."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedapa import Plan, run
from fedapa.algorithms import find, names
from fedapa.algorithms.algorithm import Round
from fedapa.errors import PlanError, RosterError
from fedapa.federation.checkpoint import Checkpoint
from fedapa.federation.joining import joining
from fedapa.randomness import Key
from fedapa.rooms.room import Room
from tests.conftest import MakeRooms

THREE = ((0, 1, 2), (0, 1, 2), (0, 1, 2))
TRAVELS = [
    name
    for name in names()
    if find(name).travels != "nothing" and not find(name).pools and not find(name).pools_in_turn
]


def plan_of(name: str, **values: Any) -> Plan:
    return Plan.of(
        {"rounds": 2, "algorithm": name, "training": {"batch_size": 4, "learning_rate": 0.05}},
        values,
    )


def federation(name: str, rooms: list[Room], folder: Path) -> Path:
    run(plan_of(name), rooms=rooms, out=folder, workers=0)
    return folder


@pytest.mark.parametrize("name", TRAVELS)
def test_every_federation_can_be_joined(name: str, make_rooms: MakeRooms, tmp_path: Path) -> None:
    rooms = make_rooms(THREE, windows_per_class=12)
    theirs = federation(name, rooms[:2], tmp_path / "theirs")
    before = {path: path.read_bytes() for path in theirs.rglob("*") if path.is_file()}
    plan = plan_of(name, joins={"room 2": str(theirs)})
    done = run(plan, rooms=rooms[2:], out=tmp_path / "new", workers=0)
    assert list(done.data["rooms"]) == ["room 2"]
    assert (done.folder / "models" / "room 2.safetensors").is_file()
    assert {path: path.read_bytes() for path in before} == before, "they hear nothing of it"
    again = run(plan, rooms=rooms[2:], out=tmp_path / "again", workers=0)
    assert again.records == done.records


def test_a_new_room_starts_from_the_merged_weights(make_rooms: MakeRooms, tmp_path: Path) -> None:
    """And is then the only one that is averaged: FedAvg, then rounds at home."""
    rooms = make_rooms(THREE)
    theirs = federation("fedavg", rooms[:2], tmp_path / "theirs")
    merged = Checkpoint(theirs / "checkpoint").load()["server"]["merged"]
    algorithm = joining(plan_of("fedavg", joins={"room 2": str(theirs)}))
    server = algorithm.open([rooms[2].card], Key(0))
    first = Round(1, 2, Key(0))
    sent = algorithm.download(server, "room 2", first)["weights"]
    for name, values in sent.items():
        assert (np.array(values) == np.array(merged[f"middle {name}"])).all()
    own = {name: np.full_like(values, 7) for name, values in sent.items()}
    server = algorithm.merge(server, {"room 2": {"weights": own, "windows": 3}}, first)
    home = algorithm.download(server, "room 2", Round(2, 2, Key(0)))["weights"]
    assert all((np.array(values) == 7).all() for values in home.values())


def test_rooms_may_join_different_federations(make_rooms: MakeRooms, tmp_path: Path) -> None:
    """Each room in turn is the new one; what one is told does not depend on the others."""
    rooms = make_rooms(THREE)
    folders = {
        room.name: federation(
            "fedavg", [other for other in rooms if other is not room], tmp_path / room.name
        )
        for room in rooms
    }
    joins = {room: str(folder) for room, folder in folders.items()}
    together = run(plan_of("fedavg", joins=joins), rooms=rooms, out=tmp_path / "all", workers=0)
    single = run(
        plan_of("fedavg", joins={"room 1": joins["room 1"]}),
        rooms=rooms[1:2],
        out=tmp_path / "one",
        workers=0,
    )
    assert [record["rooms"]["room 1"] for record in together.records] == [
        record["rooms"]["room 1"] for record in single.records
    ]


def test_who_may_not_join(make_rooms: MakeRooms, tmp_path: Path) -> None:
    rooms = make_rooms(THREE)
    theirs = federation("fedavg", rooms[:2], tmp_path / "theirs")

    def joined(room: Room, name: str = "fedavg", folder: Path = theirs) -> None:
        plan = plan_of(name, joins={room.name: str(folder)})
        shutil.rmtree(tmp_path / "new", ignore_errors=True)
        run(plan, rooms=[room], out=tmp_path / "new", workers=0)

    with pytest.raises(RosterError, match="room 'room 1' is in the federation already"):
        joined(rooms[1])
    with pytest.raises(PlanError, match="was run with fedavg, who joins with fedproto"):
        joined(rooms[2], "fedproto")
    with pytest.raises(PlanError, match="holds no finished run to join"):
        joined(rooms[2], folder=tmp_path)
    other = dataclasses.replace(rooms[2], classes=(0, 1, 5))
    with pytest.raises(RosterError, match="another class list"):
        joined(other)
    with pytest.raises(PlanError, match="is no federation that a room could join"):
        joined(rooms[2], "pooled")
    with pytest.raises(PlanError, match="is no federation that a room could join"):
        joined(rooms[2], "local")
    both = {"room 2": str(theirs), "room 9": str(theirs)}
    with pytest.raises(RosterError, match="joins: there is no room 'room 9'"):
        run(plan_of("fedavg", joins=both), rooms=rooms[2:], out=tmp_path / "both", workers=0)
    joined(rooms[2])
    with pytest.raises(PlanError, match="its rooms joined a federation, each for itself"):
        run(
            plan_of("fedavg", joins={"room 2": str(tmp_path / "new")}),
            rooms=rooms[2:],
            out=tmp_path / "twice",
            workers=0,
        )
    plan = plan_of("fedavg", joins={"room 9": str(theirs)})
    with pytest.raises(RosterError, match="room 'room 2' joins no federation"):
        run(plan, rooms=rooms[2:], out=tmp_path / "nobody", workers=0)


def test_a_killed_join_goes_on_bit_equal(make_rooms: MakeRooms, tmp_path: Path) -> None:
    rooms = make_rooms(THREE)
    theirs = federation("fedjoin", rooms[:2], tmp_path / "theirs")
    joins = {"room 2": str(theirs)}
    short = plan_of("fedjoin", joins=joins)
    long = plan_of("fedjoin", joins=joins, rounds=4)
    whole = run(long, rooms=rooms[2:], out=tmp_path / "whole", workers=0)
    run(short, rooms=rooms[2:], out=tmp_path / "parts", workers=0)
    parts = run(long, rooms=rooms[2:], out=tmp_path / "parts", workers=0, resume=True)
    assert parts.records == whole.records
    about = json.loads((tmp_path / "parts" / "summary.json").read_text())
    assert about == json.loads((tmp_path / "whole" / "summary.json").read_text())


@pytest.mark.parametrize("classes", [(0, 1), (1, 2)])
def test_a_room_answers_what_it_may(
    make_rooms: MakeRooms, tmp_path: Path, classes: tuple[int, ...]
) -> None:
    room = dataclasses.replace(make_rooms(THREE)[0], answerable=classes)
    done = run(plan_of("local"), rooms=[room], out=tmp_path, workers=0)
    answered = np.array(done.summary["confusion"]["room 0"]).sum(axis=0)
    assert set(np.flatnonzero(answered)) <= set(classes)
