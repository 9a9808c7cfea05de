"""Imported rooms: trees of captures become a store, labelled by their paths or by a manifest.

What was imported is remembered by the content of its files: importing again adds only what is new,
and one recording cannot get two labels.
"""

import csv
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedapa.csi.capture import Capture
from fedapa.csi.reading import read_chunks
from fedapa.errors import CaptureError, DataError, nearest
from fedapa.files import readable
from fedapa.windows.append import Piece, StoreAppender, append_store
from fedapa.windows.clean import EMPTY, Amplitudes, clean, low_pass, resample
from fedapa.windows.store import Label, check_name

__all__ = [
    "Imported",
    "Preparation",
    "Source",
    "import_captures",
    "sources_by_manifest",
    "sources_by_pattern",
]

_GAP = 0.5
_FASTEST = 10_000.0
"""Packets a second; no receiver reports more."""
_SET_BACK = 1.0
"""Seconds by which a clock may step back within a stretch: who notes times by hand is as exact."""
_COLUMNS = ("file", "room", "count", "label", "day", "start", "end")


@dataclass(frozen=True)
class Source:
    """One capture file, or a stretch of one, and what it shows."""

    path: Path
    room: str
    label: Label
    day: str
    name: str
    """Of the recording in the store."""
    start: float | None = None
    """Seconds from the file's first packet; None is its beginning."""
    end: float | None = None
    """None is its end."""


@dataclass(frozen=True)
class Preparation:
    """How captures are read and cleaned on their way into the store."""

    chip: str | None = None
    salvage: bool = False
    skip_unreadable: bool = False
    """Leave out files that are no captures or damaged, instead of stopping."""
    gate: float = EMPTY
    rate: float | None = None
    """Resample to so many packets a second."""
    longest_gap: float | None = None
    """When resampling: part a recording where nothing came for so many seconds; None is 0.5."""
    low_pass: float | None = None
    """Hz."""

    @property
    def summary(self) -> str:
        """What it does to amplitudes, as noted about a room: one room is prepared in one way."""
        parts = [f"gate {self.gate:g}"]
        if self.rate is not None:
            parts += [f"rate {self.rate:g}", f"longest gap {self.gap:g}"]
        if self.low_pass is not None:
            parts.append(f"low-pass {self.low_pass:g}")
        return ", ".join(parts)

    @property
    def gap(self) -> float:
        """The longest gap that resampling bridges."""
        return _GAP if self.longest_gap is None else self.longest_gap


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


def sources_by_pattern(folder: Path, pattern: str) -> tuple[list[Source], list[Path]]:
    """The files below ``folder`` whose path fits, and those whose path does not.

    ``{room}``, ``{day}``, and ``{count}`` or ``{label}`` say what a part of the path means; any
    other name in braces fits too and only tells recordings apart. ``*`` fits anything within one
    part of the path.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; with a pattern the source is a folder")
    expression, names = _expression(pattern)
    sources, others = [], []
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:
        relative = path.relative_to(folder).as_posix()
        match = expression.fullmatch(relative)
        if match is None:
            others.append(path)
            continue
        found = match.groupdict()
        for name in sorted({"day", "label"} & names):
            if readable(found[name]) != found[name]:
                raise DataError(f"{relative}: {name} '{found[name]}' is no UTF-8; rename it")
        sources.append(
            Source(
                path,
                room=check_name(found["room"], f"{relative}: room"),
                label=_count(found["count"], relative) if "count" in names else found["label"],
                day=found.get("day", ""),
                name=_recording_name(relative, found["room"]),
            )
        )
    if not sources:
        example = f", e.g. {others[0].relative_to(folder).as_posix()}" if others else ""
        raise DataError(
            f"{folder}: none of {len(files)} files fits the pattern '{pattern}'{example}"
        )
    return sources, others


def _expression(pattern: str) -> tuple[re.Pattern[str], set[str]]:
    names: list[str] = []
    parts = []
    for literal, name in re.findall(r"([^{}]+)|\{(\w*)\}", pattern):
        if literal:
            parts.append("[^/]*".join(re.escape(piece) for piece in literal.split("*")))
        elif not name.isidentifier() or name in names:
            raise DataError(f"pattern '{pattern}': '{{{name}}}' is no name or is there twice")
        else:
            names.append(name)
            parts.append(rf"(?P<{name}>\d+)" if name == "count" else rf"(?P<{name}>[^/]+?)")
    if re.sub(r"\{\w*\}", "", pattern).count("{") or re.sub(r"\{\w*\}", "", pattern).count("}"):
        raise DataError(f"pattern '{pattern}': braces hold one word, e.g. {{room}}")
    if "room" not in names or ("count" in names) == ("label" in names):
        raise DataError(
            f"pattern '{pattern}': needs {{room}} and either {{count}}, for people, or {{label}}, "
            "for categories; e.g. '{room}/{day}/P={count}.pcap'"
        )
    return re.compile("".join(parts)), set(names)


def _recording_name(relative: str, room: str) -> str:
    """A path as the name of a recording: without suffix, and without the room where it leads."""
    stem = relative.removeprefix(f"{room}/")
    stem = stem[: -len(suffix)] if (suffix := Path(stem).suffix) else stem
    return _short_name(stem)


def _short_name(text: str) -> str:
    name = re.sub(r"[^\w.=,+-]+", " ", text.replace("/", " ")).strip(" .=,+-")
    if not name or len(name) > 60:
        # What is cut off may be all that tells two recordings apart.
        digest = hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=4).hexdigest()
        name = f"{name[:48]} {digest}".strip()
    return name


def sources_by_manifest(path: Path) -> list[Source]:
    """The files that a CSV names, relative to where it lies.

    Columns: file, room, count or label, and optionally day, start and end in seconds from the
    file's first packet.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, restkey="beyond", strict=True)
            rows, header = list(reader), list(reader.fieldnames or ())
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read as CSV: {error}") from error
    if not rows:
        raise DataError(f"{path}: no rows; expected a header and one row a recording")
    columns = set(rows[0])
    for column in sorted(name for name in columns if header.count(name) > 1):
        raise DataError(f"{path}: column '{column}' is there twice; which is it?")
    for column in sorted(columns - set(_COLUMNS) - {"beyond"}):
        raise DataError(f"{path}: column '{column}' is unknown; {nearest(column, _COLUMNS)}")
    if not {"file", "room"} <= columns or ("count" in columns) == ("label" in columns):
        raise DataError(
            f"{path}: columns are {', '.join(sorted(columns))}; expected file, room, either count "
            "or label, and perhaps day, start, end"
        )
    return [_manifest_row(path, line, row) for line, row in enumerate(rows, start=2)]


