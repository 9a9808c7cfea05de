"""Answers: from the scores of classes to a number of people; numpy only.

::

    head      the most probable class; right most often
    median    the class in the middle of the probabilities; the least absolute error
    expected  the mean of the probabilities, in people; the least squared error
    nearest   the class of the nearest prototype (``models.nearest_prototype`` gives its scores)

Counts are ordered, so an answer between two peaks can be better than either. Probabilities are
*calibrated* first: a net that learned by heart is surer than it should be, and one temperature,
fitted on validation windows, mends that without changing which class is the most probable.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "BINS",
    "TEMPERATURES",
    "Answer",
    "add_evidence",
    "calibration_error",
    "expected_count",
    "fit_temperature",
    "log_loss",
    "median_class",
    "probabilities_of",
    "reliability",
]

Answer: TypeAlias = Literal["head", "nearest", "median", "expected"]
_Floats: TypeAlias = npt.NDArray[np.float64]
_Classes: TypeAlias = npt.NDArray[np.int64]

BINS = 10
"""Of confidence, in which it is compared with the share that is right."""

TEMPERATURES = (0.01, 20.0)
"""From the least to the largest that is looked for."""
_HALVINGS = 60
_IMPOSSIBLE = 1e6
"""A class so far below the best is one that a room never answers."""

_LEAST = 1e-12
"""A probability below it counts as this in a logarithm, which stays finite."""


def probabilities_of(scores: npt.ArrayLike, temperature: float = 1.0) -> _Floats:
    """softmax(scores / T), [B, C] from scores [B, C]."""
    scaled = np.asarray(scores, np.float64) / temperature
    shifted = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))


def fit_temperature(scores: npt.ArrayLike, truth: _Classes) -> float:
    """The T that makes the true classes most likely: argmin −mean ln softmax(scores / T)[y].

    In 1/T that is convex, so its slope is halved in on. Without windows it is 1; where scores
    mislead it is as large as allowed, and all classes are nearly alike. Windows of a class that
    can never be answered say nothing.

    Args:
        scores: [n, C] of validation windows.
        truth: [n] their classes.
    """
    given = np.asarray(scores, np.float64)
    own = given[np.arange(len(truth)), truth][:, None]  # (n, 1)
    possible = (own > given.max(axis=1, initial=-np.inf, keepdims=True) - _IMPOSSIBLE)[:, 0]
    if not possible.any():
        return 1.0
    lead = (given - own)[possible]  # (n, C) over the true class
    most = lead.max(axis=1, keepdims=True)  # (n, 1)
    counted = np.where(np.isfinite(lead), lead, 0)  # −∞ has odds of 0, and 0 · −∞ would be NaN

    def slope(sharpness: float) -> float:
        odds = np.exp(sharpness * lead - sharpness * most)
        return float(((odds * counted).sum(axis=1) / odds.sum(axis=1)).sum())

    low, high = 1 / TEMPERATURES[1], 1 / TEMPERATURES[0]
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return float(1 / high)


def log_loss(probabilities: npt.ArrayLike, truth: _Classes) -> float:
    """−mean ln p[y]: how surprising the true classes [n] are to probabilities [n, C]."""
    own = np.asarray(probabilities, np.float64)[np.arange(len(truth)), truth]
    return float(-np.log(np.maximum(own, _LEAST)).mean())


def median_class(probabilities: npt.ArrayLike, counts: Sequence[int]) -> _Classes:
    """[B] the class at which the probability of so many people or fewer reaches one half."""
    order = np.argsort(counts, kind="stable")
    reached = np.cumsum(np.asarray(probabilities, np.float64)[..., order], axis=-1)
    place = np.argmax(reached >= 0.5 - 1e-12, axis=-1)
    return np.asarray(order[place], np.int64)


def expected_count(probabilities: npt.ArrayLike, counts: Sequence[int]) -> _Floats:
    """[B] Σ p_c · c, in people."""
    return np.asarray(np.asarray(probabilities, np.float64) @ np.asarray(counts, np.float64))


def add_evidence(probabilities: npt.ArrayLike, dependence: float = 1.0) -> _Floats:
    """[…, C] what consecutive windows […, B, C] of one recording say together.

    p ∝ Π_b p_b^(1 / B^d): logarithms are added, Σ_b ln p_b. With d = 0 windows count as
    independent, with d = 1 as one window seen B times. Neighbours see the same people on the same
    seats, so the truth lies between: with d = 0 the sum is surer than it should be, with d = 1
    more careful. The most probable class does not depend on d, but a median moves to the peak of
    what is too sure. With d = 0 it is Bayes' rule if classes were equally common in training;
    otherwise their shares, in each p_b, count B times.
    """
    logarithms = np.log(np.maximum(np.asarray(probabilities, np.float64), _LEAST))
    return probabilities_of(logarithms.sum(axis=-2) / logarithms.shape[-2] ** dependence)


def reliability(probabilities: npt.ArrayLike, truth: _Classes) -> _Floats:
    """[bins, 3] how sure and how right windows were: their number, Σ confidence, number right.

    A window's confidence is its largest probability; bins are of equal width from 0 to 1.
    """
    given = np.asarray(probabilities, np.float64)
    confidence, right = given.max(axis=1, initial=0.0), given.argmax(axis=1) == truth
    places = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    columns = [np.bincount(places, what, minlength=BINS) for what in (None, confidence, right)]
    return np.stack(columns, axis=1).astype(np.float64)  # (bins, 3)


def calibration_error(table: npt.ArrayLike) -> float:
    """Expected calibration error: how far the confidence is from the share that is right.

    Σ_k n_k / n · |right_k − confidence_k| over the bins of ``reliability``; 0 without windows.
    """
    number, confidence, right = np.asarray(table, np.float64).T
    return float(np.abs(right - confidence).sum() / max(1.0, number.sum()))
