"""Sweeps: metrics against the values of one parameter."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedapa.evaluation.metrics import METRICS
from fedapa.evaluation.results import REFERENCE, Results, Row, Setting, spread
from fedapa.report.captions import caption, fewer_rooms, number_of
from fedapa.report.figures.curves import ACCURACY
from fedapa.report.style import DASHES, PALETTE, SMALL, STRETCH, WIDTH, drawn, look
from fedapa.report.tables.comparison import metrics_of, value_text

__all__ = ["is_default", "sweep"]

_Floats = npt.NDArray[np.float64]

_LETTERS = 125
"""That fit beside each other in a legend."""
_MARK = 8
"""Letters that a line's mark takes there."""
_BESIDE, _BESIDE_SEVERAL = 40, 60
"""Letters that fit below one axis; a sweep of several lines has wider panels."""
_UPRIGHT = 110
"""Letters that do not even fit slanted: then words stand upright."""
_LEGEND_LINE = 0.2
"""Inches of a line of a legend."""


def is_default(row: Row) -> bool:
    """Whether a swept value is the one used elsewhere: FedAPA itself, or said in the title."""
    return row.name == REFERENCE or row.title.endswith("(default)")


def sweep(results: Results, setting: Setting) -> Figure:
    """Accuracy, and MAE where classes are counts, against the values of the swept parameter.

    With one line its values stand at even distances, whatever they are; dots are seeds, a ring is
    the default. Several lines, one per group of rows, stand on a scale of their values, or at even
    distances where those are words. Other answers of the same nets are left to tables, and beside
    lines so are methods with one value.
    """
    at, lines = setting.rounds, replace(setting, rows=setting.deployed).lines
    curves = {group: line for group, line in lines.items() if len(line) > 1}
    dots = len(lines) - len(curves) if curves else 0
    lines = curves or lines
    rows = [row for line in lines.values() for row in line]
    several = len(lines) > 1
    where = _on_a_scale(lines) if several else {row.name: float(i) for i, row in enumerate(rows)}
    ring = ", the ring is the default" if any(map(is_default, rows)) else ""
    apart = "; lines are set apart a little where they would meet"
    if dots:
        apart += f"; {number_of(dots, 'method')} with one value of it only: in the table"
    marks = apart if several else f", small dots are seeds{ring}"
    read = f"Mean over seeds ± one standard deviation{marks}"
    metrics = {"accuracy": ACCURACY}
    if setting.counts_people:
        # Results of before have no median.
        error = metrics_of(setting, ("mae_median", "mae"))[:1]
        metrics |= dict.fromkeys(error, "mean absolute error (people)")
    asked = list(metrics)
    parts = (setting.title, read, fewer_rooms(setting, [at], asked), caption(setting, at))
    said = ". ".join(part for part in parts if part)
    columns = max(1, _LETTERS // (max(map(len, lines)) + _MARK))
    spare = _LEGEND_LINE * (-(-len(lines) // columns) - 1)
    if several and sum(len(value_text(value)) for value in _ticks(rows)) > _UPRIGHT:
        spare += 1.0
    height, width = 3.0 + spare if several else 2.7, WIDTH if setting.counts_people else 4.2
    with drawn(height, said, width=width) as figure:
        grid = figure.subplots(1, len(asked), squeeze=False)[0]
        for axes, metric in zip(grid, asked, strict=True):
            figures = _figures(setting.rows, at, metric)
            for number, (group, line) in enumerate(lines.items()):
                told = [(where[row.name], figures[row.name]) for row in line if row.name in figures]
                told.sort(key=lambda point: point[0])
                _line(axes, told, number, group if several else "")
            if several:
                ticks = _ticks(rows)
                texts = [value_text(value) for value in ticks]
                axes.set_xticks(list(ticks.values()), texts, **_slant(texts, _BESIDE_SEVERAL))
            else:
                texts = [value_text(row.value) for row in rows]
                axes.set_xticks(range(len(rows)), texts, **_slant(texts, _BESIDE))
                axes.set_xlim(-0.5, len(rows) - 0.5)
                for row in rows:
                    if row.name in figures:
                        _seeds(axes, where[row.name], figures[row.name], default=is_default(row))
            _controls(axes, setting.rows, figures, metric)
            axes.set(xlabel=results.parameter, ylabel=metrics[metric])
        # What the panels show, each once, above all of them: lines of points, then those across.
        shown = {
            label: handle
            for axes in grid
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        order = sorted(shown, key=lambda label: isinstance(shown[label], Line2D))
        if order:
            handles = [shown[label] for label in order]
            columns = max(1, _LETTERS // (max(map(len, order)) + _MARK))
            figure.legend(
                handles, order, loc="outside upper center", ncols=min(columns, len(order))
            )
        return figure


def _slant(texts: Sequence[str], most: int) -> dict[str, Any]:
    """How words stand below an axis where so many letters would lie over each other."""
    letters = sum(map(len, texts))
    if letters > _UPRIGHT:
        return {"rotation": 90}
    return {"rotation": 30, "ha": "right"} if letters > most else {}


def _ticks(rows: Sequence[Row]) -> dict[float | str, float]:
    """Value → where it stands: numbers on their scale, words one after the other."""
    values = list(dict.fromkeys(row.value for row in rows if row.value is not None))
    if any(isinstance(value, str) for value in values):
        return {value: float(place) for place, value in enumerate(values)}
    return {value: float(value) for value in sorted(values, key=float)}


def _on_a_scale(lines: dict[str, list[Row]]) -> dict[str, float]:
    """Where rows stand by their values, those of different lines a little apart."""
    places = _ticks([row for line in lines.values() for row in line])
    apart = 0.008 * (max(places.values()) - min(places.values()))
    return {
        row.name: places[row.value or 0] + apart * (number - (len(lines) - 1) / 2)
        for number, line in enumerate(lines.values())
        for row in line
    }


def _figures(rows: Sequence[Row], at: int, metric: str) -> dict[str, _Floats]:
    """Row name → one figure per seed, in percent or in people, of rows that have any."""
    scale = 1 if METRICS[metric].in_people else 100
    by_row = {row.name: row.metrics(at, metric) for row in rows}
    return {name: scale * np.asarray(values) for name, values in by_row.items() if values}


def _line(axes: Axes, points: Sequence[tuple[float, _Floats]], number: int, label: str) -> None:
    """A line through means with whiskers."""
    spreads = [spread(figures.tolist()) for _, figures in points]
    axes.errorbar(
        [place for place, _ in points],
        [one.mean for one in spreads],
        [one.deviation or 0.0 for one in spreads],
        capsize=3,
        lw=1.2,
        label=label,
        **{**look(number), "markersize": 5},
    )


def _seeds(axes: Axes, place: float, figures: _Floats, *, default: bool) -> None:
    """Every seed as a dot beside its mean, and a ring around the default's mean."""
    axes.plot([place + 0.13] * len(figures), figures, "o", ms=2.5, color="#444444")
    if default:
        axes.plot(place, figures.mean(), "o", ms=12, mfc="none", mec=PALETTE[1], mew=1.5)


def _controls(axes: Axes, rows: Sequence[Row], figures: dict[str, _Floats], metric: str) -> None:
    """Rows without a value: what was not swept, as a line across; far from all points in words."""
    low, high = axes.get_ylim()
    spare = STRETCH * (high - low)
    told: dict[str, list[str]] = {"above": [], "below": []}
    for number, row in enumerate(row for row in rows if row.value is None):
        if row.name not in figures:
            continue
        level = float(figures[row.name].mean())
        if low - spare <= level <= high + spare:
            dash = DASHES[1 + number % (len(DASHES) - 1)]
            axes.axhline(level, color="#555555", lw=0.9, ls=dash, label=row.title)
        else:  # a line so far off would leave the points no room
            people = METRICS[metric].in_people
            number_text = f"{level:.2f}" if people else f"{level:.1f} %"
            told["below" if level < low else "above"].append(f"{row.title.lower()}, {number_text}")
    texts = [f"{side}: {text}" for side, lines in told.items() for text in lines]
    axes.set_title("\n".join(texts), loc="left", fontsize=SMALL, color="#555555")
