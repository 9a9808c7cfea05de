"""``fedapa join``: a counter for a new room, from a finished federation and a few labels.

The room gets what that server has for it, trains alone on its own windows and is scored on windows
that it did not train on; beside it stands the same room without any federation. Expected: with a
recording or two of every count it does better joined, with many of them as well as alone.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedapa.algorithms import find
from fedapa.algorithms.fedjoin import FedJoin
from fedapa.algorithms.local import Local
from fedapa.errors import PlanError, RosterError, RunError
from fedapa.evaluation.results import Results
from fedapa.experiments.joining import at_home
from fedapa.federation.joining import can_be_joined
from fedapa.federation.plan import Plan
from fedapa.federation.run import Run, run
from fedapa.files import write_text
from fedapa.processes import Show, unseen
from fedapa.report.page import write_run_page
from fedapa.rooms.model_file import read_recipe
from fedapa.stores.store import Store
from fedapa.windows.labels import Label, choose_rooms

__all__ = ["Joined", "join"]


_OF_WINDOWS = (
    *("seconds", "overlap", "decimate", "subcarrier_step", "links", "view", "bad_windows", "tasks"),
    *("test", "validation", "validation_of"),
)
"""What of a federation's data settings a new room takes over: how windows are made and held out,
not which rooms there were and what was taken away from them."""


_OF_FEDERATION = ("data", "participation", "selection", "network")
"""What a room that trains alone does not take over: who takes part, and how long one waits."""


@dataclass(frozen=True, eq=False)
class Joined:
    """What came of it."""

    joined: Run
    alone: Run
    """The same room, the same windows, without a federation."""
    results: Results
    page: Path

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
    joined = run(
        Plan.of(plan.document(), change),
        out=out / kind.name,
        resume=True,
        workers=workers,
        show=show,
    )
    alone = run(
        Plan.of(plan.document(), {"algorithm": Local.name}),
        out=out / Local.name,
        resume=True,
        workers=workers,
        show=show,
    )
    page = out / "index.html"
    title = f"{', '.join(rooms)}: joined to {federation.name}"
    return Joined(joined, alone, write_run_page(page, [joined, alone], title=title), page)


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
    """Refuse to go on with a room that joined another federation, or the same before it changed."""
    state = federation / "checkpoint"
    if not state.is_file():
        raise PlanError(
            f"{federation}: its checkpoint is missing, so nobody can join; run it again"
        )
    joined = hashlib.blake2b(state.read_bytes(), digest_size=8).hexdigest()
    file = out / "joined.txt"
    if file.is_file() and file.read_text("utf-8").strip() != joined:
        raise RunError(
            f"{out}: holds a room that joined another federation, or this one before it changed; "
            "choose another --out, or remove it"
        )
    write_text(file, f"{joined}\n")


def _plan(theirs: Run, data: Path, rooms: Sequence[str], split: str, rounds: int | None) -> Plan:
    """The federation's plan for other rooms: the same classes, windows, view and nets."""
    document = theirs.plan.document()
    nets = {about["architecture"] for about in theirs.data["rooms"].values()}
    if len(nets) > 1:
        raise PlanError(
            f"{theirs.folder}: its rooms have different nets ({', '.join(sorted(nets))}), and a "
            "new room takes over one; join a federation with one net for all"
        )
    model = next(iter(sorted((theirs.folder / "models").glob("*.safetensors"))), None)
    if model is None:
        raise PlanError(
            f"{theirs.folder}: has no model file, which says how windows are made; run it again"
        )
    recipe = read_recipe(model)
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
