"""Rooms of one's own: a TOML file that changes or adds rooms of a preset.

::

    ["living room"]                      # a room of the preset: only what differs
    transmitter = [0.5, 2.0, 1.8]
    walls.north = "brick"
    counts = [0, 1, 2, 3]

    [lobby]                              # a new room: at least these four
    size = [9.0, 6.0, 3.2]
    transmitter = [0.5, 3.0, 2.5]
    receiver = [8.5, 3.0, 1.0]
    counts = [0, 2, 4]
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from fedapa.errors import PlanError, nearest
from fedapa.simulator.room import Room
from fedapa.simulator.take import Scene
from fedapa.stores.simulated import Place, Preset
from fedapa.toml import read_toml

__all__ = ["changed_preset", "read_rooms"]

_T = TypeVar("_T")

_ROOM = ("size", "transmitter", "receiver", "seats", "reflections")
_PLACE = ("counts", "days", "takes", "windows")
_TABLES = ("walls", "furniture", "motion", "body", "hardware")
_KEYS = (*_ROOM, *_PLACE, *_TABLES, "rate")
_NEEDED = ("size", "transmitter", "receiver", "counts")


def read_rooms(path: Path) -> dict[str, Any]:
    """The tables of a rooms file."""
    return read_toml(path)


def changed_preset(preset: Preset, rooms: Mapping[str, Any]) -> Preset:
    """``preset`` with its rooms changed, and new ones added, as the tables say."""
    places = {place.scene.room.name: place for place in preset.places}
    first = preset.places[0]
    for name, table in rooms.items():
        if not isinstance(table, Mapping):
            raise PlanError(f"rooms file: '{name}' is not a table; write [{name}] above its keys")
        for key in table:
            if key not in _KEYS:
                raise PlanError(f"room '{name}': unknown key '{key}'; {nearest(key, _KEYS)}")
        if name not in places:
            missing = [key for key in _NEEDED if key not in table]
            if missing:
                raise PlanError(
                    f"room '{name}' is new and lacks {', '.join(missing)}; "
                    f"or did you mean one of {', '.join(sorted(places))}?"
                )
            blank = Room(name, (1.0, 1.0, 1.0), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
            places[name] = replace(first, scene=Scene(blank, first.scene.radio))
        places[name] = _changed_place(places[name], name, table)
    own = "" if not rooms else " with own rooms"
    return Preset(preset.name + own, preset.window, tuple(places.values()))


def _changed_place(place: Place, name: str, table: Mapping[str, Any]) -> Place:
    scene = place.scene
    parts = {
        "walls": scene.room.walls,
        "furniture": scene.room.furniture,
        "motion": scene.motion,
        "body": scene.body,
        "hardware": scene.receiver,
    }
    made: dict[str, Any] = {
        key: _with(part, f"room '{name}': {key}", table.get(key, {})) for key, part in parts.items()
    }
    room = _with(scene.room, f"room '{name}'", {key: table[key] for key in _ROOM if key in table})
    room = replace(room, walls=made["walls"], furniture=made["furniture"])
    rate = {"rate": table["rate"]} if "rate" in table else {}
    scene = Scene(
        room,
        _with(scene.radio, f"room '{name}'", rate),
        made["hardware"],
        made["body"],
        made["motion"],
    )
    plan = {key: table[key] for key in _PLACE if key in table}
    return replace(_with(place, f"room '{name}'", plan), scene=scene)


def _with(settings: _T, where: str, changes: Any) -> _T:
    """A frozen dataclass with some fields changed, each to a value like the one it had."""
    if not isinstance(changes, Mapping):
        raise PlanError(f"{where} is not a table")
    known = {field.name: getattr(settings, field.name) for field in fields(settings)}  # type: ignore[arg-type]
    new = {}
    for key, value in changes.items():
        if key not in known:
            raise PlanError(f"{where}: unknown key '{key}'; {nearest(key, known)}")
        new[key] = _like(known[key], value, f"{where}: {key}")
    return replace(settings, **new)  # type: ignore[type-var]


def _like(known: Any, value: Any, where: str) -> Any:
    """``value`` as the kind of thing that ``known`` is."""
    if isinstance(known, tuple):
        fixed = bool(known) and not where.endswith((": counts", ": seats"))
        if not isinstance(value, list) or (fixed and len(value) != len(known)):
            size = f" of {len(known)}" if fixed else ""
            raise PlanError(f"{where} = {value!r}; write a list{size}, e.g. {list(known)}")
        sample = known[0] if known else (0.0, 0.0)
        return tuple(_like(sample, each, f"{where}: each") for each in value)
    if isinstance(known, float) and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise PlanError(f"{where}: a whole number of more than 300 digits") from None
    if type(value) is not type(known):
        raise PlanError(f"{where} = {value!r}; expected something like {known!r}")
    return value
