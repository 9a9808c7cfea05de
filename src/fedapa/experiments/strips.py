"""Two minutes of visits to every simulated room, counted by the model files of a finished run.

It is the way that a live counter takes: packets of a capture, a ``Windower`` with the recipe of the
model file, ``CountingModel.count``. People come and go as ``fedapa simulate --visits 120`` has it,
on a day that no recording of the rooms is of.
"""

import functools
from pathlib import Path
from typing import Any

import numpy as np

from fedapa.federation.run import Run
from fedapa.payload import decode, encode
from fedapa.processes import Progress, Show, unseen
from fedapa.report.figures.strips import Strip
from fedapa.rooms.model_file import load_model
from fedapa.stores.simulated import Task, run_tasks
from fedapa.stores.simulated_captures import last_tasks, record_task_visits
from fedapa.stores.simulated_rooms import preset_of
from fedapa.windows.stream import Windower

__all__ = ["SECONDS", "counted_visits"]

SECONDS = 120.0
"""How long each room is watched."""


def counted_visits(run: Run, *, workers: int = 1, show: Show = unseen) -> list[Strip]:
    """A strip of each room of a run on simulated rooms; rooms without a model file have none."""
    data = run.plan.data
    places = [
        task
        for task in last_tasks(preset_of(data.simulated), seed=data.simulated_seed, workers=1)
        if _model(run.folder, task).is_file()
    ]
    made = run_tasks(functools.partial(_counted, run.folder), places, workers)
    strips: list[Strip] = []
    for task, frame in made:
        values: dict[str, Any] = decode(frame, "strip of a worker")
        strips.append(Strip(room=task.place.scene.room.name, seconds=SECONDS, **values))
        show(Progress("counting visits", len(strips), len(places), "rooms"))
    return sorted(strips, key=lambda strip: strip.room)


def _model(folder: Path, task: Task) -> Path:
    return folder / "models" / f"{task.place.scene.room.name}.safetensors"


def _counted(folder: Path, task: Task) -> bytes:
    """In a worker: what a strip shows, encoded."""
    visits, capture = record_task_visits(task, SECONDS)
    model = load_model(_model(folder, task))
    windower = Windower(model.recipe)
    windows = windower.feed(capture)
    good = [number for number, fault in enumerate(windows.faults) if not fault]
    ends = windows.ends[good]
    return encode(
        {
            "times": ends,
            "counted": np.asarray(model.count(windows.values[good]), np.float64),
            "present": visits.counts(ends),
            "changes": visits.changes,
            "people": visits.counts(visits.changes),
            "window": float(np.median(ends - windows.times[good])),
        }
    )
