"""One run, from a plan to a directory that tells all about it and survives being killed.

::

    plan.toml          the resolved plan: every value, also those left to default
    environment.json   versions, machine, commit
    name               what rooms know the run by: no two runs have one
    data.json          rooms, classes, windows a part, and whether they are simulated
    before.json        how good each room was before its first step, with what it had received
    rounds.jsonl       one line a round; the same bytes for the same plan on the same machine
    seconds.jsonl      how long each exchange took
    summary.json       the mean of the last five rounds, blind predictors beside it, and notes: what
                       people should know, e.g. a room that missed the end
    models/            each room's net as safetensors, with its normaliser and classes
    checkpoint         the server's state after the last exchange
    rooms/             each room's state after the last two exchanges
"""

import contextlib
import hashlib
import json
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import filelock

from fedapa import processes
from fedapa.algorithms.algorithm import Algorithm
from fedapa.csi.capture import data_kind
from fedapa.errors import FedapaError, PlanError, RunError
from fedapa.evaluation.record import JsonLines, dump, privacy_spent, scored_rounds, summarise
from fedapa.federation import rounds, run_files
from fedapa.federation.checkpoint import Checkpoint
from fedapa.federation.engines.in_process import InProcess
from fedapa.federation.environment import environment
from fedapa.federation.joining import joining
from fedapa.federation.plan import Plan, differences
from fedapa.federation.prepare import GIVEN_ROOMS, describe, in_process
from fedapa.files import write_text
from fedapa.payload import Tree
from fedapa.processes import Progress, Show, unseen
from fedapa.rooms.room import Room

__all__ = ["OPEN_ALONE", "Run", "run"]

