"""Cleaning: from a capture's complex CSI to the amplitudes that windows are cut from.

Null subcarriers go, by device and bandwidth; frames go that do not fill the band they claim to
have; what is left becomes amplitude [packets, subcarriers, links]. On request the uneven packets
of a real network are put onto an even grid and low-passed. Cutting and decimation come later
(``slide``): a store keeps all packets.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fedapa.csi.capture import Capture
from fedapa.csi.subcarriers import live, segments
from fedapa.errors import DataError

__all__ = ["EMPTY", "Amplitudes", "band_levels", "clean", "low_pass", "occupied", "resample"]

EMPTY = 0.1
"""A 20 MHz part whose mean amplitude is below this share of the strongest part's is empty.

Real frames that fill their band stay above 0.6; half-filled ones came up to 0.083.
"""

_MOST_MADE_UP = 100
"""Packets of an even grid for each one that was recorded."""


@dataclass(frozen=True, eq=False)
class Amplitudes:
    """A capture after cleaning."""

    amplitude: npt.NDArray[np.float32]
    """[packets, subcarriers, links]; link = rx × number of tx + tx."""
    timestamps: npt.NDArray[np.float64]
    """[packets] seconds."""
    subcarriers: npt.NDArray[np.int16]
    """[subcarriers] centred indices of what is left."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Packets left out while cleaning, by reason."""


def clean(capture: Capture, *, nulls: bool = False, gate: float = EMPTY) -> Amplitudes:
    """Amplitudes of the live subcarriers of the fully occupied frames.

    Args:
        capture: what a receiver recorded.
        nulls: keep the null subcarriers too; they hold what the receiver left there, up to a
            thousand times the signal.
        gate: drop frames with a 20 MHz part below this share of the strongest; 0 keeps all.
    """
    kept = live(capture.device, capture.bandwidth, capture.subcarriers)
    packets = capture.packets
    tones = np.flatnonzero(kept | nulls)
    amplitude = np.abs(capture.csi[:, tones]).reshape(packets, len(tones), -1)
    timestamps = capture.timestamps
    dropped: Counter[str] = Counter()
    if gate > 0:
        full = occupied(capture, gate=gate)
        if not full.all():
            dropped[f"a 20 MHz part of the {capture.bandwidth} MHz is empty"] = int((~full).sum())
            amplitude, timestamps = amplitude[full], timestamps[full]
    return Amplitudes(amplitude, timestamps, capture.subcarriers[tones], dict(dropped))


def occupied(capture: Capture, *, gate: float = EMPTY) -> npt.NDArray[np.bool_]:
    """[packets] True for frames with signal in every 20 MHz part of their band."""
    level = band_levels(capture)
    strongest = level.max(axis=1, keepdims=True)
    full: npt.NDArray[np.bool_] = (level >= gate * strongest).all(axis=1) & (strongest[:, 0] > 0)
    return full


def band_levels(capture: Capture) -> npt.NDArray[np.float32]:
    """[packets, parts] mean amplitude of the live subcarriers in each 20 MHz part."""
    tones = np.flatnonzero(live(capture.device, capture.bandwidth, capture.subcarriers))
    parts = segments(capture.bandwidth, capture.subcarriers[tones])
    return np.stack(
        [np.abs(capture.csi[:, tones[part]]).mean(axis=(1, 2, 3)) for part in parts], axis=1
    )


def resample(
    cleaned: Amplitudes, *, rate: float, longest_gap: float = 0.5
) -> tuple[Amplitudes, ...]:
    """Put jittered or lossy packets onto an even grid of ``rate`` a second, by straight lines.

    Where no packet came for longer than ``longest_gap`` seconds nothing is made up: the recording
    is parted there. Parts of a single packet are left out and counted.
    """
    if not 0 < rate < np.inf or not 0 < longest_gap < np.inf:
        raise DataError(f"rate {rate} and longest gap {longest_gap} must be above 0 and finite")
    steps = np.diff(cleaned.timestamps)
    if (steps < 0).any():
        place = int((steps < 0).argmax()) + 1
        raise DataError(
            f"packet {place} is {-steps[place - 1]:.3f} s older than the one before it: the "
            "clock was set back; cut the file there, or leave the rate out"
        )
    edges = np.flatnonzero(steps > longest_gap) + 1
    parts = []
    dropped = Counter(cleaned.dropped)
    for begin, end in zip([0, *edges], [*edges, len(cleaned.timestamps)], strict=True):
        times, rows = cleaned.timestamps[begin:end], cleaned.amplitude[begin:end]
        # Of packets with one stamp the last counts: a line needs one value at one time.
        last = np.append(np.diff(times) > 0, True)
        times, rows = times[last], rows[last]
        if len(times) < 2:
            dropped["alone between two gaps"] += len(times)
            continue
        if (times[-1] - times[0]) * rate > _MOST_MADE_UP * len(times):
            raise DataError(
                f"{len(times)} packets in {times[-1] - times[0]:g} s are too few for a rate of "
                f"{rate:g} a second: more than {_MOST_MADE_UP} of each would be made up"
            )
        grid = times[0] + np.arange(int((times[-1] - times[0]) * rate + 1e-6) + 1) / rate
        parts.append((grid, _interpolate(grid, times, rows)))
    return tuple(
        Amplitudes(rows, grid, cleaned.subcarriers, dict(dropped) if number == 0 else {})
        for number, (grid, rows) in enumerate(parts)
    )


def _interpolate(
    grid: npt.NDArray[np.float64], times: npt.NDArray[np.float64], rows: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    after = np.clip(np.searchsorted(times, grid, side="right"), 1, len(times) - 1)
    share = np.clip((grid - times[after - 1]) / (times[after] - times[after - 1]), 0, 1)
    later = share.astype(np.float32)[:, None, None]
    return rows[after - 1] * (1 - later) + rows[after] * later


def low_pass(cleaned: Amplitudes, *, cutoff: float, rate: float) -> Amplitudes:
    """A 4th-order Butterworth low-pass at ``cutoff`` Hz, run both ways so that nothing is delayed.

    ``rate`` is the packets' rate; resample first where they are uneven.
    """
    if not 0 < cutoff < rate / 2:
        raise DataError(
            f"a low-pass at {cutoff:g} Hz needs more than {2 * cutoff:g} packets a second, "
            f"not {rate:g}"
        )
    from scipy import signal  # a second to import, and rarely needed

    sections = signal.butter(4, cutoff, fs=rate, output="sos")
    reach = 3 * (2 * len(sections) + 1)
    if len(cleaned.amplitude) <= reach:
        raise DataError(
            f"{len(cleaned.amplitude)} packets are too few to low-pass; at least {reach + 1}"
        )
    filtered = signal.sosfiltfilt(sections, cleaned.amplitude, axis=0).astype(np.float32)
    return Amplitudes(filtered, cleaned.timestamps, cleaned.subcarriers, cleaned.dropped)
