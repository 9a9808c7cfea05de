"""Data: windows by room and label, and the waterfall of a capture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fedapa.csi.subcarriers import live
from fedapa.files import readable
from fedapa.report.captions import source_text
from fedapa.report.style import PALETTE, drawn, save, shortened
from fedapa.windows.inspection import thumbnail

__all__ = ["distribution_figure", "draw_waterfall"]

_RANGE = (-40.0, 6.0)
"""dB that the colours of a waterfall span."""


def distribution_figure(
    windows: Mapping[str, Mapping[Any, int]],
    labels: Sequence[Any],
    caption: str,
    *,
    unlabelled: Mapping[str, int] | None = None,
) -> Figure:
    """Windows by room and label, a panel per room, as the paper's Fig. 4 shows its data.

    Windows without a label, where a room has some, are a grey bar to the right.
    """
    deep = -(-len(windows) // 3)
    counted = all(isinstance(label, int) for label in labels)
    with drawn(2.3 * deep + 0.5, caption, width=9) as figure:
        panels = figure.subplots(deep, 3, sharex=True, sharey=True, squeeze=False).ravel()
        for axes in panels[len(windows) :]:
            axes.set_axis_off()
        for number, (axes, (room, counts)) in enumerate(zip(panels, windows.items(), strict=False)):
            heights = [counts.get(label, 0) for label in labels]
            axes.bar(range(len(labels)), heights, color=PALETTE[number % len(PALETTE)])
            every = 1 if len(labels) <= 12 else 2  # more would run into one another
            places = list(range(0, len(labels), every))
            shown = [str(label) for label in labels[::every]]
            if unlabelled:
                axes.bar(len(labels) + 1, unlabelled.get(room, 0), color="grey")
                places.append(len(labels) + 1)
                shown.append("no label")
                heights.append(unlabelled.get(room, 0))
            axes.set_title(f"{room}: {sum(heights)} windows")
            upright = 90 if max(map(len, shown)) > 4 else 0  # words would run into one another
            axes.set_xticks(places, shown, fontsize=7, rotation=upright)
            axes.set(xlabel="people" if counted else "class", ylabel="windows")
            axes.label_outer()
        return figure


def draw_waterfall(
    capture: Path, target: Path, *, chip: str | None = None, salvage: bool = False
) -> None:
    """Draw the first link of a capture file: its amplitude over time and frequency.

    What carries nothing by its device's table is blank. Colours are decibels against the loudest
    tenth, so that a half-empty band shows as such and a single spoilt subcarrier does not darken
    the rest.
    """
    amplitude, packets, about = thumbnail(capture, chip=chip, salvage=salvage)
    kept = live(about.device, about.bandwidth, about.subcarriers)
    with np.errstate(divide="ignore"):
        level = 20 * np.log10(amplitude / max(float(np.percentile(amplitude[:, kept], 90)), 1e-30))
    level = np.maximum(level, _RANGE[0])  # silence has no decibels, but a colour
    level[:, ~kept] = np.nan
    first, last = int(about.subcarriers[0]), int(about.subcarriers[-1])
    if not about.device.startswith("intel"):
        # A line per subcarrier index: devices that skip some leave gaps, not a squeezed axis.
        spread = np.full((len(level), last - first + 1), np.nan)
        spread[:, about.subcarriers - first] = level
        level = spread
    name = readable(capture.name)
    with drawn(4.5, source_text(name, synthetic=about.synthetic), width=7.5) as figure:
        axes = figure.subplots()
        axes.grid(visible=False)
        image = axes.imshow(
            level,
            aspect="auto",
            origin="lower",
            interpolation="nearest",
            cmap="viridis",
            vmin=_RANGE[0],
            vmax=_RANGE[1],
            extent=(first - 0.5, last + 0.5, 0.0, float(packets)),
        )
        axes.set(xlabel=f"subcarrier, {about.bandwidth} MHz", ylabel="packet")
        axes.set_title(f"{shortened(name, 40)}: {about.device}, first antenna pair", loc="left")
        figure.colorbar(image, ax=axes, label="amplitude, dB", extend="both")
    save(figure, target, dpi=110)
