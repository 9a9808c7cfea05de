"""Which view suits a room: a linear model tries each, and windows that it has not seen judge.

The least that a view can do is to put windows of one class on one side of a plane. So ridge
regression (``fedapa.learning.linear``) is fitted to a room's windows under each view, and the share
of other windows that it gets right is what the room tells the others. Those are the train and
validation windows in turn, a fifth of each class's recordings (or a day) at a time: the validation
part alone is too small to tell views apart that differ by a few points. Test windows are not even
read. Windows that overlap add little to a linear model: only those are tried that lie apart.
"""

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedapa.files import cache_folder, write_text
from fedapa.learning.linear import fit_linear
from fedapa.processes import one_thread
from fedapa.stores.materialise import Surveyed, seen_as
from fedapa.windows.labels import class_indices, sorted_labels
from fedapa.windows.normalise import Normaliser
from fedapa.windows.split import Split, SplitKind, lying_apart

__all__ = ["try_views"]

_VERSION = 3  # of the kept scores: raise it when the same windows give others
_ROWS = 64
"""Of a matrix that the linear model sees, evenly spread: more make it slower and not better."""

_FOLDS = 5
"""Parts of a class's recordings that are held out in turn."""

_Floats = npt.NDArray[np.float32]
_Index = npt.NDArray[np.int64]


def try_views(
    store: Path, origins: Surveyed, splits: Mapping[SplitKind, Split], views: Sequence[str]
) -> dict[SplitKind, dict[str, float]]:
    """The share of windows that a linear model gets right which it has not seen, by split and view.

    All views score 0 where nothing can be held out.
    """
    file = cache_folder() / "views" / f"{_name(store, origins, splits, views)}.json"
    if (kept := _kept(file, splits, views)) is not None:
        return kept
    parts = {
        kind: lying_apart(
            np.union1d(split.train, split.validation),
            origins.recordings,
            origins.starts,
            spans=origins.spans,
        )
        for kind, split in splits.items()
    }
    asked = sorted({int(window) for part in parts.values() for window in part})
    rows: dict[str, list[_Floats]] = {view: [] for view in views}
    with one_thread():  # products are small: threads would wait for each other
        for window in seen_as(store, origins, views, asked):
            for view, seen in zip(views, window, strict=True):
                rows[view].append(_thinned(seen))
    windows = {view: np.stack(seen) for view, seen in rows.items() if seen}
    classes = sorted_labels(set(origins.labels))
    labels = class_indices(origins.room, [origins.labels[window] for window in asked], classes)
    scores = {kind: dict.fromkeys(views, 0.0) for kind in splits}
    for kind, part in parts.items():
        chosen = np.searchsorted(asked, part)
        folds = _folds(origins, kind, part)
        with one_thread():
            scores[kind] = {
                view: _share_right(windows[view][chosen], labels[chosen], folds, len(classes))
                for view in views
            }
    with contextlib.suppress(OSError):  # a cache that cannot be written costs time, not the run
        write_text(file, json.dumps({"scores": scores, "check": _check(scores)}))
    return scores


def _folds(origins: Surveyed, kind: SplitKind, windows: npt.NDArray[np.int64]) -> _Index:
    """[windows] which of them are held out together: what the split holds out whole.

    Of each class the first recording, the sixth … are in the first fold, the next in the second.
    Days are dealt out for all classes alike. Where recordings are divided (``blocked``), or every
    class has a single one, each gives a fifth of its time to every fold.
    """
    folds = _unit_folds(origins, kind, windows)
    if kind == "blocked" or not folds.any():
        return _time_folds(origins, windows)
    return folds


def _time_folds(origins: Surveyed, windows: npt.NDArray[np.int64]) -> _Index:
    """By fifths of each recording's windows."""
    recordings = np.asarray(origins.recordings)[windows]
    folds = np.zeros(len(windows), np.int64)
    for recording in np.unique(recordings):
        mine = np.flatnonzero(recordings == recording)
        order = np.argsort(origins.starts[windows[mine]], kind="stable")
        folds[mine[order]] = np.arange(len(mine)) * _FOLDS // len(mine)
    return folds


def _unit_folds(origins: Surveyed, kind: SplitKind, windows: npt.NDArray[np.int64]) -> _Index:
    """By whole days, recordings or windows."""
    by_day = kind in ("day", "later")
    units = origins.days if by_day else origins.recordings
    known: dict[str, dict[str, int]] = {}
    folds = []
    for window in windows.tolist():
        group = "" if by_day else str(origins.labels[window])
        unit = str(window) if kind == "random" else units[window]
        mine = known.setdefault(group, {})
        folds.append(mine.setdefault(unit, len(mine)) % _FOLDS)
    return np.asarray(folds, np.int64)


def _thinned(window: _Floats) -> _Floats:
    """At most so many rows of a matrix; a vector whole."""
    if window.ndim == 1 or len(window) <= _ROWS:
        return window
    chosen = np.linspace(0, len(window) - 1, _ROWS).round().astype(int)
    return np.asarray(window[chosen], np.float32)


def _share_right(windows: _Floats, labels: _Index, folds: _Index, classes: int) -> float:
    """Of all windows [n, …], each by ridge regression on those of the other folds.

    With X [n, F] the normalised windows and X Xᵀ = U diag(λ) Uᵀ, ridge regression sees no more of
    them than U diag(√λ), which has n columns: as good, and far smaller where F is a matrix.
    """
    normal = Normaliser.of(windows, np.arange(len(windows)))(windows).reshape(len(windows), -1)
    normal = normal - normal.mean(axis=0)
    if normal.shape[1] > len(normal):
        values, vectors = np.linalg.eigh(np.asarray(normal @ normal.T, np.float64))
        normal = vectors * np.sqrt(np.maximum(values, 0.0))  # (n, n)
    right = 0
    for fold in np.unique(folds):
        held, train = folds == fold, folds != fold
        if train.any():
            weights, bias = fit_linear(normal[train], labels[train], classes)
            right += int(np.sum(np.argmax(normal[held] @ weights.T + bias, axis=1) == labels[held]))
    return right / len(windows)


def _name(
    store: Path, origins: Surveyed, splits: Mapping[SplitKind, Split], views: Sequence[str]
) -> str:
    """What decides the scores: the store, how windows are cut, and who of them is where."""
    status = store.resolve().stat()
    where = (str(store.resolve()), status.st_size, status.st_mtime_ns, origins.room)
    text = repr((where, origins.recipe.to_json(), tuple(views), sorted(splits), _VERSION))
    content = hashlib.blake2b(text.encode(), digest_size=12)
    for kind in sorted(splits):
        for part in (splits[kind].train, splits[kind].validation):
            content.update(part.astype("<i8").tobytes())
    return content.hexdigest()


def _kept(
    file: Path, splits: Mapping[SplitKind, Split], views: Sequence[str]
) -> dict[SplitKind, dict[str, float]] | None:
    """Scores of an earlier run; None where there are none, or not as they were written."""
    try:
        content = json.loads(file.read_text())
        scores: dict[SplitKind, dict[str, float]] = content["scores"]
        whole = content["check"] == _check(scores) and set(scores) <= set(splits)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return scores if whole and all(set(told) == set(views) for told in scores.values()) else None


def _check(scores: object) -> str:
    text = json.dumps(scores, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
