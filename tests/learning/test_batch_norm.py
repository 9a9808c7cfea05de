"""BatchNorm statistics that follow: by hand, bounded, and in a copy."""

import numpy as np
import pytest
import torch

from fedapa.adaptation import Adaptation
from fedapa.learning.batch_norm import following
from fedapa.models.convnet import TinyConvNet4
from fedapa.models.model import BATCH_NORMS


def _norms(model: torch.nn.Module) -> list[torch.nn.Module]:
    return [module for module in model.modules() if isinstance(module, BATCH_NORMS)]


def _net(seed: int = 0) -> TinyConvNet4:
    torch.manual_seed(seed)
    return TinyConvNet4(classes=3, width=8).eval()


def test_the_first_batch_norm_by_hand() -> None:
    """μ = 0, σ = 1, ι = 30: one window whose channel has mean m and mean square r.

    The running mean becomes m/31, the variance (30 + r)/31 − (m/31)², both within their bounds.
    """
    net = _net()
    seen: list[torch.Tensor] = []
    follower = following(net, Adaptation())
    first = _norms(follower)[0]
    first.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    follower.embed(torch.rand(1, 24, 16))
    (given,) = seen
    mean, square = given.mean(dim=(0, 2, 3)), given.square().mean(dim=(0, 2, 3))
    expected = (30 + square) / 31 - (mean / 31) ** 2
    torch.testing.assert_close(first.running_mean, mean / 31)
    torch.testing.assert_close(first.running_var, expected)


@pytest.mark.parametrize("level", [1.0, 1e4])
def test_no_statistic_leaves_its_bounds(level: float) -> None:
    net = _net()
    before = [norm.running_mean.clone() for norm in _norms(net)]
    follower = following(net, Adaptation())
    with torch.no_grad():
        for window in level * torch.randn(40, 1, 24, 16):
            assert torch.isfinite(follower.embed(window)).all()
    moved = 0.0
    for norm, old, own in zip(_norms(follower), before, _norms(net), strict=True):
        usual = own.running_var.sqrt()
        assert ((norm.running_mean - old).abs() <= usual + 1e-6).all()
        assert (norm.running_var <= 1.5**2 * own.running_var + 1e-5).all()
        assert (norm.running_var >= own.running_var / 1.5**2 - 1e-5).all()
        assert torch.equal(own.running_mean, old), "the given net stays as it was"
        moved += float((norm.running_mean - old).abs().sum())
    assert moved > 0


def test_a_gain_that_all_windows_have_is_followed() -> None:
    """Windows of twice the usual amplitude: embeddings come nearer to those of usual ones."""
    net = _net()
    windows = torch.rand(64, 24, 16)
    with torch.no_grad():
        for norm in _norms(net):
            norm.momentum = None  # the plain mean
        net.train()
        net.embed(windows)
        net.eval()
        usual = net.embed(windows)
        follower = following(net, Adaptation(inertia=1.0, farthest=5.0, stretch=5.0))
        for window in 2 * windows:
            follower.embed(window[None])
        far = float((net.embed(2 * windows) - usual).norm())
        near = float((follower.embed(2 * windows) - usual).norm())
    assert near < far / 2
    assert np.isfinite(near)
