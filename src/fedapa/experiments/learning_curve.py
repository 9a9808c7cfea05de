"""``fedapa reproduce learning-curve``: how many recordings of every count must be labelled?

Expected shape: accuracy (and MAE) against the recordings of each class that a room trains on, 1, 2,
4, … up to all, one line for each of Local, FedAPA and the random forest; the same test windows
everywhere. Where a line is still rising, more recordings are worth making; the gap between Local
and FedAPA on the left is what rooms with few labels give each other.
"""

from collections import Counter
from collections.abc import Sequence

from fedapa.algorithms import find
from fedapa.algorithms.forest import RandomForest
from fedapa.algorithms.local import Local
from fedapa.evaluation.results import REFERENCE
from fedapa.experiments.experiment import CHOSEN, Case, Experiment
from fedapa.federation.plan import Plan
from fedapa.federation.prepare import store_of
from fedapa.stores.store import Store

__all__ = ["LEARNING_CURVE"]

_METHODS = (Local.name, REFERENCE, RandomForest.name)


def _cases(plan: Plan) -> Sequence[Case]:
    return [
        Case(
            f"{name}-{number}",
            {"algorithm": name, "data": {"train_recordings": number}},
            f"{find(name).title}, {number}",
            find(name).title,
            number,
        )
        for name in _METHODS
        for number in _numbers(plan)
    ]


def _numbers(plan: Plan) -> list[int]:
    """1, 2, 4, … and as many as the class with most of them leaves to train, about."""
    with Store(store_of(plan)) as store:
        most = max(
            max(
                Counter(
                    one.label for one in store.recordings(room) if one.part != "continuous"
                ).values()
            )
            for room in plan.data.rooms_of(store)
        )
    left = max(1, round(most * (1 - plan.data.test) * (1 - plan.data.validation)))
    doubled = [2**power for power in range(16) if 2**power < left]
    return [*doubled, left]


LEARNING_CURVE = Experiment(
    "learning-curve",
    "Learning curve: accuracy by recordings of every class",
    _cases,
    (CHOSEN,),
    parameter="recordings of each class to train on",
    notes=(
        "Test and validation windows are the same at every number; a class with fewer recordings "
        "trains on all that it has. The rooms choose their view anew at every number.",
    ),
    fixed=True,
    reference=f"{REFERENCE}-1",
)
