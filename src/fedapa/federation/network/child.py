"""Programs as children of ours: they end when their parent does, however it ends."""

import contextlib
import ctypes
import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fedapa.federation.network.logs import keep_short

__all__ = ["PROGRAMS", "end_child", "start_child"]

PROGRAMS = {
    "superlink": ("flwr.superlink.cli", "flower_superlink"),
    "supernode": ("flwr.supernode.cli", "flower_supernode"),
    "run": ("fedapa.federation.network.running", "main"),
    "fedapa": ("fedapa.__main__", "main"),
    "check": ("fedapa.federation.network.checking", "main"),
    "worker": ("fedapa.federation.network.working", "main"),
}
_SET_DEATH_SIGNAL = 1
_PATIENCE = 15.0
"""Seconds that a child may take to say goodbye; a SuperNode then is known to be gone at once."""


def start_child(
    program: str,
    arguments: Sequence[str],
    *,
    log: Path | None,
    home: Path,
    listening: bool = False,
) -> "subprocess.Popen[bytes]":
    """Start one of the programs; what it says goes to the end of ``log``, which is kept short.

    Whoever starts one that runs for long has to look at its log now and then, too (logs.py).

    Args:
        program: its name, see ``PROGRAMS``.
        arguments: for it.
        log: where its output goes; None: where ours goes.
        home: Flower's folder.
        listening: the caller writes to it and reads what it tells; then only errors go to ``log``.
    """
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        keep_short(log)
    environment = {
        **os.environ,
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PYTHONUNBUFFERED": "1",
    }
    with contextlib.nullcontext() if log is None else log.open("ab") as stream:
        return subprocess.Popen(
            [sys.executable, "-m", __name__, str(os.getpid()), program, *arguments],
            stdin=subprocess.PIPE if listening else subprocess.DEVNULL,
            stdout=subprocess.PIPE if listening else stream,
            stderr=stream,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the parent, which ends its children in order
        )


def end_child(child: "subprocess.Popen[bytes] | None") -> None:
    """End a child: by asking, then without; one that has ended is fine too."""
    if child is None or child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _main() -> None:
    parent, program = int(sys.argv[1]), sys.argv[2]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGTERM)
    if os.getppid() != parent:  # it ended before it could be tied
        sys.exit(1)
    module, function = PROGRAMS[program]
    sys.argv = [program, *sys.argv[3:]]
    getattr(importlib.import_module(module), function)()


if __name__ == "__main__":
    _main()
