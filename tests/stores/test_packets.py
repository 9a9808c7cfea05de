"""Windows in seconds of packets that came unevenly: they are cut from an even grid."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from fedapa.csi.capture import Capture, packet_rates
from fedapa.errors import DataError
from fedapa.randomness import Key
from fedapa.stores.materialise import materialise, seen_as, survey
from fedapa.stores.packets import even_rate
from fedapa.stores.simulated import Task
from fedapa.stores.simulated_rooms import preset_of
from fedapa.stores.store import Store, write_store
from fedapa.windows.clean import clean
from fedapa.windows.origins import Origins
from fedapa.windows.recipe import Recipe
from fedapa.windows.stream import Windower

Times = Sequence[float] | npt.NDArray[np.float64]


def stored(
    folder: Path,
    recordings: Mapping[str, Times],
    *,
    levels: Sequence[float] | None = None,
    recipe: Recipe | None = None,
) -> Path:
    """A store of one room; every second subcarrier has twice the level of the first."""
    path = folder / "rooms.h5"
    with write_store(path) as store:
        about = {} if recipe is None else {"recipe": recipe.to_json()}
        store.add_room("cafe", synthetic=False, about=about)
        for label, (name, times) in enumerate(recordings.items()):
            rows = np.asarray(levels or 1 + np.random.default_rng(label).random(len(times)))
            store.add_recording(
                "cafe",
                name,
                label=label,
                amplitude=(rows[:, None, None] * [[1.0], [2.0]]).astype(np.float32),
                timestamps=np.asarray(times, np.float64),
                rate=packet_rates(np.asarray(times))[0],
            )
    return path


def test_windows_in_seconds_are_cut_from_an_even_grid(tmp_path: Path) -> None:
    """Every third packet is lost; it lies half way between its neighbours, and so does its value.

    At 10 per second: 1, 2, (2 + 6) / 2, 6 and 3, (3 + 5) / 2, 5, 8. Packets as they came would be
    1, 2, 6, 3, which took 0.5 s.
    """
    times, levels = [0.0, 0.1, 0.3, 0.4, 0.6, 0.7], [1.0, 2.0, 6.0, 3.0, 5.0, 8.0]
    path = stored(tmp_path, {"a": times}, levels=levels)
    (cafe,) = materialise(path, Recipe(seconds=0.4))
    grid = np.array([[1, 2, 4, 6], [3, 4, 5, 8]], np.float32)
    np.testing.assert_allclose(cafe.open(), np.stack([grid, 2 * grid], axis=2), rtol=1e-6)
    assert cafe.starts.tolist() == [0, 4]
    assert cafe.recipe.sentence() == (
        "windows of 4 packets (0.4 s at 10 per second, put onto an even grid), view amplitude"
    )
    (in_packets,) = materialise(path, Recipe(window=4))
    assert in_packets.open()[0, :, 0].tolist() == [1, 2, 6, 3], "packets stay as they came"
    assert in_packets.recipe.rate is None


def test_windows_do_not_span_a_gap_nor_are_neighbours_across_it(tmp_path: Path) -> None:
    """Six packets of the grid, nothing for 1.5 s, six more; a single packet before is left out.

    Their numbers are 0 to 5 and 12 to 17: a gap takes as many as there are from window to window.
    """
    times = [-2.0, 0.0, 0.1, 0.2, 0.4, 0.5, 2.0, 2.1, 2.2, 2.4, 2.5]
    path = stored(tmp_path, {"a": times}, levels=[9, 1, 2, 3, 7, 6, 3, 5, 7, 9, 8])
    (cafe,) = materialise(path, Recipe(seconds=0.6))
    grid = [[1, 2, 3, 5, 7, 6], [3, 5, 7, 8, 9, 8]]
    np.testing.assert_allclose(cafe.open()[:, :, 0], grid, rtol=1e-6)
    assert cafe.starts.tolist() == [0, 12]
    (surveyed,) = survey(path, Recipe(seconds=0.6))
    assert surveyed.starts.tolist() == [0, 12]
    origins = Origins.of(cafe.recordings, cafe.starts, spans=cafe.spans, step=cafe.step)
    assert not len(origins.blocks(np.arange(2), 2))


@pytest.fixture(scope="module")
def lossy() -> Capture:
    """Simulated packets of which 30 % are lost, with jitter, a gap and half-empty frames."""
    place = preset_of("smoke").places[0]
    capture = Task(replace(place, windows=12), max(place.counts), 0, 0, 12 * 64, 0).capture()
    stream = Key(0).numpy()
    times = (np.arange(capture.packets) + stream.uniform(-0.2, 0.2, capture.packets)) / 100
    times[400:] += 2.0
    csi = capture.csi.copy()
    csi[stream.random(capture.packets) < 0.03] = 0
    kept = stream.random(capture.packets) >= 0.3
    return replace(
        capture,
        csi=csi[kept],
        timestamps=times[kept],
        rssi=capture.rssi[kept],
        sequence=None if capture.sequence is None else capture.sequence[kept],
    )


@pytest.mark.parametrize("view", ["amplitude", "statistics"])
def test_stored_windows_are_those_of_a_live_counter_to_the_bit(
    tmp_path: Path, lossy: Capture, view: str
) -> None:
    cleaned = clean(lossy)
    path = tmp_path / "rooms.h5"
    receiver = Recipe(
        device=lossy.device,
        bandwidth=lossy.bandwidth,
        subcarriers=tuple(cleaned.subcarriers.tolist()),
        link_count=1,
    )
    with write_store(path) as store:
        store.add_room("cafe", synthetic=True, about={"recipe": receiver.to_json()})
        store.add_recording(
            "cafe",
            "a",
            label=0,
            amplitude=cleaned.amplitude,
            timestamps=cleaned.timestamps,
            rate=packet_rates(cleaned.timestamps)[0],
        )
    asked = Recipe(seconds=0.6, overlap=0.5, view=view)
    (cafe,) = materialise(path, asked)
    assert cafe.recipe.rate == pytest.approx(100, rel=0.1)
    windower = Windower(cafe.recipe)
    live = [windower.feed(lossy), windower.finish()]
    assert cafe.open().tobytes() == np.concatenate([windows.values for windows in live]).tobytes()
    assert cafe.starts.tolist() == [start for windows in live for start in windows.starts]
    ends, times = (
        np.concatenate([getattr(one, name) for one in live]) for name in ("ends", "times")
    )
    assert len(times) > 10
    assert np.ptp(ends - times) < 1e-6, "however many packets were lost"
    (surveyed,) = survey(path, asked)
    np.testing.assert_array_equal(surveyed.starts, cafe.starts)
    (seen,) = seen_as(path, surveyed, [view], [len(times) - 1])
    assert seen[0].tobytes() == cafe.open()[-1].tobytes()


def test_even_packets_stay_as_they_came_to_the_bit(tmp_path: Path) -> None:
    """Jitter of a tenth and one packet in a hundred lost."""
    stream = np.random.default_rng(1)
    times = (np.arange(400) + stream.uniform(-0.1, 0.1, 400)) / 100
    times = np.delete(times, [50, 130, 290, 301])
    path = stored(tmp_path, {"a": times})
    (cafe,) = materialise(path, Recipe(seconds=1.0))
    assert cafe.recipe.rate is None
    (in_packets,) = materialise(path, Recipe(window=cafe.recipe.window))
    assert cafe.digest == in_packets.digest


LOST = np.delete(np.arange(300) / 100, np.arange(2, 300, 3))
BURSTS = (np.arange(50)[:, None] * 0.1 + [0.0, 0.001, 0.002]).ravel()
SILENCES = (np.arange(5)[:, None] * 0.499 + np.arange(100) * 0.001).ravel()


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (np.arange(100) / 100, None),
        (LOST, 100.0),
        (BURSTS, 149 / 4.902),
        (SILENCES, 499 / 2.095),
        (np.concatenate([SILENCES, 60 + SILENCES]), 998 / 4.19),  # the minute between is a gap
        (np.repeat(np.arange(100) / 100, 2), 100.0),
        (LOST * 60, None),  # too slow for gaps of half a second
        (LOST[::-1], None),
        (np.concatenate([LOST, LOST]), None),
        (np.append(LOST, np.inf), None),
        (np.zeros(5), None),
    ],
    ids=[
        "even",
        "lost",
        "bursts",
        "rare silences",
        "a long gap",
        "equal stamps",
        "slow",
        "backwards",
        "set back",
        "not finite",
        "no time",
    ],
)
def test_the_grid_is_as_dense_as_packets_come(
    tmp_path: Path, times: npt.NDArray[np.float64], expected: float | None
) -> None:
    """LOST: intervals of 10 and 20 ms in turn. BURSTS of 3 packets every 0.1 s.

    SILENCES of 0.4 s after 100 packets each: 4 intervals of 499, but 76 % of the time.
    """
    finite = np.asarray(times)[np.isfinite(times)]
    with Store(stored(tmp_path, {"a": times})) as store:
        recipe = Recipe(packet_rate=packet_rates(finite)[0] or None)
        rate = even_rate(store, store.recordings("cafe"), recipe)
    assert rate == (None if expected is None else pytest.approx(expected))


def test_a_clock_that_was_set_back_leaves_packets_as_they_came(tmp_path: Path) -> None:
    (cafe,) = materialise(stored(tmp_path, {"a": [*LOST, *LOST]}), Recipe(seconds=1.0))
    assert cafe.recipe.rate is None
    assert len(cafe.starts) == 2 * len(LOST) // 100


def test_a_store_with_an_even_grid_is_not_resampled_again(tmp_path: Path) -> None:
    """Its stamps may lie: what the recipe says was done is done."""
    path = stored(tmp_path, {"a": LOST}, recipe=Recipe(rate=100.0))
    (cafe,) = materialise(path, Recipe(seconds=1.0))
    (in_packets,) = materialise(path, Recipe(window=100))
    assert cafe.digest == in_packets.digest


def test_a_recording_with_too_few_packets_for_the_grid_is_named(tmp_path: Path) -> None:
    dense = np.delete(np.arange(3000) / 1000, np.arange(2, 3000, 3))
    path = stored(tmp_path, {"a": dense, "b": [0.0, 0.45, 0.9, 1.35, 1.8]})
    with pytest.raises(
        DataError,
        match=r"rooms.h5: room 'cafe', recording 'b': 5 packets in 1.8 s are too few for a rate of "
        r"501.*; give windows in packets, .*: --set data.window=5$",
    ):
        materialise(path, Recipe(seconds=0.1))


def test_a_room_of_gaps_is_told_how_long_its_longest_part_is(tmp_path: Path) -> None:
    """Recording b has single packets only, so nothing says how long windows can be."""
    short = [0.0, 0.1, 0.3, 0.4]
    path = stored(tmp_path, {"a": short, "b": [0.0, 0.6], "c": short})
    with pytest.raises(
        DataError,
        match=r"longest recording has 5 packets without a gap of 0.5 s, a window needs 40; choose "
        r"a shorter window, e.g. --set data.window=4$",
    ):
        materialise(path, Recipe(seconds=4.0))
