"""Rooms that lie, in experiments alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedapa.algorithms.algorithm import Payload, Round
from fedapa.errors import PlanError, RosterError, RunError
from fedapa.evaluation.record import suspects
from fedapa.federation.attack import BROKEN, KINDS, Attack, Kind, attackers, deceived, poisoned
from fedapa.federation.network.running import check_plan
from fedapa.federation.plan import Plan
from fedapa.federation.run import run
from fedapa.payload import encode
from fedapa.randomness import Key
from tests.conftest import MakeRooms

ROUND = Round(2, 3, Key(7) / "round" / 2)


def upload() -> Payload:
    return {
        "prototypes": np.array([[3, 4], [0, 2]], np.float32),
        "present": np.array([True, False, True]),
        "weights": {
            "classifier.bias": np.array([1, 2, 3], np.float32),
            "norm.running_var": np.array([1, 4], np.float32),
            "norm.num_batches_tracked": np.array(5),
        },
        "windows": 10,
    }


def test_attackers_are_drawn_by_the_seed_and_grow_with_the_share() -> None:
    rooms = [f"room {n}" for n in range(10)]
    few, more = attackers(0.1, rooms, 3), attackers(0.4, rooms[::-1], 3)
    assert (len(few), len(more)) == (1, 4)
    assert set(few) < set(more)
    assert attackers(0.4, rooms, 4) != more


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "flipped-labels"])
def test_a_lie_has_the_form_of_an_upload(kind: Kind, make_rooms: MakeRooms) -> None:
    (room,) = make_rooms([(0, 1, 2)])
    honest = upload()
    made = poisoned(Attack(kind), honest, room, ROUND)
    assert encode(honest) == encode(upload())
    assert encode(made) != encode(honest)
    assert encode(made) == encode(poisoned(Attack(kind), honest, room, ROUND))
    assert made["present"] is honest["present"]
    assert made["weights"]["norm.num_batches_tracked"] == 5  # type: ignore[index,call-overload]
    assert (made["weights"]["norm.running_var"] >= 0).all()  # type: ignore[index,call-overload,union-attr]


def test_what_each_attack_sends(make_rooms: MakeRooms) -> None:
    """Prototypes (3, 4) and (0, 2): ten times, turned, exchanged; noise has the norms 5 and 2."""
    (room,) = make_rooms([(0, 1, 2)])

    def sent(kind: Kind, round: Round = ROUND) -> list[list[float]]:
        return poisoned(Attack(kind), upload(), room, round)["prototypes"].tolist()  # type: ignore[union-attr,return-value]

    assert sent("scaled") == [[30, 40], [0, 20]]
    assert sent("flipped-sign") == [[-3, -4], [0, -2]]
    assert sent("permuted") == [[0, 2], [3, 4]]
    for kind in ("random", "colluding"):
        assert np.linalg.norm(sent(kind), axis=1) == pytest.approx([5, 2])
    later = Round(3, 3, Key(7) / "round" / 3)
    assert sent("colluding", later) == sent("colluding")
    assert sent("random", later) != sent("random")


def test_flipped_labels_turn_the_classes_of_a_room_round(make_rooms: MakeRooms) -> None:
    (room,) = make_rooms([(0, 1, 2)])
    turned = deceived(Attack("flipped-labels"), room)
    held = room.held
    for place, label in enumerate(held):
        assert set(turned.labels[room.labels == label]) == {held[-1 - place]}
    assert deceived(Attack("random"), room) is room


@pytest.mark.parametrize("algorithm", ["fedavg", "fedapa", "fedproto", "fedjoin"])
def test_a_run_with_liars_names_them_in_its_records(
    make_rooms: MakeRooms, tmp_path: Path, algorithm: str
) -> None:
    rooms = make_rooms([(0, 1, 2)] * 5)
    plan = Plan.of(
        {
            "rounds": 2,
            "algorithm": algorithm,
            "attack": {"kind": "random", "share": 0.2},
            "defence": "guard",
            "training": {"epochs": 1},
        }
    )
    done = run(plan, rooms=rooms, workers=0, out=tmp_path / "run")
    lying = list(attackers(0.2, [room.name for room in rooms], plan.seed))
    assert all(record["attackers"] == lying for record in done.records)
    assert [one["room"] for one in suspects(done.records)][:1] == lying
    assert all(record["rooms"][lying[0]]["trust"] == 0.0 for record in done.records)


@pytest.mark.parametrize("algorithm", ["fedavg", "fedjoin"])
def test_nothing_of_rooms_that_are_broken_is_merged(
    make_rooms: MakeRooms, tmp_path: Path, algorithm: str
) -> None:
    attack = {"kind": BROKEN, "share": 0.2}
    plan = Plan.of({"rounds": 2, "algorithm": algorithm, "attack": attack})
    done = run(plan, rooms=make_rooms([(0, 1, 2)] * 5), workers=0, out=tmp_path / "run")
    for record in done.records:
        assert set(record["diverged"]) == set(record["attackers"])


def test_a_run_that_liars_break_goes_on_to_its_end_and_says_so(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """Training that diverges everywhere ends any other run: there the plan is wrong."""
    wild = {"rounds": 2, "algorithm": "fedavg", "training": {"learning_rate": 1e20}}
    rooms = make_rooms([(0, 1)] * 4)
    with pytest.raises(RunError, match="diverged in every room"):
        run(Plan.of(wild), out=tmp_path / "honest", rooms=rooms, workers=0)
    attacked = Plan.of(wild, {"attack": {"kind": "scaled", "share": 0.5}})
    done = run(attacked, out=tmp_path / "attacked", rooms=rooms, workers=0)
    for record in done.records:
        assert record["diverged"].keys() == record["rooms"].keys()
        assert all(0 <= own["accuracy"] <= 1 for own in record["rooms"].values())


def test_records_of_honest_runs_without_a_defence_are_what_they_were(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    honest = Plan.of({"rounds": 1, "algorithm": "fedavg", "training": {"epochs": 1}})
    (record,) = run(honest, rooms=make_rooms(), workers=0, out=tmp_path / "honest").records
    assert not {"attackers", "suspects"} & set(record)
    assert not any("trust" in own for own in record["rooms"].values())


def test_workers_lie_as_this_process_does(make_rooms: MakeRooms, tmp_path: Path) -> None:
    plan = Plan.of(
        {
            "rounds": 1,
            "algorithm": "fedproto",
            "attack": {"kind": "colluding", "share": 0.4},
            "training": {"epochs": 1},
        }
    )
    here, there = (
        run(plan, rooms=make_rooms(), workers=workers, out=tmp_path / str(workers)).records
        for workers in (0, 1)
    )
    assert here == there


def test_nobody_attacks_on_a_network_or_with_an_engine_of_ones_own() -> None:
    plan = Plan.of({"attack": {"kind": "random"}})
    with pytest.raises(RosterError, match="attack: needs all rooms in one process"):
        check_plan(plan)
    with pytest.raises(PlanError, match="attack: is for experiments"):
        run(plan, engine=object())  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="attack"):
        Plan.of({"attack": {"share": 0.3}})


def test_a_share_of_nobody_is_refused(make_rooms: MakeRooms, tmp_path: Path) -> None:
    plan = Plan.of({"rounds": 1}, {"attack": {"kind": "scaled", "share": 0.05}})
    with pytest.raises(
        RosterError, match=r"attack.share 0.05 of 4 rooms is nobody; set it to 0.25"
    ):
        run(plan, out=tmp_path, rooms=make_rooms([(0, 1)] * 4), workers=0)


def test_a_defence_that_compares_nobody_says_so(make_rooms: MakeRooms, tmp_path: Path) -> None:
    plan = Plan.of({"rounds": 2, "algorithm": "fedavg"}, {"defence": "guard"})
    done = run(plan, out=tmp_path, rooms=make_rooms([(0, 1)] * 2), workers=0)
    (note,) = done.summary["notes"]
    assert "the defence cannot compare the weights of any room: that takes three" in note
    assert all("trust" not in own for record in done.records for own in record["rooms"].values())


def test_a_defence_says_what_it_cannot_compare_once_and_trusts_nobody_for_it(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """Classes 0 and 1 are of three rooms; what the last one tells nobody else holds. Where each net
    is of two rooms, prototypes are compared and weights are not."""
    rooms = make_rooms([(0, 1), (0, 1), (0, 1), (2, 3)])
    plan = Plan.of({"rounds": 2, "algorithm": "fedproto"}, {"defence": "guard"})
    done = run(plan, out=tmp_path / "sets", rooms=rooms, workers=0)
    (note,) = done.summary["notes"]
    assert (
        "cannot compare the prototypes of 'room 3': that takes three rooms with the same class"
        in note
    )
    for record in done.records:
        trusted = [room for room, own in record["rooms"].items() if "trust" in own]
        assert trusted == ["room 0", "room 1", "room 2"]
    nets = make_rooms([(0, 1)] * 4, architecture=["middle", "middle", "tiny", "tiny"])
    plan = Plan.of({"rounds": 2, "algorithm": "fedjoin"}, {"defence": "guard"})
    done = run(plan, out=tmp_path / "both", rooms=nets, workers=0)
    (note,) = [note for note in done.summary["notes"] if "the defence" in note]
    assert (
        "cannot compare the weights of any room: that takes three rooms with the same net" in note
    )


@pytest.mark.parametrize(
    ("change", "what"),
    [({"defence": "guard"}, "defence"), ({"attack": {"kind": "scaled"}}, "attack")],
)
def test_what_does_nothing_where_nothing_is_sent_says_so(
    make_rooms: MakeRooms, tmp_path: Path, change: dict[str, Any], what: str
) -> None:
    plan = Plan.of({"rounds": 1, "algorithm": "local"}, change)
    done = run(plan, out=tmp_path, rooms=make_rooms([(0, 1)] * 3), workers=0)
    (note,) = done.summary["notes"]
    assert f"the {what} has nothing to do: rooms send neither weights nor prototypes" in note


def test_a_single_room_has_nobody_to_lie_to(make_rooms: MakeRooms, tmp_path: Path) -> None:
    plan = Plan.of({"rounds": 1, "algorithm": "local"}, {"attack": {"kind": "scaled"}})
    with pytest.raises(RosterError, match="a single room has nobody to lie to: leave attack out"):
        run(plan, out=tmp_path, rooms=make_rooms([(0, 1)]), workers=0)
