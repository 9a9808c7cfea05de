"""FedRep: a shared encoder under private heads, and phases that leave each other alone."""

import numpy as np
import pytest

from fedapa.algorithms.fedrep import FedRep
from fedapa.errors import RosterError
from fedapa.learning.fit import cross_entropy
from fedapa.randomness import Key
from tests.algorithms.by_hand import QUICKLY, Game, constants, round_number
from tests.conftest import MakeRooms


def parts(weights: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    head = {name: value for name, value in weights.items() if name.startswith("classifier.")}
    return head, {name: value for name, value in weights.items() if name not in head}


def equal(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in one)


def test_the_mean_by_hand(make_rooms: MakeRooms) -> None:
    """Ones with 1 window and twos with 3: 1.75 in the encoder; the head does not travel."""
    algorithm, rooms = FedRep(), make_rooms()[:2]
    server = algorithm.open([room.card for room in rooms], Key(0))
    server = algorithm.merge(server, constants(algorithm, rooms), round_number(1))
    found = algorithm.download(server, "room 0", round_number(2))["weights"]
    assert set(np.unique(found["encoder.head.weight"])) == {1.75}
    assert set(np.unique(found["encoder.block1.norm.running_var"])) == {1.75}
    assert not [name for name in found if name.startswith("classifier.")]


def test_the_encoder_rests_while_the_head_learns(make_rooms: MakeRooms) -> None:
    """Not a weight, not a BatchNorm statistic and no counter of it moves."""
    room = make_rooms()[0]
    algorithm = FedRep(training=QUICKLY)
    state = algorithm.join(room, Key(0))
    _, new, _ = algorithm.fit(
        room, state, round_number(1), cross_entropy, part="classifier", epochs=2
    )
    (old_head, old_encoder), (head, encoder) = parts(state["model"]), parts(new["model"])
    assert equal(old_encoder, encoder)
    assert not equal(old_head, head)


def test_the_head_rests_while_the_encoder_learns(make_rooms: MakeRooms) -> None:
    room = make_rooms()[0]
    algorithm = FedRep(training=QUICKLY)
    state = algorithm.join(room, Key(0))
    _, new, _ = algorithm.fit(room, state, round_number(1), cross_entropy, part="encoder")
    (old_head, old_encoder), (head, encoder) = parts(state["model"]), parts(new["model"])
    assert equal(old_head, head)
    assert not equal(old_encoder, encoder)
    tracked = "encoder.block1.norm.num_batches_tracked"
    assert encoder[tracked] > old_encoder[tracked]


def test_a_round_is_the_head_phase_then_the_encoder_phase(make_rooms: MakeRooms) -> None:
    """As done by hand; and BatchNorm has counted the batches of the encoder's epoch alone."""
    room = make_rooms()[0]
    algorithm = FedRep(training=QUICKLY, head_epochs=2)
    state = algorithm.join(room, Key(0))
    trained, _, _ = algorithm.train(room, state, round_number(1))
    _, by_hand, _ = algorithm.fit(
        room, state, round_number(1), cross_entropy, part="classifier", epochs=2
    )
    _, by_hand, _ = algorithm.fit(room, by_hand, round_number(1), cross_entropy, part="encoder")
    assert equal(trained["model"], by_hand["model"])
    batches = len(list(room.batches(QUICKLY.batch_size, Key(0))))
    assert trained["model"]["encoder.block1.norm.num_batches_tracked"] == batches


def test_rooms_share_the_encoder_and_differ_in_their_heads(make_rooms: MakeRooms) -> None:
    rooms = make_rooms()
    game = Game(FedRep(training=QUICKLY), rooms).play(2)
    game.receive()
    (head, encoder), (other_head, other_encoder) = (
        parts(game.deployed(room)) for room in rooms[:2]
    )
    assert equal(encoder, other_encoder)
    assert not equal(head, other_head)


def test_sharing_the_head_alone_is_refused(make_rooms: MakeRooms) -> None:
    with pytest.raises(RosterError, match=r"FedRep with sharing = 'head' averages nothing"):
        FedRep(sharing="head").open([room.card for room in make_rooms()], Key(0))
