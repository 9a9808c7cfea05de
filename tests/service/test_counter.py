"""The live counter: what comes out for what comes in, and that nothing ends it."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
import pytest

from fedapa import Windower, load_model, read_capture
from fedapa.adaptation import Recentre
from fedapa.csi.capture import Capture
from fedapa.errors import DataError, PlanError
from fedapa.service.counter import Count, CounterSettings, LiveCounter
from tests.service.conftest import Served
from tests.service.made import RATE, level_model, packets

FAST = CounterSettings(presence=1.0, memory=1.0)


def fed(
    counter: LiveCounter, capture: Capture, *, size: int = 3, later: float = 100.0
) -> list[Count]:
    """What is counted when so many packets come at a time, received ``later`` than stamped."""
    made = []
    for first in range(0, capture.packets, size):
        part = slice(first, first + size)
        piece = capture.part(part)
        made += counter.feed(piece, float(piece.timestamps.max()) + later)
    return made


def test_a_count_comes_with_the_first_window_and_then_every_five_seconds() -> None:
    """Windows of 10 packets at 10 per second: the first ends with packet 9, at 0.9 s."""
    counts = fed(LiveCounter(level_model(), FAST), packets([2] * 200))
    assert [round(count.time - 100, 3) for count in counts] == [0.9, 5.9, 10.9, 15.9]
    assert {(count.room, count.state, count.count) for count in counts} == {("cafe", "counting", 2)}
    first = counts[0]
    assert first.people == (0, 1, 2, 3)
    assert sum(first.belief) == pytest.approx(1)
    assert first.lo == first.hi == first.raw == 2
    assert first.confidence == max(first.belief) > 0.9


@pytest.mark.parametrize("size", [1, 7, 200])
def test_counts_do_not_depend_on_how_packets_are_fed(size: int) -> None:
    people = [0] * 60 + [3] * 80 + [1] * 60
    expected = fed(LiveCounter(level_model(), FAST), packets(people), size=10)
    found = fed(LiveCounter(level_model(), FAST), packets(people), size=size)
    assert [round(count.time, 6) for count in found] == [round(c.time, 6) for c in expected]
    for one, other in zip(found, expected, strict=True):
        assert (one.state, one.count) == (other.state, other.count)
        np.testing.assert_allclose(one.belief, other.belief, atol=1e-9)


def test_it_follows_faster_up_than_down() -> None:
    """With equal memories, three people who came are there sooner than gone again."""
    settings = CounterSettings(every=0.5, arrivals=0.05, departures=0.01, presence=2.0, memory=2.0)
    model = replace(level_model(stride=2), _session=replace(level_model()._session, sharpness=2.0))
    people = [0] * 100 + [3] * 150 + [0] * 150
    counts = fed(LiveCounter(model, settings), packets(people), later=0)
    up = next(count.time for count in counts if count.time > 10 and count.count == 3) - 10
    down = next(count.time for count in counts if count.time > 25 and count.count == 0) - 25
    assert up < down


def test_an_empty_room_is_told_at_once_and_more_people_when_they_stay() -> None:
    """A window has 1 s: nobody is told with the first whole one, three for a second never."""
    settings = CounterSettings(every=0.5)
    people = [1] * 100 + [3] * 10 + [1] * 90 + [0] * 100 + [3] * 300
    counts = fed(LiveCounter(level_model(stride=2), settings), packets(people), later=0)

    def told(begin: float, end: float) -> set[int | None]:
        return {count.count for count in counts if begin <= count.time < end}

    assert told(9.0, 13.0) == {1}
    assert told(21.5, 30.0) == {0}
    assert told(33.0, 60.0) == {3}


@dataclass(frozen=True)
class Squares:
    """Stands for onnxruntime: logits −20·(n − level)², but for what all classes share."""

    def run(self, names: Sequence[str], given: dict[str, Any]) -> list[np.ndarray]:
        level = float(given["windows"].mean()) - 1
        logits = [40.0 * n * level - 20.0 * n * n for n in range(4)]
        return [np.array([logits], np.float32), np.array([[level, 0.0]], np.float32)]


def counted_today(recentre: Recentre) -> list[Count]:
    """One, two and three people look like 0.55, 1.55 and 2.45 today; nobody looks as always."""
    weight = np.array([[40.0 * n, 0.0] for n in range(4)], np.float32)
    bias = np.array([-20.0 * n * n for n in range(4)], np.float32)
    model = replace(level_model(stride=2), classifier=(weight, bias), _session=Squares(), reach=5.0)
    people = [0.0] * 50 + [0.55] * 150 + [1.55] * 150 + [2.45] * 150
    return fed(LiveCounter(model, CounterSettings(recentre=recentre)), packets(people), later=0)


def test_numbers_follow_the_day_and_an_empty_room_stays_empty() -> None:
    """One and two lie 0.45 lower, so the mean over four classes is −0.2, and 2.45 means three."""
    plain, followed = (counted_today(how) for how in get_args(Recentre)[::2])
    assert {count.count for count in followed if count.time < 5} == {0}
    assert [plain[-1].count, followed[-1].count] == [2, 3]
    assert followed[-1].raw == 2


def test_a_room_without_packets_is_unavailable_and_says_no_count() -> None:
    counter = LiveCounter(level_model(), FAST)
    fed(counter, packets([2] * 30), later=0)  # the last packet came at 2.9 s
    assert counter.last is not None
    assert counter.last.count == 2
    made = [count for second in range(3, 25) for count in counter.tick(float(second))]
    first = next(count for count in made if count.state == "unavailable")
    assert first.time == pytest.approx(12.9)
    assert first.reason == "no packets for 10 s"
    assert (first.count, first.lo, first.hi, first.confidence) == (None, None, None, None)
    assert all(count.count is None for count in made if count.time > 12.9)
    back = fed(counter, packets([1] * 30, start=30), later=0)
    assert [count.state for count in back][-1] == "counting"
    assert [count.count for count in back if count.time < 30.85] == [None]  # no whole window yet


def test_before_the_first_window_there_is_no_count() -> None:
    counter = LiveCounter(level_model(), CounterSettings(every=0.5))
    counts = fed(counter, packets([1] * 8), later=0)
    assert [(count.state, count.reason) for count in counts] == [
        ("unavailable", "the first window is not complete yet")
    ]


def test_a_long_silence_is_told_at_its_begin_and_end() -> None:
    """A clock that jumps ten years does not make a hundred million counts."""
    counter = LiveCounter(level_model(), FAST)
    fed(counter, packets([1] * 30), later=0)
    counts = fed(counter, packets([1] * 30, start=2.0**28), later=0)
    assert len(counts) < 8
    silent = [count.time for count in counts if count.state == "unavailable"]
    assert silent[0] == pytest.approx(12.9)
    assert counter.last is not None
    assert counter.last.state == "counting"
    assert counter.faulty["cut off by a gap"] == 1
    assert counter.skipped == {}


def test_windows_far_from_every_prototype_are_unsure() -> None:
    """Nine people in a model of 0 to 3: six from the nearest prototype, twelve reaches of 0.5."""
    counts = fed(LiveCounter(level_model(), FAST), packets([9] * 30))
    assert counts[-1].state == "unsure"
    assert counts[-1].reason.startswith("12.0 times as far from every prototype")
    assert counts[-1].count == 3


def test_little_confidence_is_unsure() -> None:
    flat = replace(level_model(), _session=replace(level_model()._session, sharpness=0.0))
    counts = fed(LiveCounter(flat, CounterSettings(least_confidence=0.3)), packets([1] * 30))
    assert counts[0].state == "unsure"
    assert counts[0].reason == "the count is less than 30 % probable"
    assert (counts[0].lo, counts[0].hi) == (0, 3)


def test_packets_out_of_order_are_skipped_and_counted() -> None:
    capture = packets([2] * 100)
    order = np.arange(100)
    order[[40, 41]] = [41, 40]
    mixed = replace(capture, csi=capture.csi[order], timestamps=capture.timestamps[order])
    counter = LiveCounter(level_model(), FAST)
    counts = fed(counter, mixed, size=100)
    assert counter.skipped == {"out of order": 1}
    assert counter.packets == 100
    assert counts[-1].count == 2


def test_a_clock_that_is_set_back_begins_a_new_recording() -> None:
    """No window is of packets from before and after; the count goes on."""
    counter = LiveCounter(level_model(), FAST)
    before, after = packets([1] * 25, start=5000), packets([1] * 25)
    made = counter.feed(before, 10.0) + counter.feed(after, 12.5)
    assert counter.faulty == {"cut off by a clock that was set back": 1}
    assert [count.state for count in made] == ["counting"]
    both = replace(
        before,
        csi=np.concatenate([before.csi, after.csi]),
        timestamps=np.concatenate([before.timestamps, after.timestamps]),
        rssi=np.concatenate([before.rssi, after.rssi]),
    )
    again = LiveCounter(level_model(), FAST)
    assert again.feed(both, 12.5)[-1].count == 1
    assert again.faulty == counter.faulty


def test_the_receiving_clock_may_be_set_back() -> None:
    counter = LiveCounter(level_model(), FAST)
    fed(counter, packets([1] * 50), later=10_000)
    counts = fed(counter, packets([1] * 120, start=5.0), later=0)
    assert counts[0].time < 100
    assert {count.state for count in counts} == {"counting"}


def test_packets_of_another_receiver_are_skipped_and_named() -> None:
    counter = LiveCounter(level_model(), FAST)
    counts = fed(counter, packets([1] * 300, device="other"))
    assert counter.skipped == {
        "device is other, the recipe is for test; use a recipe of this receiver": 300
    }
    assert {count.state for count in counts} == {"unavailable"}
    assert counts[-1].reason.startswith("packets do not fit: device is other")


def test_strangers_between_do_not_disturb() -> None:
    """A second receiver on the same port: its packets are counted, windows are as without it."""
    alone, disturbed = LiveCounter(level_model(), FAST), LiveCounter(level_model(), FAST)
    expected = fed(alone, packets([2] * 100))
    made = []
    for first in range(0, 100, 5):
        piece = packets([2] * 100).part(slice(first, first + 5))
        received = float(piece.timestamps[-1]) + 100
        made += disturbed.feed(packets([0] * 5, device="other"), received - 0.01)
        made += disturbed.feed(piece, received)
    assert [count.count for count in made] == [count.count for count in expected]
    assert disturbed.skipped.total() == 100


def test_packets_at_another_rate_are_no_windows_of_this_model() -> None:
    counter = LiveCounter(level_model(), FAST)
    counts = fed(counter, packets([1] * 400, rate=30.0))
    assert counts[-1].state == "unavailable"
    assert "about 30 packets per second, the model is for 10" in counts[-1].reason
    assert counter.faulty.total() == 79


def test_resampled_packets_may_come_at_another_rate() -> None:
    counter = LiveCounter(level_model(rate=RATE, longest_gap=0.5), FAST)
    counts = fed(counter, packets([1] * 400, rate=30.0))
    assert {count.state for count in counts} == {"counting"}
    assert counts[-1].count == 1


def test_too_few_packets_for_the_grid_do_not_end_it() -> None:
    """A packet in a hundred seconds is refused by the resampler; then packets come again."""
    model = level_model(rate=1000.0, longest_gap=1e6, window=10)
    counter = LiveCounter(model, FAST)
    for number in range(5):
        counter.feed(packets([1, 1], start=1000.0 * number, rate=0.01), 1000.0 * number)
    assert counter.skipped.total() > 0
    counts = fed(counter, packets([1] * 100, start=1e5), later=0)
    assert counts[-1].count == 1


def test_nothing_that_a_stranger_sends_ends_it() -> None:
    """Any stamps and any numbers: a state, never an exception, and memory that is bounded."""
    draw = np.random.default_rng(0)
    counter = LiveCounter(level_model(), FAST)
    received = 0.0
    for number in range(300):
        count = int(draw.integers(0, 12))
        piece = packets(draw.normal(0, 3, count), device=draw.choice(["test", f"other {number}"]))
        stamps = draw.choice([1e-3, 1.0, 1e9], count) * draw.normal(size=count)
        csi = piece.csi.copy()
        csi[draw.random(count) < 0.1] = np.nan
        received += float(draw.normal(1, 5))
        for made in counter.feed(replace(piece, timestamps=stamps, csi=csi), received):
            assert made.state in ("counting", "unsure", "unavailable")
    assert len(counter.skipped) <= 33
    assert len(counter.faulty) <= 33


def test_any_time_of_day_has_an_end() -> None:
    """Seconds since 1970 have few digits behind the point: a timeout is over when it is over."""
    draw = np.random.default_rng(1)
    for begin in draw.uniform(1e9, 2e9, 40):
        counter = LiveCounter(level_model(), CounterSettings(every=0.7, timeout=3.3))
        counter.feed(packets([1] * 30), begin)
        made = counter.tick(begin + 3.2) + counter.tick(begin + 3.4) + counter.tick(float("nan"))
        assert [count.state for count in made][-1] == "unavailable"
        assert len(made) < 10


def test_another_model_takes_over_without_a_gap() -> None:
    counter = LiveCounter(level_model(), FAST)
    fed(counter, packets([2] * 57))
    held = counter.last
    newer = replace(level_model(), _session=replace(level_model()._session, sharpness=30.0))
    counter.take(newer)
    assert counter.last is held
    counts = fed(counter, packets([2] * 60, start=5.7))
    assert {(count.state, count.count) for count in counts} == {("counting", 2)}
    with pytest.raises(DataError, match="start a new counter"):
        counter.take(level_model((0, 1)))


def test_categories_are_no_counts() -> None:
    with pytest.raises(DataError, match="no numbers of people"):
        LiveCounter(replace(level_model(), classes=("sit", "walk", "run", "lie")))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("every", 0.0),
        ("timeout", float("nan")),
        ("coverage", 1.0),
        ("presence", 0.0),
        ("stillness", -1),
    ],
)
def test_settings_that_cannot_be_are_refused(name: str, value: float) -> None:
    with pytest.raises(PlanError, match=f"{name} = "):
        CounterSettings(**{name: value})


def pieces(capture: Capture, size: int) -> Iterator[Capture]:
    for first in range(0, capture.packets, size):
        part = slice(first, first + size)
        yield capture.part(part)


def test_what_is_served_is_what_was_tested(served: Served) -> None:
    """Window by window, the counter's probabilities are those of the model file, to the bit."""
    model = load_model(served.model)
    for path in served.captures[:2]:
        capture = read_capture(path)
        expected = model.probabilities(Windower(model.recipe).feed(capture))
        counter = LiveCounter(model)
        found = []
        for piece in pieces(capture, 7):
            counter.feed(piece, float(piece.timestamps[-1]))
            if counter.latest is not None and (
                not found or found[-1] is not counter.latest.probabilities
            ):
                found.append(counter.latest.probabilities)
        assert np.stack(found).tobytes() == expected.tobytes()
        assert counter.last is not None
        assert counter.last.synthetic


