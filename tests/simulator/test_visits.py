"""People who come and go within one recording."""

from dataclasses import replace

import numpy as np
import pytest

from fedapa.errors import PlanError
from fedapa.randomness import Key
from fedapa.simulator.channel import Channel
from fedapa.simulator.people import Body, Crowd, visitors_of
from fedapa.simulator.recording import (
    Scene,
    check_scene,
    record,
    record_visits,
    stream_visits,
)
from fedapa.simulator.room import door_of, furniture_of
from fedapa.simulator.visits import Visit, Visits, draw_visits, staying, visits_through
from pages import credibility

SCENE = credibility.scene_of("conference room", preset="quick")
ONE = Visits(8.0, (Visit(2.0, 5.0),))
"""One visitor from 2 s to 5 s."""


def crowd(visits: Visits, *, seated: float, number: int = 0) -> Crowd:
    return visitors_of(
        SCENE.room,
        visits=visits,
        duration=visits.seconds,
        key=Key(number) / "visits",
        body=Body(),
        motion=replace(SCENE.motion, seated=seated),
    )


def channel(of: Crowd, scene: Scene = SCENE) -> Channel:
    furniture = furniture_of(scene.room, key=Key(0), day=0)
    return Channel(scene.room, scene.radio, furniture, of)


def test_one_visitor_is_counted_from_2_to_5_seconds() -> None:
    assert ONE.counts(np.array([0.0, 1.99, 2.0, 4.99, 5.0, 7.9])).tolist() == [0, 0, 1, 1, 0, 0]
    capture, counts = record_visits(SCENE, ONE, day=0, key=Key(0))
    inside = (capture.timestamps >= 2) & (capture.timestamps < 5)
    assert capture.synthetic
    assert counts.tolist() == inside.astype(int).tolist()
    assert capture.timestamps[-1] == pytest.approx(8, abs=0.2)


@pytest.mark.parametrize("seated", [0.0, 1.0])
def test_a_visitor_moves_the_channel_only_while_there(seated: float) -> None:
    """Before 2 s and after 5 s the channel is that of the empty room; in between it is not.

    Interpolating the motion of seated people is exact to 80 dB.
    """
    times = np.arange(1000) / 125
    visited = channel(crowd(ONE, seated=seated)).response(times)
    empty = channel(crowd(staying(0, 8.0, ""), seated=seated)).response(times)
    apart = np.abs(visited - empty).max(axis=1) / np.abs(empty).mean()
    outside = (times < 1.9) | (times > 5.1)
    assert apart[outside].max() < 1e-4
    assert apart[(times > 2.5) & (times < 4.5)].min() > 1e-3


@pytest.mark.parametrize("seated", [0.0, 1.0])
def test_nobody_appears_or_disappears_with_a_step(seated: float) -> None:
    """From packet to packet visitors change the channel by no more than if they only walked.

    For comparison the same bodies on the same ways are present all the time.
    """
    times = np.arange(2500) / 125
    come_and_go = Visits(20.0, (Visit(2.0, 12.0), Visit(4.0, 5.0), Visit(0.0, 9.0)))

    def jump(of: Crowd) -> float:
        return float(np.abs(np.diff(channel(of).response(times), axis=0)).max())

    for number in range(4):
        visiting = crowd(come_and_go, seated=seated, number=number)
        assert visiting.present is not None
        walking = replace(visiting, present=np.ones_like(visiting.present))
        assert jump(visiting) < 1.1 * jump(walking)


def test_visitors_walk_in_by_the_door_and_out() -> None:
    """The threshold lies 0.4 m, the clearance, inside the middle of the eastern wall."""
    assert door_of(SCENE.room) == (7.0, 2.5)
    walked = crowd(Visits(20.0, (Visit(2.0, 18.0),)), seated=0.0)
    assert walked.present is not None
    torso, present = walked.points[:, 0, 0, :2], walked.present[:, 0]
    there = np.flatnonzero(present)
    assert torso[there[[0, -1]]] == pytest.approx(np.array([[6.6, 2.5]] * 2), abs=0.2)
    speeds = np.hypot(*(np.diff(torso.astype(float), axis=0) * 250).T)
    assert speeds.max() < 1.6


