"""People: they walk between waypoints, stop, sit, fidget and breathe.

A person is a torso, two arms and two legs, each one scattering point, and an upright screen that
shadows paths. Visitors walk in and out by the door. The equations are in docs/simulator.md.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict

from fedapa.errors import PlanError
from fedapa.randomness import Key
from fedapa.simulator.room import SimulatedRoom, capacity, door_of
from fedapa.simulator.settings import KNOWN_KEYS_ONLY, Number, Pair, list_of, within
from fedapa.simulator.visits import Visits, staying

__all__ = ["MOTION_RATE", "POINTS", "Body", "Crowd", "Motion", "crowd_of", "visitors_of"]

Array: TypeAlias = npt.NDArray[np.float64]
Single: TypeAlias = npt.NDArray[np.float32]

MOTION_RATE = 250.0
"""Hz at which motion is sampled: the fastest limb makes 94 Hz of Doppler, see decision 0010."""
POINTS = 5
"""Scattering points of a body: torso, left arm, right arm, left leg, right leg."""

_SHARES = (0.5, 0.1, 0.1, 0.15, 0.15)
_DOORWAY = 0.5
"""s over which a person appears in the doorway, and disappears."""
_SITTING_DOWN = 1.0
"""s over which a visitor sits down, and stands up."""


@dataclass(frozen=True)
class Body:
    """What a body is to a radio wave."""

    __pydantic_config__: ClassVar[ConfigDict] = KNOWN_KEYS_ONLY

    cross_section: Annotated[Pair, within(0, 100)] = (0.5, 1.0)
    """m², least and greatest radar cross-section of a person. 0.5 to 1 m² is the usual figure
    between 1 and 10 GHz (Skolnik, Radar Handbook); swept in a test."""
    shares: Annotated[tuple[Number, ...], list_of(POINTS), within(0, 1)] = _SHARES
    """Share of the cross-section by point: torso, arms, legs. Assumption: the torso gives most of
    the echo, legs more than arms (Chen, The Micro-Doppler Effect in Radar, 2011)."""
    width: Annotated[Pair, within(0.05, 2)] = (0.35, 0.5)
    """m, least and greatest width of the shadowing screen. Shoulder breadth 0.36 to 0.5 m
    (ISO 7250-2 anthropometry)."""
    height: Annotated[Pair, within(0.5, 2.5)] = (1.55, 1.9)
    """m, least and greatest stature (ISO 7250-2)."""
    seated_share: Annotated[Number, within(0.1, 1)] = 0.75
    """Height of a seated person by stature, floor to crown. ISO 7250-2: sitting height 0.52 of
    stature above a seat of 0.42 m."""
    absorption: Annotated[Number, within(0, 5)] = 0.3
    """m², absorption cross-section in a diffuse field; 0.18 to 0.45 m² over 1 to 8.5 GHz
    (Melia et al., IEEE Trans. EMC 2013)."""


@dataclass(frozen=True)
class Motion:
    """How people in a room move."""

    __pydantic_config__: ClassVar[ConfigDict] = KNOWN_KEYS_ONLY

    seated: Annotated[Number, within(0, 1)] = 0.5
    """Probability that a person sits during the whole recording, while there are seats. Assumption,
    set by room."""
    # A leg is 1.8 times as fast: 119 Hz of Doppler at 5.21 GHz, still below half of MOTION_RATE.
    speed: Annotated[Pair, within(0.05, 1.9)] = (0.3, 1.5)
    """m/s, least and greatest walking speed. Strolling to brisk indoor walking (Bohannon 1997
    gives 1.3 to 1.5 m/s as comfortable for adults)."""
    pause: Annotated[Number, within(0, 3600)] = 4.0
    """s, mean stop at a waypoint. Assumption."""
    pausing: Annotated[Number, within(0, 1)] = 0.5
    """Probability of a stop at a waypoint. Assumption."""
    clearance: Annotated[Number, within(0, 10)] = 0.4
    """m kept from the walls. Assumption."""
    sway: Annotated[Number, within(0, 0.1)] = 0.008
    """m, standard deviation of a standing body around its place; postural sway is 5 to 10 mm
    (Winter 1995)."""
    fidget: Annotated[Number, within(0, 0.2)] = 0.03
    """m, standard deviation of a hand or foot during a fidget. Assumption."""
    fidgets: Annotated[Number, within(0, 5)] = 0.1
    """1/s, how often a resting person fidgets, for about a second. Assumption."""
    breath: Annotated[Number, within(0, 0.05)] = 0.005
    """m, amplitude of the chest: 4 to 12 mm (Droitcour 2006)."""
    breaths: Annotated[Pair, within(0.05, 2)] = (0.2, 0.33)
    """Hz, least and greatest breathing rate: 12 to 20 breaths a minute at rest."""
    smoothing: Annotated[Number, within(0.5, 10)] = 1.0
    """s over which a person starts, stops or turns: about two steps. Assumption; a test keeps limbs
    below the speed that the sampling of motion allows."""


@dataclass(frozen=True)
class Crowd:
    """Bodies through one recording.

    A body is a person, with one exception: a visitor who sits is two bodies, one that walks and
    one that sits, and only one of them is present at a time.
    """

    points: npt.NDArray[np.float32]
    """[samples, bodies, POINTS, 3] m, at ``MOTION_RATE`` from ``start`` on."""
    start: float
    """s, time of the first sample."""
    cross_sections: npt.NDArray[np.float32]
    """[bodies, POINTS] m²."""
    widths: npt.NDArray[np.float32]
    """[bodies] m, of the shadowing screens."""
    heights: npt.NDArray[np.float32]
    """[bodies] m, of the shadowing screens, seated people being lower."""
    seated: npt.NDArray[np.bool_]
    """[bodies] who keep their seats."""
    absorption: float = 0.0
    """m² of each body in a diffuse field."""
    present: npt.NDArray[np.float32] | None = None
    """[samples, bodies] from 0, not there, to 1; None: everybody is there all the time."""

    @property
    def bodies(self) -> int:
        """How many there are."""
        return int(self.points.shape[1])

    def at(self, times: Array, bodies: npt.NDArray[np.int64]) -> Single:
        """[times, bodies, POINTS, 3] places of these bodies, linear between samples."""
        return self._between(self.points, times, bodies)

    def present_at(self, times: Array, bodies: npt.NDArray[np.int64]) -> Single:
        """[times, bodies] how much of each is there, linear between samples."""
        if self.present is None:
            return np.ones((len(times), len(bodies)), np.float32)
        return self._between(self.present, times, bodies)

    def _between(self, values: Single, times: Array, bodies: npt.NDArray[np.int64]) -> Single:
        """[times, bodies, …] of values [samples, bodies, …]."""
        position = (times - self.start) * MOTION_RATE
        before = np.clip(position.astype(np.int64), 0, len(values) - 2)[:, None]
        share = (position[:, None] - before).astype(np.float32)
        share = share.reshape(len(times), *[1] * (values.ndim - 1))
        here = values[before, bodies]
        return np.asarray(here + share * (values[before + 1, bodies] - here))


_MARGIN = 0.5
"""s of motion kept on either side of a recording, for interpolation."""


def crowd_of(
    room: SimulatedRoom, *, people: int, duration: float, key: Key, body: Body, motion: Motion
) -> Crowd:
    """``people`` in ``room`` for ``duration`` seconds; they keep out of nobody's way."""
    stay = staying(people, duration, f"room '{room.name}': ")
    return visitors_of(room, visits=stay, duration=duration, key=key, body=body, motion=motion)


