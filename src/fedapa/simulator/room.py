"""Rooms: a shoebox with walls of real materials, a link in it, and furniture that moves overnight.

The equations are in docs/simulator.md. Lengths are in metres, the floor is z = 0, and the room
spans [0, x] × [0, y] × [0, z].
"""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict

from fedapa.errors import PlanError, nearest
from fedapa.randomness import Key
from fedapa.simulator.settings import (
    KNOWN_KEYS_ONLY,
    Number,
    Pair,
    Point,
    Spot,
    Whole,
    check_settings,
    within,
)

__all__ = [
    "MATERIALS",
    "SPEED_OF_LIGHT",
    "Furniture",
    "Images",
    "Scatterers",
    "SimulatedRoom",
    "Walls",
    "capacity",
    "check_room",
    "door_of",
    "furniture_of",
    "image_sources",
    "mirrors",
    "reflection",
    "room_on",
]

Array: TypeAlias = npt.NDArray[np.float64]
_Points = TypeVar("_Points", npt.NDArray[np.float32], npt.NDArray[np.float64])

SPEED_OF_LIGHT = 299_792_458.0
"""m/s, by definition."""
_VACUUM_PERMITTIVITY = 8.8541878128e-12
"""F/m, CODATA 2018."""

MATERIALS: dict[str, tuple[float, float, float, float]] = {
    "brick": (3.91, 0.0, 0.0238, 0.16),
    "ceiling board": (1.48, 0.0, 0.0011, 1.0750),
    "chipboard": (2.58, 0.0, 0.0217, 0.7800),
    "concrete": (5.24, 0.0, 0.0462, 0.7822),
    "floorboard": (3.66, 0.0, 0.0044, 1.3515),
    "glass": (6.31, 0.0, 0.0036, 1.3394),
    "metal": (1.0, 0.0, 1e7, 0.0),
    "plasterboard": (2.73, 0.0, 0.0085, 0.9395),
    "wood": (1.99, 0.0, 0.0047, 1.0718),
}
"""ITU-R P.2040-3, table 3: ε_r = a·f^b and σ = c·f^d S/m with f in GHz, as (a, b, c, d).

The table gives floorboard for 50 to 100 GHz only; below that its use is an assumption.
"""

_ANTENNA_CLEARANCE = 0.05
_FLOOR_PER_PERSON = 0.5


@dataclass(frozen=True)
class Walls:
    """The material of each face; names of ``MATERIALS``."""

    __pydantic_config__: ClassVar[ConfigDict] = KNOWN_KEYS_ONLY

    west: str = "plasterboard"
    """The face x = 0. Assumption."""
    east: str = "plasterboard"
    """The face at the far end of x. Assumption."""
    south: str = "plasterboard"
    """The face y = 0. Assumption."""
    north: str = "plasterboard"
    """The face at the far end of y. Assumption."""
    floor: str = "concrete"
    """The face z = 0. Assumption."""
    ceiling: str = "concrete"
    """The face at the far end of z. Assumption."""

    @property
    def names(self) -> tuple[str, ...]:
        """In the order (x = 0, x = X, y = 0, y = Y, z = 0, z = Z)."""
        return (self.west, self.east, self.south, self.north, self.floor, self.ceiling)


@dataclass(frozen=True)
class Furniture:
    """Fixed scatterers: tables, shelves, screens; a little elsewhere every day."""

    __pydantic_config__: ClassVar[ConfigDict] = KNOWN_KEYS_ONLY

    pieces: Annotated[Whole, within(0, 1000)] = 12
    """Number of scatterers. Assumption."""
    cross_section: Annotated[Pair, within(0, 100)] = (0.05, 0.5)
    """m², least and greatest radar cross-section of a piece. Assumption: from a chair to a desk."""
    height: Annotated[Pair, within(0, 100)] = (0.3, 1.6)
    """m, where the scattering centres lie. Assumption."""
    drift: Annotated[Number, within(0, 10)] = 0.02
    """m, standard deviation of a piece's place from day to day. Assumption: a third of a
    wavelength, what cleaning and use do to a table."""
    moved_share: Annotated[Number, within(0, 1)] = 0.15
    """Share of the pieces that somebody really moves between two days. Assumption."""
    moved_by: Annotated[Number, within(0, 100)] = 0.5
    """m, standard deviation of such a move. Assumption."""


