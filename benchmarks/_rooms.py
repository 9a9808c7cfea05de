"""A hundred rooms in one process, and how soon the first count is there.

``rooms_100``: every room has its own UDP port, counter and model file. Another process replays a
capture of 80 MHz (256 subcarriers, 242 live) to all ports, at 100 packets per second each, for as
many minutes as asked for. Windows are as those of the preset ``quick``: 4 s, of which 0.8 s are
new, statistics and our own net; a net that learned nothing costs as much as one that did. ``lost``
are datagrams that were sent and not counted, and counts that were due and did not come.
``growth_mb`` is by how much the process has grown, from the time when all was made that is made
once until the end: resident memory, not its peak. ``cores`` is processor time by wall time.

``first_count_s``: from the start of ``fedapa serve`` as a process until its API tells a count, less
the 4 s of the first window; packets come all the time.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from fedapa.csi.capture import Capture
from fedapa.csi.nexmon_writer import write_nexmon
from fedapa.service.counter import CounterSettings
from fedapa.service.history import History
from fedapa.service.model_watch import ModelWatch
from fedapa.service.serving import Document, RoomServer, ServedRoom
from fedapa.service.sources import NexmonUdp

ROOMS, RATE, EVERY = 100, 100.0, 5.0
WINDOW, STRIDE = 400, 80
SETTLED = 30.0
"""s after which every room has counted several times; at most a quarter of the whole."""


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
        if not settled and time.monotonic() - began > min(SETTLED, 15 * minutes):
            settled = resident_mb()
    assert sender.exitcode == 0, "the sender failed"
    _drained(server)
    share = (time.process_time() - used) / (time.monotonic() - began)
    grown = resident_mb() - settled
    told = [room.document() for room in server.rooms.values()]
    never_came = sum(packets - one["packets"] for one in told)
    skipped = sum((Counter(one["skipped"]) for one in told), Counter[str]())
    # From a room's first count on there is one every 5 s.
    due = 1 + int((packets / RATE - WINDOW / RATE) // EVERY)
    came = Counter(room for room, _ in counts)
    late = sum(max(0, due - came[name]) for name in server.rooms)
    return {
        "lost": never_came + skipped.total() + late,
        "lost_by": {"never came": never_came, "counts": late, **skipped},
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


def first_count_s(model: Path, datagrams: list[bytes]) -> float:
    """Seconds from the start of the process to the first count, less those of a window."""
    port, page = _free_port(), _free_port(socket.SOCK_STREAM)
    packets = round(60 * RATE)
    sender = get_context("spawn").Process(target=replay, args=([port], datagrams, packets))
    sender.start()
    time.sleep(2.0)  # it is sending by now
    arguments = ["--run", str(model), "--source", f"udp:{port}", "--port", str(page)]
    history = model.with_name("first.db")
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "fedapa", "serve", *arguments, "--history", str(history)],
        stdout=subprocess.DEVNULL,
    )
    try:
        while not _has_counted(page):
            assert process.poll() is None, "the service ended"
            assert sender.is_alive(), "no count within a minute"
            time.sleep(0.02)
        return round(time.monotonic() - began - WINDOW / RATE, 2)
    finally:
        process.terminate()
        process.wait()
        sender.kill()
        sender.join()


def _has_counted(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/rooms", timeout=5) as answer:
            return json.load(answer)["rooms"][0]["count"] is not None
    except OSError:
        return False


def _free_port(kind: socket.SocketKind = socket.SOCK_DGRAM) -> int:
    with contextlib.closing(socket.socket(socket.AF_INET, kind)) as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])


def datagrams_of(capture: Capture, folder: Path) -> list[bytes]:
    """The UDP datagrams that a receiver would have sent."""
    path = folder / "replayed.pcap"
    write_nexmon(capture, path)
    data, at, made = path.read_bytes(), 24, []
    while at < len(data):
        size = int.from_bytes(data[at + 8 : at + 12], "little")
        made.append(data[at + 16 + 42 : at + 16 + size])
        at += 16 + size
    return made
