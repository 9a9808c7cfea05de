"""Tuning: the same budget for all, spread over the ranges, and never a look at test windows."""

import json
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from fedapa import Plan
from fedapa.algorithms import find, names
from fedapa.algorithms.algorithm import Range
from fedapa.errors import FedapaError, PlanError, RunError
from fedapa.experiments import tune as tuning
from fedapa.experiments.tune import proposals, trials_table, tunables_of, tune
from fedapa.federation.prepare import cut_windows, prepare_rooms
from fedapa.federation.run import Run, run
from fedapa.randomness import Key
from fedapa.toml import read_toml
from tests.conftest import MakeStore

TUNED = [name for name in names() if not find(name).fits_once]


def small_plan(store: Path, algorithm: str = "fedamp", **data: Any) -> Plan:
    values = {"file": str(store), "window": 16, "split": "recording", "view": "amplitude", **data}
    net = {"architecture": "tiny", "width": 16}
    training = {"batch_size": 4}
    return Plan(rounds=2, data=values, model=net, training=training, algorithm={"name": algorithm})


@pytest.fixture
def store(make_store: MakeStore) -> Path:
    counts = {0: 8, 1: 8, 2: 8}
    return make_store({"cafe": counts, "hall": counts}, packets=32)


# ---- what is tried -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TUNED)
def test_every_range_is_of_a_setting_that_the_algorithm_has(name: str) -> None:
    """Both ends make a plan; whatever is no setting or out of its bounds would be refused."""
    spans = tunables_of(find(name), 30)
    assert "training.learning_rate" in spans
    for share in (0.0, 1.0):
        changes = {key: span.at(share) for key, span in spans.items()}
        built = Plan.of({"rounds": 30, "algorithm": name}, tuning.nested(changes))
        for key, value in changes.items():
            section, _, setting = key.partition(".")
            assert built.document()[section][setting] == value


def test_what_makes_a_variant_is_not_tuned() -> None:
    assert "algorithm.warm_rounds" in tunables_of(find("fedapa"), 30)
    assert "algorithm.warm_rounds" not in tunables_of(find("fedapa-fixed"), 30)
    with pytest.raises(PlanError, match="linear: its file names no setting to tune"):
        tunables_of(find("linear"), 30)


def test_a_range_is_walked_by_factors_or_by_steps() -> None:
    """Halfway from 0.01 to 1 is 0.1 by factors; from 1 to 10 it is 3.16, whole 3."""
    assert Range(0.01, 1.0).at(0.5) == 0.1
    assert Range(1, 10, whole=True).at(0.5) == 3
    assert Range(0.0, 3.0, "linear").at(0.5) == 1.5
    assert Range(0.002, 0.2).at(0.123) == 0.0035  # 0.00352 in two digits


def test_the_first_trial_is_the_plan_and_a_larger_budget_begins_like_a_smaller() -> None:
    plan = Plan(rounds=40, algorithm={"name": "fedapa", "temperature": 0.3, "warm_rounds": 7})
    few, many = proposals(plan, 4), proposals(plan, 12)
    assert few == many[:4]
    assert few[0] == {
        "training.learning_rate": 0.01,
        "algorithm.temperature": 0.3,
        "algorithm.maximum": 1.0,
        "algorithm.warm_rounds": 7,
    }
    assert len({str(changes) for changes in many}) == 12
    other = proposals(Plan.of(plan.document(), {"seed": 1}), 4)
    assert other[0] == few[0]
    assert other[1:] != few[1:]


def test_trials_cover_a_range_evenly() -> None:
    """Eight golden steps on a circle leave no gap above φ⁻⁴ = 0.146, eight draws one of 0.34."""
    plan = Plan(algorithm={"name": "local"})
    rates = [changes["training.learning_rate"] for changes in proposals(plan, 9)[1:]]
    shares = np.sort(np.log(np.asarray(rates) / 0.002) / np.log(100))
    gaps = np.diff([*shares, shares[0] + 1])
    assert gaps.max() < 0.16  # values have two digits


# ---- what is looked at ---------------------------------------------------------------------------


def spoiled(store: Path, out: Path, plan: Plan) -> Path:
    """The store with noise in the place of every recording that holds test windows."""
    shutil.copy(store, out)
    cut = {windows.room: windows.recordings for windows in cut_windows(plan)}
    with h5py.File(out, "r+") as file:
        for room in prepare_rooms(plan):
            for name in sorted({cut[room.name][window] for window in room.split.test}):
                values = file[room.name][name]["amplitude"]
                noise = (Key(0) / "spoiled" / room.name / name).numpy().normal(size=values.shape)
                values[...] = 1000 * noise
    return out


def test_a_trial_is_the_same_whatever_the_test_windows_hold(store: Path, tmp_path: Path) -> None:
    """Noise in every test recording changes a run's scores and not a byte of a trial's."""
    plan = small_plan(store, "caring")
    other = spoiled(store, tmp_path / "spoiled.h5", plan)
    records: dict[str, list[bytes]] = {}
    for scored in ("validation", "test"):
        for number, file in enumerate((store, other)):
            changed = {"file": str(file), "scored": scored, "validation": 0.2}
            trial = Plan.of(plan.document(), {"data": changed})
            done = run(trial, out=tmp_path / f"{scored}-{number}", workers=0)
            records.setdefault(scored, []).append((done.folder / "rounds.jsonl").read_bytes())
    assert records["validation"][0] == records["validation"][1]
    assert records["test"][0] != records["test"][1]


