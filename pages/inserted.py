"""Tables in a hand-written page that are made from results.json: numbers nobody typed.

A page says ``<!-- table: simulated/table1 statistical horizons -->`` and what stands between that
and ``<!-- end -->`` is the table of that setting in ``simulated/table1/results.json`` beside it
(``differences:local`` are those of row local to all others). What attacks found has a form of its
own: ``<!-- leaks: leaks/quick membership -->``.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from fedapa.errors import PlanError, nearest
from fedapa.evaluation.results import Results, Setting
from fedapa.experiments.poisoning import under_attack
from fedapa.report.tables.comparison import (
    calibration,
    differences,
    horizons,
    over_time,
    overall,
    reach,
)
from fedapa.report.tables.leaks import leak_tables
from fedapa.report.tables.links import links_table
from fedapa.report.tables.margins import margins_table
from fedapa.report.tables.table import Table, markdown

__all__ = ["filled"]

_BLOCK = re.compile(
    r"<!-- table: (?P<experiment>\S+) (?P<setting>\S+) (?P<kind>\S+) -->\n.*?<!-- end -->",
    re.DOTALL,
)
_LEAKS = re.compile(r"<!-- leaks: (?P<folder>\S+) (?P<table>\S+) -->\n.*?<!-- end -->", re.DOTALL)
_KINDS: Mapping[str, Callable[[Results, Setting], Table | None]] = {
    "overall": lambda _, setting: overall(setting),
    "calibration": lambda _, setting: calibration(setting),
    "over-time": lambda _, setting: over_time(setting),
    "horizons": lambda _, setting: horizons(setting),
    "differences": lambda _, setting: differences(setting),
    "reach": lambda _, setting: reach(setting),
    "under-attack": lambda _, setting: under_attack(setting),
    "sweep": lambda results, setting: overall(setting, parameter=results.parameter),
    "margins": lambda _, setting: margins_table(setting),
    "links": lambda _, setting: links_table(setting),
}


def filled(text: str, folder: Path) -> str:
    """The page with every marked table made anew from the results under ``folder``."""

    def table(mark: re.Match[str]) -> str:
        experiment, name = mark["experiment"], mark["setting"]
        kind, _, row = mark["kind"].partition(":")
        results = Results.load(folder / experiment / "results.json")
        settings = {setting.name: setting for setting in results.settings}
        for word, known in ((name, list(settings)), (kind, list(_KINDS))):
            if word not in known:
                raise PlanError(
                    f"table of {experiment}: '{word}' is unknown; {nearest(word, known)}"
                )
        setting = settings[name]
        rows = [known.name for known in setting.rows] if kind == "differences" else []
        if row and row not in rows:
            raise PlanError(
                f"table of {experiment}: {kind} of '{row}' are not there; {nearest(row, rows)}"
            )
        made = differences(setting, row) if row else _KINDS[kind](results, setting)
        body = "nothing to show\n" if made is None else markdown(made)
        opening = f"<!-- table: {experiment} {name} {mark['kind']} -->"
        return f"{opening}\n\n{body.strip()}\n\n<!-- end -->"

    def leaks(mark: re.Match[str]) -> str:
        results = json.loads((folder / mark["folder"] / "results.json").read_text())
        tables = leak_tables(results)
        if mark["table"] not in tables:
            raise PlanError(
                f"table of {mark['folder']}: '{mark['table']}' is unknown; "
                f"{nearest(mark['table'], list(tables))}"
            )
        opening = f"<!-- leaks: {mark['folder']} {mark['table']} -->"
        return f"{opening}\n\n{markdown(tables[mark['table']]).strip()}\n\n<!-- end -->"

    return _LEAKS.sub(leaks, _BLOCK.sub(table, text))
