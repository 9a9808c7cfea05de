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
each_kind = pytest.mark.parametrize("name", ["fedamp", "fedapa", "fedavg", "fedproc", "pooled"])
"""One of each kind of server state: what follows is the round loop's, not the algorithm's."""
ROUNDS = 5


class Unreliable:
    """An engine that loses and repeats; what it does is decided by its seed alone."""

    def __init__(self, engine: InProcess, *, loss: float, seed: int = 0) -> None:
        self._engine, self._loss, self._seed = engine, loss, seed
        self._asked = 0
        self._last: dict[str, Reply] = {}
        self.rosters: list[set[str]] = []

    def forget(self, asked: int) -> None:
        """Go on as an engine that was asked for its roster so often: the server was killed."""
        self._asked = asked - 1

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


class Rosters:
    """An engine whose roster is another in each exchange: the cards of rooms, or cards alone."""

    def __init__(self, engine: InProcess, *rosters: Roster) -> None:
        self._engine, self._rosters = engine, list(rosters)
        self.asked: list[set[str]] = []

    def roster(self) -> Roster:
        return self._rosters.pop(0) if len(self._rosters) > 1 else self._rosters[0]

    def exchange(self, round: Round, requests: Mapping[str, Request]) -> Mapping[str, Reply]:
        self.asked.append(set(requests))
        return self._engine.exchange(round, requests)


@each_kind
def test_a_newcomer_that_does_not_fit_is_refused_by_name_and_the_run_goes_on(
    name: str, make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """Its name comes first: it must not be taken for the one whom others have to fit."""
    plan, rooms = plan_of(name), four_rooms(make_rooms)
    algorithm = plan.build()
    with InProcess(algorithm, rooms, folder=tmp_path, workers=0) as engine:
        cards = list(engine.roster())
        odd = replace(cards[-1], name="attic", labels=(0, 1, 9), pooled=False)
        changing = Rosters(engine, cards, cards, [odd, *cards])
        state = rounds.begin(algorithm, changing, plan)
        steps = list(rounds.run(algorithm, changing, plan, state))
    assert changing.asked == [{card.name for card in cards}] * 4
    (note,) = steps[-1].notes
    assert note.startswith("exchange 2: room 'attic' is refused, the run goes on without it: ")
    assert "room 'attic' has another class list than 'room 0'" in note
    assert "attic" not in steps[-1].cards
    plain = carry_out(plan, rooms, tmp_path / "plain")
    assert records(steps) == records(plain)


@each_kind
def test_a_room_with_another_net_joins_afresh_or_is_refused_with_a_word(
    name: str, make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """It comes back in round 2 with other windows and another net; its old state is no use."""
    plan, rooms = plan_of(name), four_rooms(make_rooms)
    other = replace(rooms[3], windows=np.array(rooms[3].windows) + 1, architecture="middle")
    algorithm = plan.build()
    before, after = (
        InProcess(algorithm, [*rooms[:3], last], folder=tmp_path, workers=0)
        for last in (rooms[3], other)
    )
    engine = Rosters(before, before.roster(), before.roster(), after.roster())
    state = rounds.begin(algorithm, engine, plan)
    steps = []
    for step in rounds.run(algorithm, engine, plan, state):
        steps.append(step)
        engine._engine = after
    assert [step.exchange for step in steps] == [1, 2, 3, 4]
    notes = " ".join(steps[-1].notes)
    if len(engine.asked[-1]) == 4:
        assert "room 'room 3': its windows, its classes or its net are others" in notes
        assert steps[-1].cards["room 3"] == after.roster()[3]
    else:
        assert "room 'room 3' is refused" in notes


@each_kind
def test_a_stopped_run_with_absent_rooms_goes_on_to_the_same(
    name: str, make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """Losses, half of the rooms a round, a room that leaves, and a server that is killed."""
    rooms = four_rooms(make_rooms)
    half = {} if find(name).pools else {"participation": 0.5}
    plan = plan_of(name, rounds=4, **half)
    algorithm = plan.build()

    def steps_of(folder: Path, stop: int | None) -> list[rounds.Step]:
        made: list[rounds.Step] = []
        with InProcess(algorithm, rooms, folder=folder, workers=0) as engine:
            unreliable = Unreliable(engine, loss=0.25, seed=3)
            state = rounds.begin(algorithm, unreliable, plan)
            for step in rounds.run(algorithm, unreliable, plan, decode(encode(state))):
                made.append(step)
                if len(made) == stop:
                    break
            if stop is not None:  # the rooms answered once more, and the server did not save it
                made.pop()
                saved = decode(encode(made[-1].state))
                unreliable.forget(2 + saved["round"])
                made += rounds.run(algorithm, unreliable, plan, saved)
        return made

    whole, stopped = steps_of(tmp_path / "whole", None), steps_of(tmp_path / "stopped", 3)
    assert records(stopped) == records(whole)
    assert encode(stopped[-1].state) == encode(whole[-1].state)


def test_a_room_twice_in_the_roster_is_noticed(make_rooms: MakeRooms, tmp_path: Path) -> None:
    plan = plan_of("local")
    algorithm = plan.build()
    with InProcess(algorithm, four_rooms(make_rooms), folder=tmp_path, workers=0) as engine:
        cards = list(engine.roster())
        twice = Rosters(engine, cards, cards, [*cards, cards[1]])
        state = rounds.begin(algorithm, twice, plan)
        with pytest.raises(RosterError, match="room 'room 1' appears twice"):
            list(rounds.run(algorithm, twice, plan, state))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"confusion": np.eye(2, dtype=int)}, "its confusion matrix is (2, 2)"),
        ({"upload": b"junk"}, "its upload: 4 bytes are too few"),
    ],
)
def test_a_reply_that_cannot_be_is_named_and_the_run_goes_on(
    make_rooms: MakeRooms, tmp_path: Path, change: dict[str, Any], complaint: str
) -> None:
    class Wrong(Rosters):
        def exchange(self, round: Round, requests: Mapping[str, Request]) -> Mapping[str, Reply]:
            replies = dict(super().exchange(round, requests))
            return {**replies, "room 2": replace(replies["room 2"], **change)}

    plan = plan_of("fedavg")
    algorithm = plan.build()
    with InProcess(algorithm, four_rooms(make_rooms), folder=tmp_path, workers=0) as engine:
        wrong = Wrong(engine, engine.roster())
        state = rounds.begin(algorithm, wrong, plan)
        steps = list(rounds.run(algorithm, wrong, plan, state))
    assert len(steps) == plan.rounds + 1
    assert any("reply of room 'room 2'" in note and complaint in note for note in steps[-1].notes)
    for step in steps[1:-1]:
        assert step.record is not None
        assert step.record["missing"]["upload"] == ["room 2"]
        assert complaint in step.record["rejected"]["room 2"]
        assert "accuracy" in step.record["rooms"]["room 1"]


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
    """Rooms that all can be empty have all metrics; where some cannot, one key says so."""
    usual = ["mean", "rooms", "round", "server", "std", "weighted"]
    alike = make_rooms([(0, 1), (0, 1, 2)])
    line = json.loads(records(carry_out(plan_of("fedapa"), alike, tmp_path / "alike"))[0])
    assert sorted(line) == usual
    line = json.loads(records(carry_out(plan_of("fedapa"), four_rooms(make_rooms), tmp_path))[0])
    assert sorted({*line} - {*usual}) == ["fewer_rooms"]
    told = ["presence_auc" in entry for entry in line["rooms"].values()]
    assert line["fewer_rooms"] == {"presence_auc": sum(told)}
    assert sum(told) < len(told)
