"""Simulated captures: a folder that is whole or absent, and never another one."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fedapa.errors import DataError, PlanError
from fedapa.processes import Progress
from fedapa.stores.simulated import write_simulated
from fedapa.stores.simulated_captures import write_simulated_captures
from fedapa.stores.simulated_rooms import Preset, changed_preset, preset_of
from tests.conftest import hear_ctrl_c


def tiny() -> Preset:
    """One room of the smoke preset with two takes, of nobody and of one person."""
    smoke = preset_of("smoke")
    return replace(
        smoke, places=(replace(smoke.places[0], counts=(0, 1), days=1, recordings=1, windows=1),)
    )


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/b", "..", "", "a\nb"])
def test_a_room_cannot_name_its_way_out_of_the_folder(name: str, tmp_path: Path) -> None:
    lobby = {
        "size": [9.0, 6.0, 3.2],
        "transmitter": [0.5, 3.0, 2.5],
        "receiver": [8.5, 3.0, 1.0],
        "counts": [0],
    }
    preset = changed_preset(tiny(), {name: lobby})
    with pytest.raises(DataError, match="use 1 to 64 letters"):
        write_simulated_captures(preset, seed=0, folder=tmp_path / "in" / "captures")
    with pytest.raises(DataError, match="use 1 to 64 letters"):
        write_simulated(preset, seed=0, out=tmp_path / "rooms.h5")
    assert not list(tmp_path.iterdir())


def test_workers_write_the_same_captures(tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()  # an empty folder may stand there
    for name, workers in (("one", 1), ("two", 2)):
        write_simulated_captures(tiny(), seed=3, folder=tmp_path / name, workers=workers)
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert list(files(tmp_path / "one")) == [f"living room/0/P={count}-0.pcap" for count in (0, 1)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


def test_an_interrupted_run_leaves_no_half_folder(tmp_path: Path) -> None:
    def interrupt(_: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_simulated_captures(tiny(), seed=0, folder=tmp_path / "captures", show=interrupt)
    assert not list(tmp_path.iterdir())


def test_a_file_in_the_place_of_the_folder_is_kept(tmp_path: Path) -> None:
    (tmp_path / "captures").write_text("precious")
    with pytest.raises(DataError, match="is a file"):
        write_simulated_captures(tiny(), seed=0, folder=tmp_path / "captures")
    assert (tmp_path / "captures").read_text() == "precious"


@pytest.mark.parametrize("seed", [-1, 2**63, 10**30])
def test_a_seed_out_of_range_is_one_sentence(seed: int, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=f"seed = {seed}; choose 0 to 9223372036854775807"):
        write_simulated_captures(tiny(), seed=seed, folder=tmp_path / "captures")
    with pytest.raises(PlanError, match=f"seed = {seed}; choose 0 to 9223372036854775807"):
        write_simulated(tiny(), seed=seed, out=tmp_path / "rooms.h5")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_ctrl_c_leaves_nothing_behind(workers: str, tmp_path: Path) -> None:
    running = subprocess.Popen(
        [
            *(sys.executable, "-m", "fedapa", "simulate", "--preset", "six-rooms"),
            *("--pcap", str(tmp_path / "captures"), "--workers", workers),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ,
        preexec_fn=hear_ctrl_c,
    )
    try:
        until = time.monotonic() + 120
        while not list(tmp_path.rglob("*.pcap")) and time.monotonic() < until:
            time.sleep(0.1)
        running.send_signal(signal.SIGINT)
        assert running.wait(120) != 0
    finally:
        running.kill()
    assert not list(tmp_path.iterdir())
