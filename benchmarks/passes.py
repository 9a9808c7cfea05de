"""What else a round costs beside training: the passes of one room, as shares of its training pass.

One thread, as in a worker, and CPU time. Prototypes are measured over the train windows, the score
over the test windows, a quarter as many; ``without_gradient`` is both, and
``without_gradient_at_quick`` has the score scaled to as many test windows as the quick rooms
of version 2 had.
``reading`` is fetching and normalising the train windows alone, and ``round`` shares out a whole
round: reading in all three passes, and the rest of each. Files are mapped and the system has them
cached: waiting for a disk is no CPU time, so ``reading_wall`` says what reading is of training in
elapsed time. ``mixed`` is measured over two rooms of each net, one after the other.
``train_of_gemm`` is the FLOPs that the training pass asks for over its time, over the speed of a
matrix product (GEMM) on one core, ``gemm_gflops_one_core``, taken in turns with the passes.
``convolutions`` are those that torch does for us, a batch of each, forward and both gradients, with
the share that each reaches of that speed, taken in turns with them; ``gain_at_gemm`` is how many
times as fast a step would be if all of them reached it.
``contrast`` is what the whole loss, L_ce + L_g + L_c, takes of a step of Large, 6 and 100 rooms.
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

from benchmarks.training import BATCH, CLASSES, NETS, TEST, TRAIN, make_rooms, products_of_a_step
from fedapa.learning.fit import Training, cross_entropy, fit
from fedapa.learning.losses import fedapa_loss
from fedapa.models.convnet import ConvEncoder
from fedapa.models.model import Model
from fedapa.processes import keep_memory
from fedapa.randomness import Key
from fedapa.rooms.room import Room

__all__ = ["AT_QUICK", "at_quick", "measure"]

TURNS = 4
GEMM = 2048  # rows and columns of the matrices whose product tells the speed of a core
AT_QUICK = 0.39  # test windows to train windows of the quick rooms of version 2


def measure() -> dict[str, Any]:
    """Shares of the training pass by net, and the loss's share of a Large step."""
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
            figures[net] = _shares(seconds, wall) | _of_gemm([room], seconds)
            if net != "tiny":  # its one convolution is ours
                step = seconds["train"] * BATCH / TRAIN
                figures[net]["convolutions"] = _convolutions(room, step)
        seconds, wall = _best_seconds(rooms)
        figures["mixed"] = _shares(seconds, wall) | _of_gemm(rooms, seconds)
    step = figures["large"]["train_seconds"] * BATCH / TRAIN
    contrast = {str(number): round(_contrast(number) / step, 3) for number in (6, 100)}
    return {**figures, "contrast": contrast}


PASSES = ("train", "prototypes", "score", "reading")


def _best_seconds(rooms: Sequence[Room]) -> tuple[dict[str, float], dict[str, float]]:
    """Of each pass over the rooms, and of a GEMM in turns with them: CPU and elapsed seconds."""
    pairs = [(room, room.build()) for room in rooms]
    product = _gemm()
    work: dict[str, Callable[[Room, Model], Any]] = {
        "train": lambda room, model: fit(model, room, cross_entropy, Training(), key=Key(0)),
        "prototypes": lambda room, model: room.embeddings(model),
        "score": lambda room, model: room.predict(model),
        "reading": lambda room, _: list(map(len, room.batches(BATCH, Key(0)))),
    }
    best = dict.fromkeys((*PASSES, "gemm"), float("inf"))
    wall = dict.fromkeys(PASSES, float("inf"))
    for _ in range(TURNS):
        for name in PASSES:
            began, stood = time.process_time(), time.perf_counter()
            for room, model in pairs:
                work[name](room, model)
            best[name] = min(best[name], time.process_time() - began)
            wall[name] = min(wall[name], time.perf_counter() - stood)
        best["gemm"] = min(best["gemm"], _seconds(product))
    return best, wall


def _gemm() -> Callable[[], Tensor]:
    one, other = torch.ones(GEMM, GEMM), torch.ones(GEMM, GEMM)
    return lambda: one @ other


