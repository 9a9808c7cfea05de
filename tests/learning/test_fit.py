"""The SGD loop: against a plain one written out, and what it refuses."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fedapa.algorithms.algorithm import Algorithm, Round
from fedapa.errors import DivergedError
from fedapa.learning.fit import Training, cross_entropy, fit
from fedapa.payload import encode
from fedapa.randomness import Key
from tests.conftest import MakeRooms


def test_one_epoch_equals_a_loop_written_out(make_rooms: MakeRooms) -> None:
    room = make_rooms()[0]
    training = Training(learning_rate=0.1, momentum=0.9, weight_decay=0.01, batch_size=4, epochs=2)
    ours, plain = room.build(), room.build()
    result = fit(ours, room, cross_entropy, training, key=Key(1))
    optimiser = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    plain.train()
    seen = []
    for epoch in range(2):
        for windows, labels in room.batches(4, Key(1) / "epoch" / epoch):
            loss = F.cross_entropy(plain(windows)[0], labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            seen += [loss.item()] * len(labels)
    for mine, theirs in zip(ours.parameters(), plain.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert result.losses["loss"] == pytest.approx(np.mean(seen), rel=1e-6)


def test_momentum_is_carried_only_when_asked(make_rooms: MakeRooms) -> None:
    room = make_rooms()[0]
    keep, reset = Training(keep_momentum=True), Training()
    carried = fit(room.build(), room, cross_entropy, keep, key=Key(0)).momentum
    outcomes = []
    for training in (keep, reset):
        model = room.build()
        fit(model, room, cross_entropy, training, key=Key(1), momentum=carried)
        outcomes.append(model.classifier.weight.detach().clone())
    assert not torch.equal(*outcomes)


def test_a_loss_that_explodes_names_the_room(make_rooms: MakeRooms) -> None:
    room = make_rooms()[0]
    wild = Training(learning_rate=1e30, epochs=3)
    with pytest.raises(
        DivergedError, match=r"room 'room 0': the loss became .* lower learning_rate"
    ):
        fit(room.build(), room, cross_entropy, wild, key=Key(0))


def test_training_learns(make_rooms: MakeRooms) -> None:
    room = make_rooms(windows_per_class=16)[0]
    model = room.build()
    training = Training(learning_rate=0.1)
    first = fit(model, room, cross_entropy, training, key=Key(0)).losses["loss"]
    last = fit(model, room, cross_entropy, replace(training, epochs=10), key=Key(1)).losses["loss"]
    assert last < first


def test_two_nets_of_a_room_have_a_momentum_each(make_rooms: MakeRooms) -> None:
    """A second net is trained as if it were the only one; the first is not touched by it."""
    room, here = make_rooms()[0], Round(1, 2, Key(0))
    algorithm = Algorithm(training=Training(learning_rate=0.1, batch_size=4, keep_momentum=True))
    alone = algorithm.join(room, Key(0))
    both = {**alone, "personal": alone["model"]}
    for _ in range(2):
        _, alone, _ = algorithm.fit(room, alone, here, cross_entropy)
        _, both, _ = algorithm.fit(room, both, here, cross_entropy, net="personal")
    assert encode({"net": both["personal"]}) == encode({"net": alone["model"]})
    assert encode(both["momentum"]["personal"]) == encode(alone["momentum"]["model"])
    assert encode({"net": both["model"]}) == encode({"net": algorithm.join(room, Key(0))["model"]})


def test_the_learning_rate_halves_by_rounds() -> None:
    """0.08, halved every four rounds: 0.08 in round 1, 0.04 in round 5, 0.02 in round 9."""
    training = Training(learning_rate=0.08, halving=4)
    assert [training.at(number).learning_rate for number in (1, 5, 9)] == [0.08, 0.04, 0.02]
    assert Training(learning_rate=0.08).at(9).learning_rate == 0.08


def test_a_later_round_takes_smaller_steps(make_rooms: MakeRooms) -> None:
    """The same batches, a round in which the rate has halved many times: the net hardly moves."""
    room = make_rooms()[0]
    algorithm = Algorithm(training=Training(halving=1))
    start = algorithm.join(room, Key(0))
    moved = []
    for number in (1, 30):
        _, state, _ = algorithm.fit(room, start, Round(number, 30, Key(0)), cross_entropy)
        before, after = (load["classifier.weight"] for load in (start["model"], state["model"]))
        moved.append(float(np.abs(after - before).max()))
    assert moved[1] < 1e-6 < moved[0]


def test_noise_is_drawn_from_the_key_and_changes_the_net(make_rooms: MakeRooms) -> None:
    room = make_rooms()[0]
    weights = []
    torch.manual_seed(5)
    before = torch.get_rng_state()
    for noise, key in ((0.0, Key(1)), (0.3, Key(1)), (0.3, Key(1)), (0.3, Key(2))):
        model = room.build()
        fit(model, room, cross_entropy, Training(noise=noise), key=key)
        weights.append(model.classifier.weight.detach().clone())
    assert torch.equal(weights[1], weights[2])
    assert not torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[1], weights[3])
    assert torch.equal(torch.get_rng_state(), before), "nobody else's stream was touched"
