"""From a plan to rooms, in steps that a room can do alone, and one that the server does.

::

    room     survey_rooms(plan)                 where its windows come from; not yet their values
    room     tell_data(plan, origins)           → DataCard, with the splits that it allows and the
                                                  views that suit it
    server   agree(plan, cards)                 → Agreement: one class list, one way to split, one
                                                  view, a net for every room
    room     cut_windows(plan, view=…)          its own windows, seen as agreed
    room     make_room(plan, windows, …)        → Room, its windows split as agreed
    room     introduce(room)                    → RoomCard (participant.py)

``prepare_rooms`` does all of them in one process, ``in_process`` makes an engine of the result.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fedapa.algorithms.algorithm import Algorithm
from fedapa.errors import DataError, PlanError, RosterError, nearest
from fedapa.federation.attack import attackers
from fedapa.federation.engines.in_process import InProcess
from fedapa.federation.messages import Agreement, decode_data_card, encode_data_card
from fedapa.federation.plan import Plan
from fedapa.federation.trial import try_views
from fedapa.learning.accounting import check_accountant
from fedapa.learning.augment import Augmenter
from fedapa.models.build import assign_by_size, is_for_vectors, usual_net
from fedapa.models.cost import layers
from fedapa.models.graph import graph_of
from fedapa.processes import Progress, Show, available_cores, side_by_side, unseen
from fedapa.randomness import Key
from fedapa.rooms.card import DataCard, RoomCard
from fedapa.rooms.room import Room
from fedapa.rooms.skew import deal
from fedapa.rooms.task import ACTIVITY, Task
from fedapa.stores.materialise import (
    WORTH_WORKERS,
    RoomWindows,
    Surveyed,
    materialise,
    short_recordings,
    survey,
)
from fedapa.stores.simulated import simulated_store
from fedapa.stores.store import Store
from fedapa.toml import parse_toml
from fedapa.windows.labels import Label, class_indices, sorted_labels
from fedapa.windows.normalise import Normaliser
from fedapa.windows.origins import Origins
from fedapa.windows.recipe import Recipe, told_together
from fedapa.windows.split import (
    STRICTEST_FIRST,
    Split,
    SplitKind,
    check_learnable,
    refused_splits,
    split_windows,
    with_fewer_labels,
)
from fedapa.windows.views import PER_LINK, VIEWS, find_view
from fedapa.windows.views.statistics import Statistics

__all__ = [
    "GIVEN_ROOMS",
    "agree",
    "agree_by_cards",
    "check_batches",
    "check_nets",
    "check_training",
    "cut_windows",
    "describe",
    "in_process",
    "make_room",
    "prepare_rooms",
    "split_own",
    "store_of",
    "survey_rooms",
    "tell_data",
    "told_short",
]

_S = TypeVar("_S", bound=Surveyed)
_REASONS = 3
"""Why views are left out, told at most."""
GIVEN_ROOMS = "rooms given in Python"
"""What stands for a file where there is none."""
_USUAL_VIEW = Statistics.name
"""Where rooms cannot tell: with few recordings amplitudes are learned by heart."""


# ---- what a room does ----------------------------------------------------------------------------


def survey_rooms(
    plan: Plan, show: Show = unseen, *, workers: int | None = 0
) -> tuple[Surveyed, ...]:
    """What there is to agree on: where the windows come from and, where it is said, their view.

    Only where the rooms choose the view does this differ from ``cut_windows``.
    """
    if plan.data.view != "auto":
        return cut_windows(plan, show, workers=workers)
    store = store_of(plan, show, workers)
    recipe, chosen = _asked(plan, store)
    surveyed = tuple(_asked_of(plan, one) for one in survey(store, recipe, rooms=chosen))
    if any(not origins.shapes for origins in surveyed):  # of features there is one view
        return cut_windows(plan, show, workers=workers)
    if plan.data.partition != "rooms":
        raise PlanError(
            'data.view = "auto": the view is chosen by the rooms as they are, and data.partition '
            "deals their windows anew; name a view, e.g. data.view = 'statistics'"
        )
    return surveyed


def cut_windows(
    plan: Plan, show: Show = unseen, *, view: str | None = None, workers: int | None = 0
) -> tuple[RoomWindows, ...]:
    """The windows of the rooms in the plan's data, which for a room alone is its own.

    Where the plan deals windows anew (``data.partition``), all rooms must be in one place. ``view``
    is what was agreed on where the rooms choose it.
    """
    store = store_of(plan, show, workers)
    recipe, chosen = _asked(plan, store, view)
    cut = materialise(store, recipe, rooms=chosen, workers=_processes(workers), show=show)
    windows = tuple(_asked_of(plan, one) for one in cut)
    if plan.data.partition == "rooms":
        return windows
    _refuse_unequal(plan, {own.room: own.open().shape[1:] for own in windows}, {})
    return deal(
        windows,
        kind=plan.data.partition,
        rooms=plan.data.partition_rooms,
        concentration=plan.data.partition_concentration,
        classes=plan.data.partition_classes,
        whole_recordings=plan.data.split != "random",
        key=Key(plan.seed) / "partition",
    )


def told_short(plan: Plan) -> list[str]:
    """What recordings of the plan's store are too short for, in sentences; mostly nothing.

    Simulated rooms are recorded in whole windows.
    """
    if plan.data.file is None or plan.data.file == GIVEN_ROOMS:
        return []
    store = store_of(plan)
    recipe, chosen = _asked(plan, store)
    return short_recordings(store, recipe, rooms=chosen)


def _asked(plan: Plan, store: Path, view: str | None = None) -> tuple[Recipe, tuple[str, ...]]:
    """How the plan cuts a store, and which of its rooms."""
    with Store(store) as opened:
        return plan.data.recipe(opened.window, view), plan.data.rooms_of(opened)


def _asked_of(plan: Plan, origins: _S) -> _S:
    """A room's windows with what the plan's tasks ask of them; refuses one that cannot answer."""
    if plan.data.tasks == "label":
        return replace(origins, activities=())
    if not origins.activities:
        raise DataError(
            f"{_source(plan)}: data.tasks = '{plan.data.tasks}', and no recording of room "
            f"'{origins.room}' has an activity; import them with {{activity}} in the pattern or a "
            "column 'activity', leave the room out, or use data.tasks = 'label'"
        )
    if plan.data.tasks == "both":
        return origins
    strata = zip(origins.activities, origins.strata, strict=True) if origins.strata else ()
    return replace(
        origins,
        labels=origins.activities,
        activities=(),
        strata=tuple(None if activity is None else pair for activity, pair in strata),
    )


def split_own(plan: Plan, windows: Surveyed, kind: SplitKind) -> Split:
    """Which of a room's windows train, validate and test."""
    split = split_windows(
        windows.room,
        windows.strata or windows.labels,
        windows.recordings,
        windows.starts,
        spans=windows.spans,
        kind=kind,
        key=Key(plan.seed) / "split" / windows.room,
        days=windows.days,
        continuous=windows.continuous,
        train_only=windows.train_only,
        test=plan.data.test,
        validation=plan.data.validation,
        validation_of=plan.data.validation_of,
    )
    data = plan.data
    if data.scored == "validation":
        split = split.scoring_validation()
    poor = data.few_labels_in is None or windows.room in data.few_labels_in
    if not data.fewer or not poor:
        return split
    return with_fewer_labels(
        split,
        windows.labels,
        windows.recordings,
        windows.starts,
        key=Key(plan.seed) / "fewer recordings" / windows.room,
        most_recordings=data.train_recordings,
        most_windows=data.train_windows,
        classes=data.train_classes,
        keep=data.unlabelled == "keep",
    )


