"""Metrics of one room's test windows, and two blind predictors.

Accuracy; macro F1 over the classes present in the test part, and over those that are there or were
answered (scikit-learn's ``f1_score(average="macro")``); the expected calibration error; and,
where classes are counts, the mean absolute error |argmax − y| in people, the share within one
person, and the mean absolute error of the median of the calibrated probabilities, the least that
they allow. Categories have no distance: those three are then absent.

Presence, count > 0, is scored where 0 is among the counts: how often it is told right, and how well
the probability that somebody is there tells occupied windows from empty ones at any threshold.

Counts are also scored over time: the evidence of windows that lie end to end in a recording is
added, ``add_evidence``, until so many seconds are seen. What no recording is long enough for is
absent.
"""

import functools
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
    "THRESHOLDS",
    "Metric",
    "area_bounds",
    "blind_scores",
    "class_shares",
    "confusion",
    "counts_people",
    "median_scores",
    "presence_at_half",
    "presence_scores",
    "roc",
    "score",
    "score_over_time",
    "tells_presence",
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
    "macro_f1_answered": Metric("Macro F1, answered too (%)", "F1, answered too (%)"),
    "mae_median": _MAE,
    "mae": _MOST_PROBABLE,
    "within_one": Metric("Within ±1 (%)", "±1 (%)"),
    "within_two": Metric("Within ±2 (%)", "±2 (%)"),
    "unseen_accuracy": Metric("Unseen: accuracy (%)", "Unseen (%)"),
    "unseen_mae": replace(_MAE, heading="Unseen: MAE (people)", short="Unseen MAE"),
    "unseen_within_two": Metric("Unseen: within ±2 (%)", "Unseen ±2 (%)"),
    "presence": Metric("Presence (%)", "Presence (%)"),
    "presence_auc": Metric("Presence AUC (%)", "AUC (%)"),
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
    "activity.accuracy": Metric("Activity: accuracy (%)", "Activity (%)"),
    "activity.macro_f1": Metric("Activity: macro F1 (%)", "Activity F1 (%)"),
    "activity.macro_f1_answered": Metric(
        "Activity: macro F1, answered too (%)", "Activity F1, answered too (%)"
    ),
    "activity.ece": Metric(
        "Activity: calibration error (%)", "Activity ECE (%)", less_is_better=True
    ),
}
"""By name, in the order in which tables show them; all but accuracy, F1 and ECE only for counts.

Calibration, presence and counting over time have tables of their own. What begins with the name of
a task is of that task, where a net has two; all others are of the first.
"""

THRESHOLDS = tuple(step / 20 for step in range(21))
"""Of the probability that somebody is there, at which ``roc`` counts windows."""
_HALF = THRESHOLDS.index(0.5)

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
    present, either = real > 0, real + guessed > 0
    f1 = 2 * hits[present] / (real + guessed)[present]
    # A class that is answered and never there has no hit: it adds 0, and one to divide by.
    metrics = {
        "accuracy": float(hits.sum() / total),
        "macro_f1": float(f1.mean()),
        "macro_f1_answered": float(f1.sum() / either.sum()),
    }
    if counts_people(classes):
        distance, near = _distances(tuple(classes))
        metrics["mae"] = float((counts * distance).sum() / total)
        metrics["within_one"] = float(counts[near].sum() / total)
    return metrics


@functools.lru_cache(maxsize=64)
def _distances(classes: tuple[Label, ...]) -> tuple[_Matrix, npt.NDArray[np.bool_]]:
    """[C, C] how many people are between two counts, and whether it is one at most."""
    people = np.asarray(classes, np.float64)
    distance = np.abs(people[:, None] - people[None, :])
    return distance, distance <= 1


def _median_errors(
    probabilities: npt.ArrayLike, truth: npt.NDArray[np.int64], classes: Sequence[Label]
) -> _Matrix:
    """[n], |median − y| in people, of calibrated probabilities [n, C] for counts."""
    people = np.asarray(classes, np.float64)
    answers = median_class(probabilities, [int(label) for label in classes])
    return np.abs(people[answers] - people[truth])


def median_error(
    probabilities: npt.ArrayLike, truth: npt.NDArray[np.int64], classes: Sequence[Label]
) -> float:
    """The mean of |median − y| in people, of calibrated probabilities [n, C] for counts."""
    return float(_median_errors(probabilities, truth, classes).mean())


def median_scores(
    probabilities: _Matrix, truth: _Index, classes: Sequence[Label], held: Sequence[int]
) -> dict[str, float]:
    """What the median answer reaches, for counts; and, where there are any, for unseen counts.

    Args:
        probabilities: [n, C], calibrated.
        truth: [n] classes.
        classes: what the indices mean.
        held: those that there are train windows of.
    """
    errors = _median_errors(probabilities, truth, classes)
    made = {"mae_median": float(errors.mean()), "within_two": float((errors <= 2).mean())}
    unseen = ~np.isin(truth, held)
    if unseen.any():
        right = probabilities[unseen].argmax(axis=1) == truth[unseen]
        made["unseen_accuracy"] = float(right.mean())
        made["unseen_mae"] = float(errors[unseen].mean())
        made["unseen_within_two"] = float((errors[unseen] <= 2).mean())
    return made


