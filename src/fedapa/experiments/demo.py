"""``fedapa demo``: six simulated rooms with different nets, Local against FedAPA, a page of it.

Expected: both do better than a blind guess, far from perfect: whole recordings are held out, and
there are few. Which of the two leads, and by how much, is what the page shows.
"""

from pathlib import Path

from fedapa.experiments.presets import preset
from fedapa.federation.plan import Plan
from fedapa.federation.run import Run, run
from fedapa.processes import Show, unseen
from fedapa.report.page import write_page

__all__ = ["demo"]

_ALGORITHMS = ("local", "fedapa")


def demo(
    out: Path,
    *,
    seed: int = 0,
    rounds: int | None = None,
    workers: int | None = None,
    show: Show = unseen,
) -> tuple[list[Run], Path]:
    """Run both algorithms into ``out`` (going on where an earlier demo stopped); runs and page."""
    runs = []
    for algorithm in _ALGORITHMS:
        plan = Plan.of(
            preset("quick"),
            {"seed": seed, "model": {"architecture": "by-size"}, "algorithm": algorithm},
            {} if rounds is None else {"rounds": rounds},
        )
        runs.append(run(plan, out=out / algorithm, resume=True, workers=workers, show=show))
    page = out / "index.html"
    write_page(page, runs, title="FedAPA demo: six simulated rooms learn to count people")
    return runs, page
