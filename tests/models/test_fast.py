"""The fast path against the plain one: what comes out, every gradient, the running statistics."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.nn.modules import module as torch_module
from torch.nn.utils import parametrize

from fedapa import LargeConvNet4, MiddleConvNet4, TinyConvNet4
from fedapa.learning.fit import Training, cross_entropy, fit
from fedapa.models import fast, kernels
from fedapa.models.convnet import ConvEncoder
from fedapa.models.cost import layers
from fedapa.models.model import Model
from fedapa.randomness import Key
from tests.conftest import MakeRooms

NETS = [TinyConvNet4, MiddleConvNet4, LargeConvNet4]
# Float32 has 6e-8 of relative error in each step; sums over thousands of positions keep that near
# 1e-6 of the largest value. Eager torch itself is up to 4e-5 away from float64 on these sizes.
TOLERANCE = 2e-5


def noise(*shape: int) -> Tensor:
    stream = (Key(3) / "fast" / repr(shape)).numpy()
    return torch.from_numpy((stream.normal(size=shape) * 2 + 1).astype(np.float32))


def net_of(kind: type, width: int = 32) -> Model:
    with Key(7).as_torch_default():
        model: Model = kind(5, width)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):  # as after some training
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.uniform_(module.bias, -0.5, 0.5)
    return model


def take_the_plain_path(model: Model) -> Model:
    encoder = model.encoder
    encoder.forward = lambda windows: encoder.plain(windows.unsqueeze(1))  # type: ignore
    return model


def learn(model: Model, windows: Tensor) -> Tensor:
    """One backward pass of a loss that needs logits and embeddings; returns the embeddings."""
    labels = torch.arange(len(windows)) % 5
    logits, embedding = model(windows)
    (F.cross_entropy(logits, labels) + embedding.square().sum(dim=1).mean()).backward()
    return embedding.detach()


def far(ours: Tensor, truth: Tensor) -> float:
    """The largest difference as a share of the largest true value."""
    return float((ours.double() - truth).abs().max() / truth.abs().max().clamp(min=1e-12))


@pytest.mark.parametrize("kind", NETS)
@pytest.mark.parametrize("size", [(60, 31), (41, 24), (7, 5)])
def test_training_is_the_plain_paths_in_float64(kind: type, size: tuple[int, int]) -> None:
    windows = noise(8, *size)
    ours, truth = net_of(kind), net_of(kind).double()
    assert fast.fits(ours.encoder, windows[:, None])
    assert not fast.fits(truth.encoder, windows[:, None].double())
    assert far(learn(ours, windows), learn(truth, windows.double())) < TOLERANCE
    for (name, mine), (_, theirs) in zip(
        ours.named_parameters(), truth.named_parameters(), strict=True
    ):
        assert mine.grad is not None and theirs.grad is not None
        assert far(mine.grad, theirs.grad) < TOLERANCE, name
    for (name, mine), (_, theirs) in zip(ours.named_buffers(), truth.named_buffers(), strict=True):
        assert far(mine, theirs.double()) < TOLERANCE, name
        assert mine.dtype == theirs.float().dtype or name.endswith("num_batches_tracked")


@pytest.mark.parametrize("kind", NETS)
def test_training_is_no_farther_from_the_truth_than_torch_is(kind: type) -> None:
    windows = noise(8, 200, 50)
    ours, torchs, truth = net_of(kind), take_the_plain_path(net_of(kind)), net_of(kind).double()
    for model in (ours, torchs):
        learn(model, windows)
    learn(truth, windows.double())
    for (name, mine), (_, its), (_, true) in zip(
        ours.named_parameters(), torchs.named_parameters(), truth.named_parameters(), strict=True
    ):
        assert mine.grad is not None and its.grad is not None and true.grad is not None
        assert far(mine.grad, true.grad) < 3 * far(its.grad, true.grad) + 2e-6, name


@pytest.mark.parametrize("kind", NETS)
@pytest.mark.parametrize("size", [(60, 31), (7, 5), (1, 1)])
def test_eval_is_the_plain_paths(kind: type, size: tuple[int, int]) -> None:
    model = net_of(kind)
    model(noise(6, 30, 20))  # moves the running statistics
    model.eval()
    windows = noise(3, *size)
    with torch.no_grad():
        assert fast.fits(model.encoder, windows[:, None])
        ours = model(windows)[1]
        kept = copy.deepcopy(model.state_dict())
        truth = copy.deepcopy(model).double()(windows.double())[1]
    assert far(ours, truth) < TOLERANCE
    assert all(torch.equal(kept[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("kind", NETS)
def test_gradients_are_finite_differences(kind: type) -> None:
    """Differences of the plain loss in float64 along random directions, one a parameter."""
    windows = noise(6, 26, 12)
    model, truth = net_of(kind, 16), net_of(kind, 16).double()
    learn(model, windows)

    def loss() -> float:
        logits, embedding = truth(windows.double())
        labels = torch.arange(len(windows)) % 5
        total = F.cross_entropy(logits, labels) + embedding.square().sum(dim=1).mean()
        return float(total.detach())

    for (name, parameter), (_, ours) in zip(
        truth.named_parameters(), model.named_parameters(), strict=True
    ):
        stream = (Key(1) / name).numpy()
        direction = torch.from_numpy(stream.normal(size=tuple(parameter.shape)))
        step = 1e-6
        with torch.no_grad():
            parameter += step * direction
            above = loss()
            parameter -= 2 * step * direction
            below = loss()
            parameter += step * direction
        assert ours.grad is not None
        slope = float((ours.grad.double() * direction).sum())
        scale = float(ours.grad.double().norm() * direction.norm())
        assert abs(slope - (above - below) / (2 * step)) < 1e-3 * scale, name


@pytest.mark.parametrize("kind", NETS)
def test_windows_far_from_zero_lose_no_digits(kind: type) -> None:
    """Mean 300 times the deviation: raw second moments in float32 would have no digit left."""
    windows = noise(6, 40, 22) + 600
    ours, truth = net_of(kind), net_of(kind).double()
    learned, true = learn(ours, windows), learn(truth, windows.double())
    assert far(learned, true) < 2e-3  # 600 in float32 is known to 3e-5


@pytest.mark.parametrize("kind", NETS)
@pytest.mark.parametrize("place", [(0, 0, 0), (2, 100, 60)], ids=["corner", "middle"])
def test_one_outlier_spoils_no_statistics(kind: type, place: tuple[int, int, int]) -> None:
    """A dead subcarrier with one glitch is z-scored to hundreds; it may be the very first pixel."""
    windows = noise(4, 250, 121)
    windows[place] = 300.0
    ours, truth = net_of(kind), net_of(kind).double()
    ours(windows)
    truth(windows.double())
    for (name, one), other in zip(ours.named_buffers(), truth.buffers(), strict=True):
        if one.is_floating_point():
            scale = other.abs().max()
            assert (one.double() - other).abs().max() < 2e-6 * scale, name


@pytest.mark.parametrize("kind", NETS)
def test_nan_reaches_the_embedding(kind: type) -> None:
    windows = noise(4, 20, 20)
    windows[1, 3, 4] = torch.nan
    assert net_of(kind)(windows)[1].isnan().any()
    with torch.no_grad():
        embedding = net_of(kind).eval()(windows)[1]
    assert embedding[1].isnan().any()
    assert not embedding[[0, 2, 3]].isnan().any()


@pytest.mark.parametrize("kind", NETS)
def test_a_step_is_bit_equal_when_repeated(kind: type) -> None:
    windows = noise(6, 40, 22)
    first, second = net_of(kind), net_of(kind)
    for model in (first, second):
        learn(model, windows)
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert one.grad is not None and other.grad is not None
        assert torch.equal(one.grad, other.grad)


@pytest.mark.parametrize("kind", NETS)
def test_who_looks_inside_gets_the_plain_path(kind: type) -> None:
    model = net_of(kind)
    images = noise(4, 1, 20, 20)
    assert fast.fits(model.encoder, images)
    assert not fast.fits(model.encoder, images.clone().requires_grad_())
    assert not fast.fits(model.encoder, images[:1])
    assert not fast.fits(model.encoder, images.to("meta"))
    assert not fast.fits(copy.deepcopy(model).eval().encoder, images)  # gradients in eval mode
    assert fast.fits(copy.deepcopy(model).eval().requires_grad_(False).encoder, images)
    seen: list[str] = []
    hook = model.encoder.block1.relu.register_forward_hook(lambda *_: seen.append("relu"))
    model(images)
    hook.remove()
    assert seen == ["relu"]
    assert len(layers(model, (20, 20))) == len([m for m in model.modules() if not [*m.children()]])


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch's own, in jvp
@pytest.mark.parametrize("kind", NETS)
def test_functional_and_forward_derivatives_are_the_plain_nets(kind: type) -> None:
    """torch.func and dual numbers see tensors that hold no memory of their own."""
    model = net_of(kind).requires_grad_(False)
    images = noise(4, 1, 20, 20)
    weights = {name: value.detach() for name, value in model.encoder.named_parameters()}
    ones = {name: torch.ones_like(value) for name, value in weights.items()}

    def summed(values: dict[str, Tensor]) -> Tensor:
        copied = copy.deepcopy(model.encoder)
        return torch.func.functional_call(copied, values, (images,)).sum()

    gradient = torch.func.grad(summed)(weights)
    _, tangent = torch.func.jvp(summed, (weights,), (ones,))
    # The derivative along all ones is the sum of the gradient.
    assert tangent.item() == pytest.approx(
        sum(value.sum().item() for value in gradient.values()), rel=1e-3, abs=1e-3
    )
    with forward_ad.dual_level():
        assert not fast.fits(model.encoder, images)
    assert fast.fits(model.encoder, images)


HOOKS: dict[str, Callable[[nn.Module], Any]] = {
    "forward": lambda m: m.register_forward_hook(lambda *_: None),
    "forward pre": lambda m: m.register_forward_pre_hook(lambda *_: None),
    "backward": lambda m: m.register_full_backward_hook(lambda *_: None),
    "backward pre": lambda m: m.register_full_backward_pre_hook(lambda *_: None),
    "every forward": lambda _: torch_module.register_module_forward_hook(lambda *_: None),
    "every forward pre": lambda _: torch_module.register_module_forward_pre_hook(lambda *_: None),
    "every backward": lambda _: torch_module.register_module_full_backward_hook(lambda *_: None),
    "every backward pre": lambda _: torch_module.register_module_full_backward_pre_hook(
        lambda *_: None
    ),
}


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("kind", NETS)
def test_any_hook_takes_the_plain_path_until_it_is_removed(kind: type, hook: str) -> None:
    encoder, images = net_of(kind).encoder, noise(4, 1, 20, 20)
    handle = HOOKS[hook](encoder.block1.norm)
    try:
        assert not fast.fits(encoder, images)
    finally:
        handle.remove()
    assert fast.fits(encoder, images)


class Doubled(nn.ReLU):
    def forward(self, given: Tensor) -> Tensor:
        return 2 * super().forward(given)


class Twice(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


def conv(**settings: Any) -> Callable[[Any], None]:
    """Puts another first convolution in: the same sizes unless a setting says otherwise."""
    usual = {"kernel_size": 3, "stride": 2, "padding": 1, "bias": False}

    def change(encoder: Any) -> None:
        out = encoder.block1.conv.out_channels
        encoder.block1.conv = nn.Conv2d(1, out, **{**usual, **settings})

    return change


def norm(**settings: Any) -> Callable[[Any], None]:
    def change(encoder: Any) -> None:
        encoder.block1.norm = nn.BatchNorm2d(encoder.block1.conv.out_channels, **settings)

    return change


def put(path: str, module: nn.Module) -> Callable[[Any], None]:
    where, name = path.rsplit(".", 1) if "." in path else ("", path)
    return lambda encoder: setattr(encoder.get_submodule(where), name, module)


def set_(path: str, name: str, value: Any) -> Callable[[Any], None]:
    return lambda encoder: setattr(encoder.get_submodule(path), name, value)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "a larger kernel": conv(kernel_size=5, padding=2),
    "a smaller stride": conv(stride=1),
    "another padding": conv(padding=2),
    "holes": conv(dilation=2, padding=2),
    "a bias": conv(bias=True),
    "reflected edges": conv(padding_mode="reflect"),
    "a norm without gain": norm(affine=False),
    "a norm without memory": norm(track_running_stats=False),
    "a norm that counts": norm(momentum=None),
    "a norm in eval mode": lambda encoder: encoder.block1.norm.eval(),
    "another norm": put("block1.norm", nn.Identity()),
    "another rectifier": put("block1.relu", nn.LeakyReLU()),
    "a rectifier of the same family": put("block1.relu", Doubled()),
    "a forward of its own": set_("block1.relu", "forward", torch.tanh),
    "another pool": put("pool", nn.AdaptiveMaxPool2d(1)),
    "a wider pool": lambda encoder: setattr(encoder, "pool", nn.AdaptiveAvgPool2d((1, 2))),
    "one layer more": lambda encoder: encoder.block1.add_module("drop", nn.Dropout(0.5)),
    "one block less": lambda encoder: encoder.__delattr__("block1"),
    "a parametrised weight": lambda encoder: parametrize.register_parametrization(
        encoder.block1.conv, "weight", Twice()
    ),
    "statistics in float64": lambda encoder: encoder.block1.norm.__setattr__(
        "running_mean", encoder.block1.norm.running_mean.double()
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", NETS)
def test_a_changed_net_takes_the_plain_path(kind: type, change: str) -> None:
    encoder, images = net_of(kind).encoder, noise(4, 1, 20, 20)
    assert fast.fits(encoder, images)
    CHANGES[change](encoder)
    assert not fast.fits(encoder, images)


def test_a_net_of_two_changed_blocks_takes_the_plain_path() -> None:
    images = noise(4, 1, 20, 20)
    encoder: Any = net_of(MiddleConvNet4).encoder
    encoder.block2.conv = nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False, groups=2)
    assert not fast.fits(encoder, images)
    encoder = net_of(MiddleConvNet4).encoder
    encoder.head = nn.Conv2d(32, 8, 1, groups=2)
    assert not fast.fits(encoder, images)
    encoder = net_of(LargeConvNet4).encoder
    encoder.block3 = encoder.block2
    assert not fast.fits(encoder, images)


@pytest.mark.parametrize(("channels", "width"), [((16,), 8), ((20, 8), 8), ((16, 8), None)])
def test_nets_of_other_plans_take_the_plain_path(channels: tuple[int, ...], width: Any) -> None:
    """A head on one block, channels that fill no vectors before a further block, no head."""
    assert not fast.fits(ConvEncoder(channels, width), noise(4, 1, 20, 20))


def test_a_second_derivative_of_tiny_is_the_plain_paths() -> None:
    """The embedding is W′·S with S constant almost everywhere, so autograd's is the true one."""
    windows = noise(4, 20, 12)
    found = []
    for model in (net_of(TinyConvNet4).double(), net_of(TinyConvNet4)):
        weight = model.encoder.block1.conv.weight
        loss = model.embed(windows.to(weight.dtype)).square().sum()
        (first,) = torch.autograd.grad(loss, weight, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), weight)[0])
    assert far(found[1], found[0]) < 1e-4


