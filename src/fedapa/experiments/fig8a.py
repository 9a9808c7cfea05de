"""``fedapa reproduce fig8a``: FedAPA by the width D of its embedding, 128, 256, 512.

Expected shape: accuracy (and MAE) at three widths, every seed a dot. The paper finds 256 best.
Bytes of a round grow with D.
"""

from collections.abc import Sequence

from fedapa.experiments.experiment import MODEL, Case, Experiment
from fedapa.experiments.sweep import sweep
from fedapa.federation.plan import Plan

__all__ = ["FIG8A"]


def _cases(plan: Plan) -> Sequence[Case]:
    return sweep(
        {width: {"model": {"width": width}} for width in (128, 256, 512)},
        default=plan.model.width,
        name="width",
    )


FIG8A = Experiment(
    "fig8a", "Figure 8a: width of the embedding", _cases, (MODEL,), parameter="width D"
)
