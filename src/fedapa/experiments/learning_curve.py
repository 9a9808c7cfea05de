"""``fedapa reproduce learning-curve``: how many recordings of every count must be labelled?

Expected shape: accuracy (and MAE) against the recordings of each class that a room trains on, 1, 2,
4, … up to all, one line for each of Local, FedAPA, the linear model and the random forest; the same
test windows everywhere. Where a line is still rising, more recordings are worth making; the gap
between Local and FedAPA on the left is what rooms with few labels give each other.
"""

from collections import Counter
from collections.abc import Sequence

from fedapa.algorithms import find
from fedapa.algorithms.forest import RandomForest
from fedapa.algorithms.linear import Linear
from fedapa.algorithms.local import Local
from fedapa.evaluation.results import REFERENCE
from fedapa.experiments.experiment import CHOSEN, Case, Experiment
from fedapa.federation.plan import Plan
from fedapa.federation.prepare import agree_by_cards, split_own, survey_rooms

__all__ = ["LEARNING_CURVE", "most_of_a_class"]

_METHODS = (Local.name, REFERENCE, Linear.name, RandomForest.name)


def _cases(plan: Plan) -> Sequence[Case]:
    numbers = _numbers(plan)
    return [
        Case(
            f"{kind.name}-{number}",
            {"algorithm": kind.name, "data": {"train_recordings": number}},
            f"{kind.title}, {number}",
            kind.title,
            number,
            optional=kind.needs_features,
        )
        for kind in map(find, _METHODS)
        for number in numbers
    ]


def _numbers(plan: Plan) -> list[int]:
    """1, 2, 4, … and as many as the class with most of them leaves to train on."""
    most, _ = most_of_a_class(plan)
    return [*(2**power for power in range(16) if 2**power < most), most]


def most_of_a_class(plan: Plan) -> tuple[int, int]:
    """The recordings, and the windows, that the class with most of them leaves to train on."""
    kind = agree_by_cards(plan, workers=None).split
    recordings = windows = 1
    for origins in survey_rooms(plan, workers=None):
        train = split_own(plan, origins, kind).train
        found = [(origins.labels[place], origins.recordings[place]) for place in train]
        recordings = max(recordings, *Counter(label for label, _ in set(found)).values())
        windows = max(windows, *Counter(label for label, _ in found).values())
    return recordings, windows


LEARNING_CURVE = Experiment(
    "learning-curve",
    "Learning curve: accuracy by recordings of every class",
    _cases,
    (CHOSEN,),
    parameter="recordings of each class to train on",
    notes=(
        "Test and validation windows are the same at every number; a class with fewer recordings "
        "trains on all that it has.",
    ),
    fixed=True,
    reference=f"{REFERENCE}-1",
)
