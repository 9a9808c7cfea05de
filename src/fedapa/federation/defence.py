"""What the server merges in place of uploads that may lie; off unless the plan asks for it.

Unlike acceptance.py, which rejects what no honest room can send, this expects uploads that look
plausible. It stands between the two: after acceptance, before ``merge``, for every algorithm and
every engine. Nothing is rejected here; every room keeps its place, and what is merged for it lies
nearer to the *middle*, the median of the believed rooms in every coordinate:

1. ``cosine``: a room whose upload points elsewhere than the middle, by so many usual spreads, to
   which its distance adds, is replaced by the mean of the others (Muñoz-González et al., arXiv
   1909.05125, 2019: cosines with the aggregate, limits from their median).
   It is looked at twice: who is suspected at first has no part in the middle of the second look.
2. ``reputation``: over rounds; a room that was replaced often stays replaced for some rounds (the
   same: a posterior of honest rounds; here an exponential mean that is lost faster than it comes
   back).
3. ``clip``: nobody is further from the middle than so many times the usual distance (Karimireddy et
   al., ICML 2021: clipping around a centre; Sun et al., arXiv 1911.07963, 2019: norms).
4. ``rule``: the ends of every coordinate are cut off (Yin et al., ICML 2018: the coordinate-wise
   median and the trimmed mean).

Rooms are compared wherever what they send is merged, so that nobody escapes by a net of his own:
prototypes class by class over all rooms that hold it, whatever their nets; weights over the rooms
whose nets have one name and an array of one name and shape. Of fewer than three rooms nobody knows
who lies: they are left as they came, and it is told (``alone``), unless a room is known for a liar
by something else; then it has no say there either.

Single numbers are kept within a few times their median wherever a defence is on: n_i, by which a
room counts in a mean, FedJoin's temperature, CARING's accuracy.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field

from fedapa.algorithms.algorithm import Payload
from fedapa.learning.fit import NotNegative
from fedapa.learning.robust import (
    cosines,
    cosines_of_classes,
    cut_ends,
    cut_number,
    middle,
    nearer,
    norms,
    spreads_below,
)
from fedapa.payload import Tree, Value, digest, leaves

__all__ = ["NAMED", "Defence", "Defended", "defend"]

_FEWEST = 3
"""Rooms to compare: of two nobody knows who lies."""
_LEAST_SPREAD = 0.05
"""Of cosines: rooms that are more alike than this do not accuse each other."""
_BELIEVED = 0.5
"""The reputation below which a room is replaced, whatever it sends."""
_SLOWER = 6.0
"""So many times as slowly a reputation comes back as it is lost. Late in a run the steps of honest
rooms point anywhere, so that liars pass for some rounds; by then they are known."""
_SHARE_LEFT = 0.5
"""Of its way from the middle: who is clipped to less is named."""
_LEAST_FACTOR = 0.25
"""The spread of logarithms of distances, at least: who is 1.28 times as far off as usual is one
spread further."""
_AT_MOST = 3.0
"""κ: so many times as much as its direction speaks against a room its distance may at most."""
_NEAR = 0.5
"""Of the usual distance: who is nearer is near, or a room that is the middle itself would make the
spread of distances endless."""
_FAR = 8.0
"""Times the usual distance from the middle: who is further is replaced whatever its cosine. A
scaled upload points where the others point, and clipped it would still be merged."""
_MEDIAN = 0.5
_UNUSUAL = 5.0
"""How many times the median a number may be, or its median it: of windows, or a temperature."""
_WEIGHTS = "weights/"
_CLASSIFIER = "classifier."
"""Where weights stand in an upload, and which of them are the classifier's."""
_COUNTS = "counts"
_WINDOWS = "windows"
"""The numbers behind prototypes, and the number by which a room's weights count in a mean."""

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


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
    """How many usual spreads a room may be off the middle, by its cosine with it and its distance
    from it together; 0 asks nobody."""
    reputation: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """β: how much of a room's reputation is that of earlier rounds; 0 forgets them."""

    @property
    def is_on(self) -> bool:
        """Whether anything is done."""
        return self.rule != "mean" or self.clip > 0 or self.cosine > 0


