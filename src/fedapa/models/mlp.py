"""FeatureMLP: two fully connected layers for rooms whose data are feature vectors, not packets."""

from collections import OrderedDict

from torch import nn

from fedapa.models.model import Model

__all__ = ["FeatureMLP"]

_HIDDEN = 256


class FeatureMLP(Model):
    """Features [B, F] → 256 → ReLU → width → ReLU, then the classifier."""

    architecture = "mlp"

    def __init__(
        self,
        classes: int = 21,
        width: int = 256,
        *,
        features: int,
        normalise_embedding: bool = False,
    ) -> None:
        encoder = nn.Sequential(
            OrderedDict(
                first=nn.Linear(features, _HIDDEN),
                first_relu=nn.ReLU(),
                second=nn.Linear(_HIDDEN, width),
                second_relu=nn.ReLU(),
            )
        )
        super().__init__(
            encoder, classes=classes, width=width, normalise_embedding=normalise_embedding
        )
