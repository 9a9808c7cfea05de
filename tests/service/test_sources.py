"""Sources: the same protocol from a file, a port, a line and the simulator."""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedapa import read_capture
from fedapa.csi.capture import Capture
from fedapa.csi.nexmon_writer import write_nexmon
from fedapa.csi.subcarriers import all_subcarriers
from fedapa.errors import CaptureError, PlanError, SourceError
from fedapa.service.sources import (
    CaptureFile,
    Esp32Serial,
    Esp32Tcp,
    NexmonUdp,
    Piece,
    SimulatedVisits,
    Source,
    follow,
    follow_async,
)

HEADERS = 14 + 20 + 8
"""Bytes of Ethernet, IP and UDP before a datagram."""


def capture_of(count: int, rate: float = 100.0) -> Capture:
    subcarriers = np.array(all_subcarriers(20), np.int16)
    csi = np.random.default_rng(0).integers(-500, 500, (count, 64, 2)).astype(np.float32)
    return Capture(
        csi=(csi[..., 0] + 1j * csi[..., 1]).astype(np.complex64)[:, :, None, None],
        timestamps=np.round(np.arange(count) / rate, 6),
        rssi=np.full(count, -40, np.float32),
        device="nexmon 43455c0",
        bandwidth=20,
        subcarriers=subcarriers,
    )


def datagrams(path: Path) -> Iterator[bytes]:
    content, at = path.read_bytes(), 24
    while at < len(content):
        size = int.from_bytes(content[at + 8 : at + 12], "little")
        yield content[at + 16 + HEADERS : at + 16 + size]
        at += 16 + size


def line(number: int) -> bytes:
    """A line of esp-csi with a legacy field of 64 pairs."""
    values = ",".join(str((number + place) % 100 - 50) for place in range(128))
    stamp = 1000 * number
    return (
        f"CSI_DATA,{number},aa:bb:cc:dd:ee:ff,-40,11,1,0,0,0,0,0,0,0,0,-90,0,6,0,{stamp},0,50,0,"
        f'128,0,"[{values}]"\n'
    ).encode()


def polled(source: Source, enough: Callable[[], bool]) -> list[Piece]:
    """What comes until it is enough, for a bounded time."""
    made: list[Piece] = []
    end = time.monotonic() + 8
    while not enough() and time.monotonic() < end:
        made += source.poll(time.time())
        time.sleep(0.005)
    return made


def packets(pieces: list[Piece]) -> int:
    return sum(piece.capture.packets for piece in pieces)


def test_a_file_as_fast_as_possible_has_its_own_time(tmp_path: Path) -> None:
    write_nexmon(capture_of(300), tmp_path / "a.pcap")
    with CaptureFile(tmp_path / "a.pcap", paced=False) as source:
        assert source.name == "file a.pcap", "everybody who may see the room sees it"
        pieces = list(follow(source, clock=lambda: 0.0))
    expected = read_capture(tmp_path / "a.pcap")
    found = np.concatenate([piece.capture.csi for piece in pieces])
    assert found.tobytes() == expected.csi.tobytes()
    assert pieces[-1].received == expected.timestamps[-1]
    assert source.statistics.packets == 300


def test_a_paced_file_gives_packets_when_they_are_due(tmp_path: Path) -> None:
    """100 packets per second from 0 s on: half a second after the first poll there are 51."""
    write_nexmon(capture_of(300), tmp_path / "a.pcap")
    source = CaptureFile(tmp_path / "a.pcap")
    assert packets(source.poll(1000.0)) == 1
    assert source.poll(1000.0) == []
    (piece,) = source.poll(1000.5)
    assert piece.capture.packets == 50
    assert piece.received == pytest.approx(1000.5)
    assert not source.ended
    assert packets(source.poll(2000.0)) == 249
    assert source.ended
    assert source.poll(3000.0) == []


@pytest.mark.parametrize(("jump", "pause"), [(-3600.0, 0.0), (-3.0, 0.0), (2.0**28, 60.0)])
def test_a_file_in_which_the_clock_jumps_keeps_its_speed(
    tmp_path: Path, jump: float, pause: float
) -> None:
    """A set-back is no pause, ten years are one of a minute; then packets are paced as before.

    At 100 per second the 150 before the jump take 1.49 s, and half a second later another 50 and
    the first after the jump have come.
    """
    capture = capture_of(300)
    stamps = capture.timestamps + 1e5
    stamps[150:] += jump
    write_nexmon(replace(capture, timestamps=stamps), tmp_path / "a.pcap")
    source = CaptureFile(tmp_path / "a.pcap")
    assert packets(source.poll(1000.0)) == 1
    assert packets(source.poll(1001.4905)) == 149 + (jump < 0)
    if pause:
        assert source.poll(1000.49 + pause) == []
    pieces = source.poll(1001.9905 + pause)
    assert packets(pieces) == 51 - (jump < 0)
    assert pieces[-1].received == pytest.approx(1001.99 + pause)
    assert not source.ended


