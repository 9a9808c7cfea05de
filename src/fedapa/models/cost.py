"""What a net costs: parameters, and FLOPs counted layer by layer as the paper's table does.

Two FLOPs per multiply-accumulate (and one per bias), two per BatchNorm element, one per ReLU
element, one per pooled element. Counted on shapes alone (torch's ``meta`` device): no arithmetic.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedapa.models.model import Model

__all__ = ["Layer", "count_parameters", "flops", "layers"]


@dataclass(frozen=True)
class Layer:
    """One row of the table: a leaf module, what it makes and what it costs."""

    name: str
    kind: str
    output: tuple[int, ...]
    """Shape without the batch."""
    parameters: int
    flops: int


def count_parameters(module: nn.Module) -> int:
    """Number of trainable parameters."""
    return sum(parameter.numel() for parameter in module.parameters())


def flops(model: Model, window_shape: tuple[int, ...]) -> int:
    """FLOPs of one forward pass of one window."""
    return sum(layer.flops for layer in layers(model, window_shape))


def layers(model: Model, window_shape: tuple[int, ...]) -> list[Layer]:
    """The leaf modules in the order in which one window passes them, with their cost."""
    rows: list[Layer] = []
    ghost = _ghost(model)
    hooks = [
        module.register_forward_hook(_recorder(name, rows))
        for name, module in ghost.named_modules()
        if not list(module.children())
    ]
    with torch.no_grad():
        ghost(torch.empty((1, *window_shape), device="meta"))
    for hook in hooks:
        hook.remove()
    return rows


def _ghost(model: Model) -> Model:
    """The same net without values, in eval mode; the original is left as it is."""
    return copy.deepcopy(model).to("meta").eval()


def _recorder(
    name: str, rows: list[Layer]
) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
    def record(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        rows.append(
            Layer(
                name=name,
                kind=type(module).__name__,
                output=tuple(output.shape[1:]),
                parameters=count_parameters(module),
                flops=_module_flops(module, inputs[0], output),
            )
        )

    return record


def _module_flops(module: nn.Module, given: Tensor, made: Tensor) -> int:
    if isinstance(module, nn.Conv2d):
        fan_in = module.in_channels // module.groups * module.kernel_size[0] * module.kernel_size[1]
        return made.numel() * (2 * fan_in + (module.bias is not None))
    if isinstance(module, nn.Linear):
        # As the published figures count it: the classifier's bias is not added.
        return made.numel() * 2 * module.in_features
    if isinstance(module, nn.BatchNorm2d):
        return 2 * made.numel()
    if isinstance(module, nn.ReLU):
        return made.numel()
    if isinstance(module, nn.AdaptiveAvgPool2d):
        return given.numel()
    return 0
