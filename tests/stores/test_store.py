"""The store: what is written is read, and what is not ours is refused in one sentence."""

import os
import re
import resource
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from fedapa.errors import DataError
from fedapa.stores.append import append_store
from fedapa.stores.distribution import distribution
from fedapa.stores.store import Store, StoreWriter, noted, write_store
from tests.conftest import MakeStore


def test_what_is_written_is_read(make_store: MakeStore) -> None:
    with Store(make_store({"cafe": {0: 1, 3: 2}})) as store:
        assert store.rooms == ("cafe",)
        assert store.about("cafe")["device"] == "test"
        takes = store.recordings("cafe")
        assert [(take.name, take.label, take.day) for take in takes] == [
            ("0-0", 0, "day 0"),
            ("3-0", 3, "day 0"),
            ("3-1", 3, "day 1"),
        ]
        assert takes[0].shape == (64, 6, 1)
        assert store.read(takes[0], 10, 12).shape == (2, 6, 1)
        assert store.timestamps(takes[0])[:2].tolist() == [0.0, 0.01]


def test_categories_stay_text(make_store: MakeStore) -> None:
    with Store(make_store({"cafe": {"walk": 1, "sit": 1}})) as store:
        assert [take.label for take in store.recordings("cafe")] == ["sit", "walk"]


def test_scaled_integers_come_back_in_their_unit(tmp_path: Path) -> None:
    path = tmp_path / "rooms.h5"
    with write_store(path) as store:
        store.add_room("cafe", synthetic=False, about={})
        store.add_recording(
            "cafe",
            "take",
            label=1,
            amplitude=np.arange(6, dtype=np.uint16).reshape(3, 2, 1),
            timestamps=np.arange(3.0),
            scale=0.5,
        )
    with Store(path) as read:
        values = read.read(read.recordings("cafe")[0], 0, 3)
        assert values.dtype == np.float32
        assert values[:, :, 0].tolist() == [[0.0, 0.5], [1.0, 1.5], [2.0, 2.5]]


def add_one(store: StoreWriter, part: str) -> None:
    store.add_room("cafe", synthetic=False, about={})
    rows = np.ones((4, 2, 1), np.float32)
    store.add_recording(
        "cafe", "take", label=1, amplitude=rows, timestamps=np.arange(4.0), part=part
    )


def test_a_recording_may_be_for_counting_over_time_only(tmp_path: Path) -> None:
    path = tmp_path / "rooms.h5"
    with append_store(path) as store:
        add_one(store, "continuous")
        pieces = [(np.ones((4, 2, 1), np.float32), np.arange(4.0))]
        store.add_stream("cafe", "usual", pieces, label=1)
        store.add_stream("cafe", "walk", pieces, label=1, part="continuous")
    with Store(path) as read:
        parts = {each.name: each.part for each in read.recordings("cafe")}
    assert parts == {"take": "continuous", "usual": "", "walk": "continuous"}
    assert distribution(path, window=2).windows == {"cafe": {1: 2}}


def test_an_unknown_part_is_refused_when_written_and_when_read(tmp_path: Path) -> None:
    path = tmp_path / "rooms.h5"
    with (
        pytest.raises(DataError, match="'take': part is 'evening'; expected 'continuous', 'unl"),
        write_store(path) as store,
    ):
        add_one(store, "evening")
    with write_store(path) as store:
        add_one(store, "")
    for odd in ("evening", 2):
        with h5py.File(path, "r+") as file:
            file["cafe/take"].attrs["part"] = odd
        with Store(path) as read, pytest.raises(DataError, match=f"cafe/take: part is {odd!r};"):
            read.recordings("cafe")


def test_a_recording_may_have_no_label(tmp_path: Path) -> None:
    """It says so by its part; no attribute holds a label that it does not have."""
    path, rows = tmp_path / "rooms.h5", np.ones((4, 2, 1), np.float32)
    with append_store(path) as store:
        add_one(store, "")
        stamps = np.arange(4.0)
        store.add_recording("cafe", "one", label=None, amplitude=rows, timestamps=stamps)
        store.add_stream("cafe", "other", [(rows, stamps)], label=None, part="unlabelled")
        store.add_room("hall", synthetic=False, about={})
        store.add_features("hall", "rows", label=None, features=rows[:, :, 0])
    with Store(path) as read:
        assert [one.label for one in read.recordings("cafe")] == [None, None, 1]
        assert [one.part for one in read.recordings("cafe")] == ["unlabelled", "unlabelled", ""]
        assert read.recordings("hall")[0].label is None
    with h5py.File(path) as file:
        assert "label" not in file["cafe/one"].attrs
        assert "part" not in file["cafe/take"].attrs
    found = distribution(path, window=2, rooms=["cafe"])
    assert (found.windows, found.labels, found.unlabelled) == ({"cafe": {1: 2}}, (1,), {"cafe": 4})


