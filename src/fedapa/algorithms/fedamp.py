"""FedAMP: each room is drawn to a mixture of all rooms' weights in which similar rooms count more.

u_i = Σ_j ξ_ij w_j with ξ_ij = e^{−x_ij/σ}/N, x_ij = ‖w_i − w_j‖², ξ_ii = 1 − Σ_{j≠i} ξ_ij; the room
minimises CE + (λ/2α)·‖w − u_i‖². Unlike FedAvg nobody's weights are replaced: u_i only attracts,
and a room is scored with its own net.

Our choice: a fixed σ = 1 with half a million parameters makes every ξ_ij vanish, and FedAMP
silently Local: by default σ is the mean pairwise x_ij of the round, and ξ_ii is recorded as
``self_weight``. The penalty is built from the parameters in training, so that it has a gradient.
BatchNorm statistics stay in the room: they are neither in a distance nor in a gradient.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedapa.algorithms.algorithm import Payload, Range, RoomState, Roster, Round, ServerState
from fedapa.algorithms.fedavg import FedAvg, by_slot
from fedapa.learning.fit import NotNegative, Objective, Positive, cross_entropy
from fedapa.learning.tree import NamedArrays
from fedapa.models.model import Model
from fedapa.payload import Array, Tree
from fedapa.randomness import Key
from fedapa.rooms.card import RoomCard
from fedapa.rooms.room import Room

__all__ = ["FedAMP", "attention"]

_Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True)
class FedAMP(FedAvg):
    """Attentive message passing between rooms."""

    name: ClassVar[str] = "fedamp"
    title: ClassVar[str] = "FedAMP"
    travels: ClassVar[str] = "trained weights up, the room's own mixture of all down"
    citation: ClassVar[str] = "Huang et al., AAAI 2021"
    paper: ClassVar[str] = "Personalized Cross-Silo Federated Learning on Non-IID Data"
    year: ClassVar[int] = 2021
    look: ClassVar[int | None] = 6

    sigma: Positive | None = None
    """σ; by default the mean pairwise x_ij of the round, among rooms that share arrays."""
    proximal: NotNegative = 1.0
    """λ/α: the weight of ½‖w − u_i‖²; 0 makes it Local. 1 holds rooms back: tune it."""

    @classmethod
    def tunables(cls, rounds: int) -> dict[str, Range]:
        """Also λ/α: at 1 the mixture holds a room back; the original's is near 10⁻⁴."""
        return {**super().tunables(rounds), "algorithm.proximal": Range(1e-4, 1.0)}

    def private(self, card: RoomCard) -> frozenset[str]:
        """Statistics are no weights: they have no part in a distance or a gradient."""
        return card.buffers

    def open(self, roster: Roster, key: Key) -> ServerState:
        """As FedAvg; and nobody's weights are known yet."""
        opened = super().open(roster, key)
        age = np.full(len(roster), -1, np.int64)  # rounds since the last upload; −1 never
        nobody: Tree = {"heard": {}, "mixed": {}, "attention": np.eye(len(roster)), "age": age}
        return {**opened, **nobody}

    def admit(self, state: ServerState, card: RoomCard) -> ServerState:
        """As FedAvg, with a row for the room: it is alone until it has uploaded."""
        admitted = super().admit(state, card)
        place = sorted(cast(Tree, admitted["slots"])).index(card.name)
        weights = cast(_Matrix, state["attention"])
        weights = np.insert(np.insert(weights, place, 0.0, axis=0), place, 0.0, axis=1)
        weights[place, place] = 1.0
        age = np.insert(cast(npt.NDArray[np.int64], state["age"]), place, -1)
        return {**admitted, "attention": weights, "age": age}

    def dismiss(self, state: ServerState, room: str) -> ServerState:
        """As FedAvg; its weights go with the room, from the mixtures with the next merge."""
        place = sorted(cast(Tree, state["slots"])).index(room)
        weights = cast(_Matrix, state["attention"])
        kept: Tree = {
            name: {peer: value for peer, value in cast(Tree, state[name]).items() if peer != room}
            for name in ("heard", "mixed")
        }
        return {
            **super().dismiss(state, room),
            **kept,
            "attention": np.delete(np.delete(weights, place, axis=0), place, axis=1),
            "age": np.delete(cast(npt.NDArray[np.int64], state["age"]), place),
        }

    def download(self, state: ServerState, room: str, round: Round) -> Payload:
        """u_i, once the room has uploaded."""
        mixed = cast(Mapping[str, NamedArrays], state["mixed"])
        return {"weights": mixed[room]} if room in mixed else {}

    def merge(
        self, state: ServerState, uploads: Mapping[str, Payload], round: Round
    ) -> ServerState:
        """u_i of every room, from the last weights of everyone; absent rooms keep theirs."""
        slots = cast(Mapping[str, Mapping[str, str]], state["slots"])
        rooms = sorted(slots)
        heard = {**cast(Tree, state["heard"])}
        age = np.array(cast(npt.NDArray[np.int64], state["age"]))
        age[age >= 0] += 1
        for room in sorted(uploads):
            heard[room] = uploads[room]["weights"]
            age[rooms.index(room)] = 0
        known = {room: {"weights": heard[room]} for room in sorted(heard)}
        given = {
            slot: (
                np.asarray([rooms.index(room) for room in arrays]),
                np.stack([np.ravel(array) for array in arrays.values()]).astype(np.float64),
            )
            for slot, arrays in sorted(by_slot(state, known).items())
        }
        weights = attention(*_distances(given, len(rooms)), self.sigma)  # ξ
        blends = {
            (rooms[row], slot): blend
            for slot, (index, values) in given.items()
            for row, blend in zip(index, _among(weights, index) @ values, strict=True)
        }
        mixed = {
            room: {
                name: blends[room, slots[room][name]].reshape(old.shape).astype(old.dtype)  # u_i
                for name, old in cast(NamedArrays, heard[room]).items()
            }
            for room in known
        }
        return {**state, "heard": heard, "age": age, "mixed": mixed, "attention": weights}

    def explain(self, state: ServerState) -> dict[str, float | Array]:
        """ξ between rooms, and each room's weight for itself: 1 is a room that learns alone."""
        weights = cast(_Matrix, state["attention"])
        return {
            **super().explain(state),
            "self_weight": np.diagonal(weights).copy(),
            "weights": weights,
            "age": cast(Array, state["age"]),
        }

    def receive(self, room: Room, state: RoomState, download: Payload, round: Round) -> RoomState:
        """Keep u_i as an anchor; the room's own weights stay."""
        return {**state, "anchor": download["weights"]} if download else state

    def objective(self, room: Room, state: RoomState, round: Round) -> Objective:
        """CE + (λ/2α)·‖w − u_i‖², the gradient flowing through w."""
        anchor = {
            name: torch.from_numpy(np.array(values)).to(room.device)
            for name, values in cast(NamedArrays, state.get("anchor", {})).items()
        }
        if not anchor or self.proximal == 0:
            return cross_entropy

        def attracted(model: Model, windows: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
            losses = cross_entropy(model, windows, labels)
            apart = torch.stack(
                [
                    (parameter - anchor[name]).square().sum()
                    for name, parameter in model.named_parameters()
                    if name in anchor
                ]
            ).sum()  # ‖w − u_i‖²
            total = losses["loss"] + self.proximal / 2 * apart
            return {**losses, "loss": total, "loss_proximal": apart}

        return attracted


def _distances(
    given: Mapping[str, tuple[npt.NDArray[np.int64], _Matrix]], rooms: int
) -> tuple[_Matrix, npt.NDArray[np.bool_]]:
    """x_ij = ‖w_i − w_j‖² over the arrays that both share, and which rooms share any."""
    distance, shared = np.zeros((rooms, rooms)), np.eye(rooms, dtype=bool)
    for index, values in given.values():
        for row, mine in zip(index, values, strict=True):
            distance[row, index] += np.square(values - mine).sum(axis=1)
        shared[np.ix_(index, index)] = True
    return distance, shared


def _among(weights: _Matrix, index: npt.NDArray[np.int64]) -> _Matrix:
    """ξ between the rooms that share one array, the diagonal again what is left to one."""
    among = weights[np.ix_(index, index)]
    np.fill_diagonal(among, 0.0)
    np.fill_diagonal(among, 1.0 - among.sum(axis=1))
    return among


def attention(distance: _Matrix, shared: npt.NDArray[np.bool_], sigma: float | None) -> _Matrix:
    """ξ [N, N] from x [N, N]: ξ_ij = e^{−x_ij/σ}/N, the diagonal what is left to one.

    Args:
        distance: x_ij.
        shared: which pairs have arrays in common; others get 0, and N counts those that have.
        sigma: σ; none is the mean x_ij over pairs, in each group of rooms that share alike.
    """
    pairs = shared & ~np.eye(len(distance), dtype=bool)
    weights = np.zeros_like(distance)
    for kind in np.unique(shared, axis=0):
        group = (shared == kind).all(axis=1)
        among = pairs & group[:, None]
        if not among.any():
            continue
        scale = sigma if sigma is not None else float(distance[among].mean())  # σ
        # Rooms that are all alike are at distance 0 of each other whatever the scale.
        closeness = np.exp(-distance[among] / (scale if scale > 0 else 1.0))
        weights[among] = closeness / kind.sum()
    np.fill_diagonal(weights, 1.0 - weights.sum(axis=1))
    return weights
