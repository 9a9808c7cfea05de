"""Rooms of one's own that cannot be: one sentence with room, key and range, and no file."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedapa.csi.capture import Capture
from fedapa.errors import DataError, PlanError
from fedapa.simulator.delays import DelayGrid
from fedapa.stores.simulated import write_simulated
from fedapa.stores.simulated_rooms import changed_preset, preset_of
from fedapa.toml import read_toml
from fedapa.windows.clean import Amplitudes

IMPOSSIBLE = [
    ("motion.sway = 1000.0", r"motion\.sway = 1000\.0; choose 0 to 0\.1"),
    ("motion.clearance = -500.0", r"motion\.clearance = -500\.0; choose 0 to 10"),
    ("motion.clearance = 1.2", r"motion\.clearance = 1\.2; choose 0 to 1\.15"),
    ("motion.speed = [-1.0, -0.5]", r"motion\.speed = \[-1\.0, -0\.5\]; choose 0\.05 to 1\.9"),
    ("motion.speed = [100.0, 200.0]", r"motion\.speed = .*; choose 0\.05 to 1\.9"),
    ("motion.speed = [1.5, 0.3]", r"motion\.speed = \[1\.5, 0\.3\]; write the least first"),
    ("motion.pause = -1.0", r"motion\.pause = -1\.0; choose 0 to 3600"),
    ("motion.smoothing = 1e9", r"motion\.smoothing = 1000000000\.0; choose 0\.5 to 10"),
    ("motion.seated = 7", r"motion\.seated = 7; choose 0 to 1"),
    ("motion.fidgets = inf", r"motion\.fidgets = inf; choose 0 to 5"),
    ("hardware.drift = -1.0", r"hardware\.drift = -1\.0; choose 0 to 20"),
    ("hardware.drift_time = 0.0", r"hardware\.drift_time = 0\.0; choose 0\.1 to"),
    ("hardware.level = 1e-9", r"hardware\.level = 1e-09; choose .* to 0\.25"),
    ("hardware.timing = nan", r"hardware\.timing = nan; choose 0 to 1000"),
    ("hardware.bits = 12", r"hardware\.bits = 12; choose 8 or 16"),
    (r'hardware.device = "a\u0000b"', "device = .*; choose 1 to 64 printable letters"),
    ("furniture.pieces = -3", r"furniture\.pieces = -3; choose 0 to 1000"),
    ("furniture.height = [0.3, 5.0]", r"furniture\.height = .*; choose 0 to 2\.2"),
    ("body.cross_section = [-1.0, -0.5]", r"body\.cross_section = .*; choose 0 to 100"),
    ("body.shares = [0.5, 0.1, nan, 0.1, 0.1]", r"body\.shares = .*; choose 0 to 1"),
    ("seats = [[1.0, 1.0, 1.0]]", r"seats\[0\] = \[1\.0, 1\.0, 1\.0\]; write a list of 2"),
    ("size = [inf, 2.4, 2.2]", r"size = \[inf, 2\.4, 2\.2\]; choose 1 to 100"),
    ("transmitter = [nan, 1.0, 1.0]", "outside the room"),
    ("rate = nan", "rate = nan; choose 125 to 1000"),
    (f"motion.sway = 1{'0' * 400}", r"motion\.sway = 10+…; a number has at most 300 digits"),
    (
        "size = [11.5, 2.4, 1.0]\ntransmitter = [0.5, 1.5, 0.5]\nreceiver = [10.9, 0.9, 0.5]\n"
        "furniture.height = [0.1, 0.5]",
        r"people of up to 1\.9 m in a room 1 m high",
    ),
]


@pytest.mark.parametrize(("lines", "complaint"), IMPOSSIBLE)
def test_a_room_that_cannot_be_is_refused_by_name(
    lines: str, complaint: str, tmp_path: Path
) -> None:
    plan = tmp_path / "own.toml"
    plan.write_text(f"[bus]\n{lines}\n")
    with pytest.raises(PlanError, match=complaint) as caught:
        write_simulated(
            changed_preset(preset_of("smoke"), read_toml(plan)), seed=0, out=tmp_path / "own.h5"
        )
    assert "room 'bus': " in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == [plan]


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe", b"a = " + b"[" * 100_000, b"a = 1" + b"0" * 5000],
    ids=["no UTF-8", "endless list", "endless number"],
)
def test_bytes_that_are_no_toml_are_one_sentence(content: bytes, tmp_path: Path) -> None:
    plan = tmp_path / "own.toml"
    plan.write_bytes(content)
    with pytest.raises(PlanError, match=r"own\.toml: not TOML"):
        read_toml(plan)


@pytest.mark.parametrize("content", [b"[bus]\nmotion.sway = 1000.0\n", b"\xff\xfe"])
def test_the_command_says_one_sentence_and_exits_with_2(content: bytes, tmp_path: Path) -> None:
    plan = tmp_path / "own.toml"
    plan.write_bytes(content)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "fedapa", "simulate", "--preset", "smoke"),
            *("--rooms", plan, "--out", tmp_path / "own.h5"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert list(tmp_path.iterdir()) == [plan]


def test_a_path_beyond_the_grid_of_delays_is_refused() -> None:
    """Ten subcarriers 1 MHz apart, up to 30 m; the scatter itself would write past its array."""
    grid = DelayGrid(np.arange(-5.0, 5.0) * 1e6, longest=30.0, speed=3e8)
    one = np.ones((1, 1), np.float32)
    assert grid.gather(30 * one, one, one).shape == (1, grid.points)
    for length in (1e3, 1e30, np.inf, np.nan, -1.0):
        with pytest.raises(PlanError, match="the grid of delays ends at"):
            grid.gather(np.float32(length) * one, one, one)


@pytest.mark.parametrize("packets", [0, 64])
def test_a_take_without_any_signal_is_one_sentence(
    packets: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(capture: Capture) -> Amplitudes:
        nothing = np.zeros((packets, 56, 1), np.float32)
        return Amplitudes(nothing, np.arange(float(packets)), capture.subcarriers[:56])

    monkeypatch.setattr("fedapa.stores.simulated.clean", silent)
    with pytest.raises(DataError, match=r"room 'living room', 0 people: no packet .* has a signal"):
        write_simulated("smoke", seed=0, out=tmp_path / "own.h5")
    assert not list(tmp_path.iterdir())
