"""Steps of SGD with gradients written out: the same bits as by autograd, in less time.

A step of a dense net is a dozen small matrix products. With autograd, most of its time goes into
some two hundred operations on small tensors around them. Here the gradients are written out: torch
makes the products, sums and logarithms into buffers that stay, compiled loops (``kernels``) do what
is between them, and one loop moves all weights. Every number is rounded where torch rounds it, and
tests hold the two together to the bit.

Other encoders, the ConvNets', keep autograd; their classifier, the loss and the step are as above.
``KnownSteps.of`` says whether it knows a net and a loss; ``fit`` takes autograd alone for others.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from fedapa.learning.losses import Hybrid
from fedapa.learning.tree import NamedArrays
from fedapa.models import kernels
from fedapa.models.model import SHORTEST, Model, Scale, unit

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

    @classmethod
    def of(
        cls, model: Model, loss: Hybrid, pace: Pace, velocity: NamedArrays
    ) -> "KnownSteps | None":
        """For a net and a loss that are known; None for all others."""
        if not _is_plain(model):
            return None
        return cls(model, loss, pace, velocity)

    def __init__(self, model: Model, loss: Hybrid, pace: Pace, velocity: NamedArrays) -> None:
        self._model = model
        self._layers = _layers(model)
        self._loss = loss
        self._pace = pace
        self._weights = _Weights(model, self._layers, velocity)
        self._turns: dict[int, _Turn] = {}

    def step(self, windows: Tensor, labels: Tensor) -> Mapping[str, np.float32]:
        """Descend on a batch; the losses before that."""
        turn = self._turns.get(len(labels))
        if turn is None:
            turn = _Turn(self._model, self._layers, self._loss, self._weights, len(labels))
            self._turns[len(labels)] = turn
        losses = turn.gradients(windows, labels, self._model.targets_of(labels))
        self._weights.descend(self._pace)
        return losses

    def finish(self) -> dict[str, Floats]:
        """The momentum of every trained parameter, by name; the net then owns its weights."""
        self._weights.give_back()
        if not self._pace.momentum:
            return {}
        return {name: part.numpy().copy() for name, part in self._weights.velocity.items()}


class _Weights:
    """The trained parameters of a net and their velocity.

    Those of dense layers lie side by side in memory, and so do their gradients: one loop moves all
    of them. An encoder's that is differentiated by autograd have theirs from it.
    """

    def __init__(self, model: Model, layers: Sequence["_Layer"], velocity: NamedArrays) -> None:
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        for parameter in trained.values():
            parameter.grad = None  # of whoever trained the net before
        names = {f"{layer.name}.{kind}" for layer in layers for kind in ("weight", "bias")}
        dense = {name: p for name, p in trained.items() if name in names}
        places, size = {}, 0
        for name, parameter in dense.items():
            places[name] = slice(size, size + parameter.numel())
            size += -(-parameter.numel() // _ALIGNED) * _ALIGNED
        values, slopes = torch.zeros(size), torch.zeros(size)
        # What has no velocity yet gets its first gradient as it is: −0 + g = g, also where g = −0.
        carried = torch.full((size,), -0.0)
        self.slope: dict[str, Tensor] = {}
        self.velocity: dict[str, Tensor] = {}
        for name, parameter in dense.items():
            values[places[name]] = parameter.detach().flatten()
            parameter.data = values[places[name]].view(parameter.shape)
            self.slope[name] = slopes[places[name]].view(parameter.shape)
            self.velocity[name] = carried[places[name]].view(parameter.shape)
        self._dense = values.numpy(), slopes.numpy(), carried.numpy()
        self._others = {name: p for name, p in trained.items() if name not in names}
        for name, parameter in self._others.items():
            parameter.data = parameter.data.contiguous()
            self.velocity[name] = torch.full(parameter.shape, -0.0)
        for name, part in self.velocity.items():
            if name in velocity:
                part.copy_(torch.from_numpy(np.array(velocity[name])))
        self._trained = trained

    def descend(self, pace: Pace) -> None:
        """One step of SGD; the gradients of other encoders are used up."""
        by = np.float32(pace.rate), np.float32(pace.decay), np.float32(pace.momentum)
        kernels.descend(*self._dense, *by)
        for name, parameter in self._others.items():
            if parameter.grad is None:
                continue
            kernels.descend(
                parameter.detach().view(-1).numpy(),
                parameter.grad.contiguous().view(-1).numpy(),
                self.velocity[name].view(-1).numpy(),
                *by,
            )
            parameter.grad = None

    def give_back(self) -> None:
        """Every parameter in memory of its own."""
        for parameter in self._trained.values():
            parameter.data = parameter.data.clone()


# ---- the net ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Layer:
    """A linear layer, and what is done to numbers before it."""

    name: str
    linear: nn.Linear
    before: tuple[nn.Module, ...]


def _is_plain(model: Model) -> bool:
    """Whether a net does what ``Model`` says, in float32 on a CPU, and nobody watches it."""
    kind = type(model)
    classifier = model.classifier
    return (
        kind.forward is Model.forward
        and kind.embed is Model.embed
        and type(classifier) is nn.Linear
        and classifier.bias is not None
        and not _has_any_global_hook()  # type: ignore[no-untyped-call]
        and not _changed(model)
        and not _changed(classifier)
        and all(p.device.type == "cpu" and p.dtype == torch.float32 for p in model.parameters())
    )


def _layers(model: Model) -> list[_Layer]:
    """The layers of a dense net in order; of all others the classifier alone."""
    encoder = model.encoder
    alone = [_Layer("classifier", model.classifier, ())]
    if type(encoder) is not nn.Sequential or model.normalise_embedding:
        return alone
    if any(_changed(module) for module in encoder.modules()):
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
        layers.append(_Layer(name, module, tuple(before)))
        before = []
    return layers


_FIRST = {(), (nn.Hardtanh, nn.Dropout), (nn.Hardtanh, nn.Dropout, Scale)}
"""What may be done to numbers before the first linear layer, in that order."""
_FURTHER = {(nn.ReLU,), (nn.ReLU, nn.Dropout)}


def _changed(module: nn.Module) -> bool:
    """Whether somebody watches a module, or made it do something else."""
    return "forward" in module.__dict__ or bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )


class _Part:
    """What a layer makes of a batch, and what its gradient needs; buffers that stay."""

    def __init__(self, layer: _Layer, weights: _Weights, made: Tensor) -> None:
        linear = layer.linear
        self.weight, self.bias = linear.weight.detach(), linear.bias.detach()
        self.turned = self.weight.t()
        self.weight_slope = weights.slope.get(f"{layer.name}.weight")
        self.bias_slope = weights.slope.get(f"{layer.name}.bias")
        self.made = made  # (B, out)
        self.given, self.pull = (torch.empty(len(made), linear.in_features) for _ in range(2))
        self.kept = torch.ones(len(made), linear.in_features)
        self.flat_given, self.flat_pull, self.flat_kept, self.flat_made = (
            part.view(-1).numpy() for part in (self.given, self.pull, self.kept, made)
        )
        kinds = {type(module): module for module in layer.before}
        drop = cast(nn.Dropout | None, kinds.get(nn.Dropout))
        self.left = 1.0 - drop.p if drop is not None and drop.training else 1.0
        self.share = _ONE / np.float32(self.left)
        self.is_rectified = nn.ReLU in kinds
        cut = cast(nn.Hardtanh | None, kinds.get(nn.Hardtanh))
        self.least = np.float32(-np.inf if cut is None else cut.min_val)
        self.most = np.float32(np.inf if cut is None else cut.max_val)
        scale = cast(Scale | None, kinds.get(Scale))
        self.scale = np.float32(1.0 if scale is None else scale.factor)

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

    def __init__(
        self,
        model: Model,
        layers: Sequence[_Layer],
        loss: Hybrid,
        weights: _Weights,
        batch: int,
    ) -> None:
        # An encoder that is no layer of these goes by autograd.
        self.model = None if len(layers) > 1 else model
        self.is_encoder_trained = any(p.requires_grad for p in model.encoder.parameters())
        self.loss = loss
        classifier = layers[-1].linear
        self.scores = _Scores(loss, batch, classifier.out_features, classifier.in_features)
        outputs = [torch.empty(batch, layer.linear.out_features) for layer in layers[:-1]]
        self.parts = [
            _Part(layer, weights, made)
            for layer, made in zip(layers, [*outputs, self.scores.logits], strict=True)
        ]
        trained = [place for place, part in enumerate(self.parts) if part.weight_slope is not None]
        by_autograd = self.model is not None and self.is_encoder_trained
        self.first = -1 if by_autograd else trained[0]

    def gradients(
        self, windows: Tensor, labels: Tensor, targets: Tensor
    ) -> Mapping[str, np.float32]:
        """The losses of a batch; the gradients are then beside the weights."""
        if self.model is None:
            return self._dense(windows, labels, targets)
        with torch.set_grad_enabled(self.is_encoder_trained):
            embeddings = self.model.embed(windows)
        if not embeddings.is_contiguous():
            return self._by_autograd(self.model, embeddings, labels)
        losses = self._dense(embeddings.detach(), labels, targets)
        if self.is_encoder_trained:
            embeddings.backward(self.parts[0].pull)  # type: ignore[no-untyped-call]
        return losses

    def _by_autograd(
        self, model: Model, embeddings: Tensor, labels: Tensor
    ) -> Mapping[str, np.float32]:
        """For embeddings in another order in memory: torch sums those in another order, too."""
        losses = self.loss.of(model, model.classifier(embeddings), embeddings, labels)
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

    def _dense(self, given: Tensor, labels: Tensor, targets: Tensor) -> Mapping[str, np.float32]:
        before = given.reshape(-1).numpy()
        for part in self.parts:
            part.forward(before)
            before = part.flat_made
        *_, last = self.parts
        losses = self.scores.losses(last.given, labels, targets)
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


class _Scores:
    """Logits and cosines of a batch, one below the other: one softmax is enough for all."""

    def __init__(self, loss: Hybrid, batch: int, classes: int, width: int) -> None:
        self.weight = np.float32(loss.weight)
        self.temperature = np.float32(loss.temperature)
        self.offset = loss.offset
        self.batch = batch
        sets: list[Tensor] = []  # (n, C, D) each
        if loss.mixture is not None and loss.sets is not None:
            sets = [some for some in (loss.mixture[None], loss.sets) if len(some)]
        sizes = [batch, *(batch * len(some) for some in sets)]
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
        there = torch.ones(classes, dtype=torch.bool) if loss.present is None else loss.present
        self.absent = (~there).numpy()  # (C,)
        self.length, self.direction = torch.empty(batch, 1), torch.empty(batch, width)
        pulled, self.slopes = (torch.empty(len(sets), batch, width) for _ in range(2))
        self.sums = torch.empty(len(sets), batch)
        towards = [unit(some).reshape(-1, width) for some in sets]  # (n · C, D) each
        self.contrasts = [
            (some, some.t(), score.view(batch, -1), back.view(batch, -1), pull)
            for some, score, back, pull in zip(towards, cosines, backs, pulled, strict=True)
        ]
        self.shares = _Shares.of(loss, batch) if sets and sets[-1] is loss.sets else None
        self.flat_length, self.flat_direction = self.length[:, 0].numpy(), self.direction.numpy()
        self.flat_pulled, self.flat_slopes = pulled.numpy(), self.slopes.numpy()
        self.flat_sums = self.sums.numpy()
        self.embeddings_pull = np.empty((batch, width), np.float32)
        self.flat_embeddings_pull = self.embeddings_pull.reshape(-1)

    def losses(
        self, embeddings: Tensor, labels: Tensor, targets: Tensor
    ) -> Mapping[str, np.float32]:
        """The losses of a batch whose logits are there; leaves their gradients."""
        if self.offset is not None:
            self.logits.add_(self.offset)
        if self.contrasts:
            torch.linalg.vector_norm(embeddings, dim=-1, keepdim=True, out=self.length)
            kernels.directions(embeddings.numpy(), self.flat_length, _SHORTEST, self.flat_direction)
            for _, turned, cosines, _, _ in self.contrasts:
                torch.mm(self.direction, turned, out=cosines)
            kernels.tempered(self.below[0], self.absent, self.temperature)
        torch.log_softmax(self.rows, 1, out=self.likely)
        self._classify(labels, targets)
        truth = labels.numpy()
        alike = self.parts[1:] if self.shares is None else self.parts[1:-1]
        for likely, pulls, loss in alike:
            kernels.likelihood(likely, truth, self.weight, loss, pulls)
        if self.shares is not None:
            likely, pulls, loss = self.parts[-1]
            loss[0] = self.shares.loss(likely, truth, pulls)
        torch._log_softmax_backward_data(self.pulls, self.likely, 1, torch.float32, out=self.back)
        if self.contrasts:
            kernels.untempered(self.below[1], self.absent, self.temperature)
            for some, _, _, back, pull in self.contrasts:
                torch.mm(back, some, out=pull)
        return self._named()

    def _classify(self, labels: Tensor, targets: Tensor) -> None:
        """L_ce and its gradient: of labels, or of shares of all classes."""
        likely, pulls, loss = self.parts[0]
        if targets.dim() == 1:
            kernels.likelihood(likely, targets.numpy(), _ONE, loss, pulls)
            return
        share = np.float32(self.batch)
        loss[0] = -np.float32((self.logits_likely * targets).sum().item()) / share
        torch.mul(targets, -1.0 / self.batch, out=self.logits_pulls)

    def _named(self) -> Mapping[str, np.float32]:
        classification, *contrasts = (loss[0] for _, _, loss in self.parts)
        if not contrasts:
            return {"loss": classification, "loss_ce": classification}
        to_mixture, to_sets = (*contrasts, np.float32(0))[:2]
        return {
            "loss": classification + self.weight * (to_mixture + to_sets),  # eqn_11
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


class _Shares:
    """L_c of sets that do not all count alike: its mean is a weighted one."""

    @classmethod
    def of(cls, loss: Hybrid, batch: int) -> "_Shares | None":
        """For batches of that size; None where all sets count alike."""
        return None if loss.shares is None else cls(loss.shares, loss.weight, batch)

    def __init__(self, shares: Tensor, weight: float, batch: int) -> None:
        self.share = shares.numpy()  # (n,)
        self.total = np.float32(shares.repeat(batch).sum().item())
        self.slopes = np.float32(weight) / self.total * self.share
        self.losses = torch.empty(batch * len(shares))
        self.flat_losses = self.losses.numpy()

    def loss(self, likely: Floats, truth: npt.NDArray[np.int64], pulls: Floats) -> np.float32:
        """Of the logarithms of probabilities; leaves the gradient."""
        kernels.shared_likelihood(likely, truth, self.share, self.slopes, self.flat_losses, pulls)
        return np.float32(self.losses.sum().item()) / self.total


def _cut(rows: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Consecutive parts of so many rows."""
    edges = np.cumsum([0, *sizes]).tolist()
    return [rows[first:last] for first, last in itertools.pairwise(edges)]
