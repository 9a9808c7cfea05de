import hashlib
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from fedapa.csi.reading import read_chunks
from fedapa.errors import DataError
from fedapa.report.tables.captures import import_summary, import_table
from fedapa.stores.imported import captures
from fedapa.stores.imported.captures import import_captures
from fedapa.stores.imported.preparation import Preparation
from fedapa.stores.imported.sources import sources_by_manifest, sources_by_pattern
from fedapa.stores.materialise import materialise
from fedapa.stores.relabel import relabel
from fedapa.stores.simulated import write_simulated
from fedapa.stores.simulated_captures import PATTERN, patterns_of, write_simulated_captures
from fedapa.stores.simulated_rooms import changed_preset, preset_of
from fedapa.stores.store import Store
from fedapa.stores.wical import import_wical
from fedapa.windows.recipe import Recipe
from fedapa.windows.stream import Windower
from tests.csi.capture_bytes import bfee, intel_csi, intel_file, nexmon_file


def tree(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def take(seed: int, packets: int = 12, rx: int = 3) -> bytes:
    """A take at 100 packets a second that no other seed gives."""
    return b"".join(
        bfee(intel_csi(rx, 1, 1000 * seed + i), clock=10_000 * i, count=i) for i in range(packets)
    )


TREE = {
    "cafe/mon/P=0.dat": take(1),
    "cafe/mon/P=1.dat": take(2),
    "cafe/tue/P=1.dat": take(3),
    "hall/mon/P=0.dat": take(4),
    "readme.txt": b"hello",
}


def imported(folder: Path, pattern: str, out: Path, **how: object):
    sources, _ = sources_by_pattern(folder, pattern)
    reading = {
        name: how.pop(name) for name in ("chip", "salvage", "skip_unreadable") if name in how
    }
    preparation = Preparation(**reading, recipe=Recipe(**how))  # type: ignore[arg-type]
    return import_captures(sources, out, preparation=preparation)


def test_a_tree_becomes_rooms_labelled_by_its_paths(tmp_path: Path) -> None:
    folder = tree(tmp_path / "in", TREE)
    sources, others = sources_by_pattern(folder, "{room}/{day}/P={count}.dat")
    assert [path.name for path in others] == ["readme.txt"]
    out = tmp_path / "rooms.h5"
    rows = import_captures(sources, out, window=8)
    assert [(row.room, row.day, row.label, row.packets) for row in rows] == [
        ("cafe", "mon", 0, 12),
        ("cafe", "mon", 1, 12),
        ("cafe", "tue", 1, 12),
        ("hall", "mon", 0, 12),
    ]
    with Store(out) as store:
        assert store.rooms == ("cafe", "hall")
        assert store.window == 8
        assert not store.synthetic
        first = store.recordings("cafe")[0]
        assert (first.name, first.label, first.day, first.shape) == (
            "mon P=0",
            0,
            "mon",
            (12, 30, 3),
        )
        truth = np.hypot(*np.moveaxis(intel_csi(3, 1, 1000)[:, :, 0].astype(float), 2, 0))
        np.testing.assert_allclose(store.read(first, 0, 1)[0], truth, rtol=1e-6)


def test_each_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two labels of one file, and a file that was imported before: still one reading each."""
    folder, out = tree(tmp_path / "in", {"a.dat": take(1, 40), "b.dat": take(2)}), tmp_path / "o.h5"
    rows = ("a.dat,cafe,0,,0.1", "b.dat,cafe,1,,", "a.dat,cafe,3,0.2,")
    path = manifest(folder, "file,room,count,start,end", *rows)
    opened: list[str] = []
    usual = Path.open

    def counted(self: Path, *given: Any, **how: Any) -> Any:
        opened.append(self.name)
        return usual(self, *given, **how)

    monkeypatch.setattr(Path, "open", counted)
    import_captures(sources_by_manifest(path), out)
    assert (opened.count("a.dat"), opened.count("b.dat")) == (1, 1)
    import_captures(sources_by_manifest(path), out)
    assert (opened.count("a.dat"), opened.count("b.dat")) == (2, 2)


def test_long_files_are_kept_beside_the_store_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tree(tmp_path / "in", TREE)
    imported(folder, "{room}/{day}/P={count}.dat", tmp_path / "memory.h5")
    monkeypatch.setattr(captures, "_IN_MEMORY", 100)
    imported(folder, "{room}/{day}/P={count}.dat", tmp_path / "disk.h5")
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file())[:2] == [
        "disk.h5",
        "memory.h5",
    ]
    with Store(tmp_path / "memory.h5") as one, Store(tmp_path / "disk.h5") as other:
        for room in one.rooms:
            assert one.recordings(room) == other.recordings(room)
            for each in one.recordings(room):
                np.testing.assert_array_equal(one.read(each, 0, 12), other.read(each, 0, 12))


def test_what_is_served_is_what_was_trained_on(tmp_path: Path) -> None:
    """Windows through the store, and from the capture as it comes, by the room's recipe."""
    folder = tree(tmp_path / "in", {"cafe/P=1.dat": take(1, 300), "cafe/P=2.dat": take(2, 300)})
    out = tmp_path / "rooms.h5"
    imported(folder, "{room}/P={count}.dat", out, rate=90.0, low_pass=20.0, gate=0.0)
    (cafe,) = materialise(out, Recipe(window=40, stride=15, decimate=2, links="all"))
    windower = Windower(cafe.recipe)
    served = []
    for piece in read_chunks(folder / "cafe" / "P=1.dat", size=5000):
        served += [*windower.feed(piece)]
    served += [*windower.finish()]
    trained = cafe.open()[np.asarray(cafe.recordings) == "P=1"]
    assert len(trained) > 5
    assert np.stack(served).tobytes() == trained.tobytes()


def test_labels_may_be_categories(tmp_path: Path) -> None:
    folder = tree(tmp_path / "in", {"lab/csi_a3_1.dat": take(1), "lab/csi_a11_2.dat": take(2)})
    out = tmp_path / "rooms.h5"
    imported(folder, "{room}/csi_a{label}_{repetition}.dat", out)
    with Store(out) as store:
        assert [each.label for each in store.recordings("lab")] == ["11", "3"]


def test_importing_again_adds_only_what_is_new(tmp_path: Path) -> None:
    folder, out = tree(tmp_path / "in", TREE), tmp_path / "rooms.h5"
    imported(folder, "{room}/{day}/P={count}.dat", out)
    tree(folder, {"hall/tue/P=5.dat": take(9)})
    rows = imported(folder, "{room}/{day}/P={count}.dat", out)
    assert sum(row.known for row in rows) == 4
    assert sum(row.recordings for row in rows) == 1
    with Store(out) as store:
        assert sum(len(store.recordings(room)) for room in store.rooms) == 5


def test_a_store_whose_notes_were_changed_is_not_added_to(tmp_path: Path) -> None:
    folder = tree(tmp_path / "in", TREE)
    out = tmp_path / "rooms.h5"
    imported(folder, "{room}/{day}/P={count}.dat", out)
    with h5py.File(out, "r+") as file:
        file["cafe/mon P=0"].attrs["content"] = [1.0, 2.0]
    with pytest.raises(DataError, match="'content' is array"):
        imported(folder, "{room}/{day}/P={count}.dat", out)


def test_one_recording_cannot_have_two_labels(tmp_path: Path) -> None:
    out = tmp_path / "rooms.h5"
    folder = tree(tmp_path / "in", {"cafe/P=1.dat": take(1), "hall/P=2.dat": take(1)})
    with pytest.raises(DataError, match=r"P=2.dat: labelled 2, but .* 1 as 'P=1' of room 'cafe'"):
        imported(folder, "{room}/P={count}.dat", out)
    assert not out.exists()
    imported(tree(tmp_path / "a", {"cafe/P=1.dat": take(1)}), "{room}/P={count}.dat", out)
    before = out.read_bytes()
    with pytest.raises(DataError, match="which is it"):
        imported(tree(tmp_path / "b", {"cafe/P=3.dat": take(1)}), "{room}/P={count}.dat", out)
    assert out.read_bytes() == before


def test_copies_in_other_rooms_are_told(tmp_path: Path) -> None:
    """As in WiAR, where three placements share the files of one activity."""
    folder = tree(tmp_path / "in", {"cafe/P=1.dat": take(1), "hall/P=1.dat": take(1)})
    rows = imported(folder, "{room}/P={count}.dat", tmp_path / "rooms.h5")
    assert [row.copies for row in rows] == [0, 1]
    assert [row.recordings for row in rows] == [1, 1]


def test_counts_and_categories_do_not_mix(tmp_path: Path) -> None:
    out = tmp_path / "rooms.h5"
    imported(tree(tmp_path / "a", {"cafe/P=1.dat": take(1)}), "{room}/P={count}.dat", out)
    with pytest.raises(DataError, match="counts and categories do not go into one store"):
        imported(tree(tmp_path / "b", {"hall/sit.dat": take(2)}), "{room}/{label}.dat", out)


def test_another_recording_of_the_same_name_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "rooms.h5"
    imported(tree(tmp_path / "a", {"cafe/P=1.dat": take(1)}), "{room}/P={count}.dat", out)
    with pytest.raises(DataError, match="has another recording named 'P=1'"):
        imported(tree(tmp_path / "b", {"cafe/P=1.dat": take(2)}), "{room}/P={count}.dat", out)


def test_a_room_has_one_device_and_one_shape(tmp_path: Path) -> None:
    folder = tree(tmp_path / "in", {"cafe/P=1.dat": take(1), "cafe/P=2.dat": take(2, rx=2)})
    with pytest.raises(
        DataError, match=r"P=2.dat: link_count 2 instead of 3, .* room 'cafe' before"
    ):
        imported(folder, "{room}/P={count}.dat", tmp_path / "rooms.h5")


def test_an_unreadable_file_stops_the_import_unless_told_otherwise(tmp_path: Path) -> None:
    folder = tree(tmp_path / "in", {"cafe/P=1.dat": take(1), "cafe/P=2.dat": b"hello"})
    out = tmp_path / "rooms.h5"
    with pytest.raises(DataError, match=r"in .*cafe: P=2.dat@0: begins with .*--skip-unreadable"):
        imported(folder, "{room}/P={count}.dat", out)
    assert not out.exists()
    rows = imported(folder, "{room}/P={count}.dat", out, skip_unreadable=True)
    assert [dict(row.left_out) for row in rows] == [{}, {"unreadable files": 1}]


def test_a_file_that_may_not_be_read_is_left_out_like_one_that_is_no_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tree(tmp_path / "in", {"cafe/P=1.dat": take(1), "cafe/P=2.dat": take(2)})
    out, opened = tmp_path / "rooms.h5", Path.open

    def locked(path: Path, *args: Any, **options: Any) -> Any:
        if path.name == "P=2.dat":
            raise PermissionError(13, "Permission denied")
        return opened(path, *args, **options)

    monkeypatch.setattr(Path, "open", locked)
    with pytest.raises(DataError, match=r"P=2.dat: cannot be read: Permission.*--skip-unreadable"):
        imported(folder, "{room}/P={count}.dat", out)
    assert not out.exists()
    rows = imported(folder, "{room}/P={count}.dat", out, skip_unreadable=True)
    assert [(row.recordings, dict(row.left_out)) for row in rows] == [
        (1, {}),
        (0, {"unreadable files": 1}),
    ]


def test_nothing_left_is_an_error_that_says_why(tmp_path: Path) -> None:
    half = bytearray(nexmon_file(3, 40))
    for i in range(3):
        begin = 24 + i * (16 + 42 + 18 + 512) + 16 + 42 + 18
        half[begin : begin + 256] = bytes(256)  # the upper half of the band
    folder = tree(tmp_path / "in", {"cafe/P=1.pcap": bytes(half)})
    with pytest.raises(DataError, match=r"3 × a 20 MHz part of the 40 MHz is empty.*--gate 0"):
        imported(folder, "{room}/P={count}.pcap", tmp_path / "rooms.h5")
    rows = imported(folder, "{room}/P={count}.pcap", tmp_path / "rooms.h5", gate=0.0)
    assert rows[0].packets == 3


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("{day}/P={count}.dat", r"needs \{room\}, or --room for files of one room, and either"),
        ("{room}/x.dat", r"needs \{room\}.* and either .*; recordings that never .*--unlabelled"),
        ("{room}/{count}{label}", r"needs \{room\}.* and either"),
        ("{room}/{count}" + "*x" * 60, "123 names, stars and texts between them; expected at most"),
        ("{room}/{room}{count}", "there twice"),
        ("{room}/{co-unt}", "braces hold one word"),
        ("{room}/{count}.pcap", r"none of 5 files fits the pattern .*e\.g\. cafe/mon/P=0\.dat"),
    ],
)
def test_a_pattern_that_cannot_be_says_why(tmp_path: Path, pattern: str, words: str) -> None:
    folder = tree(tmp_path / "in", TREE)
    with pytest.raises(DataError, match=words):
        sources_by_pattern(folder, pattern)


