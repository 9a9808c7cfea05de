"""The prototype-contrastive losses and the loss a FedAPA room minimises (eqn_8, eqn_9, eqn_11).

Where nets have several tasks, a loss is that of each, added.
"""

import bisect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from fedapa.errors import DataError, PlanError
from fedapa.learning.prototypes import TensorOrArray, like, tensor
from fedapa.models.model import Model, unit
from fedapa.payload import Array
from fedapa.windows.labels import NO_CLASS, Label

__all__ = [
    "Hybrid",
    "TaskLoss",
    "fedapa_loss",
    "over_tasks",
    "prototype_contrast",
    "soft_targets",
]

TaskLoss = Callable[[Tensor, Tensor, Tensor, Tensor, slice], Mapping[str, Tensor]]
"""(logits [b, C], embeddings [b, D], labels [b], targets, block) → named losses of one task.

Labels count within the task; targets are labels, or shares of its classes [b, C]; the block is
where its classes stand on the class axis of prototypes.
"""


def over_tasks(
    loss: TaskLoss, model: Model, logits: Tensor, embeddings: Tensor, labels: Tensor
) -> Mapping[str, Tensor]:
    """A loss of each task, added by name: L = Σ_t L_t.

    L_t sees the logits of its own block, and the windows that have a class in it.

    Args:
        loss: of one task.
        model: knows the blocks, and what a label of its first task is worth.
        logits: [B, classes of all tasks].
        embeddings: r [B, D].
        labels: places on the class axis: [B] of one task, or [B, tasks].
    """
    if labels.dim() == 1:
        return loss(logits, embeddings, labels, model.targets_of(labels), model.blocks[0])
    total: dict[str, Tensor] = {}
    for task, block in enumerate(model.blocks):
        told = labels[:, task] != NO_CLASS  # (B,)
        if not told.any():
            continue
        own = labels[told, task] - block.start  # (b,)
        targets = own if task else model.targets_of(own)
        for name, value in loss(logits[told, block], embeddings[told], own, targets, block).items():
            total[name] = total[name] + value if name in total else value
    return total


def soft_targets(
    classes: Sequence[Label], spread: float, held: Sequence[int] | None = None
) -> Tensor | None:
    """[C, C] shares of the classes that a label stands for: softmax over c of −|c − y| / spread.

    A window of 4 people looks more like one of 5 than one of 12; a net that is told so learns the
    order. Distances are in steps between the counts that a room holds: where only 0, 8 and 16 were
    recorded, 8 is next to 16. None where there is no order: categories, or a spread of 0.

    Args:
        classes: counts, or categories.
        spread: in steps.
        held: places of the classes that the room holds; by default all.
    """
    if spread == 0 or not all(isinstance(label, int) for label in classes):
        return None
    places = range(len(classes)) if held is None else held
    steps = sorted(int(classes[place]) for place in places)
    rank = torch.tensor([float(bisect.bisect_left(steps, int(label))) for label in classes])
    scores = -(rank[:, None] - rank[None, :]).abs() / spread  # (C, C)
    apart = torch.ones(len(classes), dtype=torch.bool)
    apart[list(places)] = False
    scores[:, apart] = -torch.inf
    scores.fill_diagonal_(0.0)
    return torch.softmax(scores, dim=1)


def prototype_contrast(
    embeddings: TensorOrArray,
    labels: Tensor | Array,
    prototypes: Tensor | Array,
    temperature: float,
    present: Tensor | Array | None = None,
    *,
    shares: Tensor | Array | None = None,
) -> TensorOrArray:
    """Pull embeddings to the prototype of their class, away from those of other classes.

    −log softmax over classes of cos(r, p^ŷ)/τ at ŷ = y, averaged over the batch: with [C, D]
    prototypes that is L_g (eqn_8), with [N, C, D] the mean over N sets, L_c (eqn_9). Where
    sets lack classes, the mean is over the pairs of sample and set that have something to say.

    Args:
        embeddings: r [B, D].
        labels: y [B].
        prototypes: Q_i [C, D] or P [N, C, D].
        temperature: τ.
        present: [C] or [N, C]; absent classes stay out of every denominator, and a sample whose
            own class is absent in a set says nothing about that set. All present by default.
        shares: [N], how much each set counts in the mean; alike by default.

    Returns:
        A scalar; 0 where no sample meets a prototype of its class.
    """
    given, truth = tensor(embeddings), tensor(labels).long()
    sets = tensor(prototypes).to(given.dtype)
    sets = sets if sets.dim() == 3 else sets[None]  # (N, C, D)
    if sets.dim() != 3 or given.dim() != 2 or sets.shape[2] != given.shape[1]:
        raise DataError(
            f"embeddings {tuple(given.shape)} and prototypes {tuple(sets.shape)}: "
            "expected [batch, width] and [rooms, classes, width]"
        )
    if not temperature > 0:
        raise PlanError(f"temperature {temperature}: must be above 0")
    number, classes, width = sets.shape
    alike = unit(given) @ unit(sets).reshape(number * classes, width).T  # cos, (B, N·C)
    scores = (alike / temperature).reshape(len(given) * number, classes)  # (B·N, C)
    targets = truth.repeat_interleave(number)  # (B·N,)
    if present is not None:
        held = tensor(present).bool().expand(number, classes)  # (N, C)
        held = held.repeat(len(given), 1)  # (B·N, C)
        known = held.gather(1, targets[:, None])[:, 0]  # (B·N,)
        scores = scores.masked_fill(~held, -math.inf)[known]
        targets = targets[known]
    if not len(targets):
        return like(embeddings, (given * 0.0).sum())
    if shares is None:
        return like(embeddings, F.cross_entropy(scores, targets))
    counted = tensor(shares).to(given.dtype).repeat(len(given))  # (B·N,)
    counted = counted if present is None else counted[known]
    losses = F.cross_entropy(scores, targets, reduction="none")  # (B·N,)
    return like(embeddings, (counted * losses).sum() / counted.sum())


