"""Records: one JSON line a round, the summary of a run, and how lines are kept whole.

A line holds what round t did (losses, λ, bytes) and how good the result was (the score of the
state after its merge). Seconds stand in a file of their own: everything here is the same for the
same seed on the same machine.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedapa.evaluation.metrics import METRICS

__all__ = ["JsonLines", "average", "dump", "over_rooms", "summarise"]

LAST = 5
"""Rounds that a reported figure is the mean of."""


def dump(value: Any) -> str:
    """JSON in one spelling: sorted keys, no NaN."""
    return json.dumps(value, sort_keys=True, allow_nan=False)


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
        metric: float(np.mean([each[metric] for each in scores]))
        for metric in METRICS
        if all(metric in each for each in scores)
    }


def over_rooms(
    scores: Mapping[str, Mapping[str, float]], weights: Mapping[str, int]
) -> dict[str, dict[str, float]]:
    """Mean and standard deviation over rooms, and the mean weighted by their test windows."""
    rooms = sorted(scores)
    share = np.asarray([weights[room] for room in rooms], np.float64)
    columns = {
        metric: np.asarray([scores[room][metric] for room in rooms])
        for metric in METRICS
        if all(metric in scores[room] for room in rooms)
    }
    return {
        "mean": {metric: float(values.mean()) for metric, values in columns.items()},
        "std": {metric: float(values.std()) for metric, values in columns.items()},
        "weighted": {
            metric: float(values @ share / share.sum()) for metric, values in columns.items()
        },
    }


def summarise(
    records: Sequence[Mapping[str, Any]],
    *,
    blind: Mapping[str, Mapping[str, Mapping[str, float]]],
    windows: Mapping[str, Mapping[str, int]],
) -> dict[str, Any]:
    """The figures of a run: the mean of the last five rounds, never the best one.

    Args:
        records: the lines of all rounds.
        blind: room → predictor → metrics, from ``blind_scores``.
        windows: room → part → number of windows.
    """
    last = records[-LAST:]
    rooms = {
        room: average([record["rooms"][room] for record in last])
        for record in last[-1:]
        for room in record["rooms"]
    }
    tested = {room: windows[room]["test"] for room in rooms}
    seconds = {name: _second(last, name, tested) for name in _second_names(last)}
    predictors = sorted({name for room in blind.values() for name in room})
    moved = {
        way: sum(entry[way] for record in records for entry in record["rooms"].values())
        for way in ("bytes_up", "bytes_down")
    }
    return {
        "rounds": len(records),
        "averaged_rounds": [record["round"] for record in last],
        "rooms": rooms,
        "over_rooms": over_rooms(rooms, tested),
        "also": seconds,
        "blind": {
            name: {**over_rooms(each, tested), "rooms": each}
            for name in predictors
            for each in [{room: dict(blind[room][name]) for room in rooms}]
        },
        "windows": {room: dict(windows[room]) for room in rooms},
        "bytes": {
            **moved,
            "per_round_and_room": math.fsum(moved.values()) / (len(records) * len(rooms)),
        },
    }


def _second_names(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """The second figures that every room has in every record: the x of "x.accuracy"."""
    keys = [set(entry) for record in records for entry in record["rooms"].values()]
    everywhere = set.intersection(*keys) if keys else set()
    return sorted(key.removesuffix(".accuracy") for key in everywhere if ".accuracy" in key)


def _second(
    records: Sequence[Mapping[str, Any]], name: str, weights: Mapping[str, int]
) -> dict[str, Any]:
    rooms = {
        room: average(
            [
                {
                    metric: record["rooms"][room][f"{name}.{metric}"]
                    for metric in METRICS
                    if f"{name}.{metric}" in record["rooms"][room]
                }
                for record in records
            ]
        )
        for room in weights
    }
    return {"rooms": rooms, "over_rooms": over_rooms(rooms, weights)}
