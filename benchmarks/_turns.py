"""Programs that take turns: each does a round when it is told to, and is measured from outside.

A program is a process of its own, with its own allocator, threads and children. It says ``done``
when it waits for its next turn, the first time after what it does once. Processor time is that of
the process and of all that it started, user and system, to the nanosecond (a clock that Linux has
for every process).
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks._peak import family, shared_megabytes
from fedapa.errors import FedapaError

__all__ = ["Program", "Spent", "processor_seconds", "started", "turns_of"]

_SAID = 2000
"""Characters of what a failed program wrote that are shown."""
_END = 60.0
"""Seconds that a program has to end by itself."""
_LOOK = 0.5
"""Seconds between two looks at the memory of all processes."""


@dataclass(frozen=True)
class Spent:
    """What a turn took."""

    processor: float
    """Seconds of all its processes, user and system."""
    elapsed: float
    megabytes: float = 0.0
    """The most memory of all its processes, shared pages once (PSS); 0 where nobody looked."""

    def per(self, rounds: int) -> "Spent":
        """The same for one of so many rounds."""
        return Spent(self.processor / rounds, self.elapsed / rounds, self.megabytes)


class Program:
    """A process that waits for its turns."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path, *, patience: float) -> None:
        self._process, self._log, self._patience = process, log, patience

    def turn(self, rounds: int = 1, *, memory: bool = False) -> Spent:
        """Let it do some rounds; what one of them took."""
        before, began, most = self._used(), time.monotonic(), 0.0
        for _ in range(rounds):
            self._tell()
            most = max(most, self.wait(memory=memory))
        after, elapsed = self._used(), time.monotonic() - began
        spent = sum(used - before.get(process, 0.0) for process, used in after.items())
        return Spent(spent, elapsed, most).per(rounds)

    def wait(self, *, memory: bool = False) -> float:
        """Until it is done; the most memory meanwhile."""
        stream, most = self._process.stdout, 0.0
        assert stream is not None
        until = time.monotonic() + self._patience
        while not select.select([stream], [], [], _LOOK)[0]:
            if memory:
                most = max(most, shared_megabytes(family(self._process.pid)))
            if time.monotonic() > until:
                raise FedapaError(f"a program did not end its round within {self._patience:g} s")
        if stream.readline() != "done\n":
            self._process.wait()
            raise FedapaError(f"a program failed: {self._log.read_text()[-_SAID:]}")
        if memory:
            most = max(most, shared_megabytes(family(self._process.pid)))
        return most

    def _tell(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def _used(self) -> dict[int, float]:
        return processor_seconds(family(self._process.pid))


@contextlib.contextmanager
def started(
    words: list[str],
    folder: Path,
    *,
    patience: float = 1800.0,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Program]:
    """``python -m`` some words, ready for its first turn; it ends with the block."""
    log = folder / f"{'-'.join(words[1:3])}.log"
    with log.open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        try:
            program = Program(process, log, patience=patience)
            program.wait()
            yield program
        finally:
            whole = family(process.pid)
            if process.stdin is not None:
                process.stdin.close()  # by which it learns that there is no further turn
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_END)
            for one in whole:  # those that its end did not end
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def turns_of() -> Callable[[], None]:
    """In a program: what to call before each round; it ends the program after the last turn.

    Whatever else the program or a library prints goes where errors go.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def wait() -> None:
        answers.write("done\n")
        answers.flush()
        if not sys.stdin.readline():
            raise SystemExit(0)

    return wait


def processor_seconds(processes: list[int]) -> dict[int, float]:
    """Process → seconds of user and system; nothing of those that have just ended."""
    found = {}
    for process in processes:
        with contextlib.suppress(OSError):
            # Linux: the clock of a process is its number upside down, and 2 for "as scheduled".
            found[process] = time.clock_gettime((~process << 3) | 2)
    return found
