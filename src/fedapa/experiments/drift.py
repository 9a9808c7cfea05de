"""``fedapa reproduce drift``: does a counter hold on later days, and what helps without labels?

A room trains on its first days. Then its model file counts through the days after them, recording
after recording, and may follow the room while it does (``fedapa.adaptation``). On the first of
these days, the validation days, it is decided what follows: nothing, unless something wins there.
The days after them are the test. Beside it stand every
other way to follow, and ten windows of each day with a label.

Expected shape: accuracy and MAE by day, a figure for each algorithm, a line for each way to follow.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedapa.adaptation import Adaptation, Embed, Trained, begin, follow_all, taught
from fedapa.algorithms import find
from fedapa.algorithms.fedjoin import FedJoin
from fedapa.algorithms.local import Local
from fedapa.errors import PlanError
from fedapa.evaluation.metrics import METRICS, confusion, counts_people, median_scores, score
from fedapa.evaluation.results import Outcome, Results, Row, Setting, figures_of
from fedapa.experiments.experiment import CHOSEN, Case, Experiment
from fedapa.federation.plan import DataPlan, Plan
from fedapa.federation.prepare import cut_windows, prepare_rooms, split_own
from fedapa.federation.run import Run
from fedapa.learning.batch_norm import following
from fedapa.payload import Array
from fedapa.processes import Progress, Show, unseen
from fedapa.randomness import Key
from fedapa.report.runs import Runs
from fedapa.rooms.model_file import load_model, read_recipe, read_weights
from fedapa.rooms.room import Room
from fedapa.stores.materialise import RoomWindows
from fedapa.windows.labels import NO_CLASS, Label, class_indices
from fedapa.windows.split import by_date

__all__ = ["CHOSEN_LINE", "DRIFT", "Watched", "chosen_of", "followed_days", "watch"]

_METHODS = (Local.name, FedJoin.name)
_THIRDS = {"test": 1 / 3, "validation": 1 / 2}
"""Of the days: a third tests, half of the others validates."""
_LABELLED = 10
"""Windows of a day with a label, in the row that has some."""
_NOTHING, _NORMS, _TAUGHT, CHOSEN_LINE = "nothing", "norms", "labelled", "chosen"
_WAYS: Mapping[str, tuple[str, Adaptation]] = {
    _NOTHING: ("Nothing", Adaptation()),
    "normaliser": ("Normaliser", Adaptation(normaliser=True)),
    "empty": ("Empty room", Adaptation(recentre="empty")),
    "prototypes": ("Prototypes", Adaptation(recentre="prototypes")),
    "both": (
        "Normaliser and prototypes",
        Adaptation(normaliser=True, recentre="prototypes"),
    ),
}
"""By name: what a table calls it, and what follows the room."""
_TITLES = {
    CHOSEN_LINE: "Chosen on validation days",
    **{name: title for name, (title, _) in _WAYS.items()},
    _NORMS: "BatchNorm",
    _TAUGHT: f"{_LABELLED} labelled windows",
}

_Index = npt.NDArray[np.int64]
_Scores = Mapping[str, float]
Watched = Mapping[str, Mapping[int, Mapping[str, _Scores]]]
"""line → day, from 1 → room → metrics."""


def _cases(plan: Plan) -> Sequence[Case]:
    if plan.data.split not in ("auto", "later"):
        raise PlanError(
            f"drift: split = '{plan.data.split}', but it trains on the first days and tests on the "
            "last; use --split later"
        )
    if plan.data.partition != "rooms" or plan.data.fewer:
        raise PlanError(
            "drift: needs rooms as they are, with all labels of their first days; leave "
            "data.partition and what takes labels away out"
        )
    if not plan.data.validation:
        raise PlanError(
            "drift: data.validation = 0 leaves no day to choose on what follows; leave it out"
        )
    data: dict[str, Any] = {"split": "later"}
    for name, share in _THIRDS.items():
        if getattr(plan.data, name) == DataPlan.model_fields[name].default:
            data[name] = share
    # FedJoin's loss says nothing of counts that a room does not hold, so it is told them.
    told = {FedJoin.name: {"answerable": "room"}}
    return [
        Case(
            kind.name,
            {"algorithm": kind.name, "data": data, **told.get(kind.name, {})},
            kind.title,
        )
        for kind in map(find, _METHODS)
    ]


# ---- one room, day by day -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Day:
    """The windows of one room on one day, in the order in which they are counted."""

    number: int
    """From 1, over all days of the room."""
    tested: bool
    """Else it is a validation day."""
    windows: _Index
    labelled: npt.NDArray[np.bool_]
    """[windows] those that the labelled row has the labels of; nobody is scored on them."""


def _days(plan: Plan, own: RoomWindows, classes: _Index) -> Iterator[_Day]:
    """The validation and the test days; recordings in an order that the seed draws."""
    split = split_own(plan, own, "later")
    recordings, days = np.asarray(own.recordings), np.asarray(own.days)
    dated = classes != NO_CLASS
    dated[split.continuous] = False
    order = by_date(days[dated].tolist())  # also days that no class of the first ones is on
    for part in ("validation", "test"):
        index = getattr(split, part)
        for day in by_date(days[index].tolist()):
            key = Key(plan.seed) / "drift" / own.room / day
            mine = index[days[index] == day]
            drawn = (key / "order").numpy().permutation(np.unique(recordings[mine]))
            rank = {name: place for place, name in enumerate(drawn.tolist())}
            places = [rank[name] for name in recordings[mine].tolist()]
            mine = mine[np.lexsort((own.starts[mine], places))]
            labelled = _labelled(classes[mine], key / "labelled")
            yield _Day(1 + order.index(day), part == "test", mine, labelled)


def _labelled(classes: _Index, key: Key) -> npt.NDArray[np.bool_]:
    """[windows] ten of them, or half where there are few, of as many classes as possible."""
    turns = np.empty(len(classes), np.int64)  # the how many-th of its class each is, as drawn
    for label in np.unique(classes).tolist():
        mine = np.flatnonzero(classes == label)
        turns[mine] = (key / str(label)).numpy().permutation(len(mine))
    drawn = key.numpy().permutation(len(classes))
    order = np.lexsort((drawn, turns))
    chosen = np.zeros(len(classes), bool)
    chosen[order[: min(_LABELLED, len(classes) // 2)]] = True
    return chosen


def watch(run: Run, show: Show = unseen) -> tuple[Watched, list[int], list[int]]:
    """What the model files of a finished run reach day by day, each way to follow.

    Returns also the validation and the test days, from 1. A day that tests in one room and
    validates in another is a test day.
    """
    watched: dict[str, dict[int, dict[str, _Scores]]] = {}
    tested: set[int] = set()
    checked: set[int] = set()
    plan = Plan.of(run.plan.document(), {"data": {"view": _view(run)}})
    rooms = {room.name: room for room in prepare_rooms(plan)}
    for number, own in enumerate(cut_windows(plan), start=1):
        model = load_model(_model_path(run, own.room))
        truth = class_indices(own.room, own.labels, model.classes)
        days = list(_days(plan, own, truth))
        tested |= {day.number for day in days if day.tested}
        checked |= {day.number for day in days if not day.tested}
        told = _told(model.trained, model.embed, own.open(), days, truth)
        weights = read_weights(_model_path(run, own.room))
        norms = _with_batch_norms(rooms[own.room], weights, model.trained, days)
        for line, probabilities in (*told, *norms):
            for day, given in zip(days, probabilities, strict=True):
                scored = day.windows[~day.labelled]
                reached = _scores(given[~day.labelled], truth[scored], model.classes)
                watched.setdefault(line, {}).setdefault(day.number, {})[own.room] = reached
        show(Progress(f"following {run.folder.name}", number, len(rooms), "rooms"))
    return watched, sorted(checked - tested), sorted(tested)


def _model_path(run: Run, room: str) -> Path:
    return run.folder / "models" / f"{room}.safetensors"


def _view(run: Run) -> str:
    """What the rooms of a run agreed on, where its plan leaves it open."""
    recipe = read_recipe(_model_path(run, min(run.data["rooms"])))
    return recipe.view if recipe.source == "packets" else run.plan.data.view


def _told(
    trained: Trained,
    embed: Embed,
    windows: npt.NDArray[np.float32],
    days: Sequence[_Day],
    truth: _Index,
) -> Iterator[tuple[str, list[npt.NDArray[np.float64]]]]:
    """Of each line the probabilities [windows, C] of every day, counted one day after the other."""
    for line, (_, how) in _WAYS.items():
        state, told = begin(trained), []
        for day in days:
            given, state = follow_all(how, trained, state, windows[day.windows], embed)
            told.append(given)
        yield line, told
    told = []
    for day in days:
        few = day.windows[day.labelled]
        tuned = taught(trained, embed(windows[few]), truth[few])
        state = begin(tuned)
        told.append(follow_all(Adaptation(), tuned, state, windows[day.windows], embed)[0])
    yield _TAUGHT, told


def _with_batch_norms(
    room: Room, weights: Mapping[str, Array], trained: Trained, days: Sequence[_Day]
) -> Iterator[tuple[str, list[npt.NDArray[np.float64]]]]:
    """The line whose BatchNorms follow; nothing where the net has none."""
    if not room.card.norms:
        return
    model = room.build()
    model.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
    net = following(model, Adaptation())

    def embed(windows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        with torch.no_grad():
            given = torch.from_numpy(room.normaliser(windows)).to(room.device)
            return np.asarray(net.embed(given).cpu().numpy(), np.float32)

    windows, state = room.windows, begin(trained)
    yield (
        _NORMS,
        [follow_all(Adaptation(), trained, state, windows[day.windows], embed)[0] for day in days],
    )


def _scores(
    probabilities: npt.NDArray[np.float64], truth: _Index, classes: Sequence[Label]
) -> dict[str, float]:
    matrix = confusion(truth, probabilities.argmax(axis=1), len(classes))
    reached = score(matrix, classes)
    if counts_people(classes):
        known = np.unique(truth).tolist()
        reached |= median_scores(probabilities, truth, classes, known)
    return reached


# ---- what all runs say --------------------------------------------------------------------------


def chosen_of(watched: Watched, days: Sequence[int]) -> str:
    """What follows: what has the smallest error on validation days; nothing, unless that wins.

    It wins if it is right no less often and the error falls by more than its standard error over
    rooms and days: what helps in one room by chance does not. The error is the MAE of the median
    where classes are counts, else the share that is wrong.
    """
    ways = [line for line in watched if line != _TAUGHT]
    errors = {line: _errors(watched[line], days) for line in ways}
    right = {line: _mean(watched[line], days)["accuracy"] for line in ways}
    able = [
        line
        for line in ways
        if right[line] >= right[_NOTHING] and _falls(errors[_NOTHING] - errors[line])
    ]
    return min(able, key=lambda line: float(errors[line].mean()), default=_NOTHING)


def _falls(gains: npt.NDArray[np.float64]) -> bool:
    """Whether the mean of gains is above its standard error; of one gain, whether it is one."""
    number = len(gains)
    unsure = gains.std(ddof=1) / np.sqrt(number) if number > 1 else 0.0
    return bool(gains.mean() > unsure)


def _errors(
    by_day: Mapping[int, Mapping[str, _Scores]], days: Sequence[int]
) -> npt.NDArray[np.float64]:
    """One for each room and day."""
    told = [by_day[day][room] for day in days for room in sorted(by_day[day])]
    return np.asarray([own.get("mae_median", 1 - own["accuracy"]) for own in told])


def _mean(by_day: Mapping[int, Mapping[str, _Scores]], days: Sequence[int]) -> _Scores:
    """Over rooms, then over days."""
    means = [figures_of(by_day[day])["mean"] for day in days]
    return {name: float(np.mean([mean[name] for mean in means])) for name in means[0]}


def followed_days(results: Results, runs: Runs, show: Show = unseen) -> Results:
    """The results of finished runs, day by day: a setting for each algorithm."""
    (setting,) = results.settings
    cases = [row for row in setting.rows if any(key[1] == row.name for key in runs)]
    settings, notes = [], list(results.notes)
    for case in cases:
        own = {seed: run for (_, name, seed), run in runs.items() if name == case.name}
        made, said = _by_day(setting, case, own, show)
        settings.append(made)
        notes += said
    return replace(results, settings=settings, notes=notes, averaged=1)


def _by_day(
    setting: Setting, case: Row, runs: Mapping[int, Run], show: Show
) -> tuple[Setting, list[str]]:
    """One algorithm: its lines, and what was chosen by what."""
    outcomes: dict[tuple[str, int], list[Outcome]] = {}
    checked: list[Watched] = []
    picked: list[str] = []
    first = {outcome.seed: outcome for outcome in case.outcomes}
    for seed, run in runs.items():
        watched, validating, testing = watch(run, show)
        line = chosen_of(watched, validating)
        picked.append(line)
        checked.append(watched)
        for name, by_day in {CHOSEN_LINE: watched[line], **watched}.items():
            for day in testing if name == CHOSEN_LINE else [*validating, *testing]:
                at = {str(setting.rounds): figures_of(by_day[day])}
                made = replace(first[seed], curve={}, bytes=[], at=at, scored=None, over_rooms=[])
                outcomes.setdefault((name, day), []).append(made)
    rows = [
        Row(f"{name}-{day}", _TITLES[name], _TITLES[name], made, value=day, moves=False)
        for name in _TITLES
        for (line, day), made in sorted(outcomes.items())
        if line == name
    ]
    followed = replace(
        setting,
        name=case.name,
        title=case.title,
        rows=rows,
        horizons=[setting.rounds],
        reference=_TITLES[CHOSEN_LINE],
        averaged=1,
        final=testing,
    )
    return followed, [_choice(case.title, checked, validating, picked)]


def _choice(
    title: str, checked: Sequence[Watched], days: Sequence[int], picked: Sequence[str]
) -> str:
    """What validation days said of each way, and which one each seed took."""
    metric = "mae_median" if "mae_median" in _mean(checked[0][_NOTHING], days) else "accuracy"
    people = METRICS[metric].in_people
    told = []
    for line in (line for line in checked[0] if line != _TAUGHT):
        mean = float(np.mean([_mean(watched[line], days)[metric] for watched in checked]))
        told.append(f"{_TITLES[line].lower()} {mean if people else 100 * mean:.2f}")
    seeds = ", ".join(_TITLES[line].lower() for line in picked)
    return (
        f"{title}, {METRICS[metric].heading} on validation days ({', '.join(map(str, days))}): "
        f"{', '.join(told)}. Chosen, seed by seed: {seeds}."
    )


DRIFT = Experiment(
    "drift",
    "Drift: trained on the first days, counting through later ones",
    _cases,
    (CHOSEN,),
    parameter="day",
    notes=(
        "A day's windows come recording after recording in an order that the seed draws, and each "
        "is counted before anything is known of those after it; what follows goes on from day to "
        "day.",
        f"{_LABELLED} labelled windows: drawn from as many counts as possible of that day, for a "
        "shift and a few steps of the classifier; other windows of the same recordings are scored, "
        "which flatters that row. No row is scored on those windows themselves.",
    ),
    fixed=True,
    follow=followed_days,
)
