"""The API of the training view: a run that grows, is cut, is damaged, or is not there."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import filelock
import httpx
import pytest
from fastapi import FastAPI

from fedapa import Plan, run
from fedapa.federation.checkpoint import Checkpoint
from fedapa.service.training import TrainingRun, training_router
from tests.conftest import MakeRooms

ROOMS = ("cafe", "hall", "lab")


def begin(folder: Path, *, rounds: int | str = 5, synthetic: bool = True) -> Path:
    """The files of a run before its first round."""
    folder.mkdir(parents=True, exist_ok=True)
    total = f'"{rounds}"' if isinstance(rounds, str) else rounds
    (folder / "plan.toml").write_text(f'seed = 7\nrounds = {total}\n[algorithm]\nname = "fedapa"\n')
    told = {
        "rooms": {room: {} for room in ROOMS},
        "synthetic": synthetic,
        "split": "day",
        "source": "/somewhere/rooms.h5",
    }
    (folder / "data.json").write_text(json.dumps(told))
    return folder


def record(number: int, **changes: Any) -> dict[str, Any]:
    """Three rooms; everything grows with the round."""
    rooms = {
        room: {
            "accuracy": number / 10 + place / 100,
            "mae": 9.0,
            "mae_median": 3 - number / 10,
            "loss": 2 / number + place,
            "participated": True,
            "bytes_up": 100 + place,
            "bytes_down": 1000,
        }
        for place, room in enumerate(ROOMS)
    }
    mean = {"accuracy": number / 10 + 0.01, "mae": 9.0, "mae_median": 3 - number / 10}
    share = 1 / len(ROOMS)
    weights = [[share] * len(ROOMS) for _ in ROOMS]
    told = {"round": number, "rooms": rooms, "mean": mean, "server": {"weights": weights}}
    return {**told, **changes}


def write(folder: Path, *records: Mapping[str, Any], end: str = "\n") -> None:
    """Lines at the end of the records; ``end`` of the last one may be missing."""
    with (folder / "rounds.jsonl").open("a") as file:
        file.write("\n".join(map(json.dumps, records)) + end)


class Client:
    """Asks an app that has only the training view."""

    def __init__(self, folder: Path) -> None:
        self._app = FastAPI()
        self._app.include_router(training_router(folder))

    def get(self, path: str) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
                return await client.get(path)

        return asyncio.run(ask())


def told(client: Client) -> dict[str, Any]:
    answer = client.get("/api/training")
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def test_a_run_is_told_as_it_grows(tmp_path: Path) -> None:
    folder = tmp_path / "ours"
    client = Client(folder)
    assert client.get("/api/training").status_code == 204, "nobody has begun a run"
    begin(folder)
    with filelock.FileLock(folder / ".lock"):  # as the process that trains has it
        first = told(client)
    assert (first["run"], first["algorithm"], first["state"]) == ("ours", "fedapa", "training")
    assert (first["rounds_done"], first["rounds_total"], first["rounds"]) == (0, 5, [])
    assert first["weights"] is None and first["updated"] is None and first["floor"] is None
    write(folder, record(1), record(2))
    second = told(client)
    assert second["rounds"] == [1, 2]
    assert second["accuracy"] == {
        "cafe": [0.1, 0.2],
        "hall": [pytest.approx(0.11), pytest.approx(0.21)],
        "lab": [pytest.approx(0.12), pytest.approx(0.22)],
    }
    assert second["mae"]["lab"] == [2.9, 2.8], "the median's, which model files answer with"
    assert second["loss"]["hall"] == [3.0, 2.0]
    assert second["mean"]["loss"] == [3.0, 2.0]
    assert second["bytes"] == {"up": [303, 303], "down": [3000, 3000]}
    assert second["bytes_total"] == {"up": 606, "down": 6000}
    assert second["weights"]["round"] == 2 and second["weights_rounds"] == [1, 2]
    assert second["weights"]["rooms"] == list(ROOMS)
    assert (second["synthetic"], second["split"], second["seed"]) == (True, "day", 7)
    assert second["data"] == "rooms.h5", "where it lies is nobody's business"
    write(folder, record(3))
    assert told(client)["rounds"] == [1, 2, 3]


def test_only_whole_lines_count(tmp_path: Path) -> None:
    client = Client(begin(tmp_path))
    line = json.dumps(record(2))
    write(tmp_path, record(1))
    with (tmp_path / "rounds.jsonl").open("a") as file:
        file.write(line[:100])
        file.flush()
        assert told(client)["rounds"] == [1]
        file.write(line[100:])
        file.flush()
        assert told(client)["rounds"] == [1], "its end is not there yet"
        file.write("\n")
    assert told(client)["rounds"] == [1, 2]


def test_rounds_that_a_resumed_run_repeats_replace_the_old_ones(tmp_path: Path) -> None:
    """It is cut and grows beyond where it was between two looks."""
    client = Client(begin(tmp_path))
    write(tmp_path, record(1), record(2))
    told(client)
    (tmp_path / "rounds.jsonl").unlink()
    again = record(2)
    again["rooms"]["cafe"]["accuracy"] = 0.9
    write(tmp_path, record(1), again, record(3))
    assert told(client)["accuracy"]["cafe"] == [0.1, 0.9, 0.3]
    (tmp_path / "rounds.jsonl").unlink()
    assert told(client)["rounds"] == []


def test_what_is_no_record_is_named_and_what_came_before_is_shown(tmp_path: Path) -> None:
    client = Client(begin(tmp_path))
    odd: list[Any] = [
        "no JSON",
        "[]",
        json.dumps({"round": 2}),
        json.dumps({"round": "2", "rooms": {}}),
        json.dumps({"round": 2, "rooms": {"cafe": None}}),
        json.dumps({"round": 2, "rooms": {}, "missing": {"upload": [1]}}),
        json.dumps({"round": 2, "rooms": {}, "missing": {"upload": ["\ud800"]}}),
        "[" * 100_000,
    ]
    for line in odd:
        (tmp_path / "rounds.jsonl").write_text(f"{json.dumps(record(1))}\n{line}\n")
        document = told(client)
        assert document["rounds"] == [1], line[:40]
        assert document["problem"].startswith("rounds.jsonl: line 2 is no record"), line[:40]
    write(tmp_path, record(9))
    assert told(client)["rounds"] == [1]
    (tmp_path / "rounds.jsonl").write_text(f"{json.dumps(record(1))}\n")
    assert told(client)["problem"] == "", "somebody mended it"


def test_numbers_that_are_none_are_gaps(tmp_path: Path) -> None:
    client = Client(begin(tmp_path))
    line = record(1)
    line["rooms"]["cafe"] |= {"accuracy": float("nan"), "loss": True, "mae_median": 10**400}
    line["rooms"]["hall"] = {"participated": False, "bytes_up": 0, "bytes_down": 0}
    line["server"]["weights"][0][0] = None
    write(tmp_path, line)
    document = told(client)
    assert document["accuracy"] == {"cafe": [None], "hall": [None], "lab": [pytest.approx(0.12)]}
    assert document["loss"]["cafe"] == document["mae"]["cafe"] == [None]
    assert document["weights"] is None


def test_a_damaged_plan_is_one_sentence_without_the_folder(tmp_path: Path) -> None:
    client = Client(begin(tmp_path))
    for name in ("plan.toml", "data.json"):
        whole = (tmp_path / name).read_text()
        (tmp_path / name).write_text("[")
        answer = client.get("/api/training")
        assert answer.status_code == 503
        assert answer.json()["detail"].startswith(f"{name} of the run cannot be read (")
        assert str(tmp_path) not in answer.text
        (tmp_path / name).write_text(whole)


def test_who_was_absent_is_told_with_the_reason(tmp_path: Path) -> None:
    client = Client(begin(tmp_path))
    silent = record(1, missing={"upload": ["cafe", "lab"], "score": ["cafe"]})
    silent["rejected"] = {"lab": "its upload holds NaN"}
    unscored = record(2, missing={"score": ["hall"]})
    resting = record(3)
    resting["rooms"]["lab"]["participated"] = False
    resting["rooms"]["hall"]["participated"] = False
    resting["diverged"] = {"hall": "the loss became nan"}
    for room in ("cafe", "lab"):
        silent["rooms"][room]["participated"] = False
    spent = record(4)
    for room in ("cafe", "lab"):
        spent["rooms"][room] |= {"participated": False, "epsilon": 3.0}
    spent["withheld"] = {"lab": "its privacy budget is spent"}
    write(tmp_path, silent, unscored, resting, spent)
    assert [(one["round"], one["rooms"], one["reason"]) for one in told(client)["absent"]] == [
        (1, ["cafe"], "did not answer, so nothing of it was learned"),
        (1, ["lab"], "its reply was rejected: its upload holds NaN"),
        (2, ["hall"], "missed the exchange after the round, so it has no score"),
        (3, ["lab"], "not chosen to train in this round"),
        (3, ["hall"], "its training diverged: the loss became nan"),
        (4, ["cafe"], "sent no set in this round, to save its privacy budget"),
        (4, ["lab"], "its privacy budget is spent"),
    ]


def test_weights_of_any_round_can_be_asked_for(tmp_path: Path) -> None:
    client = Client(begin(tmp_path))
    early = record(1, members=["cafe", "hall"], server={"weights": [[0.9, 0.1], [0.2, 0.8]]})
    write(tmp_path, early, record(2), record(3, server={}))
    assert client.get("/api/training/weights?round=1").json() == {
        "round": 1,
        "rooms": ["cafe", "hall"],
        "matrix": [[0.9, 0.1], [0.2, 0.8]],
    }
    answer = client.get("/api/training/weights?round=3")
    assert answer.status_code == 404
    assert answer.json()["detail"].startswith("round 3 has no weights between rooms; rounds 1 to 2")
    assert client.get("/api/training/weights?round=0").status_code == 422
    assert Client(tmp_path / "none").get("/api/training/weights?round=1").status_code == 404


def test_runs_of_words_and_runs_without_end(tmp_path: Path) -> None:
    client = Client(begin(tmp_path, rounds="open", synthetic=False))
    words = record(1)
    for entry in (words["mean"], *words["rooms"].values()):
        entry.pop("mae")
        entry.pop("mae_median")
    write(tmp_path, words)
    document = told(client)
    assert document["mae"] is None and document["rounds_total"] is None
    assert document["synthetic"] is False and document["finished"] is False


def test_of_many_rounds_and_rooms_a_document_has_some(tmp_path: Path) -> None:
    begin(tmp_path, rounds=2000)
    names = [f"room {number:03}" for number in range(100)]
    data = json.loads((tmp_path / "data.json").read_text())
    (tmp_path / "data.json").write_text(json.dumps({**data, "rooms": {name: {} for name in names}}))
    rooms = {name: {"accuracy": 0.5, "participated": True} for name in names}
    write(tmp_path, *({"round": number, "rooms": rooms} for number in range(1, 1201)))
    document = told(Client(tmp_path))
    assert len(document["rounds"]) == 500
    assert (document["rounds"][0], document["rounds"][-1]) == (1, 1200)
    assert document["rooms"] == names[:64] and document["rooms_total"] == 100


def test_a_real_run_has_its_floor_before_and_after_its_end(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """Blind predictors are in the checkpoint's cards first, then in the summary: the same."""
    plan = Plan.of({"rounds": 2, "model": {"width": 16}}, {"training": {"batch_size": 4}})
    done = run(plan, out=tmp_path / "run", workers=0, rooms=make_rooms())
    after = told(Client(tmp_path / "run"))
    assert (after["state"], after["finished"], after["rounds_done"]) == ("finished", True, 2)
    for name, room in (("accuracy", "accuracy"), ("mae_median", "mae")):
        blind = [about["mean"][name] for about in done.summary["blind"].values()]
        best = max(blind) if name == "accuracy" else min(blind)
        assert after["floor"][room] == pytest.approx(best)
    for room, score in done.records[-1]["rooms"].items():
        assert after["accuracy"][room][-1] == score["accuracy"]
    assert after["weights"]["matrix"] == done.records[-1]["server"]["weights"]
    (tmp_path / "run" / "summary.json").unlink()
    before = told(Client(tmp_path / "run"))
    assert (before["state"], before["reason"][:22]) == ("stopped", "its process is no more")
    assert before["floor"] == {
        **after["floor"],
        "accuracy": pytest.approx(after["floor"]["accuracy"]),
        "mae": pytest.approx(after["floor"]["mae"]),
    }
    Checkpoint(tmp_path / "run" / "checkpoint").path.write_bytes(b"damaged")
    assert told(Client(tmp_path / "run"))["floor"] is None


