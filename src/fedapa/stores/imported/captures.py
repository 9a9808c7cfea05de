"""Captures become recordings: read, cleaned, added to a store, all of them or none.

A file is read once: what is hashed is what is imported, whatever happens to the file meanwhile.
What was imported is remembered by the content of its files: importing again adds only what is new,
and one recording cannot get two labels.
"""

import contextlib
import hashlib
import itertools
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from fedapa.csi.capture import Capture
from fedapa.csi.reading import read_chunks
from fedapa.errors import CaptureError, DataError
from fedapa.files import readable
from fedapa.processes import Progress, Show, unseen
from fedapa.stores.append import StoreAppender, append_store
from fedapa.stores.imported.earlier import (
    identity,
    imported_before,
    refuse_mixed_labels,
    refuse_other_recipe,
    refuse_overlaps,
    refuse_second_label,
    taken_names,
)
from fedapa.stores.imported.preparation import Preparation
from fedapa.stores.imported.sources import Source, same, seconds_of
from fedapa.windows.clean import Amplitudes, Cleaner
from fedapa.windows.labels import Label
from fedapa.windows.recipe import Recipe

__all__ = ["Imported", "import_captures"]

_SET_BACK = 1.0
"""Seconds by which a clock may step back where start and end are given: who notes times by hand
is as exact."""

_IN_MEMORY = 1 << 28
"""Of a file that is being imported; what is longer is kept beside the store meanwhile."""
_BLOCK = 1 << 20


@dataclass
class Imported:
    """What came of the files of one room, day, label and activity."""

    room: str
    day: str
    label: Label | None
    files: int = 0
    recordings: int = 0
    packets: int = 0
    seconds: float = 0.0
    known: int = 0
    """Files that were in the store already."""
    copies: int = 0
    """Files that are in the store for another room too: what is tested there was trained here."""
    left_out: Counter[str] = field(default_factory=Counter)
    activity: str | None = None
    """The second label of its files, where they have one."""


def import_captures(
    sources: Sequence[Source],
    out: Path,
    *,
    preparation: Preparation | None = None,
    window: int | None = None,
    show: Show = unseen,
) -> list[Imported]:
    """Read, clean and add captures to the store at ``out``, all of them or none.

    ``window`` is noted in the store as the window length that suits these recordings.
    """
    preparation = preparation or Preparation()
    refuse_overlaps(sources)
    rows: dict[tuple[str, str, str, str], Imported] = {}
    for source in sources:
        new = Imported(source.room, source.day, source.label, activity=source.activity)
        rows.setdefault(_key(source), new).files += 1
    by_path: dict[Path, list[Source]] = {}
    for source in sources:
        by_path.setdefault(source.path, []).append(source)
    done = 0
    with append_store(out) as store:
        known = imported_before(store)
        taken = taken_names(store)
        refuse_mixed_labels(sources, store, out)
        refuse_other_recipe(sources, store, preparation.recipe, out)
        for path, sources_in_file in by_path.items():
            with contextlib.ExitStack() as stack:
                try:
                    content, digest = stack.enter_context(_read_once(path, out.parent))
                except CaptureError as error:
                    for source in sources_in_file:
                        _leave_out(source, rows[_key(source)], preparation, error)
                    done += len(sources_in_file)
                    show(Progress("reading captures", done, len(sources), "files"))
                    continue
                earlier = known.setdefault(digest, [])
                for source in sources_in_file:
                    row = rows[_key(source)]
                    refuse_second_label(source, earlier, out)
                    if any(source.room == other.room and same(source, other) for other in earlier):
                        row.known += 1
                    elif (source.room, source.name) in taken:
                        raise DataError(
                            f"{path}: room '{source.room}' in {out.name} has another recording "
                            f"named '{source.name}'; rename the file, or start a new store"
                        )
                    else:
                        row.copies += any(same(source, other) for other in earlier)
                        earlier.append(source)
                        notes = {"source": readable(path.name), "content": identity(digest, source)}
                        _add(store, source, content, row, preparation, notes)
                    done += 1
                    show(Progress("reading captures", done, len(sources), "files"))
        if window is not None:
            store.note({"window": window})
        if not any(row.recordings or row.known for row in rows.values()):
            left_out = sum((row.left_out for row in rows.values()), Counter[str]())
            reasons = ", ".join(f"{n} × {reason}" for reason, n in left_out.most_common(5))
            raise DataError(
                f"nothing was left to import: {reasons or 'no packets'}; look at a file with "
                "'fedapa inspect', or keep half-empty frames with --gate 0"
            )
    return list(rows.values())


