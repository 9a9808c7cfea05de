"""Flower's simulation engine gives what one process gives."""

import subprocess
import sys
from pathlib import Path

import pytest

from fedapa import run
from fedapa.cli.run import _check_engine
from fedapa.errors import PlanError
from tests.conftest import MakeStore
from tests.federation.test_flower import THREE, models, plan_of


@pytest.mark.network
def test_a_simulated_run_is_the_one_in_process(make_store: MakeStore, tmp_path: Path) -> None:
    """Longer than 10 s: Ray starts. In a process of its own, which Ray changes as it likes."""
    plan = plan_of(make_store(THREE), rounds=2, network={"deadline": 400})
    file = tmp_path / "plan.toml"
    file.write_text(plan.toml())
    run(plan, out=tmp_path / "here", workers=0)
    there = tmp_path / "there"
    command = [sys.executable, "-m", "fedapa", "run", str(file), "--engine", "flower-simulation"]
    done = subprocess.run(
        [*command, "--workers", "2", "--out", str(there)],
        capture_output=True,
        text=True,
        check=False,
        timeout=550,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert (there / "rounds.jsonl").read_bytes() == (tmp_path / "here/rounds.jsonl").read_bytes()
    assert models(there / "models") == models(tmp_path / "here" / "models")


def test_an_unknown_engine_is_named() -> None:
    with pytest.raises(PlanError, match="did you mean 'flower-simulation'"):
        _check_engine("flower-simulatio", tensorboard=False, diagnose=False)
    with pytest.raises(PlanError, match="--tensorboard: only with"):
        _check_engine("flower-simulation", tensorboard=True, diagnose=False)
    with pytest.raises(PlanError, match="--diagnose: only with"):
        _check_engine("flower-simulation", tensorboard=False, diagnose=True)
