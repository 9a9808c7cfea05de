"""History: every count of the last days in one SQLite file.

Counting never waits for a disk: documents are queued and written by a thread of their own, a few
seconds' worth at a time. Whatever becomes of the file, the service goes on: a damaged one is set
aside, never deleted, and a new one begun; where it cannot be written, nothing is kept until it can
be again, and ``state`` says why. One service writes a file: a lock says so that ends with its
process, however that ends.
"""

import contextlib
import logging
import math
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from fedapa.errors import DataError, PlanError, SourceError
from fedapa.files import locked

__all__ = ["KEPT", "History"]

KEPT = "kept"
"""The state of a history that is being written."""

_FLUSH = 2.0
"""s between two writes."""
_PRUNE = 600.0
"""s between two looks for what is too old."""
_RETRY = 60.0
"""s until a file that could not be written is tried again."""
_QUEUED = 20_000
"""Documents that wait to be written at most: with 100 rooms those of 16 minutes."""
_BATCH = 50_000
"""Rows that are deleted at a time, so that a write never waits for long."""
_DAY = 86_400.0
_STATES = ("counting", "unsure", "unavailable")
_TABLES = """
CREATE TABLE IF NOT EXISTS rooms (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS counts (
    room INTEGER NOT NULL REFERENCES rooms (id),
    time REAL NOT NULL,
    state INTEGER NOT NULL,
    count INTEGER, lo INTEGER, hi INTEGER, confidence REAL, true_people INTEGER,
    synthetic INTEGER NOT NULL,
    PRIMARY KEY (room, time)
) WITHOUT ROWID;
"""
_COLUMNS = ("time", "state", "count", "lo", "hi", "confidence", "true_people")

_log = logging.getLogger(__name__)