@dataclass(frozen=True)
class SimulatedRoom:
    """A shoebox with one transmitter and one receiver."""

    __pydantic_config__: ClassVar[ConfigDict] = KNOWN_KEYS_ONLY

    name: str
    """What the room is called in the store."""
    size: Annotated[Point, within(1, 100)]
    """m, inner length, width and height."""
    transmitter: Point
    """m, place of the transmitting antenna."""
    receiver: Point
    """m, place of the receiving antenna."""
    walls: Walls = Walls()
    """Materials of the six faces."""
    furniture: Furniture = Furniture()
    """What stands in the room."""
    seats: tuple[Spot, ...] = ()
    """m, (x, y) of the places to sit."""
    reflections: Annotated[Whole, within(0, 6)] = 3
    """Greatest number of wall reflections of a static path. Assumption: at 5 GHz a fourth
    reflection from plasterboard lies more than 30 dB below the direct path."""
    device_drift: Annotated[Number, within(0, 0.1)] = 0.003
    """m, standard deviation of both antennas' places from day to day. Assumption: nobody moves
    them, but shelves are dusted."""
    door: Spot | None = None
    """m, (x, y) of the doorway, in a wall; None is the middle of that of the two shorter walls
    which is further from the transmitter. Only visits have to do with it. Assumption."""

    @property
    def volume(self) -> float:
        """m³."""
        return self.size[0] * self.size[1] * self.size[2]


@dataclass(frozen=True)
class Images:
    """Mirror images of a point in the walls; the first one is the point itself."""

    places: Array
    """[images, 3] m."""
    bounces: npt.NDArray[np.int64]
    """[images, 6] how often each face is met, in the order of ``Walls.names``."""

    @property
    def order(self) -> npt.NDArray[np.int64]:
        """[images] number of reflections."""
        return np.asarray(self.bounces.sum(axis=1), np.int64)


def capacity(room: SimulatedRoom) -> int:
    """How many people fit on the floor: two per square metre, a packed standing crowd."""
    return int(room.size[0] * room.size[1] / _FLOOR_PER_PERSON)


def check_room(room: SimulatedRoom) -> None:
    """Raise if such a room cannot be."""
    check_settings(room, f"room '{room.name}': ")
    for what, place in (("transmitter", room.transmitter), ("receiver", room.receiver)):
        if any(not 0 <= x <= side for x, side in zip(place, room.size, strict=True)):
            raise PlanError(
                f"room '{room.name}': the {what} at {place} m is outside the room of "
                f"{room.size} m; move it inside"
            )
        gap = min(min(x, side - x) for x, side in zip(place, room.size, strict=True))
        if gap < _ANTENNA_CLEARANCE:
            raise PlanError(
                f"room '{room.name}': the {what} at {place} m is on a wall; keep it at least "
                f"{_ANTENNA_CLEARANCE} m away from every face"
            )
    if np.linalg.norm(np.subtract(room.transmitter, room.receiver)) < 0.5:
        raise PlanError(
            f"room '{room.name}': transmitter and receiver are closer than 0.5 m; move them apart"
        )
    for name in room.walls.names:
        if name not in MATERIALS:
            raise PlanError(f"room '{room.name}': material '{name}'; {nearest(name, MATERIALS)}")
    for x, y in room.seats:
        if not (0 < x < room.size[0] and 0 < y < room.size[1]):
            raise PlanError(f"room '{room.name}': the seat at ({x}, {y}) m is outside the room")
    if room.door is not None:
        gaps = [min(x, side - x) for x, side in zip(room.door, room.size[:2], strict=True)]
        if min(gaps) != 0:
            raise PlanError(
                f"room '{room.name}': the door at {room.door} m is in no wall of a room of "
                f"{room.size[0]:g} × {room.size[1]:g} m; choose a point on its edge"
            )
    if room.furniture.height[1] > room.size[2]:
        raise PlanError(
            f"room '{room.name}': furniture.height = {list(room.furniture.height)} in a room "
            f"{room.size[2]:g} m high; choose 0 to {room.size[2]:g}"
        )


def door_of(room: SimulatedRoom) -> tuple[float, float]:
    """m, (x, y) where people come in and leave."""
    if room.door is not None:
        return room.door
    length, width = room.size[:2]
    x, y = room.transmitter[:2]
    if length >= width:
        return (length if x <= length / 2 else 0.0, width / 2)
    return (length / 2, width if y <= width / 2 else 0.0)


