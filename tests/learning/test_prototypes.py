"""Prototypes and their aggregation: by hand, by brute force, and by what must hold always."""

import math
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from fedapa import aggregate_prototypes, class_prototypes, pad_prototypes
from fedapa.errors import DataError, PlanError
from fedapa.learning import prototypes as module
from fedapa.learning.prototypes import aggregation_weights, weight_entropy
from fedapa.randomness import Key

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def drawn(
    seed: int, rooms: int = 4, classes: int = 3, width: int = 5, absent: float = 0.3
) -> tuple[Floats, Mask]:
    """Prototypes and a mask, absent rows full of junk that must not matter."""
    stream = (Key(seed) / "prototypes").numpy()
    return (
        stream.normal(size=(rooms, classes, width)),
        stream.uniform(size=(rooms, classes)) > absent,
    )


SEEDS = st.integers(0, 10_000)


def brute_force(prototypes: Floats, present: Mask, temperature: float) -> Floats:
    """eqn_5 to eqn_7, index by index, as the paper writes them."""
    rooms, classes, width = prototypes.shape
    mixture = np.zeros((rooms, classes, width))
    for i, c in product(range(rooms), range(classes)):
        if not present[i, c]:
            continue
        eligible = [j for j in range(rooms) if present[j, c]]
        scores = []
        for j in eligible:
            p, q = prototypes[i, c], prototypes[j, c]
            cosine = p @ q / (np.linalg.norm(p) * np.linalg.norm(q))
            scores.append(math.exp(cosine / temperature))
        for j, score in zip(eligible, scores, strict=True):
            mixture[i, c] += score / sum(scores) * prototypes[j, c]
    return mixture


def test_class_prototypes_are_means_per_class() -> None:
    """Class 0 has (1, 0) and (3, 0): mean (2, 0); class 1 nothing; class 2 only (0, 2)."""
    embeddings = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0]])
    prototypes, counts = class_prototypes(embeddings, torch.tensor([0, 0, 2]), 3)
    assert prototypes.tolist() == [[2.0, 0.0], [0.0, 0.0], [0.0, 2.0]]
    assert counts.tolist() == [2, 0, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_two_orthogonal_rooms_by_hand(dtype: torch.dtype) -> None:
    """p_1 = (1, 0), p_2 = (0, 1), τ = 0.5: s_11 = 1, s_12 = 0 (eqn_5), so
    α_11 = e² / (e² + e⁰) = 0.880797 (eqn_6) and q_1 = (0.880797, 0.119203) (eqn_7).
    """
    prototypes = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]], dtype=dtype)
    present = torch.ones(2, 1, dtype=torch.bool)
    weights = aggregation_weights(prototypes, present, 0.5)
    mixture = aggregate_prototypes(prototypes, present, 0.5)
    near = math.exp(2) / (math.exp(2) + 1)
    assert weights.dtype == mixture.dtype == dtype
    torch.testing.assert_close(
        weights[0], torch.tensor([[near, 1 - near], [1 - near, near]], dtype=dtype)
    )
    torch.testing.assert_close(mixture[0, 0], torch.tensor([near, 1 - near], dtype=dtype))
    torch.testing.assert_close(mixture[1, 0], torch.tensor([1 - near, near], dtype=dtype))


def test_an_absent_room_neither_gives_nor_takes() -> None:
    """Room 2 lacks the class: rooms 0 and 1 mix as if alone, room 2 gets zeros."""
    prototypes = np.array([[[1.0, 0.0]], [[0.0, 1.0]], [[5.0, 5.0]]])
    present = np.array([[True], [True], [False]])
    mixture = aggregate_prototypes(prototypes, present, 0.5)
    alone = aggregate_prototypes(prototypes[:2], present[:2], 0.5)
    np.testing.assert_allclose(mixture[:2], alone)
    assert mixture[2].tolist() == [[0.0, 0.0]]


def test_padding_by_hand() -> None:
    """(2, 0) and (4, 0) pad with (3, 0); weighted 1 : 3 with (2·1 + 4·3)/4 = 3.5."""
    prototypes = np.array([[[2.0, 0.0]], [[4.0, 0.0]], [[9.0, 9.0]]])
    present = np.array([[True], [True], [False]])
    assert pad_prototypes(prototypes, present)[2, 0].tolist() == [3.0, 0.0]
    counts = np.array([[1], [3], [0]])
    assert pad_prototypes(prototypes, present, counts)[2, 0].tolist() == [3.5, 0.0]
    assert pad_prototypes(prototypes, present)[:2].tolist() == prototypes[:2].tolist()


def test_a_class_nobody_holds_stays_zero() -> None:
    prototypes, present = np.ones((2, 1, 3)), np.zeros((2, 1), bool)
    assert not pad_prototypes(prototypes, present).any()
    assert not aggregate_prototypes(prototypes, present, 0.5).any()


@given(SEEDS, st.sampled_from([0.1, 0.5, 1.5]))
def test_vectorised_equals_brute_force(seed: int, temperature: float) -> None:
    prototypes, present = drawn(seed)
    expected = brute_force(prototypes, present, temperature)
    np.testing.assert_allclose(
        aggregate_prototypes(prototypes, present, temperature), expected, atol=1e-12
    )
    single = aggregate_prototypes(prototypes.astype(np.float32), present, temperature)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, atol=1e-5)


