"""``fedapa join``: a new room from the command line, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedapa import Plan
from fedapa import run as run_plan
from fedapa.cli.join import _counts
from fedapa.errors import FedapaError, PlanError
from fedapa.experiments.join import join as carry_out
from tests.cli.test_cli import fedapa, one_sentence
from tests.conftest import MakeStore

COUNTS: dict[int | str, int] = {0: 4, 1: 4, 2: 4}


def test_a_new_room_joins_and_leaves_a_model_and_a_page(
    make_store: MakeStore, tmp_path: Path
) -> None:
    rooms = make_store({"cafe": COUNTS, "hall": COUNTS}, packets=256)
    new = make_store({"den": {0: 3, 1: 3}}, packets=256, name="new.h5")
    run = ("run", "--data", rooms, "--split", "recording", "--rounds", "3", "--workers", "0")
    small = ("--set", "data.seconds=1", "--view", "statistics")
    theirs = tmp_path / "theirs"
    fedapa(*run, *small, "--algorithm", "fedjoin", "--out", theirs)
    join = ("join", theirs, "--data", new, "--workers", "0", "--out", tmp_path / "joined")
    shown = fedapa(*join, "--counts", "0-2").stdout
    assert "den joined: right in" in shown
    assert (tmp_path / "joined" / "fedjoin" / "models" / "den.safetensors").is_file()
    assert (tmp_path / "joined" / "index.html").is_file()
    told = json.loads(fedapa(*join, "--counts", "0,1,2", "--json").stdout)
    assert set(told["joined"]["rooms"]) == set(told["alone"]["rooms"]) == {"den"}
    assert told["after_one_round"].keys() == {"den"}

    refused = fedapa(*join[:1], tmp_path, *join[2:], code=2)
    assert "holds no finished run" in one_sentence(refused)

    def refuses(expected: str, federation: Path = theirs, data: Path = new, **others: Any) -> None:
        with pytest.raises(FedapaError, match=expected):
            carry_out(federation, data, out=tmp_path / "no", workers=0, **others)

    refuses("room 'cafe' is in the federation already", data=rooms)
    refuses("nobody in the federation knows 3 people; it knows 0, 1, 2", counts=[0, 3])
    with pytest.raises(FedapaError, match="is the federation itself"):
        carry_out(theirs, new, out=theirs, workers=0)
    refuses("attic", only=["attic"])
    refuses("no such file", data=tmp_path / "none.h5")
    (theirs / "checkpoint").write_bytes((theirs / "checkpoint").read_bytes() + b" ")
    changed = fedapa(*join, code=2)
    assert "joined another federation, or this one before it changed" in one_sentence(changed)
    alone = run_plan(Plan(rounds=1, data=str(rooms), algorithm="local"), workers=0)
    refuses("Local gives nothing to a room that joins", alone.folder)


def test_counts_as_people_write_them() -> None:
    assert _counts("0-3") == [0, 1, 2, 3]
    assert _counts("4, 0,2-2") == [0, 2, 4]
    for wrong in ("many", "3-", "-2", "", "1-9999999", "8-2"):
        with pytest.raises(PlanError, match="--counts"):
            _counts(wrong)


def test_a_new_room_keeps_the_labels_that_a_study_took_away(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """Which rooms the others were, and what they were left with, is not the new room's plan."""
    rooms = make_store({"cafe": COUNTS, "hall": COUNTS}, packets=256)
    new = make_store({"den": {0: 4, 1: 4}}, packets=256, name="new.h5")
    data = {"file": str(rooms), "split": "recording", "train_recordings": 1, "unlabelled": "keep"}
    theirs = run_plan(
        Plan(rounds=1, algorithm="fedjoin", data={**data, "view": "statistics", "seconds": 1}),
        workers=0,
    )
    done = carry_out(theirs.folder, new, split="recording", out=tmp_path / "out", workers=0)
    assert not done.joined.plan.data.fewer
    assert done.joined.data["rooms"]["den"]["validation"] > 0
