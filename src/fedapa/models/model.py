"""What counts in a room: a Counter; and Model, the counter that every net here is.

A model is an encoder (windows → embedding) and a classifier (→ logits).
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

__all__ = [
    "BATCH_NORMS",
    "NEVER",
    "SHORTEST",
    "Counter",
    "Model",
    "Scale",
    "answering_only",
    "batch_norm_arrays",
    "embed_each",
    "is_watched",
    "nearest_prototype",
    "unit",
    "unset_copy",
]

SHORTEST = 1e-8
"""A vector below this length has no direction."""

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)

NEVER = -1e9
"""The logit of a class that must not be answered."""


def unit(vectors: Tensor) -> Tensor:
    """Vectors [..., D] scaled to length one; one without a direction becomes zero.

    Such a vector is then at cosine 0 to everything and gets no gradient, where dividing by a
    tiny epsilon would give it an enormous one.
    """
    length = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / torch.where(length > SHORTEST, length, torch.inf)


class Counter(nn.Module, ABC):
    """What a room is scored with: a net, or anything else that finds each class so probable."""

    unsaved: ClassVar[str] = "only a net can be saved as a model file"
    """Why there is no model file of one that is no ``Model``, and a remedy."""

    @abstractmethod
    def scores(self, windows: Tensor) -> Tensor:
        """[B, classes] the logarithm of how probable each class is, but for a number per window."""

    def probabilities(self, windows: Tensor) -> Tensor:
        """How probable each class is, [B, classes]; rows sum to one. Not calibrated yet."""
        return torch.softmax(self.scores(windows), dim=1)

    def predict(self, windows: Tensor) -> Tensor:
        """The most probable class [B] of each window."""
        return torch.argmax(self.scores(windows), dim=1)


class Scale(nn.Module):
    """Everything times one number."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, given: Tensor) -> Tensor:
        """That many times what is given."""
        return given * self.factor


