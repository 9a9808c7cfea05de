"""FedAMP: attention by hand, a penalty that pulls, and a self-weight on record."""

from pathlib import Path

import numpy as np
import torch

from fedapa.algorithms.fedamp import FedAMP, attention
from fedapa.learning.fit import cross_entropy
from fedapa.randomness import Key
from tests.algorithms.by_hand import QUICKLY, Game, constants, round_number
from tests.conftest import MakeRooms
from tests.contract.test_algorithms import carry_out, models, plan_of

EVERYONE = np.ones((3, 3), bool)


def test_the_attention_by_hand() -> None:
    """Rooms at 0, 1 and 2 on a line: x = 1, 1, 4, mean σ = 2. ξ_01 = e^{−1/2}/3 = 0.2022, ξ_02 =
    e^{−2}/3 = 0.0451, ξ_00 = 1 − 0.2473 = 0.7527; the middle room: 1 − 2·0.2022 = 0.5957."""
    distance = np.array([[0, 1, 4], [1, 0, 1], [4, 1, 0]], float)
    weights = attention(distance, EVERYONE, None)
    near, far = np.exp(-0.5) / 3, np.exp(-2) / 3
    np.testing.assert_allclose(weights[0], [1 - near - far, near, far])
    np.testing.assert_allclose(weights[1], [near, 1 - 2 * near, near])
    np.testing.assert_allclose(weights[0].round(4), [0.7527, 0.2022, 0.0451])


def test_a_fixed_sigma_far_below_the_distances_is_nobody_but_oneself() -> None:
    """What σ = 1 does to half a million parameters, and why it is not the default."""
    distance = np.where(np.eye(3), 0.0, 1000.0)
    np.testing.assert_allclose(attention(distance, EVERYONE, 1.0), np.eye(3), atol=1e-12)
    assert attention(distance, EVERYONE, None)[0, 0] < 0.8


def test_rooms_that_are_all_alike_share_evenly() -> None:
    np.testing.assert_allclose(attention(np.zeros((3, 3)), EVERYONE, None), 1 / 3)


def test_rooms_that_share_nothing_get_nothing_of_each_other() -> None:
    """Rooms 0 and 1 share at x = 5 = σ: e^{−1}/2 for each other; room 2 is alone."""
    shared = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]], bool)
    distance = np.array([[0, 5, 0], [5, 0, 0], [0, 0, 0]], float)
    weights = attention(distance, shared, None)
    assert weights[2].tolist() == [0, 0, 1]
    np.testing.assert_allclose(weights[0], [1 - np.exp(-1) / 2, np.exp(-1) / 2, 0])


def test_the_mixture_by_hand(make_rooms: MakeRooms) -> None:
    """Two rooms, ones and twos: the only distance is σ itself, so ξ_01 = e^{−1}/2 = 0.1839 and
    u_0 = 1.1839, u_1 = 1.8161, whatever the windows."""
    algorithm, rooms = FedAMP(), make_rooms()[:2]
    server = algorithm.open([room.card for room in rooms], Key(0))
    server = algorithm.merge(server, constants(algorithm, rooms), round_number(1))
    share = np.exp(-1) / 2
    for room, expected in (("room 0", 1 + share), ("room 1", 2 - share)):
        found = algorithm.download(server, room, round_number(2))["weights"]
        for value in found.values():
            np.testing.assert_allclose(value, expected, rtol=1e-6)
        assert not set(found) & rooms[0].card.buffers, "statistics do not travel"
    np.testing.assert_allclose(algorithm.explain(server)["self_weight"], 1 - share)


def test_the_penalty_has_a_gradient(make_rooms: MakeRooms) -> None:
    """d/dw of (λ/2α)‖w − u‖² is (λ/α)(w − u), on top of CE's own gradient."""
    room = make_rooms()[0]
    algorithm = FedAMP(proximal=0.7)
    state = algorithm.join(room, Key(0))
    anchor = {name: state["model"][name] + 1 for name in state["model"]}
    anchor = {name: value for name, value in anchor.items() if name not in room.card.buffers}
    objective = algorithm.objective(room, {**state, "anchor": anchor}, round_number(2))
    windows, labels = next(iter(room.inspect("train")))
    slopes = []
    for each in (objective, cross_entropy):
        model = algorithm.model(room, state).eval()
        each(model, windows, labels)["loss"].backward()
        slopes.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, slope in slopes[0].items():
        expected = slopes[1][name] + 0.7 * (torch.from_numpy(state["model"][name] - anchor[name]))
        torch.testing.assert_close(slope, expected)


def test_a_room_ends_nearer_to_its_anchor(make_rooms: MakeRooms) -> None:
    rooms = make_rooms()
    game = Game(FedAMP(training=QUICKLY), rooms).play(2)
    game.receive()
    state, apart = game.states["room 0"], {}
    for proximal in (0.0, 5.0):
        algorithm = FedAMP(training=QUICKLY, proximal=proximal)
        new, _, _ = algorithm.train(rooms[0], state, round_number(3))
        apart[proximal] = sum(
            float(np.square(new["model"][name] - value).sum())
            for name, value in state["anchor"].items()
        )
    assert apart[5.0] < 0.8 * apart[0.0]


def test_the_self_weight_is_on_record(make_rooms: MakeRooms, tmp_path: Path) -> None:
    record = carry_out(plan_of("fedamp"), make_rooms(), tmp_path)[-1].record
    assert record is not None
    for entry in record["rooms"].values():
        assert 0 < entry["self_weight"] < 1
    weights = np.array(record["server"]["weights"])
    np.testing.assert_allclose(weights.sum(axis=1), 1)


def test_no_penalty_is_local(make_rooms: MakeRooms, tmp_path: Path) -> None:
    rooms = make_rooms()
    carry_out(plan_of("fedamp", settings={"proximal": 0.0}), rooms, tmp_path / "fedamp")
    carry_out(plan_of("local"), rooms, tmp_path / "local")
    assert models(tmp_path / "fedamp") == models(tmp_path / "local")


def test_absent_rooms_stay_in_the_mixture(make_rooms: MakeRooms) -> None:
    """Room 1 uploaded twos once; when only room 0 comes again, with fours, both are mixed."""
    algorithm, rooms = FedAMP(), make_rooms()[:2]
    server = algorithm.open([room.card for room in rooms], Key(0))
    uploads = constants(algorithm, rooms)
    server = algorithm.merge(server, uploads, round_number(1))
    fours = {name: value * 4 for name, value in uploads["room 0"]["weights"].items()}
    server = algorithm.merge(server, {"room 0": {"weights": fours}}, round_number(2))
    share = np.exp(-1) / 2
    found = algorithm.download(server, "room 1", round_number(3))["weights"]
    np.testing.assert_allclose(found["classifier.bias"], 2 + 2 * share, rtol=1e-6)
    assert algorithm.explain(server)["age"].tolist() == [0, 1]
