"""How much privacy releases cost: Gaussian releases one after the other, by Google's dp-accounting.

A release with noise multiplier z adds noise of z times its sensitivity. Several of them, each of
which may depend on what came of those before, cost exactly as much as one with multiplier
z = (Σ 1/z_k²)^(−1/2); the ε of one is the library's (the analytic Gaussian mechanism of Balle and
Wang, ICML 2018). ``learning/private.py`` makes the releases.
"""

import importlib.util
import math
from collections.abc import Sequence
from types import ModuleType
from typing import cast

import numpy as np

from fedapa.errors import PlanError

__all__ = [
    "LARGEST",
    "SMALLEST",
    "check_accountant",
    "composed",
    "epsilon_of",
    "noise_multiplier",
]

_MISSING = (
    "privacy: needs the dp-accounting package; in a checkout of fedapa: pip install '.[privacy]'"
)
SMALLEST = 1e-6
"""Noise multiplier that the costs of releases are counted for; a plan asks for 0.007 or more."""
LARGEST = 1e9
"""And the largest; a plan asks for 2.2·10⁸ or less."""


def check_accountant() -> None:
    """Refuse to begin without the library; to look for it takes less than to load it."""
    if importlib.util.find_spec("dp_accounting") is None:
        raise PlanError(_MISSING)


def composed(multipliers: Sequence[float]) -> float:
    """The noise multiplier of one release that costs as much as all of these; none is infinite."""
    cost = math.fsum(1.0 / z**2 for z in multipliers)  # μ²
    return math.inf if cost == 0.0 else 1.0 / math.sqrt(cost)


def epsilon_of(multipliers: Sequence[float], delta: float) -> float:
    """The least ε for which these releases together are (ε, δ)-differentially private."""
    together = composed(multipliers)
    if together == math.inf:
        return 0.0
    with np.errstate(all="ignore"):  # beyond an ε that matters the library divides by zero
        return float(_library().get_epsilon_gaussian(together, delta))


def noise_multiplier(epsilon: float, delta: float, releases: int) -> float:
    """The least z with which so many releases are together (ε, δ)-differentially private."""
    with np.errstate(all="ignore"):  # it looks for z among some that are far too small
        return float(_library().get_sigma_gaussian(epsilon, delta)) * math.sqrt(releases)


def _library() -> ModuleType:
    try:
        from dp_accounting import gaussian_mechanism
    except ImportError as error:
        raise PlanError(_MISSING) from error
    return cast(ModuleType, gaussian_mechanism)
