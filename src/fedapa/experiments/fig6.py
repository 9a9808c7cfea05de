"""``fedapa reproduce fig6``: accuracy over rounds with equal nets, the paper's first curves.

Expected shape: one curve a method, mean over seeds with their spread, from round 1 to the end;
Local and FedAPA go on to the long horizon. Its runs are Table 1's.
"""

from collections.abc import Sequence

from fedapa.experiments.experiment import STATISTICAL, Case, Experiment
from fedapa.experiments.table1 import controls, published_methods
from fedapa.federation.plan import Plan

__all__ = ["FIG6", "curves"]


def curves(plan: Plan) -> Sequence[Case]:
    """The paper's methods and the self-prototype control."""
    return [*published_methods(plan), *controls(plan)[:1]]


FIG6 = Experiment(
    "fig6", "Figure 6: convergence with equal nets", curves, (STATISTICAL,), fixed=True
)
