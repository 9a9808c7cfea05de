"""The linear model's arithmetic: ridge regression, leaving out, and how sharp its answers are."""

import numpy as np
import pytest

from fedapa.learning import linear
from fedapa.learning.linear import fit_linear
from fedapa.randomness import Key


def test_a_line_through_three_windows_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """x = −1, 0, 1 of classes 0, 0, 1: Σx² = 2 and Σx·(y₁ − 1/3) = 1/3 + 2/3 = 1. With λ = 1/3 per
    window, so 1 in all, class 1 has the slope 1/(2 + 1) and the bias 1/3; class 0 the rest to 1."""
    monkeypatch.setattr(linear, "_STRENGTHS", (1 / 3,))
    weights, bias = fit_linear(np.array([[-1.0], [0.0], [1.0]]), np.array([0, 0, 1]), 2)
    np.testing.assert_allclose(weights, [[-1 / 3], [1 / 3]])
    np.testing.assert_allclose(bias, [2 / 3, 1 / 3])


def _ridge(windows: np.ndarray, truth: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights [F, C] and bias [C] by the normal equations."""
    centre, share = windows.mean(axis=0), truth.mean(axis=0)
    apart = windows - centre
    weights = np.linalg.solve(
        apart.T @ apart + penalty * np.eye(windows.shape[1]), apart.T @ (truth - share)
    )
    return weights, share - centre @ weights


def test_the_strength_is_that_of_windows_left_out_one_by_one() -> None:
    """Fitting n times without one window each, the penalty as it was, finds the same strength."""
    stream = Key(0).numpy()
    labels = np.repeat([0, 1, 2], 6)
    windows = stream.normal(size=(18, 5)) + 0.4 * labels[:, None]
    truth = np.eye(3)[labels]
    errors = []
    for strength in linear._STRENGTHS:
        error = 0.0
        for number in range(18):
            rest = np.arange(18) != number
            weights, bias = _ridge(windows[rest], truth[rest], 18 * strength)
            error += np.square(truth[number] - windows[number] @ weights - bias).sum()
        errors.append(error)
    chosen = linear._STRENGTHS[int(np.argmin(errors))]
    assert linear._STRENGTHS[-1] < chosen < linear._STRENGTHS[0], "not at an end"
    weights, bias = _ridge(windows, truth, 18 * chosen)
    found, offset = fit_linear(windows, labels, 3)
    np.testing.assert_allclose(found, weights.T, atol=1e-12)
    np.testing.assert_allclose(offset, bias, atol=1e-12)


def test_a_class_without_windows_is_never_answered() -> None:
    """Scores sum to one, so the largest is above the zero of class 1, wherever a window lies."""
    stream = Key(1).numpy()
    labels = np.repeat([0, 2, 3], 5)
    weights, bias = fit_linear(stream.normal(size=(15, 4)), labels, 4)
    assert not weights[1].any() and bias[1] == 0
    scores = stream.normal(scale=100, size=(200, 4)) @ weights.T + bias
    np.testing.assert_allclose(scores.sum(axis=1), 1)
    assert 1 not in scores.argmax(axis=1)


@pytest.mark.parametrize("number", [1, 2])
def test_as_few_windows_as_there_may_be_have_a_fit(number: int) -> None:
    weights, bias = fit_linear(np.ones((number, 3)), np.zeros(number, np.int64), 2)
    np.testing.assert_allclose(weights, 0)
    np.testing.assert_allclose(bias, [1, 0])
