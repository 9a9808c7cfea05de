"""The convergence theory held against a run that was diagnosed (docs/theory.md).

Constants are the largest that the run showed, so they are lower bounds of the true ones. A bound
that holds with them holds with the true ones, too; one that fails may hold with larger ones. With
S_t steps of rate η_t in round t, of the room that makes the most:

    Ĝ² = max ‖g‖²,  k̂ = max_t ‖ΔP_t‖ / (η_t S_t Ĝ),  L̂_agg = max ‖ΔQ‖ / ‖ΔP‖,
    ĉ = max |ΔΦ| / (‖ΔQ‖ + ‖ΔP‖),  Γ̂ = ĉ (1 + L̂_agg),  B̂ = max Φ.

The refresh of prototypes may then cost λ Γ̂ k̂ η_t S_t Ĝ (Lemma 3, which cannot fail here: ĉ is made
of the same changes), and gradients need not fall below 2 λ Γ̂ k̂ Ĝ (Theorem 2). The share of that
floor in Ĝ² is v = 2 λ Γ̂ k̂ / Ĝ: where v is near one or above, the bound allows gradients as large as
they ever were.

The theorems have one η. Summed with the rate of each round, the proof of Theorem 2 gives

    Σ η_t Σ_s ‖∇L‖² / Σ η_t S_t ≤ 2Δ / Σ η_t S_t + L̂ σ̂² Σ η_t² S_t / Σ η_t S_t + 2 λ Γ̂ k̂ Ĝ,

which is the paper's where η_t = η. They assume that all rooms take part in all rounds: where some
do not, a round is held against the next by the rooms that took part in both.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["THEORY", "Constants", "Theory", "theory_of"]

THEORY = "theory_"
"""What begins the names of a diagnosis in records."""


@dataclass(frozen=True)
class Constants:
    """The largest that a run showed."""

    gradient: float
    """Ĝ."""
    movement: float
    """k̂."""
    aggregation: float
    """L̂_agg."""
    penalty: float
    """ĉ, by which Φ changes with prototypes."""
    bound: float
    """B̂, the largest Φ."""
    smoothness: float | None
    """L̂, where gradients were measured over epochs."""
    variance: float | None
    """σ̂², likewise."""

    @property
    def coupling(self) -> float:
        """Γ̂ = ĉ (1 + L̂_agg)."""
        return self.penalty * (1 + self.aggregation)


@dataclass(frozen=True)
class Theory:
    """A diagnosed run."""

    rounds: tuple[int, ...]
    terms: Mapping[str, tuple[float, ...]]
    """By name (descent, jump_schedule, jump_refresh): the mean over rooms, round by round; NaN
    where a round has none."""
    aggregation: tuple[float, ...]
    """‖ΔQ‖/‖ΔP‖, round by round; NaN where prototypes did not come or not move."""
    largest: Mapping[str, float]
    """The largest of every term, in size, and of the embeddings' lengths."""
    weight: float
    """The largest λ_t."""
    rate: float
    """η, the largest."""
    way: float
    """η_t S_t Ĝ, the largest: how far steps may take weights in a round."""
    constants: Constants
    within: tuple[tuple[int, float, float], ...]
    """Corollary 1 for rounds with gradients, means over rooms: round, by how much the steps brought
    the objective down, and by how much they should at least."""
    one_round: tuple[tuple[int, float, float], ...]
    """Theorem 1 for rounds with gradients, means over rooms: round, what the objective came to at
    the start of the next round, and what the theorem allows."""
    stationary: tuple[float, float] | None
    """Theorem 2 over the rounds after warm-up: the mean of ‖∇L‖², and what the theorem allows."""

    @property
    def is_coupled(self) -> bool:
        """Whether prototypes were seen to move: of those that stay in rooms nothing is known."""
        return self.constants.movement > 0

    @property
    def refresh_bound(self) -> float:
        """λ Γ̂ k̂ η_t S_t Ĝ, the largest: what new prototypes may cost by Lemma 3."""
        return self.weight * self.constants.coupling * self.constants.movement * self.way

    @property
    def vacuity(self) -> float:
        """The share of the floor 2 λ Γ̂ k̂ Ĝ in Ĝ²: v."""
        made = self.constants
        return 2 * self.weight * made.coupling * made.movement / made.gradient

    @property
    def largest_rate(self) -> float | None:
        """1/L̂, which the theorems ask η to stay below."""
        return 1 / self.constants.smoothness if self.constants.smoothness else None


