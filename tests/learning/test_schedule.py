"""The warm-up, at the points where the cosine is known."""

import math

import pytest

from fedapa import warm_up
from fedapa.errors import PlanError


@pytest.mark.parametrize(
    ("round", "expected"),
    [
        (0, 0.0),  # cos 0 = 1
        (1, (1 - math.cos(math.pi / 50)) / 2),  # 0.000987
        (25, 0.5),  # cos π/2 = 0
        (50, 1.0),  # cos π = −1
        (51, 1.0),
        (500, 1.0),
    ],
)
def test_the_papers_warm_up(round: int, expected: float) -> None:
    assert warm_up(round, 50) == pytest.approx(expected, abs=1e-12)


def test_minimum_and_maximum() -> None:
    """Half way from 0.2 to 0.8 is 0.5."""
    assert warm_up(5, 10, 0.2, 0.8) == pytest.approx(0.5)
    assert warm_up(0, 10, 0.2, 0.8) == pytest.approx(0.2)


def test_it_never_falls() -> None:
    values = [warm_up(t, 30) for t in range(40)]
    assert values == sorted(values)


def test_no_warm_rounds_is_full_weight_from_the_start() -> None:
    assert warm_up(1, 0) == 1.0


def test_negative_rounds_are_refused() -> None:
    with pytest.raises(PlanError, match="must be 0 or more"):
        warm_up(1, -1)
