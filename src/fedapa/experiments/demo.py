"""``fedapa demo``: six simulated rooms count people, by Local, FedAPA and a random forest; a page.

Expected: all three do far better than a blind guess and are far from perfect, since whole
recordings are held out. The nets lead the forest by some points. Which net leads, and by how much,
is what the page shows.
"""

from pathlib import Path

from fedapa.algorithms.forest import RandomForest
from fedapa.algorithms.local import Local
from fedapa.evaluation.results import REFERENCE, Results
from fedapa.experiments.presets import preset
from fedapa.federation.plan import Plan
from fedapa.federation.run import run
from fedapa.processes import Show, unseen
from fedapa.report.page import write_run_page

__all__ = ["demo"]

_ALGORITHMS = (Local.name, REFERENCE, RandomForest.name)


def demo(
    out: Path,
    *,
    seed: int = 0,
    rounds: int | None = None,
    workers: int | None = None,
    show: Show = unseen,
) -> tuple[Results, Path]:
    """Run the algorithms into ``out``, or go on where an earlier demo stopped; results, page."""
    runs = []
    for algorithm in _ALGORITHMS:
        plan = Plan.of(
            preset("quick"),
            {"seed": seed, "algorithm": algorithm},
            {} if rounds is None else {"rounds": rounds},
        )
        runs.append(run(plan, out=out / algorithm, resume=True, workers=workers, show=show))
    page = out / "index.html"
    title = "FedAPA demo: six simulated rooms learn to count people"
    return write_run_page(page, runs, title=title), page
