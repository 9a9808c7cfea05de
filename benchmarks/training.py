"""A federated round of six rooms: our engine against a plain eager loop over the same windows.

Both score the test windows, train one epoch of eqn_11 in batches of 16, measure prototypes over the
train windows and aggregate. The loop is what a researcher would write: torch layers one by one, one
room after the other, all threads. The engine is ours as it ships: one worker process per core. Both
get the same batches in the same order, read and normalised by the same code, so that nets and
engine make the difference. They and bare matrix products take turns after one that only warms up;
each keeps its best. Windows per second are train windows over the whole round. What the figures
count goes with them, as ``notes``.
"""

import itertools
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks._peak import gemm_gflops, peak_megabytes
from fedapa import Plan, aggregate_prototypes, class_prototypes
from fedapa.federation import rounds
from fedapa.federation.engines.in_process import InProcess
from fedapa.learning.losses import fedapa_loss
from fedapa.models.cost import layers
from fedapa.models.model import Model
from fedapa.randomness import Key
from fedapa.rooms.room import Room
from fedapa.windows.normalise import Normaliser
from fedapa.windows.recipe import Recipe
from fedapa.windows.split import Split

__all__ = ["make_rooms", "measure", "products_of_a_step"]

CLASSES, TRAIN, TEST, BATCH = 21, 32, 8, 16
SHAPE = (1000, 242)
NETS = {
    "tiny": ("tiny",) * 6,
    "middle": ("middle",) * 6,
    "large": ("large",) * 6,
    "mixed": ("tiny", "tiny", "middle", "middle", "large", "large"),
}
TURNS = {"tiny": 2, "middle": 3, "large": 3, "mixed": 2}
NOTES = {
    "eager": "The eager loop gets the batches of our engine, read and normalised by the same code, "
    "and a turn to warm up as the engine does. It uses torch's allocator as it comes; our workers "
    "keep freed memory.",
    "share_of_gemm": "Share of GEMM: the FLOPs of the convolutions and the classifier that one "
    "epoch of the plain net asks for (forward, gradient of the weights, gradient of the input; the "
    "first convolution needs no gradient of its input), over the seconds of the whole round, over "
    "what 2048³ matrix products reach in the same turns. Scores and prototypes take time and add "
    "no FLOPs to it. Half of Tiny's FLOPs are the gradient of its weights, for which our path has "
    "no pass of its own, since sums of the forward pass give it: the share says what the plain net "
    "asks for, not which instructions we run.",
}


def measure() -> dict[str, Any]:
    """Windows per second of both, their ratio, the share of the GEMM peak, a worker's memory."""
    figures: dict[str, Any] = {}
    for name, nets in NETS.items():
        with tempfile.TemporaryDirectory() as folder:
            figures[name] = _compare(make_rooms(Path(folder), nets), TURNS[name], Path(folder))
    peak = max(figure["gemm_gflops"] for figure in figures.values())
    return {**figures, "gemm_gflops": peak, "notes": NOTES}


def make_rooms(folder: Path, nets: tuple[str, ...]) -> list[Room]:
    """Rooms of noise in files that workers map: how fast a net is does not depend on values."""
    rooms = []
    for number, net in enumerate(nets):
        stream = (Key(0) / "benchmark" / "training" / number).numpy()
        labels = np.arange(TRAIN + TEST) % CLASSES
        path = folder / f"{number}.npy"
        np.save(path, stream.normal(size=(len(labels), *SHAPE)).astype(np.float32))
        windows = np.load(path, mmap_mode="r")
        split = Split(
            train=np.arange(TRAIN),
            validation=np.arange(0),
            test=np.arange(TRAIN, TRAIN + TEST),
        )
        rooms.append(
            Room(
                name=f"room {number}",
                windows=windows,
                labels=labels,
                classes=tuple(range(CLASSES)),
                split=split,
                recipe=Recipe(source="arrays", normaliser=Normaliser.of(windows, split.train)),
                architecture=net,
            )
        )
    return rooms


