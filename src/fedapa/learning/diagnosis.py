"""What the convergence theory speaks of, measured in a room (docs/theory.md).

In round t a room minimises L_t(w) = L_ce(w) + λ_t Φ(w; Q_{t−1}, P_{t−1}). Between two rounds the
objective itself changes, by the schedule and by new prototypes:

    L_t(w) − L_{t−1}(w) = (λ_t − λ_{t−1}) Φ_old(w)  +  λ_t (Φ_new(w) − Φ_old(w)).

Both are taken at w_{t,0}, the net as the last round left it, over train windows in eval mode. The
embeddings of that net are those of its prototypes, so all of it needs no pass of its own; of rooms
with more than ``MOST`` train windows so many are taken, evenly spread, always the same.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from fedapa.models.model import Model
from fedapa.payload import Tree

__all__ = ["MOST", "Gradients", "Penalty", "Seen", "descended", "gradient_epoch", "gradient_terms"]

MOST = 256
"""Train windows that a room keeps for its next round: more of them cost more than they say."""
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Penalty:
    """The part of a room's objective that hangs on prototypes."""

    weight: float
    """λ_t."""
    of: Callable[[Tensor, Tensor], Tensor]
    """Φ of embeddings [n, D] and labels [n]: their mean."""


@dataclass(frozen=True, eq=False)
class Seen:
    """A net's train windows as it sees them, in eval mode."""

    embeddings: Tensor
    """r [n, D]."""
    labels: Tensor
    """[n]."""
    classification: float
    """L_ce."""

    @classmethod
    @torch.no_grad()
    def by(cls, model: Model, embeddings: Tensor, labels: Tensor) -> "Seen":
        """Windows that were embedded, or ``MOST`` of them, with the classifier's cross-entropy."""
        if len(labels) > MOST:
            chosen = torch.linspace(0, len(labels) - 1, MOST, device=labels.device).long()
            embeddings, labels = embeddings[chosen], labels[chosen]
        logits = model.classifier(embeddings)
        loss = F.cross_entropy(logits, model.targets_of(labels))
        return cls(embeddings, labels, float(loss))


def descended(
    last: Tree | None, now: Seen, penalty: Penalty | None
) -> tuple[Tree, dict[str, float]]:
    """What a round did to a room's objective, and what to keep for the next one.

    Args:
        last: what this function kept of the room's last round; none where there is none.
        now: the net after this round's steps.
        penalty: λ_t and Φ with this round's prototypes; none where there are none yet.

    Returns:
        What to keep, and by name: the objective before and after the steps and its descent, both
        jumps at the start of the round, by how much Φ changed there, λ_t, and how long embeddings
        are.
    """
    weight, after = 0.0, 0.0
    if penalty is not None:
        weight, after = penalty.weight, _value(penalty, now.embeddings, now.labels)
    lengths = now.embeddings.norm(dim=1)
    told = {
        "objective_after": now.classification + weight * after,
        "embedding_mean": float(lengths.mean()),
        "embedding_longest": float(lengths.max()),
    }
    if last is not None and len(cast(Floats, last["embeddings"])) == len(now.labels):
        told |= _from(last, now.labels, penalty, told["objective_after"])
    kept: Tree = {
        "embeddings": now.embeddings.cpu().numpy(),
        "classification": now.classification,
    }
    if penalty is not None:
        told |= {"penalty": after, "weight": weight}
        kept = {**kept, "penalty": after, "weight": weight}
    return kept, told


def _from(last: Tree, labels: Tensor, penalty: Penalty | None, after: float) -> dict[str, float]:
    """The terms that need the net as it was before this round."""
    embeddings = torch.from_numpy(np.array(cast(Floats, last["embeddings"]))).to(labels.device)
    before = cast(float, last["classification"])
    if penalty is None:
        return {"objective_before": before, "descent": before - after}
    new = _value(penalty, embeddings, labels)
    before += penalty.weight * new
    told = {"objective_before": before, "descent": before - after}
    if "penalty" in last:
        old, weight = cast(float, last["penalty"]), cast(float, last["weight"])
        told |= {
            "jump_schedule": (penalty.weight - weight) * old,
            "jump_refresh": penalty.weight * (new - old),
            "penalty_change": new - old,
        }
    return told


@torch.no_grad()
def _value(penalty: Penalty, embeddings: Tensor, labels: Tensor) -> float:
    return float(penalty.of(embeddings, labels))


@dataclass(frozen=True, eq=False)
class Gradients:
    """The gradients of an objective over one epoch of batches at fixed weights."""

    mean: Tensor
    """∇L, all parameters end to end."""
    weights: Tensor
    """Where: w, in the same order."""
    variance: float
    """σ̂²: the mean of ‖g − ∇L‖² over batches, by their windows."""

    @property
    def squared(self) -> float:
        """‖∇L‖²."""
        return float(self.mean.square().sum())


def gradient_epoch(
    model: Model,
    batches: Iterable[tuple[Tensor, Tensor]],
    objective: Callable[[Model, Tensor, Tensor], Mapping[str, Tensor]],
) -> Gradients:
    """∇L and σ̂² over batches, the net at rest: eval mode, no step is taken.

    With n_b windows in batch b: ∇L = Σ n_b g_b / Σ n_b, σ̂² = Σ n_b ‖g_b‖² / Σ n_b − ‖∇L‖².
    """
    model.eval()
    parameters = list(model.parameters())
    for parameter in parameters:
        parameter.requires_grad_(True)
    number = sum(parameter.numel() for parameter in parameters)
    total = torch.zeros(number, dtype=torch.float64)
    moment, seen = 0.0, 0
    for windows, labels in batches:
        loss = objective(model, windows, labels)["loss"]
        slopes = torch.autograd.grad(loss, parameters, allow_unused=True)
        slope = torch.cat(
            [
                (torch.zeros_like(parameter) if one is None else one).detach().flatten().cpu()
                for one, parameter in zip(slopes, parameters, strict=True)
            ]
        ).double()
        total += len(labels) * slope
        moment += len(labels) * float(slope.square().sum())
        seen += len(labels)
    mean = total / seen
    weights = torch.cat([parameter.detach().flatten().cpu() for parameter in parameters]).double()
    # The difference of two sums may be below zero by rounding, where all batches are alike.
    variance = max(0.0, moment / seen - float(mean.square().sum()))
    return Gradients(mean, weights, variance)


def gradient_terms(before: Gradients, after: Gradients) -> dict[str, float]:
    """What two gradient epochs say of one round's objective, at w_{t,0} and at w_{t,S}.

    L̂ = ‖∇L(w_{t,S}) − ∇L(w_{t,0})‖ / ‖w_{t,S} − w_{t,0}‖: a lower bound of the smoothness L.
    """
    way = float((after.weights - before.weights).norm())
    told = {
        "gradient_before": before.squared,
        "gradient_after": after.squared,
        "variance": max(before.variance, after.variance),
    }
    if way > 0:
        told["smoothness"] = float((after.mean - before.mean).norm()) / way
    return {name: value for name, value in told.items() if math.isfinite(value)}
