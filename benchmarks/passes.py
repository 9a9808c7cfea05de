"""What else a round costs beside training: the passes of one room, as shares of its training pass.

One thread, as in a worker. Prototypes are measured over the train windows, the score over the test
windows, a quarter as many; ``reading`` is fetching and normalising the train windows alone, and
``round`` shares out a whole round: reading in all three passes, and the rest of each. ``mixed`` is
a round of two rooms of each net, one after the other.
``contrast`` is what L_g + L_c add to a step of Large for 6 and for 100 rooms.
"""

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.training import BATCH, CLASSES, TEST, TRAIN, make_rooms
from fedapa.federation.engines.in_process import keep_memory
from fedapa.learning.fit import Training, cross_entropy, fit
from fedapa.learning.losses import fedapa_loss
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
        rooms = make_rooms(Path(folder), ("tiny", "middle", "large"))
        seconds = {room.architecture: _best_seconds(room) for room in rooms}
    # Two rooms of each net take twice as long as one of each: the shares are the same.
    seconds["mixed"] = {name: sum(each[name] for each in seconds.values()) for name in PASSES}
    step = seconds["large"]["train"] * BATCH / TRAIN
    contrast = {str(number): round(_contrast(number) / step, 3) for number in (6, 100)}
    return {**{net: _shares(each) for net, each in seconds.items()}, "contrast": contrast}


PASSES = ("train", "prototypes", "score", "reading")


def _best_seconds(room: Room) -> dict[str, float]:
    """Of each pass of one room, taken in turns."""
    model = room.build()
    work: dict[str, Callable[[], Any]] = {
        "train": lambda: fit(model, room, cross_entropy, Training(), key=Key(0)),
        "prototypes": lambda: room.embeddings(model),
        "score": lambda: room.predict(model),
        "reading": lambda: list(map(len, room.batches(BATCH, Key(0)))),
    }
    best = dict.fromkeys(PASSES, float("inf"))
    for _ in range(TURNS):
        for name in PASSES:
            best[name] = min(best[name], _seconds(work[name]))
    return best


def _shares(seconds: Mapping[str, float]) -> dict[str, Any]:
    """Each pass as a share of training, and what a round spends where."""
    train, prototypes, score, reading = (seconds[name] for name in PASSES)
    whole = train + prototypes + score
    read = {"train": reading, "prototypes": reading, "score": reading * TEST / TRAIN}
    spent = {name: (seconds[name] - read[name]) / whole for name in read}
    return {
        "train_seconds": round(train, 4),
        **{name: round(seconds[name] / train, 3) for name in PASSES[1:]},
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
