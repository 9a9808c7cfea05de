"""From a plan to rooms: steps that a room does alone, and what the server agrees on."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from fedapa import Plan
from fedapa.errors import DataError, RosterError
from fedapa.federation.messages import Agreement
from fedapa.federation.participant import introduce
from fedapa.federation.prepare import (
    agree,
    cut_windows,
    make_room,
    prepare_rooms,
    split_own,
    tell_data,
)
from fedapa.rooms.card import DataCard
from fedapa.stores.store import write_store
from tests.conftest import MakeStore

THREE = {"cafe": {0: 4, 1: 4, 2: 4}, "hall": {0: 2, 2: 2}, "lab": {1: 3, 2: 3}}


def plan_of(store: Path, **values: Any) -> Plan:
    data = {"file": str(store), "window": 16, "split": "random"}
    base = {"data": data, "model": {"architecture": "by-size", "width": 16}}
    return Plan.of(base, values)


def test_rooms_that_prepare_alone_are_those_of_one_process(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """Each room has a store of its own; only cards meet, and what was agreed comes back."""
    whole = make_store(THREE)
    plans = {}
    with h5py.File(whole) as together:
        for room in THREE:
            path = tmp_path / f"{room}.h5"
            with h5py.File(path, "w") as alone:
                for name, value in together.attrs.items():
                    alone.attrs[name] = value
                together.copy(room, alone)
            plans[room] = plan_of(path)
    windows = {room: cut_windows(plan)[0] for room, plan in plans.items()}
    splits = {room: split_own(plan, windows[room]) for room, plan in plans.items()}
    cards = [tell_data(windows[room], splits[room]) for room in sorted(plans)]
    agreed = agree(plan_of(whole), cards)
    assert agreed.classes == (0, 1, 2)
    assert set(agreed.nets.values()) == {"tiny", "middle", "large"}
    for expected in prepare_rooms(plan_of(whole)):
        name = expected.name
        made = make_room(plans[name], windows[name], split=splits[name], agreed=agreed)
        assert introduce(made) == introduce(expected)
        np.testing.assert_array_equal(made.windows, expected.windows)
        np.testing.assert_array_equal(made.split.test, expected.split.test)


def test_window_shapes_that_do_not_fit_are_refused_by_name_with_a_remedy() -> None:
    cards = [
        DataCard("cafe", (0, 1), (16, 52), {"train": 8, "validation": 1, "test": 2}),
        DataCard("hall", (0, 1), (16, 64), {"train": 8, "validation": 1, "test": 2}),
    ]
    with pytest.raises(
        DataError, match=r"room 'hall' has windows of \(16, 64\), room 'cafe' .*same"
    ):
        agree(Plan(), cards)


def test_what_cannot_agree_is_told_with_the_rooms() -> None:
    card = DataCard("cafe", (0, 1), (16, 52), {"train": 8, "validation": 1, "test": 2})
    with pytest.raises(RosterError, match="no rooms to agree"):
        agree(Plan(), [])
    with pytest.raises(RosterError, match="room 'cafe' appears twice"):
        agree(Plan(), [card, card])
    others = [replace(card, name=name, labels=("sit", "walk")) for name in ("hall", "lab")]
    with pytest.raises(DataError, match=r"0 … in room 'cafe', 'walk' … in room 'hall', room 'lab'"):
        agree(Plan(), [card, *others])


def test_a_room_that_did_not_agree_is_named(make_store: MakeStore) -> None:
    plan = plan_of(make_store(THREE))
    windows = cut_windows(plan)[0]
    agreed = Agreement((0, 1, 2), (16, 6), {"hall": "tiny"})
    with pytest.raises(RosterError, match=r"room 'cafe' is not among those that agreed \(hall\)"):
        make_room(plan, windows, split=split_own(plan, windows), agreed=agreed)


def test_rooms_of_other_shapes_are_refused_before_windows_are_dealt(tmp_path: Path) -> None:
    path = tmp_path / "rooms.h5"
    with write_store(path) as store:
        for room, width in (("a", 8), ("b", 9)):
            store.add_room(room, synthetic=False, about={})
            for label in (0, 1):
                rows = np.random.RandomState(label).rand(20, width).astype(np.float32)
                store.add_features(room, f"P{label}", label=label, features=rows + label)
    dealt = {"partition": "classes", "partition_rooms": 2}
    for data in ({}, dealt):
        plan = plan_of(path, model={"architecture": "mlp"}, data=data)
        with pytest.raises(DataError, match=r"rooms\.h5.*room 'b' has windows of \(9,\)"):
            prepare_rooms(plan)


def test_recordings_of_other_subcarriers_are_named(make_store: MakeStore) -> None:
    mixed = make_store({"cafe": {0: 1, 1: 1}}, name="mixed.h5")
    with h5py.File(mixed, "r+") as file:
        file.copy("cafe", "hall")
        for recording in ("0-0", "1-0"):
            del file["hall"][recording]["amplitude"]
            file["hall"][recording]["amplitude"] = np.random.rand(64, 5, 1)  # noqa: NPY002
    with pytest.raises(DataError, match=r"room 'hall' has windows of \(32, 5\), room 'cafe'"):
        prepare_rooms(plan_of(mixed, data={"window": 32}))
