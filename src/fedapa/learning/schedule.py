"""The cosine warm-up of the prototype losses (eqn_10)."""

import math

from fedapa.errors import PlanError

__all__ = ["warm_up"]


def warm_up(round: int, warm_rounds: int, minimum: float = 0.0, maximum: float = 1.0) -> float:
    """λ_t = λ_min + (λ_max − λ_min)/2 · (1 − cos(π·min(t, T_warm)/T_warm)).  eqn_10.

    Args:
        round: t, counted from 1.
        warm_rounds: T_warm; 0 is no warm-up, λ_max from the start.
        minimum: λ_min.
        maximum: λ_max.
    """
    if warm_rounds < 0 or round < 0:
        raise PlanError(f"warm_up: round {round} and warm_rounds {warm_rounds} must be 0 or more")
    progress = min(round, warm_rounds) / warm_rounds if warm_rounds else 1.0  # u_t
    return minimum + (maximum - minimum) / 2 * (1 - math.cos(math.pi * progress))
