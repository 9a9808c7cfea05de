"""The fast path of the ConvNets on a CPU: the same function and gradients, far less memory traffic.

The plain path is ``ConvEncoder.plain``; tests hold the two together. What is different here:

- A convolution of one channel is W·u over patches u, so BatchNorm's batch mean and variance of the
  first layer are W·E[u] and W·Cov[u]·Wᵀ: no pass over its activations. BatchNorm folds into the
  weights, W′v with v = (u, 1), and gradients of W, γ and β flow from W′ by autograd in float64.
- Tiny ends there: with S the mean over positions of 1[W′v > 0]·v the embedding is W′·S, and S is
  all that the backward pass needs.
- Further blocks are channels last, with BatchNorm and ReLU in one pass; in the last block the
  global mean is in that pass too, and its reductions for the backward pass are those of forward.
- In eval mode every BatchNorm is folded into the convolution before it.
"""

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.nn.modules.module import _has_any_global_hook

if TYPE_CHECKING:
    from fedapa.models.convnet import ConvEncoder

__all__ = ["encode", "fits"]


def fits(encoder: "ConvEncoder", images: Tensor) -> bool:
    """Whether the fast path may be taken: it is for float32 on a CPU, and seen by nobody.

    Hooks, exporters, tracers, torch.func and forward-mode derivatives want to see every layer;
    gradients of the windows or of a net in eval mode are rare; a net with other layers or settings
    is another function. All of them get the plain path.
    """
    if (
        type(images) is not Tensor
        or images.device.type != "cpu"
        or images.dtype != torch.float32
        or images.dim() != 4
        or images.shape[1] != 1
        or not images.numel()
        or images.requires_grad
        or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        or torch.compiler.is_compiling()
        or torch.is_autocast_enabled("cpu")
        or torch._C._functorch.peek_interpreter_stack() is not None  # torch.func: grad, vmap …
        or forward_ad._current_level >= 0
    ):
        return False
    if not _unchanged(encoder):
        return False
    parameters = list(encoder.parameters())
    kept = [buffer for buffer in encoder.buffers() if buffer.is_floating_point()]
    if any(v.device.type != "cpu" or v.dtype != torch.float32 for v in (*parameters, *kept)):
        return False
    if encoder.training:
        return len(images) > 1
    return not (torch.is_grad_enabled() and any(p.requires_grad for p in parameters))


def encode(encoder: "ConvEncoder", images: Tensor) -> Tensor:
    """Embeddings [B, width] of images [B, 1, H, W]."""
    windows = images[:, 0].contiguous()  # (B, H, W)
    blocks = [cast(nn.Sequential, block) for block in encoder.blocks]
    folded = _fold_first(blocks[0], windows)  # W′ (C, 10)
    if len(blocks) == 1:
        return _rectified_mean(folded, windows)
    made = cast(Tensor, _FirstLayer.apply(folded, windows))  # type: ignore[no-untyped-call]
    for number, block in enumerate(blocks[1:], start=2):
        made = _block(made, block, last=number == len(blocks))
    head = cast(nn.Conv2d, encoder.head)
    return F.linear(made, head.weight.flatten(1), head.bias)


# ---- the nets it is for -------------------------------------------------------------------------

_Settings: TypeAlias = tuple[type[nn.Module], Mapping[str, object]]
_EVEN = {"dilation": (1, 1), "groups": 1, "padding_mode": "zeros"}
_MOST_LANES = 16  # kernels.LANES at most; to look there would load numba for nets that do not fit