OPEN_ALONE = (
    'rounds = "open": is for a server whose rooms come and go (fedapa server run), where somebody '
    "sets a last round later; in one command nobody could; set rounds"
)
"""Why a command that carries out a whole run wants a last round."""


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run."""

    folder: Path
    plan: Plan
    data: Mapping[str, Any]
    records: Sequence[Mapping[str, Any]]
    summary: Mapping[str, Any]
    environment: Mapping[str, Any]
    before: Mapping[str, Any] = field(default_factory=dict)
    """The scores before any room trained: by room, and their mean; none in runs of earlier code."""

    @classmethod
    def load(cls, folder: str | Path) -> "Run":
        """A finished run from its directory."""
        folder = Path(folder)
        if not (folder / "summary.json").is_file():
            raise RunError(f"{folder}: holds no finished run; finish it with 'fedapa run --resume'")
        plan, records = run_files.read_plan(folder), run_files.read_records(folder)
        run_files.check_records(folder, records, plan.rounds)
        data, summary = run_files.read_data(folder), run_files.read_summary(folder)
        run_files.check_together(folder, data, records, summary)
        return cls(
            folder=folder,
            plan=plan,
            data=data,
            records=records,
            summary=summary,
            environment=run_files.read_environment(folder),
            before=run_files.read_before(folder),
        )

    @staticmethod
    def can_go_on(folder: Path) -> bool:
        """Whether the run there can be made longer: that needs its checkpoint."""
        return Checkpoint(folder / "checkpoint").load() is not None

    @property
    def synthetic(self) -> bool:
        """Whether any of its rooms was simulated."""
        return bool(self.data["synthetic"])


def run(
    plan: Plan,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    workers: int | None = None,
    rooms: Sequence[Room] | None = None,
    engine: rounds.Engine | None = None,
    tensorboard: bool = False,
    diagnose: int | None = None,
    show: Show = unseen,
) -> Run:
    """Carry out a plan.

    Args:
        plan: what to do.
        out: the directory to write; by default a temporary one.
        resume: go on with the run in ``out`` if there is one, else start afresh. A plan with more
            rounds makes it longer, finished or not.
        workers: processes to train rooms in; by default one a core, 0 is this process.
        rooms: rooms of your own instead of the plan's data.
        engine: another way to reach the rooms than this machine's processes; who gives it ends it.
        tensorboard: also write TensorBoard scalars to ``out/tensorboard``.
        diagnose: record what the theory speaks of (docs/theory.md); k also measures gradients over
            an epoch every k-th round, 0 does not. It changes no other number.
        show: called as work goes on.
    """
    _check_device(plan)
    if diagnose is not None:
        _check_diagnosis(plan, diagnose)
    if workers is not None and workers < 0:
        raise PlanError(f"workers {workers}: must be 0 or more")
    if rooms is not None and engine is not None:
        raise PlanError("rooms and engine: an engine knows its rooms; give one of the two")
    if plan.total is None and engine is None:
        raise PlanError(OPEN_ALONE)
    if plan.attack is not None and engine is not None:
        raise PlanError("attack: is for experiments in process; leave it out, or give no engine")
    folder = Path(out) if out is not None else Path(tempfile.mkdtemp(prefix="fedapa-"))
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder}: is a file; choose another --out")
    if rooms is not None or engine is not None:
        # Nobody can repeat this run from its plan file alone; trying to names the reason.
        plan = Plan.of(plan.document(), {"data": {"file": GIVEN_ROOMS}})
    _check_output(folder, plan, resume)
    own: InProcess | None = None
    if engine is None:
        if workers != 0:
            processes.get_ready()  # it imports while rooms are prepared
        own = in_process(plan, folder, rooms=rooms, workers=workers, show=show)
    folder.mkdir(parents=True, exist_ok=True)
    # Who follows a run and asks whether it goes on holds the lock for a moment.
    lock = filelock.FileLock(folder / ".lock", timeout=1)
    try:
        with lock:
            # Preparing takes time: somebody else may have run here meanwhile.
            _check_output(folder, plan, resume)
            for left_over in folder.rglob(".*.partial"):
                if left_over.is_file():
                    left_over.unlink()
            with own or contextlib.nullcontext(cast(rounds.Engine, engine)) as reached:
                return _run(
                    plan,
                    folder,
                    reached,
                    fixed=own is not None,
                    workers=workers,
                    tensorboard=tensorboard,
                    diagnose=diagnose,
                    show=show,
                )
    except filelock.Timeout as error:
        raise RunError(
            f"{folder}: another run is writing here; wait or choose another --out"
        ) from error


def _run(
    plan: Plan,
    folder: Path,
    engine: rounds.Engine,
    *,
    fixed: bool,
    workers: int | None,
    tensorboard: bool,
    diagnose: int | None,
    show: Show,
) -> Run:
    """All exchanges that are left; ``fixed`` says that the rooms are those of the plan's data."""
    algorithm = joining(plan)
    checkpoint = Checkpoint(folder / "checkpoint")
    saved = checkpoint.load()
    with _going_on(folder, saved):
        state = _begun(plan, folder, algorithm, engine, saved, fixed=fixed)
        name = _name(folder, state)
        cards = rounds.cards_of(state)
        done = cast(int, state["round"])
        if fixed and done > 0:
            _check_states(folder, name, cards)
        data = describe(list(cards.values()), plan)
    lines, times = JsonLines(folder / "rounds.jsonl"), JsonLines(folder / "seconds.jsonl")
    run_files.check_records(folder, run_files.read_records(folder), max(0, done - 1))
    if done <= plan.rounds:
        # No summary first, then the longer plan: killed in between, it closes once more.
        (folder / "summary.json").unlink(missing_ok=True)
        if run_files.read_plan(folder) != plan:
            write_text(folder / "plan.toml", plan.toml())
        _note_environment(folder, workers, data_kind(data["synthetic"]), begun=done > 0)
    lines.keep(max(0, done - 1))
    times.keep(done)
    with _Scalars(folder, lines.read(), wanted=tensorboard) as scalars:
        stage = f"training {plan.algorithm['name']}"
        show(Progress(stage, max(0, done - 1), plan.total, "rounds"))
        began = time.perf_counter()
        steps = rounds.run(
            algorithm, engine, plan, state, name=name, diagnose=diagnose, travels=not fixed
        )
        for step in _first_in_words(steps, folder, saved):
            if step.cards != cards:  # rooms have joined
                cards = dict(step.cards)
                data = describe(list(cards.values()), plan)
                write_text(folder / "data.json", dump(data))
            if step.before is not None:
                told = {"data": data_kind(data["synthetic"]), **step.before}
                write_text(folder / "before.json", dump(told))
            if step.record is not None:
                lines.append({"data": data_kind(data["synthetic"]), **step.record})
                scalars.add(step.record)
            seconds = time.perf_counter() - began
            times.append(
                {
                    "data": data_kind(data["synthetic"]),
                    "exchange": step.exchange,
                    "seconds": seconds,
                    "rooms": {room: dict(spent) for room, spent in step.seconds.items()},
                }
            )
            if step.exchange > plan.rounds:
                _finish(folder, plan, step, lines.read())
            checkpoint.save(step.state)
            began = time.perf_counter()
            accuracy = step.record["mean"].get("accuracy") if step.record else None
            note = "" if accuracy is None else f"accuracy {100 * accuracy:.1f} %"
            show(Progress(stage, step.exchange - 1, plan.total, "rounds", note))
    return Run.load(folder)


