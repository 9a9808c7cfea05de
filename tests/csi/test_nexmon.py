import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedapa import Capture, CaptureError, read_capture
from fedapa.csi.nexmon_format import decode_words
from fedapa.csi.nexmon_writer import write_nexmon
from fedapa.csi.reading import read_chunks
from fedapa.csi.subcarriers import all_subcarriers
from tests.csi.capture_bytes import (
    CHIP_CODE,
    ethernet,
    nexmon_csi,
    nexmon_datagram,
    nexmon_file,
    pcap,
    pcapng,
    udp,
)


def frame(csi, **fields):
    return ethernet(udp(nexmon_datagram(csi, **fields)))


def save(tmp_path, data, name="kitchen.pcap"):
    path = tmp_path / name
    path.write_bytes(data)
    return path


def expected(subcarriers, seed):
    pairs = nexmon_csi(subcarriers, seed).astype(np.float32)
    return np.fft.fftshift(pairs[:, 0] + 1j * pairs[:, 1])


@pytest.mark.parametrize("bandwidth", [20, 40, 80])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("nano", [False, True])
def test_every_byte_order_clock_and_width_gives_the_same_values(tmp_path, bandwidth, order, nano):
    capture = read_capture(save(tmp_path, nexmon_file(3, bandwidth, order=order, nano=nano)))
    subcarriers = bandwidth * 16 // 5
    assert capture.csi.shape == (3, subcarriers, 1, 1)
    assert capture.bandwidth == bandwidth
    assert capture.device == "nexmon 43455c0"
    np.testing.assert_array_equal(capture.csi[1, :, 0, 0], expected(subcarriers, 1))
    np.testing.assert_allclose(capture.timestamps, [1000, 1000.01, 1000.02], atol=1e-6)
    np.testing.assert_array_equal(
        capture.subcarriers, np.arange(-subcarriers // 2, subcarriers // 2)
    )
    np.testing.assert_array_equal(capture.sequence, [0, 1, 2])
    assert capture.skipped == {}


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("resolution", [6, 9, 0x80 | 20])
def test_pcapng_equals_pcap(tmp_path, order, resolution):
    packets = [(5000 + i / 8, frame(nexmon_csi(256, i).tobytes())) for i in range(4)]
    other = read_capture(save(tmp_path, pcap(packets)))
    capture = read_capture(
        save(tmp_path, pcapng(packets, order=order, resolution=resolution, offset=4000))
    )
    np.testing.assert_array_equal(capture.csi, other.csi)
    np.testing.assert_allclose(capture.timestamps, other.timestamps, atol=2e-6)


@pytest.mark.parametrize(
    ("link", "header"),
    [
        (0, b"\x02\0\0\0"),
        (1, b"\xff" * 12 + b"\x81\0\0\x05\x08\0"),
        (101, b""),
        (113, b"\0" * 14 + b"\x08\0"),
        (276, b"\x08\0" + b"\0" * 18),
    ],
    ids=["loopback", "tagged", "raw", "cooked", "cooked 2"],
)
def test_every_link_type_leads_to_the_same_datagram(tmp_path, link, header):
    packet = header + udp(nexmon_datagram(nexmon_csi(256, 9).tobytes()))
    capture = read_capture(save(tmp_path, pcap([(1.0, packet)], link=link)))
    np.testing.assert_array_equal(capture.csi[0, :, 0, 0], expected(256, 9))


def test_old_firmware_says_no_rssi_and_new_firmware_does(tmp_path):
    csi = nexmon_csi(256, 0).tobytes()
    packets = [(1.0, frame(csi, rssi=None)), (2.0, frame(csi, rssi=-61))]
    rssi = read_capture(save(tmp_path, pcap(packets))).rssi
    assert np.isnan(rssi[0])
    assert rssi[1] == -61


def test_longer_frames_are_kept_without_their_tail(tmp_path):
    csi = nexmon_csi(256, 3).tobytes()
    capture = read_capture(save(tmp_path, pcap([(1.0, frame(csi)), (2.0, frame(csi + b"tail"))])))
    assert capture.packets == 2
    np.testing.assert_array_equal(capture.csi[0], capture.csi[1])


def test_other_traffic_is_skipped_and_counted(tmp_path):
    csi = nexmon_csi(64, 0).tobytes()
    data = pcap(
        [
            (1.0, b"\xff" * 12 + b"\x08\x06" + b"\0" * 28),
            (2.0, ethernet(udp(b"query", port=53))),
            (3.0, frame(csi, bandwidth=20)),
            (4.0, b""),
            (5.0, ethernet(udp(b"\x11\x11short"))),
        ]
    )
    capture = read_capture(save(tmp_path, data))
    assert capture.packets == 1
    assert capture.skipped == {"other traffic": 3, "cut off by the capture": 1}


def test_cores_and_streams_of_one_sequence_are_one_packet(tmp_path):
    """Two packets of 2 cores × 2 streams, sent in another order than they are numbered."""
    packets = []
    for sequence in range(2):
        for place, (core, stream) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)]):
            csi = nexmon_csi(64, 10 * sequence + place).tobytes()
            packets.append(
                (1.0, frame(csi, bandwidth=20, sequence=sequence, core=core, stream=stream))
            )
    packets[4], packets[7] = packets[7], packets[4]
    capture = read_capture(save(tmp_path, pcap(packets)))
    assert capture.csi.shape == (2, 64, 2, 2)
    np.testing.assert_array_equal(capture.csi[1, :, 1, 0], expected(64, 12))
    np.testing.assert_array_equal(capture.csi[1, :, 1, 1], expected(64, 13))


