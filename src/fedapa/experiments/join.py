"""``fedapa join``: a counter for a new room, from a finished federation and a few labels.

The room gets what that server has for it, trains alone on its own windows and is scored on windows
that it did not train on; beside it stands the same room without any federation. Expected: with a
recording or two of every count it does better joined, with many of them as well as alone. The same
is done with 1, 2, 4, … of its labelled recordings, which says whether more of them would help.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedapa.algorithms import find
from fedapa.algorithms.fedjoin import FedJoin
from fedapa.algorithms.local import Local
from fedapa.errors import PlanError, RosterError, RunError
from fedapa.evaluation.results import Results, Row, Setting, horizons_of
from fedapa.experiments.joining import at_home, fewer_labels
from fedapa.federation.joining import can_be_joined
from fedapa.federation.plan import Plan
from fedapa.federation.prepare import told_short
from fedapa.federation.run import Run, run
from fedapa.files import write_text
from fedapa.processes import Show, unseen
from fedapa.report.figures.sweeps import sweep
from fedapa.report.page import Lead, write_run_page
from fedapa.report.runs import Runs, setting_of
from fedapa.report.tables.newcomers import of_new_rooms
from fedapa.report.tables.table import Table
from fedapa.rooms.model_file import read_recipe
from fedapa.stores.store import Store
from fedapa.windows.labels import Label, choose_rooms, sorted_labels
from fedapa.windows.recipe import Recipe

__all__ = ["Joined", "join"]


_OF_WINDOWS = (
    *("seconds", "overlap", "decimate", "subcarrier_step", "links", "view", "bad_windows", "tasks"),
    *("test", "validation", "validation_of"),
)
"""What of a federation's data settings a new room takes over: how windows are made and held out,
not which rooms there were and what was taken away from them."""


_NAMED = 24
"""Classes that are named, of more their number."""

_AS_LONG = 0.98
"""Windows of so large a share of others' are as long: packet rates are not round."""

_OF_FEDERATION = ("data", "participation", "selection", "network")
"""What a room that trains alone does not take over: who takes part, and how long one waits."""


@dataclass(frozen=True, eq=False)
class Joined:
    """What came of it."""

    joined: Run
    alone: Run
    """The same room, the same windows, without a federation."""
    results: Results
    """Of both, by the labels of each class that the room has."""
    table: Table
    """The same as a table."""
    page: Path
    possible: Mapping[str, Sequence[Label]]
    """room → what it may answer."""
    others: Sequence[Label]
    """What the federation knows and no room may answer."""
    answers: Sequence[str]
    """The same in sentences."""
    notes: Sequence[str]
    """What recordings are too short for, in sentences."""

    @property
    def before(self) -> dict[str, float]:
        """The accuracy of each room with what it received, before any step at home."""
        return {room: scores["accuracy"] for room, scores in self.joined.before["rooms"].items()}

    @property
    def after_one_round(self) -> dict[str, float]:
        """The accuracy of each room after its first round."""
        rooms = self.joined.records[0]["rooms"]
        return {room: entry["accuracy"] for room, entry in rooms.items() if "accuracy" in entry}


