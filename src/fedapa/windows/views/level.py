"""Level: each subcarrier over its own mean in the window; how much, not how strong the receiver is.

Unlike *motion* it stays linear: a fade to nothing is 0, not a large negative number.
"""

from typing import ClassVar

import numpy as np

from fedapa.windows.views.view import Floats, Places, View, matrix_places

__all__ = ["Level"]


class Level(View):
    """[packets, links · subcarriers] around 1.

    b_tls = A_tls / mean over s of A_tls (the packet's gain goes), then b_tls / mean over t of b_tls
    (what stands still goes, but for a little: strong subcarriers have a larger part in the gain).
    """

    name: ClassVar[str] = "level"
    about: ClassVar[str] = "each subcarrier over its mean in the window, without the packets' gain"

    def shape(self, packets: int, links: int, subcarriers: int) -> tuple[int, ...]:
        """Packets by links and subcarriers."""
        return packets, links * subcarriers

    def __call__(self, window: Floats, rate: float) -> Floats:
        """Relative amplitudes; a packet without any signal counts as an average one."""
        gain = window.mean(axis=2, keepdims=True)  # (packets, links, 1)
        relative = np.where(gain > 0, window / np.where(gain > 0, gain, 1), np.float32(1))
        level = relative / relative.mean(axis=0, keepdims=True)
        return np.asarray(level, np.float32).reshape(len(window), -1)

    def places(self, shape: tuple[int, ...], links: int) -> Places:
        """Of the links and subcarriers, and of time."""
        return matrix_places(shape, links)
