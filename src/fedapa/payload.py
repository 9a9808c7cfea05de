"""Payloads, states and checkpoints: nested named arrays and scalars, and their one codec.

A tree is a mapping from words to numpy arrays, numbers, strings, ``None`` or further trees.
``encode`` turns it into a frame, ``decode`` turns a frame back or says why it can't::

    offset  bytes  what
    0       4      "FAPA"
    4       2      version of the frame, little endian
    6       2      reserved, zero
    8       8      length of the body, little endian
    16      16     of the body: BLAKE2b-128 (version 1), or CRC-32 and zeros (version 2)
    32      …      the body: a safetensors file

Version 1 travels. Version 2 is for what stays on a machine, states, checkpoints and what workers
get and give: it finds what a disk damages, and takes a fifth of the time.

The arrays are safetensors tensors named by their path (``model/encoder.head.bias``); scalars and
empty trees stand as sorted JSON under the single metadata key ``tree`` (safetensors writes
metadata keys in random order, so a second key would make equal trees unequal bytes).
Equal trees have equal bytes. The body is written and read here, to the byte as the safetensors
library does it (a test compares the two), but without its copies of every array. Nothing here can
run code. A path has at most 16 parts: each part is a branch in memory, and two bytes of a hostile
frame would cost two hundred there.

Messages may travel in fewer bits (``encode(tree, "float16")`` or ``"int8"``). Then arrays of floats
with two axes or more are rounded row by row and come back as float32; a row is a prototype, or the
weights of one output channel. int8 has a scale a row, a tensor named by the path and a slash. What
would be rounded badly (vectors and single numbers, such as BatchNorm's statistics; magnitudes that
16 bits do not hold) travels as float32. The nameless entry of the tree says that it was done.
"""

import hashlib
import json
import math
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeAlias, Union, cast

import numpy as np
import numpy.typing as npt

from fedapa.errors import PayloadError

__all__ = [
    "Array",
    "Precision",
    "Tree",
    "Value",
    "array_bytes",
    "decode",
    "digest",
    "encode",
    "encode_parts",
    "leaves",
    "name_of",
]

Array: TypeAlias = npt.NDArray[np.generic]
Value: TypeAlias = Union[Array, int, float, bool, str, "Tree", None]
Tree: TypeAlias = Mapping[str, Value]
Precision: TypeAlias = Literal["float32", "float16", "int8"]
"""In how many bits floats travel; float32 leaves every array as it is."""
_Floats: TypeAlias = npt.NDArray[np.float32]

_MAGIC = b"FAPA"
_TRAVELLING, _KEPT = 1, 2  # versions of the frame
_HEAD = struct.Struct("<4sHHQ16s")
_SEPARATOR = "/"
_DEEPEST = 16  # parts of a path; ours have at most six
# What safetensors and we both know, in the order in which arrays stand in a file; anything else
# (object, datetime, text) is refused by name.
_DTYPES = {
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
    "F32": "float32",
    "U32": "uint32",
    "I32": "int32",
    "F16": "float16",
    "U16": "uint16",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
_KINDS = {word: np.dtype(name).newbyteorder("<") for word, name in _DTYPES.items()}
_PLACES = {kind: (place, word) for place, (word, kind) in enumerate(_KINDS.items())}
_METADATA = "__metadata__"
_LENGTH = struct.Struct("<Q")
_MOST_AXES = 32  # of an array; ours have at most five
_ALIGNED = 8  # bytes: a header ends where the largest numbers may begin
_ROUNDED = ""  # no name in a payload is empty: here stands the precision of rounded floats
_STEPS = 127  # of int8 to either side; −128 is not used
# The least and the largest magnitude of a row that is rounded as it should be: float16 has full
# precision between these, and an int8 row's scale and values stay ordinary float32 numbers.
_RANGES = {
    "float16": (2.0**-14, 65504.0),
    "int8": (_STEPS * float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max) / 2),
}

_TREE = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_HEADER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_LEAVES = frozenset([np.ndarray, str, int, float, bool, type(None)])
"""What is no tree, by its class: to ask whether something is a mapping takes longer."""


def leaves(tree: Tree, prefix: str = "") -> Iterator[tuple[str, Value]]:
    """All leaves as (path, value), in sorted order; an empty tree is a leaf of its own."""
    for word in sorted(tree):
        value, path = tree[word], f"{prefix}{word}"
        if value.__class__ not in _LEAVES and isinstance(value, Mapping) and value:
            yield from leaves(value, f"{path}{_SEPARATOR}")
        else:
            yield path, value


