"""Every fault of the receiver is seen when it is on, and only then."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from fedapa.errors import PlanError
from fedapa.randomness import Key
from fedapa.simulator.channel import Radio
from fedapa.simulator.receiver import Receiver, schedule
from fedapa.simulator.recording import Scene, record
from pages import credibility

Seen = tuple[npt.NDArray[np.complex64], npt.NDArray[np.float64], npt.NDArray[np.bool_]]


@pytest.fixture(scope="module")
def seen() -> dict[str, Seen]:
    """Takes of an empty room, with one fault each."""
    return {name: (csi, times, live) for name, csi, times, live in credibility.receiver_effects()}


def live_part(seen: Seen) -> npt.NDArray[np.complex64]:
    csi, _, live = seen
    return csi[:, live]


def test_without_faults_every_packet_is_the_same(seen: dict[str, Seen]) -> None:
    csi, times, live = seen["none"]
    assert (csi == csi[0]).all()
    assert (csi[:, ~live] == 0).all()
    assert np.diff(times) == pytest.approx(0.001, abs=1.1e-6)


def test_noise_and_distortion_blur_every_subcarrier(seen: dict[str, Seen]) -> None:
    clean = live_part(seen["none"])[0]
    for name in ("noise", "distortion"):
        deviation = np.abs(live_part(seen[name]) - clean).std(axis=0)
        assert (deviation > 5).all(), name
    # −20 dB of the frame's power, per complex subcarrier
    power = np.mean(np.abs(clean) ** 2)
    blur = np.mean(np.abs(live_part(seen["distortion"]) - clean) ** 2)
    assert 10 * np.log10(blur / power) == pytest.approx(-20, abs=0.3)


def test_thermal_noise_is_that_of_the_link_budget() -> None:
    """−174 dBm/Hz · 80 MHz + 6 dB = −89 dBm against 15 dBm times the channel's loss."""
    scene = credibility.scene_of("living room")
    quiet = replace(credibility.quiet_receiver(), level=0.2)
    takes = {}
    for name, power in (("loud", 200.0), ("real", 15.0)):
        faulty = replace(scene, receiver=replace(quiet, transmit_power=power))
        takes[name] = record(faulty, people=0, day=0, packets=400, key=Key(0))
    live = scene.radio.live
    loud, real = (takes[name].csi[:, live, 0, 0] for name in ("loud", "real"))
    noise = np.mean(np.abs(real - loud.mean(axis=0)) ** 2)
    received = 15 + 20 * np.log10(0.2 * 32767) - 10 * np.log10(np.mean(np.abs(loud) ** 2))
    # full scale stands for the free direct path: |H|² = (level / full scale)² · direct²
    way = np.linalg.norm(np.subtract(scene.room.transmitter, scene.room.receiver))
    direct = 20 * np.log10(4 * np.pi * way * 5.21e9 / 299_792_458)
    assert received < 40
    in_dbm = 10 * np.log10(noise) - 20 * np.log10(0.2 * 32767) - direct + 15
    assert in_dbm == pytest.approx(-173.98 + 79.03 + 6, abs=0.5)


def test_slow_gain_moves_all_subcarriers_together(seen: dict[str, Seen]) -> None:
    amplitude = np.abs(live_part(seen["slow gain"]))
    ratio = amplitude / amplitude[0]
    assert np.ptp(ratio.mean(axis=1)) > 0.02
    strong = amplitude[0] > np.median(amplitude[0])
    assert ratio[:, strong].std(axis=1).max() < 0.01


def test_gain_control_steps_by_whole_decibels(seen: dict[str, Seen]) -> None:
    """A step of 3 dB multiplies every subcarrier by 1.41."""
    amplitude = np.abs(live_part(seen["gain steps"])).mean(axis=1)
    levels = np.unique(np.round(20 * np.log10(amplitude), 1))
    assert len(levels) >= 2
    assert np.diff(levels) == pytest.approx(3.0, abs=0.11)


def test_ripple_is_fixed_and_bends_the_band(seen: dict[str, Seen]) -> None:
    clean, rippled = live_part(seen["none"]), live_part(seen["ripple"])
    assert (rippled == rippled[0]).all()
    bend = 20 * np.log10(np.abs(rippled[0]) / np.abs(clean[0]))
    assert 1.0 < bend.std() < 3.0


def test_few_bits_leave_few_values(seen: dict[str, Seen]) -> None:
    assert len(np.unique(live_part(seen["8 bits"]).real)) < 16
    assert (np.abs(live_part(seen["8 bits"]).real) <= 127).all()
    assert len(np.unique(live_part(seen["none"]).real)) > 100


