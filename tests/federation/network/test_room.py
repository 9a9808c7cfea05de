"""A room's own process: whose app it answers, and how it begins."""

import contextlib
import datetime
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import Context, Message, RecordDict
from flwr.proto.runtime_pb2 import AcquireTaskRequest, AcquireTaskResponse
from flwr.proto.task_pb2 import Task
from flwr.supercore.constant import TaskType
from flwr.supercore.runtime_version_compatibility import RuntimeVersionMetadata
from flwr.supercore.task_identity import TaskIdentity

from fedapa.errors import DataError, RunError
from fedapa.federation.engines.frames import REFUSED, TELL, pack, unpack
from fedapa.federation.network import certificates, waiting
from fedapa.federation.network.app import app_bundle, make_client_app
from fedapa.federation.network.checking import check_place, check_server
from fedapa.federation.network.place import Connection, Place
from fedapa.federation.network.room import (
    _is_connected,
    _why_ended,
    _Worker,
    make_room_folder,
)
from fedapa.federation.network.server_folder import ServerFolder, Settings
from fedapa.federation.network.working import done as done_by_room
from tests.conftest import MakeStore
from tests.federation.fake_grid import through_codec


def asked() -> Message:
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    return through_codec(Message(pack({"plan": b""}), 7, TELL), "message 1")


def test_only_the_app_of_the_installed_release_is_answered() -> None:
    """With another hash nothing is done: no frame of the message is even looked at."""
    place, done, said = Place("cafe", "rooms.h5", "cafe"), [], []

    def answering(*arguments: Any) -> dict[str, bytes]:
        done.append(arguments)
        return {"card": b"told"}

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
    assert done[0][0] == place, "which room it is says its owner, not the server"


def test_a_room_without_a_key_or_without_its_data_does_not_start(
    make_store: MakeStore, tmp_path: Path
) -> None:
    store = make_store()
    with pytest.raises(DataError, match="holds no key; make one with 'fedapa room init"):
        check_place(Place("cafe", str(store), str(tmp_path / "none")))
    make_room_folder(tmp_path / "cafe")
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


def test_a_room_says_why_the_server_does_not_take_it() -> None:
    wrote = b"Exit Code: 305\n[code: 2004] Failed to activate SuperNode.\n"
    assert "another process has its key" in _why_ended("localhost:1", wrote)
    assert _why_ended("localhost:1", b"") == "the connection to localhost:1 ended"


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
