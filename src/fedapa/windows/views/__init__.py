"""What a window may become before a net sees it; the simplest first."""

from collections.abc import Sequence

from fedapa.errors import DataError, nearest
from fedapa.windows.views.amplitude import Amplitude
from fedapa.windows.views.level import Level
from fedapa.windows.views.motion import Motion
from fedapa.windows.views.profile import Profile
from fedapa.windows.views.spectrum import Spectrum
from fedapa.windows.views.statistics import (
    STATISTICS,
    LinkStatistics,
    Statistics,
    link_numbers,
)
from fedapa.windows.views.view import Floats, Places, View

__all__ = ["PER_LINK", "STATISTICS", "VIEWS", "Places", "View", "find_view", "seen_by"]

VIEWS: dict[str, View] = {
    view.name: view
    for view in (
        Amplitude(),
        Level(),
        Motion(),
        Spectrum(),
        Statistics(),
        LinkStatistics(),
        Profile(),
    )
}
"""By name, from the simplest on."""
PER_LINK = LinkStatistics.name
"""Which is ``statistics`` where there is one link."""


def seen_by(views: Sequence[str], window: Floats, rate: float) -> tuple[Floats, ...]:
    """One window [packets, links, subcarriers] under several views, what they share done once."""
    found = [find_view(name) for name in views]
    numbers = link_numbers(window, rate) if any(isinstance(v, Statistics) for v in found) else None
    return tuple(
        view.of(window, numbers)
        if isinstance(view, Statistics) and numbers is not None
        else view(window, rate)
        for view in found
    )


def find_view(name: str) -> View:
    """The view of that name."""
    if name not in VIEWS:
        raise DataError(f"view {name!r} is unknown; {nearest(str(name), list(VIEWS))}")
    return VIEWS[name]