def test_timing_turns_tones_in_proportion_and_amplitudes_not_at_all(seen: dict[str, Seen]) -> None:
    turned = live_part(seen["timing"]) / live_part(seen["none"])
    slope = np.unwrap(np.angle(turned), axis=1)
    subcarriers = np.flatnonzero(seen["timing"][2]) - 128.0
    fits = np.polyfit(subcarriers, slope.T, 1)
    delays = -fits[0] / (2 * np.pi * 312_500)
    assert delays.std() == pytest.approx(30e-9, rel=0.1)
    strong = np.abs(live_part(seen["none"])[0]) > 100
    assert np.abs(turned)[:, strong] == pytest.approx(1.0, abs=0.02)


def test_the_common_phase_is_uniform(seen: dict[str, Seen]) -> None:
    turned = live_part(seen["phase"])[:, 100] / live_part(seen["none"])[:, 100]
    phase = np.angle(turned)
    assert phase.std() == pytest.approx(np.pi / np.sqrt(3), rel=0.05)


def test_lost_packets_leave_gaps(seen: dict[str, Seen]) -> None:
    gaps = np.diff(seen["loss"][1])
    assert (gaps > 0.0015).mean() == pytest.approx(0.2, abs=0.04)


def test_jitter_moves_packets_but_keeps_their_order(seen: dict[str, Seen]) -> None:
    gaps = np.diff(seen["jitter"][1])
    assert (gaps >= 0).all()
    assert gaps.std() == pytest.approx(0.2e-3 * np.sqrt(2), rel=0.1)


def test_narrow_frames_leave_a_part_of_the_band_empty(seen: dict[str, Seen]) -> None:
    amplitude = np.abs(live_part(seen["narrow frames"]))
    parts = np.stack([each.mean(axis=1) for each in np.array_split(amplitude, 4, axis=1)])
    narrow = (parts < 10).any(axis=0)
    assert narrow.mean() == pytest.approx(0.1, abs=0.03)


def test_null_tones_hold_junk(seen: dict[str, Seen]) -> None:
    csi, _, live = seen["null subcarriers"]
    assert np.abs(csi[:, ~live]).max() > 3 * np.abs(csi[:, live]).max()
    assert (csi[:, live] == seen["none"][0][:, live]).all()


def test_a_take_looks_like_a_capture() -> None:
    scene = credibility.scene_of("bus")
    capture = record(scene, people=3, day=1, packets=200, key=Key(0))
    assert capture.synthetic
    assert capture.csi.shape[1:] == (256, 1, 1)
    assert capture.csi.dtype == np.complex64
    assert capture.packets >= 200
    assert capture.subcarriers.tolist() == list(range(-128, 128))
    assert (np.diff(capture.timestamps) >= 0).all()
    assert (np.abs(capture.rssi + 45) < 25).all(), "dBm of an indoor link"
    whole = capture.csi[:, scene.radio.live]
    assert (whole.real == np.rint(whole.real)).all(), "integers, as devices deliver"


def test_the_empty_room_has_no_doppler_above_its_noise() -> None:
    """All faults on: between 2 and 60 Hz as flat as between 200 and 450, where nothing moves."""
    found = credibility.spectra((0, 1))
    frequencies = found.frequencies
    slow, fast = (frequencies > 2) & (frequencies < 60), (frequencies > 200) & (frequencies < 450)
    empty, one = found.decibels[0], found.decibels[1]
    assert abs(empty[slow].mean() - empty[fast].mean()) < 0.5
    assert one[slow].mean() > one[fast].mean() + 6


def test_the_schedule_is_what_was_asked_for() -> None:
    arrivals = schedule(Receiver(loss=0.1, narrow=0.05), Radio(), packets=500, key=Key(1))
    assert arrivals.wide.sum() == 500
    assert arrivals.wide[-1]
    assert len(arrivals.times) == len(arrivals.wide) > 500
    assert arrivals.times[0] >= 0


@pytest.mark.parametrize(
    ("faulty", "complaint"),
    [
        ({"bits": 12}, "bits = 12"),
        ({"loss": 0.9}, "loss = 0.9"),
        ({"jitter": 0.5}, "jitter = 0.5"),
        ({"level": 0.0}, "level = 0.0"),
    ],
)
def test_impossible_receivers_are_refused(faulty: dict[str, float], complaint: str) -> None:
    scene = credibility.scene_of("bus")
    wrong = replace(scene, receiver=replace(Receiver(), **faulty))  # type: ignore[arg-type]
    with pytest.raises(PlanError, match=complaint):
        record(wrong, people=0, day=0, packets=10, key=Key(0))


@pytest.mark.parametrize(
    ("radio", "complaint"),
    [
        (Radio(bandwidth=160), "bandwidth = 160; choose 20, 40 or 80"),
        (Radio(rate=50.0), "rate = 50.0; choose"),
        (Radio(rate=4000.0), "rate = 4000.0; choose"),
        (Radio(carrier=1e9), "carrier"),
    ],
)
def test_impossible_radios_are_refused(radio: Radio, complaint: str) -> None:
    scene = Scene(credibility.scene_of("bus").room, radio)
    with pytest.raises(PlanError, match=complaint):
        record(scene, people=0, day=0, packets=10, key=Key(0))
