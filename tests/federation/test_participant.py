"""The room's side: remembers two rounds, answers repeats, never trains twice."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedapa.algorithms.algorithm import Round
from fedapa.algorithms.fedapa import FedAPA
from fedapa.errors import PayloadError, RunError
from fedapa.federation.messages import Request
from fedapa.federation.participant import Participant
from fedapa.payload import Tree, encode
from fedapa.randomness import Key
from fedapa.rooms.room import Room
from tests.conftest import MakeRooms


def participant(make_rooms: MakeRooms, folder: Path) -> Participant:
    room = make_rooms()[0]
    return Participant(FedAPA(), room, folder, folder / "model.safetensors")


def round_number(number: int) -> Round:
    return Round(number, 9, Key(0) / number)


TRAIN = Request(download=encode({}), train=True)


def test_only_the_last_two_states_are_kept(make_rooms: MakeRooms, tmp_path: Path) -> None:
    room = participant(make_rooms, tmp_path)
    for number in range(1, 5):
        room.exchange(round_number(number), TRAIN)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "round-000003.state",
        "round-000004.state",
    ]


def test_a_repeated_request_gets_the_same_answer_from_the_file(
    make_rooms: MakeRooms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = participant(make_rooms, tmp_path)
    first = room.exchange(round_number(1), TRAIN)

    def never(*_: object) -> None:
        raise AssertionError("trained twice")

    monkeypatch.setattr(FedAPA, "train", never)
    again = room.exchange(round_number(1), TRAIN)
    assert again.upload == first.upload
    assert again.scores == first.scores
    assert again.report == first.report


def test_another_download_is_another_request(make_rooms: MakeRooms, tmp_path: Path) -> None:
    """If the server lost its last merge and asks with other prototypes, the room trains anew."""
    room = participant(make_rooms, tmp_path)
    upload = room.exchange(round_number(1), TRAIN).upload
    changed = participant(make_rooms, tmp_path).exchange(
        round_number(1), Request(download=None, train=False)
    )
    assert upload is not None
    assert changed.upload is None


def test_files_of_another_run_are_not_answered_from(make_rooms: MakeRooms, tmp_path: Path) -> None:
    other = replace(TRAIN, run="another")
    room = participant(make_rooms, tmp_path / "one")
    room.exchange(round_number(1), TRAIN)
    again = room.exchange(round_number(2), other)
    fresh = participant(make_rooms, tmp_path / "new").exchange(round_number(2), other)
    assert again.upload == fresh.upload
    assert again.scores == fresh.scores


def test_a_room_that_missed_rounds_goes_on_from_its_newest_state(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """It is as if it had sat out; its state of round 2 stays until it has the next two."""
    idle = Request(download=None, train=False)
    away, sitting = participant(make_rooms, tmp_path / "a"), participant(make_rooms, tmp_path / "b")
    for number in (1, 2):
        for room in (away, sitting):
            room.exchange(round_number(number), TRAIN)
    for number in (3, 4, 5):
        sitting.exchange(round_number(number), idle)
    back, there = (room.exchange(round_number(6), TRAIN) for room in (away, sitting))
    assert back.upload == there.upload
    assert back.scores == there.scores
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [
        "round-000002.state",
        "round-000006.state",
    ]
    again = away.exchange(round_number(6), idle)
    assert again.scores == back.scores, "asked otherwise, it answers from the state before"


def test_a_room_without_a_state_joins_alike_in_any_round(
    make_rooms: MakeRooms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = []
    usual = FedAPA.join

    def join(self: FedAPA, room: Room, key: Key) -> Tree:
        keys.append(key)
        return usual(self, room, key)

    monkeypatch.setattr(FedAPA, "join", join)
    scores = []
    for number in (1, 7):
        room = participant(make_rooms, tmp_path / str(number))
        reply = room.exchange(round_number(number), TRAIN)
        assert reply.round == number
        scores.append(reply.scores)
    assert scores[0] == scores[1]
    assert keys[0] == keys[1]


def test_a_request_of_a_round_long_past_is_refused(make_rooms: MakeRooms, tmp_path: Path) -> None:
    room = participant(make_rooms, tmp_path)
    for number in (1, 2, 3):
        room.exchange(round_number(number), TRAIN)
    known = room.exchange(round_number(2), TRAIN)
    assert known.round == 2, "what it remembers it tells again"
    with pytest.raises(RunError, match="room 'room 0' has answered round 3 and is asked for round"):
        room.exchange(round_number(1), TRAIN)


def test_a_room_that_sits_out_is_scored_and_keeps_its_state(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    room = participant(make_rooms, tmp_path)
    room.exchange(round_number(1), TRAIN)
    idle = room.exchange(round_number(2), Request(download=None, train=False))
    assert idle.upload is None
    assert idle.report == {}
    after = room.exchange(round_number(3), Request(download=None, train=False))
    assert after.scores == idle.scores


def test_a_damaged_download_is_named(make_rooms: MakeRooms, tmp_path: Path) -> None:
    with pytest.raises(PayloadError, match="download of room 'room 0'"):
        participant(make_rooms, tmp_path).exchange(
            round_number(1), Request(download=b"nonsense", train=True)
        )
