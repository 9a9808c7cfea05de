"""How well an attack tells two kinds of candidates apart: AUC, hits at few false alarms, intervals.

Candidates are *matched*: a score is compared with scores of the same stratum alone (the same room,
count and day), so that an attack gains nothing by knowing which room or count is easy. Intervals
are of a bootstrap over rooms and, within a room, over strata: candidates of one room are not
independent of each other.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedapa.errors import DataError
from fedapa.randomness import Key

__all__ = ["Interval", "Matched", "auc", "bootstrapped", "first_named", "measured"]

_Floats = npt.NDArray[np.float64]
_DRAWS = 1000
_INSIDE = (2.5, 97.5)
"""Percentiles of the draws that an interval lies between."""
FALSE_ALARMS = {"hits_at_1": 0.01, "hits_at_10": 0.10}
"""By name, the share of false alarms at which hits are counted."""


@dataclass(frozen=True)
class Interval:
    """A number and the interval that holds 95 % of the bootstrap's draws of it."""

    value: float
    low: float
    high: float


def auc(members: _Floats, others: _Floats) -> float:
    """The chance that a member has a higher score than another; equal scores count half."""
    if not len(members) or not len(others):
        raise DataError("an AUC needs candidates of both kinds")
    above, equal = _wins(members, others)
    return (above + equal / 2) / (len(members) * len(others))


def _wins(members: _Floats, others: _Floats) -> tuple[int, int]:
    """The pairs in which a member is above another, and those in which they are equal."""
    ordered = np.sort(others)
    below = np.searchsorted(ordered, members, "left")
    up_to = np.searchsorted(ordered, members, "right")
    return int(below.sum()), int((up_to - below).sum())


@dataclass(frozen=True, eq=False)
class Matched:
    """Scored candidates, every array [candidates]; strata without both kinds are left out."""

    scores: _Floats
    """Higher is: more likely a member."""
    members: npt.NDArray[np.bool_]
    strata: npt.NDArray[np.str_]
    rooms: npt.NDArray[np.str_]
    """A stratum lies in one room."""

    @classmethod
    def of(
        cls,
        scores: npt.ArrayLike,
        members: npt.ArrayLike,
        strata: npt.ArrayLike,
        rooms: npt.ArrayLike,
    ) -> "Matched":
        """Those candidates that have somebody to be compared with."""
        values, kinds = np.asarray(scores, np.float64), np.asarray(members, bool)
        groups, places = np.asarray(strata, np.str_), np.asarray(rooms, np.str_)
        both = np.intersect1d(groups[kinds], groups[~kinds])
        if not len(both):
            raise DataError("no stratum has candidates of both kinds")
        kept = np.isin(groups, both)
        return cls(values[kept], kinds[kept], groups[kept], places[kept])

    @property
    def centred(self) -> _Floats:
        """Scores without the mean of their stratum, which tells nothing of who is a member."""
        _, place = np.unique(self.strata, return_inverse=True)
        means = np.bincount(place, self.scores) / np.bincount(place)
        return np.asarray(self.scores - means[place], np.float64)


def measured(matched: Matched, key: Key, *, draws: int = _DRAWS) -> dict[str, Interval]:
    """AUC over pairs of one stratum, and the share of members found at 1 and 10 % false alarms.

    Args:
        matched: the candidates.
        key: draws the bootstrap.
        draws: of the bootstrap.
    """
    names, first, place = np.unique(matched.strata, return_index=True, return_inverse=True)
    won, pairs = np.zeros(len(names)), np.zeros(len(names))
    for stratum in range(len(names)):
        mine = matched.scores[place == stratum]
        kind = matched.members[place == stratum]
        above, equal = _wins(mine[kind], mine[~kind])
        won[stratum], pairs[stratum] = above + equal / 2, kind.sum() * (~kind).sum()
    times = _drawn(matched.rooms[first], key, draws)  # (1 + draws, strata)
    figures = {"auc": times @ won / (times @ pairs)}
    for name, share in FALSE_ALARMS.items():
        figures[name] = _hits(matched, place, times, share)
    return {name: _interval(values) for name, values in figures.items()}


def first_named(matched: Matched, key: Key, *, draws: int = _DRAWS) -> Interval:
    """In how many strata the highest score is a member's; of equals each counts its share."""
    names, first, place = np.unique(matched.strata, return_index=True, return_inverse=True)
    right = np.zeros(len(names))
    for stratum in range(len(names)):
        mine, kind = (values[place == stratum] for values in (matched.scores, matched.members))
        right[stratum] = kind[mine == mine.max()].mean()
    times = _drawn(matched.rooms[first], key, draws)
    return _interval(times @ right / times.sum(axis=1))


def bootstrapped(
    values: npt.ArrayLike, rooms: npt.ArrayLike, key: Key, *, draws: int = _DRAWS
) -> Interval:
    """The mean of some values and its interval, over rooms and within them."""
    given = np.asarray(values, np.float64)
    times = _drawn(np.asarray(rooms, np.str_), key, draws)
    return _interval(times @ given / times.sum(axis=1))


def _interval(values: _Floats) -> Interval:
    """The first of some values, which is that of all candidates, and where the draws lie."""
    low, high = np.percentile(values[1:], _INSIDE)
    return Interval(float(values[0]), float(low), float(high))


def _drawn(rooms: npt.NDArray[np.str_], key: Key, draws: int) -> _Floats:
    """[1 + draws, strata] how often each stratum is in a draw: rooms first, then strata of each.

    Before the draws stands what is there: each once.
    """
    stream = key.numpy()
    names, place = np.unique(rooms, return_inverse=True)
    chosen = stream.multinomial(len(names), np.full(len(names), 1 / len(names)), size=draws)
    times = np.ones((1 + draws, len(rooms)))
    for room in range(len(names)):
        (mine,) = np.nonzero(place == room)
        # A room that is drawn twice gives twice as many strata, each drawn by itself.
        times[1:, mine] = stream.multinomial(
            chosen[:, room] * len(mine), np.full(len(mine), 1 / len(mine))
        )
    return times


def _hits(matched: Matched, place: npt.NDArray[np.intp], times: _Floats, share: float) -> _Floats:
    """[draws] the share of members above the lowest score that few enough others are above."""
    centred = matched.centred
    member, other = (np.flatnonzero(kind) for kind in (matched.members, ~matched.members))
    other = other[np.argsort(-centred[other], kind="stable")]
    weights = times[:, place[other]]  # (draws, others), the highest score first
    alarms = np.cumsum(weights, axis=1)
    # The threshold is the first other that would be one too many: members must be above it.
    first = (alarms <= share * alarms[:, -1:]).sum(axis=1)  # (draws,)
    bar = np.append(centred[other], -np.inf)[first]
    found = (centred[member][None, :] > bar[:, None]) * times[:, place[member]]
    return np.asarray(found.sum(axis=1) / times[:, place[member]].sum(axis=1), np.float64)
