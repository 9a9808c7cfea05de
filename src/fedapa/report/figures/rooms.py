"""Rooms: how well each is counted, confusion matrices, and who learns from whom."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedapa.evaluation.metrics import class_shares
from fedapa.evaluation.record import between_rooms, entropies
from fedapa.evaluation.results import Setting
from fedapa.federation.run import Run
from fedapa.report.captions import caption, data_text
from fedapa.report.figures.curves import ACCURACY
from fedapa.report.style import (
    HATCHES,
    PALETTE,
    SMALL,
    WIDTH,
    drawn,
    legend_label,
    look,
    places,
    shortened,
)

__all__ = ["confusion_matrices", "named_in_order", "room_bars", "weights_over_time"]

_Floats = npt.NDArray[np.float64]
_LONGEST = 16  # letters of a class on an axis
_NUMBERS = 8
"""Rows and columns of a matrix up to which its cells say their number."""


def room_bars(setting: Setting, chosen: Sequence[str]) -> Figure:
    """Each room's accuracy under some rows, named: a cluster per room, whiskers over seeds."""
    at = setting.rounds
    named = [row for row in setting.ordered if row.name in chosen]
    shown = [row for row in named if row.metrics(at, "accuracy") is not None]
    rooms = sorted(setting.data["rooms"])
    width = 0.84 / max(1, len(shown))
    several = any(len(row.outcomes) > 1 for row in shown)
    spoken = "Mean over seeds, whiskers ± one standard deviation over seeds. " if several else ""
    with drawn(3.1, f"{setting.title}. {spoken}{caption(setting, at)}") as figure:
        axes = figure.subplots()
        axes.grid(visible=False, axis="x")
        looks = places([row.name for row in shown])
        for number, row in enumerate(shown):
            place = looks[row.name]
            values = np.asarray([row.room(at, room, "accuracy") for room in rooms])
            axes.bar(
                np.arange(len(rooms)) + (number - (len(shown) - 1) / 2) * width,
                100 * values.mean(axis=1),
                0.94 * width,
                yerr=100 * values.std(axis=1, ddof=1) if values.shape[1] > 1 else None,
                error_kw={"elinewidth": 0.9, "capsize": 1.5, "ecolor": "#222222"},
                color=PALETTE[place % len(PALETTE)],
                hatch=HATCHES[place % len(HATCHES)],
                edgecolor="white",
                linewidth=0.5,
                label=row.title,
            )
        _room_floors(axes, setting, rooms)
        names = [shortened(room, 18 if len(rooms) <= 6 else 15) for room in rooms]
        nets = [setting.data["rooms"][room]["architecture"] for room in rooms]
        labels = [f"{name}\n{net}" for name, net in zip(names, nets, strict=True)]
        crowded = sum(map(len, names)) > 60  # they would touch one another
        axes.set_xticks(range(len(rooms)), labels, fontsize=SMALL if crowded else None)
        if len(rooms) > 7:
            axes.tick_params(axis="x", rotation=40)
        top = max(1.0, axes.dataLim.y1)  # whiskers and all
        axes.set(ylabel=ACCURACY, ylim=(0, min(100, 10 * math.ceil(1.02 * top / 10))))
        handles, titles = axes.get_legend_handles_labels()
        first = len(titles) - len(shown)  # lines come before bars; the floor belongs last
        figure.legend(
            handles[first:] + handles[:first],
            titles[first:] + titles[:first],
            loc="outside upper center",
            ncols=4,
            columnspacing=1.2,
        )
        return figure


def _room_floors(axes: Axes, setting: Setting, rooms: Sequence[str]) -> None:
    """What a constant answer reaches in each room."""
    blind = setting.row("constant")
    for number, room in enumerate(rooms):
        floor = None if blind is None else blind.room(setting.rounds, room, "accuracy")
        if blind is not None and floor is not None:
            ends, level = [number - 0.46, number + 0.46], [100 * np.mean(floor)] * 2
            label = blind.title.lower() if number == 0 else None
            axes.plot(ends, level, color="#222222", lw=1.2, ls=":", label=label)


# ---- matrices -----------------------------------------------------------------------------------


