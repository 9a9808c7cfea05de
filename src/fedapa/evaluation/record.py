"""Records: one JSON line a round, the summary of a run, and how lines are kept whole.

A line holds what round t did (losses, λ, bytes) and how good the result was (the score of the
state after its merge). Seconds stand in a file of their own: everything here is the same for the
same seed on the same machine.

A room may be absent: its entry then has no score, or it has no entry at all. It may also lack a
metric, e.g. where no recording is long enough. Every mean here is over what there is, and says so
where that differs from room to room.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedapa.evaluation.metrics import METRICS

__all__ = [
    "LAST",
    "NOT_TAKEN",
    "SPENT",
    "UNCOMPARED",
    "UPLOAD",
    "JsonLines",
    "alternatives_in",
    "average",
    "between_rooms",
    "by_room",
    "dump",
    "entropies",
    "not_taken",
    "over_rooms",
    "privacy_spent",
    "scored_rounds",
    "scores_of_alternative",
    "summarise",
    "suspects",
    "suspicion",
    "uncompared",
]

LAST = 5
"""Rounds that a reported figure is the mean of."""
UPLOAD = {"rejected": "was rejected", "diverged": "is missing", "withheld": "is withheld"}
"""Why a record lacks a room's upload, beside that it was away, and how that is said of it."""
NOT_TAKEN = tuple(UPLOAD)
SPENT = ("epsilon", "delta", "releases")
"""What a room reports whose sets are noised."""
UNCOMPARED = "the defence cannot compare"
"""How a note begins about rooms that a defence does not look at."""


def dump(value: Any) -> str:
    """JSON in one spelling: sorted keys, no NaN."""
    return json.dumps(value, sort_keys=True, allow_nan=False)