def visitors_of(
    room: SimulatedRoom, *, visits: Visits, duration: float, key: Key, body: Body, motion: Motion
) -> Crowd:
    """People who come to ``room`` and leave it within ``duration`` seconds.

    A visitor has a path or a seat for the whole recording, as everybody has, and goes there from
    the door in a straight line, at the room's greatest walking speed, and back in time.
    """
    if visits.most > (fit := capacity(room)):
        raise PlanError(
            f"room '{room.name}': {visits.most} people do not fit on {room.size[0]} × "
            f"{room.size[1]} m; at most {fit} do"
        )
    people = len(visits.visits)
    samples = int(np.ceil((duration + 2 * _MARGIN) * MOTION_RATE)) + 2
    draw = (key / "bodies").numpy()
    cross_sections = draw.uniform(*body.cross_section, people)
    widths = draw.uniform(*body.width, people)
    statures = draw.uniform(*body.height, people)
    seats = draw.permutation(np.asarray(room.seats, float).reshape(-1, 2))
    sitting = draw.random(people) < motion.seated
    sitting &= np.cumsum(sitting) <= len(seats)
    comes, goes = visits.spans()
    moving = np.isfinite(comes) | np.isfinite(goes)
    # Whose each body is: one body for everybody, then one that walks for visitors who sit.
    walking = np.flatnonzero(moving & sitting)
    whose = np.concatenate([np.arange(people), walking])
    seated = np.concatenate([sitting, np.zeros(len(walking), np.bool_)])
    points = np.empty((samples, len(whose), POINTS, 3), np.float32)
    present = np.ones((samples, len(whose)), np.float32) if moving.any() else None
    times = np.arange(samples) / MOTION_RATE - _MARGIN
    for person in range(people):
        steps = (key / "person" / person).numpy()
        seat = seats[sitting[: person + 1].sum() - 1] if sitting[person] else None
        torso = _torso(room, seat=seat, samples=samples, motion=motion, draw=steps)
        stature = statures[person]
        if present is not None and moving[person]:
            span = (comes[person], goes[person])
            path, there = _to_and_fro(torso, times, span=span, room=room, motion=motion)
            present[:, person] = _during(times, span, _DOORWAY)
            if seat is None:
                torso = path
            else:  # two bodies
                other = people + int(np.searchsorted(walking, person))
                own = (key / "person" / person / "walking").numpy()
                points[:, other] = _limbs(
                    path, seated=False, stature=stature, motion=motion, draw=own
                )
                seated_now = _during(times, there, _SITTING_DOWN)
                present[:, other] = present[:, person] - seated_now
                present[:, person] = seated_now
        points[:, person] = _limbs(
            torso, seated=seat is not None, stature=stature, motion=motion, draw=steps
        )
    heights = np.where(seated, body.seated_share * statures[whose], statures[whose])
    return Crowd(
        points=points,
        start=-_MARGIN,
        cross_sections=np.outer(cross_sections, body.shares)[whose].astype(np.float32),
        widths=widths[whose].astype(np.float32),
        heights=heights.astype(np.float32),
        seated=seated,
        absorption=body.absorption,
        present=present,
    )


