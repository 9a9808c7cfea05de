"""What fits once: the base of the models without SGD, which every room has for itself.

A room fits in the first round that it trains in, to its own train windows, and answers alike ever
after. Before, all classes that it holds are as probable. Unlike Local there is no net to start
from: what is fitted depends on the room and the run's seed, not on the round.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
import torch

from fedapa.algorithms.algorithm import (
    Algorithm,
    Dimensions,
    Payload,
    Report,
    RoomState,
    Roster,
    Round,
    ServerState,
)
from fedapa.errors import RosterError
from fedapa.learning.tree import NamedArrays, weights_of
from fedapa.models.model import Counter
from fedapa.payload import Array
from fedapa.randomness import Key
from fedapa.rooms.card import RoomCard
from fedapa.rooms.room import Room

__all__ = ["FitOnce", "held_classes"]

_LEAST = 1e-12
"""A probability below it counts as this in the loss, which stays finite."""


@dataclass(frozen=True)
class FitOnce(Algorithm, ABC):
    """Subclasses say what is fitted, what answers before, and how it is made of its arrays."""

    deploys_by_state: ClassVar[bool] = True
    travels: ClassVar[str] = "nothing"
    needs_features: ClassVar[bool] = True
    fits_once: ClassVar[bool] = True

    @abstractmethod
    def fitted(self, room: Room, key: Key) -> Counter:
        """What the room's train windows give."""

    @abstractmethod
    def unfitted(self, room: Room) -> Counter:
        """What answers before: every class that the room holds alike."""

    @abstractmethod
    def restored(self, arrays: NamedArrays) -> Counter:
        """What had these arrays (``state_dict``)."""

    def sends(self, sizes: Dimensions) -> tuple[str, int] | None:
        """Nothing."""
        return "0", 0

    def work(self, rounds: int) -> int:
        """As much as an epoch, whatever the rounds."""
        return 1

    def open(self, roster: Roster, key: Key) -> ServerState:
        """Refuses rooms of packets."""
        for card in roster:
            self.admit({}, card)
        return {}

    def admit(self, state: ServerState, card: RoomCard) -> ServerState:
        """Refuses a room of packets."""
        if len(card.window_shape) > 1:
            shape = " × ".join(map(str, card.window_shape))
            raise RosterError(
                f"{self.title} counts from numbers, not packets: room '{card.name}' has windows of "
                f'{shape}; use data.view = "statistics"'
            )
        return state

    def join(self, room: Room, key: Key) -> RoomState:
        """Nothing is fitted yet, which the missing loss says."""
        return {"counter": weights_of(self.unfitted(room)), "loss": None}

    def deploy(self, room: Room, state: RoomState, round: Round) -> Counter:
        """What was fitted."""
        return self.restored(cast(NamedArrays, state["counter"])).to(room.device)

    def train(
        self, room: Room, state: RoomState, round: Round
    ) -> tuple[RoomState, Payload, Report]:
        """Fit, if that was not done yet; the loss is that of the train windows afterwards."""
        if state["loss"] is None:
            # Not the round's stream: a room that joins late fits what it would have fitted.
            key = Key(round.key.seed) / "room" / room.name / "fit"
            counter = self.fitted(room, key).to(room.device)
            state = {**state, "counter": weights_of(counter), "loss": _loss(room, counter)}
        return state, {}, {"loss": cast(float, state["loss"])}


def held_classes(room: Room) -> Array:
    """[C] which classes the room has train windows of."""
    return np.isin(np.arange(len(room.classes)), room.held)


@torch.no_grad()
def _loss(room: Room, counter: Counter) -> float:
    """The mean cross-entropy of the train windows."""
    counter.eval()
    true = [
        counter.probabilities(windows).gather(1, labels[:, None])  # (B, 1)
        for windows, labels in room.inspect("train")
    ]
    return float(-torch.cat(true).double().clamp_min(_LEAST).log().mean())
