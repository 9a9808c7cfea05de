"""Charts of experiments in print size: several seeds, horizons, rooms; the caption is part of each.

Rows differ in colour, line and marker at once, so that a grey print still tells them apart.
"""

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import matplotlib

matplotlib.use("Agg")

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from fedapa.evaluation.record import LAST
from fedapa.evaluation.results import REFERENCE, Results, Row, Setting, running_mean
from fedapa.federation.run import Run
from fedapa.report.embedding import Embedding
from fedapa.report.figures import PALETTE, STYLE
from fedapa.report.sheets import (
    caption,
    counts,
    grouped,
    horizon_label,
    lines,
    value_text,
)

__all__ = [
    "confusions",
    "convergence",
    "embedding_map",
    "overview",
    "participation",
    "room_bars",
    "sweep",
    "weights_over_time",
]

_WIDTH = 7.0
"""Inches: a page's text, or two columns."""
_SMALL = 6.5
"""Points of the caption."""
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
_DASHES = ("-", "--", "-.", (0, (1, 1.2)), (0, (5, 1, 1, 1, 1, 1)))
_COLOURS = (*PALETTE, "#882255", "#888888", "#999933")
"""As many as a panel may hold: three of Tol's after Okabe and Ito's."""
_PLACES = {
    "fedapa": 0,
    "local": 1,
    "fedapa-self": 2,
    "fedavg": 3,
    "wifederated": 4,
    "caring": 5,
    "local-more-epochs": 8,  # grey: a black bar hides its whisker
    "pooled": 7,
    "fedproto": 1,
    "fedproto.nearest": 2,
    "fedrep": 3,
    "fedbn": 4,
    "fedala": 5,
    "fedamp": 6,
    "moon": 7,
    "fedpcl": 8,
    "fedproc": 9,
}
"""Rows that look the same in every figure; those above and further methods share no panel."""
_HATCHES = ("", "///", "...", "\\\\\\", "xxx", "++", "oo")
_TOGETHER = 8
"""Curves that one panel holds before it is split."""
_LONG = 40
"""How many times its first horizon an axis may span before it is logarithmic."""
_STRETCH = 0.25
"""How much longer an axis may become for a floor below the curves."""
_ACCURACY = "test accuracy (%)"

_Floats = npt.NDArray[np.float64]


@contextmanager
def _drawn(height: float, said: str, *, width: float = _WIDTH) -> Iterator[Figure]:
    """A figure with its caption in small print below everything else."""
    style = {**STYLE, "font.size": 8, "axes.titlesize": 8.5, "legend.fontsize": 7.5}
    with matplotlib.rc_context(style):
        text = textwrap.fill(said, round(18.5 * width))
        below = (_SMALL * 1.25 * (text.count("\n") + 1) + 5) / 72 / height
        layout = ConstrainedLayoutEngine(rect=(0, below, 1, 1 - below))
        figure = Figure(figsize=(width, height), layout=layout)
        figure.text(
            0.008, 3 / 72 / height, text, fontsize=_SMALL, color="#444444", va="bottom", wrap=False
        )
        yield figure


def _places(rows: Sequence[Row]) -> dict[str, int]:
    """Which look each row has: its own where nobody took it, else the first that is free."""
    found: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: row.name not in _PLACES):
        taken = set(found.values())
        free = (place for place in range(len(rows)) if place not in taken)
        usual = _PLACES.get(row.name)
        found[row.name] = next(free) if usual is None or usual in taken else usual
    return found


def _look(number: int) -> dict[str, Any]:
    return {
        "color": _COLOURS[number % len(_COLOURS)],
        "linestyle": _DASHES[number % len(_DASHES)],
        "marker": _MARKERS[number % len(_MARKERS)],
        "markersize": 4,
    }


# ---- curves -------------------------------------------------------------------------------------


