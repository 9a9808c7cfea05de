"""Curves: accuracy against rounds, over all rooms and room by room."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from fedapa.evaluation.record import LAST, by_room
from fedapa.evaluation.results import Row, Setting
from fedapa.federation.run import Run
from fedapa.report.captions import caption, data_text
from fedapa.report.style import SMALL, STRETCH, WIDTH, drawn, look, places, shortened

__all__ = ["ACCURACY", "convergence", "room_curves"]

ACCURACY = "test accuracy (%)"
_TOGETHER = 8
"""Curves that one panel holds before it is split."""
_BESIDE = 3
"""Curves whose names fit above the panel."""
_LONG = 40
"""How many times its first horizon an axis may span before it is logarithmic."""


def convergence(setting: Setting) -> Figure:
    """Accuracy against rounds: mean over seeds with a band of ± one deviation.

    A point is the mean of the last five rounds, as in the tables; rows that are scored at some
    rounds only are marks there. With many rows the paper's and the controls stand in one panel,
    further methods in another, with the reference in both.
    """
    rows = [row for row in setting.ordered if row.group != "blind" and row.curves()]
    panels = {"": rows}
    if len(rows) > _TOGETHER and any(row.group == "more" for row in rows):
        panels = {
            "The paper's and controls": [row for row in rows if row.group != "more"],
            "More methods": [
                row for row in rows if row.group == "more" or row.name == setting.reference
            ],
        }
    marked = [row.title for row in rows if row.outcomes[0].scored is not None]
    alone = f", of {' and '.join(marked)} the score of that round alone" if marked else ""
    seeds = "seeds" if len(setting.seeds) > 1 else "rooms"
    said = (
        f"{setting.title}. Mean over rooms and seeds, band ± one standard deviation over {seeds}; "
        f"each point the mean of the last {LAST} rounds{alone}. {caption(setting)}"
    )
    with drawn(0.5 + 2.7 * len(panels), said) as figure:
        grid = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
        for axes, (title, chosen) in zip(grid, panels.items(), strict=True):
            others = [row for row in chosen if row.name != setting.reference]
            last = max(max(map(len, row.curves())) for row in (others or chosen))
            if last > _LONG * min(setting.horizons):  # early horizons would lie on each other
                axes.set_xscale("log")
                axes.xaxis.set_major_formatter(ScalarFormatter())
                axes.set_xlim(1, 1.1 * last)
            else:
                axes.set_xlim(0, 1.02 * last)
                axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=9))
            looks = places([row.name for row in chosen])
            for row in chosen:
                _curve(axes, row, looks[row.name], thick=row.name == setting.reference)
            _floor(axes, setting)
            _mark_horizons(axes, setting, last)
            axes.set(xlabel="round", ylabel=ACCURACY)
            if len(chosen) > _BESIDE:
                axes.legend(
                    title=title, loc="center left", bbox_to_anchor=(1.01, 0.5), handlelength=3.5
                )
            else:  # a few names stand above: the curves get the whole width
                above: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.07)}
                axes.legend(ncols=len(chosen) + 1, handlelength=3.5, **above)
        return figure


def _curve(axes: Axes, row: Row, number: int, *, thick: bool) -> None:
    curves = row.curves()
    length = min(map(len, curves))
    style = {**look(number), "linewidth": 2.0 if thick else 1.2, "label": row.title}
    scored = row.outcomes[0].scored
    if scored is not None:
        rounds = np.asarray([at for at in scored if at <= length], np.int64)
        values = 100 * np.asarray([curve[:length] for curve in curves], np.float64)[:, rounds - 1]
        axes.plot(rounds, values.mean(axis=0), **{**style, "linestyle": "none"}, zorder=3)
        return
    rounds = np.arange(1, length + 1)
    mean, apart = (100 * values for values in row.band())
    every = max(1, length // 6)
    marked: Any = ((number * every) // 10, every)
    if axes.get_xscale() == "log":
        steps = np.geomspace(1, length, 7)[:-1] * length ** (number / 60)
        marked = sorted({int(step) - 1 for step in steps})
    axes.plot(rounds, mean, markevery=marked, **style, zorder=3)
    if len(apart):
        axes.fill_between(
            rounds, mean - apart, mean + apart, color=style["color"], alpha=0.1, linewidth=0
        )


def _floor(axes: Axes, setting: Setting) -> None:
    """What a constant answer reaches."""
    row = setting.row("constant")
    values = None if row is None else row.metrics(setting.rounds, "accuracy")
    if row is None or values is None:
        return
    floor = 100 * float(np.mean(values))
    low, high = axes.get_ylim()
    if low - floor < STRETCH * (high - low):
        axes.axhline(floor, color="#555555", lw=0.9, ls=":", label=row.title.lower())
    else:  # a line so far below would leave the curves no room
        axes.plot([], [], " ", label=f"(below: {row.title.lower()}, {floor:.1f} %)")


def _mark_horizons(axes: Axes, setting: Setting, last: int) -> None:
    """Thin lines where the tables look, with their share of the rounds above."""
    for horizon in (mark for mark in setting.horizons if mark <= last):
        axes.axvline(horizon, color="#999999", lw=0.6, zorder=1)
        label = setting.horizon_label(horizon)
        axes.annotate(
            label.partition("(")[2].rstrip(")") or label,
            (horizon, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 2),
            textcoords="offset points",
            ha="center",
            fontsize=SMALL,
            color="#555555",
        )


def room_curves(runs: Mapping[str, tuple[str, Sequence[Run]]], about: str) -> Figure:
    """Each room's accuracy against rounds, a panel per room, mean over seeds.

    ``runs``: row name → its title and its runs; ``about`` begins the caption.
    """
    first = next(iter(runs.values()))[1][0]
    rooms = sorted(first.data["rooms"])
    columns = min(3, len(rooms))
    deep = -(-len(rooms) // columns)
    seeds = sorted({run.plan.seed for _, by_seed in runs.values() for run in by_seed})
    said = (
        f"{about}. Accuracy of each room in every round, not averaged over rounds, mean over "
        f"seeds. {data_text(first.data, seeds)}"
    )
    looks = places(list(runs))
    with drawn(1.7 * deep + 0.9, said, width=min(WIDTH, 2.6 + 2.2 * columns)) as figure:
        grid = figure.subplots(deep, columns, sharex=True, sharey=True, squeeze=False)
        for axes, room in zip(grid.flat, rooms, strict=False):
            for name, (title, by_seed) in runs.items():
                length = min(len(run.records) for run in by_seed)
                # A room that was absent has no score: its curve has a gap there.
                values = 100 * np.asarray(
                    [by_room(run.records[:length], "accuracy", [room])[:, 0] for run in by_seed]
                )
                style = {**look(looks[name]), "markevery": max(1, length // 4), "lw": 1.1}
                axes.plot(range(1, length + 1), values.mean(axis=0), label=title, **style)
            axes.set_title(f"{shortened(room)} ({first.data['rooms'][room]['architecture']})")
            axes.set(xlabel="round", ylabel=ACCURACY)
            axes.label_outer()
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        for axes in list(grid.flat)[len(rooms) :]:
            axes.set_visible(False)
        figure.legend(
            *grid.flat[0].get_legend_handles_labels(),
            loc="outside upper center",
            ncols=min(4, len(runs)),
            handlelength=3,
        )
        return figure
