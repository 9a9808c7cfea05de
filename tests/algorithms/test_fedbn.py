"""FedBN: BatchNorm stays at home, everything else is FedAvg's."""

from collections import OrderedDict

import numpy as np
import pytest
from torch import nn

from fedapa.algorithms.fedbn import FedBN
from fedapa.errors import RosterError
from fedapa.models.model import batch_norm_arrays
from fedapa.randomness import Key
from tests.algorithms.by_hand import QUICKLY, Game, constants, round_number
from tests.conftest import MakeRooms


def test_the_mean_by_hand(make_rooms: MakeRooms) -> None:
    """Ones with 1 window and twos with 3: 1.75 in every array but BatchNorm's ten."""
    algorithm, rooms = FedBN(), make_rooms()[:2]
    server = algorithm.open([room.card for room in rooms], Key(0))
    server = algorithm.merge(server, constants(algorithm, rooms), round_number(1))
    found = algorithm.download(server, "room 0", round_number(2))["weights"]
    assert {value for array in found.values() for value in np.unique(array)} == {1.75}
    assert len(rooms[0].card.shapes) - len(found) == 10, "two BatchNorms of five arrays"


def test_only_batch_norm_differs_between_rooms_after_a_round(make_rooms: MakeRooms) -> None:
    rooms = make_rooms()
    game = Game(FedBN(training=QUICKLY), rooms).play(2)
    game.receive()
    one, other = (game.deployed(room) for room in rooms[:2])
    differing = {name for name in one if not np.array_equal(one[name], other[name])}
    moving = {name for name in rooms[0].card.norms if not name.endswith("num_batches_tracked")}
    assert moving <= differing <= rooms[0].card.norms
    assert not set(game.server["merged"]) & {f"middle {name}" for name in rooms[0].card.norms}


def test_batch_norm_is_found_by_type_and_not_by_name() -> None:
    net = nn.Sequential(
        OrderedDict(
            batchnorm=nn.Linear(2, 2),
            scaling=nn.BatchNorm1d(2),
            deeper=nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1, affine=False)),
        )
    )
    found = batch_norm_arrays(net)
    assert {name.rpartition(".")[0] for name in found} == {"scaling", "deeper.1"}
    assert "scaling.weight" in found and "deeper.1.running_mean" in found


def test_a_net_without_batch_norm_is_refused(make_rooms: MakeRooms) -> None:
    rooms = make_rooms(shape=(10,), architecture="mlp")
    with pytest.raises(RosterError, match=r"room 0's net 'mlp' has none; use algorithm = 'fedavg'"):
        FedBN().open([room.card for room in rooms], Key(0))
