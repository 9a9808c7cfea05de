"""Belief over counts: a hidden-Markov filter that adds the evidence of windows while people move.

States are all numbers of people n from a room's smallest class to its greatest, S of them::

    between windows   b⁻ [S] = b [S] · T(Δ) [S, S]             people came and went for Δ seconds
    with a window     b  [S] ∝ b⁻ [S]^λ ⊙ ℓ [S]^(1 − λ)        λ = exp(−Δ / memory)

``T(Δ) = exp(Q·Δ)``, where Q [S, S] has the rate of arrivals above its diagonal and that of
departures below it, in people per second. ℓ(n) is the window's calibrated probability of n; between
two classes, of which a room may have 5 and 8 only, its logarithm is on a straight line. Bayes' rule
would have b⁻ ⊙ ℓ, as if every window were new: neighbours see the same people on the same seats,
so that ten of them say little more than one, and the belief would be far too sure (decision 0086).
With the powers it is a mean of logarithms in which what is older than the memory fades.

By hand, for n ∈ {0, 1}, arrivals u = 0.3 and departures d = 0.1 per second: with e = exp(−0.4·Δ),
T = [[d + u·e, u − u·e], [d − d·e, u + d·e]] / 0.4. After Δ = ln 2 / 0.4 s, e is one half, and
T = [[0.625, 0.375], [0.125, 0.875]]. A room believed empty, b = [1, 0], becomes [0.625, 0.375]; a
window with ℓ = [0.2, 0.8] and λ = ½ makes it ∝ [√0.125, √0.3] = [0.3536, 0.5477], that is
[0.392, 0.608].
"""

import functools
import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["evidence_of", "interval_of", "people_of", "transitions", "updated"]

_Floats: TypeAlias = npt.NDArray[np.float64]
_Counts: TypeAlias = npt.NDArray[np.int64]

_LEAST = 1e-6
"""No window makes a count less probable than this: what it never saw is not impossible."""
_TINY = 1e-300
_TERMS = 12
"""Of the series of exp; with a norm of one half what is left out is below 1e-12."""
_FINEST = 0.01
"""s: windows come evenly but for jitter, and transitions are kept by their seconds."""


def people_of(classes: Sequence[int]) -> _Counts:
    """[S] the states: every number of people from the smallest class to the greatest."""
    return np.arange(min(classes), max(classes) + 1)


def evidence_of(
    probabilities: npt.ArrayLike, classes: Sequence[int], present: npt.ArrayLike
) -> _Floats:
    """[S] ln ℓ(n) of a window's probabilities [C], on straight lines between classes.

    A net gives nearly nothing to classes that its room never had: between two that are ``present``
    [C] the line counts, or the class itself where that has more. What a class has is shared by the
    counts around it: ℓ is divided by how many there are, the mean of the gaps on both sides of a
    class; nobody is a count of its own, with nothing around it.
    """
    order = np.argsort(classes)
    people, known = people_of(classes), np.asarray(classes)[order]
    logarithms = np.log(np.maximum(np.asarray(probabilities, np.float64)[order], _LEAST))
    line = np.interp(people, known, logarithms)
    own = np.asarray(present, np.bool_)[order]
    if not own.any():
        return np.asarray(line)
    between = np.interp(people, known[own], logarithms[own], left=-np.inf, right=-np.inf)
    shared = _around(people, known[own])
    return np.asarray(np.maximum(line, between) - np.log(shared))


def _around(people: _Counts, classes: _Counts) -> _Floats:
    """[S] how many counts share what each has: the gap between classes in which it lies."""
    gaps = np.diff(classes, prepend=classes[0] - 1, append=classes[-1] + 1)
    below, above = (np.searchsorted(classes, people, side=side) for side in ("left", "right"))
    shared = (gaps[below] + gaps[above]) / 2
    return np.where(people == 0, 1.0, shared)


def transitions(states: int, seconds: float, *, arrivals: float, departures: float) -> _Floats:
    """[S, S] T(Δ): from how many people to how many after so many seconds."""
    return _exponential(states, max(0, round(seconds / _FINEST)), arrivals, departures)


@functools.lru_cache(maxsize=256)
def _exponential(states: int, steps: int, arrivals: float, departures: float) -> _Floats:
    rates = np.diag(np.full(states - 1, arrivals), 1) + np.diag(np.full(states - 1, departures), -1)
    generator = (rates - np.diag(rates.sum(axis=1))) * steps * _FINEST  # Q·Δ
    norm = 2 * (arrivals + departures) * steps * _FINEST
    halvings = max(0, math.ceil(math.log2(max(norm, 1e-9))) + 1)
    scaled = generator / 2.0**halvings
    term = made = np.eye(states)
    for number in range(1, _TERMS):
        term = term @ scaled / number
        made = made + term
    for _ in range(halvings):
        made = made @ made
        made /= made.sum(axis=1, keepdims=True)  # a row is a distribution, also after 40 squarings
    made.setflags(write=False)
    return made


def updated(belief: _Floats, evidence: _Floats, kept: float) -> _Floats:
    """[S] b ∝ b⁻^λ ⊙ ℓ^(1 − λ) from logarithms of ℓ; ``kept`` is λ."""
    scores = kept * np.log(np.maximum(belief, _TINY)) + (1 - kept) * evidence
    raised = np.exp(scores - scores.max())
    return np.asarray(raised / raised.sum())


def interval_of(belief: _Floats, people: _Counts, coverage: float) -> tuple[int, int]:
    """The least and the greatest count that are left when the unlikely ends are cut off.

    From either end so many counts go as have at most (1 − coverage) / 2 of the belief together.
    """
    tail = (1 - coverage) / 2 + 1e-12
    low = int(np.searchsorted(np.cumsum(belief), tail, side="right"))
    high = int(np.searchsorted(np.cumsum(belief[::-1]), tail, side="right"))
    return int(people[low]), int(people[len(people) - 1 - high])
