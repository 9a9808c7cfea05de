"""How far long work has come: bars on a terminal, lines elsewhere."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedapa.federation.prepare import Progress

__all__ = ["bar", "display", "stages"]


@contextlib.contextmanager
def stages() -> "Iterator[Callable[[str, int, int], None]]":
    """Stage by stage how much is done, on a terminal; a line a minute elsewhere."""
    import time

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console, disable=not console.is_terminal, transient=True) as bars:
        task = bars.add_task("", total=None)
        said = time.monotonic()

        def show(what: str, done: int, total: int) -> None:
            nonlocal said
            bars.update(task, description=what, completed=done, total=total)
            if not console.is_terminal and time.monotonic() - said > 60:
                sys.stderr.write(f"{what}: {done} of {total}\n")
                said = time.monotonic()

        yield show


@contextlib.contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """How much of one long thing is done, on a terminal; nothing elsewhere."""
    from rich.console import Console
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    with Bars(console=console, disable=not console.is_terminal, transient=True) as bars:
        task = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


@contextlib.contextmanager
def display() -> Iterator[Callable[[str, "Progress"], None]]:
    """Rounds, accuracy so far and time left, on a terminal; nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[accuracy]}"),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console, disable=not console.is_terminal) as bars:
        tasks: dict[tuple[str, str], Any] = {}

        def show(name: str, now: "Progress") -> None:
            key = (name, now.stage)
            if key not in tasks:
                for other in tasks.values():
                    bars.stop_task(other)
                label = name if now.stage == "round" else now.stage
                tasks[key] = bars.add_task(label, total=now.total, accuracy="")
            accuracy = "" if now.accuracy is None else f"accuracy {100 * now.accuracy:.1f} %"
            bars.update(tasks[key], completed=now.done, accuracy=accuracy)

        yield show
