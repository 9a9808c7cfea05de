"""What inspecting and importing captures found, as tables; neither torch nor matplotlib needed."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from fedapa.csi.capture import data_kind
from fedapa.report.tables.table import Table
from fedapa.stores.imported.captures import Imported
from fedapa.windows.inspection import Inspection
from fedapa.windows.labels import Label, sorted_labels

__all__ = ["import_summary", "import_table", "inspection_table"]

_SUMMED = ("files", "recordings", "packets", "seconds", "known", "copies")
_UNLABELLED = "no label"
_UNTOLD = "cannot be told"


def inspection_table(capture: Inspection) -> Table:
    """One capture, a line per fact."""
    rate = (
        f"{capture.mean_rate:,.1f} packets per second; within bursts, by the median interval, "
        f"{capture.rate:,.1f}"
    )
    loss = f"{_percent(capture.loss)} by {capture.loss_by}"
    gaps = f"{capture.gaps}, longest {capture.longest_gap:.3f} s"
    levels = " · ".join(f"{level:.2f}" for level in capture.band)
    filled = f"{_percent(capture.occupied)} of packets fill it; mean level of each 20 MHz: {levels}"
    low, median, high = capture.rssi or (0.0, 0.0, 0.0)
    heard = f"{low:.0f} to {high:.0f} dBm, median {median:.0f}"
    clipped = f"{_percent(capture.clipped)} of packets"
    loud = f"live subcarriers far above all others: {', '.join(map(str, capture.loud))}"
    facts = [
        ("device", f"{capture.device}{f' ({data_kind(True)})' if capture.synthetic else ''}"),
        ("bandwidth", f"{capture.bandwidth} MHz"),
        ("subcarriers", f"{capture.live_subcarriers} live of {capture.subcarriers}"),
        ("antennas", f"{capture.rx} rx × {capture.tx} tx"),
        ("packets", f"{capture.packets:,} in {capture.seconds:,.1f} s"),
        ("rate", rate if capture.rate else _UNTOLD),
        ("lost packets", _UNTOLD if capture.loss is None else loss),
        ("gaps", gaps if capture.gaps else "none"),
        ("clock", f"set back {capture.steps_back} times" if capture.steps_back else ""),
        ("occupied band", filled),
        ("RSSI", heard if capture.rssi else "not told"),
        ("clipping", _UNTOLD if capture.clipped is None else clipped),
        ("not channel", loud if capture.loud else ""),
        ("usable windows", f"{capture.windows:,} of {capture.window} packets"),
        ("left out", "" if capture.left_out else "nothing"),
        *(("left out", f"{count:,} × {reason}") for reason, count in capture.left_out.items()),
    ]
    return Table(
        capture.file, ("What", "Found"), [fact for fact in facts if fact[1]], text_columns=2
    )


def _percent(share: float | None) -> str:
    return f"{100 * (share or 0):.1f} %"


def _totals(rows: Sequence[Imported]) -> dict[str, dict[str, Any]]:
    """Rooms, sorted, with what came of their files."""
    rooms: dict[str, dict[str, Any]] = {}
    for row in rows:
        sums = dict.fromkeys((*_SUMMED, "unlabelled"), 0)
        empty = {"days": set(), "labels": set(), "left_out": Counter(), **sums}
        empty["activities"] = set()
        room = rooms.setdefault(row.room, empty)
        room["days"].add(row.day)
        room["labels"].add(row.label)
        room["activities"] |= {row.activity} - {None}
        for name in (*_SUMMED, "left_out"):
            room[name] += getattr(row, name)
        room["unlabelled"] += row.recordings if row.label is None else 0
    return dict(sorted(rooms.items()))


def import_summary(rows: Sequence[Imported]) -> dict[str, Any]:
    """For JSON."""
    rooms = _totals(rows)
    for room in rooms.values():
        room["days"], room["labels"] = sorted(room["days"]), list(sorted_labels(room["labels"]))
        room["left_out"] = dict(room["left_out"])
        if activities := sorted(room.pop("activities")):
            room["activities"] = activities
    return {"rooms": rooms}


def import_table(rows: Sequence[Imported]) -> Table:
    """A line per room, and below what was left out and why."""
    rooms = _totals(rows)
    reasons: Counter[str] = sum((room["left_out"] for room in rooms.values()), Counter())
    lines = [f"left out: {n:,} × {reason}" for reason, n in reasons.most_common()]
    if copies := sum(room["copies"] for room in rooms.values()):
        lines.append(
            f"{copies} files are copies of files of other rooms: what one room tests on, another "
            "may train on"
        )
    counted = ("Days", "Files", "Recordings", "Rows", "Minutes", "Known already", "Left out")
    return Table(
        title="Imported",
        headings=["Room", "Labels", *counted],
        rows=[
            [
                *(name, _labels(room["labels"], room["activities"])),
                *(str(len(room["days"])), str(room["files"])),
                *(str(room["recordings"]), f"{room['packets']:,}", f"{room['seconds'] / 60:.1f}"),
                *(str(room["known"]), f"{room['left_out'].total():,}"),
            ]
            for name, room in rooms.items()
        ],
        note="\n".join(lines),
        text_columns=2,
    )


def _labels(labels: set[Label | None], activities: set[str]) -> str:
    named = [_names(sorted_labels(labels))] if labels - {None} else []
    told = ", ".join([*named, *([_UNLABELLED] if None in labels else [])])
    return f"{told}; {_names(sorted(activities))}" if activities else told


def _names(ordered: Sequence[Any]) -> str:
    if all(isinstance(label, int) for label in ordered):
        if len(ordered) == ordered[-1] + 1 - ordered[0] > 2:
            return f"{ordered[0]} to {ordered[-1]} people"
        return f"{', '.join(map(str, ordered))} people"
    shown = ", ".join(ordered[:4])
    return f"{shown}, … ({len(ordered)})" if len(ordered) > 4 else shown
