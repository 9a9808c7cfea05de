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
from fedapa.rooms.simulated import Preset, check_preset, preset_of
from fedapa.simulator.take import take

__all__ = ["PATTERN", "write_simulated_captures"]

PATTERN = "{room}/{day}/P={count}-{take}.pcap"


def write_simulated_captures(
    preset: str | Preset,
    *,
    seed: int,
    folder: Path,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write every take of a preset as ``<room>/<day>/P=<count>-<take>.pcap`` in ``folder``.

    Equal seeds give the takes that ``write_simulated`` puts into its store.
    """
    chosen = preset_of(preset) if isinstance(preset, str) else preset
    check_preset(chosen)
    if folder.exists() and any(folder.iterdir()):
        raise DataError(f"{folder}: is not empty; choose another folder")
    takes = [
        (place, count, day, number)
        for place in chosen.places
        for count in place.counts
        for day in range(place.days)
        for number in range(place.takes)
    ]
    for done, (place, count, day, number) in enumerate(takes, 1):
        room = place.scene.room.name
        packets = place.windows_of(count) * chosen.window
        with threadpool_limits(1, "blas"):
            capture = take(
                place.scene,
                people=count,
                day=day,
                packets=packets + packets // 50 + 8,  # as the store's own, before cleaning
                number=number,
                key=Key(seed) / "simulated" / room,
            )
        values = {"room": room, "day": str(day), "count": str(count), "take": str(number)}
        write_nexmon(capture, folder / PATTERN.format(**values))
        if progress:
            progress(done, len(takes))
