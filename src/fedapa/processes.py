"""Worker processes: where they come from, what they send back, how they end; and progress.

**Where from.** Importing torch takes two seconds and 200 MB. On Linux workers are forked from a
server that has imported it. A command forks that server of itself as soon as it has imported what
both need and before it has any thread or data: torch is then imported once for all processes, and
its pages are shared. A script that calls ``fedapa.run`` may have threads and data, so there the
server is a new process, which imports in the background. Elsewhere every worker is spawned and
imports for itself. This module imports nothing heavy: ``get_ready`` may be the first thing a
command does.

**What back.** A worker that dies half-way through sending a large result leaves
``concurrent.futures`` reading for ever: it holds the pipe's other end open itself. So results go
through files, and only their names, which the pipe takes in one piece, are sent. They are bytes:
who needs more has the codec of ``fedapa.payload``, and nothing is unpickled from a file.

**Progress.** Long work takes a ``Show`` and calls it with a ``Progress`` as it goes on. It neither
prints nor knows who watches: the command line draws bars or lines from it.
"""

import contextlib
import ctypes
import functools
import gc
import importlib
import itertools
import multiprocessing
import os
import secrets
import shutil
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import connection, forkserver, resource_tracker, util
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any, NoReturn, ParamSpec

from threadpoolctl import ThreadpoolController

from fedapa.errors import RunError

__all__ = [
    "Job",
    "Progress",
    "Show",
    "Workers",
    "available_cores",
    "begin_worker",
    "fork_from_here",
    "get_ready",
    "importing_once",
    "keep_memory",
    "one_thread",
    "side_by_side",
    "start_training_worker",
    "unseen",
    "variables",
]

_IMPORTED = ("fedapa.federation.engines.in_process", "fedapa.models.kernels")
_P = ParamSpec("_P")
_OURS = False
"""Whether this process is a command of ours and nobody else's script."""


@dataclass(frozen=True)
class Progress:
    """How far long work has come."""

    stage: str
    """What is being done now, e.g. "cutting windows"."""
    done: int
    total: int | None
    """None: nobody knows."""
    unit: str
    """What is counted, in the plural, e.g. "rooms"."""
    note: str = ""
    """What else is known by now, e.g. "accuracy 71.3 %"."""


Show = Callable[[Progress], None]
"""Who watches long work; called as it goes on."""


def unseen(_: Progress) -> None:
    """A ``Show`` for work that nobody watches."""


def available_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def importing_once() -> BaseContext:
    """How to start workers that need torch."""
    return multiprocessing.get_context("forkserver" if get_ready() else "spawn")


def fork_from_here() -> None:
    """Say that this process is a command of ours: its workers may be forked of it."""
    global _OURS
    _OURS = True


def get_ready() -> bool:
    """Have what workers need imported; whether there is a process to fork them from."""
    if sys.platform != "linux":
        return False
    try:
        multiprocessing.set_forkserver_preload(list(_IMPORTED))
        with _deaf(), _forking() if _OURS else contextlib.nullcontext():
            forkserver.ensure_running()
    except OSError:  # no socket can be made, e.g. below a long path of temporary files
        return False
    return True


@contextlib.contextmanager
def _forking() -> Iterator[None]:
    """Whatever server starts now is a fork of this process, unless threads or files forbid it."""

    def fork(program: Any, command: Sequence[Any], handles: Sequence[int]) -> int:
        for module in _IMPORTED:
            importlib.import_module(module)
        if not _is_single() or _has_stores_open():
            return int(start(program, command, handles))
        sys.stdout.flush()  # or workers would write once more what waits there
        sys.stderr.flush()
        gc.collect()
        gc.freeze()  # a collection in a worker would write to every page, and so copy it
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads, see ``_is_single``
            child = os.fork()
        if child == 0:
            _serve(str(command[-1]), handles)
        gc.unfreeze()
        return child

    resource_tracker.ensure_running()  # or it would be such a fork, too
    start, util.spawnv_passfds = util.spawnv_passfds, fork  # type: ignore[assignment]
    try:
        yield
    finally:
        util.spawnv_passfds = start


def _is_single() -> bool:
    """Whether this process has no thread but those of linear algebra, which end before a fork."""
    pools = ThreadpoolController().select(user_api="blas").info()  # of what is loaded by now
    others = sum(pool["num_threads"] - 1 for pool in pools)
    running = len(list(Path("/proc/self/task").iterdir()))
    return threading.active_count() == 1 and running <= 1 + others


def _has_stores_open() -> bool:
    """Whether HDF5 has a file open here: a fork's would read it through a handle that is closed."""
    h5py = sys.modules.get("h5py")
    if h5py is None:
        return False
    files = h5py.h5f
    return int(files.get_obj_count(files.OBJ_ALL, files.OBJ_FILE)) > 0


