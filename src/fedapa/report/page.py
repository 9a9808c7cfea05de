"""The report of results: tables, figures and one page that needs no network and no script.

An experiment's folder gets ``results.md``, a .tex file per table, a .png and an .svg per figure,
and ``index.html`` with all of it; runs get the same page alone.
"""

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from matplotlib.figure import Figure

from fedapa import algorithms
from fedapa.algorithms.local import Local
from fedapa.csi.capture import data_kind
from fedapa.errors import FedapaError
from fedapa.evaluation.record import UPLOAD, not_taken, privacy_spent, suspects, uncompared
from fedapa.evaluation.results import Results, Setting
from fedapa.evaluation.theory import theory_of
from fedapa.evaluation.verdict import answers
from fedapa.federation.plan import Plan
from fedapa.federation.prepare import GIVEN_ROOMS, prepare_rooms
from fedapa.federation.run import Run
from fedapa.files import write_text
from fedapa.report.captions import caption, choices, data_text, number_of, without_labels
from fedapa.report.figures.curves import convergence, room_curves
from fedapa.report.figures.embedding import embedding_map, embedding_of
from fedapa.report.figures.presence import presence_rocs
from fedapa.report.figures.reliability import reliability_diagrams
from fedapa.report.figures.rooms import confusion_matrices, room_bars, weights_over_time
from fedapa.report.figures.sweeps import sweep
from fedapa.report.figures.theory import theory_figure
from fedapa.report.runs import Runs, results_of
from fedapa.report.style import save, svg
from fedapa.report.tables import comparison
from fedapa.report.tables.newcomers import until_it_counts
from fedapa.report.tables.table import (
    Table,
    html_table,
    latex,
    markdown,
    markdown_text,
    reached_by_key,
)
from fedapa.report.tables.theory import theory_table

__all__ = ["Lead", "Report", "write_index", "write_report", "write_run_page"]

_MOST = 5
_MOST_TOLD = 20
"""Uploads that were not taken: so many are told one by one."""
_DPI = 160
_SIMULATED = f"{data_kind(True)} rooms."
_COMPUTED = (
    "The windows behind these numbers were computed, not measured: they show that the software "
    "works, not how well people are counted in a real room."
)
_MEANINGS = {
    "accuracy": "Accuracy is the share of test windows in which the most probable class is right.",
    "macro_f1": "F1 of a class is high where few of its windows are missed and few others taken "
    "for it; macro F1 is the mean over classes, rare ones included.",
    "macro_f1_answered": "“Answered too” also counts classes that were answered and never there, "
    "with an F1 of 0, as scikit-learn's f1_score does.",
    "mae": "MAE, the mean absolute error, is how many people the answer is off by on average.",
    "within_one": "Within ±1 is the share of windows in which it is off by one person at most.",
    "mae_median": "The median's MAE is that of the median of the probabilities, which model files "
    "answer with.",
    "activity.accuracy": "The activity's accuracy is that of the second task of a net with two.",
}
"""Metrics in words, for who reads a page alone."""
_SPLITS = {
    "day": "Split day: a room is tested on days that it did not train on.",
    "later": "Split later: a room trains on its first days and is tested on its last.",
    "recording": "Split recording: a room is tested on recordings that it did not train on.",
    "blocked": "Split blocked: a room is tested on other parts of recordings that it trained on.",
    "random": "Split random: test windows may lie beside train windows, which flatters.",
}
"""How windows to test on were chosen, in words."""
_OURS = re.compile(
    r"settings\.tex|answer-\d+\.(tex|png|svg)|[a-z]+-(horizons|overall-\d+|over-time|days|"
    r"differences(-mae(-median)?|-activity-accuracy)?|reach|rooms|soon|"
    r"room-curves|published|sweep|convergence|confusion|reliability|calibration|presence|weights(-[a-z0-9-]+)?|theory-[a-z0-9-]+|embedding)\.(tex|png|svg)"
)
"""Files that a report writes."""


_MOST_CURVES = 16
"""Over rounds in one figure; a legend of more does not fit."""


