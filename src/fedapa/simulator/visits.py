"""Visits: who comes and goes, and when, within one continuous recording.

A visit that begins at 0 s was there before the recording began; one that ends with the recording
stays. Everybody else comes in by the room's door and leaves by it.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fedapa.errors import PlanError
from fedapa.randomness import Key

__all__ = ["Visit", "Visits", "check_visits", "draw_visits", "staying", "visits_through"]

Array: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Visit:
    """One person, from coming in to leaving."""

    arrival: float
    """s since the recording began."""
    departure: float
    """s since the recording began."""


@dataclass(frozen=True)
class Visits:
    """Everybody who is in the room at some time of one recording."""

    seconds: float
    """s, how long the recording is."""
    visits: tuple[Visit, ...]

    def spans(self) -> tuple[Array, Array]:
        """[visits] when each comes, and when it goes; −∞ and ∞ for who is there before or after."""
        arrivals = np.array([visit.arrival for visit in self.visits])
        departures = np.array([visit.departure for visit in self.visits])
        return (
            np.where(arrivals <= 0, -np.inf, arrivals),
            np.where(departures >= self.seconds, np.inf, departures),
        )

    def counts(self, times: Array) -> npt.NDArray[np.int64]:
        """[times] people in the room; somebody counts from arriving until just before leaving."""
        arrivals, departures = self.spans()
        came = np.searchsorted(np.sort(arrivals), times, side="right")
        left = np.searchsorted(np.sort(departures), times, side="right")
        return np.asarray(came - left, np.int64)

    @property
    def changes(self) -> Array:
        """[changes] s, ascending, when the count may change; 0 is the first."""
        moments = [moment for span in self.spans() for moment in span if math.isfinite(moment)]
        return np.unique([0.0, *moments])

    @property
    def most(self) -> int:
        """The greatest number of people at one time."""
        return int(self.counts(self.changes).max())


def staying(people: int, seconds: float, where: str) -> Visits:
    """So many people who are there all the time; ``where`` begins what is wrong with them."""
    if people < 0:
        raise PlanError(f"{where}{people} people; a count is 0 or more")
    return Visits(seconds, (Visit(0.0, seconds),) * people)


def check_visits(visits: Visits, where: str) -> None:
    """Raise if nobody can come and go like that; ``where`` begins the sentence."""
    end = visits.seconds
    if not (math.isfinite(end) and end > 0):
        raise PlanError(f"{where}visits of {end:g} s; a recording lasts more than 0 s")
    for number, visit in enumerate(visits.visits, 1):
        which = f"{where}visit {number} from {visit.arrival:g} to {visit.departure:g} s"
        if not visit.arrival < visit.departure:
            raise PlanError(f"{which}: leave after arriving")
        if not 0 <= visit.arrival < visit.departure <= end:
            raise PlanError(f"{which}: the recording lasts from 0 to {end:g} s; stay within it")


def draw_visits(key: Key, *, seconds: float, largest: int, phase: float = 20.0) -> Visits:
    """Plausible comings and goings: up and down between nobody and ``largest`` people.

    The recording is divided into phases of about ``phase`` seconds. Each has its own number of
    people, evenly spread from 0 to ``largest`` and in random order. People come and go, one by one,
    in the first half of a phase; who goes is drawn by lot.
    """
    if largest < 0:
        raise PlanError(f"largest = {largest}; a count is 0 or more")
    draw = key.numpy()
    phases = max(2, round(seconds / phase))
    levels = draw.permutation(np.rint(np.linspace(0, largest, phases)).astype(np.int64))
    return _through(draw, levels.tolist(), seconds)


def visits_through(key: Key, levels: Sequence[int], *, phase: float) -> Visits:
    """So many people in each phase in turn, who come and go as in ``draw_visits``."""
    if not levels or min(levels) < 0:
        raise PlanError(f"levels = {list(levels)}; give counts of 0 or more, at least one")
    return _through(key.numpy(), levels, phase * len(levels))


def _through(draw: np.random.Generator, levels: Sequence[int], seconds: float) -> Visits:
    length = seconds / len(levels)
    present = [0.0] * levels[0]  # when each of those who are here arrived
    visits = []
    for number, (before, after) in enumerate(itertools.pairwise(levels), 1):
        moments = length * (number + np.sort(draw.uniform(0.0, 0.5, abs(after - before))))
        for moment in moments.tolist():
            if after > before:
                present.append(moment)
            else:
                visits.append(Visit(present.pop(draw.integers(len(present))), moment))
    visits += [Visit(arrival, seconds) for arrival in present]
    drawn = Visits(seconds, tuple(sorted(visits, key=lambda visit: visit.arrival)))
    check_visits(drawn, "")
    return drawn