def convergence(setting: Setting) -> Figure:
    """Accuracy against rounds, mean over seeds with a band of ± one deviation.

    A point is the mean of the last five rounds, as in the tables; rows that are scored at some
    rounds only are marks there. With many rows the paper's and the controls stand in one panel,
    further methods in another, with the reference in both.
    """
    rows = [row for row in grouped(setting.rows) if row.group != "blind" and _curves(row)]
    panels = {"": rows}
    if len(rows) > _TOGETHER and any(row.group == "more" for row in rows):
        panels = {
            "The paper's and controls": [row for row in rows if row.group != "more"],
            "More methods": [
                row for row in rows if row.group == "more" or row.name == setting.reference
            ],
        }
    said = (
        f"{setting.title}. Mean over rooms and seeds, band ± one standard deviation over seeds; "
        f"each point the mean "
        f"of the last {LAST} rounds{_marks(rows)}. {caption(setting)}"
    )
    with _drawn(0.5 + 2.7 * len(panels), said) as figure:
        grid = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
        for axes, (title, chosen) in zip(grid, panels.items(), strict=True):
            others = [row for row in chosen if row.name != setting.reference]
            places = _places(chosen)
            last = max(max(map(len, _curves(row))) for row in (others or chosen))
            if last > _LONG * min(setting.horizons):  # early horizons would lie on each other
                axes.set_xscale("log")
                axes.xaxis.set_major_formatter(ScalarFormatter())
            for row in chosen:
                _curve(axes, row, places[row.name], thick=row.name == setting.reference)
            _floor(axes, setting)
            _mark_horizons(axes, setting, last)
            axes.set(xlabel="round", ylabel=_ACCURACY)
            if axes.get_xscale() == "log":
                axes.set_xlim(1, 1.1 * last)
            else:
                axes.set_xlim(0, 1.02 * last)
                axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=9))
            axes.legend(
                title=title, loc="center left", bbox_to_anchor=(1.01, 0.5), handlelength=3.5
            )
        return figure


def _marks(rows: Sequence[Row]) -> str:
    """What marks without a line are, where there are any."""
    scored = [row.title for row in rows if row.outcomes[0].scored is not None]
    return f", of {' and '.join(scored)} the score of that round alone" if scored else ""


def _curves(row: Row) -> list[Sequence[float]]:
    return [each for outcome in row.outcomes if len(each := outcome.curve.get("accuracy", ()))]


