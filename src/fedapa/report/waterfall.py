"""The waterfall: a capture's amplitude over time and frequency, as a picture."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib.figure import Figure

from fedapa.csi.subcarriers import live
from fedapa.files import aside
from fedapa.windows.inspection import thumbnail

__all__ = ["draw_waterfall"]


def draw_waterfall(
    capture: Path, picture: Path, *, chip: str | None = None, salvage: bool = False
) -> None:
    """Draw the first link of a capture file; what carries nothing by its device's table is blank.

    Colours are decibels against the loudest hundredth, so that a half-empty band shows as such.
    """
    amplitude, packets, about = thumbnail(capture, chip=chip, salvage=salvage)
    kept = live(about.device, about.bandwidth, about.subcarriers)
    with np.errstate(divide="ignore"):
        level = 20 * np.log10(amplitude / max(float(np.percentile(amplitude[:, kept], 99)), 1e-30))
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
        np.clip(spread, -40, 0),
        aspect="auto",
        origin="lower",
        interpolation="nearest",
        cmap="viridis",
        vmin=-40,
        vmax=0,
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
        title=f"{capture.name}: {about.device}, first antenna pair",
    )
    figure.colorbar(image, ax=axes, label="amplitude, dB")
    if about.synthetic:
        figure.text(0.995, 0.005, "SIMULATED", ha="right", va="bottom", fontsize=7, color="#555555")
    with aside(picture) as partial:
        figure.savefig(partial, format="png", dpi=110, metadata={"Software": None})
