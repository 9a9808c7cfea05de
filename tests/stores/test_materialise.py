"""Cutting: which windows come out, once, and what is refused by room and index."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from fedapa.errors import DataError
from fedapa.processes import Progress
from fedapa.stores.append import append_store
from fedapa.stores.materialise import materialise, short_recordings, survey
from fedapa.stores.store import Store, write_store
from fedapa.windows.clean import Amplitudes
from fedapa.windows.recipe import Recipe
from fedapa.windows.stream import Windower
from tests.conftest import MakeStore


def test_windows_are_the_packets_of_their_take(make_store: MakeStore) -> None:
    path = make_store({"cafe": {0: 1, 2: 2}}, packets=70)
    (cafe,) = materialise(path, Recipe(window=32))
    values = cafe.open()
    assert values.shape == (6, 32, 6), "two whole windows a take, the rest is left over"
    assert cafe.labels == (0, 0, 2, 2, 2, 2)
    assert cafe.recordings == ("0-0", "0-0", "2-0", "2-0", "2-1", "2-1")
    assert cafe.days == ("day 0", "day 0", "day 0", "day 0", "day 1", "day 1")
    assert not any(cafe.continuous)
    assert cafe.starts.tolist() == [0, 32, 0, 32, 0, 32]
    with Store(path) as store:
        take = store.recordings("cafe")[2]
        np.testing.assert_array_equal(values[5], store.read(take, 32, 64)[:, :, 0])


def test_windows_of_continuous_recordings_are_marked(make_store: MakeStore) -> None:
    path = make_store({"cafe": {0: 1, 2: 2}})
    with h5py.File(path, "r+") as file:
        file["cafe/2-0"].attrs["part"] = "continuous"
    (cafe,) = materialise(path, Recipe(window=32))
    assert cafe.continuous == (False, False, True, True, False, False)


def test_what_recordings_are_too_short_for_is_told(make_store: MakeStore) -> None:
    """Takes of 70 packets, two of 20: a window of 32 leaves these two, and with them class 3."""
    path = make_store({"cafe": {0: 2, 2: 2}, "hall": {0: 1, 1: 1}}, packets=70)
    assert short_recordings(path, Recipe(window=32)) == []
    with append_store(path) as store:
        for number in range(2):
            rows = np.linspace(1, 2, 20 * 6, dtype=np.float32).reshape(20, 6, 1)
            store.add_stream("cafe", f"3-{number}", [(rows, np.arange(20) / 100)], label=3)
    left_out, lost = short_recordings(path, Recipe(window=32))
    assert "Room 'cafe': 2 of 6 recordings are left out, shorter than a window of 32" in left_out
    assert "(3-0, 3-1)" in left_out
    assert "nothing is left of class 3" in lost
    (shorter,) = short_recordings(path, Recipe(seconds=0.5), rooms=["cafe"])
    assert shorter.startswith("Room 'cafe': windows are of 20 packets (0.2 s), shorter than asked")
    assert short_recordings(path, Recipe(window=32), rooms=["hall"]) == []


def test_stride_overlaps(make_store: MakeStore) -> None:
    (cafe,) = materialise(make_store({"cafe": {0: 1, 1: 1}}), Recipe(window=32, stride=16))
    assert cafe.starts.tolist() == [0, 16, 32] * 2


def test_the_second_call_reads_the_cache(make_store: MakeStore) -> None:
    path = make_store()
    first = materialise(path, Recipe(window=16))
    stamp = first[0].path.stat().st_mtime_ns
    assert materialise(path, Recipe(window=16))[0].path.stat().st_mtime_ns == stamp
    other = materialise(path, Recipe(window=32))
    assert other[0].path != first[0].path


def test_windows_are_the_same_by_any_number_of_workers(
    make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is enough to cut; fewer packets are cut at once, in this process."""
    store, recipe = make_store(packets=96), Recipe(window=64, overlap=0.5, view="statistics")
    recipe = replace(recipe, packet_rate=125.0)
    made, told = {}, {}
    for workers, worth in ((1, 0), (2, 0), (2, 1 << 30)):
        monkeypatch.setattr("fedapa.stores.materialise.WORTH_WORKERS", worth)
        monkeypatch.setenv("FEDAPA_CACHE", str(tmp_path / f"{workers}-{worth}"))
        seen: list[Progress] = []
        rooms = materialise(store, recipe, workers=workers, show=seen.append)
        made[workers, worth] = [
            (room.path.read_bytes(), room.digest, room.labels) for room in rooms
        ]
        told[workers, worth] = [(step.done, step.total) for step in seen]
    assert made[1, 0] == made[2, 0] == made[2, 1 << 30]
    assert told[1, 0] == told[2, 0] == [(1, 2), (2, 2)]


