"""A model whose answers are known, and packets that say how many people they are of."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedapa.csi.capture import Capture
from fedapa.rooms.model_file import CountingModel
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
