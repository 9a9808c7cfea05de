"""FedAvg: rooms train the shared weights, the server averages them by number of train windows.

w ← Σ n_i w_i / Σ n_i over the participants. BatchNorm statistics are averaged like weights: a model
whose running statistics come from nowhere predicts nonsense. With unequal nets, ``sharing`` says
what is averaged with what. L = CE; a room is scored with the merged net. The other algorithms that
average weights start from this file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import numpy as np

from fedapa.algorithms.algorithm import (
    Algorithm,
    Dimensions,
    Form,
    Group,
    Payload,
    Report,
    RoomState,
    Roster,
    Round,
    ServerState,
)
from fedapa.errors import PayloadError, RosterError
from fedapa.learning.fit import Objective, cross_entropy
from fedapa.learning.tree import NamedArrays, weighted_mean
from fedapa.payload import Array, Tree
from fedapa.randomness import Key
from fedapa.rooms.card import RoomCard
from fedapa.rooms.room import Room

__all__ = ["FedAvg", "by_slot", "weights_form"]

_MOST_BATCHES = 2**53
"""Beyond it a mean of whole numbers is not exact, and a BatchNorm has never counted so far."""


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """w ← Σ n_i w_i / Σ n_i over the participants, slot by slot."""

    name: ClassVar[str] = "fedavg"
    title: ClassVar[str] = "FedAvg"
    travels: ClassVar[str] = "all weights and BatchNorm statistics"
    citation: ClassVar[str] = "McMahan et al., AISTATS 2017"
    paper: ClassVar[str] = (
        "Communication-Efficient Learning of Deep Networks from Decentralized Data"
    )
    year: ClassVar[int] = 2017
    group: ClassVar[Group] = "paper"
    look: ClassVar[int | None] = 3
    averages_weights: ClassVar[bool] = True
    several_tasks: ClassVar[bool] = True

    sharing: Literal["architecture", "matching", "head", "all"] = "architecture"
    """What is averaged with what: whole nets of equal architecture; every array of equal name and
    shape; the classifier alone; or whole nets of all rooms, refused where shapes differ."""

    def sends(self, sizes: Dimensions) -> tuple[str, int] | None:
        """Every parameter up and down."""
        return "2·Σw", 2 * sizes.parameters

    # ---- what the algorithms that start from here override -----------------------------------

    @property
    def shares_more(self) -> bool:
        """Whether rooms that have no array in common still have something to exchange."""
        return False

    @property
    def averages_across_nets(self) -> bool:
        """In every sharing but that of whole nets of one architecture."""
        return self.sharing != "architecture"

    def arrays(self, card: RoomCard) -> Mapping[str, tuple[int, ...]]:
        """The arrays of the net that a room trains, by name."""
        return card.shapes

    def private(self, card: RoomCard) -> frozenset[str]:
        """The arrays that never leave a room."""
        return frozenset()

    def check(self, card: RoomCard) -> None:
        """Refuse a room that cannot be served, whoever its peers are."""

    def influence(self, uploads: Mapping[str, Payload]) -> dict[str, float]:
        """The weight of each participant in the mean: n_i."""
        return {room: float(cast(int, upload["windows"])) for room, upload in uploads.items()}

    def objective(self, room: Room, state: RoomState, round: Round) -> Objective:
        """What a room minimises."""
        return cross_entropy

    # ---- server half ------------------------------------------------------------------------

    def open(self, roster: Roster, key: Key) -> ServerState:
        """Who shares which array with whom: a slot for each (room, array)."""
        slots: dict[str, dict[str, str]] = {}
        shapes: dict[str, str] = {}
        for card in roster:
            self._share(slots, shapes, card)
        partners = _partners(slots)
        if len(slots) > 1 and not partners.any() and not self.shares_more:
            first, second = sorted(slots)[:2]
            raise RosterError(
                f"{self.title} with sharing = '{self.sharing}' averages nothing here: no array of "
                f"{first} is shared with {second} or any other room; use another "
                "sharing, equal nets, or algorithm = 'fedapa'"
            )
        return {"slots": slots, "shapes": shapes, "partners": partners, "merged": {}}

    def admit(self, state: ServerState, card: RoomCard) -> ServerState:
        """Slots for one more room; it starts from what is merged in them."""
        slots = {**cast(dict[str, dict[str, str]], state["slots"])}
        shapes = {**cast(dict[str, str], state["shapes"])}
        self._share(slots, shapes, card)
        return {**state, "slots": slots, "shapes": shapes, "partners": _partners(slots)}

    def dismiss(self, state: ServerState, room: str) -> ServerState:
        """The slots of the rooms that stay, and what is merged in them."""
        slots = {**cast(dict[str, dict[str, str]], state["slots"])}
        del slots[room]
        held = {slot for names in slots.values() for slot in names.values()}
        kept = {
            name: {slot: value for slot, value in cast(Tree, state[name]).items() if slot in held}
            for name in ("shapes", "merged")
        }
        return {**state, **kept, "slots": slots, "partners": _partners(slots)}

    def _share(
        self, slots: dict[str, dict[str, str]], shapes: dict[str, str], card: RoomCard
    ) -> None:
        """Give a room its slots beside those that are taken; refuses nets that do not fit."""
        self.check(card)
        mine = self._slots(card)
        given = {name: str(tuple(shape)) for name, shape in self.arrays(card).items()}
        if self.sharing == "all" and slots:
            first = min(slots)
            theirs = {name: shapes[slot] for name, slot in slots[first].items()}
            for name in sorted({*theirs, *mine}):
                if (own := given[name] if name in mine else None) != theirs.get(name):
                    raise RosterError(
                        f"{self.title} with sharing = 'all' needs equal shapes: {card.name}'s "
                        f"{name} is {own or 'absent'}, {first}'s is {theirs.get(name, 'absent')}; "
                        "use sharing = 'architecture' or algorithm = 'fedapa'"
                    )
        for name, slot in mine.items():
            # Nets of one name may still differ, e.g. by their number of features.
            if shapes.setdefault(slot, given[name]) != given[name]:
                owner = next(room for room in sorted(slots) if slot in slots[room].values())
                raise RosterError(
                    f"{self.title} with sharing = '{self.sharing}': {card.name}'s {name} is "
                    f"{given[name]}, {owner}'s is {shapes[slot]}; use sharing = 'matching' or "
                    "algorithm = 'fedapa'"
                )
        slots[card.name] = mine

    def _slots(self, card: RoomCard) -> dict[str, str]:
        """Array name → slot; arrays in one slot are averaged."""
        shapes, kept = self.arrays(card), self.private(card)
        names = sorted(name for name in shapes if name not in kept)
        if self.sharing == "architecture":
            return {name: f"{card.architecture} {name}" for name in names}
        if self.sharing == "head":
            names = [name for name in names if name.startswith("classifier.")]
        return {name: f"{name} {'x'.join(map(str, shapes[name]))}" for name in names}

    def download(self, state: ServerState, room: str, round: Round) -> Payload:
        """The merged arrays of this room's slots, once there are any."""
        merged = cast(NamedArrays, state["merged"])
        slots = cast(Mapping[str, str], cast(Tree, state["slots"])[room])
        weights = {name: merged[slot] for name, slot in slots.items() if slot in merged}
        return {"weights": weights} if weights else {}

    def uploads(self, card: RoomCard, round: Round) -> Mapping[str, Form]:
        """The shared arrays and n_i, which the card tells."""
        shapes = self.arrays(card)
        return {
            **{f"weights/{name}": weights_form(name, shapes[name]) for name in self._slots(card)},
            "windows": Form(least=card.windows, most=card.windows, counted=True),
        }

    def merge(
        self, state: ServerState, uploads: Mapping[str, Payload], round: Round
    ) -> ServerState:
        """The weighted mean of each slot; slots of absent rooms stay as they are."""
        merged = dict(cast(NamedArrays, state["merged"]))
        influence = self.influence(uploads)
        for slot, given in by_slot(state, uploads).items():
            merged.update(
                weighted_mean(
                    [{slot: array} for array in given.values()], [influence[room] for room in given]
                )
            )
        return {**state, "merged": merged}

    def explain(self, state: ServerState) -> dict[str, float | Array]:
        """How many peers each room shares something with; 0 is a room that learns alone."""
        return {"partners": cast(Array, state["partners"])}

    # ---- room half ----------------------------------------------------------------------------

    def receive(self, room: Room, state: RoomState, download: Payload, round: Round) -> RoomState:
        """Start from the merged arrays; what is not shared stays the room's own."""
        weights = cast(NamedArrays, download.get("weights", {}))
        return {**state, "model": {**cast(NamedArrays, state["model"]), **weights}}

    def train(
        self, room: Room, state: RoomState, round: Round
    ) -> tuple[RoomState, Payload, Report]:
        """Minimise the objective from the merged weights; upload what is shared and n_i."""
        _, state, report = self.fit(room, state, round, self.objective(room, state, round))
        return state, self.upload(room, state), report

    def upload(self, room: Room, state: RoomState) -> Payload:
        """The shared arrays and n_i."""
        weights = cast(NamedArrays, state["model"])
        shared = {name: np.array(weights[name]) for name in self._slots(room.card)}
        return {"weights": shared, "windows": len(room.split.train)}


