"""FedRep: rooms share the encoder θ and keep a head h each, which they train first.

A round in a room: head epochs with θ frozen, its BatchNorm statistics included, then the encoder
with h frozen; both on CE. θ ← Σ n_i θ_i / Σ n_i. Unlike FedAvg the classifier never travels: a
room is scored with the merged θ under its own h.

Our choice: what rests is in eval mode, so its BatchNorm statistics rest too.
"""

from dataclasses import dataclass
from typing import ClassVar

from fedapa.algorithms.algorithm import Dimensions, Payload, Range, Report, RoomState, Round
from fedapa.algorithms.fedavg import FedAvg
from fedapa.learning.fit import PositiveInteger, cross_entropy
from fedapa.rooms.card import RoomCard
from fedapa.rooms.room import Room

__all__ = ["FedRep"]


@dataclass(frozen=True)
class FedRep(FedAvg):
    """A shared encoder under private heads."""

    name: ClassVar[str] = "fedrep"
    title: ClassVar[str] = "FedRep"
    travels: ClassVar[str] = "the encoder's weights and BatchNorm statistics"
    citation: ClassVar[str] = "Collins et al., ICML 2021"
    paper: ClassVar[str] = "Exploiting Shared Representations for Personalized Federated Learning"
    year: ClassVar[int] = 2021
    several_tasks: ClassVar[bool] = True
    look: ClassVar[int | None] = 3

    head_epochs: PositiveInteger = 1
    """Epochs on the head alone (the original: about ten); the encoder then gets training.epochs."""

    @classmethod
    def tunables(cls, rounds: int) -> dict[str, Range]:
        """Also the head's epochs: the original takes about ten."""
        return {**super().tunables(rounds), "algorithm.head_epochs": Range(1, 10, whole=True)}

    def sends(self, sizes: Dimensions) -> tuple[str, int] | None:
        """The encoder up and down."""
        return "2·Σθ", 2 * (sizes.parameters - sizes.classifier)

    def private(self, card: RoomCard) -> frozenset[str]:
        """The classifier."""
        return frozenset(name for name in card.shapes if name.startswith("classifier."))

    def train(
        self, room: Room, state: RoomState, round: Round
    ) -> tuple[RoomState, Payload, Report]:
        """The head on the new encoder, then the encoder under the new head."""
        _, state, head = self.fit(
            room, state, round, cross_entropy, part="classifier", epochs=self.head_epochs
        )
        _, state, report = self.fit(room, state, round, cross_entropy, part="encoder")
        return state, self.upload(room, state), {**report, "loss_head": head["loss"]}
