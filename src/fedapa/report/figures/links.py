"""Accuracy against bytes, and against time on network links of some speed."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fedapa.evaluation.links import LINKS, Link, bytes_of, seconds_of
from fedapa.evaluation.results import Outcome, Row, Setting, running_mean
from fedapa.report.captions import caption
from fedapa.report.figures.curves import ACCURACY
from fedapa.report.style import PALETTE, drawn, look
from fedapa.report.tables.links import links_text

__all__ = ["links_figure"]

_FAR = 1000
"""How far an axis may span before only powers of ten have room below it."""
_PANELS = 2
"""Beside each other."""


def links_figure(setting: Setting, links: Sequence[Link] = LINKS) -> Figure:
    """A panel for bytes and one for each link; a line for each row, mean over seeds."""
    rows = [row for row in setting.deployed if any(one.exchanged for one in row.outcomes)]
    panels: dict[str, Callable[[Outcome], Sequence[float]]] = {
        "MB of all rooms": lambda outcome: [moved / 1e6 for moved in bytes_of(outcome.exchanged)]
    }
    for link in links:
        panels[f"seconds on {link.name}"] = _time_on(link)
    lines = -(-len(panels) // _PANELS)
    said = (
        "Mean over rooms and seeds, each point the mean of the last five rounds; a line ends with "
        f"the last round. {links_text(links)}. {caption(setting)}"
    )
    with drawn(0.9 + 0.16 * len(rows) + 2.2 * lines, said) as figure:
        grid = figure.subplots(lines, _PANELS, squeeze=False, sharey=True).flatten()
        for axes, (name, along) in zip(grid, panels.items(), strict=False):
            for number, row in enumerate(rows):
                _line(axes, row, along, number)
            axes.set_xscale("log")
            low, high = axes.get_xlim()
            between = (1.0,) if high > _FAR * low else (1.0, 3.0)
            axes.xaxis.set_major_locator(LogLocator(subs=between))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set(xlabel=name)
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        for axes in grid[::_PANELS]:
            axes.set_ylabel(ACCURACY)
        handles, labels = grid[-1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3, handlelength=3)
        return figure


def _look(number: int) -> dict[str, Any]:
    """As everywhere; with more rows than there are colours the further ones have hollow marks."""
    hollow = {"markerfacecolor": "white", "linestyle": ":"} if number >= len(PALETTE) else {}
    return {**look(number), "markersize": 3.5, **hollow}


def _time_on(link: Link) -> Callable[[Outcome], Sequence[float]]:
    return lambda outcome: seconds_of(outcome.exchanged, link)


def _line(axes: Axes, row: Row, along: Callable[[Outcome], Sequence[float]], number: int) -> None:
    """Accuracy against what a row has spent; both are means over seeds, round by round."""
    length = min(map(len, row.curves()))
    spent = np.asarray([along(outcome)[:length] for outcome in row.outcomes]).mean(axis=0)
    reached = np.asarray([running_mean(curve[:length]) for curve in row.curves()]).mean(axis=0)
    if spent[-1] <= 0:  # nothing is sent: a line at no bytes has no place on this axis
        axes.plot([], [], label=row.title, lw=1.1, **_look(number))
        return
    every = max(1, length // 5)
    style = _look(number)
    axes.plot(
        spent, 100 * reached, label=row.title, lw=1.1, markevery=(number % every, every), **style
    )
