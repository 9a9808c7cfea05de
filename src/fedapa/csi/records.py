"""Records: what the readers of all formats share: bytes in, batches of equal frames out.

A format is a ``Decoder``. It is fed bytes as they come, from a file or from a wire, keeps the
unfinished rest, and hands out ``Batch``es: frames of one ``Kind``, their headers read, their CSI
decoded only when asked for. So one decoder serves the whole file, the chunked and the live reader.
"""

import abc
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from fedapa.errors import CaptureError

__all__ = [
    "BLOCK",
    "Batch",
    "Buffer",
    "Bytes",
    "Decoder",
    "Kind",
    "places",
    "rows",
    "run_length",
    "unwrap",
]

Bytes = npt.NDArray[np.uint8]
Buffer: TypeAlias = bytes | memoryview

BLOCK = 512
"""Frames decoded at a time: their intermediate values then stay in the processor's cache."""
_REASONS = 32
"""That are told apart; garbage on a wire can give any number of them."""


@dataclass(frozen=True)
class Kind:
    """What all frames of one capture must have in common."""

    device: str
    bandwidth: int
    rx: int
    tx: int
    subcarriers: tuple[int, ...]
    sequence_bits: int = 0
    links: str = ""
    """Which antennas, where the frames name them."""
    synthetic: bool = False
    """The frames say that a simulator made them."""

    def __str__(self) -> str:
        return (
            f"{self.device}, {self.bandwidth} MHz, {len(self.subcarriers)} subcarriers, "
            f"{self.rx} rx × {self.tx} tx{f' ({self.links})' if self.links else ''}"
        )


@dataclass(frozen=True, eq=False)
class Batch:
    """Consecutive frames of one kind; ``decode`` makes their CSI [packets, subcarriers, rx, tx]."""

    kind: Kind
    timestamps: npt.NDArray[np.float64]
    rssi: npt.NDArray[np.float32]
    sequence: npt.NDArray[np.int64]
    decode: Callable[[], npt.NDArray[np.complex64]]

    def __len__(self) -> int:
        return len(self.timestamps)


class Decoder(abc.ABC):
    """Bytes of one format in, batches out.

    Args:
        name: what to call the source in messages, usually the file's name.
        salvage: search for the next sound frame after damaged bytes and count the damage;
            otherwise damage raises.
    """

    def __init__(self, name: str, *, salvage: bool = False) -> None:
        self.name = name
        self.salvage = salvage
        self.skipped: Counter[str] = Counter()
        self.first_skipped: tuple[int, str] | None = None
        self._rest = b""
        self._at = 0
        self._searched = -1

    def feed(self, data: Buffer) -> list[Batch]:
        """Take the next bytes; return the frames they completed."""
        return self._take(data, final=False)

    def read(self, data: Buffer) -> list[Batch]:
        """Take all there is, at once."""
        return self._take(data, final=True)

    def finish(self) -> list[Batch]:
        """There are no more bytes: return what was held back, count what was cut off."""
        return self._take(b"", final=True)

    def _take(self, data: Buffer, *, final: bool) -> list[Batch]:
        buffer = memoryview(b"".join([self._rest, data]) if self._rest else data)
        batches, used = self._decode(buffer, final=final)
        self._rest = bytes(buffer[used:])
        self._at += used
        return batches

    @abc.abstractmethod
    def _decode(self, buffer: memoryview, *, final: bool) -> tuple[list[Batch], int]:
        """The frames in ``buffer`` and how many of its bytes are done with.

        ``final`` says that no bytes follow.
        """

    def skip(self, reason: str, at: int, count: int = 1) -> None:
        """Count frames that are left out; ``at`` is the first one's place in the buffer."""
        if count:
            known = reason in self.skipped or len(self.skipped) < _REASONS
            self.skipped[reason if known else "other reasons"] += count
            if self.first_skipped is None or self._at + at < self.first_skipped[0]:
                self.first_skipped = (self._at + at, reason)

    def damaged(self, at: int, found: str, expected: str) -> None:
        """Bytes that are no record of this format: an error, or a count when salvaging."""
        if not self.salvage:
            raise CaptureError(
                f"{self.name}@{self._at + at}: {found}; expected {expected}; the file is damaged "
                "from there on: copy it again, or read it with salvage to leave damaged parts out"
            )
        if not self.searching(at):
            self.skip("damaged bytes", at)

    def search_on(self, at: int) -> int:
        """Damage reaches to the end of the buffer: go on from ``at`` with the next bytes."""
        self._searched = self._at + at
        return at

    def searching(self, at: int) -> bool:
        """Whether what is at ``at`` belongs to damage that was counted with earlier bytes."""
        return self._at + at == self._searched

    def cut_off(self, at: int) -> None:
        """The source ends within a record."""
        if not self.searching(at):
            self.skip("cut off at the end", at)


@lru_cache(maxsize=8)
def _steps(count: int) -> npt.NDArray[np.int64]:
    return np.arange(count, dtype=np.int64)


def rows(buffer: Bytes, starts: npt.NDArray[np.int64], size: int) -> Bytes:
    """[frames, size] bytes from each start; a view where the starts are evenly spaced.

    Raises IndexError rather than reach beyond the buffer.
    """
    count = len(starts)
    if not count or size < 1:
        return np.zeros((count, max(size, 0)), np.uint8)
    if starts.min() < 0 or starts.max() + size > len(buffer):
        raise IndexError("frame reaches beyond the buffer")
    windows = np.lib.stride_tricks.sliding_window_view(buffer, size)
    step = int(starts[1] - starts[0]) if count > 1 else 1
    if step > 0 and np.array_equal(starts, starts[0] + step * _steps(count)):
        return windows[int(starts[0]) :: step][:count]
    return windows[starts]


def run_length(count: int, sound: Callable[[int, int], npt.NDArray[np.bool_]]) -> int:
    """How many of ``count`` things in a row are sound; ``sound`` tells it of those in a range.

    It asks for ever longer ranges: a short run costs little, a long one few questions.
    """
    begin, step = 0, 64
    while begin < count:
        answers = sound(begin, min(begin + step, count))
        if not answers.all():
            return begin + int(answers.argmin())
        begin, step = begin + step, 4 * step
    return count


Key = TypeVar("Key", bound=Hashable)


def places(keys: Sequence[Key]) -> dict[Key, npt.NDArray[np.int64]]:
    """Where each distinct key occurs, in time that does not grow with how many are distinct."""
    numbers: dict[Key, int] = {}
    ids = np.fromiter((numbers.setdefault(key, len(numbers)) for key in keys), np.int64, len(keys))
    order = np.argsort(ids, kind="stable")
    edges = np.searchsorted(ids[order], np.arange(len(numbers) + 1))
    return {key: order[edges[i] : edges[i + 1]] for key, i in numbers.items()}


def unwrap(
    stamps: npt.NDArray[np.int64], bits: int, before: tuple[int, int] | None
) -> npt.NDArray[np.int64]:
    """A counter of ``bits`` bits without its overflows; a step back of less than half stays one.

    ``before`` is the last raw and the last unwrapped value of what came earlier.
    """
    if not len(stamps):
        return stamps
    full, half = 1 << bits, 1 << (bits - 1)
    raw, total = before if before is not None else (int(stamps[0]), int(stamps[0]))
    steps = np.diff(stamps, prepend=raw)
    return total + np.cumsum((steps + half) % full - half)
