"""The channel against what physics and publications say."""

from dataclasses import replace

import numpy as np
import pytest

from fedapa.randomness import Key
from fedapa.simulator.channel import SUBCARRIER_SPACING, Channel, Radio, shadow
from fedapa.simulator.delays import DelayGrid
from fedapa.simulator.people import MOTION_RATE
from fedapa.simulator.room import (
    SPEED_OF_LIGHT,
    Scatterers,
    SimulatedRoom,
    furniture_of,
    image_sources,
    mirrors,
    reflection,
)
from pages import credibility

NO_FURNITURE = Scatterers(np.empty((0, 3)), np.empty(0))


@pytest.mark.parametrize("distance", [0.6, 3.0, 10.0, 30.0])
@pytest.mark.parametrize("bandwidth", [20, 40, 80])
def test_a_single_path_has_the_loss_of_friis_and_the_delay_of_light(
    distance: float, bandwidth: int
) -> None:
    """At 10 m and 5.21 GHz: 20·log10(4π · 10 / 0.057542) = 66.785 dB, 33.356 ns."""
    radio = Radio(bandwidth=bandwidth)
    loss, delay = credibility.single_path(distance, radio=radio)
    expected_loss, expected_delay = credibility.free_space(distance, radio=radio)
    assert loss == pytest.approx(expected_loss, abs=1e-3)
    assert delay == pytest.approx(expected_delay, abs=1e-12)
    if distance == 10.0:
        assert expected_loss == pytest.approx(66.785, abs=1e-3)
        assert expected_delay == pytest.approx(33.356e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("place", "cross_section"), [((10.0, 12.0, 5.0), 1.0), ((7.0, 9.0, 4.0), 0.5)]
)
def test_a_body_echoes_as_the_radar_equation_says(
    place: tuple[float, float, float], cross_section: float
) -> None:
    simulated, radar = credibility.body_echo(place, cross_section)
    assert simulated == pytest.approx(radar, abs=0.05)


@pytest.mark.parametrize(("velocity", "shift"), [(1.0, -34.757), (-1.0, 34.757), (0.5, -17.379)])
def test_a_moving_body_shifts_the_carrier_by_twice_its_speed(velocity: float, shift: float) -> None:
    """Antennas 0.5 m apart, a point on their bisector 20 m away: ∓ 2 · 1 m/s / 57.542 mm.

    The angle between the two ways costs 1 − cos(0.25 / 20) = 8e-5 of it.
    """
    hall = SimulatedRoom(
        "hall", (30.0, 30.0, 10.0), (14.75, 2.0, 5.0), (15.25, 2.0, 5.0), reflections=0
    )
    body = credibility.still((15.0, 22.0, 5.0), 1.0)
    points = body.points.copy()
    seconds = np.arange(len(points)) / MOTION_RATE + body.start
    points[..., 1] += (velocity * seconds)[:, None, None]
    times = np.arange(1000) / 1000
    moving = Channel(hall, Radio(), NO_FURNITURE, replace(body, points=points)).response(times)
    echo = moving - Channel(hall, Radio(), NO_FURNITURE, credibility.nobody()).response(times)
    subcarriers = Radio().subcarriers[Radio().live]
    phases = np.unwrap(np.angle(echo[:, np.argmin(np.abs(subcarriers))].astype(complex)))
    assert np.polyfit(times, phases, 1)[0] / (2 * np.pi) == pytest.approx(shift, abs=0.02)


def test_images_lie_behind_their_walls() -> None:
    """A source at x = 1 in a room of 5 m is seen at −1 in the near wall, at 9 in the far one."""
    room = credibility.scene_of("living room").room
    room = replace(room, size=(5.0, 4.0, 3.0), transmitter=(1.0, 1.0, 1.0))
    images = image_sources(room.transmitter, room, 1)
    assert len(images.places) == 7
    seen = {tuple(place): tuple(met) for place, met in zip(images.places, images.bounces)}  # noqa: B905
    assert seen[1.0, 1.0, 1.0] == (0, 0, 0, 0, 0, 0)
    assert seen[-1.0, 1.0, 1.0] == (1, 0, 0, 0, 0, 0)
    assert seen[9.0, 1.0, 1.0] == (0, 1, 0, 0, 0, 0)
    assert seen[1.0, 1.0, 5.0] == (0, 0, 0, 0, 0, 1)
    twice = image_sources(room.transmitter, room, 2)
    at = np.flatnonzero((twice.places == [11.0, 1.0, 1.0]).all(axis=1))  # near wall, then far wall
    assert twice.bounces[at].tolist() == [[1, 1, 0, 0, 0, 0]]


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_the_number_of_images_is_that_of_an_octahedron(order: int) -> None:
    """Points of the integer lattice with |a| + |b| + |c| ≤ n: 1, 7, 25, 63."""
    room = credibility.scene_of("bus").room
    assert len(image_sources(room.transmitter, room, order).places) == [1, 7, 25, 63][order]


def test_reflection_coefficients_are_fresnels() -> None:
    """Glass, ε = 6.31, upright incidence: (1 − √6.31) / (1 + √6.31) = −0.4305."""
    assert reflection("glass", 1.0, 5.21e9, upright=True).real == pytest.approx(-0.4305, abs=1e-3)
    assert reflection("glass", 1.0, 5.21e9, upright=False).real == pytest.approx(0.4305, abs=1e-3)
    assert abs(reflection("metal", 0.7, 5.21e9, upright=True)) == pytest.approx(1.0, abs=1e-3)
    grazing = reflection("concrete", 1e-6, 5.21e9, upright=False)
    assert grazing.real == pytest.approx(-1.0, abs=1e-3)


