"""The linear model as an algorithm: fitted on train windows alone, deployed as a net."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from fedapa.algorithms.linear import Linear
from fedapa.learning import linear as arithmetic
from fedapa.learning.linear import fit_linear
from fedapa.randomness import Key
from fedapa.rooms.model_file import load_model
from fedapa.rooms.room import Room
from fedapa.windows.normalise import Normaliser
from fedapa.windows.recipe import Recipe
from fedapa.windows.split import Split
from tests.algorithms.by_hand import Game, round_number
from tests.conftest import MakeRooms
from tests.contract.test_algorithms import carry_out, plan_of


def features(make_rooms: MakeRooms, *counts: tuple[int, ...]) -> list[Room]:
    return make_rooms(counts, shape=(7,), architecture="mlp", windows_per_class=20)


def test_what_is_deployed_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in tests/learning: slopes ∓1/3 and biases 2/3, 1/3, so class 1 leads by (2x − 1)/3. The
    four validation windows at x = 2 lead by 1 and three are of class 1: the sharpness is ln 3, and
    class 1 has the probability 3/4 there. Class 2 is in no train window, so it is never answered.
    """
    monkeypatch.setattr(arithmetic, "_STRENGTHS", (1 / 3,))
    room = Room(
        name="hall",
        windows=np.array([[-1], [0], [1], [2], [2], [2], [2], [2]], np.float32),
        labels=np.array([0, 0, 1, 1, 1, 1, 0, 2]),
        classes=(0, 1, 2),
        split=Split(np.arange(3), np.arange(3, 8), np.array([], np.int64), kind="given"),
        recipe=Recipe(
            source="arrays", normaliser=Normaliser(np.zeros(1, np.float32), np.ones(1, np.float32))
        ),
        architecture="mlp",
    )
    algorithm = Linear()
    state, upload, report = algorithm.train(room, algorithm.join(room, Key(0)), round_number(1))
    net = algorithm.deploy(room, state, round_number(2))
    asked = torch.tensor([[2.0], [0.5], [-9.0]])
    found = net.probabilities(asked).detach().numpy()
    np.testing.assert_allclose(found[:2], [[0.25, 0.75, 0], [0.5, 0.5, 0]], atol=1e-6)
    assert found[2].argmax() == 0
    assert upload == {}
    # Leads of the true class at x = −1, 0, 1 are 1, 1/3 and 1/3: CE = mean of ln(1 + 3^−lead).
    expected = (np.log1p(3.0**-1) + 2 * np.log1p(3.0 ** (-1 / 3))) / 3
    assert report == {"loss": pytest.approx(expected)}


def test_test_windows_decide_nothing(make_rooms: MakeRooms) -> None:
    (room,) = features(make_rooms, (0, 1, 2))
    windows = np.array(room.windows)
    windows[room.split.test] += 50
    other = dataclasses.replace(room, windows=windows)
    one, two = (Game(Linear(), [given]).play(1).states["room 0"] for given in (room, other))
    np.testing.assert_array_equal(
        one["counter"]["classifier.weight"], two["counter"]["classifier.weight"]
    )


def test_it_is_the_fit_of_the_rooms_own_windows_sharpened(make_rooms: MakeRooms) -> None:
    room, other = features(make_rooms, (0, 1, 3), (1, 2))
    game = Game(Linear(), [room, other]).play(2)
    found = game.deployed(room)
    windows, labels = (part.numpy() for part in room.tensors(room.split.train))
    weights, bias = fit_linear(windows, labels, 4)
    factor = found["classifier.weight"][0, 0] / weights[0, 0]
    assert factor > 0
    np.testing.assert_allclose(found["classifier.weight"], factor * weights, atol=1e-5)
    np.testing.assert_allclose(
        found["classifier.bias"][[0, 1, 3]], factor * bias[[0, 1, 3]], atol=1e-5
    )
    net = game.algorithm.deploy(room, game.states["room 0"], round_number(3))
    guess, truth = room.predict(net, "train")
    assert 2 not in guess
    assert (guess == truth).mean() > 0.6


def test_a_room_without_validation_windows_is_sharpened_on_train_windows(
    make_rooms: MakeRooms,
) -> None:
    (room,) = features(make_rooms, (0, 1))
    empty = dataclasses.replace(room.split, validation=room.split.validation[:0])
    games = [
        Game(Linear(), [dataclasses.replace(room, split=split)]).play(1)
        for split in (room.split, empty)
    ]
    one, two = (game.states["room 0"]["counter"]["classifier.weight"] for game in games)
    np.testing.assert_allclose(one / np.abs(one).max(), two / np.abs(two).max(), atol=1e-6)
    assert not np.array_equal(one, two)


def test_before_the_first_round_every_class_of_the_room_is_alike(make_rooms: MakeRooms) -> None:
    room, _ = features(make_rooms, (0, 2), (1, 2))
    net = Linear().deploy(room, Linear().join(room, Key(0)), round_number(1))
    found = net.probabilities(room.tensors(room.split.test)[0]).detach()
    np.testing.assert_allclose(found, np.tile([0.5, 0, 0.5], (len(found), 1)))


def test_its_model_file_counts_without_torch(make_rooms: MakeRooms, tmp_path: Path) -> None:
    (room,) = features(make_rooms, (0, 1, 2))
    steps = carry_out(plan_of("linear"), [room], tmp_path)
    model = load_model(tmp_path / "models" / "room 0.safetensors")
    counted = model.count(room.windows[room.split.test])
    right = counted == np.asarray(room.classes)[room.labels[room.split.test]]
    assert steps[-1].record is not None
    assert right.mean() == pytest.approx(steps[-1].record["rooms"]["room 0"]["accuracy"])
    assert model.prototypes.shape == (3, 7), "the mean normalised window of each class"
