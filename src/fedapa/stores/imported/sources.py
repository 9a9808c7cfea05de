"""Which captures become which recordings: labelled by their paths or by a manifest."""

import csv
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedapa.csi.reading import format_of
from fedapa.errors import DataError, nearest, one_line
from fedapa.files import readable
from fedapa.stores.hdf5 import is_hdf5
from fedapa.windows.labels import Label, check_name, choose_rooms

__all__ = [
    "Source",
    "overlap",
    "same",
    "seconds_of",
    "sources_by_manifest",
    "sources_by_pattern",
    "sources_of_rooms",
]

_MOST_PARTS = 100
_EXPECTED = "a CSV manifest with a header (file, room, count or label) and a row per recording"
_HINT = "recordings that never had a label are imported with --unlabelled"
_COLUMNS = ("file", "room", "count", "label", "activity", "day", "start", "end")


@dataclass(frozen=True)
class Source:
    """One capture file, or some seconds of one, and what it shows."""

    path: Path
    room: str
    label: Label | None
    """None: nobody said."""
    day: str
    name: str
    """Of the recording in the store."""
    start: float | None = None
    """Seconds from the file's first packet; None is its beginning."""
    end: float | None = None
    """None is its end."""
    activity: str | None = None
    """A second label beside a count; None: nobody said."""


