"""Arithmetic on named arrays: the weighted mean, and the way between models and named arrays."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import nn

from fedapa.errors import PayloadError
from fedapa.payload import Array

__all__ = ["NamedArrays", "load_weights", "weighted_mean", "weights_of"]

NamedArrays = Mapping[str, Array]


def weights_of(module: nn.Module) -> dict[str, Array]:
    """Parameters and buffers by name, copied to numpy."""
    return {
        name: value.detach().cpu().numpy().copy() for name, value in module.state_dict().items()
    }


def load_weights(module: nn.Module, weights: NamedArrays) -> None:
    """Put named arrays into a module; every name must fit."""
    places = module.state_dict()
    if places.keys() == weights.keys() and all(
        _is_alike(place, weights[name]) for name, place in places.items()
    ):  # as nearly always: without torch's copy of each and its way through all modules
        for name, place in places.items():
            np.copyto(place.numpy(), weights[name])
        return
    state = {name: torch.from_numpy(np.array(value)) for name, value in weights.items()}
    module.load_state_dict(state, strict=True)


def _is_alike(place: torch.Tensor, value: Array) -> bool:
    """Whether an array fits into the memory of a tensor as it is."""
    if place.device.type != "cpu" or place.shape != value.shape:
        return False
    return place.numpy().dtype == value.dtype


def weighted_mean(trees: Sequence[NamedArrays], weights: Sequence[float]) -> dict[str, Array]:
    """Σ wᵢ·treeᵢ / Σ wᵢ name by name, summed in float64 in the given order; integers are rounded.

    Integer buffers such as BatchNorm's ``num_batches_tracked`` are averaged like the rest: a model
    without them would not load.
    """
    names = set(trees[0])
    for tree in trees[1:]:
        if set(tree) != names:
            odd = sorted(names.symmetric_difference(tree))[0]
            raise PayloadError(f"'{odd}' is not in every tree; only equal names can be averaged")
    total = float(sum(weights))
    mean: dict[str, Array] = {}
    for name in sorted(names):
        dtype = trees[0][name].dtype
        stacked = sum(
            weight / total * tree[name].astype(np.float64)
            for tree, weight in zip(trees, weights, strict=True)
        )
        mean[name] = np.asarray(
            np.rint(stacked) if np.issubdtype(dtype, np.integer) else stacked
        ).astype(dtype)
    return mean
