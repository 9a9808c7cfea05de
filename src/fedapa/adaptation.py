"""Adaptation: a counter that follows its room from day to day, without labels; numpy only.

Furniture is moved, a receiver's gain is another one: windows of the same people then lie elsewhere
than in training. Three things can follow them while it counts. F are the numbers of a packet (or
the features), C the classes, D the width of the embedding; μ, σ [F] are the trained normaliser,
p [C, D] the prototypes, W [C, D] and b [C] the classifier, x a window, z [D] its embedding.

*Normaliser.* Running statistics of all windows, x̄ and the mean of x² over its packets, both [F],
with forgetting φ = 1 − 1/memory and the trained ones as ``inertia`` ι further windows::

    n ← φ·n + 1    s ← φ·s + x̄    r ← φ·r + mean x²                                    (A1)
    m = (ι·μ + s)/(ι + n)    d² = (ι·(σ² + μ²) + r)/(ι + n) − m²                       (A2)
    m within μ ± farthest·σ    d within σ/stretch … σ·stretch                          (A3)
    the net sees (x − m)/d, that is the window (x − m)·σ/d + μ                         (A4)

It asks nobody what the windows show: where a room stays full for as long as the memory lasts, full
becomes usual. It is for rooms whose counts change within that time. BatchNorm has such a mean and
deviation in every channel, and they can follow in the same way (``fedapa.learning.batch_norm``,
which needs torch).

*Prototypes.* What the counter takes a window for, q [C] = softmax((W·(z − v) + b)/T), says which
prototype it should lie at; the day's shift v [D] is the mean over classes of how far it does not::

    N_c ← (1 − q_c/M)·N_c + q_c    S_c ← (1 − q_c/M)·S_c + q_c·z                       (A5)
    v = mean over c of N_c/(N_c + κ)·(S_c/N_c − p_c)                                   (A6)
    |v| at most margin · mean over c of |p_c − the prototype nearest to it|            (A7)

Each class counts once, however many windows it had, so a day with other counts than the days of
training has no shift for that reason; one that was not seen yet counts as unmoved.

*Empty.* The same with the empty room alone as anchor: q is 1 for it where its probability is at
least ``confidence``, else 0, and the mean in (A6) is of that one class.

An error could feed itself: a window wrongly taken for empty moves v towards it, so that the next
and fuller one is taken for empty, too. (A3) and (A7) end that: nothing moves further from what was
trained than its bounds, whatever comes. tests/test_adaptation.py shows both.

Everything here needs a model file and no training window. State is returned, never changed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fedapa.answers import probabilities_of

__all__ = [
    "Adaptation",
    "Embed",
    "Followed",
    "Recentre",
    "Trained",
    "begin",
    "follow",
    "follow_all",
    "net_input",
    "recentred",
    "shift_of",
    "taught",
    "todays",
]

Recentre: TypeAlias = Literal["no", "empty", "prototypes"]
_Floats: TypeAlias = npt.NDArray[np.float64]
_Index: TypeAlias = npt.NDArray[np.int64]
_Mask: TypeAlias = npt.NDArray[np.bool_]
Embed: TypeAlias = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.floating]]
"""Windows [B, …] → embeddings [B, D]."""

_STEPS, _RATE = 30, 0.3
"""Of the classifier, where some windows have labels."""
_LEAST = 1e-30
"""A probability of 0 in float32 has a logarithm, too."""
_FEW = 2.0
"""Labelled windows that the trained place counts as."""


@dataclass(frozen=True)
class Adaptation:
    """What follows the room, and how far; the default is nothing.

    Numbers were chosen on validation days of simulated rooms of seed 4 (docs/decisions/0091).
    """

    normaliser: bool = False
    """Whether mean and deviation of the input follow."""
    recentre: Recentre = "no"
    """What the embeddings are re-centred by: nothing, the empty room, or all prototypes."""
    memory: float = 300.0
    """Windows after which the normaliser has forgotten most."""
    inertia: float = 30.0
    """ι: windows that the trained normaliser counts as."""
    farthest: float = 1.0
    """Deviations that the mean of an input may move."""
    stretch: float = 1.5
    """Times that its deviation may grow or shrink."""
    class_memory: float = 100.0
    """M: windows of a class after which its place is forgotten."""
    class_inertia: float = 2.0
    """κ: windows that a trained prototype counts as."""
    confidence: float = 0.5
    """The probability of an empty room from which a window is taken for one."""
    margin: float = 0.5
    """Share of the way to the nearest prototype that embeddings may be moved; half is the
    border."""

    @property
    def is_off(self) -> bool:
        """Whether nothing follows."""
        return not self.normaliser and self.recentre == "no"


@dataclass(frozen=True, eq=False)
class Trained:
    """What was trained, as a model file has it."""

    mean: _Floats
    """μ [F]."""
    deviation: _Floats
    """σ [F]."""
    prototypes: _Floats
    """p [C, D]; zero where ``present`` says no."""
    present: _Mask
    """[C]."""
    weight: _Floats
    """W [C, D]."""
    bias: _Floats
    """b [C]."""
    temperature: float
    """T."""
    empty: int | None
    """The class of nobody; none where there is no such class, or no prototype of it."""

    @property
    def margin(self) -> float:
        """Mean over the prototypes of the distance to the nearest other; 0 with one of them."""
        own = self.prototypes[self.present]
        apart = np.linalg.norm(own[:, None] - own[None], axis=2)  # (C, C)
        np.fill_diagonal(apart, np.inf)
        nearest = apart.min(axis=1)
        return float(nearest.mean()) if np.isfinite(nearest).all() else 0.0


@dataclass(frozen=True, eq=False)
class Followed:
    """What a counter has seen since it was trained."""

    windows: float
    """n."""
    inputs: _Floats
    """[2, F]: s and r."""
    members: _Floats
    """N [C]."""
    places: _Floats
    """S [C, D]."""
    reach: float
    """How far embeddings may be moved at a margin of one."""


def begin(trained: Trained) -> Followed:
    """Nothing seen yet."""
    return Followed(
        0.0,
        np.zeros((2, len(trained.mean))),
        np.zeros(len(trained.prototypes)),
        np.zeros(trained.prototypes.shape),
        trained.margin,
    )


def follow(
    how: Adaptation,
    trained: Trained,
    state: Followed,
    window: npt.NDArray[np.floating],
    embed: Embed,
) -> tuple[_Floats, Followed]:
    """The probabilities [C] of one window, and what is known after it.

    Args:
        how: what follows.
        trained: the counter as it was trained.
        state: of all windows before.
        window: [packets, F] or [F], as the recipe makes it.
        embed: the trained net.
    """
    if not np.isfinite(window).all():  # it says nothing, and must not be remembered
        return np.full(len(trained.bias), 1 / len(trained.bias)), state
    if how.normaliser:
        state = _with_input(how, state, window)
        window = net_input(how, trained, state, window)
    embedding = np.asarray(embed(window[None].astype(np.float32))[0], np.float64)  # z (D,)
    shift = shift_of(how, trained, state)
    scores = trained.weight @ (embedding - shift) + trained.bias
    probabilities = probabilities_of(scores, trained.temperature)
    if how.recentre == "no":
        return probabilities, state
    return probabilities, _with_place(how, trained, state, embedding, probabilities)


def recentred(
    how: Adaptation,
    trained: Trained,
    state: Followed,
    embedding: npt.NDArray[np.floating],
    told: npt.NDArray[np.floating],
) -> tuple[_Floats, Followed]:
    """What ``follow`` does with embeddings, for a window that the trained net has told already.

    Since W·(z − v) + b are the net's own scores less W·v, probabilities become ∝ p · exp(−W·v/T);
    with no shift they are those that were told, to the bit.

    Args:
        how: what follows; of the input nothing does here.
        trained: the counter as it was trained.
        state: of all windows before.
        embedding: z [D] of the window.
        told: [C] its probabilities by the trained net.
    """
    shift, probabilities = shift_of(how, trained, state), np.asarray(told, np.float64)
    if shift.any():
        scores = np.log(np.maximum(probabilities, _LEAST)) - trained.weight @ shift / (
            trained.temperature
        )
        probabilities = probabilities_of(scores)
    place = np.asarray(embedding, np.float64)
    return probabilities, _with_place(how, trained, state, place, probabilities)


def follow_all(
    how: Adaptation,
    trained: Trained,
    state: Followed,
    windows: npt.NDArray[np.floating],
    embed: Embed,
) -> tuple[_Floats, Followed]:
    """Probabilities [B, C] of windows [B, …] in the order in which they came, and what is known."""
    told = np.empty((len(windows), len(trained.bias)))
    for place, window in enumerate(windows):
        told[place], state = follow(how, trained, state, window, embed)
    return told, state


def _with_input(how: Adaptation, state: Followed, window: npt.NDArray[np.floating]) -> Followed:
    rows = np.asarray(window, np.float64).reshape(-1, state.inputs.shape[1])  # (packets, F)
    kept = 1 - 1 / how.memory  # φ
    seen = np.stack([rows.mean(axis=0), np.square(rows).mean(axis=0)])  # (2, F)
    return replace(state, windows=kept * state.windows + 1, inputs=kept * state.inputs + seen)  # A1


def net_input(
    how: Adaptation, trained: Trained, state: Followed, window: npt.NDArray[np.floating]
) -> _Floats:
    """The window that the trained normaliser makes of it what today's would."""
    usual, spread = trained.mean, trained.deviation
    mean, deviation = todays(how, (usual, spread), state.windows, state.inputs)
    return np.asarray((window - mean) * (spread / deviation) + usual)  # A4


