"""Reading: captures of any known format, whole, in chunks, or as they come over a wire.

The format is recognised by content. A capture's frames must be alike: of several kinds (widths,
antennas, chips) the most frequent is kept and the rest is counted.
"""

import contextlib
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from fedapa.csi.capture import Capture
from fedapa.csi.esp32 import Esp32Decoder, is_esp32
from fedapa.csi.feitcsi import FeitCsiDecoder, is_feitcsi
from fedapa.csi.intel5300 import Intel5300Decoder, is_intel5300
from fedapa.csi.nexmon import NexmonDecoder
from fedapa.csi.nexmon_format import check_chip
from fedapa.csi.pcap import is_pcap
from fedapa.csi.records import Batch, Decoder, Kind
from fedapa.errors import CaptureError, nearest

__all__ = ["CaptureStream", "format_of", "read_capture", "read_chunks"]

_HEAD = 1 << 16
"""The format is recognised within so many bytes."""
_CHUNK = 1 << 23
_LOOKED_AT = 1000
"""Of the files in a folder, to name a capture among them."""

_FORMATS: tuple[tuple[str, Callable[[bytes], bool]], ...] = (
    ("nexmon", is_pcap),
    ("esp32", is_esp32),
    ("intel5300", is_intel5300),
    ("feitcsi", is_feitcsi),
)


def read_capture(
    path: str | Path, chip: str | None = None, *, scaled: bool = False, salvage: bool = False
) -> Capture:
    """Read a whole capture file: Nexmon pcap or pcapng, ESP32 CSV, Intel 5300, or FeitCSI.

    Args:
        path: the file; its format is recognised by its content, not by its name.
        chip: the Broadcom chip of a Nexmon capture whose frames do not tell it.
        scaled: Intel 5300 only: scale to signal-to-noise units instead of the card's integers.
        salvage: leave damaged parts of the file out, counted in ``skipped``, instead of raising.

    Raises:
        CaptureError: naming file, offset, what was found and what was expected.
    """
    path = Path(path)
    data = _read(path)
    decoder = _decoder(path.name, bytes(data[:_HEAD]), chip=chip, scaled=scaled, salvage=salvage)
    batches = decoder.read(data)
    kind, minority = _majority(decoder, _sizes(batches))
    kept = [batch for batch in batches if batch.kind == kind]
    return _capture(kept, skipped=_skipped(decoder, minority))


def read_chunks(
    path: str | Path,
    chip: str | None = None,
    *,
    scaled: bool = False,
    salvage: bool = False,
    size: int = _CHUNK,
    content: BinaryIO | None = None,
) -> Iterator[Capture]:
    """Read a capture file of any length in bounded memory: captures of about ``size`` bytes each.

    Together they hold the packets of ``read_capture``. The file is passed over twice: first to
    learn which kind of frame prevails, then to decode. What was skipped is told by the last one.

    Args:
        path: the file.
        chip: see ``read_capture``.
        scaled: see ``read_capture``.
        salvage: see ``read_capture``.
        size: bytes at a time.
        content: an open copy of the file to read instead; ``path`` then only names it.
    """
    path = Path(path)
    if size < 1:
        raise ValueError(f"size is {size}; chunks need at least one byte")
    totals: Counter[Kind] = Counter()
    decoder, batches = _pass(path, chip, scaled, salvage, size, content)
    for batch in batches:
        totals[batch.kind] += len(batch)
    kind, minority = _majority(decoder, totals)
    skipped = _skipped(decoder, minority)
    again, batches = _pass(path, chip, scaled, salvage, size, content)
    if isinstance(decoder, NexmonDecoder) and isinstance(again, NexmonDecoder):
        again.inferred = decoder.inferred
    left = totals[kind]
    for batch in batches:
        if batch.kind == kind:
            left -= len(batch)
            yield _capture([batch], skipped={} if left else skipped)


def _pass(
    path: Path,
    chip: str | None,
    scaled: bool,
    salvage: bool,
    size: int,
    content: BinaryIO | None,
) -> tuple[Decoder, Iterator[Batch]]:
    if content is None:
        _check_file(path)
    try:
        with _opened(path, content) as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise _unreadable(path, error) from error
    decoder = _decoder(path.name, head, chip=chip, scaled=scaled, salvage=salvage)

    def batches() -> Iterator[Batch]:
        try:
            with _opened(path, content) as file:
                while data := file.read(size):
                    yield from decoder.feed(data)
        except OSError as error:
            raise _unreadable(path, error) from error
        yield from decoder.finish()

    return decoder, batches()


@contextlib.contextmanager
def _opened(path: Path, content: BinaryIO | None) -> Iterator[BinaryIO]:
    """The file from its first byte on; a copy that was given stays open."""
    if content is not None:
        content.seek(0)
        yield content
        return
    with path.open("rb") as file:
        yield file


