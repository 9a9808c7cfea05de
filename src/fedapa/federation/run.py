"""One run, from a plan to a directory that tells all about it and survives being killed.

::

    plan.toml          the resolved plan: every value, also those left to default
    environment.json   versions, machine, commit
    data.json          rooms, classes, windows a part, and whether they are simulated
    rounds.jsonl       one line a round; the same bytes for the same plan on the same machine
    seconds.jsonl      how long each exchange took
    summary.json       the mean of the last five rounds, and blind predictors beside it
    models/            each room's net as safetensors, with its normaliser and classes
    checkpoint         the server's state after the last exchange
    rooms/             each room's state after the last two exchanges
"""

import contextlib
import hashlib
import json
import os
import re
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import filelock

from fedapa import processes
from fedapa.errors import PlanError, RunError
from fedapa.evaluation.metrics import blind_scores
from fedapa.evaluation.record import JsonLines, dump, summarise
from fedapa.federation import rounds
from fedapa.federation.checkpoint import Checkpoint
from fedapa.federation.engines.in_process import InProcess
from fedapa.federation.environment import environment
from fedapa.federation.plan import Plan, differences
from fedapa.federation.prepare import (
    GIVEN_ROOMS,
    check_batches,
    describe,
    prepare_rooms,
)
from fedapa.files import write_text
from fedapa.payload import Tree
from fedapa.processes import Progress, Show, unseen
from fedapa.rooms.room import Room
from fedapa.toml import read_toml

__all__ = ["Run", "run"]


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run."""

    folder: Path
    plan: Plan
    data: Mapping[str, Any]
    records: Sequence[Mapping[str, Any]]
    summary: Mapping[str, Any]
    environment: Mapping[str, Any]

    @classmethod
    def load(cls, folder: str | Path) -> "Run":
        """A finished run from its directory."""
        folder = Path(folder)
        if not (folder / "summary.json").is_file():
            raise RunError(f"{folder}: holds no finished run; finish it with 'fedapa run --resume'")
        with _explaining(folder):
            return cls(
                folder=folder,
                plan=Plan(**tomllib.loads((folder / "plan.toml").read_text())),
                data=json.loads((folder / "data.json").read_text()),
                records=JsonLines(folder / "rounds.jsonl").read(),
                summary=json.loads((folder / "summary.json").read_text()),
                environment=json.loads((folder / "environment.json").read_text()),
            )

    @staticmethod
    def can_go_on(folder: Path) -> bool:
        """Whether the run there can be made longer, as far as its checkpoint tells."""
        state = Checkpoint(folder / "checkpoint").load()
        if state is None:
            return False
        # Killed just after its summary was written, it has not been closed yet.
        last = read_toml(folder / "plan.toml")["rounds"]
        return bool(state.get("closed")) or cast(int, state["round"]) <= last

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
    tensorboard: bool = False,
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
        tensorboard: also write TensorBoard scalars to ``out/tensorboard``.
        show: called as work goes on.
    """
    _check_device(plan)
    if workers is not None and workers < 0:
        raise PlanError(f"workers {workers}: must be 0 or more")
    folder = Path(out) if out is not None else Path(tempfile.mkdtemp(prefix="fedapa-"))
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder}: is a file; choose another --out")
    if rooms is not None:
        # Nobody can repeat this run from its plan file alone; trying to names the reason.
        plan = Plan.of(plan.document(), {"data": {"file": GIVEN_ROOMS}})
    _check_output(folder, plan, resume)
    if workers != 0:
        processes.get_ready()  # it imports while rooms are prepared
    prepared = list(rooms) if rooms is not None else prepare_rooms(plan, show, workers=workers)
    check_batches(prepared, plan.training.batch_size)
    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder / ".lock", timeout=0)
    try:
        with lock:
            # Preparing takes time: somebody else may have run here meanwhile.
            _check_output(folder, plan, resume)
            for left_over in folder.rglob(".*.partial"):
                left_over.unlink()
            return _run(plan, folder, prepared, workers, tensorboard, show)
    except filelock.Timeout as error:
        raise RunError(
            f"{folder}: another run is writing here; wait or choose another --out"
        ) from error


