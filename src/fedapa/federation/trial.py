"""Which view suits a room: a linear model tries each, on train windows, and validation judges.

The least that a view can do is to put windows of one class on one side of a plane. So ridge
regression (``fedapa.learning.linear``) is fitted to a room's train windows under each view, and the
share of validation windows that it gets right is what the room tells the others. Test windows are
not even read. Windows that overlap add little to a linear model: of train windows only those are
tried that lie apart.
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
from fedapa.stores.materialise import Surveyed, seen_as
from fedapa.windows.labels import class_indices, sorted_labels
from fedapa.windows.normalise import Normaliser
from fedapa.windows.split import Split, SplitKind, lying_apart

__all__ = ["try_views"]

_VERSION = 1  # of the kept scores: raise it when the same windows give others
_ROWS = 64
"""Of a matrix that the linear model sees, evenly spread: more make it slower and not better."""

_Floats = npt.NDArray[np.float32]


def try_views(
    store: Path, origins: Surveyed, splits: Mapping[SplitKind, Split], views: Sequence[str]
) -> dict[SplitKind, dict[str, float]]:
    """The share of validation windows that a linear model gets right, by split and by view.

    A split without validation windows has no scores.
    """
    file = cache_folder() / "views" / f"{_name(store, origins, splits, views)}.json"
    if (kept := _kept(file, splits, views)) is not None:
        return kept
    parts = {
        kind: (
            lying_apart(split.train, origins.recordings, origins.starts, spans=origins.spans),
            split.validation,
        )
        for kind, split in splits.items()
        if len(split.validation)
    }
    asked = sorted({int(window) for both in parts.values() for part in both for window in part})
    rows: dict[str, list[_Floats]] = {view: [] for view in views}
    for window in seen_as(store, origins, views, asked):
        for view, seen in zip(views, window, strict=True):
            rows[view].append(_thinned(seen))
    places = {window: place for place, window in enumerate(asked)}
    classes = sorted_labels(set(origins.labels))
    labels = class_indices(origins.room, [origins.labels[window] for window in asked], classes)
    scores: dict[SplitKind, dict[str, float]] = {}
    for kind, both in parts.items():
        train, validation = (np.array([places[int(n)] for n in part]) for part in both)
        scores[kind] = {
            view: _share_right(np.stack(rows[view]), labels, train, validation, len(classes))
            for view in views
        }
    with contextlib.suppress(OSError):  # a cache that cannot be written costs time, not the run
        write_text(file, json.dumps({"scores": scores, "check": _check(scores)}))
    return scores


def _thinned(window: _Floats) -> _Floats:
    """At most so many rows of a matrix; a vector whole."""
    if window.ndim == 1 or len(window) <= _ROWS:
        return window
    chosen = np.linspace(0, len(window) - 1, _ROWS).round().astype(int)
    return np.asarray(window[chosen], np.float32)


def _share_right(
    windows: _Floats,
    labels: npt.NDArray[np.int64],
    train: npt.NDArray[np.int64],
    validation: npt.NDArray[np.int64],
    classes: int,
) -> float:
    """Of validation windows, by ridge regression on train windows.

    With X [n, F] the normalised windows and X Xᵀ = U diag(λ) Uᵀ, ridge regression sees no more of
    them than U diag(√λ), which has n columns: as good, and far smaller where F is a matrix.
    """
    both = np.concatenate([train, validation])
    normal = Normaliser.of(windows, train)(windows[both]).reshape(len(both), -1)
    normal = normal - normal[: len(train)].mean(axis=0)
    if normal.shape[1] > len(normal):
        values, vectors = np.linalg.eigh(np.asarray(normal @ normal.T, np.float64))
        normal = vectors * np.sqrt(np.maximum(values, 0.0))  # (n, n)
    weights, bias = fit_linear(normal[: len(train)], labels[train], classes)
    answers = np.argmax(normal[len(train) :] @ weights.T + bias, axis=1)
    return float(np.mean(answers == labels[validation]))


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