@dataclass
class Report:
    """What is said once and written twice: as a page and as Markdown, with files beside them."""

    title: str
    folder: Path | None = None
    """Where tables and figures go as files; none for a page alone."""
    parts: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    written: set[str] = field(default_factory=set)
    """Names of the files beside them."""

    def __post_init__(self) -> None:
        self.heading(1, self.title)

    def heading(self, level: int, text: str) -> None:
        """A heading of the page or of a part of it."""
        self.parts.append(f"<h{level}>{html.escape(text)}</h{level}>")
        self.lines.append(f"{'#' * level} {markdown_text(text)}\n")

    def say(self, text: str, *, kind: Literal["", "answer", "note"] = "") -> None:
        """A paragraph: the answer in larger letters, a note in smaller ones."""
        self.parts.append(f"<p{f' class={kind}' if kind else ''}>{html.escape(text)}</p>")
        self.lines.append(f"{markdown_text(text)}\n")

    def answers(self, results: Results) -> None:
        """Who counts best, in a sentence for each setting: what a reader wants to know first."""
        for sentence in answers(results):
            self.say(sentence, kind="answer")

    def simulated(self) -> None:
        """The warning that rooms were simulated."""
        self.parts.append(f'<p class="simulated"><strong>{_SIMULATED}</strong> {_COMPUTED}</p>')
        self.lines.append(f"> **{_SIMULATED}** {_COMPUTED}\n")

    def points(self, texts: Sequence[str]) -> None:
        """A list; nothing where it is empty."""
        if texts:
            items = "".join(f"<li>{html.escape(text)}</li>" for text in texts)
            self.parts.append(f"<ul>{items}</ul>")
            self.lines.append("\n".join(f"- {markdown_text(text)}" for text in texts) + "\n")

    def folded(self, summary: str, text: str) -> None:
        """Text that a reader opens; on the page only."""
        self.parts.append(
            f"<details><summary>{html.escape(summary)}</summary><pre>{html.escape(text)}</pre>"
            "</details>"
        )

    def table(self, name: str, table: Table | None) -> None:
        """A table, where there is one."""
        if table is None:
            return
        self.parts.append(html_table(table))
        self.lines.append(markdown(table))
        if self.folder is not None:
            file = f"{_file_name(name)}.tex"
            write_text(self.folder / file, latex(table))
            self.written.add(file)

    def figure(self, name: str, figure: Figure, about: str) -> None:
        """A figure; ``about`` says what it shows to those who do not see it."""
        file = _file_name(name)
        self.parts.append(f"<figure{reached_by_key(about)}>{svg(figure)}</figure>")
        self.lines.append(f"![{markdown_text(about)}]({file}.png)\n")
        if self.folder is not None:
            for ending in ("png", "svg"):
                save(figure, self.folder / f"{file}.{ending}", dpi=_DPI)
                self.written.add(f"{file}.{ending}")

    def page(self, path: Path) -> Path:
        """Write the page alone; its parts stand between ``<main>`` and ``</main>``."""
        css = (resources.files(__package__) / "page.css").read_text().strip()
        body = "\n".join(self.parts)
        write_text(
            path,
            "<!doctype html>\n"
            f'<html lang="en"><head><meta charset="utf-8"><title>{html.escape(self.title)}</title>'
            '<meta name="color-scheme" content="light dark">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<style>{css}</style></head><body><main>\n{body}\n</main></body></html>\n",
        )
        return path

    def finish(self, folder: Path) -> Path:
        """Write page and Markdown, and remove tables and figures of an earlier report."""
        write_text(folder / "results.md", "\n".join(self.lines))
        page = self.page(folder / "index.html")
        for path in folder.iterdir():
            if path.name not in self.written and _OURS.fullmatch(path.name):
                path.unlink()
        return page


