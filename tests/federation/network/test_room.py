"""A room's own process: whose app it answers, and how it begins."""

import contextlib
import datetime
import errno
import os
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from flwr.app import Context, Message, RecordDict
from flwr.proto.runtime_pb2 import AcquireTaskRequest, AcquireTaskResponse
from flwr.proto.task_pb2 import Task
from flwr.supercore.constant import TaskType
from flwr.supercore.runtime_version_compatibility import RuntimeVersionMetadata
from flwr.supercore.task_identity import TaskIdentity

from fedapa.errors import DataError, RunError
from fedapa.federation.engines.frames import REFUSED, TELL, pack, unpack
from fedapa.federation.network import certificates, logs, room, waiting
from fedapa.federation.network.app import app_bundle, make_client_app
from fedapa.federation.network.checking import check_place, check_server
from fedapa.federation.network.place import Connection, Place
from fedapa.federation.network.room import (
    _is_connected,
    _why_ended,
    _Worker,
    make_room_folder,
    serve,
)
from fedapa.federation.network.server_folder import ServerFolder, Settings
from fedapa.federation.network.working import done as done_by_room
from tests.conftest import MakeStore
from tests.federation.fake_grid import through_codec


def asked() -> Message:
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    return through_codec(Message(pack({"plan": b""}), 7, TELL), "message 1")


@pytest.mark.parametrize("limit", [None, 10.0])
def test_only_the_app_of_the_installed_release_is_answered(limit: float | None) -> None:
    """With another hash nothing is done: no frame of the message is even looked at."""
    place, done, said = Place("cafe", "rooms.h5", "cafe", epsilon=limit), [], []
    told = {"card": b"told"}

    def answering(*arguments: Any) -> dict[str, bytes]:
        done.append(arguments)
        return told

    def reply(app_hash: str) -> dict[str, bytes]:
        context = Context(1, 7, {"room": "the server's word"}, RecordDict(), {})
        app = make_client_app(answering)
        return unpack(
            done_by_room(place, app, said.append, asked(), context, app_hash).content, "reply"
        )

    refused = reply("0" * 64)[REFUSED].decode()
    assert "the server's app 000000000000 is not that of fedapa" in refused
    assert not done
    assert said == [f"refused: {refused}"]
    assert reply(app_bundle()[1]) == {"card": b"told"}
    assert done[0][0] == place, "which room it is, and what may leave, says its owner"
    told[REFUSED] = told.pop("card")
    assert reply(app_bundle()[1]) == {REFUSED: b"told"}
    assert said[-1] == "could not answer: told; waiting", "its owner reads it, too"


def test_a_room_without_a_key_or_without_its_data_does_not_start(
    make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store()
    with pytest.raises(DataError, match="holds no key; make one with 'fedapa room init"):
        check_place(Place("cafe", str(store), str(tmp_path / "none")))
    make_room_folder(tmp_path / "cafe")
    check_place(Place("cafe", str(store), str(tmp_path / "cafe")))
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)
        with pytest.raises(DataError, match=r"room\.key: user \d+ may not read it; .*chown -R"):
            check_place(Place("cafe", str(store), str(tmp_path / "cafe")))
    with pytest.raises(DataError, match="there is no room 'caffe'; did you mean 'cafe'"):
        check_place(Place("caffe", str(store), str(tmp_path / "cafe")))


def test_a_certificate_that_is_not_there_is_named(tmp_path: Path) -> None:
    made = ServerFolder.make(tmp_path / "server", Settings("localhost"))
    Connection("localhost:8443", made.authority)
    with pytest.raises(DataError, match=r"expected the ca\.crt of the server"):
        Connection("localhost:8443", tmp_path / "ca.crt")