_GUARD: Mapping[str, Any] = {"cosine": 4.0, "reputation": 0.7, "clip": 2.0}
NAMED: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "median": {"rule": "median"},
    "trimmed": {"rule": "trimmed"},
    "clip": {"clip": 2.0},
    "guard": _GUARD,
    "guard-trimmed": {**_GUARD, "rule": "trimmed", "trim": 0.1},
}
"""Defences by name: ``defence = "guard"`` in a plan. With ``guard`` before it a trimmed mean need
not cut off as many as may lie, which costs honest rooms their own half of what is cut."""


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
    alone: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """weights or prototypes → rooms of which nothing of that kind can be compared, so that it
    counts as it came; those that were not told in an earlier round."""


@dataclass
class _Told:
    """What is found of a room while its uploads are looked at."""

    left: float = 1.0
    reasons: list[str] = field(default_factory=list)
    trust: float = 1.0
    compared: set[str] = field(default_factory=set)
    """Of its weights and prototypes what was held against a middle."""
    clipped: float = 1.0
    values: int = 0
    """Numbers whose ends were cut off; how many of them were this room's, and are on average."""
    cut: float = 0.0
    usually: float = 0.0


def defend(
    how: Defence, uploads: Mapping[str, Payload], nets: Mapping[str, str], memory: Tree
) -> Defended:
    """The uploads that are merged, whatever the order of rooms.

    Args:
        how: the settings.
        uploads: room → what came and was accepted.
        nets: room → the name of its net; weights of other names are not averaged.
        memory: of the round before; empty at first.
    """
    if not how.is_on:
        return Defended(uploads, memory)
    reputations = {
        room: cast(float, value) for room, value in cast(Tree, memory.get("reputation", {})).items()
    }
    ended = dict(cast(Tree, memory.get("ended", {})))
    found: _Found = {room: dict(leaves(uploads[room])) for room in sorted(uploads)}
    parts: list[_Weights | _Sets] = [*_weights(found, nets, ended), *_sets(found)]
    told = {room: _Told() for part in parts for room in part.rooms}
    if how.cosine:
        _judge(how, parts, told, reputations)
    _moderate(found, told)
    for part in parts:
        _move(how, part, told)
        if isinstance(part, _Weights):
            ended[part.name] = part.ended
    _forget_unseen(found, nets, parts, ended)
    alone = _alone(uploads, told)
    _silence(found, nets, told)
    _tell(how, told)
    known = cast(Mapping[str, Tree], memory.get("alone", {}))
    ever = {
        what: dict.fromkeys(sorted({*known.get(what, {}), *alone.get(what, ())}), True)
        for what in sorted({*known, *alone})
    }
    return Defended(
        {room: _tree(found[room]) if room in told else uploads[room] for room in uploads},
        {
            "reputation": dict(sorted(reputations.items())),
            "ended": ended,
            **({"alone": ever} if ever else {}),
        },
        # Who is compared with nobody is neither trusted nor distrusted.
        {
            room: about.left
            for room, about in sorted(told.items())
            if about.compared or not about.trust
        },
        {room: "; ".join(about.reasons) for room, about in told.items() if about.reasons},
        {
            what: [room for room in rooms if room not in known.get(what, {})]
            for what, rooms in alone.items()
        },
    )


def _alone(uploads: Mapping[str, Payload], told: Mapping[str, _Told]) -> dict[str, list[str]]:
    """By kind, weights or prototypes: rooms that sent some, none of which three rooms have.

    Not those that are known for liars by something else: what they send does not count as it came.
    """
    found: dict[str, list[str]] = {}
    for room in sorted(room for room in uploads if room not in told or told[room].trust):
        compared = told[room].compared if room in told else set()
        for what in _kinds(uploads[room]) - compared:
            found.setdefault(what, []).append(room)
    return dict(sorted(found.items()))


