"""WiFederated: FedAvg's federation, and a fine-tuned copy that stays at home."""

from pathlib import Path

import numpy as np

from fedapa.algorithms.algorithm import Round
from fedapa.algorithms.fedavg import FedAvg
from fedapa.algorithms.wifederated import WiFederated
from fedapa.learning.fit import Training, cross_entropy, fit
from fedapa.payload import encode
from fedapa.randomness import Key
from tests.algorithms.by_hand import QUICKLY, Game, constants, round_number
from tests.conftest import MakeRooms
from tests.contract.test_algorithms import carry_out, plan_of


def test_the_merge_is_fedavgs_by_hand(make_rooms: MakeRooms) -> None:
    """Ones with 1 window and twos with 3: (1·1 + 3·2)/4 = 1.75."""
    algorithm, rooms = WiFederated(), make_rooms()[:2]
    server = algorithm.open([room.card for room in rooms], Key(0))
    server = algorithm.merge(server, constants(algorithm, rooms), round_number(1))
    found = algorithm.download(server, "room 0", round_number(2))["weights"]
    assert set(np.unique(found["classifier.weight"])) == {1.75}


def test_the_fine_tuned_copy_never_reaches_the_server(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """Every state of the server is FedAvg's, bit by bit; what is deployed is not."""
    rooms = make_rooms()
    tuned = carry_out(plan_of("wifederated"), rooms, tmp_path / "tuned")
    plain = carry_out(plan_of("fedavg"), rooms, tmp_path / "plain")
    for ours, theirs in zip(tuned, plain, strict=True):
        assert encode(ours.state["server"]) == encode(theirs.state["server"])
    name = "room 0.safetensors"
    ours, theirs = (tmp_path / each / "models" / name for each in ("tuned", "plain"))
    assert ours.read_bytes() != theirs.read_bytes()


def test_the_copy_is_the_merged_net_trained_further(make_rooms: MakeRooms) -> None:
    rooms = make_rooms()
    algorithm = WiFederated(training=QUICKLY, fine_tuning_epochs=3)
    game = Game(algorithm, rooms).play(3)
    game.receive()
    merged = algorithm.model(rooms[0], game.states["room 0"])
    key = round_number(4).key / "room" / "room 0" / "fine-tuning"
    further = Training(learning_rate=0.05, batch_size=4, epochs=3)
    fit(merged, rooms[0], cross_entropy, further, key=key)
    for name, value in game.deployed(rooms[0]).items():
        np.testing.assert_array_equal(value, merged.state_dict()[name].numpy())


def test_copies_are_made_where_figures_are_read() -> None:
    """200 rounds: after 33, 66, 100, 133, 166 (200·k/6) and after the last five."""
    is_due = WiFederated().is_due
    due = [number - 1 for number in range(1, 202) if is_due(Round(number, 200, Key(0)))]
    assert due == [33, 66, 100, 133, 166, 196, 197, 198, 199, 200]
    assert not is_due(Round(1, 1, Key(0))), "before any training there is nothing to tune"
    assert is_due(Round(2, 1, Key(0)))


def test_the_merged_net_is_the_second_figure(make_rooms: MakeRooms, tmp_path: Path) -> None:
    rooms = make_rooms()
    tuned = carry_out(plan_of("wifederated"), rooms, tmp_path / "tuned")[-1].record
    plain = carry_out(plan_of("fedavg"), rooms, tmp_path / "plain")[-1].record
    assert tuned is not None and plain is not None
    for room in ("room 0", "room 1", "room 2"):
        assert tuned["rooms"][room]["merged.accuracy"] == plain["rooms"][room]["accuracy"]


def test_deploying_leaves_the_state_as_it_is(make_rooms: MakeRooms) -> None:
    rooms = make_rooms()
    game = Game(WiFederated(training=QUICKLY), rooms).play(3)
    game.receive()
    before = encode(game.states["room 0"])
    game.deployed(rooms[0])
    assert encode(game.states["room 0"]) == before
    assert isinstance(game.algorithm, FedAvg)
