"""A run's files as they are read again: each is what a run writes, or a sentence says what is not.

People edit, cut and empty files, and disks lose them; a report of what is left would be wrong.
"""

import contextlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, model_validator

from fedapa import algorithms
from fedapa.errors import PlanError, RunError
from fedapa.evaluation.record import JsonLines
from fedapa.federation.plan import LATER, Plan, differences
from fedapa.toml import read_toml
from fedapa.windows.labels import Label

__all__ = [
    "check_records",
    "check_together",
    "explaining",
    "read_before",
    "read_data",
    "read_environment",
    "read_plan",
    "read_records",
    "read_summary",
    "read_times",
]


class _File(BaseModel):
    """What must be there, of which type; more may be."""

    model_config = ConfigDict(strict=True, extra="allow")


class _RoomData(_File):
    architecture: str
    synthetic: bool
    train: int
    validation: int
    test: int
    continuous: int = 0
    recordings: dict[str, int] = {}
    fingerprint: str


class _Data(_File):
    source: str
    synthetic: bool
    split: str
    why: str
    classes: list[Label]
    window_shape: list[int]
    windows: str = ""
    view_why: str = ""
    rooms: dict[str, _RoomData]


class _Blind(_File):
    mean: dict[str, float]
    std: dict[str, float]
    fewer_rooms: dict[str, int] = {}
    rooms: dict[str, dict[str, float]]


class _Blinds(_File):
    constant: _Blind
    prior: _Blind


class _Summary(_File):
    rounds: int
    averaged_rounds: list[int]
    rooms: dict[str, dict[str, float]]
    over_rooms: dict[str, dict[str, float]]
    alternatives: dict[str, dict[str, Any]]
    blind: _Blinds
    windows: dict[str, dict[str, int]]
    bytes: dict[str, float]
    confusion: dict[str, list[list[int]]]
    reliability: dict[str, list[list[float]]] = {}
    roc: dict[str, list[list[int]]] = {}
    notes: list[str] = []
    without_model: list[str] = []
    synthetic: bool


class _RoomRecord(_File):
    __pydantic_extra__: dict[str, float | bool]
    participated: bool
    bytes_up: int
    bytes_down: int

    @model_validator(mode="after")
    def _is_scored_whole(self) -> "_RoomRecord":
        if ("accuracy" in self.__pydantic_extra__) != ("macro_f1" in self.__pydantic_extra__):
            raise ValueError("has one of accuracy and macro_f1, expected both or none")
        return self


class _Record(_File):
    round: int
    rooms: dict[str, _RoomRecord]
    members: list[str] = []
    mean: dict[str, float]
    std: dict[str, float]
    fewer_rooms: dict[str, int] = {}
    server: dict[str, Any]


class _Before(_File):
    rooms: dict[str, dict[str, float]]
    mean: dict[str, float]


class _Environment(_File):
    fedapa: str
    commit: str
    packages: dict[str, str]
    resumed: list["_Environment"] = []


