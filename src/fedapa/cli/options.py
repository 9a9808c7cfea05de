"""Options that several commands take, and what becomes of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedapa.errors import PlanError
from fedapa.toml import parse_toml

if TYPE_CHECKING:
    from fedapa.experiments.experiment import Base

__all__ = [
    "AllLong",
    "ByStillness",
    "Changes",
    "Json",
    "LongRounds",
    "OnlyRooms",
    "Preset",
    "Resume",
    "Rounds",
    "Seeds",
    "SideBySide",
    "Source",
    "SplitKind",
    "ViewName",
    "WithoutRooms",
    "Workers",
    "assignment",
    "base_of",
    "data_flags",
    "given_only",
]


ByStillness = Annotated[
    bool,
    typer.Option(
        help="Call a room empty when nothing moves in it. Off for a receiver that cannot see "
        "everybody move.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for scripts.")]
Workers = Annotated[
    int | None,
    typer.Option(
        min=0, help="Processes that train rooms side by side; default: cores. 0: in this process."
    ),
]
SideBySide = Annotated[
    int | None, typer.Option("--workers", min=1, help="Runs side by side; default: cores.")
]
Preset = Annotated[
    str,
    typer.Option(
        help="smoke (does it work?), quick (a counter), tables or protocol (hours) or paper (days "
        "on a CPU)."
    ),
]
Source = Annotated[
    str,
    typer.Option(help="A store of rooms, or 'simulated': the preset's SIMULATED rooms."),
]
Seeds = Annotated[int, typer.Option(min=1, help="How many: 0, 1, 2 …")]
SplitKind = Annotated[
    str | None,
    typer.Option(
        "--split",
        help="day, recording, blocked, random (by window, leaks), later (train on the first "
        "days, test on the last); or auto (the default but in the paper's presets): the "
        "strictest of the first four that all rooms allow.",
    ),
]
ViewName = Annotated[
    str | None,
    typer.Option(
        "--view",
        help="What a window becomes before the net: amplitude, level, motion, spectrum, "
        "statistics, 'statistics by link', profile; or auto (the default but in the paper's "
        "presets): what a linear model does best with, test windows not seen.",
    ),
]
Rounds = Annotated[
    int | None, typer.Option(min=1, help="Instead of the preset's; a quarter is warm-up.")
]
LongRounds = Annotated[
    int | None,
    typer.Option(min=0, help="Of the long horizon; default: four times the rounds. 0: none."),
]
AllLong = Annotated[
    bool,
    typer.Option("--all-long", help="All methods run to the long horizon, where that can be."),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with what --out holds; afresh if it is empty.")
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other key, e.g. data.decimate=2."),
]


OnlyRooms = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="ROOM", help="Use this room; give it once for each."),
]
WithoutRooms = Annotated[
    list[str] | None,
    typer.Option("--without", metavar="ROOM", help="Leave this room out; give it once for each."),
]


def given_only(**values: Any) -> dict[str, Any]:
    """The values that were really given, so that nothing is overridden by a default."""
    return {key: value for key, value in values.items() if value is not None and value != {}}


def data_flags(data: Path | None, **others: Any) -> dict[str, Any]:
    """The section of a plan that says which rooms, as far as flags said it."""
    return given_only(file=None if data is None else str(data), **others)


def assignment(text: str) -> dict[str, Any]:
    """``data.window=500`` as {"data": {"window": 500}}."""
    path, equals, value = text.partition("=")
    if not equals or not path:
        raise PlanError(f"--set {text}: write KEY=VALUE, e.g. training.learning_rate=0.02")
    try:
        parsed = parse_toml(f"value = {value}", f"--set {path}")["value"]
    except PlanError:
        parsed = value  # a bare word is a string
    section, dot, key = path.partition(".")
    return {section: {key: parsed}} if dot else {section: parsed}


def base_of(
    preset: str,
    data: str,
    split: str | None,
    rounds: int | None,
    long_rounds: int | None,
    change: list[str] | None,
    *,
    all_long: bool = False,
    only: list[str] | None = None,
    without: list[str] | None = None,
) -> "Base":
    """What the options that all experiments share ask for."""
    from fedapa.experiments.experiment import Base

    return Base(
        preset=preset,
        file=None if data == "simulated" else data,
        split=split,
        rounds=rounds,
        long_rounds=long_rounds,
        all_long=all_long,
        changes=(
            *([{"data": rooms}] if (rooms := given_only(only=only, without=without)) else []),
            *(assignment(text) for text in change or []),
        ),
    )
