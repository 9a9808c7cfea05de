"""A model whose answers are known, and packets that say how many people they are of."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedapa.csi.capture import Capture
from fedapa.rooms.model_file import CountingModel
from fedapa.service.model_watch import ModelWatch, ServedModel
from fedapa.service.sources import Piece, Source, Statistics
from fedapa.windows.normalise import Normaliser
from fedapa.windows.recipe import Recipe

SUBCARRIERS = (-3, -2, -1, 1, 2, 3)
RATE = 10.0
WINDOW = 10


@dataclass(frozen=True)
class Level:
    """Stands for onnxruntime: the mean amplitude of a window, less 1, is its number of people."""

    classes: tuple[int, ...]
    sharpness: float = 20.0

    def run(self, names: Sequence[str], given: dict[str, Any]) -> list[np.ndarray]:
        level = float(given["windows"].mean()) - 1
        logits = [-self.sharpness * abs(label - level) for label in self.classes]
        return [np.array([logits], np.float32), np.array([[level, 0.0]], np.float32)]


def level_model(
    classes: tuple[int, ...] = (0, 1, 2, 3), *, stride: int = 5, **changes: Any
) -> CountingModel:
    recipe = Recipe(
        device="test",
        bandwidth=20,
        subcarriers=SUBCARRIERS,
        link_count=1,
        packet_rate=RATE,
        window=WINDOW,
        stride=stride,
        gate=0,
        normaliser=Normaliser(np.zeros(6, np.float32), np.ones(6, np.float32)),
    )
    recipe = replace(recipe, **changes)
    return CountingModel(
        room="cafe",
        classes=classes,
        recipe=recipe,
        window_shape=(WINDOW, 6),
        answer="median",
        temperature=1.0,
        synthetic=False,
        days=(),
        prototypes=np.array([[label, 0] for label in classes], np.float32),
        present=np.ones(len(classes), np.bool_),
        classifier=(np.eye(len(classes), 2, dtype=np.float32), np.zeros(len(classes), np.float32)),
        reach=0.5,
        _session=Level(classes),
    )


def packets(
    people: Sequence[float], *, start: float = 0.0, rate: float = RATE, device: str = "test"
) -> Capture:
    """One packet for each number of people; a little noise, since nothing is ever constant."""
    count = len(people)
    noise = np.random.default_rng(count).normal(0, 0.01, (count, 6))
    amplitude = 1 + np.asarray(people, float)[:, None] + noise
    return Capture(
        csi=amplitude.astype(np.complex64)[:, :, None, None],
        timestamps=start + np.arange(count) / rate,
        rssi=np.zeros(count, np.float32),
        device=device,
        bandwidth=20,
        subcarriers=np.array(SUBCARRIERS, np.int16),
    )


class Given(Source):
    """A source that gives what a test puts into it."""

    name = "given"

    def __init__(self, *, synthetic: bool = False) -> None:
        super().__init__()
        self.synthetic = synthetic
        self.waiting: list[Piece] = []
        self.problem = ""
        self.broken: Exception | None = None

    def put(self, people: Sequence[float], at: float, **changes: Any) -> None:
        """Packets, the last of which comes at ``at``."""
        capture = packets(people, start=at - (len(people) - 1) / RATE, **changes)
        self.waiting.append(Piece(capture, at))

    def poll(self, now: float) -> list[Piece]:
        if self.broken is not None:
            raise self.broken
        given, self.waiting = self.waiting, []
        return self._given(given)

    @property
    def statistics(self) -> Statistics:
        return replace(super().statistics, problem=self.problem)


class Models(ModelWatch):
    """A watch that finds what a test puts into it."""

    def __init__(self, *models: CountingModel | Exception) -> None:
        super().__init__(Path("cafe.safetensors"))
        self.found: list[CountingModel | Exception] = list(models)
        self.round = 0

    def newer(self) -> ServedModel | None:
        if not self.found:
            return None
        first, self.problem = self.found.pop(0), ""
        if isinstance(first, Exception):
            self.problem = str(first)
            raise first
        self.round += 1
        return ServedModel(first, Path("cafe.safetensors"), "ab" * 32, "fedapa", self.round)


class Clocks:
    """A clock that never jumps and the time of the day, both as a test says."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now, self.ahead = now, 0.0

    def steady(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now + self.ahead
