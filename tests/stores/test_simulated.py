"""Stores of simulated rooms: whole, marked, repeatable; and what a split of them leaks."""

import hashlib
import multiprocessing
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from fedapa import read_capture
from fedapa.errors import DataError, PlanError, RunError
from fedapa.processes import Progress
from fedapa.simulator.room import Walls
from fedapa.stores import simulated_rooms
from fedapa.stores.distribution import distribution, planned
from fedapa.stores.simulated import Task, simulated_store, tasks_of, write_simulated
from fedapa.stores.simulated_captures import write_simulated_visits
from fedapa.stores.simulated_rooms import (
    SIMULATED_PRESETS,
    Continuous,
    Place,
    Preset,
    changed_preset,
    check_preset,
    preset_hash,
    preset_of,
)
from fedapa.stores.store import Store
from fedapa.toml import read_toml
from pages import credibility


def digest(path: Path) -> str:
    """Of everything a store says, value by value: HDF5's own bytes may hold times."""
    total = hashlib.blake2b()

    def visit(name: str, item: h5py.HLObject) -> None:
        total.update(name.encode())
        for key in sorted(item.attrs):
            total.update(f"{key}={item.attrs[key]!r}".encode())
        if isinstance(item, h5py.Dataset):
            total.update(np.ascontiguousarray(item[...]).tobytes())

    with h5py.File(path, "r") as file:
        visit("/", file)
        file.visititems(visit)
    return total.hexdigest()


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stores") / "smoke.h5"
    write_simulated("smoke", seed=0, out=path)
    return path


def tiny() -> Preset:
    """Two rooms of the smoke preset, one take a count."""
    smoke = preset_of("smoke")
    places = tuple(replace(place, days=1, counts=place.counts[:2]) for place in smoke.places[:2])
    return replace(smoke, places=places)