def join(
    federation: Path,
    data: Path,
    *,
    only: Sequence[str] | None = None,
    counts: Sequence[Label] | None = None,
    split: str = "auto",
    rounds: int | None = None,
    curve: bool = True,
    out: Path,
    workers: int | None = None,
    show: Show = unseen,
) -> Joined:
    """Let the rooms of a store join a finished federation, each for itself.

    Args:
        federation: the folder of the finished run.
        data: the store of the new rooms.
        only: those of its rooms that join; by default all.
        counts: that there can be in the rooms beside those that were recorded.
        split: how windows to test on are held out.
        rounds: to train; by default as many as the federation had.
        curve: whether to do it with fewer labels, too.
        out: where to write; what is there is gone on with.
        workers: processes to train rooms in.
        show: called as work goes on.
    """
    theirs = Run.load(federation)
    kind = find(theirs.plan.algorithm["name"])
    if not can_be_joined(kind):
        raise PlanError(
            f"{federation}: {kind.title} gives nothing to a room that joins; run the federation "
            f"with --algorithm {FedJoin.name}"
        )
    with Store(data) as store:
        rooms = choose_rooms(store.rooms, only=only, without=None, place=str(data))
        recorded = {room: _recorded(store, room, theirs) for room in rooms}
    if taken := sorted(set(rooms) & set(theirs.data["rooms"])):
        raise RosterError(
            f"{data}: room '{taken[0]}' is in the federation already; rename it, or leave it out"
        )
    if out.resolve() == federation.resolve():
        raise PlanError(f"{out}: is the federation itself; choose another --out")
    possible = "room" if counts is None else _possible(theirs, counts)
    plan = Plan.of(_plan(theirs, data, rooms, split, rounds).document(), {"answerable": possible})
    _remember(out, federation)
    change: dict[str, Any] = {
        "joins": dict.fromkeys(rooms, str(federation.resolve())),
        # What somebody chose for the federation stands, unless the rounds are others.
        "algorithm": {} if plan.rounds == theirs.plan.rounds else kind.settings_for(plan.rounds),
        **at_home(theirs.plan, kind.name),
    }
    changes: dict[str, dict[str, Any]] = {
        kind.name: change,
        Local.name: {"algorithm": Local.name},
    }
    unit, numbers, most = fewer_labels(plan)
    labels: dict[int, dict[str, Any]] = {most: {}}
    for number in numbers if curve else ():
        labels[number] = {unit: number, "unlabelled": "keep"}
    done: dict[tuple[str, int], Run] = {}
    for number, few in labels.items():
        for name, own in changes.items():
            done[name, number] = run(
                Plan.of(plan.document(), own, {"data": few}),
                out=out / name if number == most else out / "fewer-labels" / f"{name}-{number}",
                resume=True,
                workers=workers,
                show=show,
            )
    joined, alone = done[kind.name, most], done[Local.name, most]
    title = f"{', '.join(rooms)}: joined to {federation.name}"
    what = "recordings" if unit == "train_recordings" else "windows"
    parameter = f"labelled {what} of each class"
    results, runs = _by_labels(done, title, parameter)
    further = () if isinstance(possible, str) else possible
    possible_in = {room: sorted_labels({*own, *further}) for room, own in recorded.items()}
    others = sorted_labels(set(theirs.data["classes"]).difference(*possible_in.values()))
    answers = _told_answers(possible_in, others)
    notes = [*told_short(joined.plan), *_shorter(theirs, joined)]
    (setting,) = results.settings
    table = of_new_rooms(setting, runs, parameter=parameter)
    told = (
        f"Accuracy and error by {parameter}, joined and alone, on the same test windows; with "
        f"{most} it has all labels. One seed: small differences may be chance."
    )
    lead = Lead(
        "How many labels it needs",
        " ".join([told, *answers, *(f"{note}." for note in notes)]),
        figure=sweep(results, setting) if len(labels) > 1 else None,
        table=table,
    )
    page = out / "index.html"
    write_run_page(page, [joined, alone], title=title, lead=lead)
    return Joined(
        *(joined, alone, results),
        table=table,
        page=page,
        possible=possible_in,
        others=others,
        answers=answers,
        notes=notes,
    )


def _told_answers(possible: Mapping[str, Sequence[Label]], others: Sequence[Label]) -> list[str]:
    """What rooms may answer and what not, a sentence each, and how to say otherwise."""
    counts = all(isinstance(label, int) for own in possible.values() for label in own)
    people = " people" if counts else ""
    told = [f"{room} may answer {_listed(own)}{people}." for room, own in possible.items()]
    if others and counts:
        told.append(
            f"Never {_listed(others)}, which the federation knows, too: if there can be so many, "
            "say so with --counts."
        )
    elif others:
        told.append(f"Never {_listed(others)}: what was not recorded is not answered.")
    return told


def _listed(labels: Sequence[Label]) -> str:
    """Labels as one says them, a long list cut."""
    shown = [str(label) for label in labels[:_NAMED]]
    more = [f"{len(labels) - _NAMED} more"] if len(labels) > _NAMED else []
    *first, last = [*shown, *more]
    return f"{', '.join(first)} or {last}" if first else last


def _by_labels(
    done: Mapping[tuple[str, int], Run], title: str, parameter: str
) -> tuple[Results, Runs]:
    """The runs of both, by the labels that the room had in them."""
    plan = next(iter(done.values())).plan
    empty = Setting(
        "labels", title, plan.rounds, horizons_of(plan.rounds), [], {}, reference=Local.name
    )
    cases = [
        (Row(f"{name}-{number}", f"{kind.title}, {number}", kind.title, [], value=number), [one])
        for (name, number), one in sorted(done.items(), key=lambda item: item[0][1])
        for kind in [find(name)]
    ]
    cases.sort(key=lambda case: case[0].group == Local.title)
    results = Results(
        "join", title, "", [setting_of(empty, cases)], [plan.seed], {}, parameter=parameter
    )
    runs = {("labels", row.name, plan.seed): one for row, (one,) in cases}
    return results, runs