@pytest.mark.parametrize("factor", [1e-42, 1e30, 1e35])
def test_numbers_without_measure_end_nothing(served: Served, factor: float) -> None:
    """Sums of 1e38 are infinite in single precision: a faulty window, or a count, no exception."""
    capture = read_capture(served.captures[0])
    counter = LiveCounter(load_model(served.model), CounterSettings(every=0.5))
    with np.errstate(over="ignore"):
        csi = capture.csi * np.float32(factor)
    made = counter.feed(replace(capture, csi=csi), 10.0)
    windows = counter.faulty.total() + sum(count.count is not None for count in made)
    assert windows > 0 or counter.dropped.total() + counter.skipped.total() == capture.packets


_WITHOUT_TORCH = """
import importlib, pkgutil, sys
import fedapa.service
for module in pkgutil.walk_packages(fedapa.service.__path__, "fedapa.service."):
    importlib.import_module(module.name)
print([name for name in ("torch", "numba", "matplotlib", "sklearn") if name in sys.modules])
"""


def test_the_service_needs_no_torch() -> None:
    command = [sys.executable, "-c", _WITHOUT_TORCH]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_where_nothing_moves_nobody_is_there_whatever_the_model_says() -> None:
    """A model that says three by a level that another day has changed; people who move, then none.

    The packets have noise of their own, so that what is still can be told from what moves.
    """
    draw = np.random.default_rng(0)
    people = packets([3] * 1200)
    moved = np.where(np.arange(1200) < 600, np.exp(0.3 * np.sin(np.arange(1200) / 2.7)), 1.0)
    side = np.where(np.arange(people.csi.shape[1]) % 2, 1, -1)
    noise = np.exp(draw.normal(0, 0.02, people.csi.shape[:2]))
    csi = people.csi * (moved[:, None] ** side * noise).astype(np.float32)[:, :, None, None]
    capture = replace(people, csi=csi.astype(np.complex64))
    told = {}
    for stillness in (4, 0):
        counts = fed(LiveCounter(level_model(), CounterSettings(stillness=stillness)), capture)
        told[stillness] = [count.count for count in counts if count.time > 100 + 70]
    assert told[4].count(0) >= 8
    assert len(told[4]) == 10
    assert 0 not in told[0]
