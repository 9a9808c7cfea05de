"""FedBN: FedAvg of everything but BatchNorm, which stays in the room that it describes.

w_shared ← Σ n_i w_i / Σ n_i; scale, shift and running statistics of every BatchNorm, found by the
type of the module and not by its name, are never uploaded. L = CE; a room is scored with the merged
weights and its own BatchNorm.
"""

from dataclasses import dataclass
from typing import ClassVar

from fedapa.algorithms.algorithm import Dimensions
from fedapa.algorithms.fedavg import FedAvg
from fedapa.errors import RosterError
from fedapa.rooms.card import RoomCard

__all__ = ["FedBN"]


@dataclass(frozen=True)
class FedBN(FedAvg):
    """FedAvg with private BatchNorms."""

    name: ClassVar[str] = "fedbn"
    title: ClassVar[str] = "FedBN"
    travels: ClassVar[str] = "all weights but BatchNorm's"
    citation: ClassVar[str] = "Li et al., ICLR 2021"
    paper: ClassVar[str] = "FedBN"
    year: ClassVar[int] = 2021
    look: ClassVar[int | None] = 4
    needs_batch_norm: ClassVar[bool] = True
    several_tasks: ClassVar[bool] = True

    def sends(self, sizes: Dimensions) -> tuple[str, int] | None:
        """Everything but BatchNorm's."""
        return "2·(Σw − ΣBN)", 2 * (sizes.parameters - sizes.batch_norm)

    def check(self, card: RoomCard) -> None:
        """Refuses nets without BatchNorm, on which it would silently be FedAvg."""
        if not card.norms:
            raise RosterError(
                f"FedBN keeps BatchNorm in the room, and {card.name}'s net "
                f"'{card.architecture}' has none; use algorithm = 'fedavg' or a net with one"
            )

    def private(self, card: RoomCard) -> frozenset[str]:
        """Every array of a BatchNorm."""
        return card.norms
