"""``fedapa tune``: an algorithm's settings, chosen on validation windows with a given budget.

A comparison is fair when every method had the same chance. A trial is a whole run with other
settings, scored on validation windows (``data.scored``): test windows are in no part of its rooms,
so nothing can look at them. The first trial is the plan as it is; the others are spread evenly over
the ranges that the algorithm's file names (``Algorithm.tunables``).

Every algorithm has as many trials, however many settings it has. A larger budget begins with the
trials of a smaller one, so a finished search can be made longer.

::

    OUT/runs/ALGORITHM-DIGEST/    one trial, a run like any other
    OUT/ALGORITHM-seed0.toml      the plan with the chosen settings, for ``fedapa run``
    OUT/ALGORITHM-seed0.json      every trial
"""

import inspect
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fedapa.algorithms import find, is_variant
from fedapa.algorithms.algorithm import Algorithm, Range
from fedapa.errors import FedapaError, PlanError, RunError
from fedapa.evaluation.metrics import METRICS
from fedapa.experiments.conduct import finish, folder_name
from fedapa.federation.environment import environment
from fedapa.federation.plan import Plan
from fedapa.federation.run import Run
from fedapa.files import write_text
from fedapa.processes import Show, unseen
from fedapa.randomness import Key
from fedapa.report.captions import data_text
from fedapa.report.tables.table import Table

__all__ = [
    "GOALS",
    "Changes",
    "Goal",
    "Trial",
    "Tuned",
    "in_words",
    "nested",
    "proposals",
    "trials_table",
    "tunables_of",
    "tune",
]

Goal: TypeAlias = Literal["accuracy", "macro_f1", "mae"]
"""What the best trial has most of; of ``mae`` the least."""
GOALS: tuple[Goal, ...] = ("accuracy", "macro_f1", "mae")
Changes: TypeAlias = Mapping[str, float | int]
"""Key of a plan, "training.learning_rate" → value."""

_FORMAT = 1


@dataclass(frozen=True)
class Trial:
    """Settings that were tried, and what validation windows say of them."""

    number: int
    """From 1; the first has the settings given."""
    settings: Changes
    """Every setting that is tuned, by its key."""
    scores: Mapping[str, float]
    """Mean over rooms, of the last five rounds; nothing where the run failed."""
    run: str
    """Its folder's name."""
    problem: str = ""
    """Why it failed."""


@dataclass(frozen=True, eq=False)
class Tuned:
    """A finished search."""

    plan: Plan
    """With the chosen settings, as it is to be run and tested."""
    trials: Sequence[Trial]
    best: Trial
    goal: Goal
    file: Path
    """The plan as TOML."""
    windows: int
    """Validation windows behind every score."""
    caption: str
    """The data, in words."""

    @property
    def answer(self) -> str:
        """What was chosen, and what it is worth, in a sentence or two."""
        title, first = find(self.plan.algorithm["name"]).title, self.trials[0]
        scale, unit = (1, "") if self.goal == "mae" else (100, " %")
        name = {"accuracy": "accuracy", "macro_f1": "macro F1", "mae": "MAE"}[self.goal]
        digits = 2 if self.goal == "mae" else 1
        told = f"{scale * self.best.scores[self.goal]:.{digits}f}{unit}"
        if self.best is first:
            said = f"{title}: nothing tried is better than the settings given, {name} {told}"
        else:
            before = first.scores.get(self.goal)
            was = "failed" if before is None else f"had {scale * before:.{digits}f}{unit}"
            changed = in_words(self.best.settings)
            said = f"{title}: {changed}, {name} {told}; the settings given {was}"
        tried = "1 trial" if len(self.trials) == 1 else f"{len(self.trials)} trials"
        said += f" ({tried} on {self.windows} validation windows"
        if self.goal == "mae":
            return said + "; test windows were not looked at)"
        share = self.best.scores[self.goal]
        error = 100 * math.sqrt(share * (1 - share) / max(1, self.windows))
        return said + (
            f", which tell it to ± {error:.1f} points at best; test windows were not looked at)"
        )

    def summary(self) -> dict[str, Any]:
        """For scripts, and for the file of trials."""
        return {
            "format": _FORMAT,
            "algorithm": self.plan.algorithm["name"],
            "scored": "validation",
            "goal": self.goal,
            "seed": self.plan.seed,
            "data": self.caption,
            "validation_windows": self.windows,
            "plan": self.file.name,
            "best": self.best.number,
            "trials": [
                {
                    "number": trial.number,
                    "settings": dict(trial.settings),
                    "scores": dict(trial.scores),
                    "run": trial.run,
                    **({"problem": trial.problem} if trial.problem else {}),
                }
                for trial in self.trials
            ],
        }


