"""What else a round costs beside training: the passes of one room, as shares of its training pass.

One thread, as in a worker, and the processor's time. Prototypes are measured over the train
windows, the score over the test windows, a quarter as many; ``reading`` is fetching and normalising
the train windows alone, and ``round`` shares out a whole round: reading in all three passes, and
the rest of each. Files are mapped and the system has them cached: a disk takes no time of the
processor, so ``reading_wall`` says what reading is of training by the clock on the wall. ``mixed``
is measured over two rooms of each net, one after the other.
``convolutions`` are those that torch does for us, a batch of each, forward and both gradients.
``contrast`` is what L_g + L_c add to a step of Large for 6 and for 100 rooms.
"""

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.training import BATCH, CLASSES, NETS, TEST, TRAIN, make_rooms
from fedapa.federation.engines.in_process import keep_memory
from fedapa.learning.fit import Training, cross_entropy, fit
from fedapa.learning.losses import fedapa_loss
from fedapa.models.convnet import ConvEncoder
from fedapa.models.model import Model
from fedapa.randomness import Key
from fedapa.rooms.room import Room

__all__ = ["measure"]

TURNS = 4


def measure() -> dict[str, Any]:
    """Shares of the training pass by net, and the contrast's share of a Large step."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measure).result()


def _measure() -> dict[str, Any]:
    torch.set_num_threads(1)
    keep_memory()
    with tempfile.TemporaryDirectory() as folder:
        rooms = make_rooms(Path(folder), NETS["mixed"])
        figures = {}
        for net in ("tiny", "middle", "large"):
            room = next(room for room in rooms if room.architecture == net)
            seconds, wall = _best_seconds([room])
            figures[net] = _shares(seconds, wall)
            if net != "tiny":  # its one convolution is ours
                step = seconds["train"] * BATCH / TRAIN
                figures[net]["convolutions"] = _convolutions(room, step)
        figures["mixed"] = _shares(*_best_seconds(rooms))
    step = figures["large"]["train_seconds"] * BATCH / TRAIN
    contrast = {str(number): round(_contrast(number) / step, 3) for number in (6, 100)}
    return {**figures, "contrast": contrast}


PASSES = ("train", "prototypes", "score", "reading")


def _best_seconds(rooms: Sequence[Room]) -> tuple[dict[str, float], dict[str, float]]:
    """Of each pass over the rooms, taken in turns: the processor's seconds and the wall's."""
    pairs = [(room, room.build()) for room in rooms]
    work: dict[str, Callable[[Room, Model], Any]] = {
        "train": lambda room, model: fit(model, room, cross_entropy, Training(), key=Key(0)),
        "prototypes": lambda room, model: room.embeddings(model),
        "score": lambda room, model: room.predict(model),
        "reading": lambda room, _: list(map(len, room.batches(BATCH, Key(0)))),
    }
    best = dict.fromkeys(PASSES, float("inf"))
    wall = dict.fromkeys(PASSES, float("inf"))
    for _ in range(TURNS):
        for name in PASSES:
            began, stood = time.process_time(), time.perf_counter()
            for room, model in pairs:
                work[name](room, model)
            best[name] = min(best[name], time.process_time() - began)
            wall[name] = min(wall[name], time.perf_counter() - stood)
    return best, wall


def _convolutions(room: Room, step: float) -> dict[str, Any]:
    """Milliseconds of a batch by block, from the second on, and the share of ``step`` of all."""
    height, width = ((size + 1) // 2 for size in room.windows.shape[1:])
    found: dict[str, Any] = {}
    for number, block in enumerate(cast(ConvEncoder, room.build().encoder).blocks[1:], start=2):
        weight = cast(nn.Conv2d, block.conv).weight.detach()  # (out, in, 3, 3)
        given = torch.rand(BATCH, weight.shape[1], height, width)
        found[f"block{number}"] = _convolution(
            given.contiguous(memory_format=torch.channels_last),
            weight.contiguous(memory_format=torch.channels_last),
        )
        height, width = (height + 1) // 2, (width + 1) // 2
    whole = sum(sum(block.values()) for block in found.values()) / 1e3
    return {**found, "share_of_step": round(whole / step, 3)}


def _convolution(given: Tensor, weight: Tensor) -> dict[str, float]:
    pull = F.conv2d(given, weight, stride=2, padding=1)
    settings = ([2, 2], [1, 1], [1, 1], False, [0, 0], 1)

    def backward(*wanted: bool) -> None:
        torch.ops.aten.convolution_backward(pull, given, weight, None, *settings, wanted)

    work: dict[str, Callable[[], Any]] = {
        "forward_ms": lambda: F.conv2d(given, weight, stride=2, padding=1),
        "inputs_ms": lambda: backward(True, False, False),
        "weights_ms": lambda: backward(False, True, False),
    }
    best = dict.fromkeys(work, float("inf"))
    for _ in range(TURNS):
        for name, each in work.items():
            best[name] = min(best[name], _seconds(each))
    return {name: round(1e3 * seconds, 2) for name, seconds in best.items()}


def _shares(seconds: Mapping[str, float], wall: Mapping[str, float]) -> dict[str, Any]:
    """Each pass as a share of training, and what a round spends where."""
    train, prototypes, score, reading = (seconds[name] for name in PASSES)
    whole = train + prototypes + score
    read = {"train": reading, "prototypes": reading, "score": reading * TEST / TRAIN}
    spent = {name: (seconds[name] - read[name]) / whole for name in read}
    return {
        "train_seconds": round(train, 4),
        **{name: round(seconds[name] / train, 3) for name in PASSES[1:]},
        "reading_wall": round(wall["reading"] / wall["train"], 3),
        "without_gradient": round((prototypes + score) / train, 3),
        "round": {
            "reading": round(sum(read.values()) / whole, 3),
            **{name: round(share, 3) for name, share in spent.items()},
        },
    }


def _contrast(rooms: int) -> float:
    """Seconds that L_g + L_c take forward and backward, beyond the cross-entropy's."""
    stream = Key(2).numpy()
    sets = torch.from_numpy(stream.normal(size=(rooms, CLASSES, 256)).astype(np.float32))
    given = torch.from_numpy(stream.normal(size=(BATCH, 256)).astype(np.float32)).requires_grad_()
    logits, labels = torch.zeros(BATCH, CLASSES, requires_grad=True), torch.arange(BATCH)

    def hybrid() -> None:
        parts = fedapa_loss(
            logits,
            given,
            labels,
            mixture=sets[0],
            clients=sets,
            present=torch.ones(CLASSES, dtype=torch.bool),
            temperature=0.5,
            weight=1.0,
        )
        parts["loss"].backward()

    return min(_seconds(hybrid) for _ in range(20))


def _seconds(work: Callable[[], Any]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
