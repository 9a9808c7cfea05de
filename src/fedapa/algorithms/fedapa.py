"""FedAPA: rooms exchange class prototypes; each gets its own, similarity-weighted mixture of all.

Up: P_i, one mean embedding a class (eqn_4). Down: Q_i, the room's mixture (eqn_5–eqn_7), and the
other rooms' sets. The room minimises L_ce + λ_t (L_g + L_c) (eqn_8–eqn_11). Unlike FedProto the
mixture is personal, not one mean for all; unlike FedAvg no weights travel, so nets may differ.

The server first collects all P, builds Q from the unpadded P, then pads copies: the result does
not depend on the order of rooms. The prototype losses start when real prototypes exist, round 2.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

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
from fedapa.learning.fit import (
    NotNegative,
    NotNegativeInteger,
    Objective,
    Positive,
    PositiveInteger,
    cross_entropy,
)
from fedapa.learning.losses import fedapa_loss
from fedapa.learning.prototypes import (
    EXPLICIT_ROOMS,
    aggregate_prototypes,
    aggregation_weights,
    class_prototypes,
    pad_prototypes,
    weight_entropy,
)
from fedapa.learning.schedule import warm_up
from fedapa.models.model import Model
from fedapa.payload import Array
from fedapa.randomness import Key
from fedapa.rooms.room import Room, RoomCard

__all__ = ["FedAPA"]

_Floats = npt.NDArray[np.float32]
_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class FedAPA(Algorithm):
    """Adaptive prototype aggregation."""

    name: ClassVar[str] = "fedapa"
    title: ClassVar[str] = "FedAPA"
    travels: ClassVar[str] = "class prototypes up; the room's mixture and its peers' sets down"
    citation: ClassVar[str] = "Guo, Mao, Ho: FedAPA"

    temperature: Positive = 0.5
    """τ of the two contrastive losses."""
    aggregation_temperature: Positive = 0.5
    """τ of the aggregation weights; the paper has one τ for both."""
    warm_rounds: NotNegativeInteger = 50
    """T_warm: rounds until λ reaches its maximum."""
    minimum: NotNegative = 0.0
    """λ_min."""
    maximum: NotNegative = 1.0
    """λ_max; 0 turns FedAPA into Local."""
    padding: Literal["uniform", "counts"] = "uniform"
    """How absent classes are filled: a plain mean over their holders, as the equation has it, or
    weighted by samples, as the text says (counts are then uploaded)."""
    include_self: bool = True
    """Whether a room's own prototype takes part in its mixture, as the definition has it."""
    peers: Literal["all", "others"] = "all"
    """Whether L_c runs over all sets, the room's own included as in the equation, or not."""
    minimum_samples: PositiveInteger = 1
    """Train windows behind a prototype, at least; classes with fewer are not uploaded."""

    # ---- server half ------------------------------------------------------------------------

    def open(self, roster: Roster, key: Key) -> ServerState:
        """Nobody has uploaded yet."""
        first = roster[0]
        for card in roster:
            if (card.classes, card.width) != (first.classes, first.width):
                raise RosterError(
                    f"FedAPA compares embeddings: {card.name} has {card.classes} classes and width "
                    f"{card.width}, {first.name} {first.classes} and {first.width}; give all rooms "
                    "one class list and one width"
                )
        rooms, shape = len(roster), (first.classes, first.width)
        return {
            "rooms": {card.name: index for index, card in enumerate(sorted(roster, key=_by_name))},
            "prototypes": np.zeros((rooms, *shape), np.float32),
            "counts": np.zeros((rooms, first.classes), np.int64),
            "present": np.zeros((rooms, first.classes), bool),
            "age": np.full(rooms, -1, np.int64),  # rounds since the last upload; −1 never
        }

    def download(self, state: ServerState, room: str, round: Round) -> Payload:
        """Q_i, and the padded sets of the others; the room has its own already."""
        if "mixture" not in state:
            return {}
        index = cast(Mapping[str, int], state["rooms"])[room]
        heard = cast(npt.NDArray[np.int64], state["age"]) >= 0
        heard[index] = False  # a room never gets its own set back
        return {
            "mixture": cast(_Floats, state["mixture"])[index],
            "clients": cast(_Floats, state["padded"])[heard],
            "known": cast(_Mask, state["present"]).any(axis=0),
        }

    def merge(
        self, state: ServerState, uploads: Mapping[str, Payload], round: Round
    ) -> ServerState:
        """Take in the sets that came, keep the last of rooms that were absent, mix, then pad."""
        rooms = cast(Mapping[str, int], state["rooms"])
        prototypes = np.array(cast(_Floats, state["prototypes"]))
        present = np.array(cast(_Mask, state["present"]))
        counts = np.array(cast(Array, state["counts"]))
        age = np.array(cast(npt.NDArray[np.int64], state["age"]))
        age[age >= 0] += 1
        for room in sorted(uploads):
            index, upload = rooms[room], uploads[room]
            held = cast(_Mask, upload["present"])
            present[index] = held
            prototypes[index] = 0.0
            prototypes[index, held] = cast(_Floats, upload["prototypes"])
            if "counts" in upload:
                counts[index] = cast(Array, upload["counts"])
            age[index] = 0
        mixture = aggregate_prototypes(
            prototypes, present, self.aggregation_temperature, include_self=self.include_self
        )
        behind = counts if self.padding == "counts" else None
        padded = pad_prototypes(prototypes, present, behind)
        return {
            **state,
            "prototypes": prototypes,
            "present": present,
            "counts": counts,
            "age": age,
            # Rows a room does not hold are the same mean in its mixture and in its own set.
            "mixture": np.where(present[:, :, None], mixture, padded),
            "padded": padded,
        }

    def explain(self, state: ServerState) -> dict[str, float | Array]:
        """The weights between rooms (mean over the classes a room holds) and their entropy."""
        prototypes = cast(_Floats, state["prototypes"])
        if "mixture" not in state or len(prototypes) > EXPLICIT_ROOMS:
            return {}
        weights = aggregation_weights(
            prototypes,
            cast(_Mask, state["present"]),
            self.aggregation_temperature,
            include_self=self.include_self,
        )  # (C, N, N)
        held = np.maximum((weights.sum(axis=2) > 0).sum(axis=0), 1)  # (N,)
        return {
            "entropy": weight_entropy(weights),
            "weights": weights.sum(axis=0) / held[:, None],
            "age": cast(Array, state["age"]),
        }

    # ---- room half ----------------------------------------------------------------------------

    def receive(self, room: Room, state: RoomState, download: Payload, round: Round) -> RoomState:
        """Keep what the server sent; the losses of this round are measured against it."""
        return {**state, **download}

    def train(
        self, room: Room, state: RoomState, round: Round
    ) -> tuple[RoomState, Payload, Report]:
        """Minimise eqn_11, then measure the prototypes over the train windows."""
        weight = warm_up(round.number, self.warm_rounds, self.minimum, self.maximum)  # λ_t
        objective = self._objective(room, state, weight)
        model, state, report = self.fit(room, state, round, objective)
        embeddings, labels = room.embeddings(model)
        means, counts = class_prototypes(embeddings.cpu(), labels.cpu(), len(room.classes))
        present = (counts >= self.minimum_samples).numpy()
        own = means.numpy()[present]  # (classes held, D): absent rows do not travel
        upload = {"prototypes": own, "present": present}
        if self.padding == "counts":
            upload["counts"] = counts.numpy()
        return {**state, "own": own, "own_present": present}, upload, {**report, "lambda": weight}

    def _objective(self, room: Room, state: RoomState, weight: float) -> Objective:
        if "mixture" not in state or weight == 0:
            return cross_entropy
        mixture = cast(_Floats, state["mixture"])  # (C, D)
        sets = [cast(_Floats, state["clients"])]  # (N − 1, C, D)
        if self.peers == "all" and "own" in state:
            # A room's own padded rows are the mixture's: eq:padding gives both the same mean.
            own = np.array(mixture)
            own[cast(_Mask, state["own_present"])] = cast(_Floats, state["own"])
            sets.append(own[None])
        clients = torch.from_numpy(np.concatenate(sets)).to(room.device)  # (N, C, D)
        towards = torch.from_numpy(np.array(mixture)).to(room.device)
        known = torch.from_numpy(np.array(state["known"])).to(room.device)

        def hybrid(model: Model, windows: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
            logits, embeddings = model(windows)
            return fedapa_loss(
                logits,
                embeddings,
                labels,
                mixture=towards,
                clients=clients,
                present=known,
                temperature=self.temperature,
                weight=weight,
            )

        return hybrid


def _by_name(card: RoomCard) -> str:
    return card.name
