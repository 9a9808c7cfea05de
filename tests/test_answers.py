"""Answers: medians, means, temperatures and evidence, worked out by hand."""

import numpy as np
import pytest

from fedapa.answers import (
    add_evidence,
    calibration_error,
    expected_count,
    fit_temperature,
    median_class,
    probabilities_of,
    reliability,
)


def test_probabilities_by_hand() -> None:
    """Scores 0 and ln 3: ¼ and ¾; at temperature ½ the odds are squared, 1 : 9."""
    scores = np.log([[1.0, 3.0]])
    np.testing.assert_allclose(probabilities_of(scores), [[0.25, 0.75]])
    np.testing.assert_allclose(probabilities_of(scores, 0.5), [[0.1, 0.9]])


def test_the_median_is_not_the_peak() -> None:
    """0.4 at 0 people, 0.3 at 2, 0.3 at 8: the peak is 0, one half is reached at 2.

    Classes are not in order here: the median goes by the counts they stand for.
    """
    probabilities = [[0.3, 0.4, 0.3]]
    assert median_class(probabilities, (8, 0, 2)).tolist() == [2]
    assert expected_count(probabilities, (8, 0, 2)) == pytest.approx([3.0])


def test_the_median_has_the_least_expected_error() -> None:
    stream = np.random.default_rng(0)
    counts = np.array([0, 1, 2, 4, 7, 12])
    for row in stream.dirichlet(np.ones(6), 50):
        errors = [float(row @ np.abs(counts - answer)) for answer in counts]
        chosen = int(median_class(row[None], counts.tolist())[0])
        assert errors[chosen] == pytest.approx(min(errors))


def test_the_temperature_of_a_net_that_is_too_sure() -> None:
    """The net says 10 : 1 and is right in three of four: 3 : 1 is true, and 10^(1/T) = 3."""
    scores = np.log([[10.0, 1.0]] * 4)
    truth = np.array([0, 0, 0, 1])
    assert fit_temperature(scores, truth) == pytest.approx(np.log(10) / np.log(3), rel=1e-6)


def test_a_temperature_has_its_ends() -> None:
    """Always right: as sharp as allowed. Right in one of four: nearly a guess."""
    scores = np.tile([1.0, 0.0], (4, 1))
    assert fit_temperature(scores, np.zeros(4, np.int64)) == pytest.approx(0.01)
    assert fit_temperature(scores, np.array([0, 1, 1, 1])) == pytest.approx(20)


def test_classes_that_are_never_answered_say_nothing_about_the_temperature() -> None:
    scores = np.log([[10.0, 1.0, 1.0]] * 5)
    scores[:, 2] = -1e9
    truth = np.array([0, 0, 0, 1, 2])
    assert fit_temperature(scores, truth) == pytest.approx(np.log(10) / np.log(3), rel=1e-6)


def test_without_validation_windows_nothing_is_scaled() -> None:
    assert fit_temperature(np.zeros((0, 3)), np.zeros(0, np.int64)) == 1.0


def test_a_temperature_never_changes_the_most_probable_class() -> None:
    scores = np.random.default_rng(0).normal(size=(40, 5))
    truth = np.random.default_rng(1).integers(0, 5, 40)
    temperature = fit_temperature(scores, truth)
    np.testing.assert_array_equal(
        probabilities_of(scores, temperature).argmax(axis=1), scores.argmax(axis=1)
    )


def test_evidence_by_hand() -> None:
    """Two windows that say 2 : 1 and 8 : 1: independent 16 : 1, one window seen twice 4 : 1."""
    windows = [[2 / 3, 1 / 3], [8 / 9, 1 / 9]]
    np.testing.assert_allclose(add_evidence(windows, 0.0), [16 / 17, 1 / 17])
    np.testing.assert_allclose(add_evidence(windows, 1.0), [4 / 5, 1 / 5])
    np.testing.assert_allclose(add_evidence(windows[:1], 0.3), windows[0])
    several = add_evidence([windows, windows[::-1]], 0.0)
    np.testing.assert_allclose(several, [[16 / 17, 1 / 17]] * 2)


def test_evidence_decides_between_two_peaks() -> None:
    """0.5, 0.1, 0.4 and then 0.1, 0.2, 0.7: the products are 5 : 2 : 28, so the third of three.

    Alone the first window says the first class.
    """
    windows = np.array([[0.5, 0.1, 0.4], [0.1, 0.2, 0.7]])
    np.testing.assert_allclose(add_evidence(windows, 0.0), [5 / 35, 2 / 35, 28 / 35])
    for dependence in (0.0, 0.5, 1.0):
        assert add_evidence(windows, dependence).argmax() == 2


def test_the_calibration_error_by_hand() -> None:
    """Four windows at 0.75, two right: off by 0.25; one at 0.95, right: off by 0.05.

    (4 · 0.25 + 1 · 0.05) / 5 = 0.21.
    """
    probabilities = [[0.75, 0.25]] * 4 + [[0.05, 0.95]]
    table = reliability(probabilities, np.array([0, 0, 1, 1, 1]))
    assert table.shape == (10, 3)
    np.testing.assert_allclose(table[7], [4, 3.0, 2])
    np.testing.assert_allclose(table[9], [1, 0.95, 1])
    assert table[:, 0].sum() == 5
    assert calibration_error(table) == pytest.approx(0.21)


def test_no_windows_have_no_calibration_error() -> None:
    table = reliability(np.zeros((0, 3)), np.zeros(0, np.int64))
    assert table.shape == (10, 3)
    assert calibration_error(table) == 0
    certain = reliability([[1.0, 0.0]], np.array([0]))
    assert certain[9].tolist() == [1, 1, 1], "1 is in the last bin"
