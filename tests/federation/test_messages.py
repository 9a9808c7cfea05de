"""Messages: one versioned form in our codec; what arrives is whole or refused with a sentence."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedapa.algorithms.algorithm import Round
from fedapa.errors import DataError, PayloadError, RunError
from fedapa.evaluation.metrics import score
from fedapa.federation import messages
from fedapa.federation.messages import Agreement, Reply, Request
from fedapa.payload import Tree, decode, encode
from fedapa.randomness import Key
from fedapa.rooms.card import DataCard, RoomCard
from tests.conftest import MakeRooms

ROUND = Round(3, 9, Key(7) / "round" / 3)
REQUEST = Request(download=encode({"mean": np.ones(3)}), train=True, precision="int8")
REPLY = Reply(
    round=3,
    scores={"accuracy": 0.1 + 0.2, "macro_f1": 0, "nearest.mae": 1.5},
    confusion=np.arange(9).reshape(3, 3),
    reliability=np.vstack([np.zeros((8, 3)), [[36, 30.5, 12], [0, 0, 0]]]),
    roc=np.repeat([[3, 33], [2, 30], [0, 0]], 7, axis=0),
    upload=b"\x00\x01",
    report={"loss": 1e-300, "epochs": 3},
    seconds={"train": 1.5},
    note="it joined afresh",
)
PARTS = {"train": 8, "validation": 1, "test": 36}
DATA_CARD = DataCard(
    "cafe",
    (0, 1, 2),
    (16, 52),
    PARTS,
    synthetic=True,
    allowed_splits={"recording": 8, "random": 30},
    refused_splits={"day": "has recordings without a day"},
    refused_views={"statistics": "needs 10 packets per second or more, not 1; record faster"},
)
AGREEMENT = Agreement((0, 1, 2), (16, 52), {"cafe": "tiny"}, "recording", "the plan asks for it")
CARD = RoomCard("cafe", "tiny", 8, 3, 4, {"head.bias": (3,)}, labels=(0, 1, 2), parts=PARTS)
FRAMES = {
    "agreement": messages.encode_agreement(AGREEMENT),
    "card": messages.encode_card(CARD),
    "data card": messages.encode_data_card(DATA_CARD),
    "round": messages.encode_round(ROUND),
    "request": messages.encode_request(REQUEST),
    "reply": messages.encode_reply(REPLY),
}
UNTYPED = '{"train": 1, "keep_model": true, "precision": "int8", "run": "run"}'
ELSEWHERE = UNTYPED.replace("1", "true").replace('"run"}', '"../run"}')
READERS: dict[str, Callable[[bytes], Any]] = {
    "agreement": messages.decode_agreement,
    "card": messages.decode_card,
    "data card": messages.decode_data_card,
    "round": messages.decode_round,
    "request": messages.decode_request,
    "reply": messages.decode_reply,
}


def with_facts(kind: str, **facts: Any) -> bytes:
    """The frame of a message with other facts, as a stranger might write it."""
    tree = decode(FRAMES[kind])
    return encode({**tree, "facts": json.dumps({**json.loads(str(tree["facts"])), **facts})})


def test_a_round_and_a_request_arrive_as_they_were() -> None:
    assert messages.decode_round(FRAMES["round"]) == ROUND
    assert messages.decode_request(FRAMES["request"]) == REQUEST
    endless = Round(3, None, Key(7))
    assert messages.decode_round(messages.encode_round(endless)) == endless
    idle = Request(download=None, train=False)
    assert messages.decode_request(messages.encode_request(idle)) == idle


def test_a_card_arrives_as_it_was_in_the_same_bytes(make_rooms: MakeRooms) -> None:
    card = make_rooms()[0].card
    frame = messages.encode_card(card)
    assert messages.decode_card(frame) == card
    assert messages.encode_card(messages.decode_card(frame)) == frame


def test_what_rooms_agree_by_arrives_as_it_was() -> None:
    assert messages.decode_data_card(FRAMES["data card"]) == DATA_CARD
    assert messages.decode_agreement(FRAMES["agreement"]) == AGREEMENT
    categories = replace(DATA_CARD, labels=("sit", "walk"), window_shape=(9,))
    assert messages.decode_data_card(messages.encode_data_card(categories)) == categories


def test_what_a_room_says_in_words_is_one_printable_line(make_rooms: MakeRooms) -> None:
    """At the server it is shown on a terminal, in reports and told to other rooms."""
    words, line = "\x1b[2Jall\nis well", " [2Jall is well"
    forged = json.loads(str(decode(FRAMES["data card"])["facts"]))
    forged["refused_splits"] = {"day": words}
    frame = encode({**decode(FRAMES["data card"]), "facts": json.dumps(forged)})
    assert messages.decode_data_card(frame).refused_splits == {"day": line}
    card = make_rooms()[0].card
    tree = messages.card_tree(card)
    facts = {**json.loads(str(tree["facts"])), "view_why": words, "windows_are": words}
    told = messages.card_of({**tree, "facts": json.dumps(facts)})
    assert (told.view_why, told.windows_are) == (line, line)
    facts = {**facts, "architecture": words}
    with pytest.raises(PayloadError, match=r"the fact '\\x1b\[2Jall\\nis well' cannot be print"):
        messages.card_of({**tree, "facts": json.dumps(facts)})


_NAMES = st.text("abc é", min_size=1, max_size=8).map(lambda text: f"x{text}".strip())
_LABELS = st.lists(st.integers() | st.text(max_size=5), min_size=2, max_size=5, unique=True)


@given(st.builds(DataCard, _NAMES, _LABELS.map(tuple), st.just((4, 2)), st.just(PARTS)))
def test_any_data_card_survives(card: DataCard) -> None:
    assert messages.decode_data_card(messages.encode_data_card(card)) == card


@given(
    st.builds(
        Agreement, _LABELS.map(tuple), st.just((4, 2)), st.dictionaries(_NAMES, st.text(max_size=9))
    )
)
def test_any_agreement_survives(agreed: Agreement) -> None:
    assert messages.decode_agreement(messages.encode_agreement(agreed)) == agreed


def test_a_reply_arrives_as_it_was_and_numbers_keep_their_kind() -> None:
    arrived = messages.decode_reply(FRAMES["reply"])
    assert arrived.scores == REPLY.scores
    assert repr(arrived.report) == repr({"epochs": 3, "loss": 1e-300})
    assert arrived.note == REPLY.note
    assert arrived.seconds == REPLY.seconds
    assert arrived.upload == REPLY.upload
    np.testing.assert_array_equal(arrived.confusion, REPLY.confusion)
    np.testing.assert_array_equal(arrived.reliability, REPLY.reliability)
    np.testing.assert_array_equal(arrived.roc, REPLY.roc)
    before = {key: value for key, value in decode(FRAMES["reply"]).items() if key != "roc"}
    assert messages.decode_reply(encode(before)).roc.shape == (0, 2), "as states of before"


@pytest.mark.parametrize("kind", sorted(FRAMES))
@pytest.mark.parametrize("name", ["message", "version"])
def test_an_array_in_the_place_of_a_kind_or_a_version_is_refused(kind: str, name: str) -> None:
    """It is equal to nothing, and numpy says so by an error: whoever sent it ended the server."""
    spoilt = encode({**decode(FRAMES[kind]), name: np.zeros(0)})
    with pytest.raises(PayloadError, match=r"ndarray"):
        READERS[kind](spoilt)


@pytest.mark.parametrize("kind", sorted(FRAMES))
def test_an_unknown_version_is_refused_with_a_remedy(kind: str) -> None:
    newer = encode({**decode(FRAMES[kind]), "version": 2})
    with pytest.raises(PayloadError, match=rf"{kind} of version 2, .* version 1; install the same"):
        READERS[kind](newer)


@pytest.mark.parametrize("kind", sorted(READERS))
def test_another_message_is_refused_by_name(kind: str) -> None:
    for other in sorted(set(FRAMES) - {kind}):
        with pytest.raises(PayloadError, match=f"expected a {kind}, got {other}"):
            READERS[kind](FRAMES[other])
    with pytest.raises(PayloadError, match="no message"):
        READERS[kind](encode({}))


@pytest.mark.parametrize(
    ("kind", "change", "complaint"),
    [
        ("round", {"facts": "null"}, "there are no facts"),
        ("round", {"facts": '{"number": 1, "diagnose": null}'}, "'key' is missing"),
        (
            "round",
            {"facts": '{"number": "1", "total": 2, "key": {"seed": 0}, "diagnose": null}'},
            "number: ",
        ),
        ("round", {"facts": "[" * 100_000}, "not a whole message"),
        ("request", {"facts": UNTYPED}, "train: "),
        ("request", {"download": 3}, "its download is no bytes"),
        ("reply", {"round": None}, "which round it answers"),
        ("reply", {"scores": None}, "has no scores"),
        ("reply", {"report": {"loss": "high"}}, r"report\.loss is 'high'; expected a finite"),
        ("reply", {"note": 3}, "its note is no text"),
        ("reply", {"confusion": np.ones(3)}, "confusion matrix is no table"),
        ("reply", {"reliability": np.ones((4, 3))}, "reliability is no table of 10 × 3 numbers"),
        ("reply", {"reliability": np.ones((10, 3), int)}, "reliability is no table"),
        ("reply", {"roc": np.ones((20, 2), int)}, "ROC is no table of 21 × 2 counts"),
        ("reply", {"roc": np.ones((21, 2))}, "ROC is no table"),
        ("reply", {"roc": None}, "ROC is no table"),
    ],
)
def test_what_is_not_whole_is_refused_with_a_sentence(
    kind: str, change: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(PayloadError, match=complaint):
        READERS[kind](encode({**decode(FRAMES[kind]), **change}))


@pytest.mark.parametrize(
    ("kind", "facts", "complaint"),
    [
        ("round", {"number": -3, "total": -1}, "round -3 of -1: rounds are counted from 1"),
        ("round", {"number": 4, "total": 2}, "round 4 of 2"),
        ("request", json.loads(ELSEWHERE), r"run '\.\./run': use 1 to 64 letters"),
        ("card", {"parts": {}}, r"card of room 'cafe': parts are \{\}; expected the number of"),
        ("card", {"parts": {**PARTS, "test": -1}}, "expected the number of train"),
        ("card", {"classes": 10**30}, "are more numbers than"),
        ("card", {"width": 0}, "width is 0; expected 1 or more"),
        ("card", {"flops": 10**400}, "flops is above 4611686018427387904; expected"),
        ("card", {"windows": -1}, "windows is -1; expected 0 or more"),
        ("card", {"classes": 2}, "2 classes and 3 labels"),
        ("card", {"labels": [0, 1, 1]}, "names a label twice"),
        ("card", {"shapes": {"head": [-1]}}, r"array 'head' has shape \(-1,\)"),
        ("card", {"norms": ["bn"]}, "'bn' is none of its arrays"),
        ("card", {"recordings": {"test": 1}}, "recordings are {'test': 1} for windows"),
        ("card", {"recordings": {**PARTS, "continuous": 1}}, "at most as many as it has windows"),
        ("card", {"continuous": -1}, "continuous is -1; expected 0 or more"),
        ("card", {"window_shape": [0, 3]}, r"windows of shape \(0, 3\)"),
        ("card", {"blind": {"prior": {"mae": float("nan")}}}, "scores of 'prior' are not finite"),
        ("card", {"name": "../cafe"}, r"room '\.\./cafe': use 1 to 64 letters"),
        ("data card", {"labels": []}, "names no label"),
        ("data card", {"labels": [True, 2]}, "labels"),
        ("data card", {"parts": {"train": 3}}, "expected the number of train"),
        ("data card", {"allowed_splits": {"hour": 3}}, "input should be 'random', 'blocked', "),
        ("data card", {"allowed_splits": {"day": -3}}, "'day' leaves -3 train windows; expected 0"),
        ("data card", {"refused_views": {"level": 401 * "a"}}, "why not view 'level': 401 letters"),
        ("data card", {"refused_splits": {"day": 201 * "a"}}, "201 letters; expected at most 200"),
        ("card", {"split_why": 2001 * "a"}, "split_why: 2001 letters; expected at most 2000"),
        ("agreement", {"split": "auto"}, "split: input should be 'random', "),
        ("data card", {"window_shape": [1, 2, 3]}, r"windows of shape \(1, 2, 3\)"),
        ("agreement", {"classes": [1]}, "expected two or more"),
        ("agreement", {"nets": {"cafe": 3}}, r"nets\.cafe"),
    ],
)
def test_values_that_no_message_has_are_refused_with_a_sentence(
    kind: str, facts: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(PayloadError, match=complaint):
        READERS[kind](with_facts(kind, **facts))


def test_what_cannot_be_is_refused_where_it_is_made() -> None:
    with pytest.raises(RunError, match="round 0 of 3"):
        Round(0, 3, Key(0))
    assert Round(4, 3, Key(0)).number == 4, "the exchange after the last round only scores"
    with pytest.raises(DataError, match="expected the number of train"):
        replace(CARD, parts={})


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"report": {"loss": float("nan")}}, r"report\.loss is nan; expected a finite number"),
        ({"report": {"loss": 10**400}}, r"report\.loss is 10{59}; expected a finite number"),
        ({"report": {"loss": True}}, r"report\.loss is True"),
        ({"seconds": {"train": float("inf")}}, r"seconds\.train is inf"),
        ({"report": {"bytes_up": 0}}, r"report\.bytes_up: this name is the server's"),
        ({"report": {"participated": 1}}, r"report\.participated: this name is the server's"),
        ({"report": {"accuracy": 1}}, r"report\.accuracy: this name is the server's"),
        ({"report": {"x.mae": 1}}, r"report\.x\.mae: this name is the server's"),
        ({"scores": {**REPLY.scores, "bytes_down": 1}}, r"scores\.bytes_down is unknown"),
        ({"scores": {**REPLY.scores, ".mae": 1}}, r"scores\.\.mae is unknown"),
        ({"scores": {**REPLY.scores, "accuracy": 1.5}}, r"scores\.accuracy is 1\.5; expected"),
        ({"scores": {**REPLY.scores, "x.mae": -1}}, r"scores\.x\.mae is -1; expected 0 or"),
        ({"scores": {"accuracy": 1}}, "scores lack accuracy or macro_f1"),
        ({"report": {"\x1b[2J": 1}}, r"report: the name '\\x1b\[2J' cannot be printed"),
    ],
)
def test_a_reply_that_would_spoil_a_record_is_refused_at_both_ends(
    change: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(PayloadError, match=f"^{complaint}"):
        replace(REPLY, **change)
    forged = encode({**decode(FRAMES["reply"]), **change})
    with pytest.raises(PayloadError, match=f"^the cafe's: {complaint}"):
        messages.decode_reply(forged, "the cafe's")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"confusion": np.eye(2, dtype=int)}, r"confusion matrix is \(2, 2\), its card has 3"),
        ({"confusion": np.diag([40, 0, -4])}, "entries from -4 to 40"),
        ({"confusion": np.full((3, 3), 2**63, np.uint64)}, "entries from -9223372036854775808"),
        ({"confusion": np.eye(3, dtype=int)}, "the sum 3, its card has 36 test windows"),
        ({"scores": {}}, "has 0 scores, its card has 36 test windows"),
        ({"scores": {"accuracy": 1.0, "macro_f1": 0.5}}, "accuracy is 1.0, its confusion matrix"),
        ({"reliability": np.ones((10, 3))}, "reliability cannot be that of 36 test windows"),
        ({"reliability": 36 * np.eye(10)[:, :3][:, ::-1]}, "reliability cannot be that of 36"),
        ({"reliability": np.full((10, 3), np.nan)}, "reliability cannot be that of 36"),
        ({"roc": REPLY.roc[::-1]}, "ROC cannot be that of 3 empty and 33 occupied test windows"),
        ({"roc": REPLY.roc - 7 * (REPLY.roc == 0)}, "ROC cannot be that of 3 empty and 33"),
        ({"roc": REPLY.roc[:, ::-1]}, "ROC cannot be that of 3 empty and 33"),
        ({"roc": REPLY.roc + np.array([0, 1])}, "ROC cannot be that of 3 empty and 33"),
    ],
)
def test_a_reply_must_fit_the_card_of_its_room(change: dict[str, Any], complaint: str) -> None:
    told = replace(REPLY, scores=score(REPLY.confusion, CARD.labels))
    messages.check_reply(told, CARD)
    messages.check_reply(replace(told, reliability=np.zeros((0, 3))), CARD)
    sure = {**told.scores, "ece": (30.5 - 12) / 36}
    messages.check_reply(replace(told, scores=sure), CARD)
    _check_presence(told)
    with pytest.raises(PayloadError, match=r"ece is 0\.1, its reliability says 0\.513889"):
        messages.check_reply(replace(told, scores={**sure, "ece": 0.1}), CARD)
    with pytest.raises(PayloadError, match=f"reply of room 'cafe' to round 3: .*{complaint}"):
        messages.check_reply(replace(told, **change), CARD)


def _check_presence(told: Reply) -> None:
    """From 0.35 on 2 of 3 empty and 30 of 33 occupied windows pass, from 0.7 on none.

    At one half 1 + 30 of 36 are right. Of 99 pairs 30 · 1 are in order for sure, none of those
    within 30 · 2 and 3 · 1 is known: 30/99 to 93/99.
    """
    right = {**told.scores, "presence": 31 / 36, "presence_auc": 93 / 99}
    messages.check_reply(replace(told, scores=right), CARD)
    for wrong, complaint in (
        ({"presence": 0.5}, r"presence is 0\.5, its ROC says 0\.861111"),
        ({"presence_auc": 0.95}, r"presence_auc is 0\.95, its ROC says 0\.30303 to 0\.939394"),
    ):
        with pytest.raises(PayloadError, match=complaint):
            messages.check_reply(replace(told, scores={**right, **wrong}), CARD)
    full = replace(told, confusion=np.diag([0, 36, 0]), roc=REPLY.roc[:, ::-1] * 0 + [[0, 36]])
    alone = {**score(full.confusion, CARD.labels), "presence": 1.0}
    messages.check_reply(replace(full, reliability=np.zeros((0, 3)), scores=alone), CARD)
    with pytest.raises(PayloadError, match=r"presence_auc is 0\.5, its ROC says nothing"):
        messages.check_reply(replace(full, scores={**alone, "presence_auc": 0.5}), CARD)
    with pytest.raises(PayloadError, match=r"a ROC of presence, its classes are \[1, 2, 3\]"):
        messages.check_reply(told, replace(CARD, labels=(1, 2, 3)))


@given(st.sampled_from(sorted(FRAMES)), st.binary(max_size=200))
def test_any_bytes_are_a_message_or_one_error(kind: str, content: bytes) -> None:
    with pytest.raises(PayloadError):
        READERS[kind](content)


def test_a_reply_may_stand_without_its_seconds_and_beside_its_upload() -> None:
    bare = replace(REPLY, seconds={}, upload=None)
    frame = messages.encode_reply(REPLY, timed=False, whole=False)
    assert frame == messages.encode_reply(bare)
    again = messages.decode_reply(frame, upload=REPLY.upload)
    assert again.upload == REPLY.upload
    assert messages.encode_reply(again) == messages.encode_reply(replace(REPLY, seconds={}))


def test_a_name_of_pages_is_refused_in_a_sentence() -> None:
    """What a stranger sends stands in logs: not all of it."""
    tree = dict(decode(FRAMES["data card"]))
    facts = json.loads(str(tree["facts"]))
    tree["facts"] = json.dumps({**facts, "name": "x" * 50_000})
    with pytest.raises(PayloadError) as refused:
        messages.decode_data_card(encode(tree))
    assert "use 1 to 64 letters" in str(refused.value)
    assert len(str(refused.value)) < 500


def test_a_score_by_a_name_of_pages_is_refused_in_a_sentence() -> None:
    tree = dict(decode(FRAMES["reply"]))
    frame = encode({**tree, "scores": {**cast(Tree, tree["scores"]), "x" * 50_000: 0.5}})
    with pytest.raises(PayloadError, match=r"the name xxx.* has 50000 letters") as refused:
        messages.decode_reply(frame)
    assert len(str(refused.value)) < 2000


@pytest.mark.parametrize(
    ("report", "words"),
    [
        ({"x" * 101: 0.5}, "has 101 letters; expected 100 at most"),
        ({f"x{number}": 0.5 for number in range(101)}, "report has 101 numbers; expected 100"),
        ({"trust": 1.0}, "report.trust: this name is the server's"),
    ],
)
def test_what_a_room_reports_is_bounded(report: dict[str, float], words: str) -> None:
    """It stands in every line of the record and in the checkpoint."""
    tree = dict(decode(FRAMES["reply"]))
    with pytest.raises(PayloadError, match=words):
        messages.decode_reply(encode({**tree, "report": cast(Tree, report)}))
