"""A room on its own machine: a SuperNode, and this process, which has what the SuperNode gets done.

It waits with little memory: neither torch nor Flower's libraries are here. A worker process comes
with the first message (working.py) and goes when there was none for a while. The SuperNode
reconnects by itself after an outage; when it ends, it is started again.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import IO, cast

from fedapa.errors import DataError, RunError
from fedapa.federation.network.child import end_child, start_child
from fedapa.federation.network.logs import keep_short
from fedapa.federation.network.place import Connection, Place, trouble_of, writing_trouble
from fedapa.federation.network.waiting import Waiting

__all__ = ["make_room_folder", "serve"]

Say = Callable[[str], None]

_POLL = 0.5
_LINGER = 300.0
"""Seconds without a message after which the worker, and torch with it, goes."""
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 30.0
"""Seconds until a SuperNode that ended is started again, the longer the more often it did."""
_STEADY = 60.0
"""Seconds that one lives for its end to be a new outage."""
_PATIENCE = 180.0
"""Seconds that a SuperNode may take to begin."""
_LOST = (b"Connection attempt failed", b"SSL/TLS handshake error")
_CONNECTED = (b"SuperNode ID:", b"Connection successful after")
"""What a SuperNode writes to its log when it cannot reach the server, and when it does."""
_NOT_TAKEN = b"Failed to activate SuperNode"
"""What it writes when the server has one with the same key, or had until a moment ago."""
_SILENT = 10.0
"""Seconds without an answer of a SuperNode that are worth a sentence: one that ends is not."""
_TOO_LONG = 45.0
"""Seconds without a connection after which a SuperNode is started again: one that gives up, e.g.
when a connection is cut while it begins, does not end by itself."""


def make_room_folder(folder: Path) -> str:
    """A key pair in a new folder; the public key as one line."""
    from fedapa.federation.network.certificates import make_room_key

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder}: is not empty; choose another folder for a new room")
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    return make_room_key(folder / "room.key")


def serve(place: Place, connection: Connection, say: Say, *, once: bool = False) -> None:
    """Serve until a signal ends it; says in sentences what happens.

    Args:
        place: which room, and where its things are.
        connection: the server.
        say: told what happens.
        once: give up when the server refuses the room, instead of trying again.
    """
    if not Path(place.folder).is_dir():
        raise DataError(
            f"{place.folder}: there is no such folder; make one with 'fedapa room init "
            f"{place.folder}'"
        )
    _end_by_signal()
    pause, first = _FIRST_PAUSE, True
    with contextlib.closing(_Worker(place, say)) as worker:
        while True:
            wrong = _looked_at(place, connection)
            if wrong is None:
                began = time.monotonic()
                try:
                    said = _live(place, connection, worker, say)
                except OSError as error:  # of its own files: the next look says more
                    said = trouble_of(error, Path(place.folder))
                pause = _FIRST_PAUSE if time.monotonic() - began > _STEADY else pause
            elif (first and wrong.kind == "data") or (once and wrong.kind == "refused"):
                raise wrong.error
            else:
                said = str(wrong.error)
            first = False
            say(f"{said}; trying again in {pause:.0f} s")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


class _Wrong:
    """Why a room cannot connect now."""

    def __init__(self, kind: str, sentence: str) -> None:
        self.kind = kind
        self.error = DataError(sentence) if kind == "data" else RunError(sentence)


def _looked_at(place: Place, connection: Connection) -> _Wrong | None:
    """What is wrong with the room's own things or with the server, as a process of its own found.

    See checking.py for what it looks at.
    """
    folder = Path(place.folder)
    if trouble := writing_trouble(folder):
        return _Wrong("data", trouble)
    log = folder / "log" / "check.log"
    try:
        looking = start_child(
            "check",
            [json.dumps(asdict(place)), connection.server, str(connection.authority)],
            log=log,
            home=folder / "flower",
            listening=True,
        )
    except OSError as error:  # e.g. a full disk: it may have room later
        return _Wrong("unreachable", f"{folder}: {trouble_of(error, folder)}")
    told, _ = looking.communicate()
    try:
        found: dict[str, str] = json.loads(told)
    except ValueError:
        return _Wrong("unreachable", f"the look at {connection.server} failed; see {log}")
    return next((_Wrong(kind, sentence) for kind, sentence in found.items()), None)


def _end_by_signal() -> None:
    def end(number: int, _: FrameType | None) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)


def _live(place: Place, connection: Connection, worker: "_Worker", say: Say) -> str:
    """One life of a SuperNode: everything that it gets is done, until it ends; says why it did."""
    folder, port = Path(place.folder), _free_port()
    log = folder / "log" / "supernode.log"
    node = start_child(
        "supernode",
        [
            f"--superlink={connection.server}",
            f"--root-certificates={connection.authority}",
            "--host=127.0.0.1",
            f"--port={port}",
            f"--auth-supernode-private-key={folder / 'room.key'}",
            "--isolation=process",
        ],
        log=log,
        home=folder / "flower",
    )
    try:
        with contextlib.closing(Waiting(port)) as waiting, log.open("rb") as written:
            first = written.seek(0, os.SEEK_END)
            _wait_for(node, port)
            connected: bool | None = None
            since = heard = time.monotonic()
            while node.poll() is None:
                if connected is False and time.monotonic() - since > _TOO_LONG:
                    break
                if (now := _is_connected(written, connected)) != connected:
                    connected, since = now, time.monotonic()
                    here = f"connected to {connection.server} as '{place.room}'; waiting"
                    lost = f"{connection.server} cannot be reached; trying again"
                    say(here if connected else lost)
                try:
                    token = waiting.acquire()
                    heard = time.monotonic()
                    if token is not None:
                        worker.do(f"127.0.0.1:{port}", token)
                        continue
                except ConnectionError as error:
                    if time.monotonic() - heard > _SILENT:
                        say(f"the SuperNode does not answer ({error}); see {log}")
                        heard = time.monotonic()
                worker.look()
                keep_short(log)
                time.sleep(_POLL)
            written.seek(min(first, log.stat().st_size))
            return _why_ended(connection.server, written.read())
    finally:
        end_child(node)


def _why_ended(server: str, written: bytes) -> str:
    """The reason in what a SuperNode wrote."""
    if _NOT_TAKEN in written:
        return (
            f"{server} still counts this room as connected: it was ended without a goodbye, which "
            "is forgotten after a minute, or another process has its key, which is to be ended"
        )
    return f"the connection to {server} ended"


def _is_connected(written: IO[bytes], before: bool | None) -> bool | None:
    """Whether the SuperNode has its server, by what it has written since the last look."""
    if written.tell() > os.fstat(written.fileno()).st_size:
        written.seek(0)  # it had become too long (logs.py)
    news = written.read()
    lost, here = (max(news.rfind(word) for word in words) for words in (_LOST, _CONNECTED))
    return before if lost == here else here > lost


def _free_port() -> int:
    with contextlib.closing(socket.socket()) as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])


def _wait_for(node: "subprocess.Popen[bytes]", port: int) -> None:
    until = time.monotonic() + _PATIENCE
    while node.poll() is None and time.monotonic() < until:
        with contextlib.closing(socket.socket()) as tried:
            tried.settimeout(1)
            if not tried.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(0.2)


class _Worker:
    """The process with torch: there while there is work, gone when there was none for a while."""

    def __init__(self, place: Place, say: Say) -> None:
        self._place, self._say = place, say
        self._log = Path(place.folder) / "log" / "worker.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._busy, self._used = False, 0.0

    def do(self, address: str, token: str) -> None:
        """Have a task done; what cannot be done the server asks again."""
        self.look()
        if self._process is None:
            self._start()
        self._used = time.monotonic()
        process = cast("subprocess.Popen[bytes]", self._process)
        with contextlib.suppress(OSError):  # it has just ended: the next look says so
            stream = cast(IO[bytes], process.stdin)
            stream.write(json.dumps([address, token]).encode() + b"\n")
            stream.flush()

    def _start(self) -> None:
        self._process = start_child(
            "worker",
            [json.dumps(asdict(self._place))],
            log=self._log,
            home=Path(self._place.folder) / "flower",
            listening=True,
        )
        self._busy = False
        threading.Thread(target=self._hear, args=(self._process,), daemon=True).start()

    def _hear(self, process: "subprocess.Popen[bytes]") -> None:
        for line in cast(IO[bytes], process.stdout):
            told = json.loads(line)
            self._used = time.monotonic()
            if "said" in told:
                self._say(told["said"])
            else:
                self._busy = bool(told["busy"])

    def look(self) -> None:
        """Let the worker go if it was idle for long; say so if it went by itself."""
        if self._process is None:
            return
        keep_short(self._log)
        if self._process.poll() is not None:
            self._say(f"the room's worker died, perhaps for lack of memory; see {self._log}")
            self.close()
        elif not self._busy and time.monotonic() - self._used > _LINGER:
            self.close()

    def close(self) -> None:
        """End the worker, if there is one."""
        if self._process is not None:
            end_child(self._process)
            with contextlib.suppress(OSError):  # closing writes what a dead worker did not take
                cast(IO[bytes], self._process.stdin).close()
        self._process = None
