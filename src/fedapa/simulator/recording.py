"""A recording: a scene, a number of people and a day become a capture.

``record`` has the same people from beginning to end; in ``record_visits`` they come and go.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict

from fedapa.csi.capture import Capture
from fedapa.errors import PlanError
from fedapa.randomness import Key
from fedapa.simulator.channel import Channel, Radio
from fedapa.simulator.people import Body, Motion, visitors_of
from fedapa.simulator.receiver import (
    Receiver,
    Schedule,
    arriving_share,
    check_receiver,
    receive,
    receive_pieces,
    schedule,
)
from fedapa.simulator.room import SimulatedRoom, check_room, furniture_of, room_on
from fedapa.simulator.settings import KNOWN_KEYS_ONLY, check_settings
from fedapa.simulator.visits import Visits, check_visits, staying

__all__ = ["Scene", "check_scene", "record", "record_visits", "stream_visits"]

_FREE = 0.1
"""m of floor that the clearance must leave, or nobody could walk."""


@dataclass(frozen=True)
class Scene:
    """All there is to know about a place before anybody enters it."""

    __pydantic_config__: ClassVar[ConfigDict] = KNOWN_KEYS_ONLY

    room: SimulatedRoom
    """Walls, antennas, furniture, seats."""
    radio: Radio = field(default_factory=Radio)
    """Carrier, bandwidth, packet rate."""
    receiver: Receiver = field(default_factory=Receiver)
    """Front end and firmware."""
    body: Body = field(default_factory=Body)
    """What a body is to a radio wave."""
    motion: Motion = field(default_factory=Motion)
    """How people move here."""


def check_scene(scene: Scene) -> None:
    """Raise if such a scene cannot be."""
    room, motion = scene.room, scene.motion
    where = f"room '{room.name}': "
    check_room(room)
    check_settings(scene.radio, where)
    check_receiver(scene.receiver, f"{where}hardware.")
    check_settings(scene.body, f"{where}body.")
    check_settings(motion, f"{where}motion.")
    if scene.body.height[1] > room.size[2]:
        raise PlanError(
            f"{where}people of up to {scene.body.height[1]:g} m in a room {room.size[2]:g} m high; "
            "raise size or lower body.height"
        )
    widest = (min(room.size[:2]) - _FREE) / 2
    if motion.clearance > widest:
        raise PlanError(f"{where}motion.clearance = {motion.clearance}; choose 0 to {widest:.3g}")


def record(
    scene: Scene, *, people: int, day: int, packets: int, key: Key, number: int = 0
) -> Capture:
    """One continuous recording of ``people`` in ``scene`` until ``packets`` whole frames arrived.

    ``key`` is the scene's: furniture and gain belong to the day, seats and steps to the recording,
    which is the ``number``-th of that day with so many people.
    """
    stay = staying(people, packets / scene.radio.rate, f"room '{scene.room.name}': ")
    return _record(scene, stay, day=day, packets=packets, key=key, number=number)


def record_visits(
    scene: Scene, visits: Visits, *, day: int, key: Key, number: int = 0
) -> tuple[Capture, npt.NDArray[np.int64]]:
    """One continuous recording in which people come and go, and the people at each packet.

    It has as many whole frames as arrive in ``visits.seconds`` on average. ``key`` is the scene's,
    as in ``record``. The visitors are the people whom ``record`` has on that day in the recording
    of that ``number`` with so many people; if everybody stays all the time, it is that recording.
    So give it a day or a number that no other recording has.
    """
    packets = _packets_of(scene, visits)
    capture = _record(scene, visits, day=day, packets=packets, key=key, number=number)
    return capture, visits.counts(capture.timestamps)


def stream_visits(
    scene: Scene, visits: Visits, *, day: int, key: Key, number: int = 0
) -> Iterator[Capture]:
    """The recording of ``record_visits`` in pieces, each made when it is asked for."""
    packets = _packets_of(scene, visits)
    channel, arrivals, mine = _channel(
        scene, visits, day=day, packets=packets, key=key, number=number
    )
    yield from receive_pieces(
        channel, scene.receiver, arrivals, key=mine, device=key / "receiver", day=day
    )


def _packets_of(scene: Scene, visits: Visits) -> int:
    """Whole frames that arrive on average while visits last."""
    check_visits(visits, f"room '{scene.room.name}': ")
    share = arriving_share(scene.receiver, scene.radio)
    return max(1, round(visits.seconds * scene.radio.rate * share))


def _record(
    scene: Scene, visits: Visits, *, day: int, packets: int, key: Key, number: int
) -> Capture:
    channel, arrivals, mine = _channel(
        scene, visits, day=day, packets=packets, key=key, number=number
    )
    return receive(channel, scene.receiver, arrivals, key=mine, device=key / "receiver", day=day)


def _channel(
    scene: Scene, visits: Visits, *, day: int, packets: int, key: Key, number: int
) -> tuple[Channel, Schedule, Key]:
    """What is received, when, and the key of the recording."""
    check_scene(scene)
    scene = replace(scene, room=room_on(scene.room, key=key, day=day))
    if packets < 1:
        raise PlanError(f"room '{scene.room.name}': {packets} packets; record at least one")
    # "take" is an older word for a recording; another word would draw other numbers.
    mine = key / "day" / day / "people" / len(visits.visits) / "take" / number
    arrivals = schedule(scene.receiver, scene.radio, packets=packets, key=mine)
    crowd = visitors_of(
        scene.room,
        visits=visits,
        duration=float(arrivals.times[-1]),
        key=mine,
        body=scene.body,
        motion=scene.motion,
    )
    furniture = furniture_of(scene.room, key=key, day=day)
    return Channel(scene.room, scene.radio, furniture, crowd), arrivals, mine