def test_a_pattern_may_have_stars(tmp_path: Path) -> None:
    folder = tree(tmp_path / "in", TREE)
    sources, _ = sources_by_pattern(folder, "{room}/*/P={count}.*")
    assert len(sources) == 4


def test_many_stars_and_a_long_name_take_no_time(tmp_path: Path) -> None:
    """A regular expression would try 200⁶ / 6! ways to share out the name."""
    folder = tree(tmp_path / "in", {"cafe/" + "a" * 200: take(1), "cafe/P=1": take(2)})
    began = time.perf_counter()
    with pytest.raises(DataError, match="none of 2 files fits"):
        sources_by_pattern(folder, "{room}/*a*a*a*a*a*a{count}")
    with pytest.raises(DataError, match="none of 2 files fits"):
        sources_by_pattern(folder, "{room}/{a}a{b}a{c}a{d}a{e}a{f}a{count}")
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(
    ("pattern", "meanings"),
    [
        # A name takes as little as it can, a count as many digits, a star as much as it can.
        ("{room}_{label}", {"a": ("a", "b_12")}),
        ("{room}_*_{count}", {"a": ("a", 12)}),
        ("{room}{count}", {"a_b_": ("a_b_", 12)}),
        ("*{room}_{count}", {"b": ("b", 12)}),
        ("{label}_{room}", {"b_12": ("b_12", "a")}),
    ],
)
def test_what_the_names_of_a_pattern_stand_for(
    tmp_path: Path, pattern: str, meanings: dict[str, tuple[str, object]]
) -> None:
    folder = tree(tmp_path / "in", {"a_b_12": take(1)})
    sources, _ = sources_by_pattern(folder, pattern)
    assert {source.room: (source.room, source.label) for source in sources} == meanings


