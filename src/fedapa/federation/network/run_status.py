"""What people are told of a run: written by its process and, where that ended, by the server."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fedapa.federation.network.server_folder import ServerFolder

__all__ = ["CRASHED", "RunStatus"]

CRASHED = 3
"""The exit code of a run's process that an error ended which nobody foresaw."""

_SENTENCES = 20
"""What was said last, kept in the status."""


@dataclass
class RunStatus:
    """The status of one run of a server, as it is in the file."""

    server: ServerFolder
    run: str
    tell: Callable[[str], None]
    """Told every sentence, too."""
    values: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, server: ServerFolder, run: str, tell: Callable[[str], None]) -> "RunStatus":
        """As it was told last; empty where that was of another run."""
        last = server.status()
        return cls(server, run, tell, dict(last) if last.get("run") == run else {})

    def say(self, sentence: str, **values: Any) -> None:
        """Keep a sentence, and what else is known with it."""
        said = [*self.values.get("said", []), {"at": time.time(), "said": sentence}]
        self.tell(sentence)
        self.note(said=said[-_SENTENCES:], **values)

    def note(self, **values: Any) -> None:
        """Keep what is known."""
        self.values |= {"run": self.run, "at": time.time(), **values}
        # A full disk must not end what waits for room on it.
        with contextlib.suppress(OSError):
            self.server.save_status(self.values)
