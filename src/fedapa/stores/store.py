"""The store: one HDF5 file with the recordings of some rooms; documented in docs/data.md.

::

    /                     format="fedapa-rooms", version=1, synthetic, maybe window …
    /<room>/              synthetic, device, bandwidth …
    /<room>/<recording>/  synthetic, label (integer: a count; text: a category), day, rate
        amplitude         [packets, subcarriers, links]; times its attribute ``scale`` if it has one
        timestamps        [packets] seconds
      or, for sets that were published as features only,
        features          [windows, features]

Recordings are continuous takes; windows are cut from them later, so a store does not fix a window
size. Nothing is read until asked for, and then only the packets asked for.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from fedapa.errors import DataError
from fedapa.files import aside
from fedapa.windows.labels import Label, check_name

__all__ = ["Recording", "Store", "StoreWriter", "write_store"]

_FORMAT = "fedapa-rooms"
_VERSION = 1


@dataclass(frozen=True)
class Recording:
    """What the store says about one continuous take."""

    room: str
    name: str
    label: Label
    day: str
    rate: float
    """Packets (or feature rows) per second; 0 where unknown."""
    shape: tuple[int, ...]
    """(packets, subcarriers, links), or (windows, features)."""
    synthetic: bool

    @property
    def is_features(self) -> bool:
        """Rows are finished feature vectors, not packets."""
        return len(self.shape) == 2


class Store:
    """A store opened for reading; use it as a context manager."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise DataError(f"{self.path}: no such file; make one with 'fedapa simulate'")
        try:
            self._file = h5py.File(self.path, "r")
        except OSError as error:
            raise DataError(
                f"{self.path}: cannot be opened as HDF5; truncated or not a store ({error})"
            ) from error
        found = self._file.attrs.get("format")
        if found != _FORMAT:
            self._file.close()
            raise DataError(f"{self.path}: HDF5, but not a fedapa store (format is {found!r})")
        if (version := self._file.attrs.get("version", 0)) != _VERSION:
            self._file.close()
            raise DataError(f"{self.path}: store version {version}, this fedapa reads {_VERSION}")
        if not len(self._file):
            self._file.close()
            raise DataError(
                f"{self.path}: holds no rooms; make another by 'fedapa import' or 'simulate'"
            )

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def synthetic(self) -> bool:
        """True when any of it was simulated."""
        return bool(self._file.attrs["synthetic"])

    @property
    def window(self) -> int | None:
        """The window length that the store recommends, if it does."""
        found = _plain(self._file.attrs.get("window"))
        if found is not None and (not isinstance(found, int) or found < 1):
            raise DataError(
                f"{self.path}: its attribute 'window' is {found!r}, no number of packets"
            )
        return found

    @property
    def rooms(self) -> tuple[str, ...]:
        """Names of the rooms, sorted."""
        with self._explaining("rooms"):
            for name, entry in self._file.items():
                if not isinstance(entry, h5py.Group):
                    raise DataError(f"{self.path}: '{name}' is no room but a dataset; not ours")
                check_name(name, f"{self.path}: room")
        return tuple(sorted(self._file))

    @property
    def notes(self) -> dict[str, Any]:
        """What is noted about the store as a whole, e.g. the ``window`` it is meant for."""
        return {name: _plain(value) for name, value in sorted(self._file.attrs.items())}

    def about(self, room: str) -> dict[str, Any]:
        """What is noted about a room: device, bandwidth and the like."""
        return {name: _plain(value) for name, value in sorted(self._file[room].attrs.items())}

    def recordings(self, room: str) -> tuple[Recording, ...]:
        """The takes of a room, sorted by name."""
        with self._explaining(room):
            group = self._file[room]
            return tuple(self._recording(room, name, group[name]) for name in sorted(group))

    def _recording(self, room: str, name: str, group: h5py.Group) -> Recording:
        label = _plain(group.attrs["label"])
        if not isinstance(label, int | str) or (isinstance(label, int) and label < 0):
            raise DataError(f"{self.path}: {room}/{name}: label {label!r} is no count and no text")
        what, axes = ("features", 2) if "features" in group else ("amplitude", 3)
        rows = group[what]
        if rows.ndim != axes or 0 in rows.shape[1:] or rows.dtype.kind not in "fiu":
            raise DataError(
                f"{self.path}: {room}/{name}: {what} of shape {rows.shape} and type {rows.dtype}; "
                "expected real numbers [packets, subcarriers, links] or [windows, features]"
            )
        return Recording(
            room=room,
            name=name,
            label=label,
            day=str(group.attrs.get("day", "")),
            rate=float(group.attrs.get("rate", 0.0)),
            shape=tuple(rows.shape),
            synthetic=bool(group.attrs["synthetic"]),
        )

    def read(self, recording: Recording, start: int, stop: int) -> npt.NDArray[np.float32]:
        """Rows [start, stop) of a recording, as float32 in physical units."""
        with self._explaining(f"{recording.room}/{recording.name}"):
            group = self._file[recording.room][recording.name]
            rows = group["features" if recording.is_features else "amplitude"]
            part = rows[start:stop].astype(np.float32)
            if "scale" in rows.attrs:
                part *= np.float32(rows.attrs["scale"])
            return part  # type: ignore[no-any-return]

    def timestamps(self, recording: Recording) -> npt.NDArray[np.float64]:
        """[packets] seconds."""
        with self._explaining(f"{recording.room}/{recording.name}"):
            group = self._file[recording.room][recording.name]
            return np.asarray(group["timestamps"][:], np.float64)

    @contextlib.contextmanager
    def _explaining(self, place: str) -> Iterator[None]:
        # h5py speaks of B-trees and symbol tables where a user needs the file and the room.
        try:
            yield
        except (KeyError, OSError, RuntimeError, ValueError, TypeError, AttributeError) as error:
            raise DataError(f"{self.path}: {place}: damaged or incomplete ({error})") from error


