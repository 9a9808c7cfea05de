"""The operators' commands: each has help with an example, and mistakes are one sentence."""

import errno
import json
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from fedapa.cli import app, main
from fedapa.errors import FedapaError
from fedapa.evaluation.record import JsonLines
from fedapa.federation import run_files
from fedapa.federation.network.server_folder import Job, ServerFolder

COMMANDS = [
    *(f"server {name}" for name in ("init", "start", "stop", "enrol", "expel", "run", "status")),
    *(f"room {name}" for name in ("init", "start")),
    "doctor",
]


def ask(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command: str) -> None:
    found = get_command(app)
    for word in command.split():
        found = found.commands[word]  # type: ignore[attr-defined]
    assert f"Example: fedapa {command} " in " ".join((found.help or "").split())


def test_a_server_is_made_rooms_are_enrolled_and_expelled(tmp_path: Path) -> None:
    server, kitchen = str(tmp_path / "server"), tmp_path / "kitchen"
    assert "ca.crt" in ask("server", "init", server, "--name", "example.org")
    assert "ecdsa-sha2-nistp384" in ask("room", "init", str(kitchen))
    said = ask("server", "enrol", server, str(kitchen / "room.pub"), "--name", "kitchen")
    assert "Room 'kitchen' may take part, with key" in said
    told = json.loads(ask("server", "status", server, "--json"))
    assert told["server"] == {"process": None, "running": False}
    assert told["rooms"]["kitchen"]["online"] is False
    assert "kitchen" in ask("server", "status", server)
    ask("server", "expel", server, "kitchen")
    assert json.loads(ask("server", "status", server, "--json"))["rooms"]["kitchen"]["expelled"]


def test_status_tells_what_was_not_taken_with_room_round_and_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, folder = str(tmp_path / "server"), ServerFolder(tmp_path / "server")
    ask("server", "init", server, "--name", "example.org")
    ask("room", "init", str(tmp_path / "kitchen"))
    ask("server", "enrol", server, str(tmp_path / "kitchen" / "room.pub"), "--name", "kitchen")
    folder.save_job(Job("winter"))
    run = folder.run("winter")
    run.mkdir(parents=True)
    (run / "data.json").write_text("{}")
    monkeypatch.setattr(run_files, "read_data", lambda _: {"rooms": {}})
    lines = JsonLines(run / "rounds.jsonl")
    for number, told in enumerate([{"rejected": {"kitchen": "its upload is huge"}}, {}], start=1):
        lines.append({"round": number, "rooms": {}, "mean": {}, **told})
    lines.append({"round": 3, "rooms": {}, "mean": {}, "diverged": {"kitchen": "its loss is nan"}})
    judged = {"rooms": {"kitchen": {"trust": 0.0}}, "suspects": {"kitchen": "it points elsewhere"}}
    lines.append({"round": 4, "mean": {}, **judged})
    said = " ".join(ask("server", "status", server).split())
    assert "Round 1: the upload of room 'kitchen' was rejected: its upload is huge." in said
    assert "Round 3: the upload of room 'kitchen' is missing: its loss is nan." in said
    assert "Suspected: room 'kitchen' in 1 of 1 rounds; it points elsewhere." in said
    told = json.loads(ask("server", "status", server, "--json"))
    assert [one["room"] for one in told["suspects"]] == ["kitchen"]
    assert [(one["round"], one["what"]) for one in told["not_taken"]] == [
        (1, "rejected"),
        (3, "diverged"),
    ]
    assert (told["rooms"]["kitchen"]["rejected"], told["rooms"]["kitchen"]["diverged"]) == (1, 1)


