"""FedALA: FedAvg, but each room starts from its own element-wise mixture of old and merged net.

ŵ = w_i + (w_g − w_i)⊙W on the last p tensors, everything below from w_g. W is learned on a share
of the room's windows, CE of ŵ with ŵ's net otherwise fixed: W ← clip(W − η ∇ŵ ⊙ (w_g − w_i), 0, 1).
W begins at 1 (which is FedAvg) and is kept from round to round. L = CE, from ŵ, which is also what
is scored.

Our choice: the mixture is of parameters, which BatchNorm statistics are not: they are merged as
FedAvg merges them, and W is learned with those; ``statistics = "own"`` keeps each room's. ŵ is
computed so that W = 1 is the merged net to the bit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from fedapa.algorithms.algorithm import Payload, Range, Report, RoomState, Round
from fedapa.algorithms.fedavg import FedAvg
from fedapa.errors import RosterError
from fedapa.learning.fit import NotNegative, Positive, PositiveInteger, Share
from fedapa.learning.tree import NamedArrays
from fedapa.payload import Array
from fedapa.rooms.card import RoomCard
from fedapa.rooms.room import Room

__all__ = ["FedALA"]

SETTLED = 10
"""Losses whose spread tells whether W has settled."""


@dataclass(frozen=True)
class FedALA(FedAvg):
    """Adaptive local aggregation."""

    name: ClassVar[str] = "fedala"
    title: ClassVar[str] = "FedALA"
    citation: ClassVar[str] = "Zhang et al., AAAI 2023"
    paper: ClassVar[str] = "FedALA"
    year: ClassVar[int] = 2023
    look: ClassVar[int | None] = 5

    mixing_rate: NotNegative = 1.0
    """η of W; 0 keeps W at 1, which is FedAvg."""
    mixing_share: Share = 0.8
    """Share of the train windows that W is learned on."""
    tensors: PositiveInteger = 2
    """p: so many parameter tensors from the end are mixed; 2 is the classifier."""
    settled: Positive = 0.1
    """The first time, W is learned until its last ten epochs' losses deviate by less than this."""
    longest_start: PositiveInteger = 50
    """Epochs of that first time, at most; afterwards it is one epoch a round."""
    statistics: Literal["merged", "own"] = "merged"
    """Whether BatchNorm statistics are merged, as FedAvg does, or stay each room's own."""

    @classmethod
    def tunables(cls, rounds: int) -> dict[str, Range]:
        """Also η of W."""
        return {**super().tunables(rounds), "algorithm.mixing_rate": Range(0.01, 10.0)}

    def check(self, card: RoomCard) -> None:
        """Refuses to mix more tensors than a net has."""
        trained = len(set(self.arrays(card)) - card.buffers)
        if self.tensors > trained:
            raise RosterError(
                f"FedALA with tensors = {self.tensors}: {card.name}'s net has {trained} "
                f"parameter tensors; use 1 to {trained}"
            )

    def private(self, card: RoomCard) -> frozenset[str]:
        """The BatchNorm statistics, where they stay."""
        return card.buffers if self.statistics == "own" else super().private(card)

    def receive(self, room: Room, state: RoomState, download: Payload, round: Round) -> RoomState:
        """Start from ŵ; in the first round there is nothing to mix."""
        merged = cast(NamedArrays, download.get("weights", {}))
        new = super().receive(room, state, download, round)
        names = [name for name, _ in self.build(room).named_parameters()][-self.tensors :]
        mixed = [name for name in names if name in merged]
        if not mixed:
            return new
        mixing, start = self._learn(room, state, cast(NamedArrays, new["model"]), mixed, round)
        return {**new, "model": {**cast(NamedArrays, new["model"]), **start}, "mixing": mixing}

    def _learn(
        self, room: Room, state: RoomState, merged: NamedArrays, names: list[str], round: Round
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """W and ŵ of the mixed tensors."""
        model = self.model(room, {"model": merged})
        model.eval()  # BatchNorm statistics stand while W is learned
        old = cast(NamedArrays, state["model"])
        new = {name: _tensor(merged[name], room) for name in names}  # w_g
        change = {name: new[name] - _tensor(old[name], room) for name in names}  # w_g − w_i
        known = cast(NamedArrays, state.get("mixing", {}))
        mixing = {
            name: _tensor(known[name], room) if name in known else torch.ones_like(new[name])
            for name in names
        }
        epochs = 1 if known else self.longest_start
        key = round.key / "room" / room.name / "mixing"
        losses: list[float] = []
        for _ in range(epochs):
            total, seen = 0.0, 0
            for windows, labels in room.batches(
                self.training.batch_size, key, share=self.mixing_share
            ):
                leaves = {
                    name: value.requires_grad_() for name, value in mix(new, change, mixing).items()
                }
                logits, _ = functional_call(model, leaves, (windows,))
                loss = F.cross_entropy(logits, model.targets_of(labels))
                slopes = torch.autograd.grad(loss, list(leaves.values()))  # ∇ŵ
                for name, slope in zip(leaves, slopes, strict=True):
                    step = self.mixing_rate * slope * change[name]
                    mixing[name] = (mixing[name] - step).clamp(0.0, 1.0)
                total += float(loss.detach()) * len(labels)
                seen += len(labels)
            losses.append(total / seen)
            if len(losses) >= SETTLED and float(np.std(losses[-SETTLED:])) < self.settled:
                break
        return _arrays(mixing), _arrays(mix(new, change, mixing))

    def train(
        self, room: Room, state: RoomState, round: Round
    ) -> tuple[RoomState, Payload, Report]:
        """As FedAvg; the mean of W goes into the record."""
        state, upload, report = super().train(room, state, round)
        mixing = cast(NamedArrays, state.get("mixing", {}))
        if mixing:
            flat = np.concatenate([np.ravel(values) for _, values in sorted(mixing.items())])
            report = {**report, "mixing": float(flat.astype(np.float64).mean())}
        return state, upload, report


def mix(
    new: Mapping[str, Tensor], change: Mapping[str, Tensor], mixing: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """ŵ = w_i + (w_g − w_i)⊙W, written as w_g − (w_g − w_i)⊙(1 − W): W = 1 is w_g to the bit."""
    return {name: new[name] - change[name] * (1 - mixing[name]) for name in sorted(new)}


def _tensor(values: Array, room: Room) -> Tensor:
    return torch.from_numpy(np.array(values)).to(room.device)


def _arrays(tensors: Mapping[str, Tensor]) -> dict[str, Array]:
    return {name: value.detach().cpu().numpy() for name, value in tensors.items()}
