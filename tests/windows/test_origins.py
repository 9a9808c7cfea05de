"""Origins: blocks of windows that lie end to end, worked out by hand."""

import numpy as np
import pytest

from fedapa.windows.origins import Origins

#                   0    1    2    3    4    5    6    7
RECORDINGS = ("a", "b", "a", "a", "a", "b", "b", "a")
STARTS = np.array([0, 0, 10, 20, 40, 10, 20, 30])
ORIGINS = Origins.of(RECORDINGS, STARTS, spans=10)
ALL = np.arange(8)


def test_blocks_follow_a_recording_from_its_beginning() -> None:
    """Recording a has windows 0, 2, 3, 7, 4 in time, b has 1, 5, 6: one of each is left over."""
    assert ORIGINS.blocks(ALL, 2).tolist() == [[0, 2], [3, 7], [1, 5]]
    assert ORIGINS.blocks(ALL, 5).tolist() == [[0, 2, 3, 7, 4]]
    assert ORIGINS.blocks(ALL, 6).shape == (0, 6)


def test_a_missing_window_ends_a_block() -> None:
    """Without window 3 recording a is 0, 2 and then 7, 4; places are those in the index."""
    index = np.array([0, 1, 2, 4, 5, 6, 7])
    assert ORIGINS.blocks(index, 2).tolist() == [[0, 2], [6, 3], [1, 4]]
    assert ORIGINS.blocks(index, 3).tolist() == [[1, 4, 5]]


@pytest.mark.parametrize(("recordings", "second"), [("aa", 5), ("aa", 11), ("ab", 10)])
def test_windows_that_overlap_or_lie_apart_are_no_block(recordings: str, second: int) -> None:
    origins = Origins.of(list(recordings), np.array([0, second]), spans=10)
    assert origins.blocks(np.arange(2), 2).shape == (0, 2)


def test_neighbours_may_lie_a_few_rows_apart_where_the_step_does_not_divide_a_window() -> None:
    """4 s at 99.6 per second are 398 packets, a fifth of them is 80: neighbours begin every 400.

    One window later (480) something is missing between them. With a step of 300 neighbours would
    begin 600 apart, which is half as much again: two windows of 4 s would be from 10 s.
    """
    starts = np.array([0, 400, 800, 1280])
    origins = Origins.of(list("aaaa"), starts, spans=398, step=80)
    assert origins.blocks(np.arange(4), 3).tolist() == [[0, 1, 2]]
    far = Origins.of(list("aa"), np.array([0, 600]), spans=398, step=300)
    assert not len(far.blocks(np.arange(2), 2))


def test_a_time_shorter_than_a_window_has_no_blocks() -> None:
    assert len(ORIGINS.blocks(ALL, 0)) == 0
    assert len(ORIGINS.blocks(ALL[:0], 2)) == 0


def test_recordings_are_counted_once() -> None:
    assert ORIGINS.number(np.array([0, 2, 3])) == 1
    assert ORIGINS.number(ALL) == 2
    assert ORIGINS.number(ALL[:0]) == 0
