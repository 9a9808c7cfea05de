"""Belief over counts: a hidden-Markov filter that adds the evidence of windows while people move.

States are all numbers of people n from a room's smallest class to its greatest, S of them::

    between windows   b⁻ [S] = b [S] · T(Δ) [S, S]             people came and went for Δ seconds

``T(Δ) = exp(Q·Δ)``, where Q [S, S] has the rate of arrivals above its diagonal and that of
departures below it, in people per second. A window has ℓ(n), its calibrated probability of n;
between two classes, of which a room may have 5 and 8 only, its logarithm is on a straight line.
Whether anybody is there is believed apart from how many they are: π = b⁻(0), c(n) = b⁻(n) / (1 − π)
for n > 0, and of the window e = ℓ(0) / Σ ℓ, m(n) = ℓ(n) / (Σ ℓ − ℓ(0))::

    is nobody there   π / (1 − π) ← (π / (1 − π))^λ · (e / (1 − e))^(1 − λ)   λ = exp(−Δ / presence)
    how many are      c [S − 1]   ∝ c^κ ⊙ m^(1 − κ)         κ = (1 − e) · exp(−Δ / memory)

Bayes' rule would have b⁻ ⊙ ℓ, as if every window were new: neighbours see the same people on the
same seats, so that ten of them say little more than one, and the belief would be far too sure
(decision 0086). With the powers it is a mean of logarithms in which what is older than the memory
fades. There are three memories (decision 0102). An empty room is nearly sure from a single window,
so the one of presence is short, and with it goes what was believed of those who were there. Of the
others ``rising`` is for a window that shows more people than are believed, Σ n·m > Σ n·c, and
``falling`` for one that does not: who walks to a seat or to the door moves more than who sits and
is taken for several, so more people have to be seen for longer than fewer.

By hand, for n ∈ {0, 1}, arrivals u = 0.3 and departures d = 0.1 per second: with e = exp(−0.4·Δ),
T = [[d + u·e, u − u·e], [d − d·e, u + d·e]] / 0.4. After Δ = ln 2 / 0.4 s, e is one half, and
T = [[0.625, 0.375], [0.125, 0.875]]. A room believed empty, b = [1, 0], becomes [0.625, 0.375]; a
window with ℓ = [0.2, 0.8] and λ = ½ makes the odds √(5/3 · 1/4) = 0.6455, that is
[0.392, 0.608].
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Memories", "evidence_of", "interval_of", "people_of", "transitions", "updated"]

_Floats: TypeAlias = npt.NDArray[np.float64]
_Counts: TypeAlias = npt.NDArray[np.int64]

_LEAST = 1e-6
"""No window makes a count less probable than this: what it never saw is not impossible."""
_TINY = 1e-300
_TERMS = 12
"""Of the series of exp; with a norm of one half what is left out is below 1e-12."""
_FINEST = 0.01
"""s: windows come evenly but for jitter, and transitions are kept by their seconds."""


@dataclass(frozen=True, kw_only=True)
class Memories:
    """Seconds after which what was seen has faded to a third."""

    presence: float
    """Of whether anybody is there."""
    falling: float
    """Of how many, where a window shows no more people than are believed."""
    rising: float
    """Where it shows more."""


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


def updated(
    belief: _Floats, evidence: _Floats, people: _Counts, seconds: float, memories: Memories
) -> _Floats:
    """[S] the belief with a window that has so many seconds of new packets.

    Args:
        belief: b⁻ [S].
        evidence: [S] ln ℓ.
        people: [S] the states.
        seconds: Δ; infinite for the first window, before which nothing is known.
        memories: how long each part is remembered.
    """
    shown = _scaled(evidence)  # ℓ / Σ ℓ
    if people[0] != 0 or len(people) == 1:  # nobody is no state of this room
        return _pooled(belief, shown, people, seconds, memories)
    empty = float(np.clip(shown[0], _LEAST, 1 - _LEAST))  # e
    kept = math.exp(-seconds / memories.presence)  # λ
    odds = kept * (_logarithm(belief[0]) - _logarithm(belief[1:].sum()))
    odds += (1 - kept) * (math.log(empty) - math.log1p(-empty))
    nobody = 1 / (1 + math.exp(-odds))
    some = _pooled(belief[1:], shown[1:], people[1:], seconds, memories, known=1 - empty)
    return np.concatenate([[nobody], (1 - nobody) * some])


def _pooled(
    belief: _Floats,
    shown: _Floats,
    people: _Counts,
    seconds: float,
    memories: Memories,
    known: float = 1.0,
) -> _Floats:
    """[…] ∝ c^κ ⊙ m^(1 − κ); ``known`` is the share of what was believed that may stay."""
    before, now = _scaled(_logarithms(belief)), _scaled(_logarithms(shown))  # c, m
    more = float(now @ people) > float(before @ people)
    memory = memories.rising if more else memories.falling
    kept = known * math.exp(-seconds / memory)  # κ
    return _scaled(kept * _logarithms(before) + (1 - kept) * _logarithms(now))


def _scaled(logarithms: _Floats) -> _Floats:
    """exp, with a sum of one."""
    raised = np.exp(logarithms - logarithms.max())
    return np.asarray(raised / raised.sum())


def _logarithms(shares: _Floats) -> _Floats:
    return np.asarray(np.log(np.maximum(shares, _TINY)))


def _logarithm(share: float) -> float:
    return math.log(max(float(share), _TINY))


def interval_of(belief: _Floats, people: _Counts, coverage: float) -> tuple[int, int]:
    """The least and the greatest count that are left when the unlikely ends are cut off.

    From either end so many counts go as have at most (1 − coverage) / 2 of the belief together.
    """
    tail = (1 - coverage) / 2 + 1e-12
    low = int(np.searchsorted(np.cumsum(belief), tail, side="right"))
    high = int(np.searchsorted(np.cumsum(belief[::-1]), tail, side="right"))
    return int(people[low]), int(people[len(people) - 1 - high])
