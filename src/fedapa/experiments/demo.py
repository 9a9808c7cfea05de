"""``fedapa demo``: six simulated rooms count people, by nets and by simple models; a page.

The page leads with two minutes in every room: people who were there and people counted.

Local and FedAPA train nets; the linear model and the random forest are fitted once. Expected: all
do far better than a blind guess and are far from perfect, since whole days are held out. The nets
lead the forest by some points. Which net leads, and by how much, is what the page shows.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from fedapa.algorithms import find
from fedapa.algorithms.forest import RandomForest
from fedapa.algorithms.linear import Linear
from fedapa.algorithms.local import Local
from fedapa.csi.capture import data_kind
from fedapa.evaluation.results import REFERENCE, Results
from fedapa.experiments.experiment import as_numbers
from fedapa.experiments.presets import preset
from fedapa.experiments.strips import counted_visits
from fedapa.federation.plan import Plan
from fedapa.federation.prepare import agree_by_cards
from fedapa.federation.run import run
from fedapa.processes import Show, available_cores, unseen
from fedapa.report.figures.strips import Strip, strips
from fedapa.report.page import Lead, write_run_page

__all__ = ["demo"]

_ALGORITHMS = (Local.name, REFERENCE, Linear.name, RandomForest.name)
_LEAD = (
    "People come and go in each room, between nobody and as many as it was trained for. The area "
    "is how many there were, the line how many its net counted, as a live counter would have told "
    "at that moment. A count is of the last seconds, so it comes a little late."
)


def demo(
    out: Path,
    *,
    seed: int = 0,
    rounds: int | None = None,
    workers: int | None = None,
    show: Show = unseen,
) -> tuple[Results, Path]:
    """Run the algorithms into ``out``, or go on where an earlier demo stopped; results, page."""
    layers = [preset("quick"), {"seed": seed}, {} if rounds is None else {"rounds": rounds}]
    view = agree_by_cards(Plan.of(*layers), show, workers=workers).view  # one for all
    layers.append({"data": {"view": view}})
    runs = []
    for algorithm in _ALGORITHMS:
        plan = Plan.of(*layers, {"algorithm": algorithm})
        if find(algorithm).needs_features:
            plan = Plan.of(*layers, {"algorithm": algorithm}, as_numbers(plan))
        runs.append(run(plan, out=out / algorithm, resume=True, workers=workers, show=show))
    counting = runs[_ALGORITHMS.index(REFERENCE)]
    processes = available_cores() if workers is None else max(1, workers)
    shown = counted_visits(counting, workers=processes, show=show)
    lead = Lead("Two minutes in every room, on a day that was not trained on", _LEAD, _drawn(shown))
    page = out / "index.html"
    title = "FedAPA demo: six simulated rooms learn to count people"
    return write_run_page(page, runs, title=title, lead=lead), page


def _drawn(shown: Sequence[Strip]) -> Figure:
    """The strips of all rooms; each is counted as often and from as many seconds as the first."""
    step = float(np.median(np.diff(shown[0].times)))
    return strips(
        shown,
        f"{data_kind(True)} data: people come and go at moments that are drawn by lot. "
        f"Counted by the model files of {find(REFERENCE).title}, every {step:.1f} s, from the "
        f"packets of the last {shown[0].window:.0f} s.",
    )
