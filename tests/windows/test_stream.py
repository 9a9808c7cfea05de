"""Windows from packets as they come: the same bytes, whatever the pieces."""

import tracemalloc
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from fedapa import Capture, read_capture
from fedapa.errors import DataError
from fedapa.randomness import Key
from fedapa.stores.simulated import Task
from fedapa.stores.simulated_rooms import preset_of
from fedapa.windows.clean import Amplitudes
from fedapa.windows.recipe import Recipe
from fedapa.windows.stream import Windower, Windows, segment_starts, window_starts

RECIPES = {
    "plain": Recipe(window=60),
    "overlapping": Recipe(window=60, stride=13),
    "every third window": Recipe(window=20, stride=60),
    "decimated": Recipe(window=64, stride=40, decimate=4),
    "resampled": Recipe(window=40, rate=90.0, longest_gap=0.04),
    "low-passed": Recipe(window=40, stride=10, rate=200.0, longest_gap=0.2, low_pass=20.0),
    "all of it": Recipe(
        window=48,
        stride=30,
        decimate=3,
        subcarrier_step=2,
        links="all",
        gate=0.3,
        rate=150.0,
        longest_gap=0.15,
        low_pass=30.0,
    ),
}


def part(capture: Capture, begin: int, end: int) -> Capture:
    return replace(
        capture,
        csi=capture.csi[begin:end],
        timestamps=capture.timestamps[begin:end],
        rssi=capture.rssi[begin:end],
        sequence=None,
    )


def fed(capture: Capture, recipe: Recipe, edges: list[int]) -> tuple[Windows, dict[str, int]]:
    windower = Windower(recipe)
    pieces = [
        windower.feed(part(capture, begin, end))
        for begin, end in pairwise([0, *edges, capture.packets])
    ]
    pieces.append(windower.finish())
    return Windows(
        np.concatenate([piece.values for piece in pieces]),
        np.concatenate([piece.starts for piece in pieces]),
        np.concatenate([piece.times for piece in pieces]),
        np.concatenate([piece.ends for piece in pieces]),
        tuple(fault for piece in pieces for fault in piece.faults),
    ), dict(windower.dropped)


def check_pieces(capture: Capture, recipe: Recipe, key: Key) -> Windows:
    """Random pieces, single packets and nothing at all among them, give what the file gives."""
    whole, dropped = fed(capture, recipe, [])
    for number, count in enumerate((1, 7, 40)):
        stream = (key / number).numpy()
        cuts = stream.integers(0, capture.packets + 1, count).tolist()
        edges = sorted([*cuts, *cuts[:2], *(cut + 1 for cut in cuts if cut < capture.packets)])
        pieces, left_out = fed(capture, recipe, edges)
        assert pieces.values.tobytes() == whole.values.tobytes()
        for name in ("starts", "times", "ends"):
            np.testing.assert_array_equal(getattr(pieces, name), getattr(whole, name))
        assert left_out == dropped
    return whole


