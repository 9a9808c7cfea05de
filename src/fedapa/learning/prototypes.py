"""Class prototypes and their adaptive aggregation (eqn_4 to eqn_7, padding).

Shapes: ``prototypes [N, C, D]`` for N rooms, C classes, embeddings of width D; ``present [N, C]``
says which are real. Absence is a mask: absent rows are zero and never enter a sum.
Functions take torch tensors or numpy arrays, float32 or float64, and return the kind they got.
"""

import math
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fedapa.errors import DataError, PlanError
from fedapa.models.model import unit
from fedapa.payload import Array
from fedapa.windows.labels import NO_CLASS

__all__ = [
    "EXPLICIT_ROOMS",
    "TensorOrArray",
    "aggregate_prototypes",
    "aggregation_weights",
    "class_prototypes",
    "like",
    "mean_prototypes",
    "pad_prototypes",
    "tensor",
    "weight_entropy",
]

TensorOrArray = TypeVar("TensorOrArray", Tensor, Array)

EXPLICIT_ROOMS = 512
"""Up to here the weights are computed explicitly; beyond, N × N arrays are never made."""
_BLOCK = 256
"""Rooms whose weights are there at a time where torch's own blocks cannot be used."""


def class_prototypes(
    embeddings: TensorOrArray, labels: TensorOrArray, classes: int
) -> tuple[TensorOrArray, TensorOrArray]:
    """p^c = mean of the embeddings of class c.  eqn_4.

    Args:
        embeddings: r [B, D].
        labels: [B], class indices below ``classes``; or [B, tasks], of several tasks whose classes
            are C together, −1 where a window has none in one of them.
        classes: C.

    Returns:
        prototypes [C, D] with zero rows for absent classes, and counts [C], m^c.
    """
    given = tensor(embeddings)
    index = tensor(labels).long()
    if given.dim() != 2 or index.dim() not in (1, 2) or index.shape[:1] != given.shape[:1]:
        raise DataError(
            f"embeddings {tuple(given.shape)} and labels {tuple(index.shape)}: "
            "expected [batch, width] and [batch] or [batch, tasks]"
        )
    least = 0 if index.dim() == 1 else NO_CLASS
    if index.numel() and not least <= int(index.min()) <= int(index.max()) < classes:
        raise DataError(
            f"labels from {index.min()} to {index.max()}: expected {least} to {classes - 1}"
        )
    if index.dim() == 1:
        member = F.one_hot(index, classes).to(given.dtype)  # (B, C)
    else:  # the place after the last is for those without a class
        every = F.one_hot(index % (classes + 1), classes + 1).sum(dim=1)  # (B, C + 1)
        member = every[:, :classes].to(given.dtype)  # (B, C)
    counts = member.sum(dim=0)  # (C,)
    means = member.T @ given / counts.clamp(min=1)[:, None]  # (C, D)
    return like(embeddings, means), like(embeddings, counts.long())


def aggregation_weights(
    prototypes: TensorOrArray,
    present: TensorOrArray,
    temperature: float,
    *,
    include_self: bool = True,
) -> TensorOrArray:
    """How much room i takes of room j for class c: α [C, N, N], rows summing to one or zero.

    s_ij^c = cos(p_i^c, p_j^c) (eqn_5), α_ij^c = softmax over j ∈ J_c(i) of s_ij^c/τ (eqn_6), with
    J_c(i) the rooms that hold c if i does, and nobody if i does not. Without ``include_self`` a
    room that alone holds a class still takes its own.
    """
    given, held = _checked(prototypes, present, temperature)
    direction = unit(given).transpose(0, 1)  # (C, N, D)
    alike = direction @ direction.transpose(1, 2)  # (C, N, N), eqn_5
    eligible = held.T[:, :, None] & held.T[:, None, :]  # (C, N, N): both hold c
    if not include_self:
        self_pair = torch.eye(len(given), dtype=torch.bool, device=given.device)
        alone = eligible.sum(dim=2, keepdim=True) == 1
        eligible = eligible & (~self_pair | alone)
    scores = (alike / temperature).masked_fill(~eligible, -math.inf)
    # A room without the class has no row: softmax over nothing would be NaN.
    weights = torch.softmax(scores, dim=2).masked_fill(~eligible, 0.0)  # eqn_6
    return like(prototypes, weights)


def aggregate_prototypes(
    prototypes: TensorOrArray,
    present: TensorOrArray,
    temperature: float,
    *,
    include_self: bool = True,
) -> TensorOrArray:
    """Each room's own mixture of everyone's prototypes: q_i^c = Σ_j α_ij^c p_j^c.  eqn_5–eqn_7.

    Args:
        prototypes: P [N, C, D].
        present: [N, C], which of them are real.
        temperature: τ; small takes the most similar only, infinite takes the mean.
        include_self: whether i is in J_c(i).

    Returns:
        Q [N, C, D], zero where a room does not hold the class.
    """
    given, held = _checked(prototypes, present, temperature)
    if len(given) > EXPLICIT_ROOMS:
        return like(prototypes, _attend(given, held, temperature, include_self=include_self))
    values = given.masked_fill(~held[:, :, None], 0.0).transpose(0, 1)  # (C, N, D)
    weights = aggregation_weights(given, held, temperature, include_self=include_self)
    mixed = (weights @ values).transpose(0, 1)  # (N, C, D), eqn_7
    return like(prototypes, mixed.masked_fill(~held[:, :, None], 0.0))


