"""HDF5 files that do no harm: not when the disk is full, and not when somebody else made them.

When a write fails, HDF5 cannot close its file any more and ends the process with a segmentation
fault. So it writes through ``_Disk``, which never fails: from the first error on it keeps what is
written in memory, and the error is raised by us, at the next call.

A file may hold links and datasets that lead to other files, which HDF5 would open, read and even
write, and shapes that are not backed by values. Both are refused. So are attributes of other types
than ours: of one that is shorter than its type says, HDF5 reads what lies behind it in memory and
takes that for pointers. And so are texts in a heap that has no end: HDF5 2.0 looks for it for ever.
Nothing in h5py tells where the heaps are, and to search a large file for them takes long. So HDF5
reads through ``_Reading``, which looks at a heap when HDF5 is about to. ``_Disk`` does not: what
HDF5 wrote a moment ago may be half on the disk. What is in a file before is read with ``_Reading``
first.
"""

import contextlib
import io
import math
import mmap
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from fedapa.errors import DataError
from fedapa.files import aside

__all__ = [
    "attribute",
    "check_dataset",
    "check_links",
    "child",
    "is_hdf5",
    "opened",
    "read_attributes",
    "replaced",
]

_SQUEEZED = 1032
"""How many times smaller than its values a compressed chunk can be: what deflate reaches."""
_LARGEST_CHUNK = 1 << 28
"""Bytes that HDF5 holds in memory to give a single row."""
_LARGEST_HEAP = 1 << 28
"""Bytes that HDF5 holds in memory to give a single text."""


_PLAIN = (h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.STRING, h5py.h5t.ENUM)
"""What attributes of ours are; h5py's truth values are an enumeration."""


_HEAP = b"GCOL\x01"
"""How a global heap begins, which has the texts of attributes: its signature and version."""
_HEAP_HEAD = struct.Struct("<5x3xQ")
_HEAP_OBJECT = struct.Struct("<H6xQ")
"""The size of a heap with its head; an object's number, 0 for what is free, and its bytes."""
_LENGTHS = 8
"""Bytes of such sizes. A file may say that it has others, and everybody has these."""


def is_hdf5(path: Path) -> bool:
    """Whether there is a file with the first bytes of HDF5, as every store has them."""
    try:
        with path.open("rb") as file:
            return file.read(8) == b"\x89HDF\r\n\x1a\n"
    except OSError:
        return False


