"""Simulated rooms as Nexmon captures: the demo and a real capture go through one door.

What ``fedapa import`` makes of them are the amplitudes of the simulator, exactly: its receiver
quantises as the chip does. That they are simulated is told by the sender's address in every frame.
"""

from collections.abc import Callable
from pathlib import Path

from threadpoolctl import threadpool_limits

from fedapa.csi.nexmon import write_nexmon
from fedapa.errors import DataError
from fedapa.randomness import Key
from fedapa.rooms.simulated import preset_of
from fedapa.simulator.take import take

__all__ = ["PATTERN", "write_simulated_captures"]

PATTERN = "{room}/{day}/P={count}.pcap"


def write_simulated_captures(
    preset: str,
    *,
    seed: int,
    folder: Path,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write every take of a preset as ``<room>/<day>/P=<count>.pcap`` below ``folder``.

    Equal seeds give the takes that ``write_simulated`` puts into its store.
    """
    chosen = preset_of(preset)
    if folder.exists() and any(folder.iterdir()):
        raise DataError(f"{folder}: is not empty; choose another folder")
    takes = [
        (place, count, day)
        for place in chosen.places
        for count in place.counts
        for day in range(place.days)
    ]
    for done, (place, count, day) in enumerate(takes, 1):
        room = place.scene.room.name
        with threadpool_limits(1, "blas"):
            capture = take(
                place.scene,
                people=count,
                day=day,
                packets=place.windows_of(count) * chosen.window,
                key=Key(seed) / "simulated" / room,
            )
        values = {"room": room, "day": str(day), "count": str(count)}
        write_nexmon(capture, folder / PATTERN.format(**values))
        if progress:
            progress(done, len(takes))