def test_a_visitor_with_a_seat_walks_to_it_sits_and_walks_back() -> None:
    both = crowd(Visits(30.0, (Visit(2.0, 28.0),)), seated=1.0)
    assert both.present is not None
    assert both.seated.tolist() == [True, False]
    sitting, walking = both.present.T
    assert sitting[both.points.shape[0] // 2] == 1
    assert walking[int((2.6 - both.start) * 250)] == 1
    whole = sitting + walking
    assert whole.min() >= 0
    assert whole.max() <= 1
    assert (whole > 0).sum() / 250 == pytest.approx(26, abs=0.1)


def test_a_short_visit_turns_round_in_time() -> None:
    """At 1.5 m/s nobody gets further than 0.75 m within a second there and back."""
    short = crowd(Visits(8.0, (Visit(3.0, 4.0),)), seated=0.0)
    torso = short.points[:, 0, 0, :2]
    assert np.hypot(*(torso - [6.6, 2.5]).T).max() < 0.8


def test_without_visits_the_room_is_empty() -> None:
    visited, counts = record_visits(SCENE, Visits(4.0, ()), day=1, key=Key(3))
    empty = record(SCENE, people=0, day=1, packets=len(counts), key=Key(3))
    assert not counts.any()
    assert visited.csi.tobytes() == empty.csi.tobytes()


def test_who_stays_all_the_time_is_recorded_as_without_visits() -> None:
    stayed, counts = record_visits(SCENE, staying(4, 6.0, ""), day=1, key=Key(3), number=2)
    plain = record(SCENE, people=4, day=1, packets=len(counts), key=Key(3), number=2)
    assert (counts == 4).all()
    assert stayed.csi.tobytes() == plain.csi.tobytes()
    assert stayed.timestamps.tobytes() == plain.timestamps.tobytes()


def test_equal_seeds_give_equal_bytes() -> None:
    made = [record_visits(SCENE, ONE, day=0, key=Key(seed))[0].csi.tobytes() for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]


@pytest.mark.parametrize(
    ("visits", "complaint"),
    [
        (Visits(8.0, (Visit(5.0, 2.0),)), "visit 1 from 5 to 2 s: leave after arriving"),
        (Visits(8.0, (Visit(1.0, 2.0), Visit(3.0, 3.0))), "visit 2 from 3 to 3 s: leave after"),
        (Visits(8.0, (Visit(2.0, 9.0),)), "the recording lasts from 0 to 8 s; stay within it"),
        (Visits(8.0, (Visit(-1.0, 5.0),)), "the recording lasts from 0 to 8 s; stay within it"),
        (Visits(8.0, (Visit(float("nan"), 5.0),)), "leave after arriving"),
        (Visits(0.0, ()), "visits of 0 s; a recording lasts more than 0 s"),
        (Visits(8.0, (Visit(2.0, 5.0),) * 71), "71 people do not fit .* at most 70 do"),
    ],
)
def test_visits_that_cannot_be_are_refused(visits: Visits, complaint: str) -> None:
    with pytest.raises(PlanError, match=f"room 'conference room': .*{complaint}") as caught:
        record_visits(SCENE, visits, day=0, key=Key(0))
    assert "\n" not in str(caught.value)


def test_more_visitors_than_fit_may_come_one_after_the_other() -> None:
    visits = Visits(80.0, tuple(Visit(float(n), n + 1.0) for n in range(80)))
    assert visits.most == 1
    assert crowd(visits, seated=0.0).bodies == 80


@pytest.mark.parametrize("largest", [0, 1, 3, 20])
def test_drawn_visits_go_up_and_down_between_nobody_and_the_largest(largest: int) -> None:
    for seed in range(20):
        drawn = draw_visits(Key(seed), seconds=120.0, largest=largest)
        counts = drawn.counts(np.arange(0, 120, 0.1))
        assert (counts.min(), counts.max()) == (0, largest) == (0, drawn.most)
        assert np.count_nonzero(np.diff(counts)) >= min(largest, 5)
        stays = [visit.departure - visit.arrival for visit in drawn.visits]
        assert min(stays, default=10.0) >= 10
    assert draw_visits(Key(0), seconds=120.0, largest=3) == draw_visits(
        Key(0), seconds=120.0, largest=3
    )


def test_a_door_is_in_a_wall() -> None:
    check_scene(replace(SCENE, room=replace(SCENE.room, door=(0.0, 1.0))))
    for door in ((1.0, 1.0), (0.0, 6.0)):
        with pytest.raises(PlanError, match="is in no wall of a room of 7 × 5 m"):
            check_scene(replace(SCENE, room=replace(SCENE.room, door=door)))


def test_a_recording_in_pieces_is_the_recording() -> None:
    visits = Visits(20.0, (Visit(2.0, 5.0), Visit(0.0, 20.0)))
    whole, _ = record_visits(SCENE, visits, day=3, key=Key(0), number=2)
    pieces = list(stream_visits(SCENE, visits, day=3, key=Key(0), number=2))
    assert len(pieces) > 5
    assert np.concatenate([piece.csi for piece in pieces]).tobytes() == whole.csi.tobytes()
    assert np.concatenate([piece.rssi for piece in pieces]).tobytes() == whole.rssi.tobytes()


def test_visits_go_through_the_levels_that_are_given() -> None:
    """Three phases of 20 s; who comes or goes does so in the first half of a phase."""
    drawn = visits_through(Key(0), [3, 0, 5], phase=20)
    assert drawn.seconds == 60
    assert drawn.counts(np.array([0.0, 19.9, 30.1, 39.9, 50.1])).tolist() == [3, 3, 0, 0, 5]
    with pytest.raises(PlanError, match="give counts of 0 or more"):
        visits_through(Key(0), [1, -1], phase=20)
