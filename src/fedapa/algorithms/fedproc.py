"""FedProc: FedAvg plus a contrast with mean prototypes that hands over to cross-entropy.

L = α_t·L_con + (1 − α_t)·CE with α_t = 1 − (t − 1)/max(T − 1, 1): the first rounds shape the
embedding, the last ones the classifier. L_con is −log softmax over classes of cos(r, p̄^c)/τ at
c = y. Unlike FedProto weights travel too, averaged by n_i, and a room is scored with the merged
net. In round 1 there are no prototypes, and it is CE.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fedapa.algorithms.algorithm import (
    Dimensions,
    Form,
    Payload,
    Range,
    Report,
    RoomState,
    Roster,
    Round,
    ServerState,
    planned_rounds,
)
from fedapa.algorithms.fedavg import FedAvg
from fedapa.algorithms.prototype_sets import (
    Floats,
    Mask,
    admit_set,
    average_sets,
    dismiss_set,
    measure,
    open_sets,
    set_forms,
    stored_sets,
    take_in,
)
from fedapa.learning.fit import Objective, PositiveInteger, Temperature, cross_entropy
from fedapa.learning.losses import prototype_contrast
from fedapa.models.model import Model
from fedapa.payload import Array
from fedapa.randomness import Key
from fedapa.rooms.card import RoomCard
from fedapa.rooms.room import Room

__all__ = ["FedProc"]


@dataclass(frozen=True)
class FedProc(FedAvg):
    """Prototypical contrast over FedAvg."""

    name: ClassVar[str] = "fedproc"
    title: ClassVar[str] = "FedProc"
    travels: ClassVar[str] = "all weights and BatchNorm statistics; prototypes up, their mean down"
    citation: ClassVar[str] = "Mu et al., FGCS 2023"
    paper: ClassVar[str] = "FedProc"
    year: ClassVar[int] = 2023
    remark: ClassVar[str] = (
        "FedProc's weights depend on the number of rounds: its earlier horizons are mid-way "
        "through one schedule, not the end of a shorter one."
    )
    look: ClassVar[int | None] = 9
    plans_ahead: ClassVar[bool] = True

    temperature: Temperature = 0.5
    """τ of the contrast."""
    minimum_samples: PositiveInteger = 1
    """Train windows behind a prototype, at least; classes with fewer are not uploaded."""

    @classmethod
    def tunables(cls, rounds: int) -> dict[str, Range]:
        """Also τ."""
        return {**super().tunables(rounds), "algorithm.temperature": Range(0.05, 2.0)}

    def sends(self, sizes: Dimensions) -> tuple[str, int] | None:
        """Weights and one set of prototypes, up and down."""
        prototypes = sizes.classes * sizes.width
        return "2·Σw + 2·|C|·D", 2 * (sizes.parameters + prototypes)

    def open(self, roster: Roster, key: Key) -> ServerState:
        """As FedAvg, and nobody has uploaded a prototype yet."""
        return {**super().open(roster, key), **open_sets(roster, self.title)}

    def download(self, state: ServerState, room: str, round: Round) -> Payload:
        """The merged weights and p̄ [C, D]."""
        means = {name: state[name] for name in ("mean", "known") if name in state}
        return {**super().download(state, room, round), **means}

    def uploads(self, card: RoomCard, round: Round) -> Mapping[str, Form]:
        """As FedAvg, and the room's set."""
        return {**super().uploads(card, round), **set_forms(card)}

    def merge(
        self, state: ServerState, uploads: Mapping[str, Payload], round: Round
    ) -> ServerState:
        """The weighted mean of weights; the sets that came beside those of absent rooms."""
        return super().merge(average_sets(take_in(state, uploads)), uploads, round)

    def admit(self, state: ServerState, card: RoomCard) -> ServerState:
        """As FedAvg, with a row for the room's set."""
        return average_sets(admit_set(super().admit(state, card), card, self.title))

    def dismiss(self, state: ServerState, room: str) -> ServerState:
        """As FedAvg; its set goes with the room."""
        return average_sets(dismiss_set(super().dismiss(state, room), room))

    def explain(self, state: ServerState) -> dict[str, float | Array]:
        """As FedAvg, and how old each room's set is."""
        return {**super().explain(state), "age": cast(Array, state["age"])}

    def sets(self, state: ServerState) -> tuple[Array, Array] | None:
        """P and its mask."""
        return stored_sets(state)

    def receive(self, room: Room, state: RoomState, download: Payload, round: Round) -> RoomState:
        """As FedAvg, and keep the means."""
        means = {name: download[name] for name in ("mean", "known") if name in download}
        return {**super().receive(room, state, download, round), **means}

    def train(
        self, room: Room, state: RoomState, round: Round
    ) -> tuple[RoomState, Payload, Report]:
        """Minimise α_t·L_con + (1 − α_t)·CE; upload the weights and the prototypes."""
        model, state, report = self.fit(room, state, round, self.objective(room, state, round))
        seen = room.embeddings(model)
        _, prototypes = measure(room, seen, minimum_samples=self.minimum_samples)
        upload = {**self.upload(room, state), **prototypes}
        alpha = contrast_share(round) if "mean" in state else 0.0  # before any p̄ it is CE alone
        return state, upload, {**report, "alpha": alpha}

    def objective(self, room: Room, state: RoomState, round: Round) -> Objective:
        """α_t·L_con + (1 − α_t)·CE."""
        if "mean" not in state:
            return cross_entropy
        share = contrast_share(round)
        mean = torch.from_numpy(np.array(cast(Floats, state["mean"]))).to(room.device)
        known = torch.from_numpy(np.array(cast(Mask, state["known"]))).to(room.device)

        def handing_over(model: Model, windows: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
            logits, embeddings = model(windows)
            classification = F.cross_entropy(logits, model.targets_of(labels))
            contrast = prototype_contrast(embeddings, labels, mean, self.temperature, known)
            total = share * contrast + (1 - share) * classification
            return {"loss": total, "loss_ce": classification, "loss_con": contrast}

        return handing_over


def contrast_share(round: Round) -> float:
    """α_t = 1 − (t − 1)/max(T − 1, 1): 1 in the first round, 0 in the last."""
    return 1 - (round.number - 1) / max(planned_rounds(FedProc.title, round) - 1, 1)
