"""Who takes part in a round."""

from collections.abc import Sequence

from fedapa.errors import PlanError
from fedapa.randomness import Key

__all__ = ["uniform"]


def uniform(rooms: Sequence[str], participation: float, key: Key) -> tuple[str, ...]:
    """A uniformly drawn share ρ of the rooms, at least one, sorted.

    ρ = 1 is every room; else round(ρ·N) of them without replacement, from the round's stream.
    """
    if not 0 < participation <= 1:
        raise PlanError(f"participation {participation}: must be above 0 and at most 1")
    number = max(1, round(participation * len(rooms)))
    drawn = (key / "cohort").numpy().permutation(sorted(rooms))[:number]
    return tuple(sorted(str(room) for room in drawn))