def named_in_order(classes: Sequence[Any]) -> tuple[list[int], list[str]]:
    """Places of classes and their tick labels, numbers by size and before words: 1, 2, 10.

    Categories keep their beginning.
    """

    def natural(place: int) -> tuple[int, float, str]:
        label = str(classes[place])
        return (0, float(label), "") if label.isdecimal() else (1, 0.0, label)

    order = sorted(range(len(classes)), key=natural)
    names = [str(classes[place]) for place in order]
    return order, [name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…" for name in names]


def _matrix(axes: Axes, values: _Floats, highest: float, number: Callable[[float], str]) -> Any:
    """A matrix in colours, with numbers in its cells where they are few; grey where not known."""
    axes.grid(visible=False)
    axes.set_facecolor("#dddddd")
    image = axes.imshow(values, cmap="cividis", vmin=0, vmax=highest)
    for row, column in np.ndindex(values.shape) if len(values) <= _NUMBERS else ():
        value = float(values[row, column])
        if np.isfinite(value):
            size = 7 if axes.bbox.width / len(values) > 20 else 5
            ink = "black" if value > 0.55 * highest else "white"
            axes.text(
                column, row, number(value), ha="center", va="center", fontsize=size, color=ink
            )
    return image


def confusion_matrices(runs: Mapping[str, Sequence[Run]], about: str = "") -> Figure:
    """Confusion matrices by title: windows of all rooms and seeds, a row is 100 %.

    ``about`` begins the caption. Classes that are numbers stand in the order of numbers.
    """
    first = next(iter(runs.values()))[0]
    order, classes = named_in_order(first.data["classes"])
    columns = min(3, len(runs))
    deep = math.ceil(len(runs) / columns)
    long = max(map(len, classes))
    upright = long > 3
    ticks = range(0, len(classes), 1 if upright else max(1, math.ceil(len(classes) / 24)))
    names = [classes[tick] for tick in ticks]
    size = 7 if len(ticks) <= 12 else 5.5
    side = (WIDTH - 1.0 - (0.07 * long if upright else 0)) / columns
    seeds = sorted({run.plan.seed for by_seed in runs.values() for run in by_seed})
    said = (
        f"{about + '. ' if about else ''}Confusion matrices: test windows of all rooms and seeds "
        "after each run's last round; a row adds up to 100 %, a grey one has no test window. "
        f"{data_text(first.data, seeds)}"
    )
    height = deep * (min(side, 3.0) + (0.075 * long if upright else 0.1) + 0.5) + 0.4
    with drawn(height, said) as figure:
        grid = figure.subplots(deep, columns, sharey=True, squeeze=False)
        for axes in list(grid.flat)[len(runs) :]:
            axes.set_visible(False)
        for axes, (title, by_seed) in zip(grid.flat, runs.items(), strict=False):
            shares = class_shares(
                matrix for run in by_seed for matrix in run.summary["confusion"].values()
            )
            ordered = 100 * shares[np.ix_(order, order)]  # (C, C)
            image = _matrix(axes, ordered, 100, lambda value: f"{value:.0f}")
            axes.set_xticks(ticks, names, rotation=90 if upright else 0, fontsize=size)
            axes.set_yticks(ticks, names, fontsize=size)
            last = sorted({len(run.records) for run in by_seed})
            axes.set(
                title=f"{title}, after round {' or '.join(map(str, last))}", xlabel="predicted"
            )
        for line in grid:
            line[0].set_ylabel("true")
        figure.colorbar(image, ax=grid, label="share of the true class (%)", shrink=0.85)
        return figure


def weights_over_time(run: Run, about: str = "") -> Figure | None:
    """Who takes how much of whom: matrices from the first to the last round, and lines below.

    ``about`` begins the caption. Self-weight is what a room gives itself, entropy how evenly it
    takes: log N is evenly from all. None where a run recorded no weights.
    """
    weighed = [record for record in run.records if "weights" in record["server"]]
    if not weighed:
        return None
    rounds = [record["round"] for record in weighed]
    names = sorted(run.data["rooms"])
    matrices = np.asarray([between_rooms(record, "weights", names) for record in weighed])
    rooms = [shortened(room) for room in names]
    chosen = sorted({round(place) for place in np.linspace(0, len(rounds) - 1, 5)})
    said = (
        f"{about + ': r' if about else 'R'}ow: the room that takes, column: the room it takes of; "
        "the weight of that room in its prototype mixture (eqn_6), mean over the classes that it "
        f"holds. {data_text(run.data, [run.plan.seed])} · {len(run.records)} rounds"
    )
    with drawn(5.8, said) as figure:
        upper, lower = list(cast(Any, figure.subfigures(2, 1, height_ratios=(1.35, 1))))
        grid = upper.subplots(1, len(chosen), sharey=True, squeeze=False)[0]
        for axes, place in zip(grid, chosen, strict=True):
            image = _matrix(
                axes, matrices[place], np.nanmax(matrices), lambda value: f"{value:.2f}".lstrip("0")
            )
            axes.set_title(f"round {rounds[place]}")
            axes.set_xticks(range(len(rooms)), rooms, rotation=90, fontsize=SMALL)
            axes.set_yticks(range(len(rooms)), rooms, fontsize=SMALL)
        upper.colorbar(image, ax=list(grid), label="weight", shrink=0.8)
        own = np.diagonal(matrices, axis1=1, axis2=2)  # (T, N)
        panels = lower.subplots(1, 2)
        for axes, values, label, even in (
            (panels[0], own, "self-weight", 1 / len(rooms)),
            (panels[1], entropies(weighed, names), "entropy (nats)", math.log(len(rooms))),
        ):
            every = max(1, len(rounds) // 5)
            for number, room in enumerate(rooms):
                style = {**look(number), "lw": 1.2, "markevery": ((number * every) // 8, every)}
                axes.plot(rounds, values[:, number], label=legend_label(room), **style)
            axes.axhline(even, color="#555555", lw=0.9, ls=":", label="evenly from all")
            axes.set(xlabel="round", ylabel=label)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7))
        handles, labels = panels[1].get_legend_handles_labels()
        lower.legend(
            handles, labels, loc="outside lower center", ncols=min(4, len(labels)), handlelength=3
        )
        return figure