@pytest.mark.parametrize("kind", [MiddleConvNet4, LargeConvNet4])
def test_a_second_derivative_that_is_not_there_is_refused(kind: type) -> None:
    model = net_of(kind)
    weight = model.encoder.block2.conv.weight
    loss = model.embed(noise(4, 20, 12)).square().sum()
    (first,) = torch.autograd.grad(loss, weight, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        first.square().sum().backward()


@pytest.mark.parametrize("kind", NETS)
def test_another_default_type_changes_nothing(kind: type) -> None:
    windows, ours, others = noise(4, 20, 12), net_of(kind), net_of(kind)
    expected = learn(ours, windows)
    torch.set_default_dtype(torch.float64)
    try:
        found = learn(others, windows)
    finally:
        torch.set_default_dtype(torch.float32)
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)
    for one, other in zip(ours.parameters(), others.parameters(), strict=True):
        assert one.grad is not None and other.grad is not None
        assert torch.equal(one.grad, other.grad)


@pytest.mark.parametrize("width", [1, 5, 17, 40])
def test_widths_that_fill_no_vectors_are_the_plain_paths(width: int) -> None:
    """Tiny's channels are the embedding's: the last vector of 4, 8 or 16 lanes is not full."""
    windows = noise(5, 19, 14)
    ours, truth = net_of(TinyConvNet4, width), net_of(TinyConvNet4, width).double()
    assert fast.fits(ours.encoder, windows[:, None])
    found, true = learn(ours, windows), learn(truth, windows.double())
    assert found.shape == (5, width)
    assert far(found, true) < TOLERANCE
    for (name, mine), (_, theirs) in zip(
        ours.named_parameters(), truth.named_parameters(), strict=True
    ):
        assert mine.grad is not None and theirs.grad is not None
        assert far(mine.grad, theirs.grad) < TOLERANCE, name
    with torch.no_grad():
        found, true = ours.eval()(windows)[1], truth.eval()(windows.double())[1]
    assert far(found, true) < TOLERANCE