def not_taken(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What rooms should have contributed and did not, round by round: who, which of two, and why.

    "rejected" is a reply that the server did not believe; "diverged" and "withheld" is what a room
    said of itself.
    """
    return [
        {"round": record["round"], "room": room, "what": what, "reason": reason}
        for record in records
        for what in NOT_TAKEN
        for room, reason in sorted(record.get(what, {}).items())
    ]


def privacy_spent(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """By room what its releases have cost so far: ε, δ and how many; nothing without noise."""
    spent: dict[str, dict[str, float]] = {}
    for record in records:
        for room, entry in record["rooms"].items():
            if set(SPENT) <= set(entry):
                spent[room] = {name: entry[name] for name in SPENT}
    return dict(sorted(spent.items()))


def suspects(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rooms that a defence suspects: in half of the rounds that it judged them, or more.

    The most suspected first: in how many rounds of how many, how much of what they sent was merged
    on average (1 is all of it), and the reason that was given last.
    """
    judged: dict[str, list[float]] = {}
    named: dict[str, list[str]] = {}
    for record in records:
        for room, own in record["rooms"].items():
            if "trust" in own:
                judged.setdefault(room, []).append(own["trust"])
        for room, reason in record.get("suspects", {}).items():
            named.setdefault(room, []).append(reason)
    found = [
        {
            "room": room,
            "rounds": len(reasons),
            "judged": len(judged[room]),
            "trust": float(np.mean(judged[room])),
            "reason": reasons[-1],
        }
        for room, reasons in named.items()
        if 2 * len(reasons) >= len(judged[room])
    ]
    return sorted(found, key=lambda one: (-one["rounds"], one["trust"], one["room"]))


def suspicion(one: Mapping[str, Any]) -> str:
    """One of the suspects in a sentence."""
    return (
        f"Suspected: room '{one['room']}' in {one['rounds']} of {one['judged']} rounds; "
        f"{one['reason']}."
    )


def uncompared(notes: Sequence[str]) -> list[str]:
    """Of the notes of a run those about rooms that its defence does not look at."""
    return [note for note in notes if UNCOMPARED in note]


@dataclass(frozen=True)
class JsonLines:
    """A file of one JSON object a line, of which only whole lines count."""

    path: Path

    def read(self) -> list[dict[str, Any]]:
        """The objects, in order; an unfinished last line is passed over."""
        if not self.path.is_file():
            return []
        whole, _, _ = self.path.read_text().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def keep(self, lines: int) -> None:
        """Cut the file after its first ``lines`` lines: what a killed run wrote too far."""
        if not self.path.is_file():
            return
        with self.path.open("rb+") as file:
            for _ in range(lines):
                file.readline()
            end = file.tell()
            if file.read(1):
                file.truncate(end)

    def append(self, value: Mapping[str, Any]) -> None:
        """Add one line and make sure that it is on disk."""
        with self.path.open("a") as file:
            file.write(dump(value) + "\n")
            file.flush()
            os.fsync(file.fileno())


def average(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each metric over rounds."""
    return {
        metric: float(np.mean([score[metric] for score in scores]))
        for metric in METRICS
        if all(metric in score for score in scores)
    }


def scored_rounds(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, float]]]:
    """By room its entries with a score, in order; rooms that have none are not in it."""
    rooms = sorted({room for record in records for room in record["rooms"]})
    entries = {
        room: [
            record["rooms"][room]
            for record in records
            if "accuracy" in record["rooms"].get(room, {})
        ]
        for room in rooms
    }
    return {room: scored for room, scored in entries.items() if scored}


def between_rooms(
    record: Mapping[str, Any], name: str, rooms: Sequence[str]
) -> npt.NDArray[np.float64]:
    """[N, N], what a record tells of ``name`` between rooms; NaN where one was not there."""
    members = record.get("members", sorted(record["rooms"]))
    place = [rooms.index(room) for room in members]
    matrix = np.full((len(rooms), len(rooms)), np.nan)
    matrix[np.ix_(place, place)] = record["server"][name]
    return matrix


def by_room(
    records: Sequence[Mapping[str, Any]], name: str, rooms: Sequence[str]
) -> npt.NDArray[np.float64]:
    """[T, N], what records tell of ``name`` in each room; NaN where one was not there."""
    return np.asarray(
        [[record["rooms"].get(room, {}).get(name, np.nan) for room in rooms] for record in records],
        np.float64,
    )


def entropies(
    records: Sequence[Mapping[str, Any]], rooms: Sequence[str]
) -> npt.NDArray[np.float64]:
    """[T, N], how evenly each room takes of the others, in records that hold weights.

    As recorded, class by class; of the mean weights where an algorithm records none.
    """
    recorded = by_room(records, "entropy", rooms)
    if not np.isnan(recorded).all():
        return recorded
    weights = np.asarray([between_rooms(record, "weights", rooms) for record in records])
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(weights > 0, -weights * np.log(weights), 0.0)
    absent = np.isnan(weights).all(axis=2)  # (T, N)
    return np.where(absent, np.nan, parts.sum(axis=2))


def over_rooms(
    scores: Mapping[str, Mapping[str, float]], weights: Mapping[str, int]
) -> dict[str, dict[str, float]]:
    """Mean and standard deviation over rooms, and the mean weighted by their test windows.

    Each metric is over the rooms that have it; where some with a score lack it, ``fewer_rooms``
    says over how many it is.
    """
    rooms = sorted(room for room in scores if scores[room])
    having = {metric: [room for room in rooms if metric in scores[room]] for metric in METRICS}
    columns = {
        metric: np.asarray([scores[room][metric] for room in told])
        for metric, told in having.items()
        if told
    }
    shares = {
        metric: np.asarray([weights[room] for room in having[metric]], np.float64)
        for metric in columns
    }
    fewer: dict[str, float] = {
        metric: len(told) for metric, told in having.items() if 0 < len(told) < len(rooms)
    }
    return {
        "mean": {metric: float(values.mean()) for metric, values in columns.items()},
        "std": {metric: float(values.std()) for metric, values in columns.items()},
        "weighted": {
            metric: float(values @ shares[metric] / shares[metric].sum())
            for metric, values in columns.items()
        },
        **({"fewer_rooms": fewer} if fewer else {}),
    }


def summarise(
    records: Sequence[Mapping[str, Any]],
    *,
    blind: Mapping[str, Mapping[str, Mapping[str, float]]],
    windows: Mapping[str, Mapping[str, int]],
) -> dict[str, Any]:
    """The figures of a run: the mean of the last five rounds, never the best one.

    A room that has no score in some of them is averaged over the others; ``averaged_fewer`` then
    says over how many. A room without any has no figure.

    Args:
        records: the lines of all rounds.
        blind: room → predictor → metrics, from ``blind_scores``.
        windows: room → part → number of windows.
    """
    last = records[-LAST:]
    entries = scored_rounds(last)
    rooms = {room: average(scored) for room, scored in entries.items()}
    fewer = {room: len(scored) for room, scored in entries.items() if len(scored) < len(last)}
    tested = {room: windows[room]["test"] for room in rooms}
    alternatives = {name: _alternative(entries, name, tested) for name in alternatives_in(last)}
    predictors = sorted({name for room in blind.values() for name in room})
    moved = {
        way: sum(entry[way] for record in records for entry in record["rooms"].values())
        for way in ("bytes_up", "bytes_down")
    }
    pairs = sum(len(record["rooms"]) for record in records)
    return {
        "rounds": len(records),
        "averaged_rounds": [record["round"] for record in last],
        **({"averaged_fewer": fewer} if fewer else {}),
        "rooms": rooms,
        "over_rooms": over_rooms(rooms, tested),
        "alternatives": alternatives,
        "blind": {
            name: {**over_rooms(scores, tested), "rooms": scores}
            for name in predictors
            for scores in [{room: dict(blind[room][name]) for room in rooms if name in blind[room]}]
        },
        "windows": {room: dict(windows[room]) for room in rooms},
        "bytes": {
            **moved,
            "per_round_and_room": math.fsum(moved.values()) / max(1, pairs),
        },
    }


def alternatives_in(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """The alternatives that every score of every room has, e.g. FedProto's nearest prototype."""
    keys = [set(entry) for scored in scored_rounds(records).values() for entry in scored]
    everywhere = (set.intersection(*keys) if keys else set()) - set(METRICS)
    return sorted({key.partition(".")[0] for key in everywhere if key.endswith(".accuracy")})


def scores_of_alternative(entry: Mapping[str, float], name: str) -> dict[str, float]:
    """A room's entry has an alternative's scores as "name.metric": here by metric alone."""
    return {metric: entry[f"{name}.{metric}"] for metric in METRICS if f"{name}.{metric}" in entry}


def _alternative(
    entries: Mapping[str, Sequence[Mapping[str, float]]], name: str, weights: Mapping[str, int]
) -> dict[str, Any]:
    rooms = {
        room: average([scores_of_alternative(entry, name) for entry in entries[room]])
        for room in weights
    }
    return {"rooms": rooms, "over_rooms": over_rooms(rooms, weights)}
