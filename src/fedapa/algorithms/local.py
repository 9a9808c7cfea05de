"""Local: every room trains alone; nothing is exchanged. The yardstick of every comparison."""

from dataclasses import dataclass
from typing import ClassVar

from fedapa.algorithms.algorithm import Algorithm, RoomState, Round
from fedapa.algorithms.fine_tuning import fine_tune, is_due
from fedapa.learning.fit import NotNegativeInteger
from fedapa.models.model import Model
from fedapa.rooms.room import Room

__all__ = ["Local"]


@dataclass(frozen=True)
class Local(Algorithm):
    """The contract's defaults, by name."""

    name: ClassVar[str] = "local"
    title: ClassVar[str] = "Local"
    travels: ClassVar[str] = "nothing"
    citation: ClassVar[str] = "baseline"

    fine_tuning_epochs: NotNegativeInteger = 0
    """Epochs that a copy is trained further before it is scored, where WiFederated's would be: to
    see what those epochs give without any exchange."""

    def deploy(self, room: Room, state: RoomState, round: Round) -> Model:
        """The room's net, trained further where that is asked for."""
        model = self.model(room, state)
        if self.fine_tuning_epochs and is_due(round):
            fine_tune(self, room, model, epochs=self.fine_tuning_epochs, round=round)
        return model
