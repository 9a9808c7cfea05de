"""Skewed rooms: one pool of windows dealt anew, with a label skew of a chosen strength.

Natural rooms differ in everything at once; here feature skew is shared out evenly and only the
labels differ, for ablations::

    dirichlet   each class is dealt out in shares drawn from Dir(α): small α, strong skew and
                unequal sizes; large α, rooms alike (Hsu et al., 2019)
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
"""Draws from Dir(α) until every room can learn and be tested."""


def by_dirichlet(
    labels: Sequence[Label], *, rooms: int, concentration: float, key: Key
) -> list[_Index]:
    """For each room the units it is dealt: of every class c a share p_c ~ Dir(α, …, α).

    Shares are drawn again until every room has two classes with two units each, so that it has
    something to tell apart and something to be tested on.

    Args:
        labels: the class of each unit.
        rooms: how many to deal to.
        concentration: α.
        key: the stream.
    """
    known = sorted_labels(labels)
    for attempt in range(_ATTEMPTS):
        stream = (key / attempt).numpy()
        dealt: list[list[_Index]] = [[] for _ in range(rooms)]
        for label in known:
            mine = stream.permutation(_units_of(labels, label))
            shares = stream.dirichlet(np.full(rooms, concentration))  # p_c
            edges = np.rint(np.cumsum(shares)[:-1] * len(mine)).astype(np.int64)
            for room, part in enumerate(np.split(mine, edges)):
                dealt[room].append(part)
        if all(sum(len(part) >= 2 for part in parts) >= 2 for parts in dealt):
            return [np.sort(np.concatenate(parts)) for parts in dealt]
    raise DataError(
        f"partition = 'dirichlet': {len(labels)} recordings (or windows) of {len(known)} classes "
        f"leave one of {rooms} rooms without two classes of two each at partition_concentration = "
        f"{concentration:g}; raise it, or lower partition_rooms"
    )


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
