"""The figure of how aggregation grows with the rooms: time and memory, log against log."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedapa.report.style import PALETTE, STYLE

__all__ = ["draw"]

# The same picture whatever fonts a reader has; powers of ten on the axes are formulas.
_STYLE = {**STYLE, "svg.fonttype": "path", "text.parse_math": True}


def draw(aggregation: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Draw the figure.

    Args:
        aggregation: seconds, peak_mb and gemm_ratio by number of rooms; a size with a ``sample`` is
            not exact and stands apart.
        path: the file to write, SVG or PNG by its name.
    """
    exact = {int(n): measured for n, measured in aggregation.items() if "sample" not in measured}
    sampled = {int(n): measured for n, measured in aggregation.items() if "sample" in measured}
    rooms = sorted(exact)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(8.2, 3.3), layout="constrained")
        time, memory = figure.subplots(1, 2)
        seconds = [exact[n]["seconds"] for n in rooms]
        bare = [exact[n]["seconds"] / exact[n]["gemm_ratio"] for n in rooms]
        time.plot(rooms, seconds, "o-", color=PALETTE[0], label="aggregation, exact")
        time.plot(rooms, bare, "s--", color=PALETTE[1], label="bare matrix products")
        memory.plot(
            rooms,
            [exact[n]["peak_mb"] for n in rooms],
            "o-",
            color=PALETTE[0],
            label="aggregation, exact",
        )
        sets = [*rooms, *sorted(sampled)]
        memory.plot(
            sets,
            [n * 21 * 256 * 4 / 1e6 for n in sets],
            ":",
            color=PALETTE[6],
            label="the sets alone (21 × 256 float32)",
        )
        for n, measured in sorted(sampled.items()):
            told = f"from {measured['sample']:,} rooms, class by class"
            time.plot([n], [measured["seconds"]], "^", color=PALETTE[2], label=told, markersize=8)
            memory.plot([n], [measured["peak_mb"]], "^", color=PALETTE[2], label=told, markersize=8)
        _label(time, "time of the aggregation [s]")
        _label(memory, "peak memory of the process [MB]")
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _label(axes: Axes, name: str) -> None:
    axes.set(xscale="log", yscale="log", xlabel="rooms N", ylabel=name)
    axes.legend(loc="lower right", fontsize=8)
