"""How captures are read and cleaned on their way into a store."""

from dataclasses import dataclass

import numpy as np

from fedapa.errors import DataError
from fedapa.windows.clean import EMPTY

__all__ = ["Preparation", "check_preparation"]

_GAP = 0.5
_FASTEST = 10_000.0
"""Packets a second; no receiver reports more."""


@dataclass(frozen=True)
class Preparation:
    """How captures are read and cleaned on their way into the store."""

    chip: str | None = None
    salvage: bool = False
    skip_unreadable: bool = False
    """Leave out files that are no captures or damaged, instead of stopping."""
    gate: float = EMPTY
    rate: float | None = None
    """Resample to so many packets a second."""
    longest_gap: float | None = None
    """When resampling: part a recording where nothing came for so many seconds; None is 0.5."""
    low_pass: float | None = None
    """Hz."""

    @property
    def summary(self) -> str:
        """What it does to amplitudes, as noted about a room: one room is prepared in one way."""
        parts = [f"gate {self.gate:g}"]
        if self.rate is not None:
            parts += [f"rate {self.rate:g}", f"longest gap {self.gap:g}"]
        if self.low_pass is not None:
            parts.append(f"low-pass {self.low_pass:g}")
        return ", ".join(parts)

    @property
    def gap(self) -> float:
        """The longest gap that resampling bridges."""
        return _GAP if self.longest_gap is None else self.longest_gap


def check_preparation(how: Preparation) -> None:
    """Refuse settings that mean nothing."""
    if not 0 <= how.gate < 1:
        raise DataError(f"gate {how.gate:g} is no share; expected 0, to keep all, to below 1")
    if how.rate is not None and not 0 < how.rate <= _FASTEST:
        raise DataError(
            f"rate {how.rate:g} is no rate of packets; expected above 0, at most {_FASTEST:g} a "
            "second"
        )
    if how.longest_gap is not None and how.rate is None:
        raise DataError("a longest gap needs a rate: only resampling bridges gaps; give --rate too")
    if not 0 < how.gap < np.inf:
        raise DataError(f"longest gap {how.gap:g} is no number of seconds above 0")
    if how.low_pass is not None and not 0 < how.low_pass < np.inf:
        raise DataError(f"low-pass {how.low_pass:g} is no cut-off in Hz above 0")
