"""What HDF5 follows from address to address in a file, looked at as HDF5 is about to follow it.

HDF5 2.0 trusts the addresses in four structures of a file: a heap of texts (``GCOL``) whose objects
lead nowhere is read for ever, a tree of groups or chunks (``TREE``) that leads back to itself ends
the process or is read for ever, free places of a heap of names (``HEAP``) that do so take all
memory, and where the header of a group leads to a tree of chunks that HDF5 has in memory already,
or the other way round, HDF5 takes numbers for pointers. Nothing in h5py tells where these are, and
to search a large file for them takes long. So a file object shows every read of HDF5 to
``Structures``, and a read that begins like one of the four is looked at before HDF5 has it.

The rules hold for everything that HDF5 writes, and make what it follows come to an end: addresses
lead down by one level or to the right, never twice to one place, and structures do not share the
bytes of the file. Trees of version 2 and fractal heaps are not looked at.

Values may begin like a structure. They are refused only where their numbers also are addresses of
structures, the size of a heap, or a header from its first message to its last, which values are not
by chance.
"""

import os
import struct

from fedapa.errors import DataError

__all__ = ["FARTHEST", "Structures", "read_at"]

FARTHEST = 1 << 62
"""An address beyond every file, and none that the system would not take."""

_LARGEST_HEAP = 1 << 28
"""Bytes that HDF5 holds in memory to give a single text or a single name."""

_HEAP = b"GCOL\x01"
"""How a global heap begins, which has the texts of attributes: its signature and version."""
_HEAP_HEAD = struct.Struct("<5x3xQ")
_HEAP_OBJECT = struct.Struct("<H6xQ")
"""The size of a heap with its head; an object's number, 0 for what is free, and its bytes."""

_NAMES = b"HEAP\x00"
"""How a local heap begins, which has the names in a group."""
_NAMES_HEAD = struct.Struct("<8xQQQ")
_FREE_PLACE = struct.Struct("<QQ")
"""The size of its names, the first free place among them and where they are in the file; the next
free place and the bytes of this one."""
_LAST_PLACE = 1

_TREE = b"TREE"
_TREE_HEAD = struct.Struct("<4sBBHQQ")
"""Signature, type, level, children, left and right sibling."""
_ADDRESS = struct.Struct("<Q")
_GROUPS, _CHUNKS = 0, 1
"""The types of nodes: what their lowest level leads to."""
_GROUP_KEY = 8
_MOST_AXES = 32
"""Of a dataset; the key of a chunk has a number for each, and one more."""
_CHUNK_WIDTH = 32
"""Half of the children that a node of chunks has at most, where the file does not say it."""
_NOWHERE = (1 << 64) - 1

_HEADER_1, _HEADER_2, _FURTHER_2 = b"\x01\0", b"OHDR\x02", b"OCHK"
"""How the header of a group or dataset begins in both versions, and where the second goes on."""
_HEADER_READ = 512
"""Bytes that HDF5 reads of a header at first."""
_HEADER_1_HEAD = struct.Struct("<xBHIII")
"""Of version 1: nothing, messages, links to it, bytes of the first messages, nothing."""
_MOST_LINKS = 1 << 16
_LAST_KIND = 0x20
"""No type of a message is larger."""
_MESSAGE_1, _MESSAGE_2 = struct.Struct("<HHBBBB"), struct.Struct("<BHB")
"""Type, size and flags of a message in a header."""
_LAYOUT, _FURTHER, _SYMBOLS = 0x08, 0x10, 0x11
"""Types of messages: where values are, where the header goes on, where the tree of a group is."""
_IN_CHUNKS = 2


def read_at(descriptor: int, into: memoryview, start: int) -> int:
    """Fill ``into`` with the bytes of a file from an address on; how many there were.

    Not by the file's own position, which a forked process shares; but for Windows, which has
    neither.
    """
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [into], start)
    os.lseek(descriptor, start, os.SEEK_SET)
    held = os.read(descriptor, len(into))
    into[: len(held)] = held
    return len(held)


