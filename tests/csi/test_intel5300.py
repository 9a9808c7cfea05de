import struct

import numpy as np
import pytest

from fedapa import CaptureError, read_capture
from tests.csi.capture_bytes import bfee, intel_csi, intel_file


def save(tmp_path, data):
    path = tmp_path / "hall.dat"
    path.write_bytes(data)
    return path


def complex_of(csi):
    return csi[..., 0] + 1j * csi[..., 1]


@pytest.mark.parametrize("rx", [1, 2, 3])
@pytest.mark.parametrize("tx", [1, 2, 3])
def test_every_antenna_count_is_unpacked(tmp_path, rx, tx):
    cards = [intel_csi(rx, tx, seed) for seed in range(20)]
    capture = read_capture(save(tmp_path, b"".join(bfee(csi) for csi in cards)))
    assert capture.csi.shape == (20, 30, rx, tx)
    np.testing.assert_array_equal(capture.csi, [complex_of(csi) for csi in cards])


def test_antennas_are_put_back_in_order(tmp_path):
    """The selection 2, 0, 1 says: the first column the card wrote is antenna 2."""
    csi = intel_csi(3, 2, 0)
    capture = read_capture(save(tmp_path, bfee(csi, selection=2 | 0 << 2 | 1 << 4)))
    np.testing.assert_array_equal(capture.csi[0][:, [2, 0, 1]], complex_of(csi))


def test_two_antennas_in_use_are_put_back_in_order(tmp_path):
    csi = intel_csi(2, 1, 0)
    capture = read_capture(save(tmp_path, bfee(csi, selection=1 | 0 << 2)))
    np.testing.assert_array_equal(capture.csi[0][:, [1, 0]], complex_of(csi))


def test_a_selection_that_is_no_permutation_changes_nothing(tmp_path):
    csi = intel_csi(3, 1, 0)
    capture = read_capture(save(tmp_path, bfee(csi, selection=0b010101)))
    np.testing.assert_array_equal(capture.csi[0], complex_of(csi))


def test_mixed_antenna_counts_keep_the_majority(tmp_path):
    data = bfee(intel_csi(3, 1, 0)) + intel_file(3, 3, 2)
    capture = read_capture(save(tmp_path, data))
    assert capture.csi.shape == (3, 30, 3, 2)
    assert list(capture.skipped.values()) == [1]


def test_the_clock_is_unwrapped(tmp_path):
    clocks = [2**32 - 1000, 500, 2500]
    data = b"".join(bfee(intel_csi(1, 1, 0), clock=clock) for clock in clocks)
    np.testing.assert_allclose(
        np.diff(read_capture(save(tmp_path, data)).timestamps), [0.0015, 0.002]
    )


def test_rssi_is_the_sum_of_the_antennas_less_gain(tmp_path):
    """Two antennas of 40 dB are 43.01 dB together; less 44 and an AGC of 30: −30.99 dBm."""
    path = save(tmp_path, bfee(intel_csi(2, 1, 0), rssi=(40, 40, 0), agc=30))
    assert read_capture(path).rssi[0] == pytest.approx(-30.99, abs=0.005)


def test_forty_megahertz_has_its_own_subcarriers(tmp_path):
    capture = read_capture(save(tmp_path, bfee(intel_csi(1, 1, 0), rate=1 << 11)))
    assert capture.bandwidth == 40
    np.testing.assert_array_equal(capture.subcarriers, np.arange(-58, 59, 4))
    twenty = read_capture(save(tmp_path, bfee(intel_csi(1, 1, 0)))).subcarriers.tolist()
    assert twenty == [*range(-28, -1, 2), -1, *range(1, 28, 2), 28]


def test_other_records_are_skipped_and_counted(tmp_path):
    other = struct.pack(">HB", 5, 0xC1) + b"\0" * 4
    capture = read_capture(save(tmp_path, other + intel_file(2) + other))
    assert capture.packets == 2
    assert capture.skipped == {"other records of the driver": 2}


def test_damage_is_named_and_can_be_left_out(tmp_path):
    record = len(bfee(intel_csi(3, 2, 0)))
    data = intel_file(20)
    data = data[: 12 * record] + b"\0\0\x77garbage" + data[12 * record :]
    path = save(tmp_path, data)
    with pytest.raises(
        CaptureError, match=f"hall.dat@{12 * record}: .*code 0x77; expected code 0xbb"
    ):
        read_capture(path)
    capture = read_capture(path, salvage=True)
    assert capture.packets == 20
    assert capture.skipped == {"damaged bytes": 1}


def test_a_feedback_that_contradicts_itself_is_counted(tmp_path):
    wrong = bytearray(bfee(intel_csi(3, 2, 0)))
    wrong[11] = 2  # two receivers, but the CSI of three
    capture = read_capture(save(tmp_path, intel_file(1) + bytes(wrong) + intel_file(1)))
    assert capture.packets == 2
    assert capture.skipped == {"antennas and CSI length do not agree": 1}


def test_only_this_card_can_be_scaled(tmp_path):
    path = tmp_path / "lines.csv"
    path.write_text("CSI_DATA,x\n")
    with pytest.raises(CaptureError, match="only Intel 5300 logs can be scaled, this is esp32"):
        read_capture(path, scaled=True)
