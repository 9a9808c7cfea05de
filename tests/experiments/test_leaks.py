"""Attacks on runs whose answer is known, which recordings are compared, and what is refused."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fedapa.algorithms.algorithm import Round
from fedapa.attacks.roc import Matched, measured
from fedapa.errors import PlanError, RunError
from fedapa.experiments import overheard
from fedapa.experiments.conduct import Execution
from fedapa.experiments.experiment import Base
from fedapa.experiments.leaks import ATTACKS, leak_cases, reproduce_leaks
from fedapa.experiments.overheard import (
    Candidate,
    Overheard,
    Place,
    Told,
    _embedded,
    _stacked,
    _typicality,
    by_day,
    candidates_of,
    identity,
    membership,
    overhear,
    reconstruction,
)
from fedapa.federation.engines.listening import Listening
from fedapa.federation.messages import Rejected, Reply, Request
from fedapa.federation.plan import Plan
from fedapa.models.model import Model
from fedapa.processes import Progress
from fedapa.randomness import Key
from fedapa.rooms.room import Room
from fedapa.stores.materialise import Surveyed
from fedapa.stores.store import write_store
from fedapa.windows.normalise import Normaliser

_NUMBERS = 60
_WINDOWS = 3
"""Of a recording."""


def place(number: int, *, takes: int = 6, random: bool = False) -> Place:
    """A room of two counts on two days: numbers around a centre of room, count and day, or noise
    with labels that mean nothing, which a net can only learn by heart."""
    stream = (Key(0) / "places" / number).numpy()
    centres = stream.normal(size=(2, 2, _NUMBERS))
    windows, labels, recordings, days = [], [], [], []
    for count in range(2):
        for day in range(2):
            for take in range(takes):
                middle = stream.normal(size=_NUMBERS) + (0 if random else 2 * centres[count, day])
                windows.append(middle + 0.1 * stream.normal(size=(_WINDOWS, _NUMBERS)))
                labels += [count] * _WINDOWS
                recordings += [f"{count}-{day}-{take}"] * _WINDOWS
                days += [str(day)] * _WINDOWS
    room = Room.of(
        f"room {number}",
        np.concatenate(windows).astype(np.float32),
        labels,
        recordings=recordings,
        days=days,
        split="recording",
        architecture="mlp",
        width=32,
    )
    origins = Surveyed(
        room=room.name,
        labels=tuple(labels),
        recordings=tuple(recordings),
        days=tuple(days),
        continuous=(False,) * len(labels),
        starts=np.tile(np.arange(_WINDOWS), len(labels) // _WINDOWS),
        spans=1,
        step=1,
        synthetic=False,
        recipe=room.recipe,
    )
    return Place(room, origins)


def heard(
    algorithm: str,
    *,
    rounds: int = 2,
    epochs: int = 3,
    random: bool = False,
    epsilon: float | None = None,
) -> Overheard:
    plan = Plan(
        algorithm=algorithm,
        rounds=rounds,
        training={"epochs": epochs, "learning_rate": 0.1, "momentum": 0.9},
        privacy={} if epsilon is None else {"epsilon": epsilon, "unit": "window"},
    )
    return overhear(plan, [place(number, random=random) for number in range(3)])


def auc_of(told: Told, score: str) -> float:
    matched = Matched.of(told.scores[score], told.members, told.strata, told.rooms)
    return measured(matched, Key(0))["auc"].value


def test_candidates_are_recordings_that_were_used_whole_or_never() -> None:
    own = place(0)
    candidates = candidates_of(own)
    assert len(candidates) == 24
    assert all(len(each.windows) == _WINDOWS for each in candidates)
    train = set(own.room.split.train.tolist())
    assert all(each.member == (set(each.windows.tolist()) <= train) for each in candidates)
    assert {True, False} == {each.member for each in candidates}


def test_where_recordings_are_split_candidates_are_parts_of_them() -> None:
    """One recording of 40 windows: 0 to 24 train, 25 to 29 are a gap, 30 to 39 are tested. Of the
    25 two parts of ten are members, the ten of the test are one part."""
    room = place(0).room
    windows = np.zeros((40, 4), np.float32)
    split = replace(
        room.split,
        kind="blocked",
        train=np.arange(25),
        validation=np.zeros(0, np.int64),
        test=np.arange(30, 40),
    )
    room = replace(room, windows=windows, labels=np.zeros(40, np.int64), split=split)
    origins = replace(
        place(0).origins,
        labels=(0,) * 40,
        recordings=("only",) * 40,
        days=("1",) * 40,
        continuous=(False,) * 40,
        starts=np.arange(40),
    )
    found = candidates_of(Place(room, origins))
    assert [(each.windows[0], each.windows[-1], each.member) for each in found] == [
        (0, 9, True),
        (10, 19, True),
        (30, 39, False),
    ]


def test_with_the_model_file_a_prototype_tells_every_member() -> None:
    """p is a mean of fewer recordings than it has dimensions, so that the weights are found."""
    run = heard("fedapa")
    told = membership(run)
    assert auc_of(told, "model file · regression") == pytest.approx(1.0)
    assert {name.partition(" · ")[0] for name in told.scores} == {"server", "model file", "nobody"}
    assert run.sent == 1.0


def test_clipping_alone_hides_no_member_from_who_clips_too() -> None:
    """With hardly any noise a released prototype is a mean of embeddings of length 1 at most: who
    cuts his own as the plan says takes it apart as a plain one; who does not is near a guess."""
    run = heard("fedapa", epsilon=1e4)
    assert run.clip == 1.0
    attack = "model file · regression"
    assert auc_of(membership(run), attack) == pytest.approx(1.0, abs=0.01)
    assert auc_of(membership(replace(run, clip=None)), attack) < 0.6
    blind = np.mean([each["correlation"] for each in reconstruction(replace(run, clip=None))])
    assert np.mean([each["correlation"] for each in reconstruction(run)]) > blind
    assert heard("fedapa").clip is None


def test_every_window_is_cut_before_the_mean_of_its_recording() -> None:
    """f(x) = x, one recording of (3, 4) and (0, 0.5), C = 1: cut to (0.6, 0.8) and (0, 0.5), whose
    mean is (0.3, 0.65). Cut after the mean of (1.5, 2.25) it would be (0.55, 0.83)."""
    model = Model(nn.Linear(2, 2, bias=False), classes=2, width=2)
    with torch.no_grad():
        model.encoder.weight.copy_(torch.eye(2))
    windows = np.asarray([[3.0, 4.0], [0.0, 0.5]], np.float32)
    room = replace(place(0).room, windows=windows, labels=np.zeros(2, np.int64))
    candidates = [Candidate(np.arange(2), 0, "1", member=True)]
    as_they_are = Normaliser(np.zeros(2, np.float32), np.ones(2, np.float32))
    cut, _ = _embedded(model.eval(), room, candidates, as_they_are, clip=1.0)
    assert cut[0] == pytest.approx([0.3, 0.65])
    whole, _ = _embedded(model, room, candidates, as_they_are)
    assert whole[0] == pytest.approx([1.5, 2.25])


def test_a_net_that_memorises_is_found_out_by_its_weights() -> None:
    told = membership(heard("fedavg", epochs=40, random=True))
    assert auc_of(told, "server · loss") > 0.9
    assert set(told.scores) == {
        *("server · loss", "server · calibrated loss", "room · loss"),
        "nobody · typicality",
    }


def test_who_gets_weights_beside_prototypes_needs_no_model_file() -> None:
    """FedJoin's server takes prototypes apart by the encoder that came with them, but for the
    normaliser, which stays in the room. FedAPA's has to guess the encoder and is far from that."""
    told = membership(heard("fedjoin"))
    assert auc_of(told, "server · regression") > 0.9
    assert auc_of(membership(heard("fedapa")), "server · regression") < 0.8
    assert {"server · loss", "room · loss", "model file · regression"} <= set(told.scores)


