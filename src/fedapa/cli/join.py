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
            help="Counts that there can be beside the recorded: 0-8, or 0,2,4. Default: no others."
        ),
    ] = None,
    split: SplitKind = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="To train at home; default: as the federation had.")
    ] = None,
    curve: Annotated[
        bool,
        typer.Option(
            "--curve/--no-curve",
            help="Also join with 1, 2, 4, … of the labelled recordings: would more of them help?",
        ),
    ] = True,
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
            curve=curve,
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
                "before": done.before,
                "after_one_round": done.after_one_round,
                "may_answer": {room: list(labels) for room, labels in done.possible.items()},
                "by_labels": done.results.summary()["settings"]["labels"],
                "notes": _notes(done, told_counts=counts is not None),
            }
        )
        return
    _print_joined(done, told_counts=counts is not None)
    print_out(f"Model files: {done.joined.folder / 'models'}")
    print_out(f"Page: {done.page}")


def _print_joined(done: "Joined", *, told_counts: bool) -> None:
    """The answer in a sentence for each room, then what it rests on."""
    from fedapa.report.captions import choices
    from fedapa.report.tables.comparison import rooms
    from fedapa.report.tables.table import rich_table

    for room, joined in done.joined.summary["rooms"].items():
        alone = done.alone.summary["rooms"][room]
        guess = done.joined.summary["blind"]["constant"]["rooms"][room]["accuracy"]
        error = ""
        if "mae_median" in joined:
            error = f" and {joined['mae_median']:.1f} people off"
        tested = done.joined.data["rooms"][room]["test"]
        print_out(
            f"{room} joined: right in {100 * joined['accuracy']:.0f} % of the {tested} windows "
            "that it was tested on, held out of its labels (one of them is "
            f"{100 / tested:.1f} points){error}; {100 * done.before[room]:.0f} % before any "
            "training at home, "
            f"{100 * done.after_one_round[room]:.0f} % after one round, "
            f"{100 * alone['accuracy']:.0f} % alone, {100 * guess:.0f} % by guessing."
        )
    for sentence in done.answers:
        print_out(sentence)
    print_out(rich_table(done.table))
    if len(done.possible) > 1:
        from fedapa.report.runs import results_of

        (setting,) = results_of([done.joined, done.alone], title="")[0].settings
        shown = [row.name for row in setting.deployed if row.group != "blind"]
        print_out(rich_table(rooms(setting, shown)))
    for sentence in choices(done.joined.data):
        print_out(sentence)
    for note in _notes(done, told_counts=told_counts):
        print_out(f"Note: {note}")


def _notes(done: "Joined", *, told_counts: bool) -> list[str]:
    """What must be known beside the figures."""
    from fedapa.algorithms import find
    from fedapa.report.captions import without_labels

    notes = [*done.notes, *without_labels(done.joined.data)]
    settings = done.joined.plan.algorithm
    kind = find(settings["name"])
    if without_labels(done.joined.data):
        if not kind.learns_unlabelled:
            notes.append(
                f"{kind.title} does not learn from windows without a label; join a federation of "
                "fedjoin."
            )
        elif not told_counts and settings.get("unlabelled") != "always":
            notes.append(
                "windows without a label only help to normalise here: they are learned from where "
                "there can be counts that no label has, which --counts says."
            )
        elif (alone := settings.get("labelled_rounds", 0)) >= done.joined.plan.rounds:
            notes.append(
                "windows without a label only help to normalise here: a room learns from labels "
                f"alone for {alone} rounds (algorithm.labelled_rounds), and trained for "
                f"{done.joined.plan.rounds}; give it other --rounds than the federation had, and "
                "a third of them is for labels alone."
            )
    return [*notes, *done.joined.summary.get("notes", [])]


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
