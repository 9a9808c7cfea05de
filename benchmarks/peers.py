"""Ours beside what researchers use: a plain loop, bare products, and Flower's simulation engine.

All figures are of processor time (user and system, of all processes of a program) of a whole round:
every room scores its test windows, trains an epoch in batches of 16 and, with FedAPA, measures its
prototypes; then they are merged. Programs are processes of their own that take turns on the same
rooms of noise, after two rounds to warm up; each keeps its best turn. Our side is ``fedapa.run`` as
it ships, two workers, with its records, states and checkpoints; nobody else writes any.

- ``quick_large``: 125 × 56, six rooms, 666 train and 246 test windows, LargeConvNet4, FedAPA.
- ``features``: vectors of 85 numbers, as many rooms and windows, FeatureMLP 85 → 256 → 256, FedAPA.
- ``paper_large``: 1000 × 242, six rooms, 192 train and 48 test windows, LargeConvNet4, FedAPA.
- ``rooms_100``: 125 × 56, 100 rooms of 23 train and 6 test windows, LargeConvNet4, FedAvg.
- ``rooms_1000``: vectors of 85 numbers, 1,000 rooms of 24 train and 8 test windows, FeatureMLP,
  FedAPA with ten peers.
- ``startup``: ``fedapa run --preset quick`` until its rooms learn.

``eager_ratio`` is the time of the plain loop (``_eager``) over ours, torch's allocator as it comes;
``eager_same_allocator_ratio`` has the loop keep freed memory as our workers do.
``share_of_products`` is the time of the bare matrix products of the whole round (``_products``:
``torch.mm`` of the same shapes, convolutions by the size of their patches) over ours.
``flower_ratio`` is the time of the same work as a plain Flower app on Ray (``_flower_app``) over
ours. ``seconds_per_round`` is elapsed time, and ``load`` how many processes wanted the machine
meanwhile: more than its cores make elapsed time mean little. ``peak_mb`` counts shared pages once.
``startup_cpu_s`` is processor time until the first exchange, the start of workers included.

``make bench`` leaves it out: it takes up to half an hour, and needs Ray. ``--keep`` writes
peers.json, from which docs/performance.md has its first table.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import _history, _page
from benchmarks._start import until_learning
from benchmarks._turns import Spent, started
from benchmarks._work import WORKS, write_rooms
from fedapa.errors import FedapaError

__all__ = ["PARTS", "best", "compared", "measure", "options"]

OF_SPEED = False
EAGER = ("ours", "eager", "eager_same_allocator", "products")
PARTS: dict[str, tuple[str, ...]] = {
    "quick_large": EAGER,
    "features": EAGER,
    "paper_large": EAGER,
    "rooms_100": ("ours", "flower"),
    "rooms_1000": ("ours",),
    "startup": (),
}
FURTHER = dict.fromkeys(("quick_middle", "quick_tiny", "paper_middle", "paper_tiny"), EAGER)
"""Measured where they are asked for: the plain loop takes a minute per round of Tiny."""
TURNS = {"quick_large": 5, "features": 5, "startup": 3}
"""Of others 3."""
WARM_UP = 2
_OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # else others of a busy machine go before them
}


def options(parser: argparse.ArgumentParser) -> None:
    """What this benchmark may be asked for."""
    parser.add_argument("--turns", type=int, help="peers: of each program; default 3 or 5")
    parser.add_argument(
        "--keep", action="store_true", help="peers: write peers.json, for docs/performance.md"
    )
    parser.add_argument(
        "--part",
        action="append",
        choices=(*PARTS, *FURTHER),
        help=f"peers: one or several; default: {', '.join(PARTS)}",
    )


def measure(
    part: Sequence[str] | None = None, turns: int | None = None, keep: bool = False
) -> dict[str, Any]:
    """The bars, and the seconds that they come from."""
    if turns is not None and turns < 1:
        raise FedapaError(f"--turns {turns}: must be 1 or more")
    figures: dict[str, Any] = {}
    told = _history.told()  # before what is kept makes the tree another than the commit
    for name in part or PARTS:
        sys.stderr.write(f"  {name} …\n")
        number = turns or TURNS.get(name, 3)
        if name == "startup":
            figures["startup_cpu_s"] = _startup(number)
        else:
            figures[name] = _part(name, {**PARTS, **FURTHER}[name], number)
        if keep:  # a part that fails loses no other
            _keep(figures, told)
    return figures


def _keep(figures: Mapping[str, Any], told: Mapping[str, Any]) -> None:
    """What was measured now beside what was before; each part names its commit."""
    kept = json.loads(_page.PEERS.read_text()) if _page.PEERS.is_file() else {}
    kept |= {name: {**told, "figures": figure} for name, figure in figures.items()}
    _page.PEERS.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    _page.write()


def _part(name: str, programs: Sequence[str], turns: int) -> dict[str, Any]:
    work = WORKS[name]
    many = name == "rooms_1000"
    spent: dict[str, list[Spent]] = {who: [] for who in programs}
    load = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory(prefix="fedapa-peers-") as place, contextlib.ExitStack() as on:
        folder = Path(place)
        write_rooms(work, folder)
        offline = {**_OFFLINE, "FLWR_HOME": str(folder / "flwr")}
        running = {
            who: on.enter_context(
                started(
                    ["benchmarks._program", who, name, str(folder)], folder, environment=offline
                )
            )
            for who in programs
        }
        for program in running.values():
            program.turn(WARM_UP, memory=many)
        for _ in range(turns):
            for who, program in running.items():
                spent[who].append(program.turn(work.rounds, memory=many))
                now = spent[who][-1]
                sys.stderr.write(f"    {who}: {now.processor:.3f} s, elapsed {now.elapsed:.3f} s\n")
            load.append(os.getloadavg()[0])
    found = compared({who: best(each) for who, each in spent.items()})
    if many:
        found["peak_mb"] = round(max(one.megabytes for one in spent["ours"]))
    if name.startswith("rooms_"):
        found["seconds_per_round"] = found["elapsed_seconds"]["ours"]
    return {**found, "load": [round(min(load), 1), round(max(load), 1)], "turns": turns}


def best(turns: Sequence[Spent]) -> Spent:
    """The least of each kind: what else the machine does only adds to it."""
    return Spent(
        processor=min(one.processor for one in turns), elapsed=min(one.elapsed for one in turns)
    )


RATIOS = {
    "eager": "eager_ratio",
    "eager_same_allocator": "eager_same_allocator_ratio",
    "products": "share_of_products",
    "flower": "flower_ratio",
}


def compared(spent: Mapping[str, Spent]) -> dict[str, Any]:
    """Each program's processor time over ours, and seconds of both kinds."""
    ours = spent["ours"].processor
    ratios = {
        RATIOS[who]: round(one.processor / ours, 2) for who, one in spent.items() if who != "ours"
    }
    return {
        **ratios,
        "processor_seconds": {who: round(one.processor, 4) for who, one in spent.items()},
        "elapsed_seconds": {who: round(one.elapsed, 4) for who, one in spent.items()},
    }


def _startup(turns: int) -> float:
    """The least of some turns after one that fills caches."""
    with tempfile.TemporaryDirectory() as place:
        found = [_started(Path(place), number) for number in range(turns + 1)][1:]
    return round(min(found), 2)


def _started(folder: Path, number: int) -> float:
    notes = folder / f"{number}.txt"
    words = ["run", "--preset", "quick", "--rounds", "2", "--workers", "2", "--json"]
    words += ["--out", str(folder / str(number))]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks._start", str(notes), *words],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise FedapaError(f"fedapa run failed: {done.stderr[-1000:]}")
    return until_learning([float(line) for line in notes.read_text().splitlines()])