def test_what_is_found_without_a_message_is_told_beside_the_attacks() -> None:
    """Where who is used is drawn it is a guess; where unused ones are later, and later ones other,
    it is not, though nobody has seen a message."""
    assert 0.3 < auc_of(membership(heard("fedapa")), "nobody · typicality") < 0.7
    own = place(0, takes=12)
    unused = np.concatenate([own.room.split.test, own.room.split.validation])
    windows = np.array(own.room.windows)
    windows[unused] += 5
    candidates = candidates_of(Place(replace(own.room, windows=windows), own.origins))
    scores = _typicality(replace(own.room, windows=windows), candidates)
    strata = [f"{each.label} {each.day}" for each in candidates]
    members = [each.member for each in candidates]
    told = Matched.of(scores, members, strata, ["a room"] * len(members))
    assert measured(told, Key(0))["auc"].value > 0.9


def test_a_room_of_fedproto_sees_the_mean_alone() -> None:
    told = membership(heard("fedproto"))
    assert {"room · nearness", "room · regression"} <= set(told.scores)


def test_a_prototype_gives_more_away_than_another_room_does() -> None:
    found = reconstruction(heard("fedapa"))
    error = {
        way: np.mean([each["error"] for each in found if each["way"] == way])
        for way in ("alone", "own room", "another room")
    }
    assert error["alone"] < 1.0 < error["another room"]


