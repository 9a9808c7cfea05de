"""Steps of SGD with gradients written out: the same bits as by autograd, in less time.

A step of a dense net is a dozen small matrix products. With autograd, most of its time goes into
some two hundred operations on small tensors around them. Here the gradients are written out: torch
makes the products, sums and logarithms into buffers that stay, compiled loops (``kernels``) do what
is between them, and one loop moves all weights. Every number is rounded where torch rounds it, and
tests hold the two together to the bit.

Other encoders, the ConvNets', keep autograd; their classifier, the loss and the step are as above.
``KnownSteps.of`` says whether it knows a net and a loss; ``fit`` takes autograd alone for others.
"""

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from fedapa.learning.losses import Hybrid
from fedapa.learning.tree import NamedArrays
from fedapa.models import kernels
from fedapa.models.model import SHORTEST, Model, Scale, is_watched

__all__ = ["KnownSteps", "Pace"]

Floats = npt.NDArray[np.float32]

_ALIGNED = 16
"""Floats: a parameter begins where a vector register would."""
_ONE, _SHORTEST = np.float32(1), np.float32(SHORTEST)


@dataclass(frozen=True)
class Pace:
    """How SGD goes."""

    rate: float
    momentum: float
    decay: float


class KnownSteps:
    """The steps of one net on one loss."""

    is_measured = False
    """Whether ``squared_gradient`` is wanted."""
    squared_gradient = 0.0
    """‖g‖² of the last step, without weight decay."""

    @classmethod
    def of(
        cls, model: Model, loss: Hybrid, pace: Pace, velocity: NamedArrays
    ) -> "KnownSteps | None":
        """For a net and a loss that are known; None for all others."""
        parameters = dict(model.named_parameters())
        if not _is_plain(model, parameters):
            return None
        return cls(model, parameters, loss, pace, velocity)

    def __init__(
        self,
        model: Model,
        parameters: Mapping[str, nn.Parameter],
        loss: Hybrid,
        pace: Pace,
        velocity: NamedArrays,
    ) -> None:
        self._model = model
        self._pace = pace
        layers = _layers(model)
        trained = {name: p for name, p in parameters.items() if p.requires_grad}
        for parameter in trained.values():
            parameter.grad = None  # of whoever trained the net before
        self._aim = _Aim(loss)
        self._bench = _Bench.of(_Build(tuple(layers), tuple(trained), self._aim.sizes))
        dense = {name: parameters[name] for name in self._bench.values}
        self._dense = dense
        for name, parameter in dense.items():
            place = self._bench.values[name]
            place.copy_(parameter.detach())
            parameter.data = place
        self._others = {name: p for name, p in trained.items() if name not in dense}
        self.velocity = dict(self._bench.velocity)
        for name, parameter in self._others.items():
            parameter.data = parameter.data.contiguous()
            self.velocity[name] = torch.empty(parameter.shape)
        self._is_first = not velocity
        self._unmoved = set() if velocity else set(self._others)
        for name, part in self.velocity.items():
            if name in velocity:
                part.copy_(torch.from_numpy(np.array(velocity[name])))
            elif not self._is_first:  # gets its first gradient as it is: −0 + g = g, also g = −0
                part.fill_(-0.0)

    @property
    def draws(self) -> bool:
        """Whether a step may draw random numbers: of other encoders nobody knows."""
        return not self._bench.is_dense or any(
            layer.left < 1.0 for layer in self._bench.build.layers
        )

    def step(self, windows: Tensor, labels: Tensor) -> Mapping[str, np.float32]:
        """Descend on a batch; the losses before that."""
        turn = self._bench.turn(len(labels))
        targets = self._model.targets_of(labels)
        if self._bench.is_dense:
            losses = turn.dense(self._aim, windows, labels, targets)
        else:
            losses = turn.classified(self._aim, self._model, windows, labels, targets)
        if self.is_measured:
            self.squared_gradient = self._squared_gradient()
        self._descend()
        return losses

    def _squared_gradient(self) -> float:
        """‖g‖² over all trained parameters; what lies between dense ones is zero."""
        slopes = torch.from_numpy(self._bench.moved[1])  # numpy would take every core for it
        others = (p.grad for p in self._others.values() if p.grad is not None)
        return float(slopes.dot(slopes)) + sum(float(slope.square().sum()) for slope in others)

    def _descend(self) -> None:
        """One step of SGD; the gradients of other encoders are used up."""
        pace = self._pace
        by = np.float32(pace.rate), np.float32(pace.decay), np.float32(pace.momentum)
        kernels.descend(*self._bench.moved, *by, self._is_first)
        for name, parameter in self._others.items():
            if parameter.grad is None:
                continue
            kernels.descend(
                parameter.detach().view(-1).numpy(),
                parameter.grad.contiguous().view(-1).numpy(),
                self.velocity[name].view(-1).numpy(),
                *by,
                name in self._unmoved,
            )
            self._unmoved.discard(name)
            parameter.grad = None
        self._is_first = False

    def finish(self) -> dict[str, Floats]:
        """The momentum of every trained parameter, by name; the net then owns its weights."""
        for parameter in (*self._dense.values(), *self._others.values()):
            parameter.data = parameter.data.clone()
        kept = self.velocity if self._pace.momentum else {}
        for name in kept if self._is_first else self._unmoved & set(kept):
            self.velocity[name].fill_(-0.0)  # nothing has moved them
        velocity = {name: part.numpy().copy() for name, part in kept.items()}
        self._bench.put_back()
        return velocity


