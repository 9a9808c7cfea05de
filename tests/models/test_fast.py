"""The fast path against the plain one: what comes out, every gradient, the running statistics."""

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedapa import LargeConvNet4, MiddleConvNet4, TinyConvNet4
from fedapa.learning.fit import Training, cross_entropy, fit
from fedapa.models import fast, kernels
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
