"""Flower's programs as children of ours: they end when their parent does, however it ends."""

import ctypes
import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["PROGRAMS", "start_child"]

PROGRAMS = {
    "superlink": ("flwr.superlink.cli", "flower_superlink"),
    "supernode": ("flwr.supernode.cli", "flower_supernode"),
    "run": ("fedapa.federation.network.running", "main"),
}
_SET_DEATH_SIGNAL = 1


def start_child(
    program: str,
    arguments: Sequence[str],
    *,
    log: Path,
    home: Path,
    variables: Mapping[str, str] | None = None,
) -> "subprocess.Popen[bytes]":
    """Start one of the programs; what it says goes to the end of ``log``."""
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PYTHONUNBUFFERED": "1",
        **(variables or {}),
    }
    with log.open("ab") as stream:
        return subprocess.Popen(
            [sys.executable, "-m", __name__, str(os.getpid()), program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the parent, which ends its children in order
        )


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
