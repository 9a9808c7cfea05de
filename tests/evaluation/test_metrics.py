"""Metrics by hand, and against scikit-learn's definitions written out."""

import numpy as np
import pytest
from sklearn.metrics import f1_score

from fedapa.evaluation.metrics import (
    METRICS,
    OVER_TIME,
    THRESHOLDS,
    area_bounds,
    blind_scores,
    class_shares,
    confusion,
    presence_at_half,
    presence_scores,
    roc,
    score,
    score_over_time,
)

FIVE = np.array(  # nobody, one, three people: somebody with 0.22, 0.62, 0.62, 0.88, 0.28
    [[0.78, 0.2, 0.02], [0.38, 0.6, 0.02], [0.38, 0.02, 0.6], [0.12, 0.8, 0.08], [0.72, 0.2, 0.08]]
)
TWO_ARE_EMPTY = np.array([0, 0, 1, 2, 2])


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


def test_the_second_f1_is_over_the_classes_in_truth_or_answer() -> None:
    """Truth 0 0 0 1, answer 0 0 2 2: class 0 has 2·2/(3 + 2) = 4/5; class 1 is never answered and
    class 2 never there, each 0; class 3 is neither. Over three classes 4/15, over the two in truth
    2/5; scikit-learn says the former."""
    truth, answer = np.array([0, 0, 0, 1]), np.array([0, 0, 2, 2])
    metrics = score(confusion(truth, answer, 4), [0, 1, 2, 3])
    assert metrics["macro_f1_answered"] == pytest.approx(4 / 15)
    assert metrics["macro_f1"] == pytest.approx(2 / 5)
    theirs = f1_score(truth, answer, average="macro", zero_division=0)
    assert metrics["macro_f1_answered"] == pytest.approx(theirs)


def test_categories_have_no_distance() -> None:
    metrics = score(np.eye(2), ["sit", "walk"])
    assert set(metrics) == {"accuracy", "macro_f1", "macro_f1_answered"}


def test_blind_predictors_by_hand() -> None:
    """Train 0 0 0 1, test 0 1: always 0 is right half the time with MAE 1/2; drawing 0 with 3/4
    is right (3/4 + 1/4)/2 = 1/2 of the time."""
    blind = blind_scores(np.array([0, 0, 0, 1]), np.array([0, 1]), [0, 1])
    assert blind["constant"]["accuracy"] == 0.5
    assert blind["constant"]["mae"] == 0.5
    assert blind["prior"]["accuracy"] == pytest.approx(0.5)
    assert blind["prior"]["mae"] == pytest.approx((1 / 4 + 3 / 4) / 2)
    # Always 0 is certain, and right in half of the windows; the other is sure to 3/4.
    assert blind["constant"]["ece"] == pytest.approx(0.5)
    assert blind["prior"]["ece"] == pytest.approx(0.25)


def test_the_constant_predictor_looks_at_train_only() -> None:
    blind = blind_scores(np.array([1, 1, 0]), np.array([0, 0, 0, 1]), [0, 1])
    assert blind["constant"]["accuracy"] == 0.25


def test_shares_of_several_matrices_have_no_row_for_a_class_without_windows() -> None:
    """Class 0 has 1 + 2 windows, of which 1 + 1 are right; class 1 has none."""
    shares = class_shares([[[1, 0], [0, 0]], [[1, 1], [0, 0]]])
    assert shares[0].tolist() == pytest.approx([2 / 3, 1 / 3])
    assert np.isnan(shares[1]).all()


def test_evidence_over_time_by_hand() -> None:
    """Two windows with 2 people in a room of 0, 1 or 2: first 0.6, 0.1, 0.3, then 0.1, 0.2, 0.7.

    Alone the first says 0 (its median, too: 0.6 reaches one half) and the second 2: one of two
    right, errors 2 and 0. Together √0.06 : √0.02 : √0.21 = 0.29 : 0.17 : 0.54: the most probable
    class is 2, and so is the median.
    """
    probabilities = np.array([[0.6, 0.1, 0.3], [0.1, 0.2, 0.7]])
    blocks = {"one_window": np.array([[0], [1]]), "10s": np.array([[0, 1]])}
    made = score_over_time(probabilities, np.array([2, 2]), blocks, [0, 1, 2])
    assert made == {
        "accuracy_one_window": 0.5,
        "mae_one_window": 1.0,
        "mae_most_probable_one_window": 1.0,
        "accuracy_10s": 1.0,
        "mae_10s": 0.0,
        "mae_most_probable_10s": 0.0,
    }


def test_who_sees_no_window_learns_nothing_from_time() -> None:
    """Train 0 0 0 1 says 0, of which a recording with 1 person is one off, however long it is."""
    train, test, later = np.array([0, 0, 0, 1]), np.array([0, 1]), np.array([1])
    blind = blind_scores(train, test, [0, 1], over_time={"60s": later})
    for predictor in ("constant", "prior"):
        assert blind[predictor]["mae_60s"] == 1.0
        assert blind[predictor]["mae_median"] == 0.5
        assert "mae_30s" not in blind[predictor]
    assert blind["prior"]["accuracy_60s"] == pytest.approx(1 / 4)
    assert blind["prior"]["mae_most_probable_60s"] == pytest.approx(3 / 4)


