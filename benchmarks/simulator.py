"""How fast the simulator is: windows of 1000 × 242 with 20 people, on one core."""

import time
from dataclasses import replace

from threadpoolctl import threadpool_limits

from fedapa.randomness import Key
from fedapa.simulator.recording import record
from fedapa.stores.simulated_rooms import preset_of

_WINDOWS = 10
_REPEATS = 3


def measure() -> dict[str, float]:
    """Windows per second and core: everything from waypoints to quantised packets.

    The headline is at 1000 packets per second, as window and rate are in the paper's captures;
    slower rates spread a window over more seconds of motion, so they cost more. The rooms are the
    three of the preset that reach 20 people or are large; the least fast of them counts. Time is
    the processor's, of one thread: what a core does while nobody else is using it.
    """
    speeds = {}
    with threadpool_limits(1):
        for rate in (1000.0, 250.0, 125.0):
            speeds[rate] = min(_speed(room, rate) for room in ("bus", "classroom", "open office"))
    return {
        "windows_per_second_per_core": round(speeds[1000.0], 1),
        "windows_per_second_per_core_at_250_hz": round(speeds[250.0], 1),
        "windows_per_second_per_core_at_125_hz": round(speeds[125.0], 1),
    }


def _speed(room: str, rate: float) -> float:
    scene = next(p.scene for p in preset_of("six-rooms").places if p.scene.room.name == room)
    scene = replace(scene, radio=replace(scene.radio, rate=rate))
    best = 0.0
    for repeat in range(_REPEATS):
        began = time.process_time()
        record(scene, people=20, day=0, number=repeat, packets=1000 * _WINDOWS, key=Key(0))
        best = max(best, _WINDOWS / (time.process_time() - began))
    return best
