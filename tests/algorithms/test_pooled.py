"""Pooled training: everybody's windows in one place, one net for all rooms."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from fedapa.algorithms.pooled import Pooled
from fedapa.errors import PlanError, RosterError
from fedapa.learning.fit import Training
from fedapa.randomness import Key
from fedapa.rooms.pool import PooledRoom, pool_rooms
from tests.conftest import MakeRooms
from tests.contract.test_algorithms import carry_out, models, plan_of, records


def test_the_pool_has_every_train_window_once_as_normalised_at_home(make_rooms: MakeRooms) -> None:
    rooms = make_rooms()
    pooled, *others = pool_rooms(rooms)
    assert isinstance(pooled, PooledRoom)
    assert [room.name for room in others] == ["room 1", "room 2"]
    batches = list(pooled.batches(4, Key(3)))
    found = torch.cat([windows for windows, _ in batches]).flatten(1)
    labels = torch.cat([y for _, y in batches])
    expected = torch.cat([w for room in rooms for w, _ in room.inspect("train")]).flatten(1)
    assert found.shape == expected.shape
    order, known = found.sum(dim=1).argsort(), expected.sum(dim=1).argsort()
    torch.testing.assert_close(found[order], expected[known])
    truth = torch.cat([y for room in rooms for _, y in room.inspect("train")])
    assert torch.equal(labels[order], truth[known])
    assert pooled.card.windows == len(expected)
    assert max(len(y) for _, y in batches) <= 5


def test_every_room_deploys_the_same_net(make_rooms: MakeRooms, tmp_path: Path) -> None:
    steps = carry_out(plan_of("pooled"), make_rooms(), tmp_path)
    nets = [load_file(path) for path in sorted((tmp_path / "models").iterdir())]
    for name in nets[0]:
        if not name.startswith(("normaliser.", "prototypes")):
            assert all(np.array_equal(net[name], nets[0][name]) for net in nets[1:])
    record = steps[-1].record
    assert record is not None
    assert [("loss" in entry) for entry in record["rooms"].values()] == [True, False, False]


def test_it_is_neither_local_nor_an_average(make_rooms: MakeRooms, tmp_path: Path) -> None:
    rooms = make_rooms()
    for name in ("pooled", "fedavg", "local"):
        carry_out(plan_of(name), rooms, tmp_path / name)
    pooled = models(tmp_path / "pooled")["room 0.safetensors"]
    assert pooled != models(tmp_path / "fedavg")["room 0.safetensors"]
    assert pooled != models(tmp_path / "local")["room 0.safetensors"]


def test_other_rooms_windows_matter(make_rooms: MakeRooms, tmp_path: Path) -> None:
    rooms = make_rooms()
    one = carry_out(plan_of("pooled"), rooms, tmp_path / "one")
    changed = dataclasses.replace(rooms[2], windows=np.array(rooms[2].windows)[::-1].copy())
    two = carry_out(plan_of("pooled"), [*rooms[:2], changed], tmp_path / "two")
    assert records(one) != records(two)


def test_rooms_that_keep_to_themselves_are_refused(make_rooms: MakeRooms) -> None:
    with pytest.raises(RosterError, match=r"room 0 has only its own.* use algorithm = 'fedavg'"):
        Pooled().open([room.card for room in make_rooms()], Key(0))


def test_unequal_nets_are_refused(make_rooms: MakeRooms, tmp_path: Path) -> None:
    rooms = make_rooms(architecture=("middle", "tiny", "middle"))
    with pytest.raises(RosterError, match=r"room 1 has 'tiny'.* give all rooms one architecture"):
        carry_out(plan_of("pooled"), rooms, tmp_path)


def test_partial_participation_is_refused(make_rooms: MakeRooms, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"nobody can sit out; use participation = 1"):
        carry_out(plan_of("pooled", participation=0.5), make_rooms(), tmp_path)


def test_that_the_room_which_trains_has_left_is_said(make_rooms: MakeRooms) -> None:
    cards = [room.card for room in pool_rooms(make_rooms())]
    algorithm = Pooled()
    server = algorithm.open(cards, Key(0))
    assert algorithm.standstill(algorithm.dismiss(server, "room 1")) == ""
    gone = algorithm.dismiss(server, "room 0")
    assert "nobody learns until it is back" in algorithm.standstill(gone)
    assert algorithm.standstill(algorithm.admit(gone, cards[0])) == ""
    with pytest.raises(RosterError, match="second holds everybody's windows, and so does room 0"):
        algorithm.admit(server, dataclasses.replace(cards[0], name="second"))


def test_pooled_labels_are_spread_over_the_counts_of_all_rooms(make_rooms: MakeRooms) -> None:
    """The first room holds 0 and 2; a window of 1 of the others lies between them all the same."""
    rooms = make_rooms(((0, 2), (0, 1), (1, 2)))
    pooled, *_ = pool_rooms(rooms)
    assert (rooms[0].held, pooled.held) == ([0, 2], [0, 1, 2])
    algorithm = Pooled(training=Training(ordinal=1.5))
    model = algorithm.model(pooled, algorithm.join(pooled, Key(0)))
    assert model.targets is not None
    assert model.targets[1].argmax() == 1
