"""Pooled rooms: the controls in which one room, or each in turn, trains on everybody's windows.

It breaks the promise that windows never leave a room, on purpose: it shows what sharing raw data
would give. Every window keeps the normaliser of the room that it comes from.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from fedapa.randomness import Key
from fedapa.rooms.card import RoomCard
from fedapa.rooms.room import Room, cut_batches

__all__ = ["PooledRoom", "pool_in_turn", "pool_rooms"]


@dataclass(frozen=True, eq=False)
class PooledRoom(Room):
    """A room that trains on the windows of all members and is scored on its own."""

    members: tuple[Room, ...] = ()

    @property
    def card(self) -> RoomCard:
        """Its card, with everybody's train windows."""
        windows = sum(len(member.split.train) for member in self.members)
        return replace(super().card, windows=windows, pooled=True)

    @property
    def held(self) -> list[int]:
        """The classes that any member has train windows of."""
        return sorted({held for member in self.members for held in member.held})

    def batches(
        self, size: int, key: Key, *, share: float = 1.0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """The train windows of all members once, mixed, in batches; each normalised as at home."""
        owner = np.concatenate(
            [np.full(len(member.split.train), n) for n, member in enumerate(self.members)]
        )
        index = np.concatenate([member.split.train for member in self.members])
        order = key.numpy().permutation(len(index))
        for chosen in cut_batches(order[: max(1, round(share * len(order)))], size):
            pairs = [
                member.tensors(index[chosen[owner[chosen] == n]])
                for n, member in enumerate(self.members)
                if (owner[chosen] == n).any()
            ]
            yield torch.cat([windows for windows, _ in pairs]), torch.cat([y for _, y in pairs])


def pool_rooms(rooms: Sequence[Room]) -> list[Room]:
    """The same rooms, of which the first by name trains on everybody's windows."""
    first, *others = sorted(rooms, key=lambda room: room.name)
    return [_pooled(first, others), *others]


def pool_in_turn(rooms: Sequence[Room]) -> list[Room]:
    """The same rooms, each of which trains on everybody's windows.

    Where labels were taken away, each has its few and all of the others': every room is the poor
    one in turn.
    """
    rich = {
        room.name: replace(room, split=replace(room.split, train=room.split.withheld))
        if len(room.split.withheld)
        else room
        for room in rooms
    }
    return [
        _pooled(room, [rich[other] for other in sorted(rich) if other != room.name])
        for room in sorted(rooms, key=lambda room: room.name)
    ]


def _pooled(room: Room, others: Sequence[Room]) -> Room:
    own = {field.name: getattr(room, field.name) for field in fields(room)}
    return PooledRoom(**own, members=(room, *others)).with_digest(room.digest)
