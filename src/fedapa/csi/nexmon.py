"""Nexmon: Broadcom chips that send the CSI of each frame as a UDP datagram to port 5500.

A receiver with several cores sends one datagram per (core, stream): consecutive ones of
equal MAC and sequence with distinct (core, stream) are one packet.
"""

from collections import Counter

import numpy as np
import numpy.typing as npt

from fedapa.csi.capture import SIMULATED_DEVICE
from fedapa.csi.nexmon_format import (
    BANDWIDTHS,
    CHIPS,
    CODES,
    HEADER,
    PACKED,
    PORT,
    SIMULATED,
    check_chip,
    decode_words,
)
from fedapa.csi.pcap import LINK_HEADER, Packets, PcapWalker
from fedapa.csi.records import BLOCK, Batch, Bytes, Decoder, Kind, places, rows
from fedapa.csi.subcarriers import all_subcarriers
from fedapa.errors import CaptureError

__all__ = ["NexmonDecoder"]

_SILENT = (0x0000, 0xDEAD)
_TAIL = 16
"""Some firmware appends a few bytes: they are left unread. More than this is another size."""
_SEQUENCE_BITS = 12


class NexmonDecoder(Decoder):
    """Pcap or pcapng bytes in, packets out."""

    def __init__(self, name: str, *, chip: str | None = None, salvage: bool = False) -> None:
        super().__init__(name, salvage=salvage)
        self._chip = check_chip(chip)
        self.inferred: str | None = None
        """The chip of frames that do not tell theirs, once it is known."""
        self._walker = PcapWalker(name)
        # Datagrams of a packet that the next bytes may still add a (core, stream) to.
        self._held: list[tuple[bytes, float]] = []

    def _decode(self, buffer: memoryview, *, final: bool) -> tuple[list[Batch], int]:
        parts: list[tuple[int, Packets]] = []
        done = 0
        if self.salvage and (begin := self._walker.find_header(buffer)) != 0:
            # Joined in the middle of something: its header may be here in part, at the end.
            done = max(0, len(buffer) - 11) if begin is None else begin
            if done and not self.searching(0):
                self.skip("damaged bytes", 0)
            if begin is None:
                return [], self.search_on(done) if done else 0
        while True:
            packets = self._walker.walk(buffer[done:], at=self._at + done)
            parts.append((done, packets))
            done += packets.used
            cut_off = final and packets.damage is None and done < len(buffer)
            if packets.damage is None and not cut_off:
                break
            following = self._walker.resume(buffer, done)
            if cut_off and following is None:
                self.cut_off(done)
                done = len(buffer)
                break
            if packets.damage is not None:
                self.damaged(done, packets.damage.found, packets.damage.expected)
            else:
                self.damaged(done, "a packet that reaches beyond the end", "a whole packet")
            if following is None:
                # The next header may be here in part: keep what could be its beginning.
                done = len(buffer) if final else self.search_on(max(done + 1, len(buffer) - 128))
                break
            done = following
        return self._batches(buffer, Packets.joined(parts), final=final), done

    def _batches(self, buffer: memoryview, packets: Packets, *, final: bool) -> list[Batch]:
        self.skip("no time stamp", 0, packets.untimed)
        view, base = np.frombuffer(buffer, np.uint8), 0
        starts, lengths = self._datagrams(view, packets)
        kept = np.flatnonzero(lengths)
        starts, lengths, times = starts[kept], lengths[kept], packets.times[kept]
        if self._held:
            earlier = b"".join(datagram for datagram, _ in self._held)
            sizes = np.array([len(datagram) for datagram, _ in self._held])
            view = np.frombuffer(b"".join([earlier, buffer]), np.uint8)
            starts = np.concatenate([np.cumsum(sizes) - sizes, starts + len(earlier)])
            lengths = np.concatenate([sizes, lengths])
            times = np.concatenate([[time for _, time in self._held], times])
            base = -len(earlier)
            self._held = []
        if not len(starts):
            return []
        headers = np.ascontiguousarray(rows(view, starts, HEADER))
        fields = headers.view("<u2")  # [frames, 9]
        subcarrier_counts = self._subcarrier_counts(fields[:, 7], lengths - HEADER, starts + base)
        chips = self._chips(view, fields[:, 8], starts, subcarrier_counts, base)
        sound = np.flatnonzero((subcarrier_counts > 0) & (chips >= 0))
        if not len(sound):
            return []
        frames = _Frames(
            view,
            headers[sound],
            starts[sound],
            subcarrier_counts[sound],
            chips[sound],
            times[sound],
        )
        first = frames.first_of_packet()
        if not final:
            last = int(first[-1])
            held = sound[last:]
            self._held = [
                (view[s : s + n].tobytes(), float(t))
                for s, n, t in zip(starts[held], lengths[held], times[held], strict=True)
            ]
            first, frames = first[:-1], frames.until(last)
        return self._assemble(frames, first, base)

    def _datagrams(
        self, view: Bytes, packets: Packets
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Where the CSI datagrams begin and how long they are; length 0 for other packets."""
        starts, lengths = packets.starts.copy(), packets.lengths.copy()
        ends = starts + lengths
        known = np.isin(packets.links, list(LINK_HEADER))
        lengths[~known] = 0
        self._count(~known, "link type that is not understood", packets.starts)
        for link, header in LINK_HEADER.items():
            mine = packets.links == link
            starts[mine] += header
            if link == 1:
                tag = mine & (lengths >= 18)
                tag[tag] = _u16(view, starts[tag] - 2, big=True) == 0x8100
                starts[tag] += 4  # a virtual network's tag
        ip = (lengths > 0) & (starts + 28 <= ends)
        lead = np.zeros_like(starts)
        lead[ip] = 4 * (view[starts[ip]] & 15).astype(np.int64)
        csi = ip & (lead >= 20) & (starts + lead + 10 <= ends)
        where = starts[csi]
        udp = where + lead[csi]
        csi[csi] = (
            (view[where] >> 4 == 4)
            & (view[where + 9] == 17)
            & (_u16(view, where + 6, big=True) & 0x3FFF == 0)
            & (_u16(view, udp + 2, big=True) == PORT)
            & (_u16(view, udp + 8) == 0x1111)
        )
        starts += lead + 8
        self._count(~csi & known, "other traffic", packets.starts)
        lengths = np.where(csi, ends - starts, 0)
        short = csi & (lengths < HEADER)
        self._count(short, "cut off by the capture", packets.starts)
        return starts, np.where(short, 0, lengths)

    def _subcarrier_counts(
        self,
        specifications: npt.NDArray[np.uint16],
        sizes: npt.NDArray[np.int64],
        at: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.int64]:
        """Subcarriers of a frame by its channel's width; 0 where its size is another."""
        codes = (specifications >> 11) & 7
        subcarrier_counts = np.zeros(len(sizes), np.int64)
        for code, bandwidth in BANDWIDTHS.items():
            subcarrier_counts[codes == code] = len(all_subcarriers(bandwidth))
        unknown = subcarrier_counts == 0
        for code in np.unique(codes[unknown]):
            self._count(unknown & (codes == code), f"channel width code {code}", at)
        short = ~unknown & (sizes < 4 * subcarrier_counts)
        self._count(short, "shorter than its channel width needs", at)
        long = sizes > 4 * subcarrier_counts + _TAIL
        self._count(~unknown & long, "longer than its channel width needs", at)
        subcarrier_counts[short | long] = 0
        return subcarrier_counts

    def _chips(
        self,
        view: Bytes,
        codes: npt.NDArray[np.uint16],
        starts: npt.NDArray[np.int64],
        subcarrier_counts: npt.NDArray[np.int64],
        base: int,
    ) -> npt.NDArray[np.int64]:
        """The code of each frame's chip; −1 where it cannot be known."""
        chips = codes.astype(np.int64)
        sized = subcarrier_counts > 0
        for code, known in CHIPS.items():
            if self._chip not in (None, known) and (told := sized & (codes == code)).any():
                at = int(starts[told.argmax()]) + base + self._at + 16
                raise CaptureError(
                    f"{self.name}@{at}: the chip field says {known} (0x{code:04x}), chip="
                    f"'{self._chip}' was given; leave it out, or give '{known}'"
                )
        unknown = sized & ~np.isin(codes, list(CHIPS))
        silent = unknown & np.isin(codes, _SILENT)
        if self._chip is not None:
            chips[unknown] = CODES[self._chip]
            return chips
        if silent.any():
            if self.inferred is None:
                at = int(starts[silent.argmax()]) + base + self._at + 16
                self.inferred = self._infer(
                    view, starts[silent], int(subcarrier_counts[silent].min()), at
                )
            chips[silent] = CODES[self.inferred]
        unknown &= ~silent
        chips[unknown] = -1
        if unknown.any():
            # Named one by one, as long as they are few: more is no chip but noise.
            names = ", ".join(f"0x{c:04x} ({n})" for c, n in CHIPS.items())
            first, *others = Counter(codes[unknown].tolist()).most_common()
            for code, count in [first, *others[:3]]:
                mine = unknown & (codes == code)
                at = int((starts + base)[mine.argmax()])
                self.skip(f"chip 0x{code:04x} is unknown; known: {names}", at, count)
            self.skip("other chips that are unknown", at, sum(count for _, count in others[3:]))
        return chips

    def _infer(
        self, view: Bytes, starts: npt.NDArray[np.int64], subcarrier_count: int, at: int
    ) -> str:
        """The packing, from the bits that are never set: a packed word leaves its highest free.

        Pairs of int16 do not: half of their imaginary parts are negative.
        """
        words = np.ascontiguousarray(
            rows(view, starts[:BLOCK] + HEADER, 4 * subcarrier_count)
        ).view("<u4")
        bits = int(np.bitwise_or.reduce(words, axis=None))
        if bits == 0:
            raise CaptureError(
                f"{self.name}@{at}: neither the chip field nor the CSI, all zero, tells the chip; "
                f"say which it was: chip= one of {', '.join(CHIPS.values())}"
            )
        for chip, (mantissa, exponent) in PACKED.items():
            if bits >> (2 * mantissa + exponent) == 0:
                return chip
        return "43455c0"

    def _assemble(self, frames: "_Frames", first: npt.NDArray[np.int64], base: int) -> list[Batch]:
        """Batches of equal packets; a packet is the frames from one ``first`` to the next."""
        if not len(first):
            return []
        counts = np.diff(np.append(first, len(frames.starts)))
        bits = np.uint64(1) << frames.position.astype(np.uint64)
        sets = np.bitwise_or.reduceat(bits, first)
        shapes = (
            frames.synthetic[first] << 32
            | frames.chips[first] << 16
            | frames.subcarrier_counts[first]
        )
        batches = []
        for (shape, links), packets in _alike(shapes, sets).items():
            chip, subcarrier_count = shape >> 16 & 0xFFFF, shape & 0xFFFF
            positions = [place for place in range(64) if links >> place & 1]
            cores = sorted({place & 7 for place in positions})
            streams = sorted({place >> 3 for place in positions})
            if len(cores) * len(streams) != len(positions):
                at = int(frames.starts[first[packets[0]]]) + base
                self.skip("incomplete set of cores and streams", at, len(packets))
                continue
            members = first[packets][:, None] + np.arange(counts[packets[0]])  # (packets, links)
            order = np.argsort(_core_major(frames.position[members]), axis=1)
            members = np.take_along_axis(members, order, axis=1)
            synthetic = bool(shape >> 32)
            kind = Kind(
                # No chip made it: the faults of one, as spoilt subcarriers, are not in it.
                SIMULATED_DEVICE if synthetic else f"nexmon {CHIPS[chip]}",
                subcarrier_count * 5 // 16,
                len(cores),
                len(streams),
                all_subcarriers(subcarrier_count * 5 // 16),
                _SEQUENCE_BITS,
                "" if positions == [0] else f"cores {cores}, streams {streams}",
                synthetic=synthetic,
            )
            batches.append(frames.batch(kind, CHIPS[chip], members))
        return batches

    def _count(self, mask: npt.NDArray[np.bool_], reason: str, at: npt.NDArray[np.int64]) -> None:
        if count := int(np.count_nonzero(mask)):
            self.skip(reason, int(at[mask.argmax()]), count)


def _alike(
    shapes: npt.NDArray[np.int64], sets: npt.NDArray[np.uint64]
) -> dict[tuple[int, int], npt.NDArray[np.int64]]:
    """Which packets have which shape and set of cores and streams."""
    if (shapes == shapes[0]).all() and (sets == sets[0]).all():
        # The usual case, in a tenth of the time.
        return {(int(shapes[0]), int(sets[0])): np.arange(len(shapes))}
    return places(list(zip(shapes.tolist(), sets.tolist(), strict=True)))


def _core_major(position: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return (position & 7) * 8 + (position >> 3)


class _Frames:
    """Sound CSI datagrams, not yet sorted into packets."""

    def __init__(
        self,
        view: Bytes,
        headers: Bytes,
        starts: npt.NDArray[np.int64],
        subcarrier_counts: npt.NDArray[np.int64],
        chips: npt.NDArray[np.int64],
        times: npt.NDArray[np.float64],
    ) -> None:
        self._view = view
        self._headers = headers
        self.starts = starts
        self.subcarrier_counts = subcarrier_counts
        self.chips = chips
        self._times = times
        # core in bits 0 to 2, stream in bits 3 to 5
        self.position = headers.view("<u2")[:, 6].astype(np.int64) & 63
        self.synthetic = (headers[:, 4:10] == SIMULATED).all(axis=1).astype(np.int64)

    def until(self, end: int) -> "_Frames":
        """The frames before ``end``."""
        return _Frames(
            self._view,
            self._headers[:end],
            self.starts[:end],
            self.subcarrier_counts[:end],
            self.chips[:end],
            self._times[:end],
        )

    def first_of_packet(self) -> npt.NDArray[np.int64]:
        """The first frame of each packet."""
        count = len(self.starts)
        if (self.position == self.position[0]).all():
            return np.arange(count)
        sender = np.ascontiguousarray(self._headers[:, 4:12]).view(np.uint64)[:, 0]
        changed = np.ones(count, np.bool_)
        changed[1:] = (
            (sender[1:] != sender[:-1])
            | (self.subcarrier_counts[1:] != self.subcarrier_counts[:-1])
            | (self.chips[1:] != self.chips[:-1])
        )
        first, seen = [], 0
        for i, (new, position) in enumerate(
            zip(changed.tolist(), self.position.tolist(), strict=True)
        ):
            if new or seen >> position & 1:
                first.append(i)
                seen = 0
            seen |= 1 << position
        return np.array(first, np.int64)

    def batch(self, kind: Kind, chip: str, members: npt.NDArray[np.int64]) -> Batch:
        """Packets of one kind; ``members`` [packets, links] are their frames, core-major."""
        lead = members.min(axis=1)
        headers = self._headers[lead]
        # Old firmware repeats the magic where newer ones put RSSI and frame control.
        old = headers.view("<u2")[:, 1] == 0x1111
        rssi = np.where(old, np.nan, headers[:, 2].view(np.int8)).astype(np.float32)
        starts, view = self.starts[members.reshape(-1)] + HEADER, self._view
        return Batch(
            kind,
            self._times[lead],
            rssi,
            (headers.view("<u2")[:, 5] >> 4).astype(np.int64),
            lambda: _decode_frames(view, starts, chip, kind),
        )


def _decode_frames(
    view: Bytes, starts: npt.NDArray[np.int64], chip: str, kind: Kind
) -> npt.NDArray[np.complex64]:
    """CSI [packets, subcarriers, rx, tx] of datagrams whose CSI begins at ``starts``."""
    subcarrier_count, links = len(kind.subcarriers), kind.rx * kind.tx
    frames = rows(view, starts, 4 * subcarrier_count)
    csi = np.empty((len(starts), subcarrier_count), np.complex64)
    for at in range(0, len(starts), BLOCK):
        words = np.ascontiguousarray(frames[at : at + BLOCK]).view("<u4")
        decode_words(words, chip, out=csi[at : at + BLOCK])
    if links == 1:
        return csi[:, :, None, None]
    packets = csi.reshape(-1, kind.rx, kind.tx, subcarrier_count)
    return np.ascontiguousarray(np.moveaxis(packets, 3, 1))  # (packets, subcarriers, rx, tx)


def _u16(view: Bytes, at: npt.NDArray[np.int64], *, big: bool = False) -> npt.NDArray[np.int64]:
    first, second = view[at].astype(np.int64), view[at + 1].astype(np.int64)
    return first << 8 | second if big else second << 8 | first