def _curve(axes: Axes, row: Row, number: int, *, thick: bool) -> None:
    curves = _curves(row)
    length = min(map(len, curves))
    look = {**_look(number), "linewidth": 2.0 if thick else 1.2, "label": row.title}
    scored = row.outcomes[0].scored
    if scored is not None:
        at = np.asarray([each for each in scored if each <= length], np.int64)
        values = 100 * np.asarray([curve[:length] for curve in curves])[:, at - 1]
        axes.plot(at, values.mean(axis=0), **{**look, "linestyle": "none"}, zorder=3)
        return
    values = 100 * np.asarray([running_mean(curve[:length]) for curve in curves])
    rounds = np.arange(1, length + 1)
    mean = values.mean(axis=0)
    every = max(1, length // 6)
    marked: Any = ((number * every) // 10, every)
    if axes.get_xscale() == "log":
        steps = np.geomspace(1, length, 7)[:-1] * length ** (number / 60)
        marked = sorted({int(step) - 1 for step in steps})
    axes.plot(rounds, mean, markevery=marked, **look, zorder=3)
    if len(values) > 1:
        apart = values.std(axis=0, ddof=1)
        axes.fill_between(
            rounds, mean - apart, mean + apart, color=look["color"], alpha=0.1, linewidth=0
        )


def _floor(axes: Axes, setting: Setting) -> None:
    """What a constant answer reaches."""
    row = setting.row("constant")
    values = None if row is None else row.metrics(setting.rounds, "accuracy")
    if row is None or values is None:
        return
    floor = 100 * float(np.mean(values))
    low, high = axes.get_ylim()
    if low - floor < _STRETCH * (high - low):
        axes.axhline(floor, color="#555555", lw=0.9, ls=":", label=row.title.lower())
    else:  # a line so far below would leave the curves no room
        axes.plot([], [], " ", label=f"(below: {row.title.lower()}, {floor:.1f} %)")


def _mark_horizons(axes: Axes, setting: Setting, last: int) -> None:
    """Thin lines where the tables look, with their share of the rounds above."""
    for horizon in (each for each in setting.horizons if each <= last):
        axes.axvline(horizon, color="#999999", lw=0.6, zorder=1)
        label = horizon_label(setting, horizon)
        axes.annotate(
            label.partition("(")[2].rstrip(")") or label,
            (horizon, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 2),
            textcoords="offset points",
            ha="center",
            fontsize=_SMALL,
            color="#555555",
        )


# ---- several studies ----------------------------------------------------------------------------


def overview(studies: Mapping[str, Setting], against: Sequence[str]) -> Figure:
    """The reference minus some rows, in points of accuracy: a panel a row, a line a horizon.

    Args:
        studies: what to call them → where both ran; the caption says what data each has.
        against: names of rows, e.g. Local and the self-prototype control.
    """
    places: dict[tuple[str, int], float] = {}
    for number, (study, setting) in enumerate(studies.items()):
        for horizon in setting.horizons:
            places[study, horizon] = len(places) + 0.9 * number
    sources: dict[str, list[str]] = {}
    for name, setting in studies.items():
        sources.setdefault(_source(setting), []).append(f"“{name}”")
    said = (
        f"{_title_of(studies, REFERENCE)} minus each, mean over rooms and seeds with the 95 % "
        "interval of the mean, paired over seeds. Filled is clear: the interval leaves zero out. "
        + " ".join(f"{', '.join(names)}: {source}." for source, names in sources.items())
    )
    with _drawn(1.7 + 0.155 * (max(places.values()) + 1), said) as figure:
        grid = figure.subplots(1, len(against), sharex=True, sharey=True, squeeze=False)[0]
        for number, (axes, name) in enumerate(zip(grid, against, strict=True)):
            for study, setting in studies.items():
                band = [places[study, horizon] for horizon in setting.horizons]
                axes.plot([0, 0], [band[0] - 0.5, band[-1] + 0.5], color="#555555", lw=0.9)
            for (study, horizon), place in places.items():
                _interval(axes, studies[study], name, horizon, place=place, look=number)
            axes.set(xlabel="difference in accuracy (points)")
            axes.set_title(f"against {_title_of(studies, name)}")
            axes.grid(visible=False, axis="y")
        grid[0].set_yticks(
            list(places.values()),
            [f"round {horizon_label(studies[study], each)}" for study, each in places],
        )
        for study, setting in studies.items():
            first = places[study, setting.horizons[0]]
            grid[0].annotate(
                study,
                (0, first - 0.95),
                xycoords=("axes fraction", "data"),
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
                fontsize=7.5,
                fontweight="bold",
            )
        grid[0].set_ylim(max(places.values()) + 0.7, -1.6)
        return figure


def _interval(
    axes: Axes, setting: Setting, other: str, horizon: int, *, place: float, look: int
) -> None:
    mine, row = setting.row(REFERENCE), setting.row(other)
    found = setting.against(mine, row, horizon, "accuracy") if mine and row else None
    if found is None:
        return
    colour = _COLOURS[look]
    if found.low is not None and found.high is not None:
        axes.plot([100 * found.low, 100 * found.high], [place] * 2, color=colour, lw=1.2)
    filled = colour if found.is_clear else "white"
    axes.plot(100 * found.mean, place, _MARKERS[look], ms=4.5, mec=colour, mfc=filled)


def _title_of(studies: Mapping[str, Setting], name: str) -> str:
    rows = (row for setting in studies.values() if (row := setting.row(name)) is not None)
    return next((row.title for row in rows), name)


def _source(setting: Setting) -> str:
    """What the data is, in a few words."""
    data = setting.data
    kind = "SIMULATED" if data["synthetic"] else "real"
    seeds = len({outcome.seed for row in setting.rows for outcome in row.outcomes})
    return f"{kind} data, {data['source']}, split {data['split']}, {seeds} seeds"


# ---- rooms --------------------------------------------------------------------------------------


def room_bars(setting: Setting, horizon: int, chosen: Sequence[str]) -> Figure:
    """Each room's accuracy under some rows, named: a cluster a room, whiskers over seeds."""
    shown = [
        row
        for name in chosen
        if (row := setting.row(name)) is not None and row.metrics(horizon, "accuracy") is not None
    ]
    rooms = sorted(setting.data["rooms"])
    blind = setting.row("constant")
    width = 0.84 / max(1, len(shown))
    several = any(len(row.outcomes) > 1 for row in shown)
    spoken = "Mean over seeds, whiskers ± one standard deviation over seeds. " if several else ""
    with _drawn(3.1, f"{setting.title}. {spoken}{caption(setting, horizon)}") as figure:
        axes = figure.subplots()
        axes.grid(visible=False, axis="x")
        places = _places(shown)
        for number, row in enumerate(shown):
            look = places[row.name]
            values = np.asarray([row.room(horizon, room, "accuracy") for room in rooms])
            place = np.arange(len(rooms)) + (number - (len(shown) - 1) / 2) * width
            axes.bar(
                place,
                100 * values.mean(axis=1),
                0.94 * width,
                yerr=100 * values.std(axis=1, ddof=1) if values.shape[1] > 1 else None,
                error_kw={"elinewidth": 0.9, "capsize": 1.5, "ecolor": "#222222"},
                color=_COLOURS[look % len(_COLOURS)],
                hatch=_HATCHES[look % len(_HATCHES)],
                edgecolor="white",
                linewidth=0.5,
                label=row.title,
            )
        if blind is not None:
            for number, room in enumerate(rooms):
                floor = blind.room(horizon, room, "accuracy")
                if floor is not None:
                    axes.plot(
                        [number - 0.46, number + 0.46],
                        [100 * np.mean(floor)] * 2,
                        color="#222222",
                        lw=1.2,
                        ls=":",
                        label=blind.title.lower() if number == 0 else None,
                    )
        nets = {room: setting.data["rooms"][room]["architecture"] for room in rooms}
        names = [_short(room, 18 if len(rooms) <= 6 else 15) for room in rooms]
        labels = [f"{name}\n{nets[room]}" for name, room in zip(names, rooms, strict=True)]
        crowded = sum(map(len, names)) > 60  # they would touch one another
        axes.set_xticks(range(len(rooms)), labels, fontsize=_SMALL if crowded else None)
        if len(rooms) > 7:
            axes.tick_params(axis="x", rotation=40)
        top = max(1.0, axes.dataLim.y1)  # whiskers and all
        axes.set(ylabel=_ACCURACY, ylim=(0, min(100, 10 * math.ceil(1.02 * top / 10))))
        handles, names = axes.get_legend_handles_labels()
        first = len(names) - len(shown)  # lines come before bars; the floor belongs last
        figure.legend(
            handles[first:] + handles[:first],
            names[first:] + names[:first],
            loc="outside upper center",
            ncols=4,
            columnspacing=1.2,
        )
        return figure


def _short(name: str, most: int = 18) -> str:
    """A long name keeps its end: that is where names of a set differ."""
    return name if len(name) <= most else f"…{name[1 - most :]}"


def _shown(label: str) -> str:
    """A label that a legend shows: matplotlib leaves out those that begin with "_"."""
    return f" {label}" if label.startswith("_") else label


def _class_names(classes: Sequence[Any], most: int = 16) -> list[str]:
    """Classes as tick labels: categories keep their beginning."""
    names = [str(label) for label in classes]
    return [name if len(name) <= most else f"{name[: most - 1]}…" for name in names]


def confusions(runs: Mapping[str, Sequence[Run]], about: str = "") -> Figure:
    """What was taken for what, by title: windows of all rooms and seeds, a row is 100 %.

    ``about`` begins the caption. Classes that are numbers stand in the order of numbers.
    """
    first = next(iter(runs.values()))[0]
    order = _natural_order(first.data["classes"])
    classes = _class_names([first.data["classes"][place] for place in order])
    columns = min(3, len(runs))
    deep = math.ceil(len(runs) / columns)
    long = max(map(len, classes))
    side = (_WIDTH - 1.0 - (0.07 * long if long > 3 else 0)) / columns
    seeds = sorted({run.plan.seed for each in runs.values() for run in each})
    said = (
        f"{about + '. ' if about else ''}Test windows of all rooms and seeds after each run's last "
        f"round; a row adds up to 100 %, "
        f"a grey one has no test window. {_run_caption(first, seeds)}"
    )
    height = deep * (min(side, 3.0) + (0.075 * long if long > 3 else 0.1) + 0.5) + 0.4
    with _drawn(height, said) as figure:
        grid = figure.subplots(deep, columns, sharey=True, squeeze=False)
        for axes in grid.flat:
            axes.set_visible(False)
        for axes, (title, each) in zip(grid.flat, runs.items(), strict=False):
            axes.set_visible(True)
            image = _confusion(axes, each, order, classes)
            last = sorted({len(run.records) for run in each})
            axes.set_title(f"{title}, after round {' or '.join(map(str, last))}")
            axes.set_xlabel("predicted")
        for line in grid:
            line[0].set_ylabel("true")
        figure.colorbar(image, ax=grid, label="share of the true class (%)", shrink=0.85)
        return figure


def _natural_order(classes: Sequence[Any]) -> list[int]:
    """Places of classes, numbers by size and before words: 1, 2, 10 and not 1, 10, 2."""

    def natural(place: int) -> tuple[int, float, str]:
        label = str(classes[place])
        return (0, float(label), "") if label.isdecimal() else (1, 0.0, label)

    return sorted(range(len(classes)), key=natural)


def _confusion(
    axes: Axes, runs: Sequence[Run], order: Sequence[int], classes: Sequence[str]
) -> Any:
    counted = np.sum(
        [np.asarray(matrix) for run in runs for matrix in run.summary["confusion"].values()], axis=0
    )[np.ix_(order, order)]
    whole = counted.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        share = np.where(whole > 0, 100 * counted / np.maximum(whole, 1), np.nan)  # (C, C)
    axes.grid(visible=False)
    axes.set_facecolor("#dddddd")
    image = axes.imshow(share, cmap="cividis", vmin=0, vmax=100)
    every = max(1, math.ceil(len(classes) / 24)) if max(map(len, classes)) <= 3 else 1
    places = range(0, len(classes), every)
    shown = [classes[place] for place in places]
    upright = max(map(len, classes)) > 3
    size = 7 if len(places) <= 12 else 5.5
    axes.set_xticks(places, shown, rotation=90 if upright else 0, fontsize=size)
    axes.set_yticks(places, shown, fontsize=size)
    if len(classes) <= 8:
        for row, column in np.ndindex(share.shape):
            if np.isfinite(share[row, column]):
                axes.text(
                    column,
                    row,
                    f"{share[row, column]:.0f}",
                    ha="center",
                    va="center",
                    fontsize=7,
                    color="black" if share[row, column] > 55 else "white",
                )
    return image


def _run_caption(run: Run, seeds: Sequence[int]) -> str:
    kind = "SIMULATED data" if run.synthetic else "real data"
    shape = " × ".join(map(str, run.data["window_shape"]))
    return (
        f"{kind}: {run.data['source'].rpartition('/')[2]} · {len(run.data['rooms'])} rooms, "
        f"windows of {shape} · split {run.data['split']} · seed{'s' if len(seeds) > 1 else ''} "
        f"{', '.join(map(str, seeds))}"
    )


# ---- between rooms ------------------------------------------------------------------------------


def weights_over_time(run: Run, title: str = "") -> Figure | None:
    """Who takes how much of whom: matrices from the first to the last round, and lines below.

    ``title`` begins the caption.

    Self-weight is what a room gives itself, entropy how evenly it takes: log N is evenly from all.
    None where a run recorded no weights.
    """
    found = [
        (record["round"], np.asarray(record["server"]["weights"], np.float64))
        for record in run.records
        if "weights" in record["server"]
    ]
    if not found:
        return None
    rooms = [_short(room) for room in sorted(run.data["rooms"])]
    chosen = sorted({round(place) for place in np.linspace(0, len(found) - 1, 5)})
    highest = max(float(matrix.max()) for _, matrix in found)
    said = (
        f"{title + ': r' if title else 'R'}ow: the room that takes, column: the room it takes of, "
        f"mean over the classes that it holds. {_run_caption(run, [run.plan.seed])} · "
        f"{len(run.records)} rounds"
    )
    with _drawn(5.2, said) as figure:
        upper, lower = list(cast(Any, figure.subfigures(2, 1, height_ratios=(1.1, 1))))
        grid = upper.subplots(1, len(chosen), sharey=True, squeeze=False)[0]
        for axes, place in zip(grid, chosen, strict=True):
            axes.grid(visible=False)
            image = axes.imshow(found[place][1], cmap="cividis", vmin=0, vmax=highest)
            axes.set_title(f"round {found[place][0]}")
            axes.set_xticks(range(len(rooms)), rooms, rotation=90, fontsize=6.5)
            axes.set_yticks(range(len(rooms)), rooms, fontsize=6.5)
        upper.colorbar(image, ax=list(grid), label="weight", shrink=0.8)
        rounds = [number for number, _ in found]
        matrices = np.stack([matrix for _, matrix in found])  # (T, N, N)
        own = np.diagonal(matrices, axis1=1, axis2=2)  # (T, N)
        panels = lower.subplots(1, 2)
        for axes, values, label in zip(
            panels, (own, _entropy(run, matrices)), ("self-weight", "entropy (nats)"), strict=True
        ):
            for number, room in enumerate(rooms):
                every = max(1, len(rounds) // 5)
                axes.plot(
                    rounds,
                    values[:, number],
                    label=_shown(room),
                    linewidth=1.2,
                    markevery=((number * every) // 8, every),
                    **_look(number),
                )
            axes.set(xlabel="round", ylabel=label)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7))
        even = math.log(len(rooms))
        panels[0].axhline(1 / len(rooms), color="#555555", lw=0.9, ls=":")
        panels[1].axhline(even, color="#555555", lw=0.9, ls=":", label="evenly from all")
        handles, labels = panels[1].get_legend_handles_labels()
        lower.legend(
            handles, labels, loc="outside lower center", ncols=min(4, len(labels)), handlelength=3
        )
        return figure


def _entropy(run: Run, matrices: _Floats) -> _Floats:
    """As recorded, class by class; of the mean weights where an algorithm records none."""
    kept = [
        record["server"].get("entropy") for record in run.records if "weights" in record["server"]
    ]
    if all(each is not None for each in kept):
        return np.asarray(kept, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(matrices > 0, -matrices * np.log(matrices), 0.0)
    return np.asarray(each.sum(axis=2), np.float64)  # (T, N)


def embedding_map(panels: Sequence[Embedding], said: str = "") -> Figure:
    """Where windows lie beside each other: colour is the class, the marker the room.

    Prototypes, where there are any, are larger and outlined.
    """
    first = panels[0]
    order = _natural_order(first.classes)
    rank = np.argsort(order)
    classes = _class_names([first.classes[place] for place in order])
    rooms = sorted({name for panel in panels for name in panel.rooms})
    colours = matplotlib.colormaps["viridis"].resampled(len(classes))
    scale = BoundaryNorm(np.arange(len(classes) + 1) - 0.5, len(classes))
    with _drawn(3.9, said) as figure:
        grid = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, panel in zip(grid, panels, strict=True):
            axes.grid(visible=False)
            axes.set(xticks=[], yticks=[], title=panel.title, aspect="equal")
            axes.set_adjustable("datalim")
            axes.spines[:].set_visible(True)
            for number, room in enumerate(rooms):
                marker = _MARKERS[number % len(_MARKERS)]
                for points, labels, held, look in (
                    (
                        panel.points,
                        panel.labels,
                        panel.rooms,
                        {"s": 14, "linewidths": 0.2, "edgecolors": "white", "zorder": 3},
                    ),
                    (
                        panel.prototypes,
                        panel.prototype_labels,
                        panel.prototype_rooms,
                        {"s": 52, "linewidths": 0.9, "edgecolors": "black", "zorder": 2},
                    ),
                ):
                    here = np.asarray([name == room for name in held], bool)
                    if here.any():
                        axes.scatter(
                            points[here, 0],
                            points[here, 1],
                            c=rank[labels[here]],
                            cmap=colours,
                            norm=scale,
                            marker=marker,
                            **look,
                        )
        every = max(1, math.ceil(len(classes) / 24))
        places = range(0, len(classes), every)
        bar = figure.colorbar(
            matplotlib.cm.ScalarMappable(scale, colours),
            ax=list(grid),
            ticks=list(places),
            label="people" if all(isinstance(label, int) for label in first.classes) else "class",
        )
        bar.ax.set_yticklabels([classes[place] for place in places], fontsize=6.5)
        bar.ax.minorticks_off()
        marks = [
            Line2D([], [], ls="none", marker=_MARKERS[number % len(_MARKERS)], color="#666666")
            for number in range(len(rooms))
        ]
        names = [_shown(_short(room, 24)) for room in rooms]
        if any(len(panel.prototypes) for panel in panels):
            marks.append(
                Line2D([], [], ls="none", marker="o", ms=8, mfc="white", mec="black", mew=0.9)
            )
            names.append("prototype")
        figure.legend(marks, names, loc="outside upper center", ncols=min(5, len(names)))
        return figure


# ---- sweeps -------------------------------------------------------------------------------------


def is_default(row: Row) -> bool:
    """Whether a swept value is the one used elsewhere: FedAPA itself, or said in the title."""
    return row.name == REFERENCE or row.title.endswith("(default)")


def sweep(results: Results, setting: Setting, horizon: int | None = None) -> Figure:
    """Accuracy, and MAE where classes are counts, against the values of the swept parameter.

    Values stand at even distances, whatever they are; dots are seeds, a ring is the default.
    """
    at = setting.rounds if horizon is None else horizon
    rows = [row for row in setting.rows if row.value is not None]
    said = (
        f"{setting.title}. Mean over seeds ± one standard deviation, small dots are seeds"
        f"{', the ring is the default' if any(map(is_default, rows)) else ''}. "
        f"{caption(setting, at)}"
    )
    with _drawn(2.7, said, width=_WIDTH if counts(setting) else 4.2) as figure:
        for axes, metric, label in _panels(figure, setting):
            found = [(place, row.metrics(at, metric)) for place, row in enumerate(rows)]
            kept = [(place, values) for place, values in found if values]
            _points(axes, kept, metric, 0)
            for place, each in kept:  # beside the mean, or they would lie under it
                dots = _scale(metric) * np.asarray(each)
                axes.plot([place + 0.13] * len(dots), dots, "o", ms=2.5, color="#444444")
            for place, row in enumerate(rows):
                values = row.metrics(at, metric)
                if values and is_default(row):
                    mean = _scale(metric) * float(np.mean(values))
                    axes.plot(place, mean, "o", ms=12, mfc="none", mec=PALETTE[1], mew=1.5)
            _controls(axes, setting, at, metric)
            texts = [value_text(row.value) for row in rows if row.value is not None]
            long = sum(map(len, texts)) > 40
            axes.set_xticks(
                range(len(rows)),
                texts,
                rotation=30 if long else 0,
                ha="right" if long else "center",
            )
            axes.set_xlim(-0.5, len(rows) - 0.5)
            axes.set(xlabel=results.parameter, ylabel=label)
        _legend_above(figure)
        return figure


def participation(results: Results, setting: Setting, horizon: int | None = None) -> Figure:
    """A sweep with several lines: one a group (a way to select rooms), on a scale of values."""
    at = setting.rounds if horizon is None else horizon
    found = lines(setting)
    said = (
        f"{setting.title}. Mean over seeds ± one standard deviation; lines are set apart a little "
        f"where they would "
        f"meet. {caption(setting, at)}"
    )
    ticks = sorted({float(row.value) for rows in found.values() for row in rows if row.value})
    apart = 0.008 * (ticks[-1] - ticks[0]) if len(ticks) > 1 else 0.0
    with _drawn(3.0, said, width=_WIDTH if counts(setting) else 4.2) as figure:
        panels = _panels(figure, setting)
        for axes, metric, label in panels:
            for number, (group, rows) in enumerate(found.items()):
                pairs = [
                    (
                        float(row.value) + apart * (number - (len(found) - 1) / 2),
                        row.metrics(at, metric),
                    )
                    for row in sorted(rows, key=lambda row: float(row.value or 0))
                    if row.value is not None
                ]
                kept = [(place, values) for place, values in pairs if values]
                _points(axes, kept, metric, number, label=group)
            _controls(axes, setting, at, metric)
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.set(xlabel=results.parameter, ylabel=label)
        _legend_above(figure)
        return figure


def _legend_above(figure: Figure) -> None:
    """What the panels show, each once, above all of them: lines of points, then those across."""
    shown = {
        label: handle
        for axes in figure.axes
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if not shown:
        return
    order = sorted(shown, key=lambda label: isinstance(shown[label], Line2D))
    figure.legend(
        [shown[label] for label in order], order, loc="outside upper center", ncols=len(order)
    )


def _panels(figure: Figure, setting: Setting) -> list[tuple[Axes, str, str]]:
    wanted = [("accuracy", _ACCURACY), ("mae", "mean absolute error (people)")]
    wanted = wanted if counts(setting) else wanted[:1]
    grid = figure.subplots(1, len(wanted), squeeze=False)[0]
    return [(axes, *each) for axes, each in zip(grid, wanted, strict=True)]


def _scale(metric: str) -> int:
    return 1 if metric == "mae" else 100


def _points(
    axes: Axes,
    found: Sequence[tuple[float, Sequence[float]]],
    metric: str,
    number: int,
    label: str | None = None,
) -> None:
    """A line through means with whiskers."""
    places = [place for place, _ in found]
    values = [_scale(metric) * np.asarray(each, np.float64) for _, each in found]
    look = {**_look(number), "markersize": 5}
    apart = [float(each.std(ddof=1)) if len(each) > 1 else 0.0 for each in values]
    axes.errorbar(
        places, [each.mean() for each in values], apart, capsize=3, lw=1.2, label=label, **look
    )


def _controls(axes: Axes, setting: Setting, at: int, metric: str) -> None:
    """Rows without a value: what was not swept, as a line across; far from all points in words."""
    low, high = axes.get_ylim()
    spare = _STRETCH * (high - low)
    far: dict[str, list[str]] = {"above": [], "below": []}
    for number, row in enumerate(row for row in setting.rows if row.value is None):
        values = row.metrics(at, metric)
        if values is None:
            continue
        level = _scale(metric) * float(np.mean(values))
        if low - spare <= level <= high + spare:
            dash = _DASHES[1 + number % (len(_DASHES) - 1)]
            axes.axhline(level, color="#555555", lw=0.9, ls=dash, label=row.title)
        else:  # a line so far off would leave the points no room
            said = f"{level:.2f}" if metric == "mae" else f"{level:.1f} %"
            far["below" if level < low else "above"].append(f"{row.title.lower()}, {said}")
    told = [f"{where}: {each}" for where, found in far.items() for each in found]
    axes.set_title("\n".join(told), loc="left", fontsize=_SMALL, color="#555555")