@pytest.mark.parametrize("kind", NETS)
@pytest.mark.parametrize("level", [0.0, 1.0, -1e4])
def test_windows_that_never_change_are_the_plain_paths(kind: type, level: float) -> None:
    """At 0, a dead room after its z-score, every patch is alike and every variance is 0; other
    levels differ from the zeros around the window at its edges alone."""
    windows = torch.full((4, 21, 14), level)
    ours, truth = net_of(kind), net_of(kind).double()
    found, true = learn(ours, windows), learn(truth, windows.double())
    assert far(found, true) < TOLERANCE
    for (name, mine), (_, theirs) in zip(ours.named_buffers(), truth.named_buffers(), strict=True):
        assert mine.isfinite().all() and (mine.min() >= 0 or "var" not in name), name
        assert far(mine, theirs.double()) < TOLERANCE, name
    for (name, mine), (_, theirs) in zip(
        ours.named_parameters(), truth.named_parameters(), strict=True
    ):
        assert mine.grad is not None and theirs.grad is not None
        # Through 1/√(variance + eps) gradients of weights cancel to rounding where variance is 0.
        scale = max(1.0, float(theirs.grad.abs().max()))
        assert (mine.grad.double() - theirs.grad).abs().max() < 1e-3 * scale, name


def test_a_variance_below_zero_by_rounding_counts_as_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """E[u²] − E[u]² of windows that hardly change may round to less than nothing."""
    below = torch.eye(9, dtype=torch.float64) * -1e-3
    statistics = (100, torch.ones(9, dtype=torch.float64), below)
    monkeypatch.setattr(fast, "_patch_statistics", lambda _: statistics)
    model = net_of(TinyConvNet4)
    embedding = learn(model, noise(4, 20, 12))
    assert embedding.isfinite().all()
    grown: Any = model.encoder.block1.norm.running_var
    assert torch.equal(grown, torch.full_like(grown, 0.9))  # 0.9 of the 1 at the start, 0.1 of 0
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("kind", NETS)
def test_the_layout_of_windows_in_memory_changes_nothing(kind: type) -> None:
    windows = noise(4, 20, 12)
    other = windows.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    part = noise(8, 40, 24)
    part[::2, ::2, ::2] = windows
    assert not other.is_contiguous() and not part[::2, ::2, ::2].is_contiguous()
    expected = learn(net_of(kind), windows)
    assert torch.equal(learn(net_of(kind), other), expected)
    assert torch.equal(learn(net_of(kind), part[::2, ::2, ::2]), expected)


