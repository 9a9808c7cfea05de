"""The pcap and pcapng containers: where the packets lie in a file or stream, and when they came.

Both byte orders, micro- and nanosecond stamps, several sections and interfaces. What is inside
the packets is for others to say.
"""

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fedapa.csi.records import Bytes, run_length
from fedapa.errors import CaptureError

__all__ = [
    "LINK_HEADER",
    "Damage",
    "Packets",
    "PcapWalker",
    "is_pcap",
    "pcap_header",
    "pcap_record",
]

# tcpdump's own ceiling for a packet; more than that is no packet but a damaged length.
_LARGEST = 262_144

_PCAP = {
    b"\xd4\xc3\xb2\xa1": ("<", 1e-6),
    b"\xa1\xb2\xc3\xd4": (">", 1e-6),
    b"\x4d\x3c\xb2\xa1": ("<", 1e-9),
    b"\xa1\xb2\x3c\x4d": (">", 1e-9),
}
_SECTION = b"\x0a\x0d\x0d\x0a"
_ORDER = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}

_FILE_HEADER = re.compile(
    b"|".join([*map(re.escape, _PCAP), *(_SECTION + b".{4}" + re.escape(o) for o in _ORDER)]),
    re.DOTALL,
)

LINK_HEADER = {0: 4, 1: 14, 12: 0, 101: 0, 113: 16, 228: 0, 276: 20}
"""Bytes before the IP header, by link type: loopback, Ethernet, raw IP, Linux cooked 1 and 2."""

_RUN = 8  # so many equal records in a row make it worth looking for more of them at once


@dataclass(frozen=True)
class Damage:
    """A place where no record can begin."""

    at: int
    found: str
    expected: str


@dataclass
class Packets:
    """Packets found in a buffer, in order."""

    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    times: npt.NDArray[np.float64]
    links: npt.NDArray[np.int64]
    used: int
    """Bytes of the buffer that are done with."""
    untimed: int = 0
    """Packets that carry no time stamp (pcapng's simple packets)."""
    damage: Damage | None = None
    """Why the walk stopped, if not at the end."""

    @classmethod
    def joined(cls, parts: "Sequence[tuple[int, Packets]]") -> "Packets":
        """Packets of parts of one buffer; each part with where it begins."""
        return cls(
            np.concatenate([part.starts + at for at, part in parts]),
            np.concatenate([part.lengths for _, part in parts]),
            np.concatenate([part.times for _, part in parts]),
            np.concatenate([part.links for _, part in parts]),
            used=0,
            untimed=sum(part.untimed for _, part in parts),
        )


@dataclass
class _Interface:
    link: int
    scale: float
    origin: float


@dataclass
class _Found:
    starts: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    links: list[int] = field(default_factory=list)
    untimed: int = 0

    def packets(self, used: int, damage: Damage | None) -> Packets:
        return Packets(
            np.array(self.starts, np.int64),
            np.array(self.lengths, np.int64),
            np.array(self.times, np.float64),
            np.array(self.links, np.int64),
            used,
            self.untimed,
            damage,
        )


def is_pcap(head: bytes) -> bool:
    """Whether a file that begins like this is a pcap or pcapng."""
    return head[:4] in _PCAP or (head[:4] == _SECTION and head[8:12] in _ORDER)


