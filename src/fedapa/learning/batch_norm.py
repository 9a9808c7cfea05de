"""BatchNorm statistics that follow a room while its net counts; only nets that have BatchNorm.

Mean and deviation of every channel move as a normaliser's do: (A1) to (A3) of
``fedapa.adaptation`` with the channels for F, within the same bounds.
"""

import copy

import numpy as np
import torch
from torch import Tensor, nn

from fedapa.adaptation import Adaptation, todays
from fedapa.models.model import BATCH_NORMS, Model

__all__ = ["following"]


def following(model: Model, how: Adaptation) -> Model:
    """A copy of a net, in eval mode, whose BatchNorms follow every window that it sees.

    Windows count in the order of the batches; all of a batch are taken together as that many.
    """
    follower = copy.deepcopy(model).eval()
    for module in follower.modules():
        if isinstance(module, BATCH_NORMS):
            module.register_forward_pre_hook(_Following(module, how))
    return follower


class _Following:
    """What one BatchNorm has seen; called before it normalises."""

    def __init__(self, norm: nn.Module, how: Adaptation) -> None:
        self._how = how
        mean, variance = (
            getattr(norm, name).double().cpu().numpy() for name in ("running_mean", "running_var")
        )
        self._usual = mean, np.sqrt(variance)
        self._windows, self._sums = 0.0, np.zeros((2, len(mean)))

    @torch.no_grad()
    def __call__(self, norm: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        (given,) = inputs  # (B, channels, …)
        others = [side for side in range(given.ndim) if side != 1]
        seen = [given.mean(dim=others), given.square().mean(dim=others)]
        number = len(given)
        kept = (1 - 1 / self._how.memory) ** number
        self._windows = kept * self._windows + number
        told = np.stack([values.double().cpu().numpy() for values in seen])  # (2, channels)
        self._sums = kept * self._sums + number * told  # A1
        mean, deviation = todays(self._how, self._usual, self._windows, self._sums)
        for name, values in (("running_mean", mean), ("running_var", np.square(deviation))):
            buffer = getattr(norm, name)
            buffer.copy_(torch.from_numpy(values))
