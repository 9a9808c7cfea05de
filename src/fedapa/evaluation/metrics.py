"""Metrics of one room's test windows, all from its confusion matrix, and two blind predictors.

Accuracy; macro F1 over the classes present in the test part; and, where classes are counts, the
mean absolute error |argmax − y| in people and the share within one person. Categories have no
distance: those two are then absent.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from fedapa.windows.labels import Label

__all__ = ["METRICS", "blind_scores", "class_shares", "confusion", "score"]

METRICS = ("accuracy", "macro_f1", "mae", "within_one")
"""In the order in which tables show them; the last two only for counts."""

_Matrix = npt.NDArray[np.float64]


def confusion(
    truth: npt.NDArray[np.int64], guess: npt.NDArray[np.int64], classes: int
) -> npt.NDArray[np.int64]:
    """[C, C] counts of windows by (true class, predicted class)."""
    pairs = np.bincount(truth * classes + guess, minlength=classes * classes)
    return pairs.reshape(classes, classes).astype(np.int64)


def class_shares(matrices: Iterable[Sequence[Sequence[int]]]) -> _Matrix:
    """[C, C], confusion matrices together, each row as shares; NaN where a class has no window."""
    counted = np.sum([np.asarray(matrix) for matrix in matrices], axis=0)
    whole = counted.sum(axis=1, keepdims=True)
    return np.where(whole > 0, counted / np.maximum(whole, 1), np.nan)


def score(matrix: npt.NDArray[np.int64] | _Matrix, classes: Sequence[Label]) -> dict[str, float]:
    """The metrics of a confusion matrix [C, C]; it may hold expected, fractional counts."""
    counts = np.asarray(matrix, np.float64)
    total = counts.sum()
    hits = np.diag(counts)
    real, guessed = counts.sum(axis=1), counts.sum(axis=0)
    present = real > 0
    f1 = 2 * hits[present] / (real + guessed)[present]
    metrics = {"accuracy": float(hits.sum() / total), "macro_f1": float(f1.mean())}
    if all(isinstance(label, int) for label in classes):
        people = np.asarray(classes, np.float64)
        distance = np.abs(people[:, None] - people[None, :])  # (C, C)
        metrics["mae"] = float((counts * distance).sum() / total)
        metrics["within_one"] = float(counts[distance <= 1].sum() / total)
    return metrics


def blind_scores(
    train: npt.NDArray[np.int64], test: npt.NDArray[np.int64], classes: Sequence[Label]
) -> dict[str, dict[str, float]]:
    """What predictors reach that never look at a window.

    ``constant`` always says the most frequent class of train (the smallest of equals);
    ``prior`` draws from the class frequencies of train: its expected confusion matrix is scored.
    """
    number = len(classes)
    seen = np.bincount(train, minlength=number).astype(np.float64)
    asked = np.bincount(test, minlength=number).astype(np.float64)
    always = np.zeros(number)
    always[int(seen.argmax())] = 1.0
    return {
        "constant": score(np.outer(asked, always), classes),
        "prior": score(np.outer(asked, seen / seen.sum()), classes),
    }
