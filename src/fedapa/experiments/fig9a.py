"""``fedapa reproduce fig9a``: FedAPA by its temperature τ, 0.1, 0.5, 0.7, 1.5.

Expected shape: accuracy (and MAE) at four temperatures, every seed a dot. As in the paper one τ
serves the contrastive losses and the aggregation. The paper finds 0.5 best.
"""

from collections.abc import Sequence

from fedapa.experiments.experiment import MODEL, Case, Experiment
from fedapa.experiments.sweep import sweep
from fedapa.federation.plan import Plan

__all__ = ["FIG9A"]


def _cases(plan: Plan) -> Sequence[Case]:
    return sweep(
        {
            value: {"algorithm": {"temperature": value, "aggregation_temperature": value}}
            for value in (0.1, 0.5, 0.7, 1.5)
        },
        default=plan.algorithm["temperature"],
        name="temperature",
    )


FIG9A = Experiment("fig9a", "Figure 9a: temperature", _cases, (MODEL,), parameter="temperature τ")