def _serve(command: str, handles: Sequence[int]) -> NoReturn:
    """In the fork: be the server that the standard library would have started by ``command``."""
    code = 1
    try:
        # One of the others is the pipe by whose end it learns that the command has ended.
        kept = sorted({0, 1, 2, *handles})
        for before, after in itertools.pairwise([*kept, os.sysconf("SC_OPEN_MAX")]):
            os.closerange(before + 1, after)
        # Its lock is the caller's, who holds it just now.
        forkserver.ensure_running.__self__.__init__()  # type: ignore[attr-defined]
        exec(command, {})
    except SystemExit:
        code = 0
    finally:
        os._exit(code)


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Whatever starts now never hears Ctrl-C: the server would tell of it while it imports."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only there can it be set
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)


def variables() -> dict[str, str]:
    """The environment of this process, for workers: their server may be older than it."""
    return dict(os.environ)


_RESULTS: Path | None = None
"""In a worker: where results are put."""


def begin_worker() -> None:
    """In a worker: leave Ctrl-C to the parent, and end with it however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def start_training_worker(variables: Mapping[str, str]) -> None:
    """In a worker that trains: the environment of whoever asked for it, and one thread."""
    import torch

    os.environ.clear()
    os.environ.update(variables)
    torch.set_num_threads(1)
    keep_memory()
    begin_worker()


def keep_memory() -> None:
    """Let freed activations be used again instead of going back to the system every time.

    By default each of a Large's tensors is mapped, filled with zeros page by page and unmapped in
    every step. Only glibc knows these two settings.
    """
    trim_threshold, most_maps = -1, -4
    with contextlib.suppress(OSError, AttributeError, TypeError):
        system = ctypes.CDLL(None)
        system.mallopt(most_maps, 0)
        system.mallopt(trim_threshold, 2**31 - 1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        if _RESULTS is not None:  # whoever would have removed them is gone
            shutil.rmtree(_RESULTS, ignore_errors=True)
        os._exit(1)


@dataclass(frozen=True, eq=False)
class Job:
    """Work of a process, done or not; ``future`` is for ``concurrent.futures.wait``."""

    future: "Future[Path]"

    def result(self) -> bytes:
        """Wait for the work and take what it returned; it can be taken once."""
        path = self.future.result()
        returned = path.read_bytes()
        path.unlink()
        return returned


class Workers:
    """A pool of processes; as a context manager it ends them, at once when its block fails.

    When a worker dies, ``Job.result`` raises ``BrokenProcessPool`` for whatever is not done.
    """

    def __init__(
        self,
        number: int,
        *,
        context: BaseContext,
        initializer: Callable[..., None] = begin_worker,
        initargs: tuple[Any, ...] = (),
    ) -> None:
        self._others = {process.pid for process in multiprocessing.active_children()}
        self._results = tempfile.TemporaryDirectory(prefix="fedapa-", ignore_cleanup_errors=True)
        self._pool = ProcessPoolExecutor(
            number, mp_context=context, initializer=initializer, initargs=initargs
        )

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            # Nobody waits for work that is given up: it may go on for minutes.
            for process in multiprocessing.active_children():
                if process.pid not in self._others:
                    process.terminate()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._results.cleanup()

    def submit(self, work: Callable[_P, bytes], *args: _P.args, **kwargs: _P.kwargs) -> Job:
        """Begin work in the next process that is free."""
        folder = Path(self._results.name)
        return Job(self._pool.submit(_keep, folder, work, args, kwargs))


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Linear algebra on one thread: sums in one order, so the same bits on any number of cores."""
    with _linear_algebra().limit(limits=1, user_api="blas"):
        yield


@functools.cache
def _linear_algebra() -> ThreadpoolController:
    """The libraries that numpy calculates with; looking for them takes longer than a window."""
    return ThreadpoolController()


def side_by_side(
    work: Callable[..., bytes],
    tasks: Sequence[tuple[str, ...]],
    *,
    workers: int,
    stage: str,
    unit: str,
    show: Show,
) -> list[bytes]:
    """What ``work`` makes of each task, in so many processes; in the order of the tasks.

    Args:
        work: a function of a module, for text, since it crosses to another process.
        tasks: its arguments.
        workers: processes.
        stage: what is done, for those who watch: "cutting windows".
        unit: what a task is of, in the plural, for them, too: "rooms".
        show: told of every task.
    """
    made = []
    with Workers(min(workers, len(tasks)), context=importing_once()) as processes:
        jobs = [processes.submit(work, *task) for task in tasks]
        try:
            for done, job in enumerate(jobs, start=1):
                made.append(job.result())
                show(Progress(stage, done, len(tasks), unit))
        except BrokenProcessPool as error:
            raise RunError(
                f"a worker died ({stage}), perhaps for lack of memory; try again with fewer "
                "--workers"
            ) from error
    return made


def _keep(
    folder: Path,
    work: Callable[..., bytes],
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> Path:
    global _RESULTS
    _RESULTS = folder
    path = folder / secrets.token_hex(16)
    path.write_bytes(work(*args, **kwargs))
    return path
