"""How a federated run goes, read from its folder while it is written: what the training view shows.

Unlike ``federation.run.Run`` it wants no finished run, and neither torch nor matplotlib. Of
``rounds.jsonl`` only what is new is read, and only whole lines count. Scores are those of test
windows at the end of each round, as the rooms' own records have them.
"""

import hashlib
import json
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from fastapi import APIRouter, HTTPException, Query, Response
from pydantic import BaseModel, Field

from fedapa.errors import FedapaError, PlanError, RunError
from fedapa.federation.checkpoint import Checkpoint
from fedapa.files import is_held
from fedapa.toml import read_toml

__all__ = ["TrainingRun", "training_router"]

_MOST_ROOMS = 64
"""Rooms that have curves, by name; as many as have weights between them."""
_MOST_ROUNDS = 500
"""Rounds that a document has; of more some are left out, evenly."""
_MOST_ABSENCES = 200
_LARGEST_CHECKPOINT = 1 << 28
_MAE = ("mae_median", "mae")
"""What model files answer with, then what runs of before recorded."""

_State = Literal["training", "paused", "failed", "stopped"]
"""Of a run that is not finished; stopped: its process is no more."""
_Read = TypeVar("_Read")
_Numbers = dict[str, float]
_Column = list[float | None]


class Absence(BaseModel):
    """Rooms that were missing in a round."""

    round: int
    rooms: list[str]
    reason: str


class Weights(BaseModel):
    """How much each room, a row, took of each other one, a column."""

    round: int
    rooms: list[str]
    matrix: list[list[float]]


class Floor(BaseModel):
    """What the better of two blind predictors reaches without looking at a window."""

    accuracy: float | None = Field(description="Mean over rooms.")
    mae: float | None = Field(description="Mean over rooms.")
    rooms: dict[str, dict[str, float]] = Field(description="The same room by room.")


class Training(BaseModel):
    """A run so far; every list over rounds has the length of ``rounds``."""

    run: str = Field(description="Name of its folder.")
    algorithm: str
    state: Literal["training", "paused", "failed", "stopped", "finished"]
    reason: str = Field(description="Why it is paused, failed or stopped, in words.")
    problem: str = Field(description="What of its files cannot be read.")
    rounds_done: int
    rounds_total: int | None = Field(description="null: it has no last round.")
    finished: bool
    updated: float | None = Field(description="When the last round ended, in seconds since 1970.")
    synthetic: bool = Field(description="SIMULATED: whether any of its rooms is.")
    data: str = Field(description="What the data is called.")
    split: str = Field(description="How test windows were held out.")
    seed: int | None
    rooms: list[str] = Field(description="Those that have curves, 64 at most.")
    rooms_total: int
    rounds: list[int]
    accuracy: dict[str, _Column] = Field(description="Share of test windows, after each round.")
    mae: dict[str, _Column] | None = Field(description="In people; null where classes are words.")
    loss: dict[str, _Column] = Field(description="Of training in each round.")
    mean: dict[str, _Column] = Field(description="accuracy, mae and loss over all rooms.")
    floor: Floor | None = Field(description="null as long as nobody noted it.")
    bytes: dict[str, list[int]] = Field(description="up and down, all rooms together.")
    bytes_total: dict[str, int] = Field(description="The same in all rounds, also those left out.")
    absent: list[Absence]
    weights: Weights | None = Field(description="Of the last round that has any.")
    weights_rounds: list[int] = Field(description="Rounds that have weights.")


@dataclass(frozen=True)
class _Round:
    """What is kept of a line."""

    number: int
    place: tuple[int, int]
    """Its first byte and its length in the file."""
    digest: bytes
    rooms: Mapping[str, _Numbers]
    mean: _Numbers
    up: int
    down: int
    absent: list[Absence]
    has_weights: bool


