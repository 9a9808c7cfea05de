"""A room whose store grows: which recordings it had when, and in which part each of them is.

What there was when the room introduced itself was split as agreed. A recording that comes later
goes to train, or to test if its name says so (one in five); it is taken in between two rounds, and
no window ever changes its part. The normaliser stays that of the beginning: the net has learned
with it. Each state of the store that the server was told of is a *stage*, known by its card.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from fedapa.errors import DataError
from fedapa.federation.messages import Agreement, encode_card
from fedapa.federation.participant import introduce
from fedapa.federation.plan import Plan
from fedapa.federation.prepare import make_room
from fedapa.payload import Array, Tree, digest
from fedapa.rooms.room import Room
from fedapa.stores.materialise import RoomWindows
from fedapa.windows.normalise import Normaliser
from fedapa.windows.split import Split

__all__ = ["Stage", "first_stage", "goes_to_test", "next_stage", "room_at"]

_PARTS = ("train", "validation", "test", "continuous", "unlabelled")
_ONE_IN = 5
"""Of the new recordings of a count so many train for each that tests."""

_Places = Mapping[str, Mapping[str, Sequence[int]]]
"""part → recording → the first rows of its windows."""


@dataclass(frozen=True, eq=False)
class Stage:
    """What a room had at one time."""

    card: bytes
    """As the server was told it."""
    places: _Places
    mean: Array
    deviation: Array
    looked_at: tuple[str, ...]
    """Every recording that there was, also those that cannot be learned from."""

    @property
    def name(self) -> str:
        """The digest of its card."""
        return digest(self.card)

    def tree(self) -> Tree:
        """For a file."""
        told = {"places": self.places, "looked_at": self.looked_at}
        return {
            "card": np.frombuffer(self.card, np.uint8),
            "facts": json.dumps(told, sort_keys=True),
            "mean": self.mean,
            "deviation": self.deviation,
        }

    @classmethod
    def of(cls, tree: Tree) -> "Stage":
        """From a file."""
        told: dict[str, Any] = json.loads(str(tree["facts"]))
        return cls(
            card=cast(Array, tree["card"]).tobytes(),
            places=told["places"],
            mean=cast(Array, tree["mean"]),
            deviation=cast(Array, tree["deviation"]),
            looked_at=tuple(told["looked_at"]),
        )


def goes_to_test(recording: str) -> bool:
    """Whether a new recording tests, by its name alone: one in five does."""
    return hashlib.blake2b(recording.encode(), digest_size=8).digest()[0] % _ONE_IN == 0


def first_stage(room: Room, windows: RoomWindows) -> Stage:
    """What a room has when it introduces itself."""
    split = room.split
    places = {part: _by_recording(windows, getattr(split, part)) for part in _PARTS}
    return Stage(
        card=encode_card(introduce(room)),
        places=places,
        mean=np.asarray(room.normaliser.mean),
        deviation=np.asarray(room.normaliser.deviation),
        looked_at=tuple(sorted(set(windows.recordings))),
    )


def next_stage(
    plan: Plan, agreed: Agreement, windows: RoomWindows, last: Stage
) -> tuple[Stage, Room] | None:
    """The stage after the last one and its room; none where there is nothing new to learn from."""
    new = sorted(set(windows.recordings) - set(last.looked_at))
    known = set(agreed.classes)
    places: dict[str, dict[str, Sequence[int]]] = {
        part: dict(recordings) for part, recordings in last.places.items()
    }
    taken = False
    for recording in new:
        chosen = [place for place, name in enumerate(windows.recordings) if name == recording]
        label, continuous = windows.labels[chosen[0]], windows.continuous[chosen[0]]
        if continuous or label not in known:
            continue
        later = bool(windows.train_only) and windows.train_only[chosen[0]]
        part = "test" if goes_to_test(recording) and not later else "train"
        places[part][recording] = [int(windows.starts[place]) for place in chosen]
        taken = True
    if not taken:
        return None
    stage = replace(last, card=b"", places=places, looked_at=tuple(sorted({*last.looked_at, *new})))
    room = room_at(plan, agreed, windows, stage)
    return replace(stage, card=encode_card(introduce(room))), room


def room_at(plan: Plan, agreed: Agreement, windows: RoomWindows, stage: Stage) -> Room:
    """The room as it was at a stage, with the windows that the store has now."""
    known = set(agreed.classes)
    labels = tuple(label if label in known else None for label in windows.labels)
    place = {
        (recording, int(start)): number
        for number, (recording, start) in enumerate(
            zip(windows.recordings, windows.starts, strict=True)
        )
    }
    parts: dict[str, npt.NDArray[np.int64]] = {}
    for part in _PARTS:
        found = [
            place.get((recording, start))
            for recording, starts in stage.places.get(part, {}).items()
            for start in starts
        ]
        if None in found:
            raise DataError(
                f"room '{windows.room}': recordings that it has learned from are gone from its "
                "store, or are cut otherwise since new ones came; put them back"
            )
        parts[part] = np.array(sorted(cast(list[int], found)), np.int64)
    shape = tuple(windows.open().shape[1:])
    if shape != tuple(agreed.window_shape):
        raise DataError(
            f"room '{windows.room}': with its new recordings windows are {shape}, the rooms agreed "
            f"on {agreed.window_shape}; take out recordings that are too short"
        )
    split = Split(**parts, kind=agreed.split, why=agreed.why)
    normaliser = Normaliser(
        np.asarray(stage.mean, np.float32), np.asarray(stage.deviation, np.float32)
    )
    return make_room(
        plan, replace(windows, labels=labels), agreed=agreed, split=split, normaliser=normaliser
    )


def _by_recording(windows: RoomWindows, index: npt.NDArray[np.int64]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for place in index.tolist():
        found.setdefault(windows.recordings[place], []).append(int(windows.starts[place]))
    return found
