"""``fedapa inspect``, ``import`` and ``label``: what captures hold, and a store made from them."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedapa.cli.options import Json, OnlyRooms, WithoutRooms
from fedapa.cli.output import fail, print_json, print_out
from fedapa.cli.progress import shown_progress
from fedapa.errors import DataError, FedapaError, PlanError

if TYPE_CHECKING:
    from fedapa.stores.store import Recording

__all__ = ["import_", "inspect", "label"]


def inspect(
    files: Annotated[list[Path], typer.Argument(help="Captures of any known format.")],
    chip: Annotated[
        str | None, typer.Option(help="Of a Nexmon capture that does not tell it, e.g. 4358.")
    ] = None,
    window: Annotated[int, typer.Option(min=1, help="Packets per window.")] = 1000,
    salvage: Annotated[
        bool, typer.Option("--salvage", help="Leave damaged parts out instead of stopping.")
    ] = False,
    plot: Annotated[
        bool, typer.Option("--plot", help="Also draw FILE.png: amplitude over time and frequency.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the figures; default: beside the files.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object whose 'files' lists them.")
    ] = False,
) -> None:
    """Say what captures hold: device, band, rate, loss, usable windows, and what is left out.

    Example: fedapa inspect kitchen.pcap --plot
    """
    from fedapa.report.tables.captures import inspection_table
    from fedapa.report.tables.table import rich_table
    from fedapa.windows.inspection import inspect_capture

    if out is not None and not plot:
        raise PlanError("--out is for the figures; give --plot too, or leave it out")
    names = Counter(path.name for path in set(files))
    if out is not None and (twice := [name for name, times in names.items() if times > 1]):
        raise PlanError(
            f"--out {out}: several files are named {twice[0]}, their figures would be one; leave "
            "--out out, or give it for each of them"
        )
    inspections = []
    complaints = []
    for path in files:
        try:
            inspections.append(inspect_capture(path, chip=chip, salvage=salvage, window=window))
            if plot:
                from fedapa.report.figures.data import draw_waterfall

                figure = (out or path.parent) / f"{path.name}.png"
                draw_waterfall(path, figure, chip=chip, salvage=salvage)
                if not as_json:
                    print_out(f"Figure: {figure}")
        except FedapaError as error:
            complaints.append(str(error))
    if as_json and inspections:
        print_json({"files": [inspection.as_dict() for inspection in inspections]})
    elif not as_json:
        for inspection in inspections:
            print_out(rich_table(inspection_table(inspection)))
    if complaints:
        fail("\nfedapa: ".join(complaints))


def import_(
    source: Annotated[Path, typer.Argument(help="A folder, a CSV manifest, or Wi-CaL's .npz.")],
    out: Annotated[Path, typer.Option(help="The store to make or to add to.")],
    pattern: Annotated[
        str | None,
        typer.Option(help="What paths mean, e.g. '{room}/{day}/P={count}.pcap'; {label}: text."),
    ] = None,
    room: Annotated[
        str | None, typer.Option(help="Of all files, where the pattern names no {room}.")
    ] = None,
    unlabelled: Annotated[
        bool,
        typer.Option(
            "--unlabelled",
            help="Files without a label: of a pattern that names none, or rows that give none.",
        ),
    ] = False,
    only: OnlyRooms = None,
    without: WithoutRooms = None,
    layout: Annotated[
        str | None, typer.Option(help="wical: that set's own tree of feature CSVs.")
    ] = None,
    days_of_a_room: Annotated[
        bool,
        typer.Option(
            "--days-of-a-room",
            help="With --layout wical: the days of a room in one room, not a room for each day.",
        ),
    ] = False,
    chip: Annotated[
        str | None, typer.Option(help="Of Nexmon captures that do not tell it, e.g. 4358.")
    ] = None,
    window: Annotated[
        int | None, typer.Option(min=1, help="Packets per window: noted for runs on this store.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Put packets onto an even grid of so many per second.")
    ] = None,
    longest_gap: Annotated[
        float | None,
        typer.Option(help="With --rate: part recordings at silences of so many seconds; else 0.5."),
    ] = None,
    low_pass: Annotated[
        float | None,
        typer.Option(help="With --rate: remove what is faster than so many Hz, e.g. 30."),
    ] = None,
    gate: Annotated[
        float | None,
        typer.Option(help="Drop frames with a 20 MHz part weaker than this share; 0: none."),
    ] = None,
    salvage: Annotated[
        bool, typer.Option("--salvage", help="Leave damaged parts of files out.")
    ] = False,
    skip_unreadable: Annotated[
        bool, typer.Option("--skip-unreadable", help="Leave out files that are no captures.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make a store of rooms from captures; labels come from their paths or from a manifest.

    Captures that nobody labelled are added with --unlabelled: FedJoin learns from them, too.

    Example: fedapa import captures --pattern '{room}/{day}/P={count}.pcap' --out rooms.h5
    """
    from fedapa.report.tables.captures import import_summary, import_table
    from fedapa.report.tables.table import rich_table
    from fedapa.stores.imported.captures import import_captures
    from fedapa.stores.imported.preparation import Preparation
    from fedapa.stores.imported.sources import (
        sources_by_manifest,
        sources_by_pattern,
        sources_of_rooms,
    )
    from fedapa.stores.wical import import_wical
    from fedapa.windows.recipe import EMPTY, Recipe

    unmatched: list[Path] = []
    if layout is not None:
        if layout != "wical":
            raise PlanError(f"--layout {layout} is unknown; known: wical")
        if pattern is not None:
            raise PlanError("--layout wical has its own pattern; leave --pattern out")
        if room is not None:
            raise PlanError("--layout wical has rooms of its own; leave --room out")
        if unlabelled:
            raise PlanError("--layout wical has labels of its own; leave --unlabelled out")
        of_packets = {
            "--chip": chip is not None,
            "--window": window is not None,
            "--rate": rate is not None,
            "--longest-gap": longest_gap is not None,
            "--low-pass": low_pass is not None,
            "--gate": gate is not None,
            "--salvage": salvage,
            "--skip-unreadable": skip_unreadable,
        }
        if given := [name for name, told in of_packets.items() if told]:
            raise PlanError(
                f"--layout wical holds features, not packets; leave {', '.join(given)} out"
            )
        rows = import_wical(source, out, only=only, without=without, days_of_a_room=days_of_a_room)
    else:
        if days_of_a_room:
            raise PlanError("--days-of-a-room is for --layout wical; a pattern has {day}")
        if pattern is not None:
            sources, unmatched = sources_by_pattern(
                source, pattern, room=room, unlabelled=unlabelled
            )
        elif room is not None:
            raise PlanError("--room is for a --pattern without {room}; a manifest names its rooms")
        elif source.suffix == ".npz" and source.is_file():
            raise PlanError(f"{source}: an .npz is read with --layout wical; give that too")
        elif source.is_file():
            sources = sources_by_manifest(source, unlabelled=unlabelled)
        elif not source.exists():
            raise PlanError(
                f"{source}: no such folder or manifest; give a folder of captures with --pattern, "
                "or a CSV manifest"
            )
        else:
            raise PlanError(
                f"{source}: say what its paths mean, e.g. --pattern '{{room}}/{{day}}/"
                "P={count}.pcap', or give a CSV manifest instead of a folder"
            )
        sources = sources_of_rooms(sources, only=only, without=without, place=str(source))
        preparation = Preparation(
            chip=chip,
            salvage=salvage,
            skip_unreadable=skip_unreadable,
            recipe=Recipe(
                gate=EMPTY if gate is None else gate,
                rate=rate,
                longest_gap=longest_gap,
                low_pass=low_pass,
            ),
        )
        with shown_progress() as show:
            rows = import_captures(sources, out, preparation=preparation, window=window, show=show)
    short = [] if layout is not None else _too_short(out)
    if as_json:
        summary = {"unmatched": len(unmatched), **import_summary(rows)}
        print_json({"out": str(out), **summary, **({"notes": short} if short else {})})
        return
    print_out(rich_table(import_table(rows)))
    if unmatched:
        print_out(
            f"{len(unmatched)} files do not fit the pattern and were left alone, "
            f"e.g. {unmatched[0]}"
        )
    for sentence in short:
        print_out(f"Note: {sentence}")
    print_out(f"Store: {out}")


