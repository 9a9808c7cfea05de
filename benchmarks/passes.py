"""What else a round costs beside training: the passes of one room, as shares of its training pass.

One thread, as in a worker. Prototypes are measured over the train windows, the score over the test
windows, a quarter as many; ``reading`` is fetching and normalising the batches alone.
``contrast`` is what L_g + L_c add to a step of Large for 6 and for 100 rooms.
"""

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.training import BATCH, CLASSES, make_rooms
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
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for room in make_rooms(Path(folder), ("tiny", "middle", "large")):
            figures[room.architecture] = _shares(room)
            if room.architecture == "large":
                step = figures["large"]["train_seconds"] * BATCH / room.card.windows
    contrast = {str(rooms): round(_contrast(rooms) / step, 3) for rooms in (6, 100)}
    return {**figures, "contrast": contrast}


def _shares(room: Room) -> dict[str, float]:
    model = room.build()
    work: dict[str, Callable[[], Any]] = {
        "train": lambda: fit(model, room, cross_entropy, Training(), key=Key(0)),
        "prototypes": lambda: room.embeddings(model),
        "score": lambda: room.predict(model),
        "reading": lambda: list(map(len, room.batches(BATCH, Key(0)))),
    }
    best = dict.fromkeys(work, float("inf"))
    for _ in range(TURNS):
        for name, task in work.items():
            best[name] = min(best[name], _seconds(task))
    shares = {name: round(best[name] / best["train"], 3) for name in work if name != "train"}
    together = round((best["prototypes"] + best["score"]) / best["train"], 3)
    return {"train_seconds": round(best["train"], 4), **shares, "without_gradient": together}


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
