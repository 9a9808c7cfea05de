"""A federated round of six rooms: our engine against a plain eager loop over the same windows.

Both score the test windows, train one epoch of eqn_11 in batches of 16, measure prototypes over the
train windows and aggregate. The loop is what a researcher would write: torch layers one by one, one
room after the other, all threads. The engine is ours as it ships: one worker process a core. They
take turns; each keeps its best round. Windows per second are train windows over the whole round.
"""

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
from fedapa.models.model import Model
from fedapa.randomness import Key
from fedapa.rooms.room import Normaliser, Room
from fedapa.windows.split import Split

__all__ = ["make_rooms", "measure"]

CLASSES, TRAIN, TEST, BATCH = 21, 32, 8, 16
SHAPE = (1000, 242)
NETS = {
    "tiny": ("tiny",) * 6,
    "middle": ("middle",) * 6,
    "large": ("large",) * 6,
    "mixed": ("tiny", "tiny", "middle", "middle", "large", "large"),
}
TURNS = {"tiny": 2, "middle": 3, "large": 3, "mixed": 2}
FLOPS_OF_A_STEP = 3  # forward, and backward twice: to the weights and to the inputs


def measure() -> dict[str, Any]:
    """Windows per second of both, their ratio, the share of the GEMM peak, a worker's memory."""
    peak = gemm_gflops()
    figures: dict[str, Any] = {}
    for name, nets in NETS.items():
        with tempfile.TemporaryDirectory() as folder:
            figures[name] = _compare(make_rooms(Path(folder), nets), TURNS[name], Path(folder))
        peak = max(peak, gemm_gflops())  # a busy moment must not pass for a slow machine
    for name in NETS:
        figures[name]["share_of_gemm"] = round(figures[name].pop("gflops") / peak, 3)
    return {**figures, "gemm_gflops": round(peak, 1)}


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
                normaliser=Normaliser.of(windows, split.train),
                architecture=net,
            )
        )
    return rooms


def _compare(rooms: list[Room], turns: int, folder: Path) -> dict[str, float | None]:
    plan = Plan(rounds=turns + 2, algorithm={"name": "fedapa", "warm_rounds": 1})
    algorithm = plan.build()
    eager, ours = [], []
    with InProcess(algorithm, rooms, run="benchmark", folder=folder) as engine:
        steps = rounds.run(algorithm, engine, plan, dict(rounds.begin(algorithm, engine, plan)))
        next(steps)  # starts the workers and has no prototypes yet
        next(steps)
        loop = _eager_rounds(rooms)
        for _ in range(turns):
            eager.append(_seconds(loop))
            ours.append(_seconds(steps))
        memory = [peak_megabytes(child.pid) for child in multiprocessing.active_children()]
        steps.close()
    windows = len(rooms) * TRAIN
    flops = sum(FLOPS_OF_A_STEP * TRAIN * room.card.flops for room in rooms)
    return {
        "eager": round(windows / min(eager), 2),
        "ours": round(windows / min(ours), 2),
        "ratio": round(min(eager) / min(ours), 2),
        "gflops": flops / min(ours) / 1e9,
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


def _eager_rounds(rooms: list[Room]) -> Iterator[Tensor]:
    """Round after round of the plain loop, from random prototypes on."""
    nets = [_eager_net(room) for room in rooms]
    shape = (len(rooms), CLASSES, rooms[0].width)
    clients = torch.from_numpy(Key(1).numpy().normal(size=shape).astype(np.float32))
    mixture = clients
    known = torch.ones(CLASSES, dtype=torch.bool)
    while True:
        sets = []
        for number, (room, net) in enumerate(zip(rooms, nets, strict=True)):
            net.eval()
            with torch.no_grad():
                for windows, _ in _eager_batches(room, room.split.test):
                    net(windows)[0].argmax(dim=1)
            net.train()
            optimiser = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.5, weight_decay=1e-5)
            for windows, labels in _eager_batches(room, room.split.train):
                logits, embedding = net(windows)
                loss = fedapa_loss(
                    logits,
                    embedding,
                    labels,
                    mixture=mixture[number],
                    clients=clients,
                    present=known,
                    temperature=0.5,
                    weight=1.0,
                )["loss"]
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            net.eval()
            with torch.no_grad():
                pairs = [(net(w)[1], y) for w, y in _eager_batches(room, room.split.train)]
            embeddings, labels = (torch.cat(part) for part in zip(*pairs, strict=True))
            sets.append(class_prototypes(embeddings, labels, CLASSES)[0])
        clients = torch.stack(sets)
        mixture = aggregate_prototypes(clients, clients.abs().sum(dim=2) > 0, 0.5)
        yield mixture


def _eager_batches(room: Room, index: Any) -> Iterator[tuple[Tensor, Tensor]]:
    windows = torch.from_numpy(room.normaliser(room.windows[index]))
    labels = torch.from_numpy(room.labels[index])
    yield from zip(windows.split(BATCH), labels.split(BATCH), strict=True)