def todays(
    how: Adaptation, usual: tuple[_Floats, _Floats], windows: float, sums: _Floats
) -> tuple[_Floats, _Floats]:
    """Mean and deviation of today within their bounds, each [F].

    Args:
        how: how far they may go.
        usual: μ and σ [F], as trained.
        windows: n, as far as they are remembered.
        sums: [2, F], s and r.
    """
    trained, spread = usual
    whole = how.inertia + windows
    mean, square = (how.inertia * np.stack([trained, spread**2 + trained**2]) + sums) / whole
    deviation = np.sqrt(np.maximum(square - mean**2, 0.0))  # A2
    limit = how.farthest * spread
    mean = np.clip(mean, trained - limit, trained + limit)
    return mean, np.clip(deviation, spread / how.stretch, spread * how.stretch)  # A3


def shift_of(how: Adaptation, trained: Trained, state: Followed) -> _Floats:
    """How far today's embeddings lie from where they were trained, v [D], within its bound."""
    classes = _anchors(how, trained)
    seen = classes & (state.members > 0)
    if not seen.any():
        return np.zeros(trained.prototypes.shape[1])
    members = state.members[seen]
    moved = state.places[seen] / members[:, None] - trained.prototypes[seen]  # (seen, D)
    trust = members / (members + how.class_inertia)
    shift: _Floats = trust @ moved / classes.sum()  # A6
    length, limit = float(np.linalg.norm(shift)), how.margin * state.reach
    return shift if length <= limit else shift * (limit / length)  # A7


