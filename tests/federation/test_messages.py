"""Messages: one versioned form in our codec; what arrives is whole or refused with a sentence."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedapa.algorithms.algorithm import Round
from fedapa.errors import PayloadError
from fedapa.federation import messages
from fedapa.federation.messages import Reply, Request
from fedapa.payload import decode, encode
from fedapa.randomness import Key
from tests.conftest import MakeRooms

ROUND = Round(3, 9, Key(7) / "round" / 3)
REQUEST = Request(download=encode({"mean": np.ones(3)}), train=True, precision="int8")
REPLY = Reply(
    round=3,
    scores={"accuracy": 0.1 + 0.2, "nearest.mae": 1.0},
    confusion=np.arange(9).reshape(3, 3),
    upload=b"\x00\x01",
    report={"loss": float("inf"), "epochs": 3},
    seconds={"train": 1.5},
)
FRAMES = {
    "round": messages.encode_round(ROUND),
    "request": messages.encode_request(REQUEST),
    "reply": messages.encode_reply(REPLY),
}
UNTYPED = '{"train": 1, "keep_model": true, "precision": "int8", "run": ""}'
READERS: dict[str, Callable[[bytes], Any]] = {
    "round": messages.decode_round,
    "request": messages.decode_request,
    "card": messages.decode_card,
    "reply": messages.decode_reply,
}


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


def test_a_reply_arrives_as_it_was_and_numbers_keep_their_kind() -> None:
    arrived = messages.decode_reply(FRAMES["reply"])
    assert arrived.scores == REPLY.scores
    assert repr(arrived.report) == repr({"epochs": 3, "loss": float("inf")})
    assert arrived.seconds == REPLY.seconds
    assert arrived.upload == REPLY.upload
    np.testing.assert_array_equal(arrived.confusion, REPLY.confusion)


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
        ("round", {"facts": '{"number": 1}'}, "'key' is missing"),
        ("round", {"facts": '{"number": "1", "total": 2, "key": {"seed": 0}}'}, "number: "),
        ("round", {"facts": "[" * 100_000}, "not a whole message"),
        ("request", {"facts": UNTYPED}, "train: "),
        ("request", {"download": 3}, "its download is no bytes"),
        ("reply", {"round": None}, "which round it answers"),
        ("reply", {"scores": None}, "has no scores"),
        ("reply", {"report": {"loss": "high"}}, r"report\.loss is no number"),
        ("reply", {"confusion": np.ones(3)}, "confusion matrix is no table"),
    ],
)
def test_what_is_not_whole_is_refused_with_a_sentence(
    kind: str, change: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(PayloadError, match=complaint):
        READERS[kind](encode({**decode(FRAMES[kind]), **change}))


@given(st.sampled_from(sorted(FRAMES)), st.binary(max_size=200))
def test_any_bytes_are_a_message_or_one_error(kind: str, content: bytes) -> None:
    with pytest.raises(PayloadError):
        READERS[kind](content)