@contextlib.contextmanager
def explaining(place: Path) -> Iterator[None]:
    """A run's own files, damaged by somebody else, are one sentence and not a traceback."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        told = _told(error) if isinstance(error, ValidationError) else str(error)
        raise RunError(
            f"{place}: its files are damaged or incomplete ({told}); run again with another --out"
        ) from error


def _told(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'all of it'}: {first['msg'].lower()}"


def read_plan(folder: Path) -> Plan:
    """The resolved plan of a run; one that does not name every value is not what a run wrote."""
    path = folder / "plan.toml"
    with explaining(path):
        try:
            document = read_toml(path)
            _check_installed(path, document)
            plan = Plan(**document)
        except PlanError as error:
            raise ValueError(str(error).removeprefix(f"{path}: ")) from error
        named = {f"{name}.{key}" for name, part in document.items() for key in _keys(part)}
        changed = differences(document, plan.document())
        if changed := [text for text in changed if text.partition(":")[0] not in LATER - named]:
            missing = changed[0].partition(":")[0]
            raise ValueError(
                f"it does not give {missing} as a run of this version does; environment.json names "
                "the version that made it"
            )
    return plan


def _keys(part: Any) -> Iterable[str]:
    return part if isinstance(part, dict) else ()


def _check_installed(path: Path, document: Mapping[str, Any]) -> None:
    """Refuse a plan whose algorithm came from a package that is not here: nothing is damaged."""
    section = document.get("algorithm")
    name = section.get("name") if isinstance(section, Mapping) else section
    if isinstance(name, str) and name not in algorithms.names():
        raise RunError(
            f"{path}: its algorithm '{name:.80}' is not installed here; install the package that "
            "the algorithm came with"
        )


def read_data(folder: Path) -> dict[str, Any]:
    """What the data of a run was."""
    return _read(folder / "data.json", _Data)


def read_summary(folder: Path) -> dict[str, Any]:
    """The figures of a run."""
    return _read(folder / "summary.json", _Summary)


def read_environment(folder: Path) -> dict[str, Any]:
    """What a run was made with."""
    return _read(folder / "environment.json", _Environment)


def read_before(folder: Path) -> dict[str, Any]:
    """The scores before the first step; nothing in runs of earlier code, which kept none."""
    path = folder / "before.json"
    return _read(path, _Before) if path.is_file() else {}


def read_records(folder: Path) -> list[dict[str, Any]]:
    """The lines of all rounds, round 1 first."""
    path = folder / "rounds.jsonl"
    with explaining(path):
        records = JsonLines(path).read()
        TypeAdapter(list[_Record]).validate_python(records)
    return records


def read_times(folder: Path) -> list[dict[str, Any]]:
    """How long each exchange took, the first that of round 1; nothing where it was not kept."""
    path = folder / "seconds.jsonl"
    with explaining(path):
        return JsonLines(path).read() if path.is_file() else []


def check_records(folder: Path, records: Sequence[dict[str, Any]], done: int) -> None:
    """Refuse records that lack some of the first ``done`` rounds."""
    numbers = [record["round"] for record in records[:done]]
    if numbers != list(range(1, done + 1)):
        raise RunError(
            f"{folder / 'rounds.jsonl'}: holds {len(numbers)} of the {done} rounds that were done; "
            "somebody emptied, cut or changed it: put it back, or run again with another --out"
        )


def check_together(
    folder: Path,
    data: Mapping[str, Any],
    records: Sequence[Mapping[str, Any]],
    summary: Mapping[str, Any],
) -> None:
    """Refuse files that are sound alone but tell of other rooms or classes than data.json."""
    rooms, classes = set(data["rooms"]), len(data["classes"])
    for record in records:
        members = record.get("members", sorted(record["rooms"]))
        with explaining(folder / "rounds.jsonl"):
            _check_rooms({*record["rooms"], *members}, rooms)
            if isinstance(weights := record["server"].get("weights"), list):
                _check_square("server.weights", weights, len(members))
    with explaining(folder / "summary.json"):
        _check_rooms(summary["confusion"], rooms)
        for name, columns in (("reliability", 3), ("roc", 2)):
            told = summary.get(name, {})
            _check_rooms(told, rooms)
            for room, table in told.items():
                if any(len(row) != columns for row in table):
                    raise ValueError(f"{name}.{room} has not {columns} columns")
        for room, matrix in summary["confusion"].items():
            _check_square(f"confusion.{room}", matrix, classes)


def _check_rooms(told: Iterable[str], known: Collection[str]) -> None:
    if unknown := sorted(set(told) - set(known)):
        raise ValueError(f"room '{unknown[0]}' is not in data.json")


def _check_square(name: str, matrix: Sequence[Any], size: int) -> None:
    shape = TypeAdapter(list[list[float]]).validate_python(matrix)
    if len(shape) != size or any(len(row) != size for row in shape):
        raise ValueError(f"{name} is not {size} × {size}")


def _read(path: Path, kind: type[_File]) -> dict[str, Any]:
    with explaining(path):
        values: dict[str, Any] = json.loads(path.read_text())
        kind.model_validate(values)
    return values
