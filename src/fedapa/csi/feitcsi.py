"""FeitCSI: Intel AX200 and AX210 cards; ``.csi`` files of a 272-byte header and int16 pairs.

::

    0 CSI size · 8 ranging clock · 12 time µs (newer versions) · 46 Nrx · 47 Ntx · 52 subcarriers
    60, 64 RSSI a, b (negated) · 68 source MAC · 88 clock µs · 92 rate and format

The CSI is ordered rx, tx, subcarrier; subcarriers from low to high, pilots of older formats zero.
"""

import struct

import numpy as np
import numpy.typing as npt

from fedapa.csi.records import Batch, Buffer, Bytes, Decoder, Kind, places, rows, unwrap
from fedapa.csi.subcarriers import used_subcarriers

__all__ = ["FeitCsiDecoder", "is_feitcsi"]

_HEADER = 272
_WIDTH = {0: 20, 1: 40, 2: 80, 3: 160}
_FORMAT = {1: "legacy", 2: "ht", 3: "vht", 4: "he", 5: "eht"}
_MOST_SUBCARRIERS = 1992
_MOST_ANTENNAS = 4


def _is_header(buffer: Buffer, at: int) -> bool:
    """Whether a header's own numbers agree."""
    if at + _HEADER > len(buffer):
        return False
    rx, tx = buffer[at + 46], buffer[at + 47]
    size = struct.unpack_from("<I", buffer, at)[0]
    subcarrier_count = struct.unpack_from("<I", buffer, at + 52)[0]
    return (
        0 < rx <= _MOST_ANTENNAS
        and 0 < tx <= _MOST_ANTENNAS
        and 0 < subcarrier_count <= _MOST_SUBCARRIERS
        and size == 4 * rx * tx * subcarrier_count
    )


def is_feitcsi(head: bytes) -> bool:
    """Whether a file that begins like this is a FeitCSI file."""
    return _is_header(head, 0)


class FeitCsiDecoder(Decoder):
    """File or socket bytes in, packets out."""

    def __init__(self, name: str, *, salvage: bool = False) -> None:
        super().__init__(name, salvage=salvage)
        self._clock: tuple[int, int] | None = None
        self._stamped: bool | None = None
        """Whether frames carry the time; the first one decides for all."""

    def _decode(self, buffer: memoryview, *, final: bool) -> tuple[list[Batch], int]:
        starts, done = self._walk(buffer, final=final)
        view = np.frombuffer(buffer, np.uint8)
        heads = np.ascontiguousarray(rows(view, starts, _HEADER))
        seconds = self._seconds(heads)
        if self._stamped and (untimed := seconds == 0).any():
            self.skip("no time stamp", int(starts[untimed.argmax()]), int(untimed.sum()))
            starts, heads, seconds = starts[~untimed], heads[~untimed], seconds[~untimed]
        flags = heads[:, 92:96].copy().view("<u4")[:, 0].astype(np.int64)
        subcarrier_counts = heads[:, 52:56].copy().view("<u4")[:, 0].astype(np.int64)
        shape = np.column_stack([flags >> 8 & 63, heads[:, 46], heads[:, 47], subcarrier_counts])
        batches = []
        for key, mine in places([tuple(row) for row in shape.tolist()]).items():
            form, bandwidth = _FORMAT.get(key[0] & 7), _WIDTH.get(key[0] >> 3)
            first = int(starts[mine[0]])
            if form is None or bandwidth is None:
                self.skip(f"frame format code {key[0]}", first, len(mine))
                continue
            subcarriers = used_subcarriers(bandwidth, form=form)
            if len(subcarriers) != key[3]:
                self.skip(
                    f"{key[3]} subcarriers, where {form} of {bandwidth} MHz has {len(subcarriers)}",
                    first,
                    len(mine),
                )
                continue
            kind = Kind(f"feitcsi {form}", bandwidth, key[1], key[2], subcarriers)
            batches.append(_batch(view, kind, starts[mine], heads[mine], seconds[mine]))
        return batches, done

    def _walk(self, buffer: memoryview, *, final: bool) -> tuple[npt.NDArray[np.int64], int]:
        starts: list[int] = []
        at, end = 0, len(buffer)
        while at + _HEADER <= end:
            size = struct.unpack_from("<I", buffer, at)[0]
            sound = _is_header(buffer, at)
            if sound and at + _HEADER + size > end:
                if not final or (following := _resume(buffer, at)) is None:
                    break
                sound = False
            if not sound:
                subcarrier_count = struct.unpack_from("<I", buffer, at + 52)[0]
                self.damaged(
                    at,
                    f"a header of {size} bytes of CSI for {buffer[at + 46]} rx, "
                    f"{buffer[at + 47]} tx and {subcarrier_count} subcarriers",
                    "4 bytes for each rx, tx and subcarrier, whole",
                )
                following = _resume(buffer, at)
                if following is None:
                    # A header may have begun in the last bytes: keep them.
                    at = end if final else self.search_on(max(at + 1, end - _HEADER + 1))
                    break
                at = following
                continue
            starts.append(at)
            at += _HEADER + size
        if final and at < end:
            self.cut_off(at)
            at = end
        return np.array(starts, np.int64), at

    def _seconds(self, heads: Bytes) -> npt.NDArray[np.float64]:
        """Newer versions stamp the time; older ones have only the card's clock, which overflows."""
        stamped = heads[:, 12:20].copy().view("<u8")[:, 0]
        if self._stamped is None and len(stamped):
            self._stamped = bool(stamped[0] > 0)
        if self._stamped:
            return stamped.astype(np.float64) * 1e-6
        clock = heads[:, 88:92].copy().view("<u4")[:, 0].astype(np.int64)
        ticks = unwrap(clock, 32, self._clock)
        if len(ticks):
            self._clock = (int(clock[-1]), int(ticks[-1]))
        return ticks * np.float64(1e-6)


