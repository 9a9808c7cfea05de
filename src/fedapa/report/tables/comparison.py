"""Tables of results: a cell is the mean over rooms, ± its standard deviation over seeds.

Results of one seed, such as a single run's, have the deviation over rooms in columns of its own.
Every table says under itself what it was made from.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fedapa.algorithms.local import Local
from fedapa.evaluation.metrics import METRICS, OVER_TIME
from fedapa.evaluation.record import LAST
from fedapa.evaluation.results import (
    CONFIDENCE,
    REFERENCE,
    STANDSTILL,
    Paired,
    Results,
    Row,
    Setting,
    reached,
    spread,
    student_t,
    target_accuracies,
)
from fedapa.evaluation.results import still_gaining as rise_of
from fedapa.report.captions import caption, fewer_rooms, number_of, time_text
from fedapa.report.tables.table import Table

__all__ = [
    "by_value",
    "calibration",
    "cell",
    "difference_text",
    "differences",
    "horizons",
    "in_paper_layout",
    "metrics_of",
    "over_time",
    "overall",
    "presence",
    "published_table",
    "reach",
    "reading",
    "rooms",
    "value_text",
]

_NONE = "–"
_PRESENCE = ("presence", "presence_auc")
_OF_ANSWERS = tuple(
    name
    for name, metric in METRICS.items()
    if not metric.time
    # Which have tables of their own, or none.
    and name not in ("ece", "activity.ece", "within_two", *_PRESENCE)
)
_SIDE_BY_SIDE = ("accuracy", "macro_f1", "mae_median", "mae")
"""Those of a table with several settings."""
_ALONE = Local.name
"""The row of rooms that learn alone."""
_PUBLISHED = {"accuracy": "Accuracy (%)", "macro_f1": "Macro F1 (%)", "mae": "MAE (people)"}
"""What the paper prints, as it calls it."""


# ---- cells and notes ----------------------------------------------------------------------------


def metrics_of(setting: Setting, wanted: Iterable[str] = _OF_ANSWERS) -> list[str]:
    """Those of some metrics that a setting's results have; one that is another's double is not."""
    return [
        name
        for name in wanted
        if any(row.metrics(setting.rounds, name) is not None for row in setting.rows)
        and not _is_double(setting, name)
    ]


def _is_double(setting: Setting, name: str) -> bool:
    """Whether every row has the same macro F1 by both definitions, to what a table shows."""
    other = name.removesuffix("_answered")
    pairs = [
        (row.metrics(setting.rounds, name), row.metrics(setting.rounds, other))
        for row in setting.rows
    ]
    return other != name and all(
        one is None or (two is not None and np.allclose(one, two, rtol=0, atol=5e-4))
        for one, two in pairs
    )


def _breaks(rows: Sequence[Row]) -> list[int]:
    """Where one group of rows ends and the next begins."""
    return [place for place in range(1, len(rows)) if rows[place].group != rows[place - 1].group]


def _sentences(*parts: str) -> str:
    """A note: what there is to say, one thing after another."""
    return ". ".join(part for part in parts if part)


def value_text(value: float | str | None) -> str:
    """A swept value as one would write it."""
    return _NONE if value is None else value if isinstance(value, str) else f"{value:g}"


def _number(value: float, metric: str, sign: str = "") -> str:
    """A figure as tables print it, in people or in percent; ``sign`` "+" is for differences."""
    people = METRICS[metric].in_people
    text = f"{value:{sign}.2f}" if people else f"{100 * value:{sign}.1f}"
    return text.replace("-", "−")


def cell(values: Sequence[float] | None, metric: str) -> str:
    """Mean ± standard deviation over seeds; the mean alone where there is one."""
    if values is None:
        return _NONE
    over_seeds = spread(values)
    mean = _number(over_seeds.mean, metric)
    if over_seeds.deviation is None:
        return mean
    return f"{mean} ± {_number(over_seeds.deviation, metric)}"


def _over_rooms(row: Row, horizon: int, metric: str) -> str:
    """The standard deviation over rooms of a row with one seed."""
    if row.metrics(horizon, metric) is None:
        return _NONE
    return f"± {_number(row.outcomes[0].at[str(horizon)]['std'][metric], metric)}"


def _over_seeds(setting: Setting) -> str:
    number = max((len(row.outcomes) for row in setting.rows), default=0)
    if number < 2:
        return "Mean ± standard deviation over rooms; one seed: how far seeds differ is not known"
    return f"Mean ± standard deviation over {number} seeds of the mean over rooms"


def _kilobytes(row: Row, horizon: int, rooms: int) -> str:
    """KB per round and room up to a horizon, mean over seeds."""
    if not row.moves or any(outcome.rounds < horizon for outcome in row.outcomes):
        return _NONE
    moved = [outcome.bytes[horizon - 1] / (horizon * rooms) for outcome in row.outcomes]
    return f"{np.mean(moved) / 1000:,.1f}"


def _scored_alone(setting: Setting) -> str:
    """Whose figures are not means of five rounds before the last horizon."""
    alone = [row.title for row in setting.ordered if row.outcomes[0].scored is not None]
    told = f"scored where copies are tuned; before {setting.rounds} rounds the figure is that of"
    return f"{' and '.join(alone)}: {told} the last such round alone" if alone else ""


def _improving(setting: Setting) -> str:
    """Whether Local has stopped improving when its rounds end."""
    local = setting.row(Local.name)
    rise = None if local is None else rise_of(local)
    if local is None or rise is None:
        return ""
    rounds = min(outcome.rounds for outcome in local.outcomes)
    verdict = "has stopped improving" if rise < STANDSTILL else "is still improving"
    risen, least = (_number(points, "accuracy", "+") for points in (rise, STANDSTILL))
    return (
        f"{local.title} {verdict}: {risen} points from the third to the last quarter of its "
        f"{rounds} rounds (below {least} it counts as stopped)"
    )


# ---- the tables ---------------------------------------------------------------------------------


def overall(setting: Setting, horizon: int | None = None, *, parameter: str = "") -> Table:
    """Every metric of every row at a horizon, by default after all rounds, blind rows at the end.

    With a ``parameter``, what a sweep varies, its values have a column.
    """
    at = horizon or setting.rounds
    shown = [row for row in setting.ordered if row.metrics(at, "accuracy") is not None]
    left_out = [row.title for row in setting.ordered if row not in shown]
    metrics = metrics_of(setting)
    headings, cells = _columns(setting, shown, at, metrics, parameter)
    rooms = len(setting.data["rooms"])
    return Table(
        title=f"{setting.title}, after {setting.horizon_label(at)} rounds",
        headings=[*headings, "KB per round and room"],
        rows=[[*mine, _kilobytes(row, at, rooms)] for row, mine in zip(shown, cells, strict=True)],
        note=_sentences(
            _over_seeds(setting),
            f"No figure at this horizon: {'; '.join(left_out)}" if left_out else "",
            fewer_rooms(setting, [at], metrics),
            caption(setting, at),
        ),
        text_columns=2 if parameter else 1,
        breaks=_breaks(shown) if not parameter or len(setting.lines) > 1 else [],
    )


def _columns(
    setting: Setting, shown: Sequence[Row], at: int, metrics: Sequence[str], parameter: str
) -> tuple[list[str], list[list[str]]]:
    """Headings, and for each row its name and its metrics; of one seed each with its deviation."""
    one_seed = len(setting.seeds) == 1
    headings = ["Method", *([parameter] if parameter else [])]
    for metric in metrics:
        headings += [METRICS[metric].heading, *(["±"] if one_seed else [])]
    rows = []
    for row in shown:
        cells = [row.title, *([value_text(row.value)] if parameter else [])]
        for metric in metrics:
            cells.append(cell(row.metrics(at, metric), metric))
            if one_seed:
                cells.append(_over_rooms(row, at, metric))
        rows.append(cells)
    return headings, rows


def presence(setting: Setting, *, parameter: str = "") -> Table | None:
    """How well each row tells whether anybody is there; none where nobody told.

    With a ``parameter``, what a sweep varies, its values have a column.
    """
    at, metrics = setting.rounds, metrics_of(setting, _PRESENCE)
    if not metrics:
        return None
    shown = [row for row in setting.ordered if row.metrics(at, metrics[0]) is not None]
    headings, rows = _columns(setting, shown, at, metrics, parameter)
    return Table(
        title=f"{setting.title}, presence after {setting.horizon_label(at)} rounds",
        headings=headings,
        rows=rows,
        note=_sentences(
            "Presence: the share of windows in which it is told right whether anybody is there, "
            "at a probability of one half",
            "AUC: how often an occupied window has a higher probability of being occupied than an "
            "empty one, whatever the threshold; 50 % is chance",
            _over_seeds(setting),
            fewer_rooms(setting, [at], metrics),
            caption(setting, at),
        ),
        text_columns=2 if parameter else 1,
        breaks=_breaks(shown) if not parameter or len(setting.lines) > 1 else [],
    )


def over_time(
    setting: Setting, kinds: Sequence[str] = ("accuracy", "mae", "mae_most_probable")
) -> Table | None:
    """Accuracy and MAE after one window and after some seconds; none where nothing is so long.

    Args:
        setting: whose rows are shown.
        kinds: beginnings of the metrics' names; a terminal has no space for all of them.
    """
    at = setting.rounds
    metrics = metrics_of(setting, [f"{kind}_{time}" for kind in kinds for time in OVER_TIME])
    titles = list(dict.fromkeys(METRICS[metric].heading for metric in metrics))
    if not metrics:
        return None
    shown = [row for row in setting.ordered if row.metrics(at, metrics[0]) is not None]
    return Table(
        title=f"{setting.title}, counting over time, after {setting.horizon_label(at)} rounds",
        headings=["Method", *(time_text(METRICS[metric].time) for metric in metrics)],
        rows=[
            [row.title, *(cell(row.metrics(at, metric), metric) for metric in metrics)]
            for row in shown
        ],
        note=_sentences(
            "After so many seconds: the evidence of all windows that are complete by then, as the "
            "mean of their log-probabilities; one window: the same windows, each alone",
            _counted_over_time(setting),
            fewer_rooms(setting, [at], metrics),
            caption(setting, at),
        ),
        breaks=_breaks(shown),
        spans=[
            ("", 1),
            *(
                (title, sum(METRICS[metric].heading == title for metric in metrics))
                for title in titles
            ),
        ],
    )


def _counted_over_time(setting: Setting) -> str:
    """Which recordings are counted over time, as far as a run tells."""
    rooms = setting.data["rooms"].values()
    if not any(room.get("continuous") for room in rooms):
        return "Of test recordings that are long enough"
    recordings = sum(room["recordings"].get("continuous", 0) for room in rooms)
    windows = sum(room["continuous"] for room in rooms)
    return (
        f"Of {windows} windows of {number_of(recordings, 'continuous recording')}, which neither "
        "train nor validate nor test"
    )


def calibration(setting: Setting) -> Table | None:
    """How far each row's confidence is from how often it is right; none where nobody told."""
    at = setting.rounds
    shown = [row for row in setting.ordered if row.metrics(at, "ece") is not None]
    if not shown:
        return None
    return Table(
        title=f"{setting.title}, calibration error after {setting.horizon_label(at)} rounds",
        headings=["Method", METRICS["ece"].heading],
        rows=[[row.title, cell(row.metrics(at, "ece"), "ece")] for row in shown],
        note=_sentences(
            "How far confidence is from the share that is right, in each of ten bins of "
            "confidence: mean over windows, then over rooms",
            "Rooms with few test windows have several points by chance alone",
            "A low error alone makes no good counter: class frequencies may have one, too",
            fewer_rooms(setting, [at], ["ece"]),
            caption(setting, at),
        ),
        breaks=_breaks(shown),
    )


