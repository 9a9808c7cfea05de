"""Simulated rooms as Nexmon captures: the demo and a real capture go through one door.

What ``fedapa import`` makes of them are the amplitudes of the simulator, exactly: its receiver
quantises as the chip does. That they are simulated is told by the sender's address in every frame.
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from fedapa.csi.capture import Capture
from fedapa.csi.nexmon_writer import write_nexmon
from fedapa.errors import DataError, PlanError
from fedapa.files import folder_aside
from fedapa.processes import Progress, Show, one_thread, unseen
from fedapa.simulator.recording import record_visits
from fedapa.simulator.visits import Visits, draw_visits
from fedapa.stores.simulated import Task, run_tasks, tasks_of
from fedapa.stores.simulated_rooms import Preset, preset_of

__all__ = [
    "PATTERN",
    "last_tasks",
    "patterns_of",
    "record_task_visits",
    "write_simulated_captures",
    "write_simulated_visits",
]

PATTERN = "{room}/{day}/P={count}-{recording}.pcap"
_OF_ACTIVITIES = "{room}/{day}/P={count}-{activity}-{recording}.pcap"


def patterns_of(preset: Preset) -> list[str]:
    """The forms of the paths of a preset's captures: one more where rooms have activities."""
    told = {place.activities is not None for place in preset.places}
    return [_OF_ACTIVITIES if activities else PATTERN for activities in sorted(told)]


def write_simulated_captures(
    preset: str | Preset,
    *,
    seed: int,
    folder: Path,
    workers: int = 1,
    show: Show = unseen,
) -> None:
    """Write every recording of a preset into ``folder``, at a path of ``patterns_of``.

    Equal seeds give the recordings that ``write_simulated`` puts into its store. The folder appears
    whole or not at all.
    """
    chosen = preset_of(preset) if isinstance(preset, str) else preset
    _write_all(
        _write, tasks_of(chosen, seed=seed, workers=workers), folder, workers=workers, show=show
    )


def write_simulated_visits(
    preset: str | Preset,
    *,
    seconds: float,
    seed: int,
    folder: Path,
    workers: int = 1,
    show: Show = unseen,
) -> None:
    """Write one recording of each room, of so many seconds, in which people come and go.

    Room ``bus`` becomes ``bus.pcap``, and ``bus.csv`` says from when on there are how many people:
    0 to the greatest count of its preset. It is a day that no other recording of the preset has.
    The folder appears whole or not at all.
    """
    if not 10 <= seconds <= 3600:
        raise PlanError(f"visits of {seconds:g} s; choose 10 to 3600")
    chosen = preset_of(preset) if isinstance(preset, str) else preset
    work = functools.partial(_write_visits, seconds)
    tasks = last_tasks(chosen, seed=seed, workers=workers)
    _write_all(work, tasks, folder, workers=workers, show=show)


def last_tasks(preset: Preset, *, seed: int, workers: int) -> list[Task]:
    """Each room's recording of the last day with the greatest count."""
    tasks = tasks_of(preset, seed=seed, workers=workers)
    last = {
        task.place.scene.room.name: task
        for task in sorted(tasks, key=lambda task: (task.day, task.count))
    }
    return list(last.values())


def record_task_visits(task: Task, seconds: float) -> tuple[Visits, Capture]:
    """Visits to a room, of 0 to as many people as ``task`` has, on the day after that of ``task``.

    Of a room's last task that is a day that no recording has.
    """
    visits = draw_visits(task.key / "visits", seconds=seconds, largest=task.count)
    with one_thread():
        capture, _ = record_visits(task.place.scene, visits, day=task.day + 1, key=task.key)
    return visits, capture


def _write_all(
    work: Callable[[Path, Task], bytes],
    tasks: Sequence[Task],
    folder: Path,
    *,
    workers: int,
    show: Show,
) -> None:
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: is a file; choose another folder")
    if folder.exists() and any(folder.iterdir()):
        raise DataError(f"{folder}: is not empty; choose another folder")
    with folder_aside(folder) as partial:
        made = run_tasks(functools.partial(work, partial), tasks, workers)
        for done, _ in enumerate(made, 1):
            show(Progress("simulating captures", done, len(tasks), "recordings"))


def _write(folder: Path, task: Task) -> bytes:
    values = {
        "room": task.place.scene.room.name,
        "day": str(task.day),
        "count": str(task.count),
        "recording": str(task.number),
        "activity": task.activity or "",
    }
    pattern = PATTERN if task.activity is None else _OF_ACTIVITIES
    write_nexmon(task.capture(), folder / pattern.format(**values))
    return b""


def _write_visits(seconds: float, folder: Path, task: Task) -> bytes:
    name = task.place.scene.room.name
    visits, capture = record_task_visits(task, seconds)
    write_nexmon(capture, folder / f"{name}.pcap")
    changes = zip(visits.changes, visits.counts(visits.changes), strict=True)
    rows = ["time,people", *(f"{time:.3f},{people}" for time, people in changes)]
    (folder / f"{name}.csv").write_text("\n".join(rows) + "\n")
    return b""