def _run(
    plan: Plan,
    folder: Path,
    prepared: list[Room],
    workers: int | None,
    tensorboard: bool,
    show: Show,
) -> Run:
    algorithm = plan.build()
    data = describe(prepared, plan)
    kind = "SIMULATED" if data["synthetic"] else "real"  # stands in every file of the run
    checkpoint = Checkpoint(folder / "checkpoint")
    state = checkpoint.load()
    first_rounds = _first_rounds(folder, plan, state)
    name = _name_of(folder, plan, data, state, first_rounds)
    lines, times = JsonLines(folder / "rounds.jsonl"), JsonLines(folder / "seconds.jsonl")
    with InProcess(algorithm, prepared, run=name, folder=folder, workers=workers) as engine:
        if state is None:
            state = dict(rounds.begin(algorithm, engine, plan))
            write_text(folder / "plan.toml", plan.toml())
            write_text(folder / "data.json", dump(data))
        elif data != (old := _read_json(folder / "data.json")):
            raise RunError(
                f"{folder}: the data changed since this run was started "
                f"({'; '.join(differences(old, data)[:3])}); start a new run with another --out"
            )
        elif state.get("run") != name:
            raise RunError(f"{folder}: its checkpoint is of another run; choose another --out")
        elif state.get("closed") and (
            cast(int, state["round"]) <= plan.rounds or not (folder / "summary.json").is_file()
        ):
            state = dict(rounds.reopened(state))
        done = cast(int, state["round"])
        if done <= plan.rounds:
            # No summary first, then the longer plan: killed in between, it closes once more.
            (folder / "summary.json").unlink(missing_ok=True)
        if read_toml(folder / "plan.toml")["rounds"] != plan.rounds:
            written = (folder / "plan.toml").read_text()
            write_text(folder / "plan.toml", _with_rounds(written, plan.rounds))
        if done <= plan.rounds:
            _note_environment(folder / "environment.json", workers, kind, begun=done > 0)
        lines.keep(max(0, done - 1))
        times.keep(done)
        with _Scalars(folder, lines.read(), wanted=tensorboard) as scalars:
            stage = f"training {plan.algorithm['name']}"
            show(Progress(stage, max(0, done - 1), plan.rounds, "rounds"))
            began = time.perf_counter()
            for step in rounds.run(algorithm, engine, plan, state):
                if step.record is not None:
                    lines.append({"data": kind, **step.record})
                    scalars.add(step.record)
                seconds = time.perf_counter() - began
                times.append(
                    {
                        "data": kind,
                        "exchange": step.exchange,
                        "seconds": seconds,
                        "rooms": {room: dict(each) for room, each in step.seconds.items()},
                    }
                )
                if step.exchange > plan.rounds:
                    _finish(folder, prepared, lines.read(), step.confusion)
                checkpoint.save({**step.state, "run": name, "first_rounds": first_rounds})
                began = time.perf_counter()
                accuracy = step.record["mean"].get("accuracy") if step.record else None
                note = "" if accuracy is None else f"accuracy {100 * accuracy:.1f} %"
                show(Progress(stage, step.exchange - 1, plan.rounds, "rounds", note))
    return Run.load(folder)


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
    with _explaining(folder):
        before = tomllib.loads(saved.read_text())
    with contextlib.suppress(PlanError):
        before = Plan(**before).document()  # settings that came later had their defaults
    changed = differences(before, plan.document())
    longer = [each for each in changed if each.startswith("rounds:")] == changed
    if changed and not (longer and _may_be_longer(folder, plan, before["rounds"])):
        raise RunError(
            f"{folder}: --resume with a changed plan ({'; '.join(changed)}); "
            "restore it, or choose another --out"
        )


