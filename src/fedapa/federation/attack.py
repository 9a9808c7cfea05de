"""Rooms that lie, for experiments: what an attacker sends in place of what it learned.

Nothing of this happens unless a plan has a section ``[attack]``, and then in process alone: a
server on a network refuses such a plan, and a room there never looks for one. Who attacks is drawn
from the plan's seed and stands in every record. An attacker trains as every room does, and only its
upload is changed, before it leaves the room; with ``flipped-labels`` it learns from wrong labels
and sends what comes of it. What is sent has the form and about the size of honest uploads, so that
acceptance.py takes it.

==================  ===============================================================================
random              noise, every array (every prototype) as long as the honest one
scaled              the honest upload times ``factor``
flipped-sign        the honest upload times −1
permuted            prototypes and rows of the classifier of other classes: half way round
colluding           noise as above, but the same direction in all attackers and all rounds
flipped-labels      trained on labels in reversed order: the most people for the fewest
broken              NaN, of which nothing is merged in any round (``diverged`` in the record): no
                    lie, but what is left to the others when every liar is known from the start
==================  ===============================================================================
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, cast, get_args

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field

from fedapa.algorithms.algorithm import Payload, Round
from fedapa.learning.fit import Positive
from fedapa.payload import Array, Tree, Value
from fedapa.randomness import Key
from fedapa.rooms.room import Room
from fedapa.windows.labels import NO_CLASS

__all__ = ["BROKEN", "KINDS", "Attack", "Kind", "attackers", "deceived", "poisoned"]

Kind = Literal[
    "random", "scaled", "flipped-sign", "permuted", "colluding", "flipped-labels", "broken"
]
BROKEN: Kind = "broken"
KINDS: tuple[Kind, ...] = tuple(kind for kind in get_args(Kind) if kind != BROKEN)
"""Lies that are plausible; what is broken is no lie."""
_CLASSIFIER = "classifier."
_VARIANCE = "running_var"

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Attack:
    """What some rooms do to the others."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    kind: Kind
    """What they send."""
    share: Annotated[float, Field(gt=0, lt=1)] = 0.3
    """Of the rooms; which ones, the plan's seed decides."""
    factor: Positive = 10.0
    """By how much ``scaled`` uploads are larger; from 100 on they are rejected as implausible."""


def attackers(share: float, rooms: Sequence[str], seed: int) -> tuple[str, ...]:
    """The rooms that lie, sorted: drawn by the seed, those of a smaller share among them."""
    names = sorted(rooms)
    order = (Key(seed) / "attack").numpy().permutation(len(names))
    return tuple(sorted(names[place] for place in order[: round(share * len(names))]))


def deceived(attack: Attack, room: Room) -> Room:
    """The room as an attacker trains on it: with wrong labels where that is the attack."""
    if attack.kind != "flipped-labels":
        return room
    own = np.unique(room.labels[room.labels != NO_CLASS])
    turned = np.arange(len(room.classes))
    turned[own] = own[::-1]
    labels = np.where(room.labels == NO_CLASS, NO_CLASS, turned[room.labels])
    return replace(room, labels=labels)


def poisoned(attack: Attack, upload: Payload, room: Room, round: Round) -> Payload:
    """What an attacker sends; the same stream gives the same lie."""
    if attack.kind == "flipped-labels":
        return upload
    key = round.key / "room" / room.name / "attack"
    if attack.kind == "colluding":
        key = Key(round.key.seed) / "attack" / "colluding"
    lie = _Lie(attack, key, room.held)
    made = lie.tree(upload)
    if "prototypes" in upload and "present" in upload:
        present = cast("npt.NDArray[np.bool_]", upload["present"])
        made["prototypes"] = lie.prototypes(cast(Floats, upload["prototypes"]), present)
    return made


@dataclass(frozen=True)
class _Lie:
    attack: Attack
    key: Key
    held: Sequence[int]

    def tree(self, tree: Tree, prefix: str = "") -> dict[str, Value]:
        made: dict[str, Value] = {}
        for name, value in tree.items():
            if isinstance(value, np.ndarray) and value.dtype == np.float32:
                made[name] = self._array(f"{prefix}{name}", value)
            elif isinstance(value, dict):
                made[name] = self.tree(value, f"{prefix}{name}/")
            else:
                made[name] = value
        return made

    def prototypes(self, own: Floats, present: npt.NDArray[np.bool_]) -> Floats:
        """Row by row: [classes held, D]."""
        if self.attack.kind == BROKEN:
            return np.full_like(own, np.nan)
        if self.attack.kind == "permuted":
            return np.roll(own, len(own) // 2, axis=0)
        if self.attack.kind in ("random", "colluding"):
            # Of all classes, so that colluders with other classes agree on each.
            noise = (self.key / "prototypes").numpy().standard_normal((len(present), own.shape[1]))
            return np.stack(
                [_as_long(one, row) for one, row in zip(noise[present], own, strict=True)] or [*own]
            ).reshape(own.shape)
        return self._times(own)

    def _array(self, path: str, own: Array) -> Array:
        values = cast(Floats, own)
        name = path.rpartition("/")[2]
        if self.attack.kind == BROKEN:
            return np.full_like(values, np.nan)
        if self.attack.kind == "permuted":
            if not name.startswith(_CLASSIFIER):
                return own
            rows = np.array(values)
            rows[list(self.held)] = np.roll(values[list(self.held)], len(self.held) // 2, axis=0)
            return rows
        if self.attack.kind in ("random", "colluding"):
            made = _as_long((self.key / path).numpy().standard_normal(values.shape), values)
        else:
            made = self._times(values)
        # A variance below 0 would be rejected.
        return np.asarray(np.abs(made), np.float32) if name.endswith(_VARIANCE) else made

    def _times(self, own: Floats) -> Floats:
        times = -1.0 if self.attack.kind == "flipped-sign" else self.attack.factor
        return (own * times).astype(np.float32)


def _as_long(noise: npt.NDArray[np.float64], honest: Floats) -> Floats:
    """Noise with the norm of what is honest."""
    length = np.sqrt(np.square(noise).sum())
    wanted = np.sqrt(np.square(honest, dtype=np.float64).sum())
    return np.asarray(noise * (wanted / max(float(length), 1e-12)), np.float32)
