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
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import filelock
import numpy as np

import fedapa
from fedapa.errors import DataError, PlanError, RunError
from fedapa.evaluation.metrics import blind_scores
from fedapa.evaluation.record import JsonLines, dump, summarise
from fedapa.federation import rounds
from fedapa.federation.checkpoint import Checkpoint
from fedapa.federation.engines.in_process import InProcess, available_cores
from fedapa.federation.plan import Plan, differences
from fedapa.files import write_text
from fedapa.models.build import assign_by_size
from fedapa.models.cost import layers
from fedapa.randomness import Key
from fedapa.rooms.room import Normaliser, Room, class_indices, sorted_labels
from fedapa.rooms.simulated import simulated_store
from fedapa.rooms.skew import deal
from fedapa.windows.slide import RoomWindows, materialise
from fedapa.windows.split import Split, split_windows
from fedapa.windows.store import Label, Store

__all__ = ["Progress", "Run", "prepare_rooms", "run"]


GIVEN_ROOMS = "rooms given in Python"
"""What stands for a file where there is none."""


@dataclass(frozen=True)
class Progress:
    """What a display may show while a run goes on."""

    stage: str
    """What is being done now, e.g. "simulating rooms", "round"."""
    done: int
    total: int
    accuracy: float | None = None
    """Mean over rooms of the last scored round."""


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
    progress: Callable[[Progress], None] | None = None,
) -> Run:
    """Carry out a plan.

    Args:
        plan: what to do.
        out: the directory to write; by default a temporary one.
        resume: go on with the run in ``out`` if there is one, else start afresh.
        workers: processes to train rooms in; by default one a core, 0 is this process.
        rooms: rooms of your own instead of the plan's data.
        tensorboard: also write TensorBoard scalars to ``out/tensorboard``.
        progress: called as work goes on.
    """
    _check_device(plan)
    if workers is not None and workers < 0:
        raise PlanError(f"workers {workers}: must be 0 or more")
    show = progress or (lambda _: None)
    folder = Path(out) if out is not None else Path(tempfile.mkdtemp(prefix="fedapa-"))
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder}: is a file; choose another --out")
    if rooms is not None:
        # Nobody can repeat this run from its plan file alone; trying to names the reason.
        plan = Plan.of(plan.document(), {"data": {"file": GIVEN_ROOMS}})
    _check_output(folder, plan, resume)
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
    show: Callable[[Progress], None],
) -> Run:
    algorithm = plan.build()
    data = describe(prepared, plan)
    name = hashlib.blake2b((plan.toml() + dump(data)).encode(), digest_size=12).hexdigest()
    kind = "SIMULATED" if data["synthetic"] else "real"  # stands in every file of the run
    checkpoint = Checkpoint(folder / "checkpoint")
    lines, times = JsonLines(folder / "rounds.jsonl"), JsonLines(folder / "seconds.jsonl")
    with InProcess(algorithm, prepared, run=name, folder=folder, workers=workers) as engine:
        state = checkpoint.load()
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
        done = cast(int, state["round"])
        if done <= plan.rounds:
            _note_environment(folder / "environment.json", workers, kind, begun=done > 0)
        lines.keep(max(0, done - 1))
        times.keep(done)
        with _Scalars(folder, lines.read(), wanted=tensorboard) as scalars:
            show(Progress("round", max(0, done - 1), plan.rounds))
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
                checkpoint.save({**step.state, "run": name})
                began = time.perf_counter()
                show(
                    Progress(
                        "round",
                        step.exchange - 1,
                        plan.rounds,
                        step.record["mean"]["accuracy"] if step.record else None,
                    )
                )
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
    changed = differences(before, plan.document())
    if changed:
        raise RunError(
            f"{folder}: --resume with a changed plan ({'; '.join(changed)}); "
            "restore it, or choose another --out"
        )


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


def check_batches(rooms: Iterable[Room], batch_size: int) -> None:
    """Refuse batches of one window where BatchNorm would have a single value to normalise."""
    for room in rooms:
        if batch_size > 1 and len(room.split.train) > 1:
            continue
        for layer in layers(room.build(), room.windows.shape[1:]):
            if layer.kind == "BatchNorm2d" and math.prod(layer.output[1:]) == 1:
                raise PlanError(
                    f"room '{room.name}': batches of one window of "
                    f"{' × '.join(map(str, room.windows.shape[1:]))} leave {layer.name} a single "
                    "value to normalise; use a larger batch_size or window, or a smaller net"
                )


def _check_device(plan: Plan) -> None:
    import torch

    if plan.device == "cuda" and not torch.cuda.is_available():
        raise PlanError("device 'cuda': this machine or this build of torch has none; use cpu")


# ---- the rooms of a plan ----------------------------------------------------------------------


def prepare_rooms(
    plan: Plan,
    show: Callable[[Progress], None] = lambda _: None,
    *,
    workers: int | None = 0,
) -> list[Room]:
    """The plan's rooms: windows cut, classes found, split, normalised, nets assigned."""
    store = _store_of(plan, show, workers)
    with Store(store) as opened:
        recommended = opened.window
    found = materialise(
        store,
        plan.data.cut(recommended),
        progress=lambda done, total: show(Progress("cutting windows", done, total)),
    )
    found = _partitioned(plan, found)
    classes = _classes(plan, found)
    splits = {each.room: _split(plan, each) for each in found}
    nets = _nets(plan, found, splits)
    rooms = []
    for number, each in enumerate(found, start=1):
        windows = each.open()
        rooms.append(
            Room(
                name=each.room,
                windows=windows,
                labels=class_indices(each.room, each.labels, classes),
                classes=classes,
                split=splits[each.room],
                normaliser=Normaliser.of(windows, splits[each.room].train),
                architecture=nets[each.room],
                width=plan.model.width,
                normalise_embedding=plan.model.normalise_embedding,
                initialisation=plan.model.initialisation,
                key=Key(plan.seed),
                device=plan.device,
                synthetic=each.synthetic,
            )
        )
        show(Progress("normalising", number, len(found)))
    return rooms