def _during(times: Array, span: tuple[float, float], fade: float) -> Array:
    """[times] 1 within ``span`` and 0 outside, with a raised cosine of ``fade`` s at either end."""
    inside = np.minimum(times - span[0], span[1] - times)
    return np.asarray(np.sin(np.pi / 2 * np.clip(inside / fade, 0, 1)) ** 2)


def _to_and_fro(
    torso: Array, times: Array, *, span: tuple[float, float], room: SimulatedRoom, motion: Motion
) -> tuple[Array, tuple[float, float]]:
    """[samples, 2] a path from the door to where ``torso`` is and back; when it is with ``torso``.

    ``span`` is when the person comes and goes. Who has too little time turns round halfway.
    """
    speed = motion.speed[1]
    door = np.clip(door_of(room), motion.clearance, np.subtract(room.size[:2], motion.clearance))
    away = np.linalg.norm(torso - door, axis=1) / speed  # s of walking
    spare = np.minimum(times - span[0], span[1] - times)  # s since coming, or until going
    # Nobody outruns this walker, so the time in which the two can be together has no holes.
    inside = np.flatnonzero(spare >= away)
    if len(inside):
        part = slice(inside[0], inside[-1] + 1)
        inner, knots = torso[part], times[part]
        there = (
            float(knots[0]) if np.isfinite(span[0]) else -np.inf,
            float(knots[-1]) if np.isfinite(span[1]) else np.inf,
        )
    else:
        turn = int(np.argmax(spare))
        share = np.clip(spare[turn] / away[turn], 0, 1)
        inner, knots = door + share * (torso[turn : turn + 1] - door), times[turn : turn + 1]
        there = (float(knots[0]), float(knots[0]))
    if np.isfinite(span[0]):
        inner, knots = np.vstack([door, inner]), np.append(span[0], knots)
    if np.isfinite(span[1]):
        inner, knots = np.vstack([inner, door]), np.append(knots, span[1])
    path = np.stack([np.interp(times, knots, inner[:, axis]) for axis in (0, 1)], -1)
    return _smooth(path, motion.smoothing), there


