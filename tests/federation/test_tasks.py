"""A store with two labels: what a plan's tasks make of it, and a run of both."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedapa import Plan, load_model, run
from fedapa.errors import DataError, PlanError
from fedapa.experiments.join import join
from fedapa.federation.engines.handover import Handover, decode_handover, encode_handover
from fedapa.federation.participant import introduce
from fedapa.federation.prepare import describe, prepare_rooms
from fedapa.federation.run import Run
from fedapa.randomness import Key
from fedapa.stores.store import write_store
from fedapa.windows.labels import NO_CLASS

ROOMS = {"cafe": (0, 1, 2), "hall": (0, 2)}


def make_store(
    path: Path,
    *,
    takes: int = 3,
    second: str = "walking",
    rooms: dict[str, tuple[int, ...]] = ROOMS,
) -> Path:
    """Recordings of four windows; one of nobody has no activity."""
    with write_store(path) as store:
        for room, counts in rooms.items():
            store.add_room(room, synthetic=False, about={"device": "test"})
            for count in counts:
                for activity in ("sitting", second) if count else (None,):
                    for take in range(takes):
                        stream = (Key(0) / room / count / str(activity) / take).numpy()
                        noise = stream.normal(size=(64, 6, 1))
                        amplitude = 5 + (1 + count) * noise + 9 * (activity == "walking")
                        store.add_recording(
                            room,
                            f"{count} {activity} {take}",
                            label=count,
                            amplitude=np.abs(amplitude).astype(np.float32),
                            timestamps=np.arange(64) / 100,
                            rate=100.0,
                            activity=activity,
                        )
    return path


def plan_of(store: Path, tasks: str, **values: Any) -> Plan:
    base: dict[str, Any] = {
        "rounds": 3,
        "data": {"file": str(store), "window": 16, "split": "recording", "view": "amplitude"},
        "model": {"architecture": "middle", "width": 16},
        "training": {"batch_size": 4},
        "algorithm": {"name": "fedapa", "warm_rounds": 2},
    }
    return Plan.of(base, {"data": {"tasks": tasks}}, values)


def test_runs_of_one_task_and_of_both_have_the_same_windows(tmp_path: Path) -> None:
    """Every pair of count and activity has three recordings: one of each is tested."""
    store = make_store(tmp_path / "rooms.h5")
    count, activity, both = (
        prepare_rooms(plan_of(store, tasks)) for tasks in ("label", "activity", "both")
    )
    for one, two, room in zip(count, activity, both, strict=True):
        np.testing.assert_array_equal(one.split.test, room.split.test)
        np.testing.assert_array_equal(one.split.train, room.split.train)
        np.testing.assert_array_equal(one.labels, room.labels)
        (task,) = room.further
        assert (one.classes, task.classes) == ((0, 1, 2), ("sitting", "walking"))
        assert two.classes == task.classes
        np.testing.assert_array_equal(two.labels, task.labels)
        told = task.labels != NO_CLASS
        np.testing.assert_array_equal(told, room.labels > 0)
        # Whoever learns activities alone has no use for nobody's windows but as unlabelled ones.
        np.testing.assert_array_equal(two.split.test, room.split.test[told[room.split.test]])
        np.testing.assert_array_equal(two.split.unlabelled, np.flatnonzero(~told))
        tested = {(room.labels[n], task.labels[n]) for n in room.split.test}
        assert tested == {(room.labels[n], task.labels[n]) for n in range(len(room.labels))}, (
            "every pair is tested"
        )
        assert (room.outputs, room.card.classes, room.card.first_classes) == (5, 5, 3)
        assert room.places[told].max() == 4
    cards = [introduce(room) for room in both]
    assert describe(cards, plan_of(store, "both"))["activity classes"] == ["sitting", "walking"]
    assert "activity classes" not in describe(
        [introduce(room) for room in count], plan_of(store, "label")
    )


def test_pairs_that_were_recorded_once_are_split_by_the_count(tmp_path: Path) -> None:
    store = make_store(tmp_path / "rooms.h5", takes=1)
    plan = plan_of(store, "both", data={"split": "blocked"})
    for room in prepare_rooms(plan):
        tested = set(room.labels[room.split.test].tolist())
        assert tested == set(room.labels.tolist())


@pytest.mark.parametrize("algorithm", ["fedapa", "fedjoin"])
def test_a_run_of_two_tasks(algorithm: str, tmp_path: Path) -> None:
    """Gone on with as in one go; the model file tells both."""
    store = make_store(tmp_path / "rooms.h5")
    plan = plan_of(store, "both", algorithm=algorithm)
    whole = run(plan, out=tmp_path / "whole", workers=0)
    run(Plan.of(plan.document(), {"rounds": 2}), out=tmp_path / "part", workers=0)
    run(plan, out=tmp_path / "part", workers=0, resume=True)
    assert content(tmp_path / "part") == content(tmp_path / "whole")
    means = Run.load(tmp_path / "whole").summary["over_rooms"]["mean"]
    assert {"accuracy", "activity.accuracy", "activity.macro_f1", "activity.ece"} <= set(means)
    blind = whole.summary["blind"]["constant"]["mean"]
    assert blind["activity.accuracy"] == pytest.approx(0.5)
    assert "activity" not in whole.summary["alternatives"]
    model = load_model(tmp_path / "whole" / "models" / "cafe.safetensors")
    (room, _) = prepare_rooms(plan)
    windows = room.windows[room.split.test]
    assert model.probabilities(windows).shape == (len(windows), 3)
    activities = model.probabilities(windows, "activity")
    assert activities.shape == (len(windows), 2)
    np.testing.assert_allclose(activities.sum(axis=1), 1, atol=1e-6)
    assert set(model.count(windows).tolist()) <= {0, 1, 2}
    best = activities.argmax(axis=1)
    assert model.activity(windows).tolist() == [model.activities[place] for place in best]


def test_workers_are_given_both_tasks(tmp_path: Path) -> None:
    plan = plan_of(make_store(tmp_path / "rooms.h5"), "both")
    rooms = prepare_rooms(plan)
    frame = encode_handover(Handover(plan.build(), rooms, tmp_path), tmp_path)
    for room, given in zip(rooms, decode_handover(frame).rooms, strict=True):
        assert introduce(given) == introduce(room)
        np.testing.assert_array_equal(given.places, room.places)


def content(folder: Path) -> dict[str, bytes]:
    kept = [folder / "rounds.jsonl", *sorted((folder / "models").iterdir())]
    return {path.name: path.read_bytes() for path in kept}


def test_what_cannot_be_asked_is_refused(tmp_path: Path, make_store: Any) -> None:
    plain = make_store()
    for tasks in ("activity", "both"):
        with pytest.raises(DataError, match="no recording of room 'cafe' has an activity; import"):
            prepare_rooms(plan_of(plain, tasks))
    with pytest.raises(PlanError, match=r"data: tasks = 'both': a partition deals windows by"):
        plan_of(plain, "both", data={"partition": "dirichlet"})
    with pytest.raises(PlanError, match=r"data\.tasks: input should be 'label', 'activity' or"):
        plan_of(plain, "counts")


def test_a_single_activity_is_refused(tmp_path: Path) -> None:
    store = make_store(tmp_path / "rooms.h5", second="sitting two")
    with write_store(tmp_path / "other.h5") as other:
        other.add_room("den", synthetic=False, about={})
        for count in (1, 2):
            for take in range(2):
                other.add_recording(
                    "den",
                    f"{count} {take}",
                    label=count,
                    amplitude=np.random.default_rng(take).random((64, 6, 1), np.float32),
                    timestamps=np.arange(64) / 100,
                    rate=100.0,
                    activity="sitting",
                )
    assert len(prepare_rooms(plan_of(store, "both"))) == 2
    with pytest.raises(DataError, match=r"'den' has a single activity \('sitting'\)"):
        prepare_rooms(plan_of(tmp_path / "other.h5", "both"))


def test_a_model_of_one_task_tells_no_activity(tmp_path: Path) -> None:
    store = make_store(tmp_path / "rooms.h5")
    run(plan_of(store, "label", rounds=1), out=tmp_path / "out", workers=0)
    model = load_model(tmp_path / "out" / "models" / "hall.safetensors")
    (_, room) = prepare_rooms(plan_of(store, "label"))
    assert model.activities == ()
    with pytest.raises(DataError, match="model of room 'hall' tells no activity; train one"):
        model.activity(room.windows[:1])


def test_a_federation_of_both_can_be_joined_and_who_took_part_there_is_left_behind(
    tmp_path: Path,
) -> None:
    three = {"cafe": (0, 1, 2), "hall": (0, 1, 2), "loft": (0, 1, 2)}
    store = make_store(tmp_path / "rooms.h5", rooms=three)
    new = make_store(tmp_path / "new.h5", rooms={"den": (0, 1, 2)})
    theirs = run(
        plan_of(
            store,
            "both",
            algorithm={"name": "fedjoin", "labelled_rounds": 2},
            participation=0.7,
            data={"window": 16},
        ),
        out=tmp_path / "theirs",
        workers=0,
    )
    done = join(theirs.folder, new, split="recording", rounds=2, out=tmp_path / "out", workers=0)
    assert done.joined.plan.participation == 1.0
    assert "activity.accuracy" in done.joined.summary["rooms"]["den"]
    assert done.alone.plan.answerable == done.joined.plan.answerable == "room"
    assert done.joined.plan.algorithm["labelled_rounds"] == 0, "a third of two rounds"
    same = join(theirs.folder, new, split="recording", out=tmp_path / "same", workers=0)
    assert same.joined.plan.algorithm["labelled_rounds"] == 2, "as the federation had it"