def tunables_of(kind: type[Algorithm], rounds: int) -> dict[str, Range]:
    """What is tuned of an algorithm; of a variant not what makes it one. Refuses one of nothing."""
    fixed = inspect.get_annotations(kind) if is_variant(kind) else {}
    found = {
        key: span
        for key, span in kind.tunables(rounds).items()
        if key.removeprefix("algorithm.") not in fixed
    }
    if not found:
        raise PlanError(
            f"{kind.name}: its file names no setting to tune; run it as it is, or set one with "
            "--set"
        )
    return found


def proposals(plan: Plan, budget: int) -> list[Changes]:
    """The settings of each trial: first those of the plan, then points spread over the ranges.

    Point k is at the shares frac(s + k·α_d), the additive recurrence whose steps are powers of the
    generalised golden ratio: every stretch of it covers all ranges evenly, alone and together, so
    that any budget is a good one and a larger one begins like a smaller. s hangs on the plan's seed
    and the algorithm.
    """
    kind = find(plan.algorithm["name"])
    spans = tunables_of(kind, plan.rounds)
    start = (Key(plan.seed) / "tune" / kind.name).numpy().random(len(spans))
    steps = _golden_steps(len(spans))
    document = plan.document()
    tried: list[Changes] = [{key: _value(document, key) for key in spans}]
    for number in range(1, budget):
        shares = np.mod(start + number * steps, 1.0)
        tried.append(
            {
                key: span.at(float(share))
                for (key, span), share in zip(spans.items(), shares, strict=True)
            }
        )
    return tried


def _golden_steps(dimensions: int) -> npt.NDArray[np.float64]:
    """α_1 … α_d: powers of 1/φ_d with φ^(d + 1) = φ + 1, the golden ratio where d is 1."""
    ratio = 2.0
    for _ in range(60):  # it contracts by half or more in each
        ratio = (1.0 + ratio) ** (1.0 / (dimensions + 1))
    return np.asarray(ratio ** -np.arange(1.0, dimensions + 1), np.float64)


def tune(
    plan: Plan,
    *,
    budget: int,
    out: Path,
    goal: Goal = "accuracy",
    validation: float = 0.2,
    resume: bool = False,
    workers: int | None = None,
    show: Show = unseen,
) -> Tuned:
    """Try settings of the plan's algorithm and write the plan with the best of them.

    Args:
        plan: the run to find settings for; its seed decides which windows are the test's.
        budget: how many trials.
        out: the folder to write; searches there share their runs.
        goal: what is best.
        validation: the share of the windows that are not for the test on which trials are scored;
            the plan that is written keeps its own.
        resume: whether to go on with a search that is there.
        workers: trials side by side; by default one a core.
        show: called as work goes on.
    """
    if budget < 1:
        raise PlanError(f"budget {budget}: at least one trial is needed")
    if not 0 < validation < 1:
        raise PlanError(
            f"--validation {validation:g}: expected a share above 0 and below 1, such as 0.2"
        )
    if plan.total is None:
        raise PlanError('rounds = "open": a trial needs a last round; set rounds')
    kind = find(plan.algorithm["name"])
    file = out / f"{kind.name}-seed{plan.seed}.toml"
    if file.exists() and not resume:
        raise RunError(
            f"{file}: is there already; add --resume to go on with that search, or choose another "
            "--out"
        )
    settings = proposals(plan, budget)
    scored = {"data": {"scored": "validation", "validation": validation}}
    plans = [Plan.of(plan.document(), scored, nested(changes)) for changes in settings]
    folders = [out / "runs" / folder_name(trial) for trial in plans]
    _check_same(file.with_suffix(".json"), folders[0].name)
    done = finish(dict(zip(folders, plans, strict=True)), workers=workers, show=show)
    trials = [
        _trial(number, changes, folder.name, done[folder])
        for number, (changes, folder) in enumerate(zip(settings, folders, strict=True), start=1)
    ]
    best = _best(trials, goal)
    run = done[folders[best.number - 1]]
    assert isinstance(run, Run)
    found = Tuned(
        plan=Plan.of(plan.document(), nested(best.settings)),
        trials=trials,
        best=best,
        goal=goal,
        file=file,
        windows=sum(room["test"] for room in run.data["rooms"].values()),
        caption=data_text(run.data, [plan.seed]),
    )
    made = environment(workers)
    write_text(
        file.with_suffix(".json"),
        json.dumps({**found.summary(), "commit": made["commit"]}, indent=1) + "\n",
    )
    write_text(file, _header(found, str(made["commit"])) + found.plan.toml())
    return found


