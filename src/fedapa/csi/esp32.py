"""ESP32: lines of comma-separated text from a serial port, each with one buffer of CSI.

The buffer holds int8 pairs, imaginary part first: the legacy training field (LLTF), then, of an
HT frame, the HT training field and perhaps its STBC twin. The HT field is taken where there is
one. Lines of other programs, cut lines and lines written into each other are normal on a serial
port: they are skipped and counted.

Dialects differ in their columns. A header line says which; without one the number of columns does.
Programs that listen at the port may append columns of their own to every line, or log it whole in
a column in quotes.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fedapa.csi.records import Batch, Decoder, Kind, unwrap
from fedapa.csi.subcarriers import used_subcarriers

__all__ = ["Esp32Decoder", "is_esp32"]

_CLASSIC = (
    "rssi,rate,sig_mode,mcs,bandwidth,smoothing,not_sounding,aggregation,stbc,fec_coding,sgi,"
    "noise_floor,ampdu_cnt,channel,secondary_channel,local_timestamp,ant,sig_len,rx_state"
)
_DIALECTS = {
    26: f"type,role,mac,{_CLASSIC},real_time_set,real_timestamp,len,data",
    25: f"type,id,mac,{_CLASSIC},len,first_word,data",
    15: "type,seq,mac,rssi,rate,noise_floor,fft_gain,agc_gain,channel,local_timestamp,sig_len,"
    "rx_state,len,first_word,data",
    13: "type,id,mac,rssi,rate,noise_floor,channel,local_timestamp,sig_len,rx_state,len,"
    "first_word,data",
}
"""Columns by their number: ESP32-CSI-Tool, esp-csi, esp-csi on C5 and C6, an earlier one of C6."""
_ALIASES = {
    "csi": "data",
    "csi_data": "data",
    "timestamp": "local_timestamp",
    "cwb": "bandwidth",
    "seq": "id",
    "second": "secondary_channel",
    "channel_secondary": "secondary_channel",
}
"""Other names of a column; they count where the column itself is not there."""
_LONGEST = 1 << 16
"""More bytes than this without a line's end are no line of text."""
_AFTER = rb',(?:"(?:[^"]|"")*+"|[^",\[\]]*+)'
"""A column behind the buffer, with its comma."""
_LINE = re.compile(rb'CSI_DATA,([^\[\r\n"]*),"?\[([-\d, ]*)\]"?((?:' + _AFTER + rb")*+)")
_QUOTED = re.compile(rb'CSI_DATA,(?:[^"]|"")*+')
"""What a column in quotes holds: quotes in it are doubled."""
_NUMBERS = re.compile(rb"-?\d{1,3}(?:[ ,]+-?\d{1,3})*")
_INTEGER = re.compile(rb"\s*-?\d{1,10}\s*")
_MARK = b"CSI_DATA"
_NEEDED = ("rssi", "local_timestamp", "data")


def is_esp32(head: bytes) -> bool:
    """Whether a file that begins like this is text with CSI lines, or their header."""
    if b"\x00" in head:
        return False
    return _MARK + b"," in head or _header(head.split(b"\n")) is not None


def _header(lines: Sequence[bytes]) -> tuple[str, ...] | None:
    for line in lines:
        if (columns := _columns(line)) is not None:
            return columns
    return None


def _columns(line: bytes) -> tuple[str, ...] | None:
    """The columns that a header line names, in our words; None for any other line."""
    line = line.removeprefix(b"\xef\xbb\xbf")  # some editors put a mark before the first line
    words = line.decode("ascii", "replace").strip().lower().replace('"', "").split(",")
    names = [word.strip() for word in words]
    if "type" not in names:
        return None
    # What a listener put before the line itself does not belong to it.
    columns = _in_our_words(names[names.index("type") :])
    return columns if all(name in columns for name in _NEEDED) else None


def _in_our_words(names: Sequence[str]) -> tuple[str, ...]:
    ours = [_ALIASES.get(name, name) for name in names]
    return tuple(
        name if name != our and our in names else our for name, our in zip(names, ours, strict=True)
    )


@dataclass(frozen=True)
class _Part:
    """A part of a buffer: which of its pairs, and the subcarriers they belong to."""

    device: str
    bandwidth: int
    first: int
    """The first pair."""
    subcarriers: tuple[int, ...]


def _fft_order(below: int, count: int) -> tuple[int, ...]:
    """0 … below − 1, then the negative subcarriers up to −1, ``count`` of them in all."""
    return (*range(below), *range(below - count, 0))


