"""Windows dealt anew: who gets what, and that nothing is lost, doubled or leaked."""

from collections import Counter
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from fedapa.errors import DataError, PlanError
from fedapa.federation.plan import Plan
from fedapa.federation.prepare import prepare_rooms
from fedapa.randomness import Key
from fedapa.rooms.skew import _mended, by_classes, by_dirichlet, deal
from fedapa.stores.materialise import RoomWindows
from fedapa.stores.store import write_store
from fedapa.windows.recipe import Recipe

LABELS = [index % 5 for index in range(500)]


def spread(dealt: list[np.ndarray]) -> float:
    """How uneven classes are between rooms: mean distance of class shares from 1/5."""
    shares = [np.bincount(np.array(LABELS)[part], minlength=5) / len(part) for part in dealt]
    return float(np.abs(np.stack(shares) - 0.2).mean())


def test_dirichlet_deals_every_unit_once() -> None:
    dealt = by_dirichlet(LABELS, rooms=4, concentration=0.5, key=Key(0))
    assert len(dealt) == 4
    assert sorted(np.concatenate(dealt).tolist()) == list(range(500))
    again = by_dirichlet(LABELS, rooms=4, concentration=0.5, key=Key(0))
    assert all(np.array_equal(one, other) for one, other in zip(dealt, again, strict=True))


def test_a_small_concentration_is_a_strong_skew() -> None:
    skews = [
        spread(by_dirichlet(LABELS, rooms=4, concentration=alpha, key=Key(0)))
        for alpha in (0.2, 2.0, 1000.0)
    ]
    assert skews[0] > skews[1] > skews[2]
    assert skews[2] < 0.02
    sizes = [len(part) for part in by_dirichlet(LABELS, rooms=4, concentration=0.2, key=Key(0))]
    assert max(sizes) > 1.5 * min(sizes), "sizes are unequal too"


def test_every_dirichlet_room_can_learn_and_be_tested() -> None:
    for number in range(10):
        for part in by_dirichlet(LABELS, rooms=6, concentration=0.1, key=Key(number)):
            held = Counter(LABELS[unit] for unit in part)
            assert sum(count >= 2 for count in held.values()) >= 2


def test_too_few_units_for_dirichlet_say_so() -> None:
    """Three rooms need six pairs of equal units, and there are two."""
    with pytest.raises(DataError, match=r"do not give each of 3 rooms two classes of two each"):
        by_dirichlet([0, 0, 1, 1], rooms=3, concentration=0.5, key=Key(0))


@pytest.mark.parametrize("concentration", [0.1, 0.5, 10.0])
def test_few_units_are_dealt_to_many_rooms(concentration: float) -> None:
    """1,008 windows of 21 classes to 100 rooms: no draw gives every room two classes of two."""
    labels = [index % 21 for index in range(1008)]
    dealt = by_dirichlet(labels, rooms=100, concentration=concentration, key=Key(0))
    assert sorted(np.concatenate(dealt).tolist()) == list(range(1008))
    for part in dealt:
        held = Counter(labels[unit] for unit in part)
        assert sum(count >= 2 for count in held.values()) >= 2
    again = by_dirichlet(labels, rooms=100, concentration=concentration, key=Key(0))
    assert all(np.array_equal(one, other) for one, other in zip(dealt, again, strict=True))


def test_mending_moves_as_few_units_as_it_can() -> None:
    """Room 2 has one unit of class 0 and lacks three: one of class 0, two of class 1. Room 0 holds
    most of class 0. Of class 1 rooms 0 and 1 have five each; the first gives first."""
    dealt = [[[0, 1, 2, 3], [4, 5, 6, 7, 8]], [[9, 10], [11, 12, 13, 14, 15]], [[16], []]]
    sizes = np.asarray([[len(part) for part in parts] for parts in dealt])
    mended = _mended(dealt, sizes)
    assert mended == [[[0, 1, 2], [4, 5, 6, 7]], [[9, 10], [11, 12, 13, 14]], [[16, 3], [8, 15]]]


def test_classes_a_room_by_hand() -> None:
    """Four rooms, two of four classes each: every class has two holders who share it evenly."""
    labels = [index % 4 for index in range(40)]
    dealt = by_classes(labels, rooms=4, classes=2, key=Key(0))
    held = [Counter(labels[unit] for unit in part) for part in dealt]
    assert [sorted(each.values()) for each in held] == [[5, 5]] * 4
    assert Counter(label for each in held for label in each) == dict.fromkeys(range(4), 2)
    assert sorted(np.concatenate(dealt).tolist()) == list(range(40))


