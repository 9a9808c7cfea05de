"""What the doctor finds, each with a remedy."""

import contextlib
import datetime
import socket
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedapa.cli import app
from fedapa.federation.network import doctor
from fedapa.federation.network.doctor import Finding, examine
from fedapa.federation.network.room import make_room_folder
from fedapa.federation.network.server_folder import ServerFolder, Settings
from tests.federation.network.loopback import free_port


def bad(findings: list[Finding]) -> dict[str, str]:
    return {finding.what: finding.said for finding in findings if finding.bad}


@pytest.fixture
def server(tmp_path: Path) -> ServerFolder:
    settings = Settings("localhost", free_port(), "127.0.0.1", free_port())
    return ServerFolder.make(tmp_path / "server", settings)


def test_a_new_server_and_a_new_room_are_well(server: ServerFolder, tmp_path: Path) -> None:
    make_room_folder(tmp_path / "room")
    assert bad(examine(server.path)) == {}
    assert bad(examine(tmp_path / "room")) == {}


def test_what_is_wrong_has_a_remedy(
    server: ServerFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (server.path / "server.key").chmod(0o644)
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=3)
    monkeypatch.setattr(doctor, "last_day", lambda path: soon)
    monkeypatch.setattr(doctor, "_LITTLE", 1 << 80)
    with contextlib.closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", server.settings.port))
        taken.listen()
        found = bad(examine(server.path))
    assert "chmod 600" in found["key"]
    (server.path / "server.key").chmod(0o600)
    (server.path / "ca.key").chmod(0o644)
    assert "ca.key" in bad(examine(server.path))["key"]
    (server.path / "ca.key").unlink()
    assert "key" not in bad(examine(server.path)), "it may be kept elsewhere"
    assert "make a new server folder" in found["certificate"]
    assert "make room" in found["disk"]
    assert "is taken by another program" in found["port"]
    assert "fedapa room init" in bad(examine(tmp_path / "nothing"))["public key"]


def test_a_server_that_cannot_be_reached_and_a_clock_that_is_off(
    server: ServerFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = bad(examine(server="localhost:1", authority=server.authority))
    assert "cannot be reached" in found["server"]
    assert "--ca ca.crt" in bad(examine(server="localhost:1"))["server"]
    odd = bad(examine(server="localhost:port", authority=server.authority))
    assert "is it HOST:PORT" in odd["server"]

    class Fast:
        def __init__(self, **_: Any) -> None: ...

        def __enter__(self) -> "Fast":
            return self

        def __exit__(self, *_: object) -> None: ...

        def get(self, path: str) -> Any:
            import time

            import httpx

            told = {"time": time.time() - 3600, "release": "9.9", "app": "x"}
            return httpx.Response(200, json=told, request=httpx.Request("GET", "http://x"))

    monkeypatch.setattr(doctor.httpx, "Client", Fast)
    found = bad(examine(server="localhost:1", authority=server.authority))
    assert "3600 s ahead of" in found["clock"]
    assert "the server has fedapa 9.9" in found["release"]


def test_the_command_ends_with_1_where_something_is_wrong(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["doctor", str(tmp_path / "nothing"), "--json"])
    assert done.exit_code == 1
    assert '"bad": true' in done.output