def _torso(
    room: SimulatedRoom,
    *,
    seat: Array | None,
    samples: int,
    motion: Motion,
    draw: np.random.Generator,
) -> Array:
    """[samples, 2] path of a torso over the floor: a seat, or waypoints at constant speeds."""
    if seat is not None:
        return np.broadcast_to(seat + draw.normal(0.0, 0.05, 2), (samples, 2)).copy()
    low, high = motion.clearance, np.asarray(room.size[:2]) - motion.clearance
    duration = samples / MOTION_RATE
    place = draw.uniform(low, high)
    clock = 0.0
    knots, places = [clock], [place]
    while clock < duration:
        if draw.random() < motion.pausing:
            clock += draw.exponential(motion.pause)
            knots.append(clock)
            places.append(place)
        goal = draw.uniform(low, high)
        clock += float(np.linalg.norm(goal - place)) / draw.uniform(*motion.speed)
        place = goal
        knots.append(clock)
        places.append(place)
    # Begin somewhere inside the first leg: recordings do not start with everybody at a waypoint.
    times = np.arange(samples) / MOTION_RATE + draw.uniform(0.0, min(knots[1], clock - duration))
    path = np.stack([np.interp(times, knots, [p[axis] for p in places]) for axis in (0, 1)], -1)
    return _smooth(path, motion.smoothing)


def _limbs(
    torso: Array, *, seated: bool, stature: float, motion: Motion, draw: np.random.Generator
) -> Single:
    """[samples, POINTS, 3] points of a body whose torso follows ``torso``."""
    samples = len(torso)
    times = (np.arange(samples) / MOTION_RATE).astype(np.float32)
    # What follows has time last, [2, samples]: neighbours in memory are neighbours in time.
    velocity = np.ascontiguousarray((np.gradient(torso, axis=0) * MOTION_RATE).T, np.float32)
    speed = np.hypot(velocity[0], velocity[1])
    facing = _facing(velocity, speed, draw.uniform(-np.pi, np.pi), motion.smoothing)
    forward = np.stack([np.cos(facing), np.sin(facing)]).astype(np.float32)
    sideways = np.stack([-forward[1], forward[0]])
    # Boulic and Thalmann 1990: a cycle lasts 1.346 / √(v / hip) seconds, hip ≈ 0.53 · stature.
    cadence = np.sqrt(speed / np.float32(0.53 * stature)) / np.float32(1.346)
    cycles = np.cumsum(cadence, dtype=np.float64) / MOTION_RATE + draw.random()
    stride = np.sin(2 * np.pi * (cycles % 1).astype(np.float32))
    # A foot stands, then passes at twice the body's speed; a shank's middle does 0.8 of that swing.
    swing = 0.8 * velocity / (2 * np.pi * np.maximum(cadence, 0.6))
    swing *= stride

    points = np.empty((POINTS, 3, samples), np.float32)
    heights = (0.5, 0.42, 0.42, 0.3, 0.3) if seated else (0.72, 0.62, 0.62, 0.27, 0.27)
    points[:, 2] = np.multiply(heights, stature)[:, None]
    points[:, :2] = torso.T
    for point, sign, width, share in (
        (1, 1, 0.25, -0.5),
        (2, -1, 0.25, 0.5),
        (3, 1, 0.1, 1.0),
        (4, -1, 0.1, -1.0),
    ):
        points[point, :2] += sign * width * sideways + share * swing
        if seated:
            points[point, :2] += 0.3 * forward
    # Rest: everybody sways and breathes; now and then somebody fidgets with a hand or a foot.
    calm = 1 / (1 + (speed / 0.1) ** 2)
    sway = motion.sway * (0.3 if seated else 1.0)
    points[:, :2] += calm * _wander(times, sway, 2, draw)
    rate = draw.uniform(*motion.breaths)
    breath = np.sin(np.float32(2 * np.pi) * (np.float32(rate) * times + np.float32(draw.random())))
    points[0, :2] += np.float32(motion.breath) * breath * forward
    for point in range(1, POINTS):
        restless = calm * _bursts(times, motion.fidgets / (POINTS - 1), draw)
        active = np.flatnonzero(restless)
        fidget = _wander(times[active], motion.fidget, 3, draw)
        points[point][:, active] += restless[active] * fidget
    return points.transpose(2, 0, 1)