def _manifest_row(path: Path, line: int, row: Mapping[str, str | None]) -> Source:
    place = f"{path}, line {line}"
    if row.get("beyond") or any(value is None for value in row.values()):
        raise DataError(f"{place}: has another number of fields than the header")
    values = {column: (value or "").strip() for column, value in row.items()}
    for column in ("file", "room", "count" if "count" in values else "label"):
        if not values[column]:
            raise DataError(f"{place}: '{column}' is empty")
    label: Label = values["label"] if "label" in values else _count(values["count"], place)
    start, end = (_seconds(values.get(column, ""), column, place) for column in ("start", "end"))
    if (start or 0.0) >= (np.inf if end is None else end):
        raise DataError(f"{place}: start {start:g} is not before end {end:g}")
    file = path.parent / values["file"]
    if not file.is_file():
        raise DataError(f"{place}: {values['file']}: no such file beside the manifest")
    stretch = "" if start is None and end is None else f" {start or 0:g}-{end or 'end'}"
    return Source(
        file,
        room=check_name(values["room"], f"{place}: room"),
        label=label,
        day=values.get("day", ""),
        name=_short_name(f"{Path(values['file']).with_suffix('').as_posix()}{stretch}"),
        start=start,
        end=end,
    )


def _count(text: str, place: str) -> int:
    if not re.fullmatch(r"\d{1,6}", text):
        raise DataError(f"{place}: count '{text}' is no number of people; use label for categories")
    return int(text)


def _seconds(text: str, column: str, place: str) -> float | None:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not 0 <= value < np.inf:
        raise DataError(f"{place}: {column} '{text}' is no number of seconds")
    return value


def import_captures(
    sources: Sequence[Source],
    out: Path,
    *,
    preparation: Preparation | None = None,
    window: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Imported]:
    """Read, clean and add captures to the store at ``out``, all of them or none.

    ``window`` is noted in the store as the window length that suits these recordings.
    """
    preparation = preparation or Preparation()
    _check_preparation(preparation)
    _refuse_overlaps(sources)
    digests = {path: _digest(path) for path in sorted({source.path for source in sources})}
    rows: dict[tuple[str, str, str], Imported] = {}
    with append_store(out) as store:
        known = _known(store)
        taken = _names(store)
        _refuse_mixed_labels(sources, store, out)
        _refuse_other_preparation(sources, store, preparation, out)
        for number, source in enumerate(sources, 1):
            key = (source.room, source.day, repr(source.label))
            row = rows.setdefault(key, Imported(source.room, source.day, source.label))
            row.files += 1
            digest = digests[source.path]
            earlier = known.setdefault(digest, [])
            _refuse_second_label(source, earlier, out)
            if any(source.room == other.room and _same(source, other) for other in earlier):
                row.known += 1
            elif (source.room, source.name) in taken:
                raise DataError(
                    f"{source.path}: room '{source.room}' in {out.name} has another recording "
                    f"named '{source.name}'; rename the file, or start a new store"
                )
            else:
                row.copies += any(_same(source, other) for other in earlier)
                earlier.append(source)
                notes = {"source": readable(source.path.name), "content": _identity(digest, source)}
                _add(store, source, row, preparation, notes)
            if progress:
                progress(number, len(sources))
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


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _identity(digest: str, source: Source) -> str:
    return f"{digest} {source.start or 0.0} {'end' if source.end is None else source.end}"