def _key(source: Source) -> tuple[str, str, str, str]:
    return source.room, source.day, repr(source.label), repr(source.activity)


@contextlib.contextmanager
def _read_once(path: Path, folder: Path) -> Iterator[tuple[BinaryIO, str]]:
    """A copy of a file's content and a name for it; ``folder`` holds what memory should not."""
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY, dir=str(folder)) as copy:
        content_hash = hashlib.blake2b(digest_size=16)
        for block in _blocks(path):
            content_hash.update(block)
            try:
                copy.write(block)
            except OSError as error:
                raise DataError(
                    f"{folder}: no copy of {path} can be kept there: {error.strerror or error}"
                ) from error
        yield cast(BinaryIO, copy), content_hash.hexdigest()


def _blocks(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb", buffering=0) as file:
            while block := file.read(_BLOCK):
                yield block
    except OSError as error:
        raise CaptureError(f"{path.name}: cannot be read: {error.strerror or error}") from error


def _leave_out(
    source: Source, row: Imported, preparation: Preparation, error: CaptureError
) -> None:
    """Count an unreadable file; an error unless the user wants such files left out."""
    if not preparation.skip_unreadable:
        # Captures name their file without its folder; in a tree the names recur.
        raise DataError(
            f"in {source.path.parent}: {error} (--skip-unreadable leaves such files out)"
        ) from error
    row.left_out["unreadable files"] += 1


def _add(
    store: StoreAppender,
    source: Source,
    content: BinaryIO,
    row: Imported,
    preparation: Preparation,
    notes: Mapping[str, Any],
) -> None:
    """One source into the store; what it gave and lost goes into ``row``."""
    reader = _Reader(store, source, content, preparation)
    try:
        segments = itertools.groupby(reader.cleaned(), key=lambda piece: piece.segment)
        for number, (_, pieces) in enumerate(segments, start=1):
            name, about = source.name, dict(notes)
            if number > 1:
                name, about["segment"] = f"{source.name} part {number}", number
            if number == 2:
                first_name = f"{source.name} part 1"
                _refuse_taken(store, source, first_name)
                store.rename(source.room, source.name, first_name, {"segment": 1})
            _refuse_taken(store, source, name)
            packets = store.add_stream(
                source.room,
                name,
                ((piece.amplitude, piece.timestamps) for piece in pieces),
                label=source.label,
                day=source.day,
                activity=source.activity,
                notes=about,
            )
            row.recordings += packets > 0
            row.packets += packets
    except CaptureError as error:
        _leave_out(source, row, preparation, error)
        return
    row.seconds += reader.seconds
    row.left_out += reader.left_out


def _refuse_taken(store: StoreAppender, source: Source, name: str) -> None:
    if store.has(source.room, name):
        raise DataError(
            f"{source.path}: room '{source.room}' has another recording named '{name}'; rename the "
            "file, or start a new store"
        )


class _Reader:
    """Reads one source; its room is added to the store with the first packets that are left."""

    def __init__(
        self, store: StoreAppender, source: Source, content: BinaryIO, preparation: Preparation
    ) -> None:
        self._store = store
        self._source = source
        self._content = content
        self._how = preparation
        self.left_out: Counter[str] = Counter()
        self.seconds = 0.0
        self._first: float | None = None
        self._last: float | None = None
        """The last packet's time, where start or end is given."""
        self._room_checked = False

    def cleaned(self) -> Iterator[Amplitudes]:
        """What is left of the source, as it comes; segments one after the other."""
        cleaner = Cleaner(self._how.recipe)
        for capture in self._captures():
            yield from self._checked(cleaner.feed(capture), capture)
        yield from self._checked(cleaner.finish(), capture)
        self.left_out += cleaner.dropped

    def _checked(self, pieces: Iterator[Amplitudes], capture: Capture) -> Iterator[Amplitudes]:
        """The pieces as they are; they must fit the room, and errors name the file."""
        while True:
            try:
                piece = next(pieces)
            except StopIteration:
                return
            except DataError as error:
                raise DataError(f"{self._source.path}: {error}") from error
            self._check_room(capture, piece)
            first, last = float(piece.timestamps[0]), float(piece.timestamps[-1])
            self._first = first if self._first is None else self._first
            self.seconds = max(0.0, last - self._first)
            yield piece

    def _captures(self) -> Iterator[Capture]:
        origin: float | None = None
        any_inside = False
        source = self._source
        chunks = read_chunks(
            source.path, self._how.chip, salvage=self._how.salvage, content=self._content
        )
        for chunk in chunks:
            origin = float(chunk.timestamps[0]) if origin is None else origin
            self.left_out += Counter(chunk.skipped)
            self._refuse_set_back(chunk.timestamps)
            inside = _between(chunk, origin, source.start, source.end)
            if inside.packets:
                any_inside = True
                yield inside
        if not any_inside:
            raise DataError(
                f"{source.path}: no packet is within its seconds {seconds_of(source)}; it lasts "
                f"{(self._last or 0.0) - (origin or 0.0):.1f}"
            )

    def _refuse_set_back(self, stamps: npt.NDArray[np.float64]) -> None:
        """Where time runs twice, seconds from the first packet do not say which packets."""
        if self._source.start is None and self._source.end is None:
            return
        steps = np.diff(stamps, prepend=stamps[0] if self._last is None else self._last)
        self._last = float(stamps[-1])
        if steps.min() < -_SET_BACK:
            raise DataError(
                f"{self._source.path}: start and end cannot be told, its clock was set back by "
                f"{-steps.min():.1f} s; cut the file there"
            )

    def _check_room(self, capture: Capture, cleaned: Amplitudes) -> None:
        if self._room_checked:
            return
        self._room_checked = True
        room = self._source.room
        recipe = replace(
            self._how.recipe,
            device=capture.device,
            bandwidth=capture.bandwidth,
            subcarriers=tuple(cleaned.subcarriers.tolist()),
            link_count=cleaned.amplitude.shape[2],
        )
        if room not in self._store.rooms():
            about = {"recipe": recipe.to_json()}
            self._store.add_room(room, synthetic=capture.synthetic, about=about)
            return
        before = self._store.recipe(room) or Recipe()
        different = recipe.differences(before)
        if capture.synthetic != bool(self._store.about(room)["synthetic"]):
            different.append(f"synthetic {capture.synthetic} instead of {not capture.synthetic}")
        if different:
            raise DataError(
                f"{self._source.path}: {different[0]}, as the recordings of room '{room}' before "
                "it have; give it a room of its own"
            )


def _between(capture: Capture, origin: float, start: float | None, end: float | None) -> Capture:
    if start is None and end is None:
        return capture
    since = np.round(capture.timestamps - origin, 6)  # clocks count microseconds
    inside = (since >= (start or 0.0)) & (since < (np.inf if end is None else end))
    return replace(
        capture,
        csi=capture.csi[inside],
        timestamps=capture.timestamps[inside],
        rssi=capture.rssi[inside],
        sequence=None if capture.sequence is None else capture.sequence[inside],
    )
