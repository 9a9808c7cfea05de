"""``fedapa reproduce table2``: what the mixture and the peers' prototypes give, Table 2.

Expected shape: the full 2 × 2 of {plain mean, adaptive mixture} × {without, with L_c} (the paper
leaves one cell out), Local above it and the self-prototype control below, in both settings. If
the control does as well as the four cells, the losses help and the exchange does not.
"""

from collections.abc import Sequence

from fedapa.experiments.experiment import Case, Experiment, algorithms
from fedapa.federation.plan import Plan

__all__ = ["TABLE2"]


def _cases(_: Plan) -> Sequence[Case]:
    return [
        *algorithms("local", group="paper", long=True),
        *algorithms("fedapa-average", "fedapa-average-clients", group="paper"),
        *algorithms("fedapa-mixture", group="more"),
        *algorithms("fedapa", group="paper", long=True),
        *algorithms("fedapa-self", group="control", long=True),
    ]


TABLE2 = Experiment("table2", "Table 2: ablation of the aggregation and of L_c", _cases)