@contextlib.contextmanager
def _going_on(folder: Path, saved: Tree | None) -> Iterator[None]:
    """A refusal in words where a saved state is whole by its checksum and no state of ours."""
    try:
        yield
    except FedapaError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if saved is None:
            raise
        raise RunError(
            f"{folder}: its checkpoint or a room's state there is none that this fedapa wrote "
            f"({type(error).__name__}: {error!s:.200}), or fedapa has a fault; put back what was "
            "there, or choose another --out"
        ) from error


def _first_in_words(
    steps: Iterator[rounds.Step], folder: Path, saved: Tree | None
) -> Iterator[rounds.Step]:
    """The steps; the first one is made of what was saved."""
    with _going_on(folder, saved):
        first = next(steps, None)
    if first is not None:
        yield first
        yield from steps


def _begun(
    plan: Plan,
    folder: Path,
    algorithm: Algorithm,
    engine: rounds.Engine,
    state: Tree | None,
    *,
    fixed: bool,
) -> Tree:
    """The state to go on from; refuses a directory whose data or checkpoint is of another run."""
    if state is None:
        if (folder / "summary.json").is_file() or run_files.read_records(folder):
            raise RunError(
                f"{folder}: its checkpoint is missing, so nothing can go on from its records; put "
                "it back, or choose another --out"
            )
        state = rounds.begin(algorithm, engine, plan)
        data = describe(list(rounds.cards_of(state).values()), plan)
        write_text(folder / "plan.toml", plan.toml())
        write_text(folder / "data.json", dump(data))
        return {**state, "run": _identity(plan, data)}
    if not rounds.is_state(state):
        raise RunError(f"{folder}: its checkpoint is of another version; choose another --out")
    if fixed:
        data = describe(sorted(engine.roster(), key=lambda card: card.name), plan)
        if data != (old := run_files.read_data(folder)):
            raise RunError(
                f"{folder}: the data changed since this run was started "
                f"({'; '.join(differences(old, data)[:3])}); start a new run with another --out"
            )
        if state["run"] != _identity(plan, data):
            raise RunError(f"{folder}: its checkpoint is of another run; choose another --out")
    unfinished = not (folder / "summary.json").is_file()
    if fixed:  # else finished nets are where the rooms are
        unfinished = unfinished or not (folder / "models").is_dir()
    if state["closed"] and (cast(int, state["round"]) <= plan.rounds or unfinished):
        return rounds.reopened(state)
    return state


