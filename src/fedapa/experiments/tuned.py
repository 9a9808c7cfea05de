"""The tuned edition of an experiment: every method with the settings that ``fedapa tune`` chose.

A table of methods with their default settings compares defaults, too. Here each row has, seed by
seed, the plan that a search of the same budget wrote; validation windows chose it. What is no
setting of a search (data, nets, rounds, all others) must be as in the experiment.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from fedapa.algorithms import find
from fedapa.errors import PlanError
from fedapa.experiments.conduct import folder_name
from fedapa.experiments.experiment import Base, Case, Experiment
from fedapa.experiments.tune import Changes, in_words, nested, tunables_of
from fedapa.federation.plan import Plan, differences
from fedapa.toml import read_toml

__all__ = ["tuned"]


@dataclass(frozen=True)
class _Choice:
    """What one search chose."""

    plan: Plan
    settings: Changes
    """Key of the plan → value."""
    budget: int
    windows: int
    """Of validation, behind every trial."""
    goal: str
    commit: str
    """Of the code that searched; nothing where it is not told."""
    place: Path


def tuned(experiment: Experiment, base: Base, folder: Path, *, seeds: int) -> Experiment:
    """The experiment with the settings of the searches in ``folder``; refuses unequal budgets.

    Args:
        experiment: whose cases are algorithms with the preset's settings.
        base: what its plans have in common; searches must have been made for the same.
        folder: where ``fedapa tune`` wrote, its --out.
        seeds: how many; each has searches of its own, since another seed splits otherwise.
    """
    if not folder.is_dir():
        raise PlanError(f"{folder}: no such folder; name the --out of 'fedapa tune'")
    usual = list(experiment.cases(base.plan))
    if any(set(case.change) != {"algorithm"} or case.joins for case in usual):
        raise PlanError(
            f"{experiment.name}: --tuned is for experiments whose rows are methods, such as table1"
        )
    fixed = [case for case in usual if find(str(case.algorithm)).fits_once]
    chosen = {
        case.name: {seed: _choice(folder, str(case.algorithm), seed) for seed in range(seeds)}
        for case in usual
        if case not in fixed
    }
    every = [choice for by_seed in chosen.values() for choice in by_seed.values()]
    if not every:
        raise PlanError(
            f"{experiment.name}: --tuned, and no row has anything to tune; choose others with "
            "--method, or leave --tuned out"
        )
    _check_budgets(every)
    for nets in experiment.settings:
        for case in usual:
            for seed, choice in chosen.get(case.name, {}).items():
                # A longer horizon goes on with the settings of the usual one.
                wanted = experiment.plan(
                    replace(base, long_rounds=0, all_long=False), nets, case, seed
                )
                _check_same(Plan.of(wanted.document(), nested(choice.settings)), choice)
    cases = [
        replace(case, by_seed={seed: nested(own.settings) for seed, own in by_seed.items()})
        if (by_seed := chosen.get(case.name))
        else case
        for case in usual
    ]
    return replace(
        experiment,
        name=f"{experiment.name}-tuned",
        title=f"{experiment.title}, tuned",
        cases=lambda _: cases,
        notes=(*experiment.notes, *_notes(every, cases, chosen, fixed)),
    )


def _choice(folder: Path, name: str, seed: int) -> _Choice:
    """What the search of an algorithm and a seed chose."""
    file = folder / f"{name}-seed{seed}.toml"
    if not file.is_file():
        raise PlanError(
            f"{file}: is not there; make it with 'fedapa tune {name} --seed {seed}', or choose "
            "rows with --method"
        )
    try:
        plan = Plan(**read_toml(file))
    except PlanError as error:
        raise PlanError(f"{file}: is no plan of a search ({error}); tune again") from error
    trials = file.with_suffix(".json")
    try:
        told = json.loads(trials.read_text())
        budget, windows = len(told["trials"]), int(told["validation_windows"])
        goal, commit = str(told["goal"]), str(told.get("commit", ""))
        best = {key: float(value) for key, value in _best(told)["settings"].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise PlanError(f"{trials}: holds no trials ({error}); tune again") from error
    document = plan.document()
    settings = {}
    for key in tunables_of(find(name), plan.rounds):
        section, _, setting = key.partition(".")
        settings[key] = document[section][setting]
    if settings != best:
        raise PlanError(
            f"{file}: has other settings ({in_words(settings)}) than the trial that was best "
            f"({in_words(best)}); nobody tried those: tune again with --resume"
        )
    return _Choice(plan, settings, budget, windows, goal, commit, file)


def _best(told: Mapping[str, Any]) -> Mapping[str, Any]:
    """The trial that was chosen."""
    number = int(told["best"])
    if not 1 <= number <= len(told["trials"]):
        raise ValueError(f"best is trial {number} of {len(told['trials'])}")
    return cast(Mapping[str, Any], told["trials"][number - 1])


def _check_budgets(choices: Sequence[_Choice]) -> None:
    """Refuse searches that had unequal chances."""
    for choice in choices[1:]:
        first = choices[0]
        if (choice.budget, choice.goal) != (first.budget, first.goal):
            raise PlanError(
                f"{choice.place}: had {choice.budget} trials by {choice.goal}, "
                f"{first.place.name} {first.budget} by {first.goal}; a comparison needs the same "
                "for all ('fedapa tune --resume --budget' goes on)"
            )
    first_of: dict[int, _Choice] = {}
    for choice in choices:
        first = first_of.setdefault(choice.plan.seed, choice)
        if choice.windows != first.windows:
            raise PlanError(
                f"{choice.place}: was judged by {choice.windows} validation windows, "
                f"{first.place.name} by {first.windows}; a comparison needs the same for all "
                "('fedapa tune --validation')"
            )


def _check_same(wanted: Plan, choice: _Choice) -> None:
    """Refuse a search that was made for another run than the experiment has."""
    if folder_name(wanted) == folder_name(choice.plan):
        return
    tuned, asked = choice.plan.document(), wanted.document()
    for document in (tuned, asked):  # the same file may have two paths
        document["data"].pop("file", None)
    told = "; ".join(differences(tuned, asked)) or "the data's content"
    raise PlanError(
        f"{choice.place}: was tuned for another run than this ({told}); tune with the preset, "
        "data, rounds and net of the experiment (nets: --architecture there, --setting here)"
    )


def _notes(
    choices: Sequence[_Choice],
    cases: Sequence[Case],
    chosen: Mapping[str, Mapping[int, _Choice]],
    fixed: Sequence[Case],
) -> list[str]:
    """Who chose what, and how."""
    windows = sorted({choice.windows for choice in choices})
    span = str(windows[0]) if len(windows) == 1 else f"{windows[0]} to {windows[-1]}"
    said = [
        f"Tuned: every method had the same budget, {choices[0].budget} trials for each seed, and "
        f"{span} validation windows chose among them by {choices[0].goal}; no test window was "
        f"looked at. The first trial is the preset's settings.{_searched_at(choices)}"
    ]
    for case in cases:
        told = [
            f"seed {seed}: {in_words(choice.settings)}"
            for seed, choice in chosen.get(case.name, {}).items()
        ]
        if told:
            said.append(f"{case.title}, chosen: {'; '.join(told)}.")
    if fixed:
        titles = " and ".join(case.title for case in fixed)
        said.append(f"{titles}: nothing to tune, since they fit once.")
    return said


def _searched_at(choices: Sequence[_Choice]) -> str:
    commits = sorted({choice.commit[:10] for choice in choices} - {""})
    return f" Searched at commit {', '.join(commits)}." if commits else ""