@dataclass
class TrainingRun:
    """A run's folder, the folder of a server that carries one out, or one of a run's models.

    Any thread may ask. Nothing is written; whether the run goes on is asked of its lock.
    """

    place: Path
    _rounds: list[_Round] = field(default_factory=list, init=False)
    _shown: list[str] = field(default_factory=list, init=False)
    _problem: str = field(default="", init=False)
    _folder: Path | None = field(default=None, init=False)
    _known: dict[str, tuple[object, Any]] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def document(self) -> Training | None:
        """The run so far; none where no run has begun."""
        with self._lock:
            folder = self._found()
            if folder is None:
                return None
            state = _state(folder)  # first: what a process that has ended wrote is all there
            plan = self._read("plan", folder / "plan.toml", read_toml)
            data = self._read("data", folder / "data.json", _data)
            self._read_on(folder, sorted(data["rooms"])[:_MOST_ROOMS])
            return self._told(folder, plan, data, state)

    def weights(self, number: int) -> Weights:
        """The weights between rooms after a round."""
        with self._lock:
            folder = self._found()
            chosen = [one for one in self._rounds if one.number == number and one.has_weights]
            if folder is None or not chosen:
                having = [one.number for one in self._rounds if one.has_weights]
                there = f"rounds {having[0]} to {having[-1]} may have" if having else "no round has"
                raise RunError(f"round {number} has no weights between rooms; {there} some")
            try:
                return _weights(self._record(folder, chosen[0]))
            except (OSError, ValueError) as error:
                raise RunError(f"round {number}: its record cannot be read any more") from error

    # ---- files ----------------------------------------------------------------------------------

    def _found(self) -> Path | None:
        """The folder of the run; what was read of another one is forgotten."""
        folder = _run_folder(self.place)
        if folder != self._folder:
            self._folder = folder
            self._known.clear()
            self._forget()
        return folder

    def _forget(self) -> None:
        self._rounds, self._problem = [], ""

    def _read(self, name: str, path: Path, reader: Callable[[Path], _Read]) -> _Read:
        """What a file holds; read again where it is another one."""
        try:
            status = path.stat()
            stamp = (path, status.st_mtime_ns, status.st_size, status.st_ino)
            if name not in self._known or self._known[name][0] != stamp:
                self._known[name] = (stamp, reader(path))
        except (OSError, ValueError, RecursionError, PlanError) as error:
            # Where the run lies is nobody's business who only may see it.
            said = getattr(error, "strerror", None) or str(error).removeprefix(f"{path}: ")
            raise RunError(f"{path.name} of the run cannot be read ({said})") from error
        value: _Read = self._known[name][1]
        return value

    def _read_on(self, folder: Path, shown: list[str]) -> None:
        """The lines that are new. A run that goes on from an earlier round has cut some off."""
        if shown != self._shown:  # a room has joined
            self._shown = shown
            self._forget()
        path = folder / "rounds.jsonl"
        if not path.is_file():
            self._forget()
            return
        try:
            with path.open("rb") as file:
                start = self._end()
                if self._rounds:
                    place, length = self._rounds[-1].place
                    file.seek(place)
                    if _digest(file.read(length)) != self._rounds[-1].digest:
                        self._forget()
                        start = 0
                file.seek(start)
                self._problem = ""
                for line in file:
                    if not line.endswith(b"\n"):  # it is being written
                        break
                    self._rounds.append(_round(line, start, self._shown))
                    start += len(line)
        except OSError as error:
            raise RunError(f"rounds.jsonl of the run cannot be read ({error.strerror})") from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self._problem = (
                f"rounds.jsonl: line {len(self._rounds) + 1} is no record of a round; it and what "
                "follows is not shown"
            )

    def _end(self) -> int:
        return sum(self._rounds[-1].place) if self._rounds else 0

    def _floor(self, folder: Path, finished: bool) -> Floor | None:
        """From the summary of a finished run, else from the cards in its checkpoint."""
        path = folder / ("summary.json" if finished else "checkpoint")
        try:
            if not path.is_file() or path.stat().st_size > _LARGEST_CHECKPOINT:
                return None
            if finished:
                return self._read("floor", path, _summary_floor)
            # It is new after each round; who takes part, and so the floor, mostly is not.
            key = tuple(self._shown)
            if "cards" not in self._known or self._known["cards"][0] != key:
                self._known["cards"] = (key, _checkpoint_floor(path))
            floor: Floor | None = self._known["cards"][1]
            return floor
        except (FedapaError, OSError, ValueError, KeyError, TypeError, AttributeError):
            return None  # the curves stand without it

    # ---- what is told ---------------------------------------------------------------------------

    def _told(
        self,
        folder: Path,
        plan: Mapping[str, Any],
        data: Mapping[str, Any],
        unfinished: tuple[_State, str],
    ) -> Training:
        rounds, planned = self._rounds, plan.get("rounds")
        total = planned if isinstance(planned, int) else None  # else "open"
        done = rounds[-1].number if rounds else 0
        finished = (folder / "summary.json").is_file() and (total is None or done >= total)
        state, reason = unfinished
        chosen = _thinned(rounds)
        algorithm = plan.get("algorithm", "")
        having = [one.number for one in chosen if one.has_weights]
        return Training(
            run=folder.name,
            algorithm=str(algorithm["name"] if isinstance(algorithm, dict) else algorithm),
            state="finished" if finished else state,
            reason="" if finished else reason,
            problem=self._problem,
            rounds_done=done,
            rounds_total=total,
            finished=finished,
            updated=(folder / "rounds.jsonl").stat().st_mtime if rounds else None,
            synthetic=data.get("synthetic") is not False,
            data=str(data.get("source", "")).rpartition("/")[2],
            split=str(data.get("split", "")),
            seed=plan["seed"] if isinstance(plan.get("seed"), int) else None,
            rooms=self._shown,
            rooms_total=len(data["rooms"]),
            rounds=[one.number for one in chosen],
            accuracy=self._columns(chosen, "accuracy"),
            mae=self._columns(chosen, "mae") if any("mae" in one.mean for one in rounds) else None,
            loss=self._columns(chosen, "loss"),
            mean={
                name: [one.mean.get(name) for one in chosen] for name in ("accuracy", "mae", "loss")
            },
            floor=self._floor(folder, finished),
            bytes={"up": [one.up for one in chosen], "down": [one.down for one in chosen]},
            bytes_total={
                "up": sum(one.up for one in rounds),
                "down": sum(one.down for one in rounds),
            },
            absent=[absence for one in rounds for absence in one.absent][-_MOST_ABSENCES:],
            weights=self._last_weights(folder, having),
            weights_rounds=having,
        )

    def _columns(self, rounds: Sequence[_Round], name: str) -> dict[str, _Column]:
        return {room: [one.rooms.get(room, {}).get(name) for one in rounds] for room in self._shown}

    def _last_weights(self, folder: Path, having: Sequence[int]) -> Weights | None:
        if not having:
            return None
        last = next(one for one in self._rounds if one.number == having[-1])
        try:
            return _weights(self._record(folder, last))
        except (OSError, ValueError):  # cut off at this moment
            return None

    def _record(self, folder: Path, wanted: _Round) -> Any:
        """The line of a round; of all of them only numbers are kept, matrices are large."""
        start, length = wanted.place
        with (folder / "rounds.jsonl").open("rb") as file:
            file.seek(start)
            return _of_json(file.read(length))


