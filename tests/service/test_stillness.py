"""Stillness: numbers by hand, what must not matter, and simulated people."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.stillness import KINDS, take
from fedapa.csi.reading import read_capture
from fedapa.errors import DataError
from fedapa.service.stillness import still
from fedapa.stores.simulated_rooms import preset_of
from tests.service.takes import moving, packets_of, quiet


def by_hand(gain: np.ndarray | None = None) -> np.ndarray:
    """[200, 8] amplitudes of twenty seconds of ten packets, see the test."""
    packet, side = np.arange(200), np.where(np.arange(8) % 2, 1.0, -1.0)
    noise = np.where(packet % 2, -0.1, 0.1)
    level = np.where(packet // 10 % 2, -0.05, 0.05)
    free = (noise + level)[:, None] * side
    return np.exp(free if gain is None else free + gain[:, None])


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
