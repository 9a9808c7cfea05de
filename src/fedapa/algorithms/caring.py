"""CARING: FedAvg with two weights, 1 for rooms that do well on validation and 0.3 for the others.

L = CE; w ← Σ a_i w_i / Σ a_i. Unlike FedAvg a room is scored with its net after the local step. The
merged net is scored beside it, as ``merged``: that is what FedAvg's figures are of.

Our choice: the original gives no rule for a_i that we could read; ours: a_i = 1 if the room's
accuracy on its validation windows, after its local step, is at least the mean of the participants',
else 0.3. Where no room has validation windows (``data.validation = 0``), it is that on its train
windows; rooms of both kinds together are refused, since such accuracies do not compare.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np

from fedapa.algorithms.algorithm import (
    Form,
    Group,
    Payload,
    Range,
    Report,
    RoomState,
    Roster,
    Round,
    ServerState,
)
from fedapa.algorithms.fedavg import FedAvg
from fedapa.errors import RosterError
from fedapa.learning.fit import Share
from fedapa.models.model import Model
from fedapa.randomness import Key
from fedapa.rooms.card import RoomCard
from fedapa.rooms.room import Room
from fedapa.windows.split import Part

__all__ = ["Caring"]


@dataclass(frozen=True)
class Caring(FedAvg):
    """w ← Σ a_i w_i / Σ a_i with a_i ∈ {1, low}."""

    name: ClassVar[str] = "caring"
    title: ClassVar[str] = "CARING"
    deploys_by_state: ClassVar[bool] = True
    travels: ClassVar[str] = "all weights and BatchNorm statistics, validation accuracy up"
    citation: ClassVar[str] = "Li et al., IEEE TMC 2024"
    paper: ClassVar[str] = "CARING"
    year: ClassVar[int] = 2024
    group: ClassVar[Group] = "paper"
    needs_validation: ClassVar[bool] = True
    look: ClassVar[int | None] = 5
    remark: ClassVar[str] = (
        "CARING is scored after the local step of each room; CARING (merged) is the net before it, "
        "as FedAvg is scored."
    )

    low: Share = 0.3
    """a_i of rooms below the mean; 1 makes a plain mean over rooms."""

    @classmethod
    def tunables(cls, rounds: int) -> dict[str, Range]:
        """Also a_i of the rooms below the mean."""
        return {**super().tunables(rounds), "algorithm.low": Range(0.05, 1.0, "linear")}

    def open(self, roster: Roster, key: Key) -> ServerState:
        """As FedAvg; refuses rooms of which some have windows to validate on and others none."""
        validates = any(card.validation for card in roster)
        for card in roster:
            self._check_validation(card, validates=validates)
        return {**super().open(roster, key), "validates": validates}

    def admit(self, state: ServerState, card: RoomCard) -> ServerState:
        """As FedAvg; one more room is weighed by what the others are weighed by."""
        self._check_validation(card, validates=bool(state["validates"]))
        return super().admit(state, card)

    def _check_validation(self, card: RoomCard, *, validates: bool) -> None:
        if card.validation and not validates:
            raise RosterError(
                f"CARING weighs rooms by accuracy on train windows here: {card.name} has "
                "validation windows and the others have none; set data.validation = 0 for it, too"
            )
        if validates and not card.validation:
            raise RosterError(
                f"CARING weighs rooms by validation accuracy: {card.name} has no validation "
                "windows; set data.validation above 0 and give the room more recordings, or set "
                "data.validation = 0 for all rooms: then accuracy on train windows weighs them"
            )

    def uploads(self, card: RoomCard, round: Round) -> Mapping[str, Form]:
        """As FedAvg, and the accuracy that weighs the room."""
        return {**super().uploads(card, round), "accuracy": Form(least=0, most=1)}

    def influence(self, uploads: Mapping[str, Payload]) -> dict[str, float]:
        """a_i = 1 where a room's accuracy reaches the participants' mean, else ``low``."""
        if not uploads:
            return {}
        rooms = sorted(uploads)
        accuracy = np.asarray([cast(float, uploads[room]["accuracy"]) for room in rooms])
        # Equal accuracies are all good enough, whatever the rounding of their mean.
        enough = accuracy >= accuracy.mean() - 1e-12
        return {room: 1.0 if good else self.low for room, good in zip(rooms, enough, strict=True)}

    def receive(self, room: Room, state: RoomState, download: Payload, round: Round) -> RoomState:
        """As FedAvg, and the net after the local step is kept to be scored."""
        return {**super().receive(room, state, download, round), "trained": state["model"]}

    def deploy(self, room: Room, state: RoomState, round: Round) -> Model:
        """The net after the room's last local step."""
        return self.model(room, state, net="trained" if "trained" in state else "model")

    def alternatives(self, room: Room, state: RoomState, round: Round) -> Mapping[str, Model]:
        """The net as merged, before the local step: what FedAvg is scored with."""
        return {"merged": self.model(room, state)}

    def train(
        self, room: Room, state: RoomState, round: Round
    ) -> tuple[RoomState, Payload, Report]:
        """As FedAvg, then measure the accuracy on validation windows, or on train windows."""
        state, upload, report = super().train(room, state, round)
        part: Part = "validation" if len(room.split.validation) else "train"
        guess, truth = room.predict(self.model(room, state), part)
        accuracy = float((guess == truth).mean())
        state = {**state, "trained": state["model"]}
        told = {"validation": accuracy} if part == "validation" else {"train_accuracy": accuracy}
        return state, {**upload, "accuracy": accuracy}, {**report, **told}
