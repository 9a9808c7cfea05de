"""Many rooms from six: that each can be, that none is another, and that a seed gives the same."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedapa.errors import PlanError
from fedapa.simulator.room import capacity
from fedapa.stores.many_rooms import many_rooms
from fedapa.stores.simulated import write_simulated
from fedapa.stores.simulated_rooms import SIMULATED_PRESETS, check_preset, preset_of
from fedapa.stores.store import Store


@pytest.mark.parametrize("preset", SIMULATED_PRESETS)
def test_every_one_of_many_rooms_can_be(preset: str) -> None:
    six = preset_of(preset)
    made = many_rooms(six, 120, seed=3)
    check_preset(made)  # nobody outside, on a wall or too tall; antennas apart; people fit
    assert len({place.scene.room.name for place in made.places}) == 120
    assert made.window == six.window
    for number, place in enumerate(made.places):
        first = six.places[number % 6]
        assert place.scene.radio == first.scene.radio
        assert set(place.counts) <= set(first.counts)
        assert 0 in place.counts
        assert len(place.counts) >= min(3, len(first.counts))
        assert max(place.counts) <= capacity(place.scene.room)
        for side, usual in zip(place.scene.room.size, first.scene.room.size, strict=True):
            assert 0.79 * usual < side < 1.26 * usual


def test_no_two_variations_are_alike() -> None:
    places = many_rooms(preset_of("smoke"), 60, seed=0).places
    for what in ("size", "transmitter", "receiver", "furniture"):
        assert len({getattr(place.scene.room, what) for place in places}) == 60, what
    assert len({place.scene.motion for place in places}) == 60
    halls = [place for place in places if place.scene.room.name.startswith("open office")]
    assert len({place.scene.room.walls for place in halls}) > 1
    buses = [place for place in places if place.scene.room.name.startswith("bus")]
    assert {place.scene.room.walls.floor for place in buses} == {"metal"}


def test_a_room_depends_on_seed_and_number_alone() -> None:
    smoke = preset_of("smoke")
    few, many = (many_rooms(smoke, number, seed=1).places for number in (7, 20))
    assert few == many[:7]
    assert many_rooms(smoke, 7, seed=2).places != few
    with pytest.raises(PlanError, match=r"--many 0: choose 1 to 100000 rooms"):
        many_rooms(smoke, 0, seed=0)


def test_many_rooms_become_a_store(tmp_path: Path) -> None:
    made = many_rooms(preset_of("smoke"), 3, seed=0)
    short = tuple(replace(place, days=1, recordings=1, counts=(0, 1)) for place in made.places)
    write_simulated(replace(made, places=short), seed=0, out=tmp_path / "many.h5")
    with Store(tmp_path / "many.h5") as store:
        assert store.rooms == ("bus 00002", "classroom 00001", "living room 00000")
        assert len(store.recordings("bus 00002")) == 2
