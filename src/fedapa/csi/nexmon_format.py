"""The layout of Nexmon's datagrams: what reader and writer must agree on.

::

    magic 0x1111 · RSSI int8 · frame control | old firmware: 0x1111 again
    source MAC (6) · sequence control · core and stream · channel specification · chip
    CSI: 64, 128 or 256 words of 4 bytes, in the order of the FFT (0, 1, …, −1)

43455c0 and 4339 write int16 pairs; 4358 and 4366c0 pack sign, mantissa and a shared exponent into
a word.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fedapa.errors import CaptureError, nearest

__all__ = [
    "BANDWIDTHS",
    "CHIPS",
    "CODES",
    "HEADER",
    "PACKED",
    "PORT",
    "SIMULATED",
    "check_chip",
    "decode_words",
]

CHIPS = {0x0001: "4339", 0x0003: "4358", 0x0065: "43455c0", 0x006A: "4366c0"}
"""What the chip field says, by Nexmon's own numbering."""
PACKED = {"4358": (9, 5), "4366c0": (12, 6)}
"""Bits of mantissa (sign included) and exponent."""
BANDWIDTHS = {2: 20, 3: 40, 4: 80}
"""By bits 11 to 13 of the channel specification."""
PORT = 5500
HEADER = 18
CODES = {name: code for code, name in CHIPS.items()}
SIMULATED = np.frombuffer(b"\x02FEDAP", np.uint8)
"""The sender of simulated frames: a pcap has no other place that says so and survives a copy."""


def check_chip(chip: str | None) -> str | None:
    """A chip's name as the caller gave it, if it is one of ours."""
    if chip is not None and chip not in CHIPS.values():
        raise CaptureError(f"chip '{chip}' is unknown; {nearest(chip, CHIPS.values())}")
    return chip


def decode_words(
    words: npt.NDArray[np.uint32], chip: str, *, out: npt.NDArray[np.complex64]
) -> None:
    """Decode [frames, subcarriers] words in FFT order into ``out``, from low to high."""
    half = words.shape[1] // 2
    parts = out.view(np.float32)  # [frames, 2 × subcarriers]: real, imaginary, real, …
    pairs = _unpack(words, *PACKED[chip]) if chip in PACKED else words.view("<i2")
    parts[:, : 2 * half] = pairs[:, 2 * half :]
    parts[:, 2 * half :] = pairs[:, : 2 * half]


_BITS = 10
"""A packed frame is scaled so that its largest value has this many bits behind the first."""


def _unpack(words: npt.NDArray[np.uint32], mantissa: int, exponent: int) -> npt.NDArray[np.int32]:
    """[frames, 2 × subcarriers] integers from words of two mantissas with sign and one exponent."""
    values = words.astype(np.int32)
    mask = (1 << (mantissa - 1)) - 1
    real = values >> (exponent + mantissa) & mask
    imaginary = values >> exponent & mask
    scale = values & ((1 << exponent) - 1)
    scale -= (scale >> (exponent - 1)) << exponent  # two's complement
    size = real | imaginary
    top = np.where(size > 0, scale + _log2(mantissa - 1)[size], -(1 << (exponent - 1)))
    highest = np.maximum(top.max(axis=1, initial=-(1 << (exponent - 1)), keepdims=True), -128)
    shift = scale + (_BITS - highest)
    pairs = np.empty((len(words), 2 * words.shape[1]), np.int32)
    for place, magnitude, sign in (
        (0, real, exponent + 2 * mantissa - 1),
        (1, imaginary, exponent + mantissa - 1),
    ):
        # What is not zero is shifted up by at most _BITS; a zero may be shifted by anything.
        up = magnitude << np.clip(shift, 0, _BITS)
        down = magnitude >> np.clip(-shift, 0, 31)
        result = np.where(shift < -mantissa, 0, np.where(shift < 0, down, up))
        pairs[:, place::2] = np.where(values >> sign & 1, -result, result)
    return pairs


@lru_cache
def _log2(bits: int) -> npt.NDArray[np.int32]:
    """The place of the highest bit of every number of so many bits; of 0 it does not matter."""
    return np.array([max(n, 1).bit_length() - 1 for n in range(1 << bits)], np.int32)
