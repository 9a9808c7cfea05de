"""Keep a study's results in this repository: ``python -m pages.kept STUDY docs/results/NAME``.

A study of a hundred runs writes megabytes of results.json. Kept are all rows and seeds, every
metric of every room after all rounds (and at the long horizon), and the accuracy over rounds: what
most tables are made of. Beside it go results.md and the figures as PNG, which come from the whole.
"""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedapa.errors import FedapaError
from fedapa.evaluation.results import Outcome, Results, Setting
from fedapa.experiments.poisoning import POISONING
from fedapa.experiments.protocol import CAUSES

__all__ = ["keep", "lean"]


def keep(study: Path, folder: Path) -> None:
    """Copy what is worth keeping of a study's folder."""
    results = lean(Results.load(study / "results.json"))
    folder.mkdir(parents=True, exist_ok=True)
    results.save(folder / "results.json")
    for path in sorted([study / "results.md", *study.glob("*.png")]):
        shutil.copyfile(path, folder / path.name)


def lean(results: Results) -> Results:
    """Without horizons before all rounds, and over rounds the accuracy alone.

    Where the rounds are a cause like others, all horizons stay. Of rooms that lie the means over
    the honest ones stay alone: hundreds of runs of thirty rooms would be megabytes.
    """
    every = results.experiment == CAUSES.name
    rooms = results.experiment != POISONING.name
    settings = [_lean_setting(setting, every=every, rooms=rooms) for setting in results.settings]
    return replace(results, settings=settings)


def _lean_setting(setting: Setting, *, every: bool, rooms: bool) -> Setting:
    last = [horizon for horizon in setting.horizons if every or horizon >= setting.rounds]
    rows = [
        replace(row, outcomes=[_lean_outcome(one, last, rooms=rooms) for one in row.outcomes])
        for row in setting.rows
    ]
    return replace(setting, horizons=last, rows=rows)


def _lean_outcome(outcome: Outcome, horizons: Sequence[int], *, rooms: bool) -> Outcome:
    curve = {name: values for name, values in outcome.curve.items() if name == "accuracy"}
    at = {
        str(horizon): outcome.at[str(horizon)] for horizon in horizons if str(horizon) in outcome.at
    }
    if not rooms:
        at = {horizon: {**told, "rooms": {}} for horizon, told in at.items()}
    return replace(outcome, curve=curve, at=at)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m pages.kept STUDY FOLDER")
    try:
        keep(Path(sys.argv[1]), Path(sys.argv[2]))
    except (FedapaError, OSError) as problem:
        sys.exit(str(problem))
