"""The process of a run: it finishes, pauses and says why, or fails with a sentence."""

import errno
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message
from typer.testing import CliRunner

from fedapa.cli import app
from fedapa.errors import RunError
from fedapa.federation.engines.frames import REFUSED, pack
from fedapa.federation.network import running
from fedapa.federation.network.operating import begin_run, follow, status_of
from fedapa.federation.network.room import make_room_folder
from fedapa.federation.network.run_status import CRASHED, RunStatus
from fedapa.federation.network.running import carry_out_job
from fedapa.federation.network.server_folder import Job, ServerFolder, Settings
from tests.conftest import MakeStore
from tests.federation.fake_grid import FakeGrid, nodes_of
from tests.federation.test_flower import THREE, plan_of


@pytest.fixture
def server(tmp_path: Path) -> ServerFolder:
    made = ServerFolder.make(tmp_path / "server", Settings("localhost"))
    for room in THREE:
        made.enrol(make_room_folder(tmp_path / f"key of {room}"), room)
    return made


def prepared(server: ServerFolder, store: Path, folder: Path, **values: Any) -> FakeGrid:
    grid = FakeGrid(nodes_of(store, THREE, folder / "rooms"))
    for room, node in grid.nodes().items():
        server.note_node(room, node)
    plan = plan_of(store, **{"rounds": 2, **values})
    server.plan_file("first").parent.mkdir()
    server.plan_file("first").write_text(plan.toml())
    server.save_job(Job("first"))
    return grid


def said(server: ServerFolder) -> list[str]:
    return [entry["said"] for entry in server.status()["said"]]


def test_a_run_ends_and_says_so(
    server: ServerFolder, make_store: MakeStore, tmp_path: Path
) -> None:
    grid = prepared(server, make_store(THREE), tmp_path)
    carry_out_job(server, grid)
    assert server.status()["state"] == "finished"
    assert server.job() == Job("first", wanted=False)
    told = status_of(server)
    assert told["run"]["round"] == 2
    assert told["rooms"]["cafe"]["windows"] > 0
    assert told["rooms"]["cafe"]["last_seen"] is not None
    assert (server.run("first") / "summary.json").is_file()


