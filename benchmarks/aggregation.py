"""Adaptive prototype aggregation for many rooms: time, memory, and bare matrix products beside.

The seconds are those of ``aggregate_prototypes`` alone; ``server_round`` is all that a server does
in a round of FedAPA. Each size runs in a process of its own, so that its peak memory is its own.
``gemm_ratio`` is the time over that of float32 matrix products of the same FLOPs, taken in turns.
``loop_ratio`` is the time of a loop over rooms and classes over ours, in turns too.
At 100,000 rooms the exact mixture would be 2·10¹⁴ FLOPs: there all rooms attend to one uniform
sample of rooms, class by class, by ``_attend`` here (FedAPA has no such setting), and
``relative_error`` says how far Q is from the exact one for some of the rooms. ``errors`` says so
for other samples too, and for rooms in clusters of unequal size, where a sample may miss those that
are most alike; ``errors_at_tau_0.1`` for a lower temperature, where those weigh more.
"""

import itertools
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

__all__ = ["measure", "prototypes_of"]

CLASSES, WIDTH, TEMPERATURE = 21, 256, 0.5
TEMPERATURES = (TEMPERATURE, 0.1)  # of the errors
SPREAD = 0.5  # rooms' own part of a prototype beside the class's
EXACT, MANY, SAMPLE, CHECKED = (10, 100, 1_000, 10_000), 100_000, 1_024, 50
SAMPLES = (256, SAMPLE, 4_096)
CLUSTERS = 20
BLOCK = 512  # rows of a matrix product at a time: no N × N array there either


def measure() -> dict[str, Any]:
    """Seconds, peak_mb and gemm_ratio by number of rooms."""
    from benchmarks._server import measure_round  # not above: every size would hold its imports

    figures = {str(rooms): _alone(_exact, rooms) for rooms in EXACT}
    figures[str(EXACT[1])] |= _alone(_looped, EXACT[1])
    figures[str(EXACT[-1])]["server_round"] = _alone(measure_round, EXACT[-1])
    errors = _alone(_errors, MANY)
    usual, *others = TEMPERATURES
    figures[str(MANY)] = {
        **_alone(_sampled, MANY),
        "sample": SAMPLE,
        "relative_error": errors[str(usual)]["alike"][str(SAMPLE)],
        "errors": errors[str(usual)],
        **{f"errors_at_tau_{other}": errors[str(other)] for other in others},
    }
    return figures


def _alone(work: Callable[[int], dict[str, Any]], rooms: int) -> dict[str, Any]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, rooms).result()


def _exact(rooms: int) -> dict[str, Any]:
    prototypes = torch.empty(rooms, CLASSES, WIDTH)
    for c in range(CLASSES):
        prototypes[:, c] = prototypes_of(rooms, c)
    present = torch.ones(rooms, CLASSES, dtype=torch.bool)
    turns = 2 if rooms > 1_000 else 5 if rooms > 100 else 50  # what is short is soon disturbed
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


def _looped(rooms: int) -> dict[str, Any]:
    """How many times longer the plain loop takes."""
    prototypes = torch.stack([prototypes_of(rooms, c) for c in range(CLASSES)], dim=1)
    present = torch.ones(rooms, CLASSES, dtype=torch.bool)
    ours, plain = [], []
    for _ in range(5):
        plain.append(_best(lambda: _loop(prototypes), 1))
        ours.append(_best(lambda: aggregate_prototypes(prototypes, present, TEMPERATURE), 1))
    return {"loop_ratio": round(min(plain) / min(ours), 1)}


def _sampled(rooms: int) -> dict[str, Any]:
    """Class by class, as a server would that keeps its sets on disk: P alone is 2 GB."""
    chosen = _sample(rooms)[:SAMPLE]
    seconds = products = 0.0
    for c in range(CLASSES):
        values = prototypes_of(rooms, c)
        peers = values[chosen]
        seconds += _best(lambda values=values, peers=peers: _attend(values, peers), 1)
        products += _best(lambda values=values, peers=peers: _class_products(values, peers), 1)
    return {
        "seconds": round(seconds, 3),
        "peak_mb": peak_megabytes(),
        "gemm_ratio": round(seconds / products, 2),
    }


def _errors(rooms: int) -> dict[str, dict[str, dict[str, float]]]:
    """How far Q from a sample is from the exact one, relative, by τ, kind of rooms and sample."""
    chosen = _sample(rooms)
    kinds = {"alike": prototypes_of, "clustered": _clustered}
    means = {
        str(temperature): {kind: dict.fromkeys(map(str, SAMPLES), 0.0) for kind in kinds}
        for temperature in TEMPERATURES
    }
    for (kind, make), c in itertools.product(kinds.items(), range(CLASSES)):
        values = make(rooms, c)
        some = values[:CHECKED]
        for temperature in TEMPERATURES:
            exact = _attend(some, values, temperature)
            for size in SAMPLES:
                off = _attend(some, values[chosen[:size]], temperature) - exact
                square = float(off.norm() / exact.norm()) ** 2
                means[str(temperature)][kind][str(size)] += square / CLASSES
    return {
        temperature: {
            kind: {size: round(math.sqrt(mean), 5) for size, mean in sizes.items()}
            for kind, sizes in by_kind.items()
        }
        for temperature, by_kind in means.items()
    }


def _sample(rooms: int) -> Tensor:
    return torch.from_numpy((Key(0) / "sample").numpy().permutation(rooms))


def _attend(given: Tensor, peers: Tensor, temperature: float = TEMPERATURE) -> Tensor:
    """eqn_5 to eqn_7 of one class over the peers given: [N, D], [M, D] → [N, D]."""
    mixed = F.scaled_dot_product_attention(
        unit(given)[None, None], unit(peers)[None, None], peers[None, None], scale=1 / temperature
    )
    return mixed[0, 0]


def prototypes_of(rooms: int, number: int) -> Tensor:
    """[N, D] of one class: a direction that all rooms share, and each room's own."""
    stream = (Key(0) / "benchmark" / rooms / number).numpy()
    shared = stream.normal(size=WIDTH)
    own = stream.standard_normal(size=(rooms, WIDTH), dtype=np.float32)
    return torch.from_numpy(shared.astype(np.float32) + np.float32(SPREAD) * own)


def _clustered(rooms: int, number: int) -> Tensor:
    """As ``prototypes_of`` with a third part, that of a cluster; the k-th has a share as 1/k."""
    stream = (Key(1) / "benchmark" / rooms / number).numpy()
    shares = 1 / np.arange(1, CLUSTERS + 1)
    member = stream.choice(CLUSTERS, size=rooms, p=shares / shares.sum())
    centres = stream.normal(size=(CLUSTERS, WIDTH)).astype(np.float32)
    return prototypes_of(rooms, number) + torch.from_numpy(centres[member])


def _products(prototypes: Tensor) -> None:
    """The FLOPs of the exact mixture without the softmax."""
    for c in range(CLASSES):
        values = prototypes[:, c].contiguous()  # (N, D)
        _class_products(values, values)


def _class_products(given: Tensor, peers: Tensor) -> None:
    """P·Pᵀ and weights·P of one class, some rows at a time: [N, D], [M, D]."""
    turned = peers.T.contiguous()  # (D, M)
    for rows in given.split(BLOCK):
        (rows @ turned) @ peers


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
