"""How soon a new room counts: rounds and seconds until it is as right as it will be."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedapa.evaluation.record import LAST
from fedapa.evaluation.results import Row, Setting, spread
from fedapa.federation.run import Run
from fedapa.federation.run_files import read_times
from fedapa.report.captions import caption
from fedapa.report.runs import Runs
from fedapa.report.tables.comparison import cell, metrics_of
from fedapa.report.tables.table import Table
from fedapa.rooms.model_file import read_recipe

__all__ = ["of_new_rooms", "until_it_counts"]

_NONE = "–"
_BEFORE = (
    "Before any round: no step at home, with what the room received and, where prototypes answer, "
    "those of its own labels"
)
_NEAR = 0.01
"""A net counts when its accuracy is no further than one point below its last."""


def until_it_counts(setting: Setting, runs: Runs, *, parameter: str) -> Table | None:
    """Rounds, and seconds of a room's own training, until newcomers count; none without any.

    After the first round whose mean accuracy over rooms is within one point of the mean of the
    last five. Rows that follow no rounds are left out.
    """
    if not any(run.plan.joins for run in runs.values()):
        return None
    rows = []
    for row in setting.ordered:
        own = [run for key, run in runs.items() if key[:2] == (setting.name, row.name)]
        if own and row.value is not None and row.outcomes[0].scored is None:
            rows.append(_row(row, own))
    if not rows:
        return None
    return Table(
        title=f"{setting.title}, how soon a new room counts",
        headings=[
            *("Method", parameter[:1].upper() + parameter[1:], "Labelled windows per room"),
            *("Rounds", "Seconds per room"),
            *("Accuracy before any round (%)", "Accuracy after one round (%)"),
        ],
        rows=rows,
        note=(
            "Rounds until the accuracy, mean over rooms, is within one point of that of the last "
            f"{LAST}; mean over seeds. Seconds are those that a room trained up to then, with one "
            f"thread, beside other work: an upper bound. {_BEFORE}; {_NONE} where runs did not "
            f"keep it. {caption(setting)}"
        ),
    )


def of_new_rooms(setting: Setting, runs: Runs, *, parameter: str) -> Table:
    """What a room that joined has, by its labels, beside the same room alone; a line each.

    Accuracy and error over labelled minutes, and how soon it counts.
    """
    at, rows = setting.rounds, []
    errors = metrics_of(setting, ["mae_median"])
    shown = [row for row in replace(setting, rows=setting.deployed).ordered if row.group != "blind"]
    for row in shown:
        own = [run for key, run in runs.items() if key[:2] == (setting.name, row.name)]
        scores = [cell(row.metrics(at, metric), metric) for metric in ("accuracy", *errors)]
        _, value, windows, rounds, seconds, before, first = _row(row, own)
        rows.append(
            [
                *(row.group, value, _minutes(own[0]), windows, *scores),
                *(before, first, rounds, seconds),
            ]
        )
    return Table(
        title=f"{setting.title}, by {parameter}",
        headings=[
            *("Method", parameter[:1].upper() + parameter[1:], "Labelled minutes", "Windows"),
            *("Accuracy (%)", *("MAE (people)" for _ in errors)),
            *("Before any round (%)", "After one (%)", "Rounds until it counts", "Seconds"),
        ],
        rows=rows,
        note=(
            "Labelled minutes are of what trains; what is held out is beside that, and is the same "
            f"in all lines. With fewer labels the rest has none. {_BEFORE}. It counts when its "
            f"accuracy is within one point of that of the last {LAST} rounds; seconds are those "
            f"that it trained up to then. {caption(setting, at)}"
        ),
        breaks=[n for n in range(1, len(shown)) if shown[n].group != shown[n - 1].group],
    )


def _minutes(run: Run) -> str:
    """Of the recordings that its train windows are from, mean over rooms; as far as it is known."""
    lasting = []
    for room, about in run.data["rooms"].items():
        file = run.folder / "models" / f"{room}.safetensors"
        recipe = read_recipe(file) if file.is_file() else None
        rate = None if recipe is None else recipe.rate or recipe.packet_rate
        if recipe is None or recipe.window is None or rate is None or not about["recordings"]:
            return _NONE
        # The first window of a recording covers all of its packets, each next one a step more.
        first = about["recordings"]["train"] * (recipe.window - recipe.step)
        lasting.append((about["train"] * recipe.step + first) / rate / 60)
    return f"{np.mean(lasting):.1f}"


def _row(row: Row, runs: Sequence[Run]) -> list[str]:
    rounds, seconds, before, first, labelled = [], [], [], [], []
    by_seed = {run.plan.seed: run for run in runs}
    for outcome in row.outcomes:
        run = by_seed[outcome.seed]
        curve = np.asarray([np.nan if a is None else a for a in outcome.curve["accuracy"]])
        near = np.flatnonzero(curve >= np.nanmean(curve[-LAST:]) - _NEAR)
        rounds.append(int(near[0]) + 1 if len(near) else len(curve))
        seconds.append(_trained(run, rounds[-1]))
        before.append(run.before.get("mean", {}).get("accuracy"))
        first.append(float(curve[0]))
        labelled.append(float(np.mean([room["train"] for room in run.data["rooms"].values()])))
    return [
        *(row.group, str(row.value), f"{np.mean(labelled):.0f}"),
        *(f"{np.mean(rounds):.1f}", f"{np.mean(seconds):.1f}"),
        _NONE if None in before else f"{100 * spread(before).mean:.1f}",
        f"{100 * spread(first).mean:.1f}",
    ]


def _trained(run: Run, rounds: int) -> float:
    """Seconds that a room trained in the first rounds, mean over rooms.

    An interrupted round whose reply was remembered has none: it counts as the room's others.
    """
    told: dict[str, list[float | None]] = {}
    for exchange in read_times(run.folder)[:rounds]:
        for room, spent in exchange["rooms"].items():
            told.setdefault(room, []).append(spent.get("train"))
    each = [
        len(every) * float(np.mean(known))
        for every in told.values()
        if (known := [spent for spent in every if spent is not None])
    ]
    return float(np.sum(each)) / max(1, len(run.data["rooms"]))
