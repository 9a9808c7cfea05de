"""What a federation gives where labels are few: new rooms, counts never labelled, all rooms poor.

Each room in turn is the new one: the others have finished a federation, with all their labels, and
it joins with few. Then it trains alone for as many rounds, from what that server has for it. The
federation of the others is trained once for each room, method and seed and serves all numbers of
labels. Local, the linear model, the forest and FedJoin alone join nothing: their rows are what a
room has by itself. "Pooled newcomer" trains on its own labels and on the raw windows of all others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedapa.algorithms import find, is_variant, names
from fedapa.algorithms.fedavg import FedAvg
from fedapa.algorithms.fedjoin import FedJoin, FedJoinShuffled
from fedapa.algorithms.fedproto import FedProto
from fedapa.algorithms.fedrep import FedRep
from fedapa.algorithms.local import Local
from fedapa.algorithms.pooled import PooledNewcomer
from fedapa.errors import PlanError
from fedapa.evaluation.results import REFERENCE
from fedapa.experiments.experiment import CHOSEN, Case, Experiment
from fedapa.experiments.learning_curve import most_of_a_class
from fedapa.federation.joining import can_be_joined
from fedapa.federation.plan import Plan
from fedapa.federation.prepare import agree_by_cards
from fedapa.models.mlp import FeatureMLP

__all__ = [
    "FEW_LABELS",
    "ONBOARDING",
    "UNSEEN_COUNTS",
    "WHAT_TRAVELS",
    "at_home",
    "fewer_labels",
    "new_room_case",
]

_HOME_RATE = 0.4
"""Of the federation's learning rate, in a room that joins: it has less to learn and much to lose.
Chosen for FedAvg on simulated rooms of other seeds; FedJoin has its own rule."""
_CURVES = (
    Local.name,
    FedAvg.name,
    FedRep.name,
    FedProto.name,
    REFERENCE,
    FedJoin.name,
    PooledNewcomer.name,
)
"""Whose whole curve is shown."""
_FEWEST_CLASSES = 4
_PARTS = {
    "lower": "lower half labelled",
    "upper": "upper half labelled",
    "alternate": "every second labelled",
}


def at_home(plan: Plan, name: str) -> dict[str, Any]:
    """How a room trains that has joined the federation of a plan: change the plan by this."""
    kind = find(name)
    # Who sends no weights leaves a new room with a net that has yet to learn everything.
    if name == FedJoin.name or not can_be_joined(kind) or not kind.averages_weights:
        return {}
    return {"training": {"learning_rate": _HOME_RATE * plan.training.learning_rate}}


def _for_rounds(plan: Plan, name: str) -> dict[str, Any]:
    """What FedJoin and its variants set by the rounds: a short run would never come to guess."""
    kind = find(name)
    return kind.settings_for(plan.rounds) if issubclass(kind, FedJoin) else {}


def new_room_case(
    plan: Plan, name: str, labels: Mapping[str, Any], mark: str, value: float | str
) -> Case:
    """Each room in turn as the new one.

    Args:
        plan: of the federation.
        name: of the algorithm.
        labels: settings of ``data`` that take labels away from the new room; none is all labels.
        mark: tells this case from others of the algorithm.
        value: what is varied.
    """
    kind = find(name)
    few = {**labels, "unlabelled": "keep"} if labels else {}
    return Case(
        f"{name}-{mark}",
        {
            "algorithm": {"name": name, **_for_rounds(plan, name)},
            "answerable": "room",
            "data": few,
            **at_home(plan, name),
        },
        f"{kind.title}, {mark}",
        kind.title,
        value,
        joins={"algorithm": name} if can_be_joined(kind) else None,
        needs_batch_norm=kind.needs_batch_norm,
        optional=kind.needs_features,
    )


def _onboarding(plan: Plan) -> Sequence[Case]:
    """The whole curve for some, one recording of every class for all."""
    unit, numbers, most = fewer_labels(plan)
    cases = []
    for name in _methods():
        for number in numbers if name in _CURVES else numbers[:1]:
            cases.append(new_room_case(plan, name, {unit: number}, str(number), number))
        if name in _CURVES:
            cases.append(new_room_case(plan, name, {}, str(most), most))
    return cases


def _methods() -> list[str]:
    """Every method, in groups: those of the paper, others, controls; the oldest first."""
    order = {"paper": 0, "more": 1, "control": 2}
    kinds = [find(name) for name in names()]
    chosen = [
        kind
        for kind in kinds
        if not kind.pools
        and not kind.needs_batch_norm  # our counter has none
        and not kind.needs_validation  # no label is left for it
        and (not is_variant(kind) or kind.pools_in_turn or kind.name == FedJoin.control)
    ]
    return [kind.name for kind in sorted(chosen, key=lambda k: (order[k.group], k.year, k.name))]


def fewer_labels(plan: Plan) -> tuple[str, list[int], int]:
    """What is counted, numbers of it that are fewer than all, and how many there are of a class."""
    unit, most = _most_labels(plan)
    numbers = [2**power for power in range(16) if 2**power < most]
    if unit == "train_windows":
        numbers = [number for number in (3, 10, 30, 100) if number < most]
    return unit, numbers, most


def _most_labels(plan: Plan) -> tuple[str, int]:
    """What is counted, recordings or windows, and how many of a class there are to train on.

    Windows where every class has one recording: features, for one.
    """
    recordings, windows = most_of_a_class(plan)
    return ("train_recordings", recordings) if recordings > 1 else ("train_windows", windows)


def _unseen(plan: Plan) -> Sequence[Case]:
    classes = agree_by_cards(plan, workers=None).classes
    if len(classes) < _FEWEST_CLASSES or not all(isinstance(label, int) for label in classes):
        told = ", ".join(map(str, classes))
        raise PlanError(
            f"unseen-counts: the rooms have the classes {told:.80}; {_FEWEST_CLASSES} counts or "
            "more are needed, half of which can lose their labels: use other rooms"
        )
    methods = (
        *(Local.name, FedAvg.name, FedProto.name, REFERENCE),
        *(FedJoin.name, FedJoin.control, PooledNewcomer.name),
    )
    cases = []
    for part, told in _PARTS.items():
        few = {"train_classes": part}
        cases += [new_room_case(plan, name, few, told, part) for name in methods]
        cases += [_of_another_net(plan, few, told, part, across=across) for across in (True, False)]
    return cases


def _of_another_net(
    plan: Plan, labels: Mapping[str, Any], told: str, part: str, *, across: bool
) -> Case:
    """FedJoin for a room whose net nobody else has: prototypes carried over from theirs, or not."""
    case = new_room_case(plan, FedJoin.name, labels, told, part)
    mark, title = ("carried", "carried over") if across else ("apart", "nothing carried over")
    return replace(
        case,
        name=f"{FedJoin.name}-{mark}-{told}",
        change={
            **case.change,
            "algorithm": {**case.change["algorithm"], "across": across},
            "model": {"architecture": FeatureMLP.architecture},
        },
        title=f"{FedJoin.title}, another net, {title}, {told}",
        group=f"{FedJoin.title}, another net, {title}",
        for_vectors=True,
    )


def _fewer(plan: Plan, study: str) -> tuple[str, list[int]]:
    """What is counted, recordings or windows, and how many labels of each class are left."""
    unit, most = _most_labels(plan)
    numbers = (1, 2, 4) if unit == "train_recordings" else (3, 10, 30)
    if most <= numbers[0]:
        raise PlanError(
            f"{study}: no class has more than {most} windows to train on, so no label can be "
            "taken away; use a shorter window, or record more"
        )
    return unit, [number for number in numbers if number < most]


def _few_labels(plan: Plan) -> Sequence[Case]:
    """Every room with few labels; FedJoin also with its unlabelled windows, beside controls."""
    unit, numbers = _fewer(plan, "few-labels")
    always = {"unlabelled": "always"}
    shuffled = FedJoinShuffled.name
    methods: list[tuple[str, str, dict[str, Any], str]] = [
        *((name, name, {}, find(name).title) for name in (Local.name, FedAvg.name, FedProto.name)),
        (REFERENCE, REFERENCE, {}, find(REFERENCE).title),
        (FedJoin.name, FedJoin.name, {}, FedJoin.title),
        (f"{FedJoin.name}-unlabelled", FedJoin.name, always, f"{FedJoin.title}, unlabelled too"),
        (FedJoin.control, FedJoin.control, always, f"{find(FedJoin.control).title}, unlabelled"),
        (shuffled, shuffled, always, FedJoinShuffled.title),
        (
            *(f"{FedJoin.name}-consistent", FedJoin.name, {"consistency": 1.0}),
            f"{FedJoin.title}, consistent on unlabelled",
        ),
    ]
    return [
        Case(
            f"{mark}-{number}",
            {
                "algorithm": {"name": name, **_for_rounds(plan, name), **settings},
                "answerable": "room",
                "data": {unit: number, "unlabelled": "keep"},
            },
            f"{title}, {number}",
            title,
            number,
        )
        for mark, name, settings, title in methods
        for number in numbers
    ]


def _what_travels(plan: Plan) -> Sequence[Case]:
    """FedJoin with all rooms poor, with less and less in its messages; and nothing in them."""
    unit, numbers = _fewer(plan, "what-travels")
    few = {"answerable": "room", "data": {unit: numbers[0], "unlabelled": "keep"}}
    rows: list[tuple[str, str, dict[str, Any]]] = [
        (FedJoin.name, FedJoin.title, {}),
        *(
            (
                f"{FedJoin.name}-every-{rounds}",
                f"weights every {rounds} rounds",
                {"algorithm": {"name": FedJoin.name, "weights_every": rounds}},
            )
            for rounds in (2, 5, 10)
        ),
        *(
            (f"{FedJoin.name}-{precision}", precision, {"precision": precision})
            for precision in ("float16", "int8")
        ),
        (
            f"{FedJoin.name}-least",
            "int8, weights every 5 rounds",
            {"algorithm": {"name": FedJoin.name, "weights_every": 5}, "precision": "int8"},
        ),
        (FedJoin.control, find(FedJoin.control).title, {"algorithm": FedJoin.control}),
    ]
    return [
        Case(name, {"algorithm": FedJoin.name, **few, **change}, title)
        for name, title, change in rows
    ]


_NOTES = (
    "Each room in turn joins a finished federation of the others, which have all their labels; "
    "figures are means over the new rooms. A new room may use windows without a label, and says "
    "which counts it may have; its validation windows have no label either, so probabilities are "
    "calibrated by nobody, or by the others where that travels. With all labels it has those of "
    "its validation windows, too, and calibrates by them.",
    "The view was chosen once by all rooms with all their labels, before any was taken away.",
    "KB are those of a round in a federation; a room that joins needs the first download alone.",
)
_LABELS = "Labels of each class are recordings, or windows where a class has one recording."

ONBOARDING = Experiment(
    "onboarding",
    "Onboarding: a new room with few labels",
    _onboarding,
    (CHOSEN,),
    parameter="labels of each class",
    notes=(_LABELS, *_NOTES),
    fixed=True,
    reference=FedJoin.name,
)
"""``fedapa reproduce onboarding``: a new room joins with 1, 2, 4, … labelled recordings a count.

