"""Sheets of experiments: results over several seeds, at several horizons, as tables.

``tables`` shows runs of one seed beside each other; here a cell is a mean ± standard deviation over
seeds of the mean over rooms, and every sheet says under itself what it was made from.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from fedapa.evaluation.record import LAST
from fedapa.evaluation.results import (
    CONFIDENCE,
    STANDSTILL,
    Outcome,
    Paired,
    Results,
    Row,
    Setting,
    reached,
    spread,
    still_gaining,
)
from fedapa.report.tables import HEADINGS, Sheet

__all__ = [
    "caption",
    "counts",
    "differences",
    "grouped",
    "horizon_label",
    "horizons",
    "in_paper_layout",
    "overall",
    "published_sheet",
    "reach",
    "rooms",
    "sweep",
    "target_accuracies",
    "verdict",
]

NONE = "–"
_ORDER = ("paper", "more", "control", "sweep", "blind")
_TARGETS = 5


# ---- what a table is about ----------------------------------------------------------------------


def caption(setting: Setting, horizon: int | None = None) -> str:
    """Where the numbers come from: data, split, seeds, rounds, averaged rounds, commit."""
    data = setting.data
    kind = "SIMULATED data" if data["synthetic"] else "real data"
    outcomes = [outcome for row in setting.rows for outcome in row.outcomes]
    seeds = sorted({outcome.seed for outcome in outcomes})
    commits = sorted(
        {commit for outcome in outcomes for commit in outcome.commit.split(", ") if commit}
    )
    shape = " × ".join(map(str, data["window_shape"]))
    if horizon is None:
        when = f"{setting.rounds} rounds"
        if max(setting.horizons, default=0) > setting.rounds:
            when += f", {max(setting.horizons)} in the long runs"
        when += f", figures are means of {LAST} rounds"
        if min(setting.horizons, default=LAST) < LAST:
            when += " or of all where there were fewer"
    else:
        averaged = min(LAST, horizon)
        when = f"after {horizon} round{'s' if horizon > 1 else ''}"
        when += f", mean of the last {averaged}" if averaged > 1 else ""
    return " · ".join(
        [
            # A file by its name: where it lies differs from reader to reader.
            f"{kind}: {data['source'].rpartition('/')[2]}",
            f"{len(data['rooms'])} room{'s' if len(data['rooms']) > 1 else ''}, "
            f"{len(data['classes'])} classes, windows of {shape}",
            f"split {data['split']}",
            f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}",
            when,
            f"commit {', '.join(_short(commit) for commit in commits)}",
        ]
    )


def _short(commit: str) -> str:
    name, plus, changes = commit.partition("+")
    return name[:10] + plus + changes


def horizon_label(setting: Setting, horizon: int) -> str:
    """A horizon with its share of the rounds: "8 (¼)", "15 (½)", "30 (all)", "120 (long)"."""
    if horizon == setting.rounds:
        return f"{horizon} (all)"
    quarter, half = setting.rounds / 4, setting.rounds / 2
    for exact, name in sorted(((quarter, "¼"), (half, "½")), key=lambda it: abs(horizon - it[0])):
        if horizon in (math.floor(exact), math.ceil(exact)):
            return f"{horizon} ({name})"
    return f"{horizon} (long)" if horizon > setting.rounds else str(horizon)


def counts(setting: Setting) -> bool:
    """Whether classes are numbers of people, so that errors have a size."""
    return all(isinstance(label, int) for label in setting.data["classes"])


def grouped(rows: Sequence[Row]) -> list[Row]:
    """Rows by group: the paper's methods, more of them, controls, blind ones last."""

    def place(row: Row) -> int:
        return _ORDER.index(row.group) if row.group in _ORDER else _ORDER.index("sweep")

    return sorted(rows, key=place)


def _breaks(rows: Sequence[Row]) -> list[int]:
    return [index for index in range(1, len(rows)) if rows[index].group != rows[index - 1].group]


def _metrics(setting: Setting) -> list[str]:
    return [name for name in HEADINGS if counts(setting) or name in ("accuracy", "macro_f1")]


