"""Pooled: one net on everybody's windows, as if raw data were shared; a control, not federated.

One room holds all train windows (rooms/pool.py) and trains on them; every room is scored with the
resulting net on its own test windows. Unlike FedAvg there is nothing to average. It runs in one
process only, with one architecture and all rooms in every round.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np

from fedapa.algorithms.algorithm import (
    Algorithm,
    Form,
    Group,
    Payload,
    Report,
    RoomState,
    Roster,
    Round,
    ServerState,
)
from fedapa.algorithms.fedavg import weights_form
from fedapa.algorithms.local import Local
from fedapa.errors import RosterError
from fedapa.learning.fit import cross_entropy
from fedapa.learning.tree import NamedArrays
from fedapa.randomness import Key
from fedapa.rooms.card import RoomCard
from fedapa.rooms.room import Room

__all__ = ["Pooled", "PooledNewcomer"]


@dataclass(frozen=True)
class Pooled(Algorithm):
    """What sharing raw data would give."""

    name: ClassVar[str] = "pooled"
    title: ClassVar[str] = "Pooled"
    travels: ClassVar[str] = "every window (a control); the net comes back"
    citation: ClassVar[str] = "control"
    group: ClassVar[Group] = "control"
    look: ClassVar[int | None] = 7
    pools: ClassVar[bool] = True

    def open(self, roster: Roster, key: Key) -> ServerState:
        """Needs one room with everybody's windows, and one net that fits all rooms."""
        holders = [card for card in roster if card.pooled]
        if len(holders) != 1:
            raise RosterError(
                f"Pooled trains on everybody's windows, and {roster[0].name} has only its own: it "
                "runs in one process with all rooms; over a network use algorithm = 'fedavg'"
            )
        state: ServerState = {
            "net": _net(holders[0]),
            "arrays": _arrays(holders[0]),
            "trains": "",
            "merged": {},
        }
        for card in roster:
            state = self.admit(state, card)
        return state

    def admit(self, state: ServerState, card: RoomCard) -> ServerState:
        """One net for all; refuses a room with another."""
        if _arrays(card) != state["arrays"]:
            raise RosterError(
                f"Pooled is one net for all: {card.name} has {_net(card)}, the room that trains "
                f"has {state['net']}; give all rooms one architecture and one class list"
            )
        if card.pooled and state["trains"]:
            raise RosterError(
                f"Pooled trains in one room: {card.name} holds everybody's windows, and so does "
                f"{state['trains']}; use one of the two"
            )
        return {**state, "trains": card.name} if card.pooled else state

    def dismiss(self, state: ServerState, room: str) -> ServerState:
        """The net stays; nobody trains it on where the room that left was the one that does."""
        return {**state, "trains": ""} if room == state["trains"] else state

    def standstill(self, state: ServerState) -> str:
        """The room with everybody's windows may have left."""
        if state["trains"]:
            return ""
        return "the room that trains has left: nobody learns until it is back"

    def download(self, state: ServerState, room: str, round: Round) -> Payload:
        """The net, once it was trained."""
        merged = cast(NamedArrays, state["merged"])
        return {"weights": merged} if merged else {}

    def uploads(self, card: RoomCard, round: Round) -> Mapping[str, Form]:
        """The whole net from the room that trains, nothing from the others."""
        if not card.pooled:
            return {}
        return {f"weights/{name}": weights_form(name, card.shapes[name]) for name in card.shapes}

    def merge(
        self, state: ServerState, uploads: Mapping[str, Payload], round: Round
    ) -> ServerState:
        """The net of the one room that trains."""
        trained = [uploads[room]["weights"] for room in sorted(uploads) if uploads[room]]
        return {**state, "merged": trained[0]} if trained else state

    def receive(self, room: Room, state: RoomState, download: Payload, round: Round) -> RoomState:
        """Take the net over whole."""
        return {**state, "model": download["weights"]} if download else state

    def train(
        self, room: Room, state: RoomState, round: Round
    ) -> tuple[RoomState, Payload, Report]:
        """Cross-entropy over all windows in the room that has them; others have nothing to do."""
        if not room.card.pooled:
            return state, {}, {}
        _, state, report = self.fit(room, state, round, cross_entropy)
        weights = cast(NamedArrays, state["model"])
        return state, {"weights": {name: np.array(weights[name]) for name in weights}}, report


@dataclass(frozen=True)
class PooledNewcomer(Local):
    """Pooled newcomer: each room trains for itself on its own windows and on all of the others'.

    What a room with few labels would have if the others sent it their raw data.
    """

    name: ClassVar[str] = "pooled-newcomer"
    title: ClassVar[str] = "Pooled newcomer"
    travels: ClassVar[str] = "every window, to every room (a control)"
    citation: ClassVar[str] = "control"
    group: ClassVar[Group] = "control"
    pools_in_turn: ClassVar[bool] = True


def _net(card: RoomCard) -> str:
    """A room's net in words."""
    weights = sum(math.prod(shape) for shape in card.shapes.values())
    return f"'{card.architecture}' with {card.classes} classes and {weights:,} weights"


def _arrays(card: RoomCard) -> str:
    """Its arrays, so that they compare."""
    return repr(sorted((name, tuple(shape)) for name, shape in card.shapes.items()))
