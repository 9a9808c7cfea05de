"""Labels for recordings that were imported without one, and taking a label away.

A recording that got its label later may have been learned from before, by guesses or by a
normaliser. So it trains from then on and is never held out (``LABELLED_LATER``): no figure is of
windows that a net had seen without their label.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from fedapa.errors import DataError, nearest
from fedapa.stores.append import append_store
from fedapa.stores.store import Recording, Store
from fedapa.windows.labels import Label, sorted_labels

__all__ = ["Relabelled", "relabel", "unlabelled_recordings"]


@dataclass(frozen=True)
class Relabelled:
    """What became of a store."""

    changed: tuple[str, ...]
    """Recordings that have another label now, or none."""
    left: int
    """Recordings of the room that have no label still."""


def unlabelled_recordings(path: Path) -> list[Recording]:
    """The recordings of a store that have no label, by room and name."""
    with Store(path) as store:
        return [
            recording
            for room in store.rooms
            for recording in store.recordings(room)
            if recording.label is None
        ]


def relabel(
    path: Path,
    *,
    room: str,
    names: Sequence[str],
    label: Label | None,
    activity: str | None = None,
) -> Relabelled:
    """Give recordings of a room a label, or take theirs away; all of them or none.

    Args:
        path: the store.
        room: whose recordings.
        names: of the recordings; ``*`` and ``?`` stand for any letters and any letter.
        label: the new one; None takes it away.
        activity: a second label beside a count.
    """
    with Store(path) as store:
        if room not in store.rooms:
            raise DataError(f"{path}: there is no room '{room}'; {nearest(room, store.rooms)}")
        there = store.recordings(room)
        known = {one.label for other in store.rooms for one in store.recordings(other)}
    chosen = _chosen(path, room, there, names)
    for one in chosen:
        _check(path, one, label)
    kinds = {type(other) for other in known - {None}}
    if label is not None and kinds and type(label) not in kinds:
        raise DataError(
            f"{path}: has labels such as {sorted_labels(known)[0]!r}, and counts and categories do "
            f"not go into one store; {label!r:.60} is of the other kind: use "
            f"{'--count' if int in kinds else '--label'}"
        )
    if activity is not None and not isinstance(label, int):
        raise DataError(
            f"{path}: activity '{activity:.60}' stands beside a count; give --count, too"
        )
    changed = tuple(one.name for one in chosen)
    with append_store(path) as opened:
        for name in changed:
            opened.relabel(room, name, label, activity)
    left = [one for one in there if (label if one.name in changed else one.label) is None]
    return Relabelled(changed, len(left))


def _chosen(
    path: Path, room: str, there: Sequence[Recording], names: Sequence[str]
) -> list[Recording]:
    """The recordings that names or patterns mean; refuses one that means none."""
    for name in names:
        if not any(fnmatchcase(one.name, name) for one in there):
            raise DataError(
                f"{path}: room '{room}' has no recording '{name}'; "
                f"{nearest(name, [one.name for one in there])}"
            )
    return [one for one in there if any(fnmatchcase(one.name, name) for name in names)]


def _check(path: Path, one: Recording, label: Label | None) -> None:
    """Refuse what would be a second label, and what is no matter of labels."""
    place = f"{path}: {one.room}/{one.name}"
    if one.part == "continuous":
        raise DataError(
            f"{place}: is a continuous recording, for counting over time; import it again with "
            "another label"
        )
    if label is None and one.label is None:
        raise DataError(f"{place}: has no label that could be taken away")
    if label is not None and one.label is not None:
        raise DataError(
            f"{place}: is labelled {one.label!r} already; take that away first with --none, after "
            "which it trains and never tests"
        )
