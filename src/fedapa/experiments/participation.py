"""``fedapa reproduce participation``: FedAPA with a third or two thirds of the rooms in a round.

Expected shape: accuracy against ρ with one line for each way to choose the rooms (uniform,
diverse, capable), all rooms as the end point. The paper asks for such selections in its discussion
and evaluates neither; it says nothing of what to expect. Rooms that sit out keep what they have.
"""

from collections.abc import Sequence

from fedapa.experiments.experiment import MODEL, Case, Experiment
from fedapa.federation.plan import Plan

__all__ = ["PARTICIPATION"]

_SHARES = (0.33, 0.67)
_SELECTIONS = ("uniform", "diverse", "capable")


def _cases(_: Plan) -> Sequence[Case]:
    fewer = [
        Case(
            f"{selection}-{share:g}",
            {"participation": share, "selection": selection},
            title=f"{selection}, ρ = {share:g}",
            group=selection,
            value=share,
        )
        for selection in _SELECTIONS
        for share in _SHARES
    ]
    everybody = Case(
        "fedapa",
        {"algorithm": {"name": "fedapa"}, "participation": 1.0},
        title="all rooms, ρ = 1",
        group="all",
        value=1.0,
        long=True,
    )
    return [*fewer, everybody]


PARTICIPATION = Experiment(
    "participation",
    "Participation: fewer rooms in a round, chosen in three ways",
    _cases,
    (MODEL,),
    parameter="participation ρ",
)
