"""LinearNet: a net without an encoder; the classifier sees the window's numbers themselves."""

from torch import Tensor, nn

from fedapa.models.model import Model
from fedapa.randomness import Key

__all__ = ["LinearNet"]


class LinearNet(Model):
    """Features [B, F] → logits: its embedding is the window, as wide as that.

    Args:
        weights: [C, F].
        bias: [C].
    """

    architecture = "classifier"

    def __init__(self, weights: Tensor, bias: Tensor) -> None:
        classes, features = weights.shape
        with Key(0).as_torch_default():  # layers draw first weights; nobody else's stream may move
            super().__init__(nn.Sequential(), classes=classes, width=features)
        self.classifier.load_state_dict({"weight": weights, "bias": bias})