@given(SEEDS)
def test_the_order_of_rooms_and_classes_does_not_matter(seed: int) -> None:
    prototypes, present = drawn(seed)
    stream = (Key(seed) / "order").numpy()
    rooms, classes = stream.permutation(4), stream.permutation(3)
    expected = aggregate_prototypes(prototypes, present, 0.5)[rooms][:, classes]
    moved = aggregate_prototypes(prototypes[rooms][:, classes], present[rooms][:, classes], 0.5)
    np.testing.assert_allclose(moved, expected, atol=1e-12)
    np.testing.assert_allclose(
        pad_prototypes(prototypes[rooms], present[rooms]),
        pad_prototypes(prototypes, present)[rooms],
        atol=1e-12,
    )


@given(SEEDS)
def test_a_mixture_is_convex(seed: int) -> None:
    """Weights are not negative and sum to one, so every coordinate stays within its holders'."""
    prototypes, present = drawn(seed)
    weights = aggregation_weights(prototypes, present, 0.5)
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=2), present.T.astype(float), atol=1e-12)
    mixture = aggregate_prototypes(prototypes, present, 0.5)
    for c in range(3):
        if present[:, c].any():
            held = prototypes[present[:, c], c]
            inside = mixture[present[:, c], c]
            assert (inside >= held.min(axis=0) - 1e-9).all()
            assert (inside <= held.max(axis=0) + 1e-9).all()


@given(SEEDS, st.sampled_from([1e9, math.inf]))
def test_infinite_temperature_is_the_mean(seed: int, temperature: float) -> None:
    prototypes, present = drawn(seed)
    mixture = aggregate_prototypes(prototypes, present, temperature)
    for i, c in product(range(4), range(3)):
        if present[i, c]:
            mean = prototypes[present[:, c], c].mean(axis=0)
            np.testing.assert_allclose(mixture[i, c], mean, atol=1e-7)


def test_low_temperature_takes_the_most_similar_only() -> None:
    """τ = 0.01 between cosines 1 and 0.6 is e⁴⁰ to one."""
    prototypes = np.array([[[1.0, 0.0]], [[0.6, 0.8]]])
    mixture = aggregate_prototypes(prototypes, np.ones((2, 1), bool), 0.01)
    np.testing.assert_allclose(mixture, prototypes, atol=1e-12)


@given(SEEDS)
def test_identical_prototypes_are_a_fixed_point(seed: int) -> None:
    one = drawn(seed, rooms=1, absent=0.0)[0]
    prototypes = np.repeat(one, 5, axis=0)
    mixture = aggregate_prototypes(prototypes, np.ones((5, 3), bool), 0.5)
    np.testing.assert_allclose(mixture, prototypes, atol=1e-12)


@given(SEEDS)
def test_the_weights_do_not_depend_on_length(seed: int) -> None:
    prototypes, present = drawn(seed)
    scale = (Key(seed) / "scale").numpy().uniform(0.1, 10, size=(4, 3, 1))
    np.testing.assert_allclose(
        aggregation_weights(prototypes * scale, present, 0.5),
        aggregation_weights(prototypes, present, 0.5),
        atol=1e-12,
    )


def test_zero_prototypes_give_numbers() -> None:
    """A vector without direction is at cosine 0 to all: uniform weights, no NaN."""
    prototypes = torch.zeros(3, 2, 4, requires_grad=True)
    mixture = aggregate_prototypes(prototypes, torch.ones(3, 2, dtype=torch.bool), 0.5)
    mixture.sum().backward()
    assert prototypes.grad is not None
    assert torch.isfinite(mixture).all()
    assert torch.isfinite(prototypes.grad).all()


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("temperature", [0.01, 0.1, 0.5, math.inf])
def test_many_rooms_take_the_attention_path_with_the_same_result(
    monkeypatch: pytest.MonkeyPatch, temperature: float, include_self: bool
) -> None:
    """Blocks of 7 do not divide the rooms; class 0 has one holder, class 1 nobody."""
    prototypes, present = drawn(3, rooms=40)
    present[:, :2] = False
    present[5, 0] = True
    explicit = aggregate_prototypes(prototypes, present, temperature, include_self=include_self)
    monkeypatch.setattr(module, "EXPLICIT_ROOMS", 8)
    monkeypatch.setattr(module, "_BLOCK", 7)
    found = aggregate_prototypes(prototypes, present, temperature, include_self=include_self)
    np.testing.assert_allclose(found, explicit, atol=1e-10)
    np.testing.assert_array_equal(found[5, 0], prototypes[5, 0])


def test_gradients_of_the_mixture_by_finite_differences() -> None:
    prototypes, present = drawn(1, rooms=3, classes=2, width=3)
    given_ = torch.tensor(prototypes, requires_grad=True)
    held = torch.tensor(present)
    assert torch.autograd.gradcheck(lambda p: aggregate_prototypes(p, held, 0.5), (given_,))
    assert torch.autograd.gradcheck(lambda p: pad_prototypes(p, held), (given_,))