def tell_data(plan: Plan, origins: Surveyed) -> DataCard:
    """What the server must know of a room's windows before classes, view and nets are agreed on."""
    check_learnable(origins.room, origins.labels, origins.continuous, origins.train_only)
    refused = {} if plan.data.split != "auto" else _refused_splits(origins)
    kinds = STRICTEST_FIRST if plan.data.split == "auto" else (plan.data.split,)
    splits: dict[SplitKind, Split] = {}
    for kind in (kind for kind in kinds if kind not in refused):
        try:
            splits[kind] = split_own(plan, origins, kind)
        except DataError:
            if plan.data.split != "auto":
                raise
            refused[kind] = "is left without windows to test"
    if not splits:
        reasons = "; ".join(f"{kind}: it {refused[kind]}" for kind in STRICTEST_FIRST)
        raise DataError(
            f"room '{origins.room}': split = 'auto' finds no way to split its windows ({reasons}); "
            "record every class twice, or leave the room out"
        )
    strictest = next(iter(splits))
    scores: Mapping[SplitKind, Mapping[str, float]] = {}
    if isinstance(origins, RoomWindows):
        shape = tuple(origins.open().shape[1:])
    else:
        views = _fitting_views(plan, origins)
        scores = try_views(store_of(plan), origins, splits, views)
        own = scores[strictest]
        shape = origins.shapes[max(views, key=lambda view: own[view])]  # of equals the simplest
    learned = zip(origins.labels, origins.continuous, strict=True)
    return DataCard(
        name=origins.room,
        labels=sorted_labels(label for label, continuous in learned if not continuous),
        window_shape=shape,
        parts=splits[strictest].sizes,
        synthetic=origins.synthetic,
        allowed_splits={kind: len(split.train) for kind, split in splits.items()},
        refused_splits=refused,
        view_shapes=origins.shapes,
        refused_views=origins.refused_views,
        view_scores=scores,
        activities=_held_activities(origins),
    )


