"""Presence: what it costs in false alarms to notice that somebody is there."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedapa.evaluation.metrics import THRESHOLDS, area_bounds
from fedapa.federation.run import Run
from fedapa.report.captions import data_text, number_of
from fedapa.report.style import (
    DASHES,
    PALETTE,
    SMALL,
    WIDTH,
    drawn,
    legend_label,
    look,
    shortened,
)

__all__ = ["presence_rocs"]

_COLUMNS = 2
_MOST_ROOMS = 16
"""Lines in one panel; with more rooms there is one, of all windows together."""

_Counts = npt.NDArray[np.int64]


def presence_rocs(runs: Mapping[str, Sequence[Run]], about: str = "") -> Figure | None:
    """By title, the share of occupied windows that are noticed against that of false alarms.

    One line per room, windows of all seeds together; beyond 16 rooms one of all of them. ``about``
    begins the caption. None where no run tells it.
    """
    tables = {title: _by_room(by_seed) for title, by_seed in runs.items()}
    told = {title: rooms for title, rooms in tables.items() if rooms}
    if not told:
        return None
    first = runs[next(iter(told))][0]
    seeds = sorted({run.plan.seed for title in told for run in runs[title]})
    names = sorted({room for rooms in told.values() for room in rooms})
    summed = len(names) > _MOST_ROOMS
    without = len(set(first.data["rooms"]) - set(names))
    said = (
        f"{about + '. ' if about else ''}A window is held occupied where the probability that "
        "somebody is there is at least a threshold. Low thresholds notice everybody and give false "
        f"alarms (upper right), high ones neither (lower left); {len(THRESHOLDS)} thresholds from "
        "0 to 1, the ring is 0.5. The dashed line is chance. In the legend: the area under the "
        "line as drawn, 100 % where every occupied window is held more probably occupied than "
        "every empty one; tables have it without thresholds. "
        f"{'All rooms together. ' if summed else ''}"
        f"{number_of(without, 'room') + ' without both kinds of windows. ' if without else ''}"
        "Test windows of all seeds after each run's last round; probabilities are calibrated on "
        f"each room's validation windows. {data_text(first.data, seeds)}"
    )
    columns = min(_COLUMNS, len(told))
    deep = math.ceil(len(told) / columns)
    legend = 0.45 + 0.14 * (1 if summed else len(names))
    # Alone it is larger, and a narrow caption has more lines.
    height = max(2.6, legend) + 1.4 if columns == 1 else max(2.1, legend) * deep + 0.8
    with drawn(height, said, width=WIDTH if columns > 1 else 4.6) as figure:
        grid = figure.subplots(deep, columns, squeeze=False)
        for axes in list(grid.flat)[len(told) :]:
            axes.set_visible(False)
        for place, (title, rooms) in enumerate(told.items()):
            axes = grid.flat[place]
            axes.plot([0, 100], [0, 100], color="#555555", lw=0.9, ls="--", zorder=1)
            if summed:
                total = np.sum(list(rooms.values()), axis=0)
                _line(axes, total, number_of(len(rooms), "room"), _look(0))
            else:
                for room, table in rooms.items():
                    _line(axes, table, shortened(room, 16), _look(names.index(room)))
            axes.set_title(title, loc="left")
            axes.set(xlim=(-2, 102), ylim=(-2, 102))
            axes.set_xlabel("false alarms (% of empty)")
            axes.set_ylabel("" if place % columns else "hits (% of occupied)")
            beside: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.02)}
            axes.legend(fontsize=SMALL, handlelength=2.2, labelspacing=0.35, **beside)
        return figure


def _by_room(runs: Sequence[Run]) -> dict[str, _Counts]:
    """By room [thresholds, 2] of all seeds, of rooms with empty and with occupied windows."""
    tables: dict[str, _Counts] = {}
    for run in runs:
        for room, points in run.summary.get("roc", {}).items():
            if len(points) == len(THRESHOLDS):
                tables[room] = tables.get(room, 0) + np.asarray(points, np.int64)
    return {room: tables[room] for room in sorted(tables) if tables[room][0].all()}


def _look(number: int) -> dict[str, Any]:
    """Of the n-th room: colours come again sooner than rooms end, then with other dashes."""
    again = number // len(PALETTE)
    return {**look(number), "linestyle": DASHES[(number + again) % len(DASHES)]}


def _line(axes: Axes, table: _Counts, name: str, style: Mapping[str, Any]) -> None:
    bounds = area_bounds(table)
    if bounds is None:
        return
    shares = 100 * np.vstack([table / table[0], [[0, 0]]])  # nobody is surer than certain
    half = THRESHOLDS.index(0.5)
    label = legend_label(f"{name}, {50 * sum(bounds):.1f} %")
    ring = {**style, "marker": "o", "markerfacecolor": "none", "markersize": 6}
    axes.plot(*shares.T, lw=1.2, markevery=[half], label=label, zorder=3, clip_on=False, **ring)
