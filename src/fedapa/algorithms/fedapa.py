"""FedAPA: rooms exchange class prototypes; each gets its own, similarity-weighted mixture of all.

Up: P_i, one mean embedding a class (eqn_4). Down: Q_i, the room's mixture (eqn_5–eqn_7), and the
other rooms' sets or a sample of them. The room minimises L_ce + λ_t (L_g + L_c) (eqn_8–eqn_11) and
is scored with its own net.
Unlike FedProto the mixture is personal, not one mean for all; unlike FedAvg no weights travel, so
nets may differ.

The server first collects all P, builds Q from the unpadded P, then pads copies: the result does
not depend on the order of rooms. The prototype losses start when real prototypes exist, round 2.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedapa.algorithms.algorithm import (
    Dimensions,
    Form,
    Group,
    Payload,
    Range,
    Report,
    RoomState,
    Round,
    ServerState,
)
from fedapa.algorithms.prototype_sets import (
    Floats,
    Mask,
    PrototypeExchange,
    full_set,
    heard_sets,
    is_heard,
    measure,
    sample_shares,
    set_forms,
    stored_sets,
)
from fedapa.learning.diagnosis import Penalty
from fedapa.learning.fit import (
    NotNegative,
    NotNegativeInteger,
    Objective,
    PositiveInteger,
    Temperature,
    cross_entropy,
)
from fedapa.learning.losses import Hybrid
from fedapa.learning.prototypes import (
    EXPLICIT_ROOMS,
    aggregate_prototypes,
    aggregation_weights,
    mean_prototypes,
    weight_entropy,
)
from fedapa.learning.schedule import warm_up
from fedapa.models.model import Model
from fedapa.payload import Array
from fedapa.rooms.card import RoomCard
from fedapa.rooms.room import Room

__all__ = [
    "AveragePrototypes",
    "AverageWithClients",
    "FedAPA",
    "FixedWeight",
    "MixtureOnly",
    "SelfPrototypes",
]


_FIRST = 2
"""The first round that has prototypes to send."""


class _Targets(NamedTuple):
    mixture: Floats
    """Q_i [C, D]."""
    sets: Floats
    """The sets of L_c [N, C, D]."""
    shares: Floats | None
    """How much each of them counts [N]; none is alike."""
    known: Mask
    """[C], the classes that anybody holds."""


@dataclass(frozen=True)
class FedAPA(PrototypeExchange):
    """Adaptive prototype aggregation."""

    name: ClassVar[str] = "fedapa"
    can_be_diagnosed: ClassVar[bool] = True
    sends_sets_alone: ClassVar[bool] = True
    title: ClassVar[str] = "FedAPA"
    travels: ClassVar[str] = "class prototypes up; the room's mixture and its peers' sets down"
    citation: ClassVar[str] = "Guo, Mao and Ho, arXiv 2511.21048, 2025"
    paper: ClassVar[str] = (
        "FedAPA: Federated Learning with Adaptive Prototype Aggregation Toward Heterogeneous "
        "Wi-Fi CSI-based Crowd Counting"
    )
    year: ClassVar[int] = 2025
    group: ClassVar[Group] = "paper"
    control: ClassVar[str] = "fedapa-self"
    carries_claim: ClassVar[bool] = True
    several_tasks: ClassVar[bool] = True
    look: ClassVar[int | None] = 0

    temperature: Temperature = 0.5
    """τ of the two contrastive losses."""
    aggregation_temperature: Temperature = 0.5
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
    peers: Literal["all", "others", "none"] | PositiveInteger = "all"
    """Whether L_c runs over all sets, the room's own included as in the equation, over its peers'
    ("others"), or is left out (the sets of peers are then not downloaded). A number k: over the
    own set and k of its peers', drawn anew each round and weighted so that the mean over draws is
    "all"."""
    peers_every: PositiveInteger = 1
    """The sets of peers travel in every j-th round, from the second on; in between L_c keeps to the
    last ones. Fewer bytes: 2 is half of those sets."""
    mixture: Literal["adaptive", "average", "own"] = "adaptive"
    """What Q_i is: the similarity-weighted mixture; the plain mean over holders, the same for all;
    or the room's own set, with which nothing travels and L_c too sees the own set alone."""

    @classmethod
    def settings_for(cls, rounds: int) -> dict[str, Any]:
        """The warm-up is a quarter of the rounds."""
        return {"warm_rounds": max(1, round(rounds / 4))}

    @classmethod
    def tunables(cls, rounds: int) -> dict[str, Range]:
        """Also τ of the losses, λ_max and the warm-up."""
        return {
            **super().tunables(rounds),
            "algorithm.temperature": Range(0.1, 1.5),
            "algorithm.maximum": Range(0.05, 2.0),
            "algorithm.warm_rounds": Range(0, rounds, "linear", whole=True),
        }

    def sends(self, sizes: Dimensions) -> tuple[str, int] | None:
        """The own set up; the mixture and the sets of N − 1 peers, or of k of them, down."""
        prototypes = sizes.classes * sizes.width
        if self.is_alone:
            return "0", 0
        if self.peers == "none":
            return "2·|C|·D", 2 * prototypes
        drawn = isinstance(self.peers, int) and self.peers < sizes.rooms - 1
        peers = cast(int, self.peers) if drawn else sizes.rooms - 1
        if self.peers_every > 1:
            sets = "k/j" if drawn else "(N − 1)/j"
            return f"({sets} + 2)·|C|·D", round((peers / self.peers_every + 2) * prototypes)
        return ("(k + 2)·|C|·D" if drawn else "(N + 1)·|C|·D"), (peers + 2) * prototypes

    # ---- server half ------------------------------------------------------------------------

    def download(self, state: ServerState, room: str, round: Round) -> Payload:
        """Q_i, and the padded sets of its peers; the room has its own already."""
        if "mixture" not in state:
            return {}
        index = cast(Mapping[str, int], state["rooms"])[room]
        payload: Payload = {
            "mixture": cast(Floats, state["mixture"])[index],
            "known": state["known"],
        }
        if self.peers == "none" or (round.number - _FIRST) % self.peers_every:
            return payload
        (heard,) = np.nonzero(heard_sets(state, apart_from=room))
        if not isinstance(self.peers, int) or self.peers >= len(heard):
            # Named as in the paper: the name travels, and its bytes count.
            return {**payload, "clients": _padded(state, heard)}
        stream = (round.key / "room" / room / "peers").numpy()
        drawn = np.sort(stream.choice(heard, self.peers, replace=False))
        return {**payload, "clients": _padded(state, drawn), "drawn_of": len(heard)}

    def uploads(self, card: RoomCard, round: Round) -> Mapping[str, Form]:
        """The room's set, and the samples behind it where padding needs them."""
        return {} if self.is_alone else set_forms(card, with_counts=self.padding == "counts")

    def mixed(self, state: ServerState) -> ServerState:
        """Q of every room and what sets are padded with: mix the sets as they came, then pad."""
        made = ("mixture", "padding", "padded", "known")
        kept = {name: value for name, value in state.items() if name not in made}
        if not is_heard(state):
            return kept
        prototypes, present = stored_sets(state)
        behind = cast(Array, state["counts"]) if self.padding == "counts" else None
        padding = cast(Floats, mean_prototypes(prototypes, present, behind))  # (C, D)
        # Rows a room does not hold are the same mean in its mixture and in its own set.
        mixture = self._mix(prototypes, present)
        np.copyto(mixture, padding, where=~present[:, :, None])
        # Once a round: over the sets of all rooms it would take each of N downloads N steps.
        known: Mask = np.any(present, axis=0)
        return {**kept, "mixture": mixture, "padding": padding, "known": known}

    def _mix(self, prototypes: Floats, present: Mask) -> Floats:
        """Q [N, C, D] for the classes that a room holds, as an array of its own."""
        if self.mixture == "average":
            mean = mean_prototypes(prototypes, present)  # (C, D)
            return np.array(np.broadcast_to(mean, prototypes.shape), np.float32)
        mixed = aggregate_prototypes(
            prototypes, present, self.aggregation_temperature, include_self=self.include_self
        )
        return np.require(mixed, np.float32, ["W", "O"])

    def explain(self, state: ServerState) -> dict[str, float | Array]:
        """The weights between rooms (mean over the classes a room holds) and their entropy."""
        if "mixture" not in state:
            return {}
        prototypes, age = cast(Floats, state["prototypes"]), cast(Array, state["age"])
        if self.mixture != "adaptive" or len(prototypes) > EXPLICIT_ROOMS:
            return {"age": age}
        weights = aggregation_weights(
            prototypes,
            cast(Mask, state["present"]),
            self.aggregation_temperature,
            include_self=self.include_self,
        )  # (C, N, N)
        held = np.maximum((weights.sum(axis=2) > 0).sum(axis=0), 1)  # (N,)
        return {
            "entropy": weight_entropy(weights),
            "weights": weights.sum(axis=0) / held[:, None],
            "age": age,
        }

    # ---- room half ----------------------------------------------------------------------------

    def receive(self, room: Room, state: RoomState, download: Payload, round: Round) -> RoomState:
        """Keep what the server sent; where peers left, a sample of them may be all again."""
        old = {name: value for name, value in state.items() if name != "drawn_of"}
        return {**(old if "clients" in download else state), **download}

    def train(
        self, room: Room, state: RoomState, round: Round
    ) -> tuple[RoomState, Payload, Report]:
        """Minimise eqn_11, then measure the prototypes over the train windows."""
        weight = warm_up(round.number, self.warm_rounds, self.minimum, self.maximum)  # λ_t
        objective = self._objective(room, state, weight)
        model, trained, report = self.fit(room, state, round, objective)
        seen = room.embeddings(model)
        own, upload = measure(
            room,
            seen,
            minimum_samples=self.minimum_samples,
            with_counts=self.padding == "counts",
        )
        if self.is_alone:
            upload = {}
        kept, told = self.diagnosed(room, state, round, model=model, seen=seen, objective=objective)
        return {**trained, **own, **kept}, upload, {**report, "lambda": weight, **told}

    def mixtures(self, state: ServerState) -> Floats | None:
        """Q, or nothing before anybody uploaded."""
        return cast(Floats | None, state.get("mixture"))

    def penalty(self, room: Room, state: RoomState, round: Round) -> Penalty | None:
        """Φ = L_g + L_c (eqn_8, eqn_9)."""
        weight = warm_up(round.number, self.warm_rounds, self.minimum, self.maximum)  # λ_t
        hybrid = self._hybrid(room, state, weight)
        return None if hybrid is None else Penalty(weight, hybrid.penalty)

    def anchors(self, room: Room, state: RoomState, model: Model) -> tuple[Tensor, Tensor]:
        """Own prototypes where the room holds the class, the mixture elsewhere."""
        if "own" not in state or "mixture" not in state:
            return super().anchors(room, state, model)
        anchors = full_set(state, np.array(cast(Floats, state["mixture"])))
        return torch.from_numpy(anchors), torch.from_numpy(np.array(cast(Mask, state["known"])))

    def _objective(self, room: Room, state: RoomState, weight: float) -> Objective:
        hybrid = self._hybrid(room, state, weight) if weight else None
        return cross_entropy if hybrid is None else hybrid

    def _hybrid(self, room: Room, state: RoomState, weight: float) -> Hybrid | None:
        given = self._targets(room, state)
        if given is None:
            return None
        mixture, sets, known = (
            torch.from_numpy(values).to(room.device)
            for values in (given.mixture, given.sets, given.known)
        )
        shares = None if given.shares is None else torch.from_numpy(given.shares).to(room.device)
        return Hybrid(
            weight=weight,
            mixture=mixture,
            sets=sets,
            present=known,
            temperature=self.temperature,
            shares=shares,
        )

    def _targets(self, room: Room, state: RoomState) -> _Targets | None:
        """What the losses of this round are measured against; none in round 1."""
        shape = (0, room.outputs, room.width)
        nobody = np.zeros(shape, np.float32)
        if self.is_alone:
            if "own" not in state:
                return None
            own = full_set(state, np.zeros(shape[1:], np.float32))
            sets = nobody if self.peers == "none" else own[None]
            return _Targets(own, sets, None, np.array(cast(Mask, state["own_present"])))
        if "mixture" not in state:
            return None
        mixture = np.array(cast(Floats, state["mixture"]))
        sets = cast(Floats, state.get("clients", nobody))  # (N − 1, C, D) or (k, C, D)
        shares = None
        if self.peers not in ("others", "none") and "own" in state:
            if "drawn_of" in state:
                shares = sample_shares(len(sets), of=cast(int, state["drawn_of"]))
            # A room's own padded rows are the mixture's: eq:padding gives both the same mean.
            sets = np.concatenate([sets, full_set(state, mixture)[None]])  # (N, C, D)
        else:
            sets = np.array(sets)
        return _Targets(mixture, sets, shares, np.array(cast(Mask, state["known"])))