def _held_activities(origins: Surveyed) -> tuple[str, ...]:
    """Those that there are windows of to learn from, each once, sorted."""
    learned = zip(origins.activities, origins.continuous, strict=bool(origins.activities))
    return tuple(sorted({told for told, over_time in learned if told and not over_time}))


def _fitting_views(plan: Plan, origins: Surveyed) -> list[str]:
    """The views that a room can have and that fit the plan's nets, the simplest first."""
    chosen = plan.model.architecture
    nets = list(chosen.values()) if isinstance(chosen, dict) else [chosen]
    wanted = {is_for_vectors(net) for net in nets if net != "auto"}
    if plan.build().needs_features:
        wanted.add(True)
    views = [
        view
        for view in origins.shapes
        if wanted <= {find_view(view).is_flat}
        and (view != PER_LINK or origins.recipe.links_used > 1)
    ]
    if not views:
        what = "vectors of numbers" if True in wanted else "matrices"
        left_out = _left_out({origins.room: origins.refused_views})
        raise PlanError(
            f"room '{origins.room}': {plan.build().title} with net {_net_names(nets)} needs "
            f"{what}, and none of its views ({', '.join(origins.shapes)}) is such"
            + (left_out or "; use another net, or a longer window")
        )
    return views


def _net_names(nets: Sequence[str]) -> str:
    return " and ".join(f"'{net}'" for net in dict.fromkeys(nets))


def _refused_splits(windows: Surveyed) -> dict[SplitKind, str]:
    return refused_splits(
        windows.strata or windows.labels,
        windows.recordings,
        windows.starts,
        spans=windows.spans,
        days=windows.days,
        continuous=windows.continuous,
        train_only=windows.train_only,
    )


def make_room(
    plan: Plan,
    windows: RoomWindows,
    *,
    agreed: Agreement,
    split: Split | None = None,
    normaliser: Normaliser | None = None,
) -> Room:
    """A room from its own windows and what was agreed on.

    A room whose store has grown gives split and normaliser: they do not begin anew.
    """
    if windows.room not in agreed.nets:
        raise RosterError(
            f"room '{windows.room}' is not among those that agreed "
            f"({', '.join(sorted(agreed.nets))}); tell its data card before"
        )
    if agreed.view is not None and windows.recipe.view != agreed.view:
        raise RosterError(
            f"room '{windows.room}': its windows are seen as '{windows.recipe.view}', the rooms "
            f"agreed on '{agreed.view}'; cut them again: cut_windows(plan, view=agreed.view)"
        )
    if split is None:
        split = replace(split_own(plan, windows, agreed.split), why=agreed.why)
    if normaliser is None:
        normaliser = windows.normaliser(split.seen)
    return Room(
        name=windows.room,
        windows=windows.open(),
        labels=class_indices(windows.room, windows.labels, agreed.classes),
        classes=agreed.classes,
        split=split,
        recipe=replace(windows.recipe, normaliser=normaliser),
        architecture=agreed.nets[windows.room],
        width=plan.model.width,
        normalise_embedding=plan.model.normalise_embedding,
        answer=plan.answer,
        answerable=_answerable(plan, windows, agreed.classes),
        initialisation=plan.model.initialisation,
        key=Key(plan.seed),
        device=plan.device,
        synthetic=windows.synthetic,
        view_why=agreed.view_why,
        origins=Origins.of(
            windows.recordings, windows.starts, spans=windows.spans, step=windows.step
        ),
        further=_further(windows, agreed),
        days=tuple(sorted({windows.days[window] for window in split.train.tolist()} - {""})),
    ).with_digest(windows.digest)