def weights_form(name: str, shape: tuple[int, ...]) -> Form:
    """The form of one array of a net.

    What a BatchNorm counts is a whole number, and nothing else is: the mean of an array has the
    dtype of the first room's. A variance below 0 would make the merged net answer NaN. Both are
    known by torch's own names, whatever the card of a room says they are.
    """
    last = name.rpartition(".")[2]
    if last == "num_batches_tracked":
        return Form(tuple(shape), ("int64",), least=0, most=_MOST_BATCHES)
    return Form(tuple(shape), least=0 if last == "running_var" else None)


def by_slot(state: ServerState, uploads: Mapping[str, Payload]) -> dict[str, dict[str, Array]]:
    """Slot → room → array, rooms sorted, so that sums do not depend on who came first."""
    slots = cast(Mapping[str, Mapping[str, str]], state["slots"])
    given: dict[str, dict[str, Array]] = {}
    for room in sorted(uploads):
        weights = cast(NamedArrays, uploads[room]["weights"])
        if set(weights) != set(slots[room]):
            odd = sorted(set(weights).symmetric_difference(slots[room]))[0]
            raise PayloadError(f"upload of room '{room}': '{odd}' is not what it shares")
        for name, slot in slots[room].items():
            given.setdefault(slot, {})[room] = weights[name]
    return given


def _partners(slots: Mapping[str, Mapping[str, str]]) -> Array:
    """[N], for each room in sorted order how many peers have a slot in common with it."""
    kinds = {room: frozenset(slots[room].values()) for room in sorted(slots)}
    members: dict[frozenset[str], int] = {}
    for kind in kinds.values():
        members[kind] = members.get(kind, 0) + 1
    reach = {
        kind: sum(number for other, number in members.items() if kind & other) for kind in members
    }
    return np.asarray([max(0, reach[kind] - 1) for kind in kinds.values()], np.int64)