class Model(Counter):
    """An encoder θ and a linear classifier h; ``forward`` returns logits and embedding.

    Parameters come in the order of the layers: the encoder's, then the classifier's.
    """

    architecture: str
    """The name a plan calls this net by."""

    def __init__(
        self, encoder: nn.Module, *, classes: int, width: int, normalise_embedding: bool = False
    ) -> None:
        super().__init__()
        self.classes = classes
        self.width = width
        self.normalise_embedding = normalise_embedding
        self.encoder = encoder
        self.classifier = nn.Linear(width, classes)
        self.targets: Tensor | None = None
        """[C, C] what a label of each class is worth in training; none is the label alone. Of
        several tasks the first one's."""
        self.blocks: tuple[slice, ...] = (slice(0, classes),)
        """Where the classes of each task stand among the logits."""

    def embed(self, windows: Tensor) -> Tensor:
        """The embedding r [B, width] of a batch of windows."""
        embedding: Tensor = self.encoder(windows)
        return unit(embedding) if self.normalise_embedding else embedding

    def forward(self, windows: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [B, classes] and embedding [B, width]."""
        embedding = self.embed(windows)
        return self.classifier(embedding), embedding

    def targets_of(self, labels: Tensor) -> Tensor:
        """What the classifier should answer: the labels [B], or shares of all classes [B, C]."""
        return labels if self.targets is None else self.targets[labels]

    def scores(self, windows: Tensor) -> Tensor:
        """The logits, [B, classes]."""
        logits, _ = self(windows)
        return cast(Tensor, logits)


@torch.no_grad()
def embed_each(model: Model, batches: Iterable[Tensor]) -> list[Tensor]:
    """The embeddings of batches by a net in eval mode: the same bits as by ``embed``.

    Of small dense nets half of a pass is the way through modules; they are left out where a net has
    linear layers and ReLU alone, and nobody watches it.
    """
    layers = _dense(model)
    if layers is None:
        return [model.embed(windows) for windows in batches]
    made = []
    for batch in batches:
        given = batch
        for turned, bias, is_rectified in layers:
            given = torch.addmm(bias, given, turned)
            if is_rectified:
                torch.relu_(given)
        made.append(given)
    return made


def _dense(model: Model) -> list[tuple[Tensor, Tensor, bool]] | None:
    """Of each layer of an encoder its weights turned, its bias and whether it is rectified."""
    encoder = model.encoder
    if (
        type(model).embed is not Model.embed
        or type(encoder) is not nn.Sequential
        or model.normalise_embedding
        or is_watched(encoder)
        or _has_any_global_hook()  # type: ignore[no-untyped-call]
    ):
        return None
    layers: list[tuple[Tensor, Tensor, bool]] = []
    for module in encoder._modules.values():
        if module is None or is_watched(module):
            return None
        if type(module) is nn.ReLU and layers and not layers[-1][2]:
            layers[-1] = (*layers[-1][:2], True)
        elif type(module) is nn.Linear and module.bias is not None:
            layers.append((module.weight.t(), module.bias, False))
        else:
            return None
    return layers or None


def is_watched(module: nn.Module) -> bool:
    """Whether somebody watches a module, or made it do something else."""
    return "forward" in module.__dict__ or bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )


_M = TypeVar("_M", bound=nn.Module)


def unset_copy(module: _M) -> _M:
    """A module as another one, whose parameters and buffers have any values.

    To build layers and to register their parameters takes torch several times as long. Here their
    facts are taken over as they are, and what a module may change is its own.
    """
    facts = {
        name: type(value)(value) if isinstance(value, (dict, set, list)) else value
        for name, value in vars(module).items()
    }
    facts["_parameters"] = {
        name: value if value is None else nn.Parameter(torch.empty_like(value), value.requires_grad)
        for name, value in module._parameters.items()
    }
    facts["_buffers"] = {
        name: value if value is None else torch.empty_like(value)
        for name, value in module._buffers.items()
    }
    facts["_modules"] = {
        name: value if value is None else unset_copy(value)
        for name, value in module._modules.items()
    }
    made = object.__new__(type(module))
    vars(made).update(facts)
    return made


def batch_norm_arrays(model: nn.Module) -> frozenset[str]:
    """The names of all parameters and buffers of BatchNorms, found by the type of the module."""
    return frozenset(
        f"{path}.{name}"
        for path, module in model.named_modules()
        if isinstance(module, BATCH_NORMS)
        for name in module.state_dict()
    )


@torch.no_grad()
def answering_only(model: Model, classes: Sequence[int]) -> Model:
    """A copy of a net that never answers another class; it can be saved and served like any net."""
    limited = copy.deepcopy(model)
    others = torch.ones(model.classes, dtype=torch.bool)
    others[list(classes)] = False
    limited.classifier.weight[others] = 0.0
    limited.classifier.bias[others] = NEVER
    return limited


@torch.no_grad()
def nearest_prototype(
    model: Model, prototypes: Tensor, present: Tensor, *, cosine: bool = False
) -> Model:
    """A copy of a net that answers with the nearest prototype instead of its own classifier.

    That is a linear classifier too: argmin ‖r − p‖² = argmax r·p − ‖p‖²/2, and the largest cosine
    is the largest r·p/‖p‖. So the copy can be saved and served like any net.

    Args:
        model: the net whose embedding is compared.
        prototypes: [C, D].
        present: [C]; absent classes are never answered.
        cosine: by direction instead of distance.
    """
    nearest = copy.deepcopy(model)
    towards = unit(prototypes) if cosine else prototypes  # (C, D)
    offset = torch.zeros(len(towards)) if cosine else -towards.square().sum(dim=1) / 2  # (C,)
    nearest.classifier.weight.copy_(towards)
    nearest.classifier.bias.copy_(torch.where(present, offset, NEVER))
    return nearest