def _further(windows: RoomWindows, agreed: Agreement) -> tuple[Task, ...]:
    """The tasks beside the label that were agreed on."""
    if not agreed.activities:
        return ()
    index = class_indices(windows.room, windows.activities, agreed.activities)
    return (Task(ACTIVITY, agreed.activities, index),)


def _answerable(
    plan: Plan, windows: RoomWindows, classes: Sequence[Label]
) -> tuple[int, ...] | None:
    """The places of the classes that a room may answer; none is all of them."""
    if plan.answerable == "all":
        return None
    wanted = set(windows.labels) - {None}
    if not isinstance(plan.answerable, str):
        wanted |= set(plan.answerable)  # what was recorded can be there
        if unknown := [label for label in plan.answerable if label not in classes]:
            raise PlanError(
                f"answerable: nobody knows {unknown[0]!r}; known: {', '.join(map(str, classes))}"
            )
    return tuple(place for place, label in enumerate(classes) if label in wanted)


def check_batches(rooms: Iterable[Room], batch_size: int) -> None:
    """Refuse batches of one window where BatchNorm would have a single value to normalise."""
    for room in rooms:
        if batch_size > 1 and len(room.split.train) > 1:
            continue
        for layer in layers(room.build(), room.windows.shape[1:]):
            if layer.kind == "BatchNorm2d" and math.prod(layer.output[1:]) == 1:
                raise PlanError(
                    f"room '{room.name}': batches of one window of "
                    f"{' × '.join(map(str, room.windows.shape[1:]))} leave {layer.name} a single "
                    "value to normalise; use a larger batch_size or window, or a smaller net"
                )


def check_training(rooms: Iterable[Room], algorithm: Algorithm) -> None:
    """Refuse settings that would do nothing in a room, or nothing good.

    What fits once does not train: a preset's settings for those that do are not asked there.
    """
    training = algorithm.training
    if algorithm.fits_once:
        return
    pooled = algorithm.pools or algorithm.pools_in_turn
    if pooled and (training.patience or set(training.augment) - {"differences"}):
        raise PlanError(
            f"{algorithm.title} trains in one room on everybody's windows, which have normalisers "
            "and validation windows of their own: training.patience and training.augment but for "
            "'differences' mean nothing there; leave them out"
        )
    if algorithm.privacy.is_on:
        check_accountant()
    for room in rooms:
        if algorithm.privacy.is_on:
            room.units(algorithm.privacy.unit)
        Augmenter.of(room, training.augment)
        if training.patience and not len(room.split.validation):
            raise PlanError(
                f"training.patience: room '{room.name}' has no validation windows to stop by; "
                "raise data.validation, record more, or leave patience out"
            )


def check_nets(rooms: Iterable[Room]) -> None:
    """Refuse a net that could be trained and not be saved: a model file holds its ONNX graph."""
    alike = {room.net_facts: room for room in reversed(list(rooms))}  # the first of each kind
    for room in reversed(alike.values()):
        try:
            graph_of(room.build(), room.windows.shape[1:])
        except DataError as error:
            raise PlanError(
                f"room '{room.name}': its net '{room.architecture}' cannot be saved: {error}"
            ) from error


# ---- what the server does ------------------------------------------------------------------------


def agree(plan: Plan, cards: Sequence[DataCard]) -> Agreement:
    """One class list, one split, a net for every room; refuses, by name, rooms that do not fit."""
    if not cards:
        raise RosterError("there are no rooms to agree; a federation needs at least one")
    if len({card.name for card in cards}) < len(cards):
        names = [card.name for card in cards]
        twice = next(name for name in names if names.count(name) > 1)
        raise RosterError(f"room '{twice}' appears twice; rename one of them")
    split, why = _split(plan, cards)
    view, view_why = _view(plan, cards, split)
    shapes = {card.name: card.view_shapes.get(view or "", card.window_shape) for card in cards}
    _refuse_unequal(plan, shapes, _alike(cards))
    shape = shapes[cards[0].name]
    return Agreement(
        classes=_classes(plan, cards),
        window_shape=shape,
        nets=_nets(
            plan,
            {card.name: card.allowed_splits.get(split, card.parts["train"]) for card in cards},
            shape,
        ),
        split=split,
        why=why,
        view=view,
        view_why=view_why,
        activities=_activities(plan, cards),
    )


