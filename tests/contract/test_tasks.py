"""Two tasks: algorithms that say they can learn both do, and all others refuse by name."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedapa import Plan, load_model
from fedapa.algorithms import find
from fedapa.errors import PlanError, RosterError
from fedapa.federation import rounds
from fedapa.federation.engines.in_process import InProcess
from fedapa.rooms.room import Room
from fedapa.rooms.task import ACTIVITY, Task
from fedapa.windows.labels import NO_CLASS
from tests.conftest import MakeRooms
from tests.contract.test_algorithms import (
    ALGORITHMS,
    carry_out,
    check_order_of_uploads,
    check_resuming,
    models,
    plan_of,
)

ABLE = tuple(name for name in ALGORITHMS if find(name).several_tasks)
able = pytest.mark.parametrize("name", ABLE)
ACTIVITIES = ("sitting", "walking")


def with_activities(rooms: Sequence[Room], *, turned: bool = False) -> list[Room]:
    """Every second window is of people who walk, which moves its first column far; of every fifth
    nobody says what they do."""
    made = []
    for room in rooms:
        number = np.arange(len(room.labels))
        walking = number % 2
        windows = np.array(room.windows)
        windows[..., 0] += 30.0 * walking.reshape(-1, *(1 for _ in windows.shape[2:]))
        labels = np.where(number % 5 == 4, NO_CLASS, 1 - walking if turned else walking)
        task = Task(ACTIVITY, ACTIVITIES, labels.astype(np.int64))
        made.append(replace(room, windows=windows, further=(task,)))
    return made


def test_these_learn_two_tasks() -> None:
    assert {"local", "fedavg", "fedapa", "fedapa-self", "fedjoin", "fedbn", "fedrep"} <= set(ABLE)
    assert "fedproto" not in ABLE


@able
def test_both_tasks_are_learned_and_scored(
    name: str, make_rooms: MakeRooms, tmp_path: Path
) -> None:
    rooms = with_activities(make_rooms(windows_per_class=20))
    steps = carry_out(plan_of(name, rounds=6), rooms, tmp_path)
    for step in steps[1:]:
        assert step.record is not None
        for entry in step.record["rooms"].values():
            assert {"accuracy", "activity.accuracy", "activity.macro_f1"} <= set(entry)
            assert np.isfinite(entry["loss"])
    last = steps[-1].record
    assert last is not None
    assert last["mean"]["activity.accuracy"] > 0.85, "far apart, so anybody who looks can tell"
    assert [step.confusion["room 0"].shape for step in steps] == [(3, 3)] * len(steps)
    for room in rooms:
        model = load_model(tmp_path / "models" / f"{room.name}.safetensors")
        assert (model.classes, model.activities) == ((0, 1, 2), ACTIVITIES)
        assert model.prototypes.shape == (3, 16)


@able
def test_the_second_task_teaches_the_net(name: str, make_rooms: MakeRooms, tmp_path: Path) -> None:
    """The same windows with the activities turned round give other nets; who forgot them would
    not notice."""
    for turned in (False, True):
        rooms = with_activities(make_rooms(), turned=turned)
        carry_out(plan_of(name), rooms, tmp_path / str(turned))
    assert models(tmp_path / "False") != models(tmp_path / "True")


@able
def test_a_resumed_run_of_two_tasks_is_bit_equal(
    name: str, make_rooms: MakeRooms, tmp_path: Path
) -> None:
    check_resuming(plan_of(name), with_activities(make_rooms()), tmp_path)


@able
def test_the_order_of_uploads_of_two_tasks_does_not_matter(
    name: str, make_rooms: MakeRooms
) -> None:
    check_order_of_uploads(plan_of(name).build(), with_activities(make_rooms()))


@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - set(ABLE)))
def test_others_refuse_two_tasks_by_name(name: str, make_rooms: MakeRooms, tmp_path: Path) -> None:
    """In a plan, before anything is read, and where rooms were given in Python."""
    title = find(name).title
    with pytest.raises(PlanError, match=r"learns one task: .* fedapa,") as caught:
        Plan(algorithm=name, data={"tasks": "both"})
    assert str(caught.value).startswith(title)
    Plan(algorithm=name, data={"tasks": "activity"})
    plan, rooms = plan_of(name), with_activities(make_rooms())
    with (
        InProcess(plan.build(), rooms, folder=tmp_path, workers=0) as engine,
        pytest.raises(RosterError, match="learns one task"),
    ):
        rounds.begin(plan.build(), engine, plan)


def test_rooms_of_other_tasks_do_not_learn_together(make_rooms: MakeRooms, tmp_path: Path) -> None:
    plan, (one, two, three) = plan_of("fedapa"), make_rooms()
    rooms = [*with_activities([one, two]), three]
    with pytest.raises(RosterError, match=r"'room 2' has other tasks .* \(sitting, walking\)"):
        InProcess(plan.build(), rooms, folder=tmp_path, workers=0)
