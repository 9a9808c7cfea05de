"""fit: the only SGD loop; algorithms pass it an objective."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal, Protocol, cast

import numpy as np
import torch
from pydantic import ConfigDict, Field
from torch import Tensor

from fedapa.errors import DivergedError
from fedapa.learning.augment import Augmentation, Augmenter
from fedapa.learning.by_hand import KnownSteps, Pace
from fedapa.learning.losses import Hybrid
from fedapa.learning.tree import NamedArrays
from fedapa.models.model import Model
from fedapa.randomness import Key
from fedapa.rooms.room import Room

__all__ = [
    "Fit",
    "NotNegative",
    "NotNegativeInteger",
    "Objective",
    "Part",
    "Positive",
    "PositiveInteger",
    "Share",
    "Temperature",
    "Training",
    "cross_entropy",
    "fit",
]

Objective = Callable[[Model, Tensor, Tensor], Mapping[str, Tensor]]
"""(model, windows, labels) → named losses; the one called "loss" is minimised, all are reported."""


Part = Literal["all", "encoder", "classifier"]
"""What of a net is trained."""

# Settings with a range: plans are checked against these when they are read.
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Temperature = Annotated[float, Field(ge=1e-6)]
"""τ; infinite is allowed: it weighs everything alike."""
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1)]
PositiveInteger = Annotated[int, Field(ge=1, lt=2**31)]
NotNegativeInteger = Annotated[int, Field(ge=0, lt=2**63)]


@dataclass(frozen=True)
class Training:
    """How a room trains in one round; the paper's values by default."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    learning_rate: Positive = 0.01
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.5
    weight_decay: NotNegative = 1e-5
    batch_size: PositiveInteger = 16
    epochs: PositiveInteger = 1
    keep_momentum: bool = False
    """Carry the momentum from round to round; the paper does not say, we start afresh."""
    halving: NotNegativeInteger = 0
    """Rounds in which the learning rate halves; 0 leaves it as it is."""
    ordinal: NotNegative = 0.0
    """Steps between the room's counts over which a label is spread: a train window of 4 people is
    then a little one of the next counts, too. 0 is the label alone; categories have no order and
    are never spread."""
    noise: NotNegative = 0.0
    """Standard deviation of the noise on normalised train windows, drawn anew each time."""
    augment: tuple[Augmentation, ...] = ()
    """What may happen to train windows, drawn anew each time: "gain", "subcarriers" (some unheard),
    "time" (backwards), "links" (antennas swapped), only what the view does not leave out; and
    "differences" (what two windows of one class differ by is added)."""
    patience: NotNegativeInteger = 0
    """Early stopping: rounds without a lower loss on validation windows after which a room trains
    no more. It then always counts with the net of its best round; 0 is the last round's."""

    def at(self, round: int) -> "Training":
        """How a room trains in a round: η_t = η · 2^(−(t − 1) / halving)."""
        if not self.halving:
            return self
        slowed = self.learning_rate * 2.0 ** (-(round - 1) / self.halving)
        return replace(self, learning_rate=slowed)


@dataclass(frozen=True, eq=False)
class Fit:
    """What came of it."""

    losses: Mapping[str, float]
    """Mean of each named loss over all windows seen."""
    momentum: NamedArrays = field(default_factory=dict)
    """SGD's momentum by parameter name, to be carried on if wanted."""
    measured: Mapping[str, float] = field(default_factory=dict)
    """Where asked for: η, how many steps, and the mean over them of the gradient's ‖g‖²."""


