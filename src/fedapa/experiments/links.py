"""``fedapa reproduce links``: computing against sending, on network links of different speed.

Expected shape: bytes, and time on Wi-Fi, 4G and NB-IoT, until rooms reach an accuracy: one line for
each method, and for FedAPA with fewer rooms in a round, more or fewer epochs, fewer bits and fewer
sets of peers. On a fast link training decides, on a slow one the bytes; where the two cross is
what is asked (the paper's Discussion C asks it and measures nothing). Bytes and seconds are those
that the runs recorded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedapa.algorithms import find
from fedapa.algorithms.fedavg import FedAvg
from fedapa.algorithms.fedjoin import FedJoin
from fedapa.algorithms.fedproto import FedProto
from fedapa.algorithms.local import Local
from fedapa.evaluation.results import REFERENCE
from fedapa.experiments.experiment import CHOSEN, Case, Experiment, algorithms
from fedapa.federation.plan import Plan
from fedapa.report.figures.links import links_figure
from fedapa.report.tables.links import links_table

__all__ = ["LINKS_STUDY"]

_METHODS = (Local.name, FedAvg.name, FedProto.name, REFERENCE, FedJoin.name)


def _variants(plan: Plan) -> dict[str, Mapping[str, Any]]:
    """FedAPA with less to send or to compute: name → change."""
    epochs = plan.training.epochs
    fewer, more = max(1, epochs // 3), 2 * epochs
    return {
        "ρ = 0.33": {"participation": 0.33},
        "ρ = 0.67": {"participation": 0.67},
        **({f"epochs {fewer}": {"training": {"epochs": fewer}}} if fewer < epochs else {}),
        f"epochs {more}": {"training": {"epochs": more}},
        "float16": {"precision": "float16"},
        "int8": {"precision": "int8"},
        "one peer": {"algorithm": {"peers": 1}},
        "no peers": {"algorithm": {"peers": "none"}},
        "int8, one peer": {"precision": "int8", "algorithm": {"peers": 1}},
    }


def _cases(plan: Plan) -> Sequence[Case]:
    title = find(REFERENCE).title
    variants = [
        Case(
            f"{REFERENCE}-{words.replace(' ', '').replace(',', '-')}",
            {**change, "algorithm": {"name": REFERENCE, **change.get("algorithm", {})}},
            f"{title}, {words}",
            "more",
        )
        for words, change in _variants(plan).items()
    ]
    methods = [replace(case, long=False) for case in algorithms(*_METHODS)]
    return [*methods, *variants]


LINKS_STUDY = Experiment(
    "links",
    "Computing against sending: time and bytes to reach an accuracy",
    _cases,
    (CHOSEN,),
    fixed=True,
    table=links_table,
    figure=links_figure,
    keeps_exchanged=True,
)