def test_a_recording_has_a_label_or_says_that_it_has_none(tmp_path: Path) -> None:
    path, rows = tmp_path / "rooms.h5", np.ones((4, 2, 1), np.float32)
    about = {"amplitude": rows, "timestamps": np.arange(4.0)}
    with (
        pytest.raises(DataError, match="'take': part is 'unlabelled', and it has a label; which"),
        write_store(path) as store,
    ):
        add_one(store, "unlabelled")
    with write_store(path) as store:
        add_one(store, "")
        with pytest.raises(DataError, match="'walk': damaged or incomplete: it has no label, and "):
            store.add_recording("cafe", "walk", label=None, part="continuous", **about)
    with h5py.File(path, "r+") as file:
        file["cafe/take"].attrs["part"] = "unlabelled"
    with Store(path) as read, pytest.raises(DataError, match=r"cafe/take: part is .* which is it"):
        read.recordings("cafe")


def test_synthetic_is_marked_everywhere(make_store: MakeStore) -> None:
    path = make_store({"cafe": {0: 1, 1: 1}}, synthetic=True)
    with h5py.File(path) as file:
        assert file.attrs["synthetic"]
        assert file["cafe"].attrs["synthetic"]
        assert all(take.attrs["synthetic"] for take in file["cafe"].values())


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rooms.h5"
    with pytest.raises(DataError, match="no room 'cafe' yet"), write_store(path) as store:
        store.add_features("cafe", "take", label=0, features=np.zeros((2, 3), np.float32))
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_not_overwritten(make_store: MakeStore) -> None:
    path = make_store()
    with pytest.raises(DataError, match="already exists"), write_store(path):
        pass
    with pytest.raises(DataError, match="is no regular file; choose"), write_store("/dev/null"):
        pass
    with Store(path) as store:
        assert store.rooms == ("cafe", "hall")


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "x" * 65, "new\nline", " edge"])
def test_names_that_cannot_be_files_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="use 1 to 64"), write_store(tmp_path / "s.h5") as store:
        store.add_room(name, synthetic=False, about={})


