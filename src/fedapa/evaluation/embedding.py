"""Embeddings of rooms' test windows by their nets, and where they lie in two dimensions.

Embeddings are compared by their direction, as the method compares them: they are scaled to unit
length, and t-SNE keeps neighbours beside each other. Distances between far groups mean nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from threadpoolctl import threadpool_limits

from fedapa.learning.prototypes import class_prototypes
from fedapa.models.model import Model, unit
from fedapa.rooms.room import Room
from fedapa.windows.labels import Label

__all__ = ["Embedding", "embed", "project"]

_Floats = npt.NDArray[np.float64]
_FEWEST = 12
"""Points below which neighbourhoods mean nothing and the two main directions are shown."""
_PERPLEXITY = 30.0


@dataclass(frozen=True, eq=False)
class Embedding:
    """A map: where each test window lies, which class and room it is of, and the prototypes."""

    title: str
    points: _Floats
    """[n, 2]."""
    labels: npt.NDArray[np.int64]
    """[n] class indices."""
    rooms: Sequence[str]
    """[n] room names."""
    classes: Sequence[Label]
    prototypes: _Floats
    """[m, 2] class means of the rooms' train windows."""
    prototype_labels: npt.NDArray[np.int64]
    prototype_rooms: Sequence[str]


def embed(prepared: Sequence[Room], nets: Mapping[str, Model], title: str) -> Embedding:
    """The map of some rooms with their nets, by room name."""
    vectors, labels, rooms = [], [], []
    means, mean_labels, mean_rooms = [], [], []
    for room in sorted(prepared, key=lambda room: room.name):
        model = nets[room.name]
        seen, truth = _test_embeddings(room, model)
        vectors.append(seen)
        labels.append(truth)
        rooms += [room.name] * len(truth)
        prototypes, number = class_prototypes(*room.embeddings(model), room.outputs)
        held = np.flatnonzero(number.cpu().numpy()[: len(room.classes)])  # of the first task
        means.append(unit(prototypes).cpu().numpy()[held])
        mean_labels.append(held)
        mean_rooms += [room.name] * len(held)
    both = project(np.concatenate([*vectors, *means]))
    count = len(rooms)
    return Embedding(
        title=title,
        points=both[:count],
        labels=np.concatenate(labels),
        rooms=rooms,
        classes=prepared[0].classes,
        prototypes=both[count:],
        prototype_labels=np.concatenate(mean_labels),
        prototype_rooms=mean_rooms,
    )


@torch.no_grad()
def _test_embeddings(room: Room, model: Model) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    model.eval()
    seen = [unit(model.embed(windows)).cpu().numpy() for windows, _ in room.inspect("test")]
    return np.concatenate(seen), room.labels[room.split.test]


def project(vectors: npt.NDArray[Any]) -> _Floats:
    """Vectors [n, D] to points [n, 2] by t-SNE, or by PCA where they are few; always the same."""
    from sklearn.manifold import TSNE

    given = np.asarray(vectors, np.float64)
    with threadpool_limits(1):  # sums in one order: equal points for equal vectors
        if len(given) < _FEWEST or np.ptp(given, axis=0).max() < 1e-9:
            axes, lengths, _ = np.linalg.svd(given - given.mean(axis=0), full_matrices=False)
            flat = (axes * lengths)[:, :2]
            return np.pad(flat, ((0, 0), (0, 2 - flat.shape[1])))
        fitted = TSNE(
            perplexity=min(_PERPLEXITY, (len(given) - 1) / 3),
            init="pca",
            random_state=0,
        ).fit_transform(given)
    return np.asarray(fitted, np.float64)