def training_router(folder: Path) -> APIRouter:
    """The API of the training view: ``/api/training``, and the weights of a round below it.

    Args:
        folder: of a run, or of a server that carries one out; there may be no run in it yet.
    """
    router = APIRouter(prefix="/api/training", tags=["training"])
    run = TrainingRun(folder)

    @router.get("", response_model=Training, responses={204: {"description": "No run is there."}})
    def training() -> Training | Response:
        """The run so far; no content where there is none, which is no error of who asks."""
        try:
            return run.document() or Response(status_code=204)
        except FedapaError as error:
            raise HTTPException(503, str(error)) from error

    @router.get("/weights")
    def weights(
        number: int = Query(alias="round", ge=1, description="From weights_rounds."),
    ) -> Weights:
        """The weights between rooms after a round."""
        try:
            run.document()
            return run.weights(number)
        except FedapaError as error:
            raise HTTPException(404, str(error)) from error

    return router


# ---- folders ------------------------------------------------------------------------------------


def _run_folder(place: Path) -> Path | None:
    """Where the run's files are: here, at a server's current run, or around a model file."""
    if (place / "job.json").is_file():
        try:
            name = _json(place / "job.json").get("run")
        except (OSError, ValueError, RecursionError):  # replaced at this moment
            return None
        place = place / "runs" / name if isinstance(name, str) and name else place
    elif place.is_file():
        place = place.parent.parent
    begun = (place / "plan.toml").is_file() and (place / "data.json").is_file()
    return place if begun else None


