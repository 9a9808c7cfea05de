"""The codec: what goes in comes out, equal things have equal bytes, and bad bytes are refused."""

import hashlib
import json
import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save

from fedapa.errors import PayloadError
from fedapa.payload import Precision, Tree, array_bytes, decode, digest, encode, leaves

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
    frame[4] = 3
    with pytest.raises(PayloadError, match="frame version 3, this fedapa reads 1 and 2"):
        decode(bytes(frame))


@given(_TREES)
def test_a_kept_frame_holds_the_body_of_one_that_travels(tree: dict[str, Any]) -> None:
    travelling, kept = encode(tree), encode(tree, travels=False)
    assert travelling[32:] == kept[32:]
    assert (travelling[4], kept[4]) == (1, 2)
    assert encode(decode(kept)) == travelling


@given(st.data())
def test_one_changed_byte_of_a_kept_frame_is_noticed(data: st.DataObject) -> None:
    frame = bytearray(encode({"p": np.arange(6.0), "q": {"r": 1}}, travels=False))
    frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(PayloadError):
        decode(bytes(frame))


@given(
    st.dictionaries(
        _WORDS,
        hnp.arrays(
            st.sampled_from(
                [f"<{kind}{size}" for kind in "iuf" for size in (2, 4, 8)] + ["?", "u1"]
            ),
            hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
        ),
        max_size=6,
    )
)
def test_the_body_is_what_the_safetensors_library_writes(arrays: dict[str, Any]) -> None:
    assert encode(arrays)[32:] == save(arrays, metadata={"tree": "{}"})


@pytest.mark.parametrize(
    "header",
    [
        '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
        '{"__metadata__":{"tree":"{}"},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}',
        '{"__metadata__":{"tree":"{}"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
        '{"__metadata__":{"tree":"{}"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},'
        '"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
        '{"__metadata__":{"tree":"{}"},"a":{"dtype":"F32","shape":[-2],"data_offsets":[8,0]}}',
        '{"__metadata__":{"tree":"{}"},"a":{"dtype":"F32","shape":[true],"data_offsets":[0,4]}}',
        '{"__metadata__":{"tree":"{}"},"a":{"dtype":"U8","shape":['
        + "1," * 40
        + '8],"data_offsets":[0,8]}}',
        '{"__metadata__":{"tree":"{}"},"a":{"dtype":"U8","shape":[0,9223372036854775808],'
        '"data_offsets":[0,0]},"b":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}',
        '{"__metadata__":{"tree":"{}"},"a":{"dtype":"F8","shape":[8],"data_offsets":[0,8]}}',
        '{"__metadata__":{"tree":"{}"},"a":{"dtype":"F32","shape":[2]}}',
        '{"__metadata__":{"tree":"{}"},"a":7}',
        "[]",
    ],
)
def test_a_file_with_holes_overlaps_or_odd_places_is_refused(header: str) -> None:
    body = len(header).to_bytes(8, "little") + header.encode() + bytes(8)
    with pytest.raises(PayloadError, match="not a payload of ours"):
        decode(_framed(body))


def test_arrays_that_lie_at_odd_places_are_read() -> None:
    header = '{"__metadata__":{"tree":"{}"},"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}}'
    header += " " * (3 - len(header) % 8)
    body = len(header).to_bytes(8, "little") + header.encode() + np.array([1.5]).tobytes()
    found = decode(_framed(body))["a"]
    assert isinstance(found, np.ndarray)
    assert found.flags.aligned
    assert found.flags.writeable
    assert found.tolist() == [1.5]


def _frame(arrays: dict[str, Any], tree: object) -> bytes:
    """A frame with a body of our making, as somebody hostile would send it."""
    return _framed(save(arrays, metadata={"tree": json.dumps(tree)}))


_FLOATS = hnp.arrays(
    st.sampled_from([np.float16, np.float32, np.float64]),
    hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4),
    elements=st.floats(-60000, 60000, width=16),
)


@pytest.mark.parametrize(("precision", "off"), [("float16", 2**-11), ("int8", 1 / 253.9)])
@given(values=_FLOATS)
def test_rounding_is_small_beside_the_largest_of_a_row(
    precision: Any, off: float, values: np.ndarray
) -> None:
    """A row is the last axis, or all of an output channel of a kernel (four axes and more)."""
    found = decode(encode({"a": {"b": values}}, precision))["a"]["b"]
    assert found.dtype == np.float32
    assert found.shape == values.shape
    if values.ndim < 2:
        assert np.array_equal(found, values)
    else:
        axes = tuple(range(1, values.ndim)) if values.ndim > 3 else -1
        largest = np.abs(values).max(axis=axes, keepdims=True, initial=0).astype(np.float64)
        assert (np.abs(found - values.astype(np.float64)) <= off * largest).all()
        assert not found[np.broadcast_to(largest == 0, found.shape)].any(), "zero stays zero"


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_what_is_no_float_survives_rounding(precision: Any) -> None:
    tree = {
        "mask": np.ones((2, 2), bool),
        "small": np.full((2, 2), -128, np.int8),
        "large": np.array([[2**40]]),
        "text": "ä",
        "number": 0.1,
        "empty": {},
    }
    assert same(decode(encode(tree, precision)), tree)