def _heading(metric: str) -> str:
    return HEADINGS[metric] if metric == "mae" else f"{HEADINGS[metric]} (%)"


def _cell(values: Sequence[float] | None, metric: str) -> str:
    """Mean ± standard deviation over seeds; the mean alone where there is one."""
    if values is None:
        return NONE
    scale, digits = (1, 2) if metric == "mae" else (100, 1)
    found = spread(values)
    text = f"{scale * found.mean:.{digits}f}"
    if found.deviation is not None:
        text += f" ± {scale * found.deviation:.{digits}f}"
    return text


def _price(row: Row, horizon: int, rooms: int) -> str:
    """KB per round and room up to a horizon, mean over seeds."""
    if not row.moves or any(outcome.rounds < horizon for outcome in row.outcomes):
        return NONE
    moved = [outcome.bytes[horizon - 1] / (horizon * rooms) for outcome in row.outcomes]
    return f"{np.mean(moved) / 1000:,.1f}"


def _over_seeds(setting: Setting) -> str:
    number = max((len(row.outcomes) for row in setting.rows), default=0)
    if number < 2:
        return "Mean over rooms, one seed: its chance is not measured"
    return f"Mean ± standard deviation over {number} seeds of the mean over rooms"


def _sentences(*parts: str) -> str:
    return ". ".join(part for part in parts if part)


# ---- the tables ---------------------------------------------------------------------------------


def overall(setting: Setting, horizon: int) -> Sheet:
    """Every metric of every row at a horizon, blind rows at the bottom."""
    shown = [row for row in grouped(setting.rows) if row.metrics(horizon, "accuracy") is not None]
    left_out = [row.title for row in grouped(setting.rows) if row not in shown]
    metrics = _metrics(setting)
    number = len(setting.data["rooms"])
    return Sheet(
        title=f"{setting.title}, after {horizon_label(setting, horizon)} rounds",
        headings=["Method", *map(_heading, metrics), "KB per round and room"],
        rows=[
            [
                row.title,
                *(_cell(row.metrics(horizon, metric), metric) for metric in metrics),
                _price(row, horizon, number),
            ]
            for row in shown
        ],
        note=_sentences(
            _over_seeds(setting),
            f"No figure at this horizon: {'; '.join(left_out)}" if left_out else "",
            caption(setting, horizon),
        ),
        breaks=_breaks(shown),
    )


def in_paper_layout(results: Results, horizon: int | None = None) -> Sheet | None:
    """The settings side by side as in the paper's tables; none where there is one setting only.

    Args:
        results: of an experiment.
        horizon: the round to show; by default all rounds of each setting.
    """
    settings = results.settings
    if len(settings) < 2:
        return None
    names = list(dict.fromkeys(row.name for setting in settings for row in setting.rows))
    found = {name: [setting.row(name) for setting in settings] for name in names}
    first = grouped([next(row for row in rows if row is not None) for rows in found.values()])
    metrics = [[each for each in _metrics(setting) if each != "within_one"] for setting in settings]
    short = {"accuracy": "Acc. (%)", "macro_f1": "F1 (%)", "mae": "MAE"}
    return Sheet(
        title=results.title,
        headings=["Method", *(short[metric] for shown in metrics for metric in shown)],
        rows=[
            [
                row.title,
                *(
                    NONE if mine is None else _cell(mine.metrics(horizon or one.rounds, name), name)
                    for one, mine, shown in zip(settings, found[row.name], metrics, strict=True)
                    for name in shown
                ),
            ]
            for row in first
        ],
        note=_sentences(
            _over_seeds(settings[0]),
            *(f"{each.title}: {caption(each, horizon or each.rounds)}" for each in settings),
        ),
        breaks=_breaks(first),
        spans=[
            ("", 1),
            *((one.title, len(shown)) for one, shown in zip(settings, metrics, strict=True)),
        ],
    )


