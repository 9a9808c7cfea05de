"""Bytes and seconds that rows need to reach an accuracy, on network links of some speed."""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from fedapa.evaluation.links import LINKS, Link, bytes_of, seconds_of, training_of, until
from fedapa.evaluation.record import LAST
from fedapa.evaluation.results import Outcome, Row, Setting, running_mean
from fedapa.report.captions import caption
from fedapa.report.tables.table import Table

__all__ = ["asked_accuracies", "links_table", "links_text", "seconds_text"]

_NONE = "–"
_MOST = 3
"""Accuracies that a table asks for."""


def asked_accuracies(setting: Setting) -> list[float]:
    """Whole percents in even steps, at most three, from where rows begin to where they get.

    The last is the highest that half of the rows reach with every seed; below the first mean of
    the median row nothing is asked, since most rows have that as soon as they are looked at.
    """
    rows = _shown(setting)
    if not rows:
        return []
    high = [min(max(_means(one), default=0.0) for one in row.outcomes) for row in rows]
    first = [np.mean([_means(one)[:1] or [0.0] for one in row.outcomes]) for row in rows]
    top = math.floor(100 * sorted(high)[len(rows) // 2] + 1e-9)
    low = min(top, math.floor(100 * float(np.median(first)) + 1e-9))
    asked = {round(low + (top - low) * step / _MOST) for step in range(1, _MOST + 1)}
    return [percent / 100 for percent in sorted(asked) if percent]


def _means(outcome: Outcome) -> list[float]:
    """Of five rounds each, from the first that has five."""
    return running_mean(outcome.curve.get("accuracy", ()))[LAST - 1 :]


def _shown(setting: Setting) -> list[Row]:
    return [row for row in setting.deployed if any(one.exchanged for one in row.outcomes)]


def links_table(setting: Setting, links: Sequence[Link] = LINKS) -> Table:
    """A line for each row: what a round moves and costs, then bytes and seconds to accuracies."""
    wanted = asked_accuracies(setting)
    rows = []
    for row in _shown(setting):
        cells = [row.title, *_of_a_round(row)]
        for accuracy in wanted:
            moved = until(row, accuracy, bytes_of)
            cells.append(_NONE if moved is None else f"{np.mean(moved) / 1e6:,.2f}")
            for link in links:
                seconds = until(row, accuracy, partial(seconds_of, link=link))
                cells.append(_NONE if seconds is None else seconds_text(float(np.mean(seconds))))
        rows.append(cells)
    under = ["MB", *(link.name for link in links)]
    return Table(
        title=f"{setting.title}, bytes and time to reach an accuracy",
        headings=["Method", "KB", "s", *(name for _ in wanted for name in under)],
        rows=rows,
        note=". ".join(
            [
                "A round: KB of a room that takes part, both ways, and seconds of training of the "
                "slowest room, the median of its rounds; means over seeds",
                f"To reach an accuracy: the first round whose mean of {LAST} rounds is that good; "
                "MB of all rooms, and the time until then on each link, mean over seeds; – where "
                "some seed never gets there",
                links_text(links),
                caption(setting),
            ]
        ),
        spans=[
            ("", 1),
            ("a round", 2),
            *((f"{100 * accuracy:.0f} %", len(under)) for accuracy in wanted),
        ],
    )


def _of_a_round(row: Row) -> tuple[str, str]:
    rounds = [told for one in row.outcomes for told in one.exchanged]
    # An answer to who sat out is for the next round, in which it takes part.
    trained = sum(own[2] > 0 for told in rounds for own in told.values())
    kilobytes = bytes_of(rounds)[-1] / 1000 / max(1, trained)
    slowest = [
        max(training_of(one.exchanged).values(), default=0.0)  # all remembered over a kill: none
        for one in row.outcomes
        if one.exchanged
    ]
    return f"{kilobytes:,.1f}", f"{np.mean(slowest):.2f}"


def links_text(links: Sequence[Link] = LINKS) -> str:
    """What was assumed of each link, and how time is counted."""
    told = "; ".join(
        f"{link.name} {_rate(link.down)} down, {_rate(link.up)} up, {1000 * link.delay:g} ms one "
        f"way ({link.source})"
        for link in links
    )
    return (
        "A round takes as long as its slowest room trains and sends, and then as long as its "
        "slowest answer travels; a room that sends nothing waits for no link. "
        "Seconds of training are processor time of one core of the run's machine, the median of a "
        "room's rounds. "
        "Network links as assumed: "
        f"{told}"
    )


def _rate(bits: float) -> str:
    return f"{bits / 1e6:g} Mbit/s" if bits >= 1e6 else f"{bits / 1e3:g} kbit/s"


def seconds_text(seconds: float) -> str:
    """A time as one says it: 4.2 s, 12 min, 3.1 h."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