def test_full_precision_leaves_every_byte() -> None:
    tree = {"a": np.linspace(0, 1, 12).reshape(3, 4), "b": np.float32([[1e-30, 1e30]])}
    assert encode(tree, "float32") == encode(tree)
    assert same(decode(encode(tree)), tree)


@given(_TREES, st.sampled_from(["float16", "int8"]))
def test_rounding_twice_changes_nothing_more(tree: dict[str, Any], precision: Any) -> None:
    """What was restored is what would be sent again: a message passed on loses nothing.

    A row of int8 may scale by one unit in the last place more; the steps are the same.
    """
    try:
        first = decode(encode(tree, precision))
    except PayloadError as error:
        assert "NaN or infinity" in str(error)
        return
    second = decode(encode(first, precision))
    for (path, one), (_, other) in zip(leaves(first), leaves(second), strict=True):
        if isinstance(one, np.ndarray) and one.dtype.kind == "f":
            np.testing.assert_allclose(other, one, rtol=3e-7, err_msg=path)
        else:
            assert same(one, other)


def test_rounding_by_hand() -> None:
    """int8: the row (1, −0.5, 0.25) has scale 1/127; −0.5 is −63.5 steps, rounded to even −64, and
    0.25 is 31.75, rounded to 32. float16: 1/3 has 11 digits of two: 1365/4096."""
    row = np.array([[1, -0.5, 0.25]], np.float32)
    found = decode(encode({"a": row}, "int8"))["a"]
    np.testing.assert_allclose(found, [[1, -64 / 127, 32 / 127]], rtol=1e-7)
    third = np.array([[1 / 3]], np.float32)
    assert decode(encode({"a": third}, "float16"))["a"].item() == 1365 / 4096


@pytest.mark.parametrize(
    ("precision", "values"),
    [
        ("float16", [[70_000.0, 1.0]]),
        ("float16", [[1.0, 1.0], [1e-6, 1e-7]]),
        ("int8", [[1e-37, 0.0]]),
        ("int8", [[3.4e38, 1.0]]),
    ],
)
def test_magnitudes_that_would_be_lost_travel_whole(precision: Any, values: Any) -> None:
    tree = {"a": np.array(values, np.float32)}
    assert same(decode(encode(tree, precision)), tree)


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_a_variance_never_becomes_zero_or_negative(precision: Any) -> None:
    variance = np.array([1e-12, 1e-3, 1e6], np.float32)
    tree = {"norm.running_var": variance, "norm.num_batches_tracked": np.array(7)}
    assert same(decode(encode(tree, precision)), tree)


