"""Subcarriers: which ones a device reports, and which of them carry nothing.

Indices are centred: 0 is the carrier, negative ones lie below it. Pilots are kept everywhere:
their phase is known to the receiver, so their channel is as good as any other's.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fedapa.csi.capture import SIMULATED_DEVICE
from fedapa.errors import CaptureError

__all__ = [
    "LIMITS",
    "all_subcarriers",
    "band_parts",
    "intel_subcarriers",
    "live",
    "used_subcarriers",
]

_LIVE = {20: (1, 28), 40: (2, 58), 80: (2, 122)}
"""By MHz: the first and the last live subcarrier on either side of the carrier (HT and VHT)."""
_LIVE_LEGACY = (1, 26)
_LIVE_HE = {20: (2, 122), 40: (3, 244), 80: (3, 500)}
"""High-efficiency frames have four times as many."""
_SPOILT = {("nexmon 43455c0", 20): (28,), ("esp32 lltf", 20): (1,)}
"""Live by the standard, but no channel on this device: 20 to 50 times the signal in a few distinct
values in 25 of 25 real files; the first word of an ESP32's buffer."""

LIMITS = {"nexmon 43455c0": 32767, "nexmon 4339": 32767, "esp32": 127, "intel 5300": 127}
"""The largest value a device's number format holds: at it, a sample is clipped."""


@lru_cache
def all_subcarriers(bandwidth: int) -> tuple[int, ...]:
    """Every bin of the FFT: 64, 128 or 256 of them for 20, 40 and 80 MHz."""
    half = bandwidth * 8 // 5
    return tuple(range(-half, half))


@lru_cache
def used_subcarriers(bandwidth: int, *, form: str = "") -> tuple[int, ...]:
    """Those that carry data or pilots: 56, 114, 242; for 160 MHz two times 242.

    ``form`` "legacy" has 52 at 20 MHz; "he" and "eht" have 242, 484, 996 and two times 996.
    """
    dense = form in ("he", "eht")
    if bandwidth == 160:
        quarter = 512 if dense else 128
        lower = tuple(k - quarter for k in used_subcarriers(80, form=form))
        return (*lower, *(k + 2 * quarter for k in lower))
    table = _LIVE_HE if dense else _LIVE
    first, last = _LIVE_LEGACY if form == "legacy" and bandwidth == 20 else table[bandwidth]
    return (*range(-last, -first + 1), *range(first, last + 1))


@lru_cache
def intel_subcarriers(bandwidth: int) -> tuple[int, ...]:
    """The 30 subcarriers that an Intel 5300 reports: every 2nd of 20 MHz, every 4th of 40 MHz."""
    if bandwidth == 40:
        return tuple(range(-58, 59, 4))
    return (*range(-28, -1, 2), -1, *range(1, 28, 2), 28)


def live(
    device: str, bandwidth: int, subcarriers: Sequence[int] | npt.NDArray[np.int16]
) -> npt.NDArray[np.bool_]:
    """[subcarriers] True for those that carry data or pilots, and hold the channel, on this device.

    Intel cards report no nulls, so all of theirs are live.
    """
    indices = np.asarray(subcarriers, np.int64)
    words = device.split()
    if words[:1] in (["intel"], ["feitcsi"], [SIMULATED_DEVICE]) and not _is_full_band(
        indices, bandwidth
    ):
        return np.ones(len(indices), np.bool_)
    if bandwidth not in _LIVE:
        raise CaptureError(
            f"{device}: which subcarriers of {bandwidth} MHz carry nothing is not known; "
            f"known: {', '.join(map(str, _LIVE))} MHz"
        )
    legacy = "lltf" in words or "legacy" in words
    kept = np.isin(indices, used_subcarriers(bandwidth, form="legacy" if legacy else ""))
    return kept & ~np.isin(indices, _SPOILT.get((device, bandwidth), ()))


def _is_full_band(indices: npt.NDArray[np.int64], bandwidth: int) -> bool:
    return len(indices) == bandwidth * 16 // 5


def band_parts(bandwidth: int, subcarriers: npt.NDArray[np.int16]) -> list[npt.NDArray[np.int64]]:
    """The positions of the subcarriers in each 20 MHz part of the band, from low to high.

    A part that the device reports no subcarrier of is left out.
    """
    indices = np.asarray(subcarriers, np.int64)
    count = bandwidth // 20
    # High-efficiency frames have four times as many subcarriers to the megahertz.
    half = 32 * count * (4 if len(indices) > 2 * 64 * count else 1)
    part = np.clip((indices + half) * count // (2 * half), 0, count - 1)
    positions = [np.flatnonzero(part == number) for number in range(count)]
    return [inside for inside in positions if len(inside)]
