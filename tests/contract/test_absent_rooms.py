"""Every algorithm with rooms that come, go, miss exchanges and are heard twice."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedapa.algorithms import find, names
from fedapa.algorithms.algorithm import Algorithm, Roster, Round
from fedapa.errors import PlanError, RosterError
from fedapa.federation import rounds
from fedapa.federation.engines.in_process import InProcess
from fedapa.federation.messages import Reply, Request, encode_reply
from fedapa.federation.participant import Participant
from fedapa.payload import decode, encode, leaves
from fedapa.randomness import Key
from fedapa.rooms.room import Room
from tests.conftest import MakeRooms
from tests.contract.test_algorithms import carry_out, models, plan_of, records

every = pytest.mark.parametrize("name", names())
ROUNDS = 5


class Unreliable:
    """An engine that loses and repeats; what it does is decided by its seed alone."""

    def __init__(self, engine: InProcess, *, loss: float, seed: int = 0) -> None:
        self._engine, self._loss, self._seed = engine, loss, seed
        self._asked = 0
        self._last: dict[str, Reply] = {}
        self.rosters: list[set[str]] = []

    def _happens(self, what: str, room: str) -> bool:
        key = Key(self._seed) / what / self._asked / room
        return bool(key.numpy().random() < self._loss)

    def roster(self) -> Roster:
        """Whole rooms leave, and join or come back; in any order."""
        self._asked += 1
        here = [card for card in self._engine.roster() if not self._happens("gone", card.name)]
        if self._asked == 1 and not here:
            here = list(self._engine.roster())[:1]
        self.rosters.append({card.name for card in here})
        return here[::-1]

    def exchange(self, round: Round, requests: Mapping[str, Request]) -> Mapping[str, Reply]:
        """Downloads are lost, replies are lost, requests come twice, old replies come again."""
        assert set(requests) == self.rosters[-1]
        heard = {}
        for room, request in requests.items():
            if self._happens("download lost", room):
                continue
            replies = [self._engine.exchange(round, {room: request})[room]]
            if self._happens("asked twice", room):
                replies.append(self._engine.exchange(round, {room: request})[room])
                assert len({encode_reply(replace(reply, seconds={})) for reply in replies}) == 1
            old = self._last.get(room)
            self._last[room] = replies[0]
            if self._happens("reply lost", room):
                if old is not None:  # in its place comes what was said before
                    heard[room] = old
                continue
            heard[room] = replies[0]
        return heard


def four_rooms(make_rooms: MakeRooms) -> list[Room]:
    return make_rooms(
        ((0, 1), (0, 2), (1, 2), (0, 1, 2)),
        windows_per_class=4,
        shape=(8, 6),
        architecture="tiny",
        width=8,
    )


def go_through(
    name: str, rooms: list[Room], folder: Path, *, loss: float, total: int = ROUNDS
) -> tuple[list[rounds.Step], Unreliable]:
    plan = plan_of(name, rounds=total)
    algorithm = plan.build()
    with InProcess(algorithm, rooms, folder=folder, workers=0) as engine:
        unreliable = Unreliable(engine, loss=loss)
        state = rounds.begin(algorithm, unreliable, plan)
        steps = []
        for step in rounds.run(algorithm, unreliable, plan, decode(encode(state))):
            steps.append(step)
        return steps, unreliable


def count_training(monkeypatch: pytest.MonkeyPatch, kind: type[Algorithm]) -> Counter[Any]:
    """How often each room trained each round."""
    trained: Counter[Any] = Counter()
    usual = kind.train

    def counted(self: Any, room: Room, state: Any, round: Round) -> Any:
        trained[room.name, round.number] += 1
        return usual(self, room, state, round)

    monkeypatch.setattr(kind, "train", counted)
    return trained


@every
def test_rooms_may_miss_exchanges_come_and_go(
    name: str, make_rooms: MakeRooms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarter of everything is lost: the run ends, states are finite, nobody trains twice."""
    trained = count_training(monkeypatch, find(name))
    rooms = four_rooms(make_rooms)
    steps, engine = go_through(name, rooms, tmp_path / "one", loss=0.25)
    assert [step.exchange for step in steps] == list(range(1, ROUNDS + 2))
    assert set(trained.values()) == {1}
    for path, value in leaves(steps[-1].state):
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            assert np.isfinite(value).all(), path
    lines = [step.record for step in steps if step.record is not None]
    for record, here in zip(lines, engine.rosters[2:], strict=True):
        scored = {room for room, entry in record["rooms"].items() if "accuracy" in entry}
        missing = record.get("missing", {})
        assert here - scored <= set(missing.get("score", ())), "whoever told no score is named"
        assert not scored & set(missing.get("score", ()))
        for room in missing.get("upload", ()):
            assert record["rooms"][room]["bytes_up"] == 0
            assert not record["rooms"][room]["participated"]
        if "weights" in record["server"]:
            members = record.get("members", sorted(record["rooms"]))
            assert np.shape(record["server"]["weights"]) == (len(members), len(members))
    assert any("missing" in record for record in lines)
    assert any("accuracy" in record["mean"] for record in lines)
    monkeypatch.undo()
    again, _ = go_through(name, rooms, tmp_path / "two", loss=0.25)
    assert records(again) == records(steps)
    assert encode(again[-1].state) == encode(steps[-1].state)


