"""The newest model of a room is found in a run, in a room's folder, and by itself."""

import os
import shutil
from pathlib import Path

import pytest

from fedapa.errors import DataError, FedapaError, PlanError
from fedapa.service.model_watch import ModelWatch, simulated_from, watch_rooms

from .conftest import Served


def test_a_run_has_a_watch_for_each_room(served: Served) -> None:
    watches = watch_rooms(served.run)
    assert list(watches) == [served.room]
    made = watches[served.room].newer()
    assert made is not None
    assert made.model.room == served.room
    told = made.document()
    assert (told["algorithm"], told["round"]) == ("local", 1)
    assert told["path"] == f"{served.room}.safetensors"
    assert str(served.run) not in str(told)
    assert watches[served.room].newer() is None  # until there is another


def test_a_file_that_is_replaced_is_newer(served: Served, tmp_path: Path) -> None:
    run = shutil.copytree(served.run, tmp_path / "run")
    path = run / "models" / f"{served.room}.safetensors"
    watch = watch_rooms(run)[served.room]
    assert watch.newer() is not None
    os.utime(path, (1, 1))
    assert watch.newer() is None  # the same bytes
    sound = path.read_bytes()
    path.write_bytes(sound[:-8] + b"12345678")
    with pytest.raises(FedapaError, match=str(path)):
        watch.newer()
    assert watch.newer() is None  # told once
    assert watch.problem.startswith(f"{served.room}.safetensors: ")
    assert str(run) not in watch.problem
    path.write_bytes(sound)
    assert watch.newer() is None  # what is served already
    assert watch.problem == ""  # so there is nothing wrong any more


def test_of_a_rooms_runs_the_model_written_last_counts(served: Served, tmp_path: Path) -> None:
    for run, written in (("first", 1000), ("second", 2000)):
        path = tmp_path / "models" / run / f"{served.room}.safetensors"
        path.parent.mkdir(parents=True)
        shutil.copyfile(served.model, path)
        os.utime(path, (written, written))
    states = tmp_path / "states" / "second"
    states.mkdir(parents=True)
    for number in (7, 8):
        (states / f"round-{number:06d}.state").write_bytes(b"")
    made = watch_rooms(tmp_path)[served.room].newer()
    assert made is not None
    assert made.path.parent.name == "second"
    assert made.round == 7  # exchange 8 kept what round 7 made


def test_a_room_that_has_no_model_yet_is_waited_for(served: Served, tmp_path: Path) -> None:
    (tmp_path / "room.pub").write_text("key")
    with pytest.raises(PlanError, match="--room NAME"):
        watch_rooms(tmp_path)
    watch = watch_rooms(tmp_path, [served.room])[served.room]
    assert watch.newer() is None
    path = tmp_path / "models" / "run" / f"{served.room}.safetensors"
    path.parent.mkdir(parents=True)
    shutil.copyfile(served.model, path)
    assert watch.newer() is not None


def test_a_model_of_another_room_is_refused(served: Served, tmp_path: Path) -> None:
    path = tmp_path / "models" / "kitchen.safetensors"
    path.parent.mkdir()
    shutil.copyfile(served.model, path)
    with pytest.raises(DataError, match=f"is of room '{served.room}', expected 'kitchen'"):
        ModelWatch(tmp_path, "kitchen").newer()


def test_a_model_file_is_one_room(served: Served) -> None:
    assert list(watch_rooms(served.model)) == [served.room]
    assert simulated_from(served.model) is None  # it learned from a store
    assert simulated_from(served.model.parent) is None


def test_what_is_no_run_is_a_sentence(served: Served, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="there is no such run; train one"):
        watch_rooms(tmp_path / "nothing")
    with pytest.raises(DataError, match="holds no model files"):
        watch_rooms(tmp_path)
    with pytest.raises(PlanError, match="has no room 'attic'"):
        watch_rooms(served.run, ["attic"])


def test_a_run_says_where_its_simulated_rooms_are_from(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text('[data]\nsimulated = "smoke"\nsimulated_seed = 5\n')
    assert simulated_from(tmp_path) == ("smoke", 5)
    (tmp_path / "plan.toml").write_text('[data]\nsimulated = "smoke"\nfile = "rooms.h5"\n')
    assert simulated_from(tmp_path) is None
    (tmp_path / "plan.toml").write_text("nonsense")
    assert simulated_from(tmp_path) is None