def _known(store: StoreAppender) -> dict[str, list[Source]]:
    """What was imported before, by content."""
    known: dict[str, list[Source]] = {}
    for room, name, notes in store.recordings():
        if "content" in notes:
            label, day = _plain_label(notes["label"]), str(notes["day"])
            digest, start, end = str(notes["content"]).split(" ")
            until = None if end == "end" else float(end)
            path = Path(str(notes["source"]))
            source = Source(path, room, label, day, name, float(start), until)
            known.setdefault(digest, []).append(source)
    return known


def _names(store: StoreAppender) -> set[tuple[str, str]]:
    """Rooms and names that are taken; a recording that was parted takes its whole name too."""
    taken = set()
    for room, name, notes in store.recordings():
        taken.add((room, name))
        if "part" in notes:
            taken.add((room, name.removesuffix(f" part {notes['part']}")))
    return taken


def _plain_label(value: Any) -> Label:
    return str(value) if isinstance(value, str) else int(value)


def _same(one: Source, other: Source) -> bool:
    return (one.start or 0.0, one.end) == (other.start or 0.0, other.end)


def _overlap(one: Source, other: Source) -> bool:
    return (one.end is None or one.end > (other.start or 0.0)) and (
        other.end is None or other.end > (one.start or 0.0)
    )


def _stretch(source: Source) -> str:
    return f"{source.start or 0:g} to {'the end' if source.end is None else f'{source.end:g}'}"


def _refuse_second_label(source: Source, earlier: Iterable[Source], out: Path) -> None:
    for other in earlier:
        there = f"as '{other.name}' of room '{other.room}' in {out.name}"
        if _same(source, other):
            if source.label != other.label:
                raise DataError(
                    f"{source.path}: labelled {source.label!r}, but the same recording is "
                    f"labelled {other.label!r} {there}; which is it?"
                )
        elif _overlap(source, other):
            raise DataError(
                f"{source.path}: its seconds {_stretch(source)}, labelled {source.label!r}, "
                f"overlap the seconds {_stretch(other)}, labelled {other.label!r} {there}; "
                "import a stretch once, or start a new store"
            )


def _check_preparation(how: Preparation) -> None:
    if not 0 <= how.gate < 1:
        raise DataError(f"gate {how.gate:g} is no share; expected 0, to keep all, to below 1")
    if how.rate is not None and not 0 < how.rate <= _FASTEST:
        raise DataError(
            f"rate {how.rate:g} is no rate of packets; expected above 0, at most {_FASTEST:g} a "
            "second"
        )
    if how.longest_gap is not None and how.rate is None:
        raise DataError("a longest gap needs a rate: only resampling bridges gaps; give --rate too")
    if not 0 < how.gap < np.inf:
        raise DataError(f"longest gap {how.gap:g} is no number of seconds above 0")
    if how.low_pass is not None and not 0 < how.low_pass < np.inf:
        raise DataError(f"low-pass {how.low_pass:g} is no cut-off in Hz above 0")


def _refuse_other_preparation(
    sources: Sequence[Source], store: StoreAppender, how: Preparation, out: Path
) -> None:
    for room in sorted({source.room for source in sources} & set(store.rooms())):
        there = store.about(room).get("prepared", "in a way that is not noted")
        if there != how.summary:
            raise DataError(
                f"{out}: room '{room}' was prepared otherwise ({there}) than asked for now "
                f"({how.summary}); give the same options, or use another --out"
            )


def _refuse_overlaps(sources: Sequence[Source]) -> None:
    """A stretch of a file may be imported once, under one label."""
    by_path: dict[Path, list[Source]] = {}
    for source in sources:
        by_path.setdefault(source.path.resolve(), []).append(source)
    for stretches in by_path.values():
        stretches.sort(key=lambda each: each.start or 0.0)
        for one, other in pairwise(stretches):
            if one.end is None or one.end > (other.start or 0.0):
                same = one.label == other.label and one.room == other.room
                raise DataError(
                    f"{one.path}: two {'equal' if same else 'contradictory'} labels for the "
                    f"seconds from {other.start or 0:g} on: {one.label!r} in '{one.room}' and "
                    f"{other.label!r} in '{other.room}'"
                )
    names = Counter((source.room, source.name) for source in sources)
    for (room, name), times in sorted(names.items()):
        if times > 1:
            raise DataError(
                f"{times} files of room '{room}' would be named '{name}'; rename them, or let the "
                "pattern name more parts of the path"
            )


def _refuse_mixed_labels(sources: Sequence[Source], store: StoreAppender, out: Path) -> None:
    kinds = {type(source.label).__name__ for source in sources}
    kinds |= {type(_plain_label(notes["label"])).__name__ for _, _, notes in store.recordings()}
    if len(kinds) > 1:
        raise DataError(
            f"{out}: counts and categories do not go into one store; use another --out, or name "
            "both {count} or both {label}"
        )


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
                f"{source.path}: no packet is within its seconds {_stretch(source)}; it lasts "
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
