"""What was measured before: one line of JSON a run, with the commit and the machine."""

import datetime
import json
import platform
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedapa.federation.engines.in_process import available_cores

__all__ = ["PATH", "append", "changes", "flat", "last", "machine"]

PATH = Path(__file__).parent / "history.jsonl"


def machine() -> dict[str, Any]:
    """Processor, its cores and the system: figures of other machines are not compared."""
    name = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text().splitlines():
            if line.startswith(("model name", "Model")):
                name = line.split(":", 1)[1].strip()
                break
    return {"processor": name, "cores": available_cores(), "system": platform.system()}


def last(path: Path = PATH) -> dict[str, Any] | None:
    """The latest entry of this machine."""
    if not path.is_file():
        return None
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    mine = [entry for entry in entries if entry["machine"] == machine()]
    return mine[-1] if mine else None


def append(figures: Mapping[str, Any], path: Path = PATH) -> None:
    """Add what was measured now."""
    entry = {
        "commit": _commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(),
        "figures": figures,
    }
    with path.open("a") as file:
        file.write(json.dumps(entry, sort_keys=True) + "\n")


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


def _commit() -> str:
    root = Path(__file__).parents[1]
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=10"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
