"""``fedapa calibrate``: the guide from the command line, what it leaves, and what it refuses."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fedapa import Plan, run
from fedapa.cli import app
from fedapa.errors import FedapaError
from fedapa.service.sources import SimulatedStay
from fedapa.stores.store import Store
from tests.conftest import hear_ctrl_c
from tests.service.takes import simulated_take
from tests.service.test_sources import datagrams

ROOM = "living room"


def calibrate(*words: str | Path, typed: str | None = None) -> Result:
    return CliRunner().invoke(app, ["calibrate", *map(str, words)], input=typed)


def worked(result: Result) -> str:
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def refusal(result: Result) -> str:
    assert isinstance(result.exception, FedapaError), result.output
    return str(result.exception)


@pytest.mark.slow
def test_a_simulated_room_is_calibrated_and_can_be_run(tmp_path: Path) -> None:
    """From nothing to a model: the store that it leaves is ready for ``fedapa run``.

    Slow because eight takes are simulated and a model is trained on them.
    """
    store = tmp_path / "room.h5"
    words = (ROOM, "--source", "simulator:smoke", "--yes", "--out", store, "--day", "monday")
    shown = worked(calibrate(*words, "--counts", "0,2", "--takes", "2", "--seconds", "12"))
    assert shown.index("The empty room, take 1 of 2: everybody leaves") < shown.index("2 people")
    assert shown.count("nothing moved: ") == 2
    assert "too few to tell how good the room is: takes of one count only" in shown
    assert "always answering 0: 50 %, 1.0 off" in shown
    assert "takes: 2 of 0, 2 of 2; SIMULATED" in shown
    with Store(store) as opened:
        assert opened.synthetic
        takes = [(one.label, one.day, one.synthetic) for one in opened.recordings(ROOM)]
    assert takes == [(0, "monday", True), (0, "monday", True)] + [(2, "monday", True)] * 2

    again = worked(calibrate(*words, "--counts", "0,2", "--seconds", "12"))
    assert "has 4 takes of room 'living room'; new ones are added" in again
    assert "Take of" not in again  # this day has all of them
    told = json.loads(
        worked(calibrate(*words[:-1], "tuesday", "--counts", "0,2", "--seconds", "12", "--json"))
    )
    assert [take["count"] for take in told["takes"]] == [0, 2, 0, 2]
    assert told["left"] == 0
    assert told["quality"]["takes"] == {"0": 4, "2": 4}
    assert [one["takes"] for one in told["quality"]["curve"]] == [1, 2, 3]
    assert told["quality"]["floor"] == {"accuracy": 0.5, "answer": 0, "mae": 1.0}

    data = {"file": str(store), "view": "statistics"}
    done = run(Plan(rounds=1, algorithm="local", data=data), out=tmp_path / "run", workers=0)
    assert done.data["rooms"][ROOM]["synthetic"]
    now = simulated_take(tmp_path / "now.pcap", 2, 8, number=9)
    counted = CliRunner().invoke(app, ["count", str(tmp_path / "run"), str(now), "--room", ROOM])
    assert "SIMULATED data" in worked(counted)


def test_captures_become_takes_and_a_moving_empty_room_is_refused(tmp_path: Path) -> None:
    empty, one = (
        simulated_take(tmp_path / "0.pcap", 0, 12),
        simulated_take(tmp_path / "1.pcap", 1, 12),
    )
    store = tmp_path / "den.h5"
    wrong = calibrate("den", "--capture", f"0={one}", "--out", store)
    assert "1.pcap: the empty room is not empty or not still: " in refusal(wrong)
    assert "times the noise floor over the whole take" in refusal(wrong)
    assert refusal(wrong).endswith("(no take was added)")
    assert "motion, a second a mark, from 1 to" in wrong.stdout
    assert "^" in wrong.stdout
    assert not store.exists()

    words = ("den", "--out", store)
    shown = worked(calibrate(*words, "--capture", f"1={one}", "--capture", f"0={empty}"))
    assert shown.index("0.pcap: the empty room") < shown.index("1.pcap: 1 person")
    twice = refusal(calibrate(*words, "--capture", f"0={empty}"))
    assert "0.pcap: is in den.h5 already, as 'people 00 day" in twice

    kept = tmp_path / "kept.h5"
    worked(calibrate("den", "--out", kept, "--capture", f"0={one}", "--keep-moving"))
    told = json.loads(
        worked(
            calibrate(
                "den",
                *("--out", tmp_path / "json.h5", "--capture", f"0={one}", "--keep-moving"),
                "--json",
            )
        )
    )
    assert told["takes"][0]["kept_despite_motion"] is True
    assert told["takes"][0]["motion_level"] > told["takes"][0]["motion_limit"]


def test_the_owner_repeats_keeps_or_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody is in the first "empty" room; the owner repeats, then keeps, then has enough."""
    real = SimulatedStay.__init__
    monkeypatch.setattr(
        SimulatedStay, "__init__", lambda self, room, people, **how: real(self, room, 2, **how)
    )
    store = tmp_path / "room.h5"
    words = (ROOM, "--source", "simulator:smoke", "--out", store, "--seconds", "12")
    shown = worked(calibrate(*words, typed="\n\n\nkeep\nq\n"))
    assert shown.count("Refused: the empty room is not empty or not still") == 2
    assert "kept nevertheless, the store says so" in shown
    assert "takes: 1 of 0; SIMULATED" in shown

    nothing = calibrate("other", "--source", "udp:0.0.0.0:0")
    assert "'0' is no port" in refusal(nothing)
    stopped = worked(calibrate(*words[:-1], "13", "--day", "later", typed="q\n"))
    assert "Stopped. no take was added; the same command goes on." in stopped
    assert "Take of" not in stopped