def _anchors(how: Adaptation, trained: Trained) -> _Mask:
    """[C] the classes by which embeddings are re-centred."""
    if how.recentre == "prototypes":
        return trained.present
    chosen = np.zeros(len(trained.present), bool)
    if how.recentre == "empty" and trained.empty is not None:
        chosen[trained.empty] = True
    return chosen


def _with_place(
    how: Adaptation, trained: Trained, state: Followed, embedding: _Floats, told: _Floats
) -> Followed:
    """With a window at the classes that it is taken for."""
    anchors = _anchors(how, trained)
    if how.recentre == "empty":
        taken = (anchors & (told >= how.confidence)).astype(np.float64)
    else:
        taken = np.where(anchors, told, 0.0)
        taken /= max(float(taken.sum()), np.finfo(float).tiny)
    kept = 1 - taken / how.class_memory
    return replace(
        state,
        members=kept * state.members + taken,
        places=kept[:, None] * state.places + taken[:, None] * embedding,
    )  # A5


def taught(trained: Trained, embeddings: npt.NDArray[np.floating], labels: _Index) -> Trained:
    """The counter after a few windows with a label: re-centred by them, then tuned a little.

    v = Σ (z − p_y)/(n + 2) goes into the bias, since W·(z − v) + b = W·z + (b − W·v). Then 30 steps
    of gradient descent on the cross-entropy of W alone, each of 0.3·T²/mean|z − v|² times the
    gradient. With labels nothing feeds itself, so there is no bound. Windows of a class without a
    prototype only tune.

    Args:
        trained: as it was.
        embeddings: [n, D] of the windows.
        labels: [n] their classes.
    """
    places = np.asarray(embeddings, np.float64)
    if not len(places):
        return trained
    known = trained.present[labels]
    moved = (places - trained.prototypes[labels])[known]
    shift = moved.sum(axis=0) / (len(moved) + _FEW)
    near = places - shift  # (n, D)
    weight, truth = trained.weight.copy(), np.eye(len(trained.bias))[labels]  # (n, C)
    length = float(np.square(near).sum(axis=1).mean())
    step = _RATE * trained.temperature / length if length else 0.0
    for _ in range(_STEPS):
        told = probabilities_of(near @ weight.T + trained.bias, trained.temperature)
        weight = weight - step * ((told - truth).T @ near) / len(near)
    return replace(trained, weight=weight, bias=trained.bias - weight @ shift)
