"""Prototypes of one net in the axes of another."""

import numpy as np
import pytest

from fedapa.errors import DataError
from fedapa.learning.alignment import align_prototypes

ALL = np.ones(4, bool)


def rotated(points: np.ndarray, *, by: int, scale: float, shift: float) -> np.ndarray:
    turn, _ = np.linalg.qr(np.random.default_rng(by).normal(size=(points.shape[1],) * 2))
    return (scale * points @ turn + shift).astype(np.float32)


def test_a_class_is_carried_over_by_hand() -> None:
    """Theirs lie at (0, 0), (2, 0), (4, 0); ours of the first two at (1, 1) and (1, 2).

    ν = (1, 0), μ = (1, 1.5); B = [(−1, 0), (1, 0)], A = [(0, −½), (0, ½)]. Bᵀ·A has the one entry
    (0, 1) = 1, so R turns the first axis into the second, s = 1 / 2. The third class is at
    (3, 0) from ν, so at μ + ½ · (0, 3) = (1, 3).
    """
    theirs = np.array([[0, 0], [2, 0], [4, 0]], np.float32)
    ours = np.array([[1, 1], [1, 2], [0, 0]], np.float32)
    aligned = align_prototypes(theirs, ours, np.array([True, True, False]))
    np.testing.assert_allclose(aligned, [[1, 1], [1, 2], [1, 3]], atol=1e-6)


def test_turned_scaled_and_shifted_prototypes_fall_onto_ours() -> None:
    ours = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    theirs = rotated(ours, by=1, scale=3.0, shift=5.0)
    np.testing.assert_allclose(align_prototypes(theirs, ours, ALL), ours, atol=1e-4)


def test_the_scale_is_the_best_one_where_directions_are_lost() -> None:
    """Ours differ in one direction only; theirs also in another, which says nothing of ours.

    B = ±(1, 0), ±(0, 1) about 0, A = ±(1, 0) and 0 twice: Bᵀ·A = diag(2, 0), R keeps the first
    axis, B·R = ±(1, 0) and 0, so s = 2 / 2 = 1 and nothing is left over.
    """
    theirs = np.array([[1, 0], [-1, 0], [0, 1], [0, -1]], np.float32)
    ours = np.array([[1, 0], [-1, 0], [0, 0], [0, 0]], np.float32)
    np.testing.assert_allclose(align_prototypes(theirs, ours, ALL), ours, atol=1e-6)


def test_nets_of_different_widths_can_be_aligned() -> None:
    ours = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    theirs = np.concatenate([ours, np.zeros((4, 3), np.float32)], axis=1)
    np.testing.assert_allclose(align_prototypes(theirs, ours, ALL), ours, atol=1e-4)


def test_equal_prototypes_give_no_direction() -> None:
    ours = np.ones((4, 3), np.float32)
    theirs = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    assert (align_prototypes(theirs, ours, ALL) == 1).all()


def test_one_shared_class_is_refused() -> None:
    with pytest.raises(DataError, match="1 shared classes: at least 2"):
        align_prototypes(np.ones((4, 3)), np.ones((4, 3)), np.arange(4) == 0)
