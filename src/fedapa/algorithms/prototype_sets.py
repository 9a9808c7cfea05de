"""What algorithms that exchange prototypes share: each room's set at the server, and its making.

The server keeps the last set of every room, which classes are real in it, the samples behind them
and its age; a room that sits out keeps its set. Absent rows do not travel.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fedapa.algorithms.algorithm import (
    Algorithm,
    Form,
    Payload,
    Report,
    RoomState,
    Roster,
    Round,
    ServerState,
)
from fedapa.errors import RosterError
from fedapa.evaluation.theory import THEORY
from fedapa.learning.diagnosis import (
    Penalty,
    Seen,
    descended,
    gradient_epoch,
    gradient_terms,
)
from fedapa.learning.fit import Objective, PositiveInteger
from fedapa.learning.prototypes import class_prototypes, mean_prototypes
from fedapa.models.model import Model, unit
from fedapa.payload import Array
from fedapa.randomness import Key
from fedapa.rooms.card import RoomCard
from fedapa.rooms.room import Room

__all__ = [
    "Floats",
    "Mask",
    "PrototypeExchange",
    "admit_set",
    "average_sets",
    "dismiss_set",
    "full_set",
    "heard_sets",
    "is_heard",
    "measure",
    "open_sets",
    "sample_shares",
    "set_forms",
    "stored_sets",
    "take_in",
]

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class PrototypeExchange(Algorithm):
    """Rooms upload their sets and get back what the server makes of all of them.

    FedProto, FedPCL and FedAPA start from here; the defaults keep every set and their plain mean.
    """

    minimum_samples: PositiveInteger = 1
    """Train windows behind a prototype, at least; classes with fewer are not uploaded."""

    mixture: Literal["adaptive", "average", "own"] = "average"
    """What a room learns from; each algorithm says which of them it has."""

    @property
    def is_alone(self) -> bool:
        """Whether a room learns from its own set only, so that nothing travels."""
        return self.mixture == "own"

    def open(self, roster: Roster, key: Key) -> ServerState:
        """Nobody has uploaded yet."""
        return open_sets(roster, self.title)

    def uploads(self, card: RoomCard, round: Round) -> Mapping[str, Form]:
        """The room's set, unless every room keeps to itself."""
        return {} if self.is_alone else set_forms(card)

    def merge(
        self, state: ServerState, uploads: Mapping[str, Payload], round: Round
    ) -> ServerState:
        """The sets that came, the last ones of rooms that were absent, and their mean."""
        return state if self.is_alone else self.mixed(take_in(state, uploads))

    def admit(self, state: ServerState, card: RoomCard) -> ServerState:
        """A row for the room's set, which nobody has heard of yet."""
        return self.mixed(admit_set(state, card, self.title))

    def dismiss(self, state: ServerState, room: str) -> ServerState:
        """Its set goes with the room."""
        return self.mixed(dismiss_set(state, room))

    def mixed(self, state: ServerState) -> ServerState:
        """The state with what the server makes of the sets in it; of no set it makes nothing."""
        return average_sets(state)

    def explain(self, state: ServerState) -> dict[str, float | Array]:
        """How old each room's set is, where there are any."""
        return {} if self.is_alone else {"age": cast(Array, state["age"])}

    def sets(self, state: ServerState) -> tuple[Array, Array] | None:
        """P and its mask, unless every room keeps to itself."""
        return None if self.is_alone else stored_sets(state)

    # ---- what the theory speaks of (learning/diagnosis.py, docs/theory.md) ----------------------

    def mixtures(self, state: ServerState) -> Floats | None:
        """Q [N, C, D], what each room gets of the sets, where there is any; here their mean."""
        if "mean" not in state:
            return None
        mean, (prototypes, _) = cast(Floats, state["mean"]), stored_sets(state)
        return np.broadcast_to(mean, prototypes.shape)

    def movement(self, before: ServerState, after: ServerState) -> dict[str, float]:
        """‖P_t − P_{t−1}‖ and ‖Q_t − Q_{t−1}‖ over the rows that rooms held both times."""
        if self.is_alone or before["rooms"] != after["rooms"]:
            return {}
        old, new = self.mixtures(before), self.mixtures(after)
        (was, held), (now, holds) = stored_sets(before), stored_sets(after)
        both = held & holds  # (N, C)
        told = {"prototypes_moved": _distance(was[both], now[both])}
        if old is not None and new is not None:
            told["mixtures_moved"] = _distance(old[both], new[both])
        return told if both.any() else {}

    def penalty(self, room: Room, state: RoomState, round: Round) -> Penalty | None:
        """λ_t and Φ of this round, with what the server sent; none where it sent nothing yet."""
        return None

    def diagnosed(
        self,
        room: Room,
        state: RoomState,
        round: Round,
        *,
        model: Model,
        seen: tuple[Tensor, Tensor],
        objective: Objective,
    ) -> tuple[RoomState, Report]:
        """What a round's training did, where that is asked for: what to keep, what to report.

        Args:
            room: who trained.
            state: from before the training, with what the server sent.
            round: says whether and what to measure.
            model: the net after it.
            seen: the embeddings of the train windows by that net, and their labels.
            objective: what was minimised.
        """
        if round.diagnose is None:  # what an earlier round kept is of another net from now on
            return ({"diagnosis": {}} if "diagnosis" in state else {}), {}
        last = cast(RoomState | None, state.get("diagnosis")) or None
        kept, told = descended(last, Seen.by(model, *seen), self.penalty(room, state, round))
        if round.diagnose and (round.number - 1) % round.diagnose == 0:
            key = round.key / "room" / room.name / "diagnosis"
            at_start, at_end = (
                gradient_epoch(net, room.batches(self.training.batch_size, key), objective)
                for net in (self.model(room, state), model)
            )
            told |= gradient_terms(at_start, at_end)
        return {"diagnosis": kept}, {f"{THEORY}{name}": value for name, value in told.items()}

    def receive(self, room: Room, state: RoomState, download: Payload, round: Round) -> RoomState:
        """Keep what the server sent; the losses of this round are measured against it."""
        return {**state, **download}


