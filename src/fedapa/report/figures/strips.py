"""Strips: people who were there and people who were counted, over time, a strip for each room."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

from fedapa.report.style import PALETTE, drawn

__all__ = ["Strip", "clock", "strips"]

_TICKS = 15
"""s between two labels of the time."""


@dataclass(frozen=True, eq=False)
class Strip:
    """What happened in one room, and what was counted there."""

    room: str
    times: npt.NDArray[np.float64]
    """[windows] s, ascending: when each count was told."""
    counted: npt.NDArray[np.float64]
    """[windows] people."""
    present: npt.NDArray[np.int64]
    """[windows] people who were really there at those times."""
    changes: npt.NDArray[np.float64]
    """[changes] s, ascending: from when on there were …"""
    people: npt.NDArray[np.int64]
    """[changes] … so many people."""
    seconds: float
    """How long it was watched."""
    window: float
    """s of packets behind each count."""

    @property
    def sentence(self) -> str:
        """How well the room was counted, in a few words."""
        error = np.abs(self.counted - self.present)
        return (
            f"{self.room}: right within one person for {100 * np.mean(error <= 1):.0f} % of the "
            f"time, off by {error.mean():.1f} people on average"
        )


def strips(shown: Sequence[Strip], caption: str) -> Figure:
    """True and counted people over time, as steps, one room below the other."""
    with drawn(1.15 * len(shown) + 0.85, caption) as figure:
        grid = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
        for axes, strip in zip(grid, shown, strict=True):
            moments = np.append(strip.changes, strip.seconds)
            people = np.append(strip.people, strip.people[-1])
            axes.fill_between(
                moments, people, step="post", color=PALETTE[0], alpha=0.2, linewidth=0
            )
            axes.plot(
                moments,
                people,
                drawstyle="steps-post",
                color=PALETTE[0],
                linewidth=1.3,
                label="people in the room",
            )
            axes.plot(
                np.append(strip.times, strip.seconds),
                np.append(strip.counted, strip.counted[-1]),
                drawstyle="steps-post",
                color=PALETTE[1],
                linewidth=1.3,
                label="people counted",
            )
            axes.set_title(strip.sentence, loc="left")
            axes.set(ylabel="people", xlim=(0, strip.seconds), ylim=(0, None))
            axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
        last = grid[-1]
        last.set_xlabel("time (minutes:seconds)")
        last.xaxis.set_major_locator(MultipleLocator(_TICKS))
        last.xaxis.set_major_formatter(FuncFormatter(lambda time, _: clock(time)))
        figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
        return figure


def clock(seconds: float) -> str:
    """Minutes and seconds, as 1:05."""
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"