def test_files_of_one_room_need_no_room_in_their_pattern(tmp_path: Path) -> None:
    folder = tree(tmp_path / "in", {"mon/P=0.dat": take(1), "mon/P=1.dat": take(2)})
    sources, _ = sources_by_pattern(folder, "{day}/P={count}.dat", room="cafe")
    assert [(source.room, source.label, source.day) for source in sources] == [
        ("cafe", 0, "mon"),
        ("cafe", 1, "mon"),
    ]
    with pytest.raises(DataError, match="leave one of them out"):
        sources_by_pattern(folder, "{room}/P={count}.dat", room="cafe")


def manifest(folder: Path, *lines: str) -> Path:
    path = folder / "labels.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_file_name_that_no_file_can_have_is_no_such_file(tmp_path: Path) -> None:
    path = manifest(tmp_path, "file,room,count", f"{'x' * 5000}.dat,cafe,1")
    with pytest.raises(DataError, match=r"line 2: x{200}: no such file beside the manifest"):
        sources_by_manifest(path)


def test_a_manifest_labels_seconds_of_files(tmp_path: Path) -> None:
    folder = tree(tmp_path / "in", {"long.dat": take(1, packets=40)})
    path = manifest(
        folder,
        "file,room,count,day,start,end",
        "long.dat,cafe,0,mon,,0.1",
        "long.dat,cafe,3,mon,0.2,",
    )
    out = tmp_path / "rooms.h5"
    import_captures(sources_by_manifest(path), out)
    with Store(out) as store:
        found = {each.label: each.shape[0] for each in store.recordings("cafe")}
    assert found == {0: 10, 3: 20}