def test_without_anybody_who_answers_it_ends_with_a_sentence(tmp_path: Path) -> None:
    words = ("--source", "simulator:smoke", "--out", tmp_path / "room.h5")
    told = refusal(calibrate(ROOM, *words, typed=""))
    assert told.startswith("nobody answers: the input has ended; start it in a terminal, or with")
    assert told.endswith("(no take was added)")
    nowhere = calibrate("den", *words, typed="")
    assert "is none of the simulated rooms 'smoke'; known: " in refusal(nowhere)
    assert "everybody leaves" not in nowhere.stdout, "before anybody is asked for anything"
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_receiver_on_udp_and_one_that_stops(tmp_path: Path) -> None:
    """Five seconds of packets on loopback as they come; then nothing comes any more.

    Slow because packets have the time at which they really came.
    """
    store, sent = tmp_path / "den.h5", simulated_take(tmp_path / "live.pcap", 1, 8, number=3)
    first = simulated_take(tmp_path / "0.pcap", 0, 12)
    worked(calibrate("den", "--out", store, "--capture", f"0={first}"))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    packets = list(datagrams(sent))

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            began = time.monotonic()
            for number, packet in enumerate(packets):
                time.sleep(max(0.0, began + number / 125 - time.monotonic()))
                out.sendto(packet, ("127.0.0.1", port))

    sender = threading.Thread(target=send)
    sender.start()
    words = (
        "den",
        "--out",
        store,
        "--source",
        f"udp:{port}",
        "--yes",
        "--delay",
        "0.5",
        "--timeout",
        "1",
    )
    result = calibrate(*words, "--counts", "1,2", "--takes", "1", "--seconds", "5")
    sender.join()
    # The second take has what is left of eight seconds, then the sender is silent.
    assert "Take of 1 person kept: 5 s, 1" in result.stdout
    assert "the source stopped" in refusal(result)
    assert refusal(result).endswith(f"(1 finished take is kept in {store})")
    with Store(store) as opened:
        assert [one.label for one in opened.recordings("den")] == [0, 1]


def test_ctrl_c_keeps_finished_takes(tmp_path: Path) -> None:
    words = ("calibrate", ROOM, "--source", "simulator:smoke", "--seconds", "12")
    started = subprocess.Popen(
        [sys.executable, "-m", "fedapa", *words, "--out", str(tmp_path / "room.h5")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        preexec_fn=hear_ctrl_c,
    )
    assert started.stdin is not None
    assert started.stdout is not None
    started.stdin.write("\n")
    started.stdin.flush()
    shown = ""
    while "1 person, take 1 of 2" not in shown:  # it waits for the next ENTER
        line = started.stdout.readline()
        assert line, started.stderr.read() if started.stderr else ""
        shown += line
    time.sleep(0.5)
    started.send_signal(signal.SIGINT)
    out, error = started.communicate(timeout=60)
    assert started.returncode == 130, error
    assert "Stopped. 1 finished take is kept in" in out
    assert "Traceback" not in error
    with Store(tmp_path / "room.h5") as store:
        assert [one.label for one in store.recordings(ROOM)] == [0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "say where packets come from"),
        (("--source", "udp:5500", "--capture", "0=x.pcap"), "one of the two"),
        (("--source", "now.pcap"), "say how many it shows: --capture 0=now.pcap"),
        (("--source", "file:now.pcap"), "say how many it shows: --capture 0=now.pcap"),
        (("--source", "simulator"), "is none of the simulated rooms 'quick'"),
        (("--source", "simulator", "--counts", "1,2"), "no take of the empty room yet"),
        (("--source", "simulator", "--counts", "some"), "write numbers of people with commas"),
        (("--source", "simulator", "--seconds", "2"), "seconds = 2; choose 9 to 3600"),
        (("--capture", "empty.pcap"), "write COUNT=FILE, e.g. 0=empty.pcap"),
        (("--capture", "0=none.pcap"), "none.pcap"),
        (("--capture", "1=none.pcap"), "no take of the empty room yet"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    tmp_path: Path, words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refusal(calibrate("den", "--yes", *words))
    assert not list(tmp_path.iterdir())


def test_help_has_an_example() -> None:
    assert "fedapa calibrate kitchen --source udp:5500" in worked(calibrate("--help"))