Expected shape: accuracy and MAE by the labels of every count, a line for each of Local, FedAvg,
FedRep, FedProto, FedAPA, FedJoin and the pooled newcomer, and every other method with one recording
of each. What is shared leads on the left and ends where Local ends.
"""

FEW_LABELS = Experiment(
    "few-labels",
    "Few labels: all rooms have few, the rest of their windows none",
    _few_labels,
    (CHOSEN,),
    parameter="labels of each class",
    notes=(
        _LABELS,
        "All rooms have few labels; their other train windows and their validation windows have "
        "none, and normalisers are of all of them. A room says which counts it may have.",
    ),
    fixed=True,
    reference=FedJoin.name,
)
"""``fedapa reproduce few-labels``: all rooms have few labels, and windows without any.

Expected shape: as onboarding with a smaller gain, since the others know as little; and what windows
without a label add, beside the same loss alone and beside guesses that are shuffled.
"""

UNSEEN_COUNTS = Experiment(
    "unseen-counts",
    "Unseen counts: a new room that labelled half of its counts",
    _unseen,
    (CHOSEN,),
    parameter="which counts have labels",
    notes=_NOTES,
    fixed=True,
    reference=FedJoin.name,
)
"""``fedapa reproduce unseen-counts``: a new room with labels for half of its counts.

Expected shape: a row for each method and each half of the counts that has labels, with figures of
the counts without labels by themselves. Local has none of those right; who shares is near them.
"""

WHAT_TRAVELS = Experiment(
    "what-travels",
    "What travels: FedJoin with fewer bytes, all rooms with few labels",
    _what_travels,
    (CHOSEN,),
    notes=(
        "All rooms have one labelled recording of every class (3 windows where there is one "
        "recording). Prototypes travel in every round; weights where it is their turn.",
    ),
    fixed=True,
    reference=FedJoin.name,
)
"""``fedapa reproduce what-travels``: accuracy beside the bytes of a round.

Expected shape: a row for each saving, KB falling to a tenth and less, accuracy near FedJoin's own
until weights travel too seldom.
"""
