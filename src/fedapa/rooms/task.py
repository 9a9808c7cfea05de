"""Task: a question that is asked of every window, with classes of its own.

A room has one, its label, or a second one beside it. The class axis of a net's classifier, of
prototypes and of messages is then the classes of all tasks end to end, a *block* each: whatever
works class by class, such as a mean of weights or APA, needs to know of no task.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedapa.windows.labels import NO_CLASS, Label

__all__ = ["ACTIVITY", "LABEL", "Task", "blocks_of", "places_of"]

LABEL = "label"
"""The task that every room has."""
ACTIVITY = "activity"
"""The one that stands beside it."""


@dataclass(frozen=True, eq=False)
class Task:
    """One question: what it may be answered with, and what is true."""

    name: str
    classes: tuple[Label, ...]
    labels: npt.NDArray[np.int64]
    """[windows] places among its own classes; ``NO_CLASS`` where nobody said."""


def blocks_of(tasks: Sequence[Task]) -> tuple[slice, ...]:
    """Where the classes of each task stand on the class axis of all of them."""
    return tuple(_blocks(tasks))


def _blocks(tasks: Sequence[Task]) -> Iterator[slice]:
    start = 0
    for task in tasks:
        yield slice(start, start + len(task.classes))
        start += len(task.classes)


def places_of(tasks: Sequence[Task]) -> npt.NDArray[np.int64]:
    """The classes of windows as places on that axis: [windows], or [windows, tasks] of several."""
    if len(tasks) == 1:
        return tasks[0].labels
    columns = [
        np.where(task.labels == NO_CLASS, NO_CLASS, task.labels + block.start)
        for task, block in zip(tasks, blocks_of(tasks), strict=True)
    ]
    return np.stack(columns, axis=1)