@pytest.mark.parametrize("kind", NETS)
def test_training_mode_without_gradients_is_the_plain_paths(kind: type) -> None:
    windows = noise(6, 41, 24)
    ours, truth = net_of(kind), net_of(kind).double()
    kept = windows.clone()
    with torch.no_grad():
        assert fast.fits(ours.encoder, windows[:, None])
        found, true = ours(windows)[1], truth(windows.double())[1]
    assert not found.requires_grad
    assert far(found, true) < TOLERANCE
    assert torch.equal(windows, kept)
    for (name, mine), (_, theirs) in zip(ours.named_buffers(), truth.named_buffers(), strict=True):
        assert far(mine, theirs.double()) < TOLERANCE, name


@pytest.mark.parametrize("kind", NETS)
def test_one_value_a_channel_is_refused_as_torch_does(kind: type) -> None:
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        net_of(kind)(noise(1, 1, 1))


def test_the_frozen_encoder_keeps_still(make_rooms: MakeRooms) -> None:
    room = make_rooms(architecture="tiny")[0]
    model = room.build()
    before = copy.deepcopy(model.encoder.state_dict())
    fit(model, room, cross_entropy, Training(), key=Key(0), part="classifier")
    after = model.encoder.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("architecture", ["tiny", "middle", "large"])
def test_an_epoch_gives_the_plain_paths_losses(make_rooms: MakeRooms, architecture: str) -> None:
    room = make_rooms(architecture=architecture, shape=(40, 20))[0]
    ours, plain = room.build(), take_the_plain_path(room.build())
    training = Training(epochs=3, batch_size=4)
    mine, its = (
        fit(model, room, cross_entropy, training, key=Key(0)).losses for model in (ours, plain)
    )
    assert mine["loss"] == pytest.approx(its["loss"], rel=1e-3)


def test_patch_moments_are_those_of_unfolded_patches() -> None:
    for size in [(9, 7), (8, 6), (1, 1), (5, 2)]:
        windows = noise(3, *size)
        patches = F.unfold(windows[:, None].double(), 3, padding=1, stride=2)  # (B, 9, P)
        patches = patches.transpose(0, 1).flatten(1)  # (9, B·P)
        first, second = np.zeros(9), np.zeros((9, 9))
        kernels.patch_moments(windows.numpy(), first, second)
        np.testing.assert_allclose(first, patches.sum(dim=1).numpy(), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(second, (patches @ patches.T).numpy(), rtol=1e-12, atol=1e-12)
