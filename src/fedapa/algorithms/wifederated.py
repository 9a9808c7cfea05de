"""WiFederated: FedAvg, and each room fine-tunes a copy of the merged net for itself.

The copy w̃_i = SGD(w; all layers, F epochs of CE on room i) is what is scored and served; it never
goes back to the server, so the federation is FedAvg's own, bit by bit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fedapa.algorithms.algorithm import RoomState, Round
from fedapa.algorithms.fedavg import FedAvg
from fedapa.algorithms.fine_tuning import fine_tune, is_due
from fedapa.learning.fit import PositiveInteger
from fedapa.models.model import Model
from fedapa.rooms.room import Room

__all__ = ["WiFederated"]


@dataclass(frozen=True)
class WiFederated(FedAvg):
    """FedAvg with a fine-tuned copy at the end."""

    name: ClassVar[str] = "wifederated"
    title: ClassVar[str] = "WiFederated"
    citation: ClassVar[str] = "Hernandez and Bulut, IEEE IoT Journal 2022"
    plans_ahead: ClassVar[bool] = True

    fine_tuning_epochs: PositiveInteger = 10
    """F; the paper gives none. Only where a figure is read: the last five rounds and five points of
    the curve; in between the merged net is scored."""

    def deploy(self, room: Room, state: RoomState, round: Round) -> Model:
        """The fine-tuned copy where a figure is read, else the merged net."""
        model = self.model(room, state)
        if is_due(round):
            fine_tune(self, room, model, epochs=self.fine_tuning_epochs, round=round)
        return model

    def also(self, room: Room, state: RoomState, round: Round) -> Mapping[str, Model]:
        """The merged net, beside its fine-tuned copy: what those epochs gave."""
        return {"merged": self.model(room, state)} if is_due(round) else {}
