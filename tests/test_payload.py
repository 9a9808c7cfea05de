"""The codec: what goes in comes out, equal things have equal bytes, and bad bytes are refused."""

import hashlib
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedapa.errors import PayloadError
from fedapa.payload import array_bytes, decode, digest, encode, leaves

_WORDS = st.text(st.characters(exclude_characters="/", codec="utf-8"), min_size=1, max_size=8)
_ARRAYS = hnp.arrays(
    st.sampled_from([np.bool_, np.int8, np.int64, np.uint8, np.float16, np.float32, np.float64]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(), st.text(max_size=8)
)
_TREES = st.recursive(
    st.dictionaries(_WORDS, st.one_of(_ARRAYS, _SCALARS), max_size=3),
    lambda below: st.dictionaries(_WORDS, st.one_of(_ARRAYS, _SCALARS, below), max_size=3),
    max_leaves=8,
)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and left.keys() == right.keys()
            and all(same(left[key], right[key]) for key in left)
        )
    if isinstance(left, np.ndarray):
        return (
            isinstance(right, np.ndarray)
            and left.dtype == right.dtype
            and left.shape == right.shape
            and left.tobytes() == right.tobytes()
        )
    return type(left) is type(right) and (left == right or (left != left and right != right))


@given(_TREES)
def test_a_tree_survives_the_codec(tree: dict[str, Any]) -> None:
    assert same(decode(encode(tree)), tree)


@given(_TREES)
def test_equal_trees_have_equal_bytes_whatever_their_order(tree: dict[str, Any]) -> None:
    turned = dict(reversed(list(tree.items())))
    assert encode(tree) == encode(turned)


@given(st.binary(max_size=300))
def test_any_bytes_give_a_tree_or_a_payload_error(content: bytes) -> None:
    with pytest.raises(PayloadError):
        decode(content)


def _framed(body: bytes) -> bytes:
    checksum = hashlib.blake2b(body, digest_size=16).digest()
    return struct.pack("<4sHHQ16s", b"FAPA", 1, 0, len(body), checksum) + body


@given(st.binary(max_size=200))
def test_a_valid_frame_around_any_body_gives_a_tree_or_a_payload_error(body: bytes) -> None:
    with pytest.raises(PayloadError):
        decode(_framed(body))


@given(st.data())
def test_one_changed_byte_is_noticed(data: st.DataObject) -> None:
    frame = bytearray(encode({"prototypes": np.arange(6.0), "round": 3}))
    place = data.draw(st.integers(0, len(frame) - 1))
    frame[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(PayloadError):
        decode(bytes(frame))


def test_every_truncation_is_noticed() -> None:
    frame = encode({"a": np.arange(3), "b": "text"})
    for length in range(len(frame)):
        with pytest.raises(PayloadError, match="upload"):
            decode(frame[:length], "upload of cafe")


@pytest.mark.parametrize(
    ("tree", "complaint"),
    [
        ({"a": object()}, "a: a object cannot travel"),
        ({"a": np.array(["x"])}, "a: dtype <U1 cannot travel"),
        ({"a": {"b/c": 1}}, "names in a payload"),
        ({"": 1}, "names in a payload"),
        ({"a": [1, 2]}, "a: a list cannot travel"),
    ],
)
def test_what_cannot_travel_is_named(tree: dict[str, Any], complaint: str) -> None:
    with pytest.raises(PayloadError, match=complaint):
        encode(tree)


def test_a_newer_version_is_refused() -> None:
    frame = bytearray(encode({}))
    frame[4] = 2
    with pytest.raises(PayloadError, match="frame version 2, this fedapa reads 1"):
        decode(bytes(frame))


def test_array_bytes_counts_arrays_alone() -> None:
    """21 × 256 float32 are 21 · 256 · 4 = 21,504 bytes; a scalar counts nothing."""
    tree = {"p": {"q": np.zeros((21, 256), np.float32)}, "n": 5}
    assert array_bytes(tree) == 21_504
    assert dict(leaves(tree))["n"] == 5


def test_the_frame_adds_less_than_one_percent_to_a_rounds_messages() -> None:
    """Up P_i, down Q_i and five peers' sets: 7 · 21 · 256 · 4 = 150,528 bytes of arrays."""
    up = {"prototypes": np.zeros((21, 256), np.float32), "present": np.ones(21, bool)}
    down = {
        "mixture": np.zeros((21, 256), np.float32),
        "clients": np.zeros((5, 21, 256), np.float32),
        "known": np.ones(21, bool),
    }
    assert array_bytes(up) + array_bytes(down) == 150_528 + 42
    assert len(encode(up)) + len(encode(down)) < 1.01 * 150_528


def test_digest_tells_contents_apart() -> None:
    assert digest(b"a") == digest(b"a") != digest(b"b")