def uneven(capture: Capture, key: Key) -> Capture:
    """Jitter, equal stamps and gaps; some packets half empty, some links."""
    stream = key.numpy()
    steps = stream.exponential(0.01, capture.packets)
    steps[stream.random(capture.packets) < 0.05] = 0.0
    steps[[capture.packets // 3, capture.packets // 2]] = 1.5
    csi = np.concatenate([capture.csi, capture.csi[::-1]], axis=2)
    csi[stream.random(capture.packets) < 0.03] = 0
    return replace(capture, csi=csi, timestamps=1.7e9 + np.cumsum(steps))


@pytest.fixture(scope="module")
def simulated() -> Capture:
    place = preset_of("smoke").places[0]
    return Task(replace(place, windows=12), max(place.counts), 0, 0, 12 * 64, 0).capture()


@pytest.mark.parametrize("name", RECIPES)
def test_a_simulated_capture_in_pieces(simulated: Capture, name: str) -> None:
    capture = uneven(simulated, Key(1))
    windows = check_pieces(capture, RECIPES[name], Key(0) / name)
    assert len(windows) > 2


@pytest.mark.data
@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize(
    "file", ["captures/nexmon/example_4366c0.pcap", "wiar/distance_1m/csi_a10_1.dat"]
)
def test_a_real_capture_in_pieces(shared_data: Path, file: str, name: str) -> None:
    recipe = RECIPES[name]
    if "4366c0" in file:
        # It fills half of its band, and has a packet every 0.1 s: more is a gap.
        recipe = replace(recipe, gate=0.0, longest_gap=None if recipe.rate is None else 0.15)
    windows = check_pieces(read_capture(shared_data / file), recipe, Key(0) / name)
    assert len(windows) > 2


def test_windows_have_the_same_bits_on_any_number_of_threads(simulated: Capture) -> None:
    recipe = Recipe(window=500, stride=50, view="statistics", packet_rate=125.0)
    made = []
    for threads in (1, 2, 4):
        with threadpool_limits(threads, "blas"):
            made.append(Windower(recipe).feed(simulated).values.tobytes())
    assert made[0]
    assert len(set(made)) == 1


def test_windows_say_when_they_were(simulated: Capture) -> None:
    windower = Windower(Recipe(window=100, stride=50, gate=0))
    windows = windower.feed(simulated)
    assert windows.starts.tolist() == list(window_starts(simulated.packets, windower.recipe))
    np.testing.assert_array_equal(windows.times, simulated.timestamps[windows.starts])
    np.testing.assert_array_equal(windows.ends, simulated.timestamps[windows.starts + 99])
    assert not len(windower.finish()), "nothing waits where nothing looks ahead"
    np.testing.assert_array_equal(np.asarray(windows), windows.values)


def test_no_window_spans_a_gap_when_resampling(simulated: Capture) -> None:
    stamps = np.arange(simulated.packets) / 100
    stamps[300:] += 3.0
    capture = replace(simulated, timestamps=stamps)
    windows, _ = fed(capture, Recipe(window=40, stride=5, rate=100.0, gate=0), [])
    assert ((windows.times < 3.0) == (windows.ends < 3.0)).all()
    np.testing.assert_allclose(windows.ends - windows.times, 0.39, atol=1e-9)
    starts = segment_starts((300, simulated.packets - 300), Recipe(window=40, stride=5))
    assert windows.starts.tolist() == starts
    assert 305 in starts, "the gap takes the numbers of a step"


def test_after_finish_another_recording_begins(simulated: Capture) -> None:
    recipe = RECIPES["low-passed"]
    alone, _ = fed(part(simulated, 100, 700), recipe, [])
    windower = Windower(recipe)
    windower.feed(part(simulated, 0, 300))
    windower.finish()
    again = [windower.feed(part(simulated, 100, 700)), windower.finish()]
    values = np.concatenate([piece.values for piece in again])
    assert values.tobytes() == alone.values.tobytes()
    assert again[0].starts[0] == 0


def test_stored_amplitudes_are_cut_as_the_capture_is(simulated: Capture) -> None:
    from fedapa.windows.clean import clean

    recipe = RECIPES["decimated"]
    cleaned = clean(simulated)
    windower = Windower(recipe)
    stored = [*windower.feed(cleaned), *windower.finish()]
    whole, _ = fed(simulated, recipe, [])
    assert np.stack(stored).tobytes() == whole.values.tobytes()


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(window=50, stride=20, decimate=2),
        Recipe(window=50, stride=20, rate=120.0),
        Recipe(window=50, stride=20, decimate=2, rate=120.0, low_pass=4.0),
    ],
)
def test_memory_does_not_grow_with_the_recording(simulated: Capture, recipe: Recipe) -> None:
    """A windower keeps a window, a stride, the margin and the low-pass's reach on both sides.

    And a piece: a capture of 10 packets, which resampling makes 12.
    """
    tracemalloc.start()
    try:
        windower, windows = Windower(recipe), 0
        for number in range(400):
            piece = part(simulated, number % 70 * 10, number % 70 * 10 + 10)
            stamps = (number * 10 + np.arange(10)) / 100
            windows += len(windower.feed(replace(piece, timestamps=stamps)))
        with_it, _ = tracemalloc.get_traced_memory()
        del windower
        held = with_it - tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert windows > 150
    packets = 50 + 20 + 2 * recipe.margin + 2 * recipe.reach + 12
    columns = 56  # live subcarriers, float32
    assert held < packets * 4 * columns + 20_000, "arrays, and objects of Python's"


def test_a_capture_of_another_receiver_is_refused(simulated: Capture) -> None:
    for changes, words in (
        ({"device": "nexmon 43455c0"}, "device is simulated, the recipe is for nexmon 43455c0"),
        ({"bandwidth": 80}, "bandwidth is 20, the recipe is for 80"),
        ({"link_count": 3}, "link_count is 1, the recipe is for 3"),
        ({"subcarriers": (1, 2, 99)}, "has no subcarrier 99"),
    ):
        fitting = {"device": "simulated", "bandwidth": 20, "subcarriers": (1, 2), "link_count": 1}
        with pytest.raises(DataError, match=words):
            Windower(Recipe(window=10, **{**fitting, **changes})).feed(simulated)


def test_a_recipe_without_packets_makes_no_windows() -> None:
    for recipe in (Recipe(), Recipe(source="features", window=5), Recipe(source="arrays")):
        with pytest.raises(DataError, match="makes no windows"):
            Windower(recipe)


def test_packets_between_windows_that_lie_apart_are_not_kept() -> None:
    """10 of every 10,000: what lies between is for nobody, however long it takes."""
    windower = Windower(Recipe(window=10, stride=10_000))
    made = 0
    for start in range(0, 30_000, 100):
        rows = np.random.default_rng(start).uniform(1, 2, (100, 4, 1)).astype(np.float32)
        times = np.arange(start, start + 100) / 100
        made += len(windower.feed(Amplitudes(rows, times, np.zeros(0, np.int16))))
        assert sum(len(rows) for rows, _ in windower._pieces) <= 200
    assert made == 3
