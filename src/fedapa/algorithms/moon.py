"""MOON: FedAvg plus a contrast that pulls a room's net to the merged one, away from its own last.

L = CE + μ·L_con, L_con = −log e^{cos(z, z_g)/τ} / (e^{cos(z, z_g)/τ} + e^{cos(z, z_p)/τ}), with z,
z_g and z_p the projections of a window by the net in training, by the merged net and by the room's
net of its last round. A room is scored with the merged net.

Our choice: the projection is a side branch, the classifier reads r, so that μ = 0 is FedAvg to the
bit. The reference nets are in eval mode.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedapa.algorithms.algorithm import Dimensions, Payload, Range, RoomState, Round
from fedapa.algorithms.fedavg import FedAvg
from fedapa.learning.fit import (
    NotNegative,
    Objective,
    PositiveInteger,
    Temperature,
    cross_entropy,
)
from fedapa.learning.tree import NamedArrays, load_weights
from fedapa.models.model import Model, unit
from fedapa.rooms.card import RoomCard
from fedapa.rooms.room import Room

__all__ = ["Moon", "model_contrast"]


@dataclass(frozen=True)
class Moon(FedAvg):
    """Model-contrastive learning."""

    name: ClassVar[str] = "moon"
    title: ClassVar[str] = "MOON"
    deploys_by_state: ClassVar[bool] = True
    travels: ClassVar[str] = "all weights and BatchNorm statistics, with the projection's"
    citation: ClassVar[str] = "Li, He and Song, CVPR 2021"
    paper: ClassVar[str] = "Model-Contrastive Federated Learning"
    year: ClassVar[int] = 2021
    look: ClassVar[int | None] = 7

    contrast: NotNegative = 1.0
    """μ; 0 is FedAvg."""
    temperature: Temperature = 0.5
    """τ."""
    projection: PositiveInteger = 256
    """Width of z, two layers above r."""

    @classmethod
    def tunables(cls, rounds: int) -> dict[str, Range]:
        """Also μ."""
        return {**super().tunables(rounds), "algorithm.contrast": Range(0.01, 10.0)}

    def sends(self, sizes: Dimensions) -> tuple[str, int] | None:
        """The net and its projection, two layers."""
        layers = (sizes.width + 1) * self.projection + (self.projection + 1) * self.projection
        return "2·(Σw + Σz)", 2 * (sizes.parameters + layers)

    def build(self, room: Room) -> Model:
        """The room's net with a projection beside its classifier."""
        model = room.build()
        start = room.key / "initial weights" / "projection"
        with (start if room.initialisation == "common" else start / room.name).as_torch_default():
            branch = nn.Sequential(
                nn.Linear(room.width, self.projection),
                nn.ReLU(),
                nn.Linear(self.projection, self.projection),
            )
        model.add_module("projection", branch.to(room.device))
        return model

    def arrays(self, card: RoomCard) -> Mapping[str, tuple[int, ...]]:
        """The net's arrays and the projection's."""
        wide = self.projection
        return {
            **card.shapes,
            "projection.0.weight": (wide, card.width),
            "projection.0.bias": (wide,),
            "projection.2.weight": (wide, wide),
            "projection.2.bias": (wide,),
        }

    def receive(self, room: Room, state: RoomState, download: Payload, round: Round) -> RoomState:
        """As FedAvg, and the room's own net of its last round is kept to be contrasted with."""
        return {**super().receive(room, state, download, round), "previous": state["model"]}

    def deploy(self, room: Room, state: RoomState, round: Round) -> Model:
        """The merged net, without the projection."""
        model = room.build()
        weights = cast(NamedArrays, state["model"])
        load_weights(model, {name: weights[name] for name in model.state_dict()})
        return model

    def objective(self, room: Room, state: RoomState, round: Round) -> Objective:
        """CE + μ·L_con; in round 1 both references are the first net and L_con is level."""
        if self.contrast == 0:
            return cross_entropy
        merged = self.model(room, state).eval()
        last = "previous" if "previous" in state else "model"
        previous = self.model(room, state, net=last).eval()

        def contrasted(model: Model, windows: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
            logits, embedding = model(windows)
            classification = F.cross_entropy(logits, model.targets_of(labels))
            with torch.no_grad():
                towards, away = (_project(net, net.embed(windows)) for net in (merged, previous))
            contrast = model_contrast(
                _project(model, embedding), towards, away, temperature=self.temperature
            )
            total = classification + self.contrast * contrast
            return {"loss": total, "loss_ce": classification, "loss_con": contrast}

        return contrasted


def _project(model: Model, embedding: Tensor) -> Tensor:
    branch = cast(nn.Module, model.projection)
    return cast(Tensor, branch(embedding))  # z (B, P)


def model_contrast(z: Tensor, towards: Tensor, away: Tensor, *, temperature: float) -> Tensor:
    """L_con: −log of the softmax share of cos(z, z_g)/τ against cos(z, z_p)/τ, mean over [B, P]."""
    near = (unit(z) * unit(towards)).sum(dim=1)  # cos(z, z_g), (B,)
    far = (unit(z) * unit(away)).sum(dim=1)  # cos(z, z_p), (B,)
    scores = torch.stack([near, far], dim=1) / temperature  # (B, 2)
    return F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long, device=z.device))