def _kinds(upload: Payload) -> set[str]:
    """What of weights and prototypes there is in it."""
    kinds = set()
    if any(path.startswith(_WEIGHTS) for path, _ in leaves(upload)):
        kinds.add(_Weights.what)
    if np.any(cast(Mask, upload.get("present", False))):
        kinds.add(_Sets.what)
    return kinds


def _forget_unseen(
    found: "_Found",
    nets: Mapping[str, str],
    parts: "Sequence[_Weights | _Sets]",
    ended: dict[str, Value],
) -> None:
    """Forget where nets stood that were merged in this round without being compared.

    Fewer than three rooms sent them, or other rooms share their arrays than before: nobody here
    sees where the round ends.
    """
    merged = {net for net, _, _ in _holders_of_weights(found, nets)}
    seen = {part.name for part in parts if isinstance(part, _Weights)}
    for name in [name for name in ended if name not in seen]:
        if name.rpartition(" ")[0] in merged:
            del ended[name]


# ---- who points elsewhere -----------------------------------------------------------------------


def _judge(
    how: Defence,
    parts: "Sequence[_Weights | _Sets]",
    told: Mapping[str, _Told],
    reputations: dict[str, float],
) -> None:
    """How much each room is trusted; ``reputations`` get this round's, too.

    A middle with liars in it points elsewhere itself, and honest rooms are unlike it: so those that
    are known or found at first sight have no part in the one that decides. Limits are of all rooms
    in both looks: those of the believed alone would be narrower each time.
    """
    believed = {room for room in told if reputations.get(room, 1.0) >= _BELIEVED}
    believed -= _suspected(how, parts, believed).keys()
    bad = _suspected(how, parts, believed)
    for room, about in told.items():
        about.reasons += bad.get(room, [])
        about.trust = float(room not in bad)
        if how.reputation:
            # Who is new is believed: the round itself may speak against it.
            known = reputations.get(room, 1.0)
            lost = 1 - how.reputation
            known += -lost * known if room in bad else lost / _SLOWER * (1 - known)
            reputations[room] = known
            if known < _BELIEVED and room not in bad:
                about.trust = 0.0
                about.reasons.append(
                    f"its reputation is {known:.2f} after earlier rounds, believed from "
                    f"{_BELIEVED:g}"
                )


def _suspected(
    how: Defence, parts: "Sequence[_Weights | _Sets]", believed: Set[str]
) -> dict[str, list[str]]:
    """Why rooms are suspected, by room: those that are unlike the middle of the believed.

    Direction and distance speak together, z + min(z′, κ·z) in usual spreads. Honest rooms with few
    windows point elsewhere now and then, and those with many go further; liars do both. So a
    distance only adds to a direction that is off, and only to the direction in which it was gone.
    """
    why: dict[str, list[str]] = {}
    for part in parts:
        distances = _distances(part, believed)
        further = _further(distances)
        worst: dict[str, tuple[float, str]] = {}
        for seen in part.seen(believed):
            heard = np.flatnonzero(~np.isnan(seen.scores))
            if len(heard) < _FEWEST:
                continue
            usual = float(np.median(seen.scores[heard]))
            below = spreads_below(seen.scores[heard], _LEAST_SPREAD)
            for place, spreads in zip(heard.tolist(), below.tolist(), strict=True):
                room, off, beside = part.rooms[place], spreads, ""
                if seen.gone and spreads > 0:
                    off += min(further.get(room, 0.0), _AT_MOST * spreads)
                    beside = f", {distances.get(room, 0.0):.1f} times the usual distance"
                if off > worst.get(room, (how.cosine, ""))[0]:
                    worst[room] = (
                        off,
                        f"its {seen.what} are elsewhere, {off:.1f} usual spreads off, believed up "
                        f"to {how.cosine:g}: cosine {seen.scores[place]:.2f} with the middle of "
                        f"the believed rooms, usual is {usual:.2f}{beside}",
                    )
        for room, times in distances.items():
            if times > _FAR and room not in worst:
                worst[room] = (
                    times,
                    f"its {part.what} are far from the middle of the believed rooms: {times:.0f} "
                    f"times the usual distance, believed up to {_FAR:g}",
                )
        for room, (_, reason) in worst.items():
            why.setdefault(room, []).append(reason)
    return why