_RISING = tuple(range(-32, 32))
_LLTF = _Part("esp32 lltf", 20, 0, _fft_order(32, 64))
_LLTF_OF_40 = _Part("esp32 lltf", 20, 0, _RISING)
_HT20 = _Part("esp32 ht", 20, 64, _fft_order(32, 64))
_HT20_OF_40 = _Part("esp32 ht", 20, 64, _RISING)
_HT40 = _Part("esp32 ht", 40, 64, _fft_order(64, 128))
_HT40_STBC = _Part("esp32 ht", 40, 64, _fft_order(61, 121))


def _part(size: int, frame: Mapping[str, int]) -> _Part | None:
    """What to take from a buffer of so many bytes; None where that is not known.

    With a secondary channel, what spans 20 MHz only is written as a half of the 40 MHz: from its
    lowest subcarrier to its highest. 376 and 380 bytes come from a 20 MHz frame with STBC on such a
    channel: their HT field is cut short, so the legacy field is the whole one.
    """
    wide = frame.get("bandwidth", 0) == 1
    half = frame.get("secondary_channel", 0) > 0
    if size == 612:
        return _HT40_STBC
    if size == 384 and wide and not frame.get("stbc", 0):
        return _HT40
    if size in (256, 384) and not wide:
        return _HT20_OF_40 if half else _HT20
    if size in (128, 376, 380) or (size == 256 and wide):
        return _LLTF_OF_40 if half else _LLTF
    return None


def _part_of_newer_chip(size: int) -> _Part | None:
    """C5 and C6 report one training field, from the lowest subcarrier to the highest.

    64 subcarriers may be a legacy or an HT field: they count as legacy, whose live subcarriers
    are live in both.
    """
    by_size = {
        128: _Part("esp32 lltf", 20, 0, tuple(range(-32, 32))),
        256: _Part("esp32 ht", 40, 0, tuple(range(-64, 64))),
        112: _Part("esp32 ht", 20, 0, used_subcarriers(20)),
        114: _Part("esp32 ht", 20, 0, tuple(range(-28, 29))),
        234: _Part("esp32 ht", 40, 0, tuple(range(-58, 59))),
        228: _Part("esp32 ht", 40, 0, used_subcarriers(40)),
        104: _Part("esp32 lltf", 20, 0, used_subcarriers(20, form="legacy")),
        106: _Part("esp32 lltf", 20, 0, tuple(range(-26, 27))),
    }
    return by_size.get(size)


def _as_sent(line: bytes, mark: int) -> Iterator[bytes]:
    """The line of the chip in a line of a file: bare, or in a column of a log, in quotes."""
    bare = line[mark:].rstrip()
    if line[mark - 1 : mark] != b'"':
        yield bare
        return
    quoted = _QUOTED.match(bare)
    if quoted is not None and bare[quoted.end() : quoted.end() + 2] in (b'"', b'",'):
        yield quoted[0].replace(b'""', b'"').rstrip()
    yield bare.removesuffix(b'"')  # a listener that put quotes around it and did no more


class Esp32Decoder(Decoder):
    """Serial text in, packets out."""

    def __init__(self, name: str, *, salvage: bool = False) -> None:
        super().__init__(name, salvage=salvage)
        self._columns: tuple[str, ...] | None = None
        self._clock: tuple[int, int] | None = None

    def _decode(self, buffer: memoryview, *, final: bool) -> tuple[list[Batch], int]:
        text = bytes(buffer)
        end = len(text) if final else text.rfind(b"\n") + 1
        if not final and len(text) - end > _LONGEST:
            self.skip("no line of text", end)
            end = len(text)
        lines = _Lines()
        at = 0
        while at < end:
            stop = text.find(b"\n", at, end)
            stop = end if stop < 0 else stop
            fits = stop - at <= _LONGEST
            reason = self._line(text[at:stop], at, lines) if fits else "no line of text"
            if reason:
                self.skip(reason, at)
            at = stop + 1
        return self._batches(lines), end

    def _line(self, line: bytes, at: int, lines: "_Lines") -> str:
        """Read one line; say why it is left out, or nothing."""
        mark = line.rfind(_MARK + b",")
        if mark < 0:
            if (columns := _columns(line.strip())) is not None:
                self._columns = columns
                return ""
            return "other text" if line.strip() else ""
        # What stands before the last mark is a line that was interrupted by this one.
        if mark > 0 and _MARK in line[:mark]:
            self.skip("interrupted line", at)
        match = next(filter(None, map(_LINE.fullmatch, _as_sent(line, mark))), None)
        if match is None:
            return "cut or garbled line"
        before, after = [_MARK, *match[1].split(b",")], re.findall(_AFTER, match[3])
        fields = [*before, b"", *after]
        columns = self._named(len(fields), len(before))
        if columns is None and len(after) == 1:
            # One column behind the buffer that nothing names: the listener's, as the time of day.
            del fields[-1]
            columns = self._named(len(fields), len(before))
        if columns is None:
            return f"{len(fields)} columns without a header that names them (put it before them)"
        frame = _integers(columns, fields)
        if frame is None:
            return "cut or garbled line"
        text = match[2].strip()
        if _NUMBERS.fullmatch(text) is None:
            return "cut or garbled line"
        numbers = np.fromstring(text.replace(b",", b" ").decode(), np.int16, sep=" ")
        size = len(numbers)
        part = _part(size, frame) if "bandwidth" in frame else _part_of_newer_chip(size)
        # ESP32-CSI-Tool may print only the legacy field of a longer buffer.
        whole = frame.get("len", size) == size or size == 128
        if part is None or not whole:
            return f"buffer of {size} bytes, {frame.get('len', 'none')} announced"
        return lines.add(part, frame, numbers)

    def _named(self, count: int, place: int) -> tuple[str, ...] | None:
        """The names of so many columns with the buffer at ``place``; None if nothing tells them."""
        columns = self._columns
        if columns is not None and len(columns) == count and columns.index("data") == place:
            return columns
        known = _DIALECTS.get(count) if place == count - 1 else None
        return None if known is None else _in_our_words(known.split(","))

    def _batches(self, lines: "_Lines") -> list[Batch]:
        clock = np.array(lines.clock, np.int64)
        ticks = unwrap(clock, 32, self._clock)
        if len(ticks):
            self._clock = (int(clock[-1]), int(ticks[-1]))
        return [_batch(kind, frames, ticks) for kind, frames in lines.kinds.items()]


