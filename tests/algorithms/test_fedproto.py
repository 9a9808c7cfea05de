"""FedProto: one mean for all, a distance to it, and the nearest mean as an alternative."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedapa.algorithms.fedproto import FedProto, prototype_distance
from fedapa.models.model import nearest_prototype
from fedapa.randomness import Key
from tests.algorithms.by_hand import QUICKLY, Game, cards, prototypes, round_number
from tests.conftest import MakeRooms
from tests.contract.test_algorithms import carry_out, models, plan_of


def test_the_mean_by_hand() -> None:
    """Class 0: (1, 0) and (3, 0) give (2, 0), however many windows are behind them; class 1 is
    held by one room alone; class 2 by nobody, and does not travel."""
    algorithm = FedProto()
    server = algorithm.open(cards(2, classes=3), Key(0))
    assert algorithm.download(server, "room 0", round_number(1)) == {}
    uploads = {
        "room 0": prototypes([[1, 0], [5, 5]], [True, True, False]),
        "room 1": prototypes([[3, 0]], [True, False, False]),
    }
    server = algorithm.merge(server, uploads, round_number(1))
    for room in ("room 0", "room 1"):
        down = algorithm.download(server, room, round_number(2))
        assert down["mean"].tolist() == [[2, 0], [5, 5]], "the same for every room"
        assert down["known"].tolist() == [True, True, False]


def test_an_absent_room_stays_in_the_mean() -> None:
    algorithm = FedProto()
    server = algorithm.open(cards(2, classes=1), Key(0))
    both = {f"room {index}": prototypes([[4 * index, 0]], [True]) for index in range(2)}
    server = algorithm.merge(server, both, round_number(1))
    server = algorithm.merge(server, {"room 0": prototypes([[2, 0]], [True])}, round_number(2))
    assert algorithm.download(server, "room 0", round_number(3))["mean"].tolist() == [[3, 0]]
    assert algorithm.explain(server)["age"].tolist() == [0, 1]


def test_the_distance_by_hand() -> None:
    """(1, 2) to (3, 2) is (4 + 0)/2 = 2; (0, 0) of an unknown class says nothing."""
    embeddings = torch.tensor([[1.0, 2.0], [0.0, 0.0]])
    means = torch.tensor([[3.0, 2.0], [9.0, 9.0]])
    known = torch.tensor([True, False])
    assert prototype_distance(embeddings, torch.tensor([0, 1]), means, known) == 2.0
    assert prototype_distance(embeddings, torch.tensor([1, 1]), means, known) == 0.0


def test_embeddings_are_drawn_to_the_mean(make_rooms: MakeRooms) -> None:
    """The same round with and without attraction: with it the distance ends smaller."""
    rooms = make_rooms()
    apart = {}
    for attraction in (0.0, 5.0):
        game = Game(FedProto(training=QUICKLY, attraction=5.0), rooms).play(2)
        game.receive()
        state, room = game.states["room 0"], rooms[0]
        algorithm = FedProto(training=QUICKLY, attraction=attraction)
        new, _, _ = algorithm.train(room, state, round_number(3))
        embeddings, labels = room.embeddings(algorithm.model(room, new))
        means = np.zeros((len(room.classes), room.width), np.float32)
        means[state["known"]] = state["mean"]
        known = torch.from_numpy(np.array(state["known"]))
        apart[attraction] = float(
            prototype_distance(embeddings, labels, torch.from_numpy(means), known)
        )
    assert apart[5.0] < 0.8 * apart[0.0]


def test_no_attraction_is_local(make_rooms: MakeRooms, tmp_path: Path) -> None:
    rooms = make_rooms()
    carry_out(plan_of("fedproto", settings={"attraction": 0.0}), rooms, tmp_path / "fedproto")
    carry_out(plan_of("local"), rooms, tmp_path / "local")
    assert models(tmp_path / "fedproto") == models(tmp_path / "local")


def test_prototypes_are_measured_after_training(make_rooms: MakeRooms) -> None:
    room = make_rooms()[0]
    algorithm = FedProto(training=QUICKLY)
    state, sent, _ = algorithm.train(room, algorithm.join(room, Key(0)), round_number(1))
    embeddings, labels = room.embeddings(algorithm.model(room, state))
    expected = embeddings[labels == 0].mean(dim=0)
    np.testing.assert_allclose(sent["prototypes"][0], expected, rtol=1e-5, atol=1e-6)


def test_the_nearest_mean_is_a_second_figure(make_rooms: MakeRooms, tmp_path: Path) -> None:
    steps = carry_out(plan_of("fedproto"), make_rooms(), tmp_path)
    record = steps[-1].record
    assert record is not None
    assert 0 <= record["rooms"]["room 0"]["nearest.accuracy"] <= 1


@pytest.mark.parametrize("cosine", [False, True])
def test_nearest_prototype_is_a_linear_classifier(make_rooms: MakeRooms, cosine: bool) -> None:
    """Against the definition, distance by distance; absent classes are never answered."""
    room = make_rooms()[0]
    model = room.build().eval()
    stream = Key(1).torch()
    targets = torch.randn((3, room.width), generator=stream)
    present = torch.tensor([True, False, True])
    nearest = nearest_prototype(model, targets, present, cosine=cosine).eval()
    windows = torch.cat([batch for batch, _ in room.inspect("train")])
    with torch.no_grad():
        embeddings = model.embed(windows)
        if cosine:
            score = torch.cosine_similarity(embeddings[:, None], targets[None], dim=2)
        else:
            score = -torch.cdist(embeddings, targets)
        score[:, 1] = -torch.inf
        assert torch.equal(nearest.predict(windows), score.argmax(dim=1))
    assert not torch.equal(nearest.classifier.weight, model.classifier.weight)