# ---- what stays from room to room ---------------------------------------------------------------


@dataclass(frozen=True)
class _Build:
    """What buffers depend on: rooms with equal ones train on the same bench, one by one."""

    layers: tuple["_Layer", ...]
    trained: tuple[str, ...]
    """The names of the trained parameters."""
    sets: tuple[int, ...]
    """How many sets of prototypes each contrast has."""


class _Bench:
    """The buffers of steps: weights, gradients, velocity, and a turn for each size of batch.

    The parameters of dense layers lie side by side in memory, the trained ones first, and so do
    their gradients: one loop moves all of them. To make it all takes as long as several steps, so
    a bench stays for the next room with an equal net. Nothing of a room is left on it that another
    one reads: weights and velocity are written at the start, the rest in every step.
    """

    _unused: ClassVar[dict[_Build, "_Bench"]] = {}

    @classmethod
    def of(cls, build: _Build) -> "_Bench":
        """One that nobody uses at the moment, old or new."""
        return cls._unused.pop(build, None) or cls(build)

    def put_back(self) -> None:
        """For the next one; few are kept, the latest."""
        self._unused[self.build] = self
        for build in list(self._unused)[:-_BENCHES]:
            self._unused.pop(build, None)

    def __init__(self, build: _Build) -> None:
        self.build = build
        shapes = {
            f"{layer.name}.{kind}": shape
            for layer in build.layers
            for kind, shape in (
                ("weight", (layer.outputs, layer.inputs)),
                ("bias", (layer.outputs,)),
            )
        }
        trained = [name for name in build.trained if name in shapes]
        ends, size, moved = {}, 0, 0
        for name in (*trained, *(name for name in shapes if name not in trained)):
            ends[name] = size, size + math.prod(shapes[name])
            size += -(-math.prod(shapes[name]) // _ALIGNED) * _ALIGNED
            moved = size if name in trained else moved
        values, slopes, carried = torch.zeros(size), torch.zeros(moved), torch.zeros(moved)
        self.values, self.slope, self.velocity = (
            {name: whole[slice(*ends[name])].view(shapes[name]) for name in names}
            for whole, names in ((values, ends), (slopes, trained), (carried, trained))
        )
        self.moved = values[:moved].numpy(), slopes.numpy(), carried.numpy()
        self.is_dense = len(build.layers) > 1
        self._turns: dict[int, _Turn] = {}

    def turn(self, batch: int) -> "_Turn":
        """For batches of that size."""
        turn = self._turns.get(batch)
        if turn is None:
            if len(self._turns) == _SIZES:
                self._turns.clear()
            turn = self._turns[batch] = _Turn(self, batch)
        return turn


_BENCHES = 4
"""Kept in a process: two parts of a net that are trained in turns, with prototypes and before there
are any."""
_SIZES = 4
"""Sizes of batches for which a bench keeps buffers: a whole one, and the last one of some rooms."""


# ---- the net ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Layer:
    """A linear layer, and what is done to numbers before it."""

    name: str
    inputs: int
    outputs: int
    is_rectified: bool = False
    left: float = 1.0
    """The share of numbers that dropout leaves; 1 drops none."""
    least: float = -math.inf
    most: float = math.inf
    scale: float = 1.0

    @classmethod
    def of(cls, name: str, linear: nn.Linear, before: Sequence[nn.Module]) -> "_Layer":
        """What a layer of a net does."""
        kinds = {type(module): module for module in before}
        drop = cast(nn.Dropout | None, kinds.get(nn.Dropout))
        cut = cast(nn.Hardtanh | None, kinds.get(nn.Hardtanh))
        scale = cast(Scale | None, kinds.get(Scale))
        return cls(
            name,
            linear.in_features,
            linear.out_features,
            nn.ReLU in kinds,
            1.0 - drop.p if drop is not None and drop.training else 1.0,
            -math.inf if cut is None else cut.min_val,
            math.inf if cut is None else cut.max_val,
            1.0 if scale is None else scale.factor,
        )


def _is_plain(model: Model, parameters: Mapping[str, nn.Parameter]) -> bool:
    """Whether a net does what ``Model`` says, in float32 on a CPU, and nobody watches it."""
    kind = type(model)
    classifier = model.classifier
    return (
        kind.forward is Model.forward
        and kind.embed is Model.embed
        and type(classifier) is nn.Linear
        and classifier.bias is not None
        and not _has_any_global_hook()  # type: ignore[no-untyped-call]
        and not is_watched(model)
        and not is_watched(classifier)
        and all(p.device.type == "cpu" and p.dtype == torch.float32 for p in parameters.values())
    )


def _layers(model: Model) -> list[_Layer]:
    """The layers of a dense net in order; of all others the classifier alone."""
    encoder = model.encoder
    alone = [_Layer.of("classifier", model.classifier, ())]
    if type(encoder) is not nn.Sequential or model.normalise_embedding:
        return alone
    if any(is_watched(module) for module in encoder.modules()):
        return alone
    layers: list[_Layer] = []
    before: list[nn.Module] = []
    named = [(f"encoder.{name}", module) for name, module in encoder.named_children()]
    for name, module in [*named, ("classifier", model.classifier)]:
        if type(module) is not nn.Linear:
            before.append(module)
            continue
        order = tuple(type(other) for other in before)
        known = _FIRST if not layers else _FURTHER
        if order not in known or module.bias is None:
            return alone
        layers.append(_Layer.of(name, module, before))
        before = []
    return layers


_FIRST = {(), (nn.Hardtanh, nn.Dropout), (nn.Hardtanh, nn.Dropout, Scale)}
"""What may be done to numbers before the first linear layer, in that order."""
_FURTHER = {(nn.ReLU,), (nn.ReLU, nn.Dropout)}


class _Part:
    """What a layer makes of a batch, and what its gradient needs; buffers that stay."""

    def __init__(self, layer: _Layer, bench: _Bench, made: Tensor) -> None:
        weight, bias = f"{layer.name}.weight", f"{layer.name}.bias"
        self.weight, self.bias = bench.values[weight], bench.values[bias]
        self.turned = self.weight.t()
        self.weight_slope, self.bias_slope = bench.slope.get(weight), bench.slope.get(bias)
        self.made = made  # (B, out)
        self.given, self.pull = (torch.empty(len(made), layer.inputs) for _ in range(2))
        self.kept = torch.ones(len(made), layer.inputs)
        self.flat_given, self.flat_pull, self.flat_kept, self.flat_made = (
            part.view(-1).numpy() for part in (self.given, self.pull, self.kept, made)
        )
        self.left, self.is_rectified = layer.left, layer.is_rectified
        self.share = _ONE / np.float32(layer.left)
        self.least, self.most = np.float32(layer.least), np.float32(layer.most)
        self.scale = np.float32(layer.scale)

    def forward(self, before: Floats) -> None:
        """From what the layer before made, flat; the first gets the windows."""
        if self.left < 1.0:
            self.kept.bernoulli_(self.left)
        if not self.is_rectified:
            bounds = self.least, self.most, self.flat_kept, self.share, self.scale
            kernels.cut_and_kept(before, *bounds, self.flat_given)
        elif self.left < 1.0:
            kernels.rectified_and_kept(before, self.flat_kept, self.share, self.flat_given)
        else:
            kernels.rectified(before, self.flat_given)
        torch.addmm(self.bias, self.given, self.turned, out=self.made)

    def backward(self, pull: Tensor, *, further: bool) -> None:
        """From the gradient of what it made; ``further`` asks for that of what it was given."""
        if self.weight_slope is not None and self.bias_slope is not None:
            torch.mm(pull.t(), self.given, out=self.weight_slope)
            torch.sum(pull, 0, out=self.bias_slope)
        if further:
            torch.mm(pull, self.weight, out=self.pull)

    def through(self, before: Floats) -> None:
        """From the gradient of what it was given to that of what the layer before made."""
        if self.left < 1.0:
            kernels.rectified_and_kept_gradient(self.flat_pull, before, self.flat_kept, self.share)
        else:
            kernels.rectified_gradient(self.flat_pull, before)


class _Turn:
    """The buffers for batches of one size, and the way through them and back."""

    def __init__(self, bench: _Bench, batch: int) -> None:
        *hidden, last = bench.build.layers
        self.is_encoder_trained = any(name.startswith("encoder.") for name in bench.build.trained)
        self.scores = _Scores(bench.build.sets, batch, last.outputs, last.inputs)
        outputs = [torch.empty(batch, layer.outputs) for layer in hidden]
        self.parts = [
            _Part(layer, bench, made)
            for layer, made in zip((*hidden, last), [*outputs, self.scores.logits], strict=True)
        ]
        trained = [place for place, part in enumerate(self.parts) if part.weight_slope is not None]
        by_autograd = not bench.is_dense and self.is_encoder_trained
        self.first = -1 if by_autograd else trained[0]

    def classified(
        self, aim: "_Aim", model: Model, windows: Tensor, labels: Tensor, targets: Tensor
    ) -> Mapping[str, np.float32]:
        """As ``dense``, for an encoder that goes by autograd."""
        with torch.set_grad_enabled(self.is_encoder_trained):
            embeddings = model.embed(windows)
        if not embeddings.is_contiguous():
            return self._by_autograd(aim, model, embeddings, labels)
        losses = self.dense(aim, embeddings.detach(), labels, targets)
        if self.is_encoder_trained:
            embeddings.backward(self.parts[0].pull)  # type: ignore[no-untyped-call]
        return losses

    def _by_autograd(
        self, aim: "_Aim", model: Model, embeddings: Tensor, labels: Tensor
    ) -> Mapping[str, np.float32]:
        """For embeddings in another order in memory: torch sums those in another order, too."""
        losses = aim.loss.of(model, model.classifier(embeddings), embeddings, labels)
        losses["loss"].backward()  # type: ignore[no-untyped-call]
        *_, last = self.parts
        for parameter, slope in (
            (model.classifier.weight, last.weight_slope),
            (model.classifier.bias, last.bias_slope),
        ):
            if slope is not None:
                slope.copy_(cast(Tensor, parameter.grad))
                parameter.grad = None
        return {name: np.float32(value.item()) for name, value in losses.items()}

    def dense(
        self, aim: "_Aim", given: Tensor, labels: Tensor, targets: Tensor
    ) -> Mapping[str, np.float32]:
        """The losses of a batch; the gradients are then beside the weights."""
        before = given.reshape(-1).numpy()
        for part in self.parts:
            part.forward(before)
            before = part.flat_made
        *_, last = self.parts
        losses = self.scores.losses(aim, last.given, labels, targets)
        pull = self.scores.logits_back
        for place in range(len(self.parts) - 1, max(self.first, 0) - 1, -1):
            part = self.parts[place]
            part.backward(pull, further=place > self.first)
            if place == self.first:
                break
            if part is last:
                self.scores.add_contrasts(last.flat_pull)
            if place:
                part.through(self.parts[place - 1].flat_made)
            pull = part.pull
        return losses


# ---- the loss -----------------------------------------------------------------------------------


class _Aim:
    """What of a loss is the same in all steps."""

    def __init__(self, loss: Hybrid) -> None:
        self.loss = loss
        self.weight = np.float32(loss.weight)
        self.temperature = np.float32(loss.temperature)
        self.offset = loss.offset
        sets: list[Tensor] = []  # (n, C, D) each
        if loss.mixture is not None and loss.sets is not None:
            sets = [some for some in (loss.mixture[None], loss.sets) if len(some)]
        self.sizes = tuple(len(some) for some in sets)
        towards = [_units(some) for some in sets]  # (n · C, D) each
        self.towards = [(some, some.t()) for some in towards]
        classes = loss.mixture.shape[0] if loss.mixture is not None else 0
        there = np.ones(classes, bool) if loss.present is None else loss.present.numpy()
        self.absent = ~there  # (C,)
        self.shares = None if loss.shares is None else loss.shares.numpy()  # (n,)
        self._told = () if self.shares is None else tuple(self.shares.tolist())

    def total_share(self, batch: int) -> np.float32:
        """Of all sets and all windows of a batch of that size."""
        return _total_share(self._told, batch)


@functools.lru_cache(maxsize=64)
def _total_share(shares: tuple[float, ...], batch: int) -> np.float32:
    """Summed as torch sums it; rooms with as many peers share it."""
    return np.float32(torch.tensor(shares).repeat(batch).sum().item())


def _units(sets: Tensor) -> Tensor:
    """As ``unit`` of sets [n, C, D], one below the other [n · C, D], in fewer passes."""
    rows = sets.contiguous().view(-1, sets.shape[-1])
    length = torch.linalg.vector_norm(rows, dim=-1)
    made = torch.empty(rows.shape)
    kernels.directions(rows.numpy(), length.numpy(), _SHORTEST, made.numpy())
    return made


class _Scores:
    """Logits and cosines of a batch, one below the other: one softmax is enough for all."""

    def __init__(self, sets: Sequence[int], batch: int, classes: int, width: int) -> None:
        self.batch = batch
        sizes = [batch, *(batch * number for number in sets)]
        # Of all rows (rows, C): the scores, the logarithm of their softmax, and both gradients.
        self.rows, self.likely, self.pulls, self.back = (
            torch.empty(sum(sizes), classes) for _ in range(4)
        )
        self.logits, *cosines = _cut(self.rows, sizes)
        self.logits_likely = self.likely[:batch]
        self.logits_pulls = self.pulls[:batch]
        self.logits_back, *backs = _cut(self.back, sizes)
        self.parts = [
            (likely.numpy(), pulls.numpy(), np.zeros(1, np.float32))
            for likely, pulls in zip(_cut(self.likely, sizes), _cut(self.pulls, sizes), strict=True)
        ]
        self.below = self.rows[batch:].numpy(), self.back[batch:].numpy()
        self.length, self.direction = torch.empty(batch, 1), torch.empty(batch, width)
        pulled, self.slopes = (torch.empty(len(sets), batch, width) for _ in range(2))
        self.sums = torch.empty(len(sets), batch)
        self.contrasts = [
            (score.view(batch, -1), back.view(batch, -1), pull)
            for score, back, pull in zip(cosines, backs, pulled, strict=True)
        ]
        # −log p of every window and set, where sets do not all count alike.
        self.unlikely = torch.empty(sizes[-1] if sets else 0)
        self.flat_length, self.flat_direction = self.length[:, 0].numpy(), self.direction.numpy()
        self.flat_pulled, self.flat_slopes = pulled.numpy(), self.slopes.numpy()
        self.flat_sums = self.sums.numpy()
        self.embeddings_pull = np.empty((batch, width), np.float32)
        self.flat_embeddings_pull = self.embeddings_pull.reshape(-1)

    def losses(
        self, aim: _Aim, embeddings: Tensor, labels: Tensor, targets: Tensor
    ) -> Mapping[str, np.float32]:
        """The losses of a batch whose logits are there; leaves their gradients."""
        if aim.offset is not None:
            self.logits.add_(aim.offset)
        if self.contrasts:
            torch.linalg.vector_norm(embeddings, dim=-1, keepdim=True, out=self.length)
            kernels.directions(embeddings.numpy(), self.flat_length, _SHORTEST, self.flat_direction)
            for (_, turned), (cosines, _, _) in zip(aim.towards, self.contrasts, strict=True):
                torch.mm(self.direction, turned, out=cosines)
            kernels.tempered(self.below[0], aim.absent, aim.temperature)
        torch.log_softmax(self.rows, 1, out=self.likely)
        self._classify(labels, targets)
        if self.contrasts:
            self._contrast(aim, labels.numpy())
        torch._log_softmax_backward_data(self.pulls, self.likely, 1, torch.float32, out=self.back)
        if self.contrasts:
            kernels.untempered(self.below[1], aim.absent, aim.temperature)
            for (some, _), (_, back, pull) in zip(aim.towards, self.contrasts, strict=True):
                torch.mm(back, some, out=pull)
        return self._named(aim)

    def _contrast(self, aim: _Aim, truth: npt.NDArray[np.int64]) -> None:
        """L_g and L_c and their gradients."""
        alike = self.parts[1:] if aim.shares is None else self.parts[1:-1]
        for likely, pulls, loss in alike:
            kernels.likelihood(likely, truth, aim.weight, loss, pulls)
        if aim.shares is None:
            return
        likely, pulls, loss = self.parts[-1]
        total = aim.total_share(self.batch)
        slopes = aim.weight / total * aim.shares
        kernels.shared_likelihood(likely, truth, aim.shares, slopes, self.unlikely.numpy(), pulls)
        loss[0] = np.float32(self.unlikely.sum().item()) / total

    def _classify(self, labels: Tensor, targets: Tensor) -> None:
        """L_ce and its gradient: of labels, or of shares of all classes."""
        likely, pulls, loss = self.parts[0]
        if targets.dim() == 1:
            kernels.likelihood(likely, targets.numpy(), _ONE, loss, pulls)
            return
        share = np.float32(self.batch)
        loss[0] = -np.float32((self.logits_likely * targets).sum().item()) / share
        torch.mul(targets, -1.0 / self.batch, out=self.logits_pulls)

    def _named(self, aim: _Aim) -> Mapping[str, np.float32]:
        classification, *contrasts = (loss[0] for _, _, loss in self.parts)
        if not contrasts:
            return {"loss": classification, "loss_ce": classification}
        to_mixture, to_sets = (*contrasts, np.float32(0))[:2]
        return {
            "loss": classification + aim.weight * (to_mixture + to_sets),  # eqn_11
            "loss_ce": classification,
            "loss_g": to_mixture,
            "loss_c": to_sets,
        }

    def add_contrasts(self, pull: Floats) -> None:
        """Add to the gradient of the embeddings, flat, what the contrasts pull."""
        if not self.contrasts:
            return
        rows = self.flat_direction, self.flat_pulled
        kernels.contrast_slopes(*rows, self.flat_length, _SHORTEST, self.flat_slopes)
        torch.sum(self.slopes, 2, out=self.sums)
        kernels.contrast_gradient(
            *rows, self.flat_sums, self.flat_length, _SHORTEST, self.embeddings_pull
        )
        kernels.added(pull, self.flat_embeddings_pull)


def _cut(rows: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Consecutive parts of so many rows."""
    edges = np.cumsum([0, *sizes]).tolist()
    return [rows[first:last] for first, last in itertools.pairwise(edges)]
