"""Metrics by hand, and against scikit-learn's definitions written out."""

import numpy as np
import pytest

from fedapa.evaluation.metrics import blind_scores, class_shares, confusion, score


def test_a_small_confusion_by_hand() -> None:
    """Truth 0 0 1 2, guess 0 1 1 0: 2 of 4 right. F1: class 0: 2·1/(2+2) = 1/2; class 1:
    2·1/(1+2) = 2/3; class 2: 0; mean 7/18. |errors| in people with classes 0, 1, 5: 0 1 0 5."""
    matrix = confusion(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 0]), 3)
    assert matrix.tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 0]]
    metrics = score(matrix, [0, 1, 5])
    assert metrics["accuracy"] == 0.5
    assert metrics["macro_f1"] == pytest.approx(7 / 18)
    assert metrics["mae"] == pytest.approx(6 / 4)
    assert metrics["within_one"] == pytest.approx(3 / 4)


def test_f1_is_over_the_classes_present_in_test() -> None:
    """Class 1 is never true: it has no F1 of its own, but guessing it costs class 0."""
    matrix = confusion(np.array([0, 0]), np.array([0, 1]), 2)
    assert score(matrix, [0, 1])["macro_f1"] == pytest.approx(2 * 1 / (2 + 1))


def test_categories_have_no_distance() -> None:
    metrics = score(np.eye(2), ["sit", "walk"])
    assert set(metrics) == {"accuracy", "macro_f1"}


def test_blind_predictors_by_hand() -> None:
    """Train 0 0 0 1, test 0 1: always 0 is right half the time with MAE 1/2; drawing 0 with 3/4
    is right (3/4 + 1/4)/2 = 1/2 of the time."""
    blind = blind_scores(np.array([0, 0, 0, 1]), np.array([0, 1]), [0, 1])
    assert blind["constant"]["accuracy"] == 0.5
    assert blind["constant"]["mae"] == 0.5
    assert blind["prior"]["accuracy"] == pytest.approx(0.5)
    assert blind["prior"]["mae"] == pytest.approx((1 / 4 + 3 / 4) / 2)


def test_the_constant_predictor_looks_at_train_only() -> None:
    blind = blind_scores(np.array([1, 1, 0]), np.array([0, 0, 0, 1]), [0, 1])
    assert blind["constant"]["accuracy"] == 0.25


def test_shares_of_several_matrices_have_no_row_for_a_class_without_windows() -> None:
    """Class 0 has 1 + 2 windows, of which 1 + 1 are right; class 1 has none."""
    shares = class_shares([[[1, 0], [0, 0]], [[1, 1], [0, 0]]])
    assert shares[0].tolist() == pytest.approx([2 / 3, 1 / 3])
    assert np.isnan(shares[1]).all()
