"""Rooms are served alone and together: none waits for another, none keeps an old count."""

import socket
import threading
import time
from typing import Any

import numpy as np
import pytest

from fedapa.csi.capture import Capture
from fedapa.csi.subcarriers import all_subcarriers
from fedapa.errors import DataError
from fedapa.service.counter import CounterSettings
from fedapa.service.serving import Durations, RoomServer, ServedRoom, Waterfall
from fedapa.service.sources import NexmonUdp

from .made import Clocks, Given, Models, level_model


class House:
    """One room, its clocks, and what was told."""

    def __init__(self, *models: Any, every: float = 5.0) -> None:
        self.clocks, self.source = Clocks(), Given()
        self.models = Models(*(models or (level_model(),)))
        self.room = ServedRoom("cafe", self.models, self.source, CounterSettings(every=every))
        self.server = RoomServer([self.room], steady=self.clocks.steady, wall=self.clocks.wall)
        self.told: list[dict[str, Any]] = []
        self.server.listen(self.told.append)
        self.server.look_for_models()
        self.server.step()

    def second(self, people: float | None, seconds: int = 1) -> None:
        """Seconds with so many people, ten packets each; None: nothing comes."""
        for _ in range(seconds):
            self.clocks.now += 1
            if people is not None:
                self.source.put([people] * 10, self.clocks.now)
            self.server.step()


def test_a_room_is_counted_and_told() -> None:
    house = House()
    assert house.room.document()["state"] == "unavailable"
    assert house.room.document()["reason"] == "the first window is not complete yet"
    house.second(2, seconds=12)
    document = house.room.document()
    assert (document["state"], document["count"]) == ("counting", 2)
    assert house.told[-1] is document or house.told[-1]["count"] == 2
    assert document["rate"] == pytest.approx(10, abs=1)
    assert document["packets"] == 120
    assert document["source"] == "given"
    assert document["model"] == {
        "algorithm": "fedapa",
        "round": 1,
        "hash": "abababababab",
        "path": "cafe.safetensors",
        "classes": [0, 1, 2, 3],
    }


def test_a_source_that_stops_is_unavailable_and_never_an_old_count() -> None:
    house = House()
    house.second(2, seconds=12)
    house.second(None, seconds=11)
    document = house.room.document()
    assert (document["state"], document["count"], document["lo"]) == ("unavailable", None, None)
    assert "no packets" in document["reason"]
    assert document["rate"] == 0
    house.second(1, seconds=3)
    assert house.room.document()["count"] == 1


def test_a_source_that_has_ended_says_so() -> None:
    house = House()
    house.second(2, seconds=12)
    house.source.close()
    house.second(None, seconds=12)
    assert house.room.document()["problem"] == "it has ended"
    assert house.room.document()["reason"].endswith("the source: it has ended")


def test_a_line_that_is_lost_is_told_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    house = House()
    house.source.problem = "no such device; opened again in 1 s"
    house.second(None, seconds=3)
    house.source.problem = "no such device; opened again in 2 s"
    house.second(None, seconds=3)
    assert house.room.document()["problem"] == "no such device; opened again in 2 s"
    assert "no such device" in house.room.document()["reason"]
    assert [record.getMessage() for record in caplog.records] == [
        "room cafe: given: no such device; opened again in 1 s"
    ]


def test_a_newer_model_is_taken_up_without_a_gap() -> None:
    house = House(level_model(), level_model())
    house.second(2, seconds=12)
    house.server.look_for_models()
    house.second(2, seconds=10)
    assert {one["state"] for one in house.told[1:]} == {"counting"}
    assert [one["model"]["round"] for one in house.told][-1] == 2
    assert house.room.document()["count"] == 2
    assert house.room.models_taken == 2


def test_a_model_of_other_classes_begins_a_new_counter() -> None:
    house = House(level_model(), level_model((0, 1, 2, 3, 4, 5)))
    house.second(2, seconds=12)
    house.server.look_for_models()
    house.second(5, seconds=12)
    assert house.room.document()["count"] == 5
    assert house.room.document()["packets"] == 240