def horizons(setting: Setting) -> Sheet:
    """The accuracy of every row at every horizon; "–" where a row was not run that long."""
    shown = grouped(setting.rows)
    labels = [horizon_label(setting, horizon) for horizon in setting.horizons]
    return Sheet(
        title=f"{setting.title}, accuracy (%) after so many rounds",
        headings=["Method", *labels],
        rows=[
            [
                row.title,
                *(_cell(row.metrics(each, "accuracy"), "accuracy") for each in setting.horizons),
            ]
            for row in shown
        ],
        note=_sentences(
            _over_seeds(setting), *_improving(setting), *_scored_alone(setting), caption(setting)
        ),
        breaks=_breaks(shown),
    )


def _scored_alone(setting: Setting) -> list[str]:
    """Whose figures are not means of five rounds before the last horizon."""
    alone = [row.title for row in grouped(setting.rows) if row.outcomes[0].scored is not None]
    if not alone:
        return []
    return [
        f"{' and '.join(alone)}: scored where copies are tuned; before {setting.rounds} rounds the "
        "figure is that of the last such round alone"
    ]


def _improving(setting: Setting) -> list[str]:
    """Whether Local has stopped improving when its rounds end."""
    local = setting.row("local")
    rise = None if local is None else still_gaining(local)
    if local is None or rise is None:
        return []
    rounds = min(outcome.rounds for outcome in local.outcomes)
    verdict = "has stopped improving" if rise < STANDSTILL else "is still improving"
    return [
        f"{local.title} {verdict}: {100 * rise:+.1f} points from the third to the last quarter of "
        f"its {rounds} rounds (below {100 * STANDSTILL:+.1f} it counts as stopped)".replace(
            "-", "−"
        )
    ]


def differences(
    setting: Setting, reference: str | None = None, metric: str = "accuracy"
) -> Sheet | None:
    """The reference minus each other row at each horizon, paired over seeds.

    Args:
        setting: where both ran.
        reference: the name of a row, by default the setting's own; where there is none of that
            name, there is no sheet.
        metric: accuracy, macro_f1 or within_one in points, or mae in people (there less is better).
    """
    mine = setting.row(reference or setting.reference)
    if mine is None:
        return None
    shown = [row for row in grouped(setting.rows) if row is not mine]
    led = metric == "accuracy"
    rows, compared = [], 0
    for row in shown:
        cells = [row.title]
        for horizon in setting.horizons:
            found = setting.against(mine, row, horizon, metric)
            compared += found is not None
            cells.append(NONE if found is None else _difference(found, metric))
            if led:
                wins = setting.rooms_led(mine, row, horizon) if found is not None else None
                cells.append(NONE if wins is None else f"{wins[0]}/{wins[1]}")
        rows.append(cells)
    what = (
        f"MAE (people; below zero is better for {mine.title})"
        if metric == "mae"
        else (f"{HEADINGS[metric].lower()} (points)")
    )
    under = ["difference", "rooms led"] if led else ["difference"]
    return Sheet(
        title=f"{setting.title}, {mine.title} minus each other row: {what}",
        headings=["Against", *(name for _ in setting.horizons for name in under)],
        rows=rows,
        note=_sentences(
            *_reading(len(mine.outcomes), compared, led=led),
            *_scored_alone(setting),
            caption(setting),
        ),
        breaks=_breaks(shown),
        spans=[
            ("", 1),
            *((horizon_label(setting, each), len(under)) for each in setting.horizons),
        ],
    )


def _difference(found: Paired, metric: str) -> str:
    scale, digits = (1, 2) if metric == "mae" else (100, 1)

    def signed(value: float) -> str:
        return f"{scale * value:+.{digits}f}".replace("-", "−")

    if found.low is None or found.high is None:
        return signed(found.mean)
    mark = " *" if found.is_clear else ""
    return f"{signed(found.mean)} [{signed(found.low)}, {signed(found.high)}]{mark}"


def _reading(seeds: int, compared: int, *, led: bool) -> list[str]:
    """How to read differences, and how far they carry."""
    if seeds < 2:
        said = ["One seed: a difference without an interval; nothing here is shown to be clear"]
    else:
        quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, seeds - 1))
        said = [
            f"In brackets the {100 * CONFIDENCE:.0f} % interval of the mean, paired over {seeds} "
            f"seeds (Student's t = {quantile:.2f}: so few seeds make it wide)",
            "* is clear: the interval leaves zero out; without it the difference may be chance",
            f"Were there no differences at all, about {compared * (1 - CONFIDENCE):.0f} of these "
            f"{compared} would still be clear",
            "All seeds share their rooms: the interval tells of other seeds, not of other rooms",
        ]
    if led:
        said.append("Rooms led: pairs of room and seed in which the accuracy is higher")
    return said