def in_paper_layout(results: Results) -> Table | None:
    """The settings side by side as in the paper's tables; none where there is one setting only."""
    settings = results.settings
    if len(settings) < 2:
        return None
    rows = {row.name: row for setting in settings for row in setting.rows}
    order = Setting("", "", 0, [], list(rows.values()), {}).ordered
    columns = [(one, metric) for one in settings for metric in metrics_of(one, _SIDE_BY_SIDE)]

    def of_setting(name: str, setting: Setting, metric: str) -> str:
        row = setting.row(name)
        return cell(None if row is None else row.metrics(setting.rounds, metric), metric)

    return Table(
        title=results.title,
        headings=["Method", *(METRICS[metric].short for _, metric in columns)],
        rows=[[row.title, *(of_setting(row.name, *column) for column in columns)] for row in order],
        note=_sentences(
            _over_seeds(settings[0]),
            *(
                f"{one.title}: {_sentences(few, caption(one, one.rounds))}"
                for one in settings
                for few in [fewer_rooms(one, [one.rounds], _SIDE_BY_SIDE)]
            ),
        ),
        breaks=_breaks(order),
        spans=[("", 1), *((one.title, len(metrics_of(one, _SIDE_BY_SIDE))) for one in settings)],
    )


def by_value(setting: Setting, parameter: str) -> Table:
    """The lines of a sweep: accuracy and error at each value, then the mean over the final ones."""
    at, lines = setting.rounds, setting.lines
    values = sorted({float(row.value) for line in lines.values() for row in line if row.value})
    metrics = metrics_of(setting, ("accuracy", "mae_median"))
    several = len(setting.final) > 1
    rows = []
    for row in setting.summed.rows:
        by = {own.value: own for own in lines[row.name]}
        cells = [
            cell(figure, name)
            for name in metrics
            for figure in (
                *(by[value].metrics(at, name) if value in by else None for value in values),
                *([row.metrics(at, name)] if several else []),
            )
        ]
        rows.append([row.title, *cells])
    under = [f"{parameter} {value_text(value)}" for value in values]
    if several:
        under.append(f"{parameter} {', '.join(map(value_text, setting.final))}")
    return Table(
        title=f"{setting.title}, by {parameter}",
        headings=["Follows the room", *(name for _ in metrics for name in under)],
        rows=rows,
        note=_sentences(_over_seeds(setting), caption(setting, at)),
        spans=[("", 1), *((METRICS[name].heading, len(under)) for name in metrics)],
    )


