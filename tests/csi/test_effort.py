"""Hostile files that are sound bit by bit: effort must grow with the file, not with its square."""

import resource
import time
from pathlib import Path

import numpy as np
import pytest

from fedapa import CaptureError, read_capture
from tests.csi.capture_bytes import (
    bfee,
    block,
    ethernet,
    feit_frame,
    intel_csi,
    nexmon_csi,
    nexmon_datagram,
    nexmon_file,
    pcap,
    pcapng,
    udp,
)

CSI = nexmon_csi(64, 0).tobytes()


def frame(**fields: int | bytes) -> bytes:
    return ethernet(udp(nexmon_datagram(CSI, bandwidth=20, **fields)))  # type: ignore[arg-type]


def many_chips() -> bytes:
    return pcap([(1.0, frame(chip=code)) for code in range(0x100, 0x8000)])


def many_antenna_sets() -> bytes:
    rng = np.random.default_rng(0)
    packets = []
    for number in range(8000):
        for core, stream in {tuple(rng.integers(0, 8, 2).tolist()) for _ in range(3)}:
            packets.append((1.0, frame(core=core, stream=stream, mac=number.to_bytes(6, "big"))))
    return pcap(packets)


def many_interfaces() -> bytes:
    links = b"".join(block(1, bytes([i & 255, i >> 8, 0, 0, 0, 0, 4, 0])) for i in range(20_000))
    packets = b"".join(block(6, i.to_bytes(4, "little") + bytes(16)) for i in range(1, 20_000))
    return pcapng([(1.0, frame())]) + links + packets


def many_formats() -> bytes:
    rng = np.random.default_rng(0)
    return b"".join(
        feit_frame(np.zeros((1, 1, subcarriers, 2)), flags=int(flags) << 8)
        for subcarriers, flags in zip(
            rng.integers(1, 60, 15_000), rng.integers(0, 64, 15_000), strict=True
        )
    )


def many_empty_packets() -> bytes:
    """Sizes that change, so that no two records can be taken at once."""
    pair = pcap([(1.0, b""), (1.0, b"x")])[24:]
    return nexmon_file(3, 20) + pair * 100_000


def lines_that_end_wrong() -> bytes:
    """Each ends in what a line may end in, very often, and then in what it may not."""
    ends = (b", ", b",", b" ", b",1.", b", " * 9)
    return b"".join(b"CSI_DATA,1,2,[1]," + end * (60_000 // len(end)) + b"x\n" for end in ends)


@pytest.mark.parametrize(
    "make",
    [
        many_chips,
        many_antenna_sets,
        many_interfaces,
        many_formats,
        many_empty_packets,
        lines_that_end_wrong,
    ],
    ids=lambda make: make.__name__,
)
@pytest.mark.parametrize("salvage", [False, True])
def test_effort_grows_with_the_file(tmp_path: Path, make, salvage: bool) -> None:
    path = tmp_path / "hostile.bin"
    path.write_bytes(make())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    began = time.process_time()
    try:
        read_capture(path, salvage=salvage)
    except CaptureError as error:
        assert len(str(error)) < 2000
    assert time.process_time() - began < 5
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    assert grown < (64 << 20) + 10 * path.stat().st_size


def test_damage_after_damage_is_salvaged_in_one_pass(tmp_path: Path) -> None:
    sound = nexmon_file(1, 20)
    record = sound[24:]
    broken = record[:8] + b"\xff" * 8 + record[16:]
    path = tmp_path / "hostile.bin"
    path.write_bytes(sound + (broken + record) * 4000)
    began = time.process_time()
    capture = read_capture(path, salvage=True)
    assert time.process_time() - began < 5
    assert (capture.packets, capture.skipped) == (4001, {"damaged bytes": 4000})


@pytest.mark.parametrize("form", ["nexmon", "intel5300"])
def test_short_runs_of_equal_records_cost_little(tmp_path: Path, form: str) -> None:
    """Nine equal records and another one, over and over: each run is tried, none is long."""
    if form == "nexmon":
        equal, other = (pcap([(1.0, b"x" * size)])[24:] for size in (4, 5))
        data = nexmon_file(1, 20) + (equal * 9 + other) * 30_000
    else:
        equal, other = (bfee(intel_csi(1, tx, 0)) for tx in (1, 2))
        data = (equal * 9 + other) * 8000
    path = tmp_path / "hostile.bin"
    path.write_bytes(data)
    began = time.process_time()
    read_capture(path)
    assert time.process_time() - began < 5