def test_seconds_without_a_packet_are_refused(tmp_path: Path) -> None:
    """Milliseconds, say, where seconds were meant: the row must not vanish."""
    tree(tmp_path, {"a.dat": take(1, packets=40)})
    path = manifest(
        tmp_path, "file,room,count,start,end", "a.dat,cafe,1,0,0.1", "a.dat,cafe,2,100,200"
    )
    with pytest.raises(DataError, match=r"within its seconds 100 to 200; it lasts 0.4"):
        import_captures(sources_by_manifest(path), tmp_path / "rooms.h5")
    assert not (tmp_path / "rooms.h5").exists()


def test_start_and_end_need_a_clock_that_goes_on(tmp_path: Path) -> None:
    """A receiver that was restarted after 20 s: its seconds 0 to 1 are there twice."""
    clocks = [*range(20_000_000, 40_000_000, 500_000), *range(20_000_000, 22_000_000, 500_000)]
    data = b"".join(bfee(intel_csi(1, 1, i), clock=clock) for i, clock in enumerate(clocks))
    tree(tmp_path, {"a.dat": data})
    whole = manifest(tmp_path, "file,room,count", "a.dat,cafe,1")
    import_captures(sources_by_manifest(whole), tmp_path / "rooms.h5")
    part = manifest(tmp_path, "file,room,count,start,end", "a.dat,hall,1,0,1")
    with pytest.raises(DataError, match=r"a.dat: start and end .* clock was set back by 19.5 s"):
        import_captures(sources_by_manifest(part), tmp_path / "other.h5")


def test_names_that_are_no_utf8_are_imported_and_such_labels_refused(tmp_path: Path) -> None:
    odd = os.fsdecode(b"\xff\xfe")
    try:
        tree(tmp_path / "in", {f"cafe/P=1-{odd}.dat": take(1), f"cafe/P=2-{odd * 40}.dat": take(2)})
    except OSError as error:
        pytest.skip(f"this file system has no such names: {error}")
    out = tmp_path / "rooms.h5"
    imported(tmp_path / "in", "{room}/P={count}-{more}.dat", out)
    with Store(out) as store:
        assert [each.label for each in store.recordings("cafe")] == [1, 2]
    with pytest.raises(DataError, match="is no UTF-8; rename it"):
        sources_by_pattern(tmp_path / "in", "{room}/P={x}-{label}.dat")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["file,room,cuont", "a.dat,cafe,1"], "column 'cuont' is unknown; did you mean 'count'"),
        (["file,room", "a.dat,cafe"], "room, either count or label, .*; recordings .*--unlabelled"),
        (["file,room,count", "a.dat,cafe,"], "line 2: 'count' is empty; recordings .*--unlabelled"),
        (["file,room,count", "a.dat,cafe"], "line 2: has another number of fields"),
        (["file,room,count", "a.dat,cafe,two"], "line 2: count 'two' is no number of people"),
        (["file,room,count", f"a.dat,cafe,{'9' * 5000}"], "count '9{80}' is no number of people"),
        (["file,room,count", "a.dat,,2"], "line 2: 'room' is empty"),
        (["file,room,count", "b.dat,cafe,2"], "line 2: b.dat: no such file beside the manifest"),
        (["file,room,count,start,end", "a.dat,cafe,2,5,3"], "start 5 is not before end 3"),
        (["file,room,count,start,end", "a.dat,cafe,2,x,3"], "start 'x' is no number of seconds"),
        (["file,room,count"], "no rows"),
        (["file,room,count,count", "a.dat,cafe,1,2"], "column 'count' is there twice"),
    ],
)
def test_a_manifest_that_cannot_be_says_why(tmp_path: Path, lines: list[str], words: str) -> None:
    tree(tmp_path, {"a.dat": take(1)})
    with pytest.raises(DataError, match=words):
        sources_by_manifest(manifest(tmp_path, *lines))


@pytest.mark.parametrize("second", ["a.dat,cafe,2,0.05,0.2", "a.dat,hall,1,0.05,0.2"])
def test_overlapping_seconds_are_refused(tmp_path: Path, second: str) -> None:
    tree(tmp_path, {"a.dat": take(1)})
    path = manifest(tmp_path, "file,room,count,start,end", "a.dat,cafe,1,0,0.1", second)
    with pytest.raises(DataError, match=r"two contradictory labels for the seconds from 0.05 on"):
        import_captures(sources_by_manifest(path), tmp_path / "rooms.h5")


def test_seconds_of_later_imports_do_not_overlap_those_before(tmp_path: Path) -> None:
    tree(tmp_path, {"a.dat": take(1, packets=200), "copy.dat": take(1, packets=200)})
    out, head = tmp_path / "rooms.h5", "file,room,count,start,end"

    def add(row: str) -> int:
        rows = import_captures(sources_by_manifest(manifest(tmp_path, head, row)), out)
        return sum(each.recordings for each in rows)

    assert add("a.dat,cafe,3,0,1") == 1
    before = out.read_bytes()
    for row in ("a.dat,cafe,5,0,1.5", "a.dat,cafe,9,,", "copy.dat,hall,3,0.5,0.7"):
        with pytest.raises(DataError, match=r"overlap the seconds 0 to 1, labelled 3 as 'a 0-1"):
            add(row)
    assert out.read_bytes() == before
    assert add("a.dat,cafe,3,0,1") == 0
    assert add("a.dat,cafe,5,1,1.5") == 1


def gappy(seed: int) -> bytes:
    """Two segments with 4.8 s of silence between them."""
    clocks = [*range(0, 200_000, 10_000), *range(5_000_000, 5_100_000, 10_000)]
    return b"".join(
        bfee(intel_csi(1, 1, 1000 * seed + i), clock=clock) for i, clock in enumerate(clocks)
    )


