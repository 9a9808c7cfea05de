"""AUC and hits against hand-worked examples; a guess is a half, and intervals hold it."""

import numpy as np
import pytest

from fedapa.attacks.roc import Matched, auc, bootstrapped, first_named, measured
from fedapa.errors import DataError
from fedapa.randomness import Key

KEY = Key(0) / "test"


def test_auc_by_hand() -> None:
    """Members 0.9, 0.4; others 0.5, 0.4, 0.1. Of six pairs the member wins 0.9 > 0.5, 0.4, 0.1 and
    0.4 > 0.1, draws 0.4 = 0.4 and loses to 0.5: 4.5 / 6."""
    assert auc(np.array([0.9, 0.4]), np.array([0.5, 0.4, 0.1])) == pytest.approx(0.75)


def test_only_candidates_of_one_stratum_are_compared() -> None:
    """Stratum a: member 1, other 0. Stratum b: member 11, others 10 and 12. Three pairs, two won;
    over all six pairs a's member would lose to both of b, and 3 of 6 would be won."""
    matched = Matched.of(
        [1, 0, 11, 10, 12], [True, False, True, False, False], list("aabbb"), ["r"] * 5
    )
    assert measured(matched, KEY)["auc"].value == pytest.approx(2 / 3)


def test_a_stratum_of_one_kind_is_left_out() -> None:
    matched = Matched.of([1, 0, 5], [True, False, True], ["a", "a", "b"], ["r"] * 3)
    assert matched.strata.tolist() == ["a", "a"]
    with pytest.raises(DataError, match="both kinds"):
        Matched.of([1, 2], [True, True], ["a", "a"], ["r", "r"])


def test_hits_at_few_false_alarms_by_hand() -> None:
    """One stratum; others 1 … 10, members 10.5, 9.5, 0. With 10 % false alarms one of ten others
    may be above the bar, so it lies at 9: 10.5 and 9.5 are found. With 1 % none may, so it lies at
    10: only 10.5 is."""
    scores = [10.5, 9.5, 0.0, *range(1, 11)]
    matched = Matched.of(scores, [True] * 3 + [False] * 10, ["a"] * 13, ["r"] * 13)
    figures = measured(matched, KEY)
    assert figures["hits_at_10"].value == pytest.approx(2 / 3)
    assert figures["hits_at_1"].value == pytest.approx(1 / 3)


def test_random_membership_is_a_half_and_inside_its_interval() -> None:
    stream = KEY.numpy()
    members = np.tile([True, False], 300)
    strata = np.repeat([f"s{place}" for place in range(100)], 6)
    rooms = np.repeat([f"r{place}" for place in range(10)], 60)
    figures = measured(Matched.of(stream.normal(size=600), members, strata, rooms), KEY)
    assert figures["auc"].low < 0.5 < figures["auc"].high
    assert abs(figures["auc"].value - 0.5) < 0.08
    assert figures["hits_at_10"].low <= 0.1 <= figures["hits_at_10"].high


def test_perfect_scores_are_certain() -> None:
    members = np.tile([True, False], 20)
    strata = np.repeat([f"s{place}" for place in range(10)], 4)
    figures = measured(Matched.of(members * 1.0, members, strata, strata), KEY)
    assert all((told.value, told.low, told.high) == (1, 1, 1) for told in figures.values())


def test_who_is_named_first_by_hand() -> None:
    """Set a: the right one is ahead. Set b: it is not. Set c: it is one of two equals."""
    matched = Matched.of(
        [0.9, 0.1, 0.2, 0.8, 0.5, 0.5], [True, False] * 3, list("aabbcc"), list("aabbcc")
    )
    told = first_named(matched, KEY)
    assert told.value == pytest.approx(0.5)
    assert told.low <= 0.5 <= told.high


def test_the_interval_of_equal_values_has_no_width() -> None:
    told = bootstrapped([0.3] * 6, list("aabbcc"), KEY)
    assert told.low == pytest.approx(told.high) == pytest.approx(0.3)