def array_bytes(tree: Tree) -> int:
    """Bytes of the arrays alone, before framing: what the paper's formula counts."""
    return sum(value.nbytes for _, value in leaves(tree) if isinstance(value, np.ndarray))


def digest(frame: bytes) -> str:
    """A short name for the content of a frame, for equality and for file names."""
    return hashlib.blake2b(frame, digest_size=16).hexdigest()


def name_of(frame: bytes) -> str:
    """As ``digest``, for a frame that is checked when it is decoded: its head names the rest."""
    return digest(frame[: _HEAD.size])


def encode(tree: Tree, precision: Precision = "float32", *, travels: bool = True) -> bytes:
    """The frame of a tree, see ``encode_parts``."""
    return b"".join(encode_parts(tree, precision, travels=travels))


def encode_parts(
    tree: Tree, precision: Precision = "float32", *, travels: bool = True
) -> list[bytes | memoryview]:
    """The head and the body of the frame of a tree in parts: arrays are not copied.

    Raises PayloadError for anything that is not an array or a scalar.

    Args:
        tree: arrays and scalars by name.
        precision: "float16" and "int8" round arrays of floats, which come back as float32: each
            value is off by at most 2⁻¹¹ of its row's largest, or 1/254 of it. NaN and infinity
            in any array are refused there; a single number that is no array travels as it is.
        travels: whether it leaves this machine; else its checksum is the quick one.
    """
    arrays: dict[str, Array] = {}
    scalars: dict[str, object] = {}
    _check_names(tree, "")
    for path, value in leaves(tree):
        if isinstance(value, np.ndarray):
            little = value
            if value.dtype not in _PLACES:
                little = value.astype(value.dtype.newbyteorder("<"), copy=False)
            if little.dtype not in _PLACES:
                raise PayloadError(
                    f"{path}: dtype {value.dtype} cannot travel; "
                    f"known: {', '.join(sorted(_DTYPES.values()))}"
                )
            if not little.flags.c_contiguous:
                little = np.ascontiguousarray(little)
            arrays[path] = little
            if precision != "float32" and value.dtype.kind == "f":
                # safetensors writes memory as it lies: only what is contiguous keeps its order.
                arrays |= _rounded(path, arrays[path], precision)
                scalars[_ROUNDED] = precision
        elif isinstance(value, Mapping):
            scalars[path] = {}
        elif isinstance(value, float) and not math.isfinite(value):
            scalars[path] = {"float": repr(value)}  # JSON has no NaN and no infinity
        elif value is None or type(value) in (bool, int, float, str):
            scalars[path] = value
        else:
            raise PayloadError(
                f"{path}: a {type(value).__name__} cannot travel; "
                "use an array, a number, a string, None or a mapping of these"
            )
    body = _written(arrays, _TREE.encode(scalars))
    version = _TRAVELLING if travels else _KEPT
    length = sum(len(part) for part in body)
    return [_HEAD.pack(_MAGIC, version, 0, length, _checksum(version, body)), *body]


def _checksum(version: int, parts: Iterable[bytes | memoryview]) -> bytes:
    """Of a body in parts, 16 bytes."""
    if version == _TRAVELLING:
        content = hashlib.blake2b(digest_size=16)
        for part in parts:
            content.update(part)
        return content.digest()
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return checksum.to_bytes(16, "little")


# ---- the body: a safetensors file ----------------------------------------------------------------


def _written(arrays: Mapping[str, Array], tree: str) -> list[bytes | memoryview]:
    """A safetensors file in parts: its header with the scalars, then each array as it lies."""
    header: dict[str, object] = {_METADATA: {"tree": tree}}
    parts: list[bytes | memoryview] = []
    place = 0
    for path in sorted(arrays, key=lambda path: (_PLACES[arrays[path].dtype], path)):
        if path == _METADATA:
            raise PayloadError(f"{path}: this name is safetensors' own; use another")
        value = arrays[path]
        header[path] = {
            "dtype": _PLACES[value.dtype][1],
            "shape": value.shape,
            "data_offsets": (place, place + value.nbytes),
        }
        if value.nbytes:
            parts.append(value.reshape(-1).view(np.uint8).data)
        place += value.nbytes
    text = _HEADER.encode(header).encode()
    text += b" " * (-len(text) % _ALIGNED)
    return [_LENGTH.pack(len(text)) + text, *parts]


