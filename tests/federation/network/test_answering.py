"""A room's answers: what it cannot do is a sentence, and nobody tells it where its files are."""

import dataclasses
import errno
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedapa import Plan
from fedapa.algorithms.algorithm import Round
from fedapa.errors import DataError, PlanError, RosterError
from fedapa.federation.engines.flower import agreed_on, for_rooms
from fedapa.federation.engines.frames import EXCHANGE, INTRODUCE, REFUSED, TELL, UNKNOWN
from fedapa.federation.messages import (
    Reply,
    Request,
    decode_data_card,
    decode_reply,
    encode_agreement,
    encode_request,
    encode_round,
)
from fedapa.federation.network.answering import answer
from fedapa.federation.network.app import app_bundle
from fedapa.federation.network.place import Place
from fedapa.federation.network.running import check_plan
from fedapa.federation.prepare import agree
from fedapa.payload import digest
from fedapa.randomness import Key
from tests.conftest import MakeStore
from tests.federation.test_flower import plan_of


@pytest.fixture
def place(make_store: MakeStore, tmp_path: Path) -> Place:
    return Place("cafe", str(make_store()), str(tmp_path / "cafe"))


def refusal(place: Place, action: str, **frames: bytes) -> str:
    told = answer(place, action, frames)
    assert set(told) == {REFUSED}
    return told[REFUSED].decode()


def agreement(place: Place, plan: Plan) -> bytes:
    """What a server that has this room alone agrees on with it."""
    told = answer(place, TELL, {"plan": for_rooms(plan).encode()})
    return encode_agreement(agree(plan, [decode_data_card(told["card"])]))


def asked(place: Place, plan: Plan, run: str = "run") -> dict[str, bytes]:
    """The frames of a first round, where the room was told everything before."""
    text, frame = for_rooms(plan), agreement(place, plan)
    told = answer(place, INTRODUCE, {"plan": text.encode(), "agreement": frame})
    return {
        "agreed": agreed_on(text, frame).encode(),
        "card": digest(told["card"]).encode(),
        "round": encode_round(Round(1, 3, Key(0))),
        "request": encode_request(Request(None, train=True, run=run)),
    }


def first_round(place: Place, plan: Plan) -> Reply:
    return decode_reply(answer(place, EXCHANGE, asked(place, plan))["reply"])


def test_nonsense_is_refused_with_a_sentence(place: Place) -> None:
    assert "is nothing that a room is asked" in refusal(place, "train.now")
    assert "lacks a plan" in refusal(place, TELL)
    assert "lacks a agreed" in refusal(place, EXCHANGE)
    assert "unknown key" in refusal(place, TELL, plan=b"nonsense = 1")
    assert "data is 1; expected a section" in refusal(place, TELL, plan=b"data = 1")
    assert "the plan in the message of the server is no text" in refusal(place, TELL, plan=b"\xff")
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
        free = dataclasses.replace(place, epsilon=None)
        assert first_round(free, plan).upload is not None, "agreed on before there was a limit"
        assert words in refusal(place, TELL, **frames)
        assert words in refusal(place, INTRODUCE, **frames, agreement=agreement(free, plan))
        assert words in refusal(place, EXCHANGE, **asked(free, plan))


def test_what_left_without_noise_does_not_leave_again(place: Place) -> None:
    """A repeated round is answered from the room's file, but not where noise is asked for."""
    bare = plan_of(Path(place.data))
    noised = plan_of(Path(place.data), privacy={"epsilon": 100.0, "unit": "window"})
    limited = dataclasses.replace(place, epsilon=100.0, unit="window")
    exact = first_round(place, bare)
    first = first_round(limited, noised)
    again = first_round(limited, noised)
    assert "epsilon" in first.report
    assert first.upload != exact.upload
    assert again.upload == first.upload, "what was noised is told again as it was"


def test_a_run_cannot_take_the_ledgers_name(place: Place) -> None:
    plan = plan_of(Path(place.data))
    assert "choose another" in refusal(place, EXCHANGE, **asked(place, plan, run="privacy.json"))


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (
            {"epsilon": float("nan")},
            "epsilon nan: expected a number, the largest that a plan may have",
        ),
        ({"epsilon": 1.0, "delta": float("nan")}, "delta nan: expected a number"),
        ({"epsilon": "much"}, "could not convert string to float: 'much'; expected a number"),
        ({"epsilon": 1.0, "unit": "room"}, "unit 'room': expected recording or window"),
    ],
)
def test_limits_that_limit_nothing_are_refused(limits: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=re.escape(words)):
        Place.of({"room": "cafe", "data": "rooms.h5", "folder": "cafe", **limits})


def test_a_node_has_its_owners_limits() -> None:
    config = {"room": "cafe", "data": "rooms.h5", "folder": "cafe"}
    assert not Place.of(config).limits()
    place = Place.of({**config, "epsilon": 10, "unit": "window"})
    assert place == Place(*config.values(), epsilon=10.0, unit="window")
    assert "ε = 10 at most (δ = 1e-05 at most, unit: window)" in place.limits()


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
