"""Attacks on data whose answer is known: certain where a net or a mean tells all, else a guess."""

import numpy as np
import pytest

from fedapa.attacks.membership import aligned, likeness, nearness, regression
from fedapa.attacks.roc import auc
from fedapa.randomness import Key

STREAM = Key(0) / "membership"


def test_the_regression_finds_who_is_in_a_mean() -> None:
    """Twelve recordings, p the mean of five of them: w = 1/5 for those, 0 for the others."""
    embeddings = STREAM.numpy().normal(size=(12, 40))
    members = np.arange(12) < 5
    weights = regression([embeddings], [embeddings[members].mean(axis=0)])
    assert weights == pytest.approx(np.where(members, 0.2, 0.0), abs=1e-6)


def test_rounds_are_further_equations_of_the_same_weights() -> None:
    """Eight recordings in five dimensions are too many for one round, not for two."""
    stream = STREAM.numpy()
    rounds = [stream.normal(size=(8, 5)) for _ in range(2)]
    members = np.arange(8) % 2 == 0
    means = [embeddings[members].mean(axis=0) for embeddings in rounds]
    assert regression(rounds, means) == pytest.approx(np.where(members, 0.25, 0.0), abs=1e-6)


def test_a_mean_of_others_tells_nothing() -> None:
    """p is the mean of recordings that are not among the candidates; membership is drawn."""
    found = []
    for draw in range(40):
        stream = (STREAM / draw).numpy()
        embeddings = stream.normal(size=(20, 30))
        weights = regression([embeddings], [stream.normal(size=(10, 30)).mean(axis=0)])
        found.append(auc(weights[:10], weights[10:]))
    assert np.mean(found) == pytest.approx(0.5, abs=0.06)


def test_a_prototype_of_one_recording_gives_it_away() -> None:
    embeddings = STREAM.numpy().normal(size=(10, 4))
    scores = nearness(embeddings, embeddings[3])
    assert scores.argmax() == 3
    assert scores[3] == 0


def test_nearness_by_hand() -> None:
    """z = (1, 2) and p = (0, 0): −(1 + 4)."""
    assert nearness(np.array([[1.0, 2.0]]), np.zeros(2)) == pytest.approx([-5])


def test_a_net_that_memorises_is_found_out_by_its_loss() -> None:
    """Random labels, more numbers than windows: least squares fits every window that it saw."""
    stream = STREAM.numpy()
    windows, labels = stream.normal(size=(40, 400)), stream.integers(0, 2, 40)
    seen = slice(0, 20)
    weights, *_ = np.linalg.lstsq(windows[seen], 10.0 * (2 * labels[seen] - 1), rcond=None)
    margins = (windows @ weights) * (2 * labels - 1)
    losses = np.log1p(np.exp(-margins))
    scores = likeness(losses[None])
    assert auc(scores[:20], scores[20:]) > 0.95


def test_references_take_away_what_is_easy_anyway() -> None:
    """Losses 1 and 3 in two rounds, 2 on average; strangers' 5 and 7: 6 − 2 = 4."""
    scores = likeness(np.array([[1.0], [3.0]]), np.array([[5.0], [7.0]]))
    assert scores == pytest.approx([4])


def test_equal_prototypes_need_no_alignment() -> None:
    stream = STREAM.numpy()
    embeddings, own = stream.normal(size=(6, 8)), stream.normal(size=(3, 8))
    assert aligned(embeddings, own, own) == pytest.approx(embeddings)
    assert aligned(embeddings, own[:0], own[:0]) == pytest.approx(embeddings)


def test_a_shift_between_rooms_is_taken_away() -> None:
    stream = STREAM.numpy()
    embeddings, own = stream.normal(size=(6, 8)), stream.normal(size=(3, 8))
    shift = stream.normal(size=8)
    assert aligned(embeddings, own, own + shift) == pytest.approx(embeddings + shift)


def test_a_turn_between_rooms_is_learned() -> None:
    """theirs = 2 · own: along the prototypes a weak ridge doubles embeddings, too."""
    own = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    moved = aligned(np.array([[0.5, 0.5]]), own, 2 * own, strength=1e-6)
    assert moved == pytest.approx(np.array([[1.0, 1.0]]), abs=1e-4)
