"""When does the exchange help: what it adds to the same rooms alone, over all committed studies.

A case is a study's setting at some number of labels. In each, some exchanges are held against what
their rooms reach without: FedAvg against Local, since both minimise the same loss; FedAPA and
FedJoin against their own losses without exchange where that was run, else against Local; the
pooled newcomer against Local.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from fedapa.evaluation.results import Paired, Results, Row, Setting
from fedapa.report.style import MARKERS, PALETTE, drawn
from fedapa.report.tables.table import Table, markdown

__all__ = ["CASES", "Case", "Gain", "gains_figure", "gains_of", "gains_table", "with_table"]

_OPEN, _END = "<!-- gains -->", "<!-- end -->"
_KINDS = {
    "fedavg": "FedAvg",
    "fedapa": "FedAPA",
    "fedjoin": "FedJoin",
    "pooled-newcomer": "raw windows of all",
}
"""What is held against rooms alone, and what it is called here."""


@dataclass(frozen=True)
class Case:
    """One line of the figure: where its rows are."""

    group: str
    label: str
    experiment: str
    setting: str
    suffix: str = ""
    """What row names end with: "-1" is one label of every class."""


def _by_label(group: str, experiment: str, *labels: str) -> list[Case]:
    """A case for each value of a joining study, by which its rows end."""
    return [Case(group, label, f"joining/{experiment}", "rooms", f"-{label}") for label in labels]


_HALVES = ("lower half labelled", "upper half labelled", "every second labelled")
_ALL = "All rooms with all labels (table 1)"
_TUNED = "All rooms with all labels, every method tuned"
_PROTOCOL = "The paper's protocol, simulated, windows drawn at random"
CASES = (
    *_by_label(
        "A new room among simulated ones, labelled recordings of every count",
        "quick-onboarding",
        *("1", "2", "4", "8", "16", "17"),
    ),
    *_by_label(
        "The same with a convolutional net, seen as spectra",
        "quick-onboarding-spectrum",
        *("1", "2", "4", "8", "12"),
    ),
    *_by_label(
        "A new room on Wi-CaL (real), labelled windows of every count",
        "wical-onboarding",
        *("3", "10", "30", "100", "140"),
    ),
    *_by_label(
        "A new placement on WiAR (real), repetitions of every activity",
        "wiar-onboarding",
        *("1", "2", "4", "7"),
    ),
    *_by_label("Half of the counts never labelled, simulated", "quick-unseen-counts", *_HALVES),
    *_by_label("Half of the counts never labelled, Wi-CaL (real)", "wical-unseen-counts", *_HALVES),
    *_by_label(
        "All simulated rooms with few recordings of every count",
        "quick-few-labels",
        *("1", "2", "4"),
    ),
    *_by_label(
        "All Wi-CaL rooms (real) with few windows of every count",
        "wical-few-labels",
        *("3", "10", "30"),
    ),
    Case(_ALL, "Wi-CaL (real)", "wical/table1", "features"),
    Case(_ALL, "WiAR (real), equal nets", "wiar/table1", "statistical"),
    Case(_ALL, "WiAR (real), nets that differ", "wiar/table1", "model"),
    Case(_ALL, "simulated, statistics", "simulated/table1", "features"),
    Case(_TUNED, "Wi-CaL (real)", "tuned/table1-tuned", "features"),
    Case(_PROTOCOL, "equal nets", "protocol/protocol", "statistical"),
    Case(_PROTOCOL, "nets by size", "protocol/protocol", "model"),
)
"""In the order to show; a study that is not there yet has no line."""


@dataclass(frozen=True)
class Gain:
    """What an exchange adds in a case."""

    case: Case
    kind: str
    against: str
    """The row that it is held against, by its title."""
    accuracy: Paired
    error: Paired | None
    """In people, of the answer that model files give; none for categories."""


def gains_of(folder: Path, cases: Sequence[Case] = CASES) -> list[Gain]:
    """All gains that the committed results hold."""
    loaded: dict[str, Results] = {}
    made = []
    for case in cases:
        path = folder / case.experiment / "results.json"
        if not path.is_file():
            continue
        if case.experiment not in loaded:
            loaded[case.experiment] = Results.load(path)
        settings = {setting.name: setting for setting in loaded[case.experiment].settings}
        if case.setting in settings:
            made += _of_case(case, settings[case.setting])
    return made


def _of_case(case: Case, setting: Setting) -> list[Gain]:
    found = []
    for kind in _KINDS:
        row, alone = setting.row(f"{kind}{case.suffix}"), _alone(setting, kind, case)
        if row is None or alone is None:
            continue
        accuracy = setting.against(row, alone, setting.rounds, "accuracy")
        if accuracy is not None:
            people = setting.counts_people
            metric = "mae_median" if people and row.metrics(setting.rounds, "mae_median") else "mae"
            error = setting.against(row, alone, setting.rounds, metric) if people else None
            found.append(Gain(case, kind, alone.title.partition(",")[0], accuracy, error))
    return found


def _alone(setting: Setting, kind: str, case: Case) -> Row | None:
    """What does the same without the exchange, where it was run; else Local."""
    # FedJoin alone was run at one number of labels only, and where all have few it also guesses.
    ends = ("self", "alone") if "unseen" in case.experiment else ("self",)
    controls = (setting.row(f"{kind}-{end}{case.suffix}") for end in ends)
    found = [control for control in controls if control is not None]
    return found[0] if found else setting.row(f"local{case.suffix}")


def gains_figure(gains: Sequence[Gain]) -> Figure:
    """Points of accuracy on the left, people of error on the right; a line for each case."""
    cases = list(dict.fromkeys(gain.case for gain in gains))
    groups = list(dict.fromkeys(case.group for case in cases))
    places: dict[Case, float] = {}
    for number, case in enumerate(cases):
        places[case] = number + 1.3 * (groups.index(case.group) + 1)
    kinds = [kind for kind in _KINDS if any(gain.kind == kind for gain in gains)]
    said = (
        f"What an exchange adds to rooms alone, mean over rooms and {_seeds(gains)} with the 95 % "
        "interval of the mean, paired over seeds; filled is clear: the interval leaves zero out. "
        "FedAPA with all labels and FedJoin with counts never labelled are held against their own "
        "losses without exchange, everything else against Local. Intervals that leave the panel go "
        "on. Sources and commits: the tables of the pages that are named in the text."
    )
    with drawn(1.3 + 0.205 * (max(places.values()) + 1), said) as figure:
        left, right = figure.subplots(1, 2, sharey=True)
        for axes, is_error in ((left, False), (right, True)):
            axes.axvline(0, color="#555555", lw=0.9)
            for gain in gains:
                difference = gain.error if is_error else gain.accuracy
                if difference is None:
                    continue
                scale, look = 1 if is_error else 100, kinds.index(gain.kind)
                place = places[gain.case] + 0.2 * (look - (len(kinds) - 1) / 2)
                colour = PALETTE[look]
                if difference.low is not None and difference.high is not None:
                    ends = [scale * difference.low, scale * difference.high]
                    axes.plot(ends, [place] * 2, color=colour, lw=0.9)
                filled = colour if difference.is_clear else "white"
                axes.plot(
                    scale * difference.mean, place, MARKERS[look], ms=3.6, mec=colour, mfc=filled
                )
            axes.grid(visible=False, axis="y")
        left.set(xlabel="accuracy (points; right is better)", xlim=(-40, 48))
        right.set(xlabel="error (people; left is better)", xlim=(-2.4, 0.9))
        left.set_yticks(list(places.values()), [case.label for case in cases])
        for group in groups:
            first = next(case for case in cases if case.group == group)
            heading = left.annotate(
                group,
                (0, places[first] - 0.85),
                xycoords=("axes fraction", "data"),
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
                fontsize=7,
                fontweight="bold",
            )
            heading.set_in_layout(False)  # it may reach into the panel beside it
        left.set_zorder(right.get_zorder() + 1)  # or that would hide the ends of headings
        left.patch.set_visible(False)
        left.set_ylim(max(places.values()) + 0.8, 0)
        handles = [
            left.plot([], [], MARKERS[n], color=PALETTE[n], ms=4, label=_KINDS[kind])[0]
            for n, kind in enumerate(kinds)
        ]
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
        return figure


def gains_table(gains: Sequence[Gain]) -> Table:
    """Every gain in points and in people, with its interval."""
    cases = list(dict.fromkeys(gain.case for gain in gains))
    by = {(gain.case, gain.kind): gain for gain in gains}
    rows = [
        [case.group, case.label, *(_cell(by.get((case, kind))) for kind in _KINDS)]
        for case in cases
    ]
    return Table(
        title="Gain over rooms alone: accuracy in points and error in people",
        headings=["Where", "Labels", *_KINDS.values()],
        rows=rows,
        note=(
            f"Mean over rooms and {_seeds(gains)} and the 95 % interval of the mean, paired over "
            "seeds; bold where it leaves zero out. FedAPA with all labels and FedJoin with counts "
            "never labelled against their own losses without exchange, everything else against "
            "Local."
        ),
        text_columns=2,
    )


def _seeds(gains: Sequence[Gain]) -> str:
    """Which seeds gains are means over, in words."""
    numbers = sorted({gain.accuracy.number for gain in gains})
    if len(numbers) == 1:
        return f"seeds {', '.join(map(str, range(numbers[0])))}"
    groups = {
        number: list(
            dict.fromkeys(gain.case.group for gain in gains if gain.accuracy.number == number)
        )
        for number in numbers
    }
    usual = max(numbers, key=lambda number: len(groups[number]))
    others = "; ".join(
        f"{number} in “{name}”" for number in numbers if number != usual for name in groups[number]
    )
    return f"{usual} seeds ({others})"


def _cell(gain: Gain | None) -> str:
    if gain is None:
        return "–"
    said = _text(gain.accuracy, 100, 1)
    return said if gain.error is None else f"{said}; {_text(gain.error, 1, 2)}"


def _text(difference: Paired, scale: int, digits: int) -> str:
    mean = f"{scale * difference.mean:+.{digits}f}"
    if difference.low is None or difference.high is None:
        return mean
    low, high = (f"{scale * end:+.{digits}f}" for end in (difference.low, difference.high))
    said = f"{mean} [{low}, {high}]"
    return (f"**{said}**" if difference.is_clear else said).replace("-", "−")


def with_table(text: str, gains: Sequence[Gain]) -> str:
    """The page with its table of gains made anew."""
    before, _, rest = text.partition(_OPEN)
    _, _, after = rest.partition(_END)
    body = markdown(gains_table(gains)).replace("\\*\\*", "**")
    return f"{before}{_OPEN}\n\n{body.strip()}\n\n{_END}{after}"
