"""Our side: ``fedapa.run`` of the same rooms, records, states and checkpoints included."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks._work import BATCH, CLASSES, WIDTH, Work, read_room
from fedapa import Plan, run
from fedapa.processes import Progress
from fedapa.rooms.room import Room
from fedapa.windows.normalise import Normaliser
from fedapa.windows.recipe import Recipe
from fedapa.windows.split import Split

__all__ = ["make_rooms", "run_rounds"]

ROUNDS = 10_000
"""More than anybody takes: the program is ended by who measures it."""


def make_rooms(work: Work, folder: Path) -> list[Room]:
    """The rooms whose windows lie in a folder, mapped."""
    rooms = []
    for number in range(work.rooms):
        windows, labels = read_room(folder, number)
        split = Split(
            train=np.arange(work.train),
            validation=np.arange(0),
            test=np.arange(work.train, work.train + work.test),
        )
        rooms.append(
            Room(
                name=f"room {number:04d}",
                windows=windows,
                labels=labels,
                classes=tuple(range(CLASSES)),
                split=split,
                recipe=Recipe(source="arrays", normaliser=Normaliser.of(windows, split.train)),
                architecture=work.net,
                width=WIDTH,
                synthetic=True,
            )
        )
    return rooms


def run_rounds(work: Work, folder: Path, *, workers: int, wait: Callable[[], None]) -> None:
    """A run that waits before each of its exchanges."""
    plan = Plan.of(
        {
            "rounds": ROUNDS,
            "model": {"architecture": work.net, "width": WIDTH},
            "training": {"batch_size": BATCH},
            "algorithm": work.algorithm,
        },
        {},
    )

    def show(progress: Progress) -> None:
        if progress.unit == "rounds":
            wait()

    rooms = make_rooms(work, folder)
    run(plan, rooms=rooms, workers=workers, out=folder / "run", show=show)
