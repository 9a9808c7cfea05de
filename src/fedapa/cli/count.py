"""``fedapa count``: how many people a capture shows, by a room's model."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedapa.cli.options import ByStillness
from fedapa.cli.output import print_out

if TYPE_CHECKING:
    from fedapa.service.file_counts import FileCounts

__all__ = ["count"]


def count(
    model: Annotated[
        Path, typer.Argument(help="A model file, or the folder of a run with --room.")
    ],
    capture: Annotated[Path, typer.Argument(help="A capture of the receiver of that room.")],
    room: Annotated[str | None, typer.Option(help="Which room's model, of a run.")] = None,
    every: Annotated[float, typer.Option(help="Seconds from one count to the next.")] = 5.0,
    chip: Annotated[
        str | None, typer.Option(help="Of a Nexmon capture that does not tell it, e.g. 4358.")
    ] = None,
    stillness: ByStillness = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per count, one to a line.")
    ] = False,
) -> None:
    """Count the people in a capture: how many, from when on, and how sure that is.

    Example: fedapa count runs/fedapa --room kitchen now.pcap
    """
    from fedapa.rooms.model_file import find_model, load_model
    from fedapa.service.counter import CounterSettings
    from fedapa.service.file_counts import count_file

    chosen = load_model(find_model(model, room))
    settings = CounterSettings(every=every, stillness=CounterSettings.stillness if stillness else 0)
    counted = count_file(chosen, capture, settings=settings, chip=chip)
    if as_json:
        for made in counted.counts:
            line = {"seconds": round(made.time - counted.begin, 3), **made.document()}
            sys.stdout.write(json.dumps(line, sort_keys=True) + "\n")
        return
    _print_counts(counted, chosen.room, capture)


def _print_counts(counted: "FileCounts", room: str, capture: Path) -> None:
    """The answer in a sentence, then a line for each count."""
    from fedapa.csi.capture import data_kind
    from fedapa.report.tables.table import Table, rich_table

    kind = data_kind(counted.counts[0].synthetic)
    print_out(f"{capture.name}: {counted.sentence()}; {kind} data")
    rows = []
    for made in counted.counts:
        minutes, seconds = divmod(max(0, round(made.time - counted.begin)), 60)
        known = made.count is not None
        within = "" if not known else str(made.lo) if made.lo == made.hi else f"{made.lo}–{made.hi}"
        rows.append(
            (
                f"{minutes}:{seconds:02d}",
                str(made.count) if known else "–",
                within or "–",
                "–" if made.confidence is None else f"{100 * made.confidence:.0f} %",
                made.state if not made.reason else f"{made.state}: {made.reason}",
            )
        )
    skipped, faulty = sum(counted.skipped.values()), sum(counted.faulty.values())
    note = f"Room '{room}', {counted.packets} packets"
    note += f", {skipped} left out" if skipped else ""
    note += f", {faulty} windows of which nothing can be said" if faulty else ""
    print_out(
        rich_table(
            Table("", ("time", "people", "interval", "confidence", "state"), rows, note=note)
        )
    )
