"""Runs: complete, equal with any number of workers, killable, careful with what is there."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import filelock
import h5py
import numpy as np
import pytest
from safetensors import safe_open

from fedapa import Plan, Room, run
from fedapa import files as files_module
from fedapa.algorithms.algorithm import Roster, Round
from fedapa.errors import DataError, PlanError, RunError
from fedapa.federation.checkpoint import Checkpoint
from fedapa.federation.engines.in_process import InProcess
from fedapa.federation.messages import (
    Reply,
    Request,
    decode_card,
    decode_reply,
    decode_request,
    decode_round,
    encode_card,
    encode_reply,
    encode_request,
    encode_round,
)
from fedapa.federation.participant import introduce
from fedapa.federation.prepare import prepare_rooms
from fedapa.federation.run import Run
from fedapa.files import cache_folder
from fedapa.processes import Progress
from fedapa.stores.arrays import ArrayFile
from fedapa.stores.store import write_store
from fedapa.windows.normalise import Normaliser
from tests.conftest import MakeRooms, MakeStore, hear_ctrl_c

SAME = ("rounds.jsonl", "plan.toml", "data.json", "summary.json", "checkpoint")


def plan_of(store: Path, **values: Any) -> Plan:
    base: dict[str, Any] = {
        "rounds": 4,
        "data": {"file": str(store), "window": 16, "split": "random"},
        "model": {"architecture": "by-size", "width": 16},
        "training": {"batch_size": 4},
        "algorithm": {"name": "fedapa", "warm_rounds": 2},
    }
    return Plan.of(base, values)


def content(folder: Path) -> dict[str, bytes]:
    """Everything that must be equal between equal runs."""
    kept = [folder / name for name in SAME] + sorted((folder / "models").iterdir())
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


THREE = {"cafe": {0: 2, 1: 2, 2: 2}, "hall": {0: 2, 2: 2}, "lab": {1: 2, 2: 2}}


def test_a_run_leaves_everything_behind(make_store: MakeStore, tmp_path: Path) -> None:
    out = tmp_path / "out"
    seen: list[Progress] = []
    finished = run(plan_of(make_store(THREE)), out=out, workers=0, show=seen.append)
    assert [record["round"] for record in finished.records] == [1, 2, 3, 4]
    entry = finished.records[-1]["rooms"]["cafe"]
    for name in [
        "accuracy",
        "macro_f1",
        "mae",
        "within_one",
        "presence",
        "loss",
        "loss_ce",
        "loss_g",
        "loss_c",
        "lambda",
        "entropy",
        "bytes_up",
        "bytes_down",
        "participated",
    ]:
        assert name in entry, name
    summary = json.loads((out / "summary.json").read_text())
    assert summary["over_rooms"]["mean"].keys() == summary["over_rooms"]["std"].keys()
    assert set(summary["blind"]) == {"constant", "prior"}
    assert np.asarray(summary["confusion"]["cafe"]).shape == (3, 3)
    _check_presence(finished, summary)
    before = json.loads((out / "before.json").read_text())
    assert finished.before == before
    assert set(before["rooms"]) == set(THREE)
    told = [room["accuracy"] for room in before["rooms"].values()]
    assert before["mean"]["accuracy"] == pytest.approx(np.mean(told))
    assert len((out / "seconds.jsonl").read_text().splitlines()) == 5
    environment = json.loads((out / "environment.json").read_text())
    assert environment["packages"]["torch"].startswith("2.13.0")
    accuracy = 100 * finished.records[-1]["mean"]["accuracy"]
    assert seen[-1] == Progress("training fedapa", 4, 4, "rounds", f"accuracy {accuracy:.1f} %")
    assert not finished.synthetic
    assert Run.load(out).summary == finished.summary
    assert not list(out.rglob("*.partial"))


def _check_presence(finished: Run, summary: dict[str, Any]) -> None:
    """The lab is never empty: its presence has a share and no area, and every mean says so."""
    rooms = finished.records[-1]["rooms"]
    having = [room for room in THREE if "presence_auc" in rooms[room]]
    assert "lab" not in having and having
    for whole in (finished.records[-1], summary["over_rooms"], summary["blind"]["prior"]):
        assert whole["fewer_rooms"] == {"presence_auc": len(having)}
        assert set(whole["mean"]) >= {"presence", "presence_auc"}
    areas = [rooms[room]["presence_auc"] for room in having]
    assert finished.records[-1]["mean"]["presence_auc"] == pytest.approx(np.mean(areas))
    for room in THREE:
        table, matrix = np.asarray(summary["roc"][room]), np.asarray(summary["confusion"][room])
        assert table.shape == (21, 2)
        assert table[0].tolist() == [matrix[0].sum(), matrix[1:].sum()]


def test_a_model_file_stands_on_its_own(make_store: MakeStore, tmp_path: Path) -> None:
    """It is enough to rebuild the net and score the same: tensors, normaliser, classes."""
    import torch

    from fedapa.models.build import build_model
    from fedapa.randomness import Key

    plan = plan_of(make_store(THREE))
    finished = run(plan, out=tmp_path / "out", workers=0)
    room = next(room for room in prepare_rooms(plan) if room.name == "cafe")
    with safe_open(tmp_path / "out" / "models" / "cafe.safetensors", "pt") as file:
        about = json.loads(file.metadata()["fedapa"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert about["classes"] == [0, 1, 2]
    assert about["synthetic"] is False
    mean, deviation = tensors.pop("normaliser.mean"), tensors.pop("normaliser.deviation")
    net = build_model(about["architecture"], classes=3, width=16, window_shape=(16, 6), key=Key(9))
    net.load_state_dict({name: tensors[name] for name in net.state_dict()})
    windows = (torch.from_numpy(room.windows[room.split.test]) - mean) / deviation
    with torch.no_grad():
        right = (net.eval().predict(windows).numpy() == room.labels[room.split.test]).mean()
    assert right == pytest.approx(finished.records[-1]["rooms"]["cafe"]["accuracy"])


@pytest.mark.slow
def test_a_normaliser_is_computed_once_for_the_same_train_windows(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = str(make_store())

    def normalisers(seed: int) -> dict[str, Normaliser]:
        data = {"file": store, "window": 16, "split": "random", "view": "amplitude"}
        plan = Plan(seed=seed, data=data)
        return {room.name: room.normaliser for room in prepare_rooms(plan)}

    calls = 0
    computed = Normaliser.of

    def counted(*given: Any) -> Normaliser:
        nonlocal calls
        calls += 1
        return computed(*given)

    monkeypatch.setattr(Normaliser, "of", counted)
    first, again, other = normalisers(0), normalisers(0), normalisers(1)
    assert calls == 2 * len(first)  # seeds 0 and 1: another split is another normaliser
    for room, made in first.items():
        assert np.array_equal(made.mean, again[room].mean)
        assert np.array_equal(made.deviation, again[room].deviation)
        assert not np.array_equal(made.mean, other[room].mean)
    for kept in cache_folder().rglob("*.normaliser"):
        kept.write_bytes(b"damaged")
    assert np.array_equal(normalisers(0)["cafe"].mean, first["cafe"].mean)


def test_any_number_of_workers_gives_the_same_bytes(make_store: MakeStore, tmp_path: Path) -> None:
    plan = plan_of(make_store(THREE))
    for workers in (0, 1, 2, 3):
        run(plan, out=tmp_path / str(workers), workers=workers)
    expected = content(tmp_path / "0")
    for workers in (1, 2, 3):
        assert content(tmp_path / str(workers)) == expected, workers


def test_the_seed_changes_the_result(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store(THREE)
    for seed in (0, 1):
        run(plan_of(store, seed=seed, rounds=1), out=tmp_path / str(seed), workers=0)
    one, other = (content(tmp_path / str(seed))["models/cafe.safetensors"] for seed in (0, 1))
    assert one != other


_SCRIPT = """
import sys
from fedapa import Plan, run
from fedapa.toml import read_toml
if __name__ == "__main__":
    run(Plan.of(read_toml(sys.argv[1])), out=sys.argv[2], workers=int(sys.argv[3]), resume=True)
