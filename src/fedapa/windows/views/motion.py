"""Motion: log-amplitude without gain and without what stands still; only what changed is left."""

from typing import ClassVar

from fedapa.windows.views.view import Floats, Places, View, matrix_places, motion_of

__all__ = ["Motion"]


class Motion(View):
    """[packets, links · subcarriers] around 0, see ``motion_of``."""

    name: ClassVar[str] = "motion"
    about: ClassVar[str] = "log-amplitude without gain and without what stands still"

    def shape(self, packets: int, links: int, subcarriers: int) -> tuple[int, ...]:
        """Packets by links and subcarriers."""
        return packets, links * subcarriers

    def __call__(self, window: Floats, rate: float) -> Floats:
        """What moves."""
        return motion_of(window).reshape(len(window), -1)

    def places(self, shape: tuple[int, ...], links: int) -> Places:
        """Of the links and subcarriers, and of time."""
        return matrix_places(shape, links)
