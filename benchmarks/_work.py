"""What is compared with peers: some work, rooms of noise for it, and the batches of a round.

How fast a net is does not depend on values. Every program reads the same files.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedapa.randomness import Key

__all__ = ["BATCH", "CLASSES", "WIDTH", "WORKS", "Work", "batches", "read_room", "write_rooms"]

CLASSES, BATCH, WIDTH = 21, 16, 256


@dataclass(frozen=True)
class Work:
    """Rooms that learn: how many, what their windows are, which net, by which algorithm."""

    rooms: int
    shape: tuple[int, ...]
    train: int
    """Windows of a room to train on."""
    test: int
    """Windows of a room to score."""
    net: str
    algorithm: dict[str, Any]
    rounds: int = 1
    """In a turn."""


_FEDAPA = {"name": "fedapa", "warm_rounds": 1}
_SMALL = {"rooms": 6, "shape": (125, 56), "train": 111, "test": 41}
_PAPER = {"rooms": 6, "shape": (1000, 242), "train": 32, "test": 8}
WORKS = {
    "quick_large": Work(**_SMALL, net="large", algorithm=_FEDAPA),
    "quick_middle": Work(**_SMALL, net="middle", algorithm=_FEDAPA),
    "quick_tiny": Work(**_SMALL, net="tiny", algorithm=_FEDAPA),
    "features": Work(6, (85,), 111, 41, "mlp", _FEDAPA, rounds=20),
    "paper_large": Work(**_PAPER, net="large", algorithm=_FEDAPA),
    "paper_middle": Work(**_PAPER, net="middle", algorithm=_FEDAPA),
    "paper_tiny": Work(**_PAPER, net="tiny", algorithm=_FEDAPA),
    "rooms_100": Work(100, (125, 56), 23, 6, "large", {"name": "fedavg"}),
    "rooms_1000": Work(1000, (85,), 24, 8, "mlp", {**_FEDAPA, "peers": 10}),
}
"""Test windows are 0.37 of the train windows, as in the simulated rooms, where the windows are
small; a quarter with the paper's windows, as in ``training``."""


def write_rooms(work: Work, folder: Path) -> None:
    """A file per room: its windows, the train windows first."""
    for number in range(work.rooms):
        stream = (Key(0) / "benchmark" / "peers" / number).numpy()
        size = (work.train + work.test, *work.shape)
        np.save(_file(folder, number), stream.normal(size=size).astype(np.float32))


def read_room(folder: Path, number: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Windows, mapped, and their classes."""
    windows = np.load(_file(folder, number), mmap_mode="r")
    return windows, np.arange(len(windows)) % CLASSES


def _file(folder: Path, number: int) -> Path:
    return folder / f"{number:04d}.npy"


def batches(windows: int) -> list[int]:
    """How many windows go through a net at a time; a last one joins its neighbour."""
    whole, rest = divmod(windows, BATCH)
    if rest == 1 and whole:
        return [BATCH] * (whole - 1) + [BATCH + 1]
    return [BATCH] * whole + ([rest] if rest else [])