def test_a_run_that_is_asked_for_again_while_it_ends_is_still_wanted(
    server: ServerFolder, make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = prepared(server, make_store(THREE), tmp_path)
    note = RunStatus.note

    def asked_again(status: RunStatus, **values: Any) -> None:
        note(status, **values)
        if values.get("state") == "finished":
            server.save_job(Job("first", since=7.0))

    monkeypatch.setattr(RunStatus, "note", asked_again)
    carry_out_job(server, grid)
    assert server.job() == Job("first", since=7.0)


def test_a_full_disk_pauses_it(
    server: ServerFolder, make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = prepared(server, make_store(THREE), tmp_path)
    usual, tries = running.run, []

    def full_at_first(*arguments: Any, **values: Any) -> Any:
        tries.append(server.status().get("state"))
        if len(tries) < 3:
            raise OSError(errno.ENOSPC, "No space left on device", "checkpoint")
        return usual(*arguments, **values)

    monkeypatch.setattr(running, "run", full_at_first)
    monkeypatch.setattr(running, "_AGAIN", 0.01)
    carry_out_job(server, grid)
    sentence = "checkpoint: No space left on device; nothing is half written, make room"
    assert said(server) == [sentence], "once, though it was full twice"
    assert server.status()["state"] == "finished"


def test_too_few_rooms_pause_it_until_they_are_back(
    server: ServerFolder, make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_AGAIN", 0.05)
    store = make_store(THREE)
    grid = prepared(server, store, tmp_path, network={"deadline": 1.0, "quorum": 3})
    grid.online = {"cafe", "hall"}

    def come_back() -> None:
        while server.status().get("state") != "paused":
            time.sleep(0.05)
        grid.online.add("lab")

    threading.Thread(target=come_back, daemon=True).start()
    carry_out_job(server, grid)
    assert "2 of 3 enrolled rooms told their data" in said(server)[0]
    assert server.status()["state"] == "finished"


def test_an_open_run_that_is_given_a_number_it_has_passed_ends_after_the_next_round(
    server: ServerFolder, make_store: MakeStore, tmp_path: Path
) -> None:
    """Also when the process ends in between: the number that it found is in its plan."""
    store = make_store(THREE)
    grid = prepared(server, store, tmp_path, rounds="open")
    out = server.run("first")

    def stop_in_round_4(room: str, reply: Message) -> list[Message]:
        if (lines := out / "rounds.jsonl").is_file() and len(lines.read_text().splitlines()) == 3:
            raise KeyboardInterrupt
        return [reply]

    grid.tamper = stop_in_round_4
    with pytest.raises(KeyboardInterrupt):
        carry_out_job(server, grid)
    grid.tamper = lambda room, reply: [reply]
    server.plan_file("first").write_text(plan_of(store, rounds=2).toml())
    carry_out_job(server, grid)
    assert server.status()["state"] == "finished"
    done = len((out / "rounds.jsonl").read_text().splitlines())
    assert f"2 rounds are done already; the run ends after round {done}" in said(server)
    assert done in (4, 5)
    server.save_job(Job("first"))
    carry_out_job(server, grid)
    assert server.status()["state"] == "finished"


def test_what_cannot_be_mended_is_a_sentence_and_the_end(
    server: ServerFolder, make_store: MakeStore, tmp_path: Path
) -> None:
    grid = prepared(server, make_store(THREE), tmp_path)
    server.plan_file("first").write_text("nonsense = 1")
    carry_out_job(server, grid)
    assert server.status()["state"] == "failed"
    assert "unknown key" in said(server)[-1]
    assert server.job() == Job("first", wanted=False)
    with pytest.raises(RunError, match="run 'first': nonsense: unknown key"):
        follow(server, "first", lambda _: None)


def test_an_error_that_nobody_foresaw_is_left_to_the_server_with_its_reason(
    server: ServerFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: ServerFolder) -> None:
        raise ZeroDivisionError("division by\nzero")

    server.save_job(Job("first"))
    monkeypatch.setattr(running, "_grid", broken)
    monkeypatch.setattr(sys, "argv", ["run", str(server.path)])
    with pytest.raises(SystemExit) as ended:
        running.main()
    assert ended.value.code == CRASHED
    assert server.status()["error"] == "ZeroDivisionError: division by zero"
    assert "Traceback" in capsys.readouterr().err, "for the log"


def test_rooms_without_a_model_are_named_at_the_end_with_reason_and_remedy(
    server: ServerFolder, make_store: MakeStore, tmp_path: Path
) -> None:
    """One that was away, one whose reply was no good, one that never came."""
    grid = prepared(server, make_store(THREE), tmp_path, network={"deadline": 1.0})
    server.enrol(make_room_folder(tmp_path / "key of attic"), "attic")

    def tamper(room: str, reply: Message) -> list[Message]:
        if reply.metadata.group_id == "3" and room == "hall":
            reply.content = pack({REFUSED: b"No space left\non device"})
        return [] if reply.metadata.group_id == "3" and room == "lab" else [reply]

    grid.tamper = tamper
    carry_out_job(server, grid)
    told = sorted(status_of(server)["run"]["end"])
    assert len(told) == 4
    attic, lab, hall, remedy = told
    assert "'hall' is rejected: No space left on device; it has no last score, maybe no" in hall
    assert attic == "room 'attic' has no model of this run: it was never connected"
    assert lab.startswith("room 'lab' missed the last exchange, so it has no model file of the end")
    plan = server.plan_file("first")
    assert remedy.endswith(
        f"set rounds = 3 in {plan}, then: fedapa server run {server.path} {plan}"
    )
    said: list[str] = []
    follow(server, "first", said.append)
    assert {hall, attic, lab, remedy} <= set(said)
    printed = CliRunner().invoke(app, ["server", "status", str(server.path)]).output
    assert all(sentence in printed for sentence in told)


def test_a_room_that_was_refused_is_to_be_put_right_and_not_to_come_back(
    server: ServerFolder, make_store: MakeStore, tmp_path: Path
) -> None:
    grid = prepared(server, make_store(THREE), tmp_path)

    def tamper(room: str, reply: Message) -> list[Message]:
        if room == "hall":
            reply.content = pack({REFUSED: b"its owner wants noise"})
        return [reply]

    grid.tamper = tamper
    carry_out_job(server, grid)
    hall, remedy = status_of(server)["run"]["end"]
    assert hall == "room 'hall' has no model of this run: it was refused (its owner wants noise)"
    why = "once what it was refused for is put right there"
    assert remedy.startswith(f"to give a room its model {why}, set rounds = 3 in")


def test_status_tells_what_noised_sets_have_cost_and_what_that_says(
    server: ServerFolder, make_store: MakeStore, tmp_path: Path
) -> None:
    """ε is divided among one release, and there are two rounds."""
    private = {"epsilon": 4.0, "unit": "window", "releases": 1}
    carry_out_job(server, prepared(server, make_store(THREE), tmp_path, privacy=private))
    told = status_of(server)
    for room in THREE:
        assert told["rooms"][room]["privacy"]["epsilon"] == pytest.approx(4.0, abs=1e-5)
        assert told["rooms"][room]["withheld"] == 1
    assert "It is no guarantee for recordings" in told["run"]["privacy"]
    printed = CliRunner().invoke(app, ["server", "status", str(server.path)]).output
    assert "ε spent" in printed
    assert "is withheld: its privacy budget is spent" in " ".join(printed.split())


def test_no_epsilon_is_told_of_a_plan_without_noise(
    server: ServerFolder, make_store: MakeStore, tmp_path: Path
) -> None:
    """A room may report any number."""
    carry_out_job(server, prepared(server, make_store(THREE), tmp_path))
    path = server.run(server.job().run) / "rounds.jsonl"  # type: ignore[union-attr]
    records = [json.loads(line) for line in path.read_text().splitlines()]
    records[-1]["rooms"]["hall"].update(epsilon=1.0, delta=1e-5, releases=1.0)
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    told = status_of(server)
    assert "privacy" not in told["run"]
    assert told["rooms"]["hall"]["privacy"] is None


def test_the_end_of_a_run_tells_what_its_defence_could_not_compare(
    server: ServerFolder, make_store: MakeStore, tmp_path: Path
) -> None:
    two = {"cafe": THREE["cafe"], "hall": THREE["hall"]}
    carry_out_job(server, prepared(server, make_store(two), tmp_path, defence="guard"))
    (told,) = [said for said in status_of(server)["run"]["end"] if "the defence" in said]
    assert "cannot compare the prototypes of any room" in told


def test_a_run_that_left_nobody_without_a_model_says_nothing_of_models(
    server: ServerFolder, make_store: MakeStore, tmp_path: Path
) -> None:
    carry_out_job(server, prepared(server, make_store(THREE), tmp_path, rounds=1))
    assert status_of(server)["run"]["end"] == []


def test_a_run_needs_a_server_that_runs(
    server: ServerFolder, make_store: MakeStore, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text("rounds = 2")
    with pytest.raises(RunError, match="its server does not run; start it with"):
        begin_run(server, plan, "first")
