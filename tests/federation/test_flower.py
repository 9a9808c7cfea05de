"""The engine over Flower's messages: equal to in process, and rooms that are lost or lie."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message

from fedapa import Plan, run
from fedapa.answers import BINS
from fedapa.errors import PausedError, RosterError
from fedapa.evaluation.metrics import THRESHOLDS
from fedapa.evaluation.record import JsonLines
from fedapa.federation.engines.flower import Flower
from fedapa.federation.engines.frames import EXCHANGE, REFUSED, pack, unpack
from fedapa.federation.messages import decode_reply, encode_reply
from fedapa.federation.prepare import agree
from fedapa.payload import decode, encode, leaves
from tests.conftest import MakeStore
from tests.federation.fake_grid import FakeGrid, lost, nodes_of

THREE: dict[str, dict[int | str | None, int]] = {
    "cafe": {0: 4, 1: 4, 2: 4},
    "hall": {0: 3, 2: 3},
    "lab": {1: 3, 2: 3},
}


def plan_of(store: Path, **values: Any) -> Plan:
    base = {
        "rounds": 3,
        "data": {"file": str(store), "window": 16},
        "model": {"architecture": "tiny", "width": 8},
        "training": {"batch_size": 4, "learning_rate": 0.05},
        "network": {"deadline": 30},
    }
    return Plan.of(base, values)


def engine_of(grid: FakeGrid, plan: Plan, folder: Path, said: list[str] | None = None) -> Flower:
    folder.mkdir(parents=True, exist_ok=True)
    say = (said if said is not None else []).append
    return Flower(
        grid, plan, lambda cards: agree(plan, cards), grid.nodes, folder, say=say, poll=0.01
    )


def models(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*.safetensors"))}


def files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("rounds.jsonl", "checkpoint")}


def without_source(content: bytes) -> Any:
    """A checkpoint but for the digest of what the plan says of its file."""
    return {path: str(value) for path, value in leaves(decode(content)) if path != "run"}


def over_flower(store: Path, plan: Plan, folder: Path, grid: FakeGrid | None = None) -> FakeGrid:
    grid = grid or FakeGrid(nodes_of(store, THREE, folder / "rooms"))
    engine = engine_of(grid, plan, folder / "server")
    run(plan, out=folder / "server", engine=engine, resume=True)
    return grid


@pytest.mark.parametrize("name", ["fedapa", "fedavg", "fedjoin"])
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_run_over_flower_is_the_one_in_process(
    make_store: MakeStore, tmp_path: Path, name: str, precision: str
) -> None:
    """Bit-equal models, records, bytes and server states, though replies come in another order."""
    store = make_store(THREE)
    plan = plan_of(store, algorithm=name, precision=precision)
    run(plan, out=tmp_path / "here", workers=0)
    over_flower(store, plan, tmp_path / "there")
    here, there = files(tmp_path / "here"), files(tmp_path / "there" / "server")
    assert there["rounds.jsonl"] == here["rounds.jsonl"]
    assert without_source(there["checkpoint"]) == without_source(here["checkpoint"])
    assert models(tmp_path / "there") == models(tmp_path / "here")
    assert len(models(tmp_path / "there")) == 3


def test_nothing_but_prototypes_counts_and_scores_leaves_a_room(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """Every array that a room sends is one of those a reader expects, of that size."""
    store = make_store(THREE)
    grid = over_flower(store, plan_of(store), tmp_path)
    classes, width = 3, 8
    replies = [unpack(content, "said") for _, content in grid.said]
    allowed = {
        "confusion": {(classes, classes)},
        "reliability": {(BINS, 3)},
        "roc": {(len(THRESHOLDS), 2), (0, 2)},
        "prototypes": {(2, width), (3, width)},
        "present": {(classes,)},
    }
    seen = set()
    for frames in replies:
        assert set(frames) in ({"card"}, {"reply"})
        for frame in frames.values():
            tree = decode(frame)
            upload = tree.get("upload")
            inner = decode(np.asarray(upload).tobytes()) if isinstance(upload, np.ndarray) else {}
            arrays = {
                name: value
                for name, value in [*tree.items(), *inner.items()]
                if isinstance(value, np.ndarray) and name != "upload"
            }
            for name, value in arrays.items():
                assert value.shape in allowed[name], name
                seen.add(name)
    assert {"prototypes", "present", "confusion"} <= seen
    assert not any(
        str(tmp_path).encode() in frame for frames in replies for frame in frames.values()
    )


def test_what_a_room_is_told_names_no_file_of_the_server(
    make_store: MakeStore, tmp_path: Path
) -> None:
    store = make_store(THREE)
    grid = over_flower(store, plan_of(store), tmp_path)
    for _, _, content in grid.asked:
        assert not any(str(store).encode() in frame for frame in unpack(content, "asked").values())


def test_a_lost_reply_is_asked_for_again_and_trained_once(
    make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(THREE)
    plan = plan_of(store)
    monkeypatch.setattr("fedapa.federation.engines.flower._AFTER_ERROR", 0.0)
    run(plan, out=tmp_path / "here", workers=0)
    kind = type(plan.build())
    usual, trained = kind.train, []

    def counted(self: Any, room: Any, state: Any, round: Any) -> Any:
        trained.append((room.name, round.number))
        return usual(self, room, state, round)

    monkeypatch.setattr(kind, "train", counted)
    gone: list[str] = []

    def tamper(room: str, reply: Message) -> Iterable[Message]:
        if reply.metadata.message_type == EXCHANGE and room not in gone:
            gone.append(room)
            return [lost(reply)]
        return [reply]

    grid = FakeGrid(nodes_of(store, THREE, tmp_path / "there" / "rooms"), tamper=tamper)
    over_flower(store, plan, tmp_path / "there", grid)
    assert sorted(gone) == sorted(THREE)
    assert len(trained) == len(set(trained)) == 9
    assert (
        files(tmp_path / "there" / "server")["rounds.jsonl"]
        == files(tmp_path / "here")["rounds.jsonl"]
    )


def records(folder: Path) -> list[dict[str, Any]]:
    return JsonLines(folder / "rounds.jsonl").read()


def in_round(number: int, room: str, change: Callable[[Message], Iterable[Message]]) -> Any:
    """A tamper for one room in one round."""

    def tamper(said: str, reply: Message) -> Iterable[Message]:
        if said == room and reply.metadata.group_id == str(number):
            return change(reply)
        return [reply]

    return tamper


def with_upload(change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> Any:
    def tampered(reply: Message) -> Iterable[Message]:
        told = decode_reply(unpack(reply.content, "reply")["reply"])
        assert told.upload is not None
        upload = encode(change(dict(decode(told.upload))))
        frame = encode_reply(replace(told, upload=upload))
        reply.content = pack({"reply": frame})
        return [reply]

    return tampered


def saying(frames: Mapping[str, bytes]) -> Any:
    def tampered(reply: Message) -> Iterable[Message]:
        reply.content = pack(frames)
        return [reply]

    return tampered


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            with_upload(lambda upload: {**upload, "prototypes": upload["prototypes"] * np.nan}),
            "NaN",
        ),
        (
            with_upload(lambda upload: {**upload, "prototypes": upload["prototypes"] * 1e20}),
            "no honest one has",
        ),
        (
            with_upload(lambda upload: {**upload, "prototypes": np.zeros((2, 9), "f")}),
            "shape (2, 9)",
        ),
        (with_upload(lambda upload: {**upload, "present": np.ones(3)}), "float64; expected bool"),
        (with_upload(lambda upload: {**upload, "big": np.zeros(100 * 2**17)}), "104857"),
        (saying({"reply": b"junk"}), "4 bytes are too few"),
        (saying({"reply": b"junk", "more": b""}), "its answer holds ['more', 'reply']"),
        (saying({REFUSED: b"its disk is full"}), "its disk is full"),
        (saying({REFUSED: b"\x1b[2Jfull\n12:00 all is well"}), " [2Jfull 12:00 all is well"),
        (saying({}), "its answer holds []"),
    ],
)
def test_what_a_room_should_not_send_is_rejected_with_a_reason(
    make_store: MakeStore, tmp_path: Path, change: Any, complaint: str
) -> None:
    store = make_store(THREE)
    grid = FakeGrid(nodes_of(store, THREE, tmp_path / "rooms"), tamper=in_round(2, "hall", change))
    over_flower(store, plan_of(store), tmp_path, grid)
    first, second, third = records(tmp_path / "server")
    assert complaint in second["rejected"]["hall"]
    assert "rejected" not in first
    assert "rejected" not in third
    assert third["rooms"]["hall"]["participated"]


def test_a_second_answer_to_one_request_is_dropped(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store(THREE)
    plan = plan_of(store)
    over_flower(store, plan, tmp_path / "once")
    twice = FakeGrid(
        nodes_of(store, THREE, tmp_path / "twice" / "rooms"), tamper=lambda room, reply: [reply] * 2
    )
    over_flower(store, plan, tmp_path / "twice", twice)
    assert records(tmp_path / "twice" / "server") == records(tmp_path / "once" / "server")


def test_an_answer_of_another_round_is_rejected(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store(THREE)
    old: list[Any] = []

    def tamper(room: str, reply: Message) -> Iterable[Message]:
        if room == "lab" and reply.metadata.group_id == "1":
            old.append(reply.content)
        if room == "lab" and reply.metadata.group_id == "3":
            reply.content = old[0]
        return [reply]

    grid = FakeGrid(nodes_of(store, THREE, tmp_path / "rooms"), tamper=tamper)
    over_flower(store, plan_of(store), tmp_path, grid)
    assert (
        "answers round 1, asked was round 3" in records(tmp_path / "server")[2]["rejected"]["lab"]
    )


def test_a_room_that_is_away_is_not_waited_for_beyond_the_deadline(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """Its node is gone in round 2 only: the round ends without it, then it goes on."""
    store = make_store(THREE)
    plan = plan_of(store, network={"deadline": 3.0})

    class Leaving(FakeGrid):
        def push_messages(self, messages: Iterable[Message]) -> list[str]:
            messages = list(messages)
            number = messages[0].metadata.group_id
            sent = super().push_messages(messages)
            self.online = set(self.rooms) - ({"lab"} if number in ("1", "2") else set())
            return sent

    over_flower(store, plan, tmp_path, Leaving(nodes_of(store, THREE, tmp_path / "rooms")))
    first, second, third = records(tmp_path / "server")
    assert first["missing"] == {"score": ["lab"]}
    assert second["missing"]["upload"] == ["lab"]
    assert third["rooms"]["lab"]["participated"]


def test_too_few_rooms_pause_the_run_and_it_goes_on_when_they_are_back(
    make_store: MakeStore, tmp_path: Path
) -> None:
    store = make_store(THREE)
    plan = plan_of(store, network={"deadline": 2.0, "quorum": 3})
    run(plan, out=tmp_path / "here", workers=0)

    class Leaving(FakeGrid):
        def push_messages(self, messages: Iterable[Message]) -> list[str]:
            messages = list(messages)
            sent = super().push_messages(messages)
            if messages[0].metadata.group_id == "2":
                self.online.discard("lab")
            return sent

    grid = Leaving(nodes_of(store, THREE, tmp_path / "there" / "rooms"))
    with pytest.raises(PausedError, match="round 3: 2 of 3 rooms answered, the quorum is 3"):
        over_flower(store, plan, tmp_path / "there", grid)
    patient = plan_of(store, network={"deadline": 30, "quorum": 3})
    again = FakeGrid(nodes_of(store, THREE, tmp_path / "there" / "rooms"))
    over_flower(store, patient, tmp_path / "there", again)
    assert {action for _, action, _ in again.asked} == {EXCHANGE}, "nobody is introduced again"
    here, there = files(tmp_path / "here"), files(tmp_path / "there" / "server")
    assert there["rounds.jsonl"] == here["rounds.jsonl"]
    assert models(tmp_path / "there") == models(tmp_path / "here")


def test_a_room_that_lost_its_files_is_told_again(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store(THREE)
    place = tmp_path / "rooms" / "lab" / "agreed"

    def tamper(room: str, reply: Message) -> Iterable[Message]:
        if room == "lab" and reply.metadata.group_id == "2":
            for path in place.iterdir():
                path.unlink()
        return [reply]

    grid = FakeGrid(nodes_of(store, THREE, tmp_path / "rooms"), tamper=tamper)
    over_flower(store, plan_of(store), tmp_path, grid)
    assert all(line["rooms"]["lab"]["participated"] for line in records(tmp_path / "server"))


def test_a_late_room_joins_and_one_that_does_not_fit_is_refused_by_name(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """Four enrolled, two there at first; 'attic' would bring a class that the run has not."""
    store = make_store({**THREE, "attic": {0: 3, 7: 3}})
    plan = plan_of(store, network={"deadline": 0.8})
    names = [*THREE, "attic"]
    said: list[str] = []

    class Growing(FakeGrid):
        def push_messages(self, messages: Iterable[Message]) -> list[str]:
            messages = list(messages)
            if messages[0].metadata.group_id == "1":
                self.online = set(self.rooms)
            return super().push_messages(messages)

    grid = Growing(nodes_of(store, names, tmp_path / "rooms"), online={"cafe", "hall"})
    engine = engine_of(grid, plan, tmp_path / "server", said)
    run(plan, out=tmp_path / "server", engine=engine)
    first, second, _ = records(tmp_path / "server")
    assert set(first["rooms"]) == {"cafe", "hall", "lab"}, "its score of round 1"
    assert not first["rooms"]["lab"]["participated"]
    assert second["rooms"]["lab"]["participated"]
    assert any("'attic' is refused" in line and "classes would be" in line for line in said)
    assert [room for room, _, _ in grid.asked].count("attic") == 1, "not in every round again"


def test_no_room_at_all_is_a_sentence(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store(THREE)
    plan = plan_of(store, network={"deadline": 0.2, "quorum": 2})
    grid = FakeGrid(nodes_of(store, THREE, tmp_path / "rooms"))
    grid.online = set()
    with pytest.raises(RosterError, match=r"0 of 3 enrolled rooms told their data within 0\.2 s"):
        engine_of(grid, plan, tmp_path / "server").roster()


def test_a_room_that_calls_itself_otherwise_is_refused(
    make_store: MakeStore, tmp_path: Path
) -> None:
    store = make_store(THREE)
    plan = plan_of(store)
    nodes = nodes_of(store, THREE, tmp_path / "rooms")
    nodes["lab"]["room"] = "hall"
    said: list[str] = []
    roster = engine_of(FakeGrid(nodes), plan, tmp_path / "server", said).roster()
    assert [card.name for card in roster] == ["cafe", "hall"]
    assert any("enrolled as 'lab' and calls itself 'hall'" in line for line in said)
