"""A command of ours that tells what its processes used until rooms learn.

``python -m benchmarks._start FILE run --preset quick …`` is ``fedapa run --preset quick …``. FILE
gets processor seconds of all processes, a number per line: before and after each exchange.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedapa.__main__ import main

__all__ = ["noting", "until_learning"]


def noting(exchange: Callable[..., Any], note: Callable[[], None]) -> Callable[..., Any]:
    """The same exchange, with a note before and after it."""

    def noted(*given: Any, **named: Any) -> Any:
        note()
        replies = exchange(*given, **named)
        note()
        return replies

    return noted


def until_learning(notes: list[float]) -> float:
    """Processor seconds before the first exchange, and what that took more than the second.

    Both exchanges do the same work: what the first takes more is the start of the workers.
    """
    before, first, second_began, second = notes[:4]
    return before + max(0.0, (first - before) - (second - second_began))


if __name__ == "__main__":
    import os

    from fedapa.federation.engines.in_process import InProcess

    path = Path(sys.argv.pop(1))
    command = os.getpid()

    def note() -> None:
        """Add a line; ``_turns`` is imported here, when torch is long there."""
        from benchmarks._peak import family
        from benchmarks._turns import processor_seconds

        used = sum(processor_seconds(family(command)).values())
        with path.open("a") as file:
            file.write(f"{used}\n")

    InProcess.exchange = noting(InProcess.exchange, note)  # type: ignore[method-assign]
    main()