def fedapa_loss(
    logits: Tensor,
    embeddings: Tensor,
    labels: Tensor,
    *,
    mixture: Tensor,
    sets: Tensor,
    present: Tensor,
    temperature: float,
    weight: float,
    shares: Tensor | None = None,
    targets: Tensor | None = None,
) -> dict[str, Tensor]:
    """L = L_ce + λ·(L_g + L_c), and its parts.  eqn_11.

    Args:
        logits: [B, C].
        embeddings: r [B, D].
        labels: y [B].
        mixture: Q_i [C, D], padded.
        sets: the rooms' prototypes P [N, C, D], padded.
        present: [C], the classes that anybody holds.
        temperature: τ of both contrasts.
        weight: λ_t.
        shares: [N], how much each of the sets counts; alike by default.
        targets: [B, C] shares of the classes, where L_ce is not to see the labels alone.
    """
    classification = F.cross_entropy(logits, labels if targets is None else targets)
    to_mixture = prototype_contrast(embeddings, labels, mixture, temperature, present)  # L_g, eqn_8
    to_sets = prototype_contrast(  # L_c, eqn_9
        embeddings, labels, sets, temperature, present, shares=shares
    )
    total = classification + weight * (to_mixture + to_sets)  # eqn_11
    return {
        "loss": total,
        "loss_ce": classification,
        "loss_g": to_mixture,
        "loss_c": to_sets,
    }


@dataclass(frozen=True, eq=False)
class Hybrid:
    """What a FedAPA room minimises, as an objective; without weight λ it is L_ce alone.

    Its gradient is known: nets descend on it without autograd where they can (by_hand.py).
    """

    weight: float = 0.0
    """λ_t."""
    mixture: Tensor | None = None
    """Q_i [C, D], padded."""
    sets: Tensor | None = None
    """P [N, C, D], padded; N may be 0."""
    present: Tensor | None = None
    """[C], the classes that anybody holds."""
    temperature: float = 1.0
    """τ of both contrasts."""
    shares: Tensor | None = None
    """[N], how much each of the sets counts; alike by default."""
    offset: Tensor | None = None
    """[C], added to the logits: ``NEVER`` for a class that is not to be answered."""

    def __call__(self, model: Model, windows: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        """By autograd."""
        logits, embeddings = model(windows)
        return self.of(model, logits, embeddings, labels)

    def of(
        self, model: Model, logits: Tensor, embeddings: Tensor, labels: Tensor
    ) -> Mapping[str, Tensor]:
        """The same, of what a net made of windows."""
        if self.offset is not None:
            logits = logits + self.offset
        return over_tasks(self._of_task, model, logits, embeddings, labels)

    def penalty(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Φ = L_g + L_c of one task, without λ."""
        if self.mixture is None or self.sets is None:
            return (embeddings * 0.0).sum()
        # Without a mask it takes half of the time.
        held = None if self.present is None or self.present.all() else self.present
        to_mixture, to_sets = (
            prototype_contrast(embeddings, labels, rows, self.temperature, held, shares=shares)
            for rows, shares in ((self.mixture, None), (self.sets, self.shares))
        )
        return to_mixture + to_sets

    def _of_task(
        self, logits: Tensor, embeddings: Tensor, labels: Tensor, targets: Tensor, block: slice
    ) -> Mapping[str, Tensor]:
        if self.mixture is None or self.sets is None or self.present is None:
            loss = F.cross_entropy(logits, targets)
            return {"loss": loss, "loss_ce": loss}
        return fedapa_loss(
            logits,
            embeddings,
            labels,
            mixture=self.mixture[block],
            sets=self.sets[:, block],
            shares=self.shares,
            present=self.present[block],
            temperature=self.temperature,
            weight=self.weight,
            targets=targets,
        )