def horizons(setting: Setting) -> Table:
    """The accuracy of every row at every horizon; "–" where a row was not run that long."""
    metric = "accuracy"
    return Table(
        title=f"{setting.title}, accuracy (%) after so many rounds",
        headings=["Method", *map(setting.horizon_label, setting.horizons)],
        rows=[
            [row.title, *(cell(row.metrics(at, metric), metric) for at in setting.horizons)]
            for row in setting.ordered
        ],
        note=_sentences(
            _over_seeds(setting), _improving(setting), _scored_alone(setting), caption(setting)
        ),
        breaks=_breaks(setting.ordered),
    )


def differences(
    setting: Setting, reference: str | None = None, metric: str = "accuracy"
) -> Table | None:
    """The reference minus each other row at each horizon, paired over seeds.

    By default the setting's own reference; none where there is no row of that name. The metric is
    in points, or in people; the title says where less is better. In a sweep of several lines a row
    stands against the reference's line at its own value: FedJoin with four labels against Local
    with four.
    """
    mine = setting.row(reference or setting.reference)
    if mine is None:
        return None
    line = _line_of(setting, mine)
    own = {id(mine), *(id(row) for row in line.values())}
    shown = [row for row in setting.ordered if id(row) not in own]
    led = metric == "accuracy"
    rows, compared = [], 0
    for row in shown:
        cells = [row.title]
        peer = line.get(row.value, mine)
        for horizon in setting.horizons:
            difference = setting.against(peer, row, horizon, metric)
            compared += difference is not None
            cells.append(_NONE if difference is None else difference_text(difference, metric))
            if led:
                wins = None if difference is None else setting.rooms_led(peer, row, horizon)
                cells.append(_NONE if wins is None else f"{wins[0]}/{wins[1]}")
        rows.append(cells)
    about = METRICS[metric]
    name = about.heading.partition(" (")[0]
    name = name if name.startswith("MAE") else name.lower()
    unit = "people" if about.in_people else "points"
    who = mine.group if line else mine.title
    side = f"; below zero is better for {who}" if about.less_is_better else ""
    what = f"{name} ({unit}{side})"
    under = ["difference", "rooms led"] if led else ["difference"]
    alike = f"A row stands against {who} at its own value; one without a value against {mine.title}"
    return Table(
        title=f"{setting.title}, {who} minus each other row: {what}",
        headings=["Against", *(name for _ in setting.horizons for name in under)],
        rows=rows,
        note=_sentences(
            alike if line else "",
            *reading(len(mine.outcomes), compared, led=led),
            fewer_rooms(setting, setting.horizons, [metric]),
            _scored_alone(setting),
            caption(setting),
        ),
        breaks=_breaks(shown),
        spans=[("", 1), *((setting.horizon_label(at), len(under)) for at in setting.horizons)],
    )


