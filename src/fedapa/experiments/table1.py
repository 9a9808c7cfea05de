"""``fedapa reproduce table1``: all methods in both heterogeneity settings, the paper's Table 1.

Expected shape: one row per method with accuracy, macro F1 and MAE, mean ± standard deviation over
seeds, at a quarter, half and all of the rounds and far beyond for the rows that carry the claim
(Local, FedAPA, self-prototypes). The paper has FedAPA first, on private data: 15.19 points above
Local with equal nets and 33.50 with nets that differ (9.65 and 10.31 above CARING, the next best).
Whether it leads here depends on the rounds: the self-prototype control tells what the losses alone
give.

An algorithm is in the table as soon as its file is there; the file says in which group.
"""

from collections.abc import Sequence

from fedapa.algorithms import find, is_variant, names
from fedapa.algorithms.algorithm import Algorithm, Group
from fedapa.evaluation.results import REFERENCE
from fedapa.experiments.experiment import MODEL, STATISTICAL, Case, Experiment, algorithms
from fedapa.federation.plan import Plan

__all__ = ["FIG6", "FIG7", "TABLE1"]


def _methods(group: Group) -> list[type[Algorithm]]:
    """The algorithms of a group, the oldest first."""
    kinds = [find(name) for name in names()]
    methods = [kind for kind in kinds if kind.group == group and not is_variant(kind)]
    return sorted(methods, key=lambda kind: (kind.year, kind.name))


def _cases(_: Plan) -> Sequence[Case]:
    """All methods, and what any gain of the paper's must be held against."""
    methods = [kind.name for kind in (*_methods("paper"), *_methods("more"))]
    others = [kind.name for kind in _methods("control") if kind.pools or kind.fits_once]
    controls = sorted({kind.control for kind in _methods("paper")} - {""})
    return algorithms(*methods, *controls, *others)


def _curves(_: Plan) -> Sequence[Case]:
    """The paper's methods and the reference's control."""
    return algorithms(*(kind.name for kind in _methods("paper")), find(REFERENCE).control)


TABLE1 = Experiment("table1", "Table 1: overall comparison", _cases)

FIG6 = Experiment(
    "fig6", "Figure 6: convergence with equal nets", _curves, (STATISTICAL,), fixed=True
)
"""``fedapa reproduce fig6``: accuracy over rounds with equal nets, the paper's first curves.

Expected shape: one curve per method, mean over seeds with their spread, from round 1 to the end;
Local and FedAPA go on to the long horizon. Its runs are Table 1's.
"""

FIG7 = Experiment(
    "fig7", "Figure 7: convergence with nets that differ", _curves, (MODEL,), fixed=True
)
"""``fedapa reproduce fig7``: accuracy over rounds with nets that differ, the paper's second curves.

Expected shape: as fig6, with Tiny-, Middle- and LargeConvNet4 by the rooms' train windows; weights
are then averaged among equal nets only. Its runs are Table 1's.
"""
