"""FedProto: rooms exchange class prototypes; embeddings are drawn to their mean over all rooms.

Up: P_i (eqn_4, after the local epochs, in eval mode). Down: p̄^c, the mean over the rooms that hold
c. L = CE + λ·MSE(r, p̄^y). Unlike FedAPA there is one mean for all, and a distance, not a contrast.
A room is scored with its classifier, and beside it, as ``nearest.*``, with the nearest p̄, which is
the original's way to answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fedapa.algorithms.algorithm import (
    Dimensions,
    Group,
    Payload,
    Range,
    Report,
    RoomState,
    Round,
    ServerState,
)
from fedapa.algorithms.prototype_sets import (
    Floats,
    Mask,
    PrototypeExchange,
    measure,
)
from fedapa.learning.diagnosis import Penalty
from fedapa.learning.fit import NotNegative, Objective, cross_entropy
from fedapa.models.model import Model, nearest_prototype
from fedapa.rooms.room import Room

__all__ = ["FedProto", "FedProtoSelf", "prototype_distance"]


@dataclass(frozen=True)
class FedProto(PrototypeExchange):
    """Global-mean prototypes as a regulariser."""

    name: ClassVar[str] = "fedproto"
    can_be_diagnosed: ClassVar[bool] = True
    sends_sets_alone: ClassVar[bool] = True
    title: ClassVar[str] = "FedProto"
    deploys_by_state: ClassVar[bool] = True
    travels: ClassVar[str] = "class prototypes up, their mean down"
    citation: ClassVar[str] = "Tan et al., AAAI 2022"
    paper: ClassVar[str] = "FedProto"
    year: ClassVar[int] = 2022
    control: ClassVar[str] = "fedproto-self"
    look: ClassVar[int | None] = 1

    attraction: NotNegative = 1.0
    """λ, the weight of the distance to the mean; 0 is Local."""
    mixture: Literal["average", "own"] = "average"
    """What embeddings are drawn to: the mean over rooms, or the room's own set of the round before,
    with which nothing travels."""

    @classmethod
    def tunables(cls, rounds: int) -> dict[str, Range]:
        """Also λ."""
        return {**super().tunables(rounds), "algorithm.attraction": Range(0.01, 10.0)}

    def sends(self, sizes: Dimensions) -> tuple[str, int] | None:
        """The own set up, the mean down."""
        return ("0", 0) if self.is_alone else ("2·|C|·D", 2 * sizes.classes * sizes.width)

    def download(self, state: ServerState, room: str, round: Round) -> Payload:
        """p̄ of the classes that anybody holds."""
        if "mean" not in state:
            return {}
        known = cast(Mask, state["known"])
        return {"mean": cast(Floats, state["mean"])[known], "known": known}

    def train(
        self, room: Room, state: RoomState, round: Round
    ) -> tuple[RoomState, Payload, Report]:
        """Minimise CE + λ·MSE, then measure the prototypes over the train windows."""
        objective = self._objective(room, state)
        model, trained, report = self.fit(room, state, round, objective)
        seen = room.embeddings(model)
        own, upload = measure(room, seen, minimum_samples=self.minimum_samples)
        kept, told = self.diagnosed(room, state, round, model=model, seen=seen, objective=objective)
        trained, report = {**trained, **kept}, {**report, **told}
        if self.is_alone:
            return {**trained, "mean": own["own"], "known": own["own_present"]}, {}, report
        return trained, upload, report

    def penalty(self, room: Room, state: RoomState, round: Round) -> Penalty | None:
        """Φ = MSE(r, p̄^y), with the same weight in every round."""
        if "mean" not in state:
            return None
        means, known = (values.to(room.device) for values in _means(room, state))

        def distance(embeddings: Tensor, labels: Tensor) -> Tensor:
            return prototype_distance(embeddings, labels, means, known)

        return Penalty(self.attraction, distance)

    def _objective(self, room: Room, state: RoomState) -> Objective:
        if "mean" not in state or self.attraction == 0:
            return cross_entropy
        means, known = (values.to(room.device) for values in _means(room, state))

        def attracted(model: Model, windows: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
            logits, embeddings = model(windows)
            classification = F.cross_entropy(logits, model.targets_of(labels))
            distance = prototype_distance(embeddings, labels, means, known)
            total = classification + self.attraction * distance
            return {"loss": total, "loss_ce": classification, "loss_mse": distance}

        return attracted

    def alternatives(self, room: Room, state: RoomState, round: Round) -> Mapping[str, Model]:
        """The answer of the nearest mean, the original's way to predict."""
        if "mean" not in state:
            return {}
        return {"nearest": nearest_prototype(self.model(room, state), *_means(room, state))}


def _means(room: Room, state: RoomState) -> tuple[Tensor, Tensor]:
    """p̄ [C, D], zero where nobody holds the class, and the known classes [C]."""
    known = np.array(cast(Mask, state["known"]))
    means = np.zeros((len(room.classes), room.width), np.float32)
    means[known] = cast(Floats, state["mean"])
    return torch.from_numpy(means), torch.from_numpy(known)


def prototype_distance(
    embeddings: Tensor, labels: Tensor, prototypes: Tensor, known: Tensor
) -> Tensor:
    """MSE(r, p̄^y): mean over width and over the samples whose class is known; 0 if none is."""
    told = known[labels]  # (B,)
    if not told.any():
        return (embeddings * 0.0).sum()
    return F.mse_loss(embeddings[told], prototypes[labels[told]])


@dataclass(frozen=True)
class FedProtoSelf(FedProto):
    """FedProto alone: FedProto's distance to the room's own prototypes; nothing is exchanged."""

    name: ClassVar[str] = "fedproto-self"
    title: ClassVar[str] = "FedProto alone"
    travels: ClassVar[str] = "nothing"
    citation: ClassVar[str] = "control"
    group: ClassVar[Group] = "control"

    mixture: Literal["own"] = "own"
    """Fixed: what makes this variant."""