def _store_of(plan: Plan, show: Callable[[Progress], None], workers: int | None) -> Path:
    if plan.data.file is not None:
        return Path(plan.data.file)
    return simulated_store(
        plan.data.simulated,
        plan.data.simulated_seed,
        workers=available_cores() if workers is None else max(1, workers),
        progress=lambda done, total: show(Progress("simulating rooms", done, total)),
    )


def _partitioned(plan: Plan, found: tuple[RoomWindows, ...]) -> tuple[RoomWindows, ...]:
    if plan.data.partition == "rooms":
        return found
    return deal(
        found,
        kind=plan.data.partition,
        rooms=plan.data.partition_rooms,
        concentration=plan.data.partition_concentration,
        classes=plan.data.partition_classes,
        whole_takes=plan.data.split != "random",
        key=Key(plan.seed) / "partition",
    )


def _source(plan: Plan) -> str:
    """Where the windows come from, in words."""
    data = plan.data
    source = data.file or f"simulated rooms '{data.simulated}'"
    dealt = {
        "rooms": "",
        "dirichlet": f", dealt to {data.partition_rooms} rooms by Dirichlet shares, "
        f"α = {data.partition_concentration:g}",
        "classes": f", dealt to {data.partition_rooms} rooms with {data.partition_classes} "
        "classes each",
    }
    return source + dealt[data.partition]


def _classes(plan: Plan, found: Iterable[RoomWindows]) -> tuple[Label, ...]:
    for each in found:
        if len(set(each.labels)) < 2:
            raise DataError(
                f"room '{each.room}' has a single class ({each.labels[0]!r}): there is nothing to "
                "tell apart; record another count there or leave the room out"
            )
    labels = {label for each in found for label in each.labels}
    kinds = {type(label) for label in labels}
    if len(kinds) > 1:
        odd = sorted_labels(labels)
        raise DataError(
            f"labels mix counts and categories ({odd[0]!r} … {odd[-1]!r}); use one kind"
        )
    return plan.classes if plan.classes is not None else sorted_labels(labels)


def _split(plan: Plan, each: RoomWindows) -> Split:
    return split_windows(
        each.room,
        each.labels,
        each.recordings,
        each.starts,
        spans=each.spans,
        kind=plan.data.split,
        key=Key(plan.seed) / "split" / each.room,
        test=plan.data.test,
        validation=plan.data.validation,
    )


def _nets(
    plan: Plan, found: Sequence[RoomWindows], splits: Mapping[str, Split]
) -> Mapping[str, str]:
    chosen = plan.model.architecture
    if isinstance(chosen, dict):
        names = {each.room for each in found}
        for room in sorted({*chosen, *names}):
            if room not in names:
                raise PlanError(f"model.architecture: there is no room '{room}' in the data")
            if room not in chosen:
                raise PlanError(f"model.architecture: room '{room}' has no net; name one for it")
        return chosen
    if chosen == "by-size":
        return assign_by_size({room: len(split.train) for room, split in splits.items()})
    return {each.room: chosen for each in found}


def describe(prepared: Sequence[Room], plan: Plan) -> dict[str, Any]:
    """What the data of a run is, without any of it."""
    return {
        "source": _source(plan),
        "synthetic": any(room.synthetic for room in prepared),
        "split": " and ".join(sorted({room.split.kind for room in prepared})),
        "classes": list(prepared[0].classes),
        "window_shape": list(prepared[0].windows.shape[1:]),
        "rooms": {
            room.name: {
                "architecture": room.architecture,
                "synthetic": room.synthetic,
                "train": len(room.split.train),
                "validation": len(room.split.validation),
                "test": len(room.split.test),
                "fingerprint": _fingerprint(room),
            }
            for room in prepared
        },
    }


def _fingerprint(room: Room) -> str:
    """A short name for a room's data; a changed label, split or normaliser changes it."""
    parts = (room.labels, room.split.train, room.split.test, room.normaliser.mean)
    text = b"".join(np.ascontiguousarray(part).tobytes() for part in parts)
    return hashlib.blake2b(text, digest_size=8).hexdigest()


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


def environment(workers: int | None) -> dict[str, Any]:
    """What the numbers were made with."""
    packages = ("fedapa", "torch", "numpy", "scipy", "h5py", "safetensors", "pydantic")
    return {
        "fedapa": fedapa.__version__,
        "commit": commit(),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": available_cores(),
        "workers": available_cores() if workers is None else workers,
        "packages": {name: metadata.version(name) for name in packages},
    }


def commit() -> str:
    """The commit this code was run from, with "+changes" if it was altered; else "unknown"."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(Path(__file__).parent), *words],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        ).stdout.strip()

    try:
        # An installed copy may lie inside somebody else's repository: only ours counts.
        if not (Path(git("rev-parse", "--show-toplevel")) / "src" / "fedapa").is_dir():
            return "unknown"
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain") else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


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