def _further(distances: Mapping[str, float]) -> dict[str, float]:
    """By room: how many usual spreads it is further off than usual, by logarithms; 0 at least."""
    if not distances:
        return {}
    near = -np.log(np.maximum(list(distances.values()), _NEAR))
    spreads = np.maximum(spreads_below(near, _LEAST_FACTOR), 0.0)
    return dict(zip(distances, spreads.tolist(), strict=True))


def _distances(part: "_Weights | _Sets", believed: Set[str]) -> dict[str, float]:
    """By room: its distance from the middle, in usual ones; the mean over what is compared."""
    found: dict[str, list[float]] = {}
    for rooms, values, _ in part.coordinates():
        _, distance, usual = _around(rooms, values, believed)
        if usual > 0:  # where most agree to the last bit, everybody else would be far
            for room, own in zip(rooms, distance.tolist(), strict=True):
                found.setdefault(room, []).append(own / usual)
    return {room: float(np.mean(times)) for room, times in found.items()}


def _around(
    rooms: Sequence[str], values: Floats, believed: Set[str]
) -> tuple[Floats, npt.NDArray[np.float64], float]:
    """The middle of the believed […], all distances from it [n], and the usual one of theirs."""
    own = _places(rooms, believed)
    centre = middle(values[own])
    distance = norms(values - centre)
    return centre, distance, float(np.median(distance[own]))


def _places(rooms: Sequence[str], believed: Set[str]) -> list[int]:
    """Where the believed stand among the rooms; all, where they are too few to compare."""
    own = [place for place, room in enumerate(rooms) if room in believed]
    return own if len(own) >= _FEWEST else list(range(len(rooms)))


# ---- what is merged -----------------------------------------------------------------------------


def _move(how: Defence, part: "_Weights | _Sets", told: Mapping[str, _Told]) -> None:
    """Put what is merged in place of what came."""
    believed = {room for room, about in told.items() if about.trust}
    for rooms, values, put in part.coordinates():
        centre, _, usual = _around(rooms, values, believed)
        radius = how.clip * usual if how.clip else np.inf
        trust = np.asarray([told[room].trust for room in rooms])
        made, shares = nearer(values, centre, radius, trust)
        for room, share in zip(rooms, shares.tolist(), strict=True):
            told[room].compared.add(part.what)
            told[room].clipped = min(told[room].clipped, share)
        if how.rule != "mean":
            trim = how.trim if how.rule == "trimmed" else _MEDIAN
            made, cut = cut_ends(made, trim)
            size = made[0].size
            usually = 2 * cut_number(how.trim, len(rooms)) / len(rooms)
            for room, lost in zip(rooms, cut.tolist(), strict=True):
                told[room].values += size
                told[room].cut += size * lost
                told[room].usually += size * usually
        put(made)


def _silence(found: "_Found", nets: Mapping[str, str], told: Mapping[str, _Told]) -> None:
    """What is not compared, of rooms that are not trusted: it is what the other who has it says.

    One or two rooms have it. A prototype that no trusted room has is taken out; weights that no
    trusted room has are averaged with nobody else's.
    """
    untrusted = {room for room, about in told.items() if not about.trust}
    for (_, path, _), rooms in _holders_of_weights(found, nets).items():
        trusted = [room for room in rooms if room not in untrusted]
        if trusted and len(rooms) < _FEWEST:
            for room in untrusted.intersection(rooms):
                found[room][path] = np.array(found[trusted[0]][path])
    holders: dict[tuple[tuple[int, int], int], list[str]] = {}
    for room, values in found.items():
        if (form := _form_of(values)) is not None:
            for label in np.flatnonzero(cast(Mask, values["present"])).tolist():
                holders.setdefault((form, label), []).append(room)
    for (_, label), rooms in holders.items():
        trusted = [room for room in rooms if room not in untrusted]
        if len(trusted) == 0 or len(rooms) < _FEWEST:
            for room in untrusted.intersection(rooms):
                _say_as(found[room], label, found[trusted[0]] if trusted else None)