def test_what_is_wrong_is_told_in_the_same_words_by_workers(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedapa.stores.materialise.WORTH_WORKERS", 0)
    store, said = make_store(packets=32), set()
    for workers in (1, 2):
        with pytest.raises(DataError, match="room 'cafe' has no windows") as problem:
            materialise(store, Recipe(window=64), workers=workers)
        said.add(str(problem.value))
    assert len(said) == 1


def test_windows_are_memory_mapped(make_store: MakeStore) -> None:
    (room, _) = materialise(make_store(), Recipe(window=16))
    assert isinstance(room.open(), np.memmap)


def test_stacked_links_stand_side_by_side(tmp_path: Path) -> None:
    path = tmp_path / "rooms.h5"
    amplitude = np.arange(4 * 3 * 2, dtype=np.float32).reshape(4, 3, 2)
    with write_store(path) as store:
        store.add_room("cafe", synthetic=False, about={})
        for label in (0, 1):
            store.add_recording(
                "cafe", str(label), label=label, amplitude=amplitude, timestamps=np.arange(4.0)
            )
    (stacked,) = materialise(path, Recipe(window=4, links="all"))
    np.testing.assert_array_equal(stacked.open()[0][:, :3], amplitude[:, :, 0])
    np.testing.assert_array_equal(stacked.open()[0][:, 3:], amplitude[:, :, 1])
    (first,) = materialise(path, Recipe(window=4))
    np.testing.assert_array_equal(first.open()[0], amplitude[:, :, 0])


def test_every_third_tone_of_each_link(tmp_path: Path) -> None:
    path = tmp_path / "rooms.h5"
    amplitude = np.arange(4 * 5 * 2, dtype=np.float32).reshape(4, 5, 2)
    with write_store(path) as store:
        store.add_room("lab", synthetic=False, about={})
        store.add_recording("lab", "a", label=0, amplitude=amplitude, timestamps=np.arange(4.0))
    (thinned,) = materialise(path, Recipe(window=4, links="all", subcarrier_step=3))
    np.testing.assert_array_equal(
        thinned.open()[0], np.concatenate([amplitude[:, ::3, 0], amplitude[:, ::3, 1]], axis=1)
    )
    (whole,) = materialise(path, Recipe(window=4, links="all"))  # another file of the cache
    assert whole.open().shape == (1, 4, 10)


def cut(values: np.ndarray, recipe: Recipe) -> list[np.ndarray]:
    windower = Windower(recipe)
    packets = Amplitudes(values, np.arange(float(len(values))), np.zeros(0, np.int16))
    return [*windower.feed(packets), *windower.finish()]


def test_decimation_keeps_slow_and_drops_fast() -> None:
    """At 1000 Hz by 8: a 5 Hz tone stays, a 200 Hz tone above the new Nyquist (62.5 Hz) goes."""
    time = np.arange(3000) / 1000
    slow, fast = np.sin(2 * np.pi * 5 * time), np.sin(2 * np.pi * 200 * time)
    values = (np.stack([slow, fast], axis=1) + 2)[:, :, None].astype(np.float32)
    window = cut(values, Recipe(window=1000, decimate=8))[1]
    assert window.shape == (125, 2)
    np.testing.assert_allclose(window[:, 0] - 2, slow[1000:2000:8], atol=0.02)
    np.testing.assert_allclose(window[:, 1], 2, atol=0.01)


def test_decimation_does_not_depend_on_where_else_windows_are_cut() -> None:
    values = (3 + np.sin(np.arange(600) / 9))[:, None, None].astype(np.float32)
    long = cut(values, Recipe(window=400, stride=100, decimate=4))[1]
    short = cut(values, Recipe(window=200, decimate=4))[1]
    np.testing.assert_allclose(long[25:75], short, atol=1e-5)


def test_features_are_windows_already(tmp_path: Path) -> None:
    path = tmp_path / "rooms.h5"
    with write_store(path) as store:
        store.add_room("lab", synthetic=False, about={})
        for label in (0, 1):
            features = np.arange(6, dtype=np.float32).reshape(3, 2) + label
            store.add_features("lab", f"P{label}", label=label, features=features)
    (lab,) = materialise(path, Recipe(window=1000))
    assert lab.open().shape == (6, 2)
    assert lab.spans == 1
    assert lab.starts.tolist() == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(
    ("value", "complaint"), [(np.nan, "holds NaN or infinity"), (np.inf, "holds NaN or infinity")]
)
def test_a_bad_window_is_named_by_room_and_index(
    make_store: MakeStore, value: float, complaint: str
) -> None:
    path = make_store({"cafe": {0: 1, 1: 1}})
    with h5py.File(path, "r+") as file:
        file["cafe"]["1-0"]["amplitude"][40, 0, 0] = value
    with pytest.raises(
        DataError, match=f"room 'cafe', window 3 .*'1-0', from row 32.* {complaint}"
    ):
        materialise(path, Recipe(window=32))
    (cafe,) = materialise(path, Recipe(window=32, bad_windows="drop"))
    assert cafe.labels == (0, 0, 1)
    assert cafe.open().shape == (3, 32, 6)


def test_a_constant_window_is_named(make_store: MakeStore) -> None:
    path = make_store({"cafe": {0: 1, 1: 1}})
    with h5py.File(path, "r+") as file:
        file["cafe"]["0-0"]["amplitude"][:32] = 7.0
    with pytest.raises(DataError, match=r"window 0 .* is constant \(7 everywhere\)"):
        materialise(path, Recipe(window=32))


def test_too_short_recordings_are_named(make_store: MakeStore) -> None:
    with pytest.raises(
        DataError,
        match=r"room 'cafe' has no windows: its longest recording has 64 packets.* "
        r"--set data\.window=64",
    ):
        materialise(make_store(), Recipe(window=65))


def test_a_store_without_rooms_is_refused(tmp_path: Path) -> None:
    with write_store(tmp_path / "empty.h5"):
        pass
    with pytest.raises(DataError, match="holds no rooms"):
        materialise(tmp_path / "empty.h5", Recipe(window=1000))


def test_windows_have_a_digest_and_a_recipe(make_store: MakeStore) -> None:
    path = make_store()
    cafe, hall = materialise(path, Recipe(window=16))
    assert cafe.digest != hall.digest
    assert materialise(path, Recipe(window=16))[0].digest == cafe.digest
    assert materialise(path, Recipe(window=16), rooms=["hall"])[0].digest == hall.digest
    assert materialise(path, Recipe(window=32))[0].digest != cafe.digest
    assert (cafe.recipe.window, cafe.recipe.source) == (16, "packets")


def overwrite(path: Path, place: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        file.write(content)


def change_note(path: Path, **values: object) -> None:
    note = path.with_suffix(".json")
    note.write_text(json.dumps({**json.loads(note.read_text()), **values}))


def make_folder(path: Path) -> None:
    path.unlink()
    (path / "inside").mkdir(parents=True)


def same_time(path: Path, damage: Callable[[Path], None]) -> None:
    status = path.stat()
    damage(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "another value": lambda path: overwrite(path, 500, b"\x00\x00\x80\x3f"),
    "another value, the old time": lambda path: same_time(
        path, lambda path: overwrite(path, 500, b"\x00\x00\x80\x3f")
    ),
    "cut": lambda path: os.truncate(path, 300),
    "cut in its header": lambda path: os.truncate(path, 20),
    "empty": lambda path: os.truncate(path, 0),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"more"),
    "gone": lambda path: path.unlink(),
    "no array": lambda path: path.write_bytes(b"hello" * 100),
    "an archive": lambda path: path.write_bytes(b"PK\x03\x04" + bytes(200)),
    "another shape": lambda path: np.save(path, np.ones((2, 3), np.float32)),
    "doubles": lambda path: np.save(path, np.ones((12, 16, 6))),
    "objects": lambda path: np.save(path, np.array([{}, None]), allow_pickle=True),
    "a folder": make_folder,
    "a link to nothing": lambda path: (path.unlink(), path.symlink_to("nowhere")),
    "no note": lambda path: path.with_suffix(".json").unlink(),
    "an empty note": lambda path: path.with_suffix(".json").write_text(""),
    "half a note": lambda path: os.truncate(path.with_suffix(".json"), 60),
    "a note that is null": lambda path: path.with_suffix(".json").write_text("null"),
    "a note that is a list": lambda path: path.with_suffix(".json").write_text("[1]"),
    "a deep note": lambda path: path.with_suffix(".json").write_text("[" * 100_000),
    "a note in no UTF-8": lambda path: path.with_suffix(".json").write_bytes(b"\xff\xfe{}"),
    "a folder for a note": lambda path: make_folder(path.with_suffix(".json")),
    "another version": lambda path: change_note(path, version=99),
    "another digest": lambda path: change_note(path, digest="0" * 32),
    "a digest that is none": lambda path: change_note(path, digest=None),
    "other labels": lambda path: change_note(path, about={"labels": [0] * 12}),
    "nothing about it": lambda path: change_note(path, about=None),
    "another size": lambda path: change_note(path, size="large"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_cache_is_made_again(make_store: MakeStore, damage: str) -> None:
    path = make_store(name=f"{damage}.h5")
    first = materialise(path, Recipe(window=16))[0]
    values = np.array(first.open())
    DAMAGES[damage](first.path)
    again = materialise(path, Recipe(window=16))[0]
    np.testing.assert_array_equal(again.open(), values)
    assert (again.labels, again.recordings, again.digest) == (
        first.labels,
        first.recordings,
        first.digest,
    )


def test_a_kept_normaliser_with_other_numbers_is_made_again(make_store: MakeStore) -> None:
    cafe = materialise(make_store(), Recipe(window=16))[0]
    train = np.arange(10)
    made = cafe.normaliser(train)
    (kept,) = cafe.path.parent.glob("cafe.*.normaliser")
    for damage in (lambda: overwrite(kept, 3, b"\x40"), lambda: kept.write_bytes(b"")):
        damage()
        assert cafe.normaliser(train) == made


_FULL_DISK = """
import resource, sys
from dataclasses import replace
from pathlib import Path
from fedapa.stores.materialise import materialise
from fedapa.windows.recipe import Recipe
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    materialise(Path(sys.argv[1]), Recipe(window=16, stride=1))
except OSError as error:
    print(error)
"""


def test_no_room_for_the_windows_is_an_error_that_names_the_file(
    make_store: MakeStore, own_cache: Path
) -> None:
    path = make_store(name="large.h5")
    command = [sys.executable, "-c", _FULL_DISK, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "File too large" in done.stdout
    assert "cafe.npy" in done.stdout
    assert not list(own_cache.rglob(".cafe.npy*.partial"))
    materialise(path, Recipe(window=16, stride=1))


def test_windows_in_seconds_follow_each_rooms_rate(tmp_path: Path) -> None:
    """2 s are 20 packets at 10 per second and 40 at 20, and recordings of 30 leave 30 of them."""
    path = tmp_path / "rooms.h5"
    stream = np.random.default_rng(0)
    with write_store(path) as store:
        for room, rate, packets in (("slow", 10.0, 60), ("fast", 20.0, 80), ("short", 20.0, 30)):
            store.add_room(room, synthetic=False, about={})
            for label in (0, 1):
                store.add_recording(
                    room,
                    str(label),
                    label=label,
                    amplitude=stream.uniform(1, 2, (packets, 5, 1)).astype(np.float32),
                    timestamps=np.arange(packets) / rate,
                    rate=rate,
                )
    cut = materialise(path, Recipe(seconds=2.0, overlap=0.5, view="spectrum"))
    assert {own.room: (own.recipe.window, own.recipe.stride) for own in cut} == {
        "fast": (40, 20),
        "short": (30, 15),
        "slow": (20, 10),
    }
    assert {own.open().shape[1:] for own in cut} == {(16, 5)}, "one shape at any packet rate"
    assert [own.recipe.packet_rate for own in cut] == [20.0, 20.0, 10.0]


@pytest.mark.parametrize(
    ("lengths", "gap", "window", "words"),
    [
        ({0: 60, 1: 60}, 0, 40, ""),
        ({0: 30, 1: 20}, 0, 20, "no recordings for 4 s"),
        (
            {0: 60, 1: 8},
            0,
            8,
            "not 4 s: half of the recordings of class 1 are shorter; record longer ones",
        ),
        (
            {0: 60, 1: 60, 2: 8},
            0,
            8,
            "not 4 s: half of the recordings of class 2 are shorter; record longer ones, or leave "
            "them out: --set data.window=40",
        ),
        (
            {0: 60, 1: 60},
            30,
            30,
            "not 4 s: half of the recordings of every class have no such time without a gap of "
            "0.5 s; record without gaps",
        ),
    ],
)
def test_a_shorter_window_names_the_reason(
    lengths: dict[int, int], gap: int, window: int, words: str, tmp_path: Path
) -> None:
    """4 s at 10 per second are 40 packets; a gap of 2 s after 30 of 60 leaves 30."""
    path = tmp_path / "rooms.h5"
    stream = np.random.default_rng(0)
    with write_store(path) as store:
        store.add_room("cafe", synthetic=False, about={})
        for label, packets in lengths.items():
            times = np.arange(packets) / 10
            times[gap:] += 2.0 * bool(gap)
            store.add_recording(
                "cafe",
                str(label),
                label=label,
                amplitude=stream.uniform(1, 2, (packets, 5, 1)).astype(np.float32),
                timestamps=times,
                rate=10.0,
            )
    (cafe,) = materialise(path, Recipe(seconds=4.0))
    assert (cafe.recipe.window, cafe.recipe.shortened) == (window, words)


def test_a_recommended_window_becomes_the_longest_that_fits(make_store: MakeStore) -> None:
    path = make_store(packets=32)
    with h5py.File(path, "r+") as file:
        file.attrs["window"] = 64
    (cafe, _) = materialise(path, Recipe())
    assert cafe.open().shape[1] == 32
    assert "no recordings for 64 packets" in cafe.recipe.sentence()
    with pytest.raises(DataError, match="has no windows"):
        materialise(path, Recipe(window=64))


def test_a_dead_link_is_told_with_its_place_and_can_be_dropped(tmp_path: Path) -> None:
    path = tmp_path / "rooms.h5"
    amplitude = np.random.default_rng(0).uniform(1, 2, (20, 5, 2)).astype(np.float32)
    amplitude[10:, :, 1] = 0
    with write_store(path) as store:
        store.add_room("cafe", synthetic=False, about={})
        store.add_recording("cafe", "a", label=0, amplitude=amplitude, timestamps=np.arange(20.0))
    recipe = Recipe(window=10, links="all", view="motion")
    with pytest.raises(
        DataError, match=r"recording 'a', from row 10\) has a dead link \(link 2 of 2"
    ):
        materialise(path, recipe)
    with pytest.raises(DataError, match=r"--set data.bad_windows=drop or --set data.links=first$"):
        materialise(path, recipe)
    (cafe,) = materialise(path, replace(recipe, bad_windows="drop"))
    assert cafe.starts.tolist() == [0]


@pytest.mark.parametrize(
    ("rows", "place", "words"),
    [
        (
            slice(10, None),
            (slice(None), 1),
            "recording 'a' has a dead link (link 2 of 2 is zero throughout), in 1 of 2 windows; "
            "--set data.bad_windows=drop or --set data.links=first",
        ),
        (
            slice(None),
            (slice(None), 1),
            "recording 'a' has a dead link (link 2 of 2 is zero throughout), in 2 of 2 windows; "
            "--set data.links=first",
        ),
        (
            slice(None),
            (3, slice(None)),
            "recording 'a' has a subcarrier that is zero throughout (4 of 9), in 2 of 2 windows; "
            "--set data.subcarrier_step=2",
        ),
        (
            slice(None),
            (0, slice(None)),
            "recording 'a' has a subcarrier that is zero throughout (1 of 9), in 2 of 2 windows; "
            "mend the recordings, or leave the room out: --without",
        ),
    ],
)
def test_a_survey_says_why_there_is_no_view_and_what_to_do(
    rows: slice, place: tuple[slice | int, slice | int], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "rooms.h5"
    amplitude = np.random.default_rng(0).uniform(1, 2, (20, 9, 2)).astype(np.float32)
    amplitude[rows, *place] = 0
    with write_store(path) as store:
        store.add_room("cafe", synthetic=False, about={})
        store.add_recording(
            "cafe", "a", label=0, amplitude=amplitude, timestamps=np.arange(20.0), rate=1.0
        )
    (cafe,) = survey(path, Recipe(window=10, links="all"))
    assert list(cafe.shapes) == ["amplitude"]
    assert cafe.refused_views["motion"] == words
    assert cafe.refused_views["profile"] == (
        "needs 10 packets per second or more, not 1; record faster"
    )


def test_recordings_without_a_label_do_not_change_how_the_others_are_cut(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """Neither the window, though they are short, nor the rate, though theirs is another."""
    path, bare = make_store(packets=200), make_store(packets=200, name="bare.h5")
    with append_store(path) as store:
        for number in range(8):
            rows = np.full((40, 6, 1), 5.0, np.float32) + np.arange(40)[:, None, None]
            pieces = [(rows, np.arange(40) / 50)]
            store.add_stream("cafe", f"none {number}", pieces, label=None)
    for recipe in (Recipe(seconds=0.3), Recipe(seconds=1.0)):
        (cafe, _), (alone, _) = materialise(path, recipe), materialise(bare, recipe)
        labelled = [place for place, label in enumerate(cafe.labels) if label is not None]
        np.testing.assert_array_equal(cafe.open()[labelled], alone.open())
        assert cafe.recipe == alone.recipe
        others = cafe.labels.count(None)
        assert others == (8 if recipe.seconds == 0.3 else 0), "what is too short gives no window"
        surveyed, _ = survey(path, recipe)
        assert surveyed.labels == cafe.labels
