"""Stores that grow while a run goes on: new recordings are taken in, no window changes its part."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message

from fedapa import Plan, run
from fedapa.federation.engines.frames import unpack
from fedapa.federation.messages import decode_card
from fedapa.federation.network.answering import _load
from fedapa.federation.network.growing import Stage, goes_to_test, next_stage
from fedapa.federation.network.place import Place
from fedapa.federation.prepare import agree_by_cards, cut_windows
from fedapa.payload import decode, encode
from fedapa.randomness import Key
from fedapa.stores.append import append_store
from fedapa.stores.relabel import relabel
from tests.conftest import MakeStore
from tests.federation.fake_grid import FakeGrid, lost, nodes_of
from tests.federation.test_flower import THREE, engine_of, plan_of, records

TRAINING = [name for name in map(str, range(100)) if not goes_to_test(f"new-{name}")][:3]
TESTING = [name for name in map(str, range(100)) if goes_to_test(f"new-{name}")][:1]


def add_takes(store: Path, room: str, names: Iterable[str], label: int = 2) -> None:
    with append_store(store) as opened:
        for name in names:
            stream = (Key(1) / room / name).numpy()
            amplitude = 5 + (1 + label) * stream.normal(size=(64, 6, 1))
            opened.add_recording(
                room,
                f"new-{name}",
                label=label,
                amplitude=amplitude.astype(np.float32),
                timestamps=np.arange(64) / 100,
                day="later",
                rate=100.0,
            )


def growing(store: Path, folder: Path, **changes: Any) -> tuple[FakeGrid, list[dict[str, Any]]]:
    """A run of five rounds in which 'lab' gets new recordings while round 2 goes on."""

    def tamper(room: str, reply: Message) -> Iterable[Message]:
        if room == "hall" and reply.metadata.group_id == "2":
            add_takes(store, "lab", **changes)
        return [reply]

    plan = plan_of(store, rounds=5)
    grid = FakeGrid(nodes_of(store, THREE, folder / "rooms"), tamper=tamper)
    run(plan, out=folder / "server", engine=engine_of(grid, plan, folder / "server"))
    return grid, records(folder / "server")


def stages(folder: Path, store: Path) -> list[Any]:
    place = Place("lab", str(store), str(folder / "rooms" / "lab"))
    (path,) = (folder / "rooms" / "lab" / "agreed").iterdir()
    known = _load(place, path.name)
    assert known is not None
    return list(known.stages.values())


def test_new_recordings_are_taken_in_between_rounds(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store(THREE)
    _, lines = growing(store, tmp_path, names=[*TRAINING, *TESTING])
    assert not any({"rejected", "missing"} & set(line) for line in lines)
    assert all(line["rooms"]["lab"]["participated"] for line in lines)
    before, after = stages(tmp_path, store)
    for part, recordings in before.places.items():
        assert recordings.items() <= after.places[part].items(), "no window changed its part"
    added = {part: set(after.places[part]) - set(before.places[part]) for part in ("train", "test")}
    assert added == {
        "train": {f"new-{name}" for name in TRAINING},
        "test": {f"new-{name}" for name in TESTING},
    }
    old, new = decode_card(before.card), decode_card(after.card)
    assert new.windows == old.windows + 4 * len(TRAINING)
    assert new.parts["test"] == old.parts["test"] + 4
    state = decode((tmp_path / "server" / "checkpoint").read_bytes())
    notes = [str(note["said"]) for note in state["notes"].values()]  # type: ignore[union-attr,index]
    assert any("'lab' has new recordings" in note and new.fingerprint in note for note in notes)
    assert not any("joined" in note for note in notes), "it keeps its net"
    assert f'"fingerprint": "{new.fingerprint}"' in (tmp_path / "server/data.json").read_text()


def test_a_recording_that_was_labelled_before_it_was_seen_trains(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """By its name it would test; it came without a label and got one, so nobody tests on it."""
    store = make_store(THREE)
    prepared = make_store({"lab": {None: 1, 0: 1, 2: 1}}, name="prepared.h5")
    (name,) = TESTING
    add_takes(prepared, "lab", [name])
    relabel(prepared, room="lab", names=[f"new-{name}"], label=None)
    relabel(prepared, room="lab", names=[f"new-{name}"], label=2)
    plan = plan_of(store, rounds=1)
    agreed = agree_by_cards(plan)
    grown = Plan.of(plan.document(), {"data": {"file": str(prepared)}})
    (windows,) = cut_windows(grown, view=agreed.view)
    places: dict[str, Any] = {part: {} for part in ("train", "validation", "test")}
    known = tuple(sorted(set(windows.recordings) - {f"new-{name}"}))
    usual = np.ones(windows.open().shape[-1], np.float32)
    last = Stage(b"", {**places, "train": {known[0]: [0], known[1]: [0]}}, usual, usual, known)
    found = next_stage(plan, agreed, windows, last)
    assert found is not None
    assert f"new-{name}" in found[0].places["train"]


def test_the_net_learns_from_them_and_the_others_are_as_before(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """Until they came everything is equal; then the room's loss is another."""
    first = make_store(THREE, name="first.h5")
    second = make_store(THREE, name="second.h5")
    _, grown = growing(first, tmp_path / "grown", names=TRAINING)
    plan = plan_of(second, rounds=5)
    grid = FakeGrid(nodes_of(second, THREE, tmp_path / "same" / "rooms"))
    server = tmp_path / "same" / "server"
    run(plan, out=server, engine=engine_of(grid, plan, server))
    same = records(server)
    assert grown[0] == same[0]
    assert grown[1]["rooms"]["cafe"] == same[1]["rooms"]["cafe"]
    assert grown[1]["rooms"]["lab"]["loss"] == same[1]["rooms"]["lab"]["loss"]
    assert grown[3]["rooms"]["lab"]["loss"] != same[3]["rooms"]["lab"]["loss"]


