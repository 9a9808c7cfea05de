"""Adaptive prototype aggregation against the loop a reader of the paper would write first."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fedapa import aggregate_prototypes
from fedapa.randomness import Key

CLASSES, WIDTH, TEMPERATURE = 21, 256, 0.5


def loop(prototypes: torch.Tensor, temperature: float) -> torch.Tensor:
    """eqn_5 to eqn_7 room by room and class by class."""
    rooms, classes, _ = prototypes.shape
    mixture = torch.zeros_like(prototypes)
    for i in range(rooms):
        for c in range(classes):
            alike = torch.cosine_similarity(prototypes[i, c][None], prototypes[:, c], dim=1)
            mixture[i, c] = torch.softmax(alike / temperature, dim=0) @ prototypes[:, c]
    return mixture


def best(work: Callable[[], Any], repeats: int) -> float:
    """Seconds of the fastest of some repeats."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def measure() -> dict[str, Any]:
    """Seconds by number of rooms, and the ratio to the loop where that ends in sensible time."""
    figures: dict[str, Any] = {}
    for rooms in (10, 100, 1000):
        stream = (Key(0) / "benchmark" / rooms).numpy()
        values = stream.normal(size=(rooms, CLASSES, WIDTH)).astype(np.float32)
        prototypes, present = torch.from_numpy(values), torch.ones(rooms, CLASSES, dtype=torch.bool)
        ours = best(lambda p=prototypes, m=present: aggregate_prototypes(p, m, TEMPERATURE), 5)
        figures[str(rooms)] = {"seconds": ours}
        if rooms <= 100:
            plain = best(lambda p=prototypes: loop(p, TEMPERATURE), 2)
            figures[str(rooms)] |= {"loop_seconds": plain, "ratio": plain / ours}
    return figures