def test_equal_sequence_and_core_are_two_packets(tmp_path):
    """Some firmware leaves the sequence at 0: a repeated (core, stream) begins a new packet."""
    csi = nexmon_csi(64, 0).tobytes()
    packets = [(i, frame(csi, bandwidth=20, sequence=0, core=i % 2)) for i in range(6)]
    assert read_capture(save(tmp_path, pcap(packets))).csi.shape == (3, 64, 2, 1)


def test_incomplete_and_rare_antenna_sets_are_counted(tmp_path):
    csi = nexmon_csi(64, 0).tobytes()
    packets = []
    for sequence in range(3):
        for core in range(2):
            for stream in range(2):
                if sequence == 1 and (core, stream) == (1, 1):
                    continue
                packets.append(
                    (1.0, frame(csi, bandwidth=20, sequence=sequence, core=core, stream=stream))
                )
    packets.append((2.0, frame(csi, bandwidth=20, sequence=9)))
    capture = read_capture(save(tmp_path, pcap(packets)))
    assert capture.csi.shape == (2, 64, 2, 2)
    assert capture.skipped["incomplete set of cores and streams"] == 1
    assert sum(capture.skipped.values()) == 2


def test_the_most_frequent_width_is_kept_and_the_rest_counted(tmp_path):
    wide, narrow = nexmon_csi(256, 0).tobytes(), nexmon_csi(64, 0).tobytes()
    packets = [(float(i), frame(wide)) for i in range(3)]
    packets.insert(1, (0.5, frame(narrow, bandwidth=20)))
    capture = read_capture(save(tmp_path, pcap(packets)))
    assert (capture.bandwidth, capture.packets) == (80, 3)
    [(reason, count)] = capture.skipped.items()
    assert count == 1
    assert "20 MHz" in reason


def test_a_frame_whose_size_contradicts_its_width_is_counted(tmp_path):
    packets = [
        (1.0, frame(nexmon_csi(256, 0).tobytes())),
        (2.0, frame(nexmon_csi(64, 0).tobytes())),
        (3.0, frame(nexmon_csi(256, 0).tobytes(), bandwidth=20)),
    ]
    assert read_capture(save(tmp_path, pcap(packets))).skipped == {
        "longer than its channel width needs": 1,
        "shorter than its channel width needs": 1,
    }


