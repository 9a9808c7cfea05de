"""Rooms: normalisers, batches and cards."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedapa import Room
from fedapa.errors import DataError
from fedapa.randomness import Key
from fedapa.rooms.room import normalised
from fedapa.windows.labels import class_indices, sorted_labels
from fedapa.windows.normalise import Normaliser
from tests.conftest import MakeRooms


def test_the_normaliser_makes_train_windows_standard() -> None:
    stream = Key(0).numpy()
    windows = (1e4 + stream.normal(size=(200, 7, 3)) * [1, 10, 0.1]).astype(np.float32)
    index = np.arange(150)
    normaliser = Normaliser.of(windows, index)
    rows = normaliser(windows[index]).astype(np.float64).reshape(-1, 3)
    np.testing.assert_allclose(rows.mean(axis=0), 0, atol=2e-2)
    np.testing.assert_allclose(rows.std(axis=0), 1, atol=2e-2)


def test_the_normaliser_by_hand_and_a_dead_subcarrier() -> None:
    """Subcarrier 0 has 1 and 3: mean 2, deviation 1; subcarrier 1 never changes: it becomes 0."""
    windows = np.array([[[1.0, 5.0]], [[3.0, 5.0]]], np.float32)
    normaliser = Normaliser.of(windows, np.arange(2))
    assert normaliser.mean.tolist() == [2.0, 5.0]
    assert normaliser.deviation.tolist() == [1.0, 1.0]
    assert normaliser(windows).tolist() == [[[-1.0, 0.0]], [[1.0, 0.0]]]


@pytest.mark.parametrize("mapped", [True, False])
def test_some_windows_are_normalised_in_one_pass_to_the_same_bits(
    mapped: bool, tmp_path: Path
) -> None:
    stream = Key(3).numpy()
    windows = (100 * stream.normal(size=(9, 13, 37)) + 5).astype(np.float32)
    if mapped:
        np.save(tmp_path / "windows.npy", windows)
        windows = np.load(tmp_path / "windows.npy", mmap_mode="r")
    normaliser = Normaliser.of(windows, np.arange(6))
    for index in (np.array([8, 0, 3, 3]), np.arange(9), np.array([], np.int64), np.array([-1])):
        found = normalised(normaliser, windows, index)
        assert found.dtype == np.float32
        assert found.tobytes() == normaliser(windows[index]).tobytes()
    with pytest.raises(IndexError):
        normalised(normaliser, windows, np.array([0, 9]))


def test_a_mask_takes_the_windows_where_it_is_true() -> None:
    """As numpy does; read as places it would give windows 0 and 1 again and again."""
    windows = Key(3).numpy().normal(size=(6, 5, 4)).astype(np.float32)
    normaliser = Normaliser.of(windows, np.arange(6))
    for mask in (
        np.array([False, False, True, False, True, True]),
        np.zeros(6, bool),
        np.ones(6, bool),
    ):
        found = normalised(normaliser, windows, mask)
        assert found.tobytes() == normaliser(windows[mask]).tobytes()
        assert len(found) == mask.sum()
    with pytest.raises(IndexError, match=r"a mask \(5,\) for 6 windows"):
        normalised(normaliser, windows, np.ones(5, bool))


@pytest.mark.parametrize("values", [np.ones((4, 5)), np.ones((4, 3, 5)), np.ones((4, 5, 3)).T])
def test_windows_of_other_kinds_are_normalised_too(values: np.ndarray) -> None:
    """Features, doubles, and windows that do not lie in one piece."""
    windows = values if values.ndim == 2 else values.astype(np.float64)
    normaliser = Normaliser.of(windows.astype(np.float32), np.arange(2))
    index = np.array([2, 1])
    expected = normaliser(windows[index])
    assert normalised(normaliser, windows, index).tobytes() == expected.tobytes()


def test_the_normaliser_never_sees_the_test_part(make_rooms: MakeRooms) -> None:
    room = make_rooms()[0]
    changed = room.windows.copy()
    changed[room.split.test] = 1e6
    again = Normaliser.of(changed, room.split.train)
    np.testing.assert_array_equal(again.mean, room.normaliser.mean)


def test_a_room_of_arrays_can_be_split_by_days() -> None:
    """Two counts on days a, b and c, two windows each: one day for each part."""
    windows = Key(0).numpy().normal(size=(12, 5, 4)).astype(np.float32)
    room = Room.of("cafe", windows, [0, 1] * 6, days=list("aaaabbbbcccc"), split="day")
    assert room.split.sizes == {"train": 4, "validation": 4, "test": 4}
    assert len({window // 4 for window in room.split.test.tolist()}) == 1
    with pytest.raises(DataError, match="room 'cafe': split = 'day', but recording '0' has no day"):
        Room.of("cafe", windows, [0, 1] * 6, split="day")


def test_batches_hold_every_train_window_once(make_rooms: MakeRooms) -> None:
    room = make_rooms()[0]
    sizes, labels = [], []
    for windows, truth in room.batches(4, Key(0)):
        sizes.append(len(windows))
        labels += truth.tolist()
    assert sum(sizes) == len(room.split.train)
    assert sorted(labels) == sorted(room.labels[room.split.train].tolist())


def test_a_last_batch_of_one_joins_its_neighbour(make_rooms: MakeRooms) -> None:
    """24 windows leave 18 to train on: batches of 17 would be 17 and 1, and are one of 18."""
    room = make_rooms(((0, 1),), windows_per_class=12)[0]
    assert len(room.split.train) == 18
    assert [len(labels) for _, labels in room.batches(17, Key(0))] == [18]
    assert [len(labels) for _, labels in room.batches(16, Key(0))] == [16, 2]


def test_the_order_depends_on_the_key_alone(make_rooms: MakeRooms) -> None:
    room = make_rooms()[0]

    def order(key: Key) -> list[float]:
        return [float(value) for windows, _ in room.batches(5, key) for value in windows[:, 0, 0]]

    assert order(Key(0)) == order(Key(0)) != order(Key(1))


def test_batches_are_fresh_memory(make_rooms: MakeRooms) -> None:
    room = make_rooms()[0]
    before = room.windows.copy()
    for windows, _ in room.batches(4, Key(0)):
        windows.zero_()
    np.testing.assert_array_equal(room.windows, before)


def test_embeddings_are_those_of_eval_mode_over_train(make_rooms: MakeRooms) -> None:
    room = make_rooms()[0]
    model = room.build().train()
    embeddings, labels = room.embeddings(model)
    assert len(embeddings) == len(room.split.train)
    windows = torch.from_numpy(room.normaliser(room.windows[room.split.train]))
    with torch.no_grad():
        torch.testing.assert_close(embeddings, model.eval().embed(windows))
    assert labels.tolist() == room.labels[room.split.train].tolist()


def test_rooms_with_equal_nets_start_equal_unless_told(make_rooms: MakeRooms) -> None:
    from dataclasses import replace

    one, other = make_rooms()[:2]
    assert torch.equal(one.build().classifier.weight, other.build().classifier.weight)
    own = [replace(room, initialisation="own").build().classifier.weight for room in (one, other)]
    assert not torch.equal(*own)


def test_the_card_shows_no_window(make_rooms: MakeRooms) -> None:
    card = make_rooms()[0].card
    assert card.windows == len(make_rooms()[0].split.train)
    assert card.shapes["classifier.weight"] == (3, 16)


def test_an_unlisted_label_is_named() -> None:
    with pytest.raises(DataError, match="room 'cafe', window 1: label 7 is not among the classes"):
        class_indices("cafe", [0, 7], [0, 1])


@pytest.mark.parametrize(
    ("windows", "labels", "complaint"),
    [
        (np.zeros((4, 2, 3)), [0, 1], "4 windows and 2 labels"),
        (np.zeros((2, 2, 3)), [1, 1], "has a single class"),
        (np.full((2, 2, 3), np.nan), [0, 1], "window 0 holds NaN"),
        (np.zeros((2, 2, 3, 1)), [0, 1], "expected numbers"),
        (np.zeros((2, 2), complex), [0, 1], "expected numbers"),
    ],
)
def test_arrays_that_are_no_room_are_named(
    windows: np.ndarray, labels: list[int], complaint: str
) -> None:
    with pytest.raises(DataError, match=complaint):
        Room.of("cafe", windows, labels)


def test_doubles_and_integers_become_windows() -> None:
    for kind in (np.float64, np.int16):
        room = Room.of("cafe", np.arange(80).reshape(10, 4, 2).astype(kind), [0, 1] * 5, width=4)
        assert room.windows.dtype == np.float32
        room.predict(room.build())


def test_labels_sort_by_number_not_by_spelling() -> None:
    assert sorted_labels([10, 9, 0, 9]) == (0, 9, 10)
    assert sorted_labels(["walk", "sit"]) == ("sit", "walk")


def test_room_of_takes_features_and_categories() -> None:
    features = Key(0).numpy().normal(size=(20, 6)).astype(np.float32)
    room = Room.of("lab", features, ["sit", "walk"] * 10, architecture="mlp", width=4)
    assert room.classes == ("sit", "walk")
    guess, truth = room.predict(room.build())
    assert guess.shape == truth.shape == (4,)


def test_double_precision_windows_train_too() -> None:
    stream = Key(0).numpy()
    room = Room.of("cafe", stream.normal(size=(20, 12, 10)), [0, 1] * 10, width=8)
    windows, _ = next(room.batches(4, Key(0)))
    assert windows.dtype == torch.float32
    assert len(room.predict(room.build())[0]) == len(room.split.test)


def test_arrays_may_have_windows_without_a_label() -> None:
    windows = np.random.default_rng(0).normal(size=(12, 5)).astype(np.float32)
    labels = [0, 1] * 5 + [None, None]
    room = Room.of("cafe", windows, labels, architecture="mlp", width=8)
    assert room.classes == (0, 1)
    assert room.split.unlabelled.tolist() == [10, 11]
    assert room.labels.tolist() == [0, 1] * 5 + [-1, -1]
    with pytest.raises(DataError, match="has a single class"):
        Room.of("cafe", windows, [0] * 10 + [None, None], architecture="mlp")