def _say_as(mine: dict[str, Value], label: int, other: Mapping[str, Value] | None) -> None:
    """The prototype of a class is that of another room; without one the room does not tell it."""
    present, rows = cast(Mask, mine["present"]), cast(Floats, mine["prototypes"])
    row = int(present[:label].sum())
    if other is not None:
        held = cast(Mask, other["present"])
        rows = np.array(rows)
        rows[row] = cast(Floats, other["prototypes"])[int(held[:label].sum())]
    else:
        rows, present = np.delete(rows, row, axis=0), np.array(present)
        present[label] = False
        if _COUNTS in mine:
            mine[_COUNTS] = np.where(present, cast("npt.NDArray[np.int64]", mine[_COUNTS]), 0)
    mine["prototypes"], mine["present"] = rows, present


def _form_of(values: Mapping[str, Value]) -> tuple[int, int] | None:
    """(C, D) of a room's set; None where it sent none."""
    if "prototypes" not in values or "present" not in values:
        return None
    present = cast(Mask, values["present"])
    return len(present), cast(Floats, values["prototypes"]).shape[1]


def _moderate(found: "_Found", told: Mapping[str, _Told]) -> None:
    """Numbers that are no arrays, and those behind prototypes, within a few times their median.

    They are weights in a mean, or one of the means: a room that is believed with 10,000 times the
    usual windows would be the mean.
    """
    paths = sorted({path for room in told for path in found[room]})
    for path in paths:
        given = {room: found[room][path] for room in sorted(told) if path in found[room]}
        if len(given) < _FEWEST:
            continue
        if all(isinstance(value, int | float) for value in given.values()):
            numbers = {room: float(cast(float, value)) for room, value in given.items()}
            # Rooms without a window say 0; what is usual is that of the others.
            usual = float(np.median([number for number in numbers.values() if number > 0] or [0]))
            for room, value in given.items():
                if isinstance(value, bool) or usual <= 0:
                    continue
                if path == _WINDOWS:
                    found[room][path] = min(cast(int, value), max(1, round(_UNUSUAL * usual)))
                else:
                    near = min(max(numbers[room], usual / _UNUSUAL), usual * _UNUSUAL)
                    found[room][path] = near if told[room].trust else usual
        elif path == _COUNTS:
            counts = np.stack([cast("npt.NDArray[np.int64]", value) for value in given.values()])
            for label in range(counts.shape[1]):
                held = counts[:, label][counts[:, label] > 0]
                if len(held) >= _FEWEST:
                    most = max(1, round(_UNUSUAL * float(np.median(held))))
                    counts[:, label] = np.minimum(counts[:, label], most)
            for room, own in zip(given, counts, strict=True):
                found[room][path] = own


def _tell(how: Defence, told: Mapping[str, _Told]) -> None:
    """Name who was clipped or cut most."""
    for about in told.values():
        about.left = about.trust * about.clipped
        if about.clipped < _SHARE_LEFT:
            about.reasons.append(
                f"it is far from the others: clipped to {100 * about.clipped:.0f} % of its "
                "distance from the middle"
            )
        # With the median nearly all of every room is cut.
        if how.rule == "trimmed" and about.cut > (about.values + about.usually) / 2:
            about.reasons.append(
                f"{100 * about.cut / about.values:.0f} % of its values were cut off as the least "
                f"or the largest, usual is {100 * about.usually / about.values:.0f} %"
            )


# ---- what came ----------------------------------------------------------------------------------

_Found: TypeAlias = dict[str, dict[str, Value]]
"""room → path → what came, then what is merged."""
_Compared: TypeAlias = tuple[Sequence[str], Floats, Callable[[Floats], None]]
"""Rooms, their values [n, …], and where the new ones go."""


@dataclass(frozen=True, eq=False)
class _Seen:
    """How rooms look from one side."""

    what: str
    scores: npt.NDArray[np.float64]
    """Of every room its cosine with the middle; NaN where there is none."""
    gone: bool
    """Whether the distance from the middle is one in the direction that was looked at."""


