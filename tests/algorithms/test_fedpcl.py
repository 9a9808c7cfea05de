"""FedPCL: contrasts alone, unit-length prototypes, and the room's own nearest one as answer."""

import numpy as np
import pytest
import torch

from fedapa.algorithms.fedpcl import FedPCL
from fedapa.learning.losses import prototype_contrast
from fedapa.randomness import Key
from tests.algorithms.by_hand import QUICKLY, Game, cards, prototypes, round_number
from tests.conftest import MakeRooms


def test_the_server_by_hand() -> None:
    """Class 0: (1, 0) and (3, 0) have the mean (2, 0); class 1 is room 0's alone. Everybody gets
    the mean and the real rows of the others' sets, not padded."""
    algorithm = FedPCL()
    server = algorithm.open(cards(3), Key(0))
    uploads = {
        "room 0": prototypes([[1, 0], [5, 5]], [True, True]),
        "room 1": prototypes([[3, 0]], [True, False]),
    }
    server = algorithm.merge(server, uploads, round_number(1))
    down = algorithm.download(server, "room 1", round_number(2))
    assert down["mean"].tolist() == [[2, 0], [5, 5]]
    assert down["clients"].tolist() == [[1, 0], [5, 5]]
    assert down["clients_present"].tolist() == [[True, True]]
    other = algorithm.download(server, "room 0", round_number(2))
    assert other["clients"].tolist() == [[3, 0]]
    assert other["clients_present"].tolist() == [[True, False]]


def test_the_loss_is_both_contrasts_and_nothing_else(make_rooms: MakeRooms) -> None:
    """L_g to the mean and L_p to every set, its own included, each over the classes it holds."""
    rooms = make_rooms()
    algorithm = FedPCL(training=QUICKLY)
    game = Game(algorithm, rooms).play(1)
    own = [game.server["prototypes"][index] for index in (1, 2, 0)]
    held = [game.server["present"][index] for index in (1, 2, 0)]
    game.receive()
    room, state = rooms[0], game.states["room 0"]
    model = algorithm.model(room, state).eval()
    windows, labels = next(iter(room.inspect("train")))
    objective = algorithm._objective(room, state)
    with torch.no_grad():
        found = objective(model, windows, labels)
        embeddings = model.embed(windows)
    to_mean = prototype_contrast(
        embeddings, labels, torch.from_numpy(game.server["mean"]), 0.07, torch.ones(3)
    )
    to_sets = prototype_contrast(
        embeddings, labels, torch.from_numpy(np.stack(own)), 0.07, np.stack(held)
    )
    assert float(found["loss_g"]) == pytest.approx(float(to_mean), rel=1e-5)
    assert float(found["loss_p"]) == pytest.approx(float(to_sets), rel=1e-5)
    assert float(found["loss"]) == pytest.approx(float(to_mean + to_sets), rel=1e-5)


def test_the_classifier_is_never_trained(make_rooms: MakeRooms) -> None:
    rooms = make_rooms()
    game = Game(FedPCL(training=QUICKLY), rooms).play(3)
    first, last = rooms[0].build().state_dict(), game.states["room 0"]["model"]
    np.testing.assert_array_equal(last["classifier.weight"], first["classifier.weight"].numpy())
    name = "encoder.head.weight"
    assert not np.array_equal(last[name], first[name].numpy())


def test_the_answer_is_the_nearest_own_prototype(make_rooms: MakeRooms) -> None:
    """By direction, among the classes that the room holds: room 1 has no class 2."""
    rooms = make_rooms()
    game = Game(FedPCL(training=QUICKLY), rooms).play(2)
    room, state = rooms[1], game.states["room 1"]
    net = game.algorithm.deploy(room, state, round_number(3)).eval()
    windows = torch.cat([batch for batch, _ in room.inspect("train")])
    with torch.no_grad():
        embeddings = game.algorithm.model(room, state).eval().embed(windows)
        own = torch.from_numpy(np.array(state["own"]))
        alike = torch.cosine_similarity(embeddings[:, None], own[None], dim=2)
        assert torch.equal(net.predict(windows), alike.argmax(dim=1))
    assert state["own_present"].tolist() == [True, True, False]


def test_prototypes_are_means_of_unit_length_embeddings(make_rooms: MakeRooms) -> None:
    rooms = make_rooms()
    game = Game(FedPCL(training=QUICKLY), rooms).play(1)
    embeddings, labels = rooms[0].embeddings(game.algorithm.model(rooms[0], game.states["room 0"]))
    directions = embeddings / embeddings.norm(dim=1, keepdim=True)
    expected = directions[labels == 0].mean(dim=0)
    np.testing.assert_allclose(game.server["prototypes"][0, 0], expected, rtol=1e-4, atol=1e-6)


def test_in_round_one_the_targets_are_the_rooms_own(make_rooms: MakeRooms) -> None:
    """One set, and the mean of one set: both contrasts are equal."""
    game = Game(FedPCL(training=QUICKLY), make_rooms()).play(1)
    report = game.reports["room 0"]
    assert report["loss_g"] == pytest.approx(report["loss_p"], rel=1e-6)
