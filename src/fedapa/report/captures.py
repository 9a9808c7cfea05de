"""What inspecting and importing captures found, as tables; neither torch nor matplotlib needed."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table

from fedapa.stores.imported.captures import Imported
from fedapa.windows.inspection import Inspection

__all__ = ["import_summary", "import_table", "inspection_table"]


def inspection_table(found: Inspection) -> Table:
    """One capture, a line a fact."""
    table = Table(title=found.file, box=box.SIMPLE_HEAD, title_justify="left", show_header=False)
    table.add_column("What")
    table.add_column("Found")
    for name, value in _facts(found):
        table.add_row(name, value)
    return table


def _facts(found: Inspection) -> list[tuple[str, str]]:
    facts = [
        ("device", f"{found.device}{' (SIMULATED)' if found.synthetic else ''}"),
        ("bandwidth", f"{found.bandwidth} MHz"),
        ("subcarriers", f"{found.live_subcarriers} live of {found.subcarriers}"),
        ("antennas", f"{found.rx} rx × {found.tx} tx"),
        ("packets", f"{found.packets:,} in {found.seconds:,.1f} s"),
        (
            "rate",
            f"{found.mean_rate:,.1f} packets per second; within bursts, by the middle interval, "
            f"{found.rate:,.1f}"
            if found.rate
            else "cannot be told",
        ),
        (
            "lost packets",
            "cannot be told"
            if found.loss is None
            else f"{_percent(found.loss)} by {found.loss_by}",
        ),
        ("gaps", f"{found.gaps}, longest {found.longest_gap:.3f} s" if found.gaps else "none"),
    ]
    if found.steps_back:
        facts.append(("clock", f"set back {found.steps_back} times"))
    facts += [
        (
            "occupied band",
            f"{_percent(found.occupied)} of packets fill it; mean level of each 20 MHz: "
            + " · ".join(f"{level:.2f}" for level in found.band),
        ),
        (
            "RSSI",
            "not told"
            if found.rssi is None
            else f"{found.rssi[0]:.0f} to {found.rssi[2]:.0f} dBm, middle {found.rssi[1]:.0f}",
        ),
        (
            "clipping",
            "cannot be told" if found.clipped is None else f"{_percent(found.clipped)} of packets",
        ),
    ]
    if found.loud:
        tones = ", ".join(map(str, found.loud))
        facts.append(("not channel", f"live subcarriers far above all others: {tones}"))
    facts.append(("usable windows", f"{found.windows:,} of {found.window} packets"))
    if not found.left_out:
        facts.append(("left out", "nothing"))
    for reason, count in found.left_out.items():
        facts.append(("left out", f"{count:,} × {reason}"))
    return facts


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _totals(rows: Sequence[Imported]) -> dict[str, dict[str, Any]]:
    """Rooms, sorted, with what came of their files."""
    rooms: dict[str, dict[str, Any]] = {}
    for row in rows:
        room = rooms.setdefault(
            row.room,
            {
                "days": set(),
                "labels": set(),
                "files": 0,
                "recordings": 0,
                "packets": 0,
                "seconds": 0.0,
                "known": 0,
                "copies": 0,
                "left_out": Counter(),
            },
        )
        room["days"].add(row.day)
        room["labels"].add(row.label)
        for name in ("files", "recordings", "packets", "seconds", "known", "copies"):
            room[name] += getattr(row, name)
        room["left_out"] += row.left_out
    return dict(sorted(rooms.items()))


def import_summary(rows: Sequence[Imported]) -> dict[str, Any]:
    """For JSON."""
    rooms = _totals(rows)
    for room in rooms.values():
        room["days"], room["labels"] = sorted(room["days"]), sorted(room["labels"])
        room["left_out"] = dict(room["left_out"])
    return {"rooms": rooms}


def import_table(rows: Sequence[Imported]) -> Table:
    """A line a room, and below it what was left out and why."""
    rooms = _totals(rows)
    reasons: Counter[str] = sum((room["left_out"] for room in rooms.values()), Counter())
    lines = [f"left out: {n:,} × {reason}" for reason, n in reasons.most_common()]
    if copies := sum(room["copies"] for room in rooms.values()):
        lines.append(
            f"{copies} files are copies of files of other rooms: what one room tests on, another "
            "may train on"
        )
    caption = "\n".join(lines)
    table = Table(title="Imported", caption=caption, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("Room")
    table.add_column("Labels")
    for heading in ("Days", "Files", "Recordings", "Rows", "Minutes", "Known already", "Left out"):
        table.add_column(heading, justify="right")
    for name, room in rooms.items():
        table.add_row(
            name,
            _labels(room["labels"]),
            str(len(room["days"])),
            str(room["files"]),
            str(room["recordings"]),
            f"{room['packets']:,}",
            f"{room['seconds'] / 60:.1f}",
            str(room["known"]),
            f"{room['left_out'].total():,}",
        )
    return table


def _labels(labels: set[Any]) -> str:
    ordered = sorted(labels)
    if all(isinstance(label, int) for label in ordered):
        if ordered == list(range(ordered[0], ordered[-1] + 1)) and len(ordered) > 2:
            return f"{ordered[0]} to {ordered[-1]} people"
        return f"{', '.join(map(str, ordered))} people"
    shown = ", ".join(ordered[:4])
    return f"{shown}, … ({len(ordered)})" if len(ordered) > 4 else shown
