"""Stillness: numbers by hand, what must not matter, and simulated people."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.stillness import KINDS, take
from fedapa.csi.capture import Capture
from fedapa.csi.reading import read_capture
from fedapa.errors import DataError
from fedapa.service.stillness import StillnessMeter, still
from fedapa.stores.simulated_rooms import preset_of
from tests.service.takes import moving, packets_of, quiet


def by_hand(gain: np.ndarray | None = None) -> np.ndarray:
    """[200, 8] amplitudes of twenty seconds of ten packets, see the test."""
    packet, side = np.arange(200), np.where(np.arange(8) % 2, 1.0, -1.0)
    noise = np.where(packet % 2, -0.1, 0.1)
    level = np.where(packet // 10 % 2, -0.05, 0.05)
    free = (noise + level)[:, None] * side
    return np.asarray(np.exp(free if gain is None else free + gain[:, None]))


def test_the_level_of_an_example_by_hand() -> None:
    """Noise of ±a from packet to packet, a = 0.1, seconds whose means are ±b, b = 0.05, n = 10.

    Half of the subcarriers have the opposite sign, so that no gain is seen. A change is 2a = 0.2;
    at the 19 edges of seconds it is 2a ∓ 2b, which is 0.1 (10 times) or 0.3 (9 times). Of 199
    squares the smallest 179.1 are kept: 10 are 0.01 and 169.1 are 0.04, on average 0.03833; σ² is
    half of it by 0.623. The means of neighbouring seconds differ by
    2b: (2b)² / (σ² · 2/n) = 0.01 / (0.03833 / 2 / 0.623 · 0.2) = 1.6252; all are equal, so that
    their trimmed mean is that by 0.623: 2.609.
    """
    seen = still(packets_of(by_hand(), rate=10.0))
    assert seen.level == pytest.approx(2.609, abs=2e-3)
    assert seen.levels == pytest.approx(np.full(19, 2.609), abs=2e-3)
    assert seen.limit == pytest.approx(1 + 4 * np.sqrt(3 / (8 * 19)))
    assert seen.sudden == pytest.approx(1 + 5 * np.sqrt(2 / 8))
    assert not seen.is_still
    assert seen.seconds.tolist() == list(range(1, 20))


def test_steps_of_the_gain_control_are_not_seen() -> None:
    gain = np.log(10 ** (3 / 20)) * np.random.default_rng(0).integers(-3, 4, 200)
    plain, stepped = (still(packets_of(by_hand(given), rate=10.0)) for given in (None, gain))
    assert stepped.levels == pytest.approx(plain.levels, rel=1e-3)


def test_noise_alone_is_still_and_waves_are_not() -> None:
    seen = [still(quiet(30, seed=seed)) for seed in range(20)]
    assert all(one.is_still for one in seen)
    assert np.mean([one.level for one in seen]) == pytest.approx(1.0, abs=0.03)
    assert "nothing moved" in seen[0].evidence()
    assert not still(moving(30)).is_still


def test_the_evidence_says_when_and_how_much() -> None:
    seen = still(moving(40, since=12, until=18))
    assert not seen.is_still
    ((begin, end),) = seen.spans()
    assert 11 <= begin <= 13
    assert 17 <= end <= 19
    assert seen.most[0] > 10 * seen.sudden
    assert f"it moved from second {begin:.0f} to {end:.0f}" in seen.evidence()
    assert "over the whole take" in seen.evidence()


def test_a_single_step_and_a_disturbed_subcarrier_are_no_motion() -> None:
    calm = quiet(30)
    csi = calm.csi.copy()
    csi[750:, :10] *= 1.5  # a chair was moved, at the edge of a second
    csi[:, 7] *= np.exp(np.sin(np.arange(len(csi)) / 40))[:, None, None]
    seen = still(replace(calm, csi=csi))
    assert seen.most[0] < seen.sudden
    assert seen.level < 1.6 * seen.limit


def test_a_wider_margin_takes_a_noisier_receiver() -> None:
    drifting = moving(30, depth=0.006)
    assert not still(drifting).is_still
    assert still(drifting, margin=5.0).is_still


def test_too_little_to_tell_is_said() -> None:
    with pytest.raises(DataError, match="6 seconds with 8 packets or more are too few"):
        still(quiet(5.5))
    with pytest.raises(DataError, match="too few to tell"):
        still(quiet(30, rate=5.0))
    with pytest.raises(DataError, match="no subcarrier changes"):
        still(packets_of(np.ones((400, 8)), rate=20.0))


@pytest.mark.parametrize("room", [0, 4])
def test_simulated_people_are_seen_and_empty_rooms_are_not_refused(room: int) -> None:
    """SIMULATED; the rates over many rooms are those of ``python -m benchmarks stillness``."""
    scene = preset_of("quick").places[room].scene
    seen = {kind: still(take(scene, kind, seed=1, number=0, seconds=30)) for kind in KINDS}
    assert {kind: one.is_still for kind, one in seen.items()} == {
        "empty": True,
        "sitting": False,
        "walking": False,
        "leaving": False,
    }
    assert seen["leaving"].spans()[0][0] < 5
    assert seen["leaving"].spans()[-1][1] < 12


@pytest.mark.data
def test_real_people_are_seen(shared_data: Path) -> None:
    """WiAR: somebody does something in every one of these."""
    files = sorted((shared_data / "wiar").rglob("*.dat"))[::120]
    seen = []
    for file in files:
        capture = read_capture(file)
        if capture.timestamps[-1] - capture.timestamps[0] >= 9:
            seen.append(still(capture).is_still)
    assert len(seen) >= 2
    assert not any(seen)


def seconds_of(level: float, *, width: int = 40, seconds: int = 8, start: float = 0.0) -> Capture:
    """Ten packets a second with noise of ±0.1, and means of seconds apart as ``level`` has it.

    The noise has σ² = (0.2)² / 2 / 0.623 (all squares are equal, their trimmed mean is that by
    0.623), so that (2b)² / (σ² · 2/10) / 0.623 = level has b² = level · 0.2 · 0.02 / 4.
    """
    packet, side = np.arange(10 * seconds), np.where(np.arange(width) % 2, 1.0, -1.0)
    b = np.sqrt(level * 0.2 * 0.02 / 4)
    free = np.where(packet % 2, -0.1, 0.1) + np.where(packet // 10 % 2, -b, b)
    return packets_of(np.exp(free[:, None] * side), rate=10.0, start=start)


def meter_that_saw_motion(pairs: int = 4) -> StillnessMeter:
    """With 39 pairs of seconds of a level of 9, which ended with a gap."""
    meter = StillnessMeter(pairs)
    meter.feed(seconds_of(9.0, seconds=40))
    assert meter.odds(39.9) == pytest.approx(0, abs=1e-6)
    meter.restart()
    return meter


@pytest.mark.parametrize(("level", "odds"), [(1.0, 18.905), (1.5, 0.07909)])
def test_the_odds_of_an_example_by_hand(level: float, odds: float) -> None:
    """S = 40, K = 4: s² = 3/160 + 0.0025 = 0.02125; 1 has 2.7368 · ln 1000, and 1.5 that times
    1.5 · exp(−0.25 / 0.0425) = 0.004184."""
    meter = meter_that_saw_motion()
    meter.feed(seconds_of(level, seconds=9))
    assert meter.odds(8.9) == pytest.approx(odds, rel=2e-3)


def test_nothing_is_said_before_motion_was_seen_or_of_few_or_old_seconds() -> None:
    unmoved = StillnessMeter(4)
    unmoved.feed(seconds_of(1.0, seconds=40))
    assert unmoved.odds(39.9) == 0
    meter = meter_that_saw_motion()
    meter.feed(seconds_of(1.0, seconds=20))
    assert meter.odds(4.9) == 0  # three pairs are over, with the first packet of second 5 four
    assert meter.odds(5.0) > 15
    assert meter.odds(19.9) > 15
    assert meter.odds(22.0) == 0
    assert meter_that_saw_motion().odds(100.0) == 0


def test_the_odds_do_not_depend_on_how_packets_are_fed() -> None:
    capture = Capture.joined([quiet(12, rate=20.0), moving(12, rate=20.0, start=12.05)])
    found = []
    for size in (1, 7, capture.packets):
        meter = meter_that_saw_motion(2)
        told = []
        for first in range(0, capture.packets, size):
            meter.feed(capture.part(slice(first, first + size)))
            if size < capture.packets:
                told.append(meter.odds(float(capture.timestamps[min(first + size, 480) - 1])))
        if size == capture.packets:
            told = [meter.odds(float(stamp)) for stamp in capture.timestamps]
        found.append(told)
    assert found[0] == found[2]
    assert found[1] == found[0][6::7][: len(found[1]) - 1] + found[0][-1:]
    assert max(found[0][:200]) > 5
    assert max(found[0][-150:]) < 1e-6


def test_subcarriers_without_signal_and_infinities_say_nothing() -> None:
    still_one = seconds_of(1.0, seconds=9)
    csi = still_one.csi.copy()
    csi[:, :6] = 0
    meter = meter_that_saw_motion()
    meter.feed(replace(still_one, csi=csi))
    assert meter.odds(8.9) > 10
    csi[33, 7] = np.inf
    meter.restart()
    meter.feed(replace(still_one, csi=csi))
    assert meter.odds(8.9) == 0


def test_seconds_with_few_packets_break_the_row() -> None:
    meter = meter_that_saw_motion()
    rows = np.flatnonzero(np.arange(130) // 10 != 6)
    meter.feed(seconds_of(1.0, seconds=13).part(rows))
    assert meter.odds(7.0) > 15
    assert meter.odds(11.9) == 0
    assert meter.odds(12.0) > 15  # of seconds 7 to 11
