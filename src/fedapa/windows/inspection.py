"""Inspection: what a capture file holds, what is wrong with it, and how many windows it gives."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedapa.csi.capture import Capture, packet_rates
from fedapa.csi.reading import read_chunks
from fedapa.csi.subcarriers import LIMITS, live
from fedapa.windows.clean import band_levels, occupied
from fedapa.windows.recipe import EMPTY

__all__ = ["Inspection", "inspect_capture", "thumbnail"]

_GAP = 10.0
"""A silence of so many usual intervals is a gap."""
_LOUD = 5.0
"""A live subcarrier so many times louder than nine tenths of them holds no channel."""


@dataclass(frozen=True)
class Inspection:
    """What ``fedapa inspect`` says about one file."""

    file: str
    """Its path, as it was given."""
    device: str
    synthetic: bool
    bandwidth: int
    subcarriers: int
    live_subcarriers: int
    rx: int
    tx: int
    packets: int
    seconds: float
    rate: float
    """Packets per second within bursts, by the median interval; 0 where it cannot be told."""
    mean_rate: float
    """Packets over seconds, gaps and all; 0 where it cannot be told."""
    loss: float | None
    """Share of packets that are missing, None where it cannot be told."""
    loss_by: str
    """"sequence": by the sender's numbers; "time": by the usual interval."""
    gaps: int
    longest_gap: float
    steps_back: int
    """How often the clock was set back."""
    band: tuple[float, ...]
    """Mean level of each 20 MHz part, from low to high, as a share of the strongest."""
    occupied: float
    """Share of packets that fill the whole band."""
    rssi: tuple[float, float, float] | None
    """Lowest, median, highest dBm."""
    clipped: float | None
    """Share of packets with a value at the limit of the device's numbers; None: has no such."""
    loud: tuple[int, ...]
    """Live subcarriers that hold something else than the channel."""
    window: int
    windows: int
    """Windows of that length, without overlap, from the packets that fill the band."""
    left_out: dict[str, int]
    """Frames that were not read, and packets that would be dropped, by reason."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def inspect_capture(
    path: str | Path,
    *,
    chip: str | None = None,
    salvage: bool = False,
    window: int = 1000,
) -> Inspection:
    """Look through a capture of any length, in bounded memory."""
    path = Path(path)
    times: list[npt.NDArray[np.float64]] = []
    heard: list[npt.NDArray[np.float32]] = []
    numbers: list[npt.NDArray[np.int64]] = []
    full = clipped = 0
    level: npt.NDArray[np.float64] | None = None
    loudness: npt.NDArray[np.float64] | None = None
    last: Capture | None = None
    for last in read_chunks(path, chip, salvage=salvage):
        times.append(last.timestamps)
        heard.append(last.rssi)
        if last.sequence is not None:
            numbers.append(last.sequence)
        full += int(occupied(last, gate=EMPTY).sum())
        clipped += _clipped(last)
        levels = band_levels(last).sum(axis=0, dtype=np.float64)
        level = levels if level is None else level + levels
        sums = np.abs(last.csi).sum(axis=(0, 2, 3), dtype=np.float64)
        loudness = sums if loudness is None else loudness + sums
    assert last is not None and level is not None and loudness is not None  # or it had raised
    stamps = np.concatenate(times)
    packets = len(stamps)
    alive = live(last.device, last.bandwidth, last.subcarriers)
    steps = np.diff(stamps)
    usual = float(np.median(steps[steps > 0])) if (steps > 0).any() else 0.0
    silent = steps[steps > _GAP * usual] if usual else steps[:0]
    rate, mean_rate = packet_rates(stamps)
    loss, loss_by = _loss(stamps, numbers, last.sequence_bits, usual)
    left_out = dict(last.skipped)
    if full < packets:
        left_out[f"a 20 MHz part of the {last.bandwidth} MHz is empty"] = packets - full
    usually = np.percentile(loudness[alive], 90)
    return Inspection(
        file=str(path),
        device=last.device,
        synthetic=last.synthetic,
        bandwidth=last.bandwidth,
        subcarriers=len(last.subcarriers),
        live_subcarriers=int(alive.sum()),
        rx=last.csi.shape[2],
        tx=last.csi.shape[3],
        packets=packets,
        seconds=float(stamps.max() - stamps.min()),
        rate=rate,
        mean_rate=mean_rate,
        loss=loss,
        loss_by=loss_by,
        gaps=len(silent),
        longest_gap=float(silent.max(initial=0.0)),
        steps_back=int((steps < 0).sum()),
        band=tuple(np.round(level / max(level.max(), 1e-30), 4).tolist()),
        occupied=full / packets,
        rssi=_range(np.concatenate(heard)),
        clipped=None if _limit(last.device) is None else clipped / packets,
        loud=tuple(last.subcarriers[alive & (loudness > _LOUD * usually)].tolist()),
        window=window,
        windows=full // window,
        left_out=left_out,
    )


def _limit(device: str) -> int | None:
    return next((limit for name, limit in LIMITS.items() if device.startswith(name)), None)


def _clipped(capture: Capture) -> int:
    limit = _limit(capture.device)
    if limit is None:
        return 0
    kept = live(capture.device, capture.bandwidth, capture.subcarriers)
    parts = np.ascontiguousarray(capture.csi[:, kept]).view(np.float32)
    return int((np.abs(parts) >= limit).any(axis=(1, 2, 3)).sum())


def _range(rssi: npt.NDArray[np.float32]) -> tuple[float, float, float] | None:
    told = rssi[np.isfinite(rssi)]
    if not len(told):
        return None
    return tuple(float(level) for level in (told.min(), np.median(told), told.max()))  # type: ignore[return-value]


def _loss(
    stamps: npt.NDArray[np.float64],
    numbers: list[npt.NDArray[np.int64]],
    bits: int,
    usual: float,
) -> tuple[float | None, str]:
    """What share of packets is missing: by their numbers if they count up, else by time."""
    if numbers and len(stamps) > 2:
        full, sequence = 1 << bits, np.concatenate(numbers)
        steps = (sequence[1:] - sequence[:-1]) % full
        ahead = steps[(steps > 0) & (steps < full // 2)]
        # Numbers that jump are shared with frames that were never meant for us.
        if len(ahead) > len(steps) // 2 and np.median(ahead) <= 2:
            return float(1 - len(ahead) / ahead.sum()), "sequence"
    forward = np.diff(stamps)
    forward = forward[forward > 0]
    # Of packets that come in bursts nobody knows when the missing ones were due.
    regular = usual and np.mean(np.abs(forward - usual) < usual / 2) > 0.5
    if regular and len(forward) > 1:
        loss = float(max(0.0, 1 - len(forward) * usual / forward.sum()))
        # Most intervals are the usual one, yet they fill less than half of the time: bursts too.
        return (loss, "time") if loss < 0.5 else (None, "")
    return None, ""


def thumbnail(
    path: str | Path, *, chip: str | None = None, salvage: bool = False, rows: int = 600
) -> tuple[npt.NDArray[np.float32], int, Capture]:
    """Amplitude [rows, subcarriers] of the first link, thinned out over the whole file.

    Also how many packets there are, and the last chunk, for what it says.
    """
    total = sum(chunk.packets for chunk in read_chunks(path, chip, salvage=salvage))
    step = max(1, -(-total // rows))
    kept: list[npt.NDArray[np.float32]] = []
    last: Capture | None = None
    for last, skip in _with_phase(read_chunks(path, chip, salvage=salvage), step):
        kept.append(np.abs(last.csi[skip::step, :, 0, 0]))
    assert last is not None  # an empty file has raised
    return np.concatenate(kept), total, last


def _with_phase(chunks: Iterator[Capture], step: int) -> Iterator[tuple[Capture, int]]:
    """Each chunk with the first of its packets that a comb of ``step`` over all of them hits."""
    seen = 0
    for chunk in chunks:
        yield chunk, -seen % step
        seen += chunk.packets
