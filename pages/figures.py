"""Figures of the simulator for docs/simulator.md; all of them say SIMULATED."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fedapa.csi.capture import data_kind
from fedapa.report.style import PALETTE, SMALL, drawn

__all__ = [
    "bars_figure",
    "effects_figure",
    "lines_figure",
    "plans_figure",
    "waterfalls_figure",
]

Array: TypeAlias = npt.NDArray[np.floating[Any]]

_MARK = data_kind(True)


def waterfalls_figure(recordings: Mapping[str, Array], *, seconds: float, title: str) -> Figure:
    """Amplitude in dB over time and subcarrier, one panel per recording, on one scale."""
    with drawn(4.0, _MARK, width=6.4) as figure:
        panels = figure.subplots(2, (len(recordings) + 1) // 2, sharex=True, sharey=True)
        for axes, (name, amplitude) in zip(np.ravel(panels), recordings.items(), strict=True):
            decibels = 20 * np.log10(np.maximum(amplitude, 1))
            decibels = decibels - np.median(decibels)
            image = axes.imshow(
                decibels.T[::2],
                aspect="auto",
                origin="lower",
                extent=(0, seconds, 0, decibels.shape[1]),
                vmin=-18,
                vmax=9,
                cmap="viridis",
            )
            axes.grid(visible=False)
            axes.set(title=name, xlabel="time (s)", ylabel="live subcarrier")
            axes.label_outer()
        figure.colorbar(image, ax=panels, label="amplitude (dB, median 0)")
        figure.suptitle(title)
        return figure


def lines_figure(
    curves: Mapping[str, tuple[Array, Array]],
    *,
    x: str,
    y: str,
    title: str,
    points: Sequence[str] = (),
    errors: Mapping[str, Array] | None = None,
    log: str = "",
) -> Figure:
    """Curves over one another; those in ``points`` as markers without lines."""
    with drawn(3.4, _MARK, width=6) as figure:
        axes = figure.subplots()
        for number, (name, (across, up)) in enumerate(curves.items()):
            look: dict[str, Any] = {"color": PALETTE[number % len(PALETTE)], "label": name}
            if errors and name in errors:
                axes.errorbar(across, up, errors[name], fmt="o-", capsize=3, **look)
            else:
                axes.plot(across, up, "o" if name in points else "-", **look)
        if "x" in log:
            axes.set_xscale("log")
        if "y" in log:
            axes.set_yscale("log")
        axes.set(xlabel=x, ylabel=y, title=title)
        axes.legend()
        return figure


def bars_figure(
    groups: Mapping[str, Mapping[str, float]],
    *,
    y: str,
    title: str,
    floor: tuple[str, float] | None = None,
) -> Figure:
    """Bars side by side: a cluster per group, a colour per member, a dashed line at ``floor``."""
    with drawn(3.2, _MARK, width=6) as figure:
        axes = figure.subplots()
        members = list(next(iter(groups.values())))
        width = 0.8 / len(members)
        for number, member in enumerate(members):
            place = np.arange(len(groups)) + (number - (len(members) - 1) / 2) * width
            heights = [group[member] for group in groups.values()]
            axes.bar(place, heights, width * 0.95, color=PALETTE[number], label=member)
        if floor is not None:
            axes.axhline(floor[1], color="#555555", linestyle="--", label=floor[0])
        axes.set_xticks(range(len(groups)), list(groups))
        axes.set(ylabel=y, title=title)
        axes.legend(ncols=len(members) + 1)
        return figure


def effects_figure(panels: Sequence[tuple[str, Array, str, str]]) -> Figure:
    """Small panels, each a name, values [rows, columns] or a curve [points], and axis labels."""
    columns = 4
    rows = -(-len(panels) // columns)
    with drawn(1.9 * rows, _MARK, width=9) as figure:
        all_axes = np.ravel(figure.subplots(rows, columns))
        for axes in all_axes[len(panels) :]:
            axes.set_axis_off()
        for axes, (name, values, x, y) in zip(all_axes, panels, strict=False):
            _effect(axes, values)
            axes.grid(visible=False)
            axes.tick_params(labelsize=SMALL)
            axes.set(title=name, xlabel=x, ylabel=y)
        return figure


def _effect(axes: Axes, values: Array) -> None:
    if values.ndim == 1:
        axes.plot(values, color=PALETTE[0], linewidth=0.8)
    else:
        low, high = np.percentile(values, [1, 99])
        axes.imshow(values.T[::3], aspect="auto", origin="lower", vmin=low - 1e-9, vmax=high + 1e-9)


def plans_figure(
    rooms: Sequence[tuple[str, tuple[float, float], Array, Array, Array, Array]],
) -> Figure:
    """Floor plans: name, size, transmitter, receiver, seats [n, 2], furniture [n, 2]."""
    with drawn(5, _MARK, width=9) as figure:
        for axes, (name, size, sender, receiver, seats, furniture) in zip(
            np.ravel(figure.subplots(2, 3)), rooms, strict=True
        ):
            axes.grid(visible=False)
            axes.add_patch(Rectangle((0, 0), *size, fill=False, linewidth=1.5))
            if len(furniture):
                axes.plot(*furniture.T, "s", color="#bbbbbb", markersize=4, label="furniture")
            if len(seats):
                axes.plot(*seats.T, "o", color=PALETTE[5], markersize=4, label="seat")
            axes.plot(*sender[:2], "^", color=PALETTE[1], markersize=8, label="transmitter")
            axes.plot(*receiver[:2], "v", color=PALETTE[0], markersize=8, label="receiver")
            axes.plot(*np.stack([sender, receiver])[:, :2].T, ":", color="#555555")
            axes.set_aspect("equal")
            axes.set_title(f"{name}, {size[0]:g} × {size[1]:g} m")
        axes.legend(fontsize=SMALL, loc="upper left", bbox_to_anchor=(0, -0.15), ncols=2)
        return figure