def _facing(velocity: Single, speed: Single, first: float, smoothing: float) -> Array:
    """[samples] direction a person faces: where he walks, or last walked."""
    moving = speed > 0.05
    last = np.maximum.accumulate(np.where(moving, np.arange(len(speed)), -1))
    heading = np.arctan2(velocity[1], velocity[0])
    if not moving.any():
        return np.full(len(speed), first)
    heading = np.where(last >= 0, heading[np.maximum(last, 0)], heading[np.argmax(moving)])
    return _smooth(np.unwrap(heading)[:, None], smoothing)[:, 0]


def _smooth(path: Array, seconds: float) -> Array:
    """Moving average, twice: velocity becomes continuous, acceleration bounded."""
    width = max(1, round(seconds / 2 * MOTION_RATE))
    for _ in range(2):
        padded = np.pad(path, ((width // 2 + 1, width - width // 2 - 1), (0, 0)), mode="edge")
        total = np.cumsum(np.vstack([padded, padded[-1:]]), axis=0)
        path = (total[width : width + len(path)] - total[: len(path)]) / width
    return path


def _wander(times: Single, deviation: float, axes: int, draw: np.random.Generator) -> Single:
    """[axes, samples] smooth noise: six waves between 0.1 and 2 Hz, weaker as they get faster."""
    frequencies = draw.uniform(0.1, 2.0, (6, axes, 1))
    weights = 1 / frequencies
    weights *= deviation * np.sqrt(2) / np.linalg.norm(weights, axis=0)
    phases = draw.uniform(0, 2 * np.pi, (6, axes, 1))
    total = np.zeros((axes, len(times)), np.float32)
    for frequency, weight, phase in zip(frequencies, weights, phases, strict=True):
        angles = (2 * np.pi * frequency).astype(np.float32) * times + phase.astype(np.float32)
        total += weight.astype(np.float32) * np.sin(angles)
    return total


def _bursts(times: Single, rate: float, draw: np.random.Generator) -> Single:
    """[samples] between 0 and 1: raised cosines of about a second at Poisson times."""
    envelope = np.zeros(len(times), np.float32)
    duration = float(times[-1]) + 2.0
    for begin in draw.uniform(-1.0, duration, draw.poisson(rate * (duration + 1.0))):
        length = draw.uniform(0.6, 1.6)
        first, last = np.searchsorted(times, [begin, begin + length])
        phase = (times[first:last] - np.float32(begin)) / np.float32(length)
        envelope[first:last] += np.sin(np.float32(np.pi) * phase) ** 2
    return np.minimum(envelope, 1)
