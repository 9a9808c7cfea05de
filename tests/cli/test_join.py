"""``fedapa join``: a new room from the command line, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedapa import Plan
from fedapa import run as run_plan
from fedapa.cli.join import _counts, _notes
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
    assert "before any training at home" in shown
    assert "den may answer 0, 1 or 2 people." in shown
    assert "Labelled minutes" in shown and "--counts." not in shown
    assert (tmp_path / "joined" / "fedjoin" / "models" / "den.safetensors").is_file()
    assert (tmp_path / "joined" / "index.html").is_file()
    told = json.loads(fedapa(*join, "--counts", "0,1,2", "--json").stdout)
    assert set(told["joined"]["rooms"]) == set(told["alone"]["rooms"]) == {"den"}
    assert told["after_one_round"].keys() == told["before"].keys() == {"den"}
    assert told["may_answer"] == {"den": [0, 1, 2]}
    few, every = (name for name in told["by_labels"] if name.startswith("local-"))
    assert set(told["by_labels"]) >= {few.replace("local", "fedjoin"), "constant"} and few != every

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
    page = tmp_path / "demo" / "index.html"
    page.parent.mkdir()
    page.write_text("somebody else's page")
    with pytest.raises(FedapaError, match=r"holds no room that joined \(index.html …\)"):
        carry_out(theirs, new, out=page.parent, workers=0)
    assert [one.name for one in page.parent.iterdir()] == ["index.html"]
    with pytest.raises(FedapaError, match="is a file; choose another --out"):
        carry_out(theirs, new, out=page, workers=0)
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


def test_a_new_room_may_answer_what_it_recorded_unless_told_otherwise(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """Also with windows without a label, which may be of any count that the federation knows."""
    rooms = make_store({"cafe": COUNTS, "hall": COUNTS}, packets=256)
    new = make_store({"den": {0: 3, 1: 3, None: 3}}, packets=256, name="new.h5")
    data = {"file": str(rooms), "split": "recording", "view": "statistics", "seconds": 1}
    theirs = run_plan(Plan(rounds=2, algorithm="fedjoin", data=data), workers=0).folder
    done = carry_out(theirs, new, split="recording", curve=False, out=tmp_path / "out", workers=0)
    assert (done.possible, done.others) == ({"den": (0, 1)}, (2,))
    confusion = done.joined.summary["confusion"]["den"]
    assert not sum(row[2] for row in confusion), "it never answers two"
    assert [row[1] for row in done.table.rows] == ["2", "2"], "all labels, joined and alone"
    assert not (tmp_path / "out" / "fewer-labels").exists()
    join = ("join", theirs, "--data", new, "--split", "recording", "--no-curve", "--workers", "0")
    shown = fedapa(*join, "--out", done.page.parent)
    assert "den may answer 0 or 1 people." in shown.stdout
    assert "Never 2, which the federation knows, too" in shown.stdout
    assert "only help to normalise here" in shown.stdout.replace("\n", " ")
    short = " ".join(_notes(done, told_counts=True))
    assert "for 10 rounds (algorithm.labelled_rounds), and trained for 2" in short


def test_labels_that_the_federation_lacks_are_told_before_anything_is_trained(
    make_store: MakeStore, tmp_path: Path
) -> None:
    rooms = make_store({"cafe": COUNTS, "hall": COUNTS}, packets=256)
    data = {"file": str(rooms), "split": "recording", "view": "statistics", "seconds": 1}
    theirs = run_plan(Plan(rounds=1, algorithm="fedjoin", data=data), workers=0).folder
    more = make_store({"den": {0: 3, 7: 2}}, packets=256, name="more.h5")
    words = make_store({"den": {"sit": 3, "walk": 3}}, packets=256, name="words.h5")
    for store, expected in (
        (
            more,
            r"more.h5: room 'den' has 2 recordings of 7 people \(e.g. '7-0'\), and nobody in the "
            r"federation knows that.* it knows 0, 1, 2: take their label away .*--none.*classes=",
        ),
        (
            words,
            r"room 'den' has categories \(sit, walk\), the federation tells counts \(0, 1, 2\)",
        ),
    ):
        with pytest.raises(FedapaError, match=expected):
            carry_out(theirs, store, out=tmp_path / "no", workers=0)
        assert not (tmp_path / "no").exists()
    # Both remedies help: a federation with room for seven, and no label.
    roomy = Plan(rounds=1, algorithm="fedjoin", data=data, classes=(0, 1, 2, 7))
    wide = run_plan(roomy, workers=0).folder
    done = carry_out(wide, more, curve=False, out=tmp_path / "wide", workers=0)
    assert done.possible == {"den": (0, 7)}
    fedapa("label", more, "--room", "den", "--recording", "7-*", "--none")
    with pytest.raises(FedapaError, match="single class"):
        carry_out(theirs, more, out=tmp_path / "no", workers=0)


def test_recordings_that_are_too_short_for_the_windows_of_the_others_are_told(
    make_store: MakeStore, tmp_path: Path
) -> None:
    rooms = make_store({"cafe": COUNTS, "hall": COUNTS}, packets=256)
    new = make_store({"den": {0: 4, 1: 4}}, packets=70, name="new.h5")
    data = {"file": str(rooms), "split": "recording", "view": "statistics", "seconds": 1}
    theirs = run_plan(Plan(rounds=1, algorithm="fedjoin", data=data), workers=0).folder
    done = carry_out(theirs, new, curve=False, out=tmp_path / "out", workers=0)
    cut, known = done.notes
    assert cut.startswith("Room 'den': windows are of 70 packets (0.7 s), shorter than asked (no ")
    assert "in windows of 0.7 s, and the federation learned from windows of 1 s" in known
