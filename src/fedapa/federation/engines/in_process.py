"""InProcess: all rooms on this machine, trained side by side by worker processes.

Each worker uses one thread, memory-maps the windows and can serve any room, so the largest rooms
start first and nobody waits. Many rooms are handed out several at a time, and a worker has only
those in memory that it served last. Rooms draw from streams of their own: any number of workers
gives the same bytes. ``workers=0`` serves rooms one by one in this process, for debugging and for
tests.
"""

import contextlib
import functools
import math
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import cast

import torch

from fedapa import processes
from fedapa.algorithms.algorithm import Algorithm, Roster, Round
from fedapa.errors import RunError
from fedapa.federation import cohort
from fedapa.federation.attack import Attack
from fedapa.federation.engines.handover import (
    Handover,
    RoomFiles,
    decode_handover,
    encode_handover,
    joined,
    parted,
)
from fedapa.federation.messages import (
    Reply,
    Request,
    decode_reply,
    decode_request,
    decode_round,
    encode_card,
    encode_reply,
    encode_request,
    encode_round,
)
from fedapa.federation.participant import Participant, introduce
from fedapa.files import Write, together, write_bytes
from fedapa.payload import digest
from fedapa.rooms.pool import pool_in_turn, pool_rooms
from fedapa.rooms.room import Room

__all__ = ["InProcess"]


def _as_served(algorithm: Algorithm, rooms: Sequence[Room]) -> Sequence[Room]:
    """The rooms as they train: those of some controls have each other's windows."""
    if algorithm.pools:
        return pool_rooms(rooms)
    return pool_in_turn(rooms) if algorithm.pools_in_turn else rooms


class _Served:
    """The rooms of a run, ready to answer, in this process or in a worker."""

    def __init__(self, given: Handover) -> None:
        rooms = _as_served(given.algorithm, given.rooms)
        self._given = given
        self._room: Callable[[str], Room]
        if isinstance(rooms, RoomFiles):
            self._room = rooms.named
        else:
            self._room = {room.name: room for room in rooms}.__getitem__

    def participant(self, room: str, write: Write = write_bytes) -> Participant:
        return Participant(
            algorithm=self._given.algorithm,
            room=self._room(room),
            folder=self._given.folder / "rooms" / room,
            model_path=self._given.folder / "models" / f"{room}.safetensors",
            known_as=self._given.cards.get(room, ""),
            travels=False,
            attack=self._given.attack if room in self._given.attackers else None,
            write=write,
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
        attack: Attack | None = None,
        attackers: Sequence[str] = (),
    ) -> None:
        cohort.check_roster([room.card for room in rooms])
        served = sorted(_as_served(algorithm, rooms), key=lambda room: room.name)
        self._cards = tuple(introduce(room) for room in served)
        # Once for all rounds: to tell a card takes a room longer than to find its last state.
        known = {card.name: digest(encode_card(card)) for card in self._cards}
        self._given = Handover(algorithm, rooms, folder, known, attack, attackers)
        self._served = _Served(self._given)
        # Longest first: the round ends when the last room does.
        effort = {card.name: card.flops * card.windows for card in self._cards}
        self._order = sorted(effort, key=lambda name: (-effort[name], name))
        wanted = processes.available_cores() if workers is None else workers
        self._workers = min(wanted, len(served))
        self._ends = contextlib.ExitStack()
        self._pool: processes.Workers | None = None
        self._seconds = math.inf
        """What a room took in the last exchange, on average; of the first nobody knows."""

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
                replies = self._served_by(self._pool, round, requests, order)
            except BrokenProcessPool as error:
                raise RunError(
                    f"round {round.number}: a worker process died; out of memory? Use fewer "
                    "workers and resume. In a script of your own, call run() under "
                    "if __name__ == '__main__':"
                ) from error
        return {room: replies[room] for room in sorted(replies)}

    def _served_by(
        self,
        pool: processes.Workers,
        round: Round,
        requests: Mapping[str, Request],
        order: Sequence[str],
    ) -> dict[str, Reply]:
        """Replies of workers; few requests wait for them at a time, since each has a download."""
        now, replies = encode_round(round), dict[str, Reply]()
        portions = deque(_handed_out(order, self._workers, self._seconds))
        came: Callable[[str, Reply], object] = getattr(requests, "came", _untold)
        begun: deque[tuple[list[str], processes.Job]] = deque()
        while portions or begun:
            while portions and len(begun) < _AHEAD * self._workers:
                rooms = portions.popleft()
                begun.append((rooms, pool.submit(_serve, rooms, now, *_asked(requests, rooms))))
            rooms, job = begun.popleft()
            frames = parted(job.result())
            for room in rooms:
                told, upload = cast(bytes, next(frames)), next(frames)
                replies[room] = decode_reply(told, upload=upload)
                came(room, replies[room])
        spent = [
            sum(reply.seconds.get(part, 0.0) for part in ("score", "train"))
            for reply in replies.values()
        ]
        self._seconds = sum(spent) / max(1, len(spent))
        return replies


_AHEAD = 8
"""Portions for a worker that are asked for before the first of them is answered: rooms take
different times, and nobody may wait while an earlier one is not done."""
_TURNS = 16
"""How often a worker comes for rooms in an exchange, at least where there are enough of them: to
come costs a millisecond, and who comes too seldom makes others wait at the end."""
_WORTH = 0.05
"""Seconds of work for which it is worth to come, where each worker gets as many rooms."""


def _handed_out(order: Sequence[str], workers: int, seconds: float) -> list[list[str]]:
    """The rooms in the portions in which workers fetch them; each room takes so many seconds.

    Towards the end portions are smaller, so that workers end at nearly the same time.
    """
    even = -(-len(order) // workers)
    worth = max(1, min(even, int(_WORTH / max(seconds, 1e-6))))
    most = max(worth, len(order) // (workers * _TURNS))
    portions, first = list[list[str]](), 0
    while first < len(order):
        size = min(most, max(worth, (len(order) - first) // (2 * workers)))
        portions.append(list(order[first : first + size]))
        first += size
    return portions


def _untold(room: str, reply: Reply) -> None:
    """For requests that do not want to know of replies as they come."""


def _asked(requests: Mapping[str, Request], rooms: Sequence[str]) -> tuple[bytes, bytes]:
    """What some rooms are asked, and their downloads apart: those are whole frames already."""
    wanted = [requests[room] for room in rooms]  # each is made when it is taken
    asked = [_told(replace(request, download=None)) for request in wanted]
    return joined(asked), joined([request.download for request in wanted])


@functools.lru_cache(maxsize=16)
def _told(request: Request) -> bytes:
    """A request without its download as a frame; in a round mostly all rooms are asked the same."""
    return encode_request(request)


@functools.lru_cache(maxsize=16)
def _heard(frame: bytes) -> Request:
    """The request in such a frame."""
    return decode_request(frame)


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


_MANY = 4
"""Rooms in a portion from which on a thread syncs their states: for a few it costs more processor
time than it saves waiting."""


def _serve(rooms: list[str], round: bytes, asked: bytes, downloads: bytes) -> bytes:
    if _SERVED is None:
        raise RunError("a worker was asked before it was started")
    now, replies = decode_round(round), list[bytes | None]()
    # All their states are on disk before any of their replies leaves.
    with together(ahead=len(rooms) >= _MANY) as write:
        for room, frame, download in zip(rooms, parted(asked), parted(downloads), strict=True):
            request = replace(_heard(cast(bytes, frame)), download=download)
            reply = _SERVED.participant(room, write).exchange(now, request)
            replies += [encode_reply(reply, whole=False), reply.upload]
    return joined(replies)
