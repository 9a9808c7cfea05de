import struct

import numpy as np
import pytest

from fedapa import CaptureError, read_capture
from fedapa.csi.reading import read_chunks
from tests.csi.capture_bytes import (
    FEIT_HE20,
    FEIT_HT20,
    FEIT_HT40,
    FEIT_VHT80,
    feit_file,
    feit_frame,
)


def save(tmp_path, data):
    path = tmp_path / "lab.csi"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("flags", "bandwidth", "subcarriers", "edges"),
    [
        (0x100, 20, 52, [-26, -1, 1, 26]),
        (FEIT_HT20, 20, 56, [-28, -1, 1, 28]),
        (FEIT_HT40, 40, 114, [-58, -2, 2, 58]),
        (FEIT_VHT80, 80, 242, [-122, -2, 2, 122]),
        (0x1B00, 160, 484, [-250, -6, 6, 250]),
        (FEIT_HE20, 20, 242, [-122, -2, 2, 122]),
        (0xC00, 40, 484, [-244, -3, 3, 244]),
        (0x1400, 80, 996, [-500, -3, 3, 500]),
        (0x1C00, 160, 1992, [-1012, -12, 12, 1012]),
    ],
)
def test_every_format_has_its_subcarriers(tmp_path, flags, bandwidth, subcarriers, edges):
    csi = np.random.default_rng(0).integers(-500, 500, (2, 2, subcarriers, 2))
    capture = read_capture(save(tmp_path, feit_frame(csi, flags=flags)))
    assert capture.bandwidth == bandwidth
    assert capture.csi.shape == (1, subcarriers, 2, 2)
    half = subcarriers // 2
    assert capture.subcarriers[[0, half - 1, half, -1]].tolist() == edges
    np.testing.assert_array_equal(capture.csi[0, :, 1, 0], csi[1, 0, :, 0] + 1j * csi[1, 0, :, 1])


def test_clock_and_rssi(tmp_path):
    capture = read_capture(save(tmp_path, feit_file(3)))
    np.testing.assert_allclose(np.diff(capture.timestamps), 0.005)
    assert (capture.rssi == -40).all()


def test_tones_that_do_not_fit_the_format_are_counted(tmp_path):
    odd = feit_frame(np.zeros((1, 1, 57, 2)), flags=FEIT_HT20)
    capture = read_capture(save(tmp_path, feit_file(2) + odd))
    assert capture.skipped == {"57 subcarriers, where ht of 20 MHz has 56": 1}


def test_damage_is_named_and_can_be_left_out(tmp_path):
    data = feit_file(4)
    size = len(data) // 4
    path = save(tmp_path, data[: 2 * size] + b"\xff" * 77 + data[2 * size :])
    with pytest.raises(CaptureError, match=f"lab.csi@{2 * size}: a header of .*; expected 4 bytes"):
        read_capture(path)
    capture = read_capture(path, salvage=True)
    assert capture.packets == 4
    assert capture.skipped == {"damaged bytes": 1}


def test_a_file_cut_off_at_its_end_gives_what_is_whole(tmp_path):
    capture = read_capture(save(tmp_path, feit_file(3)[:-3]))
    assert capture.packets == 2
    assert capture.skipped == {"cut off at the end": 1}


@pytest.mark.parametrize("first", [1_000_000, 0])
def test_the_first_frame_decides_which_clock_a_file_has(tmp_path, first):
    """Frame 5 has a stamp where the others have none, or none where the others have one."""
    frames = []
    for i in range(8):
        frame = bytearray(feit_frame(np.ones((1, 1, 56, 2)), flags=FEIT_HT20, clock=5000 * i))
        stamp = first + 10_000 * i if first else 0
        struct.pack_into("<Q", frame, 12, (0 if first else 77) if i == 5 else stamp)
        frames.append(bytes(frame))
    path = save(tmp_path, b"".join(frames))
    whole = read_capture(path)
    for size in (100, 1000, 1 << 20):
        *others, last = read_chunks(path, size=size)
        parts = np.concatenate([part.timestamps for part in [*others, last]])
        np.testing.assert_array_equal(parts, whole.timestamps)
        assert last.skipped == whole.skipped == ({"no time stamp": 1} if first else {})
    assert (np.diff(whole.timestamps) > 0).all()