def _read(body: memoryview) -> tuple[dict[str, Array], str]:
    """The arrays in a safetensors file, which they share memory with, and its scalars as text.

    Raises ValueError, KeyError, TypeError or RecursionError for what is no such file: one whose
    arrays leave holes or overlap is none.
    """
    if len(body) < _LENGTH.size:
        raise ValueError("it has no header")
    (length,) = _LENGTH.unpack_from(body)
    data = body[_LENGTH.size + length :]
    if length > len(body) - _LENGTH.size:
        raise ValueError("its header is not whole")
    header = json.loads(bytes(body[_LENGTH.size : _LENGTH.size + length]))
    if not isinstance(header, dict):
        raise ValueError("its header is none")
    tree = header.pop(_METADATA)["tree"]
    arrays: dict[str, Array] = {}
    spans: list[tuple[int, int]] = []
    for path, entry in header.items():
        kind, shape, (first, last) = _KINDS[entry["dtype"]], entry["shape"], entry["data_offsets"]
        numbers = (*shape, first, last)
        if len(numbers) > _MOST_AXES + 2 or any(
            type(number) is not int or not 0 <= number < 2**63 for number in numbers
        ):  # as in safetensors; a product of any numbers could be as long as a book
            raise ValueError(f"'{path:.60}' has no shape or no place")
        number = math.prod(shape)
        if last - first != number * kind.itemsize or last > len(data):
            raise ValueError(f"'{path:.60}' has {last - first} bytes; its shape is {shape}")
        value = np.frombuffer(data[first:last], kind) if number else np.empty(0, kind)
        if not value.flags.aligned:
            value = value.copy()
        arrays[path] = value.reshape(shape)
        spans.append((first, last))
    ends = [0, *(last for _, last in sorted(spans))]
    if [first for first, _ in sorted(spans)] != ends[:-1] or ends[-1] != len(data):
        raise ValueError("its arrays leave holes or overlap")
    return arrays, tree


# ---- fewer bits ----------------------------------------------------------------------------------


def _rounded(path: str, value: Array, precision: Precision) -> dict[str, Array]:
    """An array in fewer bits, and the scales of its rows where it has them."""
    with np.errstate(over="ignore"):  # what is too large for float32 is refused below
        plain = value.astype("<f4")
    if not np.isfinite(plain).all():
        raise PayloadError(f"{path}: NaN or infinity cannot travel as {precision}; use float32")
    if plain.ndim < 2 or not plain.size:
        return {path: plain}
    rows = _rows(plain)
    peaks = np.abs(rows).max(axis=1)  # (rows,)
    least, most = _RANGES[precision]
    if ((peaks > 0) & (peaks < least)).any() or (peaks > most).any():
        return {path: plain}
    if precision == "float16":
        return {path: plain.astype("<f2")}
    scales = peaks / np.float32(_STEPS)  # (rows,)
    steps = np.rint(rows / np.where(scales > 0, scales, 1)[:, None])
    whole = np.clip(steps, -_STEPS, _STEPS).astype(np.int8).reshape(plain.shape)
    return {path: whole, path + _SEPARATOR: scales}


def _restored(arrays: Mapping[str, Array], precision: object) -> dict[str, Array]:
    """The float32 arrays that ``_rounded`` made smaller, or ValueError."""
    if precision not in _RANGES:
        raise ValueError(f"floats rounded to {precision!r}; known: {', '.join(_RANGES)}")
    values = {path: value for path, value in arrays.items() if not path.endswith(_SEPARATOR)}
    scales = {path[:-1]: value for path, value in arrays.items() if path.endswith(_SEPARATOR)}
    if scales and precision != "int8":
        raise ValueError(f"scales in a frame of {precision}")
    for path, value in values.items():
        if value.dtype.kind != "f":
            continue
        if not np.isfinite(cast(_Floats, value)).all():
            raise ValueError(f"'{path}' holds NaN or infinity")
        if value.dtype == np.float16 and precision == "float16":
            values[path] = value.astype(np.float32)
        elif value.dtype != np.float32:
            raise ValueError(f"'{path}' is {value.dtype} in a frame of {precision}")
    for path, given in scales.items():
        whole = values.get(path)
        if whole is None or whole.dtype != np.int8 or whole.ndim < 2 or not whole.size:
            raise ValueError(f"'{path}' has scales and is not rounded")
        rows = cast(npt.NDArray[np.int8], _rows(whole))
        if given.dtype != np.float32 or given.shape != rows.shape[:1]:
            raise ValueError(f"'{path}' has {len(rows)} rows and scales {given.shape}")
        scale = cast(_Floats, given)
        if not (scale >= 0).all() or not (scale <= _RANGES["int8"][1] / _STEPS).all():
            raise ValueError(f"'{path}' has scales that are no scales")
        if rows.min() < -_STEPS:
            raise ValueError(f"'{path}' holds a step beyond {_STEPS}")
        values[path] = (rows * scale[:, None]).reshape(whole.shape)
    return values


