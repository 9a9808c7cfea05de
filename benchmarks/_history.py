"""What was measured before: one line of JSON a run, with the commit and the machine."""

import datetime
import hashlib
import json
import platform
import statistics
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedapa.processes import available_cores

__all__ = ["PATH", "append", "changes", "compared", "described", "flat", "last", "machine", "told"]

PATH = Path(__file__).parent / "history.jsonl"


def machine() -> dict[str, Any]:
    """Processor, its cores and the system: figures of other machines are not compared.

    Virtual machines name their processors vaguely, so family, model, stepping and a hash of what
    the processor can do belong to it where the system tells them. An entry made before they were
    kept is that of another machine.
    """
    information = Path("/proc/cpuinfo")
    told = described(information.read_text()) if information.is_file() else {}
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": available_cores(),
        "system": platform.system(),
        **told,
    }


# What /proc/cpuinfo calls it on x86 and on ARM.
_TOLD = {
    "processor": ("model name", "Model"),
    "family": ("cpu family", "CPU implementer"),
    "model": ("model", "CPU part"),
    "stepping": ("stepping", "CPU revision"),
    "flags": ("flags", "Features"),
}


def described(information: str) -> dict[str, str]:
    """What a text as /proc/cpuinfo says of the first processor; less where it says less."""
    lines = [line.partition(":") for line in information.splitlines() if ":" in line]
    said = {name.strip(): value.strip() for name, _, value in reversed(lines)}
    processor = {}
    for key, names in _TOLD.items():
        values = [said[name] for name in names if said.get(name)]
        if values:
            processor[key] = values[0]
    if "flags" in processor:
        flags = " ".join(sorted(processor["flags"].split()))
        processor["flags"] = hashlib.sha256(flags.encode()).hexdigest()[:8]
    return processor


def last(path: Path = PATH) -> dict[str, Any] | None:
    """The latest entry of this machine."""
    if not path.is_file():
        return None
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    mine = [entry for entry in entries if entry["machine"] == machine()]
    return mine[-1] if mine else None


def append(figures: Mapping[str, Any], path: Path = PATH) -> None:
    """Add what was measured now."""
    entry = {**told(), "figures": figures}
    with path.open("a") as file:
        file.write(json.dumps(entry, sort_keys=True) + "\n")


def told() -> dict[str, Any]:
    """What goes with figures of now: commit, date and machine."""
    return {
        "commit": _commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(),
    }


def flat(figures: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Every number with the path to it: ("training.tiny.ratio", 34.2)."""
    for key, value in figures.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        elif isinstance(value, int | float):
            yield f"{prefix}{key}", float(value)


def changes(figures: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, float]:
    """New over old of every number that was measured both times."""
    old = dict(flat(before or {}))
    return {name: value / old[name] for name, value in flat(figures) if old.get(name)}


def compared(figures: Mapping[str, Any], before: Mapping[str, Any] | None) -> list[str]:
    """What the figures are compared with, and a warning where the machine was not as fast."""
    if before is None:
        return ["no earlier entry of this machine"]
    lines = [f"to last time: commit {before['commit']}, {before['date']}"]
    changed = changes(figures, before["figures"])
    speeds = [
        change for name, change in changed.items() if name.split(".")[-1].startswith("gemm_gflops")
    ]
    if speeds and abs(statistics.median(speeds) - 1) > 0.2:
        lines.append(
            f"matrix products run at {statistics.median(speeds):.2f} times that speed; "
            "busier or another machine: compare ratios, not times"
        )
    return lines


def _commit() -> str:
    root = Path(__file__).parents[1]
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=10"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
