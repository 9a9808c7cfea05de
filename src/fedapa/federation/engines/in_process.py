"""InProcess: all rooms on this machine, trained side by side by worker processes.

Each worker uses one thread, memory-maps the windows and can serve any room, so the largest rooms
start first and nobody waits. Rooms draw from streams of their own: any number of workers gives the
same bytes. ``workers=0`` serves rooms one by one in this process, for debugging and for tests.
"""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import TracebackType

import torch

from fedapa import processes
from fedapa.algorithms.algorithm import Algorithm, Roster, Round
from fedapa.errors import RunError
from fedapa.federation import cohort
from fedapa.federation.engines.handover import Handover, decode_handover, encode_handover
from fedapa.federation.messages import (
    Reply,
    Request,
    decode_reply,
    decode_request,
    decode_round,
    encode_reply,
    encode_request,
    encode_round,
)
from fedapa.federation.participant import Participant, introduce
from fedapa.rooms.pool import pool_in_turn, pool_rooms
from fedapa.rooms.room import Room

__all__ = ["InProcess"]


class _Served:
    """The rooms of a run, ready to answer, in this process or in a worker."""

    def __init__(self, given: Handover) -> None:
        rooms = given.rooms
        if given.algorithm.pools:
            rooms = pool_rooms(rooms)
        elif given.algorithm.pools_in_turn:
            rooms = pool_in_turn(rooms)
        self.rooms = {room.name: room for room in sorted(rooms, key=lambda room: room.name)}
        self._given = given

    def participant(self, room: str) -> Participant:
        return Participant(
            algorithm=self._given.algorithm,
            room=self.rooms[room],
            folder=self._given.folder / "rooms" / room,
            model_path=self._given.folder / "models" / f"{room}.safetensors",
        )


class InProcess:
    """An engine; use it as a context manager so that its workers end with it."""

    def __init__(
        self,
        algorithm: Algorithm,
        rooms: Sequence[Room],
        *,
        folder: Path,
        workers: int | None = None,
    ) -> None:
        cohort.check_roster([room.card for room in rooms])
        self._given = Handover(algorithm, rooms, folder)
        self._served = _Served(self._given)
        served = self._served.rooms
        self._cards = tuple(introduce(room) for room in served.values())
        # Longest first: the round ends when the last room does.
        self._order = sorted(served, key=lambda name: (-_effort(served[name]), name))
        wanted = processes.available_cores() if workers is None else workers
        self._workers = min(wanted, len(served))
        self._ends = contextlib.ExitStack()
        self._pool: processes.Workers | None = None

    def __enter__(self) -> "InProcess":
        if self._workers:
            spare = self._ends.enter_context(tempfile.TemporaryDirectory(prefix="fedapa-"))
            self._pool = self._ends.enter_context(
                processes.Workers(
                    self._workers,
                    context=processes.importing_once(),
                    initializer=_start_worker,
                    initargs=(processes.variables(), encode_handover(self._given, Path(spare))),
                )
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ends.__exit__(kind, error, trace)

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
            try:
                now = encode_round(round)
                jobs = {
                    room: self._pool.submit(_serve, room, now, encode_request(requests[room]))
                    for room in order
                }
                replies = {room: decode_reply(job.result()) for room, job in jobs.items()}
            except BrokenProcessPool as error:
                raise RunError(
                    f"round {round.number}: a worker process died; out of memory? Use fewer "
                    "workers and resume. In a script of your own, call run() under "
                    "if __name__ == '__main__':"
                ) from error
        return {room: replies[room] for room in sorted(replies)}


def _effort(room: Room) -> int:
    return room.card.flops * room.card.windows


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_SERVED: _Served | None = None


def _start_worker(variables: Mapping[str, str], given: bytes) -> None:
    global _SERVED
    processes.start_training_worker(variables)
    _SERVED = _Served(decode_handover(given))


def _serve(room: str, round: bytes, request: bytes) -> bytes:
    if _SERVED is None:
        raise RunError("a worker was asked before it was started")
    participant = _SERVED.participant(room)
    return encode_reply(participant.exchange(decode_round(round), decode_request(request)))
