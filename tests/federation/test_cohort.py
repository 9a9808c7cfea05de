"""Who takes part."""

from collections import Counter

import pytest

from fedapa.errors import PlanError
from fedapa.federation.cohort import uniform
from fedapa.randomness import Key

ROOMS = [f"room {index}" for index in range(10)]


def test_full_participation_is_everybody() -> None:
    assert uniform(ROOMS, 1.0, Key(0)) == tuple(ROOMS)


def test_the_share_is_met_and_nobody_comes_twice() -> None:
    drawn = uniform(ROOMS, 0.3, Key(0))
    assert len(drawn) == len(set(drawn)) == 3
    assert list(drawn) == sorted(drawn)


def test_at_least_one_room_takes_part() -> None:
    assert len(uniform(ROOMS, 0.01, Key(0))) == 1


def test_the_draw_depends_on_the_round_and_not_on_the_order_of_rooms() -> None:
    assert uniform(ROOMS, 0.5, Key(0) / 1) == uniform(ROOMS[::-1], 0.5, Key(0) / 1)
    assert uniform(ROOMS, 0.5, Key(0) / 1) != uniform(ROOMS, 0.5, Key(0) / 2)


def test_everybody_has_the_same_chance() -> None:
    """3 of 10 in 2,000 rounds: 600 expected, deviation √(2000·0.3·0.7) = 20; five allowed."""
    seen = Counter(room for number in range(2000) for room in uniform(ROOMS, 0.3, Key(0) / number))
    assert all(abs(seen[room] - 600) < 100 for room in ROOMS)


def test_shares_out_of_range_are_refused() -> None:
    for share in (0.0, -1.0, 1.1):
        with pytest.raises(PlanError, match="must be above 0 and at most 1"):
            uniform(ROOMS, share, Key(0))
