"""Wi-CaL: a public set of features, not packets, in its own layout.

Its tree is ``<room>/sess<day>/P=<count>.csv``, perhaps below ``datasets``: one row a window, 420
numbers without a header. An ``.npz`` of the same rows with the arrays X, room, sess, y and pos
will do as well. One room on one day becomes one room of the store: the same room is measured
differently on another day, and that is what the federation is for. Who asks what a counter does on
a later day wants one room with several days instead (``days_of_a_room``).
"""

import re
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedapa.errors import DataError
from fedapa.stores.imported.captures import Imported
from fedapa.stores.store import write_store
from fedapa.windows.labels import check_name, choose_rooms

__all__ = ["import_wical"]

_FEATURES = 420
_PATH = re.compile(r"(?:.*/)?(?P<room>[^/]+)/sess(?P<day>[^/]+)/P=(?P<count>\d{1,6})\.csv")


@dataclass(frozen=True, eq=False)
class _Recording:
    room: str
    day: str
    count: int
    features: npt.NDArray[np.float32]


def import_wical(
    source: Path,
    out: Path,
    *,
    only: Sequence[str] | None = None,
    without: Sequence[str] | None = None,
    days_of_a_room: bool = False,
) -> list[Imported]:
    """Make a store of the set's counting part.

    Args:
        source: its tree or its ``.npz``.
        out: the store to make.
        only: rooms, as the store will call them, to take.
        without: rooms to leave out.
        days_of_a_room: whether a room's days are days of one room, not rooms of their own.
    """
    recordings = list(_from_npz(source) if source.is_file() else _from_tree(source))
    named = {
        recording: recording.room if days_of_a_room else f"{recording.room} day {recording.day}"
        for recording in recordings
    }
    if only or without:
        chosen = choose_rooms(named.values(), only=only, without=without, place=str(source))
        recordings = [recording for recording in recordings if named[recording] in chosen]
    rows: list[Imported] = []
    with write_store(out) as store:
        rooms: set[str] = set()
        for recording in recordings:
            room = check_name(named[recording], "room")
            if room not in rooms:
                about = {"device": "wi-cal features"}
                store.add_room(room, synthetic=False, about=about)
                rooms.add(room)
            name = f"P={recording.count}"
            store.add_features(
                room,
                f"day {recording.day} {name}" if days_of_a_room else name,
                label=recording.count,
                features=recording.features,
                day=recording.day,
            )
            rows.append(
                Imported(
                    room,
                    recording.day,
                    recording.count,
                    1,
                    recordings=1,
                    packets=len(recording.features),
                )
            )
        if not rows:
            raise DataError(
                f"{source}: no file is named like <room>/sess<day>/P=<count>.csv; give the folder "
                "that holds the rooms"
            )
    return rows


def _from_tree(folder: Path) -> Iterator[_Recording]:
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder or file")
    for path in sorted(folder.rglob("P=*.csv")):
        match = _PATH.fullmatch(path.relative_to(folder.parent).as_posix())
        if match is None:
            raise DataError(f"{path}: expected a path like <room>/sess<day>/P=<count>.csv")
        yield _Recording(match["room"], match["day"], int(match["count"]), _rows(path))


def _rows(path: Path) -> npt.NDArray[np.float32]:
    try:
        with warnings.catch_warnings(action="ignore"):  # of an empty file; it is refused below
            values = np.loadtxt(path, np.float32, delimiter=",", ndmin=2, encoding="utf-8")
    except (OSError, ValueError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: expected rows of {_FEATURES} numbers: {error}") from error
    return _checked(values, str(path))


def _checked(values: npt.NDArray[np.float32], place: str) -> npt.NDArray[np.float32]:
    if values.ndim != 2 or values.shape[1] != _FEATURES or not len(values):
        raise DataError(f"{place}: {values.shape} values; expected rows of {_FEATURES}")
    if not np.isfinite(values).all():
        row = int((~np.isfinite(values)).any(axis=1).argmax())
        raise DataError(f"{place}: row {row} holds NaN or infinity")
    return values


def _from_npz(path: Path) -> Iterator[_Recording]:
    names = ("X", "room", "sess", "y", "pos")
    expected = f"{path}: expected an .npz with the arrays X, room, sess, y and pos"
    try:
        # Opened here: numpy leaves the file of a damaged archive open.
        with path.open("rb") as file:
            arrays = np.load(file, allow_pickle=False)
            if isinstance(arrays, np.ndarray):
                raise DataError(f"{expected}; this is one array, an .npy")
            features, room, day, count, place = (arrays[name] for name in names)
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{expected}: {error}") from error
    kinds = ("fiu", "U", "U", "iu", "iuf")
    for name, array, kind in zip(names, (features, room, day, count, place), kinds, strict=True):
        if array.dtype.kind not in kind:
            wanted = "text" if kind == "U" else "numbers"
            raise DataError(f"{path}: {name} holds {array.dtype}; expected {wanted}")
    features = _checked(np.asarray(features, np.float32), str(path))
    if not all(array.shape == (len(features),) for array in (room, day, count, place)):
        raise DataError(f"{path}: X has {len(features)} rows, another array has not")
    if not ((count >= 0) & (count < 10**6)).all():
        raise DataError(f"{path}: y holds what is no number of people")
    keys = np.char.add(np.char.add(room, "\n"), day)
    for key in np.unique(keys):
        for people in np.unique(count[keys == key]):
            mine = np.flatnonzero((keys == key) & (count == people))
            mine = mine[np.argsort(place[mine], kind="stable")]
            name, session = str(key).split("\n")
            yield _Recording(name, session.removeprefix("sess"), int(people), features[mine])
