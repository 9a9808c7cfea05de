"""HDF5 files that do no harm: not when the disk is full, and not when somebody else made them.

When a write fails, HDF5 cannot close its file any more and ends the process with a segmentation
fault. So it writes through ``_Disk``, which never fails: from the first error on it keeps what is
written in memory, and the error is raised by us, at the next call.

A file may hold links and datasets that lead to other files, which HDF5 would open, read and even
write, and shapes that are not backed by values. Both are refused. So are attributes of other types
than ours: of one that is shorter than its type says, HDF5 reads what lies behind it in memory and
takes that for pointers. And so are structures that lead back to themselves, which HDF5 2.0 follows
for ever (structures.py): it reads through ``_Reading``, which looks at them when HDF5 is about to.
``_Disk`` does not: what HDF5 wrote a moment ago may be half on the disk. What is in a file before
is read with ``_Reading`` first.
"""

import contextlib
import io
import math
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from fedapa.errors import DataError, one_line
from fedapa.files import aside
from fedapa.stores.structures import FARTHEST, Structures, read_at

__all__ = [
    "attribute",
    "check_dataset",
    "check_links",
    "child",
    "is_hdf5",
    "is_numbers",
    "opened",
    "read_attributes",
    "replaced",
    "type_of",
    "what_it_is",
]

_SQUEEZED = 1032
"""How many times smaller than its values a compressed chunk can be: what deflate reaches."""
_LARGEST_CHUNK = 1 << 28
"""Bytes that HDF5 holds in memory to give a single row."""
_LARGEST_ATTRIBUTE = 1 << 24
"""Bytes of an array of numbers that is noted."""
_PLAIN = (h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.STRING, h5py.h5t.ENUM)
"""What attributes of ours are; h5py's truth values are an enumeration."""
_NUMBERS = (h5py.h5t.INTEGER, h5py.h5t.FLOAT)
"""What values in datasets are."""
_TYPES = {
    h5py.h5t.STRING: "text",
    h5py.h5t.ENUM: "enumeration, e.g. truth values",
    h5py.h5t.COMPOUND: "compound, e.g. complex numbers",
    h5py.h5t.VLEN: "lists",
}
"""Of the others, what they may be by mistake."""
_LENGTHS = 8
"""Bytes of addresses and sizes. A file may say that it has others, and everybody has these."""
_SIGNATURE = b"\x89HDF\r\n\x1a\n"


def is_hdf5(path: Path) -> bool:
    """Whether there is a file with the first bytes of HDF5, as every store has them."""
    try:
        with path.open("rb") as file:
            return file.read(8) == _SIGNATURE
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
        filled, descriptor = 0, self._file.fileno()
        if self._at <= FARTHEST:
            while filled < len(wanted) and (
                read := read_at(descriptor, wanted[filled:], self._at + filled)
            ):
                filled += read
        if filled < len(wanted):
            wanted[filled:] = bytes(len(wanted) - filled)


