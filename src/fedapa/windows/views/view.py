"""View: the contract of what a window becomes before a net sees it.

A receiver reports amplitudes. Their level is the receiver's gain, their shape over the subcarriers
is the furniture: a net that sees both learns by heart which recording a window is from. A view
takes away what says nothing about people. All of them make one array of one window, and nothing
but that window and the packet rate goes in: what is counted live is then what was tested.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Floats", "Places", "View", "matrix_places", "motion_of", "without_gain"]

Floats: TypeAlias = npt.NDArray[np.float32]
_Index: TypeAlias = npt.NDArray[np.int64]

_FAINT = 1e-3
"""Of the mean amplitude of a link: what lies below has no logarithm worth having."""


def _nowhere() -> _Index:
    return np.zeros((0, 0), np.int64)


@dataclass(frozen=True, eq=False)
class Places:
    """Where among a window's numbers, counted row after row, something stands.

    Nothing where the view leaves it out: there it cannot change a window.
    """

    links: _Index = field(default_factory=_nowhere)
    """[links, n] the numbers of each link, all in the same order."""
    subcarriers: _Index = field(default_factory=_nowhere)
    """[links · subcarriers, n] the numbers of each subcarrier of each link."""
    backwards: _Index = field(default_factory=lambda: _nowhere().ravel())
    """[numbers] where each number would come from if time ran backwards."""
    gained: _Index = field(default_factory=lambda: _nowhere().ravel())
    """[n] the numbers that a gain of the receiver multiplies."""


class View(ABC):
    """What a window becomes; its subclasses have no state."""

    name: ClassVar[str]
    """What a plan calls it."""
    about: ClassVar[str]
    """What it shows, in a few words."""
    needs_rate: ClassVar[bool] = False
    """Whether it speaks of Hz, so that packets per second must be known."""
    needs_signal: ClassVar[bool] = True
    """Whether every subcarrier of every link must have been heard at least once."""
    fewest_packets: ClassVar[int] = 1
    """Below that it says nothing."""
    fewest_subcarriers: ClassVar[int] = 2
    """Of a link; below that it says nothing: one over the mean of one is 1."""
    slowest: ClassVar[float] = 0.0
    """Packets per second below which it says nothing."""

    @property
    def is_flat(self) -> bool:
        """Whether it makes a vector of numbers, not a matrix."""
        return len(self.shape(1, 1, 1)) == 1

    @abstractmethod
    def shape(self, packets: int, links: int, subcarriers: int) -> tuple[int, ...]:
        """Of what it makes of a window: (rows, columns), or (numbers,)."""

    @abstractmethod
    def __call__(self, window: Floats, rate: float) -> Floats:
        """One window [packets, links, subcarriers], so many packets a second, as a net sees it."""

    def places(self, shape: tuple[int, ...], links: int) -> Places:
        """What stands where in a window of this shape; by default nothing is known."""
        return Places()


def matrix_places(
    shape: tuple[int, ...], links: int, *, of_packets: bool = True, gained: bool = False
) -> Places:
    """Of a matrix with links side by side in its columns.

    Args:
        shape: rows and columns.
        links: how many stand side by side.
        of_packets: whether rows are packets, one after another.
        gained: whether a gain multiplies all of it.
    """
    every = np.arange(shape[0] * shape[1]).reshape(shape)  # (rows, links · subcarriers)
    return Places(
        links=np.concatenate(np.split(every, links, axis=1)).reshape(links, -1),
        subcarriers=every.T,
        backwards=every[::-1].ravel() if of_packets else _nowhere().ravel(),
        gained=every.ravel() if gained else _nowhere().ravel(),
    )


def without_gain(window: Floats) -> tuple[Floats, Floats]:
    """Log-amplitude [packets, links, subcarriers] without each packet's gain, and that [., ., 1].

    a = ln A; a_tls − mean over s of a_tls. A gain is a factor on all subcarriers of a packet, so in
    logarithms a number, and it goes with the mean over the subcarriers.
    """
    faintest = np.maximum(_FAINT * window.mean(axis=(0, 2), keepdims=True), np.float32(1e-30))
    logarithm = np.log(np.maximum(window, faintest))
    gain = logarithm.mean(axis=2, keepdims=True)
    return logarithm - gain, gain


def motion_of(window: Floats) -> Floats:
    """What moves [packets, links, subcarriers]: ``without_gain``, less each subcarrier's mean.

    A channel that stands still is a factor on a subcarrier for the whole window: it goes, too.
    """
    free, _ = without_gain(window)
    return free - free.mean(axis=0, keepdims=True)  # type: ignore[no-any-return]