def test_another_recording_of_the_name_of_a_parted_one_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "rooms.h5"
    for folder, content in (("a", gappy(1)), ("b", gappy(2)), ("c", take(3, rx=1))):
        tree(tmp_path / folder, {"cafe/P=1.dat": content})
    imported(tmp_path / "a", "{room}/P={count}.dat", out, rate=50.0)
    for folder in ("b", "c"):
        with pytest.raises(DataError, match="has another recording named 'P=1'"):
            imported(tmp_path / folder, "{room}/P={count}.dat", out, rate=50.0)


def test_a_part_does_not_take_the_name_of_another_file(tmp_path: Path) -> None:
    files = {"cafe/P=1 part 1.dat": take(1, rx=1), "cafe/P=1.dat": gappy(2)}
    folder = tree(tmp_path / "in", files)
    with pytest.raises(DataError, match="has another recording named 'P=1 part 1'"):
        imported(folder, "{room}/P={count}*.dat", tmp_path / "rooms.h5", rate=50.0)


def test_a_room_is_prepared_in_one_way(tmp_path: Path) -> None:
    folder, out = tree(tmp_path / "in", {"cafe/P=1.dat": take(1)}), tmp_path / "rooms.h5"
    imported(folder, "{room}/P={count}.dat", out, rate=50.0)
    with Store(out) as store:
        recipe = store.recipe("cafe")
    assert (recipe.device, recipe.bandwidth, recipe.link_count) == ("intel 5300", 20, 3)
    assert (recipe.gate, recipe.rate, recipe.gap, recipe.low_pass) == (0.1, 50.0, 0.5, None)
    assert len(recipe.subcarriers or ()) == 30
    tree(folder, {"cafe/P=2.dat": take(2)})
    for how, words in (
        ({}, "rate None instead of 50"),
        ({"rate": 40.0}, "rate 40 instead of 50"),
        ({"rate": 50.0, "gate": 0.0}, "gate 0 instead of 0.1"),
        ({"rate": 50.0, "low_pass": 5.0}, "low_pass 5 instead of None"),
        ({"rate": 50.0, "longest_gap": 1.0}, "longest_gap 1 instead of 0.5"),
    ):
        with pytest.raises(DataError, match=rf"'cafe' has another recipe .*{words}.*another --out"):
            imported(folder, "{room}/P={count}.dat", out, **how)
    imported(folder, "{room}/P={count}.dat", out, rate=50.0, longest_gap=0.5)
    tree(folder, {"cafe/P=3.dat": take(3)})
    assert sum(row.recordings for row in imported(folder, "{room}/P={count}.dat", out, rate=50.0))


def test_a_count_is_a_number_of_people(tmp_path: Path) -> None:
    folder = tree(tmp_path / "in", {f"cafe/P={'1' * 23}.dat": take(1)})
    with pytest.raises(DataError, match=r"count '1{23}' is no number of people"):
        sources_by_pattern(folder, "{room}/P={count}.dat")


def test_a_low_pass_needs_even_packets(tmp_path: Path) -> None:
    folder = tree(tmp_path / "in", {"cafe/P=1.dat": gappy(1)})
    with pytest.raises(DataError, match=r"needs even packets; give --rate too"):
        imported(folder, "{room}/P={count}.dat", tmp_path / "rooms.h5", low_pass=10.0)


def test_resampling_does_not_make_up_most_of_a_recording(tmp_path: Path) -> None:
    folder = tree(tmp_path / "in", {"cafe/P=1.dat": gappy(1)})
    with pytest.raises(DataError, match=r"P=1.dat: 30 packets in 5.09 s are too few"):
        imported(folder, "{room}/P={count}.dat", tmp_path / "o.h5", rate=10_000.0, longest_gap=9.0)


def test_resampling_parts_recordings_at_gaps(tmp_path: Path) -> None:
    clocks = [*range(0, 200_000, 10_000), *range(5_000_000, 5_100_000, 10_000)]
    data = b"".join(bfee(intel_csi(1, 1, i), clock=clock) for i, clock in enumerate(clocks))
    folder = tree(tmp_path / "in", {"cafe/P=1.dat": data})
    out = tmp_path / "rooms.h5"
    imported(folder, "{room}/P={count}.dat", out, rate=50.0)
    with Store(out) as store:
        shapes = {each.name: (each.shape[0], round(each.rate)) for each in store.recordings("cafe")}
    assert shapes == {"P=1 part 1": (10, 50), "P=1 part 2": (5, 50)}


def test_a_low_pass_is_applied(tmp_path: Path) -> None:
    folder = tree(tmp_path / "in", {"cafe/P=1.dat": take(1, packets=100)})
    imported(folder, "{room}/P={count}.dat", tmp_path / "raw.h5")
    imported(folder, "{room}/P={count}.dat", tmp_path / "smooth.h5", rate=100.0, low_pass=10.0)
    spread = []
    for name in ("raw.h5", "smooth.h5"):
        with Store(tmp_path / name) as store:
            (recording,) = store.recordings("cafe")
            spread.append(np.diff(store.read(recording, 0, 100), axis=0).std())
    assert spread[1] < spread[0] / 3