@pytest.mark.parametrize("met", ["by a command", "by a reader"])
def test_too_many_open_files_are_not_blamed_on_the_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    met: str,
) -> None:
    ask("server", "init", str(tmp_path / "server"), "--name", "example.org")

    def crowded(*_: object) -> str:
        raise OSError(errno.EMFILE, "Too many open files", "rooms.json")

    named = "write_text" if met == "by a command" else "Path.read_text"
    monkeypatch.setattr(f"fedapa.federation.network.server_folder.{named}", crowded)
    folder = str(tmp_path / "server")
    monkeypatch.setattr("sys.argv", ["fedapa", "server", "start", folder, "--port", "1"])
    with pytest.raises(SystemExit, match="2"):
        main()
    said = capsys.readouterr().err
    assert "ulimit -n" in said and "LimitNOFILE" in said
    assert "put back a copy" not in said


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["server", "start", "DIR"], "holds no server; make one with"),
        (["server", "init", "NEW", "--name", "x", "--port", "18443"], "port 18443 is where the"),
        (["server", "start", "SERVER", "--port", "18443"], "choose another --port"),
        (["server", "stop", "SERVER"], "its server does not run"),
        (["server", "expel", "SERVER", "attic"], "room 'attic' is not enrolled"),
        (["server", "enrol", "SERVER", "PLAN", "--name", "x"], "is no public key"),
        (["server", "run", "SERVER", "PLAN"], "its server does not run; start it with"),
        (
            [
                "room",
                "start",
                "DIR",
                "--server",
                "x",
                "--ca",
                "PLAN",
                "--data",
                "PLAN",
                "--room",
                "x",
            ],
            "expected HOST:PORT",
        ),
    ],
)
def test_mistakes_are_one_sentence(words: list[str], complaint: str, tmp_path: Path) -> None:
    ask("server", "init", str(tmp_path / "server"), "--name", "example.org")
    plan = tmp_path / "plan.toml"
    plan.write_text("rounds = 2")
    places = {
        "DIR": str(tmp_path),
        "NEW": str(tmp_path / "new"),
        "SERVER": str(tmp_path / "server"),
        "PLAN": str(plan),
    }
    with pytest.raises(FedapaError, match=complaint):
        ask(*(places.get(word, word) for word in words))


@pytest.mark.parametrize("given", [["--no-stillness"], []])
def test_a_room_that_counts_hands_on_how(
    given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    def start(program: str, arguments: list[str], **_: object) -> None:
        started.extend(arguments)
        raise FedapaError("seen")

    monkeypatch.setattr("fedapa.federation.network.child.start_child", start)
    file = tmp_path / "ca.crt"
    file.write_text("")
    to = ["--server", "localhost:1", "--ca", str(file), "--data", str(tmp_path)]
    with pytest.raises(FedapaError, match="seen"):
        ask(
            "room", "start", str(tmp_path), *to, "--room", "x", "--serve", "--source", "udp", *given
        )
    assert started[:3] == ["serve", "--run", str(tmp_path)]
    assert started[started.index("--port") :] == ["--port", "8080", *given]


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["--epsilon", "nan"], "epsilon nan: expected a number"),
        (["--epsilon", "1", "--delta", "nan"], "delta nan: expected a number"),
        (["--unit", "window"], "--unit window: goes with --epsilon"),
        (["--epsilon", "10", "--unit", "window"], None),
    ],
)
def test_a_room_takes_its_owners_limit_along_and_says_it(
    given: list[str],
    complaint: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[str] = []
    said: list[str] = []

    def start(program: str, arguments: list[str], **_: object) -> None:
        started.extend(arguments)
        raise FedapaError("seen")

    monkeypatch.setattr("fedapa.federation.network.room.start_child", start)
    monkeypatch.setattr("fedapa.cli.network._say", said.append)
    file = tmp_path / "ca.crt"
    file.write_text("")
    to = ["--server", "localhost:1", "--ca", str(file), "--data", str(tmp_path), "--room", "x"]
    with pytest.raises(FedapaError, match=complaint or "seen"):
        ask("room", "start", str(tmp_path), *to, *given)
    if complaint is None:
        place = json.loads(started[0])
        assert (place["epsilon"], place["unit"], place["delta"]) == (10.0, "window", 1e-5)
        assert "with ε = 10 at most (δ = 1e-05 at most, unit: window)" in said[0]
    else:
        assert not started