def _resume(buffer: memoryview, after: int) -> int | None:
    """Where the next sound header begins behind ``after``, if any does."""
    step = 1 << 16
    for base in range(after + 1, len(buffer) - _HEADER + 1, step):
        view = np.frombuffer(buffer, np.uint8)[base : base + step + _HEADER]
        count = len(view) - _HEADER + 1
        rx, tx = view[46 : 46 + count], view[47 : 47 + count]
        # The lower bytes decide quickly; the few that pass are looked at whole.
        maybe = (rx > 0) & (rx <= _MOST_ANTENNAS) & (tx > 0) & (tx <= _MOST_ANTENNAS)
        maybe &= view[:count] == 4 * rx * tx * view[52 : 52 + count]
        for place in np.flatnonzero(maybe):
            if _is_header(buffer, base + int(place)):
                return base + int(place)
    return None


def _batch(
    view: Bytes,
    kind: Kind,
    starts: npt.NDArray[np.int64],
    heads: Bytes,
    seconds: npt.NDArray[np.float64],
) -> Batch:
    heard = heads[:, 60:68].copy().view("<u4")[:, : min(kind.rx, 2)].astype(np.float64)
    rssi = np.where(
        (heard > 0).any(axis=1), -np.where(heard > 0, heard, np.inf).min(axis=1), np.nan
    )
    subcarrier_count = len(kind.subcarriers)

    def decode() -> npt.NDArray[np.complex64]:
        size = 4 * kind.rx * kind.tx * subcarrier_count
        pairs = np.ascontiguousarray(rows(view, starts + _HEADER, size)).view("<i2")
        csi = pairs.astype(np.float32).view(np.complex64)
        csi = csi.reshape(-1, kind.rx, kind.tx, subcarrier_count)
        return np.ascontiguousarray(np.moveaxis(csi, 3, 1))  # (packets, subcarriers, rx, tx)

    return Batch(kind, seconds, rssi.astype(np.float32), np.zeros(len(starts), np.int64), decode)
