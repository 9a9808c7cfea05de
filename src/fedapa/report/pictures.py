"""Pictures of recordings and of the simulator; every picture of simulated data says so."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib

matplotlib.use("Agg")

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from fedapa.errors import PlanError
from fedapa.files import write_bytes
from fedapa.report.figures import PALETTE, STYLE

__all__ = [
    "bars_figure",
    "distribution_figure",
    "effects_figure",
    "lines_figure",
    "picture_kind",
    "plans_figure",
    "save",
    "waterfall_figure",
]

Array: TypeAlias = npt.NDArray[np.floating[Any]]

_STYLE = {**STYLE, "svg.fonttype": "path"}  # the same picture whatever fonts a reader has


def save(figure: Figure, path: Path, *, dpi: int = 100) -> None:
    """Write a figure as PNG, SVG or PDF, by the name's ending, whole or not at all."""
    kind = picture_kind(path)
    dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    drawn = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "fedapa"}):  # equal figures have equal bytes
        figure.savefig(drawn, format=kind, dpi=dpi, metadata=dated)
    if kind == "png":  # 256 colours are enough for a chart, and a third of the size
        picture = Image.open(drawn).convert("RGB").quantize(256, dither=Image.Dither.NONE)
        drawn = io.BytesIO()
        picture.save(drawn, format="png", optimize=True)
    write_bytes(path, drawn.getvalue())


def picture_kind(path: Path) -> str:
    """png, svg or pdf, by the name's ending; ask before long work whose picture goes there."""
    kind = path.suffix.lstrip(".").lower()
    if kind not in ("png", "svg", "pdf"):
        raise PlanError(f"{path}: pictures are written as .png, .svg or .pdf")
    return kind


def _mark(figure: Figure) -> None:
    figure.text(0.995, 0.005, "SIMULATED", ha="right", va="bottom", fontsize=7, color="#555555")


def waterfall_figure(
    takes: Mapping[str, Array], *, seconds: float, title: str, synthetic: bool = True
) -> Figure:
    """Amplitude in dB over time and tone, one panel a take, on one scale."""
    with matplotlib.rc_context({**_STYLE, "axes.grid": False}):
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        panels = figure.subplots(2, (len(takes) + 1) // 2, sharex=True, sharey=True)
        for axes, (name, amplitude) in zip(np.ravel(panels), takes.items(), strict=True):
            decibels = 20 * np.log10(np.maximum(amplitude, 1))
            decibels = decibels - np.median(decibels)
            picture = axes.imshow(
                decibels.T[::2],
                aspect="auto",
                origin="lower",
                extent=(0, seconds, 0, decibels.shape[1]),
                vmin=-18,
                vmax=9,
                cmap="viridis",
            )
            axes.set_title(name)
        figure.supxlabel("time (s)")
        figure.supylabel("live tone")
        figure.colorbar(picture, ax=panels, label="amplitude (dB, median 0)")
        figure.suptitle(title)
        if synthetic:
            _mark(figure)
        return figure


def distribution_figure(
    windows: Mapping[str, Mapping[Any, int]],
    labels: Sequence[Any],
    *,
    caption: str,
    synthetic: bool,
) -> Figure:
    """Windows by room and label, one panel a room, as the paper's Fig. 4 shows its data."""
    with matplotlib.rc_context(_STYLE):
        rows = (len(windows) + 2) // 3
        figure = Figure(figsize=(9, 2.3 * rows + 0.4), layout="constrained")
        panels = figure.subplots(rows, 3, sharex=True, sharey=True, squeeze=False)
        for axes in panels.ravel()[len(windows) :]:
            axes.set_axis_off()
        for number, (axes, (room, counts)) in enumerate(
            zip(panels.ravel(), windows.items(), strict=False)
        ):
            heights = [counts.get(label, 0) for label in labels]
            axes.bar(range(len(labels)), heights, color=PALETTE[number % len(PALETTE)])
            axes.set_title(f"{room}: {sum(heights)} windows")
            every = 1 if len(labels) <= 12 else 2  # more would run into one another
            shown = [str(label) for label in labels[::every]]
            upright = 90 if max(map(len, shown)) > 4 else 0  # words would run into one another
            axes.set_xticks(range(0, len(labels), every), shown, fontsize=7, rotation=upright)
        counted = all(isinstance(label, int) for label in labels)
        figure.supxlabel("people" if counted else "class")
        figure.supylabel("windows")
        figure.suptitle(caption, fontsize=8)
        if synthetic:
            _mark(figure)
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
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(6, 3.4), layout="constrained")
        axes = figure.subplots()
        for number, (name, (across, up)) in enumerate(curves.items()):
            look: dict[str, Any] = {"color": PALETTE[number % len(PALETTE)], "label": name}
            if errors and name in errors:
                axes.errorbar(across, up, errors[name], fmt="o-", capsize=3, **look)
            elif name in points:
                axes.plot(across, up, "o", **look)
            else:
                axes.plot(across, up, **look)
        if "x" in log:
            axes.set_xscale("log")
        if "y" in log:
            axes.set_yscale("log")
        axes.set(xlabel=x, ylabel=y, title=title)
        axes.legend()
        _mark(figure)
        return figure


def bars_figure(
    groups: Mapping[str, Mapping[str, float]],
    *,
    y: str,
    title: str,
    floor: tuple[str, float] | None = None,
) -> Figure:
    """Bars side by side: one cluster a group, one colour a member; a dashed line at ``floor``."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(6, 3.2), layout="constrained")
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
        axes.legend(ncols=len(members) + 1, fontsize=8)
        _mark(figure)
        return figure


def effects_figure(panels: Sequence[tuple[str, Array, str, str]]) -> Figure:
    """Small panels, each a name, values [rows, columns] or a curve [points], and axis labels."""
    with matplotlib.rc_context({**_STYLE, "font.size": 7, "axes.grid": False}):
        columns = 4
        rows = -(-len(panels) // columns)
        figure = Figure(figsize=(9, 1.9 * rows), layout="constrained")
        all_axes = np.ravel(figure.subplots(rows, columns))
        for axes in all_axes[len(panels) :]:
            axes.set_axis_off()
        for axes, (name, values, x, y) in zip(all_axes, panels, strict=False):
            _effect(axes, values)
            axes.set(title=name, xlabel=x, ylabel=y)
        _mark(figure)
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
    with matplotlib.rc_context({**_STYLE, "font.size": 8, "axes.grid": False}):
        figure = Figure(figsize=(9, 5), layout="constrained")
        for axes, (name, size, sender, receiver, seats, furniture) in zip(
            np.ravel(figure.subplots(2, 3)), rooms, strict=True
        ):
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
        axes.legend(fontsize=6, loc="upper left", bbox_to_anchor=(0, -0.15), ncols=2)
        _mark(figure)
        return figure
