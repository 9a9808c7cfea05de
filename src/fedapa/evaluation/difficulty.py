"""Scores of simple models in the rooms of a store, split by split.

A linear model and a random forest on a few statistics of each window, and a nearest neighbour on
the raw windows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fedapa.errors import DataError
from fedapa.evaluation.metrics import blind_scores, confusion, score
from fedapa.processes import Progress, Show, unseen
from fedapa.randomness import Key
from fedapa.stores.materialise import recording_windows
from fedapa.stores.store import Store
from fedapa.windows.labels import Label, class_indices, sorted_labels
from fedapa.windows.recipe import Recipe
from fedapa.windows.split import SplitKind, refused_splits, split_windows

__all__ = ["Score", "difficulty", "window_statistics"]

Single: TypeAlias = npt.NDArray[np.float32]

_BANDS = 14
_THINNED = 4096
_USUAL: tuple[SplitKind, ...] = ("random", "blocked", "recording")


@dataclass(frozen=True)
class Score:
    """What one model reaches in one room under one split."""

    room: str
    split: str
    model: str
    accuracy: float
    mae: float
    """Mean absolute error in people."""
    chance: float
    """Accuracy of always saying the commonest class of the train part."""
    train: int
    test: int


def window_statistics(window: Single) -> Single:
    """Statistics of a window [packets, subcarriers], in 14 bands: level, spread and quickness.

    The log-amplitude of each packet is taken against the packet's mean, so that the receiver's
    gain does not count; the gain's own spread is one more number.
    """
    level = np.log(np.maximum(window, 1e-6))
    gain = level.mean(axis=1, keepdims=True)
    shape = level - gain
    bands = np.array_split(np.arange(shape.shape[1]), _BANDS)
    statistics = (
        shape.mean(axis=0),
        np.log(shape.std(axis=0) + 1e-6),
        np.log(np.diff(shape, axis=0).std(axis=0) + 1e-6),
    )
    columns = [np.array([values[band].mean() for band in bands]) for values in statistics]
    return np.concatenate([*columns, gain.std(axis=0)]).astype(np.float32)


@dataclass(frozen=True)
class _Room:
    labels: Sequence[Label]
    recordings: Sequence[str]
    starts: npt.NDArray[np.int64]
    statistics: Single
    raw: Single
    """[windows, values] the windows themselves, thinned to a few thousand values."""


def difficulty(
    path: Path,
    *,
    seed: int = 0,
    window: int | None = None,
    splits: Sequence[SplitKind] | None = None,
    show: Show = unseen,
) -> list[Score]:
    """Scores of three simple models in every room of a store of counts.

    ``splits`` are by default random, blocked and recording, without those that a room refuses.
    """
    rooms: dict[str, _Room] = {}
    with Store(path) as store:
        length = window or store.window
        if length is None:
            raise DataError(f"{path}: does not say how long its windows are; give a window length")
        for done, name in enumerate(store.rooms):
            show(Progress("scoring simple models", done, len(store.rooms), "rooms"))
            rooms[name] = _read(store, name, length)
    if splits is None:
        refused = {kind for room in rooms.values() for kind in _refused(room, length)}
        splits = [kind for kind in _USUAL if kind not in refused]
    return [
        score
        for name, room in rooms.items()
        for split in splits
        for score in _scores(name, room, split, length, seed)
    ]


def _refused(room: _Room, length: int) -> Iterable[SplitKind]:
    return refused_splits(room.labels, room.recordings, room.starts, spans=length)


def _read(store: Store, name: str, length: int) -> _Room:
    rows: list[tuple[Label, str, int, Single, Single]] = []
    for recording in store.recordings(name):
        if recording.part:  # neither learned nor tested, or without a label
            continue
        if recording.is_features or not isinstance(recording.label, int):
            raise DataError(f"{store.path}: room '{name}' does not hold packets with counts")
        about = (recording.label, recording.name)
        for windows in recording_windows(store, recording, Recipe(window=length)):
            rows += [
                (*about, start, window_statistics(window), _thin(window))
                for start, window in zip(windows.starts.tolist(), windows.values, strict=True)
            ]
    if not rows:
        raise DataError(f"{store.path}: room '{name}' has no recordings with a count to score")
    labels, recordings, starts, statistics, raw = zip(*rows, strict=True)
    return _Room(labels, recordings, np.asarray(starts), np.stack(statistics), np.stack(raw))


def _thin(window: Single) -> Single:
    # Gain steps would be all that a distance between raw windows sees.
    values = window / window.mean(axis=1, keepdims=True)
    flat: Single = values[:, ::4].ravel()
    return flat[:: max(1, len(flat) // _THINNED)].copy()


def _scores(name: str, room: _Room, split: SplitKind, length: int, seed: int) -> list[Score]:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    parts = split_windows(
        name,
        room.labels,
        room.recordings,
        room.starts,
        spans=length,
        kind=split,
        key=Key(seed) / "difficulty" / name,
        validation=0.0,
    )
    counts = sorted_labels(room.labels)
    truth = class_indices(name, room.labels, counts)
    state = (Key(seed) / "difficulty" / name / "forest").number % 2**32
    linear = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=2000))
    models: dict[str, tuple[Any, Single]] = {
        "linear": (linear, room.statistics),
        "forest": (RandomForestClassifier(300, random_state=state), room.statistics),
        "nearest": (KNeighborsClassifier(1), room.raw),
    }
    train, test = truth[parts.train], truth[parts.test]
    chance = blind_scores(train, test, counts)["constant"]["accuracy"]
    scores = []
    for model, (estimator, features) in models.items():
        guess = estimator.fit(features[parts.train], train).predict(features[parts.test])
        reached = score(confusion(test, guess, len(counts)), counts)
        accuracy, error = reached["accuracy"], reached["mae"]
        scores.append(Score(name, split, model, accuracy, error, chance, len(train), len(test)))
    return scores