@dataclass
class _Weights:
    """Arrays that the same rooms have, all of them one vector: one distance is that of the net."""

    what: ClassVar[str] = "weights"
    name: str
    rooms: Sequence[str]
    paths: Sequence[str]
    found: _Found
    before: Tree
    """Where the last round ended; empty where nobody knows."""
    ended: dict[str, Value] = field(default_factory=dict)

    def seen(self, believed: Set[str]) -> Iterator[_Seen]:
        """cos(w_i − w, m − w) over all weights, w where the round began.

        The classifier by itself, so that a lie in it alone does not drown in the encoder; and its
        rows class by class as they are, as prototypes: which class lies where. In a round's steps
        honest rooms with few windows are as unlike each other as rows under other labels.
        """
        usual = _places(self.rooms, believed)
        for what, classifier in (("encoder", False), ("classifier", True)):
            paths = [
                path
                for path in self.paths
                if path.startswith(f"{_WEIGHTS}{_CLASSIFIER}") == classifier
            ]
            if paths:
                values = self._stacked(paths)  # (n, Σw)
                names = [path.removeprefix(_WEIGHTS) for path in paths]
                known = all(name in self.before for name in names)
                if known:
                    begun = [cast(Floats, self.before[name]).reshape(-1) for name in names]
                    values = values - np.concatenate(begun)
                yield _Seen(
                    f"weights of the {what}", cosines(values, middle(values[usual])), gone=known
                )
        for path in self.paths:
            if path.startswith(f"{_WEIGHTS}{_CLASSIFIER}"):
                rows = np.stack([cast(Floats, self.found[room][path]) for room in self.rooms])
                if rows.ndim == 3 and rows.shape[1] > 1:  # (n, C, D)
                    centre = middle(rows[usual])
                    alike = np.asarray([cosines_of_classes(own, centre) for own in rows])
                    yield _Seen("rows of the classifier", alike, gone=False)

    def coordinates(self) -> Iterator[_Compared]:
        yield self.rooms, self._stacked(self.paths), self._put

    def _stacked(self, paths: Sequence[str]) -> Floats:
        """[n, Σw]."""
        return np.stack(
            [
                np.concatenate([cast(Floats, self.found[room][path]).reshape(-1) for path in paths])
                for room in self.rooms
            ]
        )

    def _put(self, values: Floats) -> None:
        """The weights of rooms, each from one vector; and where the round ended.

        Means are by windows where rooms tell how many they have, as FedAvg's: there the next round
        begins, and steps are counted from there.
        """
        numbers = [float(cast(int, self.found[room].get(_WINDOWS, 1))) for room in self.rooms]
        # Rooms without windows do not count, unless all are such.
        by_windows = numbers if any(numbers) else None
        ended = np.average(values, axis=0, weights=by_windows).astype(np.float32)
        at = 0
        for path in self.paths:
            old = cast(Floats, self.found[self.rooms[0]][path])
            part = slice(at, at + old.size)
            for room, own in zip(self.rooms, values, strict=True):
                new = own[part].reshape(old.shape)
                # Between variances lies no negative one, but for rounding.
                least = 0 if path.endswith("running_var") else -np.inf
                self.found[room][path] = np.maximum(new, np.float32(least))
            self.ended[path.removeprefix(_WEIGHTS)] = ended[part].reshape(old.shape)
            at += old.size


def _weights(found: _Found, nets: Mapping[str, str], ended: Tree) -> Iterator[_Weights]:
    """By the name of the net and by who has an array of that name and shape.

    Rooms of equal nets are one part. A net with one array more has all others in common still.
    """
    parts: dict[tuple[str, tuple[str, ...]], list[tuple[str, tuple[int, ...]]]] = {}
    for (net, path, shape), rooms in sorted(_holders_of_weights(found, nets).items()):
        if len(rooms) >= _FEWEST:
            parts.setdefault((net, tuple(rooms)), []).append((path, shape))
    for (net, together), arrays in sorted(parts.items()):
        name = f"{net} {digest(repr(arrays).encode())}"
        paths = [path for path, _ in arrays]
        yield _Weights(name, together, paths, found, cast(Tree, ended.get(name, {})))