def test_packed_floats_are_unpacked_by_hand_derived_numbers():
    """4358: bits 0–4 exponent, 5–12 imaginary, 13 its sign, 14–21 real, 22 its sign.

    Word 0: real 200, imaginary −3, exponent 2. Word 1: real −16, imaginary 0, exponent −1.
    200 has its highest bit at 7, with the exponent at 9: all is shifted by 10 − 9 = 1 more.
    Word 0 becomes (200 · 2^3, −3 · 2^3) = (1600, −24); word 1 (−16 · 2^0, 0) = (−16, 0).
    """
    first = 2 | 3 << 5 | 1 << 13 | 200 << 14
    second = 31 | 0 << 5 | 16 << 14 | 1 << 22
    out = np.empty((1, 2), np.complex64)
    decode_words(np.array([[first, second]], "<u4"), "4358", out=out)
    np.testing.assert_array_equal(out, [[-16, 1600 - 24j]])  # the upper half comes first


@pytest.mark.parametrize(("chip", "bits"), [("4358", 23), ("4366c0", 30), ("43455c0", 32)])
def test_where_the_chip_field_is_silent_the_packing_is_inferred(tmp_path, chip, bits):
    words = np.random.default_rng(0).integers(0, 2**bits, 256, dtype=np.uint64).astype("<u4")
    silent = save(tmp_path, pcap([(1.0, frame(words.tobytes(), chip=0xDEAD))]), "silent.pcap")
    told = save(tmp_path, pcap([(1.0, frame(words.tobytes(), chip=CHIP_CODE[chip]))]), "told.pcap")
    assert read_capture(silent).device == f"nexmon {chip}"
    np.testing.assert_array_equal(read_capture(silent).csi, read_capture(told).csi)
    np.testing.assert_array_equal(read_capture(silent, chip).csi, read_capture(told, chip).csi)


def test_frames_that_tell_their_chip_stand_beside_those_that_do_not(tmp_path):
    """The majority is packed and silent; what is inferred for it contradicts nobody."""
    words = np.random.default_rng(0).integers(0, 2**23, 256, dtype=np.uint64).astype("<u4")
    packets = [(float(i), frame(words.tobytes(), chip=0xDEAD)) for i in range(3)]
    packets.insert(1, (0.5, frame(nexmon_csi(256, 0).tobytes())))
    path = save(tmp_path, pcap(packets))
    capture = read_capture(path)
    assert (capture.device, capture.packets) == ("nexmon 4358", 3)
    chunks = [chunk.csi for chunk in read_chunks(path)]
    np.testing.assert_array_equal(np.concatenate(chunks), capture.csi)


def test_zeros_without_a_chip_field_ask_for_the_chip(tmp_path):
    path = save(tmp_path, pcap([(1.0, frame(bytes(1024), chip=0xDEAD))]))
    with pytest.raises(CaptureError, match=r"kitchen.pcap@98: .*chip= one of 4339, 4358"):
        read_capture(path)
    assert read_capture(path, "4358").packets == 1


def test_an_unknown_chip_is_named_with_the_known_ones(tmp_path):
    path = save(tmp_path, pcap([(1.0, frame(bytes(1024), chip=0x99))]))
    with pytest.raises(
        CaptureError,
        match=r"kitchen.pcap@\d+: .*chip 0x0099 is unknown; known: .*0x0065 \(43455c0\)",
    ):
        read_capture(path)


def test_a_chip_that_contradicts_the_file_is_refused(tmp_path):
    path = save(tmp_path, nexmon_file())
    with pytest.raises(CaptureError, match=r"says 43455c0.*chip='4358' was given"):
        read_capture(path, "4358")
    with pytest.raises(CaptureError, match="chip '4359' is unknown; did you mean '4358'"):
        read_capture(path, "4359")


