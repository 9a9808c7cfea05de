"""Tables in a hand-written page that are made from results.json: numbers nobody typed.

A page says ``<!-- table: simulated/table1 statistical horizons -->`` and what stands between that
and ``<!-- end -->`` is the sheet of that setting in ``simulated/table1/results.json`` beside it
(``differences:local`` are those of row local to all others):

    python -m fedapa.report.inserted docs/results/*.md
"""

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from fedapa.errors import PlanError, nearest
from fedapa.evaluation.results import Results, Setting
from fedapa.files import write_text
from fedapa.report import sheets
from fedapa.report.markup import markdown
from fedapa.report.tables import Sheet

__all__ = ["filled"]

_BLOCK = re.compile(
    r"<!-- table: (?P<study>\S+) (?P<setting>\S+) (?P<kind>\S+) -->\n.*?<!-- end -->", re.DOTALL
)
_KINDS: Mapping[str, Callable[[Results, Setting], Sheet | None]] = {
    "overall": lambda _, setting: sheets.overall(setting, setting.rounds),
    "horizons": lambda _, setting: sheets.horizons(setting),
    "differences": lambda _, setting: sheets.differences(setting),
    "reach": lambda _, setting: sheets.reach(setting),
    "sweep": sheets.sweep,
}


def filled(text: str, folder: Path) -> str:
    """The page with every marked table made anew from the results under ``folder``."""

    def table(found: re.Match[str]) -> str:
        study, name, (kind, _, row) = found["study"], found["setting"], found["kind"].partition(":")
        results = Results.load(folder / study / "results.json")
        settings = {setting.name: setting for setting in results.settings}
        for word, known in ((name, list(settings)), (kind, list(_KINDS))):
            if word not in known:
                raise PlanError(f"table of {study}: '{word}' is unknown; {nearest(word, known)}")
        rows = [each.name for each in settings[name].rows] if kind == "differences" else []
        if row and row not in rows:
            raise PlanError(
                f"table of {study}: {kind} of '{row}' are not there; {nearest(row, rows)}"
            )
        sheet = (
            sheets.differences(settings[name], row)
            if row
            else _KINDS[kind](results, settings[name])
        )
        body = "nothing to show\n" if sheet is None else markdown(sheet)
        return f"<!-- table: {study} {name} {found['kind']} -->\n\n{body.strip()}\n\n<!-- end -->"

    return _BLOCK.sub(table, text)


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:]):
        write_text(page, filled(page.read_text(), page.parent))
