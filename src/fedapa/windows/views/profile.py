"""Profile: the statistics of each link, and how strong every subcarrier is over the window.

Where a receiver stands still and rooms are always the same, how strong a subcarrier is says much;
where furniture and gain change it says little. Rooms find out (``view = "auto"``).
"""

from typing import ClassVar

import numpy as np

from fedapa.windows.views.statistics import STATISTICS, LinkStatistics
from fedapa.windows.views.view import Floats, Places

__all__ = ["Profile"]

_PARTS = 8
"""Of a window: a movement has a beginning, a middle and an end."""


class Profile(LinkStatistics):
    """[links · statistics, then (parts + 2) · links · subcarriers] of amplitudes A.

    Of each subcarrier its mean in every eighth of the window, its standard deviation, and the mean
    of |A_t − A_t−1|, which is the smaller the faster packets come.
    """

    name: ClassVar[str] = "profile"
    about: ClassVar[str] = "the statistics of each link, and the strength of every subcarrier"

    def shape(self, packets: int, links: int, subcarriers: int) -> tuple[int, ...]:
        """Of the receiver's links and subcarriers, however many packets there are."""
        return (links * (len(STATISTICS) + (_PARTS + 2) * subcarriers),)

    def of(self, window: Floats, numbers: Floats) -> Floats:
        """The statistics, then the eighths one after another, the deviation, the steps."""
        rows = window.reshape(len(window), -1)  # (packets, links · subcarriers)
        first = np.arange(_PARTS) * len(rows) // _PARTS
        sizes = np.diff([*first, len(rows)])[:, None]
        eighths = np.add.reduceat(rows, first, axis=0) / sizes  # (parts, links · subcarriers)
        steps = np.diff(rows, axis=0)
        np.abs(steps, out=steps)
        strengths = np.concatenate([eighths.ravel(), rows.std(axis=0), steps.mean(axis=0)])
        return np.concatenate([numbers.ravel(), strengths.astype(np.float32)])

    def places(self, shape: tuple[int, ...], links: int) -> Places:
        """Of the links; of subcarriers, gain and time among the strengths alone."""
        numbers = links * len(STATISTICS)
        strengths = np.arange(numbers, shape[0]).reshape(_PARTS + 2, links, -1)  # (…, subcarriers)
        of_links = np.arange(numbers).reshape(links, -1)
        return Places(
            links=np.hstack([of_links, strengths.transpose(1, 0, 2).reshape(links, -1)]),
            subcarriers=strengths.reshape(_PARTS + 2, -1).T,
            backwards=np.concatenate(
                [of_links.ravel(), strengths[:_PARTS][::-1].ravel(), strengths[_PARTS:].ravel()]
            ),
            gained=strengths.ravel(),
        )