def _state(folder: Path) -> tuple[_State, str]:
    """What the server that carries out a run says of it; of a run of one process, what its lock."""
    server = folder.parent.parent
    path = server / "status.json"
    try:
        status = _json(path) if path.is_file() else {}
        if status.get("run") != folder.name:
            if is_held(folder / ".lock"):
                return "training", ""
            return "stopped", "its process is no more; the same command with --resume goes on"
        if status.get("state") != "failed" and not is_held(server / ".lock"):
            return "stopped", "its server does not run; 'fedapa server start' goes on"
        if status.get("state") == "paused":
            return "paused", str(status.get("pause", ""))
        if status.get("state") == "failed":
            return "failed", str(status["said"][-1]["said"])
        if status.get("state") == "interrupted":
            return "paused", str(status["said"][-1]["said"])
    except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError):
        pass  # replaced at this moment
    return "training", ""


def _of_json(given: bytes | str) -> Any:
    """What JSON says. Half of a character in it is a ValueError: nobody could be told it."""
    text = given.decode() if isinstance(given, bytes) else given
    value = json.loads(text)
    if "\\ud" in text.lower():
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _json(path: Path) -> dict[str, Any]:
    value = _of_json(path.read_bytes())
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    return value


def _data(path: Path) -> dict[str, Any]:
    value = _json(path)
    if not isinstance(value.get("rooms"), dict):
        raise ValueError("it names no rooms")
    return value


def _summary_floor(path: Path) -> Floor:
    blind = _json(path)["blind"]
    return _floor_of(
        {
            room: {name: told["rooms"].get(room, {}) for name, told in blind.items()}
            for room in sorted({room for told in blind.values() for room in told["rooms"]})
        }
    )


def _checkpoint_floor(path: Path) -> Floor | None:
    state = Checkpoint(path).load()
    rooms: Any = {} if state is None else state["rooms"]
    # A card's facts are JSON; ``messages.card_of`` would read them, with torch.
    facts = {name: _of_json(about["card"]["facts"]) for name, about in rooms.items()}
    return _floor_of({name: told.get("blind", {}) for name, told in facts.items()})