def _identity(plan: Plan, data: Mapping[str, Any]) -> str:
    """A digest of the plan and the data; it stays when the run is made longer."""
    return hashlib.blake2b((plan.identity() + dump(data)).encode(), digest_size=12).hexdigest()


def _name(folder: Path, state: Tree) -> str:
    """What the rooms of a run know it by, for as long as it goes on.

    Rooms keep their states: the same plan run again must not be answered from those of the first
    time. Nothing but this name hangs on the randomness in it, so it has a file of its own, beside
    those that are the same bytes for the same plan.
    """
    path, identity = folder / "name", str(state["run"])
    if path.is_file():
        with run_files.explaining(path):
            name = path.read_text().strip()
            if not re.fullmatch(rf"{identity}-[0-9a-f]{{16}}", name):
                raise ValueError(f"'{name[:60]}' is not the name of this run")
        return name
    if state["round"] != 0:
        raise RunError(
            f"{path}: is missing, so the rooms would not know this run again; put it back, or "
            "choose another --out"
        )
    name = f"{identity}-{secrets.token_hex(8)}"
    write_text(path, name + "\n")
    return name


def _check_states(folder: Path, name: str, rooms: Iterable[str]) -> None:
    """Refuse to go on where a room's states were lost: it would begin anew, and nobody knew."""
    for room in rooms:
        states = folder / "rooms" / room / name
        if not any(states.glob("round-*.state")):
            raise RunError(
                f"{states}: the state of room '{room}' is missing, so its net would begin anew; "
                "put it back, or choose another --out"
            )


def _check_output(folder: Path, plan: Plan, resume: bool) -> None:
    """Refuse a directory that holds another run, before any work is done."""
    if not folder.is_dir():
        return
    saved = folder / "plan.toml"
    if not saved.is_file():
        foreign = [
            path.name
            for path in folder.iterdir()
            if path.name != ".lock" and not path.name.endswith(".partial")
        ]
        started = {"rooms", "models"}  # a run killed before it wrote its plan leaves no more
        if foreign and not set(foreign) <= started:
            raise RunError(
                f"{folder}: is not empty and holds no run ({sorted(foreign)[0]} …); "
                "choose another --out"
            )
        return
    if not resume:
        raise RunError(
            f"{folder}: already holds a run; go on with --resume or choose another --out"
        )
    before = run_files.read_plan(folder).document()
    waits = {"network": plan.document()["network"]}  # may be other ones
    changed = differences({**before, **waits}, plan.document())
    longer = changed == [f"rounds: {before['rounds']} → {plan.document()['rounds']}"]
    if changed and not (longer and _may_be_longer(folder, plan, before["rounds"])):
        raise RunError(
            f"{folder}: --resume with a changed plan ({'; '.join(changed)}); restore it, or "
            "choose another --out (over a network: give the plan's file another name)"
        )


def _may_be_longer(folder: Path, plan: Plan, before: int | str) -> bool:
    """Whether a run of ``before`` rounds can become this one; says so if its algorithm cannot.

    One without a last round ends after any that has not yet begun.
    """
    if before == "open":
        state = Checkpoint(folder / "checkpoint").load()
        return state is None or cast(int, state["round"]) <= plan.rounds
    if plan.rounds < cast(int, before):
        return False
    kind = type(plan.build())
    if kind.plans_ahead:
        raise RunError(
            f"{folder}: {kind.title} depends on the number of rounds ({before}), so {plan.rounds} "
            "rounds are another run from its start; choose another --out"
        )
    return True