class History:
    """Counts of all rooms, kept for some days; ``add`` may be called by any thread."""

    def __init__(
        self,
        path: Path,
        *,
        days: float = 7.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """A history that is not opened yet.

        Args:
            path: the file; made where there is none.
            days: how long a count is kept.
            clock: the time of the day.
        """
        if not 0 < days < math.inf:
            raise PlanError(f"--keep {days:g}: choose a number of days above 0")
        if path.is_dir():
            raise PlanError(f"--history {path}: is a folder; name a file, e.g. {path}/counts.db")
        self.path, self.days = path, days
        self._clock = clock
        self.state = "not opened yet"
        """``KEPT``, or why nothing is kept at the moment."""
        self.note = ""
        """What became of an earlier file, where something did."""
        self._is_new = False
        """Whether a file was set aside, and nothing was written to the new one yet."""
        self._ours = contextlib.ExitStack()
        self._is_ours = False
        """Whether this service has the lock of the file."""
        self.lost = 0
        """Counts that could not be kept."""
        self._queue: deque[tuple[Any, ...]] = deque()
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._ids: dict[str, int] = {}
        self._pruned = -math.inf
        self._again = -math.inf
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def problem(self) -> str:
        """Why nothing is kept, or what was lost until now; nothing once counts are kept again."""
        if self.state != KEPT:
            return self.state
        return self.note if self._is_new else ""

    def start(self) -> None:
        """Open the file and write from now on; raises where another service has it."""
        with self._lock:
            try:
                self._guarded(self._open)
            except DataError as error:
                raise SourceError(
                    f"{self.path}: another service keeps its counts there; end it, or give this "
                    "one a file of its own with --history"
                ) from error
        self._thread = threading.Thread(target=self._work, name="fedapa history", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write what waits, and close the file."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=10)
        self.flush()
        with self._lock:
            self._close()
            self._ours.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def add(self, document: dict[str, Any]) -> None:
        """Keep a room's document."""
        if len(self._queue) >= _QUEUED:
            self.lost += 1
            return
        values = (document[name] for name in _COLUMNS[2:])
        state = _STATES.index(document["state"])
        synthetic = int(document["synthetic"])
        self._queue.append((document["room"], document["time"], state, *values, synthetic))

    def flush(self) -> None:
        """Write what waits, and delete what is too old."""
        with self._lock:
            now = time.monotonic()
            if self._connection is None:
                if now < self._again:
                    return
                try:
                    self._guarded(self._open)
                except DataError as error:  # it could not be locked when this one started
                    self._stop_keeping(str(error))
            self._guarded(self._write)
            if now - self._pruned > _PRUNE:
                self._pruned = now
                self._guarded(self._prune)

    def read(
        self, room: str, since: float, until: float, points: int = 500
    ) -> dict[str, list[Any]]:
        """A room's counts between two times, by column, oldest first.

        Where there are more than ``points``, the time is cut into so many equal parts, and of each
        the last count is told: all of them were really served.
        """
        columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
        if points < 1 or not since < until:
            return columns
        self.flush()
        with self._lock:
            rows = self._guarded(lambda: self._rows(room, since, until, points)) or []
        for row in rows:
            for name, value in zip(_COLUMNS, row, strict=True):
                columns[name].append(_STATES[value] if name == "state" else value)
        return columns

    # ---- the file; all of it under the lock -----------------------------------------------------

    def _work(self) -> None:
        while not self._stopping.wait(_FLUSH):
            self.flush()

    def _guarded(self, work: Callable[[], Any]) -> Any:
        """What ``work`` gives; a file that fails is closed, set aside if damaged, and told of."""
        try:
            return work()
        except sqlite3.Error as error:
            self._close()
            if _is_damage(error):
                self._set_aside(str(error))
            else:
                self._stop_keeping(str(error))
        except OSError as error:
            self._close()
            self._stop_keeping(error.strerror or str(error))
        return None

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self._is_ours:
            self._ours.enter_context(locked(self.path))
            self._is_ours = True
        connection = sqlite3.connect(self.path, timeout=5.0, check_same_thread=False)
        try:
            # Written now and then to the end of a second file: one flush of the disk for many.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.executescript(_TABLES)
            connection.execute(f"SELECT {', '.join(_COLUMNS)}, synthetic FROM counts LIMIT 1")
            self._ids = dict(connection.execute("SELECT name, id FROM rooms").fetchall())
        except sqlite3.Error:
            connection.close()
            raise
        self._connection = connection
        self.state = KEPT

    def _close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
        self._connection = None
        self._ids = {}

    def _set_aside(self, reason: str) -> None:
        moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime(self._clock()))
        aside = self.path.with_name(f"{self.path.name}.damaged-{moment}")
        try:
            for end in ("", "-wal", "-shm"):
                part = self.path.with_name(self.path.name + end)
                if part.exists():
                    part.rename(aside.with_name(aside.name + end))
            self._open()
        except (OSError, sqlite3.Error) as error:
            self._stop_keeping(f"{reason}, and no new file can be begun: {error}")
            return
        self.note = f"a damaged history was set aside as {aside.name} ({reason}); a new one began"
        self._is_new = True
        _log.warning("%s", self.note)

    def _stop_keeping(self, reason: str) -> None:
        self.state = f"not kept: {reason}; tried again every {_RETRY:.0f} s"
        self._again = time.monotonic() + _RETRY
        self.lost += len(self._queue)
        self._queue.clear()
        _log.warning("history %s: %s", self.path, self.state)

    def _write(self) -> None:
        if self._connection is None or not self._queue:
            return
        waiting = [self._queue.popleft() for _ in range(len(self._queue))]
        try:
            with self._connection:  # all of it or nothing
                rows = [(self._id(row[0]), *row[1:]) for row in waiting]
                marks = ", ".join("?" * len(rows[0]))
                # A clock that was set back tells a time twice; the later count holds.
                self._connection.executemany(
                    f"INSERT OR REPLACE INTO counts VALUES ({marks})", rows
                )
        except sqlite3.Error:
            self.lost += len(waiting)
            self._ids = {}
            raise
        self._is_new = False

    def _id(self, room: str) -> int:
        assert self._connection is not None
        if room not in self._ids:
            made = self._connection.execute("INSERT INTO rooms (name) VALUES (?)", (room,))
            assert made.lastrowid is not None
            self._ids[room] = made.lastrowid
        return self._ids[room]

    def _prune(self) -> None:
        if self._connection is None:
            return
        oldest = self._clock() - self.days * _DAY
        for room in list(self._ids.values()):
            bound = (room, oldest)
            found = self._connection.execute(
                f"SELECT time FROM counts WHERE room = ? AND time < ? ORDER BY time LIMIT 1 "
                f"OFFSET {_BATCH}",
                bound,
            ).fetchone()
            until = oldest if found is None else found[0]
            with self._connection:
                self._connection.execute(
                    "DELETE FROM counts WHERE room = ? AND time < ?", (room, until)
                )

    def _rows(self, room: str, since: float, until: float, points: int) -> Sequence[Sequence[Any]]:
        if self._connection is None or room not in self._ids:
            return []
        width = (until - since) / points
        names = ", ".join(_COLUMNS)
        asked = (self._ids[room], since, until)
        where = "room = ? AND time > ? AND time <= ?"
        (number,) = self._connection.execute(
            f"SELECT count(*) FROM counts WHERE {where}", asked
        ).fetchone()
        if number <= points:
            return self._connection.execute(
                f"SELECT {names} FROM counts WHERE {where} ORDER BY time", asked
            ).fetchall()
        # The columns beside max() are those of the row that has it.
        return self._connection.execute(
            f"SELECT max(time) AS latest, {', '.join(_COLUMNS[1:])} FROM counts WHERE {where} "
            "GROUP BY CAST((time - ?) / ? AS INTEGER) ORDER BY latest",
            (*asked, since, width),
        ).fetchall()


def _is_damage(error: sqlite3.Error) -> bool:
    """Whether the file itself is at fault, not the disk or another process."""
    foreign = "no such column" in str(error)  # a database of something else
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return foreign or code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