def _floor_of(blind: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Floor:
    """Of room → predictor → metrics: the better predictor, over all rooms and in each."""
    predictors = sorted({name for told in blind.values() for name in told})
    scores = {
        name: {room: _scores(told[name]) for room, told in blind.items() if name in told}
        for name in predictors
    }

    def best(found: Iterable[_Numbers]) -> dict[str, float]:
        listed = list(found)
        accuracies = [one["accuracy"] for one in listed if "accuracy" in one]
        errors = [one["mae"] for one in listed if "mae" in one]
        told = {"accuracy": max(accuracies)} if accuracies else {}
        return {**told, **({"mae": min(errors)} if errors else {})}

    over_rooms = best(_mean(told.values()) for told in scores.values())
    rooms = {room: best(told[room] for told in scores.values() if room in told) for room in blind}
    return Floor(accuracy=over_rooms.get("accuracy"), mae=over_rooms.get("mae"), rooms=rooms)


# ---- lines --------------------------------------------------------------------------------------


def _round(line: bytes, start: int, shown: Sequence[str]) -> _Round:
    """What is kept of a whole line; ValueError and its like where it is no record."""
    record = _of_json(line)
    number, rooms = record["round"], record["rooms"]
    if type(number) is not int or number < 1:
        raise ValueError(f"round {number!r:.40}")
    losses = [loss for about in rooms.values() if (loss := _number(about.get("loss"))) is not None]
    mean = _scores(record.get("mean", {}))
    if losses:
        mean["loss"] = sum(losses) / len(losses)
    return _Round(
        number=number,
        place=(start, len(line)),
        digest=_digest(line),
        rooms={room: _scores(rooms[room]) for room in shown if room in rooms},
        mean=mean,
        up=sum(int(_number(about.get("bytes_up")) or 0) for about in rooms.values()),
        down=sum(int(_number(about.get("bytes_down")) or 0) for about in rooms.values()),
        absent=_absences(number, record),
        has_weights=_has_weights(record),
    )


def _scores(entry: Mapping[str, Any]) -> _Numbers:
    """Accuracy, MAE and loss of an entry, those that it has."""
    named = {
        "accuracy": entry.get("accuracy"),
        "mae": next((entry[name] for name in _MAE if name in entry), None),
        "loss": entry.get("loss"),
    }
    numbers = {name: _number(value) for name, value in named.items()}
    return {name: value for name, value in numbers.items() if value is not None}


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # JSON has whole numbers of any length
        return None
    return number if math.isfinite(number) else None


def _mean(scores: Iterable[_Numbers]) -> _Numbers:
    """Of each metric over the rooms that have it."""
    listed = list(scores)
    names = {name for one in listed for name in one}
    columns = {name: [one[name] for one in listed if name in one] for name in names}
    return {name: sum(values) / len(values) for name, values in columns.items()}


def _absences(number: int, record: Mapping[str, Any]) -> list[Absence]:
    """Who was missing in a round, by reason."""
    missing, rejected = record.get("missing", {}), record.get("rejected", {})
    diverged, withheld = record.get("diverged", {}), record.get("withheld", {})
    silent = set(missing.get("upload", ())) - set(rejected)
    unscored = set(missing.get("score", ())) - silent - set(rejected)
    idle = {room for room, about in record["rooms"].items() if not about.get("participated")}
    idle -= silent | {*rejected, *diverged, *withheld}
    saving = {room for room in idle if "epsilon" in record["rooms"][room]}
    told = {
        "did not answer, so nothing of it was learned": silent,
        "missed the exchange after the round, so it has no score": unscored,
        "not chosen to train in this round": idle - saving,
        "sent no set in this round, to save its privacy budget": saving,
    }
    for room, reason in rejected.items():
        told.setdefault(f"its reply was rejected: {reason}", set()).add(room)
    for room, reason in diverged.items():
        told.setdefault(f"its training diverged: {reason}", set()).add(room)
    for room, reason in withheld.items():
        told.setdefault(reason, set()).add(room)
    return [
        Absence(round=number, rooms=sorted(rooms), reason=reason)
        for reason, rooms in told.items()
        if rooms
    ]


def _members(record: Mapping[str, Any]) -> list[str]:
    """Whose rows the matrices of a record are."""
    return list(record.get("members", sorted(record["rooms"])))


def _has_weights(record: Mapping[str, Any]) -> bool:
    """Whether a record has a number for every pair of its rooms."""
    matrix = record.get("server", {}).get("weights")
    size = len(_members(record))
    if not isinstance(matrix, list) or not size or len(matrix) != size:
        return False
    return all(
        isinstance(row, list)
        and len(row) == size
        and all(_number(weight) is not None for weight in row)
        for row in matrix
    )


def _weights(record: Mapping[str, Any]) -> Weights:
    if not isinstance(record, dict) or not _has_weights(record):
        raise ValueError("no weights")
    return Weights(
        round=record["round"], rooms=_members(record), matrix=record["server"]["weights"]
    )


def _digest(line: bytes) -> bytes:
    return hashlib.blake2b(line, digest_size=16).digest()


def _thinned(rounds: Sequence[_Round]) -> list[_Round]:
    """At most so many rounds as a document has, evenly, with the first and the last."""
    if len(rounds) <= _MOST_ROUNDS:
        return list(rounds)
    last = len(rounds) - 1
    places = [round(step * last / (_MOST_ROUNDS - 1)) for step in range(_MOST_ROUNDS)]
    return [rounds[place] for place in places]