def test_rooms_are_named_over_rounds_and_over_days() -> None:
    run = heard("fedapa", rounds=3)
    assert auc_of(identity(run)["room, over rounds"], "likeness") == pytest.approx(1.0)
    days = by_day(list(run.places.values()))
    assert [each.room.name for each in days[:2]] == ["room 0 day 0", "room 0 day 1"]
    dated = overhear(Plan(algorithm="fedapa", rounds=3), days)
    told = identity(dated)
    assert set(told) == {"day, over rounds", "room, over days", "room, by its classes"}
    assert sum(told["day, over rounds"].members) == len(days)


def test_a_set_is_not_compared_with_itself() -> None:
    """One round: what is asked over rounds has no pairs, what is asked over days has."""
    run = heard("fedapa", rounds=1)
    told = identity(run)
    assert set(told) == {"room, over rounds", "room, by its classes"}
    assert not any(question.members for question in told.values())
    days = identity(overhear(Plan(algorithm="fedapa", rounds=1), by_day(list(run.places.values()))))
    assert not days["day, over rounds"].members
    assert sum(days["room, over days"].members) == len(run.places)


def test_a_run_without_a_round_in_which_every_room_sent_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Deaf(Listening):
        def exchange(
            self, round: Round, requests: Mapping[str, Request]
        ) -> Mapping[str, Reply | Rejected]:
            replies = super().exchange(round, requests)
            self.uploads[round.number].pop("room 1", None)
            return replies

    monkeypatch.setattr(overheard, "Listening", Deaf)
    with pytest.raises(RunError, match=r"^fedapa, seed 0: .* 'room 1' sent in 0 of 2 rounds; mend"):
        heard("fedapa")


def test_classes_that_are_not_sent_tell_nothing() -> None:
    plan = Plan(algorithm={"name": "fedapa", "minimum_samples": 500}, rounds=2)
    run = overhear(plan, [place(number) for number in range(3)])
    assert run.sent == 0.0
    assert auc_of(membership(run), "model file · regression") == 0.5
    assert reconstruction(run) == []


def test_a_class_that_only_noise_tells_of_is_not_counted_as_sent() -> None:
    """One of three rooms sends a prototype of a class that it has no window of: of 3 · 2 that could
    be sent there are 6, not 7."""
    run = heard("fedapa", rounds=1)
    name, upload = next(iter(run.uploads[run.last].items()))
    prototypes = np.asarray(upload["prototypes"])
    more = {
        **upload,
        "present": np.append(np.asarray(upload["present"], bool), [True]),
        "prototypes": np.concatenate([prototypes, prototypes[:1]]),
    }
    uploads = {run.last: {**run.uploads[run.last], name: more}}
    assert replace(run, uploads=uploads).sent == 1.0


def test_nets_of_two_shapes_are_compared_by_what_they_share() -> None:
    """Rooms of FedAvg whose first layers differ: of each net the two numbers of "head" remain."""
    run = heard("fedavg", rounds=1)
    nets = {
        name: {"weights": {"head": np.asarray([1.0, number]), "first": np.zeros(2 + number)}}
        for number, name in enumerate(run.places)
    }
    sets, has, names = _stacked(replace(run, uploads={1: nets}), 1)
    assert sets.tolist() == [[[1.0, 0.0]], [[1.0, 1.0]], [[1.0, 2.0]]]
    assert has.all()
    assert names == sorted(run.places)
    alien = {name: {"weights": {name: np.zeros(2)}} for name in run.places}
    assert identity(replace(run, uploads={1: alien})) == {}


def store(path: Path) -> Path:
    """Two rooms, two counts, two days, four recordings each."""
    with write_store(path) as made:
        for room in ("cafe", "hall"):
            made.add_room(room, synthetic=False, about={"device": "test"})
            for count in range(2):
                for take in range(8):
                    stream = (Key(0) / room / count / take).numpy()
                    made.add_recording(
                        room,
                        f"{count}-{take}",
                        label=count,
                        amplitude=(5 + (1 + count) * stream.normal(size=(256, 6, 1))).astype(
                            np.float32
                        ),
                        timestamps=np.arange(256) / 100,
                        day=str(take % 2),
                        rate=100.0,
                    )
    return path


