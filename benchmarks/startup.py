"""How long ``fedapa run`` takes until its rooms learn, with warm caches.

Wall seconds from the command to its end, less those of its exchanges; and what the first exchange
takes longer than the second, which does the same work: that is the start of the workers. The rooms
are the tables preset's, one net of each kind; the best of some turns after one that fills caches.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

__all__ = ["measure", "seconds_of_start"]

TURNS = 3


def measure() -> dict[str, Any]:
    """Seconds until the first round begins, and until the workers are there too."""
    with tempfile.TemporaryDirectory() as folder:
        turns = [_turn(Path(folder) / str(number)) for number in range(TURNS + 1)][1:]
    seconds, before = min(turns)
    return {"seconds": round(seconds, 2), "before_workers": round(before, 2)}


def _turn(out: Path) -> tuple[float, float]:
    words = ["run", "--preset", "tables", "--architecture", "by-size", "--rounds", "2"]
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "fedapa", *words, "--out", str(out), "--json"],
        check=True,
        capture_output=True,
    )
    taken = time.perf_counter() - began
    lines = (out / "seconds.jsonl").read_text().splitlines()
    return seconds_of_start(taken, [json.loads(line)["seconds"] for line in lines])


def seconds_of_start(taken: float, exchanges: list[float]) -> tuple[float, float]:
    """The start of a run with and without that of its workers."""
    before = taken - sum(exchanges)
    return before + max(0.0, exchanges[0] - exchanges[1]), before
