"""``fedapa serve`` as a process on loopback: it counts, it tells, it ends."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedapa import Plan, run
from fedapa.cli import network
from fedapa.errors import PlanError
from tests.conftest import hear_ctrl_c

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One small simulated room, whose models are worth nothing."""
    out = tmp_path_factory.mktemp("smoke") / "run"
    data = {"simulated": "smoke", "only": ["hotel room"], "split": "recording"}
    run(Plan(rounds=1, algorithm="local", data=data), out=out, workers=0)
    return out


def started(*arguments: str, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "fedapa", "serve", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
        preexec_fn=hear_ctrl_c,
    )


def ask(address: str, path: str, **headers: str) -> Any:
    request = urllib.request.Request(address + path, headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read())


def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.2)


def test_a_run_is_served_until_ctrl_c(smoke: Path) -> None:
    """One process: the address, a count, events, a refused name, and a clean end."""
    process = started("--run", str(smoke), "--source", "simulator", "--port", "0", "--every", "1")
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.startswith("1 SIMULATED room (hotel room): http://127.0.0.1:")
        address = first.split()[-1].rstrip("/")
        until(lambda: ask(address, "/api/rooms")["rooms"][0]["count"] is not None)
        room = ask(address, "/api/rooms/hotel%20room")
        assert room["source"] == "SIMULATED hotel room"
        assert room["synthetic"] is True
        assert room["true_people"] is not None
        with urllib.request.urlopen(f"{address}/api/events", timeout=10) as stream:
            lines = [stream.readline().decode().strip() for _ in range(2)]
        assert lines[0] == "event: count"
        assert json.loads(lines[1].removeprefix("data: "))["room"] == "hotel room"
        with pytest.raises(urllib.error.HTTPError, match="421"):
            ask(address, "/api/rooms", Host="evil.example")
        until(lambda: len(ask(address, "/api/rooms/hotel%20room/history")["times"]) > 0)
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
        assert process.returncode == 0
        assert rest.splitlines()[-1] == "stopped"
        assert "Traceback" not in rest
        assert (smoke / "live" / "counts.db").is_file()
    finally:
        process.kill()
        process.wait()


def test_without_a_source_the_training_of_a_run_without_models_is_served(
    smoke: Path, tmp_path: Path
) -> None:
    """As of a run that goes on; nothing is written into its folder."""
    folder = shutil.copytree(smoke, tmp_path / "ours", ignore=lambda *_: ["models", "live"])
    process = started("--run", str(folder), "--port", "0")
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.startswith("Training of ours: http://127.0.0.1:")
        address = first.split()[-1].removesuffix("/#/training")
        training = ask(address, "/api/training")
        assert (training["rooms"], training["rounds"]) == (["hotel room"], [1])
        assert ask(address, "/api/rooms")["rooms"] == []
        assert ask(address, "/healthz")["status"] == "ok"
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
        assert (process.returncode, rest.splitlines()[-1]) == (0, "stopped")
        assert not (folder / "live").exists()
    finally:
        process.kill()
        process.wait()


def test_another_address_needs_a_token_that_is_printed_once(smoke: Path) -> None:
    arguments = ("--run", str(smoke), "--source", "simulator", "--port", "0")
    process = started(*arguments, "--host", "0.0.0.0")
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        found = re.search(r":(\d+)/\?token=(\S+)", first)
        assert found, first
        address = f"http://127.0.0.1:{found[1]}"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            ask(address, "/api/rooms")
        assert ask(address, "/api/rooms", Authorization=f"Bearer {found[2]}")["rooms"]
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=30)
        assert process.returncode == 0
        assert found[2] not in rest
    finally:
        process.kill()
        process.wait()


def test_a_room_that_learns_may_count_beside(
    smoke: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ``room start --serve`` starts: a child on the room's folder, which ends with it."""
    monkeypatch.setattr(network, "_MISTAKES_TOLD", 1.0)
    (tmp_path / "room.pub").write_text("key")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"

    def reason() -> str:
        try:
            return str(ask(address, "/api/rooms")["rooms"][0]["reason"])
        except OSError:
            return ""

    counting = network._counting_beside(
        tmp_path, "hotel room", "simulator:smoke", ["--host", "127.0.0.1", "--port", str(port)]
    )
    with counting:
        until(lambda: reason() == "there is no model of this room yet")
        model = tmp_path / "models" / "run" / "hotel room.safetensors"
        model.parent.mkdir(parents=True)
        shutil.copyfile(smoke / "models" / "hotel room.safetensors", model)
        until(lambda: ask(address, "/api/rooms")["rooms"][0]["model"] is not None)
    with pytest.raises(OSError, match="refused"):
        ask(address, "/api/rooms")
    with pytest.raises(PlanError, match="say where packets come from"):
        network._counting_beside(tmp_path, "hotel room", None, []).__enter__()


def test_what_cannot_be_served_is_one_sentence_and_code_2(smoke: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        process = started("--run", str(smoke), "--source", "simulator", "--port", port)
        told, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert told.startswith(f"fedapa: 127.0.0.1:{port}: cannot be served at")
    assert len(told.splitlines()) == 1
