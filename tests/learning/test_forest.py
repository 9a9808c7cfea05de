"""Growing trees: the flat arrays answer as scikit-learn's own objects do."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from fedapa.learning.forest import Thresholds, grow_forest
from fedapa.models.forest import Forest
from fedapa.randomness import Key


def _windows(classes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Noise with a level by class, and some windows twice with another label: leaves that mix."""
    stream = (Key(0) / "forest test").numpy()
    labels = np.repeat(classes, 20)
    windows = stream.normal(size=(len(labels), 6)) + 0.5 * labels[:, None]
    windows = np.concatenate([windows, windows[:5]]).astype(np.float32)
    return windows, np.concatenate([labels, labels[-5:]])


@pytest.mark.parametrize(
    ("thresholds", "kind"), [("random", ExtraTreesClassifier), ("best", RandomForestClassifier)]
)
def test_the_arrays_answer_as_scikit_learn_does(thresholds: Thresholds, kind: type) -> None:
    windows, labels = _windows((0, 2, 3))
    key = Key(0) / "trees"
    arrays = grow_forest(windows, labels, 5, trees=40, thresholds=thresholds, key=key)
    forest = Forest(**{name: torch.tensor(values) for name, values in arrays.items()})
    theirs = kind(40, random_state=key.number % 2**32).fit(windows, labels)
    stream = (Key(1) / "forest test").numpy()
    asked = np.concatenate([windows, stream.normal(scale=2, size=(500, 6)).astype(np.float32)])
    expected = theirs.predict_proba(asked)
    found = forest.probabilities(torch.from_numpy(asked)).numpy()
    np.testing.assert_allclose(found[:, [0, 2, 3]], expected, atol=1e-6)
    assert not found[:, [1, 4]].any()
    answers = forest.predict(torch.from_numpy(asked)).numpy()
    np.testing.assert_array_equal(answers, theirs.predict(asked))


def test_two_trees_by_hand() -> None:
    """Tree 1 asks x₀ ≤ 0: left is class 0; right asks x₁ ≤ 1: class 1, or class 1 and 2 half each.
    Tree 2 is a leaf, shared 1/4, 1/4, 1/2. The mean for (1, 2): (0 + 1/4, 1/2 + 1/4, 1/2 + 1/2)/2.
    """
    forest = Forest(
        roots=torch.tensor([0, 5]),
        feature=torch.tensor([0, -1, 1, -1, -1, -1]),
        threshold=torch.tensor([0, 0, 1, 0, 0, 0], dtype=torch.float64),
        left=torch.tensor([1, 0, 3, 1, 2, 3]),
        right=torch.tensor([2, 0, 4, 0, 0, 0]),
        shares=torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0.5, 0.5], [0.25, 0.25, 0.5]]),
    )
    windows = torch.tensor([[0.0, 2.0], [1.0, 1.0], [1.0, 2.0]])
    expected = [[0.625, 0.125, 0.25], [0.125, 0.625, 0.25], [0.125, 0.375, 0.5]]
    np.testing.assert_array_equal(forest.probabilities(windows).numpy(), expected)
    assert forest.predict(windows).tolist() == [0, 1, 2]
