"""Who takes part: whether rooms can form a federation, and which of them join a round.

``uniform`` draws rooms blindly. ``diverse`` takes rooms whose prototypes differ most, so that few
rooms still span what all of them know. ``capable`` prefers rooms that finish their round soon, so
that nobody waits for long. The paper's discussion asks for the last two and evaluates neither.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fedapa.algorithms import one_task_only
from fedapa.algorithms.algorithm import Algorithm, Roster
from fedapa.errors import PlanError, RosterError
from fedapa.payload import Array, Tree
from fedapa.randomness import Key
from fedapa.rooms.card import RoomCard

__all__ = [
    "Selection",
    "capable",
    "check_labels",
    "check_once",
    "check_roster",
    "check_selection",
    "check_tasks",
    "choose",
    "diverse",
    "number_of",
    "uniform",
]

Selection: TypeAlias = Literal["uniform", "diverse", "capable"]


def check_roster(roster: Roster) -> None:
    """Refuse rooms that cannot form a federation, whatever the algorithm."""
    if not roster:
        raise RosterError("there are no rooms; a federation needs at least one")
    check_once(roster)
    for card in roster:
        check_labels(card, roster[0])


def check_once(roster: Roster) -> None:
    """Refuse a roster that names a room twice."""
    counted = Counter(card.name for card in roster)
    for name in sorted(counted):
        if counted[name] > 1:
            raise RosterError(f"room '{name}' appears twice; rename one of them")


def check_labels(card: RoomCard, first: RoomCard) -> None:
    """Refuse a room whose classes or windows are not those of the room that was there first."""
    if card.labels != first.labels:
        odd = sorted(set(card.labels) ^ set(first.labels), key=str)
        told = f"{odd[0]!r} is in one list only" if odd else "the order differs"
        raise RosterError(
            f"room '{card.name}' has another class list than '{first.name}': {told}; give all "
            "rooms the same classes, also those that a room does not hold"
        )
    if card.further != first.further:
        raise RosterError(
            f"room '{card.name}' has other tasks than '{first.name}': {_tasks_of(card)} instead of "
            f"{_tasks_of(first)}; give all rooms the same data.tasks and the same classes"
        )
    if card.window_shape != first.window_shape:
        raise RosterError(
            f"room '{card.name}' has windows of {card.window_shape}, '{first.name}' of "
            f"{first.window_shape}; rooms that learn together need one window shape"
        )


def _tasks_of(card: RoomCard) -> str:
    told = [f"{name} ({', '.join(map(str, labels))})" for name, labels in card.further.items()]
    return " and ".join(["a label", *told])


def check_tasks(algorithm: Algorithm, roster: Roster) -> None:
    """Refuse rooms of several tasks where the algorithm learns one."""
    if roster[0].further and not algorithm.several_tasks:
        raise RosterError(one_task_only(algorithm))


def check_selection(
    selection: Selection, participation: float, *, algorithm: Algorithm, server: Tree
) -> None:
    """Refuse a selection that the algorithm gives no ground for."""
    if algorithm.pools and participation < 1:
        raise PlanError(
            f"participation {participation}: {algorithm.title} trains in one room that holds all "
            "windows, nobody can sit out; use participation = 1"
        )
    if selection == "diverse" and algorithm.sets(server) is None:
        raise PlanError(
            f"selection = 'diverse' compares prototypes, and {algorithm.title} sends none to the "
            "server; use selection = 'uniform' or 'capable', or an algorithm that exchanges "
            "prototypes: 'fedapa algorithms' lists what travels"
        )


def choose(
    selection: Selection,
    participation: float,
    *,
    algorithm: Algorithm,
    server: Tree,
    roster: Roster,
    key: Key,
) -> tuple[str, ...]:
    """The rooms that take part in the round whose stream is ``key``, sorted."""
    rooms = sorted(card.name for card in roster)
    sets = algorithm.sets(server)
    if selection == "diverse" and sets is not None:
        return diverse(rooms, *sets, participation=participation, key=key)
    if selection == "capable":
        effort = {card.name: card.flops * card.windows for card in roster}
        return capable(rooms, [effort[room] for room in rooms], participation, key)
    return uniform(rooms, participation, key)


def uniform(rooms: Sequence[str], participation: float, key: Key) -> tuple[str, ...]:
    """A uniformly drawn share ρ of the rooms, at least one, sorted.

    ρ = 1 is every room; else round(ρ·N) of them without replacement, from the round's stream.
    """
    number = number_of(participation, len(rooms))
    drawn = (key / "cohort").numpy().permutation(sorted(rooms))[:number]
    return tuple(sorted(str(room) for room in drawn))


def diverse(
    rooms: Sequence[str], prototypes: Array, present: Array, *, participation: float, key: Key
) -> tuple[str, ...]:
    """A share ρ of the rooms whose prototypes are far from each other, sorted.

    Farthest first: begin with a room drawn at random, then always add the one whose nearest chosen
    room is farthest. The distance of two rooms is 1 − the mean cosine of their prototypes over the
    classes that both hold, 1 if there are none. Rooms that nobody heard of yet come before all.

    Args:
        rooms: their names, in the order of the rows below.
        prototypes: P [N, C, D].
        present: [N, C], which of them are real.
        participation: ρ.
        key: the round's stream, for the first room and for ties.
    """
    number = number_of(participation, len(rooms))
    order = (key / "cohort").numpy().permutation(len(rooms))
    apart = _distances(np.asarray(prototypes, np.float64), np.asarray(present, bool))
    unheard = [int(room) for room in order if not np.any(present[room])]
    chosen = unheard[:number] or [int(order[0])]
    while len(chosen) < number:
        nearest = apart[:, chosen].min(axis=1)  # (N,)
        rest = [int(room) for room in order if room not in chosen]
        chosen.append(max(rest, key=lambda room: float(nearest[room])))
    return tuple(sorted(rooms[room] for room in chosen))


def _distances(
    prototypes: npt.NDArray[np.float64], present: npt.NDArray[np.bool_]
) -> npt.NDArray[np.float64]:
    """[N, N]: 1 − the mean cosine over classes that both rooms hold."""
    length = np.linalg.norm(prototypes, axis=2, keepdims=True)
    direction = np.where(present[:, :, None], prototypes / np.where(length > 0, length, 1.0), 0.0)
    flat = direction.reshape(len(direction), -1)  # (N, C·D)
    both = present.astype(np.float64) @ present.T.astype(np.float64)  # classes in common
    return np.asarray(1.0 - flat @ flat.T / np.maximum(both, 1.0))


def capable(
    rooms: Sequence[str], effort: Sequence[float], participation: float, key: Key
) -> tuple[str, ...]:
    """A share ρ of the rooms, drawn with odds inverse to the work of their round, sorted.

    The work is FLOPs of a window times train windows: what a weak device feels. Odds, not a rank:
    the slowest room still takes part now and then, or its data would never be learned from.

    Args:
        rooms: their names.
        effort: the work of each.
        participation: ρ.
        key: the round's stream.
    """
    number = number_of(participation, len(rooms))
    odds = 1.0 / np.maximum(np.asarray(effort, np.float64), 1.0)
    drawn = (key / "cohort").numpy().choice(len(rooms), number, replace=False, p=odds / odds.sum())
    return tuple(sorted(rooms[int(room)] for room in drawn))


def number_of(participation: float, rooms: int) -> int:
    """How many of the rooms a round asks: their share ρ, rounded, and at least one."""
    if not 0 < participation <= 1:
        raise PlanError(f"participation {participation}: must be above 0 and at most 1")
    return max(1, round(participation * rooms))