class StoreWriter:
    """Adds rooms and recordings to an open HDF5 file; made by ``write_store``."""

    def __init__(self, file: h5py.File) -> None:
        self._file = file

    def note(self, notes: Mapping[str, Any]) -> None:
        """What is known about the store as a whole."""
        for name in sorted(notes):
            self._file.attrs[name] = notes[name]

    def add_room(self, room: str, *, synthetic: bool, about: Mapping[str, Any]) -> None:
        """A room, with what is known about it."""
        group = self._file.create_group(check_name(room, "room"))
        group.attrs["synthetic"] = synthetic
        for name in sorted(about):
            group.attrs[name] = about[name]
        if synthetic:
            self._file.attrs["synthetic"] = True

    def add_recording(
        self,
        room: str,
        name: str,
        *,
        label: Label,
        amplitude: npt.NDArray[Any],
        timestamps: npt.NDArray[np.float64],
        day: str = "",
        rate: float = 0.0,
        scale: float | None = None,
    ) -> None:
        """One take of packets: amplitude [packets, subcarriers, links]."""
        group = self._new(room, name, label, day, rate)
        packets, subcarriers, links = amplitude.shape
        rows = group.create_dataset(
            "amplitude",
            data=amplitude,
            # About 256 KB a chunk: a window of 1000 × 242 touches a handful of them.
            chunks=(
                max(1, min(packets, 2**18 // (subcarriers * links * amplitude.itemsize))),
                subcarriers,
                links,
            ),
        )
        if scale is not None:
            rows.attrs["scale"] = scale
        group.create_dataset("timestamps", data=np.asarray(timestamps, np.float64))

    def add_features(
        self,
        room: str,
        name: str,
        *,
        label: Label,
        features: npt.NDArray[np.float32],
        day: str = "",
    ) -> None:
        """One take of finished feature vectors: features [windows, features]."""
        self._new(room, name, label, day, 0.0).create_dataset("features", data=features)

    def _new(self, room: str, name: str, label: Label, day: str, rate: float) -> h5py.Group:
        if room not in self._file:
            raise DataError(f"recording '{name}': there is no room '{room}' yet; add it first")
        group = self._file[room].create_group(check_name(name, f"room '{room}', recording"))
        group.attrs["synthetic"] = self._file[room].attrs["synthetic"]
        group.attrs["label"] = label
        group.attrs["day"] = day
        group.attrs["rate"] = rate
        return group


@contextlib.contextmanager
def write_store(path: str | Path) -> Iterator[StoreWriter]:
    """A new store; it appears at ``path`` when the block ends well, whole or not at all."""
    path = Path(path)
    if path.exists():
        raise DataError(f"{path}: already exists; remove it or choose another name")
    with aside(path) as partial, h5py.File(partial, "w", track_order=False) as file:
        file.attrs["format"] = _FORMAT
        file.attrs["version"] = _VERSION
        file.attrs["synthetic"] = False
        yield StoreWriter(file)


def _plain(value: object) -> object:
    """HDF5 attributes come back as numpy scalars; JSON and people want Python's."""
    if isinstance(value, bytes):
        return value.decode()
    return value.item() if isinstance(value, np.generic) else value
