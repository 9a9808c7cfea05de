"""Intel 5300: the Linux 802.11n CSI tool's ``.dat`` logs of beamforming feedback.

::

    length (big-endian, 2) · code · body
    body of code 0xbb: clock µs (4) · count (2) · – (2) · Nrx · Ntx · RSSI a, b, c · noise
                       AGC · antenna selection · CSI length (2) · rate (2) · CSI

The CSI is a string of bits: for each of 30 subcarriers 3 idle bits, then int8 pairs for every rx
and tx, so no value begins at a byte.
"""

import re
import struct
import sys
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from fedapa.csi.records import (
    BLOCK,
    Batch,
    Buffer,
    Bytes,
    Decoder,
    Kind,
    places,
    rows,
    run_length,
    unwrap,
)
from fedapa.csi.subcarriers import intel_subcarriers

__all__ = ["Intel5300Decoder", "is_intel5300"]

_SUBCARRIERS = 30
_FEEDBACK = 0xBB
_MARK = re.compile(rb"\xbb")
# The driver can be told to log these as well: PHY information, packets, noise, acknowledgements.
_OTHER = frozenset({0x1C, 0xC0, 0xC1, 0xC3, 0xC5, 0xD0, 0xD1, 0xD2})
_HEAD = 20  # bytes of a feedback's body before its CSI
_HT40 = 1 << 11
_RUN = 8


def _csi_size(rx: int, tx: int) -> int:
    return (_SUBCARRIERS * (rx * tx * 16 + 3) + 7) // 8


_SIZES = {(rx, tx): _csi_size(rx, tx) for rx in (1, 2, 3) for tx in (1, 2, 3)}


def is_intel5300(head: bytes) -> bool:
    """Whether a file that begins like this is such a log."""
    at = 0
    while at + 3 <= len(head):
        size, code = struct.unpack_from(">HB", head, at)
        if code == _FEEDBACK:
            return _is_feedback(head, at)
        if code not in _OTHER or size < 1:
            return False
        at += 2 + size
    return False


def _is_feedback(buffer: Buffer, at: int) -> bool:
    """Whether a sound feedback record begins at ``at``; it may end beyond the buffer."""
    if at + 3 + _HEAD > len(buffer):
        return False
    size: int
    size, code = struct.unpack_from(">HB", buffer, at)
    expected = _SIZES.get((buffer[at + 11], buffer[at + 12]))
    declared: int = struct.unpack_from("<H", buffer, at + 19)[0]
    return code == _FEEDBACK and declared == expected and size == 1 + _HEAD + declared


