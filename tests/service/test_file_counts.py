"""``fedapa count``: counts of a file for people and for scripts, and what does not fit."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedapa import load_model, read_capture
from fedapa.csi.nexmon_writer import write_nexmon
from fedapa.errors import DataError, PlanError
from fedapa.rooms.model_file import find_model
from fedapa.service.counter import Count, CounterSettings, State
from fedapa.service.file_counts import FileCounts, count_file
from tests.cli.test_cli import fedapa, one_sentence
from tests.service.conftest import Served


def test_count_says_the_answer_first(served: Served) -> None:
    shown = fedapa("count", served.run, served.captures[0], "--every", "1").stdout.splitlines()
    assert shown[0].startswith(f"{served.captures[0].name}: ")
    assert shown[0].endswith("; SIMULATED data")
    assert next(line for line in shown[1:] if line.strip()).split() == [
        *("time", "people", "interval", "confidence", "state")
    ]
    assert f"Room '{served.room}'" in shown[-1]


def test_count_for_scripts_is_a_line_for_each_count(served: Served) -> None:
    words = ("--room", served.room, "--every", "1", "--json")
    shown = fedapa("count", served.run, served.captures[0], *words).stdout.splitlines()
    made = [json.loads(line) for line in shown]
    assert len(made) >= 3
    assert np.diff([line["seconds"] for line in made]) == pytest.approx(1, abs=0.01)
    expected = count_file(
        load_model(served.model), served.captures[0], settings=CounterSettings(every=1.0)
    )
    assert [line["count"] for line in made] == [count.count for count in expected.counts]
    assert all(line["synthetic"] for line in made)
    assert made[0]["people"] == [0, 1]


def test_count_needs_no_torch(served: Served) -> None:
    code = (
        "import sys; from fedapa.cli import app\n"
        "try: app(sys.argv[1:])\n"
        "except SystemExit: print([m for m in ('torch', 'matplotlib') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code, "count", str(served.model), str(served.captures[0])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_capture_of_another_receiver_names_both(served: Served, tmp_path: Path) -> None:
    capture = read_capture(served.captures[0])
    write_nexmon(replace(capture, synthetic=False), tmp_path / "other.pcap")
    told = one_sentence(fedapa("count", served.run, tmp_path / "other.pcap", code=2))
    assert f"other.pcap and the model of room '{served.room}' do not fit: device is nexmon" in told
    assert "use a recipe of this receiver" in told


def test_a_capture_at_another_rate_is_told(served: Served, tmp_path: Path) -> None:
    capture = read_capture(served.captures[0])
    write_nexmon(replace(capture, timestamps=3 * capture.timestamps), tmp_path / "slow.pcap")
    with pytest.raises(DataError, match=r"slow.pcap: the model of room .* is for 125"):
        count_file(load_model(served.model), tmp_path / "slow.pcap", settings=CounterSettings())


def test_a_capture_shorter_than_a_window_is_told(served: Served, tmp_path: Path) -> None:
    capture = read_capture(served.captures[0])
    write_nexmon(capture.part(slice(0, 50)), tmp_path / "short.pcap")
    with pytest.raises(DataError, match=r"50 packets, a window has 125 \(1 s\); give a longer"):
        count_file(load_model(served.model), tmp_path / "short.pcap", settings=CounterSettings())


def test_a_model_is_found_by_its_room(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    with pytest.raises(DataError, match="holds no model files"):
        find_model(tmp_path)
    for room in ("bus", "open office"):
        (tmp_path / "models" / f"{room}.safetensors").touch()
    with pytest.raises(PlanError, match=r"has 2 rooms; say which: --room bus \| 'open office'"):
        find_model(tmp_path)
    with pytest.raises(PlanError, match="has no room 'buss'; did you mean 'bus'"):
        find_model(tmp_path, "buss")
    assert find_model(tmp_path, "bus") == tmp_path / "models" / "bus.safetensors"
    with pytest.raises(PlanError, match="of one room; leave --room bus out"):
        find_model(tmp_path / "models" / "bus.safetensors", "bus")


def counted(numbers: list[int | None], seconds: float = 75.0, state: State = "counting") -> str:
    counts = tuple(
        Count(room="bus", time=float(place), state=state, count=number)
        for place, number in enumerate(numbers)
    )
    made = FileCounts(counts, begin=0.0, seconds=seconds, packets=9, skipped={}, faulty={})
    return made.sentence()


def test_the_sentence_says_how_many_there_were() -> None:
    assert counted([0, 0]) == "nobody all the time, in 1 min 15 s"
    assert counted([1, 1], 9) == "1 person all the time, in 9 s"
    assert counted([2, 3, 3, None]).startswith("2 to 3 people, 3 most often (67 % of the counts)")
    assert counted([4], state="unsure").endswith("; 1 of 1 counts are unsure")
