"""WiFederated: FedAvg, and each room fine-tunes a copy of the merged net for itself.

The copy w̃_i = SGD(w; all layers, F epochs of CE on room i) is what is scored and served; it never
goes back to the server, so the federation is FedAvg's own, bit by bit. The merged net is scored
beside it, as ``merged.*``.

Our choice: the original gives no number of epochs; F is 10. Fine-tuning every round would cost
more than the training, so a copy is made only where a figure is read: in the last five rounds,
which a summary averages, and at five points of the curve before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from fedapa.algorithms.algorithm import Algorithm, Group, Range, RoomState, Round, planned_rounds
from fedapa.algorithms.fedavg import FedAvg
from fedapa.algorithms.local import Local
from fedapa.evaluation.record import LAST
from fedapa.learning.fit import PositiveInteger, cross_entropy, fit
from fedapa.models.model import Model
from fedapa.rooms.room import Room

__all__ = ["FineTuned", "LocalMoreEpochs", "WiFederated"]

POINTS = 5
"""Points of the curve, evenly spaced, before the last rounds."""


@dataclass(frozen=True)
class FineTuned(Algorithm):
    """Scored with a copy that was trained further in its room."""

    plans_ahead: ClassVar[bool] = True

    fine_tuning_epochs: PositiveInteger = 10
    """F, on all layers; the paper gives none. Only where a figure is read: the last five rounds and
    five points of the curve; in between the net is scored as it is."""

    @classmethod
    def tunables(cls, rounds: int) -> dict[str, Range]:
        """Also F."""
        return {
            **super().tunables(rounds),
            "algorithm.fine_tuning_epochs": Range(1, 20, whole=True),
        }

    def scored_rounds(self, total: int) -> Sequence[int] | None:
        """The last rounds and a few points before, where there is a copy."""
        points = {total * point // (POINTS + 1) for point in range(1, POINTS + 1)}
        first = max(0, total - LAST) + 1
        return [number for number in range(1, total + 1) if number >= first or number in points]

    def work(self, rounds: int) -> int:
        """The rounds, and as many copies as are scored."""
        copies = self.scored_rounds(rounds) or ()
        return super().work(rounds) + len(copies) * self.fine_tuning_epochs

    def is_due(self, round: Round) -> bool:
        """Whether this exchange, which scores the round before it, scores a copy."""
        return round.number - 1 in (self.scored_rounds(planned_rounds(self.title, round)) or ())

    def deploy(self, room: Room, state: RoomState, round: Round) -> Model:
        """The fine-tuned copy where a figure is read, else the net as it is."""
        model = self.model(room, state)
        if self.is_due(round):
            fit(
                model,
                room,
                cross_entropy,
                replace(self.training, epochs=self.fine_tuning_epochs),
                key=round.key / "room" / room.name / "fine-tuning",
            )
        return model


@dataclass(frozen=True)
class WiFederated(FineTuned, FedAvg):
    """FedAvg with a fine-tuned copy at the end."""

    name: ClassVar[str] = "wifederated"
    title: ClassVar[str] = "WiFederated"
    citation: ClassVar[str] = "Hernandez and Bulut, IEEE IoT Journal 2022"
    paper: ClassVar[str] = "WiFederated"
    year: ClassVar[int] = 2022
    group: ClassVar[Group] = "paper"
    control: ClassVar[str] = "local-more-epochs"
    look: ClassVar[int | None] = 4

    def alternatives(self, room: Room, state: RoomState, round: Round) -> Mapping[str, Model]:
        """The merged net, beside its fine-tuned copy: what those epochs gave."""
        return {"merged": self.model(room, state)} if self.is_due(round) else {}


@dataclass(frozen=True)
class LocalMoreEpochs(FineTuned, Local):
    """Local with equal epochs: Local given the fine-tuning epochs that WiFederated gets."""

    name: ClassVar[str] = "local-more-epochs"
    title: ClassVar[str] = "Local, equal epochs"
    citation: ClassVar[str] = "control"
    group: ClassVar[Group] = "control"
    look: ClassVar[int | None] = 8  # grey: a black bar hides its whisker
