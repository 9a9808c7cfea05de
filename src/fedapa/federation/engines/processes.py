"""Where worker processes come from: a server that has imported everything, or each on its own.

Importing torch takes more than a second. On Linux one process does it once, in the background while
the command itself does, and workers are forked from that: it has no threads and no data, so
nothing of the caller's is copied. Elsewhere every worker is spawned and imports for itself. This
module imports nothing heavy: ``get_ready`` may be the first thing that a command does.
"""

import multiprocessing
import os
import sys
from collections.abc import Mapping
from multiprocessing import forkserver
from multiprocessing.context import BaseContext

__all__ = ["context", "get_ready", "take_variables", "variables"]

_FROM_SERVER = False  # a long test run once waited for ever with it: off until that is understood
_IMPORTED = ("fedapa.federation.engines.in_process", "fedapa.models.kernels")


def context() -> BaseContext:
    """How to start workers here."""
    return multiprocessing.get_context("forkserver" if get_ready() else "spawn")


def get_ready() -> bool:
    """Begin to import what workers need; whether there is a process that does so."""
    if not _FROM_SERVER or sys.platform != "linux":
        return False
    try:
        multiprocessing.set_forkserver_preload(list(_IMPORTED))
        forkserver.ensure_running()
    except OSError:  # no socket can be made, e.g. below a long path of temporary files
        return False
    return True


def variables() -> dict[str, str]:
    """The environment of this process, for workers: their server may be older than it."""
    return dict(os.environ)


def take_variables(given: Mapping[str, str]) -> None:
    """In a worker: the environment of whoever asked for it."""
    os.environ.clear()
    os.environ.update(given)