def _activities(plan: Plan, cards: Sequence[DataCard]) -> tuple[str, ...]:
    """The classes of a second task, where the plan asks for it."""
    if plan.data.tasks != "both":
        return ()
    for card in cards:
        if len(card.activities) < 2:
            raise DataError(
                f"room '{card.name}' has a single activity ({''.join(card.activities)!r}): there "
                "is nothing to tell apart; record another one there, or use data.tasks = 'label'"
            )
    return tuple(sorted({activity for card in cards for activity in card.activities}))


def _alike(cards: Sequence[DataCard]) -> dict[str, tuple[int, ...]]:
    """The views under which all rooms have windows of one shape, the simplest first."""
    return {
        view: shape
        for view, shape in cards[0].view_shapes.items()
        if all(card.view_shapes.get(view) == shape for card in cards)
    }


def _view(plan: Plan, cards: Sequence[DataCard], split: SplitKind) -> tuple[str | None, str]:
    """The view that all rooms have, and why, in words; none where windows came finished."""
    if not any(card.view_shapes for card in cards):
        return None, "the windows came finished"
    if plan.data.view != "auto":
        return plan.data.view, "the plan asks for it"
    alike = _alike(cards)
    told = [card.view_scores.get(split, {}) for card in cards]
    scores = {
        view: float(np.mean([mine[view] for mine in told]))
        for view in VIEWS
        if view in alike and all(view in mine for mine in told)
    }
    if not scores:
        tried = "; ".join(
            f"room '{card.name}': {', '.join(mine) or 'none tried'}"
            for card, mine in zip(cards, told, strict=True)
        )
        raise RosterError(
            "view = 'auto': the rooms have no view in common that fits the nets and gives windows "
            f'of one shape ({tried:.400}); leave rooms out, use architecture = "auto", or name a '
            "view"
        )
    left_out = _left_out({card.name: card.refused_views for card in cards})
    if not any(scores.values()):
        usual = _USUAL_VIEW if _USUAL_VIEW in scores else next(iter(scores))
        return usual, f"the usual one: there are too few windows to choose by{left_out}"
    best = max(scores, key=lambda view: round(scores[view], 2))  # of equals the simplest
    if left_out and len(scores) == 1:
        return best, f"the only view that is left{left_out}"
    shares = ", ".join(f"{view} {100 * score:.0f}" for view, score in scores.items())
    return best, f"a linear model gets most unseen windows right with it, in %: {shares}{left_out}"


def _left_out(refused: Mapping[str, Mapping[str, str]]) -> str:
    """The views that rooms cannot have, by reason, for the end of a sentence; mostly nothing.

    Args:
        refused: room → view → reason.
    """
    reasons: dict[str, list[str]] = {}
    for view in VIEWS:
        rooms = [room for room in refused if view in refused[room]]
        if rooms:
            reason = f"room '{rooms[0]}': {refused[rooms[0]][view]}"
            reasons.setdefault(reason, []).append(view)
    told = [f"{', '.join(views)} ({reason})" for reason, views in reasons.items()]
    more = [f"{len(told) - _REASONS} more"] if len(told) > _REASONS else []
    return f"; left out: {'; '.join([*told[:_REASONS], *more])}" if told else ""


def _split(plan: Plan, cards: Sequence[DataCard]) -> tuple[SplitKind, str]:
    """The split that all rooms use, and why, as a sentence."""
    if plan.data.split != "auto":
        return plan.data.split, "the plan asks for it"
    reasons: list[str] = []
    for kind in STRICTEST_FIRST:
        refusing = [card for card in cards if kind not in card.allowed_splits]
        if not refusing:
            return kind, "; ".join(["the strictest that all rooms allow", *reasons])
        reason = refusing[0].refused_splits.get(kind, "does not tell of it")
        reasons.append(f"not {kind}, because room '{refusing[0].name}' {reason}")
    raise RosterError(
        f"split = 'auto': there is none that all rooms allow ({'; '.join(reasons)}); "
        "leave rooms out, or record every class twice"
    )


