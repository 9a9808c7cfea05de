"""The room's side: remembers two rounds, answers repeats, never trains twice."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from fedapa import algorithms, files
from fedapa.algorithms.algorithm import Algorithm, Round
from fedapa.algorithms.fedapa import FedAPA
from fedapa.answers import (
    calibration_error,
    fit_temperature,
    log_loss,
    median_class,
    probabilities_of,
)
from fedapa.errors import PayloadError, PlanError, RunError
from fedapa.evaluation.metrics import METRICS, confusion, presence_at_half, presence_scores
from fedapa.federation.messages import Request, check_reply, encode_reply
from fedapa.federation.participant import Participant, _States, introduce
from fedapa.federation.plan import Plan
from fedapa.federation.prepare import check_training, prepare_rooms
from fedapa.learning.fit import Training
from fedapa.learning.prototypes import class_prototypes
from fedapa.payload import Tree, decode, digest, encode
from fedapa.randomness import Key
from fedapa.rooms.model_file import load_model
from fedapa.rooms.room import Room
from fedapa.windows.split import Part
from tests.conftest import MakeRooms, MakeStore


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
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "round-000003.state",
        "round-000004.state",
    ]


def test_a_room_that_could_not_write_its_state_goes_on_alike(
    make_rooms: MakeRooms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of two rounds before is written over, the last one is there whatever happens."""
    undisturbed, room = (participant(make_rooms, tmp_path / name) for name in ("a", "b"))
    expected = [undisturbed.exchange(round_number(number), TRAIN) for number in (1, 2, 3)][-1]
    for number in (1, 2):
        room.exchange(round_number(number), TRAIN)

    def full(*_: object) -> int:
        raise OSError("disk full")

    with monkeypatch.context() as broken, pytest.raises(OSError, match="disk full"):
        broken.setattr(files, "_write_all", full)
        room.exchange(round_number(3), TRAIN)
    states = tmp_path / "b" / "run"
    assert [path.name for path in states.iterdir()] == ["round-000002.state"]
    made = room.exchange(round_number(3), TRAIN)
    assert encode_reply(made, timed=False) == encode_reply(expected, timed=False)
    names = ["round-000002.state", "round-000003.state"]
    assert sorted(path.name for path in states.iterdir()) == names
    for name in names:
        assert (states / name).read_bytes() == (tmp_path / "a" / "run" / name).read_bytes()


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