def theory_of(records: Sequence[Mapping[str, Any]], *, warm_rounds: int = 0) -> Theory | None:
    """What the records of a run say of the theory; none where nobody diagnosed it.

    Args:
        records: of all rounds.
        warm_rounds: T_warm, after which λ is constant.
    """
    seen = [record for record in records if _rooms(record, "rate")]
    if not seen:
        return None
    moved = [(record, *_moved(record)) for record in seen]
    gradient = math.sqrt(_most(_rooms(record, "squared_gradient") for record in seen))
    ways = [_way(record) * gradient for record in seen]
    ratios = tuple(q / p if p > 0 else math.nan for _, p, q in moved)
    constants = Constants(
        gradient=gradient,
        movement=_top(p / way for (_, p, _), way in zip(moved, ways, strict=True) if way > 0),
        aggregation=_top(ratios),
        penalty=_sensitivity(moved),
        bound=_most(_rooms(record, "penalty") for record in seen),
        smoothness=_most(_rooms(record, "smoothness") for record in seen) or None,
        variance=_measured(seen, "variance"),
    )
    terms = ("descent", "jump_schedule", "jump_refresh")
    told = (*terms, "embedding_mean", "embedding_longest")
    return Theory(
        rounds=tuple(int(record["round"]) for record in seen),
        terms={name: tuple(_mean(_rooms(record, name)) for record in seen) for name in terms},
        aggregation=ratios,
        largest={name: _most(_sizes(_rooms(record, name)) for record in seen) for name in told},
        weight=_most(_weights(record) for record in seen),
        rate=_most(_rooms(record, "rate") for record in seen),
        way=max(ways),
        constants=constants,
        within=tuple(_within(seen, constants)),
        one_round=tuple(_one_round(seen, constants)),
        stationary=_stationary(seen, constants, warm_rounds),
    )


def _rooms(record: Mapping[str, Any], name: str) -> list[float]:
    """A figure of every room that has it."""
    key = THEORY + name
    return [float(room[key]) for room in record["rooms"].values() if key in room]


def _shared(record: Mapping[str, Any], after: Mapping[str, Any], name: str) -> tuple[float, float]:
    """A figure in two rounds: means over the rooms that have it in both; NaN where none has."""
    key = THEORY + name
    both = [
        (float(room[key]), float(after["rooms"][own][key]))
        for own, room in record["rooms"].items()
        if key in room and key in after["rooms"].get(own, {})
    ]
    return _mean([first for first, _ in both]), _mean([second for _, second in both])


def _way(record: Mapping[str, Any]) -> float:
    """η_t S_t, of the room that makes the most steps."""
    return max(_rooms(record, "rate")) * max(_rooms(record, "steps"))


def _weights(record: Mapping[str, Any]) -> list[float]:
    """λ_t by room, as far as there were prototypes to weigh."""
    said = [float(room["lambda"]) for room in record["rooms"].values() if "lambda" in room]
    return _rooms(record, "weight") or said or [0.0]  # FedAPA tells it in the first round, too


def _moved(record: Mapping[str, Any]) -> tuple[float, float]:
    """‖ΔP‖ and ‖ΔQ‖ of a round; NaN where there is none."""
    server = record["server"]
    return (
        float(server.get(f"{THEORY}prototypes_moved", math.nan)),
        float(server.get(f"{THEORY}mixtures_moved", math.nan)),
    )


def _sensitivity(moved: Sequence[tuple[Mapping[str, Any], float, float]]) -> float:
    """ĉ: the merge of round t is what changes Φ at the start of round t + 1.

    Not that of a room which sat out round t: it has seen the merges of several.
    """
    found = [0.0]
    changed = f"{THEORY}penalty_change"
    for (record, p, q), (after, _, _) in itertools.pairwise(moved):
        if p + q > 0 and _follows(record, after):
            found += [
                abs(float(room[changed])) / (p + q)
                for own, room in after["rooms"].items()
                if changed in room and f"{THEORY}rate" in record["rooms"].get(own, {})
            ]
    return _top(found)