def test_missing_truncated_and_foreign_files_are_named(
    tmp_path: Path, make_store: MakeStore
) -> None:
    with pytest.raises(DataError, match=r"absent\.h5: no such file"):
        Store(tmp_path / "absent.h5")
    with pytest.raises(DataError, match=r"is a folder; expected a store, which 'fedapa import'"):
        Store(tmp_path)
    with pytest.raises(DataError, match="is no regular file"):
        Store("/dev/null")
    whole = make_store().read_bytes()
    short = tmp_path / "short.h5"
    short.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"short\.h5: cannot be opened as HDF5; truncated"):
        Store(short)
    text = tmp_path / "text.h5"
    text.write_text("hello")
    with pytest.raises(DataError, match="not a store"):
        Store(text)
    foreign = tmp_path / "foreign.h5"
    with h5py.File(foreign, "w") as file:
        file["x"] = 1
    with pytest.raises(DataError, match="not a fedapa store"):
        Store(foreign)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda file: file.attrs.__setitem__("window", "big"), "'window' is 'big'"),
        (lambda file: file.attrs.__setitem__("window", -5), "'window' is -5"),
        (
            lambda file: file.attrs.__setitem__("format", ["a", "b"]),
            "'format' is a list of 2 texts",
        ),
        (lambda file: file.attrs.__setitem__("format", "x" * 10**6), "format is 'x{79}\\)"),
        (lambda file: file.attrs.__setitem__("window", "y" * 10**6), "'window' is 'y{79}, no"),
        (
            lambda file: file.__setitem__("kind", np.dtype("f4")),
            "'kind' is no room but a named type",
        ),
        (
            lambda file: file["cafe"].__setitem__("k", np.dtype("f4")),
            "'k' is a named type and no g",
        ),
        (lambda file: h5py.h5g.create(file.id, b"\xff"), "its rooms: a name .* is not in UTF-8"),
        (
            lambda file: h5py.h5g.create(file["cafe"].id, b"\xff"),
            "cafe: a name or a text there is not in UTF-8",
        ),
        (
            lambda file: file.__setitem__("x", h5py.SoftLink("/a\x1b\n" + "b" * 50_000)),
            "link to /a  b{76}; a store",
        ),
        (
            lambda file: file["cafe/0-0"].attrs.__setitem__("label", "w" * 10**6),
            "label 'w{80}…' has 1000000 letters; expected at most 200",
        ),
        (
            lambda file: file["cafe/0-0"].attrs.__setitem__("day", "d" * 201),
            "day 'd{80}…' has 201 letters; expected at most 200",
        ),
        (lambda file: file.__setitem__("stray", 1), "'stray' is no room but a dataset"),
        (lambda file: file.create_group("..x"), "use 1 to 64"),
        (lambda file: file["cafe/0-0"].attrs.__setitem__("label", -1), "label -1 is no count"),
        (lambda file: file["cafe/0-0"].attrs.__setitem__("label", 1.5), "label 1.5 is no count"),
        (lambda file: _replaced(file, np.zeros(5)), r"shape \(5,\)"),
        (lambda file: _replaced(file, np.zeros((5, 6, 0))), r"shape \(5, 6, 0\)"),
        (
            lambda file: _replaced(file, np.zeros((64, 6, 1), complex)),
            "type compound, e.g. complex",
        ),
        (lambda file: _replaced(file, np.array([[[b"x"]]])), "expected real numbers"),
        (lambda file: file.attrs.__setitem__("window", [5, 6]), "'window' is array"),
        (lambda file: file.attrs.__setitem__("synthetic", [0, 1]), "'synthetic' is array"),
        (lambda file: file.attrs.__setitem__("format", [1, 2]), "not a fedapa store"),
        (lambda file: file.attrs.__setitem__("version", [1, 1]), "store version"),
        (lambda file: file.attrs.__setitem__("of", h5py.Empty("f")), "'of' is neither"),
        (lambda file: file["cafe"].attrs.__setitem__("device", file.ref), "'device' is neither"),
        (lambda file: file["cafe/0-0"].attrs.__setitem__("rate", [1.0, 2.0]), "'rate' is array"),
        (lambda file: file["cafe/0-0"].attrs.__setitem__("rate", np.nan), "'rate' is nan"),
        (lambda file: file["cafe/0-0"].attrs.__setitem__("day", [1, 2]), "'day' is array"),
        (lambda file: file["cafe/0-0"].attrs.__setitem__("label", [1, 2]), "label array"),
        (lambda file: file["cafe/0-0"].attrs.__setitem__("label", b"\xff"), "text in UTF-8"),
        (lambda file: file["cafe/0-0"].attrs.__setitem__("synthetic", "no"), "'synthetic' is"),
        (
            lambda file: file["cafe/0-0/amplitude"].attrs.__setitem__("scale", [1.0, 2.0]),
            "'scale' is array",
        ),
        (
            lambda file: file["cafe/0-0/amplitude"].attrs.__setitem__("scale", -1e300),
            "its scale is -1e\\+300, which is no 32-bit number",
        ),
    ],
)
def test_what_is_not_as_documented_is_named(
    make_store: MakeStore, change: Callable[[h5py.File], None], complaint: str
) -> None:
    path = make_store({"cafe": {0: 1, 1: 1}})
    with h5py.File(path, "r+") as file:
        change(file)
    with pytest.raises(DataError, match=complaint), Store(path) as store:
        _ = store.window, store.synthetic, store.notes
        for room in store.rooms:
            store.about(room)
            for recording in store.recordings(room):
                store.read(recording, 0, 1)


def test_numbers_that_32_bits_cannot_hold_are_infinite_without_a_warning(
    make_store: MakeStore,
) -> None:
    path = make_store({"cafe": {0: 1, 1: 1}})
    with h5py.File(path, "r+") as file:
        take = file["cafe/0-0"]
        values = take["amplitude"][:].astype(np.float64)
        values[0, 0, 0], values[1, 0, 0] = 1e300, 1e38
        del take["amplitude"]
        take["amplitude"] = values
        take["amplitude"].attrs["scale"] = 1e3
    with Store(path) as store:
        read = store.read(store.recordings("cafe")[0], 0, 3)
    assert np.isposinf(read[:2, 0, 0]).all()
    assert np.isfinite(read[2]).all()


