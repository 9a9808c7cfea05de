"""Growing a forest: scikit-learn's trees, as the flat arrays of ``fedapa.models.forest``."""

from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fedapa.payload import Array
from fedapa.randomness import Key

__all__ = ["Thresholds", "grow_forest"]

Thresholds: TypeAlias = Literal["random", "best"]
"""Where a node parts windows: at random (extra trees), or where it is best (random forest)."""


def grow_forest(
    windows: npt.NDArray[np.float32],
    labels: npt.NDArray[np.int64],
    classes: int,
    *,
    trees: int,
    thresholds: Thresholds,
    key: Key,
) -> dict[str, Array]:
    """Trees of train windows until every leaf is of one class, on one thread.

    Args:
        windows: [n, F].
        labels: [n] class indices.
        classes: C; one without windows has no share in any leaf.
        trees: how many.
        thresholds: extra trees, from all windows; or a random forest, each tree from a bootstrap.
        key: draws everything.
    """
    from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

    kind = ExtraTreesClassifier if thresholds == "random" else RandomForestClassifier
    grown = kind(trees, random_state=key.number % 2**32, n_jobs=1).fit(windows, labels)
    parts = [one.tree_ for one in grown.estimators_]
    sizes = np.array([part.node_count for part in parts])
    roots = np.cumsum(sizes) - sizes  # (trees,)
    shift = np.repeat(roots, sizes)  # (nodes,)

    def joined(values: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        return np.concatenate(values)

    left = joined([part.children_left for part in parts])
    leaf = left < 0
    shares = np.zeros((leaf.sum(), classes), np.float32)  # (leaves, C)
    shares[:, grown.classes_] = joined([part.value[:, 0] for part in parts])[leaf]
    return {
        "roots": roots.astype(np.int32),
        "feature": np.where(leaf, -1, joined([part.feature for part in parts])).astype(np.int32),
        "threshold": joined([part.threshold for part in parts]),
        "left": np.where(leaf, np.cumsum(leaf) - 1, left + shift).astype(np.int32),
        "right": (joined([part.children_right for part in parts]) + shift).astype(np.int32),
        "shares": shares,
    }
