"""Fine-tuned copies: what WiFederated deploys, and Local too where it gets as many epochs.

Fine-tuning every round would cost more than the training: a copy is made only where a figure is
read, in the last rounds (those that a summary averages) and at five points of the curve.
"""

from dataclasses import replace

from fedapa.algorithms.algorithm import Algorithm, Round
from fedapa.evaluation.record import LAST
from fedapa.learning.fit import cross_entropy, fit
from fedapa.models.model import Model
from fedapa.rooms.room import Room

__all__ = ["fine_tune", "is_due"]

POINTS = 5
"""Points of the curve, evenly spaced, before the last rounds."""


def is_due(round: Round) -> bool:
    """Whether this exchange, which scores the round before it, scores a fine-tuned copy."""
    scored = round.number - 1
    points = {round.total * point // (POINTS + 1) for point in range(1, POINTS + 1)}
    return scored > max(0, round.total - LAST) or scored in points - {0}


def fine_tune(
    algorithm: Algorithm, room: Room, model: Model, *, epochs: int, round: Round
) -> Model:
    """Train all layers of ``model`` on the room's windows for some epochs more."""
    fit(
        model,
        room,
        cross_entropy,
        replace(algorithm.training, epochs=epochs),
        key=round.key / "room" / room.name / "fine-tuning",
    )
    return model