def _file_name(text: str) -> str:
    """Letters, digits and dashes only."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


# ---- what is written ----------------------------------------------------------------------------


def write_report(
    folder: Path,
    results: Results,
    runs: Runs,
    *,
    published: Mapping[str, Any] | None = None,
    first: Sequence[Table] = (),
    figures: Sequence[Figure] = (),
) -> Path:
    """Write everything about an experiment into ``folder``, made where there is none; the page.

    A part that needs a run which is not among ``runs`` is left out. ``published`` are the paper's
    figures: setting name → row name → {accuracy, macro_f1, mae}. ``first`` are tables of the
    experiment's own, which answer its question, and ``figures`` its own figures.
    """
    report = Report(results.title, folder)
    report.answers(results)
    for number, table in enumerate(first):
        report.table(f"answer-{number}", table)
    for number, figure in enumerate(figures):
        report.figure(f"answer-{number}", figure, results.title)
    _fill(report, results, runs, published or {})
    return report.finish(folder)


@dataclass(frozen=True, eq=False)
class Lead:
    """What a page shows before its tables."""

    heading: str
    text: str
    figure: Figure | None = None
    table: Table | None = None


def write_run_page(
    path: Path, runs: Sequence[Run], *, title: str, lead: Lead | None = None
) -> Results:
    """Write the page of finished runs that share their data and seed; their results."""
    results, named = results_of(runs, title=title)
    report = Report(title)
    report.answers(results)
    if lead is not None:
        report.heading(2, lead.heading)
        report.say(lead.text)
        if lead.figure is not None:
            report.figure("lead", lead.figure, lead.heading)
        report.table("lead", lead.table)
    _fill(report, results, named, {})
    report.page(path)
    return results


def write_index(folder: Path, pages: Mapping[str, tuple[str, Path]]) -> Path:
    """Put several experiments' pages into one ``index.html`` that needs none of them; its path.

    ``pages``: name → (title, page that ``write_report`` wrote), in the order to show.
    """
    report = Report("FedAPA, reproduced")
    entries = "".join(
        f'<li><a href="#{_file_name(name)}">{html.escape(called)}</a></li>'
        for name, (called, _) in pages.items()
    )
    report.parts.append(f"<nav><ol>{entries}</ol></nav>")
    for name, (_, page) in pages.items():
        body = page.read_text().partition("<main>")[2].rpartition("</main>")[0]
        report.parts.append(f'<section id="{_file_name(name)}">{body}</section>')
    return report.page(folder / "index.html")


# ---- what is said -------------------------------------------------------------------------------


def _fill(report: Report, results: Results, runs: Runs, published: Mapping[str, Any]) -> None:
    """Everything about results."""
    report.say(_about(results), kind="note")
    if results.synthetic:
        report.simulated()
    chosen = [said for setting in results.settings for said in choices(setting.data)]
    if not results.parameter:  # else it may differ from row to row
        chosen += [said for setting in results.settings for said in without_labels(setting.data)]
    report.points([*dict.fromkeys(chosen), *results.notes])
    _not_taken(report, runs)
    _privacy(report, runs)
    _suspected(report, runs)
    if not results.parameter:
        report.table("settings", comparison.in_paper_layout(results))
    parts = [_Part(report, setting, runs) for setting in results.settings]
    for part in parts:
        report.heading(2, part.setting.title)
        if part.setting.lines:
            part.sweep(results)
        else:
            part.comparison()
            part.rooms()
            if report.folder is not None:  # of lone runs the data may be long gone
                part.maps()
        part.published(published.get(part.setting.name, {}))
    report.heading(2, "How this was made")
    if results.environment:
        report.points(_facts({**results.environment, "commit": ", ".join(results.commits)}))
    for part in parts:
        part.plans(told=not results.environment)


def _not_taken(report: Report, runs: Runs) -> None:
    """What rooms did not contribute though they were asked, where there is any."""
    told = []
    for (_, name, seed), run in sorted(runs.items(), key=lambda item: item[0]):
        for entry in not_taken(run.records):
            what = UPLOAD[entry["what"]]
            told.append(
                f"{name}, seed {seed}, round {entry['round']}: the upload of room "
                f"'{entry['room']}' {what}: {entry['reason']}"
            )
    meaning = "In these rounds a room counts as absent; the others went on."
    _listed(report, "Uploads that were not taken", meaning, told)


def _suspected(report: Report, runs: Runs) -> None:
    """Which rooms the server's defence suspects, where there is one; and who really lied."""
    told = []
    for (_, name, seed), run in sorted(runs.items(), key=lambda item: item[0]):
        lying = set(run.records[-1].get("attackers", ()))
        if lying:
            told.append(
                f"{name}, seed {seed}: this run has attackers by its plan "
                f"({run.plan.attack.kind if run.plan.attack else ''}): {', '.join(sorted(lying))}; "
                "means over rooms hold them, too"
            )
        for one in suspects(run.records):
            really = f" (an attacker of this experiment: {'yes' if one['room'] in lying else 'no'})"
            told.append(
                f"{name}, seed {seed}: room '{one['room']}' in {one['rounds']} of {one['judged']} "
                f"rounds{really if lying else ''}: {one['reason']}"
            )
        told += [
            f"{name}, seed {seed}: {note}" for note in uncompared(run.summary.get("notes", []))
        ]
    meaning = (
        "What suspected rooms sent was moved towards what the others say, or cut off. A suspect "
        "need not be a liar. What can be compared with nobody counts as it came."
    )
    _listed(report, "Rooms that lie or are suspected", meaning, told)