@pytest.mark.slow
def test_simulated_captures_come_in_as_the_simulated_store(tmp_path: Path) -> None:
    """The store rounds amplitudes to 16 bits of a take's range, the captures do not."""
    write_simulated_captures("smoke", seed=3, folder=tmp_path / "captures")
    write_simulated("smoke", seed=3, out=tmp_path / "direct.h5")
    imported(tmp_path / "captures", PATTERN, tmp_path / "through.h5")
    with Store(tmp_path / "direct.h5") as direct, Store(tmp_path / "through.h5") as through:
        assert through.synthetic
        assert through.rooms == direct.rooms
        by_name = {
            (room, each.name): each for room in direct.rooms for each in direct.recordings(room)
        }
        compared = 0
        for room in through.rooms:
            for each in through.recordings(room):
                day, people = each.name.split(" P=")
                count, number = people.split("-")
                other = by_name[room, f"people {int(count):02d} day {day} take {number}"]
                assert (each.label, each.day) == (other.label, other.day)
                # The store ends with its last window, and drops fewer frames as half empty.
                mine = dict(
                    zip(
                        through.timestamps(each).round(6).tolist(),
                        through.read(each, 0, each.shape[0]),
                        strict=True,
                    )
                )
                theirs = direct.read(other, 0, other.shape[0])
                times = direct.timestamps(other).round(6).tolist()
                step = theirs.max() / 65535
                shared = [place for place, time in enumerate(times) if time in mine]
                assert len(shared) > 0.95 * len(times)
                found = np.stack([mine[times[place]] for place in shared])
                np.testing.assert_allclose(found, theirs[shared], atol=step)
                compared += 1
        assert compared == len(by_name)


def test_captures_do_not_overwrite_a_folder(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="is not empty"):
        write_simulated_captures("smoke", seed=0, folder=tmp_path)


