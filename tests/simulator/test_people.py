"""How people move."""

from dataclasses import replace

import numpy as np
import pytest

from fedapa.errors import PlanError
from fedapa.randomness import Key
from fedapa.simulator.people import MOTION_RATE, Body, Crowd, Motion, crowd_of
from pages import credibility

SCENE = credibility.scene_of("conference room")


def crowd(people: int, seconds: float = 20.0, **motion: object) -> Crowd:
    return crowd_of(
        SCENE.room,
        people=people,
        duration=seconds,
        key=Key(0),
        body=Body(),
        motion=replace(Motion(), **motion),  # type: ignore[arg-type]
    )


def speeds(of: Crowd, point: int) -> np.ndarray:
    steps = np.diff(of.points[:, :, point, :2].astype(float), axis=0) * MOTION_RATE
    return np.hypot(steps[..., 0], steps[..., 1])


def test_walkers_keep_to_their_speeds_and_to_the_room() -> None:
    walking = crowd(10, seated=0.0, pausing=0.0, fidgets=0.0, sway=0.0, breath=0.0)
    torso = walking.points[:, :, 0, :2]
    assert (torso > 0).all()
    assert (torso < np.asarray(SCENE.room.size[:2])).all()
    fast = speeds(walking, 0)
    assert fast.max() < 1.5 * 1.02
    assert 0.3 < np.median(fast) < 1.5


def test_no_limb_is_faster_than_the_sampling_of_motion_allows() -> None:
    """1.8 times the body's 1.5 m/s, to and fro: 2 · 2.7 / 0.0575 = 94 Hz, below 125."""
    walking = crowd(10, seated=0.0, pausing=0.0)
    fastest = max(speeds(walking, point).max() for point in range(5))
    doppler = 2 * fastest * 5.21e9 / 299_792_458
    assert doppler < MOTION_RATE / 2 * 0.9


def test_people_stop_sometimes() -> None:
    walking = crowd(10, seconds=60.0, seated=0.0, sway=0.0, breath=0.0)
    resting = (speeds(walking, 0) < 0.01).mean()
    assert 0.05 < resting < 0.8


def test_seated_people_stay_seated_breathe_and_fidget() -> None:
    sitting = crowd(6, seconds=60.0, seated=1.0)
    assert sitting.seated.all()
    assert sitting.heights.max() < 1.5
    chest, hand = sitting.points[:, :, 0, :2], sitting.points[:, :, 1, :]
    assert np.ptp(chest, axis=0).max() < 0.06
    assert (np.ptp(chest, axis=0) > 0.002).any(axis=1).all(), "everybody breathes"
    assert np.ptp(hand, axis=0).max() > 0.03, "somebody fidgets"
    assert speeds(sitting, 1).max() < 0.9, "a quarter of a wavelength per sample at 62.5 Hz"


def test_people_beyond_the_seats_stand() -> None:
    assert crowd(20, seated=1.0).seated.sum() == len(SCENE.room.seats)


def test_a_person_moves_the_same_whoever_else_is_there() -> None:
    few, many = crowd(2, seated=0.0), crowd(5, seated=0.0)
    assert np.abs(few.points[:, 0, 0, :2] - many.points[:, 0, 0, :2]).max() == 0


@pytest.mark.parametrize("people", [-1, 71])
def test_impossible_numbers_of_people_are_refused(people: int) -> None:
    with pytest.raises(PlanError, match=f"{people} people"):
        crowd(people)
