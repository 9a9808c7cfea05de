"""Random forest: many decision trees on the room's own features; a control, not federated.

By default they are extra trees: every tree sees all train windows and parts them at random
thresholds, of which it takes the best; Breiman's forest (Machine Learning 2001) looks for the best
threshold in a bootstrap of the windows. A window is answered with the mean of the class shares in
the leaves that it falls into. Unlike the linear model it can bend; it cannot be saved.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from fedapa.algorithms.algorithm import Group
from fedapa.algorithms.once import FitOnce, held_classes
from fedapa.learning.fit import PositiveInteger
from fedapa.learning.forest import Thresholds, grow_forest
from fedapa.learning.tree import NamedArrays
from fedapa.models.forest import Forest
from fedapa.randomness import Key
from fedapa.rooms.room import Room

__all__ = ["RandomForest"]


@dataclass(frozen=True)
class RandomForest(FitOnce):
    """Trees are flat arrays in the room's state."""

    name: ClassVar[str] = "forest"
    title: ClassVar[str] = "Random forest"
    citation: ClassVar[str] = "Geurts, Ernst and Wehenkel, Machine Learning 2006"
    paper: ClassVar[str] = "Extremely randomized trees"
    year: ClassVar[int] = 2006
    group: ClassVar[Group] = "control"

    trees: PositiveInteger = 300
    """How many."""
    thresholds: Thresholds = "random"
    """Where a tree parts windows: `random` is extra trees, `best` is Breiman's random forest."""

    def fitted(self, room: Room, key: Key) -> Forest:
        """Trees grown from the room's stream."""
        windows, labels = (part.cpu().numpy() for part in room.tensors(room.split.train))
        return self.restored(
            grow_forest(
                windows,
                labels,
                len(room.classes),
                trees=self.trees,
                thresholds=self.thresholds,
                key=key,
            )
        )

    def unfitted(self, room: Room) -> Forest:
        """One tree that is one leaf."""
        held = held_classes(room)
        shares = held[None] / held.sum()  # (1, C)
        nodes = {name: np.zeros(1, np.int32) for name in ("roots", "left", "right")}
        feature = np.full(1, -1, np.int32)
        return self.restored(
            {**nodes, "feature": feature, "threshold": np.zeros(1), "shares": shares.astype("f4")}
        )

    def restored(self, arrays: NamedArrays) -> Forest:
        """The forest of a state."""
        return Forest(**{name: torch.tensor(values) for name, values in arrays.items()})