class PcapWalker:
    """Walks over the records of one file or stream; remembers byte order, clock and interfaces."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._order = ""
        self._scale = 1e-6
        self._link = -1
        self._blocks = False
        self._interfaces: list[_Interface] = []

    def find_header(self, buffer: memoryview) -> int | None:
        """Where the file header begins; 0 once it was read, None where there is none."""
        if self._order:
            return 0
        match = _FILE_HEADER.search(buffer)
        return None if match is None else match.start()

    def walk(self, buffer: memoryview, *, at: int) -> Packets:
        """The complete packets in ``buffer``, which begins at ``at`` in the stream."""
        start = 0
        if not self._order:
            if len(buffer) < 24:
                return _Found().packets(0, None)
            head = bytes(buffer[:12])
            if head[:4] in _PCAP:
                start = self._open_pcap(buffer)
            elif is_pcap(head):
                self._blocks, self._order = True, _ORDER[head[8:12]]
            else:
                raise CaptureError(
                    f"{self._name}@{at}: begins with {head[:4].hex()}; expected a pcap "
                    "(d4c3b2a1, a1b2c3d4, 4d3cb2a1, a1b23c4d) or pcapng (0a0d0d0a) header"
                )
        return self._walk_blocks(buffer) if self._blocks else self._walk_records(buffer, start)

    def _open_pcap(self, buffer: memoryview) -> int:
        self._order, self._scale = _PCAP[bytes(buffer[:4])]
        # The upper bits of the link type tell of frame check sequences, not of the link.
        self._link = struct.unpack_from(f"{self._order}I", buffer, 20)[0] & 0x0FFFFFFF
        self._check_link(self._link, 20)
        return 24

    def _check_link(self, link: int, at: int) -> None:
        if link not in LINK_HEADER:
            raise CaptureError(
                f"{self._name}@{at}: link type {link} is not understood; expected one of "
                f"{', '.join(map(str, LINK_HEADER))} (loopback, Ethernet, IP, Linux cooked): "
                "record on the Nexmon interface itself, not in monitor mode"
            )

    def _walk_records(self, buffer: memoryview, at: int) -> Packets:
        read = struct.Struct(f"{self._order}IIII").unpack_from
        end = len(buffer)
        starts: list[npt.NDArray[np.int64]] = []
        single: list[int] = []
        damage = None
        last, same = -1, 0
        while at + 16 <= end:
            _, fraction, size, original = read(buffer, at)
            if size > _LARGEST or (size > original > 0) or fraction * self._scale >= 1:
                damage = Damage(
                    at,
                    f"a packet of {size} bytes (of {original}), {fraction} parts of a second",
                    f"at most {_LARGEST} bytes, no more than were sent, and less than a second",
                )
                break
            if at + 16 + size > end:
                break
            same = same + 1 if size == last else 0
            last = size
            if same == _RUN and (run := self._equal_run(buffer, at, size)) > 1:
                starts += [np.array(single, np.int64), at + (16 + size) * np.arange(run)]
                single = []
                at += (16 + size) * run
                same = 0
                continue
            single.append(at)
            at += 16 + size
        starts.append(np.array(single, np.int64))
        headers = np.concatenate(starts)
        view = np.frombuffer(buffer, np.uint8)
        return Packets(
            headers + 16,
            _u32(view, headers + 8, self._order),
            _u32(view, headers, self._order)
            + _u32(view, headers + 4, self._order) * np.float64(self._scale),
            np.full(len(headers), self._link, np.int64),
            at,
            damage=damage,
        )

    def _equal_run(self, buffer: memoryview, at: int, size: int) -> int:
        """How many sound records of this size follow each other from ``at`` on."""
        step = 16 + size
        count = (len(buffer) - at) // step
        # (seconds, fraction, size, original size)
        fields = np.ndarray((count, 4), f"{self._order}u4", buffer, at, (step, 4))
        unit = round(1 / self._scale)

        def sound(begin: int, end: int) -> npt.NDArray[np.bool_]:
            part = fields[begin:end]
            original = part[:, 3]
            answers: npt.NDArray[np.bool_] = (
                (part[:, 2] == size) & ((original >= size) | (original == 0)) & (part[:, 1] < unit)
            )
            return answers

        return run_length(count, sound)

    def _walk_blocks(self, buffer: memoryview) -> Packets:
        found_packets = _Found()
        at, end = 0, len(buffer)
        damage = None
        while at + 12 <= end:
            if buffer[at : at + 4] == _SECTION:
                mark = bytes(buffer[at + 8 : at + 12])
                if mark not in _ORDER:
                    damage = Damage(at, "a section without byte order", "1a2b3c4d in either order")
                    break
                self._order = _ORDER[mark]
            kind, size = struct.unpack_from(f"{self._order}II", buffer, at)
            if size < 12 or size % 4 or size > _LARGEST + 4096:
                damage = Damage(
                    at,
                    f"a block of type {kind} and {size} bytes",
                    f"a multiple of 4 from 12 to {_LARGEST + 4096}",
                )
                break
            if at + size > end:
                break
            if struct.unpack_from(f"{self._order}I", buffer, at + size - 4)[0] != size:
                damage = Damage(at, f"a block that ends with another size than {size}", "its size")
                break
            damage = self._block(buffer, at, kind, size, found_packets)
            if damage is not None:
                break
            at += size
        return found_packets.packets(at, damage)

    def _block(
        self, buffer: memoryview, at: int, kind: int, size: int, found_packets: _Found
    ) -> Damage | None:
        order = self._order
        if kind == 0x0A0D0D0A:
            self._interfaces = []
        elif kind == 1:
            if size < 20:
                return Damage(at, f"an interface of {size} bytes", "at least 20")
            link = struct.unpack_from(f"{order}H", buffer, at + 8)[0]
            scale, origin = self._clock(bytes(buffer[at + 16 : at + size - 4]))
            self._interfaces.append(_Interface(link, scale, origin))
        elif kind in (2, 6):
            if size < 32:
                return Damage(at, f"a packet block of {size} bytes", "at least 32")
            # The obsolete block of type 2 has a 16-bit interface and a drop count instead.
            layout = f"{order}HHIIII" if kind == 2 else f"{order}IIIII"
            number, *_, high, low, length, _original = struct.unpack_from(layout, buffer, at + 8)
            if number >= len(self._interfaces):
                return Damage(
                    at, f"a packet of interface {number}", f"one of {len(self._interfaces)} known"
                )
            if length > size - 32:
                return Damage(
                    at, f"a packet of {length} bytes", f"at most {size - 32} in its block"
                )
            interface = self._interfaces[number]
            found_packets.starts.append(at + 28)
            found_packets.lengths.append(length)
            found_packets.times.append((high << 32 | low) * interface.scale + interface.origin)
            found_packets.links.append(interface.link)
        elif kind == 3:
            found_packets.untimed += 1
        return None

    def _clock(self, options: bytes) -> tuple[float, float]:
        """Seconds per unit of an interface's stamps, and what to add to them."""
        scale, origin, at = 1e-6, 0.0, 0
        while at + 4 <= len(options):
            code, size = struct.unpack_from(f"{self._order}HH", options, at)
            value = options[at + 4 : at + 4 + size]
            if code == 0 or len(value) < size:
                break
            if code == 9 and size == 1:
                scale = 2.0 ** -(value[0] & 127) if value[0] & 128 else 10.0 ** -value[0]
            elif code == 14 and size == 8:
                origin = float(struct.unpack(f"{self._order}q", value)[0])
            at += 4 + size + (-size) % 4
        return scale, origin

    def resume(self, buffer: memoryview, after: int) -> int | None:
        """Where the next packet record to UDP port 5500 begins behind ``after``, if any does."""
        header = 28 if self._blocks else 16
        links = {i.link for i in self._interfaces} if self._blocks else {self._link}
        leads = sorted({header + LINK_HEADER[link] + 22 for link in links & set(LINK_HEADER)})
        if not leads:
            return None
        for match in _CSI_DATAGRAM.finditer(buffer, after + leads[0] + 1):
            for lead in reversed(leads):
                at = match.start() - lead
                if at > after and self._is_record(buffer, at, match.end() - at):
                    return at
        return None

    def _is_record(self, buffer: memoryview, at: int, least: int) -> bool:
        kind: int
        size: int
        if self._blocks:
            kind, size = struct.unpack_from(f"{self._order}II", buffer, at)
            return kind == 6 and least <= size <= _LARGEST and size % 4 == 0
        _, fraction, size, original = struct.unpack_from(f"{self._order}IIII", buffer, at)
        return bool(least - 16 <= size <= min(original, _LARGEST) and fraction * self._scale < 1)


_CSI_DATAGRAM = re.compile(rb"\x15\x7c.{4}\x11\x11", re.DOTALL)


def _u32(view: Bytes, at: npt.NDArray[np.int64], order: str) -> npt.NDArray[np.int64]:
    """Unsigned 32-bit numbers at any places."""
    places = at[:, None] + np.arange(4)
    return view[places].view(f"{order}u4").reshape(-1).astype(np.int64)  # type: ignore[no-any-return]


def pcap_header() -> bytes:
    """The beginning of a little-endian microsecond pcap of Ethernet packets."""
    return struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, _LARGEST, 1)


def pcap_record(seconds: int, microseconds: int, packet: bytes) -> bytes:
    """One packet as such a pcap holds it."""
    return struct.pack("<IIII", seconds, microseconds, len(packet), len(packet)) + packet