def test_a_lost_reply_is_answered_again_though_the_store_has_grown(
    make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reply to round 2 is lost after recordings came: the same is said again, not trained."""
    monkeypatch.setattr("fedapa.federation.engines.flower._AFTER_ERROR", 0.0)
    store = make_store(THREE)
    said: list[bytes] = []

    def tamper(room: str, reply: Message) -> Iterable[Message]:
        if room != "lab" or reply.metadata.group_id != "2":
            return [reply]
        told = decode(unpack(reply.content, "reply")["reply"])
        said.append(encode({**told, "seconds": {}}))
        if len(said) > 1:
            return [reply]
        add_takes(store, "lab", TRAINING)
        return [lost(reply)]

    plan = plan_of(store, rounds=3)
    grid = FakeGrid(nodes_of(store, THREE, tmp_path / "rooms"), tamper=tamper)
    run(plan, out=tmp_path / "server", engine=engine_of(grid, plan, tmp_path / "server"))
    assert len(said) == 2
    assert said[0] == said[1]
    assert all(line["rooms"]["lab"]["participated"] for line in records(tmp_path / "server"))
    assert len(stages(tmp_path, store)) == 2


@pytest.mark.parametrize("changes", [{"names": TRAINING[:1], "label": 9}])
def test_a_recording_of_an_unknown_count_is_left_out(
    make_store: MakeStore, tmp_path: Path, changes: dict[str, Any]
) -> None:
    store = make_store(THREE)
    _, lines = growing(store, tmp_path, **changes)
    assert all(line["rooms"]["lab"]["participated"] for line in lines)
    assert len(stages(tmp_path, store)) == 1


def test_one_in_five_recordings_tests_and_its_name_decides() -> None:
    share = np.mean([goes_to_test(f"take {number}") for number in range(2000)])
    assert 0.17 < share < 0.24
    assert goes_to_test("a") == goes_to_test("a")
