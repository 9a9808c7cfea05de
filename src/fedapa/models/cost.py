"""What a net costs: parameters, and FLOPs counted layer by layer as the paper's table does.

Two FLOPs per multiply-accumulate (and one per bias), two per BatchNorm element, one per ReLU
element, one per pooled element. Counted on shapes alone (torch's ``meta`` device): no arithmetic.
"""

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from fedapa.models.model import Model, Scale

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


def flops(model: Model, window_shape: Sequence[int]) -> int:
    """FLOPs of one forward pass of one window."""
    return sum(layer.flops for layer in layers(model, window_shape))


def layers(model: Model, window_shape: Sequence[int]) -> list[Layer]:
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
    ghost = copy.deepcopy(model).to("meta").eval()
    for module in ghost.modules():
        if (outline := _outline(module)) is not None:
            module.forward = outline
    return ghost


def _outline(module: nn.Module) -> Callable[[Tensor], Tensor] | None:
    """What a layer does to a shape, or none to ask torch.

    torch would know as well, but loads its compiler to say so: a second of every start.
    """
    if isinstance(module, nn.BatchNorm2d | nn.Dropout | nn.Hardtanh | nn.ReLU | Scale):
        return lambda given: given
    if isinstance(module, nn.Linear):
        return lambda given: given.new_empty((*given.shape[:-1], module.out_features))
    if isinstance(module, nn.AdaptiveAvgPool2d) and module.output_size == 1:
        return lambda given: given.new_empty((*given.shape[:2], 1, 1))
    if isinstance(module, nn.Conv2d) and not isinstance(module.padding, str):
        return functools.partial(_convolved, module)
    return None


def _convolved(module: nn.Conv2d, given: Tensor) -> Tensor:
    around = zip(
        given.shape[2:],
        module.kernel_size,
        module.stride,
        cast(tuple[int, int], module.padding),
        module.dilation,
        strict=True,
    )
    sizes = [(n + 2 * pad - far * (size - 1) - 1) // step + 1 for n, size, step, pad, far in around]
    return given.new_empty((len(given), module.out_channels, *sizes))


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
    if isinstance(module, nn.ReLU | Scale):
        return made.numel()
    if isinstance(module, nn.AdaptiveAvgPool2d):
        return given.numel()
    return 0