def _recorded(store: Store, room: str, theirs: Run) -> tuple[Label, ...]:
    """The labels of a room's recordings; refuses what nobody in the federation knows."""
    of_activity = theirs.plan.data.tasks == "activity"
    named = [
        (one.name, one.activity if of_activity else one.label) for one in store.recordings(room)
    ]
    known = list(theirs.data["classes"])
    told = ", ".join(map(str, known))
    labels = sorted_labels(label for _, label in named)
    counts = all(isinstance(label, int) for label in known)
    if labels and counts != all(isinstance(label, int) for label in labels):
        kinds = ("counts", "categories") if counts else ("categories", "counts")
        raise RosterError(
            f"{store.path}: room '{room}' has {kinds[1]} ({', '.join(map(str, labels)):.80}), the "
            f"federation tells {kinds[0]} ({told:.80}); join one that learned the same kind of "
            "label"
        )
    for label in labels:
        if label not in known:
            names = [name for name, own in named if own == label]
            people = f"{label} people" if counts else repr(label)
            raise RosterError(
                f"{store.path}: room '{room}' has {len(names)} recordings of {people} (e.g. "
                f"'{names[0]}'), and nobody in the federation knows that, so its net has no answer "
                f"for it; it knows {told:.80}: take their label away ('fedapa label --none'), or "
                "run the federation again with room for it (--set 'classes=[…]')"
            )
    return labels


def _possible(theirs: Run, counts: Sequence[Label]) -> tuple[Label, ...]:
    """Those of the counts that the federation knows; refuses more people than it ever saw."""
    known = list(theirs.data["classes"])
    told = ", ".join(map(str, known))
    if not all(isinstance(label, int) for label in known):
        raise PlanError(f"--counts: the federation tells {told:.80}, no counts; leave it out")
    if max(counts) > max(known):
        raise PlanError(
            f"--counts: nobody in the federation knows {max(counts)} people; it knows {told:.80}"
        )
    if not (chosen := tuple(count for count in counts if count in known)):
        raise PlanError(
            f"--counts: nobody in the federation knows any of them; it knows {told:.80}"
        )
    return chosen


def _remember(out: Path, federation: Path) -> None:
    """Refuse a folder of something else, or of a room that joined another federation.

    The same federation before it changed is another one. A page of somebody else would be lost.
    """
    state = federation / "checkpoint"
    if not state.is_file():
        raise PlanError(
            f"{federation}: its checkpoint is missing, so nobody can join; run it again"
        )
    joined = hashlib.blake2b(state.read_bytes(), digest_size=8).hexdigest()
    file = out / "joined.txt"
    if out.exists() and not out.is_dir():
        raise RunError(f"{out}: is a file; choose another --out")
    there = [one.name for one in out.iterdir()] if out.is_dir() else []
    foreign = sorted(name for name in there if not name.endswith(".partial"))
    if foreign and not file.is_file():
        raise RunError(
            f"{out}: is not empty and holds no room that joined ({foreign[0]} …); choose another "
            "--out"
        )
    if file.is_file() and file.read_bytes().strip() != joined.encode():
        raise RunError(
            f"{out}: holds a room that joined another federation, or this one before it changed; "
            "choose another --out, or remove it"
        )
    write_text(file, f"{joined}\n")


def _recipe_of(theirs: Run) -> Recipe:
    """How the federation's windows are made."""
    model = next(iter(sorted((theirs.folder / "models").glob("*.safetensors"))), None)
    if model is None:
        raise PlanError(
            f"{theirs.folder}: has no model file, which says how windows are made; run it again"
        )
    return read_recipe(model)


def _shorter(theirs: Run, joined: Run) -> list[str]:
    """Rooms whose windows are shorter than those that the federation learned from, a sentence."""
    wanted, told = _recipe_of(theirs).window_seconds, []
    for room in joined.data["rooms"]:
        own = read_recipe(joined.folder / "models" / f"{room}.safetensors").window_seconds
        if own is not None and wanted is not None and own < _AS_LONG * wanted:
            told.append(
                f"Room '{room}' counts in windows of {own:.3g} s, and the federation learned from "
                f"windows of {wanted:.3g} s: record at least so long, its net knows no shorter ones"
            )
    return told


def _plan(theirs: Run, data: Path, rooms: Sequence[str], split: str, rounds: int | None) -> Plan:
    """The federation's plan for other rooms: the same classes, windows, view and nets."""
    document = theirs.plan.document()
    nets = {about["architecture"] for about in theirs.data["rooms"].values()}
    if len(nets) > 1:
        raise PlanError(
            f"{theirs.folder}: its rooms have different nets ({', '.join(sorted(nets))}), and a "
            "new room takes over one; join a federation with one net for all"
        )
    recipe = _recipe_of(theirs)
    own = {name: document["data"][name] for name in _OF_WINDOWS if name in document["data"]}
    own |= {"file": str(data), "only": list(rooms), "split": split}
    if recipe.source == "packets":
        own["view"] = recipe.view
        if recipe.window_seconds is not None:
            own["seconds"] = recipe.window_seconds
    document["model"]["architecture"] = nets.pop()
    return Plan.of(
        {
            **{name: value for name, value in document.items() if name not in _OF_FEDERATION},
            "data": own,
            "classes": list(theirs.data["classes"]),
            "rounds": rounds or theirs.plan.rounds,
        }
    )
