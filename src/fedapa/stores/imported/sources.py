"""Which captures become which recordings: labelled by their paths or by a manifest."""

import csv
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedapa.errors import DataError, nearest
from fedapa.files import readable
from fedapa.windows.labels import Label, check_name

__all__ = [
    "Source",
    "overlap",
    "same",
    "sources_by_manifest",
    "sources_by_pattern",
    "stretch",
]

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


def same(one: Source, other: Source) -> bool:
    """Whether two sources are the same seconds of one file."""
    return (one.start or 0.0, one.end) == (other.start or 0.0, other.end)


def overlap(one: Source, other: Source) -> bool:
    """Whether two sources of one file share some seconds."""
    return (one.end is None or one.end > (other.start or 0.0)) and (
        other.end is None or other.end > (one.start or 0.0)
    )


def stretch(source: Source) -> str:
    """The seconds of a source, in words."""
    return f"{source.start or 0:g} to {'the end' if source.end is None else f'{source.end:g}'}"
