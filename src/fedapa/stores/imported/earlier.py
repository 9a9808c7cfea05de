"""What a store holds already, and what may not be added: second labels, other recipes."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from fedapa.errors import DataError
from fedapa.stores.append import StoreAppender
from fedapa.stores.imported.sources import Source, overlap, same, seconds_of
from fedapa.stores.store import LABELLED_LATER
from fedapa.windows.labels import Label
from fedapa.windows.recipe import Recipe

__all__ = [
    "identity",
    "imported_before",
    "refuse_mixed_labels",
    "refuse_other_recipe",
    "refuse_overlaps",
    "refuse_second_label",
    "taken_names",
]


def identity(digest: str, source: Source) -> str:
    """What a recording was made from: the content of its file, and which seconds of it."""
    return f"{digest} {source.start or 0.0} {'end' if source.end is None else source.end}"


def imported_before(store: StoreAppender) -> dict[str, list[Source]]:
    """What was imported before, by content."""
    known: dict[str, list[Source]] = {}
    for room, name, notes in store.recordings():
        if "content" in notes:
            # One that got its label later was imported without, and may be again.
            later = notes.get("part") == LABELLED_LATER
            label = None if later else _plain_label(notes.get("label"))
            day = str(notes.get("day", ""))
            try:
                digest, start, end = str(notes["content"]).split(" ")
                since, until = float(start), None if end == "end" else float(end)
            except ValueError:
                raise DataError(
                    f"{room}/{name} in the store: its attribute 'content' is "
                    f"{notes['content']!r:.80}; expected digest, start and end: start a new store"
                ) from None
            path = Path(str(notes.get("source", name)))
            activity = None if later else notes.get("activity")
            source = Source(path, room, label, day, name, since, until, activity)
            known.setdefault(digest, []).append(source)
    return known


def taken_names(store: StoreAppender) -> set[tuple[str, str]]:
    """Rooms and names that are taken; a recording of several segments takes its own name too."""
    taken = set()
    for room, name, notes in store.recordings():
        taken.add((room, name))
        if "segment" in notes:
            taken.add((room, name.removesuffix(f" part {notes['segment']}")))
    return taken


def _plain_label(value: Any) -> Label | None:
    if value is None:
        return None
    return str(value) if isinstance(value, str) else int(value)


def _told(source: Source) -> str:
    if source.label is None:
        return "without a label"
    activity = "" if source.activity is None else f" and {source.activity!r}"
    return f"labelled {source.label!r}{activity}"


def _called(source: Source) -> str:
    label = "no label" if source.label is None else repr(source.label)
    return f"{label} in '{source.room}'"


def refuse_second_label(source: Source, earlier: Iterable[Source], out: Path) -> None:
    """One recording has one label, and its seconds are imported once."""
    for other in earlier:
        there = f"as '{other.name}' of room '{other.room}' in {out.name}"
        if same(source, other):
            if (source.label, source.activity) != (other.label, other.activity):
                remedy = "which is it?"
                if other.label is None:
                    remedy = "give it a label there: fedapa label"
                raise DataError(
                    f"{source.path}: {_told(source)}, but the same recording is {_told(other)} "
                    f"{there}; {remedy}"
                )
        elif overlap(source, other):
            raise DataError(
                f"{source.path}: its seconds {seconds_of(source)}, {_told(source)}, "
                f"overlap the seconds {seconds_of(other)}, {_told(other)} {there}; "
                "import the same seconds once, or start a new store"
            )


def refuse_other_recipe(
    sources: Sequence[Source], store: StoreAppender, recipe: Recipe, out: Path
) -> None:
    """All recordings of a room are cleaned in one way."""
    for room in sorted({source.room for source in sources} & set(store.rooms())):
        there = store.recipe(room)
        if there is None:
            raise DataError(
                f"{out}: room '{room}' has no recipe that says how it was cleaned; use another "
                "--out"
            )
        asked = recipe.on_receiver_of(there)
        if different := asked.differences(there):
            raise DataError(
                f"{out}: room '{room}' has another recipe than asked for now "
                f"({'; '.join(different)}); give the same options, or use another --out"
            )


def refuse_overlaps(sources: Sequence[Source]) -> None:
    """The same seconds of a file may be imported once, under one label."""
    by_path: dict[Path, list[Source]] = {}
    for source in sources:
        by_path.setdefault(source.path.resolve(), []).append(source)
    for sources_in_file in by_path.values():
        sources_in_file.sort(key=lambda source: source.start or 0.0)
        for one, other in pairwise(sources_in_file):
            if one.end is None or one.end > (other.start or 0.0):
                alike = one.label == other.label and one.room == other.room
                raise DataError(
                    f"{one.path}: two {'equal' if alike else 'contradictory'} labels for the "
                    f"seconds from {other.start or 0:g} on: {_called(one)} and {_called(other)}"
                )
    names = Counter((source.room, source.name) for source in sources)
    for (room, name), times in sorted(names.items()):
        if times > 1:
            raise DataError(
                f"{times} files of room '{room}' would be named '{name}'; rename them, or let the "
                "pattern name more parts of the path"
            )


def refuse_mixed_labels(sources: Sequence[Source], store: StoreAppender, out: Path) -> None:
    """A store holds counts or categories, not both."""
    labels = {source.label for source in sources}
    labels |= {_plain_label(notes.get("label")) for _, _, notes in store.recordings()}
    if len({type(label) for label in labels if label is not None}) > 1:
        raise DataError(
            f"{out}: counts and categories do not go into one store; use another --out, or name "
            "both {count} or both {label}"
        )