def test_a_paced_file_goes_on_where_the_clock_of_the_poll_is_set_back(tmp_path: Path) -> None:
    """After half a second a clock shows an hour less: the next half second has its 50 packets."""
    write_nexmon(capture_of(300), tmp_path / "a.pcap")
    source = CaptureFile(tmp_path / "a.pcap")
    source.poll(10_000.0)
    assert packets(source.poll(10_000.5)) == 50
    assert packets(source.poll(6_400.5)) <= 1
    (piece,) = source.poll(6_401.0)
    assert piece.capture.packets == pytest.approx(50, abs=1)
    assert piece.received == pytest.approx(6_401.0, abs=0.02)


def test_what_is_no_capture_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_text("hello")
    with pytest.raises(CaptureError, match="begins with"):
        CaptureFile(tmp_path / "a.pcap")


def test_damaged_parts_of_a_file_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    write_nexmon(capture_of(50), path)
    content = bytearray(path.read_bytes())
    content[3000:3100] = b"\xff" * 100
    path.write_bytes(bytes(content))
    source = CaptureFile(path, paced=False)
    assert 40 < packets(list(follow(source))) < 50
    assert source.statistics.skipped


@pytest.mark.network
def test_datagrams_at_a_port_are_packets(tmp_path: Path) -> None:
    """Garbage is counted; the last packet waits for the next, which could be a part of it."""
    capture = capture_of(40)
    write_nexmon(capture, tmp_path / "a.pcap")
    with NexmonUdp(0) as source, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        place = ("127.0.0.1", source.port)
        for number, datagram in enumerate(datagrams(tmp_path / "a.pcap")):
            sender.sendto(datagram, place)
            if number % 10 == 0:
                sender.sendto(os.urandom(number), place)
            time.sleep(0.001)
        made = polled(source, lambda: source.statistics.packets >= 39)
        assert packets(made) == 39
        found = np.concatenate([piece.capture.csi for piece in made])
        assert found.tobytes() == capture.csi[:39].tobytes()
        stamps = np.concatenate([piece.capture.timestamps for piece in made])
        assert (np.diff(stamps) >= 0).all()
        assert len(np.unique(stamps)) > 20  # of the system, not of the poll
        assert abs(stamps[-1] - time.time()) < 60
        assert sum(source.statistics.skipped.values()) == 4
        with pytest.raises(SourceError, match="cannot listen there"):
            NexmonUdp(source.port)


@pytest.mark.network
def test_a_chip_that_nobody_can_know_does_not_end_the_port(tmp_path: Path) -> None:
    """A frame of zeros without a chip's number is refused; the next ones are read."""
    write_nexmon(capture_of(5), tmp_path / "a.pcap")
    sent = list(datagrams(tmp_path / "a.pcap"))
    silent = sent[0][:16] + bytes(2) + bytes(len(sent[0]) - 18)
    with NexmonUdp(0) as source, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(silent, ("127.0.0.1", source.port))
        polled(source, lambda: bool(source.statistics.skipped))
        for datagram in sent:
            sender.sendto(datagram, ("127.0.0.1", source.port))
        assert packets(polled(source, lambda: source.statistics.packets >= 4)) == 4
        for datagram in (*sent, silent, *sent):  # of one poll: the others of it are not lost
            sender.sendto(datagram, ("127.0.0.1", source.port))
        assert packets(source.poll(time.time())) >= 8
        assert sum(source.statistics.skipped.values()) == 2


@pytest.mark.network
def test_garbage_at_a_port_gives_a_few_reasons_however_long_it_comes(tmp_path: Path) -> None:
    """Frames of ever other chips that nobody knows, and now and then one that cannot be read."""
    write_nexmon(capture_of(1), tmp_path / "a.pcap")
    sound = next(datagrams(tmp_path / "a.pcap"))
    silent = sound[:16] + bytes(len(sound) - 16)
    with NexmonUdp(0) as source, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for chip in range(0x1000, 0x1000 + 400):
            sender.sendto(
                sound[:16] + chip.to_bytes(2, "little") + sound[18:], ("127.0.0.1", source.port)
            )
            if chip % 10 == 0:
                sender.sendto(silent, ("127.0.0.1", source.port))
            source.poll(time.time())
        skipped = source.statistics.skipped
        assert sum(skipped.values()) == 440
        assert skipped["other reasons"] > 300  # not a line of its own for each
        assert len(skipped) < 70


