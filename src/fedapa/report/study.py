"""The report of an experiment: tables, figures and one page that needs no network.

``page`` shows runs of one seed; this shows an experiment with all its seeds, settings and horizons:
``results.md``, a .tex file a table, a .png and an .svg a figure, and ``index.html`` with all of it.
"""

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from fedapa.errors import FedapaError
from fedapa.evaluation.results import Results, Setting
from fedapa.federation.plan import Plan
from fedapa.federation.prepare import GIVEN_ROOMS, prepare_rooms
from fedapa.federation.run import Run
from fedapa.files import write_text
from fedapa.report import charts, sheets
from fedapa.report.embedding import embed
from fedapa.report.figures import svg
from fedapa.report.markup import SIMULATED, frame, html_table, latex, markdown, markdown_text
from fedapa.report.pictures import save
from fedapa.report.tables import Sheet

__all__ = ["write_index", "write_study"]

Runs = Mapping[tuple[str, str, int], Run]
"""Finished runs by (setting name, row name, seed)."""

_FEATURED = ("local", "fedavg", "local-more-epochs", "fedapa-self", "fedapa")
"""Rows that are shown room by room, where they are there."""
_CONFUSED = ("local", "fedapa-self", "fedapa")
_MOST = 5
_DPI = 160
_BANNER = (
    "**SIMULATED rooms.** The windows behind these numbers were computed, not measured: they show "
    "that the software works, not how well people are counted in a real room."
)
_OURS = re.compile(
    r"settings\.tex|[a-z]+-(horizons|overall-\d+|differences(-mae)?|reach|rooms|published|sweep|"
    r"convergence|confusion|weights|embedding)\.(tex|png|svg)"
)
"""Files that a report writes."""
_PUBLISHED = "Published by the paper, on private data; not ours"


@dataclass
class _Report:
    """What is said once and written twice: as a page and as Markdown, with files beside them."""

    folder: Path
    parts: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    written: set[str] = field(default_factory=set)
    """Names of the files beside them."""

    def heading(self, level: int, text: str) -> None:
        self.parts.append(f"<h{level}>{html.escape(text)}</h{level}>")
        self.lines.append(f"{'#' * level} {markdown_text(text)}\n")

    def say(self, text: str, *, note: bool = False) -> None:
        self.parts.append(f"<p{' class=note' if note else ''}>{html.escape(text)}</p>")
        self.lines.append(f"{markdown_text(text)}\n")

    def points(self, texts: Sequence[str]) -> None:
        self.parts.append(f"<ul>{''.join(f'<li>{html.escape(each)}</li>' for each in texts)}</ul>")
        self.lines.append("\n".join(f"- {markdown_text(each)}" for each in texts) + "\n")

    def table(self, name: str, sheet: Sheet | None) -> None:
        if sheet is None:
            return
        self.parts.append(html_table(sheet))
        self.lines.append(markdown(sheet))
        file = f"{_file_name(name)}.tex"
        write_text(self.folder / file, latex(sheet))
        self.written.add(file)

    def figure(self, name: str, figure: Figure | None, about: str) -> None:
        if figure is None:
            return
        file = _file_name(name)
        for ending in ("png", "svg"):
            save(figure, self.folder / f"{file}.{ending}", dpi=_DPI)
            self.written.add(f"{file}.{ending}")
        self.parts.append(f"<figure>{svg(figure)}</figure>")
        self.lines.append(f"![{markdown_text(about)}]({file}.png)\n")

    def sweep_up(self) -> None:
        """Remove tables and figures of an earlier report: with other rounds, settings or data."""
        for path in self.folder.iterdir():
            if path.name not in self.written and _OURS.fullmatch(path.name):
                path.unlink()


def write_study(
    folder: Path,
    results: Results,
    runs: Runs,
    *,
    published: Mapping[str, Any] | None = None,
    embedding: bool = True,
) -> Path:
    """Write everything about an experiment into ``folder``; the page's path.

    Args:
        folder: made where it does not exist.
        results: of the experiment.
        runs: what stands behind the results, by (setting name, row name, seed); a part that needs
            a run which is not there is left out.
        published: the paper's figures: setting name → row name → {accuracy, macro_f1, mae}.
        embedding: whether to draw maps of embeddings; they need the runs' data again.
    """
    report = _Report(folder)
    report.heading(1, results.title)
    report.say(_about(results), note=True)
    if results.synthetic:
        report.parts.append(SIMULATED)
        report.lines.append(f"> {_BANNER}\n")
    if results.notes:
        report.points(results.notes)
    if not _is_sweep(results):
        report.table("settings", sheets.in_paper_layout(results))
    for setting in results.settings:
        report.heading(2, setting.title)
        if sheets.lines(setting):
            _swept(report, results, setting)
        else:
            _compared(report, setting, runs, embedding=embedding)
        _published(report, setting, (published or {}).get(setting.name, {}))
    _made(report, results, runs)
    write_text(folder / "results.md", "\n".join(report.lines))
    page = folder / "index.html"
    write_text(page, frame(results.title, report.parts))
    report.sweep_up()
    return page