def _rows(values: Array) -> Array:
    """[rows, rest]; what shares a scale: an output of kernels [out, in, 3, 3], or the last axis."""
    rows = len(values) if values.ndim > 3 else values.size // values.shape[-1]
    return values.reshape(rows, values.size // rows)


def _check_names(tree: Tree, prefix: str) -> None:
    if prefix.count(_SEPARATOR) >= _DEEPEST:
        raise PayloadError(f"{prefix:.60}: names in a payload have at most {_DEEPEST} parts")
    for word, value in tree.items():
        if not isinstance(word, str) or not word or _SEPARATOR in word:
            raise PayloadError(
                f"{prefix}{word!r}: names in a payload are non-empty strings without '/'"
            )
        if value.__class__ not in _LEAVES and isinstance(value, Mapping):
            _check_names(value, f"{prefix}{word}{_SEPARATOR}")


def decode(frame: bytes, source: str = "payload", *, most: int | None = None) -> dict[str, Value]:
    """The tree in a frame; any bytes give a tree or PayloadError.

    Args:
        frame: of ``encode``.
        source: names it in errors.
        most: values that it may hold, where it comes from somebody else.
    """
    if len(frame) < _HEAD.size:
        raise PayloadError(f"{source}: {len(frame)} bytes are too few for a frame; truncated?")
    magic, version, reserved, length, checksum = _HEAD.unpack_from(frame)
    if magic != _MAGIC or reserved != 0:
        raise PayloadError(f"{source}: starts with {magic!r}, not with {_MAGIC!r}; not ours")
    if version not in (_TRAVELLING, _KEPT):
        raise PayloadError(
            f"{source}: frame version {version}, this fedapa reads {_TRAVELLING} and {_KEPT}"
        )
    body = memoryview(frame)[_HEAD.size :]
    if len(body) != length:
        raise PayloadError(f"{source}: {len(body)} bytes of body, {length} announced; truncated?")
    if _checksum(version, [body]) != checksum:
        raise PayloadError(f"{source}: the checksum does not fit the content; damaged")
    try:
        arrays, tree = _read(memoryview(bytearray(body)))  # one copy, which may be written to
        scalars = json.loads(tree)
        if not isinstance(scalars, dict):
            raise ValueError("its tree is none")
        if _ROUNDED in scalars:
            arrays = _restored(arrays, scalars.pop(_ROUNDED))
        if most is not None and len(arrays) + len(scalars) > most:
            raise ValueError(f"{len(arrays) + len(scalars)} values; expected {most} at most")
        return _unflatten(arrays, scalars)
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise PayloadError(f"{source}: not a payload of ours ({error})") from error


def _number(path: str, told: Mapping[str, object]) -> float:
    """NaN or an infinity, which are all that ``encode`` tells in this way."""
    if told.keys() != {"float"} or told["float"] not in ("nan", "inf", "-inf"):
        raise ValueError(f"'{path}' is neither a number nor a branch")
    return float(str(told["float"]))


def _unflatten(arrays: Mapping[str, Array], scalars: Mapping[str, Value]) -> dict[str, Value]:
    tree: dict[str, Value] = {}
    for path, value in sorted([*arrays.items(), *scalars.items()], key=lambda item: item[0]):
        if path.count(_SEPARATOR) >= _DEEPEST:
            raise ValueError(f"'{path:.60}' has more than {_DEEPEST} parts")
        *branches, last = path.split(_SEPARATOR)
        place = tree
        for branch in branches:
            below = place.setdefault(branch, {})
            if not isinstance(below, dict):
                raise ValueError(f"'{path}' is both a value and a branch")
            place = below
        if isinstance(value, dict):
            value = _number(path, value) if value else {}
        elif isinstance(value, list):
            raise ValueError(f"'{path}' is a list")
        if last in place:
            raise ValueError(f"'{path}' appears twice")
        place[last] = value
    return tree
