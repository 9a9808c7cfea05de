"""Alignment: prototypes of one net in the axes of another, by the classes that both have.

Two nets that were trained apart embed the same count in different directions, so their prototypes
cannot be averaged. But classes that both hold are points known in both embeddings, and a rotation
with a scale between them carries other classes over, as far as those lie where the shared ones do.
"""

import numpy as np
import numpy.typing as npt

from fedapa.errors import DataError

__all__ = ["FEWEST_SHARED", "align_prototypes"]

FEWEST_SHARED = 2
"""Classes that both must have: one gives no direction."""

_SMALLEST = 1e-6
"""Of the largest singular value: what is below is no direction that shared classes differ in."""


def align_prototypes(
    theirs: npt.NDArray[np.float32], ours: npt.NDArray[np.float32], shared: npt.NDArray[np.bool_]
) -> npt.NDArray[np.float32]:
    """Orthogonal Procrustes with a scale: q^c = μ + s·(p^c − ν)·R for every class c.

    With B [S, E] their and A [S, D] our prototypes of the shared classes, less their means ν and μ:
    Bᵀ·A = U·Σ·Vᵀ, R = U·Vᵀ over the singular values that are not zero, and s = tr Σ / ‖B·R‖²,
    which minimises ‖s·B·R − A‖. What of p^c − ν is in no direction that shared classes differ in is
    lost.

    Args:
        theirs: P [C, E].
        ours: [C, D], another net's of the same classes.
        shared: [C], the classes that both have.

    Returns:
        [C, D], theirs in our axes.
    """
    if shared.sum() < FEWEST_SHARED:
        raise DataError(f"{shared.sum()} shared classes: at least {FEWEST_SHARED} are needed")
    source, target = theirs.astype(np.float64), ours.astype(np.float64)
    nu, mu = source[shared].mean(axis=0), target[shared].mean(axis=0)  # (E,), (D,)
    given, wanted = source[shared] - nu, target[shared] - mu  # (S, E), (S, D)
    left, sizes, right = np.linalg.svd(given.T @ wanted, full_matrices=False)
    kept = sizes > _SMALLEST * sizes.max(initial=0.0)
    if not kept.any():  # shared classes lie in one point: there is no direction to follow
        return np.broadcast_to(mu, ours.shape).astype(np.float32)
    rotation = left[:, kept] @ right[kept]  # R (E, D)
    scale = sizes[kept].sum() / np.square(given @ rotation).sum()  # s
    return np.asarray(mu + scale * (source - nu) @ rotation, np.float32)
