"""MOON: the contrast by hand, a side branch that leaves FedAvg alone, and a contrast that falls."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedapa.algorithms.moon import Moon, model_contrast
from fedapa.learning.fit import Training
from fedapa.randomness import Key
from tests.algorithms.by_hand import QUICKLY, Game, constants, round_number
from tests.conftest import MakeRooms
from tests.contract.test_algorithms import carry_out, models, plan_of


def test_the_contrast_by_hand() -> None:
    """cos 1 to the merged, 0 to the last, τ = 0.5: −log e²/(e² + 1) = 0.1269; at equal cosines
    log 2, whatever the lengths."""
    z, towards, away = torch.tensor([[2.0, 0]]), torch.tensor([[5.0, 0]]), torch.tensor([[0, 3.0]])
    found = model_contrast(z, towards, away, temperature=0.5)
    assert float(found) == pytest.approx(np.log1p(np.exp(-2)), rel=1e-6)
    assert float(found) == pytest.approx(0.1269, abs=1e-4)
    level = model_contrast(z, towards, 7 * towards, temperature=0.5)
    assert float(level) == pytest.approx(np.log(2), rel=1e-6)


def test_the_merge_is_fedavgs_by_hand(make_rooms: MakeRooms) -> None:
    """Ones with 1 window and twos with 3: 1.75, in the net and in the projection."""
    algorithm, rooms = Moon(), make_rooms()[:2]
    server = algorithm.open([room.card for room in rooms], Key(0))
    server = algorithm.merge(server, constants(algorithm, rooms), round_number(1))
    found = algorithm.download(server, "room 0", round_number(2))["weights"]
    assert set(np.unique(found["classifier.weight"])) == {1.75}
    assert set(np.unique(found["projection.2.bias"])) == {1.75}


def test_no_contrast_is_fedavg(make_rooms: MakeRooms, tmp_path: Path) -> None:
    rooms = make_rooms()
    carry_out(plan_of("moon", settings={"contrast": 0.0}), rooms, tmp_path / "moon")
    carry_out(plan_of("fedavg"), rooms, tmp_path / "fedavg")
    assert models(tmp_path / "moon") == models(tmp_path / "fedavg")


def test_the_contrast_falls_in_training(make_rooms: MakeRooms) -> None:
    """The same start, with and without the contrast in the loss: only with it does it fall."""
    rooms = make_rooms()
    training = Training(learning_rate=0.05, batch_size=4, epochs=5)
    game = Game(Moon(training=training), rooms).play(1)
    game.receive()
    room, state = rooms[0], game.states["room 0"]
    watched = Moon(training=training).objective(room, state, round_number(2))
    windows, labels = next(iter(room.inspect("train")))

    def contrast(weights: dict[str, np.ndarray]) -> float:
        model = game.algorithm.model(room, {"model": weights}).eval()
        return float(watched(model, windows, labels)["loss_con"].detach())

    before = contrast(state["model"])
    after = {}
    for weight in (0.0, 10.0):
        new, _, _ = Moon(training=training, contrast=weight).train(room, state, round_number(2))
        after[weight] = contrast(new["model"])
    assert after[10.0] < before < after[0.0]


def test_in_round_one_the_contrast_is_level_and_pulls_nowhere(make_rooms: MakeRooms) -> None:
    """Merged and last net are the same one: log 2, and FedAvg's weights to rounding."""
    game = Game(Moon(training=QUICKLY), make_rooms()).play(1)
    assert game.reports["room 0"]["loss_con"] == pytest.approx(np.log(2), rel=1e-5)


def test_the_projection_is_not_deployed(make_rooms: MakeRooms) -> None:
    room = make_rooms()[0]
    game = Game(Moon(training=QUICKLY), [room]).play(1)
    assert set(game.deployed(room)) == set(room.card.shapes)
    assert set(game.algorithm.arrays(room.card)) == set(game.states["room 0"]["model"])


def test_the_last_net_is_the_rooms_own(make_rooms: MakeRooms) -> None:
    game = Game(Moon(training=QUICKLY), make_rooms()).play(1)
    trained = game.states["room 0"]["model"]
    game.receive()
    assert game.states["room 0"]["previous"] is trained
    name = "classifier.weight"
    assert not np.array_equal(game.states["room 0"]["model"][name], trained[name])
