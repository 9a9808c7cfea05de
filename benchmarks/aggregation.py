"""Adaptive prototype aggregation for many rooms: time, memory, and bare matrix products beside.

Each size runs in a process of its own, so that its peak memory is its own. ``gemm_ratio`` is the
time over that of float32 matrix products of the same FLOPs, taken in turns. At 100,000 rooms one
exact round would be 2·10¹⁴ FLOPs: there each room attends to a uniform sample of rooms, class by
class, and ``relative_error`` says how far Q is from the exact one for some of the rooms.
"""

import math
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks._peak import peak_megabytes
from fedapa import aggregate_prototypes
from fedapa.models.model import unit
from fedapa.randomness import Key

__all__ = ["measure"]

CLASSES, WIDTH, TEMPERATURE = 21, 256, 0.5
SPREAD = 0.5  # rooms' own part of a prototype beside the class's
EXACT, MANY, SAMPLE, CHECKED = (10, 100, 1_000, 10_000), 100_000, 1_024, 50
BLOCK = 512  # rows of a matrix product at a time: no N × N array there either


def measure() -> dict[str, Any]:
    """Seconds, peak_mb and gemm_ratio by number of rooms."""
    figures = {str(rooms): _alone(_exact, rooms) for rooms in EXACT}
    small = EXACT[1]
    prototypes = torch.stack([_prototypes(small, c) for c in range(CLASSES)], dim=1)
    plain = _best(lambda: _loop(prototypes), 1)
    figures[str(small)]["loop_ratio"] = round(plain / figures[str(small)]["seconds"], 1)
    figures[str(MANY)] = _alone(_sampled, MANY)
    return figures


def _alone(work: Callable[[int], dict[str, Any]], rooms: int) -> dict[str, Any]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, rooms).result()


def _exact(rooms: int) -> dict[str, Any]:
    prototypes = torch.empty(rooms, CLASSES, WIDTH)
    for c in range(CLASSES):
        prototypes[:, c] = _prototypes(rooms, c)
    present = torch.ones(rooms, CLASSES, dtype=torch.bool)
    turns = 2 if rooms > 1_000 else 5
    ours = [_best(lambda: aggregate_prototypes(prototypes, present, TEMPERATURE), 1)]
    memory = peak_megabytes()
    products = [_best(lambda: _products(prototypes), 1)]
    for _ in range(turns - 1):
        ours.append(_best(lambda: aggregate_prototypes(prototypes, present, TEMPERATURE), 1))
        products.append(_best(lambda: _products(prototypes), 1))
    return {
        "seconds": round(min(ours), 6),
        "peak_mb": memory,
        "gemm_ratio": round(min(ours) / min(products), 2),
    }


def _sampled(rooms: int) -> dict[str, Any]:
    """Class by class, as a server would that keeps its sets on disk: P alone is 2 GB."""
    chosen = torch.from_numpy((Key(0) / "sample").numpy().permutation(rooms)[:SAMPLE])
    seconds, errors = 0.0, []
    for c in range(CLASSES):
        values = _prototypes(rooms, c)
        began = time.perf_counter()
        mixed = _attend(values, values[chosen])
        seconds += time.perf_counter() - began
        exact = _attend(values[:CHECKED], values)
        errors.append(float((mixed[:CHECKED] - exact).norm() / exact.norm()))
    return {
        "seconds": round(seconds, 3),
        "peak_mb": peak_megabytes(),
        "sample": SAMPLE,
        "relative_error": round(math.sqrt(sum(e * e for e in errors) / len(errors)), 4),
    }


def _attend(given: Tensor, peers: Tensor) -> Tensor:
    """eqn_5 to eqn_7 of one class over the peers given: [N, D], [M, D] → [N, D]."""
    mixed = F.scaled_dot_product_attention(
        unit(given)[None, None], unit(peers)[None, None], peers[None, None], scale=1 / TEMPERATURE
    )
    return mixed[0, 0]


def _prototypes(rooms: int, number: int) -> Tensor:
    """[N, D] of one class: a direction that all rooms share, and each room's own."""
    stream = (Key(0) / "benchmark" / rooms / number).numpy()
    shared = stream.normal(size=WIDTH)
    own = stream.standard_normal(size=(rooms, WIDTH), dtype=np.float32)
    return torch.from_numpy(shared.astype(np.float32) + np.float32(SPREAD) * own)


def _products(prototypes: Tensor) -> None:
    """P·Pᵀ and weights·P for each class, some rows at a time: the FLOPs without the softmax."""
    for c in range(CLASSES):
        values = prototypes[:, c].contiguous()  # (N, D)
        turned = values.T.contiguous()  # (D, N)
        for rows in values.split(BLOCK):
            (rows @ turned) @ values


def _loop(prototypes: Tensor) -> Tensor:
    """The loop a reader of the paper would write first, room by room and class by class."""
    mixture = torch.zeros_like(prototypes)
    for i in range(len(prototypes)):
        for c in range(CLASSES):
            alike = torch.cosine_similarity(prototypes[i, c][None], prototypes[:, c], dim=1)
            mixture[i, c] = torch.softmax(alike / TEMPERATURE, dim=0) @ prototypes[:, c]
    return mixture


def _best(work: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)
