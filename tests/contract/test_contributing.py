"""The algorithm in CONTRIBUTING.md is whole: pasted as it stands, it is found, clean and in order.

It is put into a package of its own, so that the way for other packages is walked too.
"""

import os
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

from fedapa.algorithms.local import Local
from tests.algorithms.by_hand import QUICKLY, Game
from tests.conftest import MakeRooms

ROOT = Path(__file__).parents[2]
NAME = "ditto"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the pasted file, installed as far as importlib can tell."""
    folder = tmp_path_factory.mktemp("package")
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.S)
    (folder / f"{NAME}.py").write_text(code)
    about = folder / "pasted-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: pasted\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[fedapa.algorithms]\n{NAME} = {NAME}\n")
    return folder


def told(package: Path, *words: str) -> str:
    """What a command says with the package in sight; it must succeed."""
    path = os.pathsep.join([str(package), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_pasted_algorithm_is_clean(package: Path) -> None:
    file = str(package / f"{NAME}.py")
    told(package, "ruff", "check", "--config", "pyproject.toml", file)
    told(package, "ruff", "format", "--check", "--config", "pyproject.toml", file)


@pytest.mark.slow
def test_the_types_of_the_pasted_algorithm_hold(package: Path) -> None:
    """Slow where nothing was type-checked before: mypy reads torch."""
    told(package, "mypy", "--strict", str(package / f"{NAME}.py"))


@pytest.mark.slow
def test_the_pasted_algorithm_keeps_the_contract(package: Path) -> None:
    """Slow: the whole contract, in a process of its own, since algorithms are listed once."""
    files = [f"tests/contract/test_{part}.py" for part in ("algorithms", "absent_rooms")]
    said = told(package, "pytest", *files, "-k", NAME, "-x", "-v")
    passed = re.search(r"(\d+) passed", said)
    assert passed is not None and int(passed[1]) > 20


def test_the_pasted_algorithm_without_attraction_is_local(
    package: Path, make_rooms: MakeRooms
) -> None:
    """λ = 0: the personal net never sees the shared one, and learns from the same batches."""
    spec = spec_from_file_location(NAME, package / f"{NAME}.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    rooms = make_rooms()
    alone, free, drawn = (
        Game(algorithm, rooms).play(2).deployed(rooms[0])
        for algorithm in (
            Local(training=QUICKLY),
            module.Ditto(training=QUICKLY, attraction=0.0),
            module.Ditto(training=QUICKLY),
        )
    )
    assert all(np.array_equal(alone[name], free[name]) for name in alone)
    assert not all(np.array_equal(alone[name], drawn[name]) for name in alone)
