"""The terms of the theory: by hand, against autograd, and as an identity."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedapa.learning.diagnosis import (
    MOST,
    Gradients,
    Penalty,
    Seen,
    descended,
    gradient_epoch,
    gradient_terms,
)
from fedapa.learning.fit import Training, cross_entropy, fit
from fedapa.models.model import Model
from fedapa.randomness import Key
from tests.conftest import MakeRooms


def seen(embeddings: list[list[float]], classification: float) -> Seen:
    return Seen(torch.tensor(embeddings), torch.zeros(len(embeddings)), classification)


def mean_length(weight: float, *, off: float = 0.0) -> Penalty:
    """Φ = mean ‖r‖ + off: another ``off`` is another set of prototypes."""

    def length(embeddings: Tensor, labels: Tensor) -> Tensor:
        return embeddings.norm(dim=1).mean() + off

    return Penalty(weight, length)


def test_a_round_by_hand() -> None:
    """Round 1: lengths 3 and 5, Φ = 4, λ = 0.5, L_ce = 2: L = 4. Then Φ is one more (new
    prototypes) and λ = 1: at the start L = 2 + 5 = 7 = 4 + 0.5·4 + 1·1. Steps to lengths 1 and 1
    and L_ce = 1.5: L = 1.5 + 2 = 3.5, a descent of 3.5."""
    kept, first = descended(None, seen([[3.0, 0.0], [0.0, 5.0]], 2.0), mean_length(0.5))
    assert first["objective_after"] == 4.0
    assert "descent" not in first
    _, second = descended(kept, seen([[1.0, 0.0], [0.0, 1.0]], 1.5), mean_length(1.0, off=1.0))
    assert second == {
        "objective_before": 7.0,
        "objective_after": 3.5,
        "descent": 3.5,
        "jump_schedule": 2.0,
        "jump_refresh": 1.0,
        "penalty_change": 1.0,
        "penalty": 2.0,
        "weight": 1.0,
        "embedding_mean": 1.0,
        "embedding_longest": 1.0,
    }


def test_jumps_begin_when_there_were_prototypes_before() -> None:
    kept, _ = descended(None, seen([[1.0]], 2.0), None)
    _, told = descended(kept, seen([[1.0]], 1.0), mean_length(1.0))
    assert told["objective_before"] == 3.0
    assert "jump_refresh" not in told


def test_a_room_with_other_windows_than_before_says_nothing_of_its_descent() -> None:
    kept, _ = descended(None, seen([[1.0]], 2.0), None)
    _, told = descended(kept, seen([[1.0], [2.0]], 1.0), None)
    assert "descent" not in told


def test_the_cross_entropy_is_the_classifiers() -> None:
    model = Model(nn.Identity(), classes=3, width=2)
    embeddings, labels = torch.randn(5, 2), torch.tensor([0, 1, 2, 1, 0])
    with torch.no_grad():
        expected = F.cross_entropy(model.classifier(embeddings), labels)
    assert Seen.by(model, embeddings, labels).classification == pytest.approx(float(expected))


def test_of_many_windows_some_are_kept_from_the_first_to_the_last() -> None:
    model = Model(nn.Identity(), classes=3, width=1)
    embeddings = torch.arange(3.0 * MOST)[:, None]
    kept = Seen.by(model, embeddings, torch.zeros(3 * MOST, dtype=torch.long))
    assert len(kept.embeddings) == len(kept.labels) == MOST
    assert (kept.embeddings[0], kept.embeddings[-1]) == (0, 3 * MOST - 1)


def test_a_gradient_epoch_is_the_gradient_of_the_mean_loss(make_rooms: MakeRooms) -> None:
    room = make_rooms()[0]
    model = room.build().eval()
    batches = list(room.batches(4, Key(0)))
    found = gradient_epoch(model, batches, cross_entropy)
    windows, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    loss = F.cross_entropy(model(windows)[0], labels)
    exact = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
    torch.testing.assert_close(found.mean.float(), exact, rtol=1e-4, atol=1e-6)
    apart = 0.0
    for some, truth in batches:
        slopes = torch.autograd.grad(
            cross_entropy(model, some, truth)["loss"], list(model.parameters())
        )
        slope = torch.cat([g.flatten() for g in slopes])
        apart += len(truth) * float((slope - exact).square().sum())
    assert found.variance == pytest.approx(apart / len(labels), rel=1e-3)


def test_smoothness_of_a_parabola_is_its_curvature() -> None:
    """L = 3/2 ‖w‖²: ∇L = 3 w, so that L̂ = 3, wherever the two points are."""
    points = [torch.tensor([1.0, 2.0]).double(), torch.tensor([0.5, -1.0]).double()]
    before, after = (Gradients(3 * w, w, 0.25) for w in points)
    told = gradient_terms(before, after)
    assert told["smoothness"] == pytest.approx(3.0)
    assert told["gradient_before"] == pytest.approx(45.0)
    assert told["variance"] == 0.25
    assert "smoothness" not in gradient_terms(before, before), "nothing moved"


@pytest.mark.parametrize("architecture", ["mlp", "middle"])
def test_steps_by_hand_and_by_autograd_measure_the_same_gradient(
    make_rooms: MakeRooms, architecture: str
) -> None:
    shape = (20,) if architecture == "mlp" else (12, 10)
    room = make_rooms(shape=shape, architecture=architecture)[0]
    training = Training(learning_rate=0.01, batch_size=4, weight_decay=0.1)

    def plain(model: Model, windows: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return {"loss": F.cross_entropy(model(windows)[0], labels)}

    by_hand, by_autograd = (
        fit(room.build(), room, objective, training, key=Key(0), measured=True).measured
        for objective in (cross_entropy, plain)
    )
    assert by_hand["steps"] == by_autograd["steps"] == math.ceil(len(room.split.train) / 4)
    assert by_hand["squared_gradient"] == pytest.approx(by_autograd["squared_gradient"], rel=1e-5)
    assert by_hand["squared_gradient"] > 0
    assert fit(room.build(), room, plain, training, key=Key(0)).measured == {}
    assert np.isfinite(by_hand["rate"])
