"""A real server and real rooms on this machine, for tests: free ports, ended by process id."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedapa.federation.network.operating import begin_run, status_of
from fedapa.federation.network.room import make_room_folder
from fedapa.federation.network.server_folder import ServerFolder, Settings

PATIENCE = 480.0
"""Seconds for one thing to happen; a quiet machine needs a tenth."""


def free_port() -> int:
    with contextlib.closing(socket.socket()) as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])


def wait_until(happened: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
    until = time.monotonic() + patience
    while time.monotonic() < until:
        if found := happened():
            return found
        time.sleep(0.3)  # asking is work for a server, too
    raise AssertionError(f"waited {patience:.0f} s for: {what}")


def _hang_up(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.closing(end), contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)  # else whoever waits for bytes waits on


class Cable:
    """A port that leads to another one, until it is cut; ends that are closed are forgotten."""

    def __init__(self, target: int) -> None:
        self.port, self._target, self._cut = free_port(), target, False
        self._ends: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            if self._cut:
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:  # the server is down just now
                near.close()
                continue
            self._ends = [end for end in self._ends if end.fileno() >= 0] + [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while content := one.recv(65536):
                other.sendall(content)
        except OSError:
            pass
        finally:
            _hang_up(one, other)

    def part(self) -> None:
        """Nothing goes through until it is mended."""
        self._cut = True
        _hang_up(*self._ends)

    def mend(self) -> None:
        self._cut = False

    def cut(self, seconds: float) -> None:
        self.part()
        time.sleep(seconds)
        self.mend()

    def close(self) -> None:
        self._listening.close()


@dataclass
class Federation:
    """One server and its rooms."""

    folder: Path
    store: Path
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        settings = Settings("localhost", free_port(), "127.0.0.1", free_port())
        self.server = ServerFolder.make(self.folder / "server", settings)
        self.address = f"localhost:{settings.port}"

    def enrol(self, room: str) -> None:
        self.server.enrol(make_room_folder(self.folder / room), room)

    def start_server(self) -> None:
        self._start("server", {}, "server", "start", str(self.server.path))
        log = self.folder / "server.out"
        wait_until(lambda: "listening" in log.read_text(), f"the server, see {log}")

    def start_room(self, room: str, **variables: str) -> None:
        self._start(
            room,
            variables,
            "room",
            "start",
            str(self.folder / room),
            f"--server={self.address}",
            f"--ca={self.server.authority}",
            f"--data={self.store}",
            f"--room={room}",
        )

    def _start(self, name: str, variables: dict[str, str], *arguments: str) -> None:
        out = self.folder / f"{name}.out"
        out.write_text("")
        with out.open("ab") as stream:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "fedapa", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **variables},
            )

    def kill(self, name: str) -> None:
        """Without a chance to say goodbye."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def stop(self, name: str) -> None:
        """With a goodbye: its SuperNode is known to be gone at once."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=PATIENCE)

    def said(self, name: str) -> str:
        """What a process printed since it was started last."""
        return (self.folder / f"{name}.out").read_text()

    def wait_for_rooms(self, *rooms: str) -> None:
        wait_until(lambda: all(self.status()["rooms"][room]["online"] for room in rooms), "rooms")

    def status(self) -> dict[str, Any]:
        return status_of(self.server)

    def begin(self, plan: Path) -> Path:
        """Begin a run; its directory."""
        wait_until(lambda: len(self.server.nodes()) >= 3, "rooms to be known to the SuperLink")
        begin_run(self.server, plan, plan.stem)
        return self.server.run(plan.stem)

    def wait_for_round(self, out: Path, number: int) -> None:
        """Until the checkpoint after this exchange is written."""
        times = out / "seconds.jsonl"

        def done() -> bool:
            return times.is_file() and len(times.read_text().splitlines()) >= number

        wait_until(done, f"exchange {number}, see {self.server.log('run')}")

    def wait_for_end(self) -> None:
        def ended() -> bool:
            state = self.server.status().get("state")
            assert state != "failed", self.server.status()
            return state == "finished"

        wait_until(ended, f"the end of the run, see {self.server.log('run')}")

    def end(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
