"""How far long work has come: a bar on a terminal, a line now and then elsewhere."""

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedapa.processes import Progress, Show

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["progress_line", "shown_progress"]

_SOONEST, _LATEST = 5.0, 60.0
"""Seconds between two lines: the longer the work has taken, the rarer they become."""


@contextlib.contextmanager
def shown_progress() -> Iterator[Show]:
    """Who watches the work of the block, on stderr."""
    from rich.console import Console

    console = Console(stderr=True)
    with _bar(console) if console.is_terminal else _lines() as show:
        yield show


def progress_line(progress: Progress) -> str:
    """A progress as one line: "training: 17 of 144 rounds, accuracy 71.3 %"."""
    return f"{progress.stage}: {', '.join(filter(None, [_count(progress), progress.note]))}"


def _count(progress: Progress) -> str:
    of_total = "" if progress.total is None else f" of {progress.total}"
    return f"{progress.done}{of_total} {progress.unit}"


@contextlib.contextmanager
def _bar(console: "Console") -> Iterator[Show]:
    """The stage that is being worked on; it is gone when all is done."""
    from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TextColumn("{task.fields[note]}", markup=False),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console, transient=True) as bars:
        stage, task = "", TaskID(-1)

        def show(progress: Progress) -> None:
            nonlocal stage, task
            if progress.stage != stage:
                if stage:
                    bars.remove_task(task)
                stage, task = progress.stage, bars.add_task(progress.stage, count="", note="")
            bars.update(
                task,
                completed=progress.done,
                total=progress.total,
                count=_count(progress),
                note=progress.note,
            )

        yield show


@contextlib.contextmanager
def _lines() -> Iterator[Show]:
    """A line every few seconds, and one at the end of work that did not fail."""
    began = told = time.monotonic()
    untold: Progress | None = None

    def show(progress: Progress) -> None:
        nonlocal told, untold
        now = time.monotonic()
        if now - told < min(max(_SOONEST, (now - began) / 10), _LATEST):
            untold = progress
            return
        sys.stderr.write(f"{progress_line(progress)}\n")
        told, untold = now, None

    yield show
    if untold is not None:
        sys.stderr.write(f"{progress_line(untold)}\n")
