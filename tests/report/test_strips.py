"""Strips: true and counted people over time."""

from dataclasses import replace

import numpy as np
import pytest

from fedapa.report.figures.strips import Strip, clock, strips
from tests.report.test_page import check_text

STRIP = Strip(
    room="café",
    times=np.array([4.0, 5.0, 6.0, 7.0]),
    counted=np.array([0.0, 2.0, 2.0, 5.0]),
    present=np.array([0, 1, 2, 2]),
    changes=np.array([0.0, 4.5, 5.5]),
    people=np.array([0, 1, 2]),
    seconds=8.0,
    window=4.0,
)


def test_a_sentence_says_how_often_and_how_far_off() -> None:
    """Off by 0, 1, 0 and 3 people: within one in three of four, by one on average."""
    assert STRIP.sentence == (
        "café: right within one person for 75 % of the time, off by 1.0 people on average"
    )


def test_every_room_has_its_strip_with_both_lines() -> None:
    figure = strips([STRIP, replace(STRIP, room="hall")], "SIMULATED data")
    assert [axes.get_title("left").partition(":")[0] for axes in figure.axes] == ["café", "hall"]
    there, line = figure.axes[0].lines
    assert list(there.get_xdata()) == [0, 4.5, 5.5, 8]
    assert list(there.get_ydata()) == [0, 1, 2, 2]
    assert list(line.get_xdata()) == [4, 5, 6, 7, 8]
    assert list(line.get_ydata()) == [0, 2, 2, 5, 5], "the last count holds to the end"
    assert there.get_drawstyle() == line.get_drawstyle() == "steps-post"
    check_text(figure)


@pytest.mark.parametrize(("seconds", "said"), [(0, "0:00"), (65, "1:05"), (119.6, "2:00")])
def test_times_are_minutes_and_seconds(seconds: float, said: str) -> None:
    assert clock(seconds) == said