def _holders_of_weights(
    found: _Found, nets: Mapping[str, str]
) -> dict[tuple[str, str, tuple[int, ...]], list[str]]:
    """(net, path, shape) → the rooms that have such an array of weights."""
    holders: dict[tuple[str, str, tuple[int, ...]], list[str]] = {}
    for room, values in found.items():
        for path, value in values.items():
            if (
                path.startswith(_WEIGHTS)
                and isinstance(value, np.ndarray)
                and value.dtype == np.float32  # what is counted is left alone
            ):
                holders.setdefault((nets[room], path, value.shape), []).append(room)
    return holders


@dataclass
class _Sets:
    """The prototypes of rooms, whatever their nets: they are mixed all the same."""

    what: ClassVar[str] = "prototypes"
    rooms: Sequence[str]
    found: _Found

    def seen(self, believed: Set[str]) -> Iterator[_Seen]:
        """The mean over classes of cos(p_i^c − p̄_i, m^c − m̄_i): which class lies where.

        p̄_i and m̄_i are the means over the classes that room i and three in all hold: embeddings
        have much in common, whatever the class. Who tells a single class is held against m̄ of
        all classes in the place of both; where three rooms share a single class there is no m̄,
        and its cosine counts as it is. NaN for a room without any class that three hold.
        """
        scores = np.full(len(self.rooms), np.nan)
        prototypes, present = self._stacked()  # (N, C, D), (N, C)
        shared = present.sum(axis=0) >= _FEWEST  # (C,)
        centre = np.zeros(prototypes.shape[1:], np.float32)  # (C, D)
        for place in np.flatnonzero(shared):
            holders = np.flatnonzero(present[:, place])
            rooms = [self.rooms[holder] for holder in holders.tolist()]
            centre[place] = middle(prototypes[holders[_places(rooms, believed)], place])
        for room in range(len(self.rooms)):
            mine = np.flatnonzero(present[room] & shared)
            if len(mine) > 1:
                scores[room] = cosines_of_classes(prototypes[room, mine], centre[mine])
            elif len(mine) == 1:
                several = shared.sum() > 1
                usual = centre[shared].mean(axis=0) if several else np.zeros_like(centre[0])  # (D,)
                scores[room] = cosines(prototypes[room, mine] - usual, centre[mine[0]] - usual)[0]
        yield _Seen(self.what, scores, gone=True)

    def coordinates(self) -> Iterator[_Compared]:
        prototypes, present = self._stacked()
        for label in range(present.shape[1]):
            holders = np.flatnonzero(present[:, label])
            if len(holders) >= _FEWEST:
                rooms = [self.rooms[place] for place in holders.tolist()]
                yield rooms, prototypes[holders, label], partial(self._put, rooms, label)

    def _stacked(self) -> tuple[Floats, Mask]:
        """P [N, C, D] and which are real [N, C]."""
        given = [self.found[room] for room in self.rooms]
        present = np.stack([cast(Mask, each["present"]) for each in given])
        width = cast(Floats, given[0]["prototypes"]).shape[1]
        prototypes = np.zeros((*present.shape, width), np.float32)
        for place, values in enumerate(given):
            prototypes[place, present[place]] = cast(Floats, values["prototypes"])
        return prototypes, present

    def _put(self, rooms: Sequence[str], label: int, values: Floats) -> None:
        """The prototypes of one class."""
        for room, own in zip(rooms, values, strict=True):
            present = cast(Mask, self.found[room]["present"])
            rows = np.array(cast(Floats, self.found[room]["prototypes"]))
            rows[int(present[:label].sum())] = own
            self.found[room]["prototypes"] = rows


def _sets(found: _Found) -> Iterator[_Sets]:
    """Rooms whose sets have one form; those that sent none are no part of it."""
    by_form: dict[tuple[int, int], list[str]] = {}
    for room, values in found.items():
        if (form := _form_of(values)) is not None:
            by_form.setdefault(form, []).append(room)
    for _, rooms in sorted(by_form.items()):
        if len(rooms) >= _FEWEST:
            yield _Sets(rooms, found)


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
