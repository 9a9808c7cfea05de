"""What numbers were made with: versions, machine, commit."""

import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import fedapa
from fedapa.processes import available_cores

__all__ = ["commit", "environment"]


def environment(workers: int | None) -> dict[str, Any]:
    """What the numbers were made with."""
    packages = ("fedapa", "torch", "numpy", "scipy", "h5py", "safetensors", "pydantic")
    return {
        "fedapa": fedapa.__version__,
        "commit": commit(),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": available_cores(),
        "workers": available_cores() if workers is None else workers,
        "packages": {name: metadata.version(name) for name in packages},
    }


def commit() -> str:
    """The commit this code was run from, with "+changes" if it was altered; else "unknown"."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(Path(__file__).parent), *words],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        ).stdout.strip()

    try:
        # An installed copy may lie inside somebody else's repository: only ours counts.
        if not (Path(git("rev-parse", "--show-toplevel")) / "src" / "fedapa").is_dir():
            return "unknown"
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain") else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()