def _refuse_unequal(
    plan: Plan, shapes: Mapping[str, tuple[int, ...]], alike: Mapping[str, tuple[int, ...]]
) -> None:
    """Refuse rooms whose windows differ, with the views under which they would not."""
    first, *peers = shapes
    for room in peers:
        if shapes[room] != shapes[first]:
            remedy = (
                f"with data.view = {' or '.join(repr(view) for view in alike)} they have one"
                if alike
                else "import them with the same bandwidth, or leave one out"
            )
            raise DataError(
                f"{_source(plan)}: room '{room}' has windows of {shapes[room]}, room '{first}' of "
                f"{shapes[first]}; rooms that learn together need one window shape: {remedy}"
            )


def _classes(plan: Plan, cards: Sequence[DataCard]) -> tuple[Label, ...]:
    for card in cards:
        if len(card.labels) < 2:
            raise DataError(
                f"room '{card.name}' has a single class ({card.labels[0]!r}): there is nothing to "
                "tell apart; record another count there or leave the room out"
            )
    labels = sorted_labels({label for card in cards for label in card.labels})
    if plan.answer == "expected" and isinstance(labels[-1], str):
        raise PlanError(
            f"answer = 'expected': classes such as {labels[-1]!r} are categories and have no mean; "
            "leave it out, or use 'head' or 'nearest'"
        )
    if len({type(label) for label in labels}) > 1:
        counts, categories = (
            ", ".join(
                f"room '{card.name}'"
                for card in cards
                if any(isinstance(label, kind) for label in card.labels)
            )
            for kind in (int, str)
        )
        raise DataError(
            f"labels mix counts and categories: {labels[0]!r} … in {counts}, {labels[-1]!r} … in "
            f"{categories}; use one kind, or leave rooms out"
        )
    return plan.classes if plan.classes is not None else labels


def _nets(plan: Plan, train_windows: Mapping[str, int], shape: Sequence[int]) -> Mapping[str, str]:
    chosen = plan.model.architecture
    if chosen == "auto":
        chosen = usual_net(shape)
    if isinstance(chosen, dict):
        for room in sorted({*chosen, *train_windows}):
            if room not in train_windows:
                raise PlanError(
                    f"model.architecture: there is no room '{room}' in the data; "
                    f"{nearest(room, sorted(train_windows))}"
                )
            if room not in chosen:
                raise PlanError(f"model.architecture: room '{room}' has no net; name one for it")
        return chosen
    if chosen == "by-size":
        return assign_by_size(dict(train_windows))
    return dict.fromkeys(train_windows, chosen)


def describe(cards: Sequence[RoomCard], plan: Plan) -> dict[str, Any]:
    """What the data of a run is, without any of it."""
    return {
        "source": _source(plan),
        "synthetic": any(card.synthetic for card in cards),
        "split": " and ".join(sorted({card.split for card in cards})),
        **({"scored": plan.data.scored} if plan.data.scored != "test" else {}),
        "why": " and ".join(sorted({card.split_why or "given with the rooms" for card in cards})),
        "classes": list(cards[0].labels),
        **{f"{task} classes": list(labels) for task, labels in cards[0].further.items()},
        "window_shape": list(cards[0].window_shape),
        "windows": told_together(card.windows_are for card in cards),
        "view_why": " and ".join(dict.fromkeys(card.view_why for card in cards)),
        "rooms": {
            card.name: {
                "architecture": card.architecture,
                "synthetic": card.synthetic,
                **card.parts,
                "continuous": card.continuous,
                **({"unlabelled": card.unlabelled} if card.unlabelled else {}),
                "recordings": dict(card.recordings),
                "fingerprint": card.fingerprint,
            }
            for card in cards
        },
    }


def _source(plan: Plan) -> str:
    """Where the windows come from, in words."""
    data = plan.data
    source = data.file or f"simulated rooms '{data.simulated}'"
    dealt = {
        "rooms": "",
        "dirichlet": f", dealt to {data.partition_rooms} rooms by Dirichlet shares, "
        f"α = {data.partition_concentration:g}",
        "classes": f", dealt to {data.partition_rooms} rooms with {data.partition_classes} "
        "classes each",
    }
    return source + dealt[data.partition]


