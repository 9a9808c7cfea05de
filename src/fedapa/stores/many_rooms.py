"""Many simulated rooms: as many as wanted, each one of a preset's rooms made differently.

Room n is a variation of room n mod 6, drawn from the seed and n alone: a thousand rooms begin with
the hundred that the same seed gives. What varies, and by how much, is an assumption::

    size       every side by a factor of its own; seats stay where they are in it
    antennas   moved from where they are in the room, in every direction
    walls      some of the six faces of another material that such a face may have; metal stays
    furniture  how many pieces there are, and how strongly they scatter
    people     which of the counts are recorded, how many people sit, how fast they walk

What is recorded of a room (days, recordings, windows, packets per second) is the preset's.
"""

from dataclasses import replace

import numpy as np

from fedapa.errors import PlanError
from fedapa.randomness import Key
from fedapa.simulator.people import Motion
from fedapa.simulator.room import Furniture, SimulatedRoom, Walls, capacity
from fedapa.stores.simulated_rooms import Place, Preset

__all__ = ["MOST_ROOMS", "many_rooms"]

MOST_ROOMS = 100_000
_SIDES = (0.8, 1.25)
"""Factor of length and of width."""
_HEIGHTS = (0.93, 1.1)
"""Factor of the height."""
_MOVED = 0.3
"""m, standard deviation of an antenna's place in each direction."""
_CLEARANCE = 0.15
"""m that antennas keep from every face."""
_APART = 1.0
"""m that the two antennas keep from each other."""
_OTHER_WALL = 0.3
"""Probability that a face is of another material."""
_SIDE_MATERIALS = ("brick", "chipboard", "concrete", "glass", "plasterboard", "wood")
_FACES = {
    "west": _SIDE_MATERIALS,
    "east": _SIDE_MATERIALS,
    "south": _SIDE_MATERIALS,
    "north": _SIDE_MATERIALS,
    "floor": ("concrete", "floorboard", "wood"),
    "ceiling": ("ceiling board", "concrete", "plasterboard"),
}
_PIECES = (0.6, 1.5)
"""Factor of the number of pieces of furniture."""
_SCATTERING = (0.7, 1.4)
"""Factor of their cross-sections."""
_LEFT_OUT = 0.25
"""Probability that a count above zero is not recorded."""
_FEWEST = 3
"""Counts that every room keeps, where the preset's has so many."""
_SEATED = 0.1
"""Standard deviation of the share of people who sit."""
_PACE = (0.85, 1.2)
"""Factor of walking speeds."""


def many_rooms(preset: Preset, number: int, *, seed: int) -> Preset:
    """``number`` rooms that vary those of ``preset`` in turn; equal seeds give equal rooms."""
    if not 1 <= number <= MOST_ROOMS:
        raise PlanError(f"--many {number}: choose 1 to {MOST_ROOMS} rooms")
    places = tuple(
        _varied(preset.places[n % len(preset.places)], n, Key(seed) / "many rooms" / n)
        for n in range(number)
    )
    return Preset(f"{preset.name}, {number} variations", preset.window, places)


def _varied(place: Place, number: int, key: Key) -> Place:
    scene = place.scene
    room = _room(scene.room, f"{scene.room.name} {number:05d}", key)
    return replace(
        place,
        scene=replace(scene, room=room, motion=_motion(scene.motion, key)),
        counts=_counts(place.counts, capacity(room), key),
    )


def _room(room: SimulatedRoom, name: str, key: Key) -> SimulatedRoom:
    draw = (key / "size").numpy()
    factors = np.array([*draw.uniform(*_SIDES, 2), draw.uniform(*_HEIGHTS)])
    size = np.round(np.asarray(room.size) * factors, 2)
    factors = size / np.asarray(room.size)
    low, high = np.full(3, _CLEARANCE), size - _CLEARANCE
    antennas = np.clip(np.asarray([room.transmitter, room.receiver]) * factors, low, high)
    moved = np.clip(antennas + (key / "antennas").numpy().normal(0, _MOVED, (2, 3)), low, high)
    if np.linalg.norm(moved[0] - moved[1]) >= _APART:
        antennas = moved
    first, second = ((float(x), float(y), float(z)) for x, y, z in np.round(antennas, 3))
    length, width, height = (float(side) for side in size)
    return replace(
        room,
        name=name,
        size=(length, width, height),
        transmitter=first,
        receiver=second,
        walls=_walls(room.walls, key),
        furniture=_furniture(room.furniture, height, key),
        seats=tuple((float(x * factors[0]), float(y * factors[1])) for x, y in room.seats),
        door=None,  # where it is follows from the walls
    )


def _walls(walls: Walls, key: Key) -> Walls:
    draw = (key / "walls").numpy()
    changed = {}
    for face, materials in _FACES.items():
        other, chosen = draw.random() < _OTHER_WALL, str(draw.choice(materials))
        if other and getattr(walls, face) != "metal":
            changed[face] = chosen
    return replace(walls, **changed)


def _furniture(furniture: Furniture, height: float, key: Key) -> Furniture:
    draw = (key / "furniture").numpy()
    pieces = round(furniture.pieces * draw.uniform(*_PIECES))
    stronger = draw.uniform(*_SCATTERING)
    least, most = furniture.cross_section
    return replace(
        furniture,
        pieces=pieces,
        cross_section=(least * stronger, most * stronger),
        height=(furniture.height[0], min(furniture.height[1], height)),
    )


def _motion(motion: Motion, key: Key) -> Motion:
    draw = (key / "people").numpy()
    seated = float(np.clip(motion.seated + draw.normal(0, _SEATED), 0, 1))
    pace = draw.uniform(*_PACE)
    slow, fast = (float(np.clip(speed * pace, 0.05, 1.9)) for speed in motion.speed)
    return replace(motion, seated=seated, speed=(slow, fast))


def _counts(counts: tuple[int, ...], most: int, key: Key) -> tuple[int, ...]:
    """Those that fit, some left out; a room without people is always recorded."""
    draw = (key / "counts").numpy()
    fitting = [count for count in counts if count <= most]
    kept = [count for count in fitting if not count or draw.random() >= _LEFT_OUT]
    missing = [count for count in fitting if count not in kept]
    while len(kept) < min(_FEWEST, len(fitting)):
        kept.append(missing.pop(0))
    return tuple(sorted(kept))