def products_of_a_step(room: Room) -> int:
    """FLOPs of the matrix products that training on one window asks for, by the plain net.

    Forward, and as much again for the gradients of weights and of inputs; the windows need none.
    """
    flops = [
        layer.flops
        for layer in layers(room.build(), room.windows.shape[1:])
        if layer.kind in ("Conv2d", "Linear")
    ]
    return 2 * flops[0] + 3 * sum(flops[1:])


def _compare(rooms: list[Room], turns: int, folder: Path) -> dict[str, float | None]:
    plan = Plan(rounds=turns + 2, algorithm={"name": "fedapa", "warm_rounds": 1})
    algorithm = plan.build()
    eager, ours, peaks = [], [], []
    with InProcess(algorithm, rooms, folder=folder) as engine:
        steps = rounds.run(algorithm, engine, plan, dict(rounds.begin(algorithm, engine, plan)))
        next(steps)  # starts the workers and has no prototypes yet
        next(steps)
        loop = _eager_rounds(rooms, plan, first=2)
        next(loop)
        for _ in range(turns):
            # What else the machine does meets all three alike.
            peaks.append(gemm_gflops(repeats=3))
            eager.append(_seconds(loop))
            ours.append(_seconds(steps))
        memory = [peak_megabytes(child.pid) for child in multiprocessing.active_children()]
        steps.close()
    windows = len(rooms) * TRAIN
    gigaflops = sum(TRAIN * products_of_a_step(room) for room in rooms) / 1e9
    return {
        "eager": round(windows / min(eager), 2),
        "ours": round(windows / min(ours), 2),
        "ratio": round(min(eager) / min(ours), 2),
        "gemm_gflops": round(max(peaks), 1),
        "share_of_gemm": round(gigaflops / min(ours) / max(peaks), 3),
        "gflop_per_window": round(gigaflops / windows, 4),
        "peak_mb_per_worker": max((m for m in memory if m is not None), default=None),
    }


def _seconds(turn: Iterator[Any]) -> float:
    began = time.perf_counter()
    next(turn)
    return time.perf_counter() - began


def _eager_net(room: Room) -> Model:
    """The room's net with nothing of ours in the way: layer by layer, NCHW."""
    model = room.build()
    encoder = model.encoder
    model.encoder = nn.Sequential(nn.Unflatten(1, (1, SHAPE[0])), *encoder.children())
    return model


def _eager_rounds(rooms: list[Room], plan: Plan, *, first: int) -> Iterator[Tensor]:
    """Round after round of the plain loop, from random prototypes on; ``first`` is its number."""
    nets = [_eager_net(room) for room in rooms]
    shape = (len(rooms), CLASSES, rooms[0].width)
    rooms_sets = torch.from_numpy(Key(1).numpy().normal(size=shape).astype(np.float32))
    mixture = rooms_sets
    known = torch.ones(CLASSES, dtype=torch.bool)
    for turn in itertools.count(first):
        sets = []
        for number, (room, net) in enumerate(zip(rooms, nets, strict=True)):
            net.eval()
            with torch.no_grad():
                for windows, _ in room.inspect("test"):
                    net(windows)[0].argmax(dim=1)
            net.train()
            optimiser = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.5, weight_decay=1e-5)
            key = Key(plan.seed) / "round" / turn / "room" / room.name / "batches" / "epoch" / 0
            for windows, labels in room.batches(BATCH, key):
                logits, embedding = net(windows)
                loss = fedapa_loss(
                    logits,
                    embedding,
                    labels,
                    mixture=mixture[number],
                    sets=rooms_sets,
                    present=known,
                    temperature=0.5,
                    weight=1.0,
                )["loss"]
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            net.eval()
            with torch.no_grad():
                pairs = [(net(w)[1], y) for w, y in room.inspect("train")]
            embeddings, labels = (torch.cat(part) for part in zip(*pairs, strict=True))
            sets.append(class_prototypes(embeddings, labels, CLASSES)[0])
        rooms_sets = torch.stack(sets)
        mixture = aggregate_prototypes(rooms_sets, rooms_sets.abs().sum(dim=2) > 0, 0.5)
        yield mixture