@pytest.mark.parametrize(("number", "size"), [(0, 0), (1, 2**64 - 16), (1, 2**40)])
def test_a_heap_of_texts_without_an_end_is_refused_and_not_read_for_ever(
    make_store: MakeStore, number: int, size: int
) -> None:
    """HDF5 2.0 never comes back from the first of them."""
    path = make_store({"cafe": {0: 1, 1: 1}})
    content = bytearray(path.read_bytes())
    heap = content.index(b"GCOL")
    first = heap + 16
    struct.pack_into("<HHIQ", content, first, number, 0, 0, size)
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"texts at byte {heap} has no end, or is far too large"):
        Store(path)


def test_heaps_within_heaps_are_refused_and_not_followed_one_by_one(
    make_store: MakeStore,
) -> None:
    """1,000 texts, each in a heap of its own to the end of 10,000 objects that have a head in them:
    to follow them all would take the product of both, and with a file of 10 MB hours."""
    path = make_store({"cafe": {0: 1, 1: 1}})
    head, size = struct.Struct("<HHIQ4sBxxxQ"), 10_000
    pieces = [head.pack(1, 0, 0, 16, b"GCOL", 1, 16 + 32 * (size - i - 1)) for i in range(size)]
    with h5py.File(path, "r+") as file:
        texts = [f"{number:016d}" for number in range(1000)]
        file["cafe"].attrs.update({text: text for text in texts})
        odd = file["cafe/0-0"].create_dataset("odd", data=np.frombuffer(b"".join(pieces), "u1"))
        first = odd.id.get_offset() + 16
    content = bytearray(path.read_bytes())
    # A text is told by its length, its heap and its number there.
    heaps = {found.start() for found in re.finditer(rb"GCOL\x01", content[: first - 16])}
    told = re.compile(b"|".join(re.escape(struct.pack("<IQ", 16, heap)) for heap in heaps))
    for number, found in enumerate(told.finditer(content)):
        struct.pack_into("<Q", content, found.start() + 4, first + 32 * number)
    path.write_bytes(content)
    with (
        Store(path) as store,
        pytest.raises(DataError, match=r"heap of its texts at byte \d+ has no end"),
    ):
        store.about("cafe")


def test_what_is_written_is_read_again_while_it_is_written(tmp_path: Path) -> None:
    """HDF5 forgets heaps that it wrote itself and reads them again; nobody suspects those."""
    rooms, note = 3000, "a text that stays in the heap"
    with append_store(tmp_path / "rooms.h5") as store:
        for number in range(rooms):
            store.add_room(f"{number}", synthetic=True, about={f"note {i}": note for i in range(4)})
        read = [store.about(f"{number}")["note 1"] for number in range(rooms)]
    assert read == [note] * rooms


def test_what_others_noted_stays_when_a_store_is_added_to(make_store: MakeStore) -> None:
    path = make_store({"cafe": {0: 1, 1: 1}})
    with h5py.File(path, "r+") as file:
        for place in ("/", "cafe", "cafe/0-0"):
            file[place].attrs.update(texts=["a", "b"], nothing=h5py.Empty("f4"), root=1j)
    with append_store(path) as store:
        store.relabel("cafe", "0-0", 1)
    with h5py.File(path) as file:
        assert list(file["cafe/0-0"].attrs["texts"]) == ["a", "b"]


def test_a_heap_that_is_far_too_large_is_refused_and_not_read(make_store: MakeStore) -> None:
    path = make_store({"cafe": {0: 1, 1: 1}})
    content = bytearray(path.read_bytes())
    heap = content.index(b"GCOL")
    struct.pack_into("<Q", content, heap + 8, 2**30)
    with path.open("wb") as file:
        file.write(content)
        file.truncate(heap + 2**30)
    with pytest.raises(DataError, match=f"texts at byte {heap} has no end, or is far too large"):
        Store(path)


def test_sizes_of_other_lengths_are_refused(tmp_path: Path) -> None:
    """Its heaps would be read in another way than HDF5 reads them."""
    made = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    made.set_sizes(8, 4)
    name = str(tmp_path / "rooms.h5").encode()
    h5py.h5f.create(name, h5py.h5f.ACC_TRUNC, made).close()
    with pytest.raises(DataError, match="HDF5 whose sizes have 4 bytes; expected 8"):
        Store(tmp_path / "rooms.h5")


