"""Whose prototypes are these? A set without a name against sets with one.

Two sets are as alike as the mean cosine of their prototypes, over the classes that both have, after
the mean of all known sets was taken away class by class: what all have in common names nobody. The
set is then named after the known set that it is most like.
"""

import numpy as np
import numpy.typing as npt

__all__ = ["alike", "masks_alike"]

_Floats = npt.NDArray[np.float64]
_Mask = npt.NDArray[np.bool_]


def alike(unknown: _Floats, has: _Mask, known: _Floats, have: _Mask) -> _Floats:
    """[U, K] mean cosine of sets over shared classes; 0 where they share none.

    Args:
        unknown: [U, C, D].
        has: [U, C] which of them are real.
        known: [K, C, D].
        have: [K, C].
    """
    holders = np.maximum(have.sum(axis=0), 1)[:, None]  # (C, 1)
    middle = (known * have[:, :, None]).sum(axis=0) / holders  # (C, D)
    one, other = _directions(unknown - middle, has), _directions(known - middle, have)
    cosines = np.einsum("ucd,kcd->uk", one, other)
    return np.asarray(cosines / np.maximum(_shared(has, have), 1), np.float64)


def _directions(sets: _Floats, mask: _Mask) -> _Floats:
    """Prototypes of length one; absent ones and those without a direction are zero."""
    length = np.linalg.norm(sets, axis=2, keepdims=True)
    there = mask[:, :, None] & (length > 1e-12)
    return np.where(there, sets / np.where(there, length, 1.0), 0.0)


def _shared(has: _Mask, have: _Mask) -> _Floats:
    """[U, K] how many classes both have."""
    return np.asarray(has.astype(np.float64) @ have.T, np.float64)


def masks_alike(has: _Mask, have: _Mask) -> _Floats:
    """[U, K] by which classes were sent alone: those that both have, of those that either has."""
    both = _shared(has, have)
    either = has.sum(axis=1)[:, None] + have.sum(axis=1)[None] - both
    return np.asarray(both / np.maximum(either, 1), np.float64)