def sources_by_pattern(
    folder: Path, pattern: str, *, room: str | None = None, unlabelled: bool = False
) -> tuple[list[Source], list[Path]]:
    """The files below ``folder`` whose path fits, and those whose path does not.

    ``{room}``, ``{day}``, and ``{count}`` or ``{label}`` say what a part of the path means, and so
    does ``{activity}``, a second label beside ``{count}``; any other name in braces fits too and
    only tells recordings apart. ``*`` fits anything within one
    part of the path. ``room`` is for a pattern that names none: all files are of that room.
    ``unlabelled`` is for a pattern without ``{count}`` and ``{label}``: no file has a label.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; with a pattern the source is a folder")
    parts = _parts(pattern)
    names = {part[1:-1] for part in parts if part.startswith("{")}
    _check_names(pattern, names, room, unlabelled=unlabelled)
    sources, others = [], []
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:
        relative = path.relative_to(folder).as_posix()
        meanings = _meanings(parts, relative)
        if meanings is None:
            others.append(path)
            continue
        for name in sorted({"activity", "day", "label"} & names):
            if readable(meanings[name]) != meanings[name]:
                raise DataError(f"{relative}: {name} '{meanings[name]}' is no UTF-8; rename it")
        its_room = meanings["room"] if room is None else room
        sources.append(
            Source(
                path,
                room=check_name(its_room, f"{relative}: room"),
                label=_label(meanings, relative),
                day=meanings.get("day", ""),
                name=_recording_name(relative, its_room),
                activity=meanings.get("activity"),
            )
        )
    if not sources:
        example = f", e.g. {others[0].relative_to(folder).as_posix()}" if others else ""
        raise DataError(
            f"{folder}: none of {len(files)} files fits the pattern '{pattern}'{example}"
        )
    return sources, others


def _parts(pattern: str) -> list[str]:
    """The parts of a pattern: names in braces, stars, and the text between them."""
    parts = re.findall(r"[^{}*]+|\*+|\{\w*\}", pattern)
    if "".join(parts) != pattern:
        raise DataError(f"pattern '{pattern}': braces hold one word, e.g. {{room}}")
    if len(parts) > _MOST_PARTS:
        raise DataError(
            f"pattern '{pattern[:60]} …': {len(parts)} names, stars and texts between them; "
            f"expected at most {_MOST_PARTS}"
        )
    for number, part in enumerate(parts):
        name = part[1:-1]
        if part.startswith("{") and (not name.isidentifier() or part in parts[:number]):
            raise DataError(f"pattern '{pattern}': '{part}' is no name or is there twice")
    return parts


def _check_names(pattern: str, names: set[str], room: str | None, *, unlabelled: bool) -> None:
    labels = sorted({"count", "label"} & names)
    if unlabelled and labels:
        raise DataError(
            f"pattern '{pattern}': names {{{labels[0]}}}, and --unlabelled says that no file has a "
            "label; leave one of them out, or say in a manifest which files have one"
        )
    placed, either = "room" in names or room is not None, ""
    if not unlabelled:
        either = (
            ", and either {count}, for people, or {label}, for categories; e.g. "
            "'{room}/{day}/P={count}.pcap'"
        )
        either += "" if labels else f"; {_HINT}"
    if not placed or len(labels) != (0 if unlabelled else 1):
        raise DataError(
            f"pattern '{pattern}': needs {{room}}, or --room for files of one room{either}"
        )
    if "activity" in names and "count" not in names:
        raise DataError(
            f"pattern '{pattern}': names {{activity}}, which stands beside {{count}}; where there "
            "is no count, call the activity {label}"
        )
    if room is not None and "room" in names:
        raise DataError(
            f"pattern '{pattern}': names {{room}}, and --room names '{room}'; leave one of them out"
        )


def _meanings(parts: Sequence[str], text: str) -> dict[str, str] | None:
    """What the names of a pattern stand for in ``text``; None where it does not fit.

    No regular expression: with several stars those try every way to share out a long name, which
    takes hours. Here what has failed once is not tried again.
    """
    failed: set[tuple[int, int]] = set()

    def fitted(number: int, at: int) -> dict[str, str] | None:
        if number == len(parts):
            return {} if at == len(text) else None
        if (number, at) in failed:
            return None
        part = parts[number]
        for end in _ends(part, text, at):
            rest = fitted(number + 1, end)
            if rest is not None:
                return {part[1:-1]: text[at:end], **rest} if part.startswith("{") else rest
        failed.add((number, at))
        return None

    return fitted(0, 0)


def _ends(part: str, text: str, at: int) -> Iterable[int]:
    """Where a part of a pattern that begins at ``at`` may end, what is preferred first."""
    if not part.startswith(("*", "{")):
        return [at + len(part)] if text.startswith(part, at) else []
    until = text.find("/", at)
    until = len(text) if until < 0 else until
    if part.startswith("*"):
        return range(until, at - 1, -1)
    if part == "{count}":
        digits = next((i for i in range(at, until) if not text[i].isdecimal()), until)
        return range(digits, at, -1)
    return range(at + 1, until + 1)


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


def sources_by_manifest(path: Path, *, unlabelled: bool = False) -> list[Source]:
    """The files that a CSV names, relative to where it lies.

    Columns: file, room, count or label, and optionally day, start and end in seconds from the
    file's first packet, and activity, a second label beside a count, which rows may leave empty.
    With ``unlabelled`` a row whose count or label is empty has none, and the column may be left
    out.
    """
    _check_manifest(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, restkey="beyond", strict=True)
            rows, header = list(reader), list(reader.fieldnames or ())
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"{path}: cannot be read as CSV: {error}; expected {_EXPECTED}, or a folder and what "
            "its paths mean (--pattern)"
        ) from error
    if not rows:
        raise DataError(f"{path}: has no rows; expected {_EXPECTED}")
    columns = set(rows[0])
    for column in sorted(name for name in columns if header.count(name) > 1):
        raise DataError(f"{path}: column '{one_line(column):.80}' is there twice; which is it?")
    for column in sorted(columns - set(_COLUMNS) - {"beyond"}):
        raise DataError(
            f"{path}: column '{one_line(column):.80}' is unknown; {nearest(column, _COLUMNS)}"
        )
    labels = {"count", "label"} & columns
    if not {"file", "room"} <= columns or (len(labels) != 1 and (labels or not unlabelled)):
        hint = "" if labels or unlabelled else f"; {_HINT}"
        raise DataError(
            f"{path}: columns are {one_line(', '.join(sorted(columns))):.200}; expected file, "
            f"room, either count or label, and perhaps activity, day, start, end{hint}"
        )
    if "activity" in columns and "count" not in columns:
        raise DataError(
            f"{path}: column 'activity' stands beside a column 'count'; where there are no counts, "
            "call it label"
        )
    return [
        _manifest_row(path, line, row, unlabelled=unlabelled)
        for line, row in enumerate(rows, start=2)
    ]


def _check_manifest(path: Path) -> None:
    """Refuse what is often given in place of a manifest, with what to do instead."""
    if is_hdf5(path):
        raise DataError(
            f"{path}: is a store already, not captures; learn from it with 'fedapa run --data "
            f"{path}'"
        )
    if (form := format_of(path)) is not None:
        raise DataError(
            f"{path}: is a capture ({form}), which does not tell its room and label; give its "
            f"folder and what paths mean (--pattern), or {_EXPECTED}"
        )


def _manifest_row(
    path: Path, line: int, row: Mapping[str, str | None], *, unlabelled: bool
) -> Source:
    place = f"{path}, line {line}"
    if row.get("beyond") or any(value is None for value in row.values()):
        raise DataError(f"{place}: has another number of fields than the header")
    values = {column: (value or "").strip() for column, value in row.items()}
    for column in ("file", "room"):
        if not values[column]:
            raise DataError(f"{place}: '{column}' is empty")
    for column in sorted({"count", "label"} & set(values)):
        if not values[column]:
            if not unlabelled:
                raise DataError(f"{place}: '{column}' is empty; {_HINT}")
            del values[column]
    start, end = (_seconds(values.get(column, ""), column, place) for column in ("start", "end"))
    if (start or 0.0) >= (np.inf if end is None else end):
        raise DataError(f"{place}: start {start:g} is not before end {end:g}")
    file = path.parent / values["file"]
    if not _is_file(file):
        raise DataError(
            f"{place}: {one_line(values['file']):.200}: no such file beside the manifest"
        )
    seconds = "" if start is None and end is None else f" {start or 0:g}-{end or 'end'}"
    return Source(
        file,
        room=check_name(values["room"], f"{place}: room"),
        label=_label(values, place),
        day=values.get("day", ""),
        name=_short_name(f"{Path(values['file']).with_suffix('').as_posix()}{seconds}"),
        start=start,
        end=end,
        activity=_activity(values, place),
    )


def _is_file(path: Path) -> bool:
    """Whether it is there; a name that is too long for the file system is nowhere."""
    try:
        return path.is_file()
    except OSError:
        return False


def _activity(values: Mapping[str, str], place: str) -> str | None:
    activity = values.get("activity") or None
    if activity is not None and "count" not in values:
        raise DataError(
            f"{place}: activity '{one_line(activity):.80}' without a count; give the count, "
            "or leave both empty"
        )
    return activity


def _label(told: Mapping[str, str], place: str) -> Label | None:
    """A category, a count, or neither."""
    if "count" in told:
        return _count(told["count"], place)
    return told.get("label")


def _count(text: str, place: str) -> int:
    if not re.fullmatch(r"\d{1,6}", text):
        raise DataError(
            f"{place}: count '{one_line(text):.80}' is no number of people; use label "
            "for categories"
        )
    return int(text)


def _seconds(text: str, column: str, place: str) -> float | None:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not 0 <= value < np.inf:
        raise DataError(f"{place}: {column} '{one_line(text):.80}' is no number of seconds")
    return value


def sources_of_rooms(
    sources: Sequence[Source],
    *,
    only: Sequence[str] | None,
    without: Sequence[str] | None,
    place: str,
) -> list[Source]:
    """The sources of the rooms to use; ``place`` is what to call them all in a complaint."""
    rooms = {source.room for source in sources}
    chosen = choose_rooms(rooms, only=only, without=without, place=place)
    return [source for source in sources if source.room in chosen]


def same(one: Source, other: Source) -> bool:
    """Whether two sources are the same seconds of one file."""
    return (one.start or 0.0, one.end) == (other.start or 0.0, other.end)


def overlap(one: Source, other: Source) -> bool:
    """Whether two sources of one file share some seconds."""
    return (one.end is None or one.end > (other.start or 0.0)) and (
        other.end is None or other.end > (one.start or 0.0)
    )


def seconds_of(source: Source) -> str:
    """The seconds of a source, in words."""
    return f"{source.start or 0:g} to {'the end' if source.end is None else f'{source.end:g}'}"