def test_the_experiment_writes_tables_and_is_not_done_twice(tmp_path: Path) -> None:
    changes = ({"data": {"view": "statistics", "window": 64}}, {"training": {"epochs": 1}})
    base = Base("quick", file=str(store(tmp_path / "rooms.h5")), rounds=2, changes=changes)
    how = Execution(seeds=1, out=tmp_path / "out", workers=1)
    done = reproduce_leaks(base, how)
    saved = json.loads((tmp_path / "out" / "leaks" / "results.json").read_text())
    assert set(ATTACKS) <= set(saved)
    assert {row["case"] for row in saved["membership"]} == {
        case.name for case in leak_cases("recording")
    }
    assert {row["question"] for row in saved["identity"]} >= {"day, over rounds"}
    text = (tmp_path / "out" / "leaks" / "results.md").read_text()
    assert "Membership" in text
    assert "FedAPA, int8" in text
    assert done.page.is_file()
    with pytest.raises(RunError, match="--resume"):
        reproduce_leaks(base, how)
    runs = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("runs/*.json")}
    again = reproduce_leaks(base, replace(how, resume=True))
    assert again.results["membership"] == done.results["membership"]
    assert runs == {path: path.stat().st_mtime_ns for path in runs}


def test_only_cases_are_run_of_which_something_is_asked(tmp_path: Path) -> None:
    """Reconstruction asks nothing of FedAvg; identity over rounds nothing of a single round."""
    changes = ({"data": {"view": "statistics", "window": 64}}, {"training": {"epochs": 1}})
    base = Base("quick", file=str(store(tmp_path / "rooms.h5")), rounds=1, changes=changes)
    shown: list[Progress] = []
    how = Execution(seeds=2, out=tmp_path / "out", workers=2, show=shown.append)
    made = reproduce_leaks(
        base, how, attacks=["reconstruction", "identity"], methods=["fedavg", "fedproto"]
    )
    assert {row["case"] for row in made.results["reconstruction"]} == {"fedproto"}
    assert all(row["first"] is None for row in made.results["identity"])
    assert (shown[-1].done, shown[-1].unit) == (4, "runs")
    text = (tmp_path / "out" / "leaks" / "results.md").read_text()
    assert "| FedProto | room, over rounds | – | – | – | 100 |" in text
    assert "a set would be compared with itself" in text
    assert "after 1 round ·" in text
    only = replace(how, out=tmp_path / "only")
    reproduce_leaks(base, only, attacks=["reconstruction"], methods=["fedavg", "fedproto"])
    runs = [path.name for path in (tmp_path / "only").rglob("runs/*.json")]
    assert len(runs) == 2
    assert all(name.startswith("fedproto-") for name in runs)


@pytest.mark.parametrize(
    ("base", "asked", "said"),
    [
        (Base("quick", split="day"), {}, "recording or blocked"),
        (Base("quick"), {"attacks": ["memberships"]}, "membership"),
        (Base("smoke", changes=({"data": {"only": ["bus"]}},)), {}, "'bus' alone"),
        (Base("smoke", changes=({"participation": 0.5},)), {}, "participation = 0.5"),
        (Base("smoke", changes=({"privacy": {"epsilon": 1.0}},)), {}, "privacy would change every"),
        (Base("smoke", changes=({"defence": "guard"},)), {}, "leave it out, or use 'fedapa run'"),
        (
            Base("smoke", changes=({"precision": "int8", "attack": {"kind": "scaled"}},)),
            {},
            r"attack and precision would change every case, .* leave them out",
        ),
        (
            Base("smoke", changes=({"algorithm": {"minimum_samples": 50}},)),
            {},
            "algorithm.minimum_samples would",
        ),
        (
            Base("smoke"),
            {"attacks": ["reconstruction"], "methods": ["fedavg", "fedjoin"]},
            r"reconstruction asks nothing of FedAvg and FedJoin: .* ask membership or identity",
        ),
    ],
)
def test_what_means_nothing_is_refused(
    base: Base, asked: dict[str, list[str]], said: str, tmp_path: Path
) -> None:
    with pytest.raises(PlanError, match=said):
        reproduce_leaks(base, Execution(seeds=1, out=tmp_path), **asked)
