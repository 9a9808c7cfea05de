"""FedPCL: rooms learn by contrast with prototypes alone, the mean's and every room's.

L = L_g + L_p, both −log softmax over classes of cos(r, p^c)/τ at c = y: L_g with the mean p̄ over
rooms, L_p averaged over the sets of all rooms, each over the classes that it holds. Prototypes are
means of unit-length embeddings. A window is given the class of the room's own nearest prototype.
Unlike FedAPA there is no CE, no mixture and no padding. In round 1 the only targets are the room's
own prototypes, measured before it trains.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import numpy as np
import torch
from torch import Tensor

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
    full_set,
    heard_sets,
    measure,
    stored_sets,
)
from fedapa.learning.fit import Objective, Temperature
from fedapa.learning.losses import prototype_contrast
from fedapa.models.model import Model, nearest_prototype
from fedapa.rooms.room import Room

__all__ = ["FedPCL", "FedPCLSelf"]


@dataclass(frozen=True)
class FedPCL(PrototypeExchange):
    """Prototype-wise contrastive learning."""

    name: ClassVar[str] = "fedpcl"
    title: ClassVar[str] = "FedPCL"
    deploys_by_state: ClassVar[bool] = True
    travels: ClassVar[str] = "class prototypes up; their mean and the other rooms' sets down"
    citation: ClassVar[str] = "Tan et al., NeurIPS 2022"
    paper: ClassVar[str] = (
        "Federated Learning from Pre-Trained Models: A Contrastive Learning Approach"
    )
    year: ClassVar[int] = 2022
    control: ClassVar[str] = "fedpcl-self"
    look: ClassVar[int | None] = 8

    temperature: Temperature = 0.07
    """τ of both contrasts."""
    mixture: Literal["average", "own"] = "average"
    """What p̄ is: the mean over rooms, beside everybody's sets; or the room's own set in place of
    all of them, with which nothing travels."""

    @classmethod
    def tunables(cls, rounds: int) -> dict[str, Range]:
        """Also τ."""
        return {**super().tunables(rounds), "algorithm.temperature": Range(0.02, 1.0)}

    def sends(self, sizes: Dimensions) -> tuple[str, int] | None:
        """The own set up; the mean and the sets of N − 1 peers down."""
        if self.is_alone:
            return "0", 0
        return "(N + 1)·|C|·D", (sizes.rooms + 1) * sizes.classes * sizes.width

    def download(self, state: ServerState, room: str, round: Round) -> Payload:
        """p̄ [C, D] and the real rows of its peers' sets; the room has its own already."""
        if "mean" not in state:
            return {}
        prototypes, present = stored_sets(state)
        heard = heard_sets(state, apart_from=room)
        return {
            "mean": state["mean"],
            "known": state["known"],
            "clients": prototypes[heard][present[heard]],  # (real rows, D)
            "clients_present": present[heard],
        }

    def deploy(self, room: Room, state: RoomState, round: Round) -> Model:
        """The encoder, and the room's own prototypes in place of a classifier."""
        model = self.model(room, state)
        if "own" not in state:
            return model
        own = full_set(state, np.zeros((len(room.classes), room.width), np.float32))
        held = np.array(cast(Mask, state["own_present"]))
        return nearest_prototype(model, torch.from_numpy(own), torch.from_numpy(held), cosine=True)

    def train(
        self, room: Room, state: RoomState, round: Round
    ) -> tuple[RoomState, Payload, Report]:
        """Minimise L_g + L_p, then measure the prototypes over the train windows."""
        if "own" not in state:
            state = {**state, **self._measure(room, self.model(room, state))[0]}
        model, state, report = self.fit(room, state, round, self._objective(room, state))
        own, upload = self._measure(room, model)
        return {**state, **own}, {} if self.is_alone else upload, report

    def _measure(self, room: Room, model: Model) -> tuple[RoomState, Payload]:
        seen = room.embeddings(model)
        return measure(room, seen, minimum_samples=self.minimum_samples, unit_length=True)

    def _objective(self, room: Room, state: RoomState) -> Objective:
        mean, known, sets, held = (
            torch.from_numpy(values).to(room.device) for values in _targets(room, state)
        )

        def contrasts(model: Model, windows: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
            embeddings = model.embed(windows)
            to_mean = prototype_contrast(embeddings, labels, mean, self.temperature, known)  # L_g
            to_sets = prototype_contrast(embeddings, labels, sets, self.temperature, held)  # L_p
            return {"loss": to_mean + to_sets, "loss_g": to_mean, "loss_p": to_sets}

        return contrasts


def _targets(room: Room, state: RoomState) -> tuple[Floats, Mask, Floats, Mask]:
    """p̄ [C, D] and the known classes [C]; every set [N, C, D], the room's own last, and [N, C]."""
    own = full_set(state, np.zeros((len(room.classes), room.width), np.float32))
    held = np.array(cast(Mask, state["own_present"]))
    if "mean" not in state:
        return own, held, own[None], held[None]
    peers_present = cast(Mask, state["clients_present"])
    sets = np.zeros((*peers_present.shape, room.width), np.float32)
    sets[peers_present] = cast(Floats, state["clients"])
    return (
        np.array(cast(Floats, state["mean"])),
        np.array(cast(Mask, state["known"])),
        np.concatenate([sets, own[None]]),
        np.concatenate([peers_present, held[None]]),
    )


@dataclass(frozen=True)
class FedPCLSelf(FedPCL):
    """FedPCL alone: FedPCL's contrasts with the room's own prototypes; nothing is exchanged."""

    name: ClassVar[str] = "fedpcl-self"
    title: ClassVar[str] = "FedPCL alone"
    travels: ClassVar[str] = "nothing"
    citation: ClassVar[str] = "control"
    group: ClassVar[Group] = "control"

    mixture: Literal["own"] = "own"
    """Fixed: what makes this variant."""
