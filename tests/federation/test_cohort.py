"""Who takes part."""

import dataclasses
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fedapa.algorithms.local import Local
from fedapa.errors import PlanError, RosterError
from fedapa.federation.cohort import capable, check_roster, choose, diverse, uniform
from fedapa.federation.plan import Plan
from fedapa.federation.run import run
from fedapa.randomness import Key
from tests.conftest import MakeRooms
from tests.contract.test_algorithms import carry_out, plan_of

ROOMS = [f"room {index}" for index in range(10)]


def test_full_participation_is_everybody() -> None:
    assert uniform(ROOMS, 1.0, Key(0)) == tuple(ROOMS)


def test_the_share_is_met_and_nobody_comes_twice() -> None:
    drawn = uniform(ROOMS, 0.3, Key(0))
    assert len(drawn) == len(set(drawn)) == 3
    assert list(drawn) == sorted(drawn)


def test_at_least_one_room_takes_part() -> None:
    assert len(uniform(ROOMS, 0.01, Key(0))) == 1


def test_the_draw_depends_on_the_round_and_not_on_the_order_of_rooms() -> None:
    assert uniform(ROOMS, 0.5, Key(0) / 1) == uniform(ROOMS[::-1], 0.5, Key(0) / 1)
    assert uniform(ROOMS, 0.5, Key(0) / 1) != uniform(ROOMS, 0.5, Key(0) / 2)


def test_everybody_has_the_same_chance() -> None:
    """3 of 10 in 2,000 rounds: 600 expected, deviation √(2000·0.3·0.7) = 20; five allowed."""
    seen = Counter(room for number in range(2000) for room in uniform(ROOMS, 0.3, Key(0) / number))
    assert all(abs(seen[room] - 600) < 100 for room in ROOMS)


def test_shares_out_of_range_are_refused() -> None:
    for share in (0.0, -1.0, 1.1):
        with pytest.raises(PlanError, match="must be above 0 and at most 1"):
            uniform(ROOMS, share, Key(0))