def label(
    store: Annotated[Path, typer.Argument(help="A store, see 'fedapa import'.")],
    room: Annotated[str | None, typer.Option(help="Whose recordings.")] = None,
    recording: Annotated[
        list[str] | None,
        typer.Option(help="Its name, * for any letters; give it once for each.", metavar="NAME"),
    ] = None,
    count: Annotated[int | None, typer.Option(min=0, help="How many people it shows.")] = None,
    category: Annotated[
        str | None, typer.Option("--label", help="What it shows, where labels are no counts.")
    ] = None,
    activity: Annotated[
        str | None, typer.Option(help="With --count: what the people do, a second label.")
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Take its label away.")] = False,
    as_json: Json = False,
) -> None:
    """Label recordings that were imported without; alone it lists those that have no label.

    What got its label later may have been learned from before: it trains, and never tests.

    Example: fedapa label rooms.h5 --room cafe --recording 'evening 3' --count 2
    """
    from fedapa.stores.relabel import relabel, unlabelled_recordings

    told = [text for text in (category,) if text] + [n for n in (count,) if n is not None]
    if room is None and recording is None and not told and not none and activity is None:
        _print_unlabelled(unlabelled_recordings(store), as_json=as_json)
        return
    if room is None or not recording:
        raise PlanError("label: whose recording is it? Give --room and --recording")
    if len(told) + none != 1:
        raise PlanError("label: give one of --count, --label and --none")
    given = None if none else told[0]
    done = relabel(store, room=room, names=recording, label=given, activity=activity)
    if as_json:
        print_json({"changed": list(done.changed), "without_label": done.left})
        return
    for name in done.changed:
        print_out(
            f"{room}/{name}: {'no label' if given is None else given}"
            + ("" if given is None else ", trains and never tests")
        )
    print_out(f"Without a label in room '{room}': {done.left} recordings")


def _print_unlabelled(found: "list[Recording]", *, as_json: bool) -> None:
    """The recordings of a store that have no label."""
    from fedapa.report.tables.table import Table, rich_table

    if as_json:
        told = [{"room": one.room, "recording": one.name, "day": one.day} for one in found]
        print_json({"without_label": told})
        return
    if not found:
        print_out("Every recording has a label.")
        return
    lasting = [one.shape[0] / one.mean_rate if one.mean_rate else None for one in found]
    rows = [
        [one.room, one.name, one.day or "–", "–" if seconds is None else f"{seconds:.0f}"]
        for one, seconds in zip(found, lasting, strict=True)
    ]
    headings = ["Room", "Recording", "Day", "Seconds"]
    print_out(rich_table(Table("Without a label", headings, rows, text_columns=3)))


def _too_short(out: Path) -> list[str]:
    """What recordings of a store are too short for when a run cuts windows as it usually does."""
    from fedapa.stores.materialise import short_recordings
    from fedapa.stores.store import Store
    from fedapa.windows.recipe import USUAL_SECONDS, Recipe

    with Store(out) as store:
        seconds = USUAL_SECONDS if store.window is None else None  # else as the store recommends
    try:
        return short_recordings(out, Recipe(seconds=seconds))
    except DataError:  # e.g. nobody noted a packet rate: a run says so, with what to do
        return []