def test_presence_by_hand() -> None:
    """Empty windows have s = 0.22 and 0.62, occupied ones 0.62, 0.88 and 0.28.

    At one half 0.22, 0.62 and 0.88 are told right: 3 of 5. Of the six pairs 0.62 is above 0.22 and
    equal to 0.62, 0.88 above both, 0.28 above 0.22 only: (1 + ½ + 2 + 1) / 6 = 3/4.
    """
    found = presence_scores(FIVE, TWO_ARE_EMPTY, [0, 1, 3])
    assert found == {"presence": 3 / 5, "presence_auc": 3 / 4}
    # The order of classes is nobody's business.
    assert presence_scores(FIVE[:, [2, 0, 1]], (TWO_ARE_EMPTY + 1) % 3, [3, 0, 1]) == found


def test_the_points_of_the_roc_by_hand() -> None:
    """The windows from above: 0.22 passes thresholds to 0.2, 0.28 to 0.25, 0.62 to 0.6, 0.88 to
    0.85. Both at 0.62 lie between the same two, so of six pairs four or five are in order."""
    table = roc(FIVE, TWO_ARE_EMPTY, [0, 1, 3])
    assert [step / 20 for step in range(21)] == list(THRESHOLDS)
    points = [[2, 3]] * 5 + [[1, 3]] + [[1, 2]] * 7 + [[0, 1]] * 5 + [[0, 0]] * 3
    assert table.tolist() == points
    assert presence_at_half(table) == 3 / 5
    assert area_bounds(table) == pytest.approx((4 / 6, 5 / 6))
    assert area_bounds(table + table) == pytest.approx((4 / 6, 5 / 6)), "rooms may be added"


def test_a_probability_on_a_threshold_passes_it() -> None:
    """Certain of somebody is 1, certain of nobody 0, and one half is held occupied."""
    probabilities = np.array([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]])
    table = roc(probabilities, np.array([1, 1, 0]), [0, 4])
    assert table[[0, 1, 10, 11, 20]].tolist() == [[1, 2], [0, 2], [0, 2], [0, 1], [0, 1]]
    assert presence_scores(probabilities, np.array([1, 1, 0]), [0, 4])["presence"] == 1.0


def test_the_area_by_ranks_is_that_of_all_pairs_and_lies_between_its_bounds() -> None:
    """With probabilities in steps of 0.01, so that many are equal."""
    drawn = np.random.RandomState(0)
    probabilities = drawn.dirichlet(np.full(4, 0.3), 300).round(2)
    truth = drawn.randint(0, 4, 300)
    somebody, occupied = 1 - probabilities[:, 0], truth > 0
    lead = somebody[occupied][:, None] - somebody[~occupied][None, :]
    area = presence_scores(probabilities, truth, range(4))["presence_auc"]
    assert area == pytest.approx(((lead > 0) + 0.5 * (lead == 0)).mean())
    bounds = area_bounds(roc(probabilities, truth, range(4)))
    assert bounds is not None
    assert bounds[0] <= area <= bounds[1]


def test_presence_is_absent_where_it_means_nothing() -> None:
    for classes in (["empty", "full", "fuller"], [1, 2, 3]):
        assert presence_scores(FIVE, TWO_ARE_EMPTY, classes) == {}
        assert roc(FIVE, TWO_ARE_EMPTY, classes).shape == (0, 2)
    none = np.zeros(0, np.int64)
    assert presence_scores(FIVE[:0], none, [0, 1, 3]) == {}
    assert roc(FIVE[:0], none, [0, 1, 3]).shape == (0, 2)
    # All are occupied: noticed or not, but there is nothing to tell them from.
    table = roc(FIVE, np.full(5, 2), [0, 1, 3])
    assert presence_scores(FIVE, np.full(5, 2), [0, 1, 3]) == {"presence": 3 / 5}
    assert table[0].tolist() == [0, 5]
    assert area_bounds(table) is None


def test_blind_presence_by_hand() -> None:
    """Train 0 0 1 2 says nobody always, or somebody with one half: of test 0 1 2 one or two are
    right, and neither puts one window above another."""
    blind = blind_scores(np.array([0, 0, 1, 2]), np.array([0, 1, 2]), [0, 1, 2])
    assert blind["constant"]["presence"] == pytest.approx(1 / 3)
    assert blind["prior"]["presence"] == pytest.approx(2 / 3)
    assert blind["constant"]["presence_auc"] == blind["prior"]["presence_auc"] == 0.5


def test_every_metric_over_time_names_its_time() -> None:
    for name, metric in METRICS.items():
        assert (metric.time != "") == any(name.endswith(f"_{time}") for time in OVER_TIME)
        assert metric.in_people == (name.startswith("mae") or name == "unseen_mae")
        assert metric.less_is_better == (metric.in_people or name in ("ece", "activity.ece"))