def tells_presence(classes: Sequence[Label]) -> bool:
    """Whether classes are counts, and an empty room is one of them."""
    return counts_people(classes) and 0 in classes


def presence_scores(
    probabilities: npt.ArrayLike, truth: _Index, classes: Sequence[Label]
) -> dict[str, float]:
    """How well calibrated probabilities [n, C] tell whether somebody is there.

    ``presence`` is the share of windows for which s ≥ 0.5, with s = 1 − p(nobody), says what is
    true. ``presence_auc`` is the area under the ROC: how probable it is that an occupied window has
    a larger s than an empty one, where equal ones count half; 0.5 is chance. It is absent where
    windows are all empty or all occupied, both where ``tells_presence`` says no.
    """
    if not tells_presence(classes) or not len(truth):
        return {}
    somebody, occupied = _presence(probabilities, truth, classes)
    told = {"presence": float(((somebody >= THRESHOLDS[_HALF]) == occupied).mean())}
    empty, full = np.sort(somebody[~occupied]), somebody[occupied]
    if len(empty) and len(full):
        # Empty windows below each occupied one, and those that are not above it: ties in between.
        twice = sum(int(empty.searchsorted(full, side).sum()) for side in ("left", "right"))
        told["presence_auc"] = twice / (2 * len(empty) * len(full))
    return told


def roc(probabilities: npt.ArrayLike, truth: _Index, classes: Sequence[Label]) -> _Index:
    """[thresholds, 2] windows with s ≥ each of ``THRESHOLDS``: false alarms, hits.

    The first row is of all windows, empty and occupied. No rows where ``tells_presence`` says no,
    or without windows. Tables of several rooms may be added.
    """
    if not tells_presence(classes) or not len(truth):
        return np.zeros((0, 2), np.int64)
    somebody, occupied = _presence(probabilities, truth, classes)
    passed = np.searchsorted(THRESHOLDS, somebody, side="right")  # (n,) 1 or more
    steps = len(THRESHOLDS)
    kinds = [np.bincount(passed[kind] - 1, minlength=steps) for kind in (~occupied, occupied)]
    return np.cumsum(np.stack(kinds, axis=1)[::-1], axis=0)[::-1].astype(np.int64)


def _presence(
    probabilities: npt.ArrayLike, truth: _Index, classes: Sequence[Label]
) -> tuple[_Matrix, npt.NDArray[np.bool_]]:
    """[n] s, how probable it is that somebody is there, and [n] whether somebody is."""
    people = np.asarray(classes, np.int64)
    nobody = np.asarray(probabilities, np.float64)[:, people == 0].sum(axis=1)
    return np.clip(1 - nobody, 0.0, 1.0), people[truth] > 0


def presence_at_half(table: npt.ArrayLike) -> float:
    """The share of windows whose presence is told right at s ≥ 0.5, by a table of ``roc``."""
    counted = np.asarray(table, np.float64)
    (empty, occupied), (alarms, hits) = counted[0], counted[_HALF]
    return float((empty - alarms + hits) / (empty + occupied))


def area_bounds(table: npt.ArrayLike) -> tuple[float, float] | None:
    """Between which the area under the ROC lies, by a table of ``roc``; none without both kinds.

    Of an occupied and an empty window between the same two thresholds nobody knows which is above.
    The middle of the bounds is the area under straight lines between the points.
    """
    counted = np.asarray(table, np.float64)
    empty, occupied = counted[0] if len(counted) else (0.0, 0.0)
    if not empty or not occupied:
        return None
    # Windows between each threshold and the next.
    alarms, hits = (counted - np.vstack([counted[1:], [[0, 0]]])).T
    least = float((hits / occupied) @ ((empty - counted[:, 0]) / empty))
    return least, least + float((hits / occupied) @ (alarms / empty))


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
            for metric, value in _blind(time, mine, truth, classes, seen > 0).items()
        }
        for name, mine in shares.items()
    }


def _blind(
    time: str,
    shares: _Matrix,
    truth: _Index,
    classes: Sequence[Label],
    held: npt.NDArray[np.bool_],
) -> dict[str, float]:
    real = np.bincount(truth, minlength=len(classes)).astype(np.float64)
    reached = score(np.outer(real, shares), classes)
    same = np.broadcast_to(shares, (len(truth), len(shares)))
    if not time:
        reached["ece"] = calibration_error(reliability(same, truth))
        reached |= presence_scores(same, truth, classes)
    if not counts_people(classes):
        return reached
    if time:
        return _after(time, reached, median_error(same, truth, classes))
    return {**reached, **median_scores(same, truth, classes, np.flatnonzero(held).tolist())}
