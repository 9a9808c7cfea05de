"""Which rooms are simulated, and what is recorded in them: presets, and rooms of one's own.

The six rooms are in six_rooms.toml, what the presets record of them in simulated_presets.toml, both
in the format that a user's rooms file has::

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

import functools
import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib import resources
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict

from fedapa.errors import PlanError, nearest
from fedapa.simulator.recording import Scene, check_scene
from fedapa.simulator.room import SimulatedRoom, capacity
from fedapa.simulator.settings import KNOWN_KEYS_ONLY, Number, Whole, made_from, within
from fedapa.windows.labels import check_name

__all__ = [
    "SIMULATED_PRESETS",
    "Activity",
    "Continuous",
    "Place",
    "Preset",
    "changed_preset",
    "check_preset",
    "place_of",
    "preset_hash",
    "preset_of",
]

_VERSION = 3
"""Raised when the same parameters give other numbers, or a name other rooms; part of every hash."""

SIMULATED_PRESETS = ("smoke", "quick", "activities", "long", "takes", "six-rooms")
"""Names of the presets, from small to large."""

Times = Annotated[Whole, within(1, 10_000)]
Activity = Literal["sitting", "walking"]
"""All sit during the whole recording; nobody does."""


@dataclass(frozen=True)
class Continuous:
    """Long recordings on days of their own, one of every count: for counting over time only."""

    __pydantic_config__: ClassVar[ConfigDict] = KNOWN_KEYS_ONLY

    days: Times
    """Days of recording, after all others."""
    seconds: Annotated[Number, within(1, 3600)]
    """s, length of a recording."""


@dataclass(frozen=True)
class Place:
    """A scene and what is recorded in it."""

    __pydantic_config__: ClassVar[ConfigDict] = KNOWN_KEYS_ONLY

    scene: Scene
    counts: tuple[Whole, ...]
    """Numbers of people recorded."""
    days: Times
    """Days of recording; overnight furniture and antennas move."""
    recordings: Times
    """Recordings of every count on every day, each with seats and steps of its own."""
    windows: Times | None = None
    """Windows in a recording of the smaller counts; those with many people are shorter."""
    seconds: Annotated[Number, within(0.1, 3600)] | None = None
    """s, length of such a recording, instead of windows."""
    continuous: Continuous | None = None
    """What is recorded for counting over time; None is nothing."""
    activities: tuple[Activity, ...] | None = None
    """What people do: every recording of somebody is made once for each, as its second label;
    one of nobody is "empty". None: they sit or walk as motion.seated has it, and nobody says."""

    def packets_of(self, count: int, window: int) -> int:
        """Packets of a recording with ``count`` people: a crowd has less patience, by a quarter."""
        crowd = count > max(self.counts) / 2
        if self.seconds is not None:
            return int(self.seconds * (0.75 if crowd else 1) * self.scene.radio.rate)
        assert self.windows is not None  # ``check_preset``
        return (self.windows - crowd * (self.windows // 4)) * window


@dataclass(frozen=True)
class Preset:
    """Places and the window they are meant to be cut into."""

    name: str
    window: int
    """Packets per window."""
    places: tuple[Place, ...]


_CARRIERS = {20: 5.18e9, 40: 5.19e9, 80: 5.21e9}
"""Hz: channels 36, 38 and 42 of IEEE 802.11ac."""

_PATHS: Mapping[str, tuple[str, ...]] = {
    **{
        field.name: ("scene", "room", field.name)
        for field in fields(SimulatedRoom)
        if field.name != "name"
    },
    "bandwidth": ("scene", "radio", "bandwidth"),
    "rate": ("scene", "radio", "rate"),
    "hardware": ("scene", "receiver"),
    "body": ("scene", "body"),
    "motion": ("scene", "motion"),
    **{field.name: (field.name,) for field in fields(Place) if field.name != "scene"},
}
"""Where in a place a key of a rooms file goes."""

_LENGTHS = {"windows": "seconds", "seconds": "windows"}
_NEEDED = ("size", "transmitter", "receiver", "counts")


@functools.cache
def preset_of(name: str) -> Preset:
    """The preset of that name."""
    if name not in SIMULATED_PRESETS:
        raise PlanError(f"preset '{name}' is unknown; {nearest(name, SIMULATED_PRESETS)}")
    files = resources.files(__package__)
    rooms = tomllib.loads(files.joinpath("six_rooms.toml").read_text())
    preset = tomllib.loads(files.joinpath("simulated_presets.toml").read_text())[name]
    places = []
    for room, table in rooms.items():
        values = _changed({"scene": {"room": {"name": room}}}, room, table)
        places.append(place_of(_changed(values, room, preset["rooms"][room]), room))
    return Preset(name, preset["window"], tuple(places))


def preset_hash(preset: Preset) -> str:
    """16 hexadecimal digits that change with any parameter of the preset.

    What is not set is left out: a setting that is new leaves the hashes of older presets alone.
    """
    text = json.dumps([_VERSION, asdict(preset, dict_factory=_set_values)], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _set_values(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in pairs if value is not None}


def changed_preset(preset: Preset, rooms: Mapping[str, Any]) -> Preset:
    """``preset`` with its rooms changed, and new ones added, as the tables say."""
    places = {place.scene.room.name: place for place in preset.places}
    first = asdict(preset.places[0])
    for name, table in rooms.items():
        if not isinstance(table, Mapping):
            raise PlanError(f"rooms file: '{name}' is not a table; write [{name}] above its keys")
        if name in places:
            values = asdict(places[name])
        else:
            if missing := [key for key in _NEEDED if key not in table]:
                raise PlanError(
                    f"room '{name}' is new and lacks {', '.join(missing)}; "
                    f"or did you mean one of {', '.join(sorted(places))}?"
                )
            scene = {"room": {"name": name}, "radio": first["scene"]["radio"]}
            values = {**first, "scene": scene}
        places[name] = place_of(_changed(values, name, table), name)
    own = "" if not rooms else " with own rooms"
    return Preset(preset.name + own, preset.window, tuple(places.values()))


def check_preset(preset: Preset) -> None:
    """Raise before anything is written if a recording of the preset cannot be."""
    for place in preset.places:
        room = place.scene.room
        where = f"room '{room.name}': "
        check_name(room.name, "room")  # it becomes a folder of captures
        check_scene(place.scene)
        place_of(asdict(place), room.name)
        if (place.windows is None) == (place.seconds is None):
            raise PlanError(f"{where}give its recordings either windows or seconds, one of the two")
        if len(set(place.counts)) != len(place.counts) or not place.counts:
            raise PlanError(f"{where}counts = {list(place.counts)}; list each one once")
        if place.activities is not None:
            _check_activities(place, where)
        for count in place.counts:
            if not 0 <= count <= capacity(room):
                raise PlanError(
                    f"{where}{count} people on {room.size[0]:g} × {room.size[1]:g} m; "
                    f"0 to {capacity(room)} fit"
                )


def _check_activities(place: Place, where: str) -> None:
    told = place.activities or ()
    if len(set(told)) != len(told) or not told:
        raise PlanError(f"{where}activities = {list(told)}; list each one once")
    seats = len(place.scene.room.seats)
    if "sitting" in told and max(place.counts) > seats:
        raise PlanError(
            f"{where}{max(place.counts)} people cannot all sit on {seats} seats; add seats, or "
            "leave 'sitting' out of activities"
        )
    if place.continuous is not None:
        raise PlanError(
            f"{where}activities and continuous recordings, which nobody labels with an activity; "
            "give one of the two"
        )


def _changed(values: Mapping[str, Any], name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a place with those of a room's table put where they belong."""
    changed = dict(values)
    if set(_LENGTHS) <= set(table):
        raise PlanError(
            f"room '{name}': windows and seconds say the same thing; give one of the two"
        )
    for key, value in table.items():
        if key not in _PATHS:
            raise PlanError(f"room '{name}': unknown key '{key}'; {nearest(key, _PATHS)}")
        changed = _with(changed, _PATHS[key], value)
        if key in _LENGTHS:  # the other one said the same before
            changed[_LENGTHS[key]] = None
    bandwidth = table.get("bandwidth")
    if isinstance(bandwidth, int) and bandwidth in _CARRIERS:
        changed = _with(changed, ("scene", "radio", "carrier"), _CARRIERS[bandwidth])
    return changed


def _with(values: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """Nested values with one changed; of a table, only the keys that it names."""
    key, *below = path
    old = values.get(key, {})
    if below:
        new: Any = _with(old, below, value)
    elif isinstance(value, Mapping) and isinstance(old, Mapping):
        new = {**old, **value}
    else:
        new = value
    return {**values, key: new}


def place_of(values: Mapping[str, Any], name: str) -> Place:
    """The place of plain values; ``name`` is its room's in whatever is wrong with them."""
    return made_from(Place, values, f"room '{name}': ", key=_key)


def _key(path: Sequence[str]) -> str:
    """What a rooms file calls the value at a path of a place."""
    for key, home in _PATHS.items():
        if tuple(path[: len(home)]) == home:
            return ".".join([key, *path[len(home) :]])
    return ".".join(path)
