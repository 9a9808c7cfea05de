"""What the server merges in place of uploads that may lie; off unless the plan asks for it.

Unlike acceptance.py, which rejects what no honest room can send, this expects uploads that look
plausible. It stands between the two: after acceptance, before ``merge``, for every algorithm and
every engine. Nothing is rejected here; every room keeps its place, and what is merged for it lies
nearer to the *middle*, the median of all rooms in every coordinate:

1. ``cosine``: a room whose upload points elsewhere than the middle, by more than the usual spread,
   is replaced by the mean of the others (Muñoz-González et al., arXiv 1909.05125, 2019: cosines
   with the aggregate, limits from their median).
2. ``reputation``: over rounds; a room that was replaced often counts less, also when it is not
   (the same: a posterior of honest rounds; here an exponential mean).
3. ``clip``: nobody is further from the middle than so many times the usual distance (Karimireddy et
   al., ICML 2021: clipping around a centre; Sun et al., arXiv 1911.07963, 2019: norms).
4. ``rule``: the ends of every coordinate are cut off (Yin et al., ICML 2018: the coordinate-wise
   median and the trimmed mean).

Prototypes are judged class by class over the rooms that hold it, weights array by array over rooms
of equal nets. Of fewer than three rooms nobody knows who lies: they are left as they came.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field

from fedapa.algorithms.algorithm import Payload
from fedapa.learning.fit import NotNegative
from fedapa.learning.robust import (
    cosines,
    cut_ends,
    cut_number,
    middle,
    nearer,
    norms,
    outlying,
)
from fedapa.payload import Tree, Value, digest, leaves

__all__ = ["NAMED", "Defence", "Defended", "defend"]

_FEWEST = 3
"""Rooms to compare: of two nobody knows who lies."""
_LEAST_SPREAD = 0.05
"""Of cosines: rooms that are more alike than this do not accuse each other."""
_BELIEVED = 0.5
"""The reputation below which a room is replaced, whatever it sends."""
_SHARE_LEFT = 0.5
"""Of its way from the middle: who is clipped to less is named."""
_MEDIAN = 0.5
_WEIGHTS = "weights/"
_CLASSIFIER = "classifier."
"""Where weights stand in an upload, and which of them are the classifier's."""

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Defence:
    """How uploads are defended against; by default nothing is."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    rule: Literal["mean", "trimmed", "median"] = "mean"
    """What becomes of the ends of every coordinate: nothing; the share ``trim`` at each end is cut
    off; or all but the middle one or two."""
    trim: Annotated[float, Field(gt=0, lt=0.5)] = 0.3
    """Share of the rooms that is cut off at each end where the rule is trimmed; as many liars may
    be among them."""
    clip: NotNegative = 0.0
    """How many times the usual distance from the middle an upload may have; 0 clips nothing."""
    cosine: NotNegative = 0.0
    """How many usual spreads below the usual cosine with the middle a room may be; 0 asks nobody.
    """
    reputation: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """β: how much of a room's reputation is that of earlier rounds; 0 forgets them."""

    @property
    def is_on(self) -> bool:
        """Whether anything is done."""
        return self.rule != "mean" or self.clip > 0 or self.cosine > 0


NAMED: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "median": {"rule": "median"},
    "trimmed": {"rule": "trimmed"},
    "clip": {"clip": 2.0},
    "guard": {"cosine": 2.0, "reputation": 0.7, "clip": 2.0},
}
"""Defences by name: ``defence = "guard"`` in a plan."""


@dataclass(frozen=True, eq=False)
class Defended:
    """What a defence made of the uploads of a round."""

    uploads: Mapping[str, Payload]
    memory: Tree
    """For the next round: each room's reputation, and where the last round ended."""
    trust: Mapping[str, float] = field(default_factory=dict)
    """room → the share of its way from the middle that was merged, the least of its parts."""
    suspects: Mapping[str, str] = field(default_factory=dict)
    """room → why it is suspected in this round."""


@dataclass
class _Told:
    """What is found of a room while its uploads are looked at."""

    left: float = 1.0
    reasons: list[str] = field(default_factory=list)

    def keep(self, share: float) -> None:
        self.left = min(self.left, share)