@pytest.mark.parametrize("size", [100_000, 262_145, 0xFFFFFFFF])
def test_a_damaged_length_is_named_with_its_place(tmp_path, size):
    data = bytearray(nexmon_file(6))
    record = 16 + 42 + 18 + 256
    struct.pack_into("<I", data, 24 + 2 * record + 8, size)
    path = save(tmp_path, bytes(data))
    with pytest.raises(CaptureError, match=f"kitchen.pcap@{24 + 2 * record}: .*expected"):
        read_capture(path)
    capture = read_capture(path, salvage=True)
    assert capture.packets == 5
    assert capture.skipped == {"damaged bytes": 1}


def test_a_file_cut_off_at_its_end_gives_what_is_whole(tmp_path):
    capture = read_capture(save(tmp_path, nexmon_file(4)[:-10]))
    assert capture.packets == 3
    assert capture.skipped == {"cut off at the end": 1}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (nexmon_file()[:23], "no usable CSI frame"),
        (nexmon_file(link=127), "link type 127 is not understood"),
        (pcap([]), "no usable CSI frame"),
        (pcap([(1.0, ethernet(udp(b"x", port=53)))]), "1 × other traffic"),
        (pcapng([])[:-4] + b"\0\0\0\1", "ends with another size"),
    ],
)
def test_what_cannot_be_read_says_why(tmp_path, data, words):
    with pytest.raises(CaptureError, match=words) as caught:
        read_capture(save(tmp_path, data))
    assert "kitchen.pcap@" in str(caught.value)


@st.composite
def captures(draw):
    bandwidth = draw(st.sampled_from([20, 40, 80]))
    packets, rx, tx = (draw(st.integers(1, 3)) for _ in range(3))
    subcarriers = all_subcarriers(bandwidth)
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    parts = rng.integers(-32767, 32768, (packets, len(subcarriers), rx, tx, 2)).astype(np.float32)
    return Capture(
        csi=parts.view(np.complex64)[..., 0],
        timestamps=np.sort(rng.integers(0, 2**40, packets)) / 1e6,
        rssi=np.where(rng.random(packets) < 0.3, np.nan, rng.integers(-100, 0, packets)).astype(
            np.float32
        ),
        device="nexmon 43455c0",
        bandwidth=bandwidth,
        subcarriers=np.array(subcarriers, np.int16),
        synthetic=draw(st.booleans()),
    )


@given(capture=captures())
def test_what_is_written_is_read_back(tmp_path_factory, capture):
    path = tmp_path_factory.mktemp("written") / "round.pcap"
    write_nexmon(capture, path)
    back = read_capture(path)
    np.testing.assert_array_equal(back.csi, capture.csi)
    np.testing.assert_allclose(back.timestamps, capture.timestamps, atol=1e-6)
    np.testing.assert_array_equal(back.rssi, capture.rssi)
    assert back.skipped == {}
    assert back.synthetic == capture.synthetic
    assert back.device == ("simulated" if capture.synthetic else "nexmon 43455c0")


def test_writing_scales_rounds_and_fills_missing_subcarriers(tmp_path):
    capture = Capture(
        csi=np.full((1, 2, 1, 1), 0.251 - 0.5j, np.complex64),
        timestamps=np.array([1.5]),
        rssi=np.array([-40], np.float32),
        device="simulated",
        bandwidth=20,
        subcarriers=np.array([-1, 1], np.int16),
    )
    write_nexmon(capture, tmp_path / "a.pcap", scale=100)
    back = read_capture(tmp_path / "a.pcap")
    np.testing.assert_array_equal(np.flatnonzero(back.csi[0, :, 0, 0]), [31, 33])
    assert back.csi[0, 31, 0, 0] == 25 - 50j


def test_values_beyond_int16_are_refused_not_wrapped(tmp_path):
    capture = Capture(
        csi=np.full((1, 1, 1, 1), 40_000, np.complex64),
        timestamps=np.zeros(1),
        rssi=np.zeros(1, np.float32),
        device="simulated",
        bandwidth=20,
        subcarriers=np.array([1], np.int16),
    )
    with pytest.raises(CaptureError, match="40000 do not fit int16; give a smaller scale"):
        write_nexmon(capture, tmp_path / "a.pcap")
    assert not list(tmp_path.iterdir())
