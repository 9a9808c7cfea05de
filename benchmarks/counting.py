"""How well it counts, and what a window's view costs: the bars of docs/counting.md.

SIMULATED quick rooms, whole recordings held out, seeds 0, 1, 2, mean over rooms, then over seeds;
single windows of 4 s are those of the test recordings, 30 s are added over the continuous ones, on
days that nobody trained on. This measures counting, not speed: ``make bench`` leaves it out.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from fedapa.experiments.presets import preset
from fedapa.federation.plan import Plan
from fedapa.federation.run import run
from fedapa.windows.views import find_view

OF_SPEED = False
METHODS = ("fedapa", "local", "forest")
SEEDS = (0, 1, 2)
METRICS = {
    "accuracy": "accuracy",
    "within_one": "within_one",
    "mae": "mae_median",
    "mae_argmax": "mae",
    "mae_30s": "mae_30s",
}
"""What is printed: by the name that records have."""
WINDOWS = {"1000x242": (1000, 242, 250.0), "500x56": (500, 56, 125.0)}
"""Packets, subcarriers, packets per second."""
REPEATS = 50


def measure() -> dict[str, Any]:
    """Shares of one, people, and milliseconds on one core."""
    views = {name: _milliseconds(*sizes) for name, sizes in WINDOWS.items()}
    with tempfile.TemporaryDirectory() as folder:
        quick = {method: _scores(method, Path(folder)) for method in METHODS}
    return {"quick": quick, "view_ms": views}


def _scores(method: str, folder: Path) -> dict[str, float]:
    """The mean over seeds of what a run's summary says."""
    means = []
    for seed in SEEDS:
        plan = Plan.of(
            preset("quick"), {"seed": seed, "algorithm": method, "data": {"split": "recording"}}
        )
        means.append(run(plan, out=folder / f"{method}-{seed}").summary["over_rooms"]["mean"])
    return {name: float(np.mean([mean[key] for mean in means])) for name, key in METRICS.items()}


def _milliseconds(packets: int, subcarriers: int, rate: float) -> float:
    window = np.random.default_rng(0).uniform(1, 2, (packets, 1, subcarriers)).astype(np.float32)
    view = find_view("statistics")
    view(window, rate)  # what is made once for all windows
    times = []
    with threadpool_limits(1):
        for _ in range(REPEATS):
            began = time.thread_time()
            view(window, rate)
            times.append(time.thread_time() - began)
    return 1000 * float(np.median(times))
