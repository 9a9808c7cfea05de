"""A room on its own machine: a SuperNode, and this process, which does what the SuperNode gets.

It waits without torch; a worker process comes with the first message and goes when there was none
for a while. The SuperNode reconnects by itself after an outage; when it ends, it is started again.
"""

import contextlib
import json
import multiprocessing
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, cast

import httpx
import numpy as np
from flwr.app import Context, Message
from flwr.supercore.constant import TaskType

from fedapa import __version__, processes
from fedapa.errors import DataError, RunError
from fedapa.federation.engines.frames import EXCHANGE, REFUSED, Frames, pack
from fedapa.federation.network.app import app_bundle, make_client_app
from fedapa.federation.network.certificates import fingerprint, make_room_key, read_public_key
from fedapa.federation.network.child import end_child, start_child
from fedapa.federation.network.flower_calls import Tasks
from fedapa.federation.network.place import Place
from fedapa.federation.network.proxy import HELLO, clock_trouble
from fedapa.payload import Array, Tree, decode, encode

__all__ = ["Connection", "check_server", "make_room_folder", "serve"]

Say = Callable[[str], None]

_POLL = 0.5
_LINGER = 300.0
"""Seconds without a message after which the worker, and torch with it, goes."""
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 30.0
"""Seconds until a SuperNode that ended is started again."""
_PATIENCE = 180.0
"""Seconds that a SuperNode may take to begin."""


@dataclass(frozen=True)
class Connection:
    """Where the server is, and what it is known by."""

    server: str
    """HOST:PORT."""
    authority: Path
    """The server's ca.crt."""

    def __post_init__(self) -> None:
        """Refuse what is no address, and a certificate that is not there."""
        host, colon, port = self.server.rpartition(":")
        if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise DataError(f"--server {self.server}: expected HOST:PORT, e.g. example.org:8443")
        if not self.authority.is_file():
            raise DataError(
                f"{self.authority}: no such file; expected the ca.crt of the server's folder"
            )


