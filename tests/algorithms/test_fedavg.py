"""FedAvg: the mean by hand, BatchNorm included, and what unequal nets share."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedapa.algorithms.algorithm import Round
from fedapa.algorithms.fedavg import FedAvg
from fedapa.algorithms.local import Local
from fedapa.errors import RosterError
from fedapa.randomness import Key
from tests.conftest import MakeRooms
from tests.contract.test_algorithms import carry_out, plan_of

ROUND = Round(1, 3, Key(0))


def merged(algorithm: FedAvg, rooms: list[Any]) -> dict[str, np.ndarray]:
    """Uploads of ones, twos … with windows 1, 3 …; what the server made of them."""
    server = algorithm.open([room.card for room in rooms], Key(0))
    uploads = {}
    for number, room in enumerate(rooms):
        names = algorithm.train(room, algorithm.join(room, Key(0)), ROUND)[1]["weights"]
        uploads[room.name] = {
            "weights": {name: np.full_like(value, number + 1) for name, value in names.items()},
            "windows": 2 * number + 1,
        }
    state = algorithm.merge(server, uploads, ROUND)
    return algorithm.download(state, rooms[0].name, ROUND)["weights"]


def test_the_mean_is_weighted_by_windows(make_rooms: MakeRooms) -> None:
    """Ones with 1 window and twos with 3: (1·1 + 3·2)/4 = 1.75; the counter rounds to 2."""
    found = merged(FedAvg(), make_rooms()[:2])
    assert set(np.unique(found["classifier.weight"])) == {1.75}
    assert set(np.unique(found["encoder.block1.norm.running_mean"])) == {1.75}
    assert found["encoder.block1.norm.num_batches_tracked"] == 2


def test_every_array_of_the_net_is_shared(make_rooms: MakeRooms) -> None:
    room = make_rooms()[0]
    assert set(merged(FedAvg(), make_rooms()[:2])) == set(room.build().state_dict())


def test_after_a_merge_all_rooms_deploy_the_same_net(make_rooms: MakeRooms, tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    carry_out(plan_of("fedavg"), make_rooms(), tmp_path)
    nets = [load_file(path) for path in sorted((tmp_path / "models").iterdir())]
    for name in nets[0]:
        if not name.startswith(("normaliser.", "prototypes")):
            assert all(np.array_equal(net[name], nets[0][name]) for net in nets[1:])


def test_sharing_by_architecture_keeps_other_nets_apart(make_rooms: MakeRooms) -> None:
    """Rooms 0 and 2 are middle, room 1 is tiny: (1·1 + 5·3)/6 without room 1's twos."""
    rooms = make_rooms(architecture=("middle", "tiny", "middle"))
    found = merged(FedAvg(), rooms)
    np.testing.assert_allclose(found["classifier.weight"], 16 / 6)


def test_sharing_matching_arrays_mixes_nets(make_rooms: MakeRooms) -> None:
    """The classifier has one shape in all nets: (1·1 + 3·2 + 5·3)/9."""
    rooms = make_rooms(architecture=("middle", "tiny", "middle"))
    found = merged(FedAvg(sharing="matching"), rooms)
    np.testing.assert_allclose(found["classifier.weight"], 22 / 9)
    np.testing.assert_allclose(found["encoder.block2.conv.weight"], 16 / 6)


def test_sharing_the_head_sends_the_classifier_alone(make_rooms: MakeRooms) -> None:
    rooms = make_rooms(architecture=("middle", "tiny", "middle"))
    assert set(merged(FedAvg(sharing="head"), rooms)) == {"classifier.weight", "classifier.bias"}


def test_sharing_all_refuses_unequal_nets_by_name(make_rooms: MakeRooms) -> None:
    rooms = make_rooms(architecture=("middle", "tiny", "middle"))
    with pytest.raises(
        RosterError, match=r"room 1's encoder\.block2.* use sharing = 'architecture'"
    ):
        FedAvg(sharing="all").open([room.card for room in rooms], Key(0))
    FedAvg(sharing="all").open([room.card for room in make_rooms()], Key(0))


def test_nets_of_one_name_and_other_shapes_are_refused_before_training(
    make_rooms: MakeRooms,
) -> None:
    """Two MLPs for 8 and for 10 features: no mean of their first layers exists."""
    rooms = [
        make_rooms(((0, 1),), shape=(features,), architecture="mlp")[0] for features in (8, 10)
    ]
    cards = [replace(room.card, name=f"room {index}") for index, room in enumerate(rooms)]
    with pytest.raises(RosterError, match=r"room 1's encoder\.first\.weight is \(256, 10\)"):
        FedAvg().open(cards, Key(0))
    FedAvg(sharing="matching").open(cards, Key(0))


def test_one_room_alone_is_local(make_rooms: MakeRooms, tmp_path: Path) -> None:
    rooms = make_rooms(((0, 1, 2),))
    carry_out(plan_of("fedavg"), rooms, tmp_path / "fedavg")
    carry_out(plan_of("local"), rooms, tmp_path / "local")
    name = "room 0.safetensors"
    assert (tmp_path / "fedavg" / "models" / name).read_bytes() == (
        tmp_path / "local" / "models" / name
    ).read_bytes()


def test_arrays_of_different_nets_are_compared_where_they_may_be_averaged() -> None:
    assert not FedAvg().averages_across_nets
    assert all(FedAvg(sharing=how).averages_across_nets for how in ("matching", "head", "all"))
    assert not Local().averages_across_nets