def _may_be_longer(folder: Path, plan: Plan, before: int) -> bool:
    """Whether a run of ``before`` rounds can become this one; says so if its algorithm cannot."""
    if plan.rounds < before:
        return False
    kind = type(plan.build())
    if kind.plans_ahead:
        raise RunError(
            f"{folder}: {kind.title} depends on the number of rounds ({before}), so {plan.rounds} "
            "rounds are another run from its start; choose another --out"
        )
    if (folder / "summary.json").is_file() and not Run.can_go_on(folder):
        raise RunError(
            f"{folder}: was finished by an earlier version, which kept too little to go on from; "
            "choose another --out"
        )
    return True


def _name_of(
    folder: Path, plan: Plan, data: Mapping[str, Any], state: Tree | None, first_rounds: int
) -> str:
    """What the rooms of a run know it by: it was made of the plan that the run was begun with.

    A run that was made longer keeps its name, and so does one of an earlier version, whose plan
    file lacks the settings that came later.
    """
    begun = [Plan.of(plan.document(), {"rounds": first_rounds}).toml()]
    if state is not None:
        begun.append(_with_rounds((folder / "plan.toml").read_text(), first_rounds))
    names = [
        hashlib.blake2b((text + dump(data)).encode(), digest_size=12).hexdigest() for text in begun
    ]
    return names[-1] if state is not None and state.get("run") == names[-1] else names[0]


def _with_rounds(text: str, number: int) -> str:
    """A plan file with other rounds and otherwise the same bytes."""
    return re.sub(r"(?m)^rounds = \d+$", f"rounds = {number}", text, count=1)


def _first_rounds(folder: Path, plan: Plan, state: Tree | None) -> int:
    """The rounds that a run was begun with."""
    if state is None:
        return plan.rounds
    before = read_toml(folder / "plan.toml")["rounds"]
    return cast(int, state.get("first_rounds", before))


@contextlib.contextmanager
def _explaining(folder: Path) -> Iterator[None]:
    """A run's own files, damaged by somebody else, are one sentence and not a traceback."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{folder}: its files are damaged or incomplete ({error}); run again with another --out"
        ) from error


def _read_json(path: Path) -> Any:
    with _explaining(path):
        return json.loads(path.read_text())


def _check_device(plan: Plan) -> None:
    import torch

    if plan.device == "cuda" and not torch.cuda.is_available():
        raise PlanError("device 'cuda': this machine or this build of torch has none; use cpu")


# ---- what a run leaves behind -------------------------------------------------------------------


def _finish(
    folder: Path,
    prepared: Sequence[Room],
    records: Sequence[Mapping[str, Any]],
    confusion: Mapping[str, Any],
) -> None:
    windows = {
        room.name: {
            part: len(getattr(room.split, part)) for part in ("train", "validation", "test")
        }
        for room in prepared
    }
    blind = {
        room.name: blind_scores(
            room.labels[room.split.train], room.labels[room.split.test], room.classes
        )
        for room in prepared
    }
    summary = summarise(records, blind=blind, windows=windows)
    summary["confusion"] = {room: matrix.tolist() for room, matrix in sorted(confusion.items())}
    summary["synthetic"] = any(room.synthetic for room in prepared)
    summary["data"] = "SIMULATED" if summary["synthetic"] else "real"
    write_text(folder / "summary.json", dump(summary))


def _note_environment(path: Path, workers: int | None, kind: str, *, begun: bool) -> None:
    """What the run is made with; a resumed run adds to what it was begun with."""
    now = {"data": kind, **environment(workers)}
    if begun and path.is_file():
        first = _read_json(path)
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
        for room, entry in record["rooms"].items():
            for name, value in entry.items():
                self._writer.add_scalar(f"{room}/{name}", float(value), record["round"])
