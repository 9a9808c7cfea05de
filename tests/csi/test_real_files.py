"""Equality with MATLAB's and csiread's results on real captures; hostile files as regressions."""

import random
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from fedapa import CaptureError, read_capture
from fedapa.csi.reading import read_chunks
from fedapa.csi.subcarriers import live
from tests.csi.mutations import check_capture, try_bytes

pytestmark = pytest.mark.data

NEXMON = {
    "example_43455c0.pcap": ("43455c0", 80),
    "example_4358.pcap": ("4358", 80),
    "example_4366c0.pcap": ("4366c0", 80),
    "csikit_43455c0_40mhz.pcap": ("43455c0", 40),
    "csi-240303-220452-A-0S-20-13-dca632586e77.pcap": ("43455c0", 20),
}


def csiread(tmp_path, form, *arguments):
    pytest.importorskip("csiread", reason="csiread has no build for this machine")
    out = tmp_path / "csiread.npz"
    script = Path(__file__).parent / "csiread_oracle.py"
    subprocess.run([sys.executable, script, out, form, *map(str, arguments)], check=True)
    return np.load(out)


def matlab(path):
    """[frames, subcarriers] in FFT order."""
    return scipy.io.loadmat(path)["csi_buff"]


def unshifted(capture):
    """[frames, subcarriers] in FFT order; packets of several cores become frames again."""
    csi = np.fft.ifftshift(capture.csi, axes=1)
    packets, subcarriers = csi.shape[:2]
    return np.moveaxis(csi, 1, 3).reshape(-1, subcarriers) if packets else csi


@pytest.mark.parametrize("chip", ["4358", "4366c0"])
def test_packed_chips_equal_matlab_bit_for_bit(shared_data, chip):
    folder = shared_data / "captures" / "nexmon"
    capture = read_capture(folder / f"example_{chip}.pcap")
    assert capture.device == f"nexmon {chip}"
    np.testing.assert_array_equal(unshifted(capture), matlab(folder / f"example_{chip}.golden.mat"))


def test_43455c0_equals_matlab_bit_for_bit(shared_data):
    """The reference leaves out the 18 frames that are 4 bytes longer and ends in 18 zero rows."""
    folder = shared_data / "captures" / "nexmon"
    capture = read_capture(folder / "example_43455c0.pcap")
    data = (folder / "example_43455c0.pcap").read_bytes()
    sizes, at = [], 24
    while at < len(data):
        sizes.append(struct.unpack_from("<I", data, at + 8)[0])
        at += 16 + sizes[-1]
    usual = np.array(sizes) == 1084
    assert (len(usual), np.count_nonzero(~usual)) == (566, 18)
    reference = matlab(folder / "example_43455c0.golden.mat")
    np.testing.assert_array_equal(unshifted(capture)[usual], reference[:548])
    assert not reference[548:].any()


@pytest.mark.parametrize("name", NEXMON)
def test_nexmon_equals_csiread(shared_data, tmp_path, name):
    path = shared_data / "captures" / "nexmon" / name
    capture, theirs = read_capture(path), csiread(tmp_path, "nexmon", path, *NEXMON[name])
    csi = np.moveaxis(capture.csi, 1, 3).reshape(-1, capture.csi.shape[1])
    np.testing.assert_array_equal(csi, theirs["csi"][:, :, 0, 0])
    if capture.packets == len(csi):
        np.testing.assert_allclose(capture.timestamps, theirs["timestamps"], atol=1e-6)
    assert capture.skipped == {}


def test_intel5300_equals_matlab(shared_data):
    folder = shared_data / "captures" / "intel5300"
    reference = scipy.io.loadmat(folder / "example.golden.mat")
    raw, scaled = (read_capture(folder / "example.dat", scaled=s) for s in (False, True))
    assert raw.packets == len(reference["csi"])
    for i in range(raw.packets):
        entry = reference["csi"][i, 0]
        np.testing.assert_array_equal(raw.csi[i], entry["csi"][0, 0].transpose(2, 1, 0))
        assert raw.sequence[i] == entry["bfee_count"][0, 0].item()
        np.testing.assert_allclose(
            scaled.csi[i], reference["csi_scaled"][i, 0].transpose(2, 1, 0), rtol=1e-6
        )


def intel_files(shared_data):
    yield from sorted((shared_data / "captures" / "intel5300").glob("*.dat"))
    # Three of each placement: all 960 take minutes and tell nothing new.
    for placement in sorted((shared_data / "wiar").glob("*/")):
        yield from sorted(placement.glob("*.dat"))[::60]


