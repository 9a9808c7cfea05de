"""Counts are kept for some days; a file that fails never fails the service."""

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from fedapa.errors import PlanError, SourceError
from fedapa.service.history import KEPT, History


def count(time: float, people: int | None = 2, room: str = "cafe") -> dict[str, Any]:
    return {
        "room": room,
        "time": time,
        "state": "unavailable" if people is None else "counting",
        "count": people,
        "lo": people,
        "hi": people,
        "confidence": None if people is None else 0.5,
        "true_people": None,
        "synthetic": True,
    }


def test_what_was_counted_can_be_read_again(tmp_path: Path) -> None:
    with History(tmp_path / "deep" / "counts.db", clock=lambda: 200.0) as history:
        for time, people in ((100.0, 1), (105.0, None), (110.0, 3)):
            history.add(count(time, people))
        history.add(count(105.0, 7, room="hall"))
        read = history.read("cafe", 0, 200)
        assert read["time"] == [100, 105, 110]
        assert read["count"] == [1, None, 3]
        assert read["state"] == ["counting", "unavailable", "counting"]
        assert history.read("cafe", 100, 105)["time"] == [105]  # after since, up to until
        assert history.read("nobody", 0, 200)["time"] == []
        assert history.state == KEPT
    with History(tmp_path / "deep" / "counts.db", clock=lambda: 200.0) as again:
        assert again.read("hall", 0, 200)["count"] == [7]


def test_of_many_counts_the_last_of_each_part_is_told(tmp_path: Path) -> None:
    with History(tmp_path / "counts.db", clock=lambda: 2000.0) as history:
        for number in range(1000):
            history.add(count(float(number), number % 7))
        read = history.read("cafe", -0.5, 999.5, points=10)
    assert read["time"] == [99, 199, 299, 399, 499, 599, 699, 799, 899, 999]
    assert read["count"] == [time % 7 for time in (99, 199, 299, 399, 499, 599, 699, 799, 899, 999)]


def test_what_is_older_than_the_days_is_deleted(tmp_path: Path) -> None:
    now = 10 * 86_400.0
    with History(tmp_path / "counts.db", days=2, clock=lambda: now) as history:
        for day in range(10):
            history.add(count(day * 86_400.0 + 60))
        history.flush()
        assert history.read("cafe", 0, now)["time"] == [8 * 86_400.0 + 60, 9 * 86_400.0 + 60]


def test_a_damaged_file_is_set_aside_and_a_new_one_begun(tmp_path: Path) -> None:
    path = tmp_path / "counts.db"
    path.write_bytes(b"this is no database" * 500)
    with History(path, clock=lambda: 200.0) as history:
        assert "set aside as counts.db.damaged-" in history.problem
        history.add(count(100.0))
        assert history.read("cafe", 0, 200)["count"] == [2]
        assert history.state == KEPT
        assert history.problem == "", "counts are kept again"
        assert "set aside as counts.db.damaged-" in history.note
    (aside,) = tmp_path.glob("counts.db.damaged-*")
    assert aside.read_bytes() == b"this is no database" * 500


def test_damage_while_it_runs_is_set_aside_too(tmp_path: Path) -> None:
    path = tmp_path / "counts.db"
    with History(path, clock=lambda: 200.0) as history:
        for number in range(500):
            history.add(count(float(number) / 10))
        history.flush()
    with path.open("r+b") as file:  # behind its first page, which says what it is
        file.seek(4096)
        file.write(os.urandom(path.stat().st_size - 4096))
    with History(path, clock=lambda: 200.0) as history:
        history.add(count(150.0))
        history.flush()
        history.add(count(151.0))
        assert 151.0 in history.read("cafe", 0, 200)["time"]
        assert history.state == KEPT
        assert history.note
    assert list(tmp_path.glob("counts.db.damaged-*"))


def test_a_database_of_something_else_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "counts.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE counts (money REAL)")
    other.close()
    with History(path) as history:
        assert history.state == KEPT
        assert history.note


def test_a_full_disk_stops_the_history_and_nothing_else(tmp_path: Path) -> None:
    with History(tmp_path / "counts.db", clock=lambda: 1e6) as history:
        assert history._connection is not None
        history._connection.execute("PRAGMA max_page_count = 4")
        for number in range(20_000):
            history.add(count(float(number)))
        history.flush()
        assert history.state.startswith("not kept: database or disk is full")
        assert history.lost == 20_000
        history._again = 0.0  # a minute later there is space again
        history.add(count(5.0))
        assert history.read("cafe", 0, 10)["time"] == [5.0]
        assert history.state == KEPT


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with History(tmp_path / "file" / "counts.db") as history:
        history.add(count(1.0))
        history.flush()
        assert history.state.startswith("not kept: ")
        assert history.read("cafe", 0, 2)["time"] == []


def test_a_second_service_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "counts.db"
    (tmp_path / ".counts.db.lock").touch()  # as a killed service leaves it: nobody has that lock
    with History(path) as first:
        with pytest.raises(SourceError, match=r"another service keeps .*--history"):
            History(path).start()
        assert first.state == KEPT
    with History(path) as again:
        assert again.state == KEPT


def test_documents_do_not_pile_up(tmp_path: Path) -> None:
    history = History(tmp_path / "counts.db")
    for number in range(20_010):
        history.add(count(float(number)))
    assert history.lost == 10


@pytest.mark.parametrize("days", [0.0, -1.0, float("nan"), float("inf")])
def test_days_that_are_none_are_refused(tmp_path: Path, days: float) -> None:
    with pytest.raises(PlanError, match="--keep"):
        History(tmp_path / "counts.db", days=days)


def test_a_folder_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="is a folder"):
        History(tmp_path)
