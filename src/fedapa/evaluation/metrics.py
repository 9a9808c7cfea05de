"""Metrics of one room's test windows, and two blind predictors.

Accuracy; macro F1 over the classes present in the test part; the expected calibration error; and,
where classes are counts, the mean absolute error |argmax − y| in people, the share within one
person, and the mean absolute error of the median of the calibrated probabilities, the least that
they allow. Categories have no distance: those three are then absent.

Counts are also scored over time: the evidence of windows that lie end to end in a recording is
added, ``add_evidence``, until so many seconds are seen. What no recording is long enough for is
absent.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fedapa.answers import add_evidence, calibration_error, median_class, reliability
from fedapa.windows.labels import Label

__all__ = [
    "METRICS",
    "ONE_WINDOW",
    "OVER_TIME",
    "Metric",
    "blind_scores",
    "class_shares",
    "confusion",
    "counts_people",
    "median_error",
    "score",
    "score_over_time",
]


@dataclass(frozen=True)
class Metric:
    """What tables call a metric, and how it is read."""

    heading: str
    short: str
    """The same where many stand side by side."""
    in_people: bool = False
    """Its unit; otherwise it is a share, shown in percent."""
    less_is_better: bool = False
    time: str = ""
    """Where evidence is added over time, after how long: a key of ``OVER_TIME``."""


ONE_WINDOW = "one_window"
OVER_TIME = {ONE_WINDOW: 0, "10s": 10, "30s": 30, "60s": 60}
"""Seconds of evidence that are added, by the end of a metric's name; one window adds none."""

_ACCURACY = Metric("Accuracy (%)", "Acc. (%)")
_MAE = Metric("MAE (people)", "MAE", in_people=True, less_is_better=True)
_MOST_PROBABLE = replace(_MAE, heading="MAE, most probable", short="MAE, most probable")
METRICS = {
    "accuracy": _ACCURACY,
    "macro_f1": Metric("Macro F1 (%)", "F1 (%)"),
    "mae_median": _MAE,
    "mae": _MOST_PROBABLE,
    "within_one": Metric("Within ±1 (%)", "±1 (%)"),
    "ece": Metric("Calibration error (%)", "ECE (%)", less_is_better=True),
    **{
        f"{kind}_{time}": replace(metric, time=time)
        for kind, metric in (
            ("accuracy", _ACCURACY),
            ("mae", _MAE),
            ("mae_most_probable", _MOST_PROBABLE),
        )
        for time in OVER_TIME
    },
}
"""By name, in the order in which tables show them; all but accuracy, F1 and ECE only for counts."""

_Index = npt.NDArray[np.int64]
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


def score_over_time(
    probabilities: _Matrix, truth: _Index, blocks: Mapping[str, _Index], classes: Sequence[Label]
) -> dict[str, float]:
    """Accuracy and errors of what windows say together, for counts.

    Args:
        probabilities: [n, C], calibrated.
        truth: [n] classes.
        blocks: by the end of a metric's name, [blocks, windows] whose evidence is added.
        classes: what the indices mean.
    """
    made: dict[str, float] = {}
    for time, places in blocks.items():
        together = add_evidence(probabilities[places])  # (blocks, C)
        asked = truth[places[:, 0]]  # a recording has one label
        reached = score(confusion(asked, together.argmax(axis=1), len(classes)), classes)
        made |= _after(time, reached, median_error(together, asked, classes))
    return made


def _after(time: str, reached: Mapping[str, float], median: float) -> dict[str, float]:
    return {
        f"accuracy_{time}": reached["accuracy"],
        f"mae_{time}": median,
        f"mae_most_probable_{time}": reached["mae"],
    }


def blind_scores(
    train: _Index,
    test: _Index,
    classes: Sequence[Label],
    *,
    over_time: Mapping[str, _Index] | None = None,
) -> dict[str, dict[str, float]]:
    """What predictors reach that never look at a window.

    ``constant`` always says the most frequent class of train (the smallest of equals);
    ``prior`` draws from the class frequencies of train: its expected confusion matrix is scored.

    Args:
        train: [n] classes.
        test: [m] classes.
        classes: what the indices mean.
        over_time: by the end of a metric's name, [blocks] the classes of what is counted over time;
            who sees no window says the same after any time.
    """
    asked = {"": test, **(over_time or {})}
    seen = np.bincount(train, minlength=len(classes)).astype(np.float64)
    always = np.zeros(len(classes))
    always[int(seen.argmax())] = 1.0
    shares = {"constant": always, "prior": seen / seen.sum()}
    return {
        name: {
            metric: value
            for time, truth in asked.items()
            for metric, value in _blind(time, mine, truth, classes).items()
        }
        for name, mine in shares.items()
    }


def _blind(time: str, shares: _Matrix, truth: _Index, classes: Sequence[Label]) -> dict[str, float]:
    real = np.bincount(truth, minlength=len(classes)).astype(np.float64)
    reached = score(np.outer(real, shares), classes)
    same = np.broadcast_to(shares, (len(truth), len(shares)))
    if not time:
        reached["ece"] = calibration_error(reliability(same, truth))
    if not counts_people(classes):
        return reached
    median = median_error(same, truth, classes)
    return _after(time, reached, median) if time else {**reached, "mae_median": median}
