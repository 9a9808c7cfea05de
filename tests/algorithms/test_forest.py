"""The forest as an algorithm: trees as arrays in the state, and no model file."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from fedapa.algorithms.forest import RandomForest
from fedapa.errors import DataError, RosterError
from fedapa.federation.plan import Plan
from fedapa.federation.run import run
from fedapa.models.graph import graph_of
from fedapa.randomness import Key
from fedapa.rooms.room import Room
from tests.algorithms.by_hand import Game, round_number
from tests.conftest import MakeRooms


def features(make_rooms: MakeRooms, *counts: tuple[int, ...]) -> list[Room]:
    return make_rooms(counts, shape=(7,), architecture="mlp", windows_per_class=20)


def test_every_train_window_is_its_own_class(make_rooms: MakeRooms) -> None:
    """Extra trees see all windows and grow until leaves are of one class: the train loss is 0, and
    a class that the room never saw has no probability at all."""
    room, _ = features(make_rooms, (0, 1, 3), (1, 2))
    game = Game(RandomForest(trees=10), [room]).play(1)
    forest = game.algorithm.deploy(room, game.states["room 0"], round_number(2))
    guess, truth = room.predict(forest, "train")
    np.testing.assert_array_equal(guess, truth)
    assert game.reports["room 0"] == {"loss": 0}
    noise = torch.randn(300, 7, generator=Key(0).torch())
    found = forest.probabilities(noise)
    assert found.shape == (300, 4)
    assert not found[:, 2].any()
    np.testing.assert_allclose(found.sum(dim=1), 1)


def test_one_window_of_each_class_by_hand() -> None:
    """Two windows need one node: 10 trees have 10 roots, 30 nodes and 20 leaves, and a window that
    is beyond both of them in every number is answered with the nearer one by all trees."""
    pair = np.array([[0] * 7, [1] * 7], np.float32)
    two = Room.of(
        "room 0", np.repeat(pair, 20, axis=0), np.repeat([0, 1], 20), architecture="mlp", width=16
    )
    game = Game(RandomForest(trees=10), [two]).play(1)
    arrays = game.states["room 0"]["counter"]
    assert {name: len(values) for name, values in arrays.items()} == {
        "roots": 10,
        "feature": 30,
        "threshold": 30,
        "left": 30,
        "right": 30,
        "shares": 20,
    }
    forest = game.algorithm.deploy(two, game.states["room 0"], round_number(2))
    far = torch.tensor([[-9.0] * 7, [9.0] * 7])
    np.testing.assert_array_equal(forest.probabilities(far), [[1, 0], [0, 1]])


def test_trees_are_the_rooms_own(make_rooms: MakeRooms) -> None:
    """Equal windows under another name draw other trees; another room's windows change nothing."""
    one, two = features(make_rooms, (0, 1), (0, 1))
    alone = Game(RandomForest(trees=5), [one]).play(1).states["room 0"]["counter"]
    beside = Game(RandomForest(trees=5), [one, two]).play(1).states["room 0"]["counter"]
    for name in alone:
        np.testing.assert_array_equal(alone[name], beside[name])
    renamed = dataclasses.replace(one, name="attic")
    there = Game(RandomForest(trees=5), [renamed]).play(1).states["attic"]["counter"]
    assert not np.array_equal(alone["threshold"], there["threshold"])


def test_before_the_first_round_every_class_of_the_room_is_alike(make_rooms: MakeRooms) -> None:
    room, _ = features(make_rooms, (0, 2), (1, 2))
    algorithm = RandomForest()
    forest = algorithm.deploy(room, algorithm.join(room, Key(0)), round_number(1))
    found = forest.probabilities(room.tensors(room.split.test)[0])
    np.testing.assert_array_equal(found, np.tile([0.5, 0, 0.5], (len(found), 1)))


def test_export_refuses_a_forest_by_name(make_rooms: MakeRooms) -> None:
    (room,) = features(make_rooms, (0, 1))
    game = Game(RandomForest(trees=5), [room]).play(1)
    forest = game.algorithm.deploy(room, game.states["room 0"], round_number(2))
    with pytest.raises(DataError, match=r"a forest cannot be saved as a model file.*; use "):
        graph_of(forest, (7,))


def test_packets_are_refused_with_a_remedy(make_rooms: MakeRooms) -> None:
    with pytest.raises(RosterError) as refused:
        RandomForest().open([room.card for room in make_rooms()], Key(0))
    assert str(refused.value) == (
        "Random forest counts from numbers, not packets: room 'room 0' has windows of 12 × 10; use "
        'data.view = "statistics"'
    )


def test_a_run_says_once_for_all_rooms_that_there_is_no_model_file(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    plan = Plan(algorithm={"name": "forest", "trees": 5}, rounds=2)
    done = run(plan, rooms=features(make_rooms, (0, 1), (1, 2)), out=tmp_path / "run", workers=0)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    (note,) = summary["notes"]
    assert note.startswith("exchange 3: room 'room 0', room 'room 1': a forest cannot be saved")
    assert "without_model" not in done.summary, "that names rooms that missed the last exchange"
    assert not (tmp_path / "run" / "models").exists()
