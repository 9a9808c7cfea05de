"""Results: an experiment as data, every seed kept, and the statistics that are read from it.

An experiment holds settings (e.g. statistical and model heterogeneity), a setting holds rows
(algorithms, or values of a swept parameter), a row holds one outcome a seed. A figure at horizon h
is the mean of the last five rounds up to h, never a best round.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedapa.csi.capture import data_kind
from fedapa.errors import RunError
from fedapa.evaluation.metrics import METRICS
from fedapa.evaluation.record import LAST, average, over_rooms, scored_rounds
from fedapa.files import write_text

__all__ = [
    "CONFIDENCE",
    "REFERENCE",
    "STANDSTILL",
    "Outcome",
    "Paired",
    "Results",
    "Row",
    "Setting",
    "Spread",
    "figures_of",
    "horizons_of",
    "outcome_at",
    "paired",
    "reached",
    "running_mean",
    "spread",
    "still_gaining",
    "student_t",
    "target_accuracies",
]

FORMAT = 1
REFERENCE = "fedapa"
"""The row that others are measured against, unless a setting has another."""
CONFIDENCE = 0.95
_TIE = 1e-6
STANDSTILL = 0.005
"""Half a point: a curve that rises by less from its third quarter to its last has stopped."""
_TARGETS = 5
"""Accuracies to ask for at most."""
_GROUPS = ("paper", "more", "control", "sweep", "blind")


@dataclass(frozen=True)
class Spread:
    """A mean over seeds and its standard deviation (n − 1; none for a single seed)."""

    mean: float
    deviation: float | None
    number: int


@dataclass(frozen=True)
class Paired:
    """A difference, seed by seed, and the 95 % interval of its mean (Student's t)."""

    mean: float
    low: float | None
    high: float | None
    number: int

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves zero out; one without width knows nothing of other seeds."""
        if self.low is None or self.high is None or self.high - self.low < _TIE:
            return False
        return self.low > 0 or self.high < 0


def spread(values: Sequence[float]) -> Spread:
    """Mean and standard deviation over seeds."""
    figures = np.asarray(values, np.float64)
    deviation = float(figures.std(ddof=1)) if len(figures) > 1 else None
    return Spread(float(figures.mean()), deviation, len(figures))


def student_t(seeds: int) -> float:
    """Half the interval of a mean over so many seeds, in its standard errors."""
    from scipy import special  # half a second to import, and one seed does not need it

    return float(special.stdtrit(seeds - 1, (1 + CONFIDENCE) / 2))


def paired(first: Sequence[float], second: Sequence[float]) -> Paired:
    """The difference first − second, pair by pair: d̄ ± t(0.975, n − 1)·s/√n."""
    difference = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    number, mean = len(difference), float(difference.mean())
    if number < 2:
        return Paired(mean, None, None, number)
    half = student_t(number) * float(difference.std(ddof=1) / math.sqrt(number))
    return Paired(mean, mean - half, mean + half, number)


@dataclass(frozen=True)
class Outcome:
    """One run of one row: what it reached, round by round and at the horizons."""

    seed: int
    run: str
    """The run's folder, relative to the output directory."""
    commit: str
    """What made it; several with ", " between where a run was gone on with by other code."""
    curve: Mapping[str, Sequence[float | None]]
    """metric → its mean over rooms after each round; None where no room told a score."""
    bytes: Sequence[int]
    """Bytes moved by all rooms up to each round, both ways."""
    at: Mapping[str, Mapping[str, Any]]
    """horizon → {"mean": metrics, "std": over rooms, "rooms": {room: metrics}}; where some rooms
    lack a metric, "fewer_rooms": over how many its mean is."""
    scored: Sequence[int] | None = None
    """The rounds whose score is the row's own, where not every round is (fine-tuned copies)."""

    over_rooms: Sequence[float | None] = field(default_factory=list)
    """The accuracy's standard deviation over rooms after each round, where it was kept."""
    train_loss: Sequence[float | None] = field(default_factory=list)
    """The cross-entropy of train windows in each round, mean over rooms, where it was kept."""
    exchanged: Sequence[Mapping[str, Sequence[float]]] = field(default_factory=list)
    """A round each: room → bytes down, bytes up, seconds of training; where a study is about it."""

    @property
    def rounds(self) -> int:
        """How many it ran."""
        return len(self.bytes)

    @property
    def commits(self) -> list[str]:
        """What made it, each once."""
        return [commit for commit in self.commit.split(", ") if commit]


@dataclass(frozen=True)
class Row:
    """One line of a table or one curve of a figure."""

    name: str
    title: str
    group: str
    """"paper", "more" (algorithms that the paper does not compare), "control", "blind", "sweep".

    In sweeps with several lines it is the line's name.
    """
    outcomes: Sequence[Outcome]
    value: float | str | None = None
    """The swept parameter's, in sweeps."""
    moves: bool = True
    """Whether its bytes mean anything: blind rows and pooled training move no messages."""

    def curves(self) -> list[Sequence[float | None]]:
        """Accuracy over rounds, one curve per seed, of those that have one."""
        every = [outcome.curve.get("accuracy", ()) for outcome in self.outcomes]
        return [curve for curve in every if len(curve)]

    def band(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """The mean of five-round accuracies over seeds, round by round, and their deviation.

        Over rooms where there is one seed: none where that was not kept. NaN where some seed has no
        score in five rounds.
        """
        length = min(map(len, self.curves()))
        values = np.asarray([running_mean(curve[:length]) for curve in self.curves()])
        if len(values) > 1:
            return values.mean(axis=0), values.std(axis=0, ddof=1)
        return values[0], np.asarray(running_mean(self.outcomes[0].over_rooms))

    def metrics(self, horizon: int, metric: str) -> list[float] | None:
        """One figure a seed; none where a run is shorter or the metric does not exist."""
        means = [outcome.at.get(str(horizon), {}).get("mean", {}) for outcome in self.outcomes]
        return [mean[metric] for mean in means] if all(metric in mean for mean in means) else None

    def rooms_behind(self, horizon: int, metric: str) -> list[tuple[int, int]]:
        """A seed each: over how many rooms its figure is, and how many rooms have a score."""
        figures = [outcome.at.get(str(horizon), {}) for outcome in self.outcomes]
        return [
            (at.get("fewer_rooms", {}).get(metric, rooms), rooms)
            for at in figures
            if metric in at.get("mean", {})
            for rooms in [len(at["rooms"])]
        ]

    def of_every_room(self, horizon: int, metric: str) -> bool:
        """Whether no room with a score lacks the metric."""
        return all(having == rooms for having, rooms in self.rooms_behind(horizon, metric))

    def room(self, horizon: int, room: str, metric: str) -> list[float] | None:
        """One room's figures, a seed each."""
        scores = [
            outcome.at.get(str(horizon), {}).get("rooms", {}).get(room, {})
            for outcome in self.outcomes
        ]
        return [own[metric] for own in scores] if all(metric in own for own in scores) else None


@dataclass(frozen=True)
class Setting:
    """Rows under equal conditions: same rooms, same nets, same splits."""

    name: str
    title: str
    rounds: int
    """What "all" of the rounds are; a long horizon may come after."""
    horizons: Sequence[int]
    rows: Sequence[Row]
    data: Mapping[str, Any]
    """What a run says of its data: source, synthetic, split, classes, window shape, rooms."""
    reference: str = REFERENCE
    """The row whose differences to all others are shown, where there is one of that name."""
    averaged: int = LAST
    """Rounds that a figure is the mean of."""
    final: Sequence[float] = ()
    """Of a sweep over days: those that nothing was chosen on, over which its lines are summed."""

    def row(self, name: str) -> Row | None:
        """A row by its name."""
        return next((row for row in self.rows if row.name == name), None)

    @property
    def ordered(self) -> list[Row]:
        """Rows by group: the paper's methods, more of them, controls, blind ones last."""
        places = {group: place for place, group in enumerate(_GROUPS)}
        return sorted(self.rows, key=lambda row: places.get(row.group, places["sweep"]))

    @property
    def deployed(self) -> list[Row]:
        """The rows without other answers of the same nets, which nobody is served."""
        return [
            row
            for row in self.rows
            if not any(
                row.name.startswith(f"{other.name}.") and row.value == other.value
                for other in self.rows
            )
        ]

    @property
    def lines(self) -> dict[str, list[Row]]:
        """Rows with values by group: one line of a sweep each, several where selections differ."""
        lines: dict[str, list[Row]] = {}
        for row in self.rows:
            if row.value is not None:
                lines.setdefault(row.group, []).append(row)
        return lines

    @property
    def summed(self) -> "Setting":
        """The lines of a sweep as rows, each the mean over its final values."""
        rows = []
        for group, line in self.lines.items():
            last = [row for row in line if row.value in self.final]
            outcomes = [
                replace(same[0], at=_mean_at([outcome.at for outcome in same]))
                for same in zip(*(row.outcomes for row in last), strict=True)
            ]
            rows.append(replace(last[0], name=group, group="paper", outcomes=outcomes, value=None))
        return replace(self, rows=rows, final=())

    @property
    def counts_people(self) -> bool:
        """Whether classes are numbers of people, so that errors have a size."""
        return all(isinstance(label, int) for label in self.data["classes"])

    @property
    def seeds(self) -> list[int]:
        """The seeds of its runs."""
        return sorted({outcome.seed for row in self.rows for outcome in row.outcomes})

    @property
    def commits(self) -> list[str]:
        """The commits its runs were made from, each once."""
        outcomes = [outcome for row in self.rows for outcome in row.outcomes]
        return sorted({commit for outcome in outcomes for commit in outcome.commits})

    def horizon_label(self, horizon: int) -> str:
        """A horizon with its share of the rounds: "8 (¼)", "15 (½)", "30 (all)", "120 (long)"."""
        if horizon == self.rounds:
            return f"{horizon} (all)"
        shares = sorted(
            ((self.rounds / 4, "¼"), (self.rounds / 2, "½")), key=lambda it: abs(horizon - it[0])
        )
        for exact, name in shares:
            if horizon in (math.floor(exact), math.ceil(exact)):
                return f"{horizon} ({name})"
        return f"{horizon} (long)" if horizon > self.rounds else str(horizon)

    def against(
        self, row: Row, other: Row, horizon: int, metric: str = "accuracy"
    ) -> Paired | None:
        """The paired difference row − other over their common seeds; none where one has none."""
        seeds = [outcome.seed for outcome in row.outcomes]
        if seeds != [outcome.seed for outcome in other.outcomes]:
            return None
        mine, theirs = row.metrics(horizon, metric), other.metrics(horizon, metric)
        return None if mine is None or theirs is None else paired(mine, theirs)

    def rooms_led(self, row: Row, other: Row, horizon: int) -> tuple[int, int] | None:
        """In how many of all (seed, room) pairs the row's accuracy is higher; ties are no lead."""
        led = total = 0
        for room in self.data["rooms"]:
            mine, theirs = (
                row.room(horizon, room, "accuracy"),
                other.room(horizon, room, "accuracy"),
            )
            if mine is None or theirs is None or len(mine) != len(theirs):
                return None
            # Means of equal rounds in another order differ by rounding: that is a tie.
            led += sum(a > b + _TIE for a, b in zip(mine, theirs, strict=True))
            total += len(mine)
        return led, total


@dataclass(frozen=True)
class Results:
    """An experiment's results; ``save`` and ``load`` keep every seed."""

    experiment: str
    title: str
    preset: str
    settings: Sequence[Setting]
    seeds: Sequence[int]
    environment: Mapping[str, Any]
    parameter: str = ""
    """What a sweep varies, e.g. "width D"."""
    notes: Sequence[str] = field(default_factory=tuple)
    averaged: int = LAST

    @property
    def synthetic(self) -> bool:
        """Whether any room was simulated."""
        return any(setting.data["synthetic"] for setting in self.settings)

    @property
    def commits(self) -> list[str]:
        """The commits its runs were made from, each once."""
        return sorted({commit for setting in self.settings for commit in setting.commits})

    def save(self, path: Path) -> None:
        """Write them as JSON, whole or not at all."""
        document = {"format": FORMAT, "data": self.kind, **asdict(self)}
        write_text(path, json.dumps(_rounded(document), indent=None, sort_keys=True) + "\n")

    def summary(self) -> dict[str, Any]:
        """For scripts: setting → row → horizon → metric → mean and deviation over seeds.

        Where rooms lack the metric ``fewer_rooms`` says over how many it is, a seed each.
        """
        settings = {
            setting.name: {
                row.name: {
                    str(horizon): {
                        metric: {**asdict(spread(values)), **_fewer_rooms(row, horizon, metric)}
                        for metric in METRICS
                        if (values := row.metrics(horizon, metric)) is not None
                    }
                    for horizon in setting.horizons
                }
                for row in setting.rows
            }
            for setting in self.settings
        }
        split = " and ".join(sorted({setting.data["split"] for setting in self.settings}))
        return {"data": self.kind, "split": split, "seeds": list(self.seeds), "settings": settings}

    @property
    def kind(self) -> str:
        """SIMULATED or real."""
        return data_kind(self.synthetic)

    @classmethod
    def load(cls, path: Path) -> "Results":
        """Read what ``save`` wrote."""
        try:
            document = json.loads(path.read_text())
            if document.pop("format") != FORMAT:
                raise RunError(f"{path}: is of another format; make it again with --resume")
            document.pop("data")
            document["settings"] = [_setting(values) for values in document["settings"]]
            return cls(**document)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"{path}: holds no results ({error}); make them again") from error


def horizons_of(rounds: int, longest: int | None = None) -> list[int]:
    """A quarter, half and all of the rounds, and the long horizon, each once."""
    return sorted({max(1, round(rounds / 4)), max(1, round(rounds / 2)), rounds, longest or rounds})


def outcome_at(
    records: Sequence[Mapping[str, Any]], horizon: int, scored: Sequence[int] | None = None
) -> dict[str, Any] | None:
    """The figures at a horizon: the mean of the last five rounds up to it.

    Args:
        records: a run's records, round 1 first.
        horizon: the round to look back from.
        scored: only these rounds count, where given; none of them in the window gives none.
    """
    if horizon > len(records):
        return None
    last = [
        record
        for record in records[max(0, horizon - LAST) : horizon]
        if scored is None or record["round"] in scored
    ]
    if not last:
        return None
    return figures_of({room: average(scored) for room, scored in scored_rounds(last).items()})


def figures_of(rooms: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """The scores of rooms with their mean and deviation, each room alike: an ``Outcome.at``."""
    whole = over_rooms(rooms, dict.fromkeys(rooms, 1))
    parts: dict[str, Any] = {part: told for part, told in whole.items() if part != "weighted"}
    return {**parts, "rooms": rooms}


def running_mean(values: Sequence[float | None]) -> list[float]:
    """The mean of the last five values up to each: what a figure at that round would be.

    Of those that are there; NaN where none of them is.
    """
    there = np.asarray([value is not None for value in values], bool)
    sums, counts = (
        np.concatenate([[0.0], np.cumsum(np.asarray(summed, np.float64))])
        for summed in ([value or 0.0 for value in values], there)
    )
    ends = np.arange(1, len(sums))
    starts = np.maximum(0, ends - LAST)
    number = counts[ends] - counts[starts]
    means = (sums[ends] - sums[starts]) / np.maximum(number, 1)
    return [float(value) for value in np.where(number > 0, means, np.nan)]


def reached(outcome: Outcome, accuracy: float) -> tuple[int, int] | None:
    """The first round whose five-round mean is at least ``accuracy``, and the bytes up to it."""
    if outcome.scored is not None:
        return None
    means = running_mean(outcome.curve.get("accuracy", ()))
    for number, mean in enumerate(means, start=1):
        if number >= LAST and mean >= accuracy - 1e-9:  # sums have rounding errors
            return number, int(outcome.bytes[number - 1])
    return None


def target_accuracies(setting: Setting) -> list[float]:
    """Round accuracies to ask for: multiples of five points, evenly spaced, at most five.

    Above the best blind row, up to the best figure of any row at any horizon.
    """
    blind, best = (
        max(
            (
                spread(values).mean
                for row in setting.rows
                for horizon in setting.horizons
                if (row.group == "blind") == is_blind
                and (values := row.metrics(horizon, "accuracy")) is not None
            ),
            default=0.0,
        )
        for is_blind in (True, False)
    )
    steps = range(math.floor(20 * blind + 1e-9) + 1, math.floor(20 * best + 1e-9) + 1)
    every = max(1, math.ceil(len(steps) / _TARGETS))
    return sorted(step / 20 for step in list(steps)[::-1][::every])


def still_gaining(row: Row) -> float | None:
    """How much a row's accuracy rose from the third to the last quarter of its rounds.

    The mean over seeds; below half a point the row is said to have stopped improving. None where
    a quarter has fewer than two rounds, or no score.
    """
    rises = []
    for outcome in row.outcomes:
        values = np.asarray(outcome.curve.get("accuracy", ()), np.float64)  # None becomes NaN
        quarter = len(values) // 4
        if quarter < 2:
            return None
        third, last = values[-2 * quarter : -quarter], values[-quarter:]
        scored = [part[~np.isnan(part)] for part in (third, last)]
        if not all(map(len, scored)):
            return None
        rises.append(scored[1].mean() - scored[0].mean())
    return float(np.mean(rises))


def _mean_at(figures: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """What outcomes have at each horizon, averaged room by room, each outcome alike."""
    made = {}
    for horizon in figures[0]:
        told = [at[horizon]["rooms"] for at in figures]
        made[horizon] = figures_of(
            {
                room: average([scores[room] for scores in told if room in scores])
                for room in sorted({room for scores in told for room in scores})
            }
        )
    return made


def _fewer_rooms(row: Row, horizon: int, metric: str) -> dict[str, list[int]]:
    if row.of_every_room(horizon, metric):
        return {}
    return {"fewer_rooms": [having for having, _ in row.rooms_behind(horizon, metric)]}


def _setting(values: Mapping[str, Any]) -> Setting:
    rows = [
        Row(**{**row, "outcomes": [Outcome(**outcome) for outcome in row["outcomes"]]})
        for row in values["rows"]
    ]
    return Setting(**{**values, "rows": rows})


def _rounded(value: Any) -> Any:
    """Six decimals are finer than any test split can tell apart, and half the file."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, Mapping):
        return {key: _rounded(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(below) for below in value]
    return value