def test_a_room_that_waits_asks_for_work_as_flower_does() -> None:
    """Byte by byte, though without Flower's libraries."""
    types = [TaskType.CLIENT_APP.value]
    assert waiting.request_bytes() == AcquireTaskRequest(
        supported_task_types=types
    ).SerializeToString(deterministic=True)
    task = Task(task_id=2**40, type=types[0], run_id=7)
    given = AcquireTaskResponse(task=task, token="t" * 300).SerializeToString()
    assert waiting.token_of(given) == "t" * 300
    assert waiting.token_of(AcquireTaskResponse().SerializeToString()) is None
    with pytest.raises(ConnectionError, match="none of Flower's"):
        waiting.token_of(b"<html>")
    with pytest.raises(ConnectionError, match="cut short"):
        waiting.token_of(given[:1])
    metadata = RuntimeVersionMetadata.from_local_component(types[0]).as_metadata()
    assert dict(metadata).items() <= waiting.Waiting(1)._headers.items()


def test_a_room_that_waits_has_neither_torch_nor_flower_nor_numpy() -> None:
    """They would take four times the memory that it has: docs/deploy.md."""
    modules = "fedapa.cli, fedapa.federation.network.room, fedapa.federation.network.place, sys"
    heavy = "{'torch', 'flwr', 'numpy', 'httpx', 'cryptography', 'h5py', 'pydantic'}"
    done = subprocess.run(
        [sys.executable, "-c", f"import {modules}; print({heavy} & set(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.strip() == "set()"


def test_a_certificate_that_is_not_valid_yet_is_a_question_of_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small computer without a clock of its own begins in the past, before there was a server."""

    def tomorrow(zone: datetime.tzinfo) -> datetime.datetime:
        return datetime.datetime.now(zone) + datetime.timedelta(days=1)

    clock = SimpleNamespace(
        datetime=SimpleNamespace(now=tomorrow), timedelta=datetime.timedelta, UTC=datetime.UTC
    )
    make_room_folder(tmp_path / "cafe")
    with monkeypatch.context() as patch:
        patch.setattr(certificates, "datetime", clock)
        made = ServerFolder.make(tmp_path / "server", Settings("localhost"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made.path / "server.crt", made.path / "server.key")
    listening = socket.create_server(("127.0.0.1", 0))

    def greet() -> None:
        with contextlib.suppress(OSError):
            while True:
                context.wrap_socket(listening.accept()[0], server_side=True).close()

    with contextlib.closing(listening):
        threading.Thread(target=greet, daemon=True).start()
        connection = Connection(f"localhost:{listening.getsockname()[1]}", made.authority)
        with pytest.raises(RunError, match=r"is not valid at this machine's time.*set the clock"):
            check_server(connection, tmp_path / "cafe", "cafe")


def test_a_room_knows_from_the_log_whether_its_node_is_connected(tmp_path: Path) -> None:
    log = tmp_path / "supernode.log"
    log.write_bytes(b"")
    with log.open("rb") as written, log.open("ab", buffering=0) as node:
        assert _is_connected(written, None) is None
        node.write(b"INFO: SuperNode ID: 7\n")
        assert _is_connected(written, None) is True
        assert _is_connected(written, True) is True, "nothing new"
        node.write(b"WARNING: Connection attempt failed, retrying in 1 s\n")
        assert _is_connected(written, True) is False
        node.write(b"Connection attempt failed\nConnection successful after 3 s\n")
        assert _is_connected(written, False) is True
        node.write(b"ERROR: SSL/TLS handshake error detected.\n")
        assert _is_connected(written, True) is False, "it does not end by itself, and hears nobody"
        os.truncate(log, 0)
        node.write(b"Connection attempt failed\n")
        assert _is_connected(written, True) is False, "in a log that had become too long, too"


def test_a_room_says_why_the_server_does_not_take_it() -> None:
    wrote = b"Exit Code: 305\n[code: 2004] Failed to activate SuperNode.\n"
    assert "another process has its key" in _why_ended("localhost:1", wrote)
    assert _why_ended("localhost:1", b"") == "the connection to localhost:1 ended"


class Node:
    """A SuperNode that lives for a few looks."""

    def __init__(self, looks: int) -> None:
        self._looks = looks

    def poll(self) -> int | None:
        self._looks -= 1
        return None if self._looks >= 0 else 0


def test_the_logs_of_a_room_stay_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ServerFolder.make(tmp_path / "server", Settings("localhost"))
    monkeypatch.setattr(logs, "LONGEST_LOG", 100)
    monkeypatch.setattr(room, "_POLL", 0.0)
    monkeypatch.setattr(room, "_wait_for", lambda *_: None)

    def start(program: str, *_: Any, log: Path, **__: Any) -> Node:
        log.parent.mkdir(exist_ok=True)
        log.write_text(f"{program}\n" * 100)
        return Node(3)

    monkeypatch.setattr(room, "start_child", start)
    said: list[str] = []
    worker = _Worker(Place("cafe", "rooms.h5", str(tmp_path)), said.append)
    worker._log.parent.mkdir()
    worker._log.write_text("x" * 101)
    worker._process, worker._busy = cast("subprocess.Popen[bytes]", Node(99)), True
    place = Place("cafe", "rooms.h5", str(tmp_path))
    room._live(place, Connection("localhost:1", made.authority), worker, said.append)
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "log").iterdir()}
    assert (sizes["supernode.log"], sizes["worker.log"]) == (0, 0)


@pytest.fixture
def unwritable(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """Places that may not be written, for whoever runs the test."""
    places: set[Path] = set()
    allowed = os.access
    monkeypatch.setattr(room, "_end_by_signal", lambda: None)
    monkeypatch.setattr(
        os, "access", lambda path, mode: Path(path) not in places and allowed(path, mode)
    )
    return places


@pytest.mark.parametrize("place", [".", "log", "log/supernode.log", "states/run"])
def test_a_room_that_may_not_write_ends_with_a_sentence(
    tmp_path: Path, unwritable: set[Path], place: str
) -> None:
    made = ServerFolder.make(tmp_path / "server", Settings("localhost"))
    folder = tmp_path / "living room"
    make_room_folder(folder)
    (folder / "states" / "run").mkdir(parents=True)
    (folder / "log").mkdir()
    (folder / "log" / "supernode.log").touch()
    unwritable.add(folder / place)
    said: list[str] = []
    with pytest.raises(DataError) as refused:
        serve(
            Place("cafe", "rooms.h5", str(folder)),
            Connection("localhost:8443", made.authority),
            said.append,
        )
    user = os.geteuid()
    assert str(refused.value).startswith(f"{folder / place}: user {user} may not write there")
    assert str(refused.value).endswith(f"chown -R {user} '{folder}'")
    assert not said


def test_a_room_whose_folder_becomes_read_only_says_so_and_tries_again(
    tmp_path: Path, unwritable: set[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ServerFolder.make(tmp_path / "server", Settings("localhost"))
    make_room_folder(tmp_path / "cafe")

    def live(*_: Any) -> str:
        unwritable.add(tmp_path / "cafe")
        raise OSError(errno.EROFS, "Read-only file system")

    def sleep(_: float) -> None:
        if len(said) == 2:
            raise KeyboardInterrupt

    look = SimpleNamespace(communicate=lambda: (b"{}", None))
    monkeypatch.setattr(room, "start_child", lambda *_, **__: look)
    monkeypatch.setattr(room, "_live", live)
    monkeypatch.setattr(room, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: 0.0))
    readonly = SimpleNamespace(f_flag=os.ST_RDONLY)
    monkeypatch.setattr(os, "statvfs", lambda _: readonly)
    said: list[str] = []
    place = Place("cafe", "rooms.h5", str(tmp_path / "cafe"))
    with pytest.raises(KeyboardInterrupt):
        serve(place, Connection("localhost:8443", made.authority), said.append)
    sentence = f"{tmp_path / 'cafe'}: is on a file system that is mounted read-only"
    assert [one.startswith(sentence) for one in said] == [True, True]
    assert "; trying again in 4 s" in said[1]


def test_a_worker_that_died_with_a_task_unread_ends_nothing_else(tmp_path: Path) -> None:
    """What it did not take would be written once more when its stream is closed."""
    said: list[str] = []
    worker = _Worker(Place("cafe", "rooms.h5", str(tmp_path)), said.append)
    command = [sys.executable, "-c", "pass"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as dead:
        dead.wait()
        worker._process = dead
        assert dead.stdin is not None
        dead.stdin.write(b"a task\n")
        worker.look()
        assert "the room's worker died" in said[0]
        assert worker._process is None
