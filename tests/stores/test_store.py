"""The store: what is written is read, and what is not ours is refused in one sentence."""

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from fedapa.errors import DataError
from fedapa.stores.store import Store, write_store
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
    with pytest.raises(DataError, match="no such file"):
        Store(tmp_path)
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
        (lambda file: file.__setitem__("stray", 1), "'stray' is no room but a dataset"),
        (lambda file: file.create_group("..x"), "use 1 to 64"),
        (lambda file: file["cafe/0-0"].attrs.__setitem__("label", -1), "label -1 is no count"),
        (lambda file: file["cafe/0-0"].attrs.__setitem__("label", 1.5), "label 1.5 is no count"),
        (lambda file: _replaced(file, np.zeros(5)), r"shape \(5,\)"),
        (lambda file: _replaced(file, np.zeros((5, 6, 0))), r"shape \(5, 6, 0\)"),
        (lambda file: _replaced(file, np.zeros((64, 6, 1), complex)), "type complex128"),
        (lambda file: _replaced(file, np.array([[[b"x"]]])), "expected real numbers"),
    ],
)
def test_what_is_not_as_documented_is_named(
    make_store: MakeStore, change: Callable[[h5py.File], None], complaint: str
) -> None:
    path = make_store({"cafe": {0: 1, 1: 1}})
    with h5py.File(path, "r+") as file:
        change(file)
    with pytest.raises(DataError, match=complaint), Store(path) as store:
        _ = store.window
        for room in store.rooms:
            store.recordings(room)


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
    with Store(path) as store, pytest.raises(DataError, match=r"cafe: damaged or incomplete"):
        store.recordings("cafe")
