"""Arithmetic on named arrays."""

import numpy as np
import pytest
import torch

from fedapa.errors import PayloadError
from fedapa.learning.tree import load_weights, weighted_mean, weights_of


def test_weighted_mean_by_hand() -> None:
    """(1·0 + 3·4)/4 = 3; the integer buffer (1·10 + 3·11)/4 = 10.75 rounds to 11."""
    trees = [
        {"w": np.zeros(2, np.float32), "n": np.array(10)},
        {"w": np.full(2, 4, np.float32), "n": np.array(11)},
    ]
    mean = weighted_mean(trees, [1, 3])
    assert mean["w"].tolist() == [3.0, 3.0]
    assert mean["w"].dtype == np.float32
    assert mean["n"] == 11
    assert mean["n"].dtype == np.int64


def test_unequal_names_are_refused() -> None:
    with pytest.raises(PayloadError, match="'b' is not in every tree"):
        weighted_mean([{"a": np.zeros(1)}, {"a": np.zeros(1), "b": np.zeros(1)}], [1, 1])


def test_weights_survive_the_way_out_and_back() -> None:
    one, other = torch.nn.BatchNorm1d(3), torch.nn.BatchNorm1d(3)
    one(torch.randn(8, 3))
    load_weights(other, weights_of(one))
    for name, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])


def test_what_was_taken_out_does_not_change_with_the_module() -> None:
    module = torch.nn.Linear(2, 2)
    taken = weights_of(module)
    before = taken["weight"].copy()
    with torch.no_grad():
        module.weight.add_(1)
    np.testing.assert_array_equal(taken["weight"], before)
