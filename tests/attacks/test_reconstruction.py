"""A linear encoder gives its input away whole; likeness of windows by hand."""

import pytest
import torch
from torch import nn

from fedapa.attacks.reconstruction import compare_windows, reconstruct
from fedapa.models.model import Model
from fedapa.randomness import Key


def linear_model() -> Model:
    with (Key(0) / "linear").as_torch_default():
        return Model(nn.Linear(6, 6), classes=2, width=6)


def test_a_linear_encoder_gives_the_mean_window_away() -> None:
    """f(mean x) is the mean of f(x) where f is linear, so that the mean window has p exactly."""
    model = linear_model()
    windows = torch.randn((30, 6), generator=(Key(0) / "windows").torch())
    prototype = model.embed(windows).mean(dim=0, keepdim=True).detach()
    found = reconstruct(model, prototype, torch.zeros(1, 6), nearness=0.0, steps=150)
    near = compare_windows(found[0], windows.mean(dim=0))
    assert near.error < 1e-2
    assert near.correlation > 0.999


def test_a_search_that_is_held_stays_where_it_began() -> None:
    model, start = linear_model(), torch.full((1, 6), 2.0)
    found = reconstruct(model, torch.ones(1, 6), start, nearness=1e6)
    assert found == pytest.approx(start, abs=1e-2)


def plain_model() -> Model:
    """f(x) = x."""
    model = Model(nn.Linear(2, 2, bias=False), classes=2, width=2)
    with torch.no_grad():
        model.encoder.weight.copy_(torch.eye(2))
    return model


def test_a_window_is_sought_whose_embedding_has_the_prototype_once_it_is_cut() -> None:
    """f(x) = x and C = 1. p = (0.6, 0.8) is x = (3, 4) of length 5, cut: who cuts stays there. Who
    does not looks for f(x) = p itself."""
    model, start = plain_model(), torch.tensor([[3.0, 4.0]])
    prototype = torch.tensor([[0.6, 0.8]])
    cut = reconstruct(model, prototype, start, clip=1.0, nearness=0.0)
    assert cut == pytest.approx(start, abs=1e-4)
    assert reconstruct(model, prototype, start, nearness=0.0) == pytest.approx(prototype, abs=1e-4)


def test_the_net_is_left_as_it_was() -> None:
    model = linear_model().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    reconstruct(model, torch.ones(1, 6), torch.zeros(1, 6))
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_likeness_of_windows_by_hand() -> None:
    """x̂ = (2, 0), x̄ = (1, 0): apart by 1 of a length of 1; both fall, so they correlate fully."""
    near = compare_windows(torch.tensor([2.0, 0.0]), torch.tensor([1.0, 0.0]))
    assert near.error == pytest.approx(1.0)
    assert near.correlation == pytest.approx(1.0)


def test_the_mean_of_all_windows_has_error_one_and_no_correlation() -> None:
    near = compare_windows(torch.zeros(4), torch.tensor([1.0, -2.0, 0.5, 3.0]))
    assert near.error == pytest.approx(1.0)
    assert near.correlation == 0.0
