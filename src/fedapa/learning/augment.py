"""Augmentation: train windows as they might have been, drawn anew each time one is seen.

What changes nothing about the people in a room must not change their count: the receiver's gain, a
subcarrier that is not heard, the direction of time, which antenna is which. A view that leaves such
a thing out needs no augmentation by it, and asking for it is refused. Shifts in time come with
overlapping train windows (``data.overlap``), which are real ones. Seats, furniture and people
differ between recordings of one count: such a *difference* may be added to any window.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from fedapa.errors import PlanError
from fedapa.rooms.room import Room
from fedapa.windows.views import Places, find_view

__all__ = ["Augmentation", "Augmenter"]

Augmentation = Literal["gain", "subcarriers", "time", "links", "differences"]
"""gain: a factor on the whole window; subcarriers: some are not heard; time: half of the windows
run backwards; links: antennas change places; differences: what two windows of one class differ by
is added."""

_GAIN = 0.2
"""Standard deviation of ln(factor): 1.7 dB, what an automatic gain leaves."""
_UNHEARD = 0.1
"""Share of the subcarriers of a link."""
_DIFFERENCE = 0.6
"""Standard deviation of the factor on a difference; chosen on other rooms, see docs/counting.md."""


@dataclass(frozen=True, eq=False)
class Augmenter:
    """What may happen to the windows of one room."""

    kinds: frozenset[Augmentation]
    mean: Tensor
    deviation: Tensor
    """Of the room's normaliser, [columns] or [numbers]."""
    links: Tensor
    subcarriers: Tensor
    backwards: Tensor
    gained: Tensor
    """Places in a window, see ``Places``."""

    @classmethod
    def of(cls, room: Room, kinds: Collection[Augmentation]) -> "Augmenter":
        """For a room's windows; refuses what cannot change them."""
        shape, recipe = tuple(room.windows.shape[1:]), room.recipe
        places = Places()
        if recipe.source == "packets":
            places = find_view(recipe.view).places(shape, recipe.links_used)
        possible: dict[Augmentation, bool] = {
            "gain": places.gained.size > 0,
            "subcarriers": places.subcarriers.size > 0,
            "time": places.backwards.size > 0,
            "links": len(places.links) > 1,
            "differences": True,
        }
        for kind in get_args(Augmentation):
            if kind in kinds and not possible[kind]:
                left = [f"'{other}'" for other, can in possible.items() if can]
                what = f"view '{recipe.view}'" if recipe.source == "packets" else "no packets"
                raise PlanError(
                    f"training.augment: '{kind}' changes nothing in the windows of room "
                    f"'{room.name}' ({what}); leave it out, these can: {', '.join(left)}"
                )
        return cls(
            frozenset(kinds),
            *(
                torch.from_numpy(values.copy()).to(room.device)
                for values in (
                    room.normaliser.mean,
                    room.normaliser.deviation,
                    places.links,
                    places.subcarriers,
                    places.backwards,
                    places.gained,
                )
            ),
        )

    def __call__(self, windows: Tensor, labels: Tensor) -> Tensor:
        """Normalised windows [B, …] with labels as they might have been, normalised.

        Gain, time and links act on what the receiver reported, x = z · deviation + mean. A
        subcarrier that is not heard has its mean, z = 0.
        """
        number = len(windows)
        if "differences" in self.kinds:
            windows = _with_differences(windows, labels)
        if self.kinds - {"subcarriers", "differences"}:
            reported = (windows * self.deviation + self.mean).reshape(number, -1)
            reported = self._reported(reported)
            windows = (reported.reshape(windows.shape) - self.mean) / self.deviation
        if "subcarriers" not in self.kinds:
            return windows
        made = windows.reshape(number, -1).clone()
        heard = torch.rand(number, len(self.subcarriers), 1, device=made.device) >= _UNHEARD
        made[:, self.subcarriers] = made[:, self.subcarriers] * heard  # (B, subcarriers, n)
        return made.reshape(windows.shape)

    def _reported(self, values: Tensor) -> Tensor:
        """The same for values [B, numbers] before the normaliser."""
        number, device = len(values), values.device
        if "gain" in self.kinds:
            factor = torch.exp(_GAIN * torch.randn(number, 1, device=device))
            values = values.clone()
            values[:, self.gained] = values[:, self.gained] * factor
        if "time" in self.kinds:
            turned = torch.rand(number, 1, device=device) < 0.5
            values = torch.where(turned, values[:, self.backwards], values)
        if "links" in self.kinds:
            order = torch.rand(number, len(self.links), device=device).argsort(dim=1)
            taken = self.links[order].reshape(number, -1)  # (B, links · n)
            swapped = values.clone()
            swapped[:, self.links.ravel()] = values.gather(1, taken)
            values = swapped
        return values


def _with_differences(windows: Tensor, labels: Tensor) -> Tensor:
    """z_i + λ_i · (z_j − z_k), λ ~ N(0, 0.6²): j is drawn from the batch, k from j's class in it.

    In expectation that is noise with the covariance of windows of one class, Σ_w: a direction in
    which windows of one count differ much is then worth little to the net, as in a linear
    discriminant. Where j is alone in its class nothing is added.
    """
    number, device = len(windows), windows.device
    alike = labels[:, None] == labels[None]  # (B, B)
    alike = alike if alike.dim() == 2 else alike.all(dim=2)  # of several tasks, one class in each
    alike.fill_diagonal_(False)
    other = (torch.rand(number, number, device=device) * alike).argmax(dim=1)
    drawn = torch.randperm(number, device=device)
    factor = _DIFFERENCE * torch.randn(number, device=device) * alike.any(dim=1)[drawn]
    difference = windows[drawn] - windows[other[drawn]]
    return windows + factor.reshape(-1, *(1 for _ in windows.shape[1:])) * difference