def _listed(report: Report, heading: str, meaning: str, told: Sequence[str]) -> None:
    """Things that happened in runs, the first of them; nothing where there are none."""
    if told:
        report.heading(2, heading)
        report.say(meaning)
        more = [f"and {len(told) - _MOST_TOLD} more, see rounds.jsonl of the runs"]
        report.points([*told[:_MOST_TOLD], *(more if len(told) > _MOST_TOLD else [])])


def _privacy(report: Report, runs: Runs) -> None:
    """What noised sets have cost each room, and what that says, where there are any."""
    private = {key: runs[key] for key in sorted(runs) if runs[key].plan.privacy.is_on}
    if not private:
        return
    report.heading(2, "Differential privacy")
    for sentence in dict.fromkeys(run.plan.privacy.claim() for run in private.values()):
        report.say(sentence)
    told = []
    for (_, name, seed), run in private.items():
        spent = privacy_spent(run.records)
        rooms = ", ".join(
            f"{room} {own['epsilon']:.3g} ({own['releases']:.0f})" for room, own in spent.items()
        )
        told.append(
            f"{name}, seed {seed}: ε of {run.plan.privacy.epsilon:g} spent (releases): {rooms}"
        )
    more = [f"and {len(told) - _MOST_TOLD} more, see summary.json of the runs"]
    report.points([*told[:_MOST_TOLD], *(more if len(told) > _MOST_TOLD else [])])


def _about(results: Results) -> str:
    """What was compared with what, in a sentence."""
    rows = [row for setting in results.settings for row in setting.rows]
    values = {row.value for row in rows if row.value is not None}
    what = f"{len({row.name for row in rows})} methods and controls"
    if results.parameter:
        what = f"{number_of(len(values), 'value')} of {results.parameter}"
    horizons = sorted({mark for setting in results.settings for mark in setting.horizons})
    split = sorted({setting.data["split"] for setting in results.settings})
    return (
        f"{f'Preset {results.preset}: ' if results.preset else ''}{what} in "
        f"{number_of(len(results.settings), 'setting')} with "
        f"{number_of(len(results.seeds), 'seed')} ({', '.join(map(str, results.seeds))}), split "
        f"{' and '.join(split)}, seen after {', '.join(map(str, horizons))} rounds. "
        f"{_averaged(results.averaged, horizons[0])} Data: {results.kind}."
    )


def _averaged(rounds: int, first: int) -> str:
    """What a figure is, in a sentence."""
    if rounds == 1:
        return "A figure is of the model files, the nets after the last round."
    fewer = ", or of all where there were fewer," if first < rounds else ","
    return (
        f"A figure is the mean of the last {rounds} rounds up to there{fewer} on test windows, "
        "never a best round."
    )


