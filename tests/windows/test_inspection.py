from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedapa import Capture, CaptureError, read_capture
from fedapa.csi.nexmon_writer import write_nexmon
from fedapa.csi.subcarriers import all_subcarriers
from fedapa.windows.inspection import inspect_capture, thumbnail


def capture(packets: int = 50, bandwidth: int = 80) -> Capture:
    subcarriers = all_subcarriers(bandwidth)
    rng = np.random.default_rng(0)
    parts = rng.integers(500, 1500, (packets, len(subcarriers), 1, 1, 2)).astype(np.float32)
    return Capture(
        csi=parts.view(np.complex64)[..., 0],
        timestamps=100 + np.arange(packets) / 100,
        rssi=np.linspace(-60, -40, packets).astype(np.float32).round(),
        device="nexmon 43455c0",
        bandwidth=bandwidth,
        subcarriers=np.array(subcarriers, np.int16),
    )


def write(tmp_path: Path, what: Capture) -> Path:
    path = tmp_path / "room.pcap"
    write_nexmon(what, path)
    return path


def test_a_sound_capture_has_nothing_left_out(tmp_path: Path) -> None:
    found = inspect_capture(write(tmp_path, capture()), window=20)
    assert (found.packets, found.windows, found.live_subcarriers) == (50, 2, 242)
    assert found.rate == pytest.approx(100, rel=1e-3)
    assert (found.loss, found.loss_by, found.gaps, found.steps_back) == (0.0, "sequence", 0, 0)
    assert found.rssi == (-60, pytest.approx(-50, abs=1), -40)
    assert (found.occupied, found.clipped, found.loud, found.left_out) == (1, 0, (), {})


def test_loss_is_told_by_sequence_and_else_by_time(tmp_path: Path) -> None:
    """Every fifth of 50 packets is lost: 10 of 50, seen as 9 of 49 between the first and last."""
    whole = capture()
    kept = np.arange(50) % 5 != 2
    lossy = replace(
        whole,
        csi=whole.csi[kept],
        timestamps=whole.timestamps[kept],
        rssi=whole.rssi[kept],
        sequence=np.flatnonzero(kept),
    )
    found = inspect_capture(write(tmp_path, lossy))
    assert (found.loss, found.loss_by) == (pytest.approx(10 / 49), "sequence")
    silent = replace(lossy, sequence=np.zeros(kept.sum(), np.int64))
    found = inspect_capture(write(tmp_path, silent))
    assert (found.loss, found.loss_by) == (pytest.approx(10 / 49, rel=1e-3), "time")


def test_loss_of_bursts_cannot_be_told(tmp_path: Path) -> None:
    """Five bursts of ten packets 1 ms apart, a second between them: nothing says what was due."""
    times = 100 + (np.arange(50) // 10) + (np.arange(50) % 10) / 1000
    bursts = replace(capture(), timestamps=times, sequence=np.zeros(50, np.int64))
    found = inspect_capture(write(tmp_path, bursts))
    assert (found.loss, found.loss_by, found.gaps) == (None, "", 4)
    # 49 intervals in 4.009 s, of which 45 last a millisecond.
    assert found.mean_rate == pytest.approx(49 / 4.009, rel=1e-3)
    assert found.rate == pytest.approx(1000, rel=1e-3)


def test_gaps_and_steps_back_are_counted(tmp_path: Path) -> None:
    times = 100 + np.arange(50) / 100
    times[20:] += 3
    times[40:] -= 1
    found = inspect_capture(write(tmp_path, replace(capture(), timestamps=times)))
    assert (found.gaps, found.steps_back) == (1, 1)
    assert found.longest_gap == pytest.approx(3.01, abs=1e-3)


def test_empty_parts_clipping_and_junk_are_told(tmp_path: Path) -> None:
    whole = capture()
    whole.csi[:10, whole.subcarriers > 63] = 3
    whole.csi[20, 100] = 32767
    whole.csi[:, whole.subcarriers == 50] = 30000
    found = inspect_capture(write(tmp_path, whole), window=30)
    assert found.occupied == pytest.approx(0.8)
    assert found.windows == 1
    assert found.clipped == pytest.approx(1 / 50)
    assert found.loud == (50,)
    assert found.left_out == {"a 20 MHz part of the 80 MHz is empty": 10}


def test_one_packet_is_enough(tmp_path: Path) -> None:
    found = inspect_capture(write(tmp_path, capture(1)))
    assert (found.packets, found.rate, found.loss) == (1, 0.0, None)


def test_a_thumbnail_is_a_comb_over_the_whole_file(tmp_path: Path) -> None:
    path = write(tmp_path, capture(50, 20))
    rows, packets, _ = thumbnail(path, rows=20)
    assert (rows.shape, packets) == ((17, 64), 50)
    np.testing.assert_array_equal(rows, np.abs(read_capture(path).csi[::3, :, 0, 0]))


def test_a_packet_of_unknown_time_is_refused_as_a_capture_is_made() -> None:
    whole = capture(packets=3)
    for wrong in (np.nan, np.inf):
        with pytest.raises(CaptureError, match=f"time stamp of packet 1 is {wrong}; expected fin"):
            replace(whole, timestamps=np.array([0.0, wrong, 2.0]))
