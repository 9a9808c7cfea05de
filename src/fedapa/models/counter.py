"""CounterNet: our own small net for a window's statistics, made not to learn recordings by heart.

Unlike ``FeatureMLP`` it drops values in training, and no number counts beyond four deviations: a
stranger's window then cannot be further off than anything seen. docs/counting.md says which designs
it was chosen from.
"""

import math
from collections import OrderedDict

import torch
from torch import nn

from fedapa.models.model import Model, Scale

__all__ = ["CounterNet"]

_HIDDEN = 128
_MOST = 150_000
"""Parameters: what a Raspberry Pi counts with in passing."""
_FEWEST = 4
_USUAL = 169
"""Numbers with which learning rates were chosen."""
_FARTHEST = 4.0
_DROPPED_NUMBERS, _DROPPED = 0.1, 0.5


class CounterNet(Model):
    """Numbers [B, F], cut at ±4 → 128 → ReLU → width → ReLU, then the classifier.

    Where F is large the first layer has fewer than 128, so that there are 150,000 parameters at
    most. A step of SGD changes what that layer makes by the learning rate times |x|², which grows
    with F; with s = √(169 / F) the numbers are multiplied and the initial weights divided by s:
    the same function at first, and steps as with 169 numbers.
    """

    architecture = "counter"

    def __init__(
        self,
        classes: int = 21,
        width: int = 256,
        *,
        features: int,
        normalise_embedding: bool = False,
    ) -> None:
        left = _MOST - width - (width + 1) * classes
        hidden = max(_FEWEST, min(_HIDDEN, left // (features + 1 + width)))
        first = nn.Linear(features, hidden)
        share = math.sqrt(_USUAL / features)
        scaled = {}
        if features > _USUAL:
            scaled["scale"] = Scale(share)
            with torch.no_grad():
                first.weight /= share
        encoder = nn.Sequential(
            OrderedDict(
                cut=nn.Hardtanh(-_FARTHEST, _FARTHEST),
                drop=nn.Dropout(_DROPPED_NUMBERS),
                **scaled,
                first=first,
                first_relu=nn.ReLU(),
                first_drop=nn.Dropout(_DROPPED),
                second=nn.Linear(hidden, width),
                second_relu=nn.ReLU(),
                second_drop=nn.Dropout(_DROPPED),
            )
        )
        super().__init__(
            encoder, classes=classes, width=width, normalise_embedding=normalise_embedding
        )
