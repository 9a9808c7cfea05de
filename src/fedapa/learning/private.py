"""What a room may tell of its train windows with noise: sums of clipped embeddings and numbers.

Unlike ``learning/prototypes.py``, which has a room's exact means, everything here may leave the
room at a stated price. A *unit* u is what is protected: a window, or all windows of one recording.
With r an embedding, C the clip, m_u the windows of u, 1[·] one where true:

    r̂ = r · min(1, C/‖r‖)
    S_c = Σ_u (1/m_u) Σ_{w∈u} 1[y_w = c] r̂_w        n_c = Σ_u (1/m_u) Σ_{w∈u} 1[y_w = c]

Without u, S (all classes together) changes by C at most in length, and n by 1. With z the noise
multiplier of the release (``learning/accounting.py``) both get Gaussian noise,

    S̃ = S + N(0, (z_S C)²)    ñ = n + N(0, z_n²)    1/z_S² + 1/z_n² = 1/z²

and from S̃ and ñ alone follow the prototypes S̃_c/ñ_c, cut at length C, and the classes that are
told at all: those with ñ_c ≥ 3 z_n. z_n² = √D · z_S² keeps the error of S̃/ñ least: noise of a sum
has D coordinates, noise of a number one.

Sums are whole numbers of steps of 2⁻²⁰ C, contributions cut off towards zero, noise rounded. What
leaves so lies on a grid that no window decides, and the last bits of a float betray nothing.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import ConfigDict, Field
from torch import Tensor

from fedapa.learning.fit import PositiveInteger
from fedapa.randomness import Noise

__all__ = [
    "Privacy",
    "Released",
    "Unit",
    "clipped",
    "clipped_sums",
    "noise_of_parts",
    "release",
]

Unit = Literal["window", "recording"]

_STEPS = 2.0**20
"""Steps of the grid in the length of the clip, and in one unit."""
_SHORTER = 1.0 - 2.0**-30
"""So much shorter contributions are made, that rounding in float64 makes none longer than C."""
_SURE = 3.0
"""Deviations of its noise that the number of a class must have, to be told."""


@dataclass(frozen=True)
class Privacy:
    """How the sets that rooms send are clipped and noised; off without an ε.

    What that protects, and what not, is in docs/differential-privacy.md.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    epsilon: Annotated[float, Field(ge=1e-3, le=1e4, allow_inf_nan=False)] | None = None
    """ε, the budget of a room; a room that has spent it sends nothing more and learns on. None is
    no noise."""
    delta: Annotated[float, Field(ge=1e-10, le=1e-3, allow_inf_nan=False)] = 1e-5
    """δ; keep it well below one over the units of a room. What numbers of 53 bits lack of ideal
    noise (``randomness.SystemNoise``) is beside the least that may be asked for still small."""
    unit: Unit = "recording"
    """What is protected: a "window", or all windows of a "recording". Windows that overlap share
    packets, so a window by itself then hides less than it seems to."""
    clip: Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)] = 1.0
    """C: embeddings that are longer are cut to this length before they are added."""
    every: PositiveInteger = 1
    """A room sends its set in every k-th round, from the first on: fewer releases, less noise in
    each."""
    releases: PositiveInteger | None = None
    """Releases among which ε is divided; by default those of all rounds. After them a room has
    spent its budget."""

    @property
    def is_on(self) -> bool:
        """Whether rooms add noise."""
        return self.epsilon is not None

    def sends_in(self, number: int) -> bool:
        """Whether a room sends its set in this round."""
        return (number - 1) % self.every == 0

    def planned(self, rounds: int | None) -> int | None:
        """Releases among which ε is divided in a run of so many rounds; none where nobody knows."""
        if self.releases is not None or rounds is None:
            return self.releases
        return -(-rounds // self.every)

    def claim(self) -> str:
        """What ε says, and what not, for people."""
        return (
            f"ε (δ = {self.delta:g}) bounds what the noised prototypes that left a room tell of "
            f"one {self.unit} if its net, normaliser included, is taken as given. It is no "
            "guarantee for recordings: that net was trained on them without noise, and scores and "
            "the room's card leave the room without noise, too (docs/differential-privacy.md)."
        )


@dataclass(frozen=True, eq=False)
class Released:
    """A noised set."""

    prototypes: npt.NDArray[np.float32]
    """[classes told, D]."""
    present: npt.NDArray[np.bool_]
    """[C], the classes that are told."""
    counts: npt.NDArray[np.int64]
    """[C], units behind them, noised; 0 where nothing is told."""


def clipped(embeddings: Tensor, clip: float | None) -> Tensor:
    """r̂ of each row, with gradient and off the grid; all as they are without a clip.

    ``clipped_sums`` is what a room sends; this is for who holds windows against what was sent.
    """
    if clip is None:
        return embeddings
    length = torch.linalg.vector_norm(embeddings, dim=1, keepdim=True)  # (n, 1)
    cut: Tensor = embeddings / (length / clip).clamp(min=1.0)
    return cut


def clipped_sums(
    embeddings: npt.NDArray[np.floating],
    labels: npt.NDArray[np.int64],
    units: npt.NDArray[np.int64],
    *,
    classes: int,
    clip: float,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """S/C [C, D] and n [C], both in steps of the grid.

    Args:
        embeddings: r [n, D].
        labels: [n], class indices.
        units: [n], equal numbers for windows of one unit.
        classes: C.
        clip: the length that embeddings are cut to.
    """
    given = np.asarray(embeddings, np.float64)
    given = np.where(np.isfinite(given).all(axis=1, keepdims=True), given, 0.0)
    length = np.linalg.norm(given, axis=1)
    scale = _SHORTER / np.maximum(clip, length)  # r̂/C = r / max(C, ‖r‖)
    _, owner, members = np.unique(units, return_inverse=True, return_counts=True)
    share = 1.0 / members[owner]  # 1/m_u, (n,)
    pairs, place = np.unique(owner * classes + labels, return_inverse=True)  # (unit, class)
    parts = np.zeros((len(pairs), given.shape[1]))
    np.add.at(parts, place, given * (scale * share)[:, None])
    numbers = np.bincount(place, weights=share, minlength=len(pairs))
    sums = np.zeros((classes, given.shape[1]), np.int64)
    np.add.at(sums, pairs % classes, np.trunc(parts * _STEPS).astype(np.int64))
    counts = np.zeros(classes, np.int64)
    np.add.at(counts, pairs % classes, np.trunc(numbers * _STEPS + 2.0**-10).astype(np.int64))
    return sums, counts


def noise_of_parts(multiplier: float, width: int) -> tuple[float, float]:
    """(z_S, z_n) of a release with multiplier z, for embeddings of width D."""
    root = math.sqrt(width)
    return multiplier * math.sqrt((1.0 + root) / root), multiplier * math.sqrt(1.0 + root)


def release(
    embeddings: npt.NDArray[np.floating],
    labels: npt.NDArray[np.int64],
    units: npt.NDArray[np.int64],
    *,
    classes: int,
    clip: float,
    multiplier: float,
    noise: Noise,
    least: float = 1.0,
) -> Released:
    """A room's set as it may leave it.

    Args:
        embeddings: r [n, D], by the net that is taken as given.
        labels: [n], class indices.
        units: [n], equal numbers for windows of one unit.
        classes: C.
        clip: the length that embeddings are cut to.
        multiplier: z of this release.
        noise: where its noise comes from.
        least: units behind a class that is told, at least.
    """
    sums, numbers = clipped_sums(embeddings, labels, units, classes=classes, clip=clip)
    of_sums, of_numbers = noise_of_parts(multiplier, sums.shape[1])
    noisy = (sums + np.rint(of_sums * _STEPS * noise.normal(*sums.shape))) / _STEPS  # S̃/C
    told = (numbers + np.rint(of_numbers * _STEPS * noise.normal(classes))) / _STEPS  # ñ
    # From here on everything follows from S̃ and ñ: it costs nothing more.
    present = told >= max(least, _SURE * of_numbers)
    means = noisy[present] / told[present, None]
    means /= np.maximum(1.0, np.linalg.norm(means, axis=1, keepdims=True))
    counts = np.where(present, np.maximum(1, np.rint(told)), 0).astype(np.int64)
    return Released((clip * means).astype(np.float32), present, counts)
