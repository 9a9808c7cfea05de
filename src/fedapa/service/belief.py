"""Belief over counts: a hidden-Markov filter that adds the evidence of windows while people move.

States are all numbers of people n from a room's smallest class to its greatest, S of them::

    between windows   b⁻ [S] = b [S] · T(Δ) [S, S]             people came and went for Δ seconds

``T(Δ) = exp(Q·Δ)``, where Q [S, S] has the rate of arrivals above its diagonal and that of
departures below it, in people per second. A window has ℓ(n), its calibrated probability of n
(``evidence_of``). Whether anybody is there is believed apart from how many there are: π = b⁻(0) and
c(n) = b⁻(n) / (1 − π) for n > 0, and of the window e = ℓ(0) and m(n) = ℓ(n) / (1 − e)::

    is nobody there   π / (1 − π) ← (π / (1 − π))^λ · (e / (1 − e))^(1 − λ)   λ = exp(−Δ / presence)
    how many are      c [S − 1]   ∝ c^κ ⊙ m^(1 − κ)          κ = (1 − e) · exp(−Δ / memory)

Bayes' rule would have b⁻ ⊙ ℓ, as if every window were new: neighbours see the same people on the
same seats, so that ten of them say little more than one, and the belief would be far too sure
(decision 0086). With the powers it is a mean of logarithms in which what is older than the memory
fades. An empty room is nearly sure from a single window, so the memory of presence is short; and
with an empty room goes what was believed of those who were there (decision 0102).

By hand, for n ∈ {0, 1}, arrivals u = 0.3 and departures d = 0.1 per second: with e = exp(−0.4·Δ),
T = [[d + u·e, u − u·e], [d − d·e, u + d·e]] / 0.4. After Δ = ln 2 / 0.4 s, e is one half, and
T = [[0.625, 0.375], [0.125, 0.875]]. A room believed empty, b = [1, 0], becomes [0.625, 0.375]; a
window with ℓ = [0.2, 0.8] and λ = ½ makes the odds √(5/3 · 1/4) = 0.6455, that is
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
    [C] the line counts, or the class itself where that has more. Nobody has what its class has, and
    all numbers of people share the rest as the lines say: a count is not less probable because no
    class is near it.
    """
    order = np.argsort(classes)
    people, known = people_of(classes), np.asarray(classes)[order]
    chances = np.maximum(np.asarray(probabilities, np.float64)[order], _LEAST)
    logarithms = np.log(chances)
    line = np.interp(people, known, logarithms)
    own = np.asarray(present, np.bool_)[order]
    if own.any():
        between = np.interp(people, known[own], logarithms[own], left=-np.inf, right=-np.inf)
        line = np.maximum(line, between)
    shares = _scaled(line)
    if people[0] == 0 and len(people) > 1:
        nobody = chances[0] / chances.sum()
        shares = np.concatenate([[nobody], (1 - nobody) * _scaled(line[1:])])
    return _logarithms(shares)


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


def updated(
    belief: _Floats,
    evidence: _Floats,
    people: _Counts,
    seconds: float,
    *,
    presence: float,
    memory: float,
) -> _Floats:
    """[S] the belief with a window that has so many seconds of new packets.

    Args:
        belief: b⁻ [S].
        evidence: [S] ln ℓ.
        people: [S] the states.
        seconds: Δ; infinite for the first window, before which nothing is known.
        presence: s after which what was seen of whether anybody is there has faded to a third.
        memory: the same of how many there are.
    """
    kept = math.exp(-seconds / memory)
    before, shown = _logarithms(belief), np.asarray(evidence)
    if people[0] != 0 or len(people) == 1:  # nobody is no state of this room
        return _scaled(kept * before + (1 - kept) * shown)
    empty = float(np.clip(_scaled(shown)[0], _LEAST, 1 - _LEAST))  # e
    held = math.exp(-seconds / presence)  # λ
    odds = held * (before[0] - math.log(max(float(belief[1:].sum()), _TINY)))
    odds += (1 - held) * (math.log(empty) - math.log1p(-empty))
    nobody = 1 / (1 + math.exp(-odds))
    kept *= 1 - empty  # κ
    some = _scaled(kept * before[1:] + (1 - kept) * shown[1:])  # c
    return np.concatenate([[nobody], (1 - nobody) * some])


def _scaled(logarithms: _Floats) -> _Floats:
    """exp, with a sum of one."""
    raised = np.exp(logarithms - logarithms.max())
    return np.asarray(raised / raised.sum())


def _logarithms(shares: _Floats) -> _Floats:
    return np.asarray(np.log(np.maximum(shares, _TINY)))


def interval_of(belief: _Floats, people: _Counts, coverage: float) -> tuple[int, int]:
    """The least and the greatest count that are left when the unlikely ends are cut off.

    From either end so many counts go as have at most (1 − coverage) / 2 of the belief together.
    """
    tail = (1 - coverage) / 2 + 1e-12
    low = int(np.searchsorted(np.cumsum(belief), tail, side="right"))
    high = int(np.searchsorted(np.cumsum(belief[::-1]), tail, side="right"))
    return int(people[low]), int(people[len(people) - 1 - high])