def defend(
    how: Defence, uploads: Mapping[str, Payload], nets: Mapping[str, str], memory: Tree
) -> Defended:
    """The uploads that are merged, whatever the order of rooms.

    Args:
        how: the settings.
        uploads: room → what came and was accepted.
        nets: room → its architecture; rooms of other nets are not compared.
        memory: of the round before; empty at first.
    """
    if not how.is_on:
        return Defended(uploads, memory)
    reputations = {
        room: cast(float, value) for room, value in cast(Tree, memory.get("reputation", {})).items()
    }
    ended = dict(cast(Tree, memory.get("ended", {})))
    made: dict[str, Payload] = dict(uploads)
    told: dict[str, _Told] = {}
    found = {room: dict(leaves(uploads[room])) for room in sorted(uploads)}
    kinds = {room: _kind(nets[room], values) for room, values in found.items()}
    for net in sorted(set(kinds.values())):
        rooms = [room for room in found if kinds[room] == net]
        if len(rooms) < _FEWEST:
            continue
        given = [found[room] for room in rooms]
        before = cast(Tree, ended.get(net, {}))
        group = _Group(how, rooms, given, before)
        trust = group.judge(reputations)
        group.move(trust)
        ended[net] = group.ended
        for room, values in zip(rooms, given, strict=True):
            made[room] = _tree(values)
        told |= group.told
    return Defended(
        made,
        {"reputation": dict(sorted(reputations.items())), "ended": ended},
        {room: about.left for room, about in told.items()},
        {room: "; ".join(about.reasons) for room, about in told.items() if about.reasons},
    )