def cross_entropy(model: Model, windows: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
    """The plain objective, of each task."""
    return _PLAIN(model, windows, labels)


_PLAIN = Hybrid()


def fit(
    model: Model,
    room: Room,
    objective: Objective,
    training: Training,
    *,
    key: Key,
    momentum: NamedArrays | None = None,
    part: Part = "all",
    measured: bool = False,
) -> Fit:
    """Train ``model`` in place on the room's train windows for ``training.epochs`` epochs.

    What is not in ``part`` is frozen: no gradient, no weight decay, and, because it runs in eval
    mode, no moving BatchNorm statistics.
    """
    _thaw(model, part)
    momentum = momentum if training.keep_momentum and momentum else {}
    steps = _by_hand(model, room, objective, training, momentum)
    if steps is None:
        steps = _ByAutograd(model, objective, training, momentum)
    steps.is_measured = measured
    squared: list[float] = []
    sums: dict[str, np.floating] = {}
    seen = 0
    quiet = np.errstate(over="ignore", invalid="ignore")  # it is told below
    is_drawn = steps.draws or training.noise > 0 or bool(training.augment)
    stream = (key / "dropout and noise").as_torch_default() if is_drawn else nullcontext()
    with quiet, stream:
        for windows, labels in _epochs(room, training, key):
            number = np.float32(len(labels))
            for name, value in steps.step(windows, labels).items():
                sums[name] = sums.get(name, np.float32(0)) + value * number
            if measured:
                squared.append(steps.squared_gradient)
            seen += len(labels)
    means = {name: float(value) / seen for name, value in sums.items()}
    if not all(math.isfinite(value) for value in means.values()):
        raise DivergedError(
            f"room '{room.name}': the loss became {means['loss']} in training; "
            "lower learning_rate or look for extreme windows with 'fedapa inspect'"
        )
    told = {}
    if measured:
        told = {
            "rate": training.learning_rate,
            "steps": float(len(squared)),
            "squared_gradient": float(np.mean(squared)),
        }
    return Fit(losses=means, momentum=steps.finish(), measured=told)


class _Steps(Protocol):
    """What descends on one batch after the other."""

    is_measured: bool
    """Whether ``squared_gradient`` is wanted."""
    squared_gradient: float
    """‖g‖² of the last step, without weight decay."""

    @property
    def draws(self) -> bool:
        """Whether a step may draw from torch's generator; to set its stream takes a while."""

    def step(self, windows: Tensor, labels: Tensor) -> Mapping[str, np.floating]:
        """Descend on a batch; the losses before that."""

    def finish(self) -> NamedArrays:
        """SGD's momentum by parameter name, after the last step."""


def _by_hand(
    model: Model, room: Room, objective: Objective, training: Training, momentum: NamedArrays
) -> _Steps | None:
    """Steps without autograd, where net and objective are known to have them."""
    loss = _PLAIN if objective is cross_entropy else objective
    if not isinstance(loss, Hybrid) or len(room.tasks) > 1 or room.device != "cpu":
        return None
    if loss.present is not None and not loss.present.numpy()[room.held].all():
        return None
    pace = Pace(training.learning_rate, training.momentum, training.weight_decay)
    return KnownSteps.of(model, loss, pace, momentum)


class _ByAutograd:
    """Steps on any objective of any net."""

    is_measured = False
    squared_gradient = 0.0
    draws = True

    def __init__(
        self, model: Model, objective: Objective, training: Training, momentum: NamedArrays
    ) -> None:
        self._model, self._objective, self._training = model, objective, training
        self._trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._velocity = {
            name: torch.tensor(momentum[name], device=parameter.device)
            for name, parameter in self._trained.items()
            if name in momentum
        }

    def step(self, windows: Tensor, labels: Tensor) -> Mapping[str, np.floating]:
        losses = self._objective(self._model, windows, labels)
        for parameter in self._trained.values():
            parameter.grad = None
        losses["loss"].backward()  # type: ignore[no-untyped-call]
        if self.is_measured:
            slopes = (p.grad for p in self._trained.values() if p.grad is not None)
            self.squared_gradient = sum(float(slope.square().sum()) for slope in slopes)
        _descend(self._trained, self._velocity, self._training)
        return {
            name: cast(np.floating, value.detach().cpu().numpy()[()])
            for name, value in losses.items()
        }

    def finish(self) -> NamedArrays:
        return {name: buffer.cpu().numpy().copy() for name, buffer in self._velocity.items()}


def _epochs(room: Room, training: Training, key: Key) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches of all epochs, augmented and with noise where that is wanted."""
    augmented = Augmenter.of(room, training.augment) if training.augment else None
    for epoch in range(training.epochs):
        for windows, labels in room.batches(training.batch_size, key / "epoch" / epoch):
            if augmented is not None:
                windows = augmented(windows, labels)
            if training.noise:
                windows = windows + training.noise * torch.randn_like(windows)
            yield windows, labels


def _thaw(model: Model, part: Part) -> None:
    """Put ``part`` into training and everything else to rest."""
    for name, child in model.named_children():
        chosen = part in ("all", name)
        child.train(chosen)
        child.requires_grad_(chosen)
    model.training = True


@torch.no_grad()
def _descend(
    trained: Mapping[str, Tensor], velocity: dict[str, Tensor], training: Training
) -> None:
    """One step of SGD with momentum and weight decay, in place.

    To the bit what torch.optim.SGD does. That one loads torch's compiler when it is first built,
    which takes each worker a second of its start.
    """
    for name, parameter in trained.items():
        if parameter.grad is None:
            continue
        slope = parameter.grad
        if training.weight_decay:
            slope = slope.add(parameter, alpha=training.weight_decay)
        if training.momentum:
            if name in velocity:
                slope = velocity[name].mul_(training.momentum).add_(slope)
            else:
                velocity[name] = slope = slope.clone()
        parameter.add_(slope, alpha=-training.learning_rate)
