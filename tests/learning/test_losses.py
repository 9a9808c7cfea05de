"""The contrastive losses: by hand, by brute force, by finite differences."""

import math
from itertools import combinations, product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedapa import prototype_contrast
from fedapa.algorithms.prototype_sets import sample_shares
from fedapa.errors import DataError, PlanError
from fedapa.learning.fit import cross_entropy
from fedapa.learning.losses import fedapa_loss, over_tasks, soft_targets
from fedapa.models.mlp import FeatureMLP
from fedapa.randomness import Key

SEEDS = st.integers(0, 10_000)


def drawn(
    seed: int, batch: int = 6, rooms: int = 3, classes: int = 4, width: int = 5
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    stream = (Key(seed) / "contrast").numpy()
    return (
        torch.tensor(stream.normal(size=(batch, width))),
        torch.tensor(stream.integers(0, classes, batch)),
        torch.tensor(stream.normal(size=(rooms, classes, width))),
        torch.tensor(stream.uniform(size=(rooms, classes)) > 0.3),
    )


def brute_force(
    embeddings: torch.Tensor,
    labels: torch.Tensor,
    prototypes: torch.Tensor,
    temperature: float,
    present: torch.Tensor,
) -> float:
    """eqn_9, index by index, over the pairs of sample and set that hold the sample's class."""
    terms = []
    for b, j in product(range(len(embeddings)), range(len(prototypes))):
        y = int(labels[b])
        if not present[j, y]:
            continue

        def likeness(c: int, b: int = b, j: int = j) -> float:
            r, p = embeddings[b].numpy(), prototypes[j, c].numpy()
            return math.exp(r @ p / (np.linalg.norm(r) * np.linalg.norm(p)) / temperature)

        bottom = sum(likeness(c) for c in range(prototypes.shape[1]) if present[j, c])
        terms.append(-math.log(likeness(y) / bottom))
    return sum(terms) / len(terms) if terms else 0.0


def test_one_set_by_hand() -> None:
    """R = (1, 0), q⁰ = (1, 0), q¹ = (0, 1), y = 0, τ = 0.5: −log e²/(e² + e⁰) = 0.126928."""
    loss = prototype_contrast(
        torch.tensor([[1.0, 0.0]]), torch.tensor([0]), torch.tensor([[1.0, 0.0], [0.0, 1.0]]), 0.5
    )
    assert loss.item() == pytest.approx(math.log(1 + math.exp(-2)))


def test_two_sets_by_hand() -> None:
    """The set above and its mirror image, for which y = 0 costs log(1 + e²): the mean of both."""
    near = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    sets = torch.stack([near, near.flip(0)])
    loss = prototype_contrast(torch.tensor([[3.0, 0.0]]), torch.tensor([0]), sets, 0.5)
    assert loss.item() == pytest.approx(
        (math.log(1 + math.exp(-2)) + math.log(1 + math.exp(2))) / 2
    )


def test_the_bounds_at_21_classes() -> None:
    """Cosines lie in [−1, 1]: best log(1 + 20 e⁻⁴) = 0.312, worst log(1 + 20 e⁴) = 6.997."""
    own, other = torch.tensor([[1.0, 0.0]]), torch.tensor([[-1.0, 0.0]])
    best = torch.cat([own, other.expand(20, 2)])
    worst = torch.cat([other, own.expand(20, 2)])
    zero = torch.tensor([0])
    assert prototype_contrast(own, zero, best, 0.5).item() == pytest.approx(0.312, abs=5e-4)
    assert prototype_contrast(own, zero, worst, 0.5).item() == pytest.approx(6.997, abs=5e-4)


@given(SEEDS, st.sampled_from([0.1, 0.5, 1.5]))
def test_vectorised_equals_brute_force(seed: int, temperature: float) -> None:
    embeddings, labels, prototypes, present = drawn(seed)
    loss = prototype_contrast(embeddings, labels, prototypes, temperature, present)
    assert loss.item() == pytest.approx(
        brute_force(embeddings, labels, prototypes, temperature, present)
    )
    single = prototype_contrast(
        embeddings.float(), labels, prototypes.float(), temperature, present
    )
    assert single.dtype == torch.float32
    assert single.item() == pytest.approx(loss.item(), rel=1e-4)


@given(SEEDS)
def test_the_order_of_sets_samples_and_classes_does_not_matter(seed: int) -> None:
    embeddings, labels, prototypes, present = drawn(seed)
    stream = (Key(seed) / "order").numpy()
    samples = torch.tensor(stream.permutation(6))
    rooms = torch.tensor(stream.permutation(3))
    classes = torch.tensor(stream.permutation(4))
    renamed = torch.argsort(classes)[labels]
    moved = prototype_contrast(
        embeddings[samples],
        renamed[samples],
        prototypes[rooms][:, classes],
        0.5,
        present[rooms][:, classes],
    )
    expected = prototype_contrast(embeddings, labels, prototypes, 0.5, present)
    torch.testing.assert_close(moved, expected)


def test_a_sample_of_peers_by_hand() -> None:
    """r = (1, 0) of class 0 at τ = 1; sets as rows p^0, p^1. The room's own has cosines 1 and 0:
    ℓ_0 = log(1 + e⁻¹) = 0.31326. Peer 1 has them swapped: ℓ_1 = log(1 + e) = 1.31326. Peer 2 has
    two equal ones: ℓ_2 = log 2 = 0.69315. L_c over all is their mean, 0.77322. With k = 1 of two
    peers the shares are 1/3 and 2/3: peer 1 gives 0.97993, peer 2 0.56652, their mean 0.77322."""
    own, first, second = torch.tensor(
        [[[1.0, 0], [0, 1]], [[0, 1], [1, 0]], [[1, 0], [1, 0]]], dtype=torch.float64
    )
    given, label = torch.tensor([[1.0, 0]], dtype=torch.float64), torch.tensor([0])
    shares = sample_shares(1, of=2)
    assert shares.tolist() == pytest.approx([2 / 3, 1 / 3])
    values = [
        prototype_contrast(given, label, torch.stack([peer, own]), 1.0, shares=shares).item()
        for peer in (first, second)
    ]
    assert values == pytest.approx([0.97993, 0.56652], abs=1e-5)
    whole = prototype_contrast(given, label, torch.stack([own, first, second]), 1.0).item()
    assert sum(values) / 2 == pytest.approx(whole, abs=1e-7) == pytest.approx(0.77322, abs=1e-5)


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_the_mean_over_all_samples_of_peers_is_the_loss_over_all(number: int) -> None:
    """All C(N − 1, k) samples are as likely: the mean of loss and gradient has no bias. Class 3 is
    unknown to everybody, and a sample has it."""
    embeddings, labels, prototypes, _ = drawn(7, rooms=5)
    known = torch.tensor([True, True, True, False])
    assert (labels == 3).any()

    def loss_and_gradient(
        sets: torch.Tensor, shares: np.ndarray | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        given = embeddings.clone().requires_grad_()
        loss = prototype_contrast(given, labels, sets, 0.5, known, shares=shares)
        return loss.detach(), torch.autograd.grad(loss, given)[0]

    shares = sample_shares(number, of=4).astype(np.float64)
    found = [
        loss_and_gradient(prototypes[[*drawn_peers, 4]], shares)
        for drawn_peers in combinations(range(4), number)
    ]
    expected = loss_and_gradient(prototypes, None)
    for mean, whole in zip(zip(*found, strict=True), expected, strict=True):
        torch.testing.assert_close(torch.stack(mean).mean(dim=0), whole, rtol=1e-6, atol=1e-9)


def test_gradients_by_finite_differences() -> None:
    embeddings, labels, prototypes, present = drawn(5)
    assert torch.autograd.gradcheck(
        lambda r, p: prototype_contrast(r, labels, p, 0.5, present),
        (embeddings.requires_grad_(), prototypes.requires_grad_()),
    )


def test_zero_vectors_give_numbers_and_no_gradient() -> None:
    embeddings = torch.zeros(2, 3, requires_grad=True)
    loss = prototype_contrast(embeddings, torch.tensor([0, 1]), torch.zeros(4, 2, 3), 0.5)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(2)), "all cosines are 0"
    assert embeddings.grad is not None
    assert not embeddings.grad.any()


def test_a_sample_whose_class_nobody_holds_says_nothing() -> None:
    embeddings = torch.randn(2, 3, requires_grad=True)
    absent = torch.tensor([False, True])
    labels = torch.tensor([0, 0])
    loss = prototype_contrast(embeddings, labels, torch.randn(2, 3), 0.5, absent)
    assert loss.item() == 0.0
    loss.backward()


def test_no_sets_at_all_is_zero() -> None:
    loss = prototype_contrast(torch.randn(2, 3), torch.tensor([0, 1]), torch.zeros(0, 2, 3), 0.5)
    assert loss.item() == 0.0


def test_the_total_is_eqn_11() -> None:
    """L = L_ce + λ (L_g + L_c), recomputed from the parts."""
    embeddings, labels, prototypes, _ = drawn(2)
    logits = torch.randn(6, 4, dtype=torch.float64)
    parts = fedapa_loss(
        logits,
        embeddings,
        labels,
        mixture=prototypes[0],
        sets=prototypes,
        present=torch.ones(4, dtype=torch.bool),
        temperature=0.5,
        weight=0.3,
    )
    assert parts["loss"].item() == pytest.approx(
        torch.nn.functional.cross_entropy(logits, labels).item()
        + 0.3
        * (
            prototype_contrast(embeddings, labels, prototypes[0], 0.5).item()
            + prototype_contrast(embeddings, labels, prototypes, 0.5).item()
        )
    )


def test_numpy_in_numpy_out() -> None:
    embeddings, labels, prototypes, present = drawn(2)
    loss = prototype_contrast(
        embeddings.numpy(), labels.numpy(), prototypes.numpy(), 0.5, present.numpy()
    )
    expected = prototype_contrast(embeddings, labels, prototypes, 0.5, present)
    assert float(loss) == pytest.approx(expected.item())


def test_bad_arguments_are_named() -> None:
    embeddings, labels, prototypes, _ = drawn(2)
    with pytest.raises(PlanError, match="temperature -1: must be above 0"):
        prototype_contrast(embeddings, labels, prototypes, -1)
    with pytest.raises(DataError, match=r"expected \[batch, width\]"):
        prototype_contrast(embeddings[:, :2], labels, prototypes, 0.5)


def test_soft_targets_by_hand() -> None:
    """Counts 0, 1 and 8; every step further off halves the share.

    0 is 1 : ½ : ¼, of 7/4; 1 is ½ : 1 : ½, of 2.
    """
    shares = soft_targets((0, 1, 8), 1 / math.log(2))
    assert shares is not None
    np.testing.assert_allclose(shares[0], [4 / 7, 2 / 7, 1 / 7], rtol=1e-6)
    np.testing.assert_allclose(shares[1], [1 / 4, 1 / 2, 1 / 4], rtol=1e-6)


def test_soft_targets_spread_over_what_a_room_holds() -> None:
    """Class 1 of 0, 1 and 8 is not held: 0 and 8 are neighbours then, 1 : ½."""
    shares = soft_targets((0, 1, 8), 1 / math.log(2), held=(0, 2))
    assert shares is not None
    np.testing.assert_allclose(shares[0], [2 / 3, 0, 1 / 3], rtol=1e-6)
    assert shares[1, 1] > 0
    np.testing.assert_allclose(shares.sum(dim=1), np.ones(3), rtol=1e-6)


def test_categories_and_a_spread_of_nothing_have_no_soft_targets() -> None:
    assert soft_targets(("sit", "walk"), 1.0) is None
    assert soft_targets((0, 1), 0.0) is None


def two_tasks(logits: torch.Tensor, embeddings: torch.Tensor) -> FeatureMLP:
    """A net of a count with two classes and an activity with two, that answers with these."""
    model = FeatureMLP(classes=4, width=embeddings.shape[1], features=3)
    model.blocks = (slice(0, 2), slice(2, 4))
    model.forward = lambda windows: (logits, embeddings)  # type: ignore[method-assign]
    return model


def test_the_loss_of_two_tasks_by_hand() -> None:
    """Window 1: count 0 of logits (ln 3, 0) has p = 3/4, activity 1 of (0, 0) has p = 1/2.
    Window 2: count 1 of (0, 0) has p = 1/2, and no activity.

    L = (ln 4/3 + ln 2) / 2 + ln 2: the logits (ln 3, 0) of window 2's activity are not asked, and
    those of one task are not in the denominator of the other.
    """
    logits = torch.tensor([[math.log(3), 0.0, 0.0, 0.0], [0.0, 0.0, math.log(3), 0.0]])
    labels = torch.tensor([[0, 3], [1, -1]])
    losses = cross_entropy(two_tasks(logits, torch.zeros(2, 1)), torch.zeros(2, 3), labels)
    expected = (math.log(4 / 3) + math.log(2)) / 2 + math.log(2)
    assert losses["loss"].item() == pytest.approx(expected)
    assert losses["loss_ce"].item() == pytest.approx(expected)


def test_ordinal_targets_are_of_the_count_alone() -> None:
    """Shares (0.8, 0.2) for count 0 and logits of zero: every cross-entropy is ln 2, and that of
    logits (ln 3, 0) is −0.8 ln 3/4 − 0.2 ln 1/4, where the activity's stays −ln 3/4."""
    logits = torch.tensor([[math.log(3), 0.0, math.log(3), 0.0]])
    model = two_tasks(logits, torch.zeros(1, 1))
    model.targets = torch.tensor([[0.8, 0.2], [0.2, 0.8]])
    loss = cross_entropy(model, torch.zeros(1, 3), torch.tensor([[0, 2]]))["loss"]
    expected = 0.8 * math.log(4 / 3) + 0.2 * math.log(4) + math.log(4 / 3)
    assert loss.item() == pytest.approx(expected)


def test_a_batch_without_any_activity_has_the_loss_of_the_count() -> None:
    logits, labels = torch.randn(3, 4), torch.tensor([0, 1, 1])
    model = two_tasks(logits, torch.zeros(3, 1))
    untold = torch.stack([labels, torch.full((3,), -1)], dim=1)
    loss = cross_entropy(model, torch.zeros(3, 3), untold)["loss"]
    assert torch.equal(loss, torch.nn.functional.cross_entropy(logits[:, :2], labels))


def test_the_contrasts_of_two_tasks_stay_in_their_blocks() -> None:
    """eqn_11 of each task with its own block of Q, of P and of the mask, added."""
    embeddings, labels, sets, _ = drawn(3, batch=6, classes=5)
    count, activity = labels % 3, labels % 2
    logits, mixture = torch.randn(6, 5, dtype=torch.float64), sets.mean(dim=0)
    known = torch.tensor([True, True, True, True, True])
    model = two_tasks(logits, embeddings)
    model.blocks = (slice(0, 3), slice(3, 5))

    def of_task(
        own: torch.Tensor, r: torch.Tensor, y: torch.Tensor, targets: torch.Tensor, block: slice
    ) -> dict[str, torch.Tensor]:
        return fedapa_loss(
            own,
            r,
            y,
            mixture=mixture[block],
            sets=sets[:, block],
            present=known[block],
            temperature=0.5,
            weight=0.7,
            targets=targets,
        )

    places = torch.stack([count, activity + 3], dim=1)
    both = over_tasks(of_task, model, logits, embeddings, places)
    alone = [
        of_task(logits[:, block], embeddings, y, y, block)
        for block, y in zip(model.blocks, (count, activity), strict=True)
    ]
    for name in ("loss", "loss_ce", "loss_g", "loss_c"):
        assert both[name].item() == pytest.approx(alone[0][name].item() + alone[1][name].item())