def _batch(kind: Kind, frames: "list[_Frame]", ticks: npt.NDArray[np.int64]) -> Batch:
    pairs = np.array([frame.pairs for frame in frames])  # (packets, subcarriers, 2)
    return Batch(
        kind,
        ticks[[frame.place for frame in frames]] * np.float64(1e-6),
        np.array([frame.rssi for frame in frames], np.float32),
        np.array([frame.number for frame in frames], np.int64),
        lambda: _complex(pairs),
    )


@lru_cache(maxsize=64)
def _rising(part: _Part, numbered: bool) -> tuple[Kind, npt.NDArray[np.int64]]:
    """The kind of a part's frames, and the order that sorts its subcarriers.

    Parts that differ in their order alone are of one kind: their frames stay in the order in which
    they came.
    """
    subcarriers = tuple(sorted(part.subcarriers))
    kind = Kind(part.device, part.bandwidth, 1, 1, subcarriers, 32 if numbered else 0)
    return kind, np.argsort(part.subcarriers)


def _complex(pairs: npt.NDArray[np.int8]) -> npt.NDArray[np.complex64]:
    """[packets, subcarriers, 1, 1] from pairs with the imaginary part first."""
    csi = np.empty(pairs.shape[:2], np.complex64)
    csi.real, csi.imag = pairs[:, :, 1], pairs[:, :, 0]
    return csi[:, :, None, None]


@dataclass(frozen=True, eq=False)
class _Frame:
    place: int
    rssi: int
    number: int
    pairs: npt.NDArray[np.int8]


class _Lines:
    """What the lines of one feed said."""

    def __init__(self) -> None:
        self.clock: list[int] = []
        self.kinds: dict[Kind, list[_Frame]] = {}

    def add(self, part: _Part, frame: Mapping[str, int], numbers: npt.NDArray[np.int16]) -> str:
        chosen = numbers[2 * part.first : 2 * (part.first + len(part.subcarriers))]
        if chosen.min() < -128 or chosen.max() > 127:
            return "values that are no 8-bit numbers"
        number = frame.get("id", 0) & 0xFFFFFFFF
        kind, order = _rising(part, "id" in frame)
        pairs = chosen.astype(np.int8).reshape(-1, 2)[order]  # (subcarriers, 2)
        self.kinds.setdefault(kind, []).append(
            _Frame(len(self.clock), frame["rssi"], number, pairs)
        )
        self.clock.append(frame["local_timestamp"] & 0xFFFFFFFF)
        return ""


_WANTED = frozenset(
    {"rssi", "local_timestamp", "bandwidth", "stbc", "secondary_channel", "len", "id"}
)


def _integers(columns: Sequence[str], fields: Sequence[bytes]) -> dict[str, int] | None:
    """The wanted fields as numbers; None where one of them is none."""
    frame = {}
    for name, value in zip(columns, fields, strict=True):
        if name in _WANTED:
            if _INTEGER.fullmatch(value) is None:
                return None
            frame[name] = int(value)
    if not -200 <= frame["rssi"] <= 127:
        return None
    return frame