def test_a_store_behind_something_else_is_refused(make_store: MakeStore) -> None:
    """HDF5 finds it at 512, 1024, ... and counts its addresses from there."""
    path = make_store({"cafe": {0: 1, 1: 1}})
    path.write_bytes(bytes(512) + path.read_bytes())
    with h5py.File(path) as file:
        assert list(file) == ["cafe"]
    with pytest.raises(DataError, match="does not begin as HDF5; if h5jam put something in front"):
        Store(path)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="shows which files are open")
def test_reading_leaves_the_position_in_the_file(make_store: MakeStore) -> None:
    """A forked process shares it: one would have the bytes that the other asked for."""
    path = make_store({"cafe": {0: 1, 1: 1}})
    with Store(path) as store:
        assert store.read(store.recordings("cafe")[0], 0, 64).any()
        (opened,) = [one for one in Path("/proc/self/fd").iterdir() if one.resolve() == path]
        assert os.lseek(int(opened.name), 0, os.SEEK_CUR) == 0


def test_a_list_of_texts_that_are_all_one_is_not_read(make_store: MakeStore) -> None:
    """In the file they take 16 bytes each, in memory the whole text each."""
    path = make_store({"cafe": {0: 1, 1: 1}})
    with h5py.File(path, "r+") as file:
        file["cafe"].attrs["texts"] = ["a", "b"]
    with (
        Store(path) as store,
        pytest.raises(DataError, match="'texts' is a list of 2 texts; expec"),
    ):
        store.about("cafe")


def test_notes_that_together_fill_the_memory_are_refused(make_store: MakeStore) -> None:
    path = make_store({"cafe": {0: 1, 1: 1}})
    with h5py.File(path, "r+") as file:
        file["cafe"].attrs.update({f"note {number}": "x" * 2**20 for number in range(17)})
    with Store(path) as store, pytest.raises(DataError, match="attributes have more than 16777216"):
        store.about("cafe")


def test_types_within_types_are_refused_before_h5py_copies_each(make_store: MakeStore) -> None:
    """A copy of each, of all that is within it: 1,500 levels took 500 MB, 5,000 took 4 GB."""
    path = make_store({"cafe": {0: 1, 1: 1}})
    kind = h5py.h5t.NATIVE_INT8
    for _ in range(1500):
        kind = h5py.h5t.vlen_create(kind)
    with h5py.File(path, "r+") as file:
        del file["cafe/0-0/amplitude"]
        shape = h5py.h5s.create_simple((64, 6, 1))
        h5py.h5d.create(file["cafe/0-0"].id, b"amplitude", kind, shape)
    del kind
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with Store(path) as store, pytest.raises(DataError, match="and type lists; expected real num"):
        store.recordings("cafe")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000, "KB"


def test_more_time_stamps_than_such_a_file_can_hold_packets_are_refused(
    make_store: MakeStore,
) -> None:
    """Ten million packets of nothing are 12 KB compressed; their time stamps are 80 MB."""
    path, packets = make_store({"cafe": {0: 1, 1: 1}}), 10**7
    with h5py.File(path, "r+") as file:
        group = file["cafe/0-0"]
        for name, kind, shape in (("amplitude", "u1", (1, 1)), ("timestamps", "f8", ())):
            del group[name]
            chunk = (2**20, *shape)
            made = group.create_dataset(
                name, (packets, *shape), kind, chunks=chunk, compression="gzip"
            )
            zeros = zlib.compress(bytes(2**20 * made.dtype.itemsize))
            for start in range(0, packets, 2**20):
                made.id.write_direct_chunk((start, *(0 for _ in shape)), zeros)
    with Store(path) as store, pytest.raises(DataError, match="10000000 time stamps, 80000000 byt"):
        store.recordings("cafe")


def test_an_unknown_filter_is_named(make_store: MakeStore) -> None:
    path = make_store({"cafe": {0: 1, 1: 1}})
    with h5py.File(path, "r+") as file:
        for name, mask in (("0-0", 0), ("1-0", 1)):  # used, and left out
            values = file[f"cafe/{name}/amplitude"][:]
            del file[f"cafe/{name}/amplitude"]
            made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            made.set_chunk(values.shape)
            made.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, ())
            space = h5py.h5s.create_simple(values.shape)
            group = file[f"cafe/{name}"].id
            dataset = h5py.h5d.create(group, b"amplitude", h5py.h5t.IEEE_F32LE, space, made)
            dataset.write_direct_chunk((0, 0, 0), values.tobytes(), mask)
    complaint = "cafe/0-0: amplitude: is compressed with filter 32015, which this HDF5 does not"
    with Store(path) as store, pytest.raises(DataError, match=complaint):
        store.recordings("cafe")
    with h5py.File(path, "r+") as file:
        del file["cafe/0-0"]
    with Store(path) as store:
        assert store.read(store.recordings("cafe")[0], 0, 64).any()