def test_six_rooms_of_unequal_size(smoke: Path) -> None:
    with Store(smoke) as store:
        assert store.synthetic
        assert store.window == 64
        assert len(store.rooms) == 6
        windows = {
            room: sum(take.shape[0] // 64 for take in store.recordings(room))
            for room in store.rooms
        }
        assert len(set(windows.values())) >= 4
        assert sum(windows.values()) == 320


def test_every_group_says_that_it_is_simulated(smoke: Path) -> None:
    with h5py.File(smoke, "r") as file:
        assert file.attrs["synthetic"]
        assert "SIMULATED" in file.attrs["source"]
        for room in file.values():
            assert room.attrs["synthetic"]
            assert "SIMULATED" in room.attrs["source"]
            assert all(take.attrs["synthetic"] for take in room.values())


@pytest.mark.parametrize("name", SIMULATED_PRESETS)
def test_every_count_has_takes_on_several_days(name: str) -> None:
    preset = preset_of(name)
    for place in preset.places:
        if name == "long":  # a single long recording of every count is what it is for
            assert (place.days, place.recordings, place.windows) == (1, 1, 60)
            continue
        if name == "takes":  # the same minute, as many takes
            assert (place.days, place.recordings, place.seconds) == (1, 10, 6)
            continue
        assert place.days * place.recordings >= 4
        assert place.days >= 2
        # Fewer than three windows cannot be split in blocks: these hold whole recordings out.
        least = 1 if name in ("quick", "activities") else 3
        packets = min(place.packets_of(count, preset.window) for count in place.counts)
        assert packets >= least * preset.window


def test_quick_has_enough_of_every_count_for_a_counter() -> None:
    """24 recordings of 8 s, 6 s with many people, of every count; on two days more one of 60 s."""
    quick = preset_of("quick")
    tasks = tasks_of(quick, seed=0, workers=1)
    counts = sum(len(place.counts) for place in quick.places)
    short = [task for task in tasks if not task.part]
    long = [task for task in tasks if task.part == "continuous"]
    assert (len(short), len(long)) == (24 * counts, 2 * counts)
    assert {task.packets for task in short} == {8 * 125, 6 * 125}
    assert {task.packets for task in long} == {60 * 125}
    assert {task.day for task in short} == set(range(6))
    assert {task.day for task in long} == {6, 7}


def test_continuous_recordings_say_so_in_the_store(tmp_path: Path) -> None:
    """One window of 64 packets a recording on two days; a third has two seconds, 250 packets."""
    place = replace(preset_of("smoke").places[0], counts=(1,), recordings=1, windows=1)
    place = replace(place, continuous=Continuous(days=1, seconds=2.0))
    preset = replace(preset_of("smoke"), places=(place,))
    write_simulated(preset, seed=0, out=tmp_path / "rooms.h5")
    with Store(tmp_path / "rooms.h5") as store:
        found = {take.day: (take.part, take.shape[0]) for take in store.recordings("living room")}
    assert found == {"0": ("", 64), "1": ("", 64), "2": ("continuous", 250)}
    made = distribution(tmp_path / "rooms.h5").windows
    assert made == planned(preset).windows == {"living room": {1: 1 + 1}}


def test_visits_become_captures_with_the_people_beside_them(tmp_path: Path) -> None:
    """Whoever reads the CSV file gets the people at every packet."""
    one = replace(preset_of("smoke"), places=preset_of("smoke").places[:2])
    for workers in (1, 2):
        write_simulated_visits(
            one, seconds=30.0, seed=0, folder=tmp_path / str(workers), workers=workers
        )
    folder, other = tmp_path / "1", tmp_path / "2"
    files = sorted(path.name for path in folder.iterdir())
    assert files == ["classroom.csv", "classroom.pcap", "living room.csv", "living room.pcap"]
    assert all((folder / name).read_bytes() == (other / name).read_bytes() for name in files)
    capture = read_capture(folder / "classroom.pcap")
    assert capture.synthetic
    assert capture.timestamps[-1] == pytest.approx(30, abs=0.5)
    header, first, *rest = (folder / "classroom.csv").read_text().splitlines()
    assert header == "time,people"
    assert first.startswith("0.000,")
    people = [int(row.split(",")[1]) for row in (first, *rest)]
    assert (min(people), max(people)) == (0, 8)
    with pytest.raises(PlanError, match="visits of 3 s; choose 10 to 3600"):
        write_simulated_visits(one, seconds=3.0, seed=0, folder=tmp_path / "3")


def test_label_ranges_differ_and_reach_twenty() -> None:
    for name in ("quick", "six-rooms"):
        most = {place.scene.room.name: max(place.counts) for place in preset_of(name).places}
        assert most["bus"] == most["classroom"] == 20
        assert most["hotel room"] == 3
        assert all(0 in place.counts for place in preset_of(name).places)


def test_six_rooms_are_1000_by_242_below_2_gb_at_125_to_1000_hz() -> None:
    preset = preset_of("six-rooms")
    rates = {place.scene.radio.rate for place in preset.places}
    assert min(rates) == 125
    assert max(rates) == 1000
    assert preset.window == 1000
    assert {int(place.scene.radio.live.sum()) for place in preset.places} == {242}
    windows = sum(
        place.days * place.recordings * place.packets_of(count, 1)
        for place in preset.places
        for count in place.counts
    )
    assert windows * 1000 * (242 * 2 + 8) < 2e9


def test_a_recording_is_what_its_room_says(smoke: Path) -> None:
    with Store(smoke) as store:
        for room in store.rooms:
            about, recipe = store.about(room), store.recipe(room)
            assert (recipe.device, recipe.link_count) == ("simulated", 1)
            for take in store.recordings(room):
                assert take.rate == about["rate"] == 125
                assert take.shape[1:] == (56, 1) == (len(recipe.subcarriers or ()), 1)
                times = store.timestamps(take)
                assert len(times) == take.shape[0]
                assert (np.diff(times) >= 0).all()
                amplitude = store.read(take, 0, take.shape[0])
                assert np.isfinite(amplitude).all()
                assert amplitude.std(axis=0).min() > 0


def test_equal_seeds_give_equal_values_for_any_number_of_workers(tmp_path: Path) -> None:
    for name, workers in (("one", 1), ("again", 1), ("two", 2)):
        write_simulated(tiny(), seed=3, out=tmp_path / f"{name}.h5", workers=workers)
    write_simulated(tiny(), seed=4, out=tmp_path / "other.h5")
    one, again, two, other = (
        digest(tmp_path / f"{name}.h5") for name in ("one", "again", "two", "other")
    )
    assert one == again == two
    assert other != one
    assert (tmp_path / "one.h5").read_bytes() == (tmp_path / "two.h5").read_bytes()


def test_the_number_of_blas_threads_does_not_matter(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.stores.test_simulated import tiny;"
        "from fedapa.stores.simulated import write_simulated;"
        "write_simulated(tiny(), seed=3, out=Path(sys.argv[1]))"
    )
    for threads in ("1", "2"):
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        subprocess.run(
            [sys.executable, "-c", code, tmp_path / f"{threads}.h5"],
            env=environment,
            check=True,
            timeout=120,
        )
    assert digest(tmp_path / "1.h5") == digest(tmp_path / "2.h5")


def test_smoke_is_made_in_seconds(tmp_path: Path) -> None:
    began = time.process_time()
    write_simulated("smoke", seed=1, out=tmp_path / "smoke.h5")
    assert time.process_time() - began < 3


def test_progress_is_told_recording_by_recording(tmp_path: Path) -> None:
    told: list[Progress] = []
    write_simulated(tiny(), seed=0, out=tmp_path / "a.h5", show=told.append)
    assert told == [Progress("simulating rooms", done, 8, "recordings") for done in range(1, 9)]


def test_a_store_is_made_once_and_found_again(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("FEDAPA_CACHE", str(tmp_path))
    made: list[Progress] = []
    first = simulated_store("smoke", 0, show=made.append)
    assert made
    made.clear()
    assert simulated_store("smoke", 0, show=made.append) == first
    assert not made
    assert preset_hash(preset_of("smoke")) in first.name


def test_the_hash_sees_every_parameter() -> None:
    preset = preset_of("smoke")
    place = preset.places[0]
    room = replace(place.scene.room, walls=Walls(west="metal"))
    changed = replace(place, scene=replace(place.scene, room=room))
    other = replace(preset, places=(changed, *preset.places[1:]))
    assert preset_hash(other) != preset_hash(preset)


def test_frozen_presets_have_the_hashes_of_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text()
    for name in SIMULATED_PRESETS:
        assert f"`{preset_hash(preset_of(name))}`" in text, name


def test_an_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "rooms.h5"
    path.write_text("precious")
    with pytest.raises(DataError, match="already exists"):
        write_simulated("smoke", seed=0, out=path)
    assert path.read_text() == "precious"


def test_a_failure_leaves_no_half_written_file(tmp_path: Path) -> None:
    def interrupt(_: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_simulated("smoke", seed=0, out=tmp_path / "rooms.h5", show=interrupt)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_worker_that_dies_is_one_sentence_and_no_file(tmp_path: Path) -> None:
    def kill(_: Progress) -> None:
        for child in multiprocessing.active_children():
            child.kill()

    with pytest.raises(RunError, match="fewer --workers"):
        write_simulated("smoke", seed=0, out=tmp_path / "rooms.h5", workers=2, show=kill)
    assert not list(tmp_path.iterdir())


IMPOSSIBLE = [
    ({"living room": {"transmitter": [7.0, 1.0, 1.0]}}, "transmitter .* is outside the room"),
    ({"living room": {"receiver": [6.0, 2.0, 1.0]}}, "receiver .* is on a wall"),
    ({"hotel room": {"counts": [0, 200]}}, "200 people on 4.6 × 3.4 m; 0 to 31 fit"),
    ({"hotel room": {"counts": [-1]}}, "-1 people"),
    ({"hotel room": {"counts": [1, 1]}}, "list each one once"),
    ({"bus": {"rate": 20}}, "room 'bus': rate = 20.*; choose 125 to 1000"),
    ({"bus": {"rate": 5000}}, "rate = 5000.*; choose 125 to 1000"),
    ({"bus": {"walls": {"north": "marzipan"}}}, "material 'marzipan'; known: brick"),
    ({"bus": {"walls": {"norht": "glass"}}}, "unknown key 'norht'; did you mean 'north'"),
    ({"bus": {"seatz": []}}, "unknown key 'seatz'; did you mean 'seats'"),
    ({"bus": {"size": [3.0, 2.0]}}, "write a list of 3"),
    ({"bus": {"days": 0}}, "days = 0"),
    ({"bus": {"days": "many"}}, "days = 'many'; write a whole number"),
    ({"bus": {"receiver": [0.6, 1.5, 2.0]}}, "closer than 0.5 m"),
    ({"bus": {"size": [300.0, 2.0, 2.0]}}, r"size = \[300.0, 2.0, 2.0\]; choose 1 to 100"),
    ({"bus": {"seats": [[20.0, 1.0]]}}, "seat at .* is outside"),
    ({"bus": {"reflections": 9}}, "reflections = 9; choose 0 to 6"),
    ({"lobby": {"size": [5.0, 5.0, 3.0]}}, "room 'lobby' is new and lacks transmitter"),
    ({"bus": 3}, "'bus' is not a table"),
    ({"bus": {"walls": 3}}, "walls = 3; write a table"),
    ({"bus": {"bandwidth": 160}}, "bandwidth = 160; choose 20, 40 or 80"),
    ({"bus": {"door": [3.0, 1.0]}}, "the door at .* is in no wall"),
    ({"bus": {"continuous": {"days": 0, "seconds": 9}}}, "continuous.days = 0; choose 1 to 10000"),
    ({"bus": {"continuous": {"days": 1}}}, "continuous.seconds is missing; write it too"),
    (
        {"bus": {"continuous": {"days": 1, "seconds": 9, "day": 1}}},
        "continuous: unknown key 'day'; did you mean 'days'",
    ),
    ({"bus": {"motion": {"sway": True}}}, "motion.sway = True; write a number"),
]


@pytest.mark.parametrize(("rooms", "complaint"), IMPOSSIBLE)
def test_impossible_rooms_are_refused_in_one_sentence(
    rooms: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(PlanError, match=complaint) as caught:
        write_simulated(
            changed_preset(preset_of("smoke"), rooms), seed=0, out=tmp_path / "rooms.h5"
        )
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_rooms_of_ones_own(tmp_path: Path) -> None:
    plan = tmp_path / "rooms.toml"
    plan.write_text(
        '["living room"]\nwalls.north = "brick"\ncounts = [0, 3]\nmotion.seated = 0\n'
        "[lobby]\nsize = [9.0, 6, 3.2]\ntransmitter = [0.5, 3.0, 2.5]\n"
        "receiver = [8.5, 3.0, 1.0]\ncounts = [0, 2]\nseats = [[2.0, 2.0], [3.0, 2.0]]\n"
    )
    changed = changed_preset(preset_of("smoke"), read_toml(plan))
    by_name: dict[str, Place] = {place.scene.room.name: place for place in changed.places}
    assert by_name["living room"].scene.room.walls.north == "brick"
    assert by_name["living room"].scene.motion.seated == 0.0
    assert by_name["lobby"].scene.room.size == (9.0, 6.0, 3.2)
    only = replace(changed, places=(by_name["lobby"],))
    write_simulated(only, seed=0, out=tmp_path / "rooms.h5")
    with Store(tmp_path / "rooms.h5") as store:
        assert store.rooms == ("lobby",)


def test_the_six_rooms_are_in_the_format_of_a_rooms_file() -> None:
    rooms = read_toml(Path(simulated_rooms.__file__).with_name("six_rooms.toml"))
    smoke = preset_of("smoke")
    assert list(rooms) == [place.scene.room.name for place in smoke.places]
    assert changed_preset(smoke, rooms).places == smoke.places


@pytest.mark.parametrize("text", ["not toml [", None])
def test_an_unreadable_rooms_file_is_one_sentence(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "rooms.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(PlanError, match=r"rooms\.toml"):
        read_toml(path)


@pytest.mark.slow
def test_a_random_split_leaks_and_held_out_recordings_do_not() -> None:
    """Labels drawn at random for whole takes: a nearest neighbour should be right 1 time in 4."""
    found = credibility.leak()
    assert found["random"] > 0.5
    assert found["recording"] < 0.4


def test_a_store_of_ten_gigabytes_opens_at_once_and_is_read_in_parts(tmp_path: Path) -> None:
    """Its space is allotted but never written: the file is large, not what it takes on disk."""
    allotted = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    allotted.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    allotted.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    space = h5py.h5s.create_simple((1_050_000, 242, 1))
    times = h5py.h5s.create_simple((1_050_000,))
    path = tmp_path / "large.h5"
    with h5py.File(path, "w") as file:
        file.attrs.update(format="fedapa-rooms", version=1, synthetic=True, window=1000)
        group = file.create_group("hall")
        group.attrs["synthetic"] = True
        for number in range(20):
            take = group.create_group(f"take {number:02d}")
            take.attrs.update(label=number, day="0", rate=1000.0, synthetic=True)
            h5py.h5d.create(take.id, b"amplitude", h5py.h5t.STD_U16LE, space, allotted)
            h5py.h5d.create(take.id, b"timestamps", h5py.h5t.IEEE_F64LE, times, allotted)
        take["amplitude"][1_000_000:1_001_000] = np.full((1000, 242, 1), 7, np.uint16)
    began = time.process_time()
    with Store(path) as store:
        takes = store.recordings("hall")
        window = store.read(takes[-1], 1_000_000, 1_001_000)
    assert time.process_time() - began < 1
    assert sum(np.prod(take.shape) for take in takes) * 2 > 10e9
    assert window.shape == (1000, 242, 1)
    assert (window == 7).all()
    assert path.stat().st_size > 10e9 > 100 * path.stat().st_blocks * 512


@pytest.mark.parametrize("name", SIMULATED_PRESETS)
def test_a_task_travels_as_text_exactly(name: str) -> None:
    """Workers are told what to record in JSON; the room that they build is the same value."""
    tasks = tasks_of(preset_of(name), seed=2**63 - 1, workers=1)
    assert all(Task.from_json(task.to_json()) == task for task in tasks[:: len(tasks) // 20])


def test_a_recording_is_as_long_as_its_windows_or_its_seconds() -> None:
    """Of 8 s at 125 packets a second a crowd stays 6 s, of 4 windows 3; not both, and not none."""
    place = preset_of("quick").places[0]
    assert [place.packets_of(count, 500) for count in (0, 5)] == [1000, 750]
    cut = replace(place, seconds=None, windows=4)
    assert [cut.packets_of(count, 64) for count in (0, 5)] == [256, 192]
    for odd in (replace(place, windows=4), replace(place, seconds=None)):
        with pytest.raises(PlanError, match="room 'living room': give its recordings either"):
            check_preset(replace(preset_of("quick"), places=(odd,)))
    named = {"living room": {"windows": 3}}
    assert changed_preset(preset_of("quick"), named).places[0].seconds is None
    with pytest.raises(PlanError, match="'living room': windows and seconds say the same thing"):
        changed_preset(preset_of("quick"), {"living room": {"windows": 3, "seconds": 8}})


def test_recordings_of_activities_differ_by_who_sits() -> None:
    """Each recording of somebody is made for each activity, with seats and steps of its own."""
    preset = preset_of("activities")
    for place in preset.places:
        assert max(place.counts) <= len(place.scene.room.seats)
    tasks = [task for task in tasks_of(preset, seed=0, workers=1) if task.place.days]
    first = [task for task in tasks if task.place == preset.places[0] and task.day == 0]
    told = {(task.count, task.activity, task.number) for task in first if task.count < 2}
    assert told == {
        (0, "empty", 0),
        (0, "empty", 1),
        *((1, "sitting", number) for number in (0, 1)),
        *((1, "walking", number) for number in (2, 3)),
    }


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"activities": []}, r"activities = \[\]; list each one once"),
        ({"activities": ["walking", "walking"]}, "list each one once"),
        ({"counts": [0, 7]}, "7 people cannot all sit on 6 seats; add seats"),
        ({"continuous": {"days": 1, "seconds": 5}}, "activities and continuous recordings"),
        ({"activities": ["flying"]}, "activities"),
    ],
)
def test_activities_that_cannot_be_are_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(PlanError, match=f"room 'living room': .*{complaint}"):
        check_preset(changed_preset(preset_of("activities"), {"living room": changes}))
