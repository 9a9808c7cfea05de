"""Captions: where the numbers of a table or a figure come from."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedapa.csi.capture import data_kind
from fedapa.evaluation.metrics import METRICS, ONE_WINDOW, OVER_TIME
from fedapa.evaluation.record import LAST
from fedapa.evaluation.results import Setting

__all__ = [
    "caption",
    "choices",
    "data_text",
    "fewer_rooms",
    "number_of",
    "shape_text",
    "source_text",
    "tested_text",
    "time_text",
    "without_labels",
]


def number_of(count: int, word: str) -> str:
    """So many of something: "1 room", "2 rooms"."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def shape_text(shape: Sequence[int]) -> str:
    """A shape as one says it: "1000 × 242"."""
    return " × ".join(map(str, shape))


def source_text(source: str, *, synthetic: bool) -> str:
    """What the data is; a file by its name, since where it lies differs from reader to reader."""
    return f"{data_kind(synthetic)} data: {source.rpartition('/')[2]}"


def data_text(data: Mapping[str, Any], seeds: Sequence[int]) -> str:
    """The data of some runs: its kind and name, rooms, classes, windows, split, and the seeds."""
    windows = data.get("windows") or f"windows of {shape_text(data['window_shape'])}"
    if others := data.get("other_views"):
        windows += f" ({others})"
    return " · ".join(
        [
            source_text(data["source"], synthetic=data["synthetic"]),
            f"{number_of(len(data['rooms']), 'room')}, {_classes(data)}, {windows}",
            f"split {data['split']}, {tested_text(data, seeds)}",
            f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}",
        ]
    )


def _classes(data: Mapping[str, Any]) -> str:
    told = f"{len(data['classes'])} classes"
    activities = data.get("activity classes", ())
    return f"{told} and {len(activities)} activities" if activities else told


def tested_text(data: Mapping[str, Any], seeds: Sequence[int]) -> str:
    """How much is tested; of the first seed, since another may split otherwise."""
    rooms = data["rooms"].values()
    scored = data.get("scored", "test")
    told = number_of(sum(room["test"] for room in rooms), f"{scored} window")
    if all(room.get("recordings") for room in rooms):
        recordings = sum(room["recordings"]["test"] for room in rooms)
        told += f" of {number_of(recordings, 'recording')}"
    return told + (f" with seed {min(seeds)}" if len(seeds) > 1 else "")


def choices(data: Mapping[str, Any]) -> list[str]:
    """What windows and split are, and why: a sentence each."""
    told = []
    if windows := data.get("windows"):
        others = f"; {data['other_views']}" if data.get("other_views") else ""
        why = f" ({data['view_why']})" if data.get("view_why") else ""
        told.append(f"{windows[:1].upper()}{windows[1:]}{why}{others}")
    if data.get("why"):
        told.append(f"Split: {data['split']} ({data['why']})")
    return told


def without_labels(data: Mapping[str, Any]) -> list[str]:
    """How many windows of which room have no label, in a sentence; nothing where all have one."""
    told = [
        f"{number_of(about['unlabelled'], 'window')} of room '{room}'"
        for room, about in data["rooms"].items()
        if about.get("unlabelled")
    ]
    return [f"Without a label, and never tested: {', '.join(told)}"] if told else []


def fewer_rooms(setting: Setting, horizons: Iterable[int], metrics: Iterable[str]) -> str:
    """Over how many rooms the means of metrics are that some rooms lack; nothing where none does.

    Rows and seeds may differ in that: then from how many to how many.
    """
    numbers: dict[str, set[tuple[int, int]]] = {}
    for metric in metrics:
        behind = {
            pair
            for horizon in horizons
            for row in setting.rows
            for pair in row.rooms_behind(horizon, metric)
        }
        if any(having < rooms for having, rooms in behind):
            numbers[metric] = behind
    by_words: dict[str, list[str]] = {}
    for metric, behind in numbers.items():
        having, rooms = (sorted(set(column)) for column in zip(*behind, strict=True))
        words = f"{_span(having)} of {_span(rooms)} rooms"
        about = METRICS[metric]
        name = about.heading.partition(" (")[0]
        if about.time:
            name += f" after {time_text(about.time)}"
        by_words.setdefault(words, []).append(name)
    told = "; ".join(f"{' and '.join(names)}: {words}" for words, names in by_words.items())
    return f"Some rooms lack a metric, its mean is over the others: {told}" if told else ""


def _span(numbers: Sequence[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def time_text(time: str) -> str:
    """For how long evidence is added, a key of ``OVER_TIME``, as one says it."""
    return "one window" if time == ONE_WINDOW else f"{OVER_TIME[time]} s"


def caption(setting: Setting, horizon: int | None = None) -> str:
    """The data of a setting, its rounds, what a figure is the mean of, and the commit."""
    if horizon is None:
        when = f"{setting.rounds} rounds"
        if max(setting.horizons, default=0) > setting.rounds:
            when += f", {max(setting.horizons)} in the long runs"
        when += f", figures are means of {LAST} rounds"
        if min(setting.horizons, default=LAST) < LAST:
            when += " or of all where there were fewer"
    else:
        averaged = min(setting.averaged, horizon)
        when = f"after {number_of(horizon, 'round')}"
        when += f", mean of the last {averaged}" if averaged > 1 else ""
    commits = (commit.partition("+") for commit in setting.commits)
    short = ", ".join(name[:10] + plus + changes for name, plus, changes in commits)
    return f"{data_text(setting.data, setting.seeds)} · {when} · commit {short}"
