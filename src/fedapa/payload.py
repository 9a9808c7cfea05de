"""Payloads, states and checkpoints: nested named arrays and scalars, and their one codec.

A tree is a mapping from words to numpy arrays, numbers, strings, ``None`` or further trees.
``encode`` turns it into a frame, ``decode`` turns a frame back or says why it can't::

    offset  bytes  what
    0       4      "FAPA"
    4       2      version of the frame, little endian
    6       2      reserved, zero
    8       8      length of the body, little endian
    16      16     BLAKE2b-128 of the body
    32      …      the body: a safetensors file

The arrays are safetensors tensors named by their path (``model/encoder.head.bias``); scalars and
empty trees stand as sorted JSON under the single metadata key ``tree`` (safetensors writes
metadata keys in random order, so a second key would make equal trees unequal bytes).
Equal trees have equal bytes. Nothing here can run code.
"""

import hashlib
import json
import math
import struct
from collections.abc import Iterator, Mapping
from typing import TypeAlias, Union

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors import numpy as safetensors_numpy

from fedapa.errors import PayloadError

__all__ = ["Array", "Tree", "Value", "array_bytes", "decode", "digest", "encode", "leaves"]

Array: TypeAlias = npt.NDArray[np.generic]
Value: TypeAlias = Union[Array, int, float, bool, str, "Tree", None]
Tree: TypeAlias = Mapping[str, Value]

_MAGIC = b"FAPA"
_VERSION = 1
_HEAD = struct.Struct("<4sHHQ16s")
_SEPARATOR = "/"
# What safetensors and we both know; anything else (object, datetime, text) is refused by name.
_DTYPES = frozenset(
    [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
    ]
)


def leaves(tree: Tree, prefix: str = "") -> Iterator[tuple[str, Value]]:
    """All leaves as (path, value), in sorted order; an empty tree is a leaf of its own."""
    for word in sorted(tree):
        value, path = tree[word], f"{prefix}{word}"
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{path}{_SEPARATOR}")
        else:
            yield path, value


def array_bytes(tree: Tree) -> int:
    """Bytes of the arrays alone, before framing: what the paper's formula counts."""
    return sum(value.nbytes for _, value in leaves(tree) if isinstance(value, np.ndarray))


def digest(frame: bytes) -> str:
    """A short name for the content of a frame, for equality and for file names."""
    return hashlib.blake2b(frame, digest_size=16).hexdigest()


def encode(tree: Tree) -> bytes:
    """The frame of a tree. Raises PayloadError for anything that is not an array or a scalar."""
    arrays: dict[str, Array] = {}
    scalars: dict[str, object] = {}
    _check_names(tree, "")
    for path, value in leaves(tree):
        if isinstance(value, np.ndarray):
            if value.dtype.name not in _DTYPES:
                raise PayloadError(
                    f"{path}: dtype {value.dtype} cannot travel; "
                    f"known: {', '.join(sorted(_DTYPES))}"
                )
            little = value.astype(value.dtype.newbyteorder("<"), copy=False)
            arrays[path] = np.ascontiguousarray(little).reshape(value.shape)
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
    metadata = {"tree": json.dumps(scalars, sort_keys=True, separators=(",", ":"))}
    body = safetensors_numpy.save(arrays, metadata=metadata)
    checksum = hashlib.blake2b(body, digest_size=16).digest()
    return _HEAD.pack(_MAGIC, _VERSION, 0, len(body), checksum) + body


def _check_names(tree: Tree, prefix: str) -> None:
    for word, value in tree.items():
        if not isinstance(word, str) or not word or _SEPARATOR in word:
            raise PayloadError(
                f"{prefix}{word!r}: names in a payload are non-empty strings without '/'"
            )
        if isinstance(value, Mapping):
            _check_names(value, f"{prefix}{word}{_SEPARATOR}")


def decode(frame: bytes, source: str = "payload") -> dict[str, Value]:
    """The tree in a frame. ``source`` names it in errors; any bytes give a tree or PayloadError."""
    if len(frame) < _HEAD.size:
        raise PayloadError(f"{source}: {len(frame)} bytes are too few for a frame; truncated?")
    magic, version, reserved, length, checksum = _HEAD.unpack_from(frame)
    if magic != _MAGIC or reserved != 0:
        raise PayloadError(f"{source}: starts with {magic!r}, not with {_MAGIC!r}; not ours")
    if version != _VERSION:
        raise PayloadError(f"{source}: frame version {version}, this fedapa reads {_VERSION}")
    body = bytes(memoryview(frame)[_HEAD.size :])
    if len(body) != length:
        raise PayloadError(f"{source}: {len(body)} bytes of body, {length} announced; truncated?")
    if hashlib.blake2b(body, digest_size=16).digest() != checksum:
        raise PayloadError(f"{source}: the checksum does not fit the content; damaged")
    try:
        arrays = safetensors_numpy.load(body)
        scalars = json.loads(_metadata(body)["tree"])
        return _unflatten(arrays, scalars)
    except (SafetensorError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise PayloadError(f"{source}: not a payload of ours ({error})") from error


def _metadata(body: bytes) -> dict[str, str]:
    # safetensors.numpy.load does not hand out the metadata; its header is length + JSON.
    (length,) = struct.unpack_from("<Q", body)
    header: dict[str, dict[str, str]] = json.loads(body[8 : 8 + length])
    return header["__metadata__"]


def _unflatten(arrays: Mapping[str, Array], scalars: Mapping[str, Value]) -> dict[str, Value]:
    tree: dict[str, Value] = {}
    for path, value in sorted([*arrays.items(), *scalars.items()], key=lambda item: item[0]):
        *branches, last = path.split(_SEPARATOR)
        place = tree
        for branch in branches:
            below = place.setdefault(branch, {})
            if not isinstance(below, dict):
                raise ValueError(f"'{path}' is both a value and a branch")
            place = below
        if isinstance(value, dict):
            value = float(str(value["float"])) if value else {}
        if last in place:
            raise ValueError(f"'{path}' appears twice")
        place[last] = value
    return tree
