"""How good a room is by now: what a linear model makes of takes that it has not seen.

Every take is left out in turn, ridge regression (``fedapa.learning.linear``) learns from the
others, and answers for its windows: so much would be right if the room were asked today. Beside it
stands who always answers the commonest count. It is a quick look, not a result: a trained net is
better by some points (docs/counting.md), another day is worse.
"""

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedapa.learning.linear import fit_linear
from fedapa.processes import one_thread
from fedapa.stores.materialise import seen_as, survey
from fedapa.windows.normalise import Normaliser
from fedapa.windows.recipe import Recipe

__all__ = ["Quality", "room_quality"]

_SECONDS = 4.0
"""Of a window, as training has it where nobody says."""
_VIEW = "statistics"
_FEWEST_TAKES = 4

_Index = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Score:
    """Of answers to windows of takes that were left out."""

    takes: int
    """Of each count, that the model learned from at most."""
    accuracy: float
    mae: float
    """People."""


@dataclass(frozen=True)
class Quality:
    """How well the counts of a room are told apart by now."""

    takes: dict[int, int]
    """Of each count."""
    windows: int
    too_few: str
    """Why nothing can be said, in words; nothing where something can."""
    curve: tuple[Score, ...] = ()
    """With ever more takes of every count; the last has all but the one that is left out."""
    floor_accuracy: float = 0.0
    floor_mae: float = 0.0
    commonest: int = 0
    """The count that the floor always answers."""
    spread: float = 0.0
    """Standard error of the accuracy, by takes: windows of one take are no independent tests."""

    def sentence(self) -> str:
        """What can be said of the room."""
        if self.too_few:
            return f"too few to tell how good the room is: {self.too_few}"
        now = self.curve[-1]
        told = (
            f"{100 * now.accuracy:.0f} % of {self.windows} windows right (± "
            f"{100 * self.spread:.0f}), {now.mae:.1f} people off, each of "
            f"{sum(self.takes.values())} takes left out in turn; always answering "
            f"{self.commonest}: {100 * self.floor_accuracy:.0f} %, {self.floor_mae:.1f} off"
        )
        if now.accuracy - self.floor_accuracy <= 2 * self.spread:
            told += "; that is not clearly better: more takes are needed"
        if len(self.curve) > 1:
            steps = ", ".join(f"{one.takes}: {100 * one.accuracy:.0f} %" for one in self.curve)
            told += f"; by takes of each count: {steps}"
        return told


def room_quality(path: Path, room: str) -> Quality:
    """How good the takes of a room are by now, from its store."""
    recipe = Recipe(seconds=_SECONDS, view=_VIEW, bad_windows="drop", links="all")
    (origins,) = survey(path, recipe, rooms=[room])
    chosen = [
        place
        for place, label in enumerate(origins.labels)
        if isinstance(label, int) and not origins.continuous[place]
    ]
    take_of = {origins.recordings[place]: int(origins.labels[place] or 0) for place in chosen}
    takes = dict(sorted(Counter(take_of.values()).items()))
    quality = Quality(takes=takes, windows=len(chosen), too_few=_too_few(takes))
    if not quality.too_few and _VIEW not in origins.shapes:
        quality = Quality(takes, len(chosen), origins.refused_views.get(_VIEW, "no windows"))
    if quality.too_few:
        return quality
    rows = np.stack([window[0] for window in seen_as(path, origins, [_VIEW], chosen)])
    classes = list(takes)
    labels = np.array([classes.index(int(origins.labels[place] or 0)) for place in chosen])
    names = list(take_of)
    numbers = np.array([names.index(origins.recordings[place]) for place in chosen])
    return _scored(quality, rows, labels, numbers, np.asarray(classes))


def _too_few(takes: dict[int, int]) -> str:
    if len(takes) < 2:
        return "takes of one count only"
    if once := [count for count, number in takes.items() if number < 2]:
        return (
            f"one take of {', '.join(map(str, once))}; with two of every count one can be tested "
            "on what the other taught"
        )
    if sum(takes.values()) < _FEWEST_TAKES:
        return f"{sum(takes.values())} takes"
    return ""


def _scored(
    quality: Quality,
    rows: npt.NDArray[np.float32],
    labels: _Index,
    takes: _Index,
    classes: _Index,
) -> Quality:
    """Each take answered by a model of the others, of ever more of them."""
    most = max(quality.takes.values()) - 1
    curve, right = [], np.zeros(len(rows), bool)
    for limit in sorted({1, *(2**power for power in range(1, 8) if 2**power < most), most}):
        answers = np.empty(len(rows), np.int64)
        with one_thread():
            for take in np.unique(takes):
                train = _first_takes(labels, takes, without=int(take), limit=limit)
                normal = Normaliser.of(rows, train)(rows)  # of what is left out nothing is known
                weights, bias = fit_linear(normal[train], labels[train], len(classes))
                held = takes == take
                answers[held] = np.argmax(normal[held] @ weights.T + bias, axis=1)
        right = answers == labels
        errors = np.abs(classes[answers] - classes[labels])
        curve.append(Score(limit, float(right.mean()), float(errors.mean())))
    commonest = int(np.bincount(labels).argmax())
    return Quality(
        takes=quality.takes,
        windows=quality.windows,
        too_few="",
        curve=tuple(curve),
        floor_accuracy=float(np.mean(labels == commonest)),
        floor_mae=float(np.abs(classes[labels] - classes[commonest]).mean()),
        commonest=int(classes[commonest]),
        spread=_spread(right, takes),
    )


def _spread(right: npt.NDArray[np.bool_], takes: _Index) -> float:
    """Standard error of the share of right answers, by takes; never none of so few."""
    shares = np.array([right[takes == take].mean() for take in np.unique(takes)])
    deviation = max(float(shares.std(ddof=1)), 0.5 / len(shares))
    return deviation / math.sqrt(len(shares))


def _first_takes(labels: _Index, takes: _Index, *, without: int, limit: int) -> _Index:
    """The windows of the first so many takes of every count, one left out."""
    chosen: list[int] = []
    for label in np.unique(labels):
        mine = [take for take in np.unique(takes[labels == label]).tolist() if take != without]
        chosen += mine[:limit]
    return np.flatnonzero(np.isin(takes, chosen))
