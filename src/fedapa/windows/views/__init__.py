"""What a window may become before a net sees it; the simplest first."""

from fedapa.errors import DataError, nearest
from fedapa.windows.views.amplitude import Amplitude
from fedapa.windows.views.level import Level
from fedapa.windows.views.motion import Motion
from fedapa.windows.views.profile import Profile
from fedapa.windows.views.spectrum import Spectrum
from fedapa.windows.views.statistics import STATISTICS, LinkStatistics, Statistics
from fedapa.windows.views.view import View

__all__ = ["PER_LINK", "STATISTICS", "VIEWS", "View", "find_view"]

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


def find_view(name: str) -> View:
    """The view of that name."""
    if name not in VIEWS:
        raise DataError(f"view {name!r} is unknown; {nearest(str(name), list(VIEWS))}")
    return VIEWS[name]