class Structures:
    """What was seen of the structures of one file; ``check`` refuses what has no end."""

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor = descriptor
        self._name = name
        # Structures do not overlap, so a file has no more objects and free places than sixteenths
        # of its bytes. One that has is made so that reading it takes for ever.
        self._objects_left = self._size() // _HEAP_OBJECT.size
        self._places_left = self._size() // _FREE_PLACE.size
        self._messages_left = self._size() // _MESSAGE_2.size
        self._chunk_width = self._width_of_chunks()
        self._headers: set[int] = set()
        self._heaps: set[int] = set()
        self._names: set[int] = set()
        self._nodes: set[tuple[int, int]] = set()
        self._parents: dict[int, int] = {}
        self._end_to_the_right: set[int] = set()

    def check(self, start: int, read: memoryview) -> None:
        """Look at what HDF5 is about to have: the bytes of the file from ``start``."""
        signature = bytes(read[:5])
        if signature == _HEAP:
            if start not in self._heaps:
                self._check_heap(start, read)
                self._heaps.add(start)
        elif signature == _NAMES:
            if start not in self._names:
                self._check_names(start, read)
                self._names.add(start)
        elif signature[:4] == _TREE and (start, len(read)) not in self._nodes:
            # The same bytes are another node where keys are of another length.
            self._check_node(start, read)
            self._nodes.add((start, len(read)))
        elif start not in self._headers and (
            signature == _HEADER_2 or (signature[:2] == _HEADER_1 and len(read) <= _HEADER_READ)
        ):
            self._check_header(start)
            self._headers.add(start)

    def _size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def _bytes(self, start: int, length: int) -> bytes:
        """Of the file; fewer where it ends, and none where no file can be."""
        if start > FARTHEST:
            return b""
        held = bytearray(length)
        return bytes(held[: read_at(self._descriptor, memoryview(held), start)])

    # ---- heaps of texts ------------------------------------------------------------------------

    def _check_heap(self, start: int, read: memoryview) -> None:
        """Objects lead to the end of a heap.

        What is free may have no bytes, which leads nowhere; the bytes of anything else are rounded
        up to eight, in 64 bits, so that a huge size may become none.
        """
        if len(read) < _HEAP_HEAD.size:
            return
        (size,) = _HEAP_HEAD.unpack_from(read)
        end = start + size
        if end > self._size():  # values that look like a heap, or one that HDF5 refuses
            return
        if size > _LARGEST_HEAP:
            raise self._endless_heap(start)
        at = start + _HEAP_HEAD.size
        known, known_from = bytes(read[: min(len(read), size)]), start
        objects = 0
        while at + _HEAP_OBJECT.size <= end:
            if at + _HEAP_OBJECT.size > known_from + len(known):
                known, known_from = self._bytes(at, min(end - at, 1 << 16)), at
                if len(known) < _HEAP_OBJECT.size:  # it was made shorter meanwhile
                    raise self._endless_heap(start)
            number, length = _HEAP_OBJECT.unpack_from(known, at - known_from)
            objects += 1
            if length > end - at or not (number or length) or objects > self._objects_left:
                raise self._endless_heap(start)
            at += _HEAP_OBJECT.size + -(-length // 8) * 8 if number else length
        self._objects_left -= objects

    def _endless_heap(self, start: int) -> DataError:
        return DataError(
            f"{self._name}: the heap of its texts at byte {start} has no end, or is far too "
            "large; damaged: make it again"
        )

    # ---- heaps of names ------------------------------------------------------------------------

    def _check_names(self, start: int, read: memoryview) -> None:
        """The free places among the names of a group come to an end."""
        if len(read) < _NAMES_HEAD.size:
            return
        size, place, names = _NAMES_HEAD.unpack_from(read)
        if names + size > self._size():  # HDF5 refuses it
            return
        places = 0
        while place != _LAST_PLACE:
            places += 1
            held = self._bytes(names + place, _FREE_PLACE.size) if place < size else b""
            too_many = places > min(size // _FREE_PLACE.size, self._places_left)
            if len(held) < _FREE_PLACE.size or too_many or size > _LARGEST_HEAP:
                raise DataError(
                    f"{self._name}: the free places in the names of a group at byte {start} have "
                    "no end; damaged: make it again"
                )
            place, _ = _FREE_PLACE.unpack(held)
        self._places_left -= places

    # ---- trees ---------------------------------------------------------------------------------

    def _check_node(self, start: int, read: memoryview) -> None:
        """Children are one level lower and have one parent; siblings are of one level and end."""
        if len(read) < _TREE_HEAD.size or start >= self._size():
            return
        _, kind, level, used, _, _ = _TREE_HEAD.unpack_from(read)
        keys = self._keys(kind, len(read))
        if not keys:  # values that look like a node, or what HDF5 refuses
            return
        # The lowest nodes of chunks lead to values, in which HDF5 follows nothing.
        for key in keys if level or kind == _GROUPS else ():
            self._check_children(start, read, kind=kind, level=level, used=used, key=key)
        self._check_siblings(start, kind=kind, level=level)

    def _check_children(
        self, start: int, read: memoryview, *, kind: int, level: int, used: int, key: int
    ) -> None:
        of_this_node: set[int] = set()
        for number in range(used):
            at = _TREE_HEAD.size + key + number * (_ADDRESS.size + key)
            if at + _ADDRESS.size > len(read):  # more than there is room for: HDF5 refuses it
                return
            (child,) = _ADDRESS.unpack_from(read, at)
            lowest = kind == _GROUPS and not level
            if not lowest:
                below = self._bytes(child, 6)
                if below[:4] != _TREE:  # HDF5 refuses it when it comes there
                    continue
                if len(below) < 6 or (below[4], below[5]) != (kind, level - 1):
                    raise self._endless_tree(start)
            # What had two parents would be read twice as often on each level.
            if child in of_this_node or self._parents.setdefault(child, start) != start:
                raise self._endless_tree(start)
            of_this_node.add(child)

    def _keys(self, kind: int, length: int) -> list[int]:
        """The lengths of keys by which a node has so many bytes.

        Keys of chunks have a number for each axis, and how many axes there are is not told in a
        node. How many children it has room for is told once for the file; where that is not known,
        several lengths may fit, and then nobody knows which numbers are addresses.
        """
        if kind == _GROUPS:
            possible, width = range(_GROUP_KEY, _GROUP_KEY + 1), None
        elif kind == _CHUNKS:
            possible, width = range(8 + 8 * 2, 8 + 8 * (_MOST_AXES + 2), 8), self._chunk_width
        else:
            return []
        keys = []
        for key in possible:
            children, rest = divmod(length - _TREE_HEAD.size - key, key + _ADDRESS.size)
            if not rest and (children == 2 * width if width else children % 2 == 0 < children):
                keys.append(key)
        return keys if len(keys) == 1 else []

    def _width_of_chunks(self) -> int | None:
        """Half of the children of a node of chunks; None where it is told elsewhere."""
        head = self._bytes(0, 28)
        version = head[8] if len(head) == 28 else 0
        if version == 1:
            return int.from_bytes(head[24:26], "little")
        if version > 1 and _ADDRESS.unpack_from(head, 20)[0] != _NOWHERE:
            return None
        return _CHUNK_WIDTH

    def _check_siblings(self, start: int, *, kind: int, level: int) -> None:
        """Walking to the right from here never comes back; each node is walked over once."""
        walked: set[int] = set()
        at, head = start, self._bytes(start, _TREE_HEAD.size)
        while len(head) == _TREE_HEAD.size and at not in self._end_to_the_right:
            if at in walked:
                raise self._endless_tree(start)
            walked.add(at)
            left, at = at, _TREE_HEAD.unpack(head)[5]
            head = self._bytes(at, _TREE_HEAD.size)
            if head[:4] != _TREE:  # the end, or HDF5 refuses it when it comes there
                break
            _, of_kind, of_level, _, of_left, _ = _TREE_HEAD.unpack(head.ljust(_TREE_HEAD.size))
            if (of_kind, of_level, of_left) != (kind, level, left):
                raise self._endless_tree(start)
        self._end_to_the_right |= walked

    def _endless_tree(self, start: int) -> DataError:
        return DataError(
            f"{self._name}: the tree of a group or of chunks at byte {start} leads back to itself, "
            "or to what is no part of it; damaged: make it again"
        )

    # ---- headers -------------------------------------------------------------------------------

    def _check_header(self, start: int) -> None:
        """The header of a group leads to a tree of names of its own, of a dataset to one of chunks.

        HDF5 looks at the type of a tree when it reads it, and not when it has it in memory.
        """
        for kind, data in self._messages(start) or ():
            expected, at = _GROUPS, 0
            if kind == _LAYOUT:
                expected, at = _CHUNKS, _place_of_chunks(data)
            elif kind != _SYMBOLS:
                continue
            if 0 <= at <= len(data) - _ADDRESS.size:
                (tree,) = _ADDRESS.unpack_from(data, at)
                head = self._bytes(tree, 5)
                if head[:4] != _TREE:  # none yet, or HDF5 refuses it when it comes there
                    continue
                # Many groups of one large tree would each be walked through.
                owner = self._parents.setdefault(tree, start)
                if head[4:] != bytes([expected]) or owner != start:
                    raise DataError(
                        f"{self._name}: the header of a group or dataset at byte {start} leads to "
                        f"a tree of another kind, or of another, at byte {tree}; damaged: make it "
                        "again"
                    )

    def _messages(self, start: int) -> list[tuple[int, bytes]] | None:
        """Messages of a header that lead to trees: their types and first bytes.

        Small values may well begin as headers of version 1 do, by 1 and 0, and go on as null
        messages do, by zeros. So all of such a header has to be as HDF5 writes it; None where it is
        not.
        """
        head = self._bytes(start, 40)
        if len(head) < 40:
            return None
        old = head[:5] != _HEADER_2
        if old:
            reserved, count, links, length, gap = _HEADER_1_HEAD.unpack_from(head)
            first, form, skipped, most = start + 16, _MESSAGE_1, 0, count
            if reserved or gap or not count or not 0 < links <= _MOST_LINKS:
                return None
        else:
            flags = head[5]
            width, at = 1 << (flags & 3), 6 + 16 * bool(flags & 0x20) + 4 * bool(flags & 0x10)
            length = int.from_bytes(head[at : at + width], "little")
            first, form, skipped = start + at + width, _MESSAGE_2, 2 * bool(flags & 4)
            most = self._messages_left
        leading: list[tuple[int, bytes]] = []
        seen, chunks, followed = 0, [(first, first + length)], {first}
        for at, end in chunks:
            known, known_from = b"", at
            while at + form.size + skipped <= end and seen < most:
                if at + form.size + skipped + 16 > known_from + len(known):
                    known, known_from = self._bytes(at, min(end - at, 4096)), at
                    if len(known) < form.size:  # it was made shorter meanwhile
                        break
                kind, size, _, *reserved_too = form.unpack_from(known, at - known_from)
                if old and (kind > _LAST_KIND or size % 8 or any(reserved_too)):
                    return None
                at += form.size + skipped
                seen += 1
                data = known[at - known_from : at - known_from + min(size, 16)]
                if kind in (_LAYOUT, _SYMBOLS):
                    leading.append((kind, data))
                elif kind == _FURTHER and len(data) == 16:
                    further, length = struct.unpack("<QQ", data)
                    if further not in followed:
                        followed.add(further)
                        # In version 2 with a signature in front and a checksum behind.
                        edge = 4 if self._bytes(further, 4) == _FURTHER_2 else 0
                        chunks.append((further + edge, further + length - edge))
                at += size
            if old and at != end:
                return None
        if old and seen != count:
            return None
        self._messages_left -= seen
        if self._messages_left <= 0:
            raise DataError(
                f"{self._name}: the header of a group or dataset at byte {start} shares bytes with "
                "others; damaged: make it again"
            )
        return leading


def _place_of_chunks(layout: bytes) -> int:
    """Where in this message the address of a tree of chunks is; negative where there is none."""
    if layout[:1] in (b"\x01", b"\x02"):
        return 8 if layout[2:3] == bytes([_IN_CHUNKS]) else -1
    return 3 if layout[:2] == bytes([3, _IN_CHUNKS]) else -1
