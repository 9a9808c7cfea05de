"""Embedding maps: the test windows of a finished run as its nets see them."""

import math
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedapa.errors import DataError, RunError
from fedapa.evaluation.embedding import Embedding, embed
from fedapa.federation.participant import introduce
from fedapa.federation.prepare import describe
from fedapa.federation.run import Run
from fedapa.learning.tree import load_weights
from fedapa.models.model import Model
from fedapa.report.figures.rooms import named_in_order
from fedapa.report.style import MARKERS, SMALL, drawn, legend_label, shortened
from fedapa.rooms.model_file import read_weights
from fedapa.rooms.room import Room

__all__ = ["embedding_map", "embedding_of"]


def embedding_of(run: Run, rooms: Sequence[Room], title: str) -> Embedding:
    """The map of a finished run, whose ``rooms`` are ``prepare_rooms(run.plan)``."""
    if describe([introduce(room) for room in rooms], run.plan)["rooms"] != run.data["rooms"]:
        raise RunError(f"{run.folder}: its data changed since; no map can be drawn of its nets")
    return embed(rooms, {room.name: _net(run, room) for room in rooms}, title)


def _net(run: Run, room: Room) -> Model:
    """The room's net as the run left it."""
    path = run.folder / "models" / f"{room.name}.safetensors"
    model = room.build()
    try:
        weights = read_weights(path)
        if set(weights) != set(model.state_dict()):
            raise DataError(f"it holds another net than '{room.architecture}'")
        load_weights(model, weights)
    except (DataError, RuntimeError) as error:
        raise RunError(f"{path}: is not the net of room '{room.name}' ({error})") from error
    return model


def embedding_map(panels: Sequence[Embedding], caption: str = "") -> Figure:
    """Where windows lie beside each other: colour is the class, the marker the room.

    Prototypes, where there are any, are larger and outlined.
    """
    first = panels[0]
    _, classes = named_in_order(first.classes)
    rooms = sorted({name for panel in panels for name in panel.rooms})
    colours = matplotlib.colormaps["viridis"].resampled(len(classes))
    scale = BoundaryNorm(np.arange(len(classes) + 1) - 0.5, len(classes))
    with drawn(3.9, caption) as figure:
        grid = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, panel in zip(grid, panels, strict=True):
            axes.grid(visible=False)
            axes.set(xticks=[], yticks=[], title=panel.title, aspect="equal")
            axes.set_adjustable("datalim")
            axes.spines[:].set_visible(True)
            _scatter(axes, panel, rooms, {"cmap": colours, "norm": scale})
        ticks = range(0, len(classes), max(1, math.ceil(len(classes) / 24)))
        bar = figure.colorbar(
            matplotlib.cm.ScalarMappable(scale, colours),
            ax=list(grid),
            ticks=list(ticks),
            label="people" if all(isinstance(label, int) for label in first.classes) else "class",
        )
        bar.ax.set_yticklabels([classes[tick] for tick in ticks], fontsize=SMALL)
        bar.ax.minorticks_off()
        marks = [
            Line2D([], [], ls="none", marker=MARKERS[number % len(MARKERS)], color="#666666")
            for number in range(len(rooms))
        ]
        names = [legend_label(shortened(room, 24)) for room in rooms]
        if any(len(panel.prototypes) for panel in panels):
            marks.append(
                Line2D([], [], ls="none", marker="o", ms=8, mfc="white", mec="black", mew=0.9)
            )
            names.append("prototype")
        figure.legend(marks, names, loc="outside upper center", ncols=min(5, len(names)))
        return figure


def _scatter(axes: Axes, panel: Embedding, rooms: Sequence[str], colours: dict[str, Any]) -> None:
    """Windows, and prototypes behind them, each room with its marker."""
    rank = np.argsort(named_in_order(panel.classes)[0])
    small: dict[str, Any] = {"s": 14, "linewidths": 0.2, "edgecolors": "white", "zorder": 3}
    large: dict[str, Any] = {"s": 52, "linewidths": 0.9, "edgecolors": "black", "zorder": 2}
    for number, room in enumerate(rooms):
        for points, labels, of_rooms, look in (
            (panel.points, panel.labels, panel.rooms, small),
            (panel.prototypes, panel.prototype_labels, panel.prototype_rooms, large),
        ):
            here = np.asarray([name == room for name in of_rooms], bool)
            if here.any():
                axes.scatter(
                    points[here, 0],
                    points[here, 1],
                    c=rank[labels[here]],
                    marker=MARKERS[number % len(MARKERS)],
                    **colours,
                    **look,
                )