def verdict(setting: Setting, horizon: int) -> str | None:
    """In one sentence: whom the reference beats clearly, who beats it, and what nobody can tell."""
    mine = setting.row(setting.reference)
    if mine is None or len(mine.outcomes) < 2:
        return None
    better: list[str] = []
    worse: list[str] = []
    unsure: list[str] = []
    for row in grouped(setting.rows):
        found = None if row is mine else setting.against(mine, row, horizon)
        if found is not None:
            chosen = unsure if not found.is_clear else better if found.mean > 0 else worse
            chosen.append(row.title)
    if not (better or worse or unsure):
        return None
    return (
        f"After {horizon_label(setting, horizon)} rounds {mine.title}'s accuracy is clearly above: "
        f"{'; '.join(better) or 'nobody'}. Clearly below: {'; '.join(worse) or 'nobody'}. Not "
        f"clearly apart from: {'; '.join(unsure) or 'nobody'}."
    )


def target_accuracies(setting: Setting) -> list[float]:
    """Round accuracies to ask for: multiples of five points, evenly spaced, at most five.

    Above the best blind row, up to the best figure of any row at any horizon.
    """
    blind, best = 0.0, 0.0
    for row in setting.rows:
        for horizon in setting.horizons:
            values = row.metrics(horizon, "accuracy")
            if values is None:
                continue
            mean = spread(values).mean
            if row.group == "blind":
                blind = max(blind, mean)
            else:
                best = max(best, mean)
    steps = range(math.floor(20 * blind + 1e-9) + 1, math.floor(20 * best + 1e-9) + 1)
    every = max(1, math.ceil(len(steps) / _TARGETS))
    return sorted(step / 20 for step in list(steps)[::-1][::every])


def reach(setting: Setting, accuracies: Sequence[float] | None = None) -> Sheet | None:
    """Rounds and megabytes (all rooms, both ways) until a row's five-round mean is that good.

    Args:
        setting: whose rows are asked.
        accuracies: between 0 and 1; by default ``target_accuracies``. None left, no sheet.
    """
    wanted = target_accuracies(setting) if accuracies is None else list(accuracies)
    shown = [
        row
        for row in grouped(setting.rows)
        if row.group != "blind" and all(_has_curve(outcome) for outcome in row.outcomes)
    ]
    left_out = [
        row.title for row in grouped(setting.rows) if row.group != "blind" and row not in shown
    ]
    if not wanted or not shown:
        return None
    return Sheet(
        title=f"{setting.title}, rounds and MB of all rooms to reach an accuracy",
        headings=["Method", *(name for _ in wanted for name in ("rounds", "MB"))],
        rows=[
            [row.title, *(cell for accuracy in wanted for cell in _reach(row, accuracy))]
            for row in shown
        ],
        note=_sentences(
            f"The first round whose mean of {LAST} rounds is that good, mean over the seeds that "
            "got there; in brackets how many did where not all did, – where none did",
            "A row that ran longer had more time to get there",
            f"Not followed round by round: {'; '.join(left_out)}" if left_out else "",
            caption(setting),
        ),
        breaks=_breaks(shown),
        spans=[("", 1), *((f"{100 * accuracy:.0f} %", 2) for accuracy in wanted)],
    )


def _has_curve(outcome: Outcome) -> bool:
    return outcome.scored is None and len(outcome.curve.get("accuracy", ())) > 0


def _reach(row: Row, accuracy: float) -> tuple[str, str]:
    found = [each for outcome in row.outcomes if (each := reached(outcome, accuracy)) is not None]
    if not found:
        return NONE, NONE
    rounds, moved = np.asarray(found, np.float64).mean(axis=0)
    few = "" if len(found) == len(row.outcomes) else f" ({len(found)} of {len(row.outcomes)})"
    number = f"{rounds:.0f}" if len(found) == 1 else f"{rounds:.1f}"
    return number + few, f"{moved / 1e6:,.2f}" if row.moves else NONE


