"""Linear model: ridge regression on the room's own features; a control, not federated.

Every class is a target of 0 and 1, the penalty is chosen by leaving each train window out in turn,
and the scores are sharpened on validation windows (train windows where there are none) before
their softmax. What is deployed is a net without hidden layers, so it can be saved and served.
Unlike the forest it cannot bend.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from fedapa.algorithms.algorithm import Group
from fedapa.algorithms.once import FitOnce, held_classes
from fedapa.answers import fit_temperature
from fedapa.learning.linear import fit_linear
from fedapa.learning.tree import NamedArrays
from fedapa.models.linear import LinearNet
from fedapa.models.model import NEVER
from fedapa.randomness import Key
from fedapa.rooms.room import Room

__all__ = ["Linear"]


@dataclass(frozen=True)
class Linear(FitOnce):
    """Coefficients are the weights of a classifier on the window itself."""

    name: ClassVar[str] = "linear"
    title: ClassVar[str] = "Linear model"
    citation: ClassVar[str] = "Hoerl and Kennard, Technometrics 1970"
    paper: ClassVar[str] = "Ridge Regression: Biased Estimation for Nonorthogonal Problems"
    year: ClassVar[int] = 1970
    group: ClassVar[Group] = "control"

    def fitted(self, room: Room, key: Key) -> LinearNet:
        """Ridge regression; nothing is drawn."""
        held = np.flatnonzero(held_classes(room))
        windows, labels = (part.cpu().numpy() for part in room.tensors(room.split.train))
        weights, bias = fit_linear(windows, labels, len(room.classes))
        asked = room.split.validation
        asked = asked[np.isin(room.labels[asked], held)]
        windows = room.tensors(asked if len(asked) else room.split.train)[0].cpu().numpy()
        labels = room.labels[asked if len(asked) else room.split.train]
        scores = windows @ weights[held].T + bias[held]  # (n, held)
        factor = 1 / fit_temperature(scores, np.searchsorted(held, labels))
        return _net(room, factor * weights, factor * bias)

    def unfitted(self, room: Room) -> LinearNet:
        """Weights of zero."""
        sides = len(room.classes), room.windows.shape[1]
        return _net(room, np.zeros(sides), np.zeros(sides[0]))

    def restored(self, arrays: NamedArrays) -> LinearNet:
        """The net of a state."""
        weights, bias = (arrays[f"classifier.{name}"] for name in ("weight", "bias"))
        return LinearNet(torch.tensor(weights), torch.tensor(bias))


def _net(room: Room, weights: npt.NDArray[np.float64], bias: npt.NDArray[np.float64]) -> LinearNet:
    """Weights [C, F] and bias [C] as a net that answers no class which the room never saw."""
    kept = np.where(held_classes(room), bias, NEVER)
    return LinearNet(torch.tensor(weights).float(), torch.tensor(kept).float())