@dataclass(frozen=True)
class _Part:
    """One setting of some results, and where it is told."""

    report: Report
    setting: Setting
    runs: Runs

    def table(self, name: str, table: Table | None) -> None:
        self.report.table(f"{self.setting.name}-{name}", table)

    def figure(self, name: str, figure: Figure, about: str) -> None:
        self.report.figure(f"{self.setting.name}-{name}", figure, f"{about}, {self.setting.title}")

    @cached_property
    def titles(self) -> dict[str, str]:
        return {row.name: row.title for row in self.setting.rows}

    @cached_property
    def kinds(self) -> list[type[algorithms.Algorithm]]:
        """The algorithms of the runs, each once."""
        names = dict.fromkeys(run.plan.algorithm["name"] for run in self.runs.values())
        return [algorithms.find(name) for name in names]

    @cached_property
    def claiming(self) -> list[str]:
        """The reference, and the algorithms that a claim rests on."""
        kinds = [algorithms.find(name) for name in algorithms.names()]
        return [self.setting.reference, *(kind.name for kind in kinds if kind.carries_claim)]

    @cached_property
    def featured(self) -> list[str]:
        """A few rows, those that matter first, in the order of the tables; of lone runs all."""
        most = len(self.runs) if self.report.folder is None else _MOST
        able = [
            row.name
            for row in self.setting.ordered
            if row.group != "blind" and row.metrics(self.setting.rounds, "accuracy") is not None
        ]
        chosen = sorted(able, key=lambda name: name not in self.claiming)[:most]
        return [name for name in able if name in chosen]

    def runs_of(self, names: Sequence[str]) -> dict[str, list[Run]]:
        """Row name → its runs, of rows that have any."""
        by_row = {
            name: [run for key, run in self.runs.items() if key[:2] == (self.setting.name, name)]
            for name in names
        }
        return {name: runs for name, runs in by_row.items() if runs}

    def explain(self, *sentences: str) -> None:
        """What the words of the next table mean; who reads a study knows them."""
        if self.report.folder is None:
            self.report.say(" ".join(sentences), kind="note")

    def comparison(self) -> None:
        """A comparison of methods: all figures, differences, curves."""
        setting = self.setting
        self.report.heading(3, "Accuracy at every horizon")
        self.explain(
            "In a round every room trains once and may exchange something; a horizon is a number "
            "of rounds after which results are compared.",
            *(_SPLITS[kind] for kind in _SPLITS if kind == setting.data["split"]),
            *(f"{kind.title}: {algorithms.summary_of(kind)}." for kind in self.kinds),
        )
        self.table("horizons", comparison.horizons(setting))
        self.report.heading(3, "All metrics")
        self.explain(*(_MEANINGS[name] for name in comparison.metrics_of(setting, _MEANINGS)))
        for horizon in setting.horizons:
            self.table(f"overall-{horizon}", comparison.overall(setting, horizon))
        if (table := comparison.over_time(setting)) is not None:
            self.report.heading(3, "Counting over time")
            self.table("over-time", table)
        self.differences("accuracy", "mae_median", "mae", "activity.accuracy")
        if (table := comparison.reach(setting)) is not None:
            self.report.heading(3, "Rounds and bytes to reach an accuracy")
            self.table("reach", table)
        self.curves()

    def sweep(self, results: Results) -> None:
        """A sweep: the parameter against the metrics, then how each value got there."""
        self.figure("sweep", sweep(results, self.setting), results.parameter)
        parameter = results.parameter or "value"
        if self.setting.final:
            self.table("days", comparison.by_value(self.setting, parameter))
            summed = replace(self, setting=self.setting.summed)
            summed.differences("accuracy", "mae_median")
            return
        self.table("sweep", comparison.overall(self.setting, parameter=parameter))
        self.table("presence", comparison.presence(self.setting, parameter=parameter))
        self.table("soon", until_it_counts(self.setting, self.runs, parameter=parameter))
        if len(self.setting.horizons) > 1:
            self.report.heading(3, "Accuracy at every horizon")
            self.table("horizons", comparison.horizons(self.setting))
        self.differences("accuracy", "mae_median")
        if len(self.setting.rows) <= _MOST_CURVES:
            self.curves()

    def differences(self, *metrics: str) -> None:
        if self.setting.row(self.setting.reference) is not None:
            self.report.heading(3, "Differences, paired over seeds")
            for metric in comparison.metrics_of(self.setting, metrics):
                name = "differences" if metric == "accuracy" else f"differences-{metric}"
                self.table(name, comparison.differences(self.setting, metric=metric))

    def curves(self) -> None:
        self.report.heading(3, "Accuracy over rounds")
        self.figure("convergence", convergence(self.setting), "Accuracy over rounds")

    def rooms(self) -> None:
        """Room by room, confusion matrices, and the weights between rooms."""
        setting, titles = self.setting, self.titles
        self.report.heading(3, "Room by room")
        self.figure("rooms", room_bars(setting, self.featured), "Accuracy room by room")
        self.table("rooms", comparison.rooms(setting, self.featured))
        # Between its points, a row that is scored at some rounds only is another net's.
        partly = [row.name for row in setting.rows if row.outcomes[0].scored is not None]
        if scored := self.runs_of([name for name in self.featured if name not in partly]):
            curves = {name: (titles[name], runs) for name, runs in scored.items()}
            about = "Accuracy over rounds, room by room"
            self.figure("room-curves", room_curves(curves, setting.title), about)
        wanted = [name for name in titles if name in self.claiming]
        if counted := self.runs_of(wanted if len(wanted) > 1 else self.featured[:3]):
            self.report.heading(3, "Confusion matrices")
            self.explain("A row is the true class, a column what its windows were taken for.")
            named = {titles[name]: runs for name, runs in counted.items()}
            self.figure("confusion", confusion_matrices(named, setting.title), "Confusion matrices")
        named = {titles[name]: runs for name, runs in self.runs_of(self.featured).items()}
        if (figure := reliability_diagrams(named, setting.title)) is not None:
            self.report.heading(3, "Can the probabilities be believed")
            self.figure("reliability", figure, "Reliability diagrams")
            self.table("calibration", comparison.calibration(setting))
        figure, table = presence_rocs(named, setting.title), comparison.presence(setting)
        if figure is not None or table is not None:
            self.report.heading(3, "Is anybody there")
        if figure is not None:
            self.figure("presence", figure, "Presence: ROC")
        self.table("presence", table)
        # Of the first seed, the reference's first.
        order = sorted(self.featured, key=lambda name: name != setting.reference)
        for name, (run, *_) in self.runs_of(order).items():
            figure = weights_over_time(run, f"{setting.title}. {titles[name]}")
            if figure is not None:
                self.report.heading(3, f"Who learns from whom ({titles[name]})")
                self.explain("How much each room's mixture takes of every other room's prototypes.")
                file = "weights" if name == setting.reference else f"weights-{name}"
                self.figure(file, figure, "Weights between rooms over time")
        for name, (run, *_) in self.runs_of(order).items():
            self._theory(name, run)

    def _theory(self, name: str, run: Run) -> None:
        """The convergence theory beside a run that was diagnosed."""
        settings = run.plan.algorithm
        theory = theory_of(run.records, warm_rounds=settings.get("warm_rounds", 0))
        if theory is None:
            return
        is_adaptive = settings.get("mixture") == "adaptive"  # a mean has no temperature
        told: dict[str, Any] = {
            "rooms": len(run.data["rooms"]),
            "temperature": settings.get("aggregation_temperature") if is_adaptive else None,
            "about": f"{data_text(run.data, [run.plan.seed])} · commit "
            f"{str(run.environment['commit'])[:10]}",
        }
        self.report.heading(3, f"The theory, measured ({self.titles[name]})")
        self.figure(f"theory-{name}", theory_figure(theory, **told), "The theory, measured")
        self.table(f"theory-{name}", theory_table(theory, **told))

    def maps(self) -> None:
        """Embedding maps of Local and the reference, side by side, first seed."""
        wanted = [name for name in self.titles if name in (Local.name, self.setting.reference)]
        mapped = {
            self.titles[name]: run
            for name, (run, *_) in self.runs_of(wanted).items()
            if run.plan.data.file != GIVEN_ROOMS
        }
        if not mapped:
            return
        plan = next(iter(mapped.values())).plan
        self.report.heading(3, "Embedding map")
        try:
            rooms = prepare_rooms(plan)
            panels = [embedding_of(run, rooms, title) for title, run in mapped.items()]
        except FedapaError as error:  # the numbers above stand without it
            self.report.say(f"There is no map: {error}.", kind="note")
            return
        said = (
            f"{self.setting.title}. t-SNE of the unit-length embeddings of all rooms' test windows "
            "after each run's last round, and of the class means of their train windows "
            "(prototypes); distances between far groups mean nothing. "
            f"{caption(self.setting)} · drawn for seed {plan.seed}"
        )
        self.figure("embedding", embedding_map(panels, said), "Embedding map")

    def published(self, figures: Mapping[str, Mapping[str, float]]) -> None:
        """The paper's numbers in a box of their own."""
        if figures:
            self.report.parts.append('<aside class="published">')
            self.report.heading(3, "Published by the paper, on private data; not ours")
            self.table("published", comparison.published_table(self.setting, figures))
            self.report.parts.append("</aside>")

    def plans(self, *, told: bool) -> None:
        """The plans of the rows that matter; ``told`` what each was made with."""
        for name, (run, *_) in self.runs_of(self.featured).items():
            title = f"{self.titles[name]}, {self.setting.title}"
            if told:
                self.report.say(f"{title}: {'; '.join(_facts(run.environment))}")
            # A file by its name: where it lies is nobody's business who reads the page.
            file = run.plan.data.file and {"file": Path(run.plan.data.file).name}
            plan = Plan.of(run.plan.document(), {"data": file or {}})
            self.report.folded(f"Plan of {title}, seed {run.plan.seed}", plan.toml())


def _facts(made: Mapping[str, Any]) -> list[str]:
    """What something was made with."""
    cores, packages = made.get("cores"), made.get("packages", {})
    machine = (made.get("processor"), cores and f"{cores} cores", made.get("platform"))
    facts = {
        "command": made.get("command"),
        "commit": made.get("commit"),
        "machine": " · ".join(str(part) for part in machine if part),
        "workers": made.get("workers"),
        "Python": made.get("python"),
        "packages": ", ".join(f"{name} {version}" for name, version in packages.items()),
    }
    return [f"{name}: {value}" for name, value in facts.items() if value not in (None, "")]
