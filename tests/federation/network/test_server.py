"""What the server does with the process of a run that ended, without any process."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedapa.cli import app
from fedapa.errors import RunError
from fedapa.federation.network import logs, operating, server
from fedapa.federation.network.operating import follow, status_of
from fedapa.federation.network.run_status import CRASHED, RunStatus
from fedapa.federation.network.server import _Server
from fedapa.federation.network.server_folder import Job, ServerFolder, Settings


@dataclass
class Ended:
    """A process, while it lives or with its exit code."""

    code: int | None = None

    def poll(self) -> int | None:
        return self.code


class Watched:
    """A server that looks after a run whose processes are made here."""

    def __init__(self, folder: ServerFolder, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.said = folder, list[str]()
        self.processes: list[Ended] = []
        self._server = _Server(folder, self.said.append)
        monkeypatch.setattr(server, "start_child", self._start)
        monkeypatch.setattr(server, "_SOON_AFTER", 0.0)
        monkeypatch.setattr(operating, "running_process", lambda _: 1)

    def _start(self, *_: Any, **__: Any) -> Ended:
        self.processes.append(Ended())
        return self.processes[-1]

    def look(self) -> None:
        self._server._look_after_run()

    def end(self, code: int, error: str = "") -> None:
        """The process begins, notes why it cannot go on, and ends; the server looks."""
        self.look()
        status = RunStatus.of(self.folder, "first", lambda _: None)
        status.note(state="running", **({"error": error} if error else {}))
        self.processes[-1].code = code
        self.look()

    def told(self) -> str:
        """What 'fedapa server status' prints, in one line."""
        done = CliRunner().invoke(app, ["server", "status", str(self.folder.path)])
        assert done.exit_code == 0, done.output
        return " ".join(done.output.split())


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    folder = ServerFolder.make(tmp_path / "server", Settings("localhost"))
    folder.save_job(Job("first", since=1.0))
    return Watched(folder, monkeypatch)


def test_a_run_that_an_error_ended_says_so_and_is_tried_again(watched: Watched) -> None:
    watched.end(CRASHED, "ZeroDivisionError: division by zero")
    assert "Run 'first': interrupted" in watched.told()
    sentence = "run 'first' ended by an error (ZeroDivisionError: division by zero); it goes on "
    assert watched.said[-1].startswith(sentence)
    assert f"see {watched.folder.log('run')}" in watched.told()
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d run 'first' ended", watched.told())
    watched.look()
    assert len(watched.processes) == 2


def test_a_run_that_errors_end_in_one_round_again_and_again_has_failed(watched: Watched) -> None:
    """Where a round was done in between it is none of the three times."""
    watched.end(CRASHED, "KeyError: 'a'")
    RunStatus.of(watched.folder, "first", lambda _: None).note(round=4)
    for _ in range(3):
        assert watched.folder.job() == Job("first", since=1.0)
        watched.end(CRASHED, "KeyError: 'a'")
    watched.look()
    assert len(watched.processes) == 4, "it is not started again"
    assert watched.folder.job() == Job("first", since=1.0, wanted=False)
    told = watched.told()
    assert "Run 'first': failed" in told
    assert "ended by an error (KeyError: 'a'), 3 times in round 5; " in told
    plan = watched.folder.plan_file("first")
    assert f"go on with 'fedapa server run {watched.folder.path} {plan}'" in told
    said: list[str] = []
    with pytest.raises(RunError, match=r"^run 'first' ended by an error .*3 times in round 5"):
        follow(watched.folder, "first", said.append)
    assert not any("3 times" in sentence for sentence in said), "said once, as the error"


def test_a_killed_process_is_told_with_its_signal_and_always_started_again(
    watched: Watched,
) -> None:
    for number in range(1, 6):
        watched.end(-9)
        assert len(watched.processes) == number
    told = watched.told()
    assert "its process was killed by signal 9 (mostly for lack of memory" in told
    assert str(watched.folder.log("run")) in told
    watched.look()
    assert len(watched.processes) == 6


def test_a_run_that_ends_well_between_two_looks_is_not_interrupted(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.look()

    def finished(_: Ended) -> int:
        watched.folder.save_job(Job("first", since=1.0, wanted=False))
        return 0

    monkeypatch.setattr(Ended, "poll", finished)
    watched.look()
    assert not watched.said
    assert watched.folder.status() == {}


def test_a_run_waits_longer_the_more_often_it_ended(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_SOON_AFTER", 1.0)
    now = [0.0]
    monkeypatch.setattr(server.time, "monotonic", lambda: now[0])
    for pause in (1, 2, 4):
        watched.end(1, "the SuperLink does not answer")
        assert (
            f"the SuperLink does not answer; it goes on from its checkpoint in {pause} s"
            in (watched.said[-1])
        )
        begun = len(watched.processes)
        now[0] += pause - 0.1
        watched.look()
        assert len(watched.processes) == begun, "not yet"
        now[0] += 0.2
        watched.look()
        assert len(watched.processes) == begun + 1
    watched.end(1)
    watched.folder.save_job(Job("first", since=2.0))
    watched.look()
    assert len(watched.processes) == begun + 2, "whoever asks for it again does not wait"


def test_a_run_without_a_server_waits(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its process told last."""
    RunStatus.of(watched.folder, "first", lambda _: None).note(state="running")
    assert status_of(watched.folder)["run"]["state"] == "running"
    monkeypatch.setattr(operating, "running_process", lambda _: None)
    assert "Run 'first': waiting" in watched.told()
    assert f"'fedapa server start {watched.folder.path}', and the run goes on." in watched.told()


def test_the_logs_of_a_server_stay_short(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LONGEST_LOG", 10)
    monkeypatch.setattr(ServerFolder, "disk_trouble", lambda _: "full")
    for name in ("run", "superlink"):
        watched.folder.log(name).parent.mkdir(exist_ok=True)
        watched.folder.log(name).write_text("x" * 11)
    with pytest.raises(RunError, match="full"):
        watched._server._look()
    assert [watched.folder.log(name).read_text() for name in ("run", "superlink")] == ["", ""]
