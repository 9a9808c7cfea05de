"""The units and the Compose file start commands that there are."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

import fedapa
from fedapa.cli import app
from fedapa.toml import read_toml

DEPLOY = Path(__file__).parents[1] / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))


def check_command(words: list[str]) -> None:
    command: Any = get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    flags = {flag for parameter in command.params for flag in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= flags, words
    for parameter in command.params:
        if parameter.required and parameter.param_type_name == "option":
            assert set(parameter.opts) & set(words), (words, parameter.name)


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_starts_a_command_that_there_is(unit: Path) -> None:
    (line,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.M)
    program, *words = shlex.split(line)
    assert program.endswith("/fedapa")
    check_command(words)


def test_a_room_of_the_unit_may_have_any_name() -> None:
    """The instance's own, hyphens and all (%I would make slashes of them), or that of its file.

    systemd splits neither ${ROOM} nor a specifier at spaces; what a file says comes last.
    """
    text = (DEPLOY / "fedapa-room@.service").read_text()
    (line,) = re.findall(r"^ExecStart=(.*)$", text, re.M)
    words = shlex.split(line)
    assert words[words.index("--room") + 1] == "${ROOM}"
    assert text.index("\nEnvironment=ROOM=%i\n") < text.index("\nEnvironmentFile=/etc/fedapa/%i\n")
    assert 'ROOM="Living room"' in (DEPLOY.parent / "docs" / "deploy.md").read_text()


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_finds_nothing_wrong_with_a_unit(unit: Path) -> None:
    """But that fedapa is not installed where the unit expects it; elsewhere its form is enough."""
    if shutil.which("systemd-analyze"):
        done = subprocess.run(
            ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
        )
        said = [line for line in done.stderr.splitlines() if unit.stem.partition("@")[0] in line]
        assert all("is not executable" in line for line in said), said
    sections = re.findall(r"^\[(\w+)\]$", unit.read_text(), re.M)
    assert sections == ["Unit", "Service", "Install"]


def test_the_compose_file_starts_a_server_and_three_rooms() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    rooms = []
    for name, service in services.items():
        if name == "setup":
            for line in service["command"][0].splitlines():
                if line.strip().startswith("fedapa "):
                    check_command(shlex.split(line)[1:])
            continue
        check_command(list(service["command"]))
        if service["command"][0] == "room":
            rooms.append(service["command"][-1])
    assert len(rooms) == 3
    assert "server" in services
    presets = read_toml(Path(fedapa.__file__).parent / "stores" / "simulated_presets.toml")
    assert set(rooms) <= set(presets["smoke"]["rooms"])
    assert all(room in services["setup"]["command"][0] for room in rooms)


def test_compose_finds_nothing_wrong_with_its_file() -> None:
    plugin = (
        shutil.which("docker")
        and not subprocess.run(
            ["docker", "compose", "version"], capture_output=True, check=False
        ).returncode
    )
    program = ["docker", "compose"] if plugin else ["docker-compose"]
    if not shutil.which(program[0]):
        pytest.skip("neither 'docker compose' nor 'docker-compose' is installed")
    done = subprocess.run(
        [*program, "-f", str(DEPLOY / "compose.yaml"), "config"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert set(yaml.safe_load(done.stdout)["services"]) == {
        *("setup", "server", "bus", "classroom", "hotel")
    }