def test_a_model_that_cannot_be_used_is_told_and_the_one_before_goes_on() -> None:
    house = House(level_model())
    house.second(2, seconds=12)
    house.models.found.append(DataError("cafe.safetensors: is damaged"))
    house.server.look_for_models()
    house.second(2, seconds=6)
    document = house.room.document()
    assert document["model_problem"] == "cafe.safetensors: is damaged"
    assert (document["state"], document["count"]) == ("counting", 2)
    assert house.room.models_refused == 1
    house.models.problem = ""  # the file of before was put back: nothing newer, nothing wrong
    house.second(2, seconds=2)
    assert house.room.document()["model_problem"] == ""


def test_an_error_of_ours_in_one_model_leaves_the_next_to_be_found(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = House(level_model(), ZeroDivisionError("ours"), level_model())
    house.second(2, seconds=12)
    house.server.look_for_models()
    assert "its newest model" in caplog.text
    house.server.look_for_models()
    house.second(2, seconds=6)
    assert house.room.document()["model"]["round"] == 2


def test_a_room_without_a_model_waits_for_one() -> None:
    house = House(DataError("not there"))
    house.second(2, seconds=3)
    assert house.room.document()["reason"] == "not there"
    assert house.room.document()["model"] is None
    house.models.found.append(level_model())
    house.server.look_for_models()
    house.second(2, seconds=8)
    assert house.room.document()["count"] == 2


def test_packets_of_another_receiver_make_a_room_unavailable_with_the_reason() -> None:
    house = House()
    for _ in range(14):
        house.clocks.now += 1
        house.source.put([2] * 10, house.clocks.now, device="other")
        house.server.step()
    document = house.room.document()
    assert document["state"] == "unavailable"
    assert "device is other, the recipe is for test" in document["reason"]
    assert sum(document["skipped"].values()) == 140
    assert house.room.dropped["does_not_fit"] == 140


@pytest.mark.network
def test_garbage_at_a_port_is_counted_and_the_room_stays_up() -> None:
    source = NexmonUdp(0)
    room = ServedRoom("cafe", Models(level_model()), source)
    server = RoomServer([room])
    with server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for size in range(1, 200):
            sender.sendto(bytes(range(size)), ("127.0.0.1", source.port))
        end = time.monotonic() + 20
        while sum(room.document()["skipped"].values()) < 199 and time.monotonic() < end:
            time.sleep(0.1)
        assert sum(room.document()["skipped"].values()) == 199
        assert room.document()["packets"] == 0
        assert room.dropped["unreadable"] == 199
        assert server.stalled < 10


def test_a_fault_of_one_room_does_not_end_the_others(caplog: pytest.LogCaptureFixture) -> None:
    clocks, sources = Clocks(), [Given(), Given()]
    rooms = [
        ServedRoom(name, Models(level_model()), source)
        for name, source in zip(("bad", "good"), sources, strict=True)
    ]
    server = RoomServer(rooms, steady=clocks.steady, wall=clocks.wall)
    server.look_for_models()
    sources[0].broken = ZeroDivisionError("oh")
    for _ in range(12):
        clocks.now += 1
        sources[1].put([3] * 10, clocks.now)
        server.step()
    assert server.rooms["good"].document()["count"] == 3
    assert server.rooms["bad"].document()["state"] == "unavailable"
    assert "ZeroDivisionError: oh" in server.rooms["bad"].document()["reason"]
    assert len(caplog.records) == 1  # not once in each turn
    sources[0].broken = None
    for _ in range(8):
        clocks.now += 1
        sources[0].put([1] * 10, clocks.now)
        server.step()
    assert server.rooms["bad"].document()["count"] == 1


def test_a_fault_is_told_at_once_to_who_had_the_count_of_before() -> None:
    house = House()
    house.second(2, seconds=12)
    assert house.told[-1]["count"] == 2
    house.source.broken = ZeroDivisionError("oh")
    known = len(house.told)
    house.second(2, seconds=8)
    assert [(one["state"], one["count"]) for one in house.told[known:]] == [("unavailable", None)]
    assert "ZeroDivisionError: oh" in house.told[-1]["reason"]


def test_why_counting_failed_is_told_until_the_room_counts_again() -> None:
    house = House()
    house.second(2, seconds=12)
    house.source.broken = ZeroDivisionError("oh")
    house.second(None)
    house.source.broken = None
    for silence in (2, 12):  # before and after the counter itself misses packets
        house.second(None, seconds=silence)
        assert "counting failed (ZeroDivisionError: oh)" in house.room.document()["reason"]
    assert "no packets" in house.room.document()["reason"]
    house.second(2, seconds=12)
    assert (house.room.document()["count"], house.room.document()["reason"]) == (2, "")


def test_a_clock_that_is_set_moves_the_times_and_nothing_else() -> None:
    house = House()
    house.second(2, seconds=12)
    before = house.room.document()["time"]
    for jump in (-3600.0, 86_400.0):
        house.clocks.ahead = jump
        house.second(2, seconds=6)
        document = house.room.document()
        assert (document["state"], document["count"]) == ("counting", 2)
        assert document["time"] == pytest.approx(before + jump, abs=20)
    assert {one["state"] for one in house.told} == {"counting"}


def test_what_is_simulated_is_marked_before_the_first_packet() -> None:
    room = ServedRoom("cafe", Models(level_model()), Given(synthetic=True))
    server = RoomServer([room])
    server.step()
    assert room.document()["synthetic"] is True


def test_a_listener_may_fail_and_may_leave(caplog: pytest.LogCaptureFixture) -> None:
    house = House()

    def fail(document: dict[str, Any]) -> None:
        raise RuntimeError("the listener's own")

    end = house.server.listen(fail)
    house.second(2, seconds=12)
    assert house.told
    failures = len(caplog.records)
    assert failures
    end()
    house.second(2, seconds=6)
    assert len(caplog.records) == failures


def test_a_started_server_counts_in_its_own_thread_and_ends() -> None:
    source, heard = Given(), threading.Event()
    server = RoomServer([ServedRoom("cafe", Models(level_model()), source)])
    server.listen(lambda document: heard.set())
    with server:
        source.put([2] * 20, server._steady())
        assert heard.wait(10)
        assert server.stalled < 5
    assert source.ended
    assert server.rooms["cafe"].document()["count"] == 2


def capture_at(times: np.ndarray, level: float = 10.0) -> Capture:
    subcarriers = np.array(all_subcarriers(80), np.int16)
    csi = np.full((len(times), len(subcarriers), 1, 1), level, np.complex64)
    csi[:, subcarriers == -122] = np.nan  # the lowest that carries anything
    return Capture(
        csi=csi,
        timestamps=times,
        rssi=np.zeros(len(times), np.float32),
        device="test",
        bandwidth=80,
        subcarriers=subcarriers,
    )


def test_a_waterfall_has_few_rows_and_columns_of_the_last_seconds() -> None:
    waterfall = Waterfall()
    times = np.arange(0, 90, 0.001)
    for begin in range(0, len(times), 250):
        part = times[begin : begin + 250]
        waterfall.add(capture_at(part), float(part[-1]))
    document = waterfall.document(20.0, shift=5.0)
    assert 190 <= len(document["times"]) <= 200
    assert np.diff(document["times"]).min() > 0.04
    assert document["times"][-1] == pytest.approx(95, abs=0.2)
    assert document["times"][0] >= 75 - 0.2
    assert len(document["subcarriers"]) == 64
    levels = np.array(document["amplitude_db"])
    assert levels.shape == (len(document["times"]), 64)
    assert levels[:, 0].tolist() == [-60.0] * len(levels)  # NaN, and JSON has none
    np.testing.assert_allclose(levels[:, 1:], 20.0)
    assert len(waterfall.document(30.0)["times"]) <= 200
    assert Waterfall().document(20)["times"] == []


def test_durations_are_counted_in_classes() -> None:
    durations = Durations()
    for seconds in (0.0005, 0.004, 0.004, 7.0):
        durations.add(seconds)
    buckets, total = durations.buckets()
    assert dict(buckets)["0.001"] == 1
    assert dict(buckets)["0.005"] == 3
    assert dict(buckets)["1"] == 3
    assert dict(buckets)["+Inf"] == 4
    assert total == pytest.approx(7.0085)
