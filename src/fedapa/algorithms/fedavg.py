"""FedAvg: rooms train the shared weights, the server averages them by number of train windows.

BatchNorm statistics are averaged like weights: a model whose running statistics come from nowhere
predicts nonsense. With unequal nets, ``sharing`` says what is averaged with what.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import numpy as np

from fedapa.algorithms.algorithm import (
    Algorithm,
    Payload,
    Report,
    RoomState,
    Roster,
    Round,
    ServerState,
)
from fedapa.errors import RosterError
from fedapa.learning.fit import cross_entropy
from fedapa.learning.tree import NamedArrays, weighted_mean
from fedapa.payload import Tree
from fedapa.randomness import Key
from fedapa.rooms.room import Room, RoomCard

__all__ = ["FedAvg"]


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """w ← Σ n_i w_i / Σ n_i over the participants, slot by slot."""

    name: ClassVar[str] = "fedavg"
    title: ClassVar[str] = "FedAvg"
    travels: ClassVar[str] = "all weights and BatchNorm statistics"
    citation: ClassVar[str] = "McMahan et al., AISTATS 2017"

    sharing: Literal["architecture", "matching", "head", "all"] = "architecture"
    """What is averaged with what: whole nets of equal architecture; every array of equal name and
    shape; the classifier alone; or whole nets of all rooms, refused where shapes differ."""

    def open(self, roster: Roster, key: Key) -> ServerState:
        """Who shares which array with whom: a slot for each (room, array)."""
        if self.sharing == "all":
            self._refuse_unequal(roster)
        slots = {card.name: self._slots(card) for card in roster}
        return {"slots": slots, "merged": {}}

    def _slots(self, card: RoomCard) -> dict[str, str]:
        """Array name → slot; arrays in one slot are averaged."""
        names = sorted(card.shapes)
        if self.sharing == "architecture":
            return {name: f"{card.architecture} {name}" for name in names}
        if self.sharing == "head":
            names = [name for name in names if name.startswith("classifier.")]
        return {name: f"{name} {'x'.join(map(str, card.shapes[name]))}" for name in names}

    def _refuse_unequal(self, roster: Roster) -> None:
        first, *others = roster
        for other in others:
            for name in sorted({*first.shapes, *other.shapes}):
                mine, theirs = first.shapes.get(name), other.shapes.get(name)
                if mine != theirs:
                    raise RosterError(
                        f"FedAvg with sharing = 'all' needs equal shapes: {other.name}'s {name} is "
                        f"{theirs or 'absent'}, {first.name}'s is {mine or 'absent'}; use "
                        "sharing = 'architecture' or algorithm = 'fedapa'"
                    )

    def download(self, state: ServerState, room: str, round: Round) -> Payload:
        """The merged arrays of this room's slots, once there are any."""
        merged = cast(NamedArrays, state["merged"])
        slots = cast(Mapping[str, str], cast(Tree, state["slots"])[room])
        found = {name: merged[slot] for name, slot in slots.items() if slot in merged}
        return {"weights": found} if found else {}

    def merge(
        self, state: ServerState, uploads: Mapping[str, Payload], round: Round
    ) -> ServerState:
        """The n_i-weighted mean of each slot; slots of absent rooms stay as they are."""
        slots = cast(Mapping[str, Mapping[str, str]], state["slots"])
        merged = dict(cast(NamedArrays, state["merged"]))
        given: dict[str, list[tuple[float, NamedArrays]]] = {}
        for room in sorted(uploads):
            weights = cast(NamedArrays, uploads[room]["weights"])
            size = float(cast(int, uploads[room]["windows"]))
            for name, slot in slots[room].items():
                given.setdefault(slot, []).append((size, {slot: weights[name]}))
        for pairs in given.values():
            merged.update(weighted_mean([tree for _, tree in pairs], [size for size, _ in pairs]))
        return {**state, "merged": merged}

    def receive(self, room: Room, state: RoomState, download: Payload, round: Round) -> RoomState:
        """Start from the merged arrays; what is not shared stays the room's own."""
        weights = cast(NamedArrays, download.get("weights", {}))
        return {**state, "model": {**cast(NamedArrays, state["model"]), **weights}}

    def train(
        self, room: Room, state: RoomState, round: Round
    ) -> tuple[RoomState, Payload, Report]:
        """Cross-entropy from the merged weights; upload what is shared and n_i."""
        _, state, report = self.fit(room, state, round, cross_entropy)
        weights = cast(NamedArrays, state["model"])
        shared = {name: np.array(weights[name]) for name in self._slots(room.card)}
        return state, {"weights": shared, "windows": len(room.split.train)}, report
