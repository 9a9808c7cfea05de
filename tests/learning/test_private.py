"""Clipped, noised sums: what one unit can change, and what follows from noise alone."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
import torch

from fedapa.learning.private import Privacy, clipped, clipped_sums, noise_of_parts, release
from fedapa.randomness import Key, SystemNoise

STEP = 2.0**-20


@dataclass
class Constant:
    """Noise that a test knows."""

    value: float = 0.0

    def normal(self, *shape: int) -> npt.NDArray[np.float64]:
        return np.full(shape, self.value)


def sums(
    embeddings: object, labels: object, units: object, clip: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    made = clipped_sums(
        np.asarray(embeddings, np.float64),
        np.asarray(labels, np.int64),
        np.asarray(units, np.int64),
        classes=2,
        clip=clip,
    )
    return clip * STEP * made[0], STEP * made[1]


def test_clipped_rows_are_those_whose_sums_are_sent() -> None:
    """C = 2: (3, 4) has length 5 and becomes (1.2, 1.6); (0, 1) and (0, 0) are short and stay. A
    row of zeros has a gradient, too. Without a clip nothing is cut."""
    rows = torch.tensor([[3.0, 4.0], [0.0, 1.0], [0.0, 0.0]], requires_grad=True)
    cut = clipped(rows, 2.0)
    assert cut.tolist() == [pytest.approx(row) for row in ([1.2, 1.6], [0.0, 1.0], [0.0, 0.0])]
    sent, _ = sums(rows.detach(), [0, 1, 1], [0, 1, 2], 2.0)
    assert cut[:2].tolist() == [pytest.approx(row, abs=1e-5) for row in sent]
    (slope,) = torch.autograd.grad(cut.sum(), [rows])
    assert torch.isfinite(slope).all()
    assert clipped(rows, None) is rows


def test_long_embeddings_are_cut_and_short_ones_kept() -> None:
    """‖(3, 4)‖ = 5 is cut to 2: (1.2, 1.6); ‖(0, 1)‖ = 1 stays. Their sum is (1.2, 2.6)."""
    total, number = sums([[3, 4], [0, 1]], [1, 1], [0, 1], clip=2.0)
    np.testing.assert_allclose(total, [[0, 0], [1.2, 2.6]], atol=4 * STEP)
    np.testing.assert_array_equal(number, [0, 2])


def test_a_recording_counts_once_however_many_windows_it_has() -> None:
    """Recording 7 has windows (2, 0), (0, 2), (2, 2) → cut to 2: (√2, √2); its mean is
    ((2 + √2)/3, (2 + √2)/3) = (1.138, 1.138). Recording 9 has (1, 0). Together (2.138, 1.138) of 2.
    """
    total, number = sums([[2, 0], [0, 2], [2, 2], [1, 0]], [0, 0, 0, 0], [7, 7, 7, 9], clip=2.0)
    np.testing.assert_allclose(total[0], [2.1381, 1.1381], atol=1e-4)
    np.testing.assert_array_equal(number, [2, 0])


@pytest.mark.parametrize("unit", ["window", "recording"])
def test_no_unit_changes_the_sums_by_more_than_the_clip(unit: str) -> None:
    """All windows of a unit removed, whatever they are and whatever classes they have."""
    stream = Key(3).numpy()
    for scale in (1e-3, 1.0, 1e30):
        embeddings = scale * stream.standard_normal((40, 5))
        embeddings[3] = np.inf  # a net that overflows
        labels = stream.integers(0, 2, 40)
        units = np.arange(40) if unit == "window" else stream.integers(0, 6, 40)
        whole = sums(embeddings, labels, units, clip=0.7)
        for one in np.unique(units):
            rest = units != one
            without = sums(embeddings[rest], labels[rest], units[rest], clip=0.7)
            assert np.linalg.norm(whole[0] - without[0]) <= 0.7
            assert np.linalg.norm(whole[1] - without[1]) <= 1.0


def test_noise_is_shared_between_sums_and_numbers_at_the_price_of_one_release() -> None:
    """D = 16: z_S² = z²·5/4 and z_n² = z²·5, so that 1/z_S² + 1/z_n² = (4/5 + 1/5)/z²."""
    of_sums, of_numbers = noise_of_parts(2.0, 16)
    assert of_sums**2 == pytest.approx(5.0)
    assert of_numbers**2 == pytest.approx(20.0)


def test_without_noise_a_set_is_the_mean_of_clipped_embeddings() -> None:
    made = release(
        np.asarray([[3.0, 4.0], [0.0, 1.0]]),
        np.asarray([1, 1]),
        np.arange(2),
        classes=3,
        clip=2.0,
        multiplier=1e-3,
        noise=Constant(),
    )
    np.testing.assert_array_equal(made.present, [False, True, False])
    np.testing.assert_allclose(made.prototypes, [[0.6, 1.3]], atol=1e-5)
    np.testing.assert_array_equal(made.counts, [0, 2, 0])


def test_a_class_below_its_noise_is_not_told_and_one_above_is_whether_it_is_there_or_not() -> None:
    """D = 1, z = 1: z_n = √2, told from 3√2 = 4.24 units on. Noise of +4 deviations adds 5.66."""
    few = {
        "embeddings": np.ones((4, 1)),
        "labels": np.zeros(4, np.int64),
        "units": np.arange(4),
        "classes": 2,
        "clip": 1.0,
        "multiplier": 1.0,
    }
    assert not release(**few, noise=Constant(0.0)).present.any()
    loud = release(**few, noise=Constant(4.0))
    np.testing.assert_array_equal(loud.present, [True, True])
    np.testing.assert_array_equal(loud.counts, [10, 6])
    assert (np.linalg.norm(loud.prototypes, axis=1) <= 1.0).all()
    assert not release(**few, noise=Constant(4.0), least=20).present.any()


def test_what_leaves_lies_on_the_grid_whatever_the_windows() -> None:
    total, _ = clipped_sums(
        Key(1).numpy().standard_normal((9, 4)),
        np.zeros(9, np.int64),
        np.arange(9),
        classes=1,
        clip=0.3,
    )
    assert total.dtype == np.int64


def test_the_systems_noise_is_normal_and_never_the_same() -> None:
    noise = SystemNoise()
    drawn = noise.normal(101, 101)
    assert drawn.shape == (101, 101)
    assert abs(drawn.mean()) < 0.06  # six deviations of the mean of 10,201
    assert abs(drawn.std() - 1) < 0.05
    assert np.isfinite(drawn).all()
    assert 0.30 < (np.abs(drawn) > 1).mean() < 0.34  # 0.317
    assert not np.array_equal(drawn, noise.normal(101, 101))


def test_releases_are_counted_by_rounds() -> None:
    assert Privacy(epsilon=1.0).planned(30) == 30
    assert Privacy(epsilon=1.0, every=7).planned(30) == 5  # rounds 1, 8, 15, 22, 29
    assert [t for t in range(1, 31) if Privacy(epsilon=1.0, every=7).sends_in(t)] == [
        *(1, 8, 15, 22, 29)
    ]
    assert Privacy(epsilon=1.0, releases=4).planned(None) == 4
    assert Privacy(epsilon=1.0).planned(None) is None
