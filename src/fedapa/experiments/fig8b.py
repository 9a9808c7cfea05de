"""``fedapa reproduce fig8b``: FedAPA by its warm-up rounds, an eighth, a quarter, half of all.

Expected shape: accuracy (and MAE) at three lengths, every seed a dot. The paper sweeps 25, 50 and
100 of an unknown number of rounds and finds 50 best; 50 is a quarter of our 200 at paper scale.
"""

from collections.abc import Sequence

from fedapa.experiments.experiment import MODEL, Case, Experiment
from fedapa.experiments.sweep import sweep
from fedapa.federation.plan import Plan

__all__ = ["FIG8B"]


def _cases(plan: Plan) -> Sequence[Case]:
    rounds = plan.rounds
    lengths = sorted({max(1, round(rounds / part)) for part in (8, 4, 2)})
    return sweep(
        {length: {"algorithm": {"warm_rounds": length}} for length in lengths},
        default=plan.algorithm["warm_rounds"],
        name="warm",
    )


FIG8B = Experiment(
    "fig8b", "Figure 8b: warm-up rounds", _cases, (MODEL,), parameter="warm-up rounds T_warm"
)