def _is_sweep(results: Results) -> bool:
    return any(sheets.lines(setting) for setting in results.settings)


def _about(results: Results) -> str:
    """What was compared with what, in a sentence."""
    rows = [row for setting in results.settings for row in setting.rows]
    values = {row.value for row in rows if row.value is not None}
    what = (
        _number(len(values), "value") + f" of {results.parameter}"
        if results.parameter
        else f"{len({row.name for row in rows})} methods and controls"
    )
    horizons = sorted({each for setting in results.settings for each in setting.horizons})
    split = sorted({setting.data["split"] for setting in results.settings})
    return (
        f"Preset {results.preset}: {what} in {_number(len(results.settings), 'setting')} with "
        f"{_number(len(results.seeds), 'seed')} ({', '.join(map(str, results.seeds))}), split "
        f"{' and '.join(split)}, seen after {', '.join(map(str, horizons))} rounds. A figure is "
        f"the mean of the last {results.averaged} rounds up to there"
        f"{', or of all where there were fewer,' if horizons[0] < results.averaged else ','} on "
        f"test windows, never a best round. Data: {results.kind}."
    )


def _number(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _compared(report: _Report, setting: Setting, runs: Runs, *, embedding: bool) -> None:
    """A comparison of methods: figures, differences, curves, rooms, what they took for what."""
    name = setting.name
    report.heading(3, "Accuracy at every horizon")
    report.table(f"{name}-horizons", sheets.horizons(setting))
    report.heading(3, "All metrics")
    for horizon in setting.horizons:
        report.table(f"{name}-overall-{horizon}", sheets.overall(setting, horizon))
    if (sheet := sheets.differences(setting)) is not None:
        report.heading(3, "Differences, paired over seeds")
        verdicts = [sheets.verdict(setting, horizon) for horizon in setting.horizons]
        if said := [each for each in verdicts if each is not None]:
            report.points(said)
        report.table(f"{name}-differences", sheet)
        if sheets.counts(setting):
            report.table(f"{name}-differences-mae", sheets.differences(setting, metric="mae"))
    if (sheet := sheets.reach(setting)) is not None:
        report.heading(3, "Rounds and bytes to reach an accuracy")
        report.table(f"{name}-reach", sheet)
    _curves(report, setting)
    report.heading(3, "Room by room")
    featured = _featured(setting, setting.rounds)
    bars = charts.room_bars(setting, setting.rounds, featured)
    report.figure(f"{name}-rooms", bars, f"Accuracy room by room, {setting.title}")
    report.table(f"{name}-rooms", sheets.rooms(setting, setting.rounds, featured))
    _confused(report, setting, runs)
    _weighed(report, setting, runs)
    if embedding:
        _mapped(report, setting, runs)


def _swept(report: _Report, results: Results, setting: Setting) -> None:
    """A sweep: the parameter against the metrics, then how each value got there."""
    name = setting.name
    draw = charts.participation if len(sheets.lines(setting)) > 1 else charts.sweep
    about = f"{results.parameter}, {setting.title}"
    report.figure(f"{name}-sweep", draw(results, setting), about)
    report.table(f"{name}-sweep", sheets.sweep(results, setting))
    if len(setting.horizons) > 1:
        report.heading(3, "Accuracy at every horizon")
        report.table(f"{name}-horizons", sheets.horizons(setting))
    if (sheet := sheets.differences(setting)) is not None:
        report.heading(3, "Differences, paired over seeds")
        report.table(f"{name}-differences", sheet)
    _curves(report, setting)


def _curves(report: _Report, setting: Setting) -> None:
    report.heading(3, "Accuracy over rounds")
    about = f"Accuracy over rounds, {setting.title}"
    report.figure(f"{setting.name}-convergence", charts.convergence(setting), about)


def _featured(setting: Setting, horizon: int) -> list[str]:
    """At most five rows, those that matter first, in the order of the tables."""
    able = [
        row.name
        for row in sheets.grouped(setting.rows)
        if row.group != "blind" and row.metrics(horizon, "accuracy") is not None
    ]
    wanted = [name for name in dict.fromkeys((setting.reference, *_FEATURED)) if name in able]
    chosen = [*wanted, *(name for name in able if name not in wanted)][:_MOST]
    return [name for name in able if name in chosen]


def _confused(report: _Report, setting: Setting, runs: Runs) -> None:
    names = [row.name for row in setting.rows]
    wanted = [name for name in dict.fromkeys((*_CONFUSED, setting.reference)) if name in names]
    if len(wanted) < 2:
        wanted = _featured(setting, setting.rounds)[:3]
    found = {}
    for name in wanted:
        row = setting.row(name)
        mine = _runs_of(setting, name, runs)
        if row is not None and mine:
            found[row.title] = mine
    if found:
        report.heading(3, "What was taken for what")
        about = f"Confusion matrices, {setting.title}"
        report.figure(f"{setting.name}-confusion", charts.confusions(found, setting.title), about)


def _runs_of(setting: Setting, name: str, runs: Runs) -> list[Run]:
    row = setting.row(name)
    keys = [] if row is None else [(setting.name, name, each.seed) for each in row.outcomes]
    return [runs[key] for key in keys if key in runs]


def _weighed(report: _Report, setting: Setting, runs: Runs) -> None:
    """The weights between rooms of the reference's first seed, or of the first row that has any."""
    for row in sorted(setting.rows, key=lambda row: row.name != setting.reference):
        for run in _runs_of(setting, row.name, runs)[:1]:
            figure = charts.weights_over_time(run, f"{setting.title}. {row.title}")
            if figure is not None:
                report.heading(3, f"Who learns from whom ({row.title})")
                about = f"Weights between rooms over time, {setting.title}"
                report.figure(f"{setting.name}-weights", figure, about)
                return


def _mapped(report: _Report, setting: Setting, runs: Runs) -> None:
    """Maps of the embeddings of Local and the reference, side by side, first seed."""
    found = [
        (row.title, mine[0])
        for row in setting.rows
        if row.name in ("local", setting.reference)
        and (mine := _runs_of(setting, row.name, runs))
        and mine[0].plan.data.file != GIVEN_ROOMS
    ]
    if not found:
        return
    report.heading(3, "Where windows lie beside each other")
    try:
        rooms = prepare_rooms(found[0][1].plan)
        panels = [embed(run, rooms, title) for title, run in found]
    except FedapaError as error:  # the numbers above stand without it
        report.say(f"There is no map: {error}.", note=True)
        return
    said = (
        f"{setting.title}. t-SNE of the unit-length embeddings of all rooms' test windows after "
        "each run's last round, and of the class means of their train windows (prototypes); "
        "distances between far groups mean nothing. "
        f"{sheets.caption(setting)} · drawn for seed {found[0][1].plan.seed}"
    )
    about = f"Embedding map, {setting.title}"
    report.figure(f"{setting.name}-embedding", charts.embedding_map(panels, said), about)


def _published(
    report: _Report, setting: Setting, figures: Mapping[str, Mapping[str, float]]
) -> None:
    """The paper's numbers in a box of their own."""
    if not figures:
        return
    report.parts.append('<aside class="published">')
    report.heading(3, _PUBLISHED)
    report.table(f"{setting.name}-published", sheets.published_sheet(setting, figures))
    report.parts.append("</aside>")


def _made(report: _Report, results: Results, runs: Runs) -> None:
    """Commit, machine, packages, command, and the plan of a run."""
    made = results.environment
    report.heading(2, "How this was made")
    packages = ", ".join(f"{name} {version}" for name, version in made.get("packages", {}).items())
    facts = {
        "command": made.get("command"),
        "commit": ", ".join(results.commits),
        "machine": " · ".join(
            str(each)
            for each in (
                made.get("processor"),
                made.get("cores") and f"{made['cores']} cores",
                made.get("platform"),
            )
            if each
        ),
        "Python": made.get("python"),
        "packages": packages,
    }
    report.points([f"{name}: {value}" for name, value in facts.items() if value])
    for setting in results.settings:
        rows = sorted(setting.rows, key=lambda row: row.name != setting.reference)
        for title, run in [
            (row.title, run) for row in rows for run in _runs_of(setting, row.name, runs)[:1]
        ][:1]:
            report.parts.append(
                f"<details><summary>Plan of {html.escape(title)}, {html.escape(setting.title)}, "
                f"seed {run.plan.seed}</summary><pre>{html.escape(_plan(run))}</pre></details>"
            )


def _plan(run: Run) -> str:
    """A plan with its file by name: where it lies is nobody's business who reads the page."""
    file = run.plan.data.file
    if file is None:
        return run.plan.toml()
    return Plan.of(run.plan.document(), {"data": {"file": Path(file).name}}).toml()


def _file_name(text: str) -> str:
    """Letters, digits and dashes only."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def write_index(
    folder: Path, pages: Mapping[str, tuple[str, Path]], *, title: str = "FedAPA, reproduced"
) -> Path:
    """Put several experiments' pages into one file that needs none of them; its path.

    Args:
        folder: where ``index.html`` goes.
        pages: name → (title, page that ``write_study`` wrote), in the order to show.
        title: of the whole.
    """
    entries = "".join(
        f'<li><a href="#{html.escape(_file_name(name))}">{html.escape(called)}</a></li>'
        for name, (called, _) in pages.items()
    )
    parts = [f"<h1>{html.escape(title)}</h1>", f"<nav><ol>{entries}</ol></nav>"]
    for name, (_, page) in pages.items():
        body = page.read_text().partition("<main>")[2].rpartition("</main>")[0]
        parts.append(f'<section id="{html.escape(_file_name(name))}">{body}</section>')
    index = folder / "index.html"
    write_text(index, frame(title, parts))
    return index
