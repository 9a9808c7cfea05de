"""Was this recording used for training? Asked of prototypes, and of weights.

A prototype is a mean of embeddings, p = Σ w_i z_i with w_i > 0 for the recordings in it (eqn_4).
Whoever has an encoder can embed a recording himself, and cuts its embeddings before their mean
where rooms do. With the one recording alone he asks how near its embedding z lies to p. With all
recordings of that room and count, those that were used and those that were not, he solves for the
w_i: the *regression*; rounds are further equations for the same w_i. Of weights he asks how small
the loss of the recording is, alone or against nets of other rooms.

Someone without the room's encoder takes that of a room of his own, and moves its embeddings to the
other room's by what both rooms' prototypes of other classes tell (``aligned``).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

__all__ = ["aligned", "likeness", "nearness", "regression"]

_Floats = npt.NDArray[np.float64]
_SUM = 1.0
"""How much it counts in the regression that all weights sum to one, against the spread of z."""


def nearness(candidates: _Floats, prototype: _Floats) -> _Floats:
    """−‖z − p‖² of each candidate.

    Args:
        candidates: z [candidates, D].
        prototype: p [D].
    """
    return np.asarray(-np.square(candidates - prototype).sum(axis=1), np.float64)


def regression(candidates: Sequence[_Floats], prototypes: Sequence[_Floats]) -> _Floats:
    """The weights w ≥ 0 with p_t ≈ Σ_i w_i z_ti in all rounds t, least squares: [candidates].

    Both sides are taken from the mean of the candidates and divided by their spread, since what
    all of them have in common tells nobody apart and would drown what does. Σ w = 1 is one more
    equation.

    Args:
        candidates: z_t [candidates, D] of each round.
        prototypes: p_t [D] of each round.
    """
    rows, right = [], []
    for embeddings, prototype in zip(candidates, prototypes, strict=True):
        middle = embeddings.mean(axis=0)
        scale = float(np.sqrt(np.square(embeddings - middle).sum(axis=1).mean())) or 1.0
        rows.append((embeddings - middle).T / scale)  # (D, candidates)
        right.append((prototype - middle) / scale)
    number = candidates[0].shape[0]
    rows.append(np.full((1, number), _SUM))
    right.append(np.full(1, _SUM))
    # The same least squares in as many equations as there are candidates.
    turned, triangle = np.linalg.qr(np.concatenate(rows))
    weights, _ = nnls(triangle, turned.T @ np.concatenate(right), maxiter=30 * number)
    return np.asarray(weights, np.float64)


def aligned(
    embeddings: _Floats,
    own: _Floats,
    theirs: _Floats,
    *,
    strength: float = 1.0,
) -> _Floats:
    """Embeddings by one's own encoder as another room's would be, by both rooms' prototypes.

    r becomes r + (r − o) W + t − o with the means o and t over own and their prototypes, and W of a
    ridge regression of (theirs − t) − (own − o) on own − o: a shift where there is little to learn
    from, and nothing at all where both rooms have the same prototypes.

    Args:
        embeddings: r [n, D].
        own: prototypes [classes, D] of classes that both rooms sent, of one's own room.
        theirs: those of the other room.
        strength: of the ridge, in mean squares of own − ō; more is nearer to a shift.
    """
    if not len(own):
        return embeddings
    here, there = own.mean(axis=0), theirs.mean(axis=0)
    spread, wanted = own - here, theirs - there - (own - here)  # (classes, D)
    gram = spread @ spread.T  # (classes, classes)
    ridge = strength * max(float(np.trace(gram)) / len(own), 1e-12)
    turned = spread.T @ np.linalg.solve(gram + ridge * np.eye(len(own)), wanted)  # W (D, D)
    return np.asarray(embeddings + (embeddings - here) @ turned + (there - here), np.float64)


def likeness(losses: _Floats, references: _Floats | None = None) -> _Floats:
    """−loss of each candidate, averaged over rounds; with references how much below theirs it is.

    Args:
        losses: [rounds, candidates] by the room's own nets.
        references: [nets, candidates] by nets that never saw the room.
    """
    mean = losses.mean(axis=0)
    return np.asarray(-mean if references is None else references.mean(axis=0) - mean, np.float64)