# ---- all of it in one process --------------------------------------------------------------------


def prepare_rooms(plan: Plan, show: Show = unseen, *, workers: int | None = 0) -> list[Room]:
    """The plan's rooms, ready to learn."""
    if plan.data.view == "auto":
        agreed = agree_by_cards(plan, show, workers=workers)
        windows = cut_windows(plan, show, view=agreed.view, workers=workers)
    else:
        windows = cut_windows(plan, show, workers=workers)
        agreed = agree(plan, [tell_data(plan, own) for own in windows])
    rooms = []
    for number, own in enumerate(windows, start=1):
        rooms.append(make_room(plan, own, agreed=agreed))
        show(Progress("normalising", number, len(windows), "rooms"))
    return rooms


def agree_by_cards(plan: Plan, show: Show = unseen, *, workers: int | None = 0) -> Agreement:
    """What a plan's rooms agree on, before a room is made."""
    if plan.data.view == "auto":
        return agree(plan, _tell_rooms(plan, show, workers=workers))
    surveyed = survey_rooms(plan, show, workers=workers)
    return agree(plan, [tell_data(plan, origins) for origins in surveyed])


def _tell_rooms(plan: Plan, show: Show, *, workers: int | None) -> list[DataCard]:
    """The cards of a plan's rooms where they try views, side by side where that is worth while."""
    store = store_of(plan, show, workers)
    rooms, number = _asked(plan, store)[1], _processes(workers)
    if number > 1 and len(rooms) > 1 and store.stat().st_size >= WORTH_WORKERS:
        tasks = [(room, plan.toml()) for room in rooms]
        told = side_by_side(
            _tell_in_worker,
            tasks,
            workers=number,
            stage="choosing the view",
            unit="rooms",
            show=show,
        )
        return [decode_data_card(card) for card in told]
    cards = []
    for done, origins in enumerate(survey_rooms(plan, show, workers=workers), start=1):
        cards.append(tell_data(plan, origins))
        show(Progress("choosing the view", done, len(rooms), "rooms"))
    return cards


def _tell_in_worker(room: str, plan: str) -> bytes:
    """In a worker: the card of one room."""
    document = parse_toml(plan, "task of a worker")
    data = {**document["data"], "only": [room]}
    data.pop("without", None)
    alone = Plan(**{**document, "data": data})
    (origins,) = survey_rooms(alone)
    return encode_data_card(tell_data(alone, origins))


def in_process(
    plan: Plan,
    folder: Path,
    *,
    rooms: Sequence[Room] | None = None,
    workers: int | None = None,
    show: Show = unseen,
) -> InProcess:
    """The engine of a plan whose rooms are all on this machine.

    Args:
        plan: which rooms, and the algorithm that they follow.
        folder: the run's; rooms keep their states and finished nets below it.
        rooms: rooms of your own instead of the plan's data.
        workers: processes to train rooms in; by default one a core, 0 is this process.
        show: called as work goes on.
    """
    prepared = list(rooms) if rooms is not None else prepare_rooms(plan, show, workers=workers)
    check_batches(prepared, plan.training.batch_size)
    check_training(prepared, plan.build())
    check_nets(prepared)
    attack = plan.attack
    return InProcess(
        plan.build(),
        prepared,
        folder=folder,
        workers=workers,
        attack=attack,
        attackers=()
        if attack is None
        else attackers(attack.share, [room.name for room in prepared], plan.seed),
    )


def store_of(plan: Plan, show: Show = unseen, workers: int | None = 0) -> Path:
    """The store of a plan's data; simulated rooms are made where they are not there yet."""
    if plan.data.file == GIVEN_ROOMS:
        raise PlanError(
            "this plan is of rooms that were given in Python; give them again: run(plan, rooms=…)"
        )
    if plan.data.file is not None:
        return Path(plan.data.file)
    return simulated_store(
        plan.data.simulated,
        plan.data.simulated_seed,
        workers=_processes(workers),
        show=show,
    )


def _processes(workers: int | None) -> int:
    """How many; none is one a core, and 0 is this process alone."""
    return available_cores() if workers is None else max(1, workers)