class _Raw(io.RawIOBase):
    """A file as HDF5 wants it: beyond its end there are zeros."""

    def __init__(self, file: io.FileIO) -> None:
        super().__init__()
        self._file = file
        self._at = 0

    def _on_disk(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def _size(self) -> int:
        return self._on_disk()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_CUR:
            offset += self._at
        elif whence == os.SEEK_END:
            offset += self._size()
        self._at = offset
        return offset

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer``, with zeros beyond the end."""
        wanted = memoryview(buffer).cast("B")
        self._fill(wanted)
        self._at += len(wanted)
        return len(wanted)

    def _fill(self, wanted: memoryview) -> None:
        filled = 0
        if self._at < self._on_disk():  # an address may be larger than any that can be sought
            self._file.seek(self._at)
            while filled < len(wanted) and (read := self._file.readinto(wanted[filled:])):
                filled += read
        wanted[filled:] = bytes(len(wanted) - filled)


class _Reading(_Raw):
    """A file to read; a heap that HDF5 would read for ever is refused as it begins to."""

    def __init__(self, file: io.FileIO) -> None:
        super().__init__(file)
        # Heaps do not overlap, so a file has no more objects than sixteenths of its bytes. One that
        # has is made so that reading it takes for ever.
        self._objects_left = self._on_disk() // _HEAP_OBJECT.size
        self._heaps_seen: set[int] = set()

    def _fill(self, wanted: memoryview) -> None:
        super()._fill(wanted)
        if wanted[: len(_HEAP)] == _HEAP:
            self._check_heap(self._at)

    def _check_heap(self, start: int) -> None:
        if start in self._heaps_seen or start >= self._on_disk():
            return
        self._heaps_seen.add(start)
        with mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            objects = _objects(content, start, self._objects_left)
        if objects is None:
            raise DataError(
                f"{self._file.name}: the heap of its texts at byte {start} has no end, or is "
                "far too large; damaged: make it again"
            )
        self._objects_left -= objects


def _objects(content: mmap.mmap, at: int, most: int) -> int | None:
    """How many objects lead to the end of a heap; None where they do not, or too much is there.

    What is free may have no bytes, which leads nowhere; the bytes of anything else are rounded up
    to eight, in 64 bits, so that a huge size may become none.
    """
    if at + _HEAP_HEAD.size > len(content):
        return 0
    (size,) = _HEAP_HEAD.unpack_from(content, at)
    end = at + size
    if end > len(content):  # values that look like a heap, or one that HDF5 refuses
        return 0
    if size > _LARGEST_HEAP:
        return None
    at += _HEAP_HEAD.size
    objects = 0
    while at + _HEAP_OBJECT.size <= end:
        number, length = _HEAP_OBJECT.unpack_from(content, at)
        objects += 1
        if length > end - at or not (number or length) or objects > most:
            return None
        at += _HEAP_OBJECT.size + -(-length // 8) * 8 if number else length
    return objects


class _Disk(_Raw):
    """A file to write that remembers the first error instead of raising it."""

    def __init__(self, file: io.FileIO) -> None:
        super().__init__(file)
        self.failure: OSError | None = None
        self._unwritten: list[tuple[int, bytes]] = []

    def _size(self) -> int:
        ends = [at + len(written) for at, written in self._unwritten]
        return max([self._on_disk(), *ends])

    def _fill(self, wanted: memoryview) -> None:
        super()._fill(wanted)
        for at, written in self._unwritten:
            first, last = max(at, self._at), min(at + len(written), self._at + len(wanted))
            if first < last:
                wanted[first - self._at : last - self._at] = written[first - at : last - at]

    def write(self, buffer: Any) -> int:
        """Write all of ``buffer``, or keep it if that cannot be."""
        given = memoryview(buffer).cast("B")
        if self.failure is None:
            try:
                self._file.seek(self._at)
                done = 0
                while done < len(given):
                    done += self._file.write(given[done:])
            except OSError as error:
                self.failure = error
        if self.failure is not None:
            self._unwritten.append((self._at, bytes(given)))
        self._at += len(given)
        return len(given)

    def truncate(self, size: int | None = None) -> int:
        end = self._at if size is None else size
        if self.failure is None:
            try:
                os.ftruncate(self._file.fileno(), end)
            except OSError as error:
                self.failure = error
        return end

    def check(self) -> None:
        """Raise the first error, if there was one."""
        if self.failure is not None:
            raise OSError(self.failure.errno, self.failure.strerror)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[h5py.File]:
    """An HDF5 file to read, closed with all that it holds when the block ends."""
    with io.FileIO(os.fspath(path)) as file, h5py.File(_Reading(file), "r") as opened:
        _, lengths = opened.id.get_create_plist().get_sizes()
        if lengths != _LENGTHS:
            raise DataError(
                f"{path}: HDF5 whose sizes have {lengths} bytes; expected {_LENGTHS}, as fedapa "
                "and h5py write them"
            )
        yield opened


@contextlib.contextmanager
def replaced(
    path: Path, raise_interrupt: Callable[[], None]
) -> Iterator[tuple[h5py.File, Callable[[], None]]]:
    """An HDF5 file that takes the place of ``path`` when the block ends well.

    It begins as a copy of what is there, or empty. Also what to ask, often, whether to go on: it
    raises when a write has failed, whose bytes are in memory, or by ``raise_interrupt``. What is
    read here of an old file is to be read before, with ``opened``, which looks at its heaps.
    """
    with aside(path) as partial:
        if copied := path.exists():
            shutil.copyfile(path, partial)
        with io.FileIO(os.fspath(partial), "rb+") as raw:
            disk = _Disk(raw)

            def check() -> None:
                raise_interrupt()
                disk.check()

            with h5py.File(disk, "r+" if copied else "w", track_order=False) as file:
                yield file, check
            check()


def check_links(group: h5py.Group, place: str) -> None:
    """Refuse a group with an entry that is elsewhere: a soft or an external link."""
    for name in group:
        kind = group.get(name, getlink=True)
        if not isinstance(kind, h5py.HardLink):
            target = getattr(kind, "filename", None) or getattr(kind, "path", "?")
            raise DataError(
                f"{place}: '{name}' is a link to {target}; a store holds its recordings itself: "
                "copy what it should hold into it"
            )


def child(group: h5py.Group, name: str, kind: type, place: str) -> Any:
    """The group or dataset of that name, if it is one and is stored in this very file."""
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        check_links(group, place)
        raise DataError(f"{place}: '{name}' is not there; damaged or incomplete")
    entry = group[name]
    if not isinstance(entry, kind):
        raise DataError(f"{place}: '{name}' is no {kind.__name__.lower()}; not made by fedapa")
    return entry


def _is_whole(entry: h5py.h5a.AttrID) -> bool:
    kind, shape = entry.get_type(), entry.shape  # None: it holds nothing
    plain = shape is not None and kind.get_class() in _PLAIN
    return plain and entry.get_storage_size() >= math.prod(shape) * kind.get_size()


def read_attributes(attributes: h5py.AttributeManager) -> None:
    """Read what can be read safely; what a heap without an end holds is refused."""
    for name in attributes:
        if _is_whole(attributes.get_id(name)):
            _ = attributes[name]


def attribute(attributes: h5py.AttributeManager, name: str, place: str, default: Any = None) -> Any:
    """An attribute that is a number, a text or an array of them, and whole; else DataError."""
    if name not in attributes:
        return default
    if not _is_whole(attributes.get_id(name)):
        raise DataError(
            f"{place}: its attribute '{name}' is neither a number nor a text, or is cut off; "
            "damaged, or not made by fedapa"
        )
    return attributes[name]


def check_dataset(dataset: h5py.Dataset, place: str) -> None:
    """Refuse values that are in other files, and shapes without values."""
    if dataset.is_virtual or dataset.external:
        raise DataError(
            f"{place}: its values are in other files (virtual dataset or external storage); a "
            "store holds its values itself: copy them into it, e.g. with h5repack"
        )
    chunk = int(np.prod(np.array(dataset.chunks or (0,), object))) * dataset.dtype.itemsize
    if chunk > _LARGEST_CHUNK:
        raise DataError(
            f"{place}: is stored in chunks of {chunk} bytes; expected at most {_LARGEST_CHUNK}: "
            "store it in smaller ones, e.g. with h5repack"
        )
    filtered = dataset.id.get_create_plist().get_nfilters() > 0
    stored = int(dataset.id.get_storage_size())
    declared = int(np.prod(np.array(dataset.shape, object))) * dataset.dtype.itemsize
    # A compressed dataset may be far smaller than its values, but none of its chunks is missing.
    whole = not filtered or dataset.id.get_num_chunks() == math.prod(
        -(-side // part) for side, part in zip(dataset.shape, dataset.chunks, strict=True)
    )
    if declared > stored * (_SQUEEZED if filtered else 1) or not whole:
        raise DataError(
            f"{place}: declares {' × '.join(map(str, dataset.shape))} values, {declared} bytes, "
            f"but holds {stored} bytes; it was cut off, or never filled: make it again"
        )