class Intel5300Decoder(Decoder):
    """Log bytes in, packets out.

    Args:
        name: what to call the source in messages.
        scaled: scale each packet by RSSI, gain control and noise, so that squared amplitudes are
            signal-to-noise ratios; otherwise the card's own integers.
        salvage: see ``Decoder``.
    """

    def __init__(self, name: str, *, scaled: bool = False, salvage: bool = False) -> None:
        super().__init__(name, salvage=salvage)
        self._scaled = scaled
        self._clock: tuple[int, int] | None = None

    def _decode(self, buffer: memoryview, *, final: bool) -> tuple[list[Batch], int]:
        starts, done = self._walk(buffer, final=final)
        view = np.frombuffer(buffer, np.uint8)
        heads = np.ascontiguousarray(rows(view, starts + 3, _HEAD))
        clock = heads[:, :4].copy().view("<u4")[:, 0].astype(np.int64)
        ticks = unwrap(clock, 32, self._clock)
        if len(ticks):
            self._clock = (int(clock[-1]), int(ticks[-1]))
        rate = heads[:, 18:20].copy().view("<u2")[:, 0]
        shape = heads[:, 8].astype(np.int64) * 8 + heads[:, 9] * 2 + ((rate & _HT40) > 0)
        batches = []
        same = len(shape) > 0 and bool((shape == shape[0]).all())
        every: slice | npt.NDArray[np.int64] = slice(None)
        kinds = {int(shape[0]): every} if same else places(shape.tolist())
        for key, mine in kinds.items():
            bandwidth = 40 if key & 1 else 20
            kind = Kind(
                "intel 5300", bandwidth, key >> 3, key >> 1 & 3, intel_subcarriers(bandwidth), 16
            )
            batches.append(self._batch(view, kind, starts[mine], heads[mine], ticks[mine]))
        return batches, done

    def _walk(self, buffer: memoryview, *, final: bool) -> tuple[npt.NDArray[np.int64], int]:
        """Where the sound feedback records begin, and where the walk ended."""
        runs: list[npt.NDArray[np.int64]] = []
        single: list[int] = []
        at, end, last, same = 0, len(buffer), -1, 0
        while at + 3 <= end:
            size, code = struct.unpack_from(">HB", buffer, at)
            follows = at + 2 + size
            broken = size < 1 or (code != _FEEDBACK and code not in _OTHER)
            if not broken and follows > end:
                if not final:
                    break
                broken = self._resume(buffer, at) is not None
                if not broken:
                    break
            if broken:
                self.damaged(
                    at,
                    f"a record of {size} bytes with code 0x{code:02x}",
                    "code 0xbb (CSI) or one of the driver's others, whole",
                )
                following = self._resume(buffer, at)
                if following is None:
                    # A record may have begun in the last bytes: keep them.
                    at = end if final else self.search_on(max(at + 1, end - 2 - _HEAD))
                    break
                at = following
                continue
            if code != _FEEDBACK:
                self.skip("other records of the driver", at)
            elif not _is_feedback(buffer, at):
                self.skip("antennas and CSI length do not agree", at)
            else:
                same = same + 1 if size == last else 0
                last = size
                if same == _RUN:
                    run = _equal_run(buffer, at, size)
                    runs += [np.array(single, np.int64), at + (2 + size) * np.arange(run)]
                    single = []
                    at += (2 + size) * run
                    same = 0
                    continue
                single.append(at)
            at = follows
        if final and at < end:
            self.cut_off(at)
            at = end
        runs.append(np.array(single, np.int64))
        return np.concatenate(runs), at

    def _resume(self, buffer: memoryview, after: int) -> int | None:
        """Where the next sound feedback record begins behind ``after``, if any does."""
        for match in _MARK.finditer(buffer, after + 3):
            if _is_feedback(buffer, match.start() - 2):
                return match.start() - 2
        return None

    def _batch(
        self,
        view: Bytes,
        kind: Kind,
        starts: npt.NDArray[np.int64],
        heads: Bytes,
        ticks: npt.NDArray[np.int64],
    ) -> Batch:
        power = _received_power(heads)
        selection, scaled = heads[:, 15].copy(), self._scaled

        def decode() -> npt.NDArray[np.complex64]:
            csi = _unpack(view, starts + 3 + _HEAD, selection, kind.rx, kind.tx)
            return _to_snr(csi, heads, power) if scaled else csi

        with np.errstate(divide="ignore"):
            rssi = np.where(power > 0, 10 * np.log10(power), np.nan).astype(np.float32)
        return Batch(
            kind,
            ticks * np.float64(1e-6),
            rssi,
            heads[:, 4:6].copy().view("<u2")[:, 0].astype(np.int64),
            decode,
        )


def _equal_run(buffer: memoryview, at: int, size: int) -> int:
    """How many sound feedback records of this size follow each other from ``at`` on; at least 1."""
    step = 2 + size
    view = np.frombuffer(buffer, np.uint8)
    count = (len(view) - at) // step
    heads = np.lib.stride_tricks.sliding_window_view(view[at:], 3 + _HEAD)[::step][:count]
    fixed = [0, 1, 2, 11, 12, 19, 20]  # length, code, Nrx, Ntx, CSI length

    def sound(begin: int, end: int) -> npt.NDArray[np.bool_]:
        same: npt.NDArray[np.bool_] = (heads[begin:end, fixed] == heads[0, fixed]).all(axis=1)
        return same

    return run_length(count, sound)


@lru_cache
def _bits(rx: int, tx: int) -> npt.NDArray[np.int64]:
    """[30, rx, tx, 2] where each value begins, in the card's own order of antennas."""
    subcarrier, antenna, stream, part = np.ogrid[:_SUBCARRIERS, :rx, :tx, :2]
    bit: npt.NDArray[np.int64] = (
        3 * (subcarrier + 1) + 16 * ((subcarrier * rx + antenna) * tx + stream) + 8 * part
    )
    return bit