@pytest.mark.parametrize("precision", ["float16", "int8"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_not_rounded(precision: Any, bad: float) -> None:
    with pytest.raises(PayloadError, match="p/q: NaN or infinity cannot travel as"):
        encode({"p": {"q": np.array([[1.0, bad]])}}, precision)
    for values in ([1.0, bad], bad, [[[bad]]]):  # a vector, a single number, three axes
        with pytest.raises(PayloadError, match="p/q: NaN or infinity cannot travel as"):
            encode({"p": {"q": np.array(values, np.float32)}}, precision)
        assert decode(encode({"q": np.array(values)}))["q"].dtype == np.float64  # type: ignore[union-attr]


def test_rounded_messages_are_smaller() -> None:
    """21 × 256: 21,504 bytes as float32, half as float16, 5,376 + 21 · 4 = 5,460 as int8."""
    tree = {"p": np.ones((21, 256), np.float32)}
    frames = {each: len(encode(tree, each)) for each in ("float32", "float16", "int8")}  # type: ignore[arg-type]
    assert 21_504 <= frames["float32"] < 21_504 + 250
    assert 10_752 <= frames["float16"] < 10_752 + 250
    assert 5_460 <= frames["int8"] < 5_460 + 250


_WHOLE, _SCALE = np.ones((2, 3), np.int8), np.ones(2, np.float32)


@pytest.mark.parametrize(
    ("arrays", "tree"),
    [
        ({"a": _WHOLE}, {"": "int4"}),
        ({"a": _WHOLE}, {"": None}),
        ({"a": _WHOLE}, {"": ["int8"]}),
        ({"a": _WHOLE, "a/": _SCALE}, {"": "float16"}),
        ({"a": _WHOLE, "a/": _SCALE[:1]}, {"": "int8"}),
        ({"a": _WHOLE, "a/": _SCALE[:, None]}, {"": "int8"}),
        ({"a": _WHOLE, "a/": _SCALE.astype(np.float64)}, {"": "int8"}),
        ({"a": _WHOLE, "a/": -_SCALE}, {"": "int8"}),
        ({"a": _WHOLE, "a/": _SCALE * np.float32(np.nan)}, {"": "int8"}),
        ({"a": _WHOLE, "a/": _SCALE * np.float32(3e38)}, {"": "int8"}),
        ({"a": np.full((2, 3), -128, np.int8), "a/": _SCALE}, {"": "int8"}),
        ({"a": _WHOLE.astype(np.float32), "a/": _SCALE}, {"": "int8"}),
        ({"a": np.ones(2, np.int8), "a/": _SCALE}, {"": "int8"}),
        ({"a": np.ones((2, 0), np.int8), "a/": _SCALE}, {"": "int8"}),
        ({"a/": _SCALE}, {"": "int8"}),
        ({"a": np.ones((2, 3), np.float16)}, {"": "int8"}),
        ({"a": np.ones((2, 3), np.float64)}, {"": "float16"}),
        ({"a": np.full((2, 3), np.inf, np.float16)}, {"": "float16"}),
        ({"a": np.full(3, np.nan, np.float32)}, {"": "float16"}),
        ({"a": np.array(np.inf, np.float32)}, {"": "int8"}),
        ({"a": np.ones(3, np.complex64)}, {}),
        ({"a": np.ones(3, np.complex64)}, {"": "int8"}),
        ({}, {"a": [1, 2]}),
        ({}, {"a": [np.zeros(0).tolist()]}),
        ({}, {"a": {"float": "1.5"}}),
        ({}, {"a": {"float": "nan", "b": 1}}),
        ({}, {"a": {"b": 1}}),
        ({"a": _WHOLE}, []),
        ({"a": _WHOLE}, None),
    ],
)
def test_rounded_floats_that_fit_nothing_are_refused(arrays: dict[str, Any], tree: object) -> None:
    with pytest.raises(PayloadError, match="download of cafe"):
        decode(_frame(arrays, tree), "download of cafe")


@given(st.data())
def test_one_changed_byte_of_a_rounded_message_is_noticed(data: st.DataObject) -> None:
    precision = data.draw(st.sampled_from(["float16", "int8"]))
    frame = bytearray(encode({"p": np.arange(6.0).reshape(2, 3)}, precision))  # type: ignore[arg-type]
    frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(PayloadError):
        decode(bytes(frame))


@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
@pytest.mark.parametrize("peak", [1.0, 1e30], ids=["rounded", "too large to round"])
def test_values_keep_their_places_however_they_lie_in_memory(
    precision: Precision, peak: float
) -> None:
    rows = peak * np.arange(1.0, 73.0, dtype=np.float32).reshape(8, 9) / 72
    kernels = rows.reshape(4, 3, 3, 2).transpose(0, 3, 1, 2)  # channels last in memory
    given = {"turned": rows.T, "every other": rows[:, ::2], "kernels": kernels, "back": rows[::-1]}
    found = decode(encode(given, precision))
    for name, values in given.items():
        assert not values.flags.c_contiguous
        assert found[name] == pytest.approx(values, abs=peak / 250), name


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


def test_a_path_of_a_million_parts_is_refused_and_costs_no_more_than_its_text() -> None:
    """Each part would be a branch in memory: 181 MB from 2 MB."""
    path = "/".join(["a"] * 1_000_000)
    frame = _frame({}, {path: 1})
    tracemalloc.start()
    try:
        with pytest.raises(PayloadError, match="has more than 16 parts"):
            decode(frame)
        assert tracemalloc.get_traced_memory()[1] < 20 * len(frame)
    finally:
        tracemalloc.stop()


def test_what_would_not_be_read_is_not_written() -> None:
    deep: Tree = {"value": 1}
    for _ in range(15):
        deep = {"below": deep}
    assert decode(encode(deep)) == deep
    with pytest.raises(PayloadError, match="at most 16 parts"):
        encode({"below": deep})


def test_more_values_than_expected_are_refused() -> None:
    frame = encode({"one": 1, "two": np.zeros(2)})
    assert len(decode(frame, most=2)) == 2
    with pytest.raises(PayloadError, match="2 values; expected 1 at most"):
        decode(frame, most=1)