def _check_diagnosis(plan: Plan, every: int) -> None:
    """Refuse to diagnose what the theory does not speak of."""
    algorithm = plan.build()
    if every < 0:
        raise PlanError(f"gradients every {every} rounds: must be 0 or more; 0 is never")
    if not algorithm.can_be_diagnosed:
        raise PlanError(
            f"--diagnose: the theory is about rooms that keep their net and learn from prototypes "
            f"beside their labels; {algorithm.title} is none; use fedapa or fedproto, or leave it "
            "out"
        )
    if plan.privacy.is_on:
        raise PlanError(
            "--diagnose: its numbers are of the train windows and would leave a room without "
            "noise; leave it out, or privacy"
        )
    if plan.joins or plan.data.tasks == "both":
        why = "rooms that join train alone" if plan.joins else "it has one task, this plan has two"
        raise PlanError(f"--diagnose: {why}, so the theory says nothing of it; leave it out")


def _check_device(plan: Plan) -> None:
    import torch

    if plan.device == "cuda" and not torch.cuda.is_available():
        raise PlanError("device 'cuda': this machine or this build of torch has none; use cpu")


# ---- what a run leaves behind -------------------------------------------------------------------


def _finish(
    folder: Path, plan: Plan, step: rounds.Step, records: Sequence[Mapping[str, Any]]
) -> None:
    cards, notes = step.cards, step.notes
    if not scored_rounds(records):
        raise RunError(
            f"{folder}: no room told a score in {len(records)} rounds, so there is nothing to "
            "report; see that rooms can be reached and have test windows, then go on with --resume"
        )
    summary = summarise(
        records,
        blind={room: card.blind for room, card in cards.items()},
        windows={room: card.parts for room, card in cards.items()},
    )
    if not summary["rooms"]:
        notes.append(f"no room told a score in the last {len(summary['averaged_rounds'])} rounds")
    if notes:
        summary["notes"] = notes
    # A room may report any number, also an ε that nobody has asked for.
    if plan.privacy.is_on and (spent := privacy_spent(records)):
        summary["privacy"] = spent
    if without := sorted(set(cards) - set(step.confusion)):
        summary["without_model"] = without
    summary["confusion"] = {
        room: matrix.tolist() for room, matrix in sorted(step.confusion.items())
    }
    summary["reliability"] = {
        room: table.tolist() for room, table in sorted(step.reliability.items())
    }
    if points := {room: table.tolist() for room, table in sorted(step.roc.items()) if len(table)}:
        summary["roc"] = points
    summary["synthetic"] = any(card.synthetic for card in cards.values())
    summary["data"] = data_kind(summary["synthetic"])
    write_text(folder / "summary.json", dump(summary))


def _note_environment(folder: Path, workers: int | None, kind: str, *, begun: bool) -> None:
    """What the run is made with; a resumed run adds to what it was begun with."""
    now, path = {"data": kind, **environment(workers)}, folder / "environment.json"
    if begun and path.is_file():
        first = run_files.read_environment(folder)
        now = {**first, "resumed": [*first.get("resumed", []), now]}
    write_text(path, json.dumps(now, indent=1))


class _Scalars:
    """TensorBoard scalars, on request; rewritten from the records when a run is resumed."""

    def __init__(self, folder: Path, records: Iterable[Mapping[str, Any]], *, wanted: bool) -> None:
        self._writer: Any = None
        if wanted:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise PlanError("--tensorboard needs the tensorboard package") from error
            target = folder / "tensorboard"
            for old in target.glob("events.*"):
                old.unlink()
            self._writer = SummaryWriter(os.fspath(target))
            for record in records:
                self.add(record)

    def __enter__(self) -> "_Scalars":
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def add(self, record: Mapping[str, Any]) -> None:
        if self._writer is None:
            return
        for metric, value in record["mean"].items():
            self._writer.add_scalar(f"mean/{metric}", value, record["round"])
        for metric, number in record.get("fewer_rooms", {}).items():
            self._writer.add_scalar(f"fewer_rooms/{metric}", number, record["round"])
        for room, entry in record["rooms"].items():
            for name, value in entry.items():
                self._writer.add_scalar(f"{room}/{name}", float(value), record["round"])
