"""FedProc: the handing over by hand, weights and prototypes both on their way."""

import numpy as np
import pytest
import torch

from fedapa.algorithms.algorithm import Round
from fedapa.algorithms.fedavg import FedAvg
from fedapa.algorithms.fedproc import FedProc, contrast_share
from fedapa.payload import encode
from fedapa.randomness import Key
from tests.algorithms.by_hand import QUICKLY, Game, constants, round_number
from tests.conftest import MakeRooms


def test_the_share_of_the_contrast_by_hand() -> None:
    """T = 5: 1, 3/4, 1/2, 1/4, 0; a single round has nothing to hand over to."""
    shares = [contrast_share(Round(number, 5, Key(0))) for number in range(1, 6)]
    assert shares == [1, 0.75, 0.5, 0.25, 0]
    assert contrast_share(Round(1, 1, Key(0))) == 1


def test_the_merge_by_hand(make_rooms: MakeRooms) -> None:
    """Weights: ones with 1 window and twos with 3 make 1.75. Prototypes: a plain mean over holders,
    (1, …) and (3, …) make 2; class 2 is room 0's alone."""
    algorithm, rooms = FedProc(), make_rooms()[:2]
    uploads = constants(algorithm, rooms)
    for upload, value in zip(uploads.values(), (1, 3), strict=True):
        upload["prototypes"] = np.full_like(upload["prototypes"], value)
    server = algorithm.open([room.card for room in rooms], Key(0))
    server = algorithm.merge(server, uploads, round_number(1))
    down = algorithm.download(server, "room 0", round_number(2))
    assert set(np.unique(down["weights"]["classifier.weight"])) == {1.75}
    assert [set(np.unique(row)) for row in down["mean"]] == [{2}, {2}, {1}]


def test_the_loss_hands_over_from_contrast_to_cross_entropy(make_rooms: MakeRooms) -> None:
    """Rounds 2, 3 and 4 of 4: 2/3, 1/3 and 0 of the contrast."""
    rooms = make_rooms()
    game = Game(FedProc(training=QUICKLY), rooms).play(1)
    game.receive()
    room, state = rooms[0], game.states["room 0"]
    windows, labels = next(iter(room.inspect("train")))
    for number, share in ((2, 2 / 3), (3, 1 / 3), (4, 0.0)):
        model = game.algorithm.model(room, state).eval()
        objective = game.algorithm.objective(room, state, round_number(number))
        with torch.no_grad():
            found = objective(model, windows, labels)
        parts = share * found["loss_con"] + (1 - share) * found["loss_ce"]
        assert float(found["loss"]) == pytest.approx(float(parts), rel=1e-6)
        assert float(found["loss_con"]) != pytest.approx(float(found["loss_ce"]), rel=1e-3)


def test_round_one_is_fedavg_and_round_two_is_not(make_rooms: MakeRooms) -> None:
    rooms = make_rooms()
    ours, theirs = (Game(kind(training=QUICKLY), rooms) for kind in (FedProc, FedAvg))
    ours.play(1)
    theirs.play(1)
    assert encode(ours.server["merged"]) == encode(theirs.server["merged"])
    ours.play(1)
    theirs.play(1)
    assert encode(ours.server["merged"]) != encode(theirs.server["merged"])
    assert ours.reports["room 0"]["alpha"] == pytest.approx(2 / 3)


def test_the_first_round_is_recorded_as_cross_entropy(make_rooms: MakeRooms) -> None:
    """No mean prototype exists yet, so no share of the loss is a contrast."""
    room, algorithm = make_rooms()[0], FedProc(training=QUICKLY)
    _, _, report = algorithm.train(room, algorithm.join(room, Key(0)), round_number(1))
    assert report["alpha"] == 0
    assert report["loss"] == report["loss_ce"]
