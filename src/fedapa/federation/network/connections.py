"""Connections of strangers cost little: who says nothing is let go, and there are enough for rooms.

A connection takes a file of the process. Anybody can open some before the proxy knows a key, and
whoever kept a thousand open without a word would keep all rooms out.
"""

import asyncio
import contextlib
import errno
import sys
import time
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from fedapa.errors import files_trouble

__all__ = ["Impatient", "allow_many_files", "tell_briefly"]

_FILES = 1 << 16
_BETWEEN = 60.0
"""Seconds between two sentences on connections that found no room."""


class Impatient(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """Closes a connection on which no whole request came between two looks."""

    silence = 30.0
    """Seconds between the looks."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin to look."""
        super().connection_made(transport)
        self._look(last=None)

    def _look(self, last: Any) -> None:
        def again() -> None:
            if self.transport.is_closing():
                return
            if self.cycle is last and (last is None or last.response_complete):
                self.transport.abort()  # a goodbye would wait for the other side
            else:
                self._look(self.cycle)

        self.loop.call_later(self.silence, again)


def allow_many_files() -> None:
    """More open files, where this user may have them: a service begins with 1,024."""
    if sys.platform != "win32":
        import resource

        now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _FILES if most == resource.RLIM_INFINITY else min(_FILES, most)
        if now != resource.RLIM_INFINITY and now < wanted:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def tell_briefly(say: Callable[[str], None]) -> None:
    """Where no connection can be taken any more, say so once a minute.

    asyncio would write a traceback for each, thousands in a second.
    """
    told = -_BETWEEN

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal told
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(context)
        elif time.monotonic() - told >= _BETWEEN:
            told = time.monotonic()
            say(f"connections find no room: {files_trouble(error)}; see who makes so many")

    asyncio.get_running_loop().set_exception_handler(handle)
