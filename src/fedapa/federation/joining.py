"""Rooms that join finished federations: each trains alone, from what that server has for it.

A new room gets what the server would send it, trains on its own windows and uploads; the server's
answer to that is for this room alone. The others are not asked again, and nobody hears of the new
room: its copy of the server goes with it. So where weights are averaged, the average over those who
take part is the room's own net, which is "FedAvg, then some rounds at home"; where prototypes are
mixed, the sets of the others stay as they were.

Several rooms may join in one run, each another federation: that is how a study leaves out one room
after the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, cast

from fedapa.algorithms.algorithm import Algorithm, Form, Payload, Roster, Round, ServerState
from fedapa.algorithms.local import Local
from fedapa.errors import PlanError, RosterError
from fedapa.federation import cohort, run_files
from fedapa.federation.checkpoint import Checkpoint
from fedapa.federation.plan import Plan
from fedapa.federation.rounds import cards_of
from fedapa.payload import Array, Tree
from fedapa.randomness import Key
from fedapa.rooms.card import RoomCard

__all__ = ["Joining", "can_be_joined", "joining"]


@dataclass(frozen=True)
class Joining(Algorithm):
    """The server half of an algorithm, once for every room that joins."""

    name: ClassVar[str] = "joining"
    title: ClassVar[str] = "Joining"
    travels: ClassVar[str] = "as in the federation that is joined"
    citation: ClassVar[str] = "our own"
    several_tasks: ClassVar[bool] = True

    inner: Algorithm = field(default_factory=Algorithm)
    """The algorithm of the federations."""
    servers: Mapping[str, ServerState] = field(default_factory=dict)
    """room → the server's state of the federation that it joins."""
    members: Mapping[str, Mapping[str, RoomCard]] = field(default_factory=dict)
    """room → the cards of the rooms of that federation."""

    def open(self, roster: Roster, key: Key) -> ServerState:
        """Each federation with its new room."""
        state: ServerState = {}
        for card in roster:
            state = self.admit(state, card)
        if unknown := sorted(set(self.servers) - {card.name for card in roster}):
            raise RosterError(
                f"joins: there is no room '{unknown[0]}' in the data; leave it out, or correct it"
            )
        return state

    def admit(self, state: ServerState, card: RoomCard) -> ServerState:
        """A room comes with its federation; refuses one that has none, or another one's classes."""
        if card.name not in self.servers:
            raise RosterError(
                f"room '{card.name}' joins no federation; name one in joins, or leave the room out"
            )
        members = self.members[card.name]
        if card.name in members:
            raise RosterError(
                f"room '{card.name}' is in the federation already that it wants to join; rename it"
            )
        cohort.check_tasks(self.inner, [card])
        cohort.check_labels(card, next(iter(members.values())))
        return {**state, card.name: self.inner.admit(self.servers[card.name], card)}

    def dismiss(self, state: ServerState, room: str) -> ServerState:
        """Its federation goes with a room."""
        return {name: server for name, server in state.items() if name != room}

    def download(self, state: ServerState, room: str, round: Round) -> Payload:
        """What its federation has for a room."""
        return self.inner.download(cast(ServerState, state[room]), room, round)

    def uploads(self, card: RoomCard, round: Round) -> Mapping[str, Form]:
        """As in the federation that is joined."""
        return self.inner.uploads(card, round)

    def merge(
        self, state: ServerState, uploads: Mapping[str, Payload], round: Round
    ) -> ServerState:
        """Each upload is merged in the federation of its room, by itself."""
        merged = {
            room: self.inner.merge(cast(ServerState, state[room]), {room: upload}, round)
            for room, upload in uploads.items()
        }
        return {**state, **merged}

    def sets(self, state: ServerState) -> tuple[Array, Array] | None:
        """Rooms of different federations are not compared."""
        return None


def can_be_joined(kind: type[Algorithm]) -> bool:
    """Whether there is a federation to join: where nothing travels, or all windows do, is none."""
    return kind.travels != Local.travels and not kind.pools and not kind.pools_in_turn


def joining(plan: Plan) -> Algorithm:
    """The server half for a plan: its algorithm, or that of the federations that rooms join."""
    algorithm = plan.build()
    if not plan.joins:
        return algorithm
    if not can_be_joined(type(algorithm)):
        raise PlanError(
            f"joins: {algorithm.title} is no federation that a room could join; leave joins out"
        )
    states = {room: _finished(Path(folder), plan) for room, folder in plan.joins.items()}
    return Joining(
        training=plan.training,
        inner=algorithm,
        servers={room: cast(ServerState, state["server"]) for room, state in states.items()},
        members={room: cards_of(state) for room, state in states.items()},
    )


def _finished(folder: Path, plan: Plan) -> Tree:
    """The last state of a finished run, which had the same algorithm."""
    if not (folder / "summary.json").is_file():
        raise PlanError(f"{folder}: holds no finished run to join; finish it, or name another")
    theirs = run_files.read_plan(folder)
    if theirs.algorithm["name"] != plan.algorithm["name"]:
        raise PlanError(
            f"{folder}: was run with {theirs.algorithm['name']}, who joins with "
            f"{plan.algorithm['name']}; use the same algorithm"
        )
    if theirs.joins:
        raise PlanError(
            f"{folder}: its rooms joined a federation, each for itself; join that one "
            f"({next(iter(theirs.joins.values()))})"
        )
    state = Checkpoint(folder / "checkpoint").load()
    if state is None:
        raise PlanError(f"{folder}: its checkpoint is missing, so nobody can join; run it again")
    return state