def _line_of(setting: Setting, mine: Row) -> dict[float | str | None, Row]:
    """The line of a row, by value, where other lines share values with it; else nothing."""
    if mine.value is None:
        return {}
    line: dict[float | str | None, Row] = {
        row.value: row for row in setting.deployed if row.group == mine.group
    }
    shared = any(row.group != mine.group and row.value in line for row in setting.rows)
    return line if shared else {}


def difference_text(difference: Paired, metric: str) -> str:
    """A difference in points or people, with its interval in brackets; * where it is clear."""
    mean = _number(difference.mean, metric, "+")
    if difference.low is None or difference.high is None:
        return mean
    low, high = (_number(end, metric, "+") for end in (difference.low, difference.high))
    return f"{mean} [{low}, {high}]{' *' if difference.is_clear else ''}"


def reading(seeds: int, compared: int, *, led: bool) -> list[str]:
    """How to read differences, and how far they carry."""
    if seeds < 2:
        said = ["One seed: a difference without an interval; nothing here is shown to be clear"]
    else:
        said = [
            f"In brackets the {100 * CONFIDENCE:.0f} % interval of the mean, paired over {seeds} "
            f"seeds (Student's t = {student_t(seeds):.2f}: so few seeds make it wide)",
            "* is clear: the interval leaves zero out; without it the difference may be chance",
            f"Were there no differences at all, about {compared * (1 - CONFIDENCE):.0f} of these "
            f"{compared} would still be clear",
            "All seeds share their rooms: the interval tells of other seeds, not of other rooms",
        ]
    if led:
        said.append("Rooms led: pairs of room and seed in which the accuracy is higher")
    return said


