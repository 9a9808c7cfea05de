"""What the server does with uploads that cannot be: the round goes on, the others are as before."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from fedapa import Plan, run
from fedapa.algorithms.algorithm import Roster, Round
from fedapa.algorithms.fedapa import FedAPA
from fedapa.errors import DivergedError, PlanError, RunError
from fedapa.federation import rounds
from fedapa.federation.engines.in_process import InProcess, _handed_out
from fedapa.federation.messages import Rejected, Reply, Request
from fedapa.payload import Tree, decode, encode
from fedapa.rooms.room import Room
from tests.conftest import MakeRooms
from tests.contract.test_algorithms import plan_of

BAD = "room 1"
ROUNDS = 3
Change = Callable[[dict[str, Any]], Tree]


class Tampering:
    """An engine in which one room says something else in round 2; or nothing at all."""

    def __init__(self, engine: InProcess, tamper: Callable[[Reply], Reply | Rejected | None]):
        self._engine, self._tamper = engine, tamper

    def roster(self) -> Roster:
        return self._engine.roster()

    def exchange(
        self, round: Round, requests: Mapping[str, Request]
    ) -> Mapping[str, Reply | Rejected]:
        replies: dict[str, Reply | Rejected] = dict(self._engine.exchange(round, requests))
        if round.number == 2:
            said = self._tamper(self._engine.exchange(round, requests)[BAD])
            del replies[BAD]
            if said is not None:
                replies[BAD] = said
        return replies


def carry_out(
    name: str,
    make_rooms: MakeRooms,
    folder: Path,
    tamper: Callable[[Reply], Reply | Rejected | None],
    **settings: Any,
) -> list[rounds.Step]:
    plan = plan_of(name, rounds=ROUNDS, settings=settings)
    algorithm = plan.build()
    rooms = make_rooms(windows_per_class=4, shape=(8, 6), architecture="tiny", width=8)
    with InProcess(algorithm, rooms, folder=folder, workers=0) as engine:
        tampering = Tampering(engine, tamper)
        return list(
            rounds.run(algorithm, tampering, plan, rounds.begin(algorithm, tampering, plan))
        )


def uploading(change: Change) -> Callable[[Reply], Reply]:
    """Replies whose upload is another."""

    def tamper(reply: Reply) -> Reply:
        assert reply.upload is not None
        return replace(reply, upload=encode(change(dict(decode(reply.upload)))))

    return tamper


def put(path: str, value: Any) -> Change:
    def change(upload: dict[str, Any]) -> Tree:
        *branches, last = path.split("/")
        place = upload
        for branch in branches:
            place[branch] = dict(place[branch])
            place = place[branch]
        place[last] = value(place[last]) if callable(value) else value
        return upload

    return change


def nan(values: Any) -> Any:
    return np.full_like(values, np.nan)


def without(name: str) -> Change:
    return lambda upload: {key: value for key, value in upload.items() if key != name}


PROTOTYPES: list[tuple[Any, str]] = [
    (uploading(put("prototypes", nan)), "prototypes holds NaN or infinity"),
    (uploading(put("prototypes", lambda p: p[:1])), "prototypes has shape (1, 8); expected (2, 8)"),
    (uploading(put("prototypes", lambda p: p[:, :4])), "has shape (2, 4); expected (2, 8)"),
    (uploading(put("prototypes", lambda p: p.astype(np.float64))), "is float64; expected float32"),
    (uploading(put("prototypes", 1.0)), "prototypes is float; expected float32"),
    (uploading(put("present", lambda p: p.astype(np.int64))), "present is int64; expected bool"),
    (uploading(put("present", lambda p: p[:2])), "present has shape (2,); expected (3,)"),
    (uploading(without("present")), "its upload lacks 'present'"),
    (
        uploading(lambda upload: {**upload, "windows": np.zeros((9, 9))}),
        "holds 'windows', which its algorithm does not send",
    ),
    (lambda reply: replace(reply, upload=bytes(100 * 2**20)), "has 104857600 bytes; expected"),
    (lambda reply: replace(reply, upload=reply.upload[:-3]), "announced; truncated?"),
    (lambda reply: replace(reply, round=1), "it answers round 1, asked was round 2"),
    (lambda reply: replace(reply, round=3), "it answers round 3, asked was round 2"),
    (lambda reply: Rejected("a duplicate"), "a duplicate"),
]


@pytest.mark.parametrize(("tamper", "complaint"), PROTOTYPES)
def test_a_bad_upload_is_recorded_and_changes_nothing_for_the_others(
    make_rooms: MakeRooms, tmp_path: Path, tamper: Any, complaint: str
) -> None:
    """The run is the one in which the room was absent, but for the reason in the record."""
    absent = carry_out("fedapa", make_rooms, tmp_path / "absent", lambda reply: None)
    steps = carry_out("fedapa", make_rooms, tmp_path / "bad", tamper)
    assert [step.exchange for step in steps] == list(range(1, ROUNDS + 2))
    for step, other in zip(steps, absent, strict=True):
        record = dict(step.record or {})
        rejected = record.pop("rejected", {})
        assert record == (other.record or {})
        assert set(rejected) == ({BAD} if record.get("round") == 2 else set())
        assert all(complaint in reason for reason in rejected.values())
        assert encode({"server": step.state["server"]}) == encode({"server": other.state["server"]})
    assert any(complaint in note and BAD in note for note in steps[-1].notes)


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("fedavg", put("windows", 10**9), "windows has values from 1000000000 to 1000000000"),
        ("fedavg", put("windows", True), "windows is True; expected a number"),
        ("fedavg", put("weights/classifier.bias", nan), "classifier.bias holds NaN or infinity"),
        ("fedavg", put("weights/classifier.bias", lambda b: b[:-1]), "has shape (2,); expected"),
        ("caring", put("accuracy", 1.5), "accuracy has values from 1.5 to 1.5; expected 0 to 1"),
        ("fedjoin", put("temperature", 0.0), "temperature has values from 0.0 to 0.0"),
        ("local", lambda upload: {"weights": np.zeros(3)}, "which its algorithm does not send"),
    ],
)
def test_each_kind_of_upload_has_a_form(
    make_rooms: MakeRooms, tmp_path: Path, name: str, change: Change, complaint: str
) -> None:
    steps = carry_out(name, make_rooms, tmp_path, uploading(change))
    records = [step.record for step in steps if step.record]
    assert complaint in records[1]["rejected"][BAD]
    assert ["rejected" in record for record in records] == [False, True, False]


def test_counts_of_classes_that_stay_at_home_are_not_told(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """With more samples asked for than there are, nothing of a room is in its upload."""
    seen: list[Tree] = []

    def look(reply: Reply) -> Reply:
        assert reply.upload is not None
        seen.append(decode(reply.upload))
        return reply

    carry_out("fedapa", make_rooms, tmp_path, look, minimum_samples=100, padding="counts")
    (upload,) = seen
    assert np.asarray(upload["prototypes"]).shape == (0, 8)
    assert not np.any(upload["present"])
    assert not np.any(upload["counts"])


class Ending:
    """An engine that is interrupted before an exchange, as by Ctrl-C."""

    def __init__(self, engine: InProcess, before: int) -> None:
        self._engine, self._before = engine, before

    def roster(self) -> Roster:
        return self._engine.roster()

    def exchange(self, round: Round, requests: Mapping[str, Request]) -> Mapping[str, Reply]:
        if round.number == self._before:
            raise KeyboardInterrupt
        return self._engine.exchange(round, requests)


@dataclass(frozen=True)
class Counting(FedAPA):
    """FedAPA that notes whose download is made."""

    made: ClassVar[list[str]] = []

    def download(self, state: Any, room: str, round: Any) -> Any:
        self.made.append(room)
        return super().download(state, room, round)


def test_a_download_is_made_when_an_engine_takes_it(make_rooms: MakeRooms, tmp_path: Path) -> None:
    """Once for each room and exchange, one after the other: all at once may be gigabytes."""
    plan, rooms = Plan(rounds=1, algorithm="fedapa"), make_rooms()
    names = sorted(room.name for room in rooms)

    class Engine(InProcess):
        def exchange(self, round: Any, requests: Any) -> Any:
            assert not Counting.made
            assert list(requests) == names
            assert names[0] in requests
            assert not Counting.made, "who only looks who is asked makes nothing"
            replies = {
                name: InProcess.exchange(self, round, {name: requests[name]})[name]
                for name in names
            }
            assert Counting.made == names
            Counting.made.clear()
            with pytest.raises(KeyError):
                requests["nobody"]
            return replies

    algorithm = Counting()
    with Engine(algorithm, rooms, folder=tmp_path, workers=0) as engine:
        state = rounds.begin(algorithm, engine, plan)
        steps = list(rounds.run(algorithm, engine, plan, state))
    assert not Counting.made, "records tell the bytes of downloads without making them again"
    (record,) = [step.record for step in steps if step.record]
    assert all(room["bytes_down"] > 0 for room in record["rooms"].values())


def test_a_reply_that_was_told_ahead_is_checked_once_and_the_one_that_counts_is_the_answer(
    make_rooms: MakeRooms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, rooms = Plan(rounds=2, algorithm="fedapa"), make_rooms()
    bad, checked = sorted(room.name for room in rooms)[0], list[str]()
    check = rounds.check_reply

    def noted(reply: Reply, card: Any) -> None:
        checked.append(card.name)
        check(reply, card)

    class Engine(InProcess):
        def exchange(self, round: Any, requests: Any) -> Any:
            replies: dict[str, Reply | Rejected] = {**InProcess.exchange(self, round, requests)}
            for room, reply in replies.items():
                requests.came(room, reply)
            if round.number == 2:
                replies[bad] = Rejected("it says something else")
            return replies

    monkeypatch.setattr(rounds, "check_reply", noted)
    algorithm = plan.build()
    with Engine(algorithm, rooms, folder=tmp_path, workers=0) as engine:
        state = rounds.begin(algorithm, engine, plan)
        steps = list(rounds.run(algorithm, engine, plan, state))
    assert checked == sorted(room.name for room in rooms) * 3
    _, second = [step.record for step in steps if step.record]
    assert second["rejected"] == {bad: "it says something else"}
    assert not second["rooms"][bad]["participated"]


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("seconds", [1e-4, 0.01, 1.0, math.inf])
@pytest.mark.parametrize("number", [1, 6, 7, 100, 1000])
def test_every_room_is_handed_out_once_and_nobody_waits_long_at_the_end(
    workers: int, seconds: float, number: int
) -> None:
    order = [f"{place:04d}" for place in range(number)]
    portions = _handed_out(order, workers, seconds)
    assert [room for rooms in portions for room in rooms] == order
    sizes = [len(rooms) for rooms in portions]
    assert min(sizes) >= 1
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] <= -(-number // workers)


def test_what_all_rooms_get_is_encoded_once(make_rooms: MakeRooms, tmp_path: Path) -> None:
    """FedAvg sends everybody one net, FedAPA each room its own mixture."""
    for name, alike in (("fedavg", True), ("fedapa", False)):
        plan, rooms = Plan(rounds=1, algorithm=name), make_rooms()
        algorithm, sent = plan.build(), []

        class Engine(InProcess):
            def exchange(self, round: Any, requests: Any) -> Any:
                sent.append([request.download for request in requests.values()])  # noqa: B023
                return InProcess.exchange(self, round, requests)

        with Engine(algorithm, rooms, folder=tmp_path / name, workers=0) as engine:
            state = rounds.begin(algorithm, engine, plan)
            list(rounds.run(algorithm, engine, plan, state))
        first, *others = sent[-1]
        assert all((frame is first) == alike for frame in others)
        assert len(decode(first)) > 0


def test_an_open_run_goes_on_until_a_number_is_set(make_rooms: MakeRooms, tmp_path: Path) -> None:
    """Its rooms have a net after every round; ended after the fourth it is a run of four."""
    rooms = make_rooms(windows_per_class=4, shape=(8, 6), architecture="tiny", width=8)
    four, openly = plan_of("fedapa", rounds=4), plan_of("fedapa", rounds="open")
    assert 'rounds = "open"' in openly.toml()
    assert Plan(**openly.document()) == openly
    with InProcess(four.build(), rooms, folder=tmp_path / "four", workers=0) as engine:
        run(four, out=tmp_path / "four", engine=engine)
    with InProcess(four.build(), rooms, folder=tmp_path / "open", workers=0) as engine:
        with pytest.raises(KeyboardInterrupt):
            run(openly, out=tmp_path / "open", engine=Ending(engine, before=4))
        assert len(list((tmp_path / "open" / "models").iterdir())) == 3
        with pytest.raises(RunError, match="rounds: open → 2"):
            run(plan_of("fedapa", rounds=2), out=tmp_path / "open", resume=True, engine=engine)
        run(four, out=tmp_path / "open", resume=True, engine=engine)
    records = [(tmp_path / name / "rounds.jsonl").read_bytes() for name in ("four", "open")]
    assert records[0] == records[1]


def test_one_command_alone_wants_a_last_round(make_rooms: MakeRooms, tmp_path: Path) -> None:
    """It would never end, also when every room has spent its privacy budget."""
    with pytest.raises(PlanError, match=r'rounds = "open": is for a server .*; set rounds'):
        run(plan_of("fedapa", rounds="open"), rooms=make_rooms(), out=tmp_path / "run", workers=0)
    assert not (tmp_path / "run").exists()


def test_what_plans_ahead_cannot_be_open(make_rooms: MakeRooms, tmp_path: Path) -> None:
    plan = plan_of("fedproc", rounds="open")
    told = pytest.raises(PlanError, match="FedProc depends on the number of rounds")
    with InProcess(plan.build(), make_rooms(), folder=tmp_path, workers=0) as engine, told:
        rounds.begin(plan.build(), engine, plan)


def fitting(monkeypatch: pytest.MonkeyPatch, *bad: str) -> None:
    """Let training of these rooms diverge in round 2."""
    usual = FedAPA.train

    def train(self: FedAPA, room: Room, state: Tree, round: Round) -> Any:
        if round.number == 2 and room.name in bad:
            raise DivergedError(f"room '{room.name}': the loss became nan in training")
        return usual(self, room, state, round)

    monkeypatch.setattr(FedAPA, "train", train)


def test_a_room_that_diverged_is_named_and_the_round_goes_on(
    make_rooms: MakeRooms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitting(monkeypatch, "room 1")
    plan = plan_of("fedapa")
    algorithm = plan.build()
    with InProcess(algorithm, make_rooms(), folder=tmp_path, workers=0) as engine:
        steps = list(rounds.run(algorithm, engine, plan, rounds.begin(algorithm, engine, plan)))
    lines = [step.record for step in steps if step.record is not None]
    assert len(lines) == plan.rounds
    why = "the loss became nan in training; it keeps the state from before"
    assert [line.get("diverged") for line in lines[:2]] == [None, {"room 1": why}]
    assert not lines[1]["rooms"]["room 1"]["participated"]
    assert lines[1]["rooms"]["room 0"]["participated"]
    assert "rejected" not in lines[1] and "missing" not in lines[1]
    assert f"exchange 2: room 'room 1' is without an upload: {why}" in steps[-1].notes


def test_training_that_diverges_everywhere_ends_the_run_with_its_remedy(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """The plan is wrong, and the same sentence comes when the run is resumed."""
    wild = Plan.of(plan_of("fedapa").document(), {"training": {"learning_rate": 1e20}})
    for _ in range(2):
        with pytest.raises(RunError, match=r"round 1: training diverged in every room.*lower"):
            run(wild, rooms=make_rooms(), out=tmp_path / "run", resume=True, workers=0)