def test_gradients_of_many_rooms_without_self_by_finite_differences(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "EXPLICIT_ROOMS", 2)
    monkeypatch.setattr(module, "_BLOCK", 2)
    prototypes, _ = drawn(1, rooms=5, classes=2, width=3)
    given_ = torch.tensor(prototypes, requires_grad=True)
    held = torch.ones(5, 2, dtype=torch.bool)
    assert torch.autograd.gradcheck(
        lambda p: aggregate_prototypes(p, held, 0.5, include_self=False), (given_,)
    )


def test_without_self_a_room_takes_from_others_only() -> None:
    prototypes = np.array([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [9.0, 9.0]]])
    present = np.array([[True, True], [True, False]])
    mixture = aggregate_prototypes(prototypes, present, 0.5, include_self=False)
    assert mixture[0, 0].tolist() == [0.0, 1.0]
    assert mixture[1, 0].tolist() == [1.0, 0.0]
    assert mixture[0, 1].tolist() == [1.0, 0.0], "nobody else holds class 1"


def test_entropy_by_hand() -> None:
    """Even weights of two rooms: log 2; a room that takes from itself only: 0; a class that a
    room lacks does not count.
    """
    weights = np.array([[[0.5, 0.5], [0.0, 1.0]], [[0.0, 0.0], [0.0, 1.0]]])
    np.testing.assert_allclose(weight_entropy(weights), [math.log(2), 0.0])


def test_numpy_in_numpy_out_and_nothing_is_changed() -> None:
    prototypes, present = drawn(0)
    before = prototypes.copy()
    assert isinstance(aggregate_prototypes(prototypes, present, 0.5), np.ndarray)
    assert isinstance(pad_prototypes(torch.tensor(prototypes), torch.tensor(present)), torch.Tensor)
    np.testing.assert_array_equal(prototypes, before)


def test_bad_arguments_are_named() -> None:
    prototypes, present = drawn(0)
    with pytest.raises(PlanError, match="temperature 0: must be above 0"):
        aggregate_prototypes(prototypes, present, 0)
    with pytest.raises(DataError, match=r"expected \[rooms, classes, width\]"):
        aggregate_prototypes(prototypes, present.T, 0.5)


def test_many_rooms_need_no_array_of_rooms_by_rooms() -> None:
    """torch's blockwise attention is chosen; its plain one would hold N × N weights a class."""
    prototypes, present = torch.ones(600, 2, 8), torch.ones(600, 2, dtype=torch.bool)
    present[::7, 0] = False
    with torch.profiler.profile() as profile:
        aggregate_prototypes(prototypes, present, 0.5)
    called = {event.key for event in profile.key_averages()}
    assert "aten::_scaled_dot_product_flash_attention_for_cpu" in called


class Largest(TorchDispatchMode):
    """Remembers the most numbers that any operation within it made."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(
        self, operation: Any, types: Any, given: Any = (), named: Any = None
    ) -> Any:
        made = operation(*given, **(named or {}))
        for each in made if isinstance(made, tuple | list) else (made,):
            if isinstance(each, torch.Tensor):
                self.numbers = max(self.numbers, each.numel())
        return made


def test_without_self_many_rooms_need_no_array_of_rooms_by_rooms_either() -> None:
    """600 rooms of 2 classes × 8: P has 9,600 numbers, a block of 256 rooms 153,600 weights and
    all of them 360,000 a class."""
    prototypes, present = torch.ones(600, 2, 8), torch.ones(600, 2, dtype=torch.bool)
    with Largest() as many:
        aggregate_prototypes(prototypes, present, 0.5, include_self=False)
    assert many.numbers == 256 * 600
    with Largest() as few:  # that it would be seen
        aggregate_prototypes(prototypes[:500], present[:500], 0.5, include_self=False)
    assert few.numbers == 2 * 500 * 500


def test_prototypes_of_two_tasks_stand_in_their_blocks() -> None:
    """Counts are classes 0 and 1, activities 2 and 3; (2, 0) and (4, 0) are of count 0, (0, 2) of
    count 1; (2, 0) and (0, 2) are of activity 2, and nobody says what (4, 0) is.

    Means: (3, 0), (0, 2), (1, 1), and none for class 3.
    """
    embeddings = np.array([[2.0, 0.0], [0.0, 2.0], [4.0, 0.0]])
    labels = np.array([[0, 2], [1, 2], [0, -1]])
    prototypes, counts = class_prototypes(embeddings, labels, 4)
    assert prototypes.tolist() == [[3.0, 0.0], [0.0, 2.0], [1.0, 1.0], [0.0, 0.0]]
    assert counts.tolist() == [2, 1, 2, 0]


def test_no_class_is_for_several_tasks_alone() -> None:
    with pytest.raises(DataError, match="labels from -1 to 0: expected 0 to 1"):
        class_prototypes(np.zeros((2, 1)), np.array([0, -1]), 2)
    with pytest.raises(DataError, match="labels from -2 to 1: expected -1 to 1"):
        class_prototypes(np.zeros((1, 1)), np.array([[-2, 1]]), 2)
