"""Skewed rooms: one pool of windows dealt anew, with a label skew of a chosen strength.

Natural rooms differ in everything at once; here feature skew is shared out evenly and only the
labels differ, for ablations::

    dirichlet   each class is dealt out in shares drawn from Dir(α): small α, strong skew and
                unequal sizes; large α, rooms alike (Hsu et al., 2019). Where there are many rooms
                and few windows, some move so that every room can learn
    classes     each room holds k classes only, every class dealt evenly among its holders
                (McMahan et al., 2017)

What is dealt is whole recordings: neighbours in one are near twins, and dealing them window by
window would put one room's test windows into another's training. Only where the split is random,
and leaks anyway, are windows dealt one by one. Continuous recordings are not dealt: they belong to
the room that they were made in. Nor are those without a label: nobody knows whose they would be.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from fedapa.errors import DataError
from fedapa.files import cache_folder
from fedapa.randomness import Key
from fedapa.stores.arrays import ArrayFile, KeptArray, kept_array
from fedapa.stores.materialise import RoomWindows
from fedapa.windows.labels import Label, sorted_labels
from fedapa.windows.recipe import Recipe

__all__ = ["Partition", "by_classes", "by_dirichlet", "deal"]

Partition: TypeAlias = Literal["rooms", "dirichlet", "classes"]
_Index: TypeAlias = npt.NDArray[np.int64]

_ATTEMPTS = 100
"""Draws from Dir(α) until every room can learn and be tested; then the last one is mended."""
_LEAST_CLASSES, _LEAST_UNITS = 2, 2
"""What a room needs: so many classes with so many units each, to have something to tell apart and
something to be tested on."""


def by_dirichlet(
    labels: Sequence[Label], *, rooms: int, concentration: float, key: Key
) -> list[_Index]:
    """For each room the units it is dealt: of every class c a share p_c ~ Dir(α, …, α).

    Shares are drawn again until every room has two classes with two units each. Where many rooms
    share few units that hardly ever happens: then the last draw is mended, and rooms that lack
    units get the fewest that they need from those that hold most of a class.

    Args:
        labels: the class of each unit.
        rooms: how many to deal to.
        concentration: α.
        key: the stream.
    """
    known = sorted_labels(labels)
    units = [_units_of(labels, label) for label in known]
    pairs = sum(min(rooms, len(mine) // _LEAST_UNITS) for mine in units)
    if pairs < _LEAST_CLASSES * rooms:
        raise DataError(
            f"partition = 'dirichlet': {len(labels)} recordings (or windows) of {len(known)} "
            f"classes do not give each of {rooms} rooms two classes of two each; lower "
            "partition_rooms, or record more"
        )
    for attempt in range(_ATTEMPTS):
        stream = (key / attempt).numpy()
        dealt: list[list[_Index]] = [[] for _ in range(rooms)]
        for each in units:
            mine = stream.permutation(each)
            shares = stream.dirichlet(np.full(rooms, concentration))  # p_c
            edges = np.rint(np.cumsum(shares)[:-1] * len(mine)).astype(np.int64)
            for room, part in enumerate(np.split(mine, edges)):
                dealt[room].append(part)
        sizes = np.asarray([[len(part) for part in parts] for parts in dealt])  # (rooms, C)
        if _can_learn(sizes).all():
            return [np.sort(np.concatenate(parts)) for parts in dealt]
    mended = _mended([[part.tolist() for part in parts] for parts in dealt], sizes)
    if mended is None:
        raise DataError(
            f"partition = 'dirichlet': {len(labels)} recordings (or windows) of {len(known)} "
            f"classes leave one of {rooms} rooms without two classes of two each at "
            f"partition_concentration = {concentration:g}; raise it, or lower partition_rooms"
        )
    return [np.sort(np.concatenate([*map(_as_index, parts)])) for parts in mended]


def _as_index(units: Sequence[int]) -> _Index:
    return np.asarray(units, np.int64)


def _can_learn(sizes: _Index) -> npt.NDArray[np.bool_]:
    """[rooms], from how many units of each class every room has [rooms, C]."""
    return np.asarray((sizes >= _LEAST_UNITS).sum(axis=1) >= _LEAST_CLASSES)


def _mended(dealt: list[list[list[int]]], sizes: _Index) -> list[list[list[int]]] | None:
    """The units of every room and class, some moved so that every room can learn; None: in vain.

    A room gets units of the classes that it has most of already, each from the room that holds most
    of that class and can spare one. Nobody who can learn is made poorer than that.
    """
    for room in np.flatnonzero(~_can_learn(sizes)):
        for label in np.argsort(-sizes[room], kind="stable"):
            while not _can_learn(sizes)[room] and 0 <= sizes[room, label] < _LEAST_UNITS:
                giving = np.where(_can_spare(sizes, int(label)), sizes[:, label], 0)
                giving[room] = 0
                giver = int(giving.argmax())
                if not giving[giver]:
                    break
                dealt[room][label].append(dealt[giver][label].pop())
                sizes[room, label] += 1
                sizes[giver, label] -= 1
        if not _can_learn(sizes)[room]:
            return None
    return dealt


def _can_spare(sizes: _Index, label: int) -> npt.NDArray[np.bool_]:
    """[rooms], who can give a unit of a class and learn as before."""
    whole = (sizes >= _LEAST_UNITS).sum(axis=1)
    needed = (sizes[:, label] == _LEAST_UNITS) & (whole == _LEAST_CLASSES)
    return np.asarray((sizes[:, label] > 0) & ~needed)


def by_classes(labels: Sequence[Label], *, rooms: int, classes: int, key: Key) -> list[_Index]:
    """For each room the units it is dealt: ``classes`` classes each, in turn, shared evenly.

    With fewer places than classes (rooms · k < C) some classes are dealt to nobody.

    Args:
        labels: the class of each unit.
        rooms: how many to deal to.
        classes: k, classes in a room.
        key: the stream that decides the order of classes and units.
    """
    known = sorted_labels(labels)
    if classes > len(known):
        raise DataError(
            f"partition = 'classes': partition_classes = {classes}, but there are {len(known)} "
            "classes; lower it"
        )
    stream = key.numpy()
    turn = stream.permutation(len(known))
    holders: dict[int, list[int]] = {}
    for place in range(rooms * classes):
        holders.setdefault(int(turn[place % len(known)]), []).append(place // classes)
    dealt: list[list[_Index]] = [[] for _ in range(rooms)]
    for index in sorted(holders):
        mine = stream.permutation(_units_of(labels, known[index]))
        among = holders[index]
        if len(mine) < 2 * len(among):
            raise DataError(
                f"partition = 'classes': class {known[index]!r} has {len(mine)} recordings (or "
                f"windows) for {len(among)} rooms, two each are needed; lower partition_rooms or "
                "partition_classes"
            )
        for room, part in zip(among, np.array_split(mine, len(among)), strict=True):
            dealt[room].append(part)
    return [np.sort(np.concatenate(parts)) for parts in dealt]


def deal(
    pool: Sequence[RoomWindows],
    *,
    kind: Literal["dirichlet", "classes"],
    rooms: int,
    concentration: float,
    classes: int,
    whole_recordings: bool,
    key: Key,
) -> tuple[RoomWindows, ...]:
    """New rooms "part 01", "part 02" … from the windows of ``pool``, written to the cache."""
    rows = [_dealt_rows(room) for room in pool]
    origin = np.concatenate([np.full(len(mine), n) for n, mine in enumerate(rows)])
    row = np.concatenate(rows)
    homes = [(pool[n], int(place)) for n, place in zip(origin, row, strict=True)]
    labels = [cast(Label, room.labels[place]) for room, place in homes]
    recordings = [f"{room.room} · {room.recordings[place]}" for room, place in homes]
    days = [room.days[place] and f"{room.room} · {room.days[place]}" for room, place in homes]
    starts = np.concatenate([room.starts[mine] for room, mine in zip(pool, rows, strict=True)])
    # A unit is what is dealt whole: the number of its first window stands for it.
    names = recordings if whole_recordings else [str(number) for number in range(len(labels))]
    _, first, unit = np.unique(names, return_index=True, return_inverse=True)
    unit_labels = [labels[int(number)] for number in first]
    if kind == "dirichlet":
        dealt = by_dirichlet(unit_labels, rooms=rooms, concentration=concentration, key=key)
    else:
        dealt = by_classes(unit_labels, rooms=rooms, classes=classes, key=key)
    spans = max(room.spans for room in pool)
    new = []
    for number, units in enumerate(dealt, start=1):
        chosen = np.flatnonzero(np.isin(unit, units))
        kept = _write(pool, origin[chosen], row[chosen])
        new.append(
            RoomWindows(
                room=f"part {number:02d}",
                path=kept.path,
                labels=tuple(labels[int(window)] for window in chosen),
                recordings=tuple(recordings[int(window)] for window in chosen),
                days=tuple(days[int(window)] for window in chosen),
                continuous=(False,) * len(chosen),
                starts=starts[chosen],
                spans=spans,
                step=max(room.step for room in pool),
                synthetic=any(pool[int(n)].synthetic for n in np.unique(origin[chosen])),
                recipe=Recipe.common([pool[int(n)].recipe for n in np.unique(origin[chosen])]),
                digest=kept.digest,
            )
        )
    return tuple(new)


def _dealt_rows(room: RoomWindows) -> _Index:
    labelled = np.asarray([label is not None for label in room.labels], bool)
    later = np.asarray(room.train_only or [False] * len(room.labels), bool)
    return np.flatnonzero(labelled & ~np.asarray(room.continuous, bool) & ~later)


def _write(pool: Sequence[RoomWindows], origin: _Index, row: _Index) -> KeptArray:
    """The chosen windows in a file of their own, named by what it holds."""
    content = repr([room.digest for room in pool]).encode() + origin.tobytes() + row.tobytes()
    name = hashlib.blake2b(content, digest_size=12).hexdigest()
    sources = [room.open() for room in pool]

    def copy(out: ArrayFile) -> dict[str, Any]:
        for n, window in zip(origin, row, strict=True):
            out.append(sources[n][window])
        return {}

    return kept_array(cache_folder() / "partitions" / f"{name}.npy", copy)


def _units_of(labels: Sequence[Label], wanted: Label) -> _Index:
    return np.asarray([n for n, label in enumerate(labels) if label == wanted], np.int64)
