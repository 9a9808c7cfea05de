"""Tables: one place that decides what is shown and how numbers are written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from fedapa.algorithms import find
from fedapa.errors import PlanError
from fedapa.federation.run import Run

__all__ = [
    "HEADINGS",
    "Sheet",
    "caption",
    "check_comparable",
    "comparison",
    "per_room",
    "rich_table",
    "titles",
]

HEADINGS = {
    "accuracy": "Accuracy",
    "macro_f1": "Macro F1",
    "mae": "MAE (people)",
    "within_one": "Within ±1",
}
"""Metrics as tables call them, in their order."""


@dataclass(frozen=True)
class Sheet:
    """A table as text: a title, headings and rows."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    text_columns: int = 1
    """How many columns, from the left, are words; the others are numbers."""
    breaks: Sequence[int] = ()
    """Rows above which a line is drawn: where one group ends and the next begins."""
    spans: Sequence[tuple[str, int]] = ()
    """A line above the headings: a title and how many columns it stands over, from the left."""

    @property
    def plain_headings(self) -> list[str]:
        """One line of headings: those under a span with its title before them."""
        above = [title for title, width in self.spans for _ in range(width)]
        above += [""] * (len(self.headings) - len(above))
        return [
            f"{over}: {heading}" if over and heading else over or heading
            for over, heading in zip(above, self.headings, strict=True)
        ]


def check_comparable(first: Path, one: Run, second: Path, other: Run) -> None:
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
                f"{second}: its {what} ({theirs}) is not that of {first} ({mine}); report runs "
                f"that differ in their {what} on their own"
            )


def titles(runs: Sequence[Run]) -> list[str]:
    """What to call each run: its algorithm, and where that is not enough what sets it apart."""
    plain = [find(run.plan.algorithm["name"]).title for run in runs]
    if len(set(plain)) == len(plain):
        return plain
    settings = [run.plan.document() for run in runs]
    return [
        name
        if plain.count(name) == 1
        else f"{name} ({', '.join(_apart(mine, settings)) or run.folder.name})"
        for name, mine, run in zip(plain, settings, runs, strict=True)
    ]


def _apart(mine: Mapping[str, Any], all_of_them: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"{key} = {value}"
        for section in ("algorithm", "training", "model")
        for key, value in mine[section].items()
        if key != "name" and any(other[section].get(key) != value for other in all_of_them)
    ]


def caption(run: Run) -> str:
    """Where the numbers come from: data, split, seed, rounds."""
    kind = "SIMULATED data" if run.synthetic else "real data"
    return (
        f"{kind}: {run.data['source']} · split {run.data['split']} · seed {run.plan.seed} · "
        f"{run.plan.rounds} rounds, mean of the last {len(run.summary['averaged_rounds'])}"
    )


def comparison(runs: Sequence[Run]) -> Sheet:
    """Algorithms against each other, mean ± standard deviation over rooms, blind ones below."""
    metrics = [name for name in HEADINGS if name in runs[0].summary["over_rooms"]["mean"]]
    rows = []
    for title, run in zip(titles(runs), runs, strict=True):
        kind = find(run.plan.algorithm["name"])
        moved = _kilobytes(run.summary["bytes"]["per_round_and_room"])
        # Pooled training moves windows, which no message of ours carries.
        cost = "–" if kind.pools else moved
        rows.append([title, *_with_deviation(run.summary["over_rooms"], metrics), cost])
        for name, second in run.summary.get("also", {}).items():
            figures = _with_deviation(second["over_rooms"], metrics)
            rows.append([f"{title} ({name})", *figures, "–"])
    blind = runs[0].summary["blind"]
    for name, called in (
        ("constant", "Always the commonest class"),
        ("prior", "Class frequencies"),
    ):
        rows.append([called, *_with_deviation(blind[name], metrics), "–"])
    return Sheet(
        title="Mean ± standard deviation over rooms",
        headings=["Algorithm", *(HEADINGS[name] for name in metrics), "KB per round and room"],
        rows=rows,
        note=caption(runs[0]),
    )


def per_room(runs: Sequence[Run]) -> Sheet:
    """Each room's accuracy (and MAE where classes are counts) under each algorithm."""
    counts = "mae" in runs[0].summary["over_rooms"]["mean"]
    called = titles(runs)
    rows = []
    for room, about in sorted(runs[0].data["rooms"].items()):
        cells = [_number(run.summary["rooms"][room], "accuracy") for run in runs]
        if counts:
            cells += [_number(run.summary["rooms"][room], "mae") for run in runs]
        rows.append([room, about["architecture"], str(about["train"]), str(about["test"]), *cells])
    return Sheet(
        title="Rooms",
        headings=[
            "Room",
            "Net",
            "Train",
            "Test",
            *(f"{title} accuracy" for title in called),
            *(f"{title} MAE" for title in called if counts),
        ],
        rows=rows,
        note=caption(runs[0]),
        text_columns=2,
    )


def rich_table(sheet: Sheet) -> Table:
    """A sheet for the terminal."""
    table = Table(title=sheet.title, caption=sheet.note, box=box.SIMPLE_HEAD, title_justify="left")
    for index, heading in enumerate(sheet.plain_headings):
        table.add_column(heading, justify="left" if index < sheet.text_columns else "right")
    for index, row in enumerate(sheet.rows):
        if index in sheet.breaks:
            table.add_section()
        table.add_row(*row)
    return table


def _with_deviation(
    over_rooms: Mapping[str, Mapping[str, float]], metrics: Sequence[str]
) -> list[str]:
    cells = []
    for metric in metrics:
        mean, spread = over_rooms["mean"][metric], over_rooms["std"][metric]
        if metric == "mae":
            cells.append(f"{mean:.2f} ± {spread:.2f}")
        else:
            cells.append(f"{100 * mean:.1f} ± {100 * spread:.1f} %")
    return cells


def _number(metrics: Mapping[str, float], name: str) -> str:
    return f"{metrics[name]:.2f}" if name == "mae" else f"{100 * metrics[name]:.1f} %"


def _kilobytes(number: float) -> str:
    return f"{number / 1000:,.1f}"