def _distance(one: Floats, other: Floats) -> float:
    """‖one − other‖_F."""
    apart = other.astype(np.float64) - one
    return float(np.sqrt(np.square(apart).sum()))  # numpy's norm would take every core for it


def open_sets(roster: Roster, title: str) -> ServerState:
    """The state before anybody has uploaded; refuses rooms whose embeddings cannot be compared."""
    first = roster[0]
    for card in roster:
        _refuse_unequal(card, title, first.name, first.classes, first.width)
    rooms = len(roster)
    return {
        "rooms": {name: index for index, name in enumerate(sorted(card.name for card in roster))},
        "prototypes": np.zeros((rooms, first.classes, first.width), np.float32),
        "counts": np.zeros((rooms, first.classes), np.int64),
        "present": np.zeros((rooms, first.classes), bool),
        "age": np.full(rooms, -1, np.int64),  # rounds since the last upload; −1 never
    }


def _refuse_unequal(card: RoomCard, title: str, other: str, classes: int, width: int) -> None:
    if (card.classes, card.width) != (classes, width):
        raise RosterError(
            f"{title} compares embeddings: {card.name} has {card.classes} classes and width "
            f"{card.width}, {other} {classes} and {width}; give all rooms one class list and one "
            "width"
        )


_ROWS = ("prototypes", "counts", "present", "age")
"""What has a row for each room, sorted by name."""


def admit_set(state: ServerState, card: RoomCard, title: str) -> ServerState:
    """The state with an empty row for one more room."""
    rooms = sorted(cast(Mapping[str, int], state["rooms"]))
    prototypes = cast(Floats, state["prototypes"])
    _refuse_unequal(card, title, rooms[0] if rooms else "the run", *prototypes.shape[1:])
    names = sorted([*rooms, card.name])
    place = names.index(card.name)
    rows = {name: np.insert(cast(Array, state[name]), place, 0, axis=0) for name in _ROWS}
    rows["age"][place] = -1
    return {**state, **rows, "rooms": {name: index for index, name in enumerate(names)}}


def dismiss_set(state: ServerState, room: str) -> ServerState:
    """The state without a room's row."""
    rooms = cast(Mapping[str, int], state["rooms"])
    rows = {name: np.delete(cast(Array, state[name]), rooms[room], axis=0) for name in _ROWS}
    names = sorted(set(rooms) - {room})
    return {**state, **rows, "rooms": {name: index for index, name in enumerate(names)}}