def test_a_state_that_an_earlier_version_wrote_answers_a_repeated_request(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """It noted the digest of the whole download, in a frame with the other checksum."""
    room = participant(make_rooms, tmp_path)
    request = Request(download=encode({}), train=True)
    first = room.exchange(round_number(1), request)
    (path,) = tmp_path.rglob("round-*.state")
    state = decode(path.read_bytes())
    path.write_bytes(encode({**state, "asked": f"{digest(encode({}))}-True"}))
    before = path.read_bytes()
    again = room.exchange(round_number(1), request)
    assert path.read_bytes() == before  # else it would have been trained and written anew
    assert encode_reply(replace(again, seconds={})) == encode_reply(replace(first, seconds={}))


def passes_of(monkeypatch: pytest.MonkeyPatch) -> list[Part]:
    """Which parts of a room's windows went through a net, from now on."""
    seen: list[Part] = []
    inspect = Room.inspect

    def noted(self: Room, part: Part) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        seen.append(part)
        return inspect(self, part)

    monkeypatch.setattr(Room, "inspect", noted)
    return seen


def test_a_state_that_did_not_change_is_not_scored_again(
    make_rooms: MakeRooms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Round 1 trains, 2 and 3 only score, 4 trains again: the state of 2, 3 and 4 is one."""
    room = participant(make_rooms, tmp_path / "a")
    only_score = Request(download=None, train=False)
    room.exchange(round_number(1), TRAIN)
    seen = passes_of(monkeypatch)
    first = room.exchange(round_number(2), only_score)
    assert seen.count("test") == 1
    seen.clear()
    second = room.exchange(round_number(3), only_score)
    assert not seen
    assert second.scores == first.scores
    for name in ("confusion", "reliability", "roc"):
        np.testing.assert_array_equal(getattr(second, name), getattr(first, name))
    third = room.exchange(round_number(4), TRAIN)
    assert "test" not in seen
    assert third.scores == first.scores
    assert third.upload is not None
    seen.clear()
    room.exchange(round_number(5), only_score)
    assert "test" in seen, "it has trained"


def test_what_is_deployed_by_the_round_is_scored_in_every_round(
    make_rooms: MakeRooms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WiFederated scores a fine-tuned copy in some rounds, of a state that stays as it is."""
    kind = algorithms.find("wifederated")
    assert not kind.deploys_by_state
    assert algorithms.find("fedavg").deploys_by_state

    class Own(FedAPA):
        def deploy(self, *_: object) -> Any:
            raise NotImplementedError

    assert not Own.deploys_by_state, "who does not say is scored in every round"
    room = replace(participant(make_rooms, tmp_path), algorithm=kind())
    seen = passes_of(monkeypatch)
    for number in (1, 2, 3):
        room.exchange(round_number(number), Request(download=None, train=False))
        assert "test" in seen
        seen.clear()


def test_answers_of_one_encoder_share_its_pass(
    make_rooms: MakeRooms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FedProto is scored by its classifier and by the nearest mean: one pass over test windows, and
    the figures of two."""
    room = replace(participant(make_rooms, tmp_path), algorithm=algorithms.find("fedproto")())
    room.exchange(round_number(1), TRAIN)
    means = np.eye(room.room.outputs, room.room.width, dtype=np.float32)
    known = np.ones(room.room.outputs, bool)
    download = {"mean": means, "known": known}
    seen = passes_of(monkeypatch)
    reply = room.exchange(round_number(2), Request(encode(download), train=False))
    assert seen.count("test") == 1
    state = _state_of(room, 3)
    nearest = room.algorithm.alternatives(room.room, state, round_number(2))["nearest"]
    scores, truth = room.room.scores(nearest)
    assert reply.scores["nearest.accuracy"] == (scores.argmax(axis=1) == truth).mean()


def test_a_state_that_holds_its_upload_in_its_reply_is_read(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """As earlier versions wrote it."""
    room = participant(make_rooms, tmp_path)
    first = room.exchange(round_number(1), TRAIN)
    path = tmp_path / "run" / "round-000001.state"
    entry = decode(path.read_bytes())
    assert entry.pop("upload").tobytes() == first.upload
    entry["reply"] = np.frombuffer(encode_reply(replace(first, seconds={})), np.uint8)
    path.write_bytes(encode(entry))
    again = room.exchange(round_number(1), TRAIN)
    assert again.upload == first.upload
    assert again.scores == first.scores


def test_another_download_is_another_request(
    make_rooms: MakeRooms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the server lost its last merge and asks with other prototypes, the room trains anew.

    Only the download differs: the answer is that of a room that never saw the first one.
    """
    down = {
        "mixture": np.ones((3, 16), np.float32),
        "known": np.ones(3, bool),
        "clients": np.ones((2, 3, 16), np.float32),
    }
    other = {**down, "mixture": np.eye(3, 16, dtype=np.float32)}
    asked = [replace(TRAIN, download=encode(values)) for values in (down, other)]
    twice = participant(make_rooms, tmp_path / "twice")
    first, second = (twice.exchange(round_number(1), request) for request in asked)
    assert first.upload != second.upload
    once = participant(make_rooms, tmp_path / "once").exchange(round_number(1), asked[1])
    assert second.upload == once.upload
    trained = []
    monkeypatch.setattr(FedAPA, "train", lambda *_: trained.append(1))
    assert twice.exchange(round_number(1), asked[1]).upload == once.upload
    assert not trained, "the last answer is the one that is remembered"


def test_each_run_has_states_of_its_own(make_rooms: MakeRooms, tmp_path: Path) -> None:
    """A second run, of the same plan or not, neither answers from the first one's nor ends them."""
    room, other = participant(make_rooms, tmp_path / "one"), replace(TRAIN, run="another")
    room.exchange(round_number(1), TRAIN)
    second = room.exchange(round_number(2), TRAIN)
    again = [room.exchange(round_number(number), other) for number in (1, 2)]
    fresh = participant(make_rooms, tmp_path / "new")
    assert [reply.upload for reply in again] == [
        fresh.exchange(round_number(number), other).upload for number in (1, 2)
    ]
    assert not any(reply.note for reply in again)
    assert room.exchange(round_number(2), TRAIN).upload == second.upload
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == ["another", "run"]


@pytest.mark.parametrize("change", ["windows", "classes", "net"])
def test_a_room_whose_card_changed_joins_afresh_and_says_so(
    change: str, make_rooms: MakeRooms, tmp_path: Path
) -> None:
    before = participant(make_rooms, tmp_path / "a")
    for number in (1, 2):
        assert before.exchange(round_number(number), TRAIN).note == ""
    room = before.room
    if change == "windows":
        room = replace(room, windows=np.array(room.windows) + 1)
    elif change == "classes":
        room = replace(room, classes=(*room.classes, 7))
    else:
        room = replace(room, architecture="tiny")
    back, new = (
        Participant(FedAPA(), room, tmp_path / folder, tmp_path / "model") for folder in "ab"
    )
    reply, joined = (own.exchange(round_number(3), TRAIN) for own in (back, new))
    assert reply.upload == joined.upload
    assert "joined afresh" in reply.note
    assert joined.note == "it had no state of this run and joined now"
    assert back.exchange(round_number(3), TRAIN).note == reply.note, "asked again, said again"
    assert back.exchange(round_number(4), TRAIN).note == "", "from here on it goes on"


def test_a_damaged_state_is_named_with_its_remedy(make_rooms: MakeRooms, tmp_path: Path) -> None:
    room = participant(make_rooms, tmp_path)
    for number in (1, 2):
        room.exchange(round_number(number), TRAIN)
    newest = tmp_path / "run" / "round-000002.state"
    for content in (newest.read_bytes()[:-1], encode({"state": {}})):
        newest.write_bytes(content)
        with pytest.raises(
            RunError, match=r"round-000002\.state: .*; remove the file: room 'room 0'"
        ):
            room.exchange(round_number(3), TRAIN)
    newest.unlink()
    assert room.exchange(round_number(3), TRAIN).upload is not None


def test_a_room_without_test_windows_trains_and_has_no_score(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    room = make_rooms()[0]
    room = replace(room, split=replace(room.split, test=room.split.test[:0]))
    reply = Participant(FedAPA(), room, tmp_path, tmp_path / "m").exchange(round_number(1), TRAIN)
    assert reply.scores == {}
    assert reply.upload is not None
    check_reply(reply, room.card)


def test_a_report_that_is_no_number_names_room_and_algorithm(
    make_rooms: MakeRooms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FedAPA, "train", lambda _, __, state, ___: (state, {}, {"x": np.nan}))
    with pytest.raises(PayloadError, match=r"room 'room 0', FedAPA: report\.x is nan"):
        participant(make_rooms, tmp_path).exchange(round_number(1), TRAIN)


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
    assert sorted(path.name for path in (tmp_path / "a" / "run").iterdir()) == [
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


def test_the_median_is_of_probabilities_that_validation_windows_made_true(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    room = participant(make_rooms, tmp_path)
    reply = room.exchange(round_number(1), TRAIN)
    model = room.room.build()
    temperature = fit_temperature(*room.room.scores(model, "validation"))
    scores, truth = room.room.scores(model)
    people = np.asarray(room.room.classes)
    middle = median_class(probabilities_of(scores, temperature), people.tolist())
    assert reply.scores["mae_median"] == pytest.approx(
        np.abs(people[middle] - people[truth]).mean()
    )


def over_time_room(make_store: MakeStore, *, long: int) -> Room:
    """Windows of 2 s at 100 packets per second; ``long`` packets of count 1 are continuous."""
    path = make_store({"cafe": {0: 4, 1: 4}}, packets=2200)
    if long:
        with h5py.File(path, "r+") as file:
            file["cafe/1-3"].attrs["part"] = "continuous"
    data = {"file": str(path), "window": 200, "stride": 100, "split": "recording"}
    plan = Plan.of({"data": data, "model": {"architecture": "tiny", "width": 16}})
    return prepare_rooms(plan)[0]


@pytest.mark.parametrize("long", [0, 2200], ids=["test", "continuous"])
def test_evidence_is_added_over_windows_that_lie_end_to_end(
    make_store: MakeStore, tmp_path: Path, long: int
) -> None:
    """A recording of 22 s has 11 windows of 2 s end to end: two blocks of 5 are 10 s each.

    Nothing is 30 s long. One window: the 10 of those blocks, not the eleventh.
    """
    room = over_time_room(make_store, long=long)
    asked = Participant(FedAPA(), room, tmp_path, tmp_path / "model.safetensors")
    told = asked.exchange(round_number(1), TRAIN).scores
    model = room.build()
    part: Part = "continuous" if long else "test"
    scores, truth = room.scores(model, part)
    temperature = fit_temperature(*room.scores(model, "validation"))
    probabilities = probabilities_of(scores, temperature)
    assert len(truth) == (11 if long else 22)
    blocks = [start + 11 * take for take in range(len(truth) // 11) for start in (0, 5)]
    together = np.stack([np.log(probabilities[first : first + 5]).sum(0) for first in blocks])
    right = together.argmax(axis=1) == truth[blocks]
    assert told["accuracy_10s"] == pytest.approx(right.mean())
    windows = np.concatenate([np.arange(first, first + 5) for first in blocks])
    alone = (scores.argmax(axis=1) == truth)[windows]
    assert told["accuracy_one_window"] == pytest.approx(alone.mean())
    assert not {"mae_30s", "mae_60s", "accuracy_30s"} & set(told)
    card = introduce(room)
    assert {"mae_one_window", "mae_10s"} <= set(card.blind["prior"])
    assert "mae_30s" not in card.blind["prior"]
    assert card.continuous == (11 if long else 0)
    assert card.recordings["test"] == 2
    assert card.recordings["continuous"] == (1 if long else 0)


def test_where_nobody_knows_the_time_nothing_is_counted_over_it(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    reply = participant(make_rooms, tmp_path).exchange(round_number(1), TRAIN)
    assert not [name for name in reply.scores if METRICS[name].time]


def test_the_calibration_error_is_of_the_reliability_beside_it(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    room = participant(make_rooms, tmp_path)
    reply = room.exchange(round_number(1), TRAIN)
    assert reply.reliability[:, 0].sum() == len(room.room.split.test)
    assert reply.reliability[:, 2].sum() == np.trace(reply.confusion)
    assert reply.scores["ece"] == calibration_error(reply.reliability)


def test_presence_is_of_calibrated_probabilities_and_of_the_roc_beside_it(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    room = participant(make_rooms, tmp_path)
    reply = room.exchange(round_number(1), TRAIN)
    model = room.room.build()
    temperature = fit_temperature(*room.room.scores(model, "validation"))
    scores, truth = room.room.scores(model)
    told = presence_scores(probabilities_of(scores, temperature), truth, room.room.classes)
    assert {name: reply.scores[name] for name in told} == told
    assert set(told) == {"presence", "presence_auc"}
    assert reply.roc[0].tolist() == [(truth == 0).sum(), (truth > 0).sum()]
    assert presence_at_half(reply.roc) == pytest.approx(told["presence"])
    card = introduce(room.room)
    check_reply(reply, card)
    assert card.blind["prior"]["presence_auc"] == 0.5


def test_the_nearest_prototype_answers_where_it_is_wanted(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """Before any exchange the prototypes are the room's own, of the net as it stands."""
    room = replace(make_rooms()[0], answer="nearest")
    asked = Participant(FedAPA(), room, tmp_path, tmp_path / "model.safetensors")
    reply = asked.exchange(round_number(1), TRAIN)
    model = room.build()
    embeddings, labels = room.embeddings(model)
    prototypes, members = class_prototypes(embeddings, labels, len(room.classes))
    distance = torch.cdist(model.embed(room.tensors(room.split.test)[0]), prototypes)
    distance[:, members == 0] = torch.inf
    guess = distance.argmin(dim=1).numpy()
    np.testing.assert_array_equal(
        reply.confusion, confusion(room.labels[room.split.test], guess, len(room.classes))
    )


def test_fedapa_answers_by_the_mixture_where_a_room_holds_no_prototype(
    make_rooms: MakeRooms,
) -> None:
    room = make_rooms(((0, 1), (0, 2)))[0]
    width, classes = room.width, len(room.classes)
    present = np.array([True, True, False])
    state: Tree = {
        "own": np.ones((2, width), np.float32),  # of the classes that it holds
        "own_present": present,
        "mixture": np.full((classes, width), 7, np.float32),
        "known": np.array([True, True, True]),
    }
    anchors, known = FedAPA().anchors(room, state, room.build())
    assert anchors[:, 0].tolist() == [1.0, 1.0, 7.0]
    assert known.tolist() == [True, True, True]


def stopping(make_rooms: MakeRooms, folder: Path, patience: int) -> Participant:
    """A room whose labels say nothing: it can only learn by heart, and soon gets worse."""
    room = make_rooms(windows_per_class=20)[0]
    room = replace(room, labels=Key(4).numpy().permutation(room.labels))
    training = Training(learning_rate=0.2, patience=patience)
    return Participant(Algorithm(training=training), room, folder, folder / "model.safetensors")


def test_a_room_that_stops_early_counts_with_its_best_round(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    early, late = stopping(make_rooms, tmp_path / "a", 2), stopping(make_rooms, tmp_path / "b", 0)
    losses, replies, plain = [], [], []
    for number in range(1, 10):
        counter = late.algorithm.deploy(late.room, _state_of(late, number), round_number(number))
        scores, truth = late.room.scores(counter, "validation")
        losses.append(log_loss(probabilities_of(scores, fit_temperature(scores, truth)), truth))
        plain.append(late.exchange(round_number(number), TRAIN))
        replies.append(early.exchange(round_number(number), TRAIN))
    trained = [reply.upload is not None for reply in replies]
    assert trained[0] and not trained[-1], "this room never stopped"
    stopped = trained.index(False)
    best = 1 + int(np.argmin(losses[1 : stopped + 1]))  # never the net that was not trained
    assert stopped - best == 2
    assert not any(trained[stopped:])
    for reply in replies[best:]:
        assert reply.scores == plain[best].scores
    assert f"it trains no more: its loss on validation windows was lowest after round {best};" in (
        replies[-1].note
    )


def _state_of(room: Participant, number: int) -> Tree:
    """The state with which a room comes into a round."""
    states = _States(room.folder / "run", room.room)
    memory, _, _ = room._memory_before(states, round_number(number))
    return memory.state


def test_a_room_that_stopped_answers_alike_after_a_restart(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    first, second = (stopping(make_rooms, tmp_path / name, 1) for name in "ab")
    for number in range(1, 7):
        expected = first.exchange(round_number(number), TRAIN)
        afresh = stopping(make_rooms, tmp_path / "b", 1)
        assert afresh.exchange(round_number(number), TRAIN).scores == expected.scores
        assert second.exchange(round_number(number), TRAIN).upload == expected.upload
    last = Request(download=encode({}), train=False, keep_model=True)
    first.exchange(round_number(7), last)
    test = first.room.split.test
    found = load_model(first.model_path).probabilities(first.room.windows[test])
    truth = first.room.labels[test]
    matrix = confusion(truth, found.argmax(axis=1), len(first.room.classes))
    assert np.array_equal(matrix, expected.confusion)


def test_early_stopping_needs_validation_windows(make_rooms: MakeRooms) -> None:
    room = make_rooms()[0]
    none = replace(room, split=replace(room.split, validation=np.zeros(0, np.int64)))
    with pytest.raises(PlanError, match="'room 0' has no validation windows to stop by"):
        check_training([none], Algorithm(training=Training(patience=3)))


def test_rounds_that_a_room_sits_out_try_no_patience(make_rooms: MakeRooms, tmp_path: Path) -> None:
    """Absent in the first five rounds, it still trains; and its first net is no best one."""
    room = stopping(make_rooms, tmp_path, 2)
    absent = Request(download=None, train=False)
    for number in range(1, 6):
        assert not room.exchange(round_number(number), absent).note
    reply = room.exchange(round_number(6), TRAIN)
    assert reply.upload is not None
    assert "trains no more" not in reply.note


def test_pooled_training_takes_no_patience_and_what_fits_once_no_question(
    make_rooms: MakeRooms,
) -> None:
    training = Training(patience=3, augment=("gain",))
    with pytest.raises(PlanError, match="Pooled trains in one room"):
        check_training(make_rooms(), algorithms.find("pooled")(training=training))
    check_training(make_rooms(), algorithms.find("forest")(training=training))


def _kept(room: Participant, number: int) -> bytes:
    """The weights of the net after a round, from its file."""
    state = _States(room.folder / "run", room.room).load(number)
    assert state is not None
    return encode(state["state"]["model"])  # type: ignore[index, call-overload, arg-type]


def diverging(make_rooms: MakeRooms, folder: Path, kind: str, rate: float) -> Participant:
    """One step a round, so that the loss before it is that of a sound net."""
    room = make_rooms()[0]
    training = Training(learning_rate=rate, batch_size=len(room.split.train))
    algorithm = replace(algorithms.find(kind)(), training=training)
    return Participant(algorithm, room, folder, folder / "model.safetensors")


@pytest.mark.parametrize("kind", ["local", "fedapa", "fedavg", "fedproto"])
@pytest.mark.parametrize("rate", [1e10, 1e20, 1e38])
def test_a_room_whose_training_diverged_says_so_and_keeps_its_last_good_state(
    make_rooms: MakeRooms, tmp_path: Path, kind: str, rate: float
) -> None:
    """Weights, prototypes or answers are NaN after the one step; the loss before it was not."""
    sound = diverging(make_rooms, tmp_path, kind, 0.01)
    first = sound.exchange(round_number(1), TRAIN)
    assert first.upload is not None and not first.diverged
    wild = diverging(make_rooms, tmp_path, kind, rate)
    second = wild.exchange(round_number(2), TRAIN)
    assert second.upload is None
    assert second.diverged.endswith("'fedapa inspect'; it keeps the state from before")
    assert "room" not in second.diverged
    again = wild.exchange(round_number(2), TRAIN)
    assert again.diverged == second.diverged
    assert _kept(wild, 2) == _kept(wild, 1)
    third = sound.exchange(round_number(3), TRAIN)
    assert third.upload is not None
    assert third.scores == second.scores


def test_a_net_that_came_and_answers_nan_is_put_aside(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """Finite weights of 1e25 in every layer overflow in float32: the room's own net answers."""
    room = diverging(make_rooms, tmp_path, "fedavg", 0.01)
    first = room.exchange(round_number(1), TRAIN)
    assert first.upload is not None
    weights = dict(decode(first.upload))["weights"]
    assert isinstance(weights, dict)
    huge = {
        name: np.full_like(value, 1e25) if value.dtype.kind == "f" else value
        for name, value in weights.items()
    }
    spoilt = replace(TRAIN, download=encode({"weights": huge}))
    second = room.exchange(round_number(2), replace(spoilt, keep_model=True))
    assert second.diverged.startswith("with what it received its net answers with NaN or infinity")
    assert second.upload is None
    assert set(second.scores) == set(first.scores)
    assert _kept(room, 2) == _kept(room, 1)
    assert np.isfinite(load_model(room.model_path).probabilities(room.room.windows[:2])).all()