@functools.cache
def _expected(blocks: int) -> dict[str, _Settings]:
    """Name, type and settings of every module that ``encode`` knows, in order."""
    conv = {**_EVEN, "kernel_size": (3, 3), "stride": (2, 2), "padding": (1, 1)}
    modules: dict[str, _Settings] = {}
    for number in range(1, blocks + 1):
        modules[f"block{number}"] = (nn.Sequential, {})
        modules[f"block{number}.conv"] = (nn.Conv2d, conv)
        modules[f"block{number}.norm"] = (
            nn.BatchNorm2d,
            {"affine": True, "track_running_stats": True},
        )
        modules[f"block{number}.relu"] = (nn.ReLU, {})
    modules["pool"] = (nn.AdaptiveAvgPool2d, {"output_size": 1})
    if blocks > 1:  # one block makes the embedding itself
        head = {**_EVEN, "kernel_size": (1, 1), "stride": (1, 1), "padding": (0, 0)}
        modules["head"] = (nn.Conv2d, head)
    modules["flatten"] = (nn.Flatten, {"start_dim": 1, "end_dim": -1})
    return modules


def _unchanged(encoder: "ConvEncoder") -> bool:
    """Whether every layer is what ``encode`` takes it for, and nobody watches one."""
    modules = {name: module for name, module in encoder.named_modules() if name}
    blocks = [cast(nn.Sequential, block) for block in encoder.blocks]
    expected = _expected(len(blocks))
    if not blocks or [*modules] != [*expected]:
        return False
    if _has_any_global_hook():  # type: ignore[no-untyped-call]
        return False
    for name, (kind, settings) in expected.items():
        module = modules[name]
        # A subclass may compute anything, as may a ``forward`` put on one module. A parametrised
        # layer is a subclass, too.
        if type(module) is not kind or "forward" in module.__dict__ or _watched(module):
            return False
        if any(getattr(module, setting) != value for setting, value in settings.items()):
            return False
    for block in blocks:
        conv, norm = cast(nn.Conv2d, block.conv), cast(nn.BatchNorm2d, block.norm)
        if conv.bias is not None or norm.momentum is None or norm.running_mean is None:
            return False
        if norm.training != encoder.training:
            return False
    first = cast(nn.Conv2d, blocks[0].conv)
    # The first layer's loops write whole vectors; a further block takes all that they write.
    whole = len(blocks) == 1 or first.out_channels % _MOST_LANES == 0
    return first.in_channels == 1 and whole


def _watched(module: nn.Module) -> bool:
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )


# ---- the first layer ----------------------------------------------------------------------------


def _fold_first(block: nn.Sequential, windows: Tensor) -> Tensor:
    """W′ [C, 10] in float64: convolution and BatchNorm of the first block as one product."""
    norm = cast(nn.BatchNorm2d, block.norm)
    weight = cast(nn.Conv2d, block.conv).weight.flatten(1).double()  # (C, 9)
    if norm.training:
        number, centre, spread = _patch_statistics(windows)
        mean = weight @ centre  # (C,)
        # Rounding may leave less than nothing of the variance of windows that hardly change.
        variance = ((weight @ spread) * weight).sum(dim=1).clamp(min=0)  # (C,)
        _remember(norm, mean.detach(), variance.detach(), number)
    else:
        mean, variance = _kept(norm)
    scale, bias = _scale_and_bias(norm, mean, variance)
    return torch.cat([scale[:, None] * weight, bias[:, None]], dim=1)