class _Reading(_Raw):
    """A file to read; a structure that HDF5 would follow for ever is refused as it begins to."""

    def __init__(self, file: io.FileIO) -> None:
        super().__init__(file)
        self._structures = Structures(file.fileno(), str(file.name))

    def _fill(self, wanted: memoryview) -> None:
        super()._fill(wanted)
        self._structures.check(self._at, wanted)


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
    with io.FileIO(os.fspath(path)) as file:
        # HDF5 also looks for it further on, behind a "user block"; all addresses count from there.
        if not is_hdf5(path):
            raise OSError(
                "it does not begin as HDF5; if h5jam put something in front, h5unjam takes it away"
            )
        with h5py.File(_Reading(file), "r") as opened:
            for length in opened.id.get_create_plist().get_sizes():
                if length != _LENGTHS:
                    raise DataError(
                        f"{path}: HDF5 whose sizes have {length} bytes; expected {_LENGTHS}, as "
                        "fedapa and h5py write them"
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
            target = str(getattr(kind, "filename", None) or getattr(kind, "path", "?"))
            raise DataError(
                f"{place}: '{one_line(name):.80}' is a link to {one_line(target):.80}; a "
                "store holds its recordings itself: copy what it should hold into it"
            )


def child(group: h5py.Group, name: str, kind: type, place: str) -> Any:
    """The group or dataset of that name, if it is one and is stored in this very file."""
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        check_links(group, place)
        raise DataError(f"{place}: '{name}' is not there; damaged or incomplete")
    entry = group[name]
    if not isinstance(entry, kind):
        raise DataError(
            f"{place}: '{name}' is {what_it_is(type(entry))} and no {kind.__name__.lower()}; not "
            "made by fedapa"
        )
    return entry


def what_it_is(kind: object) -> str:
    """An entry of a group in words, by its class."""
    words = {h5py.Group: "a group", h5py.Dataset: "a dataset", h5py.Datatype: "a named type"}
    return next((word for known, word in words.items() if kind is known), "something unknown")


def _complaint(entry: h5py.h5a.AttrID) -> str | None:
    """Why an attribute is not to be read; None where it may be."""
    kind, shape = entry.get_type(), entry.shape  # None: it holds nothing
    if shape is None or kind.get_class() not in _PLAIN:
        return "is neither a number nor a text"
    count, size = math.prod(shape), kind.get_size()
    if entry.get_storage_size() < count * size:
        return "is neither a number nor a text, or is cut off"
    if kind.get_class() == h5py.h5t.STRING and kind.is_variable_str():
        # All of them may be one text of the heap, which fills the memory once for each.
        return f"is a list of {count} texts; expected one" if shape else None
    if count * size > _LARGEST_ATTRIBUTE:
        return f"has {count * size} bytes; expected at most {_LARGEST_ATTRIBUTE}"
    return None


def read_attributes(attributes: h5py.AttributeManager) -> None:
    """Read what can be read safely; what a heap without an end holds is refused."""
    for name in attributes:
        if _complaint(attributes.get_id(name)) is None:
            _ = attributes[name]


def attribute(attributes: h5py.AttributeManager, name: str, place: str, default: Any = None) -> Any:
    """An attribute that is a number, a text or an array of numbers, and whole; else DataError."""
    if name not in attributes:
        return default
    if (complaint := _complaint(attributes.get_id(name))) is not None:
        raise DataError(
            f"{place}: its attribute '{one_line(name):.80}' {complaint}; damaged, or not "
            "made by fedapa"
        )
    return attributes[name]


def is_numbers(dataset: h5py.Dataset) -> bool:
    """Whether its values are integers or floats.

    Ask this before the dataset's ``dtype``: types may be nested thousands deep, of which h5py makes
    a copy for each level.
    """
    return dataset.id.get_type().get_class() in _NUMBERS


def type_of(dataset: h5py.Dataset) -> str:
    """What a dataset's values are, in words."""
    if is_numbers(dataset):
        return str(dataset.dtype)
    return _TYPES.get(dataset.id.get_type().get_class(), "other than numbers")


def _is_used(dataset: h5py.Dataset, number: int) -> bool:
    """Whether a filter was there when the first chunk was written; if not, it was left out."""
    stored = dataset.id.get_num_chunks()
    return bool(stored) and not dataset.id.get_chunk_info(0).filter_mask >> number & 1


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
    made = dataset.id.get_create_plist()
    filters = [made.get_filter(number)[0] for number in range(made.get_nfilters())]
    for number, code in enumerate(filters):
        if not h5py.h5z.filter_avail(code) and _is_used(dataset, number):
            raise DataError(
                f"{place}: is compressed with filter {code}, which this HDF5 does not have; "
                "decompress it where it was made, e.g. with h5repack -f NONE"
            )
    filtered = bool(filters)
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