def rooms(setting: Setting, names: Sequence[str]) -> Table:
    """Every room's accuracy (and MAE where classes are counts) under some rows, by name."""
    shown = [row for name in names if (row := setting.row(name)) is not None]
    metrics = metrics_of(setting, ("accuracy", "mae_median", "mae", "activity.accuracy"))
    at = setting.rounds
    several = len(setting.seeds) > 1
    whose = f" are those of seed {min(setting.seeds, default=0)}: another seed splits otherwise"
    return Table(
        title=f"{setting.title}, room by room after {setting.horizon_label(at)} rounds",
        headings=[
            *("Room", "Net", "Train", "Test"),
            *(METRICS[metric].short for _ in shown for metric in metrics),
        ],
        rows=[
            [
                *(room, about["architecture"], str(about["train"]), str(about["test"])),
                *(cell(row.room(at, room, metric), metric) for row in shown for metric in metrics),
            ]
            for room, about in sorted(setting.data["rooms"].items())
        ],
        note=_sentences(
            ("Mean ± standard deviation over seeds; net" if several else "Net")
            + f", train and test windows{whose}",
            caption(setting, at),
        ),
        text_columns=2,
        spans=[("", 4), *((row.title, len(metrics)) for row in shown)],
    )


def reach(setting: Setting) -> Table | None:
    """Rounds and megabytes (all rooms, both ways) until a row's five-round mean is that good.

    As good as each of ``target_accuracies``; where there are none, there is no table.
    """
    wanted = target_accuracies(setting)
    rows = [row for row in setting.ordered if row.group != "blind"]
    shown = [row for row in rows if row.curves() and row.outcomes[0].scored is None]
    left_out = [row.title for row in rows if row not in shown]
    if not wanted or not shown:
        return None
    return Table(
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


def _reach(row: Row, accuracy: float) -> tuple[str, str]:
    there = [at for outcome in row.outcomes if (at := reached(outcome, accuracy)) is not None]
    if not there:
        return _NONE, _NONE
    rounds, moved = np.asarray(there, np.float64).mean(axis=0)
    few = "" if len(there) == len(row.outcomes) else f" ({len(there)} of {len(row.outcomes)})"
    number = f"{rounds:.0f}" if len(there) == 1 else f"{rounds:.1f}"
    return number + few, f"{moved / 1e6:,.2f}" if row.moves else _NONE


def published_table(setting: Setting, figures: Mapping[str, Mapping[str, float]]) -> Table:
    """The paper's figures for a setting, by row name; never in one table with ours.

    Accuracy and macro F1 as shares, or in percent as the paper prints them: above 1 they can be
    nothing else.
    """
    metrics = [name for name in _PUBLISHED if any(name in values for values in figures.values())]

    def text(values: Mapping[str, float], metric: str) -> str:
        if metric not in values:
            return _NONE
        return f"{_as_printed(metric, values[metric]):.2f}"

    titles = {row.name: row.title for row in setting.rows}
    return Table(
        title=f"{setting.title}, as published",
        headings=["Method", *(_PUBLISHED[metric] for metric in metrics)],
        rows=[
            [titles.get(name, name), *(text(values, metric) for metric in metrics)]
            for name, values in figures.items()
        ],
        note="From the paper, measured on its authors' private recordings, 80 % of the data "
        "for training and 20 % for testing; what was drawn (windows or recordings), rounds and "
        "seeds are not told. Not ours, and not comparable with ours"
        f"{_published_lead(figures, titles)}",
    )


def _as_printed(metric: str, value: float) -> float:
    return 100 * value if metric != "mae" and value <= 1 else value


def _published_lead(figures: Mapping[str, Mapping[str, float]], titles: Mapping[str, str]) -> str:
    """By how much the paper's method leads Local and the next best there, as a sentence.

    Nothing where Local is not among them.
    """
    accuracy = {
        name: _as_printed("accuracy", values["accuracy"])
        for name, values in figures.items()
        if "accuracy" in values
    }
    mine = accuracy.pop(REFERENCE, None)
    if mine is None or _ALONE not in accuracy:
        return ""
    second = max(accuracy, key=lambda name: accuracy[name])
    leads = {name: mine - accuracy[name] for name in (_ALONE, second)}
    told = " and ".join(
        f"{lead:.2f} points over {titles.get(name, name)}{', the next best' * (name == second)}"
        for name, lead in leads.items()
    )
    return f". {titles.get(REFERENCE, REFERENCE)}'s lead in accuracy there is {told}"
