"""``fedapa join``: a new room takes over what a finished federation knows."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedapa.cli.options import Json, OnlyRooms, SplitKind, Workers
from fedapa.cli.output import print_json, print_out
from fedapa.cli.progress import shown_progress

if TYPE_CHECKING:
    from fedapa.experiments.join import Joined

__all__ = ["join"]


def join(
    federation: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    data: Annotated[Path, typer.Option(help="The store of the new room, see 'fedapa import'.")],
    only: OnlyRooms = None,
    counts: Annotated[
        str | None,
        typer.Option(
            help="Counts that there can be, recorded or not: 0-8, or 0,2,4. Default: the recorded."
        ),
    ] = None,
    split: SplitKind = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="To train at home; default: as the federation had.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Directory to write; default: in runs/, named by store and options."),
    ] = None,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Make a counter for a new room from a finished federation and a few labels.

    Run the federation with --algorithm fedjoin: it is made for this. docs/joining.md says what to
    record.

    Example: fedapa join runs/federation --data new-room.h5
    """
    from fedapa.experiments.join import join as carry_out

    chosen = None if counts is None else _counts(counts)
    asked = repr((str(federation.resolve()), only, chosen, split, rounds)).encode()
    mark = hashlib.blake2b(asked, digest_size=3).hexdigest()
    folder = out or Path("runs") / f"join-{data.stem}-{mark}"
    with shown_progress() as show:
        done = carry_out(
            federation,
            data,
            only=only,
            counts=chosen,
            split=split or "auto",
            rounds=rounds,
            out=folder,
            workers=workers,
            show=show,
        )
    if as_json:
        print_json(
            {
                "out": str(folder),
                "joined": done.joined.summary,
                "alone": done.alone.summary,
                "after_one_round": done.after_one_round,
            }
        )
        return
    _print_joined(done, told_counts=counts is not None)
    print_out(f"Model files: {done.joined.folder / 'models'}")
    print_out(f"Page: {done.page}")


def _print_joined(done: "Joined", *, told_counts: bool) -> None:
    """The answer in a sentence for each room, then the tables."""
    from fedapa.algorithms import find
    from fedapa.report.captions import choices, without_labels
    from fedapa.report.tables.comparison import overall, rooms
    from fedapa.report.tables.table import rich_table

    for room, joined in done.joined.summary["rooms"].items():
        alone = done.alone.summary["rooms"][room]
        error = ""
        if "mae_median" in joined:
            error = f" and {joined['mae_median']:.1f} people off"
        print_out(
            f"{room} joined: right in {100 * joined['accuracy']:.0f} % of the "
            f"{done.joined.data['rooms'][room]['test']} windows that it was tested on, held out of "
            f"its labels{error}; {100 * done.after_one_round[room]:.0f} % after one round, "
            f"{100 * alone['accuracy']:.0f} % alone."
        )
    for setting in done.results.settings:
        shown = [row.name for row in setting.rows if row.group != "blind"]
        print_out(rich_table(rooms(setting, shown)))
        print_out(rich_table(overall(setting)))
    unlabelled = without_labels(done.joined.data)
    for sentence in (*choices(done.joined.data), *unlabelled):
        print_out(sentence)
    settings = done.joined.plan.algorithm
    kind = find(settings["name"])
    if unlabelled and not kind.learns_unlabelled:
        print_out(
            f"Note: {kind.title} does not learn from windows without a label; join a federation of "
            "fedjoin."
        )
    elif unlabelled and not told_counts and settings.get("unlabelled") != "always":
        print_out(
            "Note: windows without a label are learned from where there can be counts that no "
            "label has; say which there can be with --counts."
        )
    for note in done.joined.summary.get("notes", []):
        print_out(f"Note: {note}")


def _counts(text: str) -> list[int]:
    """The counts in "0-8" or "0,2,4"."""
    from fedapa.errors import PlanError

    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise PlanError(f"--counts {text[:60]}: expected counts such as 0-8 or 0,2,4")
        if len(first) > 4 or len(last) > 4:
            raise PlanError(f"--counts {text[:60]}: no room holds so many people")
        if dash and int(last) < int(first):
            raise PlanError(f"--counts {text[:60]}: {part.strip()} runs backwards; turn it round")
        found += range(int(first), int(last if dash else first) + 1)
    return sorted(set(found))