def test_intel5300_equals_csiread(shared_data, tmp_path):
    files = list(intel_files(shared_data))
    assert len(files) > 10
    for path in files:
        capture, theirs = read_capture(path), csiread(tmp_path, "intel5300", path)
        rx, tx = capture.csi.shape[2:]
        alike = (theirs["rx"] == rx) & (theirs["tx"] == tx)
        np.testing.assert_array_equal(capture.csi, theirs["csi"][alike][:, :, :rx, :tx], str(path))
        assert sum(capture.skipped.values()) == np.count_nonzero(~alike)


@pytest.mark.parametrize(
    "name",
    ["example_data.csv", "esp32csitool_example_csi.csv", "example_100hz_pitraffic.csv"],
)
def test_esp32_equals_csiread(shared_data, tmp_path, name):
    """The oracle takes neither a header nor a line that is cut: it gets the sound lines only."""
    path = shared_data / "captures" / "esp32" / name
    lines = [
        line
        for line in path.read_text().splitlines(keepends=True)
        if line.startswith("CSI_DATA") and len(line.split("[")[1].split()) == 129
    ]
    (tmp_path / "sound.csv").write_text("".join(lines))
    capture, theirs = read_capture(path), csiread(tmp_path, "esp32", tmp_path / "sound.csv")
    csi = theirs["csi"][:, :64]
    if name != "esp32csitool_example_csi.csv":  # recorded beside a secondary channel
        csi = np.fft.fftshift(csi, axes=1)
    np.testing.assert_array_equal(capture.csi[:, :, 0, 0], csi)
    beyond = np.abs(capture.subcarriers) > 27
    assert np.abs(csi[:, beyond][:, 3:]).max() < 10
    np.testing.assert_array_equal(capture.rssi, theirs["rssi"])


@pytest.mark.parametrize(
    ("name", "packets", "device", "skipped"),
    [
        ("espcsi_csi_data_with_head.csv", 116, "esp32 ht", {}),
        (
            "example_100hz_pitraffic.csv",
            833,
            "esp32 lltf",
            {"buffer of 127 bytes, 128 announced": 1},
        ),
    ],
)
def test_esp32_files_that_csiread_rejects(shared_data, name, packets, device, skipped):
    capture = read_capture(shared_data / "captures" / "esp32" / name)
    assert (capture.packets, capture.device, capture.skipped) == (packets, device, skipped)


@pytest.mark.parametrize(
    ("name", "shape", "bandwidth"),
    [
        ("HT20_2452.csi", (48, 56, 2, 1), 20),
        ("HT40_2452.csi", (34, 114, 2, 1), 40),
        ("VHT80_5500.csi", (40, 242, 2, 1), 80),
    ],
)
def test_feitcsi_files(shared_data, name, shape, bandwidth):
    """The stored pilots of these formats are zero: at 0 they prove the subcarriers' places."""
    capture = read_capture(shared_data / "captures" / "feitcsi" / name)
    assert (capture.csi.shape, capture.bandwidth) == (shape, bandwidth)
    silent = capture.subcarriers[(capture.csi == 0).all(axis=(0, 2, 3))]
    pilots = {20: [7, 21], 40: [11, 25, 53], 80: [11, 39, 75, 103]}[bandwidth]
    assert silent.tolist() in ([], [*(-k for k in reversed(pilots)), *pilots])
    assert (np.diff(capture.timestamps) > 0).all()


def test_hostile_files_end_in_errors_or_captures(shared_data, tmp_path):
    files = sorted((shared_data / "captures" / "hostile").iterdir())
    assert files
    for path in files:
        with pytest.raises(CaptureError, match=rf"{path.name}@\d+: .*expected"):
            read_capture(path)
        try_bytes(path.read_bytes(), tmp_path / path.name, random.Random(0))
        if path.name.startswith(("crash_nex_", "crash_int_")):
            check_capture(read_capture(path, salvage=True))


def test_every_real_file_is_read_in_chunks_too(shared_data):
    for folder in ("nexmon", "intel5300", "esp32", "feitcsi"):
        for path in sorted((shared_data / "captures" / folder).iterdir()):
            if path.suffix == ".mat":
                continue
            whole = read_capture(path)
            parts = [chunk.csi for chunk in read_chunks(path, size=5000)]
            np.testing.assert_array_equal(np.concatenate(parts), whole.csi, path.name)


def test_the_last_subcarrier_of_a_43455c0_at_20_mhz_holds_no_channel(shared_data):
    """Far above all others, in a few distinct values; the one below it is as good as any."""
    (path,) = (shared_data / "captures" / "nexmon").glob("csi-*-20-13-*.pcap")
    capture = read_capture(path)
    kept = live(capture.device, capture.bandwidth, capture.subcarriers)
    last = capture.csi[:, capture.subcarriers == 28, 0, 0]
    others = np.abs(capture.csi[:, kept, 0, 0])
    assert np.abs(last).mean() > 20 * np.median(others)
    assert len(np.unique(last)) < 10
    assert capture.subcarriers[kept].max() == 27
    assert others.mean(axis=0).max() < 5 * np.median(others)