def _of_gemm(rooms: Sequence[Room], seconds: Mapping[str, float]) -> dict[str, float]:
    """The speed of a GEMM on one core, and the share of it that the training pass reaches."""
    asked = sum(TRAIN * products_of_a_step(room) for room in rooms)
    speed = 2 * GEMM**3 / seconds["gemm"]
    return {
        "gemm_gflops_one_core": round(speed / 1e9, 1),
        "train_of_gemm": round(asked / seconds["train"] / speed, 3),
    }


def _convolutions(room: Room, step: float) -> dict[str, Any]:
    """Of a batch by block, from the second on: time and speed of each pass beside a GEMM."""
    height, width = ((size + 1) // 2 for size in room.windows.shape[1:])
    seconds, flops = {}, {}
    for number, block in enumerate(cast(ConvEncoder, room.build().encoder).blocks[1:], start=2):
        weight = cast(nn.Conv2d, block.conv).weight.detach()  # (out, in, 3, 3)
        given = torch.rand(BATCH, weight.shape[1], height, width)
        seconds[f"block{number}"] = _convolution(
            given.contiguous(memory_format=torch.channels_last),
            weight.contiguous(memory_format=torch.channels_last),
        )
        height, width = (height + 1) // 2, (width + 1) // 2
        flops[f"block{number}"] = 2 * weight.numel() * BATCH * height * width
    return _beside_gemm(seconds, flops, step)


CONVOLUTION = ("forward", "inputs", "weights")


def _convolution(given: Tensor, weight: Tensor) -> dict[str, float]:
    """Seconds of each pass, and of a GEMM in turns with them."""
    pull = F.conv2d(given, weight, stride=2, padding=1)
    settings = ([2, 2], [1, 1], [1, 1], False, [0, 0], 1)

    def backward(*wanted: bool) -> None:
        torch.ops.aten.convolution_backward(pull, given, weight, None, *settings, wanted)

    work: dict[str, Callable[[], Any]] = {
        "forward": lambda: F.conv2d(given, weight, stride=2, padding=1),
        "inputs": lambda: backward(True, False, False),
        "weights": lambda: backward(False, True, False),
        "gemm": _gemm(),
    }
    best = dict.fromkeys(work, float("inf"))
    for _ in range(TURNS):
        for name, part in work.items():
            best[name] = min(best[name], _seconds(part))
    return best


def _beside_gemm(
    seconds: Mapping[str, Mapping[str, float]], flops: Mapping[str, float], step: float
) -> dict[str, Any]:
    """Convolutions against the speed of a GEMM.

    Args:
        seconds: by block, of each pass and of a GEMM in turns with them.
        flops: by block, of one pass; all three need as many.
        step: seconds of a whole step of training.
    """
    speed = 2 * GEMM**3 / min(block["gemm"] for block in seconds.values())
    blocks: dict[str, Any] = {}
    for block, spent in seconds.items():
        blocks[block] = {f"{name}_ms": round(1e3 * spent[name], 2) for name in CONVOLUTION}
        for name in CONVOLUTION:
            blocks[block][f"{name}_of_gemm"] = round(flops[block] / spent[name] / speed, 3)
    whole = sum(spent[name] for spent in seconds.values() for name in CONVOLUTION)
    least = len(CONVOLUTION) * sum(flops.values()) / speed
    return {
        **blocks,
        "share_of_step": round(whole / step, 3),
        "gemm_gflops_one_core": round(speed / 1e9, 1),
        "gain_at_gemm": round(step / (step - whole + least), 2),
    }


def at_quick(prototypes: float, score: float) -> float:
    """Both passes where the test windows are as many as in those rooms, not a quarter."""
    return prototypes + score * AT_QUICK / (TEST / TRAIN)


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
        "without_gradient_at_quick": round(at_quick(prototypes, score) / train, 3),
        "round": {
            "reading": round(sum(read.values()) / whole, 3),
            **{name: round(share, 3) for name, share in spent.items()},
        },
    }


def _contrast(rooms: int) -> float:
    """Seconds that the whole loss, L_ce + L_g + L_c, takes forward and backward."""
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
            sets=sets,
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