def _attend(given: Tensor, held: Tensor, temperature: float, *, include_self: bool) -> Tensor:
    """The same mixture as attention over the rooms that hold a class, without any N × N array.

    Class by class: the work is N² per class anyway, and what is needed on the way is then a
    fraction of P itself.
    """
    mixed = torch.zeros_like(given)  # (N, C, D)
    for c in range(given.shape[1]):
        rooms = held[:, c].nonzero()[:, 0]
        values = given[rooms, c]  # (n, D)
        if include_self and len(rooms):
            # torch never makes the n × n weights only if the widths of all three are equal.
            direction = unit(values)[None, None]  # (1, 1, n, D)
            mixed[rooms, c] = F.scaled_dot_product_attention(
                direction, direction, values[None, None], scale=1.0 / temperature
            )[0, 0]
        elif len(rooms) == 1:
            mixed[rooms, c] = values  # there is no other
        elif len(rooms):
            mixed[rooms, c] = _attend_to_others(values, temperature)
    return mixed


def _attend_to_others(values: Tensor, temperature: float) -> Tensor:
    """Each room's mixture of all but its own, [n, D] → [n, D], some rooms at a time.

    A mask would take torch's attention to n × n, and to subtract the own term afterwards would
    cancel: at a small τ it is nearly the whole sum.
    """
    direction = unit(values)  # (n, D)
    mixed = []
    for first in range(0, len(values), _BLOCK):
        some = direction[first : first + _BLOCK]  # (b, D)
        scores = some @ direction.T / temperature  # (b, n), eqn_5
        scores.diagonal(offset=first).fill_(-math.inf)
        mixed.append(torch.softmax(scores, dim=1) @ values)  # eqn_6, eqn_7
    return torch.cat(mixed)


def mean_prototypes(
    prototypes: TensorOrArray, present: TensorOrArray, counts: TensorOrArray | None = None
) -> TensorOrArray:
    """p̄^c, the mean over the rooms that hold class c: FedProto's global prototype.

    Args:
        prototypes: P [N, C, D].
        present: [N, C], which of them are real.
        counts: [N, C], samples behind each; given, the mean is weighted by them, else uniform.

    Returns:
        [C, D]; a class that nobody holds is zero.
    """
    given, held = _checked(prototypes, present, 1.0)
    shares = held.to(given.dtype)
    if counts is not None:
        shares = shares * tensor(counts).to(given.dtype)
    shares = shares / shares.sum(dim=0).clamp(min=torch.finfo(given.dtype).tiny)  # (N, C)
    real = given.masked_fill(~held[:, :, None], 0.0)
    return like(prototypes, torch.einsum("nc,ncd->cd", shares, real))


def pad_prototypes(
    prototypes: TensorOrArray, present: TensorOrArray, counts: TensorOrArray | None = None
) -> TensorOrArray:
    """Absent rows filled with the mean over the rooms that hold the class.  eq:padding.

    Args:
        prototypes: P (or Q) [N, C, D].
        present: [N, C], which of them are real.
        counts: [N, C], samples behind each; given, the mean is weighted by them, else uniform.

    Returns:
        [N, C, D]; a class that nobody holds stays zero.
    """
    given, held = _checked(prototypes, present, 1.0)
    mean = tensor(mean_prototypes(prototypes, present, counts))  # (C, D)
    return like(prototypes, torch.where(held[:, :, None], given, mean))


def weight_entropy(weights: TensorOrArray) -> TensorOrArray:
    """Mean entropy in nats of each room's weights, over the classes it holds: [C, N, N] → [N].

    0 is a room that takes from one peer only, log N one that takes evenly from all.
    """
    given = tensor(weights)
    entropy = torch.special.entr(given).sum(dim=2)  # (C, N), −Σ α log α
    rows = given.sum(dim=2) > 0  # (C, N)
    mean = entropy.sum(dim=0) / rows.sum(dim=0).clamp(min=1)
    return like(weights, mean)


def tensor(values: Tensor | Array) -> Tensor:
    """A tensor with the same memory, or a copy of an array that may not be written."""
    if isinstance(values, Tensor):
        return values
    return torch.from_numpy(np.require(values, requirements="W"))


def like(model: TensorOrArray, result: Tensor) -> TensorOrArray:
    """``result`` as the kind that ``model`` is."""
    return result if isinstance(model, Tensor) else result.detach().numpy()


def _checked(
    prototypes: Tensor | Array, present: Tensor | Array, temperature: float
) -> tuple[Tensor, Tensor]:
    given, held = tensor(prototypes), tensor(present).bool()
    if given.dim() != 3 or held.shape != given.shape[:2]:
        raise DataError(
            f"prototypes {tuple(given.shape)} and present {tuple(held.shape)}: "
            "expected [rooms, classes, width] and [rooms, classes]"
        )
    if not temperature > 0:
        raise PlanError(f"temperature {temperature}: must be above 0")
    return given, held
