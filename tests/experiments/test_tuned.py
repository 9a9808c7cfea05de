"""The tuned edition: each seed's own choice, equal budgets, and nothing tuned for another run."""

import json
from pathlib import Path

import pytest

from fedapa.errors import PlanError
from fedapa.evaluation.results import Results
from fedapa.experiments.conduct import Execution
from fedapa.experiments.experiment import Base, Experiment, Nets
from fedapa.experiments.experiment import algorithms as cases_of
from fedapa.experiments.reproduce import published, reproduce
from fedapa.experiments.sweeps import FIG8A
from fedapa.experiments.tuned import tuned
from tests.conftest import MakeStore

TINY = Nets("tiny", "tiny nets", "tiny")
TRIAL = Experiment("table1", "A trial", lambda _: cases_of("local", "fedamp", "linear"), (TINY,))


def _base(store: Path) -> Base:
    change = {"data": {"window": 16}, "model": {"width": 8}, "training": {"batch_size": 4}}
    return Base("smoke", str(store), "random", rounds=1, long_rounds=0, changes=[change])


def _choose(
    folder: Path, base: Base, name: str, seed: int, *, budget: int = 3, windows: int = 12
) -> None:
    """What a search would write: a learning rate that tells algorithm and seed."""
    (case,) = cases_of(name)
    rate = 0.01 * (seed + 1)
    plan = TRIAL.plan(base, TINY, case, seed)
    text = plan.toml().replace("learning_rate = 0.01", f"learning_rate = {rate}")
    folder.mkdir(exist_ok=True)
    (folder / f"{name}-seed{seed}.toml").write_text(text)
    settings = {"training.learning_rate": rate}
    if name == "fedamp":
        settings["algorithm.proximal"] = plan.algorithm["proximal"]
    told = {
        "trials": [{"settings": settings}] * budget,
        "best": 2,
        "validation_windows": windows,
        "goal": "accuracy",
        "commit": "0123456789abcdef",
    }
    (folder / f"{name}-seed{seed}.json").write_text(json.dumps(told))


def test_each_seed_has_the_settings_that_its_search_chose(
    make_store: MakeStore, tmp_path: Path
) -> None:
    base, folder = _base(make_store()), tmp_path / "tune"
    for name in ("local", "fedamp"):
        for seed in (0, 1):
            _choose(folder, base, name, seed)
    experiment = tuned(TRIAL, base, folder, seeds=2)
    rates = {
        (case.name, seed): experiment.plan(base, TINY, case, seed).training.learning_rate
        for case in experiment.cases(base.plan)
        for seed in (0, 1)
    }
    assert rates["local", 0] == rates["fedamp", 0] == 0.01
    assert rates["local", 1] == rates["fedamp", 1] == 0.02
    (shown,) = reproduce([experiment], base, Execution(seeds=2, out=tmp_path, workers=1))
    results = Results.load(tmp_path / "table1-tuned" / "results.json")
    assert shown.name == "table1-tuned"
    said = " ".join(results.notes)
    assert "same budget, 3 trials for each seed, and 12 validation windows chose" in said
    assert "Searched at commit 0123456789." in said
    assert "FedAMP, chosen: seed 0: learning_rate = 0.01" in said
    assert "nothing to tune" in said
    assert published("table1-tuned") == published("table1")


def test_what_cannot_be_compared_is_refused(make_store: MakeStore, tmp_path: Path) -> None:
    base, folder = _base(make_store()), tmp_path / "tune"
    with pytest.raises(PlanError, match="no such folder"):
        tuned(TRIAL, base, folder, seeds=1)
    _choose(folder, base, "local", 0)
    with pytest.raises(PlanError, match="fedapa tune fedamp --seed 0"):
        tuned(TRIAL, base, folder, seeds=1)
    _choose(folder, base, "fedamp", 0, budget=4)
    with pytest.raises(PlanError, match=r"had 4 trials by accuracy, local-seed0\.toml 3"):
        tuned(TRIAL, base, folder, seeds=1)
    _choose(folder, base, "fedamp", 0, windows=24)
    with pytest.raises(PlanError, match=r"24 validation windows, local-seed0\.toml by 12"):
        tuned(TRIAL, base, folder, seeds=1)
    _choose(folder, base, "fedamp", 0)
    longer = Base("smoke", base.file, "random", rounds=2, long_rounds=0, changes=base.changes)
    with pytest.raises(PlanError, match=r"another run than this \(rounds: 1 → 2"):
        tuned(TRIAL, longer, folder, seeds=1)
    with pytest.raises(PlanError, match="no row has anything to tune"):
        tuned(TRIAL.with_methods(["linear"]), base, folder, seeds=1)
    plan = folder / "fedamp-seed0.toml"
    plan.write_text(plan.read_text().replace("learning_rate = 0.01", "learning_rate = 0.03"))
    with pytest.raises(PlanError, match=r"other settings \(learning_rate = 0.03.*nobody tried"):
        tuned(TRIAL, base, folder, seeds=1)
    with pytest.raises(PlanError, match="fig8a: --tuned is for experiments whose rows are methods"):
        tuned(FIG8A, base, folder, seeds=1)


@pytest.mark.parametrize(
    "spoilt",
    [
        {"best": 0},
        {"best": float("inf")},
        {"trials": [{"settings": [1, 2]}] * 3},
        {"trials": [{"settings": {"training.learning_rate": "x"}}] * 3},
    ],
)
def test_a_damaged_search_is_refused_in_a_sentence(
    make_store: MakeStore, tmp_path: Path, spoilt: dict[str, object]
) -> None:
    base, folder = _base(make_store()), tmp_path / "tune"
    _choose(folder, base, "local", 0)
    trials = folder / "local-seed0.json"
    trials.write_text(json.dumps({**json.loads(trials.read_text()), **spoilt}))
    with pytest.raises(PlanError, match=r"local-seed0\.json: holds no trials"):
        tuned(TRIAL.with_methods(["local"]), base, folder, seeds=1)
