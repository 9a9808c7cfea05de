"""Reliability: how often a counter is right where it says how sure it is."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedapa.answers import BINS, calibration_error
from fedapa.federation.run import Run
from fedapa.report.captions import data_text
from fedapa.report.style import SMALL, WIDTH, drawn

__all__ = ["reliability_diagrams"]

_COLUMNS = 3


def reliability_diagrams(runs: Mapping[str, Sequence[Run]], about: str = "") -> Figure | None:
    """By title, the share that is right against how sure the counter was, windows of all rooms.

    ``about`` begins the caption. None where no run tells it.
    """
    tables = {title: _pooled(by_seed) for title, by_seed in runs.items()}
    told = {title: table for title, table in tables.items() if table[:, 0].sum() > 0}
    if not told:
        return None
    first = runs[next(iter(told))][0]
    seeds = sorted({run.plan.seed for title in told for run in runs[title]})
    said = (
        f"{about + '. ' if about else ''}Where a counter says that it is 70 % sure of its answer, "
        "70 of 100 such answers should be right: then a point lies on the dashed line. Below the "
        "line it is too sure of itself, above it too careful; whiskers are what chance does to so "
        "few answers (± one standard error). In the titles: how far points are from the line, mean "
        "over all windows. Test windows of all rooms and seeds after each run's last round; "
        "probabilities are calibrated on each room's validation windows. "
        f"{data_text(first.data, seeds)}"
    )
    columns = min(_COLUMNS, len(told))
    deep = math.ceil(len(told) / columns)
    height = 2.6 * deep + (1.6 if columns == 1 else 0.7)  # narrow: more lines of words
    with drawn(height, said, width=min(WIDTH, 1.9 + 2.4 * columns)) as figure:
        grid = figure.subplots(deep, columns, sharex=True, sharey=True, squeeze=False)
        for axes in list(grid.flat)[len(told) :]:
            axes.set_visible(False)
        for axes, (title, table) in zip(grid.flat, told.items(), strict=False):
            _diagram(axes, table)
            axes.set_title(f"{title}: {100 * calibration_error(table):.1f} points off")
            axes.set(xlabel="how sure it is (%)", ylabel="how often it is right (%)")
            axes.label_outer()
        figure.legend(
            *grid.flat[0].get_legend_handles_labels(), loc="outside upper center", ncols=columns
        )
        return figure


def _pooled(runs: Sequence[Run]) -> npt.NDArray[np.float64]:
    """[bins, 3] of all rooms of some runs; runs that do not tell add nothing."""
    rooms = [table for run in runs for table in run.summary.get("reliability", {}).values()]
    tables = [np.asarray(table, np.float64) for table in rooms if len(table) == BINS]
    return np.asarray(np.sum([np.zeros((BINS, 3)), *tables], axis=0), np.float64)


def _diagram(axes: Axes, table: npt.NDArray[np.float64]) -> None:
    number, confidence, right = table.T
    there = number > 0
    middles, heights = 100 * (np.arange(BINS) + 0.5) / BINS, 100 * number / number.sum()
    label = "share of the windows (%), and their number"
    axes.bar(middles, heights, 0.94 * 100 / BINS, color="#cccccc", label=label, zorder=1)
    for place, windows in zip(middles[there], number[there], strict=True):
        axes.text(place, 1, f"{windows:.0f}", ha="center", va="bottom", fontsize=SMALL - 1)
    even = "as often right as it is sure"
    axes.plot([0, 100], [0, 100], color="#555555", lw=0.9, ls="--", label=even, zorder=2)
    sure, share = (value[there] / number[there] for value in (confidence, right))
    chance = np.sqrt(share * (1 - share) / number[there])  # of a share of so many windows
    axes.errorbar(
        *(100 * sure, 100 * share, 100 * chance),
        fmt="o-",
        ms=4,
        lw=1.2,
        elinewidth=0.8,
        capsize=2,
        color="#222222",
        label="what came out",
        zorder=3,
    )
    axes.set(xlim=(0, 100), ylim=(0, 104))
