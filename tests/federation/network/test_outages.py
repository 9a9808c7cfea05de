"""Outages that take minutes: `make test-network`, not `make test`."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fedapa.evaluation.record import JsonLines
from tests.federation.network.loopback import Federation, free_port, wait_until
from tests.federation.network.test_loopback import child_of, plan_file
from tests.federation.test_flower import THREE

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.timeout(1800)]


class Cable:
    """A port that leads to another one, until it is cut."""

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
            far = socket.create_connection(("127.0.0.1", self._target))
            self._ends += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while content := one.recv(65536):
                other.sendall(content)
        except OSError:
            pass
        finally:
            for end in (one, other):
                with closing(end):
                    pass

    def cut(self, seconds: float) -> None:
        self._cut = True
        for end in self._ends:
            with closing(end):
                pass
        time.sleep(seconds)
        self._cut = False

    def close(self) -> None:
        self._listening.close()


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Iterator[Federation]:
    """Room 'lab' is at the end of a cable that can be cut."""
    made = Federation(tmp_path_factory.mktemp("network"), store)
    made.cable = cable = Cable(made.server.settings.port)  # type: ignore[attr-defined]
    for room in THREE:
        made.enrol(room)
    try:
        made.start_server()
        direct = made.address
        for room in THREE:
            made.address = f"localhost:{cable.port}" if room == "lab" else direct
            made.start_room(room)
        made.address = direct
        made.wait_for_rooms(*THREE)
        yield made
    finally:
        made.end()
        cable.close()


def rounds_of(out: Path, room: str) -> tuple[list[int], list[int]]:
    """The rounds that a room trained in, and those that it missed."""
    file = out / "rounds.jsonl"
    lines: list[dict[str, Any]] = JsonLines(file).read() if file.is_file() else []
    trained = [line["round"] for line in lines if line["rooms"].get(room, {}).get("participated")]
    missed = [line["round"] for line in lines if room in line.get("missing", {}).get("upload", ())]
    return trained, missed


@pytest.mark.parametrize("outage", ["a cut of 60 s", "a killed SuperNode"])
def test_a_round_ends_by_its_deadline_and_the_room_rejoins(
    federation: Federation, store: Path, tmp_path: Path, outage: str
) -> None:
    path, _ = plan_file(
        tmp_path, outage.replace(" ", "-"), store, rounds="open", network={"deadline": 20}
    )
    out = federation.begin(path)
    wait_until(lambda: rounds_of(out, "lab")[0], "a round of all rooms")
    if outage == "a cut of 60 s":
        federation.cable.cut(60)  # type: ignore[attr-defined]
    else:
        os.kill(child_of(federation.processes["lab"].pid, "supernode"), 9)
    wait_until(lambda: rounds_of(out, "lab")[1], "a round without the room")

    def is_back() -> bool:
        trained, missed = rounds_of(out, "lab")
        return trained[-1] > missed[0]

    wait_until(is_back, "a round with the room again")
    last = JsonLines(out / "rounds.jsonl").read()[-1]["round"] + 3
    plan_file(tmp_path, path.stem, store, rounds=last, network={"deadline": 20})
    federation.begin(path)
    federation.wait_for_end()
