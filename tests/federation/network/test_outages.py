"""Outages that take minutes: `make test-network`, not `make test`."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from fedapa.evaluation.record import JsonLines
from tests.federation.network.loopback import PATIENCE, Cable, Federation, wait_until
from tests.federation.network.test_loopback import check_equal, child_of, plan_file
from tests.federation.test_flower import THREE

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.timeout(1800)]


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


def is_back(out: Path, room: str) -> bool:
    trained, missed = rounds_of(out, room)
    return trained[-1] > missed[0]


@contextmanager
def open_run(federation: Federation, store: Path, folder: Path, name: str) -> Iterator[Path]:
    """A run that goes on until the block ends; then it gets a last round."""
    waits = {"network": {"deadline": 20}}
    path, _ = plan_file(folder, name, store, rounds="open", **waits)
    out = federation.begin(path)
    yield out
    last = JsonLines(out / "rounds.jsonl").read()[-1]["round"] + 3
    plan_file(folder, name, store, rounds=last, **waits)
    federation.begin(path)
    federation.wait_for_end()


@pytest.mark.parametrize("outage", ["a cut of 60 s", "a killed SuperNode"])
def test_a_round_ends_by_its_deadline_and_the_room_rejoins(
    federation: Federation, store: Path, tmp_path: Path, outage: str
) -> None:
    with open_run(federation, store, tmp_path, outage.replace(" ", "-")) as out:
        wait_until(lambda: rounds_of(out, "lab")[0], "a round of all rooms")
        if outage == "a cut of 60 s":
            federation.cable.cut(60)  # type: ignore[attr-defined]
        else:
            os.kill(child_of(federation.processes["lab"].pid, "supernode"), 9)
        wait_until(lambda: rounds_of(out, "lab")[1], "a round without the room")
        wait_until(lambda: is_back(out, "lab"), "a round with the room again")
    if outage == "a cut of 60 s":
        assert "cannot be reached" in federation.said("lab"), "it says what it is doing"


# ---- a clock that is off -----------------------------------------------------------------------

SHIFTED_CLOCK = '''"""Loaded by Python at its start: its clock is off by what a file says."""

import datetime
import os
import time

real_time, real_datetime = time.time, datetime.datetime


def shifted():
    with open(os.environ["CLOCK_IS_OFF_BY"]) as stream:
        return real_time() + float(stream.read() or 0)


class Kind(type(real_datetime)):
    def __instancecheck__(cls, value):
        return isinstance(value, real_datetime)


class Shifted(real_datetime, metaclass=Kind):
    @classmethod
    def now(cls, tz=None):
        return real_datetime.fromtimestamp(shifted(), tz)


time.time, datetime.datetime = shifted, Shifted
'''


def test_a_clock_an_hour_off_is_named_and_the_room_rejoins_when_it_is_right(
    federation: Federation, store: Path, tmp_path: Path
) -> None:
    """At the start and while the room is connected; the server's clock stays right."""
    (tmp_path / "sitecustomize.py").write_text(SHIFTED_CLOCK)
    clock = tmp_path / "clock"
    clock.write_text("3600")
    found_first = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    variables = {"PYTHONPATH": found_first, "CLOCK_IS_OFF_BY": str(clock)}
    federation.stop("hall")
    federation.start_room("hall", **variables)
    named = "clock is 3600 s ahead of the server's; set it"
    wait_until(lambda: named in federation.said("hall"), "the clock to be named at the start")
    looked = subprocess.run(
        [
            *(sys.executable, "-m", "fedapa", "doctor", str(federation.folder / "hall")),
            *(f"--server={federation.address}", f"--ca={federation.server.authority}"),
        ],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert looked.returncode == 1
    assert f"BAD   clock: the room's {named}" in looked.stdout
    clock.write_text("0")
    federation.wait_for_rooms("hall")
    before = len(federation.server.refused())
    with open_run(federation, store, tmp_path, "clock") as out:
        wait_until(lambda: rounds_of(out, "hall")[0], "a round of the room")
        clock.write_text("3600")
        wait_until(lambda: rounds_of(out, "hall")[1], "a round without the room")
        wait_until(lambda: named in federation.said("hall").rpartition("answered")[2], "its name")
        clock.write_text("0")
        wait_until(lambda: is_back(out, "hall"), "a round with the room again")
    reasons = [line["reason"] for line in federation.server.refused()[before:]]
    assert any(named in reason for reason in reasons)


# ---- a full disk -------------------------------------------------------------------------------


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Everything in a folder on a disk of its own of a few megabytes, as root can make one."""
    aside = folder.with_name(f"{folder.name} aside")
    folder.rename(aside)
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        folder.rmdir()
        aside.rename(folder)
        pytest.skip("a disk that can be filled needs root and 'mount'")
    try:
        shutil.copytree(aside, folder, dirs_exist_ok=True)
        yield
    finally:
        shutil.copytree(folder, aside, dirs_exist_ok=True)
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()
        aside.rename(folder)


def fill(folder: Path) -> Path:
    """Until nothing more goes onto its disk; what is in the way."""
    path = folder / "in the way"
    with path.open("wb", buffering=0) as stream, suppress(OSError):
        for size in (65536, 1):
            with suppress(OSError):
                while stream.write(b"0" * size):
                    pass
    return path


def test_a_room_whose_disk_is_full_says_so_and_the_round_goes_on(
    federation: Federation, store: Path, tmp_path: Path
) -> None:
    folder = federation.folder / "hall"
    federation.stop("hall")
    with small_disk(folder):
        federation.start_room("hall")
        federation.wait_for_rooms("hall")
        with open_run(federation, store, tmp_path, "room-disk") as out:
            wait_until(lambda: rounds_of(out, "hall")[0], "a round of the room")
            in_the_way = fill(folder)

            def refused() -> list[str]:
                lines = JsonLines(out / "rounds.jsonl").read()
                return [
                    line["rejected"]["hall"] for line in lines if "hall" in line.get("rejected", {})
                ]

            reason = wait_until(refused, "a round that the room cannot save")[0]
            assert "No space left on device; nothing is half written" in reason
            last = rounds_of(out, "hall")[0][-1]
            in_the_way.unlink()
            wait_until(lambda: rounds_of(out, "hall")[0][-1] > last, "a round with the room again")
        assert not list(folder.rglob("*.partial*"))
        federation.stop("hall")
    federation.start_room("hall")
    federation.wait_for_rooms("hall")


def test_a_server_whose_disk_is_full_pauses_and_ends_as_if_nothing_had_been(
    federation: Federation, store: Path, tmp_path: Path
) -> None:
    path, plan = plan_file(
        tmp_path, "server-disk", store, rounds=4, network={"deadline": 400, "quorum": 3}
    )
    folder = federation.server.path
    federation.stop("server")
    with small_disk(folder):
        federation.start_server()
        federation.wait_for_rooms(*THREE)
        out = federation.begin(path)
        federation.wait_for_round(out, 1)
        in_the_way = fill(folder)
        sentence = "there is no room on its disk; the run pauses and nothing is half written"
        wait_until(lambda: sentence in federation.said("server"), "a sentence of the server")
        assert sentence in federation.status()["trouble"]
        assert len(JsonLines(out / "rounds.jsonl").read()) < 4
        in_the_way.unlink()
        federation.wait_for_end()
        check_equal(federation, out, plan, tmp_path / "here")
        assert not list(folder.rglob("*.partial*"))
        federation.stop("server")
    federation.start_server()
    federation.wait_for_rooms(*THREE)
