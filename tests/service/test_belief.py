"""The filter over counts: numbers derived by hand."""

import math

import numpy as np
import pytest

from fedapa.service.belief import evidence_of, interval_of, people_of, transitions, updated

HALF = math.log(2)
"""s after which a memory of 1 s has kept one half."""


def test_two_states_move_as_the_closed_form_says() -> None:
    """u = 0.3, d = 0.1, Δ = ln 2 / 0.4 = 1.7329 s: e = ½, T = [[5, 3], [1, 7]] / 8."""
    moved = transitions(2, math.log(2) / 0.4, arrivals=0.3, departures=0.1)
    np.testing.assert_allclose(moved, [[0.625, 0.375], [0.125, 0.875]], atol=1e-3)


def test_a_window_is_weighed_by_its_power() -> None:
    """λ = ½: odds of an empty room of √(0.625/0.375 · 0.2/0.8) = 0.6455, so 0.6455/1.6455."""
    evidence = evidence_of([0.2, 0.8], [0, 1], [True, True])
    belief = np.array([0.625, 0.375])
    found = updated(belief, evidence, np.arange(2), HALF, presence=1.0, memory=9.0)
    np.testing.assert_allclose(found, [0.39229, 0.60771], atol=1e-5)


def test_presence_and_number_are_remembered_for_different_times() -> None:
    """ℓ = [0.2, 0.4, 0.4] on b = [0.5, 0.4, 0.1], half a memory of presence, e = 0.2.

    Nobody: √(1 · ¼) = ½, that is 1/3. c = [0.8, 0.2], m = [½, ½]: of a memory of half a second a
    quarter is left, times 1 − e is κ = 0.2. c ∝ [4^0.2, 1] = [1.3195, 1].
    """
    belief, evidence = np.array([0.5, 0.4, 0.1]), np.log([0.2, 0.4, 0.4])
    found = updated(belief, evidence, np.arange(3), HALF, presence=1.0, memory=0.5)
    some = np.array([1.3195, 1]) / 2.3195
    np.testing.assert_allclose(found, [1 / 3, *(2 / 3 * some)], atol=1e-4)


def test_a_room_that_is_never_empty_has_numbers_only() -> None:
    """c = [0.2, 0.8], m = [0.8, 0.2], κ = ½: both alike."""
    found = updated(
        np.array([0.2, 0.8]), np.log([0.8, 0.2]), np.array([3, 4]), HALF, presence=9.0, memory=1.0
    )
    np.testing.assert_allclose(found, [0.5, 0.5], atol=1e-12)


def test_of_an_empty_room_nothing_is_remembered() -> None:
    """Twelve people left; whoever comes next is counted as if nobody had been there before."""
    people = np.arange(13)
    full, nobody, one = (np.full(13, 1e-6) for _ in range(3))
    full[12] = nobody[0] = one[1] = 1.0
    belief = updated(full, np.log(nobody), people, 1.0, presence=0.1, memory=60.0)
    assert belief.argmax() == 0
    belief = updated(belief, np.log(one), people, 1.0, presence=0.1, memory=60.0)
    assert belief.argmax() == 1


def test_between_classes_the_logarithm_is_on_a_line() -> None:
    """Classes 5 and 8 with e⁻¹ and e⁻⁴: 6 has e⁻² and 7 has e⁻³; the order of classes is free."""
    found = evidence_of([math.exp(-4), math.exp(-1)], [8, 5], [True, True])
    np.testing.assert_allclose(found - found[0], [0, -1, -2, -3], atol=1e-12)
    assert np.exp(found).sum() == pytest.approx(1)
    assert people_of([8, 5]).tolist() == [5, 6, 7, 8]


def test_after_long_the_belief_is_that_of_the_rates() -> None:
    """Detailed balance: each further person is u / d = ½ as probable, [4, 2, 1] / 7."""
    moved = transitions(3, 1e6, arrivals=0.1, departures=0.2)
    np.testing.assert_allclose(moved, np.tile([4 / 7, 2 / 7, 1 / 7], (3, 1)), atol=1e-9)
    assert transitions(3, 0, arrivals=0.1, departures=0.2).tolist() == np.eye(3).tolist()


def test_a_class_that_the_room_never_had_lies_between_its_neighbours() -> None:
    """Classes 0, 1, 2, 3 of which the room has 0 and 2: 1 is on the line of p = 0.5 and 0.02.

    That is √(0.5 · 0.02) = 0.1; 3 is what it is. Nobody keeps 0.5, and the others share the other
    half as 0.1 : 0.02 : 0.48.
    """
    found = evidence_of([0.5, 1e-9, 0.02, 0.48], [0, 1, 2, 3], [True, False, True, False])
    np.testing.assert_allclose(
        np.exp(found), [0.5, *(np.array([0.1, 0.02, 0.48]) / 1.2)], atol=1e-5
    )


def test_an_impossible_count_stays_possible() -> None:
    """A window's zero is no proof: a few windows later the other count wins."""
    both = [True, True]
    people, seen = np.arange(2), evidence_of([1.0, 0.0], [0, 1], both)
    belief = updated(np.array([0.5, 0.5]), seen, people, math.inf, presence=1.0, memory=1.0)
    assert 0 < belief[1] < 1e-5
    for _ in range(2):
        seen = evidence_of([0.0, 1.0], [0, 1], both)
        belief = updated(belief, seen, people, HALF, presence=1.0, memory=1.0)
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