def wical_tree(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    for room in ("small-room", "medium-room"):
        for day in (1, 2):
            for count in (0, 1):
                path = folder / "datasets" / room / f"sess{day}" / f"P={count}.csv"
                path.parent.mkdir(parents=True, exist_ok=True)
                np.savetxt(path, rng.random((3, 420)), delimiter=",")
                (path.parent / "S=0.csv").write_text("not counting\n")
    return folder


def test_wical_makes_a_room_of_a_room_and_a_day(tmp_path: Path) -> None:
    out = tmp_path / "wical.h5"
    rows = import_wical(wical_tree(tmp_path / "upstream"), out)
    assert len(rows) == 8
    with Store(out) as store:
        assert store.rooms == (
            "medium-room day 1",
            "medium-room day 2",
            "small-room day 1",
            "small-room day 2",
        )
        (first, second) = store.recordings("small-room day 2")
        assert (first.label, second.label, first.shape) == (0, 1, (3, 420))


def test_wical_makes_one_room_of_its_days_where_that_is_asked(tmp_path: Path) -> None:
    out = tmp_path / "wical.h5"
    folder = wical_tree(tmp_path / "upstream")
    import_wical(folder, out, days_of_a_room=True, only=["small-room"])
    import_wical(folder, tmp_path / "days.h5")
    with Store(out) as store, Store(tmp_path / "days.h5") as by_day:
        assert store.rooms == ("small-room",)
        told = [(own.day, own.label) for own in store.recordings("small-room")]
        assert sorted(told) == [("1", 0), ("1", 1), ("2", 0), ("2", 1)]
        (same,) = [own for own in store.recordings("small-room") if own.name == "day 2 P=1"]
        _, other = by_day.recordings("small-room day 2")
        np.testing.assert_array_equal(store.read(same, 0, 3), by_day.read(other, 0, 3))


def test_wical_as_npz_equals_its_tree(tmp_path: Path) -> None:
    folder = wical_tree(tmp_path / "upstream")
    import_wical(folder, tmp_path / "tree.h5")
    rows = [
        (path.parents[1].name, path.parent.name, int(path.stem[2:]), place, row)
        for path in sorted(folder.rglob("P=*.csv"), reverse=True)
        for place, row in enumerate(np.loadtxt(path, np.float32, delimiter=","))
    ]
    room, day, count, place, features = (np.array(each) for each in zip(*rows, strict=True))
    np.savez(tmp_path / "all.npz", X=features, room=room, sess=day, y=count, pos=place)
    import_wical(tmp_path / "all.npz", tmp_path / "npz.h5")
    with Store(tmp_path / "tree.h5") as one, Store(tmp_path / "npz.h5") as other:
        assert one.rooms == other.rooms
        for name in one.rooms:
            assert one.recordings(name) == other.recordings(name)
            for each in one.recordings(name):
                np.testing.assert_array_equal(one.read(each, 0, 3), other.read(each, 0, 3))


@pytest.mark.parametrize(
    ("content", "words"),
    [("1,2,3\n", r"\(1, 3\) values"), ("a,b\n", "expected rows of 420 numbers"), ("", "values")],
)
def test_wical_files_of_another_shape_are_refused(tmp_path: Path, content: str, words: str) -> None:
    folder = tree(tmp_path / "in", {"small-room/sess1/P=0.csv": content.encode()})
    with pytest.raises(DataError, match=words):
        import_wical(folder, tmp_path / "out.h5")
    assert not (tmp_path / "out.h5").exists()


def test_wical_needs_its_layout(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file is named like <room>/sess<day>/P=<count>\.csv"):
        import_wical(tree(tmp_path / "in", {"a.csv": b"1"}), tmp_path / "out.h5")
    with pytest.raises(DataError, match=r"expected an .npz with the arrays X, room, sess, y"):
        import_wical(tree(tmp_path / "b", {"a.npz": intel_file(1)}) / "a.npz", tmp_path / "out.h5")


def test_wical_of_other_arrays_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    sound = {
        "X": np.zeros((2, 420), np.float32),
        "room": np.array(["small", "small"]),
        "sess": np.array(["sess1", "sess1"]),
        "y": np.array([0, 1]),
        "pos": np.array([0, 0]),
    }
    np.savez(path, **sound)
    whole = path.read_bytes()
    for name, array in (
        ("room", np.array([1, 2])),
        ("sess", np.array([1, 2])),
        ("y", np.array(["a", "b"])),
        ("pos", np.array(["a", "b"])),
        ("X", np.full((2, 420), "a")),
    ):
        np.savez(path, **{**sound, name: array})
        with pytest.raises(DataError, match=f"{name} holds .*; expected (text|numbers)"):
            import_wical(path, tmp_path / "out.h5")
    np.savez(path, **{**sound, "y": np.array([0, -1])})
    with pytest.raises(DataError, match="no number of people"):
        import_wical(path, tmp_path / "out.h5")
    np.save(tmp_path / "b.npy", sound["X"])
    with pytest.raises(DataError, match="one array"):
        import_wical(tmp_path / "b.npy", tmp_path / "out.h5")
    for damaged in (whole[:200], whole[:1000] + whole[1100:], b"PK\3\4 nothing"):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"expected an .npz with the arrays"):
            import_wical(path, tmp_path / "out.h5")
    assert not (tmp_path / "out.h5").exists()


EVENING = {"cafe/mon/e1.dat": take(11), "cafe/tue/e2.dat": take(12)}
"""Captures that nobody labelled."""


def add_unlabelled(folder: Path, pattern: str, out: Path) -> list[Any]:
    return import_captures(sources_by_pattern(folder, pattern, unlabelled=True)[0], out)


def content_of(path: Path) -> str:
    """A digest of everything that a store holds, whatever the version of HDF5."""
    digest = hashlib.sha256()

    def take_in(name: str, one: h5py.Group | h5py.Dataset) -> None:
        digest.update(repr((name, sorted((key, str(v)) for key, v in one.attrs.items()))).encode())
        if isinstance(one, h5py.Dataset):
            digest.update(np.ascontiguousarray(one[:]).tobytes())

    with h5py.File(path) as file:
        take_in("/", file)
        file.visititems(take_in)
    return digest.hexdigest()[:16]


def test_recordings_without_a_label_are_added_to_a_store(tmp_path: Path) -> None:
    out = tmp_path / "rooms.h5"
    imported(tree(tmp_path / "in", TREE), "{room}/{day}/P={count}.dat", out)
    with Store(out) as store:
        before = store.recordings("cafe")
    evening = tree(tmp_path / "evening", EVENING)
    rows = add_unlabelled(evening, "{room}/{day}/{name}.dat", out)
    assert [(row.room, row.day, row.label, row.recordings) for row in rows] == [
        ("cafe", "mon", None, 1),
        ("cafe", "tue", None, 1),
    ]
    assert [row.known for row in add_unlabelled(evening, "{room}/{day}/{name}.dat", out)] == [1, 1]
    with Store(out) as store:
        after = store.recordings("cafe")
        assert [(one.name, one.label) for one in after if one not in before] == [
            ("mon e1", None),
            ("tue e2", None),
        ]
        assert {one.part for one in before} == {""}
    later = tree(tmp_path / "later", {"cafe/mon/P=2.dat": take(13)})
    imported(later, "{room}/{day}/P={count}.dat", out)
    with Store(out) as store:
        assert [one.label for one in store.recordings("cafe")] == [0, 1, 2, None, 1, None]


def test_a_store_without_such_recordings_is_as_it_was_before_there_were_any(
    tmp_path: Path,
) -> None:
    out = tmp_path / "rooms.h5"
    imported(tree(tmp_path / "in", TREE), "{room}/{day}/P={count}.dat", out)
    assert content_of(out) == "2923ae26d18df5e0"


def test_a_manifest_may_leave_labels_out(tmp_path: Path) -> None:
    """Where it was said that they may be missing: in a row, or in all of them."""
    tree(tmp_path, {"a.dat": take(1, 40), "b.dat": take(2)})
    rows = ("a.dat,cafe,3,0,0.1", "a.dat,cafe,,0.1,0.2", "b.dat,cafe, ,,")
    some = manifest(tmp_path, "file,room,count,start,end", *rows)
    assert [one.label for one in sources_by_manifest(some, unlabelled=True)] == [3, None, None]
    import_captures(sources_by_manifest(some, unlabelled=True), tmp_path / "rooms.h5")
    with Store(tmp_path / "rooms.h5") as store:
        held = {one.name: one.label for one in store.recordings("cafe")}
    assert held == {"a 0-0.1": 3, "a 0.1-0.2": None, "b": None}
    none = manifest(tmp_path, "file,room", "a.dat,cafe", "b.dat,hall")
    assert [one.label for one in sources_by_manifest(none, unlabelled=True)] == [None, None]
    both = manifest(tmp_path, "file,room,count,label", "a.dat,cafe,,")
    with pytest.raises(DataError, match="expected file, room, either count or label"):
        sources_by_manifest(both, unlabelled=True)
    overlapping = manifest(tmp_path, "file,room,count,start,end", "a.dat,cafe,3,,", "a.dat,hall,,,")
    with pytest.raises(DataError, match=r"two contradictory labels .* 3 in 'cafe' and no label in"):
        import_captures(sources_by_manifest(overlapping, unlabelled=True), tmp_path / "other.h5")


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("{room}/{day}/P={count}.dat", r"names \{count\}, and --unlabelled says"),
        ("{room}/{day}/P={label}.dat", r"names \{label\}, and --unlabelled says"),
        ("{day}/{name}.dat", r"needs \{room\}, or --room for files of one room$"),
    ],
)
def test_a_pattern_that_labels_is_not_without_labels(
    tmp_path: Path, pattern: str, words: str
) -> None:
    with pytest.raises(DataError, match=words):
        sources_by_pattern(tree(tmp_path / "in", TREE), pattern, unlabelled=True)


