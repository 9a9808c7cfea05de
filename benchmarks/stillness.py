"""How often an empty room is refused, and who is missed: the rates of docs/calibrate.md.

SIMULATED: the quick rooms (56 subcarriers, 125 packets per second), and the same with every second
or fourth packet; two takes of each kind, room and seed. ``empty`` is nobody, ``sitting`` and
``walking`` one person all the time, ``leaving`` one who walks out after five seconds. The limits
were chosen on rooms of the seeds 4 to 7, so give others. This measures no speed: ``make bench``
leaves it out.
"""

import argparse
from dataclasses import replace
from typing import Any

from fedapa.csi.capture import Capture
from fedapa.processes import one_thread
from fedapa.randomness import Key
from fedapa.service.stillness import still
from fedapa.simulator.recording import Scene, record, record_visits
from fedapa.simulator.visits import Visit, Visits
from fedapa.stores.simulated_rooms import preset_of

OF_SPEED = False
KINDS = ("empty", "sitting", "walking", "leaving")
LEAVES = 5.0
"""s."""
TAKES = 2


def options(parser: argparse.ArgumentParser) -> None:
    """What this benchmark may be asked for."""
    parser.add_argument(
        "--take-seconds", type=float, default=30.0, help="stillness: of a take; default 30"
    )
    parser.add_argument(
        "--room-seeds", default="0,1,2,3", help="stillness: of the rooms; default 0,1,2,3"
    )
    parser.add_argument(
        "--every", type=int, default=1, help="stillness: only every n-th packet; default 1"
    )


def measure(
    take_seconds: float = 30.0, room_seeds: str = "0,1,2,3", every: int = 1
) -> dict[str, Any]:
    """Takes of each kind, those that were refused, and the least and greatest level."""
    levels: dict[str, list[float]] = {kind: [] for kind in KINDS}
    refused = dict.fromkeys(KINDS, 0)
    for seed in map(int, room_seeds.split(",")):
        for place in preset_of("quick").places:
            for number in range(TAKES):
                for kind in KINDS:
                    whole = take(place.scene, kind, seed, number, take_seconds)
                    seen = still(whole.part(slice(None, None, every)))
                    levels[kind].append(seen.level)
                    refused[kind] += not seen.is_still
    return {
        kind: {
            "takes": len(levels[kind]),
            "refused": refused[kind],
            "least": min(levels[kind]),
            "greatest": max(levels[kind]),
        }
        for kind in KINDS
    }


def take(scene: Scene, kind: str, seed: int, number: int, seconds: float) -> Capture:
    """One take of a kind."""
    key = Key(seed) / "calibration" / scene.room.name
    seated = 1.0 if kind == "sitting" else 0.0
    scene = replace(scene, motion=replace(scene.motion, seated=seated))
    with one_thread():
        if kind == "leaving":
            visits = Visits(seconds, (Visit(0.0, LEAVES),))
            return record_visits(scene, visits, day=0, key=key, number=number)[0]
        people = 0 if kind == "empty" else 1
        packets = int(seconds * scene.radio.rate)
        return record(scene, people=people, day=0, packets=packets, key=key, number=number)