class CaptureStream:
    """Live CSI: bytes in, captures out; after garbage it finds the next sound frame.

    Args:
        name: what to call the source in messages.
        chip: see ``read_capture``.
        scaled: see ``read_capture``.
        form: "nexmon", "esp32", "intel5300" or "feitcsi"; without it the first bytes decide, and
            they must be sound.
    """

    def __init__(
        self,
        name: str = "stream",
        chip: str | None = None,
        *,
        scaled: bool = False,
        form: str | None = None,
    ) -> None:
        known = [known_form for known_form, _ in _FORMATS]
        if form is not None and form not in known:
            raise CaptureError(f"{name}: format '{form}' is unknown; {nearest(form, known)}")
        self._name = name
        self._form = form
        self._chip = check_chip(chip)
        self._scaled = scaled
        self._head = b""
        self._decoder: Decoder | None = None

    @property
    def skipped(self) -> dict[str, int]:
        """Frames left out so far, by reason."""
        return dict(self._decoder.skipped) if self._decoder is not None else {}

    def feed(self, data: bytes) -> list[Capture]:
        """Take the next bytes; return the packets they completed, one capture per kind of frame."""
        if self._decoder is None:
            self._head += data
            try:
                self._decoder = _decoder(
                    self._name,
                    self._head,
                    chip=self._chip,
                    scaled=self._scaled,
                    salvage=True,
                    form=self._form,
                )
            except CaptureError:
                # Too little to tell, or the end of something else: wait for more, but not forever.
                if len(self._head) > _HEAD:
                    raise
                return []
            data, self._head = self._head, b""
        return [_capture([batch], skipped={}) for batch in self._decoder.feed(data)]

    def finish(self) -> list[Capture]:
        """The stream has ended: return what was held back."""
        if self._decoder is None:
            return []
        return [_capture([batch], skipped={}) for batch in self._decoder.finish()]


def format_of(path: str | Path) -> str | None:
    """Which known format a file has, by its content; None where it is no capture."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise _unreadable(Path(path), error) from error
    return _recognised(head)


def _recognised(head: bytes) -> str | None:
    return next((known for known, recognises in _FORMATS if recognises(head)), None)


def _check_file(path: Path) -> None:
    if path.is_dir():
        below = itertools.islice((file for file in path.rglob("*") if file.is_file()), _LOOKED_AT)
        captures = (file for file in sorted(below) if os.access(file, os.R_OK) and format_of(file))
        first = next(captures, None)
        raise CaptureError(
            f"{path}: is a folder; expected a capture file"
            + (f", e.g. {first}" if first else ", and no capture is in it")
            + "; 'fedapa import' makes a store of a folder"
        )
    if not path.is_file():
        problem = "is no regular file" if path.exists() else "no such file"
        raise CaptureError(f"{path}: {problem}; expected a capture file")


def _read(path: Path) -> memoryview:
    """The whole file; into an array, whose large pages come twice as fast as those of bytes.

    Not mapped: a file that shrinks meanwhile would end the process.
    """
    _check_file(path)
    try:
        with path.open("rb", buffering=0) as file:
            content = np.empty(os.fstat(file.fileno()).st_size, np.uint8).data
            filled = 0
            while filled < len(content) and (count := file.readinto(content[filled:])):
                filled += count
            return content[:filled]
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> CaptureError:
    return CaptureError(f"{path}: cannot be read: {error.strerror or error}")


def _decoder(
    name: str,
    head: bytes,
    *,
    chip: str | None,
    scaled: bool,
    salvage: bool,
    form: str | None = None,
) -> Decoder:
    form = form or _recognised(head)
    check_chip(chip)
    if chip is not None and form not in ("nexmon", None):
        raise CaptureError(
            f"{name}: chip='{chip}' is for Nexmon captures, this is {form}; leave it out"
        )
    if scaled and form not in ("intel5300", None):
        raise CaptureError(f"{name}: only Intel 5300 logs can be scaled, this is {form}")
    if form == "nexmon":
        return NexmonDecoder(name, chip=chip, salvage=salvage)
    if form == "intel5300":
        return Intel5300Decoder(name, scaled=scaled, salvage=salvage)
    if form == "feitcsi":
        return FeitCsiDecoder(name, salvage=salvage)
    if form == "esp32":
        return Esp32Decoder(name, salvage=salvage)
    begins = f"begins with {head[:16].hex(' ')}" if head else "is empty"
    raise CaptureError(
        f"{name}@0: {begins}; expected a Nexmon pcap or pcapng, ESP32 lines with CSI_DATA, an "
        "Intel 5300 log or a FeitCSI file"
    )


def _sizes(batches: list[Batch]) -> Counter[Kind]:
    totals: Counter[Kind] = Counter()
    for batch in batches:
        totals[batch.kind] += len(batch)
    return totals


def _majority(decoder: Decoder, totals: Counter[Kind]) -> tuple[Kind, Counter[str]]:
    """The most frequent kind, the first of equals, and how many packets of others there are."""
    if not totals:
        commonest = decoder.skipped.most_common(5)
        reasons = ", ".join(f"{count} × {reason}" for reason, count in commonest)
        at, _ = decoder.first_skipped or (0, "")
        raise CaptureError(
            f"{decoder.name}@{at}: no usable CSI frame; found {reasons or 'nothing'}; expected "
            "at least one"
        )
    kind = max(totals, key=lambda candidate: totals[candidate])
    minority = Counter(
        {f"{other}, where most are {kind}": n for other, n in totals.items() if other != kind}
    )
    return kind, minority


def _skipped(decoder: Decoder, minority: Counter[str]) -> dict[str, int]:
    return dict(sorted((decoder.skipped + minority).items()))


def _capture(batches: list[Batch], *, skipped: dict[str, int]) -> Capture:
    kind = batches[0].kind
    if len(batches) == 1:
        csi = batches[0].decode()
    else:
        packets = sum(map(len, batches))
        csi = np.empty((packets, len(kind.subcarriers), kind.rx, kind.tx), np.complex64)
        at = 0
        for batch in batches:
            csi[at : at + len(batch)] = batch.decode()
            at += len(batch)
    return Capture(
        csi=csi,
        timestamps=np.concatenate([batch.timestamps for batch in batches]),
        rssi=np.concatenate([batch.rssi for batch in batches]),
        device=kind.device,
        bandwidth=kind.bandwidth,
        subcarriers=np.array(kind.subcarriers, np.int16),
        synthetic=kind.synthetic,
        skipped=skipped,
        sequence=np.concatenate([batch.sequence for batch in batches])
        if kind.sequence_bits
        else None,
        sequence_bits=kind.sequence_bits,
    )
