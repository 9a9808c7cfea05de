"""Figures, in colours that colour-blind readers tell apart, as SVG for pages."""

import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib import font_manager
from matplotlib.figure import Figure

from fedapa.federation.run import Run
from fedapa.report.tables import titles

__all__ = [
    "PALETTE",
    "STYLE",
    "accuracy_curves",
    "families",
    "room_curves",
    "svg",
    "weight_matrix",
]

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, the darker ones first."""
_LINES = ("-", "--", "-.", ":")

_OTHER_SCRIPTS = (
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Source Han Sans",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    "Hiragino Sans",
    "Microsoft YaHei",
    "Malgun Gothic",
    "Arial Unicode MS",
)
"""Fonts that know what the usual one does not: names of rooms may be in any script."""


def families(installed: Iterable[str]) -> list[str]:
    """The usual font, then those of the others that are there; asking for absent ones warns."""
    there = set(installed)
    return ["DejaVu Sans", *(name for name in _OTHER_SCRIPTS if name in there)]


STYLE: dict[Any, Any] = {
    "font.family": families(font.name for font in font_manager.fontManager.ttflist),
    "svg.fonttype": "none",  # text stays text: small files, searchable pages
    "svg.hashsalt": "fedapa",  # equal figures have equal bytes
    "text.parse_math": False,  # a "$" in the name of a file or a class is a dollar
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
}


def _look(number: int) -> dict[str, Any]:
    return {
        "color": PALETTE[number % len(PALETTE)],
        "linestyle": _LINES[number // len(PALETTE) % len(_LINES)],
    }


def _mark(figure: Figure, runs: Sequence[Run]) -> None:
    """Every picture of simulated rooms says so, wherever it is copied to."""
    if any(run.synthetic for run in runs):
        figure.text(0.995, 0.005, "SIMULATED", ha="right", va="bottom", fontsize=7, color="#555555")


def accuracy_curves(runs: Sequence[Run]) -> Figure:
    """Mean accuracy over rooms against rounds, one line an algorithm, band ± one deviation."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 3.4), layout="constrained")
        axes = figure.subplots()
        for number, (title, run) in enumerate(zip(titles(runs), runs, strict=True)):
            rounds = [record["round"] for record in run.records]
            mean = 100 * np.asarray([record["mean"]["accuracy"] for record in run.records])
            spread = 100 * np.asarray([record["std"]["accuracy"] for record in run.records])
            axes.plot(rounds, mean, label=title, **_look(number))
            axes.fill_between(
                rounds, mean - spread, mean + spread, color=_look(number)["color"], alpha=0.12, lw=0
            )
        blind = runs[0].summary["blind"]["constant"]["mean"]["accuracy"]
        axes.axhline(
            100 * blind, color="#777777", lw=0.8, ls=":", label="always the commonest class"
        )
        axes.set(xlabel="round", ylabel="test accuracy, mean over rooms (%)")
        axes.set_ylim(0, 100)
        axes.legend(loc="best")
        _mark(figure, runs)
        return figure


def room_curves(runs: Sequence[Run]) -> Figure:
    """Each room's accuracy against rounds, one small picture a room."""
    rooms = sorted(runs[0].data["rooms"])
    columns = min(3, len(rooms))
    lines = -(-len(rooms) // columns)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(2.6 * columns + 0.6, 2.0 * lines + 0.6), layout="constrained")
        grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        for axes, room in zip(grid.flat, rooms, strict=False):
            for number, (title, run) in enumerate(zip(titles(runs), runs, strict=True)):
                values = [100 * record["rooms"][room]["accuracy"] for record in run.records]
                rounds = [record["round"] for record in run.records]
                axes.plot(rounds, values, label=title, lw=1.2, **_look(number))
            net = runs[0].data["rooms"][room]["architecture"]
            axes.set_title(f"{room} ({net})", fontsize=9)
            axes.set_ylim(0, 100)
        for axes in list(grid.flat)[len(rooms) :]:
            axes.set_visible(False)
        figure.supxlabel("round", fontsize=9)
        figure.supylabel("test accuracy (%)", fontsize=9)
        handles, labels = grid.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(runs))
        _mark(figure, runs)
        return figure


def weight_matrix(run: Run) -> Figure | None:
    """How much each room takes of each other room after the last round; none where not recorded."""
    weights = run.records[-1]["server"].get("weights")
    if weights is None:
        return None
    rooms = sorted(run.data["rooms"])
    matrix = np.asarray(weights)
    with matplotlib.rc_context({**STYLE, "axes.grid": False}):
        figure = Figure(
            figsize=(1.4 + 0.62 * len(rooms), 1.0 + 0.55 * len(rooms)), layout="constrained"
        )
        axes = figure.subplots()
        image = axes.imshow(matrix, cmap="viridis", vmin=0)
        axes.set_xticks(range(len(rooms)), rooms, rotation=40, ha="right")
        axes.set_yticks(range(len(rooms)), rooms)
        axes.set(xlabel="… takes of", ylabel="room …")
        for row, column in np.ndindex(matrix.shape):
            bright = matrix[row, column] > 0.6 * matrix.max()
            axes.text(
                column,
                row,
                f"{matrix[row, column]:.2f}",
                ha="center",
                va="center",
                fontsize=7,
                color="black" if bright else "white",
            )
        figure.colorbar(image, ax=axes, shrink=0.8, label="weight, mean over its classes")
        _mark(figure, [run])
        return figure


def svg(figure: Figure) -> str:
    """The figure as an SVG element to put into a page; it shrinks where the page is narrow."""
    with matplotlib.rc_context(STYLE):
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = re.sub(r"<metadata>.*?</metadata>", "", buffer.getvalue(), flags=re.DOTALL)
    return re.sub(
        r' width="([^"]*)pt" height="[^"]*pt"',
        r' style="width: \1pt; max-width: 100%; height: auto"',
        text[text.index("<svg") :],
        count=1,
    )