@every
def test_where_nothing_is_lost_it_is_the_plain_engine_to_the_bit(
    name: str, make_rooms: MakeRooms, tmp_path: Path
) -> None:
    rooms = four_rooms(make_rooms)
    plain = carry_out(plan_of(name, rounds=2), rooms, tmp_path / "plain")
    steps, _ = go_through(name, rooms, tmp_path / "other", loss=0.0, total=2)
    assert records(steps) == records(plain)
    assert "missing" not in records(steps)[0] and "members" not in records(steps)[0]
    assert encode(steps[-1].state) == encode(plain[-1].state)
    assert models(tmp_path / "other") == models(tmp_path / "plain")


@every
def test_rooms_admitted_one_by_one_are_rooms_that_were_there(
    name: str, make_rooms: MakeRooms
) -> None:
    """Before anybody has uploaded, the state depends on who is there, not on how they came."""
    algorithm = plan_of(name).build()
    with InProcess(algorithm, four_rooms(make_rooms), folder=Path(), workers=0) as engine:
        cards = list(engine.roster())
    opened = algorithm.open(cards[:3], Key(0))
    grown = algorithm.open(cards[:2], Key(0))
    for card in (cards[3], cards[2]):
        grown = algorithm.admit(grown, card)
    assert encode(algorithm.dismiss(grown, cards[3].name)) == encode(opened)
    explained = algorithm.explain(grown)
    for value in explained.values():
        assert not isinstance(value, np.ndarray) or set(value.shape) == {4}


@every
def test_a_room_that_does_not_fit_is_refused_when_it_comes(
    name: str, make_rooms: MakeRooms
) -> None:
    """As it would have been at the start, by name and with a remedy."""
    algorithm = plan_of(name).build()
    with InProcess(algorithm, four_rooms(make_rooms), folder=Path(), workers=0) as engine:
        cards = list(engine.roster())
    odd = replace(make_rooms(((0, 1),), width=5)[0], name="cellar").card
    server = algorithm.open(cards, Key(0))
    try:
        algorithm.open([*cards, odd], Key(0))
    except RosterError as error:
        with pytest.raises(RosterError) as refused:
            algorithm.admit(server, odd)
        assert str(refused.value).split(":")[0] == str(error).split(":")[0]
        assert "cellar" in str(refused.value)
        assert "; give " in str(refused.value) or "; use " in str(refused.value)
    else:
        algorithm.admit(server, odd)


@every
def test_a_run_without_a_last_round_is_refused_by_name_where_it_matters(
    name: str, make_rooms: MakeRooms, tmp_path: Path
) -> None:
    room, algorithm = four_rooms(make_rooms)[0], plan_of(name).build()
    participant = Participant(algorithm, room, tmp_path, tmp_path / "model")
    endless = Round(1, None, Key(0) / "round" / 1)
    ask = Request(download=encode({}), train=True)
    if find(name).plans_ahead:
        with pytest.raises(PlanError, match=rf"{algorithm.title} depends on .* set rounds"):
            participant.exchange(endless, ask)
    else:
        assert participant.exchange(endless, ask).upload is not None


def test_a_line_without_missing_rooms_is_as_it_always_was(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    line = json.loads(records(carry_out(plan_of("fedapa"), four_rooms(make_rooms), tmp_path))[0])
    assert sorted(line) == ["mean", "rooms", "round", "server", "std", "weighted"]