def _promised(record: Mapping[str, Any], made: Constants) -> float | None:
    """Corollary 1: (η/2) G_{i,t}² − (L̂η²/2) S σ̂², with S times the mean of both ends for G².

    None where no gradients were measured.
    """
    gradients = _rooms(record, "gradient_before"), _rooms(record, "gradient_after")
    if made.smoothness is None or made.variance is None or not gradients[0]:
        return None
    rate, steps = _mean(_rooms(record, "rate")), _mean(_rooms(record, "steps"))
    descent = rate / 2 * steps * (_mean(gradients[0]) + _mean(gradients[1])) / 2
    return descent - made.smoothness * rate**2 / 2 * steps * made.variance


def _within(
    seen: Sequence[Mapping[str, Any]], made: Constants
) -> Iterable[tuple[int, float, float]]:
    """Round, its descent and what Corollary 1 promises, wherever both were measured."""
    for record in seen:
        promised, descents = _promised(record, made), _rooms(record, "descent")
        if promised is not None and descents:
            yield int(record["round"]), _mean(descents), promised


def _one_round(
    seen: Sequence[Mapping[str, Any]], made: Constants
) -> Iterable[tuple[int, float, float]]:
    """Round, objective at the start of the next, and its bound, wherever all of it was measured."""
    if not made.movement:
        return
    for record, after in itertools.pairwise(seen):
        promised = _promised(record, made)
        before, reached = _shared(record, after, "objective_before")
        if promised is None or math.isnan(before) or not _follows(record, after):
            continue
        next_weight, weight = max(_weights(after)), max(_weights(record))
        refresh = next_weight * made.coupling * made.movement * _way(record) * made.gradient
        schedule = abs(next_weight - weight) * made.bound
        yield int(record["round"]), reached, before - promised + refresh + schedule


def _stationary(
    seen: Sequence[Mapping[str, Any]], made: Constants, warm_rounds: int
) -> tuple[float, float] | None:
    """The mean of ‖∇L‖² after warm-up, by rates, and its bound with L_inf = 0.

    Gradients of the rounds that have them stand for the others.
    """
    late = [record for record in seen if record["round"] > warm_rounds]
    measured = [record for record in late if _rooms(record, "gradient_before")]
    if not measured or made.smoothness is None or made.variance is None or not made.movement:
        return None
    start = next((_rooms(r, "objective_before") for r in late if _rooms(r, "objective_before")), [])
    if not start:
        return None
    ends = ("gradient_before", "gradient_after")
    gradients = [_mean([value for end in ends for value in _rooms(r, end)]) for r in measured]
    found = np.average(gradients, weights=[_mean(_rooms(r, "rate")) for r in measured])
    rates = np.array([_mean(_rooms(record, "rate")) for record in late])  # η_t
    ways = rates * [_mean(_rooms(record, "steps")) for record in late]  # η_t S_t
    total = float(ways.sum())
    noise = made.smoothness * made.variance * float((rates * ways).sum()) / total
    floor = 2 * max(_weights(late[-1])) * made.coupling * made.movement * made.gradient
    return float(found), 2 * _mean(start) / total + noise + floor


def _follows(record: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether one is the next round: a run may be diagnosed in parts."""
    return bool(after["round"] == record["round"] + 1)


def _measured(seen: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [value for record in seen for value in _rooms(record, name)]
    return max(values) if values else None


def _sizes(values: Iterable[float]) -> list[float]:
    return [abs(value) for value in values]


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def _most(values: Iterable[Sequence[float]]) -> float:
    """The largest of all; 0 of none."""
    return max((value for some in values for value in some), default=0.0)


def _top(values: Iterable[float]) -> float:
    """The largest number; NaN says nothing, and of none it is 0."""
    return max((value for value in values if not math.isnan(value)), default=0.0)