def image_sources(source: Point | Array, room: SimulatedRoom, order: int) -> Images:
    """All mirror images of ``source`` up to ``order`` reflections (Allen and Berkley 1979).

    Along one axis of length L, the image number m lies at m·L + x for even m and at
    (m + 1)·L − x for odd m; it has met the two faces |m| times in turn, beginning with the far
    face for m > 0 and with the near one for m < 0.
    """
    reach = np.arange(-order, order + 1)
    numbers = np.stack(np.meshgrid(reach, reach, reach, indexing="ij"), axis=-1).reshape(-1, 3)
    numbers = numbers[np.abs(numbers).sum(axis=1) <= order]
    numbers = numbers[np.argsort(np.abs(numbers).sum(axis=1), kind="stable")]
    size, place = np.asarray(room.size, float), np.asarray(source, float)
    odd = numbers % 2 == 1
    places = np.where(odd, (numbers + 1) * size - place, numbers * size + place)
    least, most = np.abs(numbers) // 2, (np.abs(numbers) + 1) // 2
    near = np.where(numbers < 0, most, least)
    far = np.where(numbers > 0, most, least)
    return Images(places, np.stack([near, far], axis=-1).reshape(-1, 6))


def mirrors(points: _Points, room: SimulatedRoom) -> list[_Points]:
    """``points`` [..., 3] mirrored in each of the six faces, in the order of ``Walls.names``."""
    reflected = []
    for axis, side in enumerate(room.size):
        for wall in (0.0, side):
            image = points.copy()
            image[..., axis] = 2 * wall - image[..., axis]
            reflected.append(image)
    return reflected


def reflection(
    material: str, cosine: npt.ArrayLike, frequency: float, *, upright: bool
) -> npt.NDArray[np.complex128]:
    """Fresnel coefficient of a half-space at the given cosine of the angle of incidence.

    The antennas are vertical dipoles: on upright walls the field is parallel to the surface (TE),
    on floor and ceiling it lies in the plane of incidence (TM); ITU-R P.2040-3, section 2.
    """
    a, b, c, d = MATERIALS[material]
    gigahertz = frequency / 1e9
    conductivity = c * gigahertz**d
    permittivity = a * gigahertz**b - 1j * conductivity / (
        2 * np.pi * frequency * _VACUUM_PERMITTIVITY
    )  # η
    incident = np.asarray(cosine, np.complex128)
    refracted = np.sqrt(permittivity - (1 - incident**2))
    if upright:
        return np.asarray((incident - refracted) / (incident + refracted))
    return np.asarray((permittivity * incident - refracted) / (permittivity * incident + refracted))


@dataclass(frozen=True)
class Scatterers:
    """Where the furniture is on one day, and how strongly each piece scatters."""

    places: Array
    """[pieces, 3] m."""
    cross_sections: Array
    """[pieces] m²."""


def furniture_of(room: SimulatedRoom, *, key: Key, day: int) -> Scatterers:
    """The furniture of ``room`` on ``day``: the same pieces every day, not quite where they were.

    ``key`` is the room's; the days differ independently around the room's plan.
    """
    stock, plan = room.furniture, (key / "furniture").numpy()
    low = np.array([0.2, 0.2, stock.height[0]])
    high = np.array([room.size[0] - 0.2, room.size[1] - 0.2, stock.height[1]])
    places = plan.uniform(low, high, (stock.pieces, 3))
    cross_sections = plan.uniform(*stock.cross_section, stock.pieces)
    today = (key / "furniture" / "day" / day).numpy()
    places = places + today.normal(0.0, stock.drift, places.shape)
    moved = today.random(stock.pieces) < stock.moved_share
    places[moved, :2] += today.normal(0.0, stock.moved_by, (int(moved.sum()), 2))
    return Scatterers(np.clip(places, 0.05, np.asarray(room.size) - 0.05), cross_sections)


def room_on(room: SimulatedRoom, *, key: Key, day: int) -> SimulatedRoom:
    """``room`` with its antennas where they are on ``day``; ``key`` is the room's.

    The door stays where it is.
    """
    draw = (key / "antennas" / "day" / day).numpy()
    moved = draw.normal(0.0, room.device_drift, (2, 3))
    low, high = np.full(3, 0.05), np.asarray(room.size) - 0.05
    places = np.clip(np.asarray([room.transmitter, room.receiver]) + moved, low, high)
    first, second = ((float(x), float(y), float(z)) for x, y, z in places)
    return replace(room, transmitter=first, receiver=second, door=door_of(room))