@lru_cache
def _factors(rx: int, tx: int) -> npt.NDArray[np.uint16]:
    """For each byte, what shifts it and the next one up until the value is in the upper half.

    No byte begins two values, so the factor belongs to the byte.
    """
    bit = _bits(rx, tx).reshape(-1)
    factors = np.zeros(_SIZES[rx, tx] - 1, np.uint16)
    factors[bit // 8] = 1 << (8 - bit % 8)
    return factors


@lru_cache
def _places(rx: int, tx: int, selection: int) -> npt.NDArray[np.int64]:
    """Where the values end up among the bytes of the products, antennas in order.

    The card numbers the antennas as it selected them; where that is a permutation of the antennas
    in use, it is undone.
    """
    chosen = [selection >> 2 * i & 3 for i in range(rx)]
    if sorted(chosen) != list(range(rx)):
        chosen = list(range(rx))
    byte = _bits(rx, tx)[:, np.argsort(chosen)].reshape(-1) // 8
    return 2 * byte + (sys.byteorder == "little")


def _unpack(
    view: Bytes, starts: npt.NDArray[np.int64], selection: Bytes, rx: int, tx: int
) -> npt.NDArray[np.complex64]:
    """CSI [packets, 30, rx, tx] of records whose CSI begins at ``starts``."""
    packets, values = len(starts), _SUBCARRIERS * rx * tx * 2
    frames, factors = rows(view, starts, _SIZES[rx, tx]), _factors(rx, tx)
    csi = np.empty((packets, _SUBCARRIERS, rx, tx), np.complex64)
    parts = csi.view(np.float32).reshape(packets, values)
    numbers = np.empty((min(packets, BLOCK), values), np.int8)
    pairs = np.empty((len(numbers), len(factors)), np.uint16)
    for at in range(0, packets, BLOCK):
        block, chosen = frames[at : at + BLOCK], selection[at : at + BLOCK]
        # Frames of equal antenna selection side by side: slices are quicker than lists of places.
        order = None if (chosen == chosen[0]).all() else np.argsort(chosen, kind="stable")
        if order is not None:
            block, chosen = block[order], chosen[order]
        products = pairs[: len(block)]
        products[:] = block[:, 1:]
        products <<= 8
        products |= block[:, :-1]
        products *= factors
        upper, here = products.view(np.int8), numbers[: len(block)]
        edges = [0, *(np.flatnonzero(np.diff(chosen)) + 1).tolist(), len(chosen)]
        for begin, end in pairwise(edges):
            taken = _places(rx, tx, int(chosen[begin]))
            np.take(upper[begin:end], taken, axis=1, out=here[begin:end], mode="clip")
        parts[at : at + BLOCK][slice(None) if order is None else order] = here
    return csi


_POWER = np.where(np.arange(256) > 0, 10 ** (np.arange(256) / 10), 0.0)
"""What an antenna's RSSI byte is as power; 0 says that it heard nothing."""
_GAIN = 10 ** (-(44 + np.arange(256)) / 10)
"""What the gain control's byte takes off again."""


def _received_power(heads: Bytes) -> npt.NDArray[np.float64]:
    """[packets] milliwatts over all antennas; 0 where none reported."""
    a, b, c = (_POWER[heads[:, place]] for place in (10, 11, 12))
    power: npt.NDArray[np.float64] = (a + b + c) * _GAIN[heads[:, 14]]
    return power


def _to_snr(
    csi: npt.NDArray[np.complex64], heads: Bytes, power: npt.NDArray[np.float64]
) -> npt.NDArray[np.complex64]:
    """The CSI in units of the noise: thermal, as measured, and that of rounding to 8 bits."""
    rx, tx = csi.shape[2:]
    energy = (np.abs(csi.astype(np.complex128)) ** 2).sum(axis=(1, 2, 3))
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = np.where(energy > 0, power / (energy / _SUBCARRIERS), 0.0)
    noise = heads[:, 13].view(np.int8).astype(np.float64)
    noise = np.where(noise == -127, -92.0, noise)  # the card's word for "not measured"
    total = 10 ** (noise / 10) + scale * rx * tx
    # The card splits its power over the streams; for three it takes 4.5 dB, not 4.77.
    streams = {1: 1.0, 2: 2.0, 3: 10**0.45}[tx]
    factor = np.sqrt(scale / total * streams)
    return (csi * factor[:, None, None, None]).astype(np.complex64)  # type: ignore[no-any-return]
