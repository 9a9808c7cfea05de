"""Runs as results: one run is results with one seed, so all reports are made in one way."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedapa.algorithms import find
from fedapa.errors import PlanError, RunError
from fedapa.evaluation.links import exchanged as exchanged_of
from fedapa.evaluation.outcomes import BLIND, blind_row, outcome_of
from fedapa.evaluation.record import alternatives_in
from fedapa.evaluation.results import REFERENCE, Outcome, Results, Row, Setting, horizons_of
from fedapa.federation.run import Run
from fedapa.federation.run_files import read_times

__all__ = ["Runs", "load_runs", "results_of", "setting_of", "titles"]

Runs = Mapping[tuple[str, str, int], Run]
"""Finished runs by (setting name, row name, seed)."""


def load_runs(folders: Sequence[Path]) -> list[Run]:
    """Finished runs by their folders; one that holds none is refused with what to name instead."""
    for folder in folders:
        if not folder.is_dir():
            problem = "is no folder" if folder.exists() else "no such folder"
            raise RunError(f"{folder}: {problem}; name one that 'fedapa run' wrote (its --out)")
        if not (folder / "plan.toml").is_file():
            inside = [str(path.parent) for path in sorted(folder.glob("**/summary.json"))]
            remedy = (
                f" of its own; name those in it, e.g. {' '.join(inside[:2])}"
                if inside
                else "; name a folder that 'fedapa run' wrote (its --out)"
            )
            raise RunError(f"{folder}: holds no finished run{remedy}")
    return [Run.load(folder) for folder in folders]


def results_of(runs: Sequence[Run], *, title: str) -> tuple[Results, Runs]:
    """Runs of one seed that share their data, as the results of an experiment, and by their rows.

    The reference is FedAPA, or the first run where there is none of it.
    """
    names = [run.plan.algorithm["name"] for run in runs]
    named = {
        name if names.count(name) == 1 else f"{name}-{number}": run
        for number, (name, run) in enumerate(zip(names, runs, strict=True), start=1)
    }
    for run in runs[1:]:
        _check_comparable(runs[0], run)
    plan = runs[0].plan
    reference = REFERENCE if REFERENCE in named else next(iter(named))
    about, horizons = f"Runs with seed {plan.seed}", horizons_of(plan.rounds)
    empty = Setting("runs", about, plan.rounds, horizons, [], {}, reference)
    cases = [
        (Row(name, called, "paper", []), [run])
        for (name, run), called in zip(named.items(), titles(runs), strict=True)
    ]
    results = Results("runs", title, "", [setting_of(empty, cases)], [plan.seed], {})
    return results, {("runs", name, plan.seed): run for name, run in named.items()}


def _check_comparable(one: Run, other: Run) -> None:
    """Refuse to put runs side by side whose figures do not belong under one caption."""
    for what, mine, theirs in (
        ("data", one.data["source"], other.data["source"]),
        ("rooms", sorted(one.data["rooms"]), sorted(other.data["rooms"])),
        ("split", one.data["split"], other.data["split"]),
        ("seed", one.plan.seed, other.plan.seed),
        ("rounds", one.plan.rounds, other.plan.rounds),
    ):
        if mine != theirs:
            raise PlanError(
                f"{other.folder}: its {what} ({theirs}) is not that of {one.folder} ({mine}); "
                f"report runs that differ in their {what} on their own"
            )


def titles(runs: Sequence[Run]) -> list[str]:
    """What to call each run: its algorithm, and where that is not enough what sets it apart."""
    plain = [find(run.plan.algorithm["name"]).title for run in runs]
    plans = [run.plan.document() for run in runs]

    def apart(plan: Mapping[str, Any]) -> str:
        return ", ".join(
            f"{key} = {value}"
            for section in ("algorithm", "training", "model", "privacy")
            for key, value in plan.get(section, {}).items()
            if key != "name" and any(other.get(section, {}).get(key) != value for other in plans)
        )

    return [
        name if plain.count(name) == 1 else f"{name} ({apart(plan) or run.folder.name})"
        for name, plan, run in zip(plain, plans, runs, strict=True)
    ]


def setting_of(
    setting: Setting,
    cases: Sequence[tuple[Row, Sequence[Run]]],
    *,
    below: Path | None = None,
    exchanged: bool = False,
) -> Setting:
    """A setting with the rows of its runs, blind ones last, and what they say of their data.

    ``cases`` are rows still without outcomes, each with its runs, seed by seed. ``below`` is the
    directory that runs are named relative to; by default each is by its own name. ``exchanged``
    keeps what each round moved and cost.
    """
    rows: list[Row] = []
    for row, runs in cases:
        rows += _rows(row, runs, setting.horizons, below, exchanged=exchanged)
    # Nets first: what a model of numbers sees may be other than what all else do.
    first = min(cases, key=lambda case: _needs_numbers(case[1][0]))[1]
    blind = {run.plan.seed: run.summary["blind"] for run in first}
    rows += [blind_row(name, blind, setting.horizons) for name in BLIND]
    # A file by its name: where it lay is nobody's business who reads the results.
    data = {**first[0].data, "source": first[0].data["source"].rpartition("/")[2]}
    if others := _other_views(first[0], cases):
        data["other_views"] = others
    longest = max(outcome.rounds for row in rows for outcome in row.outcomes)
    reached = [horizon for horizon in setting.horizons if horizon <= longest]
    return replace(setting, rows=rows, data=data, horizons=reached)


def _needs_numbers(run: Run) -> bool:
    return find(run.plan.algorithm["name"]).needs_features


def _other_views(first: Run, cases: Sequence[tuple[Row, Sequence[Run]]]) -> str:
    """Whose windows are not seen as the data of the setting says, and how instead."""
    named: dict[str, list[str]] = {}
    for row, (run, *_) in cases:
        if (view := _view_of(run)) != _view_of(first):
            named.setdefault(view, []).append(row.title if row.value is None else row.group)
    return "; ".join(
        f"{' and '.join(dict.fromkeys(titles))}: {view}" for view, titles in named.items()
    )


def _view_of(run: Run) -> str:
    """What a run says of its windows ends with it."""
    return str(run.data.get("windows", "")).rpartition(", ")[2]


def _rows(
    row: Row,
    runs: Sequence[Run],
    horizons: Sequence[int],
    below: Path | None,
    *,
    exchanged: bool,
) -> list[Row]:
    """The row of some runs, and one for each alternative that was scored in every round."""
    outcomes: dict[str, list[Outcome]] = {}
    for run in runs:
        # Where another net is scored in between, as with fine-tuned copies: what counts.
        scored = run.plan.build().scored_rounds(run.plan.rounds)
        made = (run.environment, *run.environment.get("resumed", []))
        # A fine-tuned copy's alternative is the merged one, which FedAvg's row shows.
        alternatives = alternatives_in(run.records) if scored is None else []
        for alternative in ("", *alternatives):
            outcome = outcome_of(
                run.records,
                horizons,
                seed=run.plan.seed,
                run=run.folder.name if below is None else str(run.folder.relative_to(below)),
                commits=[str(environment["commit"]) for environment in made],
                scored=scored,
                alternative=alternative,
            )
            if exchanged:
                alone = find(run.plan.algorithm["name"]).travels == "nothing"
                moved = exchanged_of(run.records, read_times(run.folder), alone=alone)
                outcome = replace(outcome, exchanged=moved)
            outcomes.setdefault(alternative, []).append(outcome)
    return [
        replace(
            row,
            name=f"{row.name}.{alternative}" if alternative else row.name,
            title=f"{row.title} ({alternative})" if alternative else row.title,
            outcomes=by_seed,
            moves=not find(runs[0].plan.algorithm["name"]).pools,
        )
        for alternative, by_seed in outcomes.items()
        if len(by_seed) == len(runs)
    ]
