"""The filter over counts: numbers derived by hand."""

import math

import numpy as np
import pytest

from fedapa.service.belief import evidence_of, interval_of, people_of, transitions, updated


def test_two_states_move_as_the_closed_form_says() -> None:
    """u = 0.3, d = 0.1, Δ = ln 2 / 0.4 = 1.7329 s: e = ½, T = [[5, 3], [1, 7]] / 8."""
    moved = transitions(2, math.log(2) / 0.4, arrivals=0.3, departures=0.1)
    np.testing.assert_allclose(moved, [[0.625, 0.375], [0.125, 0.875]], atol=1e-3)


def test_a_window_is_weighed_by_its_power() -> None:
    """λ = ½: [√(0.625·0.2), √(0.375·0.8)] = [√0.125, √0.3] = [0.35355, 0.54772], of 0.90127."""
    evidence = evidence_of([0.2, 0.8], [0, 1], [True, True])
    found = updated(np.array([0.625, 0.375]), evidence, 0.5)
    np.testing.assert_allclose(found, [0.35355 / 0.90127, 0.54772 / 0.90127], atol=1e-5)


def test_between_classes_the_logarithm_is_on_a_line() -> None:
    """Classes 5 and 8 with e⁻¹ and e⁻⁴: 6 has e⁻² and 7 has e⁻³; the order of classes is free.

    Three counts share the gap of 3, and a class has (1 + 3) / 2 = 2 around it.
    """
    found = evidence_of([math.exp(-4), math.exp(-1)], [8, 5], [True, True])
    shared = np.log([2, 3, 3, 2])
    np.testing.assert_allclose(found, np.array([-1, -2, -3, -4]) - shared, atol=1e-12)
    assert people_of([8, 5]).tolist() == [5, 6, 7, 8]


def test_after_long_the_belief_is_that_of_the_rates() -> None:
    """Detailed balance: each further person is u / d = ½ as probable, [4, 2, 1] / 7."""
    moved = transitions(3, 1e6, arrivals=0.1, departures=0.2)
    np.testing.assert_allclose(moved, np.tile([4 / 7, 2 / 7, 1 / 7], (3, 1)), atol=1e-9)
    assert transitions(3, 0, arrivals=0.1, departures=0.2).tolist() == np.eye(3).tolist()


def test_a_class_that_the_room_never_had_lies_between_its_neighbours() -> None:
    """Classes 0, 1, 2 and 3 of which the room has 0 and 2: 1 is on their line, 3 is what it is.

    The gap is 2, around 2 people it is (2 + 1) / 2, and an empty room shares with nobody.
    """
    probabilities = np.exp([-1, -9, -2, -7])
    found = evidence_of(probabilities, [0, 1, 2, 3], [True, False, True, False])
    shared = np.log([1, 2, 1.5, 1])
    np.testing.assert_allclose(found, np.array([-1, -1.5, -2, -7]) - shared, atol=1e-12)


def test_an_impossible_count_stays_possible() -> None:
    """A window's zero is no proof: a few windows later the other count wins."""
    both = [True, True]
    belief = updated(np.array([0.5, 0.5]), evidence_of([1.0, 0.0], [0, 1], both), 0.0)
    assert 0 < belief[1] < 1e-5
    for _ in range(2):
        belief = updated(belief, evidence_of([0.0, 1.0], [0, 1], both), 0.5)
    assert belief[1] > 0.99


@pytest.mark.parametrize(
    ("belief", "expected"),
    [([0.05, 0.8, 0.1, 0.05], (1, 2)), ([1.0, 0, 0, 0], (0, 0)), ([0.25] * 4, (0, 3))],
)
def test_an_interval_leaves_out_a_tenth_at_either_end(
    belief: list[float], expected: tuple[int, int]
) -> None:
    """With 80 %, from either end go counts that have at most 10 % together."""
    assert interval_of(np.array(belief), np.arange(4), 0.8) == expected
