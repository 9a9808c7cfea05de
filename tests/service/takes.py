"""Packets of rooms in which nobody moves, or somebody does: without any physics, or simulated."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from fedapa.csi.capture import Capture
from fedapa.csi.nexmon_writer import write_nexmon
from fedapa.service.sources import SimulatedStay, follow

SUBCARRIERS = 40


def packets_of(
    amplitude: np.ndarray, *, rate: float, start: float = 0.0, device: str = "test"
) -> Capture:
    """A capture with these amplitudes [packets, subcarriers], at an even rate."""
    count, width = amplitude.shape
    return Capture(
        csi=amplitude.astype(np.complex64)[:, :, None, None],
        timestamps=start + np.arange(count) / rate,
        rssi=np.zeros(count, np.float32),
        device=device,
        bandwidth=20,
        subcarriers=np.r_[-(width // 2) : 0, 1 : width - width // 2 + 1].astype(np.int16),
    )


def quiet(
    seconds: float, *, rate: float = 50.0, start: float = 0.0, seed: int = 0, device: str = "test"
) -> Capture:
    """Noise alone, over a room's shape."""
    draw = np.random.default_rng(seed)
    count = int(seconds * rate) + 1
    shape = 2 + np.sin(np.arange(SUBCARRIERS) / 5)
    noise = np.exp(draw.normal(0, 0.02, (count, SUBCARRIERS)))
    return packets_of(shape * noise, rate=rate, start=start, device=device)


def moving(
    seconds: float,
    *,
    since: float = 0.0,
    until: float = np.inf,
    depth: float = 0.1,
    **how: float,
) -> Capture:
    """The same with slow waves over time and subcarriers between two moments."""
    still = quiet(seconds, **how)  # type: ignore[arg-type]
    passed = still.timestamps - still.timestamps[0]
    wave = np.sin(2 * np.pi * 0.4 * passed[:, None] + np.arange(SUBCARRIERS) / 3)
    wave *= ((passed >= since) & (passed < until))[:, None]
    csi = still.csi[:, :, 0, 0] * np.exp(depth * wave)
    return replace(still, csi=csi.astype(np.complex64)[:, :, None, None])


def simulated_take(path: Path, people: int, seconds: float, *, number: int = 0) -> Path:
    """A simulated take in the living room as a Nexmon file."""
    source = SimulatedStay(
        "living room", people, preset="smoke", seconds=seconds, number=number, paced=False
    )
    pieces = [piece.capture for piece in follow(source)]
    write_nexmon(Capture.joined(pieces), path)
    return path
