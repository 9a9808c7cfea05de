"""Answers: from a net's scores, or a room's prototypes, to a number of people; numpy only.

::

    head      the most probable class; right most often
    median    the class in the middle of the probabilities; the least absolute error
    expected  the mean of the probabilities, in people; the least squared error
    nearest   the class of the nearest prototype

Counts are ordered, so an answer between two peaks can be better than either. Probabilities are
*calibrated* first: a net that learned by heart is surer than it should be, and one temperature,
fitted on validation windows, mends that without changing which class is the most probable.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "Answer",
    "add_evidence",
    "calibration_error",
    "expected_count",
    "fit_temperature",
    "median_class",
    "probabilities_of",
    "prototype_scores",
]

Answer: TypeAlias = Literal["head", "nearest", "median", "expected"]
_Floats: TypeAlias = npt.NDArray[np.float64]
_Classes: TypeAlias = npt.NDArray[np.int64]

_TEMPERATURES = (0.05, 20.0)
_STEPS = 60
"""Of the search: each leaves 0.62 of the interval, so the temperature is exact to 12 digits."""


def probabilities_of(scores: npt.ArrayLike, temperature: float = 1.0) -> _Floats:
    """softmax(scores / T), [B, C] from scores [B, C]."""
    scaled = np.asarray(scores, np.float64) / temperature
    shifted = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))


def fit_temperature(scores: npt.ArrayLike, truth: _Classes) -> float:
    """The T that makes the true classes most likely: argmin −mean ln softmax(scores / T)[y].

    In 1/T that is convex, so a golden-section search finds it. Without windows it is 1.

    Args:
        scores: [n, C] of validation windows.
        truth: [n] their classes.
    """
    given = np.asarray(scores, np.float64)
    if not len(given):
        return 1.0

    def surprise(sharpness: float) -> float:
        scaled = given * sharpness
        top = scaled.max(axis=1)
        whole = top + np.log(np.exp(scaled - top[:, None]).sum(axis=1))
        return float(np.mean(whole - scaled[np.arange(len(truth)), truth]))

    share = (np.sqrt(5) - 1) / 2
    low, high = 1 / _TEMPERATURES[1], 1 / _TEMPERATURES[0]
    left, right = high - share * (high - low), low + share * (high - low)
    at_left, at_right = surprise(left), surprise(right)
    for _ in range(_STEPS):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - share * (high - low)
            at_left = surprise(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + share * (high - low)
            at_right = surprise(right)
    return float(2 / (low + high))


def median_class(probabilities: npt.ArrayLike, counts: Sequence[int]) -> _Classes:
    """[B] the class at which the probability of so many people or fewer reaches one half."""
    order = np.argsort(counts, kind="stable")
    reached = np.cumsum(np.asarray(probabilities, np.float64)[..., order], axis=-1)
    place = np.argmax(reached >= 0.5 - 1e-12, axis=-1)
    return np.asarray(order[place], np.int64)


def expected_count(probabilities: npt.ArrayLike, counts: Sequence[int]) -> _Floats:
    """[B] Σ p_c · c, in people."""
    return np.asarray(np.asarray(probabilities, np.float64) @ np.asarray(counts, np.float64))


def prototype_scores(
    embeddings: npt.ArrayLike, prototypes: npt.ArrayLike, present: npt.ArrayLike
) -> _Floats:
    """[B, C] −‖r − p_c‖², the largest at the nearest prototype; −∞ where there is none.

    Args:
        embeddings: [B, D].
        prototypes: [C, D].
        present: [C].
    """
    vectors, centres = np.asarray(embeddings, np.float64), np.asarray(prototypes, np.float64)
    squares = np.square(vectors).sum(axis=1)[:, None] + np.square(centres).sum(axis=1)[None]
    distance = squares - 2 * vectors @ centres.T  # (B, C)
    return np.where(np.asarray(present, bool)[None], -distance, -np.inf)


def add_evidence(probabilities: npt.ArrayLike, dependence: float = 1.0) -> _Floats:
    """[C] what consecutive windows [B, C] of one stretch of time say together.

    p ∝ Π_b p_b^(1 / B^d): with d = 0 windows count as independent, with d = 1 as one window seen
    B times. A room does not change its mind between two windows, so the truth lies between.
    """
    logarithms = np.log(np.maximum(np.asarray(probabilities, np.float64), 1e-12))
    return probabilities_of(logarithms.sum(axis=0) / len(logarithms) ** dependence)


def calibration_error(probabilities: npt.ArrayLike, truth: _Classes, bins: int = 10) -> float:
    """Expected calibration error: how far the confidence is from the share that is right.

    Windows are put into bins by their largest probability; Σ n_k / n · |right_k − confidence_k|.
    """
    given = np.asarray(probabilities, np.float64)
    if not len(given):
        return 0.0
    confidence, right = given.max(axis=1), given.argmax(axis=1) == truth
    places = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    number = np.bincount(places, minlength=bins)
    gaps = np.bincount(places, right - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / number.sum())
