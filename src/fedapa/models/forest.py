"""Forest: decision trees as flat arrays; a counter that is no net.

All trees stand one behind another in the same arrays, so that they fit into a state and nothing is
pickled. ``fedapa.learning.forest`` grows them.
"""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedapa.models import kernels
from fedapa.models.model import Counter

__all__ = ["Forest"]

_LEAST = 1e-3
"""A share below it counts as this: a forest that never saw a case is not certain of it."""
_ARRAYS = ("roots", "feature", "threshold", "left", "right", "shares")


class Forest(Counter):
    """The mean of what its trees say: each, the class shares of the leaf that a window falls into.

    Args:
        roots: [trees] the first node of each tree.
        feature: [nodes] which number of a window a node looks at; −1 is a leaf.
        threshold: [nodes] up to which a window goes left.
        left: [nodes] where to; in a leaf the row of its shares.
        right: [nodes] where to otherwise.
        shares: [leaves, C] how the train windows of a leaf are shared among classes.
    """

    unsaved: ClassVar[str] = (
        "a forest cannot be saved as a model file: its trees have no ONNX form here; use algorithm "
        "= 'linear' or a net for what is to count elsewhere"
    )

    def __init__(
        self,
        *,
        roots: Tensor,
        feature: Tensor,
        threshold: Tensor,
        left: Tensor,
        right: Tensor,
        shares: Tensor,
    ) -> None:
        super().__init__()
        given = (roots, feature, threshold, left, right, shares)
        for name, values in zip(_ARRAYS, given, strict=True):
            self.register_buffer(name, values)

    def probabilities(self, windows: Tensor) -> Tensor:
        """The mean over trees, [B, C]; summed in the order of the trees."""
        roots, feature, threshold, left, right, shares = (
            self.get_buffer(name).cpu().numpy() for name in _ARRAYS
        )
        made = np.zeros((len(windows), shares.shape[1]))  # (B, C)
        seen = windows.cpu().numpy()
        kernels.mean_shares(seen, roots, feature, threshold, left, right, shares, made)
        return torch.from_numpy(made).to(windows.device)

    def scores(self, windows: Tensor) -> Tensor:
        """The logarithm of the mean over trees, [B, C]; a class that no tree names is far below."""
        return self.probabilities(windows).clamp_min(_LEAST).log()
