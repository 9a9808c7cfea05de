"""Captures become recordings: read, cleaned, added to a store, all of them or none.

What was imported is remembered by the content of its files: importing again adds only what is new,
and one recording cannot get two labels.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedapa.csi.capture import Capture
from fedapa.csi.reading import read_chunks
from fedapa.errors import CaptureError, DataError
from fedapa.files import readable
from fedapa.processes import Progress, Show, unseen
from fedapa.stores.append import Piece, StoreAppender, append_store
from fedapa.stores.imported.earlier import (
    content_digest,
    identity,
    imported_before,
    refuse_mixed_labels,
    refuse_other_preparation,
    refuse_overlaps,
    refuse_second_label,
    taken_names,
)
from fedapa.stores.imported.preparation import Preparation, check_preparation
from fedapa.stores.imported.sources import Source, same, stretch
from fedapa.windows.clean import Amplitudes, clean, low_pass, resample
from fedapa.windows.labels import Label

__all__ = ["Imported", "import_captures"]

_SET_BACK = 1.0
"""Seconds by which a clock may step back within a stretch: who notes times by hand is as exact."""


@dataclass
class Imported:
    """What came of the files of one room, day and label."""

    room: str
    day: str
    label: Label
    files: int = 0
    recordings: int = 0
    packets: int = 0
    seconds: float = 0.0
    known: int = 0
    """Files that were in the store already."""
    copies: int = 0
    """Files that are in the store for another room too: what is tested there was trained here."""
    left_out: Counter[str] = field(default_factory=Counter)


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
    check_preparation(preparation)
    refuse_overlaps(sources)
    digests = {path: content_digest(path) for path in sorted({source.path for source in sources})}
    rows: dict[tuple[str, str, str], Imported] = {}
    with append_store(out) as store:
        known = imported_before(store)
        taken = taken_names(store)
        refuse_mixed_labels(sources, store, out)
        refuse_other_preparation(sources, store, preparation, out)
        for number, source in enumerate(sources, 1):
            key = (source.room, source.day, repr(source.label))
            row = rows.setdefault(key, Imported(source.room, source.day, source.label))
            row.files += 1
            digest = digests[source.path]
            earlier = known.setdefault(digest, [])
            refuse_second_label(source, earlier, out)
            if any(source.room == other.room and same(source, other) for other in earlier):
                row.known += 1
            elif (source.room, source.name) in taken:
                raise DataError(
                    f"{source.path}: room '{source.room}' in {out.name} has another recording "
                    f"named '{source.name}'; rename the file, or start a new store"
                )
            else:
                row.copies += any(same(source, other) for other in earlier)
                earlier.append(source)
                notes = {"source": readable(source.path.name), "content": identity(digest, source)}
                _add(store, source, row, preparation, notes)
            show(Progress("reading captures", number, len(sources), "files"))
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


def _add(
    store: StoreAppender,
    source: Source,
    row: Imported,
    preparation: Preparation,
    notes: Mapping[str, Any],
) -> None:
    """One source into the store; what it gave and lost goes into ``row``."""
    try:
        pieces = _Pieces(store, source, preparation)
        parts = pieces.parts()
        for number, part in enumerate(parts):
            name, about = source.name, dict(notes)
            if not pieces.whole:
                name, about["part"] = f"{source.name} part {number + 1}", number + 1
            if store.has(source.room, name):
                raise DataError(
                    f"{source.path}: room '{source.room}' has another recording named '{name}'; "
                    "rename the file, or start a new store"
                )
            packets = store.add_stream(
                source.room, name, part, label=source.label, day=source.day, notes=about
            )
            row.recordings += packets > 0
            row.packets += packets
    except CaptureError as error:
        if not preparation.skip_unreadable:
            # Captures name their file without its folder; in a tree the names recur.
            raise DataError(
                f"in {source.path.parent}: {error} (--skip-unreadable leaves such files out)"
            ) from error
        row.left_out["unreadable files"] += 1
        return
    row.seconds += pieces.seconds
    row.left_out += pieces.left_out


class _Pieces:
    """Reads one source; its room is added to the store with the first packets that are left."""

    def __init__(self, store: StoreAppender, source: Source, preparation: Preparation) -> None:
        self._store = store
        self._source = source
        self._how = preparation
        self.whole = preparation.rate is None
        self.left_out: Counter[str] = Counter()
        self.seconds = 0.0
        self._last: float | None = None
        """The last packet's time, of a stretch."""
        self._room_checked = False

    def parts(self) -> Iterator[Iterator[Piece]]:
        """The recordings that come of the source, each in pieces; one, unless it is parted."""
        # Look into the file before the store is touched: the room needs to know its device.
        stream = self._cleaned()
        first = next(stream, None)
        if first is None:
            return
        if self._how.rate is None and self._how.low_pass is None:
            yield ((each.amplitude, each.timestamps) for each in _chain(first, stream))
            return
        evened = self._evened(_joined([first, *stream]))
        self.whole = len(evened) == 1
        for part in evened:
            self.left_out += Counter(part.dropped)
            yield iter([(part.amplitude, part.timestamps)])

    def _evened(self, everything: Amplitudes) -> Sequence[Amplitudes]:
        """What is left after resampling and low-passing, as far as they are asked for."""
        how = self._how
        parts: Sequence[Amplitudes] = (everything,)
        try:
            if how.rate is not None:
                parts = resample(everything, rate=how.rate, longest_gap=how.gap)
            return parts if how.low_pass is None else [self._smoothed(part) for part in parts]
        except DataError as error:
            raise DataError(f"{self._source.path}: {error}") from error

    def _smoothed(self, part: Amplitudes) -> Amplitudes:
        assert self._how.low_pass is not None
        if self._how.rate is not None:
            return low_pass(part, cutoff=self._how.low_pass, rate=self._how.rate)
        steps = np.diff(part.timestamps)
        usual = float(np.median(steps)) if len(steps) else 0.0
        if (np.abs(steps - usual) > usual / 2).any():
            raise DataError(
                f"its packets are too uneven for a low-pass, {steps.min():g} "
                f"to {steps.max():g} s apart; give --rate to put them onto an even grid first"
            )
        return low_pass(part, cutoff=self._how.low_pass, rate=1 / usual if usual > 0 else 0.0)

    def _cleaned(self) -> Iterator[Amplitudes]:
        origin: float | None = None
        first: float | None = None
        any_inside = False
        source = self._source
        chunks = read_chunks(source.path, self._how.chip, salvage=self._how.salvage)
        for chunk in chunks:
            origin = float(chunk.timestamps[0]) if origin is None else origin
            self.left_out += Counter(chunk.skipped)
            self._refuse_set_back(chunk.timestamps)
            inside = _between(chunk, origin, source.start, source.end)
            if not inside.packets:
                continue
            any_inside = True
            cleaned = clean(inside, gate=self._how.gate)
            self.left_out += Counter(cleaned.dropped)
            if len(cleaned.amplitude):
                self._check_room(inside, cleaned)
                first = float(cleaned.timestamps[0]) if first is None else first
                self.seconds = max(0.0, float(cleaned.timestamps[-1]) - first)
                yield cleaned
        if not any_inside:
            raise DataError(
                f"{source.path}: no packet is within its seconds {stretch(source)}; it lasts "
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
        room, links = self._source.room, cleaned.amplitude.shape[2]
        about = {
            "device": capture.device,
            "bandwidth": capture.bandwidth,
            "subcarriers": cleaned.subcarriers,
            "links": links,
            "prepared": self._how.summary,
        }
        if room not in self._store.rooms():
            self._store.add_room(room, synthetic=capture.synthetic, about=about)
            return
        there = self._store.about(room)
        for name, value in {**about, "synthetic": capture.synthetic}.items():
            if name not in there or not np.array_equal(there[name], value):
                raise DataError(
                    f"{self._source.path}: {name} is {_brief(value)}, the recordings of room "
                    f"'{room}' before it have {_brief(there.get(name))}; give it a room of its own"
                )


def _brief(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{len(value)} from {value[0]} to {value[-1]}"
    return str(value)


def _chain(first: Amplitudes, others: Iterator[Amplitudes]) -> Iterator[Amplitudes]:
    yield first
    yield from others


def _joined(parts: Sequence[Amplitudes]) -> Amplitudes:
    return replace(
        parts[0],
        amplitude=np.concatenate([part.amplitude for part in parts]),
        timestamps=np.concatenate([part.timestamps for part in parts]),
        dropped={},
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