def test_one_recording_is_not_both_with_and_without_a_label(tmp_path: Path) -> None:
    """What is tested there would be learned from here."""
    folder = tree(tmp_path / "in", {"cafe/P=1.dat": take(1)})
    for first, second, words in (
        (imported, add_unlabelled, "without a label, but the same recording is labelled 1 as"),
        (add_unlabelled, imported, "labelled 1, but the same recording is without a label as"),
    ):
        out = tmp_path / f"{first.__name__}.h5"
        patterns = {imported: "{room}/P={count}.dat", add_unlabelled: "{room}/{name}.dat"}
        first(folder, patterns[first], out)
        with pytest.raises(DataError, match=words):
            second(folder, patterns[second], out)
    out = tmp_path / f"{add_unlabelled.__name__}.h5"
    with pytest.raises(DataError, match="give it a label there: fedapa label"):
        imported(folder, "{room}/P={count}.dat", out)
    relabel(out, room="cafe", names=["*"], label=1)
    (row,) = add_unlabelled(folder, "{room}/{name}.dat", out)
    assert row.known == 1, "what was imported without a label is known, whatever it is labelled"


def test_no_label_is_neither_a_count_nor_a_category(tmp_path: Path) -> None:
    out = tmp_path / "rooms.h5"
    add_unlabelled(tree(tmp_path / "a", EVENING), "{room}/{day}/{name}.dat", out)
    imported(tree(tmp_path / "b", {"hall/sit.dat": take(2)}), "{room}/{label}.dat", out)
    with pytest.raises(DataError, match="counts and categories do not go into one store"):
        imported(tree(tmp_path / "c", {"hall/P=1.dat": take(3)}), "{room}/P={count}.dat", out)


def test_a_second_label_comes_from_the_path(tmp_path: Path) -> None:
    folder = tree(
        tmp_path / "in",
        {
            "cafe/P=0-empty.dat": take(1),
            "cafe/P=2-sitting.dat": take(2),
            "cafe/P=2-walking.dat": take(3),
        },
    )
    out = tmp_path / "rooms.h5"
    rows = imported(folder, "{room}/P={count}-{activity}.dat", out)
    assert [(row.label, row.activity) for row in rows] == [
        (0, "empty"),
        (2, "sitting"),
        (2, "walking"),
    ]
    assert import_summary(rows)["rooms"]["cafe"]["activities"] == ["empty", "sitting", "walking"]
    assert import_table(rows).rows[0][1] == "0, 2 people; empty, sitting, walking"
    with Store(out) as store:
        told = [(one.label, one.activity) for one in store.recordings("cafe")]
    assert told == [(0, "empty"), (2, "sitting"), (2, "walking")]
    assert [row.known for row in imported(folder, "{room}/P={count}-{activity}.dat", out)] == [
        1
    ] * 3
    with pytest.raises(
        DataError, match="labelled 0, but the same recording is labelled 0 and 'emp"
    ):
        imported(folder, "{room}/P={count}-{what}.dat", out)
    with pytest.raises(DataError, match=r"names \{activity\}, which stands beside \{count\}"):
        imported(folder, "{room}/P={label}-{activity}.dat", tmp_path / "other.h5")


def test_a_manifest_may_have_activities_for_some_rows(tmp_path: Path) -> None:
    folder = tree(tmp_path / "in", {"a.dat": take(1), "b.dat": take(2)})
    rows = ("a.dat,cafe,0,", "b.dat,cafe,2,walking")
    first, second = sources_by_manifest(manifest(folder, "file,room,count,activity", *rows))
    assert (first.activity, second.activity) == (None, "walking")
    with pytest.raises(DataError, match="column 'activity' stands beside a column 'count'"):
        sources_by_manifest(manifest(folder, "file,room,label,activity", "a.dat,cafe,x,y"))
    with pytest.raises(DataError, match="line 2: activity 'walking' without a count"):
        path = manifest(folder, "file,room,count,activity", "a.dat,cafe,,walking")
        sources_by_manifest(path, unlabelled=True)


def test_captures_of_simulated_activities_are_imported_as_they_were_made(tmp_path: Path) -> None:
    """All sit or all walk; the store from captures has the labels of the store itself."""
    changes = {"counts": [0, 1], "activities": ["sitting", "walking"], "recordings": 1, "days": 1}
    smoke = preset_of("smoke")
    room = smoke.places[4].scene.room.name
    chosen = changed_preset(replace(smoke, places=smoke.places[4:5]), {room: changes})
    write_simulated(chosen, seed=0, out=tmp_path / "made.h5")
    write_simulated_captures(chosen, seed=0, folder=tmp_path / "captures")
    (pattern,) = patterns_of(chosen)
    imported(tmp_path / "captures", pattern, tmp_path / "imported.h5")
    told = []
    for name in ("made.h5", "imported.h5"):
        with Store(tmp_path / name) as store:
            recordings = store.recordings(room)
            told.append(sorted((str(one.label), one.activity) for one in recordings))
    assert told[0] == told[1] == [("0", "empty"), ("1", "sitting"), ("1", "walking")]
