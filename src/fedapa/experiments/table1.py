"""``fedapa reproduce table1``: all methods in both heterogeneity settings, the paper's Table 1.

Expected shape: one row a method with accuracy, macro F1 and MAE, mean ± standard deviation over
seeds, at a quarter, half and all of the rounds and far beyond for the rows that carry the claim
(Local, FedAPA, self-prototypes). The paper has FedAPA first, on private data. Whether it
leads here depends on the rounds: the self-prototype control tells what the losses alone give.
"""

from collections.abc import Sequence

from fedapa.experiments.experiment import Case, Experiment, algorithms
from fedapa.federation.plan import Plan

__all__ = ["TABLE1", "controls", "published_methods"]


def published_methods(_: Plan) -> Sequence[Case]:
    """The rows that the paper has."""
    return [
        *algorithms("local", group="paper", long=True),
        *algorithms("fedavg", "wifederated", "caring", group="paper"),
        *algorithms("fedapa", group="paper", long=True),
    ]


def controls(_: Plan) -> Sequence[Case]:
    """What any gain must be held against."""
    return [
        *algorithms("fedapa-self", group="control", long=True),
        *algorithms("local-more-epochs", "pooled", group="control"),
    ]


def _cases(plan: Plan) -> Sequence[Case]:
    more = ("fedproto", "fedrep", "fedbn", "fedala", "fedamp", "moon", "fedpcl", "fedproc")
    return [*published_methods(plan), *algorithms(*more, group="more"), *controls(plan)]


TABLE1 = Experiment("table1", "Table 1: overall comparison", _cases)
