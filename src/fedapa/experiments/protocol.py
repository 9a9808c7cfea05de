"""The paper's protocol, and which of its parts moves FedAPA's margin over Local.

Three rows carry the claim: Local, FedAPA, and self-prototypes, which has FedAPA's losses without
its exchange. ``PROTOCOL`` runs them as the paper's text allows to read it; ``CAUSES`` changes one
thing at a time. Each experiment says below what to expect of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedapa.algorithms import find
from fedapa.algorithms.local import Local
from fedapa.evaluation.results import REFERENCE
from fedapa.experiments.experiment import MODEL, STATISTICAL, Case, Experiment, algorithms
from fedapa.federation.plan import Plan
from fedapa.report.figures.margins import margins_figure
from fedapa.report.tables.margins import AS_IT_IS, margins_table
from fedapa.stores.simulated_rooms import preset_of
from fedapa.stores.store import Store

__all__ = ["CAUSES", "OF_THE_PROTOCOL", "PROTOCOL"]

_ROWS = (Local.name, REFERENCE, find(REFERENCE).control)
_RATE = 0.05
"""The learning rate of the preset tables, five times the paper's."""


def _rows(_: Plan) -> Sequence[Case]:
    # The rounds are part of the protocol: there is no horizon beyond them.
    return [replace(case, long=False) for case in algorithms(*_ROWS)]


PROTOCOL = Experiment("protocol", "The paper's protocol: the rows that carry the claim", _rows)
"""``fedapa reproduce protocol``: Local, FedAPA and self-prototypes under the paper's protocol.

Expected shape: three rows in both settings, equal nets (LargeConvNet4) and nets by size, with the
paper's figures for them in a box of their own. FedAPA minus Local is what the paper claims (15.19
and 33.50 points, on private data); FedAPA minus self-prototypes is the part that the exchange has
in it.
"""


def _causes(plan: Plan) -> dict[str, Mapping[str, Any]]:
    """What is changed, in words → the change; those that these windows allow."""
    window = _window_of(plan)
    stride = plan.data.stride or window
    rates = {f"learning rate {_RATE:g}": {"training": {"learning_rate": _RATE}}}
    changes: dict[str, Mapping[str, Any]] = {
        AS_IT_IS: {},
        "nets by size": {"model": {"architecture": MODEL.architecture}},
        "split blocked": {"data": {"split": "blocked"}},
        "half the windows": {"data": {"stride": 2 * stride}},
        "twice the windows": {"data": {"stride": stride // 2}},
        "many takes": {"data": {"simulated": "takes"}},
        **rates,
        "own initial weights": {"model": {"initialisation": "own"}},
        "windows half as long": {"data": {"window": window // 2, "stride": stride}},
    }
    if stride // 2 < window:  # they would overlap
        del changes["twice the windows"]
    if plan.data.file is not None or plan.data.simulated != "long":
        del changes["many takes"]
    return {
        words: change
        for words, change in changes.items()
        if not change or Plan.of(plan.document(), change) != plan
    }


def _window_of(plan: Plan) -> int:
    """Packets of a window."""
    if plan.data.window is not None:
        return plan.data.window
    if plan.data.file is None:
        return preset_of(plan.data.simulated).window
    with Store(plan.data.file) as store:
        return store.window or 1000


def _cases(plan: Plan) -> Sequence[Case]:
    """Every method under every cause.

    The protocol as it is, with equal nets and with nets by size, may run longer than the causes:
    then its runs are those of ``PROTOCOL``.
    """
    return [
        Case(
            f"{_short(words)}-{kind.name}",
            {"algorithm": kind.name, **change},
            f"{kind.title}, {words}",
            kind.title,
            words,
            long=words in (AS_IT_IS, "nets by size"),
        )
        for words, change in _causes(plan).items()
        for kind in map(find, _ROWS)
    ]


def _short(words: str) -> str:
    return words.replace(" ", "-")


CAUSES = Experiment(
    "causes",
    "The paper's protocol, one cause at a time",
    _cases,
    (STATISTICAL,),
    parameter="what is changed",
    notes=(
        "The first value is the protocol as it is; in each other one thing is changed. Many takes: "
        "ten recordings of 6 s of every count in place of one of 60 s, one window of each. Split "
        "blocked: where windows stand apart (data.stride above the window) nothing need be left "
        "out as a gap, and most test windows still have the next window of their recording in "
        "train; then only many takes tell what windows of the same recording are worth.",
    ),
    fixed=True,
    reference=f"{_short(AS_IT_IS)}-{REFERENCE}",
    table=margins_table,
    figure=margins_figure,
)
"""``fedapa reproduce causes``: which part of the protocol moves FedAPA's margin over Local.

Expected shape: one figure with a line for each cause (nets by size, split, amount of windows, many
takes, learning rate, initial weights, length of windows) and for the rounds: FedAPA minus Local,
and self-prototypes minus Local, which is how much of that the losses account for without any
exchange; the train loss beside. A margin that many takes remove came from windows of the same
recording; a blocked split tells that only where windows stand end to end (``data.stride = 125``).
"""

OF_THE_PROTOCOL = (PROTOCOL, CAUSES)
"""Those with the preset ``protocol``; "all" leaves them out."""