"""


def _start(tmp_path: Path, plan: Plan, out: Path, workers: int) -> "subprocess.Popen[bytes]":
    script, path = tmp_path / "script.py", tmp_path / "given.toml"
    script.write_text(_SCRIPT)
    path.write_text(plan.toml())
    return subprocess.Popen(
        [sys.executable, str(script), str(path), str(out), str(workers)], env=os.environ
    )


def _children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(status[1]) == pid:
                found.append(int(entry.name))
    return found


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _gone(pids: list[int]) -> bool:
    """Whether all of them end within some seconds."""
    deadline = time.monotonic() + 20
    while any(_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(_alive(pid) for pid in pids)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("workers", [0, 2])
def test_kill_at_any_moment_and_resume_ends_with_the_same_bytes(
    make_store: MakeStore, tmp_path: Path, workers: int
) -> None:
    """Killed five times at different moments; after each kill no worker is left over."""
    plan = plan_of(make_store(THREE), rounds=12)
    run(plan, out=tmp_path / "whole", workers=0)
    out = tmp_path / "killed"
    kills = 0
    for pause in (0.0, 0.05, 0.11, 0.2, 0.35):
        process = _start(tmp_path, plan, out, workers)
        lines = out / "rounds.jsonl"
        before = lines.stat().st_size if lines.exists() else 0
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            if lines.exists() and lines.stat().st_size > before:
                break
            time.sleep(0.005)
        time.sleep(pause)
        workers_alive = _children(process.pid)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.wait(60)
        assert _gone(workers_alive), "a worker outlived its parent"
    assert kills >= 2
    run(plan, out=out, workers=0, resume=True)
    assert content(out) == content(tmp_path / "whole")


@pytest.mark.slow
def test_ctrl_c_ends_at_once_with_a_word_about_resuming(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """Rooms that would train for minutes are not waited for."""
    plan, out = plan_of(make_store(THREE), training={"epochs": 100_000}), tmp_path / "out"
    (tmp_path / "given.toml").write_text(plan.toml())
    words = ["run", str(tmp_path / "given.toml"), "--out", str(out), "--workers", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fedapa", *words],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=hear_ctrl_c,
    )
    deadline = time.monotonic() + 120
    while not (out / "plan.toml").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(5)
    children = _children(process.pid)
    process.send_signal(signal.SIGINT)
    try:
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert said.strip().endswith("a run goes on with --resume")
    assert _gone(children)


def test_a_full_disk_in_a_checkpoint_leaves_the_previous_one(
    make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(make_store(THREE))
    run(plan, out=tmp_path / "whole", workers=0)
    out = tmp_path / "out"
    real, calls = files_module._sync, 0

    def full(handle: int) -> None:
        nonlocal calls
        name = str(Path(f"/proc/self/fd/{handle}").readlink())
        if ".checkpoint." in name:
            calls += 1
            if calls == 3:
                raise OSError(errno.ENOSPC, "No space left on device", name)
        real(handle)

    monkeypatch.setattr(files_module, "_sync", full)
    with pytest.raises(OSError, match="No space left"):
        run(plan, out=out, workers=0)
    assert not list(out.glob(".*.partial"))
    monkeypatch.setattr(files_module, "_sync", real)
    run(plan, out=out, workers=0, resume=True)
    assert content(out) == content(tmp_path / "whole")


def test_resume_where_nothing_was_saved_starts_afresh(
    make_store: MakeStore, tmp_path: Path
) -> None:
    plan = plan_of(make_store(THREE), rounds=1)
    assert run(plan, out=tmp_path / "new", workers=0, resume=True).records
    (tmp_path / "empty").mkdir()
    assert run(plan, out=tmp_path / "empty", workers=0, resume=True).records


def test_resume_of_a_finished_run_changes_nothing(make_store: MakeStore, tmp_path: Path) -> None:
    plan, out = plan_of(make_store(THREE), rounds=2), tmp_path / "out"
    run(plan, out=out, workers=0)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.json*")}
    run(plan, out=out, workers=0, resume=True)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.json*")} == before


def test_what_a_kill_left_half_written_does_not_stop_a_resume(
    make_store: MakeStore, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / ".plan.toml.deadbeef.partial").write_text("rou")
    assert run(plan_of(make_store(THREE), rounds=1), out=out, workers=0, resume=True).records
    assert not list(out.rglob("*.partial"))


def test_a_run_that_was_overtaken_while_preparing_is_refused(
    make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs pass the first look at one directory; the slower one must not return the other's."""
    from fedapa.federation import run as module

    store, out = make_store(THREE), tmp_path / "out"
    prepare = module.in_process

    def overtaken(*words: Any, **settings: Any) -> InProcess:
        monkeypatch.setattr(module, "in_process", prepare)
        run(plan_of(store, rounds=1), out=out, workers=0)
        return prepare(*words, **settings)

    monkeypatch.setattr(module, "in_process", overtaken)
    with pytest.raises(RunError, match="already holds a run"):
        run(plan_of(store, rounds=2), out=out, workers=0)