def fan(degrees: list[float], classes: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Rooms whose prototypes point into these directions, all classes alike."""
    angle = np.radians(degrees)
    directions = np.stack([np.cos(angle), np.sin(angle)], axis=1)  # (N, 2)
    return np.repeat(directions[:, None], classes, axis=1), np.ones((len(degrees), classes), bool)


def test_diverse_takes_rooms_that_span_what_all_know() -> None:
    """Three near 0°, one at 90°, one at 180°: whoever of them is first, three rooms are always one
    of the three, the one at 90° and the one at 180°."""
    rooms = ["a", "b", "c", "d", "e"]
    for number in range(20):
        key = Key(0) / number
        drawn = diverse(rooms, *fan([0, 1, 2, 90, 180], 3), participation=0.6, key=key)
        assert drawn[1:] == ("d", "e")
        assert drawn[0] in ("a", "b", "c")


def test_diverse_begins_with_any_room() -> None:
    """With one place, over many rounds everybody comes; with two, opposite rooms come together."""
    rooms = ["a", "b", "c", "d"]
    sets = fan([0, 90, 180, 270])
    alone = {diverse(rooms, *sets, participation=0.25, key=Key(0) / number) for number in range(60)}
    assert alone == {("a",), ("b",), ("c",), ("d",)}
    pairs = {diverse(rooms, *sets, participation=0.5, key=Key(0) / number) for number in range(60)}
    assert pairs == {("a", "c"), ("b", "d")}


def test_diverse_compares_only_classes_that_both_hold() -> None:
    """a and b agree in class 0, the only one that b holds; c shares no class with a: distance 1."""
    prototypes = np.array(
        [[[1, 0], [1, 0], [0, 0]], [[1, 0], [0, 0], [0, 0]], [[0, 0], [0, 0], [1, 0]]], float
    )
    present = np.array([[True, True, False], [True, False, False], [False, False, True]])
    for number in range(10):
        drawn = diverse(["a", "b", "c"], prototypes, present, participation=0.67, key=Key(number))
        assert "c" in drawn


def test_rooms_not_heard_of_come_first() -> None:
    prototypes, present = fan([0, 90, 180, 270])
    present[[1, 2]] = False
    drawn = diverse(["a", "b", "c", "d"], prototypes, present, participation=0.5, key=Key(0))
    assert drawn == ("b", "c")


def test_capable_prefers_rooms_with_less_work() -> None:
    """One of two rooms with work 1 and 3: odds 3 to 1, so 1,500 of 2,000; deviation √(2000·3/16) =
    19, five allowed. The slow room is not shut out."""
    drawn = Counter(capable(["fast", "slow"], [1, 3], 0.5, Key(0) / n)[0] for n in range(2000))
    assert abs(drawn["fast"] - 1500) < 100


def test_capable_meets_the_share_whatever_the_work() -> None:
    drawn = capable(ROOMS, [10.0**index for index in range(10)], 0.3, Key(0))
    assert len(set(drawn)) == 3
    assert list(drawn) == sorted(drawn)
    assert capable(ROOMS, [1.0] * 10, 1.0, Key(0)) == tuple(ROOMS)


def test_work_is_flops_times_windows(make_rooms: MakeRooms) -> None:
    """A large net costs more than a middle one on the same windows: it comes less often."""
    rooms = make_rooms(((0, 1), (0, 1)), architecture=("middle", "large"))
    roster = [room.card for room in rooms]
    assert roster[1].flops > 1.2 * roster[0].flops
    seen = Counter(
        choose("capable", 0.5, algorithm=Local(), server={}, roster=roster, key=Key(0) / number)[0]
        for number in range(500)
    )
    assert seen["room 0"] > seen["room 1"]


@pytest.mark.parametrize("name", ["local", "fedavg", "fedamp", "moon", "fedapa-self"])
def test_diverse_is_refused_without_prototypes(
    name: str, make_rooms: MakeRooms, tmp_path: Path
) -> None:
    plan = plan_of(name, selection="diverse", participation=0.5)
    with pytest.raises(PlanError, match=r"sends none to the server; use selection = 'uniform'"):
        carry_out(plan, make_rooms(), tmp_path)
    assert not (tmp_path / "rooms").exists(), "nothing was trained"


@pytest.mark.parametrize("name", ["fedapa", "fedproto", "fedpcl", "fedproc"])
def test_diverse_runs_where_prototypes_travel(
    name: str, make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """The first rounds go through the rooms that were not heard of yet: all take part in three."""
    plan = plan_of(name, selection="diverse", participation=0.4)
    heard = set()
    for step in carry_out(plan, make_rooms(), tmp_path)[1:]:
        assert step.record is not None
        heard |= {room for room, entry in step.record["rooms"].items() if entry["participated"]}
    assert heard == {"room 0", "room 1", "room 2"}


def test_a_room_that_appears_twice_is_refused(make_rooms: MakeRooms, tmp_path: Path) -> None:
    rooms = make_rooms()
    with pytest.raises(RosterError, match=r"room 'room 1' appears twice; rename one"):
        run(Plan(rounds=1), rooms=[*rooms, rooms[1]], out=tmp_path / "run", workers=0)
    assert not (tmp_path / "run" / "rooms").exists()


def test_class_lists_that_differ_are_refused(make_rooms: MakeRooms, tmp_path: Path) -> None:
    odd = make_rooms(((0, 1, 7),))[0]
    rooms = [make_rooms(((0, 1, 2),))[0], dataclasses.replace(odd, name="cellar")]
    with pytest.raises(RosterError, match=r"'cellar' has another class list than 'room 0': 2 is"):
        run(Plan(rounds=1), rooms=rooms, out=tmp_path / "run", workers=0)
    turned = dataclasses.replace(rooms[0], name="attic", classes=(2, 1, 0))
    with pytest.raises(RosterError, match=r"the order differs; give all rooms the same classes"):
        run(Plan(rounds=1), rooms=[rooms[0], turned], out=tmp_path / "other", workers=0)


def test_no_rooms_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RosterError, match=r"there are no rooms"):
        check_roster([])