def _padded(state: ServerState, rooms: npt.NDArray[np.int64]) -> Floats:
    """The sets of some rooms [n, C, D], absent rows filled by the mean of those that hold them.

    Not kept for all rooms: it would be as large as all sets once more.
    """
    if "padded" in state:  # a checkpoint of an earlier version, before its next merge
        return cast(Floats, state["padded"])[rooms]
    prototypes, present = stored_sets(state)
    held, sets = present[rooms][:, :, None], prototypes[rooms]  # (n, C, 1), (n, C, D)
    return sets if held.all() else np.where(held, sets, cast(Floats, state["padding"]))


# ---- its control, and the settings that comparisons call by a name of their own ------------------


@dataclass(frozen=True)
class SelfPrototypes(FedAPA):
    """Self-prototypes: FedAPA's losses fed with the room's own prototypes; nothing is exchanged."""

    name: ClassVar[str] = "fedapa-self"
    title: ClassVar[str] = "Self-prototypes"
    travels: ClassVar[str] = "nothing"
    citation: ClassVar[str] = "control"
    group: ClassVar[Group] = "control"
    carries_claim: ClassVar[bool] = True
    several_tasks: ClassVar[bool] = True
    look: ClassVar[int | None] = 2

    mixture: Literal["own"] = "own"
    """Fixed: what makes this variant."""


