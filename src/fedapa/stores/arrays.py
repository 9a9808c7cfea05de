"""Derived arrays in the cache: written window by window, checked when they are used again.

Beside each .npy file lies a JSON file of the same name with a digest of its values and what its
maker told about it. Whatever is damaged, missing or holds other values is made again. Values are
written through a file, never through a memory map: a full disk is then an error with a name, not
the end of the process.
"""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from fedapa.files import aside, write_text

__all__ = ["ArrayFile", "KeptArray", "array_digest", "kept_array"]

_VERSION = 1
_ALWAYS = 1 << 26
"""Files of at most so many bytes are read and checked each time, larger ones only where their size
or time of change is another: a paper's windows take minutes to read."""
_BLOCK = 1 << 22


@dataclass(frozen=True)
class KeptArray:
    """An array in the cache."""

    path: Path
    digest: str
    """Of its shape and values."""
    about: dict[str, Any]
    """What its maker told about it."""


class ArrayFile:
    """A float32 .npy file that grows row by row; what was written is hashed as it passes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._shape: tuple[int, ...] = ()
        self._rows = 0
        self._hash = _hash()

    def append(self, row: npt.NDArray[np.float32]) -> None:
        """One more row; all have one shape."""
        if not self._rows:
            self._shape = row.shape
            self._write_header()
        assert row.shape == self._shape and row.dtype == np.float32
        content = np.ascontiguousarray(row).tobytes()
        self._file.write(content)
        self._hash.update(content)
        self._rows += 1

    def close(self) -> str:
        """Put the number of rows into the header; returns the digest."""
        self._file.seek(0)
        self._write_header()
        self._file.flush()
        return _named(self._hash, (self._rows, *self._shape))

    def _write_header(self) -> None:
        # numpy leaves room in the header for the first axis to grow: its length stays.
        np.lib.format.write_array_header_1_0(
            self._file,
            {"descr": "<f4", "fortran_order": False, "shape": (self._rows, *self._shape)},
        )


def kept_array(path: Path, make: Callable[[ArrayFile], dict[str, Any]]) -> KeptArray:
    """The array at ``path`` if it is whole, else made anew.

    Args:
        path: an .npy file in the cache.
        make: appends the rows and returns what else is known, as JSON can hold it.
    """
    kept = _whole(path)
    if kept is not None:
        return kept
    for obstacle in (path, _note(path)):
        if obstacle.is_dir() and not obstacle.is_symlink():
            shutil.rmtree(obstacle)
    with aside(path) as partial, partial.open("wb") as file:
        out = ArrayFile(file)
        about = make(out)
        digest = out.close()
    _note_down(path, digest, about)
    return KeptArray(path, digest, about)


def _whole(path: Path) -> KeptArray | None:
    """What is kept at ``path``; None where it is missing, damaged, or not what was written."""
    try:
        note = json.loads(_note(path).read_text())
        if note["version"] != _VERSION or note["check"] != _check(note["about"], note["digest"]):
            return None
        # Not np.load: it takes archives, too, and leaves damaged ones open.
        values = np.lib.format.open_memmap(path, mode="r")
        status = path.stat()
        same_file = note["size"] == status.st_size and note["changed"] == status.st_mtime_ns
        if values.dtype != np.float32 or not values.flags.c_contiguous:
            return None
        if not same_file or status.st_size <= _ALWAYS:
            if array_digest(values) != note["digest"]:
                return None
            if not same_file:
                _note_down(path, note["digest"], note["about"])
        return KeptArray(path, note["digest"], note["about"])
    except (OSError, ValueError, KeyError, TypeError, EOFError, RecursionError):
        return None


def _note(path: Path) -> Path:
    return path.with_suffix(".json")


def _note_down(path: Path, digest: str, about: dict[str, Any]) -> None:
    status = path.stat()
    note = {
        "version": _VERSION,
        "digest": digest,
        "check": _check(about, digest),
        "size": status.st_size,
        "changed": status.st_mtime_ns,
        "about": about,
    }
    write_text(_note(path), json.dumps(note))


def _check(about: object, digest: object) -> str:
    """Labels and origins decide figures as values do."""
    text = json.dumps([about, digest], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def array_digest(values: npt.NDArray[np.float32]) -> str:
    """A name for the shape and values of an array."""
    hashed = _hash()
    rows = max(1, _BLOCK // max(1, values[:1].nbytes))
    for first in range(0, len(values), rows):
        hashed.update(np.ascontiguousarray(values[first : first + rows]).data)
    return _named(hashed, values.shape)


def _hash() -> "hashlib.blake2b":
    return hashlib.blake2b(digest_size=16)


def _named(hashed: "hashlib.blake2b", shape: tuple[int, ...]) -> str:
    whole = hashed.copy()
    whole.update(repr(tuple(int(side) for side in shape)).encode())
    return whole.hexdigest()
