"""Amplitude: the paper's input, what the receiver reported and nothing else."""

from typing import ClassVar

from fedapa.windows.views.view import Floats, Places, View, matrix_places

__all__ = ["Amplitude"]


class Amplitude(View):
    """[packets, links · subcarriers], links side by side."""

    name: ClassVar[str] = "amplitude"
    about: ClassVar[str] = "as the receiver reported it (the paper's input)"
    needs_signal: ClassVar[bool] = False
    fewest_subcarriers: ClassVar[int] = 1

    def shape(self, packets: int, links: int, subcarriers: int) -> tuple[int, ...]:
        """Packets by links and subcarriers."""
        return packets, links * subcarriers

    def __call__(self, window: Floats, rate: float) -> Floats:
        """The same numbers."""
        return window.reshape(len(window), -1)

    def places(self, shape: tuple[int, ...], links: int) -> Places:
        """Of the links and subcarriers, and of time."""
        return matrix_places(shape, links, gained=True)
