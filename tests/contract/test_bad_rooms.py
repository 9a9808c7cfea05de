"""Every algorithm with a room that sends what it should not: nobody else notices."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedapa.algorithms import names
from fedapa.algorithms.algorithm import Roster, Round
from fedapa.federation import rounds
from fedapa.federation.engines.in_process import InProcess
from fedapa.federation.messages import Reply, Request
from fedapa.payload import Tree, Value, decode, encode
from tests.conftest import MakeRooms
from tests.contract.test_absent_rooms import four_rooms
from tests.contract.test_algorithms import plan_of

BAD = "room 2"


def floats(change: Callable[[Any], Value]) -> Callable[[Value], Value]:
    """A change of arrays of floats; anything else stays."""
    return lambda value: (
        change(value) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else value
    )


def with_first(number: float) -> Callable[[Any], Value]:
    def changed(value: Any) -> Value:
        spoilt = np.array(value)
        spoilt.flat[:1] = number
        return spoilt

    return changed


WRONG: tuple[Callable[[Value], Value], ...] = (
    floats(with_first(np.nan)),
    floats(with_first(np.inf)),
    floats(with_first(1e20)),
    floats(lambda value: np.float32(1e6) + value),
    floats(lambda value: 0.5),  # a number in place of an array: numpy would spread it
)
"""Wrong uploads, one a round to the last: each of their arrays is changed. More: test_rounds.py."""


def changed(tree: Tree, change: Callable[[Value], Value]) -> dict[str, Value]:
    return {
        name: changed(value, change) if isinstance(value, Mapping) else change(value)
        for name, value in tree.items()
    }


class Spoilt:
    """An engine in which one room is absent from the second exchange on, or sends what is wrong."""

    def __init__(self, engine: InProcess, *, absent: bool) -> None:
        self._engine, self._absent = engine, absent

    def roster(self) -> Roster:
        return self._engine.roster()

    def exchange(self, round: Round, requests: Mapping[str, Request]) -> Mapping[str, Reply]:
        replies = dict(self._engine.exchange(round, requests))
        told = replies[BAD].upload
        if 2 <= round.number < 2 + len(WRONG) and told is not None:
            upload = changed(decode(told), WRONG[round.number - 2])
            if not upload:  # where nothing travels
                upload = {"prototypes": np.ones((2, 8), np.float32)}
            replies[BAD] = replace(replies[BAD], upload=encode(upload))
            if self._absent:
                del replies[BAD]
        return replies


@pytest.mark.parametrize("name", names())
def test_a_wrong_upload_is_to_all_others_as_if_its_room_had_been_away(
    name: str, make_rooms: MakeRooms, tmp_path: Path
) -> None:
    """Records and the server's state are equal to the bit; the reason stands beside them."""
    plan = plan_of(name, rounds=1 + len(WRONG))
    algorithm = plan.build()

    def steps_of(folder: Path, *, absent: bool) -> list[rounds.Step]:
        rooms = four_rooms(make_rooms)
        with InProcess(algorithm, rooms, folder=folder, workers=0) as engine:
            spoilt = Spoilt(engine, absent=absent)
            state = rounds.begin(algorithm, spoilt, plan)
            return list(rounds.run(algorithm, spoilt, plan, state))

    bad = steps_of(tmp_path / "bad", absent=False)
    away = steps_of(tmp_path / "away", absent=True)
    for step, other in zip(bad, away, strict=True):
        assert encode(step.state["server"]) == encode(other.state["server"])  # type: ignore[arg-type]
        if step.record is None or other.record is None:
            continue
        told = {key: value for key, value in step.record.items() if key != "rejected"}
        assert json.dumps(told) == json.dumps(dict(other.record))
        wrong = 2 <= step.record["round"] < 2 + len(WRONG)
        assert list(step.record.get("rejected", {})) == ([BAD] if wrong else [])
