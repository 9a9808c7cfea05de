"""Capture: what one receiver wrote, whoever made it, a file or the simulator."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from fedapa.errors import CaptureError

__all__ = ["SIMULATED_DEVICE", "Capture", "data_kind", "packet_rates"]

SIMULATED_DEVICE = "simulated"
"""The device of what the simulator made, also where it was written in the format of another."""


def data_kind(synthetic: bool) -> str:
    """SIMULATED or real: what every table, figure and file says of its data."""
    return "SIMULATED" if synthetic else "real"


@dataclass(frozen=True, eq=False)
class Capture:
    """Complex channel state information of consecutive packets, with what is known about them."""

    csi: npt.NDArray[np.complex64]
    """[packets, subcarriers, rx, tx], in the device's own units, subcarriers from low to high."""
    timestamps: npt.NDArray[np.float64]
    """[packets] seconds, in the order received; the origin is the device's own.

    Ascending unless the device's clock was set back meanwhile.
    """
    rssi: npt.NDArray[np.float32]
    """[packets] dBm; NaN where the device says nothing."""
    device: str
    """e.g. "nexmon 43455c0", "intel 5300", "simulated"."""
    bandwidth: int
    """MHz: 20, 40, 80 or 160."""
    subcarriers: npt.NDArray[np.int16]
    """[subcarriers] centred indices: 0 is the carrier, negative ones lie below it."""
    synthetic: bool = False
    """True for everything the simulator made; it follows the data to every table and page."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Frames that were left out, by reason."""
    sequence: npt.NDArray[np.int64] | None = None
    """[packets] the sender's or driver's running number, modulo ``2**sequence_bits``."""
    sequence_bits: int = 0
    """How many bits that number has; 0 where there is none."""

    def __post_init__(self) -> None:
        """Refuse packets of which nobody knows when they came: no rate and no window has them."""
        unknown = np.flatnonzero(~np.isfinite(self.timestamps))
        if len(unknown):
            first = int(unknown[0])
            raise CaptureError(
                f"capture of device '{self.device}': the time stamp of packet {first} is "
                f"{self.timestamps[first]}; expected finite seconds; leave such packets out"
            )

    @property
    def packets(self) -> int:
        """Number of packets kept."""
        return len(self.csi)

    @classmethod
    def joined(cls, pieces: Sequence["Capture"]) -> "Capture":
        """One capture of several that follow each other, all of one receiver."""
        sequences = [piece.sequence for piece in pieces if piece.sequence is not None]
        return replace(
            pieces[0],
            csi=np.concatenate([piece.csi for piece in pieces]),
            timestamps=np.concatenate([piece.timestamps for piece in pieces]),
            rssi=np.concatenate([piece.rssi for piece in pieces]),
            sequence=np.concatenate(sequences) if len(sequences) == len(pieces) else None,
        )

    def part(self, rows: slice | npt.NDArray[np.int64]) -> "Capture":
        """Some of its packets; what was skipped is told by the whole."""
        return replace(
            self,
            csi=self.csi[rows],
            timestamps=self.timestamps[rows],
            rssi=self.rssi[rows],
            skipped={},
            sequence=None if self.sequence is None else self.sequence[rows],
        )


def packet_rates(timestamps: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Packets per second within bursts, and over all the time; 0 where it cannot be told.

    The first is by the median interval, so that gaps do not count: of packets that come in bursts
    the two are far apart, and only the second says how many there are.
    """
    steps = np.diff(timestamps)
    forward = steps[steps > 0]
    if not len(forward):
        return 0.0, 0.0
    lasts = float(timestamps.max() - timestamps.min())
    return 1 / float(np.median(forward)), len(steps) / lasts
