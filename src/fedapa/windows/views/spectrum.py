"""Spectrum: how much moves how fast; the power of *motion* by Doppler band and subcarrier."""

from functools import lru_cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fedapa.windows.views.view import Floats, Places, View, matrix_places, motion_of

__all__ = ["DOPPLER_EDGES", "Spectrum", "band_powers", "periodogram"]

DOPPLER_EDGES = tuple(0.25 * 2 ** (step / 2) for step in range(17))
"""Hz, sixteen bands of half an octave from 0.25 to 64: breathing below 0.35, limbs at 1 to 2,
walkers at 5 GHz up to about 50."""
_QUIETEST = 1e-9
"""Power per Hz that stands for none."""


class Spectrum(View):
    """[Doppler bands, links · subcarriers], log10 of the power per Hz.

    Bands are in Hz, so receivers of different packet rates agree. What lies above half the rate
    has no power.
    """

    name: ClassVar[str] = "spectrum"
    about: ClassVar[str] = "log power of what moves, by Doppler band and subcarrier"
    needs_rate: ClassVar[bool] = True
    fewest_packets: ClassVar[int] = 8

    def shape(self, packets: int, links: int, subcarriers: int) -> tuple[int, ...]:
        """Doppler bands by links and subcarriers."""
        return len(DOPPLER_EDGES) - 1, links * subcarriers

    def __call__(self, window: Floats, rate: float) -> Floats:
        """The logarithm of each band's mean power."""
        power = periodogram(motion_of(window).reshape(len(window), -1), rate)
        bands = band_powers(power, len(window), rate, DOPPLER_EDGES)
        return np.asarray(np.log10(bands + np.float32(_QUIETEST)), np.float32)

    def places(self, shape: tuple[int, ...], links: int) -> Places:
        """Of the links and subcarriers."""
        return matrix_places(shape, links, of_packets=False)


def periodogram(motion: Floats, rate: float) -> Floats:
    """Power per Hz [frequencies, columns] of motion [packets, columns], one-sided, by a Hann taper.

    The sum over all frequencies times their distance is the variance under the taper.
    """
    taper = _taper(len(motion))
    spectrum = np.fft.rfft(motion * taper[:, None], axis=0)  # (frequencies, columns)
    power = (spectrum.real**2 + spectrum.imag**2) * (2 / (rate * np.sum(taper**2)))
    return power.astype(np.float32)


def band_powers(power: Floats, packets: int, rate: float, edges: tuple[float, ...]) -> Floats:
    """Mean power per Hz [bands, columns]; a frequency counts by its overlap with the band.

    So a band that is narrower than the distance between two frequencies has the power of those
    around it, and one above half the rate has none.
    """
    return _overlaps(packets, rate, edges) @ power  # (bands, columns)


@lru_cache(maxsize=16)
def _taper(packets: int) -> Floats:
    return np.hanning(packets + 1)[:-1].astype(np.float32)  # periodic: a bin of motion stays one


@lru_cache(maxsize=16)
def _overlaps(packets: int, rate: float, edges: tuple[float, ...]) -> npt.NDArray[np.float32]:
    """[bands, frequencies] the share of each band that a frequency stands for."""
    distance = rate / packets
    middle = np.arange(packets // 2 + 1) * distance
    low, high = np.array(edges[:-1])[:, None], np.array(edges[1:])[:, None]
    inside = np.minimum(high, middle + distance / 2) - np.maximum(low, middle - distance / 2)
    return np.asarray(np.maximum(inside, 0) / (high - low), np.float32)