def rooms(setting: Setting, horizon: int, names: Sequence[str]) -> Sheet:
    """Every room's accuracy (and MAE where classes are counts) under some rows, named."""
    shown = [row for name in names if (row := setting.row(name)) is not None]
    seeds = [outcome.seed for row in setting.rows for outcome in row.outcomes]
    metrics = [metric for metric in ("accuracy", "mae") if metric in _metrics(setting)]
    short = {"accuracy": "acc. (%)", "mae": "MAE"}
    return Sheet(
        title=f"{setting.title}, room by room after {horizon_label(setting, horizon)} rounds",
        headings=[
            "Room",
            "Net",
            "Train",
            "Test",
            *(short[each] for _ in shown for each in metrics),
        ],
        rows=[
            [
                room,
                about["architecture"],
                str(about["train"]),
                str(about["test"]),
                *(
                    _cell(row.room(horizon, room, metric), metric)
                    for row in shown
                    for metric in metrics
                ),
            ]
            for room, about in sorted(setting.data["rooms"].items())
        ],
        note=_sentences(
            "Mean ± standard deviation over seeds; net, train and test windows are those of "
            f"seed {min(seeds, default=0)}: another seed splits otherwise",
            caption(setting, horizon),
        ),
        text_columns=2,
        spans=[("", 4), *((row.title, len(metrics)) for row in shown)],
    )


def sweep(results: Results, setting: Setting, horizon: int | None = None) -> Sheet:
    """The swept parameter's values against the metrics.

    Args:
        results: names the parameter.
        setting: its rows have values; rows without (a control) stand under their title.
        horizon: the round to show; by default all.
    """
    at = setting.rounds if horizon is None else horizon
    shown = [row for row in grouped(setting.rows) if row.metrics(at, "accuracy") is not None]
    metrics = _metrics(setting)
    several = len(lines(setting)) > 1
    number = len(setting.data["rooms"])
    return Sheet(
        title=f"{setting.title}, after {horizon_label(setting, at)} rounds",
        headings=[
            "Method",
            results.parameter or "value",
            *map(_heading, metrics),
            "KB per round and room",
        ],
        rows=[
            [
                row.title,
                NONE if row.value is None else value_text(row.value),
                *(_cell(row.metrics(at, metric), metric) for metric in metrics),
                _price(row, at, number),
            ]
            for row in shown
        ],
        note=_sentences(_over_seeds(setting), caption(setting, at)),
        text_columns=2,
        breaks=_breaks(shown) if several else [],
    )


def value_text(value: float | str) -> str:
    """A swept value as one would write it."""
    return value if isinstance(value, str) else f"{value:g}"


def lines(setting: Setting) -> dict[str, list[Row]]:
    """Rows with values by group: one line of a sweep each, several where selections differ."""
    found: dict[str, list[Row]] = {}
    for row in setting.rows:
        if row.value is not None:
            found.setdefault(row.group, []).append(row)
    return found


def published_sheet(setting: Setting, figures: Mapping[str, Mapping[str, float]]) -> Sheet:
    """The paper's figures for a setting, by row name; never in one table with ours.

    Accuracy and macro F1 as shares, or in percent as the paper prints them: above 1 they can be
    nothing else.
    """
    metrics = [
        name
        for name in ("accuracy", "macro_f1", "mae")
        if any(name in each for each in figures.values())
    ]

    def text(each: Mapping[str, float], metric: str) -> str:
        if metric not in each:
            return NONE
        value = each[metric]
        percent = 100 if metric != "mae" and value <= 1 else 1
        return f"{percent * value:.2f}"

    rows = []
    for name, each in figures.items():
        ours = setting.row(name)
        title = name if ours is None else ours.title
        rows.append([title, *(text(each, metric) for metric in metrics)])
    return Sheet(
        title=f"{setting.title}, as published",
        headings=["Method", *map(_heading, metrics)],
        rows=rows,
        note="From the paper, measured on its authors' private recordings with a split window by "
        "window; rounds and seeds are not told. Not ours, and not comparable with ours",
    )
