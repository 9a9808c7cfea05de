"""Ablations: settings of an algorithm that comparisons call by a name of their own.

Each is a subclass that fixes a setting or two: the same file does the work, and a plan that says
``algorithm = "fedapa-self"`` can still change every other setting.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from fedapa.algorithms.algorithm import RoomState, Round
from fedapa.algorithms.fedapa import FedAPA
from fedapa.algorithms.fedpcl import FedPCL
from fedapa.algorithms.fedproto import FedProto
from fedapa.algorithms.fine_tuning import fine_tune, is_due
from fedapa.algorithms.local import Local
from fedapa.learning.fit import PositiveInteger
from fedapa.models.model import Model
from fedapa.rooms.room import Room

__all__ = [
    "AveragePrototypes",
    "AverageWithClients",
    "FedPCLSelf",
    "FedProtoSelf",
    "FixedWeight",
    "LocalMoreEpochs",
    "MixtureOnly",
    "SelfPrototypes",
]


@dataclass(frozen=True)
class AveragePrototypes(FedAPA):
    """Global Avg. Proto: FedAPA with one plain mean for all rooms, and without L_c."""

    name: ClassVar[str] = "fedapa-average"
    title: ClassVar[str] = "Global average prototypes"
    travels: ClassVar[str] = "class prototypes up, their mean down"

    mixture: Literal["average"] = "average"
    """Fixed: what makes this variant."""
    peers: Literal["none"] = "none"
    """Fixed: what makes this variant."""


@dataclass(frozen=True)
class AverageWithClients(FedAPA):
    """Global Avg. Proto with Client Protos: FedAPA with one plain mean for all rooms, and L_c."""

    name: ClassVar[str] = "fedapa-average-clients"
    title: ClassVar[str] = "Global average with client prototypes"
    travels: ClassVar[str] = "class prototypes up; their mean and the peers' sets down"

    mixture: Literal["average"] = "average"
    """Fixed: what makes this variant."""


@dataclass(frozen=True)
class MixtureOnly(FedAPA):
    """APA without L_c: FedAPA with its mixture alone; the cell that the paper's table lacks."""

    name: ClassVar[str] = "fedapa-mixture"
    title: ClassVar[str] = "APA without client prototypes"
    travels: ClassVar[str] = "class prototypes up, the room's mixture down"

    peers: Literal["none"] = "none"
    """Fixed: what makes this variant."""


@dataclass(frozen=True)
class SelfPrototypes(FedAPA):
    """Self-prototypes: FedAPA's losses fed with the room's own prototypes; nothing is exchanged."""

    name: ClassVar[str] = "fedapa-self"
    title: ClassVar[str] = "Self-prototypes"
    travels: ClassVar[str] = "nothing"
    citation: ClassVar[str] = "control"

    mixture: Literal["own"] = "own"
    """Fixed: what makes this variant."""


@dataclass(frozen=True)
class FedProtoSelf(FedProto):
    """FedProto alone: FedProto's distance to the room's own prototypes; nothing is exchanged."""

    name: ClassVar[str] = "fedproto-self"
    title: ClassVar[str] = "FedProto alone"
    travels: ClassVar[str] = "nothing"
    citation: ClassVar[str] = "control"

    mixture: Literal["own"] = "own"
    """Fixed: what makes this variant."""


@dataclass(frozen=True)
class FedPCLSelf(FedPCL):
    """FedPCL alone: FedPCL's contrasts with the room's own prototypes; nothing is exchanged."""

    name: ClassVar[str] = "fedpcl-self"
    title: ClassVar[str] = "FedPCL alone"
    travels: ClassVar[str] = "nothing"
    citation: ClassVar[str] = "control"

    mixture: Literal["own"] = "own"
    """Fixed: what makes this variant."""


@dataclass(frozen=True)
class FixedWeight(FedAPA):
    """Fixed λ: FedAPA without warm-up, λ = maximum from the start (the paper: 0.1, 0.5, 1)."""

    name: ClassVar[str] = "fedapa-fixed"
    title: ClassVar[str] = "FedAPA, fixed λ"

    warm_rounds: Literal[0] = 0
    """Fixed: what makes this variant."""


@dataclass(frozen=True)
class LocalMoreEpochs(Local):
    """Local with equal epochs: Local given the fine-tuning epochs that WiFederated gets."""

    name: ClassVar[str] = "local-more-epochs"
    title: ClassVar[str] = "Local, equal epochs"
    plans_ahead: ClassVar[bool] = True

    fine_tuning_epochs: PositiveInteger = 10
    """Epochs that a copy is trained further before it is scored, where WiFederated's would be."""

    def deploy(self, room: Room, state: RoomState, round: Round) -> Model:
        """The room's net; where a figure is read, a copy of it that was trained further."""
        model = self.model(room, state)
        if is_due(round):
            fine_tune(self, room, model, epochs=self.fine_tuning_epochs, round=round)
        return model