@dataclass(frozen=True)
class AveragePrototypes(FedAPA):
    """Global Avg. Proto: FedAPA with one plain mean for all rooms, and without L_c."""

    name: ClassVar[str] = "fedapa-average"
    title: ClassVar[str] = "Global average prototypes"
    travels: ClassVar[str] = "class prototypes up, their mean down"
    group: ClassVar[Group] = "paper"
    several_tasks: ClassVar[bool] = True

    mixture: Literal["average"] = "average"
    """Fixed: what makes this variant."""
    peers: Literal["none"] = "none"
    """Fixed: what makes this variant."""


@dataclass(frozen=True)
class AverageWithClients(FedAPA):
    """Global Avg. Proto with Client Protos: FedAPA with one plain mean for all rooms, and L_c."""

    name: ClassVar[str] = "fedapa-average-clients"
    title: ClassVar[str] = "Global average with rooms' prototypes"
    travels: ClassVar[str] = "class prototypes up; their mean and the peers' sets down"
    group: ClassVar[Group] = "paper"
    several_tasks: ClassVar[bool] = True

    mixture: Literal["average"] = "average"
    """Fixed: what makes this variant."""


@dataclass(frozen=True)
class MixtureOnly(FedAPA):
    """APA without L_c: FedAPA with its mixture alone; the cell that the paper's table lacks."""

    name: ClassVar[str] = "fedapa-mixture"
    title: ClassVar[str] = "APA without rooms' prototypes"
    travels: ClassVar[str] = "class prototypes up, the room's mixture down"
    several_tasks: ClassVar[bool] = True

    peers: Literal["none"] = "none"
    """Fixed: what makes this variant."""


@dataclass(frozen=True)
class FixedWeight(FedAPA):
    """Fixed λ: FedAPA without warm-up, λ = maximum from the start (the paper: 0.1, 0.5, 1)."""

    name: ClassVar[str] = "fedapa-fixed"
    title: ClassVar[str] = "FedAPA, fixed λ"
    group: ClassVar[Group] = "paper"
    several_tasks: ClassVar[bool] = True

    warm_rounds: Literal[0] = 0
    """Fixed: what makes this variant."""