def test_a_server_is_followed_to_its_run_and_says_why_it_waits(tmp_path: Path) -> None:
    folder = begin(tmp_path / "runs" / "plan")
    write(folder, record(1))
    (tmp_path / "job.json").write_text(json.dumps({"run": "plan"}))
    (tmp_path / "status.json").write_text(
        json.dumps({"run": "plan", "state": "paused", "pause": "round 2: 1 of 3 rooms answered"})
    )
    for place in (tmp_path, folder):
        with filelock.FileLock(tmp_path / ".lock"):  # as its server has it
            document = told(Client(place))
        assert (document["run"], document["rounds"]) == ("plan", [1])
        assert document["state"] == "paused"
        assert document["reason"] == "round 2: 1 of 3 rooms answered"
        killed = told(Client(place))
        assert (killed["state"], killed["reason"][:23]) == ("stopped", "its server does not run")
    begin(tmp_path / "runs" / "next")
    client = Client(tmp_path)
    assert told(client)["rounds"] == [1]
    (tmp_path / "job.json").write_text(json.dumps({"run": "next"}))
    assert (told(client)["run"], told(client)["rounds"]) == ("next", [])


def test_a_model_file_leads_to_its_run(tmp_path: Path) -> None:
    folder = begin(tmp_path / "ours")
    (folder / "models").mkdir()
    (folder / "models" / "cafe.safetensors").touch()
    found = TrainingRun(folder / "models" / "cafe.safetensors").document()
    assert found is not None and found.run == "ours"


def test_it_needs_neither_torch_nor_matplotlib() -> None:
    heavy = "{'torch', 'matplotlib'} & set(sys.modules)"
    code = f"import sys, fedapa.service.training; sys.exit(str({heavy}) if {heavy} else 0)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