def _check_same(path: Path, first: str) -> None:
    """Refuse to write over a search that began with another plan: its first trial is the plan."""
    if not path.exists():
        return
    try:
        before = json.loads(path.read_text())["trials"][0]["run"]
    except (ValueError, KeyError, IndexError, TypeError):
        before = None
    if before != first:
        raise RunError(
            f"{path}: is of a search with another plan (data, rounds, settings or --validation); "
            "choose another --out for this one"
        )


def trials_table(tuned: Tuned) -> Table:
    """All trials, the best first; those that failed last."""
    ranked = sorted(tuned.trials, key=lambda trial: _rank(trial, tuned.goal))
    metrics = [goal for goal in GOALS if any(goal in trial.scores for trial in tuned.trials)]
    keys = list(tuned.trials[0].settings)
    return Table(
        title=f"Settings of {find(tuned.plan.algorithm['name']).title} that were tried, by "
        "validation windows",
        headings=[
            "Trial",
            *(key.partition(".")[2] for key in keys),
            *(METRICS[metric].heading for metric in metrics),
        ],
        rows=[
            [
                f"{trial.number}{' (as given)' if trial.number == 1 else ''}",
                *(f"{trial.settings[key]:g}" for key in keys),
                *(_text(trial, metric) for metric in metrics),
            ]
            for trial in ranked
        ],
        note=f"{tuned.caption} · mean of the last rounds over rooms; no test window was scored",
    )


def _text(trial: Trial, metric: str) -> str:
    if metric not in trial.scores:
        return "failed" if trial.problem else "–"
    value = trial.scores[metric]
    return f"{value:.2f}" if metric == "mae" else f"{100 * value:.1f}"


def _trial(number: int, settings: Changes, name: str, done: Run | FedapaError) -> Trial:
    if isinstance(done, FedapaError):
        return Trial(number, settings, {}, name, str(done))
    mean = done.summary["over_rooms"]["mean"]
    scores = {str(goal): float(mean[goal]) for goal in GOALS if goal in mean}
    return Trial(number, settings, scores, name)


def _rank(trial: Trial, goal: Goal) -> tuple[bool, float, int]:
    """What sorts the best first; of equals the one that was tried first."""
    if goal not in trial.scores:
        return True, 0.0, trial.number
    return False, trial.scores[goal] * (1 if goal == "mae" else -1), trial.number


def _best(trials: Sequence[Trial], goal: Goal) -> Trial:
    best = min(trials, key=lambda trial: _rank(trial, goal))
    if goal in best.scores:
        return best
    if all(trial.problem for trial in trials):
        raise RunError(f"no trial finished; the first: {trials[0].problem}")
    raise PlanError(
        f"{goal}: no trial has it; mae means nothing for categories, and without validation "
        "windows there is nothing at all: raise --validation"
    )


def _value(document: Mapping[str, Any], key: str) -> float | int:
    section, _, name = key.partition(".")
    value = document[section][name]
    assert isinstance(value, int | float)  # a range is of numbers
    return value


def nested(changes: Changes) -> dict[str, dict[str, float | int]]:
    """As a change to a plan: "training.learning_rate" is a key of its section."""
    nested: dict[str, dict[str, float | int]] = {}
    for key, value in changes.items():
        section, _, name = key.partition(".")
        nested.setdefault(section, {})[name] = value
    return nested


def in_words(settings: Changes) -> str:
    """Settings as one says them: "learning_rate = 0.02, temperature = 0.5"."""
    return ", ".join(f"{key.partition('.')[2]} = {value:g}" for key, value in settings.items())


def _header(tuned: Tuned, commit: str) -> str:
    """Where the settings come from, as comments above the plan."""
    return (
        f"# {in_words(tuned.best.settings)}: chosen by 'fedapa tune' at commit {commit[:10]},\n"
        f"# trial {tuned.best.number} of {len(tuned.trials)}, by {tuned.goal} on {tuned.windows} "
        f"validation windows of seed {tuned.plan.seed}.\n"
        "# Test windows of this seed were not looked at; those of other seeds may have validated.\n"
    )
