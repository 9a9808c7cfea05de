"""Exchanges played by hand: what algorithm tests look into between the steps of a round."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedapa.algorithms.algorithm import Algorithm, Round
from fedapa.learning.fit import Training
from fedapa.randomness import Key
from fedapa.rooms.card import RoomCard
from fedapa.rooms.room import Room

QUICKLY = Training(learning_rate=0.05, batch_size=4)


def round_number(number: int, total: int = 4) -> Round:
    return Round(number, total, Key(0) / "round" / number)


def cards(number: int, classes: int = 2, width: int = 2) -> list[RoomCard]:
    return [RoomCard(f"room {index}", "tiny", 8, classes, width, {}) for index in range(number)]


def prototypes(rows: Sequence[Sequence[float]], present: Sequence[bool]) -> dict[str, Any]:
    """An upload of prototypes: only the rows that are present."""
    return {"prototypes": np.array(rows, np.float32), "present": np.array(present)}


def constants(algorithm: Algorithm, rooms: Sequence[Room]) -> dict[str, Any]:
    """The uploads of a round, with weights of ones, twos … and windows 1, 3 …"""
    uploads = {}
    for number, room in enumerate(rooms):
        _, sent, _ = algorithm.train(room, algorithm.join(room, Key(0)), round_number(1))
        weights = {name: np.full_like(value, number + 1) for name, value in sent["weights"].items()}
        uploads[room.name] = {**sent, "weights": weights, "windows": 2 * number + 1}
    return uploads


@dataclass
class Game:
    """A federation whose every state can be looked at."""

    algorithm: Algorithm
    rooms: Sequence[Room]
    server: Any = None
    states: dict[str, Any] = field(default_factory=dict)
    reports: dict[str, Any] = field(default_factory=dict)
    number: int = 0

    def __post_init__(self) -> None:
        self.server = self.algorithm.open([room.card for room in self.rooms], Key(0))
        self.states = {room.name: self.algorithm.join(room, Key(0)) for room in self.rooms}

    def receive(self) -> None:
        self.number += 1
        now = round_number(self.number)
        for room in self.rooms:
            download = self.algorithm.download(self.server, room.name, now)
            state = self.algorithm.receive(room, self.states[room.name], download, now)
            self.states[room.name] = state

    def train(self) -> None:
        now = round_number(self.number)
        uploads = {}
        for room in self.rooms:
            state, uploads[room.name], self.reports[room.name] = self.algorithm.train(
                room, self.states[room.name], now
            )
            self.states[room.name] = state
        self.server = self.algorithm.merge(self.server, uploads, now)

    def play(self, rounds: int) -> "Game":
        for _ in range(rounds):
            self.receive()
            self.train()
        return self

    def deployed(self, room: Room) -> dict[str, np.ndarray]:
        model = self.algorithm.deploy(room, self.states[room.name], round_number(self.number))
        return {name: value.numpy().copy() for name, value in model.state_dict().items()}
