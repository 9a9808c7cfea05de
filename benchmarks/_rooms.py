"""A hundred rooms in one process: every room its own UDP port, its own counter, its own model file.

Another process replays a capture of 80 MHz (256 subcarriers, 242 live) to all ports at once, at 100
packets per second each, for as many minutes as asked for. Windows are those of the preset
``quick``: 4 s, of which 0.8 s are new, statistics and our own net; a net that learned nothing costs
as much as one that did. ``lost`` are datagrams that were sent and never counted, and counts that
were due and did not come. ``growth_mb`` is by how much the process has grown from the time when
every room had counted for a while until the end: of the resident memory, not the peak.
"""

import contextlib
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from fedapa.service.counter import CounterSettings
from fedapa.service.history import History
from fedapa.service.model_watch import ModelWatch
from fedapa.service.serving import Document, RoomServer, ServedRoom
from fedapa.service.sources import NexmonUdp

ROOMS, RATE, EVERY = 100, 100.0, 5.0
WINDOW, STRIDE = 400, 80
RECORDED = 500
"""Packets of the capture that is replayed again and again."""
SETTLED = 20.0
"""s until every room has counted and nothing is made for the first time any more."""


def rooms_100(model: Path, datagrams: list[bytes], minutes: float) -> dict[str, Any]:
    """What was lost and by how much the process grew; seconds of processor time beside."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ends:
        rooms, ports = [], []
        for number in range(ROOMS):
            own = Path(folder) / f"{number}.safetensors"
            shutil.copyfile(model, own)
            source = ends.enter_context(NexmonUdp(_free_port()))
            ports.append(source.port)
            settings = CounterSettings(every=EVERY)
            rooms.append(ServedRoom(f"room {number}", ModelWatch(own), source, settings))
        server = RoomServer(rooms)
        history = ends.enter_context(History(Path(folder) / "counts.db"))
        server.listen(history.add)
        counts: list[tuple[str, float]] = []

        def note(document: Document) -> None:
            if document["count"] is not None:
                counts.append((document["room"], document["time"]))

        server.listen(note)
        ends.enter_context(server)
        return _watched(server, ports, datagrams, minutes, counts)


def _watched(
    server: RoomServer,
    ports: list[int],
    datagrams: list[bytes],
    minutes: float,
    counts: list[tuple[str, float]],
) -> dict[str, Any]:
    packets = round(60 * minutes * RATE)
    sender = get_context("spawn").Process(target=replay, args=(ports, datagrams, packets))
    sender.start()
    used, began = time.process_time(), time.monotonic()
    settled, worst = 0.0, 0.0
    while sender.is_alive():
        sender.join(0.5)
        worst = max(worst, server.behind)
        if not settled and time.monotonic() - began > SETTLED + WINDOW / RATE:
            settled = resident_mb()
    assert sender.exitcode == 0, "the sender failed"
    _drained(server)
    share = (time.process_time() - used) / (time.monotonic() - began)
    grown = resident_mb() - settled if settled else float("nan")
    told = [room.document() for room in server.rooms.values()]
    lost = sum(packets - one["packets"] + sum(one["skipped"].values()) for one in told)
    # From a room's first count on there is one every 5 s.
    late = 0
    for name in server.rooms:
        times = np.array([moment for room, moment in counts if room == name])
        due = 1 + int((packets / RATE - WINDOW / RATE) // EVERY)
        late += max(0, due - len(times))
    return {
        "lost": int(lost) + late,
        "growth_mb": round(grown, 1),
        "packets": packets * len(told),
        "counts": len(counts),
        "cores": round(share, 2),
        "longest_turn_s": round(worst + 0.25, 2),
    }


def _drained(server: RoomServer) -> None:
    """Wait until nothing more comes."""
    before = -1
    while (now := sum(room.document()["packets"] for room in server.rooms.values())) != before:
        before = now
        time.sleep(3.0)


def replay(ports: list[int], datagrams: list[bytes], packets: int) -> None:
    """In another process: every packet to every port when its time has come."""
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    began = time.monotonic()
    places = [("127.0.0.1", port) for port in ports]
    for number in range(packets + 1):  # the last one of a stream waits for the next
        wait = began + number / RATE - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        for offset, place in enumerate(places):
            sender.sendto(datagrams[(number + offset) % len(datagrams)], place)


def resident_mb() -> float:
    """Memory of this process that is in use."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _free_port() -> int:
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])


def datagrams_of(path: Path) -> Iterator[bytes]:
    """The UDP datagrams of a capture that ``write_nexmon`` made."""
    data, at = path.read_bytes(), 24
    while at < len(data):
        size = int.from_bytes(data[at + 8 : at + 12], "little")
        yield data[at + 16 + 42 : at + 16 + size]
        at += 16 + size