def test_damaged_files_of_a_run_are_one_sentence(make_store: MakeStore, tmp_path: Path) -> None:
    plan, out = plan_of(make_store(THREE), rounds=1), tmp_path / "out"
    run(plan, out=out, workers=0)
    for name in ("plan.toml", "summary.json", "data.json"):
        whole = (out / name).read_text()
        (out / name).write_text(whole[: len(whole) // 2] + "{")
        with pytest.raises(RunError, match="damaged or incomplete"):
            Run.load(out)
        (out / name).write_text(whole)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("data.json", None, None),
        ("data.json", "rooms", None),
        ("data.json", "classes", {"0": 1}),
        ("summary.json", None, []),
        ("summary.json", "over_rooms", None),
        ("summary.json", "rooms", {"cafe": {"accuracy": None}}),
        ("summary.json", "roc", {"cafe": [[1.5, 2]]}),
        ("summary.json", "roc", {"cafe": [[1, 2, 3]]}),
        ("environment.json", "packages", None),
        ("rounds.jsonl", "rooms", None),
        ("rounds.jsonl", "mean", {"accuracy": "high"}),
    ],
)
def test_null_and_other_types_in_files_of_a_run_are_one_sentence(
    name: str, key: str | None, value: Any, make_store: MakeStore, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run(plan_of(make_store(THREE), rounds=1), out=out, workers=0)
    before = json.loads((out / name).read_text())
    (out / name).write_text(json.dumps(value if key is None else {**before, key: value}) + "\n")
    with pytest.raises(RunError, match=rf"{name}: its files are damaged .*; run again"):
        Run.load(out)


def test_an_empty_or_incomplete_plan_file_is_not_taken_for_the_defaults(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """An empty one would make every run a run of FedAPA."""
    plan, out = plan_of(make_store(THREE), rounds=1, algorithm="local"), tmp_path / "out"
    run(plan, out=out, workers=0)
    whole = (out / "plan.toml").read_text()
    for text in ("", 'algorithm = "local"\n', whole.replace("seed = 0\n", ""), "rounds = [[[["):
        (out / "plan.toml").write_text(text)
        with pytest.raises(RunError, match=r"plan\.toml: its files are damaged or incomplete"):
            Run.load(out)
        with pytest.raises(RunError, match=r"plan\.toml: its files are damaged or incomplete"):
            run(plan, out=out, workers=0, resume=True)


@pytest.mark.parametrize("what", ["emptied", "cut", "deleted"])
def test_resume_after_the_records_were_lost_is_refused(
    what: str, make_store: MakeStore, tmp_path: Path
) -> None:
    """Finished or to be made longer: a summary of what is left would be wrong."""
    store, out = make_store(THREE), tmp_path / "out"
    run(plan_of(store, rounds=4), out=out, workers=0)
    lines = out / "rounds.jsonl"
    whole = lines.read_text().splitlines(keepends=True)
    if what == "deleted":
        lines.unlink()
    else:
        lines.write_text("" if what == "emptied" else "".join(whole[:2]))
    left = {"emptied": 0, "cut": 2, "deleted": 0}[what]
    with pytest.raises(RunError, match=rf"rounds\.jsonl: holds {left} of the 4 rounds .* put it"):
        run(plan_of(store, rounds=4), out=out, workers=0, resume=True)
    with pytest.raises(RunError, match=rf"holds {left} of the 3 rounds that were done"):
        run(plan_of(store, rounds=5), out=out, workers=0, resume=True)
    with pytest.raises(RunError, match=rf"holds {left} of the 4 rounds that were done"):
        Run.load(out)
    lines.write_text("".join(whole))
    assert len(run(plan_of(store, rounds=5), out=out, workers=0, resume=True).records) == 5


def test_resume_after_a_room_lost_its_states_is_refused(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """Its net would begin anew under the old records."""
    store, out = make_store(THREE), tmp_path / "out"
    run(plan_of(store, rounds=2), out=out, workers=0)
    first = sorted((out / "rooms").iterdir())[0]
    first.rename(tmp_path / "kept")
    with pytest.raises(RunError, match=f"the state of room '{first.name}' is missing.*put it back"):
        run(plan_of(store, rounds=3), out=out, workers=0, resume=True)
    (tmp_path / "kept").rename(first)
    assert len(run(plan_of(store, rounds=3), out=out, workers=0, resume=True).records) == 3


def test_a_finished_run_makes_its_nets_again(make_store: MakeStore, tmp_path: Path) -> None:
    store, out = make_store(THREE), tmp_path / "out"
    run(plan_of(store, rounds=2), out=out, workers=0)
    before = {path.name: path.read_bytes() for path in (out / "models").iterdir()}
    shutil.rmtree(out / "models")
    run(plan_of(store, rounds=2), out=out, workers=0, resume=True)
    assert {path.name: path.read_bytes() for path in (out / "models").iterdir()} == before


def test_resume_without_a_checkpoint_is_refused(make_store: MakeStore, tmp_path: Path) -> None:
    plan, out = plan_of(make_store(THREE), rounds=1), tmp_path / "out"
    run(plan, out=out, workers=0)
    (out / "checkpoint").unlink()
    with pytest.raises(RunError, match="its checkpoint is missing"):
        run(plan, out=out, workers=0, resume=True)


def test_the_fingerprint_covers_every_window(make_store: MakeStore, make_rooms: MakeRooms) -> None:
    """One value of one window, in whatever part; of a store's rooms and of rooms in Python."""
    for rooms in (prepare_rooms(plan_of(make_store(THREE))), make_rooms()):
        room = rooms[0]
        known = introduce(room).fingerprint
        assert introduce(room).fingerprint == known
        for part in ("train", "validation", "test"):
            windows = np.array(room.windows)
            windows[getattr(room.split, part)[0], 0, 0] += 1
            assert introduce(replace(room, windows=windows)).fingerprint != known, part
        same = replace(room, windows=np.array(room.windows))
        assert introduce(same).fingerprint == known, "by their values, wherever they lie"


def test_test_windows_that_changed_are_noticed_on_resume(
    make_store: MakeStore, tmp_path: Path
) -> None:
    store, out = make_store(THREE), tmp_path / "out"
    plan = plan_of(store, rounds=1, data={"split": "recording"})
    run(plan, out=out, workers=0)
    (room, *_) = (room for room in prepare_rooms(plan) if room.name == "cafe")
    tested = int(room.split.test[0])
    with h5py.File(store, "r+") as file:
        names = sorted(file["cafe"])
        per_recording = len(room.windows) // len(names)
        recording = file["cafe"][names[tested // per_recording]]["amplitude"]
        recording[(tested % per_recording) * 16 + 3] += 0.5
    os.utime(store)
    with pytest.raises(RunError, match=r"the data changed .*rooms\.cafe\.fingerprint"):
        run(plan, out=out, workers=0, resume=True)


def test_the_server_needs_an_engine_and_no_room(make_rooms: MakeRooms, tmp_path: Path) -> None:
    """Split sizes, blind scores, fingerprints and seconds come in cards and replies, as bytes."""

    class Wire:
        def __init__(self, engine: InProcess) -> None:
            self._engine = engine

        def roster(self) -> Roster:
            return [decode_card(encode_card(card)) for card in self._engine.roster()]

        def exchange(self, round: Round, requests: Mapping[str, Request]) -> Mapping[str, Reply]:
            asked = {room: decode_request(encode_request(requests[room])) for room in requests}
            replies = self._engine.exchange(decode_round(encode_round(round)), asked)
            return {room: decode_reply(encode_reply(replies[room])) for room in replies}

    plan, rooms = Plan(rounds=2, algorithm="fedapa"), make_rooms()
    plain = run(plan, rooms=rooms, out=tmp_path / "plain", workers=0)
    engine = Wire(InProcess(plan.build(), rooms, folder=tmp_path / "wire", workers=0))
    wired = run(plan, engine=engine, out=tmp_path / "wire")
    assert wired.summary == plain.summary
    assert wired.data == plain.data
    assert content(tmp_path / "wire") == content(tmp_path / "plain")
    assert run(plan, engine=engine, out=tmp_path / "wire", resume=True).summary == plain.summary
    with pytest.raises(PlanError, match="give one of the two"):
        run(plan, engine=engine, rooms=rooms, out=tmp_path / "both")


def test_rooms_that_join_later_are_in_the_runs_files(make_rooms: MakeRooms, tmp_path: Path) -> None:
    """The first room is there from round 3 on, the last one leaves after it."""

    class Changing:
        def __init__(self, engine: InProcess) -> None:
            self._engine, self._asked = engine, 0

        def roster(self) -> Roster:
            self._asked += 1
            cards = self._engine.roster()
            return cards[1:] if self._asked <= 3 else cards[:2]

        def exchange(self, round: Round, requests: Mapping[str, Request]) -> Mapping[str, Reply]:
            return self._engine.exchange(round, requests)

    plan = Plan(rounds=5, algorithm="fedapa")
    inner = InProcess(plan.build(), make_rooms(), folder=tmp_path / "out", workers=0)
    done = run(plan, engine=Changing(inner), out=tmp_path / "out")
    assert sorted(done.data["rooms"]) == ["room 0", "room 1", "room 2"]
    assert sorted(done.records[0]["rooms"]) == ["room 1", "room 2"]
    assert sorted(done.records[-1]["rooms"]) == ["room 0", "room 1"]
    assert done.summary["averaged_fewer"] == {"room 0": 4, "room 2": 1}
    assert set(done.summary["windows"]) == {"room 0", "room 1", "room 2"}


class Absent:
    """An engine that loses the replies of some rooms in some exchanges, and counts what it asks."""

    def __init__(self, engine: InProcess, lost: Callable[[int, str], bool]) -> None:
        self._engine, self._lost = engine, lost
        self.names: set[str] = set()

    def roster(self) -> Roster:
        return self._engine.roster()

    def exchange(self, round: Round, requests: Mapping[str, Request]) -> Mapping[str, Reply]:
        self.names |= {request.run for request in requests.values()}
        here = {room: requests[room] for room in requests if not self._lost(round.number, room)}
        return self._engine.exchange(round, here)


def test_a_room_that_misses_the_end_is_named(make_rooms: MakeRooms, tmp_path: Path) -> None:
    """It has no model file; when it is back, a longer run gives it one and the note goes."""
    plan, out = Plan(rounds=2, algorithm="fedapa"), tmp_path / "out"
    inner = InProcess(plan.build(), make_rooms(), folder=out, workers=0)
    lost = Absent(inner, lambda number, room: number == 3 and room == "room 1")
    done = run(plan, engine=lost, out=out)
    assert done.summary["without_model"] == ["room 1"]
    (note,) = done.summary["notes"]
    assert note.startswith("exchange 3: room 'room 1' missed the last exchange, so it has no model")
    assert not (out / "models" / "room 1.safetensors").exists()
    longer = run(Plan(rounds=3, algorithm="fedapa"), engine=inner, out=out, resume=True)
    assert "notes" not in longer.summary and "without_model" not in longer.summary
    assert (out / "models" / "room 1.safetensors").exists()


def test_a_run_in_which_nobody_scores_says_so(make_rooms: MakeRooms, tmp_path: Path) -> None:
    plan, out = Plan(rounds=2, algorithm="local"), tmp_path / "out"
    inner = InProcess(plan.build(), make_rooms(), folder=out, workers=0)
    with pytest.raises(RunError, match=r"out: no room told a score in 2 rounds, .* --resume"):
        run(plan, engine=Absent(inner, lambda *_: True), out=out)
    assert not (out / "summary.json").exists()
    assert run(plan, engine=inner, out=out, resume=True).summary["rooms"], "they are back"
    early = Plan(rounds=6, algorithm="local")
    done = run(early, engine=Absent(inner, lambda number, _: number > 2), out=tmp_path / "early")
    assert "no room told a score in the last 5 rounds" in done.summary["notes"]


def test_the_same_plan_twice_is_two_runs_to_rooms_that_keep_their_states(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """To the same bytes; a resumed run goes on under its name, and without it not at all."""
    plan = Plan(rounds=2, algorithm="fedapa")
    inner = InProcess(plan.build(), make_rooms(), folder=tmp_path / "rooms", workers=0)
    engines = [Absent(inner, lambda *_: False) for _ in range(2)]
    for number, engine in enumerate(engines):
        run(plan, engine=engine, out=tmp_path / str(number))
        assert len(engine.names) == 1
    assert engines[0].names != engines[1].names
    assert len(list((tmp_path / "rooms" / "rooms" / "room 0").iterdir())) == 2
    for name in SAME:
        assert (tmp_path / "0" / name).read_bytes() == (tmp_path / "1" / name).read_bytes(), name
    longer = Plan(rounds=3, algorithm="fedapa")
    run(longer, engine=engines[1], out=tmp_path / "1", resume=True)
    assert len(engines[1].names) == 1
    for content, complaint in ((b"no such run", "is not the name of this run"), (None, "missing")):
        (tmp_path / "0" / "name").unlink()
        if content is not None:
            (tmp_path / "0" / "name").write_bytes(content)
        with pytest.raises(RunError, match=complaint):
            run(longer, engine=engines[0], out=tmp_path / "0", resume=True)


def test_a_net_that_cannot_be_saved_is_refused_before_it_is_trained(
    make_rooms: MakeRooms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch import nn

    usual = Room.build

    def build(self: Room) -> Any:
        model = usual(self)
        model.encoder.append(nn.Tanh())
        return model

    monkeypatch.setattr(Room, "build", build)
    with pytest.raises(PlanError, match=r"room 'room 0': its net 'middle' cannot be saved: .*Tanh"):
        run(Plan(rounds=1, algorithm="local"), rooms=make_rooms(), out=tmp_path / "o", workers=0)
    assert not (tmp_path / "o").exists()


def test_batches_that_batchnorm_cannot_normalise_are_refused(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """Large halves 16 × 6 five times to 1 × 1: one window a batch has one value a channel."""
    store = make_store(THREE)
    wrong = plan_of(store, model={"architecture": "large"}, training={"batch_size": 1})
    with pytest.raises(PlanError, match=r"room 'cafe': batches of one window of 16 × 6"):
        run(wrong, out=tmp_path / "large", workers=0)
    fine = plan_of(store, rounds=1, model={"architecture": "tiny"}, training={"batch_size": 1})
    assert run(fine, out=tmp_path / "tiny", workers=0).records


def test_a_full_disk_while_cutting_is_an_error_not_a_crash(
    make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ArrayFile, "append", full)
    with pytest.raises(OSError, match=r"No space left.*cafe\.npy"):
        run(plan_of(make_store(THREE, name="full.h5")), out=tmp_path / "out", workers=0)
    assert not list(cache_folder().rglob("*.partial"))


def test_every_file_of_a_simulated_run_says_so(make_store: MakeStore, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(plan_of(make_store(THREE, synthetic=True), rounds=1), out=out, workers=0)
    for name in ("rounds.jsonl", "seconds.jsonl", "summary.json", "environment.json"):
        assert "SIMULATED" in (out / name).read_text(), name


def test_a_rounds_download_is_the_answer_to_its_uploads(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """FedAvg sends the merged net down after every round, also after the last one."""
    plan = plan_of(
        make_store(THREE), rounds=2, model={"architecture": "middle"}, algorithm="fedavg"
    )
    for record in run(plan, out=tmp_path / "out", workers=0).records:
        for entry in record["rooms"].values():
            assert 0.9 < entry["bytes_down"] / entry["bytes_up"] < 1.1


@pytest.mark.parametrize("algorithm", ["local", "fedapa", "fedavg", "fedproto"])
def test_a_longer_run_goes_on_from_a_finished_one_to_the_same_bytes(
    algorithm: str, make_store: MakeStore, tmp_path: Path
) -> None:
    usual: dict[str, Any] = {
        "algorithm": algorithm,
        "participation": 0.7,
        "model": {"architecture": "tiny"},
    }
    store = make_store(THREE)
    run(plan_of(store, rounds=5, **usual), out=tmp_path / "once", workers=0)
    for rounds in (2, 3, 5):
        plan = plan_of(store, rounds=rounds, **usual)
        grown = run(plan, out=tmp_path / "grown", workers=0, resume=True)
        assert len(grown.records) == rounds
    assert len(grown.environment["resumed"]) == 2
    assert content(tmp_path / "once") == content(tmp_path / "grown")
    with pytest.raises(RunError, match=r"changed plan \(rounds: 5 → 4\)"):
        run(plan_of(store, rounds=4, **usual), out=tmp_path / "grown", workers=0, resume=True)


def test_a_longer_run_that_is_killed_at_its_start_loses_nothing(
    make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, out = make_store(THREE), tmp_path / "out"
    before = run(plan_of(store, rounds=2), out=out, workers=0)
    written = files_module.write_text

    def killed(path: Path, content: str) -> None:
        if path.name == "plan.toml":
            raise KeyboardInterrupt
        written(path, content)

    monkeypatch.setattr("fedapa.federation.run.write_text", killed)
    with pytest.raises(KeyboardInterrupt):
        run(plan_of(store, rounds=4), out=out, workers=0, resume=True)
    monkeypatch.undo()
    again = run(plan_of(store, rounds=2), out=out, workers=0, resume=True)
    assert (again.records, again.summary) == (before.records, before.summary)
    assert len(run(plan_of(store, rounds=4), out=out, workers=0, resume=True).records) == 4


def test_a_run_killed_between_summary_and_checkpoint_can_be_made_longer(
    make_store: MakeStore, tmp_path: Path
) -> None:
    store, out = make_store(THREE), tmp_path / "out"
    saved = Checkpoint.save

    def killed(self: Checkpoint, state: Any) -> None:
        if state["closed"]:
            raise KeyboardInterrupt
        saved(self, state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            run(plan_of(store, rounds=2), out=out, workers=0)
        assert (out / "summary.json").is_file()
        with pytest.raises(KeyboardInterrupt):  # it goes on, and nobody takes it for finished
            run(plan_of(store, rounds=3), out=out, workers=0, resume=True)
    grown = run(plan_of(store, rounds=4), out=out, workers=0, resume=True)
    once = run(plan_of(store, rounds=4), out=tmp_path / "once", workers=0)
    assert (grown.records, grown.summary) == (once.records, once.summary)


def test_what_depends_on_the_number_of_rounds_cannot_be_made_longer(
    make_store: MakeStore, tmp_path: Path
) -> None:
    usual: dict[str, Any] = {"algorithm": "wifederated", "model": {"architecture": "tiny"}}
    store, out = make_store(THREE), tmp_path / "out"
    run(plan_of(store, rounds=1, **usual), out=out, workers=0)
    longer = plan_of(store, rounds=2, **usual)
    with pytest.raises(RunError, match=r"WiFederated depends on the number of rounds \(1\)"):
        run(longer, out=out, workers=0, resume=True)
    assert len(Run.load(out).records) == 1


def test_directories_that_hold_something_else_are_refused(
    make_store: MakeStore, tmp_path: Path
) -> None:
    plan, out = plan_of(make_store(THREE), rounds=1), tmp_path / "out"
    run(plan, out=out, workers=0)
    with pytest.raises(RunError, match="already holds a run; go on with --resume"):
        run(plan, out=out, workers=0)
    changed = plan_of(tmp_path / "rooms.h5", rounds=1, seed=7)
    with pytest.raises(RunError, match=r"changed plan \(seed: 0 → 7\)"):
        run(changed, out=out, workers=0, resume=True)
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "cat.jpg").touch()
    with pytest.raises(RunError, match=r"is not empty and holds no run \(cat\.jpg"):
        run(plan, out=photos, workers=0)
    with pytest.raises(RunError, match="is a file"):
        run(plan, out=photos / "cat.jpg", workers=0)


def test_resume_with_changed_data_is_refused(make_store: MakeStore, tmp_path: Path) -> None:
    store, out = make_store(THREE), tmp_path / "out"
    plan = plan_of(store)
    run(plan, out=out, workers=0)
    with h5py.File(store, "r+") as file:
        file["cafe"]["0-0"]["amplitude"][...] += 1.0
    os.utime(store)
    with pytest.raises(RunError, match=r"the data changed .*rooms\.cafe\.fingerprint"):
        run(plan, out=out, workers=0, resume=True)


def test_a_directory_in_use_is_locked(make_store: MakeStore, tmp_path: Path) -> None:
    plan, out = plan_of(make_store(THREE), rounds=1), tmp_path / "out"
    out.mkdir()
    with (
        filelock.FileLock(out / ".lock"),
        pytest.raises(RunError, match="another run is writing here"),
    ):
        run(plan, out=out, workers=0)


def test_a_room_with_a_single_class_is_named(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store({"cafe": {0: 2, 1: 2}, "cellar": {3: 2}})
    with pytest.raises(DataError, match=r"room 'cellar' has a single class \(3\)"):
        run(plan_of(store), out=tmp_path / "out", workers=0)


def test_a_class_with_one_window_trains(make_store: MakeStore, tmp_path: Path) -> None:
    path = make_store({"cafe": {0: 2, 1: 2}})
    with h5py.File(path, "r+") as file:
        file["cafe"].copy("1-0", "2-0")
        file["cafe"]["2-0"].attrs["label"] = 2
        for name in ("amplitude", "timestamps"):
            values = file["cafe"]["2-0"][name][:16]
            del file["cafe"]["2-0"][name]
            file["cafe"]["2-0"][name] = values
    finished = run(plan_of(path, rounds=2), out=tmp_path / "out", workers=0)
    assert finished.data["classes"] == [0, 1, 2]
    assert np.asarray(finished.summary["confusion"]["cafe"])[2].sum() == 0, "trained, not tested"


def test_classes_of_the_plan_must_cover_the_labels(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store(THREE)
    with pytest.raises(DataError, match=r"room 'cafe', window \d+: label 2 is not among"):
        run(plan_of(store, classes=[0, 1]), out=tmp_path / "out", workers=0)
    finished = run(plan_of(store, classes=[0, 1, 2, 3], rounds=1), out=tmp_path / "o", workers=0)
    assert finished.data["classes"] == [0, 1, 2, 3]


def test_mixed_kinds_of_labels_are_refused(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store({"cafe": {0: 2, 1: 2}, "hall": {"sit": 2, "walk": 2}})
    told = "mix counts and categories: 0 … in room 'cafe', 'walk' … in room 'hall'; use one kind"
    with pytest.raises(DataError, match=told):
        run(plan_of(store), out=tmp_path / "out", workers=0)


def test_categories_run_without_mae(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store({"cafe": {"sit": 2, "walk": 2}, "hall": {"sit": 2, "walk": 2}})
    finished = run(plan_of(store, rounds=1), out=tmp_path / "out", workers=0)
    f1 = {"macro_f1", "macro_f1_answered"}
    assert set(finished.summary["over_rooms"]["mean"]) == {"accuracy", *f1, "ece"}
    assert "roc" not in finished.summary


def test_features_run_with_the_mlp(tmp_path: Path) -> None:
    path = tmp_path / "features.h5"
    with write_store(path) as store:
        for room in ("a", "b"):
            store.add_room(room, synthetic=False, about={})
            for label in (0, 1, 2):
                rows = np.random.RandomState(label).rand(20, 8).astype(np.float32)
                store.add_features(room, f"P{label}", label=label, features=rows + label)
    plan = plan_of(path, rounds=1, model={"architecture": "mlp"}, data={"split": "blocked"})
    assert run(plan, out=tmp_path / "out", workers=0).records
    wrong = plan_of(path, model={"architecture": "tiny"}, data={"split": "blocked"})
    with pytest.raises(PlanError, match="use architecture = 'counter' or 'mlp'"):
        run(wrong, out=tmp_path / "wrong", workers=0)


def test_an_explicit_map_of_nets_must_name_every_room(
    make_store: MakeStore, tmp_path: Path
) -> None:
    store = make_store(THREE)
    nets = {"cafe": "tiny", "hall": "middle", "lab": "large"}
    finished = run(
        plan_of(store, rounds=1, model={"architecture": nets}), out=tmp_path / "o", workers=0
    )
    assert {room: about["architecture"] for room, about in finished.data["rooms"].items()} == nets
    for wrong, complaint in (
        ({"cafe": "tiny"}, "room 'hall' has no net"),
        ({**nets, "attic": "tiny"}, "there is no room 'attic'"),
    ):
        with pytest.raises(PlanError, match=complaint):
            run(plan_of(store, model={"architecture": wrong}), out=tmp_path / "x", workers=0)


def test_cuda_is_refused_where_there_is_none(make_store: MakeStore, tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with pytest.raises(PlanError, match="device 'cuda': this machine or this build of torch"):
        run(plan_of(make_store(THREE), device="cuda"), out=tmp_path / "out", workers=0)


def test_rooms_of_ones_own(make_rooms: MakeRooms, tmp_path: Path) -> None:
    rooms: list[Room] = make_rooms()
    finished = run(Plan(rounds=1, algorithm="local"), rooms=rooms, out=tmp_path / "o", workers=0)
    assert sorted(finished.summary["rooms"]) == [room.name for room in rooms]
    assert finished.data["source"] == "rooms given in Python"
    assert finished.data["split"] == "random", "as Room.of split them, whatever the plan says"


@pytest.mark.slow
def test_tensorboard_scalars_on_request(make_store: MakeStore, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = tmp_path / "out"
    finished = run(plan_of(make_store(THREE)), out=out, workers=0, tensorboard=True)
    events = EventAccumulator(str(out / "tensorboard"))
    events.Reload()
    values = [event.value for event in events.Scalars("mean/accuracy")]
    assert values == pytest.approx([record["mean"]["accuracy"] for record in finished.records])
    for record, over in zip(
        finished.records, events.Scalars("fewer_rooms/presence_auc"), strict=True
    ):
        assert over.value == record["fewer_rooms"]["presence_auc"]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["local", {"name": "fedapa", "warm_rounds": 3}])
def test_labels_without_meaning_end_at_chance(
    algorithm: Any, make_store: MakeStore, tmp_path: Path
) -> None:
    """Shuffled labels of three equal classes: a third right, far from what is learned.

    A take is one window, so the 108 on test are independent: a guess is right in 0.33 of them with
    a standard deviation of 0.045, and three of those are allowed.
    """
    rooms = {room: {0: 60, 1: 60, 2: 60} for room in ("cafe", "hall", "office")}
    learn = {
        "rounds": 12,
        "data": {"split": "recording"},
        "training": {"learning_rate": 0.05},
        "algorithm": algorithm,
    }
    real = make_store(rooms, packets=16)
    learned = run(plan_of(real, **learn), out=tmp_path / "real", workers=0)
    assert learned.summary["over_rooms"]["mean"]["accuracy"] > 0.7
    shuffled = make_store(rooms, packets=16, name="shuffled.h5")
    stream = np.random.default_rng(0)
    with h5py.File(shuffled, "r+") as file:
        for takes in file.values():
            labels = [take.attrs["label"] for take in takes.values()]
            for take, label in zip(takes.values(), stream.permutation(labels), strict=True):
                take.attrs["label"] = int(label)
    guessed = run(plan_of(shuffled, **learn), out=tmp_path / "shuffled", workers=0)
    assert sum(room["test"] for room in guessed.data["rooms"].values()) == 108
    assert abs(guessed.summary["over_rooms"]["mean"]["accuracy"] - 1 / 3) < 0.136


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ({"notes": 1.5}, "its checkpoint is of another version"),
        ({"round": np.ones(2)}, "its checkpoint is of another version"),
        ({"notes": {"0": 1.5}}, "is none that this fedapa wrote"),
        ({"server": {}}, "is none that this fedapa wrote"),
        ({"trained": {}}, "is none that this fedapa wrote"),
    ],
)
def test_a_checkpoint_with_odd_values_is_refused_in_words(
    tmp_path: Path, make_rooms: MakeRooms, odd: dict[str, Any], words: str
) -> None:
    """Its checksum fits: somebody wrote it, or another fedapa."""
    plan = Plan.of({"rounds": 2}, {"algorithm": "fedavg"})
    rooms = make_rooms()
    run(plan, out=tmp_path, rooms=rooms, workers=0)
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    state = checkpoint.load()
    assert state is not None
    checkpoint.save({**state, **odd})
    longer = Plan.of({"rounds": 3}, {"algorithm": "fedavg"})
    with pytest.raises(RunError, match=words):
        run(longer, out=tmp_path, rooms=rooms, workers=0, resume=True)