def test_classes_that_cannot_be_dealt_say_so() -> None:
    with pytest.raises(DataError, match=r"partition_classes = 6, but there are 5 classes"):
        by_classes(LABELS, rooms=4, classes=6, key=Key(0))
    with pytest.raises(DataError, match=r"has 2 recordings .* for 2 rooms, two each are needed"):
        by_classes([0, 0, 1, 1], rooms=2, classes=2, key=Key(0))


def pool(tmp_path: Path, rooms: int = 2, takes: int = 4) -> tuple[RoomWindows, ...]:
    """Rooms of three classes, ``takes`` takes a class, two windows a take; the value of a window
    is its own number."""
    found = []
    for number in range(rooms):
        count = 3 * takes * 2
        windows = (1000 * number + np.arange(count, dtype=np.float32)).reshape(-1, 1, 1)
        path = tmp_path / f"room {number}.npy"
        np.save(path, np.broadcast_to(windows, (count, 4, 2)))
        found.append(
            RoomWindows(
                room=f"room {number}",
                path=path,
                labels=tuple(index // (takes * 2) for index in range(count)),
                recordings=tuple(f"take {index // 2}" for index in range(count)),
                days=tuple(f"day {index % 3}" if number else "" for index in range(count)),
                continuous=tuple(number == 0 and index // 2 == 0 for index in range(count)),
                starts=np.arange(count) % 2 * 4,
                spans=4,
                step=4,
                synthetic=number == 0,
                recipe=Recipe(device="test", bandwidth=20 + 20 * number, window=4),
                digest=str(number),
            )
        )
    return tuple(found)


@pytest.mark.parametrize("kind", ["dirichlet", "classes"])
@pytest.mark.parametrize("whole_recordings", [True, False])
def test_dealt_rooms_hold_the_windows_they_say(
    kind: Literal["dirichlet", "classes"], whole_recordings: bool, tmp_path: Path
) -> None:
    found = pool(tmp_path)
    new = deal(
        found,
        kind=kind,
        rooms=3,
        concentration=5.0,
        classes=2,
        whole_recordings=whole_recordings,
        key=Key(0),
    )
    assert [each.room for each in new] == ["part 01", "part 02", "part 03"]
    seen = []
    for each in new:
        values = each.open()
        assert values.shape == (len(each.labels), 4, 2)
        for value, label, take, day in zip(
            values[:, 0, 0], each.labels, each.recordings, each.days, strict=True
        ):
            home, index = divmod(int(value), 1000)
            assert label == found[home].labels[index]
            assert take == f"room {home} · {found[home].recordings[index]}"
            assert day == (f"room 1 · {found[1].days[index]}" if home else "")
            assert not found[home].continuous[index], "continuous recordings are not dealt"
            seen.append(int(value))
        assert not any(each.continuous)
    assert len(seen) == len(set(seen))
    owners = {(take, each.room) for each in new for take in each.recordings}
    divided = len(owners) > len({take for take, _ in owners})
    assert divided != whole_recordings, "a recording is never divided, unless windows are dealt"
    for room in new:
        homes = {take.split(" · ")[0] for take in room.recordings}
        assert room.recipe.device == "test"
        assert (room.recipe.bandwidth is None) == (len(homes) > 1), "what differs is not said"
    assert len({room.digest for room in new}) == len(new)


def test_a_plan_can_ask_for_a_partition(tmp_path: Path) -> None:
    stream = Key(0).numpy()
    with write_store(tmp_path / "pool.h5") as store:
        store.add_room("pool", synthetic=False, about={})
        for count in range(4):
            for take in range(9):
                store.add_recording(
                    "pool",
                    f"{count}-{take}",
                    label=count,
                    amplitude=stream.normal(size=(16, 3, 1)).astype(np.float32),
                    timestamps=np.arange(16.0),
                )
    data = {
        "file": str(tmp_path / "pool.h5"),
        "window": 8,
        "partition": "classes",
        "partition_rooms": 4,
        "partition_classes": 2,
        "split": "recording",
    }
    model = {"architecture": "tiny", "width": 4}
    with pytest.raises(PlanError, match=r'view = "auto": .*deals their windows anew; name a view'):
        prepare_rooms(Plan(data=data, model=model))
    rooms = prepare_rooms(Plan(data={**data, "view": "amplitude"}, model=model))
    assert [room.name for room in rooms] == ["part 01", "part 02", "part 03", "part 04"]
    assert {room.classes for room in rooms} == {(0, 1, 2, 3)}
    assert all(len(np.unique(room.labels)) == 2 for room in rooms)
    assert all(len(room.split.test) for room in rooms)