class _Group:
    """The uploads of rooms with equal nets, by path; they are changed in place, as copies."""

    def __init__(
        self, how: Defence, rooms: Sequence[str], given: Sequence[dict[str, Value]], before: Tree
    ) -> None:
        self.how, self.rooms, self.given, self.before = how, rooms, given, before
        self.told = {room: _Told() for room in rooms}
        self.ended: dict[str, Value] = {}

    # ---- who points elsewhere -------------------------------------------------------------------

    def judge(self, reputations: dict[str, float]) -> npt.NDArray[np.float64]:
        """How much each room is trusted [N]; ``reputations`` get this round's, too."""
        trust = np.ones(len(self.rooms))
        if not self.how.cosine:
            return trust
        bad = np.zeros(len(self.rooms), bool)
        parts = {
            "weights of the encoder": self._weights(classifier=False),
            "weights of the classifier": self._weights(classifier=True),
            "prototypes": self._prototypes(),
        }
        for part, scores in parts.items():
            heard = np.flatnonzero(~np.isnan(scores))
            if len(heard) < _FEWEST:
                continue
            low, limit = outlying(scores[heard], self.how.cosine, _LEAST_SPREAD)
            usual = float(np.median(scores[heard]))
            for place in heard[low].tolist():
                bad[place] = True
                self.told[self.rooms[place]].reasons.append(
                    f"its {part} point elsewhere: cosine {scores[place]:.2f} with the middle of "
                    f"all rooms, usual is {usual:.2f}, believed from {limit:.2f}"
                )
        trust[bad] = 0.0
        if self.how.reputation:
            share = self.how.reputation
            for place, room in enumerate(self.rooms):
                # Who is new is believed: the round itself may speak against it.
                known = share * reputations.get(room, 1.0) + (1 - share) * float(not bad[place])
                reputations[room] = known
                if known < _BELIEVED and not bad[place]:
                    self.told[room].reasons.append(
                        f"its reputation is {known:.2f} after earlier rounds, believed from "
                        f"{_BELIEVED:g}"
                    )
                trust[place] *= known if known >= _BELIEVED else 0.0
        return trust

    def _weights(self, *, classifier: bool) -> npt.NDArray[np.float64]:
        """cos(w_i − w, m − w) over all weights, w where the round began; NaN: none were sent.

        The classifier by itself, so that a lie in it alone does not drown in the encoder.
        """
        scores = np.full(len(self.rooms), np.nan)
        paths = [
            path
            for path in self._paths(_WEIGHTS)
            if path.startswith(f"{_WEIGHTS}{_CLASSIFIER}") == classifier
        ]
        if not paths:
            return scores
        holders, _ = self._stack(paths[0])
        if len(holders) < _FEWEST:
            return scores
        values = self._nets(paths, holders)  # (n, Σw)
        names = [path.removeprefix(_WEIGHTS) for path in paths]
        if all(name in self.before for name in names):
            begun = [cast(Floats, self.before[name]).reshape(-1) for name in names]
            values = values - np.concatenate(begun)
        scores[holders] = cosines(values, middle(values))
        return scores

    def _prototypes(self) -> npt.NDArray[np.float64]:
        """The mean over classes of cos(p_i^c − p̄_i, m^c − m̄_i): which class lies where.

        p̄_i and m̄_i are the means over the classes that room i holds: embeddings have much in
        common, whatever the class. NaN for a room with fewer than two classes that three hold.
        """
        sets = self._sets()
        scores = np.full(len(self.rooms), np.nan)
        if sets is None:
            return scores
        prototypes, present = sets  # (N, C, D), (N, C)
        shared = present.sum(axis=0) >= _FEWEST  # (C,)
        centre = np.zeros(prototypes.shape[1:], np.float32)  # (C, D)
        for place in np.flatnonzero(shared):
            centre[place] = middle(prototypes[present[:, place], place])
        for room in range(len(self.rooms)):
            mine = np.flatnonzero(present[room] & shared)
            if len(mine) < 2:
                continue
            own, usual = prototypes[room, mine], centre[mine]  # (c, D)
            own, usual = own - own.mean(axis=0), usual - usual.mean(axis=0)
            lengths = norms(own) * norms(usual)
            alike = np.einsum("cd,cd->c", own, usual, dtype=np.float64)
            scores[room] = float(
                np.divide(alike, lengths, out=np.zeros(len(mine)), where=lengths > 0).mean()
            )
        return scores

    # ---- what is merged -------------------------------------------------------------------------

    def move(self, trust: npt.NDArray[np.float64]) -> None:
        """Put what is merged in place of what came."""
        lost, number = np.zeros(len(self.rooms)), np.zeros(len(self.rooms))
        clipped = np.ones(len(self.rooms))
        for holders, values, put in self._coordinates():
            if len(holders) < _FEWEST:
                continue
            centre = middle(values)
            radius = np.inf
            if self.how.clip:
                radius = self.how.clip * float(np.median(norms(values - centre)))
            values, shares = nearer(values, centre, radius, trust[holders])
            clipped[holders] = np.minimum(clipped[holders], shares)
            if self.how.rule != "mean":
                trim = self.how.trim if self.how.rule == "trimmed" else _MEDIAN
                values, cut = cut_ends(values, trim)
                lost[holders] += cut * values[0].size
                number[holders] += values[0].size
            put(values)
        self._tell(trust, clipped, _mean(lost, number))

    def _tell(
        self,
        trust: npt.NDArray[np.float64],
        clipped: npt.NDArray[np.float64],
        lost: npt.NDArray[np.float64],
    ) -> None:
        """Name who was clipped or cut most."""
        usual = 2 * cut_number(self.how.trim, len(self.rooms)) / len(self.rooms)
        for place, room in enumerate(self.rooms):
            self.told[room].keep(float(trust[place] * clipped[place]))
            if clipped[place] < _SHARE_LEFT:
                self.told[room].reasons.append(
                    f"it is far from the others: clipped to {100 * clipped[place]:.0f} % of its "
                    "distance from the middle"
                )
            # With the median nearly all of every room is cut.
            if self.how.rule == "trimmed" and lost[place] > (1 + usual) / 2:
                self.told[room].reasons.append(
                    f"{100 * lost[place]:.0f} % of its values were cut off as the least or the "
                    f"largest, usual is {100 * usual:.0f} %"
                )

    def _coordinates(
        self,
    ) -> "list[tuple[npt.NDArray[np.int64], Floats, Callable[[Floats], None]]]":
        """What is compared: rooms, their values [n, …], and where the new ones go.

        All weights of a net are one vector, so that one distance is that of the net; a prototype is
        one for each class.
        """
        whole: list[tuple[npt.NDArray[np.int64], Floats, Callable[[Floats], None]]] = []
        paths = self._paths(_WEIGHTS)
        if paths:
            holders, _ = self._stack(paths[0])
            whole.append(
                (holders, self._nets(paths, holders), partial(self._put_nets, paths, holders))
            )
        sets = self._sets()
        if sets is not None:
            prototypes, present = sets
            for label in range(present.shape[1]):
                holders = np.flatnonzero(present[:, label])
                whole.append(
                    (holders, prototypes[holders, label], partial(self._put_rows, holders, label))
                )
        return whole

    def _nets(self, paths: Sequence[str], holders: npt.NDArray[np.int64]) -> Floats:
        """[n, Σw]."""
        return np.stack(
            [
                np.concatenate([cast(Floats, self.given[n][path]).reshape(-1) for path in paths])
                for n in holders.tolist()
            ]
        )

    def _put_nets(
        self, paths: Sequence[str], holders: npt.NDArray[np.int64], values: Floats
    ) -> None:
        """The weights of rooms, each from one vector; and where the round ended."""
        ended = values.mean(axis=0, dtype=np.float64).astype(np.float32)
        at = 0
        for path in paths:
            old = cast(Floats, self.given[int(holders[0])][path])
            part = slice(at, at + old.size)
            for place, own in zip(holders.tolist(), values, strict=True):
                new = own[part].reshape(old.shape)
                # Between variances lies no negative one, but for rounding.
                least = 0 if path.endswith("running_var") else -np.inf
                self.given[place][path] = np.maximum(new, np.float32(least))
            self.ended[path.removeprefix(_WEIGHTS)] = ended[part].reshape(old.shape)
            at += old.size

    def _put_rows(self, holders: npt.NDArray[np.int64], label: int, values: Floats) -> None:
        """The prototypes of one class."""
        for place, own in zip(holders.tolist(), values, strict=True):
            present = cast(npt.NDArray[np.bool_], self.given[place]["present"])
            rows = np.array(cast(Floats, self.given[place]["prototypes"]))
            rows[int(present[:label].sum())] = own
            self.given[place]["prototypes"] = rows

    # ---- what came ------------------------------------------------------------------------------

    def _paths(self, below: str) -> list[str]:
        """The float arrays that rooms sent below a place; what is counted is left alone."""
        return sorted(
            {
                path
                for values in self.given
                for path, value in values.items()
                if path.startswith(below)
                and isinstance(value, np.ndarray)
                and value.dtype == np.float32
            }
        )

    def _stack(self, path: str) -> tuple[npt.NDArray[np.int64], Floats]:
        """The rooms that sent an array, and it [n, …]."""
        holders = [n for n, values in enumerate(self.given) if path in values]
        return np.asarray(holders, np.int64), np.stack(
            [cast(Floats, self.given[n][path]) for n in holders]
        )

    def _sets(self) -> tuple[Floats, npt.NDArray[np.bool_]] | None:
        """P [N, C, D] and which are real [N, C]; none where no prototypes are sent."""
        if not all("prototypes" in values and "present" in values for values in self.given):
            return None
        present = np.stack([cast(npt.NDArray[np.bool_], each["present"]) for each in self.given])
        width = cast(Floats, self.given[0]["prototypes"]).shape[1]
        prototypes = np.zeros((*present.shape, width), np.float32)
        for place, values in enumerate(self.given):
            prototypes[place, present[place]] = cast(Floats, values["prototypes"])
        return prototypes, present


def _kind(net: str, values: Mapping[str, Value]) -> str:
    """What a room's upload can be compared with: nets of one name may differ in their shapes."""
    shapes = [
        (path, value.shape)
        for path, value in values.items()
        if path.startswith(_WEIGHTS) and isinstance(value, np.ndarray)
    ]
    return f"{net} {digest(repr(shapes).encode())}"


def _mean(total: npt.NDArray[np.float64], number: npt.NDArray[np.float64]) -> Any:
    """Total over number; NaN where there is none."""
    return np.divide(total, number, out=np.full(len(total), np.nan), where=number > 0)


def _tree(values: Mapping[str, Value]) -> Payload:
    """A payload from its leaves by path."""
    tree: dict[str, Any] = {}
    for path, value in values.items():
        *folders, last = path.split("/")
        at = tree
        for name in folders:
            at = at.setdefault(name, {})
        at[last] = value
    return tree
