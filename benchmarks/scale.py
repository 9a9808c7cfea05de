"""Many rooms on one machine: seconds per round and memory, in process and on Flower's simulation.

Rooms are SIMULATED noise whose level grows with the count: 3 counts, 3 recordings of each, windows
as a vector of statistics, a small perceptron, FedAPA with the sets of ten peers. They are as small
as rooms get, so that what is measured is what engines cost. ``make bench`` leaves it out: a
thousand rooms take many minutes (docs/scale.md).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._peak import family, megabytes
from fedapa.errors import FedapaError
from fedapa.federation.plan import Plan
from fedapa.randomness import Key
from fedapa.stores.store import write_store

OF_SPEED = False
ROUNDS = 3
PEERS = 10
ENGINES = ("in-process", "flower-simulation")
_LOOK = 0.5
"""Seconds between two looks at the memory of all processes."""


def options(parser: argparse.ArgumentParser) -> None:
    """What this benchmark may be asked for."""
    parser.add_argument("--rooms", type=int, default=100, help="scale: how many; default 100")
    parser.add_argument(
        "--engine", default="in-process", choices=ENGINES, help="scale: default in-process"
    )
    parser.add_argument("--patience", type=int, default=1800, help="scale: seconds at most")


def measure(rooms: int = 100, engine: str = "in-process", patience: int = 1800) -> dict[str, float]:
    """Seconds, megabytes, and bytes of messages per room and round.

    Processor seconds are of all processes together: they hang little on who else uses the machine.
    """
    with tempfile.TemporaryDirectory(prefix="fedapa-scale-") as folder:
        place = Path(folder)
        _write(place / "rooms.h5", rooms)
        (place / "plan.toml").write_text(_plan(place / "rooms.h5").toml())
        command = [sys.executable, "-m", "fedapa", "run", str(place / "plan.toml")]
        command += ["--engine", engine, "--workers", "2", "--out", str(place / "run")]
        began = time.monotonic()
        peak = _watched(command, place / "log", place / "run" / "seconds.jsonl", patience)
        whole = time.monotonic() - began
        return {"rooms": rooms, **_told(place / "run", whole), **peak}


def _write(path: Path, rooms: int) -> None:
    with write_store(path) as store:
        for number in range(rooms):
            room = f"room {number:05d}"
            store.add_room(room, synthetic=True, about={"device": "noise"})
            for label in range(3):
                for take in range(3):
                    draw = (Key(0) / room / label / take).numpy()
                    store.add_recording(
                        room,
                        f"{label}-{take}",
                        label=label,
                        amplitude=(5 + (1 + label) * draw.normal(size=(96, 6, 1))).astype(
                            np.float32
                        ),
                        timestamps=np.arange(96) / 100,
                        day=f"day {take}",
                        rate=100.0,
                    )


def _plan(store: Path) -> Plan:
    return Plan.of(
        {
            "rounds": ROUNDS,
            "data": {
                "file": str(store),
                "window": 32,
                "view": "statistics",
                "split": "recording",
                "validation": 0.0,
            },
            "model": {"architecture": "mlp", "width": 32},
            "training": {"batch_size": 4, "learning_rate": 0.05},
            "algorithm": {"name": "fedapa", "peers": PEERS},
            "network": {"deadline": 900},
        },
        {},
    )


def _watched(command: list[str], log: Path, times: Path, patience: int) -> dict[str, float]:
    """Run a command: the most memory that it and all its children had, and their processor time."""
    until = time.monotonic() + patience
    most = {"Rss": 0.0, "Pss": 0.0}
    used: dict[int, float] = {}  # process → seconds
    after: dict[int, float] = {}  # rounds done → seconds of all
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT)
        while process.poll() is None:
            processes = family(process.pid)
            now = megabytes(processes)
            most = {kind: max(most[kind], now[kind]) for kind in most}
            used |= {each: seconds for each in processes if (seconds := _processor(each))}
            done = len(times.read_text().splitlines()) if times.is_file() else 0
            after.setdefault(done, sum(used.values()))
            if time.monotonic() > until:
                process.terminate()
                process.wait()
                raise FedapaError(f"no end after {patience} s; give --patience, or fewer --rooms")
            time.sleep(_LOOK)
    if process.returncode:
        raise FedapaError(f"the run failed: {log.read_text()[-1000:]}")
    first, last = min(after.keys() - {0}), max(after)
    each = (after[last] - after[first]) / max(1, last - first)
    return {
        "megabytes_rss": round(most["Rss"]),
        "megabytes_pss": round(most["Pss"]),
        "processor_seconds": round(sum(used.values()), 1),
        "processor_seconds_per_round": round(each, 2),
    }


def _processor(process: int) -> float:
    """Seconds that a process has calculated; nothing where it has just ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _told(out: Path, whole: float) -> dict[str, float]:
    seconds = [json.loads(line) for line in (out / "seconds.jsonl").read_text().splitlines()]
    records = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
    rounds = [float(entry["seconds"]) for entry in seconds]
    last: dict[str, Any] = records[-1]["rooms"]
    bytes_each = [room.get("bytes_up", 0) + room.get("bytes_down", 0) for room in last.values()]
    return {
        "seconds_per_round": round(float(np.median(rounds[1:])), 2),
        "seconds_first_round": round(rounds[0], 2),
        "seconds_before": round(whole - sum(rounds), 1),
        "bytes_per_room_and_round": round(float(np.mean(bytes_each))),
    }