def test_labels_and_days_are_no_essays(tmp_path: Path) -> None:
    values = {"amplitude": np.ones((4, 3, 1), np.float32), "timestamps": np.arange(4.0)}
    with write_store(tmp_path / "rooms.h5") as store:
        store.add_room("cafe", synthetic=False, about={})
        store.add_recording("cafe", "long", label="w" * 200, day="d" * 200, **values)
        for told, what in (
            ({"label": "w" * 201}, "label"),
            ({"label": 1, "day": "d" * 201}, "day"),
        ):
            with pytest.raises(DataError, match=f"its {what} .* has 201 letters; expected at most"):
                store.add_recording("cafe", "longer", **told, **values)
    with (
        append_store(tmp_path / "rooms.h5") as appender,
        pytest.raises(DataError, match=r"cafe/long: its label .* has 201 letters"),
    ):
        appender.relabel("cafe", "long", "w" * 201)


def test_a_damaged_note_is_found_before_a_store_is_written(make_store: MakeStore) -> None:
    """Reading the store at large does not read this one; who adds to the store may."""
    path = make_store({"cafe": {0: 1, 1: 1}})
    with h5py.File(path, "r+") as file:
        file["cafe/0-0"].attrs["odd"] = "x" * 5000  # in a heap of its own
    content = bytearray(path.read_bytes())
    heap = content.rindex(b"GCOL")
    struct.pack_into("<HHIQ", content, heap + 16, 0, 0, 0, 0)
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"texts at byte {heap} has no end"), append_store(path):
        raise AssertionError("it was opened")


def test_values_that_look_like_a_heap_are_values(make_store: MakeStore) -> None:
    path = make_store({"cafe": {0: 1, 1: 1}})
    with h5py.File(path, "r+") as file:
        file["cafe/0-0"].create_dataset("odd", data=np.frombuffer(b"GCOL\x01" + b"\xff" * 27, "u1"))
        file["cafe/0-0"].create_dataset("end", data=np.frombuffer(b"GCOL\x01", "u1"))
    with Store(path) as store:
        assert len(store.recordings("cafe")) == 2


def _replaced(file: h5py.File, values: np.ndarray) -> None:
    del file["cafe/0-0/amplitude"]
    file["cafe/0-0/amplitude"] = values


def test_a_newer_version_is_refused(make_store: MakeStore) -> None:
    path = make_store()
    with h5py.File(path, "r+") as file:
        file.attrs["version"] = 99
    with pytest.raises(DataError, match="store version 99, this fedapa reads 1"):
        Store(path)


def test_a_take_without_label_or_values_is_named(make_store: MakeStore) -> None:
    path = make_store({"cafe": {0: 1, 1: 1}})
    with h5py.File(path, "r+") as file:
        del file["cafe"]["0-0"].attrs["label"]
    with Store(path) as store, pytest.raises(DataError, match=r"0-0: damaged or incomplete: it"):
        store.recordings("cafe")


def _declare(file: h5py.File, rows: int, **storage: object) -> None:
    del file["cafe/0-0/amplitude"]
    shape = (rows, 6, 1)
    file["cafe/0-0"].create_dataset("amplitude", shape, np.float32, **storage)


@pytest.mark.parametrize("storage", [{}, {"chunks": (64, 6, 1)}, {"compression": "gzip"}])
def test_packets_that_are_declared_but_not_there_are_refused(
    make_store: MakeStore, storage: dict[str, object]
) -> None:
    path = make_store({"cafe": {0: 1, 1: 1}})
    with h5py.File(path, "r+") as file:
        _declare(file, 10**12, **storage)
    with Store(path) as store, pytest.raises(DataError, match="declares 1000000000000 × 6 × 1"):
        store.recordings("cafe")


def test_compressed_stores_are_read(make_store: MakeStore) -> None:
    path = make_store({"cafe": {0: 1, 1: 1}})
    with h5py.File(path, "r+") as file:
        _declare(file, 1000, chunks=(300, 6, 1), compression="gzip")
        file["cafe/0-0/amplitude"][:] = 3
        _stamp(file, np.arange(1000.0), compression="gzip")
    with Store(path) as store:
        recording = store.recordings("cafe")[0]
        assert recording.shape == (1000, 6, 1)
        assert store.timestamps(recording)[-1] == 999


