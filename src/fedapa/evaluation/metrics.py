"""Metrics of one room's test windows, and two blind predictors.

Accuracy; macro F1 over the classes present in the test part; and, where classes are counts, the
mean absolute error |argmax − y| in people, the share within one person, and the mean absolute error
of the median of the calibrated probabilities, the least that they allow. Categories have no
distance: those three are then absent.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from fedapa.answers import median_class
from fedapa.windows.labels import Label

__all__ = [
    "METRICS",
    "blind_scores",
    "class_shares",
    "confusion",
    "counts_people",
    "median_error",
    "score",
]

METRICS = ("accuracy", "macro_f1", "mae", "within_one", "mae_median")
"""In the order in which tables show them; all but the first two only for counts."""

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


def counts_people(classes: Sequence[Label]) -> bool:
    """Whether classes are counts, not categories."""
    return all(isinstance(label, int) for label in classes)


def score(matrix: npt.NDArray[np.int64] | _Matrix, classes: Sequence[Label]) -> dict[str, float]:
    """The metrics of a confusion matrix [C, C]; it may hold expected, fractional counts."""
    counts = np.asarray(matrix, np.float64)
    total = counts.sum()
    hits = np.diag(counts)
    real, guessed = counts.sum(axis=1), counts.sum(axis=0)
    present = real > 0
    f1 = 2 * hits[present] / (real + guessed)[present]
    metrics = {"accuracy": float(hits.sum() / total), "macro_f1": float(f1.mean())}
    if counts_people(classes):
        people = np.asarray(classes, np.float64)
        distance = np.abs(people[:, None] - people[None, :])  # (C, C)
        metrics["mae"] = float((counts * distance).sum() / total)
        metrics["within_one"] = float(counts[distance <= 1].sum() / total)
    return metrics


def median_error(
    probabilities: npt.ArrayLike, truth: npt.NDArray[np.int64], classes: Sequence[Label]
) -> float:
    """The mean of |median − y| in people, of calibrated probabilities [n, C] for counts."""
    people = np.asarray(classes, np.float64)
    answers = median_class(probabilities, [int(label) for label in classes])
    return float(np.abs(people[answers] - people[truth]).mean())


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
    made = {}
    for name, shares in (("constant", always), ("prior", seen / seen.sum())):
        made[name] = score(np.outer(asked, shares), classes)
        if counts_people(classes):
            same = np.broadcast_to(shares, (len(test), number))
            made[name]["mae_median"] = median_error(same, test, classes)
    return made
