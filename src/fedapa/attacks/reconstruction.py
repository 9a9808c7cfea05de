"""What did the windows of a class look like on average? Asked of a prototype and its encoder.

x̂ = argmin_x ‖f(x) − p‖²/‖p‖² + ν·‖x − x₀‖²/(2·numbers in x), by L-BFGS on the gradient of x. It
finds one window that has the prototype as its embedding; the mean window x̄ need not have it, since
f is not linear and p is the mean of f, not f of the mean. Its error is in shares of x̄, and windows
are normalised: the mean of all windows is 0 then, so an error of 1 is that of somebody who knows
that mean alone. Where embeddings were cut before they were averaged (``learning/private.py``), f is
the encoder with that cut: its length is in the plan, which is no secret.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedapa.learning.private import clipped
from fedapa.models.model import Model

__all__ = ["Likeness", "compare_windows", "reconstruct"]

_STEPS = 100


@dataclass(frozen=True)
class Likeness:
    """How near a window is to the true one."""

    error: float
    """‖x̂ − x̄‖ / ‖x̄‖."""
    correlation: float
    """Of the numbers of x̂ with those of x̄; 0 where one of them does not change."""


def reconstruct(
    model: Model,
    prototypes: Tensor,
    start: Tensor,
    *,
    clip: float | None = None,
    nearness: float = 1e-3,
    steps: int = _STEPS,
) -> Tensor:
    """A window for each prototype, normalised as the model's windows are.

    Args:
        model: the encoder, in eval mode while this lasts.
        prototypes: p [C, D].
        start: x₀ [C, …] where the search begins and what it stays near to.
        clip: the length that embeddings were cut to before the mean; none where they were not.
        nearness: ν.
        steps: of L-BFGS, at most.
    """
    was_training = model.training
    model.eval()
    window = start.clone().requires_grad_(True)
    size = prototypes.square().sum(dim=1).clamp(min=1e-12)  # (C,)
    search = torch.optim.LBFGS(
        [window], max_iter=steps, history_size=20, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        search.zero_grad()
        apart = (clipped(model.embed(window), clip) - prototypes).square().sum(dim=1) / size
        moved = (window - start).square().flatten(1).mean(dim=1) / 2
        total = (apart + nearness * moved).sum()
        (window.grad,) = torch.autograd.grad(total, [window])
        return total.detach()

    search.step(loss)  # type: ignore[no-untyped-call]
    model.train(was_training)
    return window.detach()


def compare_windows(found: Tensor, true: Tensor) -> Likeness:
    """How near a found window is to the true one, both of one shape."""
    error = (found - true).norm() / true.norm().clamp(min=1e-12)
    sides = [values.flatten() - values.mean() for values in (found, true)]
    length = sides[0].norm() * sides[1].norm()
    correlation = (sides[0] @ sides[1]) / length if length > 0 else torch.zeros(())
    return Likeness(float(error), float(correlation))