def test_the_delay_grid_equals_the_sum_of_exponentials() -> None:
    """300 random paths, 242 subcarriers: the error lies 60 dB below."""
    draw = Key(0).numpy()
    radio = Radio()
    offsets = radio.subcarriers[radio.live].astype(float) * SUBCARRIER_SPACING
    lengths = draw.uniform(2, 40, (5, 300)).astype(np.float32)
    gains = draw.exponential(1.0, (5, 300)).astype(np.float32)
    phases = draw.uniform(-np.pi, np.pi, (5, 300)).astype(np.float32)
    grid = DelayGrid(offsets, longest=40.0, speed=SPEED_OF_LIGHT)
    found = grid.gather(lengths, gains, phases) @ grid.responses()
    turns = lengths[..., None] * offsets / SPEED_OF_LIGHT
    exact = (gains[..., None] * np.exp(1j * (phases[..., None] - 2 * np.pi * turns))).sum(axis=1)
    error = np.mean(np.abs(found - exact) ** 2) / np.mean(np.abs(exact) ** 2)
    assert 10 * np.log10(error) < -60


def test_interpolation_in_time_equals_evaluation_at_every_packet() -> None:
    """Evaluating motion at 250 Hz and interpolating to 1000 Hz errs 60 dB below the echoes."""
    scene = credibility.scene_of("conference room")
    crowd = credibility.walkers(scene, 5, seconds=1.0, key=Key(0))
    furniture = furniture_of(scene.room, key=Key(0), day=0)
    times = np.arange(300) / 1000 + 0.2
    fast = Channel(scene.room, replace(scene.radio, rate=1000.0), furniture, crowd).response(times)
    slow = Channel(scene.room, replace(scene.radio, rate=125.0), furniture, crowd).response(times)
    moving = slow - slow.mean(axis=0)
    error = np.mean(np.abs(fast - slow) ** 2) / np.mean(np.abs(moving) ** 2)
    assert 10 * np.log10(error) < -50


def test_an_empty_room_does_not_move() -> None:
    scene = credibility.scene_of("living room")
    furniture = furniture_of(scene.room, key=Key(0), day=0)
    channel = Channel(scene.room, scene.radio, furniture, credibility.nobody())
    response = channel.response(np.arange(50) / 100)
    assert (response == response[0]).all()


def test_the_channel_is_reciprocal() -> None:
    there, back = credibility.reciprocity()
    error = np.mean(np.abs(there - back) ** 2) / np.mean(np.abs(there) ** 2)
    assert 10 * np.log10(error) < -70


def test_moving_power_rises_with_people_and_saturates() -> None:
    found = credibility.doppler_energy((0, 1, 2, 5, 10, 20), recordings=8)
    empty, one, two, five, ten, twenty = found.moving
    assert empty < 1e-9
    assert one < two < five < ten < twenty
    assert 1.3 < two / one < 3.0, "few people add up"
    assert twenty / ten < 1.7, "many people hide one another"
    assert twenty < 20 * one * 0.7


def test_moving_power_grows_with_the_assumed_cross_section() -> None:
    """Echo power is proportional to σ; shadowing does not depend on it: an affine law."""
    half, one, two = (
        credibility.doppler_energy((5,), recordings=8, cross_section=each).moving[0]
        for each in (0.5, 1.0, 2.0)
    )
    assert (two - one) / (one - half) == pytest.approx(2.0, rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("people", [3, 9])
def test_people_in_the_direct_path_are_binomial(people: int) -> None:
    """Depatla et al. 2015: independent walkers, each in the path with the same chance."""
    found = credibility.blocking(people)
    assert 0.05 < found.chance < 0.2
    assert np.abs(found.observed - found.binomial).sum() / 2 < 0.04


@pytest.mark.slow
def test_each_blocker_costs_about_the_same() -> None:
    """Depatla et al. 2015: every blocker multiplies the amplitude by one factor; here 4 to 8 dB."""
    steps = np.diff(credibility.blocking(9).loss[:5])
    assert ((steps > 4) & (steps < 8)).all()
    assert steps.std() < 0.5


def test_a_body_on_the_line_shadows_and_one_beside_it_does_not() -> None:
    """By hand, λ = 57.5 mm, link of 6 m at 1.2 m, body 0.4 × 1.7 m in its middle.

    Sides: detour 2(√(3² + 0.2²) − 3) = 13.32 mm, F = atan(π/2 · √(π · 0.01332/0.0575)) / π = 0.2960
    each. Top, 0.5 m above: F = 0.4078; bottom, 1.2 m below: F = 0.4583.
    Left: 1 − 0.592 · 0.866 = 0.487, which is 6.2 dB.
    """
    bodies = np.array([[[[3.0, 0.0], [3.0, 1.5], [-2.0, 0.0]]]], np.float32)
    left = shadow(
        bodies,
        np.array([[0.0, 0.0, 1.2]]),
        receiver=np.array([6.0, 0.0, 1.2]),
        widths=np.full(3, 0.4, np.float32),
        heights=np.full(3, 1.7, np.float32),
        wavelength=SPEED_OF_LIGHT / 5.21e9,
        floors=np.zeros(1),
        senses=np.ones(1),
    )[0, 0]
    assert left[0] == pytest.approx(0.487, abs=0.005)
    assert left[1] == pytest.approx(1.0, abs=0.02), "1.5 m beside the path"
    assert left[2] == 1.0, "behind the transmitter"


def test_mirrors_come_in_the_order_of_the_faces() -> None:
    room = credibility.scene_of("hotel room").room
    images = mirrors(np.array([1.0, 1.0, 1.0]), room)
    assert images[0].tolist() == [-1.0, 1.0, 1.0]
    assert images[3].tolist() == [1.0, 2 * room.size[1] - 1.0, 1.0]
    assert images[5].tolist() == [1.0, 1.0, 2 * room.size[2] - 1.0]
