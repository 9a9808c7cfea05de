"""Sets are named by what is theirs alone, over the classes that both have."""

import numpy as np
import pytest

from fedapa.attacks.identity import alike, masks_alike
from fedapa.randomness import Key


def test_a_set_is_most_like_itself_and_what_all_share_counts_for_nothing() -> None:
    stream = (Key(0) / "identity").numpy()
    known = stream.normal(size=(5, 3, 8))
    have = np.ones((5, 3), bool)
    unknown = known[::-1] + 0.1 * stream.normal(size=known.shape)
    likely = alike(unknown, have, known, have)
    assert likely.argmax(axis=1).tolist() == [4, 3, 2, 1, 0]
    common = 50.0
    assert alike(unknown + common, have, known + common, have) == pytest.approx(likely)


def test_likeness_by_hand() -> None:
    """Known (1, 0) and (−1, 0): their mean is 0. (3, 4) has cosines 3/5 and −3/5 to them."""
    known, have = np.array([[[1.0, 0.0]], [[-1.0, 0.0]]]), np.ones((2, 1), bool)
    likely = alike(np.array([[[3.0, 4.0]]]), np.ones((1, 1), bool), known, have)
    assert likely == pytest.approx(np.array([[0.6, -0.6]]))


def test_classes_that_one_of_them_lacks_do_not_count() -> None:
    stream = (Key(1) / "identity").numpy()
    known, have = stream.normal(size=(2, 2, 4)), np.array([[True, False], [True, True]])
    unknown, has = stream.normal(size=(1, 2, 4)), np.array([[False, True]])
    likely = alike(unknown, has, known, have)
    assert likely[0, 0] == 0, "they share no class"
    assert likely[0, 1] == 0, "its only holder is the mean itself, so there is no direction"


def test_classes_alone_by_hand() -> None:
    """{0, 1} and {1, 2} share one of three."""
    has, have = (
        np.array([[True, True, False]]),
        np.array([[False, True, True], [True, True, False]]),
    )
    assert masks_alike(has, have) == pytest.approx(np.array([[1 / 3, 1.0]]))
