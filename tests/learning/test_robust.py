"""Means that liars cannot move far, with numbers derived by hand."""

import numpy as np
import pytest

from fedapa.learning.robust import (
    cosines,
    cosines_of_classes,
    cut_ends,
    cut_number,
    middle,
    nearer,
    spreads_below,
)


def test_the_middle_is_the_median_of_every_coordinate() -> None:
    """Of (1, 5), (2, −9), (9, 6): the medians of 1, 2, 9 and of −9, 5, 6."""
    values = np.array([[1, 5], [2, -9], [9, 6]], np.float32)
    assert middle(values).tolist() == [2, 5]


def test_what_is_far_or_not_trusted_comes_nearer() -> None:
    """m = (0, 0), ρ = 2.5. (3, 4) has the norm 5, so half of it is left: (1.5, 2); (1, 0) is
    inside. With the trust 1, 0.5, 1, 0 of (1.5, 2), (1.5, 2), (1, 0), (1, 0) the trusted say
    μ = (1.5 + 0.75 + 1, 2 + 1 + 0)/2.5 = (1.3, 1.2): half way from it to (1.5, 2) is (1.4, 1.6),
    and who is not trusted becomes μ."""
    values = np.array([[3, 4], [3, 4], [1, 0], [1, 0]], np.float32)
    trust = np.array([1.0, 0.5, 1.0, 0.0])
    made, shares = nearer(values, np.zeros(2, np.float32), 2.5, trust)
    assert made == pytest.approx(np.array([[1.5, 2.0], [1.4, 1.6], [1, 0], [1.3, 1.2]]))
    assert shares.tolist() == [0.5, 0.5, 1.0, 1.0]
    nobody, _ = nearer(values, np.zeros(2, np.float32), 2.5, np.zeros(4))
    assert not nobody.any()


def test_what_is_near_and_trusted_keeps_its_bits() -> None:
    values = np.array([[1e8], [1.0], [0.1]], np.float32)
    made, _ = nearer(values, middle(values), np.inf, np.ones(3))
    assert made.tobytes() == values.tobytes()


def test_the_mean_of_what_is_left_is_the_trimmed_mean() -> None:
    """0, 1, 2, 3, 100 without one at each end is 1, 2, 3: mean 2. In place of 0 and 100 stands 2,
    so that the plain mean of (2, 1, 2, 3, 2) is 2. Without two at each end it is the median."""
    values = np.array([[0], [1], [2], [3], [100]], np.float32)
    made, lost = cut_ends(values, 0.2)
    assert made[:, 0].tolist() == [2, 1, 2, 3, 2]
    assert made.mean() == 2
    assert lost.tolist() == [1, 0, 0, 0, 1]
    assert cut_ends(values, 0.5)[0][:, 0].tolist() == [2, 2, 2, 2, 2]


@pytest.mark.parametrize(
    ("trim", "rooms", "k"), [(0.3, 10, 3), (0.3, 4, 1), (0.5, 4, 1), (0.1, 3, 1)]
)
def test_one_or_two_rooms_are_always_left(trim: float, rooms: int, k: int) -> None:
    assert cut_number(trim, rooms) == k


def test_cosines_with_the_middle() -> None:
    """(3, 4) and (1, 0): 3/5. What has no length points nowhere."""
    values = np.array([[3, 4], [-2, 0], [0, 0]], np.float32)
    assert cosines(values, np.array([1, 0], np.float32)).tolist() == [0.6, -1.0, 0.0]


def test_cosines_of_classes_leave_out_what_all_have_in_common() -> None:
    """(3, 4), (3, 0) have the mean (3, 2): what is left is (0, 2), (0, −2). Exchanged it is the
    other way round: −1 for both, where plain cosines are 0.6."""
    own = np.array([[3.0, 4.0], [3.0, 0.0]])
    assert cosines_of_classes(own, own) == pytest.approx(1.0)
    assert cosines_of_classes(own[::-1], own) == pytest.approx(-1.0)
    assert cosines_of_classes(np.ones((2, 2)), own) == 0.0


def test_scores_are_told_in_usual_spreads() -> None:
    """0.9, 0.8, 0.7, 0.6, −0.5: median 0.7; 0.9, 0.8 and 0.7 lie 0.2, 0.1 and 0 above, median 0.1,
    so s = 0.14826; −0.5 lies 1.2/0.14826 = 8.09 of them below, 0.9 lies 1.35 above."""
    below = spreads_below(np.array([0.9, 0.8, 0.7, 0.6, -0.5]), 0.05)
    assert below == pytest.approx([-1.349, -0.6745, 0.0, 0.6745, 8.094], abs=1e-3)


def test_rooms_that_agree_do_not_accuse_each_other() -> None:
    """All spreads are 0, so that s₀ = 0.05 counts: 0.86 is 2.8 of them below 1."""
    below = spreads_below(np.array([1.0, 1.0, 1.0, 0.86]), 0.05)
    assert below == pytest.approx([0.0, 0.0, 0.0, 2.8])


def test_who_is_as_far_as_those_that_are_left_is_not_beyond_them() -> None:
    """Of 0, 0, 0, 1, 5 one is cut off at each end: a 0, and 5. Only 5 lies beyond 0, 0, 1."""
    made, beyond = cut_ends(np.array([[0.0], [0.0], [0.0], [1.0], [5.0]]), 0.2)
    assert made.mean() == pytest.approx(1 / 3)
    assert beyond.tolist() == [0, 0, 0, 0, 1]


def test_a_share_that_floats_make_a_little_larger_is_that_share() -> None:
    """0.07 · 100 = 7.000000000000001."""
    assert cut_number(0.07, 100) == 7
