"""Subcarriers: which tones a device reports, and which of them carry nothing.

Indices are centred: 0 is the carrier, negative ones lie below it. Pilots are kept everywhere:
their phase is known to the receiver, so their channel is as good as any other's.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fedapa.errors import CaptureError

__all__ = ["LIMITS", "all_tones", "intel_tones", "live", "segments", "used_tones"]

_EDGE = {20: 28, 40: 58, 80: 122}
_GUARD = {20: 0, 40: 1, 80: 1}
_LEGACY_EDGE = 26

LIMITS = {"nexmon 43455c0": 32767, "nexmon 4339": 32767, "esp32": 127, "intel 5300": 127}
"""The largest value a device's number format holds: at it, a sample is clipped."""


@lru_cache
def all_tones(bandwidth: int) -> tuple[int, ...]:
    """Every bin of the FFT: 64, 128 or 256 of them for 20, 40 and 80 MHz."""
    half = bandwidth * 8 // 5
    return tuple(range(-half, half))


@lru_cache
def used_tones(bandwidth: int, *, legacy: bool = False) -> tuple[int, ...]:
    """The tones that carry data or pilots: 56 (legacy 52), 114, 242; for 160 MHz two times 242."""
    if bandwidth == 160:
        lower = tuple(k - 128 for k in used_tones(80))
        return (*lower, *(k + 256 for k in lower))
    edge = _LEGACY_EDGE if legacy else _EDGE[bandwidth]
    guard = 0 if legacy else _GUARD[bandwidth]
    return tuple(k for k in range(-edge, edge + 1) if abs(k) > guard)


@lru_cache
def intel_tones(bandwidth: int) -> tuple[int, ...]:
    """The 30 tones that an Intel 5300 reports: every 2nd of 20 MHz, every 4th of 40 MHz."""
    if bandwidth == 40:
        return tuple(range(-58, 59, 4))
    return (*range(-28, -1, 2), -1, *range(1, 28, 2), 28)


def live(
    device: str, bandwidth: int, subcarriers: Sequence[int] | npt.NDArray[np.int16]
) -> npt.NDArray[np.bool_]:
    """[subcarriers] True for the tones that carry data or pilots on this device.

    Intel cards report no nulls, so all of theirs are live. An ESP32's legacy training field has 52
    tones, of which the one next to the carrier is spoilt by the first word of the buffer.
    """
    tones = np.asarray(subcarriers, np.int64)
    family = device.split()[0] if device.split() else ""
    if family in ("intel", "feitcsi", "simulated") and not _is_full_band(tones, bandwidth):
        return np.ones(len(tones), np.bool_)
    if bandwidth not in _EDGE:
        raise CaptureError(
            f"{device}: which subcarriers of {bandwidth} MHz carry nothing is not known; "
            f"known: {', '.join(map(str, _EDGE))} MHz"
        )
    legacy = "lltf" in device.split() or "legacy" in device.split()
    kept = np.isin(tones, used_tones(bandwidth, legacy=legacy))
    if "lltf" in device.split():
        kept &= tones != 1
    return kept


def _is_full_band(tones: npt.NDArray[np.int64], bandwidth: int) -> bool:
    return len(tones) == bandwidth * 16 // 5


def segments(bandwidth: int, subcarriers: npt.NDArray[np.int16]) -> list[npt.NDArray[np.int64]]:
    """The positions of the tones in each 20 MHz part of the band, from low to high.

    A part that the device reports no tone of is left out.
    """
    tones = np.asarray(subcarriers, np.int64)
    count = bandwidth // 20
    # High-efficiency frames have four times as many tones to the megahertz.
    half = 32 * count * (4 if len(tones) > 2 * 64 * count else 1)
    part = np.clip((tones + half) * count // (2 * half), 0, count - 1)
    return [found for i in range(count) if len(found := np.flatnonzero(part == i))]
