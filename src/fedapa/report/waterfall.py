"""The waterfall: a capture's amplitude over time and frequency, as a picture."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib.figure import Figure

from fedapa.csi.subcarriers import live
from fedapa.files import aside, readable
from fedapa.windows.inspection import thumbnail

__all__ = ["draw_waterfall"]

_RANGE = (-40.0, 6.0)
"""dB that the colours span."""


def draw_waterfall(
    capture: Path, picture: Path, *, chip: str | None = None, salvage: bool = False
) -> None:
    """Draw the first link of a capture file; what carries nothing by its device's table is blank.

    Colours are decibels against the loudest tenth, so that a half-empty band shows as such and a
    single spoilt subcarrier does not darken the rest.
    """
    amplitude, packets, about = thumbnail(capture, chip=chip, salvage=salvage)
    kept = live(about.device, about.bandwidth, about.subcarriers)
    with np.errstate(divide="ignore"):
        level = 20 * np.log10(amplitude / max(float(np.percentile(amplitude[:, kept], 90)), 1e-30))
    level = np.maximum(level, _RANGE[0])  # silence has no decibels, but a colour
    level[:, ~kept] = np.nan
    # A line a subcarrier index: devices that skip some leave gaps, not a squeezed axis.
    axis = np.arange(about.subcarriers[0], about.subcarriers[-1] + 1)
    spread = np.full((len(level), len(axis)), np.nan)
    spread[:, about.subcarriers - about.subcarriers[0]] = level
    if about.device.startswith("intel"):
        spread = level
    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(
        spread,
        aspect="auto",
        origin="lower",
        interpolation="nearest",
        cmap="viridis",
        vmin=_RANGE[0],
        vmax=_RANGE[1],
        extent=(
            float(about.subcarriers[0]) - 0.5,
            float(about.subcarriers[-1]) + 0.5,
            0.0,
            float(packets),
        ),
    )
    axes.set(
        xlabel=f"subcarrier, {about.bandwidth} MHz",
        ylabel="packet",
    )
    # A long name keeps its end: that is where the files of a folder differ.
    name = readable(capture.name)
    name = name if len(name) <= 40 else f"…{name[-39:]}"
    title = f"{name}: {about.device}, first antenna pair"
    axes.set_title(title, loc="left", fontsize=10, parse_math=False)
    figure.colorbar(image, ax=axes, label="amplitude, dB", extend="both")
    if about.synthetic:
        figure.text(0.995, 0.005, "SIMULATED", ha="right", va="bottom", fontsize=7, color="#555555")
    with aside(picture) as partial:
        figure.savefig(partial, format="png", dpi=110, metadata={"Software": None})