def test_a_compressed_dataset_with_a_missing_chunk_is_refused(make_store: MakeStore) -> None:
    """The other chunks, of noise, hold more bytes than deflate would need for all of them."""
    path = make_store({"cafe": {0: 1, 1: 1}})
    with h5py.File(path, "r+") as file:
        _declare(file, 1000, chunks=(100, 6, 1), compression="gzip")
        noise = np.random.default_rng(0).normal(size=(900, 6, 1))
        file["cafe/0-0/amplitude"][:900] = noise
    with Store(path) as store, pytest.raises(DataError, match="declares 1000 × 6 × 1"):
        store.recordings("cafe")


@pytest.mark.parametrize(
    "stamps", [np.arange(63.0), np.arange(10_000.0), np.zeros((64, 1)), np.arange(64)]
)
def test_timestamps_that_are_not_those_of_the_packets_are_refused(
    make_store: MakeStore, stamps: np.ndarray
) -> None:
    path = make_store({"cafe": {0: 1, 1: 1}})
    with h5py.File(path, "r+") as file:
        _stamp(file, stamps, compression="gzip")
    with Store(path) as store, pytest.raises(DataError, match="expected seconds of its 64 packets"):
        store.recordings("cafe")


def _stamp(file: h5py.File, stamps: np.ndarray, **storage: object) -> None:
    del file["cafe/0-0/timestamps"]
    file["cafe/0-0"].create_dataset("timestamps", data=stamps, **storage)


def test_a_chunk_that_fills_the_memory_is_refused(make_store: MakeStore) -> None:
    path = make_store({"cafe": {0: 1, 1: 1}})
    with h5py.File(path, "r+") as file:
        _declare(file, 1, maxshape=(None, 6, 1), chunks=(10**8, 6, 1))
    with Store(path) as store, pytest.raises(DataError, match="in chunks of 2400000000 bytes"):
        store.recordings("cafe")


def _outside(tmp_path: Path) -> Path:
    """Another store, into which nothing may lead."""
    outside = tmp_path / "outside.h5"
    with h5py.File(outside, "w") as file:
        file["hall/take/amplitude"] = np.ones((64, 6, 1), np.float32)
    return outside


def _external(file: h5py.File, outside: Path) -> None:
    file["hall"] = h5py.ExternalLink(outside, "/hall")


def _soft(file: h5py.File, _: Path) -> None:
    file["hall"] = h5py.SoftLink("/cafe")


def _link_of_a_recording(file: h5py.File, outside: Path) -> None:
    file["cafe/more"] = h5py.ExternalLink(outside, "/hall/take")


def _link_of_values(file: h5py.File, outside: Path) -> None:
    del file["cafe/0-0/amplitude"]
    file["cafe/0-0/amplitude"] = h5py.ExternalLink(outside, "/hall/take/amplitude")


def _external_values(file: h5py.File, outside: Path) -> None:
    del file["cafe/0-0/amplitude"]
    file["cafe/0-0"].create_dataset(
        "amplitude", (64, 6, 1), np.uint8, external=[(str(outside), 0, 64 * 6)]
    )


def _virtual_values(file: h5py.File, outside: Path) -> None:
    del file["cafe/0-0/amplitude"]
    layout = h5py.VirtualLayout((64, 6, 1), np.float32)
    layout[:] = h5py.VirtualSource(outside, "hall/take/amplitude", (64, 6, 1))
    file["cafe/0-0"].create_virtual_dataset("amplitude", layout)


@pytest.mark.parametrize(
    "lead_out",
    [_external, _soft, _link_of_a_recording, _link_of_values, _external_values, _virtual_values],
)
def test_a_store_that_leads_out_of_itself_is_neither_read_nor_added_to(
    tmp_path: Path, make_store: MakeStore, lead_out: Callable[[h5py.File, Path], None]
) -> None:
    path, outside = make_store({"cafe": {0: 1, 1: 1}}), _outside(tmp_path)
    with h5py.File(path, "r+") as file:
        lead_out(file, outside)
    before = outside.read_bytes(), path.read_bytes()
    complaint = "is a link to|its values are in other files"
    with pytest.raises(DataError, match=complaint), Store(path) as store:
        for room in store.rooms:
            store.recordings(room)
    with pytest.raises(DataError, match=complaint), append_store(path) as appended:
        appended.add_stream("hall", "new", [], label=1)
    assert (outside.read_bytes(), path.read_bytes()) == before


