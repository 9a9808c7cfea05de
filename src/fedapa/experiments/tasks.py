"""``fedapa reproduce tasks``: one net that tells count and activity, against a net for each.

Expected shape: two rows for each of Local, FedAPA and FedJoin, one net and two nets, with accuracy
and MAE of the count, accuracy of the activity and the bytes of both; below, one net minus two,
paired over seeds. Splits are the same in all of them. A net of two tasks has one encoder, so it
costs half the parameters; whether the tasks help or disturb each other is what is asked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedapa.algorithms import find
from fedapa.algorithms.fedjoin import FedJoin
from fedapa.algorithms.local import Local
from fedapa.evaluation.metrics import METRICS
from fedapa.evaluation.results import REFERENCE, Outcome, Row, Setting
from fedapa.experiments.experiment import CHOSEN, Case, Experiment
from fedapa.federation.plan import Plan
from fedapa.report.captions import caption
from fedapa.report.tables.comparison import difference_text, reading
from fedapa.report.tables.table import Table
from fedapa.rooms.task import ACTIVITY

__all__ = ["TASKS", "one_or_two", "two_nets"]

_METHODS = (Local.name, REFERENCE, FedJoin.name)
_ONE, _TWO = "-one", "-two"
_COMPARED = ("accuracy", "mae_median", "activity.accuracy", "activity.macro_f1")


def _cases(plan: Plan) -> Sequence[Case]:
    rooms = {} if plan.data.file is not None else {"simulated": "activities"}

    def case(name: str, mark: str, tasks: str, title: str) -> Case:
        change = {"algorithm": name, "data": {**rooms, "tasks": tasks}}
        return Case(f"{name}{mark}", change, f"{find(name).title}, {title}")

    return [
        each
        for name in _METHODS
        for each in (
            case(name, _ONE, "both", "one net"),
            case(name, _TWO, "label", "two nets"),
            case(name, f"{_TWO}-{ACTIVITY}", ACTIVITY, "two nets, the second"),
        )
    ]


def two_nets(rows: Sequence[Row]) -> list[Row]:
    """The rows, of which those of two nets are one: the second's scores are the activity's."""
    second = {row.name: row for row in rows if _case(row).endswith(f"{_TWO}-{ACTIVITY}")}
    together = []
    for row in rows:
        if row.name in second:
            continue
        case, dot, alternative = row.name.partition(".")
        other = second.get(f"{case}-{ACTIVITY}{dot}{alternative}")
        if other is not None:
            pairs = zip(row.outcomes, other.outcomes, strict=True)
            row = replace(row, outcomes=[_both(one, two) for one, two in pairs])
        together.append(row)
    return together


def _case(row: Row) -> str:
    return row.name.partition(".")[0]


def _both(count: Outcome, activity: Outcome) -> Outcome:
    """The outcome of two nets: their scores side by side, their bytes together."""
    horizons = [horizon for horizon in count.at if horizon in activity.at]
    return replace(
        count,
        commit=", ".join(dict.fromkeys([*count.commits, *activity.commits])),
        curve={**count.curve, **_as_activity(activity.curve)},
        bytes=[sum(moved) for moved in zip(count.bytes, activity.bytes, strict=True)],
        at={horizon: _beside(count.at[horizon], activity.at[horizon]) for horizon in horizons},
    )


def _beside(count: Mapping[str, Any], activity: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {
        part: {**count.get(part, {}), **_as_activity(activity.get(part, {}))}
        for part in ("mean", "std", "fewer_rooms")
        if part in count or part in activity
    }
    made["rooms"] = {
        room: {**own, **_as_activity(activity["rooms"].get(room, {}))}
        for room, own in count["rooms"].items()
    }
    return made


def _as_activity(scores: Mapping[str, Any]) -> dict[str, Any]:
    named = {f"{ACTIVITY}.{metric}": value for metric, value in scores.items()}
    return {metric: value for metric, value in named.items() if metric in METRICS}


def one_or_two(setting: Setting) -> Table:
    """One net minus two nets, paired over seeds, after all rounds."""
    pairs = [
        (one, two)
        for one in setting.rows
        if one.name.endswith(_ONE)
        and (two := setting.row(one.name.removesuffix(_ONE) + _TWO)) is not None
    ]
    rows = []
    for one, two in pairs:
        cells = [one.title.partition(",")[0]]
        for metric in _COMPARED:
            difference = setting.against(one, two, setting.rounds, metric)
            cells.append("–" if difference is None else difference_text(difference, metric))
        rows.append(cells)
    compared = len(pairs) * len(_COMPARED)
    told = [METRICS[metric].heading.replace("(%)", "(points)") for metric in _COMPARED]
    return Table(
        title=f"{setting.title}, one net minus two nets after {setting.rounds} rounds",
        headings=["Method", *told],
        rows=rows,
        note=". ".join(
            [
                "Of the MAE below zero is better for one net",
                *reading(len(setting.seeds), compared, led=False),
                caption(setting, setting.rounds),
            ]
        ),
    )


TASKS = Experiment(
    "tasks",
    "Two tasks: one net for count and activity, or two",
    _cases,
    (CHOSEN,),
    notes=(
        "One net: an encoder with a classifier and prototypes for the count and for the activity. "
        "Two nets: each task alone, in a run of its own; their bytes are added. All have the same "
        "train, validation and test windows.",
    ),
    fixed=True,
    reference=f"{REFERENCE}{_ONE}",
    combined=two_nets,
    table=one_or_two,
)