def make_room_folder(folder: Path) -> str:
    """A key pair in a new folder; the public key as one line."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder}: is not empty; choose another folder for a new room")
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    return make_room_key(folder / "room.key")


def check_server(connection: Connection, folder: Path, room: str) -> None:
    """Refuse, with the reason, a server that would refuse us or that is not ours."""
    where = connection.server
    try:
        context = ssl.create_default_context(cafile=str(connection.authority))
        with httpx.Client(base_url=f"https://{where}", verify=context, timeout=10) as client:
            about = client.get(HELLO).raise_for_status().json()
            now = time.time()
            own = _own_key(folder)
            enrolled = client.get(f"{HELLO}/{fingerprint(own)}")
    except ssl.SSLError as error:
        raise RunError(f"{connection.authority}: holds no certificate ({error})") from error
    except httpx.ConnectError as error:
        if "certificate" in str(error).lower():
            raise RunError(
                f"{where}: its certificate is not of the authority in {connection.authority} "
                f"({error}); get ca.crt from whoever runs the server, and call the server by the "
                "name in its certificate"
            ) from error
        raise _UnreachableError(f"{where}: cannot be reached ({error})") from error
    except (httpx.HTTPError, ValueError) as error:
        raise _UnreachableError(
            f"{where}: does not answer as a server of fedapa ({error})"
        ) from error
    if trouble := clock_trouble(now - float(about["time"])):
        raise RunError(f"{where}: {trouble}")
    if about["release"] != __version__ or about["app"] != app_bundle()[1]:
        raise RunError(
            f"{where}: has fedapa {about['release']} (app {about['app'][:12]}), this room has "
            f"{__version__} (app {app_bundle()[1][:12]}); install the same release on both"
        )
    if enrolled.status_code == 404:
        raise RunError(
            f"{where}: does not know the key of this room; hand {folder / 'room.pub'} to whoever "
            "runs the server: fedapa server enrol DIR room.pub --name NAME"
        )
    if (known := enrolled.json().get("room")) != room:
        raise RunError(
            f"{where}: knows this room as '{known}', and it is started as '{room}'; start it with "
            f"--room '{known}', or have the key enrolled by the other name"
        )


class _UnreachableError(RunError):
    """The server may be back soon."""


def serve(place: Place, connection: Connection, say: Say, *, once: bool = False) -> None:
    """Serve until a signal ends it; says in sentences what happens.

    Args:
        place: which room, and where its things are.
        connection: the server.
        say: told what happens.
        once: give up when the server refuses the room, instead of trying again.
    """
    _check_place(place)
    _end_by_signal()
    pause = _FIRST_PAUSE
    with _Worker() as worker:
        app = make_client_app(worker.answer)
        while True:
            try:
                check_server(connection, Path(place.folder), place.room)
                began = time.monotonic()
                _live(place, connection, app, worker, say)
                pause = _FIRST_PAUSE if time.monotonic() - began > _PATIENCE else pause
                said = f"the connection to {connection.server} ended"
            except RunError as error:
                if once and not isinstance(error, _UnreachableError):
                    raise
                said = str(error)
            say(f"{said}; trying again in {pause:.0f} s")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _check_place(place: Place) -> None:
    """Refuse a store without this room before anybody is asked."""
    from fedapa.stores.store import Store
    from fedapa.windows.labels import choose_rooms

    with Store(Path(place.data)) as store:
        choose_rooms(store.rooms, only=[place.room], without=None, place=place.data)
    _own_key(Path(place.folder))


def _own_key(folder: Path) -> bytes:
    path = folder / "room.pub"
    if not path.is_file() or not (folder / "room.key").is_file():
        raise DataError(f"{folder}: holds no key; make one with 'fedapa room init {folder}'")
    return read_public_key(path.read_text(), str(path))


def _end_by_signal() -> None:
    def end(number: int, _: FrameType | None) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)


def _live(
    place: Place,
    connection: Connection,
    app: Callable[[Message, Context], Message],
    worker: "_Worker",
    say: Say,
) -> None:
    """One life of a SuperNode: everything that it gets is done, until it ends."""
    folder, port = Path(place.folder), _free_port()
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
        log=folder / "log" / "supernode.log",
        home=folder / "flower",
    )

    def work(message: Message, context: Context, app_hash: str) -> Message:
        return _done(place, app, say, message, context, app_hash)

    def do(token: str) -> None:
        try:
            tasks.answer(token, work)
        except Exception as error:  # of one message; the next one may be fine
            say(f"a message was lost ({type(error).__name__}: {error})"[:300])

    tasks = Tasks(f"127.0.0.1:{port}", TaskType.CLIENT_APP)
    try:
        with contextlib.closing(tasks):
            _wait_for(node, port)
            say(f"connected to {connection.server} as '{place.room}'; waiting")
            while node.poll() is None:
                try:
                    token = tasks.acquire()
                    if token is not None:
                        # In a thread: a message that a dead server began to send never comes, and
                        # Flower waits for it for two hours.
                        threading.Thread(target=do, args=(token,), daemon=True).start()
                        continue
                except httpx.HTTPError as error:
                    if node.poll() is None:
                        say(f"the SuperNode does not answer ({error})")
                worker.rest()
                time.sleep(_POLL)
    finally:
        end_child(node)


def _done(
    place: Place,
    app: Callable[[Message, Context], Message],
    say: Say,
    message: Message,
    context: Context,
    app_hash: str,
) -> Message:
    """The reply to a message of a server that has our app; one with another is refused."""
    if app_hash != app_bundle()[1]:
        reason = (
            f"the server's app {app_hash[:12]} is not that of fedapa {__version__} "
            f"({app_bundle()[1][:12]}); install the same release on both"
        )
        say(f"refused: {reason}")
        return Message(pack({REFUSED: reason.encode()}), reply_to=message)
    context.node_config = {name: str(value) for name, value in asdict(place).items()}
    asked = message.metadata.message_type == EXCHANGE
    say(f"round {message.metadata.group_id}: working" if asked else "telling what data there is")
    began = time.monotonic()
    reply = app(message, context)
    say(f"answered after {time.monotonic() - began:.1f} s; waiting")
    return reply


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

    def __init__(self) -> None:
        self._ends = contextlib.ExitStack()
        self._workers: processes.Workers | None = None
        self._used = 0.0
        self._busy = threading.Lock()

    def __enter__(self) -> "_Worker":
        return self

    def __exit__(self, *details: Any) -> None:
        self._ends.__exit__(*details)

    def answer(self, place: Place, action: str, frames: Frames) -> Frames:
        """What the room answers, made in the worker, one message at a time."""
        with self._busy:
            return self._answered(place, action, frames)

    def _answered(self, place: Place, action: str, frames: Frames) -> Frames:
        if self._workers is None:
            # Spawned: a server to fork workers from would keep torch in memory.
            self._workers = self._ends.enter_context(
                processes.Workers(
                    1,
                    context=multiprocessing.get_context("spawn"),
                    initializer=processes.start_training_worker,
                    initargs=(processes.variables(),),
                )
            )
        try:
            packed = encode({name: np.frombuffer(each, np.uint8) for name, each in frames.items()})
            job = self._workers.submit(_answer, json.dumps(asdict(place)), action, packed)
            answered: Tree = decode(job.result(), "answer of the worker")
        except BrokenProcessPool as error:
            self._end()
            raise RunError("the room's worker died, perhaps for lack of memory") from error
        finally:
            self._used = time.monotonic()
        return {name: cast(Array, value).tobytes() for name, value in answered.items()}

    def rest(self) -> None:
        """Let the worker go if it was idle for long."""
        idle = self._workers is not None and time.monotonic() - self._used > _LINGER
        if idle and self._busy.acquire(blocking=False):
            try:
                self._end()
            finally:
                self._busy.release()

    def _end(self) -> None:
        self._workers = None
        self._ends.close()


def _answer(place: str, action: str, frames: bytes) -> bytes:
    """In the worker: the answer to one message."""
    from fedapa.federation.network.answering import answer

    given: Tree = decode(frames, "message")
    asked = {name: cast(Array, value).tobytes() for name, value in given.items()}
    answered = answer(Place(**json.loads(place)), action, asked)
    return encode({name: np.frombuffer(each, np.uint8) for name, each in answered.items()})
