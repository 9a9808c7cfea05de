"""The table of rounds and bytes that a row needs to reach an accuracy."""

import math
from collections.abc import Sequence

import numpy as np

from fedapa.evaluation.record import LAST
from fedapa.evaluation.results import Row, Setting, reached, spread
from fedapa.report.captions import caption
from fedapa.report.tables.comparison import NONE, breaks, sentences
from fedapa.report.tables.table import Table

__all__ = ["reach", "target_accuracies"]

_TARGETS = 5


def target_accuracies(setting: Setting) -> list[float]:
    """Round accuracies to ask for: multiples of five points, evenly spaced, at most five.

    Above the best blind row, up to the best figure of any row at any horizon.
    """
    blind, best = (
        max(
            (
                spread(values).mean
                for row in setting.rows
                for horizon in setting.horizons
                if (row.group == "blind") == is_blind
                and (values := row.metrics(horizon, "accuracy")) is not None
            ),
            default=0.0,
        )
        for is_blind in (True, False)
    )
    steps = range(math.floor(20 * blind + 1e-9) + 1, math.floor(20 * best + 1e-9) + 1)
    every = max(1, math.ceil(len(steps) / _TARGETS))
    return sorted(step / 20 for step in list(steps)[::-1][::every])


def reach(setting: Setting, accuracies: Sequence[float] | None = None) -> Table | None:
    """Rounds and megabytes (all rooms, both ways) until a row's five-round mean is that good.

    Args:
        setting: whose rows are asked.
        accuracies: between 0 and 1; by default ``target_accuracies``. None left, no table.
    """
    wanted = target_accuracies(setting) if accuracies is None else list(accuracies)
    rows = [row for row in setting.ordered if row.group != "blind"]
    shown = [row for row in rows if row.curves() and row.outcomes[0].scored is None]
    left_out = [row.title for row in rows if row not in shown]
    if not wanted or not shown:
        return None
    return Table(
        title=f"{setting.title}, rounds and MB of all rooms to reach an accuracy",
        headings=["Method", *(name for _ in wanted for name in ("rounds", "MB"))],
        rows=[
            [row.title, *(cell for accuracy in wanted for cell in _reach(row, accuracy))]
            for row in shown
        ],
        note=sentences(
            f"The first round whose mean of {LAST} rounds is that good, mean over the seeds that "
            "got there; in brackets how many did where not all did, – where none did",
            "A row that ran longer had more time to get there",
            f"Not followed round by round: {'; '.join(left_out)}" if left_out else "",
            caption(setting),
        ),
        breaks=breaks(shown),
        spans=[("", 1), *((f"{100 * accuracy:.0f} %", 2) for accuracy in wanted)],
    )


def _reach(row: Row, accuracy: float) -> tuple[str, str]:
    there = [at for outcome in row.outcomes if (at := reached(outcome, accuracy)) is not None]
    if not there:
        return NONE, NONE
    rounds, moved = np.asarray(there, np.float64).mean(axis=0)
    few = "" if len(there) == len(row.outcomes) else f" ({len(there)} of {len(row.outcomes)})"
    number = f"{rounds:.0f}" if len(there) == 1 else f"{rounds:.1f}"
    return number + few, f"{moved / 1e6:,.2f}" if row.moves else NONE
