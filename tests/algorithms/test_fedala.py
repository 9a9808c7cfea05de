"""FedALA: the element-wise start, its weights by hand, and where they are learned."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fedapa.algorithms.fedala import FedALA, mix
from fedapa.errors import RosterError
from fedapa.learning.fit import Training
from fedapa.randomness import Key
from fedapa.rooms.room import Room
from tests.algorithms.by_hand import QUICKLY, Game, constants, round_number
from tests.conftest import MakeRooms
from tests.contract.test_algorithms import carry_out, models, plan_of

HEAD = ("classifier.bias", "classifier.weight")


def test_the_merge_is_fedavgs_by_hand(make_rooms: MakeRooms) -> None:
    """Ones with 1 window and twos with 3: (1·1 + 3·2)/4 = 1.75."""
    algorithm, rooms = FedALA(), make_rooms()[:2]
    server = algorithm.open([room.card for room in rooms], Key(0))
    server = algorithm.merge(server, constants(algorithm, rooms), round_number(1))
    found = algorithm.download(server, "room 0", round_number(2))["weights"]
    assert set(np.unique(found["classifier.weight"])) == {1.75}


def test_the_mixture_by_hand() -> None:
    """w_i = 1, w_g = 3: W = 0.25 gives 1 + 2·0.25 = 1.5; W = 1 is w_g, W = 0 is w_i."""
    new, change = {"w": torch.full((3,), 3.0)}, {"w": torch.full((3,), 2.0)}
    assert mix(new, change, {"w": torch.tensor([0.25, 1.0, 0.0])})["w"].tolist() == [1.5, 3.0, 1.0]


def test_one_step_of_the_weights_is_the_formula(make_rooms: MakeRooms) -> None:
    """One batch, one epoch, W from 1: clip(1 − η·∇·(w_g − w_i), 0, 1) with ∇ taken at w_g."""
    room = make_rooms()[0]
    algorithm = FedALA(
        training=Training(batch_size=64), mixing_rate=3.0, mixing_share=1.0, longest_start=1
    )
    state = algorithm.join(room, Key(0))
    stream = Key(5).numpy()
    merged = {
        name: value + stream.normal(scale=0.5, size=value.shape).astype(value.dtype)
        if value.dtype == np.float32
        else value
        for name, value in state["model"].items()
    }
    merged = {name: np.abs(v) if name.endswith("running_var") else v for name, v in merged.items()}
    new = algorithm.receive(room, state, {"weights": merged}, round_number(2))

    model = algorithm.model(room, {"model": merged}).eval()
    windows = torch.cat([batch for batch, _ in room.inspect("train")])
    labels = torch.cat([y for _, y in room.inspect("train")])
    F.cross_entropy(model(windows)[0], labels).backward()
    for name in HEAD:
        slope = dict(model.named_parameters())[name].grad.numpy()
        change = merged[name] - state["model"][name]
        expected = np.clip(1 - 3.0 * slope * change, 0, 1)
        np.testing.assert_allclose(new["mixing"][name], expected, rtol=1e-4, atol=1e-5)
        assert (expected < 1).any() and (expected > 0).any()
        start = state["model"][name] + change * expected
        np.testing.assert_allclose(new["model"][name], start, rtol=1e-4, atol=1e-5)
    for name in set(merged) - set(HEAD):
        np.testing.assert_array_equal(new["model"][name], merged[name])


def test_the_weights_leave_one_and_stay_between_zero_and_one(make_rooms: MakeRooms) -> None:
    training = Training(learning_rate=0.5, batch_size=4)
    game = Game(FedALA(training=training), make_rooms()).play(3)
    mixing = game.states["room 0"]["mixing"]
    values = np.concatenate([np.ravel(mixing[name]) for name in HEAD])
    assert values.min() >= 0 and values.max() <= 1
    assert values.min() < 0.99
    np.testing.assert_allclose(game.reports["room 0"]["mixing"], values.mean(), rtol=1e-5)


def test_no_mixing_rate_is_fedavg(make_rooms: MakeRooms, tmp_path: Path) -> None:
    rooms = make_rooms()
    carry_out(plan_of("fedala", settings={"mixing_rate": 0.0}), rooms, tmp_path / "fedala")
    carry_out(plan_of("fedavg"), rooms, tmp_path / "fedavg")
    assert models(tmp_path / "fedala") == models(tmp_path / "fedavg")


def test_the_first_time_lasts_until_settled_then_one_epoch(
    make_rooms: MakeRooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten losses are needed to see a spread; with an unreachable one it lasts as long as it may."""
    room = make_rooms()[0]
    passes: list[float] = []
    batches = Room.batches

    def counted(self: Room, size: int, key: Key, *, share: float = 1.0) -> Any:
        passes.append(share)
        return batches(self, size, key, share=share)

    monkeypatch.setattr(Room, "batches", counted)
    for settled, epochs in ((100.0, 10), (1e-12, 12)):
        algorithm = FedALA(training=QUICKLY, settled=settled, longest_start=12)
        state = algorithm.join(room, Key(0))
        passes.clear()
        merged = {"weights": {name: value * 1.1 for name, value in state["model"].items()}}
        state = algorithm.receive(room, state, merged, round_number(2))
        assert passes == [0.8] * epochs
        passes.clear()
        algorithm.receive(room, state, merged, round_number(3))
        assert passes == [0.8]


def test_more_tensors_than_a_net_has_are_refused(make_rooms: MakeRooms) -> None:
    """Middle has 2 · 3 in its blocks, 2 in its head and 2 in its classifier: 10."""
    cards = [room.card for room in make_rooms()]
    FedALA(tensors=10).open(cards, Key(0))
    with pytest.raises(RosterError, match="room 0's net has 10 parameter tensors; use 1 to 10"):
        FedALA(tensors=11).open(cards, Key(0))
