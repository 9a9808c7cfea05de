"""Simulated rooms as Nexmon captures: the demo and a real capture go through one door.

What ``fedapa import`` makes of them are the amplitudes of the simulator, exactly: its receiver
quantises as the chip does. That they are simulated is told by the sender's address in every frame.
"""

import functools
from pathlib import Path

from fedapa.csi.nexmon_writer import write_nexmon
from fedapa.errors import DataError
from fedapa.files import folder_aside
from fedapa.processes import Progress, Show, unseen
from fedapa.stores.simulated import Task, run_tasks, tasks_of
from fedapa.stores.simulated_rooms import Preset, preset_of

__all__ = ["PATTERN", "write_simulated_captures"]

PATTERN = "{room}/{day}/P={count}-{recording}.pcap"


def write_simulated_captures(
    preset: str | Preset,
    *,
    seed: int,
    folder: Path,
    workers: int = 1,
    show: Show = unseen,
) -> None:
    """Write every recording of a preset into ``folder``, at a path of the form ``PATTERN``.

    Equal seeds give the recordings that ``write_simulated`` puts into its store. The folder appears
    whole or not at all.
    """
    chosen = preset_of(preset) if isinstance(preset, str) else preset
    tasks = tasks_of(chosen, seed=seed, workers=workers)
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: is a file; choose another folder")
    if folder.exists() and any(folder.iterdir()):
        raise DataError(f"{folder}: is not empty; choose another folder")
    with folder_aside(folder) as partial:
        work = functools.partial(_write, partial)
        for done, _ in enumerate(run_tasks(work, tasks, workers), 1):
            show(Progress("simulating captures", done, len(tasks), "recordings"))


def _write(folder: Path, task: Task) -> bytes:
    values = {
        "room": task.place.scene.room.name,
        "day": str(task.day),
        "count": str(task.count),
        "recording": str(task.number),
    }
    write_nexmon(task.capture(), folder / PATTERN.format(**values))
    return b""
