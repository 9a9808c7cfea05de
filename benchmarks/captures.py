"""Reading captures: packets per second, side by side with csiread on the same files.

40,000 packets each: Nexmon of 80 MHz as a Raspberry Pi records it, Intel 5300 of 3 × 2 antennas
with changing antenna selection. The readers take turns, each keeps its best time, and both read
from a file that the system has cached.
"""

import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedapa.csi.capture import Capture
from fedapa.csi.nexmon_writer import write_nexmon
from fedapa.csi.reading import read_capture
from fedapa.csi.subcarriers import all_subcarriers

__all__ = ["measure"]

_PACKETS = 40_000
_ROUNDS = 15


def measure() -> dict[str, dict[str, float | None]]:
    """Packets a second of ours and of csiread, and their ratio; None where csiread is missing."""
    with tempfile.TemporaryDirectory() as folder:
        nexmon, intel = Path(folder) / "nexmon.pcap", Path(folder) / "intel.dat"
        _write_nexmon(nexmon)
        _write_intel(intel)
        return {
            "nexmon": _compare(nexmon, _csiread_nexmon),
            "intel5300": _compare(intel, _csiread_intel),
        }


def _compare(path: Path, theirs: Callable[[Any, Path], int]) -> dict[str, float | None]:
    try:
        import csiread
    except ImportError:  # there is no build for every machine
        csiread = None
    ours: list[float] = []
    others: list[float] = []
    for _ in range(_ROUNDS):
        ours.append(_seconds(lambda: read_capture(path).packets))
        if csiread is not None:
            others.append(_seconds(lambda: theirs(csiread, path)))
    rate = _PACKETS / min(ours)
    if not others:
        return {"ours": round(rate), "csiread": None, "ratio": None}
    other = _PACKETS / min(others)
    return {"ours": round(rate), "csiread": round(other), "ratio": round(rate / other, 2)}


def _seconds(read: Callable[[], int]) -> float:
    began = time.perf_counter()
    packets = read()
    taken = time.perf_counter() - began
    if packets != _PACKETS:
        raise RuntimeError(f"{packets} packets read, {_PACKETS} written")
    return taken


def _csiread_nexmon(csiread: Any, path: Path) -> int:
    reader = csiread.Nexmon(str(path), chip="43455c0", bw=80, if_report=False)
    reader.read()
    return len(reader.csi)


def _csiread_intel(csiread: Any, path: Path) -> int:
    reader = csiread.Intel(str(path), nrxnum=3, ntxnum=2, if_report=False)
    reader.read()
    return len(reader.csi)


def _write_nexmon(path: Path) -> None:
    subcarriers = all_subcarriers(80)
    numbers = np.arange(_PACKETS * len(subcarriers), dtype=np.int64)
    parts = np.stack([numbers * 7919 % 4001 - 2000, numbers * 104729 % 4001 - 2000], axis=1)
    write_nexmon(
        Capture(
            csi=parts.astype(np.float32)
            .view(np.complex64)
            .reshape(_PACKETS, len(subcarriers), 1, 1),
            timestamps=np.arange(_PACKETS) / 1000,
            rssi=np.full(_PACKETS, -50, np.float32),
            device="nexmon 43455c0",
            bandwidth=80,
            subcarriers=np.array(subcarriers, np.int16),
        ),
        path,
    )


def _write_intel(path: Path) -> None:
    """The CSI is any bits: how they are read does not depend on their values."""
    size = (30 * (3 * 2 * 16 + 3) + 7) // 8
    payload = bytes(i * 7919 % 251 for i in range(size))
    selections = (0b100100, 0b000110, 0b010010)
    with path.open("wb") as file:
        for i in range(_PACKETS):
            head = struct.pack(
                "<IHHBBBBBbBBHH",
                *(1000 * i, i & 0xFFFF, 0, 3, 2, 40, 41, 42, -90, 30),
                *(selections[i // 7 % 3], size, 0x0101),
            )
            file.write(struct.pack(">HB", 21 + size, 0xBB) + head + payload)
