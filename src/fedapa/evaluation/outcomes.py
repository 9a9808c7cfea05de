"""Outcomes: what the records of finished runs say, as parts of results."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from fedapa.evaluation.metrics import METRICS
from fedapa.evaluation.record import over_rooms, scores_of_alternative
from fedapa.evaluation.results import Outcome, Row, outcome_at

__all__ = ["BLIND", "blind_row", "outcome_of"]

BLIND = {"constant": "Always the commonest class", "prior": "Class frequencies"}
"""Predictors that see no window, and what tables call them."""


def outcome_of(
    records: Sequence[Mapping[str, Any]],
    horizons: Sequence[int],
    *,
    seed: int,
    run: str,
    commits: Sequence[str],
    scored: Sequence[int] | None = None,
    alternative: str = "",
) -> Outcome:
    """What a run reached, round by round and at the horizons.

    Args:
        records: one per round, round 1 first.
        horizons: the rounds to look back from.
        seed: of the run.
        run: its folder's name.
        commits: what made it.
        scored: the rounds whose score is the row's own, where not every round is.
        alternative: the net whose scores are meant instead of the deployed one's.
    """
    scores = [_scores(record, alternative) for record in records]
    moved = (
        sum(entry["bytes_up"] + entry["bytes_down"] for entry in record["rooms"].values())
        for record in records
    )
    at = {str(horizon): outcome_at(scores, horizon, scored) for horizon in horizons}
    return Outcome(
        seed=seed,
        run=run,
        commit=", ".join(dict.fromkeys(commits)),
        curve={
            metric: _curve(scores, "mean", metric)
            for metric in METRICS
            if any(metric in score["mean"] for score in scores)
        },
        bytes=list(accumulate(moved)),
        at={horizon: figures for horizon, figures in at.items() if figures is not None},
        scored=scored,
        over_rooms=_curve(scores, "std", "accuracy"),
        train_loss=_train_loss(records),
    )


def _curve(scores: Sequence[Mapping[str, Any]], part: str, metric: str) -> list[float | None]:
    """One value per round; None where no room told a score."""
    values = [score[part].get(metric) for score in scores]
    return [None if value is None else float(value) for value in values]


def _train_loss(records: Sequence[Mapping[str, Any]]) -> list[float | None]:
    """The mean over rooms that tell a cross-entropy, round by round; nothing where none does."""
    told = [
        [float(entry["loss_ce"]) for entry in record["rooms"].values() if "loss_ce" in entry]
        for record in records
    ]
    return [sum(losses) / len(losses) if losses else None for losses in told] if any(told) else []


def _scores(record: Mapping[str, Any], alternative: str) -> Mapping[str, Any]:
    """A record as it is, or with an alternative's scores in place of the deployed net's."""
    if not alternative:
        return record
    rooms = {
        room: scores_of_alternative(entry, alternative) for room, entry in record["rooms"].items()
    }
    return {"round": record["round"], "rooms": rooms, **over_rooms(rooms, dict.fromkeys(rooms, 1))}


def blind_row(name: str, runs: Mapping[int, Mapping[str, Any]], horizons: Sequence[int]) -> Row:
    """What a predictor that sees no window reaches: the same at every horizon.

    Args:
        name: "constant" or "prior".
        runs: seed → the blind predictors of a run's summary.
        horizons: the rounds to show it at.
    """
    outcomes = []
    for seed, blind in runs.items():
        parts = ("mean", "std", "rooms", "fewer_rooms")
        figures = {part: dict(blind[name][part]) for part in parts if part in blind[name]}
        at = {str(horizon): figures for horizon in horizons}
        outcomes.append(Outcome(seed, run="", commit="", curve={}, bytes=[], at=at))
    return Row(name, BLIND[name], "blind", outcomes, moves=False)
