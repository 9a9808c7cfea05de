"""The linear model: ridge regression of the classes on the windows, in closed form.

Hoerl and Kennard (Technometrics 1970). Each class is a target of 0 and 1; the strength of the
penalty is the one with the least squared error when every train window is left out in turn, which
the singular value decomposition of the windows gives for all strengths at once.
"""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fedapa.processes import one_thread

__all__ = ["fit_linear"]

_Floats: TypeAlias = npt.NDArray[np.float64]

_STRENGTHS = tuple(10.0 ** (step / 4) for step in range(12, -25, -1))
"""λ per window, the strongest first: of two that are as good it is taken."""
_SHARPEST = 100.0
"""At which a lead of 0.1 makes a class e¹⁰ times as probable; windows that are all right ask for
more and more."""
_HALVINGS = 60


def fit_linear(
    windows: npt.NDArray[Any], labels: npt.NDArray[np.int64], classes: int
) -> tuple[_Floats, _Floats]:
    """Weights [C, F] and bias [C] whose scores ``windows @ weights.T + bias`` sum to one.

    A class without windows has weights and bias of zero. It is never answered, because then some
    other score is above zero.

    Args:
        windows: [n, F], features of about the same spread.
        labels: [n] class indices.
        classes: C.
    """
    truth = np.eye(classes)[labels]  # (n, C)
    centre, share = windows.mean(axis=0, dtype=np.float64), truth.mean(axis=0)  # (F,), (C,)
    with one_thread():  # sums in one order: equal weights on every machine
        left, sizes, right = np.linalg.svd(windows - centre, full_matrices=False)
        aligned = left.T @ (truth - share)  # (k, C)
        best, least = sizes, np.inf  # (k,)
        for strength in _STRENGTHS:
            penalised = np.square(sizes) + strength * len(windows)  # (k,)
            kept = np.square(sizes) / penalised
            lever = 1 / len(windows) + np.square(left) @ kept  # (n,) hᵢᵢ
            residual = truth - share - left @ (kept[:, None] * aligned)  # (n, C)
            without = residual / np.maximum(1 - lever, 1e-9)[:, None]  # as if i were left out
            if (error := float(np.square(without).mean())) < least:
                best, least = sizes / penalised, error
        weights = ((right.T * best) @ aligned).T  # (C, F)
        return weights, share - weights @ centre
