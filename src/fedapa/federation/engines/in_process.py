"""InProcess: all rooms on this machine, trained side by side by worker processes.

Each worker uses one thread, memory-maps the windows and can serve any room, so the largest rooms
start first and nobody waits. Rooms draw from streams of their own: any number of workers gives the
same bytes. ``workers=0`` serves rooms one by one in this process, for debugging and for tests.
"""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from types import TracebackType

import torch

from fedapa.algorithms.algorithm import Algorithm, Roster, Round
from fedapa.errors import RunError
from fedapa.federation import cohort
from fedapa.federation.engines import processes
from fedapa.federation.participant import Participant, Reply, Request
from fedapa.rooms.pool import pool_rooms
from fedapa.rooms.room import Room

__all__ = ["InProcess", "available_cores", "keep_memory", "start_worker"]


def available_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True, eq=False)
class _Served:
    """What a worker needs to serve any room."""

    algorithm: Algorithm
    rooms: Mapping[str, Room]
    run: str
    folder: Path

    def participant(self, room: str) -> Participant:
        return Participant(
            algorithm=self.algorithm,
            room=self.rooms[room],
            run=self.run,
            folder=self.folder / "rooms" / room,
            model_path=self.folder / "models" / f"{room}.safetensors",
        )


class InProcess:
    """An engine; use it as a context manager so that its workers end with it."""

    def __init__(
        self,
        algorithm: Algorithm,
        rooms: Sequence[Room],
        *,
        run: str,
        folder: Path,
        workers: int | None = None,
    ) -> None:
        cohort.check_roster([room.card for room in rooms])
        served = pool_rooms(rooms) if algorithm.pools else rooms
        by_name = {room.name: room for room in sorted(served, key=lambda room: room.name)}
        self._served = _Served(algorithm, by_name, run, folder)
        self._cards = tuple(room.card for room in by_name.values())
        # Longest first: the round ends when the last room does.
        self._order = sorted(by_name, key=lambda name: (-_effort(by_name[name]), name))
        wanted = available_cores() if workers is None else workers
        self._workers = min(wanted, len(by_name))
        self._pool: ProcessPoolExecutor | None = None
        self._others: set[int | None] = set()

    def __enter__(self) -> "InProcess":
        if self._workers:
            self._others = {process.pid for process in multiprocessing.active_children()}
            self._pool = ProcessPoolExecutor(
                self._workers,
                mp_context=processes.context(),
                initializer=_start_worker,
                initargs=(processes.variables(), self._served),
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is None:
            return
        if kind is not None:
            # Nobody waits for the rooms of a round that is given up: they may train for minutes.
            for process in multiprocessing.active_children():
                if process.pid not in self._others:
                    process.terminate()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def roster(self) -> Roster:
        """The cards of all rooms, sorted by name."""
        return self._cards

    def exchange(self, round: Round, requests: Mapping[str, Request]) -> Mapping[str, Reply]:
        """Every room answers its request; replies come sorted by room."""
        order = [room for room in self._order if room in requests]
        if self._pool is None:
            with _one_thread():
                replies = {
                    room: self._served.participant(room).exchange(round, requests[room])
                    for room in order
                }
        else:
            jobs = {room: self._pool.submit(_serve, room, round, requests[room]) for room in order}
            replies = {room: _result(job, room, round) for room, job in jobs.items()}
        return {room: replies[room] for room in sorted(replies)}


def _effort(room: Room) -> int:
    return room.card.flops * room.card.windows


def _result(job: "Future[Reply]", room: str, round: Round) -> Reply:
    try:
        return job.result()
    except BrokenProcessPool as error:
        raise RunError(
            f"round {round.number}: a worker process died while room '{room}' was asked for; out "
            "of memory? Use fewer workers and resume. In a script of your own, call run() under "
            "if __name__ == '__main__':"
        ) from error


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_SERVED: _Served | None = None


def _start_worker(variables: Mapping[str, str], served: _Served) -> None:
    global _SERVED
    _SERVED = served
    start_worker(variables)


def start_worker(variables: Mapping[str, str]) -> None:
    """Make a process a worker: one thread, deaf to Ctrl-C, gone when its parent is."""
    processes.take_variables(variables)
    torch.set_num_threads(1)
    keep_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_die_with_parent, daemon=True).start()


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


def _die_with_parent() -> None:
    """End this process when its parent is gone, even if that was killed without a chance to say."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _serve(room: str, round: Round, request: Request) -> Reply:
    if _SERVED is None:
        raise RunError("a worker was asked before it was started")
    return _SERVED.participant(room).exchange(round, request)