def test_test_windows_are_in_no_part_of_a_trials_rooms(store: Path) -> None:
    plan = small_plan(store)
    for share in (0.1, 0.3):  # another share of validation leaves the test as it is
        data = {"scored": "validation", "validation": share}
        trial = prepare_rooms(Plan.of(plan.document(), {"data": data}))
        for usual, tried in zip(prepare_rooms(plan), trial, strict=True):
            held = set(usual.split.test.tolist())
            assert held
            split = tried.split
            for part in (split.train, split.validation, split.test, split.continuous):
                assert not held & set(part.tolist())
            np.testing.assert_array_equal(split.test, split.validation)
            assert not set(split.test.tolist()) & set(split.train.tolist())
    with pytest.raises(PlanError, match="there are no validation windows with a label"):
        small_plan(store, scored="validation", validation=0)


# ---- what comes of it ----------------------------------------------------------------------------


def test_a_search_writes_a_plan_and_goes_on_to_more_trials(store: Path, tmp_path: Path) -> None:
    plan, out = small_plan(store), tmp_path / "tune"
    first = tune(plan, budget=2, out=out, workers=1)
    runs = {folder: folder.stat().st_mtime_ns for folder in (out / "runs").glob("*/summary.json")}
    assert len(runs) == 2
    chosen = Plan(**read_toml(first.file))
    assert chosen.data == plan.data, "the plan is tested as it would have been"
    assert chosen.training.learning_rate == first.best.settings["training.learning_rate"]
    assert chosen.algorithm["proximal"] == first.best.settings["algorithm.proximal"]
    told = json.loads(first.file.with_suffix(".json").read_text())
    assert (told["scored"], len(told["trials"])) == ("validation", 2)
    assert f"{first.windows} validation windows" in trials_table(first).note
    with pytest.raises(RunError, match="is there already; add --resume"):
        tune(plan, budget=2, out=out, workers=1)
    kept = (out / "fedamp-seed0.json").read_bytes()
    with pytest.raises(RunError, match="is of a search with another plan"):
        tune(plan, budget=2, out=out, resume=True, validation=0.4, workers=1)
    assert (out / "fedamp-seed0.json").read_bytes() == kept
    with pytest.raises(PlanError, match=r"--validation 0: expected a share above 0"):
        tune(plan, budget=2, out=out, resume=True, validation=0, workers=1)
    longer = tune(plan, budget=3, out=out, resume=True, workers=1)
    assert longer.trials[:2] == first.trials
    assert all(folder.stat().st_mtime_ns == made for folder, made in runs.items())


class Finished(Run):
    """A run that only has scores."""

    def __init__(self, accuracy: float, mae: float) -> None:
        mean = {"accuracy": accuracy, "mae": mae}
        rooms = {"cafe": {"test": 40}, "hall": {"test": 60}}
        data = {"source": "rooms", "synthetic": False, "split": "recording", "scored": "validation"}
        object.__setattr__(self, "summary", {"over_rooms": {"mean": mean}})
        object.__setattr__(
            self, "data", {**data, "rooms": rooms, "classes": [0, 1], "window_shape": [16, 6]}
        )


@pytest.mark.parametrize(
    ("goal", "number", "said"),
    [
        ("accuracy", 2, "accuracy 64.0 %; the settings given had 60.0 %"),
        ("mae", 4, "MAE 0.30; the settings given had 0.50"),
    ],
)
def test_the_best_is_chosen_and_a_run_that_fails_is_not(
    goal: tuning.Goal,
    number: int,
    said: str,
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two trials with 64 % the first. With 100 windows 64 % is known to √(0.64·0.36/100) = 4.8
    points."""
    results = [
        Finished(0.60, 0.5),
        Finished(0.64, 0.6),
        RunError("the loss became nan"),
        Finished(0.64, 0.3),
    ]
    monkeypatch.setattr(tuning, "finish", lambda plans, **_: dict(zip(plans, results, strict=True)))
    found = tune(small_plan(store), budget=4, out=tmp_path, goal=goal)
    assert found.best.number == number
    assert said in found.answer
    assert ("± 4.8 points" in found.answer) == (goal == "accuracy")
    assert found.trials[2].problem == "the loss became nan"
    assert [row[0] for row in trials_table(found).rows][-1] == "3"
    assert "test windows of this seed were not looked at" in found.file.read_text().lower()


def test_a_search_in_which_nothing_finishes_says_why(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(plans: dict[Path, Plan], **_: Any) -> dict[Path, FedapaError]:
        return {folder: RunError("the loss became nan") for folder in plans}

    monkeypatch.setattr(tuning, "finish", fail)
    with pytest.raises(RunError, match="no trial finished; the first: the loss became nan"):
        tune(small_plan(store), budget=2, out=tmp_path)
    assert not list(tmp_path.glob("*.toml"))