def _limited(limit: int) -> Callable[[], None]:
    """For ``preexec_fn``: no file may grow beyond so many bytes; as a full disk, without one."""

    def limit_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return limit_files


def test_a_full_disk_is_a_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    """HDF5 would try to write what is left when the process ends, and crash."""
    ended = subprocess.run(
        [sys.executable, "-m", "fedapa", "simulate", "--preset", "smoke", "--out", "rooms.h5"],
        cwd=tmp_path,
        preexec_fn=_limited(10**6),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr == "fedapa: rooms.h5: File too large; nothing saved before was lost\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("room_to_grow", [100, 3000, 30_000, 300_000])
def test_a_full_disk_leaves_the_store_that_was_there(
    make_store: MakeStore, room_to_grow: int
) -> None:
    """Wherever the disk is full: in HDF5's tables, in the values, when it closes the file."""
    path = make_store({"cafe": {0: 1, 1: 1}})
    before = path.read_bytes()
    code = f"""
import numpy as np
from fedapa.stores.append import append_store
try:
    with append_store({str(path)!r}) as store:
        for take in range(40):
            rows = np.ones((100, 50, 1), np.float32)
            store.add_stream("cafe", f"new {{take}}", [(rows, np.arange(100.0))], label=1)
except OSError as error:
    print(error)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code],
        preexec_fn=_limited(len(before) + room_to_grow),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == f"[Errno 27] File too large: '{path}'\n"
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_an_attribute_that_is_shorter_than_its_type_is_refused(make_store: MakeStore) -> None:
    """One byte: an enumeration (class 8) of one byte becomes a list elsewhere, with a pointer.

    HDF5 reads the pointer's 16 bytes from where one is, and sometimes crashes.
    """
    path = make_store()
    sound, tried = path.read_bytes(), 0
    at = sound.find(b"synthetic\0")
    while at >= 0:
        kind = sound.find(b"\x18", at, at + 24)  # version 1, class 8
        if kind >= 0:
            tried += 1
            path.write_bytes(sound[:kind] + b"\x19" + sound[kind + 1 :])
            with pytest.raises(DataError, match="'synthetic' is neither a number nor a text"):
                read_all(path)
        at = sound.find(b"synthetic\0", at + 1)
    assert tried >= 3, "of the file, of rooms, of recordings"


def read_all(path: Path) -> None:
    with Store(path) as store:
        assert store.synthetic is False
        for room in store.rooms:
            store.about(room)
            store.recordings(room)


def test_attributes_that_hdf5_cannot_read_are_named() -> None:
    class Damaged:
        def __iter__(self) -> None:
            raise RuntimeError("ran off end of input buffer while decoding")

    with pytest.raises(DataError, match=r"rooms\.h5: its attributes are damaged \(ran off end"):
        noted(Damaged(), "rooms.h5")  # type: ignore[arg-type]


def test_a_second_label_stands_beside_a_count(tmp_path: Path) -> None:
    """A store without any has no attribute of that name; beside anything else it is refused."""
    path = tmp_path / "rooms.h5"
    values = {"amplitude": np.ones((4, 3, 1), np.float32), "timestamps": np.arange(4.0)}
    with write_store(path) as store:
        store.add_room("cafe", synthetic=False, about={})
        store.add_recording("cafe", "a", label=2, activity="walking", **values)
        store.add_recording("cafe", "b", label=2, **values)
        for label in (None, "two"):
            with pytest.raises(DataError, match=r"'c': activity 'walking' beside .*label"):
                store.add_recording("cafe", "c", label=label, activity="walking", **values)
        with pytest.raises(DataError, match="'c': activity '' beside label 2; expected a text"):
            store.add_recording("cafe", "c", label=2, activity="", **values)
    with h5py.File(path) as file:
        assert [("activity" in file["cafe"][name].attrs) for name in "ab"] == [True, False]
    with Store(path) as opened:
        assert [one.activity for one in opened.recordings("cafe")] == ["walking", None]
    with h5py.File(path, "r+") as file:
        file["cafe/a"].attrs["activity"] = 7
    with Store(path) as opened, pytest.raises(DataError, match="'activity' is 7; expected text"):
        opened.recordings("cafe")
