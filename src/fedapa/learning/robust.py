"""Means that a few liars cannot move far: the middle, what is near it, what points where it points.

Unlike ``learning/tree.py`` and ``learning/prototypes.py``, which average whatever they are given,
these functions ask how far each room is from the others. Shapes: ``values [N, …]`` of N rooms; one
number of all rooms is a *coordinate*. N is 3 or more: of two nobody knows who lies.

Every function gives something *in place of* what a room sent, of the same shape. So they go before
any average or mixture, and the average of what they give is the robust one (docs/equations.md).
"""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "cosines",
    "cosines_of_classes",
    "cut_ends",
    "cut_number",
    "middle",
    "nearer",
    "norms",
    "spreads_below",
]

Floats: TypeAlias = npt.NDArray[np.floating[Any]]
_TO_DEVIATION = 1.4826
"""A median distance from the median, times this, is the standard deviation of normal numbers."""


def middle(values: Floats) -> Floats:
    """m, the median of every coordinate: [N, …] → […].  eq:middle."""
    return np.median(values, axis=0).astype(values.dtype)


def nearer(
    values: Floats, centre: Floats, radius: float, trust: npt.NDArray[np.float64]
) -> tuple[Floats, npt.NDArray[np.float64]]:
    """u′_i = μ + t_i (v_i − μ) with v_i = m + min(1, ρ/‖u_i − m‖) (u_i − m).  eq:nearer.

    μ = Σ t_i v_i / Σ t_i is what the trusted say: a room that is not trusted has no part in the
    plain mean of what is given back. Where nobody is trusted μ is m.

    Args:
        values: u [N, …].
        centre: m […].
        radius: ρ; infinite clips nothing.
        trust: t [N], from 0 (what the trusted say in its place) to 1 (as it came).

    Returns:
        u′ [N, …], and the shares of the way from the middle that clipping leaves [N].
    """
    apart = values - centre  # (N, …)
    distance = norms(apart)  # (N,)
    # A room that is the middle stays: 0/0 is 1 here.
    inside = distance <= radius
    shares = np.where(inside, 1.0, radius / np.where(inside, 1.0, distance))  # (N,)
    # What is near keeps its bits: m + (u − m) would round.
    near = np.where(_beside(shares, values) == 1.0, values, centre + _beside(shares, apart) * apart)
    total = trust.sum()
    said = (_beside(trust, near) * near).sum(axis=0) / total if total > 0 else centre  # μ
    weighed = _beside(trust, near)
    made = np.where(weighed == 1.0, near, said + weighed * (near - said))
    return made.astype(values.dtype), shares


def _beside(numbers: npt.NDArray[np.float64], values: Floats) -> npt.NDArray[np.float64]:
    """[N] as [N, 1, …], to be multiplied with values."""
    return numbers.reshape(-1, *[1] * (values.ndim - 1))


def cut_number(trim: float, rooms: int) -> int:
    """k, how many rooms are cut off at each end of a coordinate; one or two are left at least."""
    # 0.07 of 100 is 7.000000000000001.
    return min(int(np.ceil(round(trim * rooms, 9))), (rooms - 1) // 2)


def cut_ends(values: Floats, trim: float) -> tuple[Floats, npt.NDArray[np.float64]]:
    """The k least and the k largest of every coordinate, replaced by the mean of the rest.  eq:cut.

    The plain mean of what is given back is the trimmed mean: N values of which 2k are the mean of
    the other N − 2k. With k as large as can be it is the median.

    Returns:
        [N, …], and the share of its coordinates in which a room lies beyond all that are left [N].
        Of rooms that say the same somebody has to be cut off; nobody is blamed for it.
    """
    rooms = len(values)
    k = cut_number(trim, rooms)
    order = np.argsort(values, axis=0, kind="stable")
    kept = order[k : rooms - k]  # (N − 2k, …)
    left = np.take_along_axis(values, kept, axis=0)
    rest = left.mean(axis=0, dtype=np.float64)  # (…)
    cut = np.ones(values.shape, bool)
    np.put_along_axis(cut, kept, False, axis=0)
    made = np.where(cut, rest.astype(values.dtype), values)
    beyond = (values < left[0]) | (values > left[-1])
    return made, beyond.reshape(rooms, -1).mean(axis=1)


def cosines(values: Floats, centre: Floats) -> npt.NDArray[np.float64]:
    """cos(u_i, m) of all rooms: [N, …], […] → [N]; 0 where one of the two has no length."""
    flat, one = values.reshape(len(values), -1), centre.reshape(-1)
    # Not as a product of matrices: numpy would take every core for it.
    product = np.einsum("nd,d->n", flat, one, dtype=np.float64)
    lengths = norms(flat) * norms(one[None])[0]
    found = np.divide(product, lengths, out=np.zeros(len(flat)), where=lengths > 0)
    return np.asarray(found, np.float64)


def cosines_of_classes(own: Floats, centre: Floats) -> float:
    """The mean over classes of cos(u^c − ū, m^c − m̄): [C, D], [C, D] → 1.  eq:classes.

    ū and m̄ are the means over the classes: what all classes have in common says nothing of which
    class lies where. 0 counts where one of the two has no length.
    """
    own, centre = own - own.mean(axis=0), centre - centre.mean(axis=0)
    lengths = norms(own) * norms(centre)
    alike = np.einsum("cd,cd->c", own, centre, dtype=np.float64)
    return float(np.divide(alike, lengths, out=np.zeros(len(own)), where=lengths > 0).mean())


def norms(values: Floats) -> npt.NDArray[np.float64]:
    """‖u_i‖: [N, …] → [N]."""
    flat = values.reshape(len(values), -1)
    return np.asarray(np.sqrt(np.einsum("nd,nd->n", flat, flat, dtype=np.float64)), np.float64)


def spreads_below(scores: npt.NDArray[np.float64], least: float) -> npt.NDArray[np.float64]:
    """z_i = (med(a) − a_i) / max(s, s₀), [N]: how far a score lies below the usual.  eq:spreads.

    s = 1.4826 · med(a_j − med(a) over a_j ≥ med(a)) is the usual spread: of the upper half alone,
    since liars lie below and would widen it.

    Args:
        scores: a [N].
        least: s₀, so that rooms which agree to the last digit do not accuse each other.
    """
    usual = float(np.median(scores))
    spread = _TO_DEVIATION * float(np.median(scores[scores >= usual] - usual))
    return (usual - scores) / max(spread, least)
