import signal
from pathlib import Path

import numpy as np
import pytest

from fedapa.errors import DataError
from fedapa.stores.append import append_store
from fedapa.stores.store import Store


def piece(packets: int, first: float = 0.0, rate: float = 100.0):
    amplitude = np.random.default_rng(packets).random((packets, 5, 2)).astype(np.float32)
    return amplitude, first + np.arange(packets) / rate


def add(path: Path, room: str, name: str, pieces, label=1) -> int:
    with append_store(path) as store:
        if room not in store.rooms():
            store.add_room(room, synthetic=False, about={"device": "test"})
        return store.add_stream(room, name, pieces, label=label, day="1", notes={"source": "a"})


def test_pieces_become_one_recording(tmp_path: Path) -> None:
    path = tmp_path / "rooms.h5"
    pieces = [piece(30), piece(0), piece(7, 0.3)]
    assert add(path, "cafe", "take", iter(pieces)) == 37
    with Store(path) as store:
        (recording,) = store.recordings("cafe")
        assert recording.shape == (37, 5, 2)
        assert recording.rate == pytest.approx(100)
        assert recording.mean_rate == pytest.approx(100)
        rows = store.read(recording, 28, 33)
        np.testing.assert_array_equal(rows, np.concatenate([pieces[0][0], pieces[2][0]])[28:33])
        assert len(store.timestamps(recording)) == 37


def test_the_rate_of_bursts_is_told_both_ways(tmp_path: Path) -> None:
    """Two bursts of ten packets, 1 ms apart, 9.991 s from start to start: 19 intervals in 10 s."""
    path = tmp_path / "rooms.h5"
    add(path, "cafe", "take", [piece(10, rate=1000.0), piece(10, 9.991, rate=1000.0)])
    with Store(path) as store:
        (recording,) = store.recordings("cafe")
    assert recording.rate == pytest.approx(1000)
    assert recording.mean_rate == pytest.approx(1.9)


def test_a_recording_without_packets_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "rooms.h5"
    assert add(path, "cafe", "nothing", [piece(0)]) == 0
    with Store(path) as store:
        assert store.recordings("cafe") == ()


def test_what_was_there_stays_there(tmp_path: Path) -> None:
    path = tmp_path / "rooms.h5"
    add(path, "cafe", "first", [piece(10)])
    add(path, "cafe", "second", [piece(20)], label=2)
    add(path, "hall", "first", [piece(30)])
    with Store(path) as store:
        assert store.rooms == ("cafe", "hall")
        assert [each.name for each in store.recordings("cafe")] == ["first", "second"]


def test_a_failure_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "rooms.h5"
    add(path, "cafe", "first", [piece(10)])
    before = path.read_bytes()

    def breaking():
        yield piece(10)
        raise RuntimeError("the disk is gone")

    with pytest.raises(RuntimeError):
        add(path, "cafe", "second", breaking())
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_only_a_store_is_added_to(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    with pytest.raises(DataError, match="cannot be opened as HDF5"), append_store(path):
        pass
    assert path.read_text() == "hello"


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a folder; expected a store"), append_store(tmp_path):
        pass


def test_two_imports_into_one_store_do_not_lose_one(tmp_path: Path) -> None:
    path = tmp_path / "rooms.h5"

    def meanwhile():
        with pytest.raises(DataError, match=r"rooms\.h5: another process is writing it"):
            add(path, "cafe", "second", [piece(20)])
        yield piece(10)

    add(path, "cafe", "first", meanwhile())
    add(path, "cafe", "second", [piece(20)])
    with Store(path) as store:
        assert [recording.name for recording in store.recordings("cafe")] == ["first", "second"]
    assert list(tmp_path.iterdir()) == [path]


def test_ctrl_c_waits_for_the_next_piece_and_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "rooms.h5"
    add(path, "cafe", "first", [piece(10)])
    before = path.read_bytes()
    heard = []

    def interrupted():
        signal.raise_signal(signal.SIGINT)
        heard.append("not yet")
        yield piece(10)
        heard.append("too late")

    with pytest.raises(KeyboardInterrupt):
        add(path, "cafe", "second", interrupted())
    assert heard == ["not yet"]
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