@pytest.mark.network
def test_lines_at_an_address_are_packets_and_come_back() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5)
        with Esp32Tcp("127.0.0.1", server.getsockname()[1]) as source:
            first, _ = server.accept()
            with first:
                first.sendall(b"boot: hello\n" + b"".join(map(line, range(20))) + line(20)[:50])
                made = polled(source, lambda: source.statistics.packets >= 20)
            assert packets(made) == 20
            assert made[0].capture.device == "esp32 lltf"
            np.testing.assert_allclose(np.diff(made[0].capture.timestamps), 1e-3, atol=1e-9)
            assert source.statistics.skipped == {"other text": 1}
            polled(source, lambda: bool(source.statistics.problem))
            assert source.statistics.problem == "the other side ended it; opened again in 1 s"
            assert source.poll(time.time()) == []
            source.poll(time.time() + 2)  # time has passed: it opens the line again
            second, _ = server.accept()
            with second:
                second.sendall(b"\n" + line(30))
                assert packets(polled(source, lambda: source.statistics.packets >= 21)) == 1
            assert source.statistics.opened == 2


@pytest.mark.network
def test_a_clock_that_is_set_back_does_not_keep_a_line_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5)
        with Esp32Tcp("127.0.0.1", server.getsockname()[1]) as source:
            server.accept()[0].close()
            polled(source, lambda: bool(source.statistics.problem))
            source.poll(time.time() - 3600)
            server.accept()[0].close()
            polled(source, lambda: source.statistics.opened == 2)  # a thread opens it
            assert source.statistics.opened == 2


@pytest.mark.network
def test_nobody_at_an_address_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(SourceError, match=f"tcp 127.0.0.1:{port}: cannot be opened"):
        Esp32Tcp("127.0.0.1", port)
    with pytest.raises(SourceError, match="cannot be opened"):
        Esp32Tcp("127.0.0.1", 99_999)


@pytest.mark.network
def test_a_patient_line_waits_for_who_is_not_there_yet() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = server.getsockname()
    with Esp32Tcp(*place, patient=True) as source:
        polled(source, lambda: bool(source.statistics.problem))
        assert "opened again in 1 s" in source.statistics.problem
        assert source.statistics.opened == 0
        with socket.create_server(place) as server:
            server.settimeout(5)
            source.poll(time.time() + 2)
            first, _ = server.accept()
            with first:
                first.sendall(line(0) + line(1) + line(2))
                assert packets(polled(source, lambda: source.statistics.packets >= 3)) == 3
        assert source.statistics.problem == ""


def test_lines_of_a_serial_device_are_packets() -> None:
    ours, theirs = os.openpty()
    with Esp32Serial(os.ttyname(theirs)) as source:
        os.write(ours, b"\xff\xfe garbage\n" + line(0) + line(1))
        assert packets(polled(source, lambda: source.statistics.packets >= 2)) == 2
        assert source.statistics.skipped == {"other text": 1}
        os.close(theirs)
        os.close(ours)
        polled(source, lambda: bool(source.statistics.problem))
        assert "opened again" in source.statistics.problem


def test_what_is_no_serial_device_is_told(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be opened"):
        Esp32Serial(tmp_path / "nothing")
    (tmp_path / "file").write_text("")
    with pytest.raises(SourceError, match="is no serial device"):
        Esp32Serial(tmp_path / "file")
    with pytest.raises(SourceError, match="12345 baud"):
        Esp32Serial(tmp_path / "file", baud=12345)


def test_the_simulator_says_who_is_there() -> None:
    source = SimulatedVisits("hotel room", preset="smoke", paced=False, seconds=30)
    pieces = list(follow(source))
    assert source.synthetic
    assert source.name == "SIMULATED hotel room"
    assert all(piece.capture.synthetic for piece in pieces)
    stamps = np.concatenate([piece.capture.timestamps for piece in pieces])
    assert (np.diff(stamps) >= 0).all()
    assert 30 <= stamps[-1] < 32
    assert all(piece.people is not None and piece.people.max() <= 1 for piece in pieces)


def test_simulated_packets_come_in_time() -> None:
    source = SimulatedVisits("hotel room", preset="smoke")
    source.poll(0.0)
    (piece,) = source.poll(1.0)
    assert piece.people is not None
    assert piece.capture.packets == len(piece.people) == pytest.approx(125, abs=10)
    assert piece.received <= 1.0


def test_an_unknown_room_is_refused() -> None:
    with pytest.raises(PlanError, match="did you mean 'hotel room'"):
        SimulatedVisits("hotel rom")


def test_an_event_loop_follows_a_source(tmp_path: Path) -> None:
    write_nexmon(replace(capture_of(30)), tmp_path / "a.pcap")

    async def followed() -> int:
        source = CaptureFile(tmp_path / "a.pcap", paced=False)
        return sum([piece.capture.packets async for piece in follow_async(source)])

    assert asyncio.run(followed()) == 30
