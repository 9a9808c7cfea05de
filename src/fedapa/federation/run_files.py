"""A run's files as they are read again: each is what a run writes, or a sentence says what is not.

People edit, cut and empty files, and disks lose them; a report of what is left would be wrong.
"""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from fedapa.errors import FedapaError, RunError
from fedapa.evaluation.record import JsonLines
from fedapa.federation.plan import Plan, differences
from fedapa.toml import read_toml
from fedapa.windows.labels import Label

__all__ = [
    "check_records",
    "explaining",
    "read_data",
    "read_environment",
    "read_plan",
    "read_records",
    "read_summary",
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
    fingerprint: str


class _Data(_File):
    source: str
    synthetic: bool
    split: str
    classes: list[Label]
    window_shape: list[int]
    rooms: dict[str, _RoomData]


class _Summary(_File):
    rounds: int
    averaged_rounds: list[int]
    rooms: dict[str, dict[str, float]]
    over_rooms: dict[str, dict[str, float]]
    alternatives: dict[str, dict[str, Any]]
    blind: dict[str, dict[str, Any]]
    windows: dict[str, dict[str, int]]
    bytes: dict[str, float]
    confusion: dict[str, list[list[int]]]
    synthetic: bool


class _Record(_File):
    round: int
    rooms: dict[str, dict[str, float | bool]]
    mean: dict[str, float]
    server: dict[str, Any]


class _Environment(_File):
    fedapa: str
    commit: str
    packages: dict[str, str]


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
            plan = Plan(**document)
        except FedapaError as error:
            raise ValueError(str(error).removeprefix(f"{path}: ")) from error
        if changed := differences(document, plan.document()):
            raise ValueError(f"not every value is in it, e.g. {changed[0].partition(':')[0]}")
    return plan


def read_data(folder: Path) -> dict[str, Any]:
    """What the data of a run was."""
    return _read(folder / "data.json", _Data)


def read_summary(folder: Path) -> dict[str, Any]:
    """The figures of a run."""
    return _read(folder / "summary.json", _Summary)


def read_environment(folder: Path) -> dict[str, Any]:
    """What a run was made with."""
    return _read(folder / "environment.json", _Environment)


def read_records(folder: Path) -> list[dict[str, Any]]:
    """The lines of all rounds, round 1 first."""
    path = folder / "rounds.jsonl"
    with explaining(path):
        records = JsonLines(path).read()
        TypeAdapter(list[_Record]).validate_python(records)
    return records


def check_records(folder: Path, records: Sequence[dict[str, Any]], done: int) -> None:
    """Refuse records that lack some of the first ``done`` rounds."""
    numbers = [record["round"] for record in records[:done]]
    if numbers != list(range(1, done + 1)):
        raise RunError(
            f"{folder / 'rounds.jsonl'}: holds {len(numbers)} of the {done} rounds that were done; "
            "somebody emptied, cut or changed it: put it back, or run again with another --out"
        )


def _read(path: Path, kind: type[_File]) -> dict[str, Any]:
    with explaining(path):
        values: dict[str, Any] = json.loads(path.read_text())
        kind.model_validate(values)
    return values
