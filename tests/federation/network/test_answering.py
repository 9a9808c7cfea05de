"""A room's answers: what it cannot do is a sentence, and nobody tells it where its files are."""

import dataclasses
import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedapa.errors import DataError, PlanError, RosterError
from fedapa.federation.engines.flower import for_rooms
from fedapa.federation.engines.frames import EXCHANGE, REFUSED, TELL, UNKNOWN
from fedapa.federation.network.answering import answer
from fedapa.federation.network.app import app_bundle
from fedapa.federation.network.place import Place
from fedapa.federation.network.running import check_plan
from tests.conftest import MakeStore
from tests.federation.test_flower import plan_of


@pytest.fixture
def place(make_store: MakeStore, tmp_path: Path) -> Place:
    return Place("cafe", str(make_store()), str(tmp_path / "cafe"))


def refusal(place: Place, action: str, **frames: bytes) -> str:
    told = answer(place, action, frames)
    assert set(told) == {REFUSED}
    return told[REFUSED].decode()


def test_nonsense_is_refused_with_a_sentence(place: Place) -> None:
    assert "is nothing that a room is asked" in refusal(place, "train.now")
    assert "lacks a plan" in refusal(place, TELL)
    assert "lacks a agreed" in refusal(place, EXCHANGE)
    assert "unknown key" in refusal(place, TELL, plan=b"nonsense = 1")
    assert "agreement" in refusal(place, EXCHANGE, agreed=b"../../etc", card=b"")
    assert answer(place, EXCHANGE, {"agreed": b"abc", "card": b""}) == {UNKNOWN: b""}


def test_a_plan_cannot_name_a_file_or_another_room(place: Place) -> None:
    """What a server writes there is replaced by what the owner said."""
    plan = b'[data]\nfile = "/etc/passwd"\nonly = ["hall"]\nwindow = 16\n'
    told = answer(place, TELL, {"plan": plan})
    assert set(told) == {"card"}
    assert b"cafe" in told["card"]
    assert b"hall" not in told["card"]


@pytest.mark.parametrize(
    ("privacy", "words"),
    [
        ({}, "the plan has no noise; set privacy.epsilon to 3 or less"),
        ({"epsilon": 3.5}, "epsilon is 3.5, and the room's owner allows 3 at most"),
        ({"epsilon": 3, "delta": 1e-4}, "delta is 0.0001, and the room's owner allows 1e-05"),
        ({"epsilon": 3, "unit": "window"}, "owner wants whole recordings protected"),
        ({"epsilon": 3}, None),
    ],
)
def test_an_owner_says_how_much_may_leave(
    make_store: MakeStore, tmp_path: Path, privacy: dict[str, Any], words: str | None
) -> None:
    """Before anything leaves, the card included; a plan with enough noise is answered."""
    place = Place("cafe", str(make_store()), str(tmp_path / "cafe"), epsilon=3.0)
    plan = plan_of(Path(place.data), **({"privacy": privacy} if privacy else {}))
    frames = {"plan": for_rooms(plan).encode()}
    if words is None:
        assert set(answer(place, TELL, frames)) == {"card"}
        laxer = dataclasses.replace(place, unit="window")
        assert set(answer(laxer, TELL, frames)) == {"card"}, "recordings are more than windows"
    else:
        assert words in refusal(place, TELL, **frames)
        assert set(answer(dataclasses.replace(place, epsilon=None), TELL, frames)) == {"card"}


def test_a_sentence_does_not_tell_where_a_rooms_files_are(tmp_path: Path) -> None:
    gone = Place("cafe", str(tmp_path / "gone.h5"), str(tmp_path / "cafe"))
    said = refusal(gone, TELL, plan=for_rooms(plan_of(tmp_path / "gone.h5")).encode())
    assert str(tmp_path) not in said
    assert "its store" in said


def test_a_full_disk_is_a_sentence(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "x"))

    monkeypatch.setattr("fedapa.federation.network.answering.survey_rooms", full)
    said = refusal(place, TELL, plan=for_rooms(plan_of(Path(place.data))).encode())
    assert said == "No space left on device; nothing is half written"
    assert str(tmp_path) not in said, "paths of a room are its own"


def test_a_folder_that_may_not_be_written_and_too_many_files_have_their_remedy(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(place.folder).mkdir()
    monkeypatch.setattr(os, "access", lambda *_: False)
    code = errno.EACCES

    def failing(*_: Any) -> None:
        try:
            raise OSError(code, os.strerror(code), f"{place.folder}/states")
        except OSError as error:
            if code == errno.EACCES:
                raise
            raise DataError("truncated or not a store") from error

    monkeypatch.setattr("fedapa.federation.network.answering.survey_rooms", failing)
    plan = for_rooms(plan_of(Path(place.data))).encode()
    said = refusal(place, TELL, plan=plan)
    assert said.startswith(f"its folder: user {os.geteuid()} may not write there")
    assert place.folder not in said
    code = errno.EMFILE
    assert "ulimit -n" in refusal(place, TELL, plan=plan)


def test_a_node_without_its_configuration_is_a_sentence() -> None:
    with pytest.raises(PlanError, match="lacks 'data'; start it by 'fedapa room'"):
        Place.of({"room": "cafe"})
    with pytest.raises(DataError, match=r"room '\.\./x'"):
        Place.of({"room": "../x", "data": "a", "folder": "b"})


def test_the_app_is_the_same_bytes_every_time() -> None:
    first = app_bundle()
    app_bundle.cache_clear()
    assert app_bundle() == first


def test_a_room_waits_without_torch() -> None:
    code = "import fedapa.federation.network.room, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"data": {"partition": "dirichlet"}}, "data.partition"),
        ({"data": {"few_labels_in": ["cafe"], "train_windows": 3}}, "data.few_labels_in"),
        ({"joins": {"cafe": "run"}}, "joins"),
        ({"algorithm": "pooled"}, "Pooled"),
    ],
)
def test_plans_that_need_all_rooms_in_one_place_are_refused(
    values: dict[str, Any], word: str, tmp_path: Path
) -> None:
    with pytest.raises(RosterError, match=word):
        check_plan(plan_of(tmp_path / "rooms.h5", **values))