def take_in(state: ServerState, uploads: Mapping[str, Payload]) -> ServerState:
    """The sets that came in place of the old ones; all others one round older."""
    rooms = cast(Mapping[str, int], state["rooms"])
    prototypes = np.array(cast(Floats, state["prototypes"]))
    present = np.array(cast(Mask, state["present"]))
    counts = np.array(cast(Array, state["counts"]))
    age = np.array(cast(npt.NDArray[np.int64], state["age"]))
    age[age >= 0] += 1
    for room in sorted(uploads):
        index, upload = rooms[room], uploads[room]
        held = cast(Mask, upload["present"])
        present[index] = held
        prototypes[index] = 0.0
        prototypes[index, held] = cast(Floats, upload["prototypes"])
        if "counts" in upload:
            counts[index] = cast(Array, upload["counts"])
        age[index] = 0
    return {
        **state,
        "prototypes": prototypes,
        "present": present,
        "counts": counts,
        "age": age,
    }


def average_sets(state: ServerState) -> ServerState:
    """The state with the mean p̄ [C, D] of its sets and the classes that anybody holds [C]."""
    if not is_heard(state):
        return {name: value for name, value in state.items() if name not in ("mean", "known")}
    mean = mean_prototypes(*stored_sets(state))
    return {**state, "mean": mean, "known": np.any(cast(Mask, state["present"]), axis=0)}


def is_heard(state: ServerState) -> bool:
    """Whether any room that is here has ever uploaded its set."""
    return bool((cast(npt.NDArray[np.int64], state["age"]) >= 0).any())


def heard_sets(state: ServerState, *, apart_from: str) -> Mask:
    """[N], the rooms that ever uploaded, without the one that asks: it has its own set."""
    heard: Mask = cast(npt.NDArray[np.int64], state["age"]) >= 0
    heard[cast(Mapping[str, int], state["rooms"])[apart_from]] = False
    return heard


def stored_sets(state: ServerState) -> tuple[Floats, Mask]:
    """P [N, C, D] and its mask [N, C]."""
    return cast(Floats, state["prototypes"]), cast(Mask, state["present"])


def measure(
    room: Room,
    seen: tuple[Tensor, Tensor],
    *,
    minimum_samples: int = 1,
    unit_length: bool = False,
    with_counts: bool = False,
) -> tuple[RoomState, Payload]:
    """A room's prototypes over its train windows, model in eval mode (eqn_4).

    Args:
        room: whose windows.
        seen: their embeddings [n, D] and labels [n], as ``Room.embeddings`` gives them.
        minimum_samples: windows behind a prototype, at least.
        unit_length: average embeddings scaled to length one.
        with_counts: upload the number of windows behind each prototype too.

    Returns:
        What the room keeps, ``own`` [classes held, D] and ``own_present`` [C], and what it uploads.
    """
    embeddings, labels = seen
    values = unit(embeddings) if unit_length else embeddings
    means, counts = class_prototypes(values.cpu(), labels.cpu(), room.outputs)
    present = (counts >= minimum_samples).numpy()
    own = means.numpy()[present]
    upload = {"prototypes": own, "present": present}
    if with_counts:
        # Of what is not sent nothing is told.
        upload["counts"] = np.where(present, counts.numpy(), 0)
    return {"own": own, "own_present": present}, upload


def set_forms(card: RoomCard, *, with_counts: bool = False) -> dict[str, Form]:
    """The forms of what ``measure`` uploads: the real rows, which they are, samples behind them."""
    forms = {
        "prototypes": Form(("present", card.width)),
        "present": Form((card.classes,), ("bool",)),
    }
    if with_counts:
        forms["counts"] = Form(
            (card.classes,),
            ("int64",),
            least=0,
            most=card.windows,
            together=card.windows * (1 + len(card.further)),  # a window has a label a task
            where="present",
        )
    return forms


def full_set(state: RoomState, otherwise: Floats) -> Floats:
    """The room's own set [C, D] with the classes that it does not hold from ``otherwise``."""
    own = np.array(otherwise)
    own[cast(Mask, state["own_present"])] = cast(Floats, state["own"])
    return own


def sample_shares(drawn: int, *, of: int) -> Floats:
    """How much each set counts in L_c of a uniform sample of peers: [k + 1], the room's own last.

    With N − 1 peers the own set has 1/N, as over all, and each of the k drawn (N − 1)/(N·k): a peer
    is drawn with probability k/(N − 1), so that its share is 1/N on average and the estimate of
    L_c has no bias (docs/equations.md).
    """
    rooms = of + 1  # N
    return np.array([*[of / (rooms * drawn)] * drawn, 1 / rooms], np.float32)