def _patch_statistics(windows: Tensor) -> tuple[int, Tensor, Tensor]:
    """How many patches a batch has, their mean [9] and their covariance [9, 9]."""
    from fedapa.models import kernels

    batch, height, width = windows.shape
    number = batch * ((height + 1) // 2) * ((width + 1) // 2)
    first, second = np.zeros(9), np.zeros((9, 9))
    kernels.patch_moments(windows.numpy(), first, second)
    mean = first / number
    covariance = second / number - np.outer(mean, mean)
    return number, torch.from_numpy(mean), torch.from_numpy(covariance)


def _rectified_mean(folded: Tensor, windows: Tensor) -> Tensor:
    """Mean over positions of relu(W′v), [B, C]."""
    from fedapa.models import kernels

    batch, height, width = windows.shape
    positions = ((height + 1) // 2) * ((width + 1) // 2)
    channels = len(folded)
    weights = _by_lanes(folded)  # (blocks, 10, LANES)
    if not folded.requires_grad:
        sums = np.zeros((batch, len(weights), kernels.LANES))
        kernels.rectified_sums(windows.numpy(), weights, sums)
        rectified = torch.from_numpy(sums).reshape(batch, -1)[:, :channels]  # (B, C)
        return (rectified / positions).float()
    sums = np.zeros((batch, *weights.shape))
    kernels.active_sums(windows.numpy(), weights, sums)
    active = torch.from_numpy(sums).transpose(2, 3).reshape(batch, -1, kernels.TAPS)  # (B, C, 10)
    active = active[:, :channels] / positions  # S
    return torch.einsum("ck,bck->bc", folded, active).float()


def _by_lanes(folded: Tensor) -> npt.NDArray[np.float32]:
    """W′ [C, 10] as [blocks, 10, LANES] float32, zero where a last block is not full."""
    from fedapa.models import kernels

    blocks = -(-len(folded) // kernels.LANES)
    padded = np.zeros((blocks * kernels.LANES, kernels.TAPS), np.float32)
    padded[: len(folded)] = folded.detach().numpy()
    return np.ascontiguousarray(
        padded.reshape(blocks, kernels.LANES, kernels.TAPS).transpose(0, 2, 1)
    )


class _FirstLayer(torch.autograd.Function):
    """relu(W′v) at every position, [B, C, rows, columns] with channels last in memory."""

    @staticmethod
    def forward(ctx: Any, folded: Tensor, windows: Tensor) -> Tensor:
        from fedapa.models import kernels

        batch, height, width = windows.shape
        weights = _by_lanes(folded)
        shape = (batch, (height + 1) // 2, (width + 1) // 2, weights.shape[0] * kernels.LANES)
        made = torch.empty(shape, dtype=torch.float32)
        kernels.first_layer(windows.numpy(), weights, made.numpy())
        ctx.save_for_backward(windows)
        ctx.weights = weights
        return made.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        from fedapa.models import kernels

        (windows,) = ctx.saved_tensors
        pull = gradients[0].permute(0, 2, 3, 1).contiguous()  # (B, rows, columns, C)
        sums = np.zeros(ctx.weights.shape)
        kernels.first_layer_gradient(windows.numpy(), ctx.weights, pull.numpy(), sums)
        return torch.from_numpy(sums).transpose(1, 2).reshape(-1, kernels.TAPS), None


# ---- the other blocks ---------------------------------------------------------------------------


def _block(given: Tensor, block: nn.Sequential, *, last: bool) -> Tensor:
    """Convolution, BatchNorm, ReLU; after the last block the mean over positions, [B, C]."""
    conv, norm = cast(nn.Conv2d, block.conv), cast(nn.BatchNorm2d, block.norm)
    if not norm.training:
        return _resting_block(given, conv, norm, last=last)
    weight = conv.weight.contiguous(memory_format=torch.channels_last)
    raw = F.conv2d(given, weight, stride=conv.stride, padding=conv.padding)
    terms, tiles = _batch_statistics(raw, norm)
    function = _NormReluMean if last else _NormRelu
    gain, bias = cast(Tensor, norm.weight), cast(Tensor, norm.bias)
    if not torch.is_grad_enabled():  # a Function cannot see that
        gain, bias = gain.detach(), bias.detach()
    result = function.apply(raw, gain, bias, terms, tiles)  # type: ignore[no-untyped-call]
    return cast(Tensor, result)


def _resting_block(given: Tensor, conv: nn.Conv2d, norm: nn.BatchNorm2d, *, last: bool) -> Tensor:
    """``_block`` in eval mode: BatchNorm is folded into the convolution; there is no gradient."""
    scale, bias = _scale_and_bias(norm, *_kept(norm))
    weight = conv.weight.detach().contiguous(memory_format=torch.channels_last)
    weight = weight * scale.float()[:, None, None, None]
    made = F.conv2d(given, weight, bias.float(), stride=conv.stride, padding=conv.padding)
    if not last:
        return made.relu_()
    from fedapa.models import kernels

    channels, positions = made.shape[1], made.shape[2] * made.shape[3]
    total = np.empty((len(made), _tile(channels)))
    kernels.rectified_pool(_rows(made), total)
    return (_untiled(total, channels) / positions).float()


def _batch_statistics(raw: Tensor, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """``kernels.norm_terms`` [5, C] and what it repeats [3, TILE]; running statistics move."""
    from fedapa.models import kernels

    channels = raw.shape[1]
    number = raw.numel() // channels
    # Squares around a value near the mean do not cancel; one pixel may be an outlier, many are not.
    pivot = raw.detach()[:, :, ::8, ::8].mean(dim=(0, 2, 3))
    tile = _tile(channels)
    first, second = np.zeros(tile), np.zeros(tile)
    kernels.channel_moments(_rows(raw), _tiled(pivot), first, second)
    terms, tiles = np.empty((5, channels)), np.empty((3, tile), np.float32)
    gain, bias = norm.weight.detach().numpy(), norm.bias.detach().numpy()
    kernels.norm_terms(first, second, number, pivot.numpy(), gain, bias, norm.eps, terms, tiles)
    made = torch.from_numpy(terms)
    _remember(norm, made[0], made[1], number)
    return made, torch.from_numpy(tiles)


class _NormRelu(torch.autograd.Function):
    """relu(γ·(z − mean)/deviation + β) where mean and deviation are those of the batch."""

    @staticmethod
    def forward(
        ctx: Any, raw: Tensor, gain: Tensor, bias: Tensor, terms: Tensor, tiles: Tensor
    ) -> Tensor:
        from fedapa.models import kernels

        values = _rows(raw)
        # Without a backward pass nobody needs the raw values again.
        made = torch.from_numpy(values)
        if any(ctx.needs_input_grad):
            made = torch.empty(values.shape, dtype=torch.float32)
        scale, shift, _ = _three(tiles)
        kernels.normalise(values, scale, shift, made.numpy())
        ctx.save_for_backward(raw, terms, tiles)
        batch, channels, height, width = raw.shape
        return made.reshape(batch, height, width, channels).permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        from fedapa.models import kernels

        raw, terms, tiles = ctx.saved_tensors
        values, pull = _rows(raw), _rows(gradients[0])
        batch, channels, height, width = raw.shape
        tile = tiles.shape[1]
        first, second = np.zeros(tile), np.zeros(tile)
        scale, shift, mean = _three(tiles)
        kernels.norm_sums(values, pull, scale, shift, mean, first, second)
        made, back = np.empty((2, channels), np.float32), np.empty((2, tile), np.float32)
        number = raw.numel() // channels
        kernels.norm_gradient_terms(first, second, number, terms.numpy(), made, back)
        # The incoming gradient is this function's alone: it is the convolution's behind it.
        kernels.norm_gradient(values, pull, scale, shift, mean, back[0], back[1])
        result = torch.from_numpy(pull).reshape(batch, height, width, channels)
        gain, bias = torch.from_numpy(made)
        return result.permute(0, 3, 1, 2), gain, bias, None, None


class _NormReluMean(torch.autograd.Function):
    """The mean over positions of what ``_NormRelu`` gives, [B, C]."""

    @staticmethod
    def forward(
        ctx: Any, raw: Tensor, gain: Tensor, bias: Tensor, terms: Tensor, tiles: Tensor
    ) -> Tensor:
        from fedapa.models import kernels

        batch, channels, height, width = raw.shape
        shape = (batch, tiles.shape[1])
        total, positive, distance = np.empty(shape), np.empty(shape), np.empty(shape)
        scale, shift, mean = _three(tiles)
        kernels.pooled_sums(_rows(raw), scale, shift, mean, total, positive, distance)
        positions = height * width
        ctx.save_for_backward(
            raw,
            *(terms, tiles),
            _untiled(positive, channels) / positions,
            _untiled(distance, channels) / positions,
        )
        return (_untiled(total, channels) / positions).float()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        from fedapa.models import kernels

        raw, terms, tiles, positive, distance = ctx.saved_tensors
        _, _, inverse, scale, _ = terms
        pull = gradients[0].double()  # (B, C)
        bias_gradient = (pull * positive).sum(dim=0)
        gain_gradient = (pull * distance).sum(dim=0) * inverse
        offset, slope = _corrections(raw, scale, inverse, bias_gradient, gain_gradient)
        batch, channels, height, width = raw.shape
        pull_per_position = _tiled(pull * scale / (height * width))  # (B, TILE)
        made = torch.empty((batch, height * width * channels), dtype=torch.float32)
        known = (*_three(tiles), _tiled(offset), _tiled(slope))
        kernels.pooled_gradient(_rows(raw), pull_per_position, *known, made.numpy())
        made = made.reshape(batch, height, width, channels).permute(0, 3, 1, 2)
        return made, gain_gradient.float(), bias_gradient.float(), None, None


_Row: TypeAlias = npt.NDArray[np.float32]


def _three(tiles: Tensor) -> tuple[_Row, _Row, _Row]:
    """Scale, shift and mean, [TILE] each."""
    rows = tiles.numpy()
    return rows[0], rows[1], rows[2]


def _corrections(
    raw: Tensor, scale: Tensor, inverse: Tensor, bias_gradient: Tensor, gain_gradient: Tensor
) -> tuple[Tensor, Tensor]:
    """How the batch's mean and variance pull: dz gains offset + slope·(z − mean)."""
    number = raw.numel() // raw.shape[1]
    return -scale * bias_gradient / number, -scale * inverse * gain_gradient / number


# ---- statistics and layouts ---------------------------------------------------------------------


def _remember(norm: nn.BatchNorm2d, mean: Tensor, variance: Tensor, number: int) -> None:
    """Move the running statistics as BatchNorm2d does: the variance is unbiased there."""
    momentum = cast(float, norm.momentum)
    unbiased = variance * (number / max(number - 1, 1))
    left, share = np.float32(1 - momentum), np.float32(momentum)
    with np.errstate(over="ignore", invalid="ignore"):  # the loss tells of it
        for kept, new in ((norm.running_mean, mean), (norm.running_var, unbiased)):
            values = cast(Tensor, kept).detach().numpy()
            values *= left
            values += share * new.numpy().astype(np.float32)
    cast(Tensor, norm.num_batches_tracked).add_(1)


def _scale_and_bias(norm: nn.BatchNorm2d, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """BatchNorm as scale·z + bias, [C] each, in float64."""
    scale = norm.weight.double() / torch.sqrt(variance + norm.eps)
    return scale, norm.bias.double() - scale * mean


def _kept(norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    return cast(Tensor, norm.running_mean).double(), cast(Tensor, norm.running_var).double()


def _rows(images: Tensor) -> npt.NDArray[np.float32]:
    """[B, C, H, W] with channels last in memory as [B, H · W · C]."""
    last = images.detach().permute(0, 2, 3, 1).contiguous()  # (B, H, W, C)
    return cast(npt.NDArray[np.float32], last.reshape(len(images), -1).numpy())


def _tile(channels: int) -> int:
    """The largest multiple of ``channels`` that a step of the kernels covers."""
    from fedapa.models import kernels

    return max(kernels.TILE // channels, 1) * channels


def _tiled(values: Tensor) -> npt.NDArray[np.float32]:
    """[…, C] repeated along the last axis to the length of a tile, float32."""
    repeats = _tile(values.shape[-1]) // values.shape[-1]
    return np.tile(values.detach().float().numpy(), repeats)


def _untiled(sums: npt.NDArray[np.float64], channels: int) -> Tensor:
    """[…, tile] added up to […, C]."""
    whole = torch.from_numpy(sums)
    return whole.reshape(*sums.shape[:-1], -1, channels).sum(dim=-2)
