"""What the soak would see: its judge, with records and faults made by hand. No process here.

Rounds of 10 s end at 10, 20, 30 …; the deadline is 5 s, and a room may take 40 s to come back. The
uploads of round 20 come from 180 to 190 s.
"""

import json
from typing import Any

import pytest

from tests.federation.network.soak import Injected, Line, Sample, grown, judge, unexcused

ROOMS = ("cafe", "hall", "liar")
ENDS = {number: 10.0 * number for number in range(1, 41)}


def record(number: int, missing: tuple[str, ...] = (), **rejected: str) -> dict[str, Any]:
    away = {*missing, *rejected}
    return {
        "round": number,
        "rooms": {room: {"participated": room not in away} for room in ROOMS},
        **({"missing": {"upload": sorted(away)}} if away else {}),
        **({"rejected": rejected} if rejected else {}),
    }


def judged(
    records: list[dict[str, Any]],
    injected: tuple[Injected, ...] = (),
    lies: tuple[int, ...] = (),
    seen: list[dict[str, Any]] | None = None,
) -> list[str]:
    came = [Line(ENDS[one["round"]], json.dumps(one)) for one in seen or records]
    said = [{"at": 0.0, "round": number, "what": "NaN"} for number in lies]
    return judge(records, came, injected, said, liar="liar", ends=ENDS, deadline=5.0)


def whole(*changed: dict[str, Any]) -> list[dict[str, Any]]:
    made = {number: record(number) for number in range(1, 41)}
    return list({**made, **{one["round"]: one for one in changed}}.values())


def test_a_run_to_which_nothing_was_done_has_nothing_wrong() -> None:
    assert judged(whole()) == []


def test_a_lost_a_doubled_and_a_changed_round_are_seen() -> None:
    assert "expected 1 to 39" in judged(whole()[:-2] + whole()[-1:])[0]
    assert "round 40 was in the record and is lost" in judged(whole()[:-1], seen=whole())
    later = whole(record(20, ("hall",)))
    assert "round 20 was changed after it was written" in judged(later, seen=whole())
    # Killed between a line and its checkpoint a run does the round again: that may be another one.
    kill = Injected("kill run", "server", 185.0, 195.0)
    assert judged(later, (kill,), seen=whole()) == []


def test_an_absence_needs_a_fault_of_that_room_at_that_time() -> None:
    absent = whole(record(20, ("hall",)))
    unseen = ["round 20: room 'hall' is absent, and nothing was done to it"]
    assert judged(absent) == unseen
    assert judged(absent, (Injected("cut", "hall", 185.0, 195.0),)) == []
    assert judged(absent, (Injected("cut", "cafe", 185.0, 195.0),)) == unseen
    assert judged(absent, (Injected("kill server", "server", 185.0, 195.0),)) == []
    stranger = Injected("stranger", "server", 185.0, 185.0)
    assert judged(absent, (stranger,)) == unseen, "who is refused keeps nobody away"
    assert judged(absent, (Injected("cut", "hall", 20.0, 30.0),)) == unseen, "long before"
    assert judged(absent, (Injected("cut", "hall", 201.0, 230.0),)) == unseen, "after it"


def test_how_many_presences_were_free_to_be_wrong_is_counted() -> None:
    """Three rooms in 40 rounds. A cut of the hall from 185 to 195 s excuses it where uploads came
    before 195 + 40 + 5 s and after 185 s: those of the rounds 20 to 25, six of 120."""
    assert unexcused(whole(), (), ENDS, 5.0) == 120
    assert unexcused(whole(), (Injected("cut", "hall", 185.0, 195.0),), ENDS, 5.0) == 114


def test_a_room_that_was_dead_all_the_time_cannot_have_taken_part() -> None:
    dead = Injected("kill room", "hall", 150.0, 260.0)
    expected = [f"round {number}: room 'hall' took part and was dead" for number in range(18, 27)]
    found = judged(whole(), (dead,))
    assert [sentence.removesuffix(" all the time") for sentence in found] == expected


@pytest.mark.parametrize("taken", [False, True])
def test_each_lie_is_rejected(taken: bool) -> None:
    round = record(7) if taken else record(7, liar="NaN")
    expected = ["round 7: a lie (NaN) of 'liar' was taken"] if taken else []
    assert judged(whole(round), lies=(7,)) == expected


def test_a_lie_that_nobody_recorded_needs_a_fault() -> None:
    silent = whole(record(20, ("liar",)))
    assert judged(silent, lies=(20,)) == ["round 20: a lie (NaN) of 'liar' is not recorded"]
    assert judged(silent, (Injected("cut", "liar", 185.0, 195.0),), lies=(20,)) == []


def test_nobody_else_is_rejected() -> None:
    assert "honest room 'cafe' was rejected" in judged(whole(record(7, cafe="too large")))[0]
    assert "did not lie and was rejected" in judged(whole(record(7, liar="too large")))[0]


def test_a_process_that_grows_is_named() -> None:
    def sample(step: int, files: int = 0) -> dict[int, Sample]:
        moments = [
            (float(at), (100 << 20) + at * step, 10 + at * files) for at in range(0, 601, 10)
        ]
        return {42: Sample("superlink of server", moments)}

    assert grown(sample(0)) == []
    # Medians of the last two thirds (200 to 390 s, 400 to 600 s): 500 − 295 = 205 s of 0.2 MB.
    assert "superlink of server (process 42) grew by 41 MB" in grown(sample(209_715))[0]
    assert "has 205 more files open" in grown(sample(0, files=1))[0]
    short = Sample("check of hall", [(0.0, 1 << 20, 3), (30.0, 900 << 20, 900)])
    assert grown({7: short}) == [], "what lives for seconds is not judged"
