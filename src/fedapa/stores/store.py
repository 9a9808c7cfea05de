"""The store: one HDF5 file with the recordings of some rooms; documented in docs/data.md.

::

    /                     format="fedapa-rooms", version=1, synthetic, maybe window …
    /<room>/              synthetic, recipe (JSON: receiver and cleaning, windows/recipe.py) …
    /<room>/<recording>/  synthetic, label (integer: a count; text: a category), day, rate,
                          maybe part="continuous", or "train": labelled later;
                          or part="unlabelled" and no label;
                          maybe activity (text), beside a count: a second label
        amplitude         [packets, subcarriers, links]; times its attribute ``scale`` if it has one
        timestamps        [packets] seconds
      or, for sets that were published as features only,
        features          [windows, features]

Recordings are continuous; windows are cut from them later, so a store does not fix a window
size. Nothing is read until asked for, and then only the packets asked for.
"""

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from fedapa.csi.capture import packet_rates
from fedapa.errors import DataError, one_line
from fedapa.files import locked, readable
from fedapa.interrupts import held_back, uninterrupted
from fedapa.stores.hdf5 import (
    attribute,
    check_dataset,
    check_links,
    child,
    is_numbers,
    opened,
    read_attributes,
    replaced,
    type_of,
    what_it_is,
)
from fedapa.windows.labels import Label, check_name
from fedapa.windows.recipe import Recipe

__all__ = [
    "LABELLED_LATER",
    "UNLABELLED",
    "Recording",
    "Store",
    "StoreWriter",
    "begin_store",
    "check_length",
    "noted",
    "refuse_existing",
    "write_store",
]

_FORMAT = "fedapa-rooms"
_VERSION = 1
UNLABELLED = "unlabelled"
"""The part of a recording without a label. It is said aloud: a store whose labels were forgotten or
lost is damaged, and not a store of such recordings."""
LABELLED_LATER = "train"
"""The part of a recording that got its label after it had been in the store without one: nets may
have learned from it, so it trains and never tests."""
_PARTS = ("", "continuous", UNLABELLED, LABELLED_LATER)
_DAMAGE = (
    AttributeError,
    KeyError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What h5py raises at damaged bytes."""
_LONGEST_TEXT = 200
"""Letters of a label, an activity or a day."""
_MOST_NOTED = 1 << 24
"""Bytes of all that is noted in one place; what stands in a file once can be noted many times."""
_MANY_STAMPS, _STAMPS_OF_FILE = 1 << 26, 10
"""Bytes of time stamps that are read whatever the size of the file; above, at most so many times
the file: packets of which each takes less than a byte are none."""


@dataclass(frozen=True)
class Recording:
    """What the store says about one recording."""

    room: str
    name: str
    label: Label | None
    """None: nobody said; its windows are learned from without a label, if at all."""
    day: str
    rate: float
    """Packets per second within bursts, by the median interval; 0 where unknown."""
    mean_rate: float
    """Packets over seconds, gaps and all; 0 where unknown."""
    shape: tuple[int, ...]
    """(packets, subcarriers, links), or (windows, features)."""
    synthetic: bool
    part: str = ""
    """"continuous": for counting over time only, neither learned nor tested; "unlabelled": it has
    no label; "train": it got one later and never tests; mostly nothing."""
    activity: str | None = None
    """A second label beside a count: what the people do; None where nobody said."""

    @property
    def is_features(self) -> bool:
        """Rows are finished feature vectors, not packets."""
        return len(self.shape) == 2


class Store:
    """A store opened for reading; use it as a context manager."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.exists():
            raise DataError(
                f"{self.path}: no such file; make one from captures with 'fedapa import', or from "
                "nothing with 'fedapa simulate'"
            )
        if self.path.is_dir():
            raise DataError(
                f"{self.path}: is a folder; expected a store, which 'fedapa import' makes of one"
            )
        if not self.path.is_file():
            raise DataError(f"{self.path}: is no regular file; expected a store")
        with contextlib.ExitStack() as closing:
            self._file = self._open(closing)
            self._check()
            self._closing = closing.pop_all()

    @uninterrupted
    def _open(self, closing: contextlib.ExitStack) -> h5py.File:
        try:
            return closing.enter_context(opened(self.path))
        except PermissionError as error:
            raise DataError(f"{self.path}: user {os.geteuid()} may not read it") from error
        except OSError as error:
            raise DataError(
                f"{self.path}: cannot be opened as HDF5; truncated or not a store ({error})"
            ) from error

    @uninterrupted
    def _check(self) -> None:
        with self._explaining("the file's own attributes"):
            form = _plain(attribute(self._file.attrs, "format", str(self.path)))
            if not isinstance(form, str) or form != _FORMAT:
                raise DataError(
                    f"{self.path}: HDF5, but not a fedapa store (format is {form!r:.80})"
                )
            version = _plain(attribute(self._file.attrs, "version", str(self.path), 0))
            if not isinstance(version, int) or version != _VERSION:
                raise DataError(
                    f"{self.path}: store version {version!s:.80}, this fedapa reads {_VERSION}"
                )
            if not len(self._file):
                raise DataError(
                    f"{self.path}: holds no rooms; make another by 'fedapa import' or 'simulate'"
                )
        with self._explaining("its rooms"):
            check_links(self._file, str(self.path))

    def __enter__(self) -> "Store":
        return self

    @uninterrupted
    def __exit__(self, *_: object) -> None:
        self._closing.close()

    @property
    @uninterrupted
    def synthetic(self) -> bool:
        """True when any of it was simulated."""
        with self._explaining("the file's own attributes"):
            return _truth(self._file.attrs, "synthetic", str(self.path))

    @property
    @uninterrupted
    def window(self) -> int | None:
        """The window length that the store recommends, if it does."""
        with self._explaining("the file's own attributes"):
            window = _plain(attribute(self._file.attrs, "window", str(self.path)))
        if window is not None and (not isinstance(window, int) or window < 1):
            raise DataError(
                f"{self.path}: its attribute 'window' is {window!r:.80}, no number of packets"
            )
        return window

    @property
    @uninterrupted
    def rooms(self) -> tuple[str, ...]:
        """Names of the rooms, sorted."""
        with self._explaining("rooms"):
            for name in self._file:
                kind = self._file.get(name, getclass=True)
                if kind is not h5py.Group:
                    raise DataError(
                        f"{self.path}: '{one_line(name):.80}' is no room but "
                        f"{what_it_is(kind)}; not ours"
                    )
                check_name(name, f"{self.path}: room")
            return tuple(sorted(self._file))

    @property
    @uninterrupted
    def notes(self) -> dict[str, Any]:
        """What is noted about the store as a whole, e.g. the ``window`` it is meant for."""
        with self._explaining("the file's own attributes"):
            return noted(self._file.attrs, str(self.path))

    @uninterrupted
    def about(self, room: str) -> dict[str, Any]:
        """What is noted about a room: device, bandwidth and the like."""
        with self._explaining(room):
            return noted(self._room(room).attrs, f"{self.path}: {room}")

    def recipe(self, room: str) -> Recipe:
        """How a room's packets came to be what they are; who wrote it may have noted nothing."""
        text = self.about(room).get("recipe")
        place = f"{self.path}: room '{room}'"
        return Recipe() if text is None else Recipe.of_json(text, place=place)

    @uninterrupted
    def recordings(self, room: str) -> tuple[Recording, ...]:
        """The recordings of a room, sorted by name."""
        with self._explaining(room):
            group = self._room(room)
            check_links(group, f"{self.path}: {room}")
            return tuple(self._recording(room, name) for name in sorted(group))

    @uninterrupted
    def read_notes(self) -> None:
        """Read what is noted of the store, its rooms and its recordings, also by other programs.

        Whoever writes to the store afterwards meets no damage there.
        """
        with self._explaining("its notes"):
            read_attributes(self._file.attrs)
        for room in self.rooms:
            with self._explaining(room):
                read_attributes(self._room(room).attrs)
            for recording in self.recordings(room):
                with self._explaining(f"{room}/{recording.name}"):
                    read_attributes(self._group(room, recording.name).attrs)

    def _room(self, room: str) -> h5py.Group:
        return child(self._file, room, h5py.Group, str(self.path))

    def _group(self, room: str, name: str) -> h5py.Group:
        return child(self._room(room), name, h5py.Group, f"{self.path}: {room}")

    def _recording(self, room: str, name: str) -> Recording:
        place = f"{self.path}: {room}/{one_line(name):.80}"
        group = self._group(room, name)
        part = _check_part(_plain(attribute(group.attrs, "part", place, "")), place)
        label = _label_of(group, part, place)
        what, axes = ("features", 2) if "features" in group else ("amplitude", 3)
        rows = child(group, what, h5py.Dataset, place)
        if rows.ndim != axes or 0 in rows.shape[1:] or not is_numbers(rows):
            raise DataError(
                f"{place}: {what} of shape {rows.shape} and type {type_of(rows)}; "
                "expected real numbers [packets, subcarriers, links] or [windows, features]"
            )
        check_dataset(rows, f"{place}: {what}")
        if what == "amplitude":
            self._check_timestamps(group, packets=len(rows), place=place)
        return Recording(
            room=room,
            name=name,
            label=label,
            day=_text(_plain(attribute(group.attrs, "day", place, "")), "day", place),
            rate=_number(group.attrs, "rate", place, default=0.0),
            mean_rate=_number(group.attrs, "mean_rate", place, default=0.0),
            shape=tuple(rows.shape),
            synthetic=_truth(group.attrs, "synthetic", place),
            part=part,
            activity=_activity_of(group, label, place),
        )

    def _check_timestamps(self, group: h5py.Group, *, packets: int, place: str) -> None:
        stamps = child(group, "timestamps", h5py.Dataset, place)
        if stamps.shape != (packets,) or not is_numbers(stamps) or stamps.dtype.kind != "f":
            raise DataError(
                f"{place}: timestamps of shape {stamps.shape} and type {type_of(stamps)}; "
                f"expected seconds of its {packets} packets: make it again"
            )
        check_dataset(stamps, f"{place}: timestamps")
        size = 8 * packets
        if size > _MANY_STAMPS and size > _STAMPS_OF_FILE * self._file.id.get_filesize():
            raise DataError(
                f"{place}: {packets} time stamps, {size} bytes, in a file of "
                f"{self._file.id.get_filesize()} bytes; that many packets take more: damaged, or "
                "made to fill the memory"
            )

    @uninterrupted
    def read(self, recording: Recording, start: int, stop: int) -> npt.NDArray[np.float32]:
        """Rows [start, stop) of a recording, as float32 in physical units."""
        place = f"{recording.room}/{recording.name}"
        # What is too large for 32 bits is infinite: a bad window, as data.bad_windows has it.
        with self._explaining(place), np.errstate(over="ignore", invalid="ignore"):
            group = self._group(recording.room, recording.name)
            what = "features" if recording.is_features else "amplitude"
            rows = child(group, what, h5py.Dataset, f"{self.path}: {place}")
            if rows.is_virtual or rows.external:
                check_dataset(rows, f"{self.path}: {place}: {what}")
            values = rows[start:stop].astype(np.float32)
            if "scale" in rows.attrs:
                scale = _number(rows.attrs, "scale", f"{self.path}: {place}")
                if abs(scale) > float(np.finfo(np.float32).max):
                    raise DataError(
                        f"{self.path}: {place}: its scale is {scale:g}, which is no 32-bit number; "
                        "damaged, or not made by fedapa"
                    )
                values *= np.float32(scale)
            return values  # type: ignore[no-any-return]

    @uninterrupted
    def timestamps(self, recording: Recording) -> npt.NDArray[np.float64]:
        """[packets] seconds."""
        place = f"{recording.room}/{recording.name}"
        with self._explaining(place), np.errstate(over="ignore", invalid="ignore"):
            group = self._group(recording.room, recording.name)
            packets = recording.shape[0]
            self._check_timestamps(group, packets=packets, place=f"{self.path}: {place}")
            return np.asarray(group["timestamps"][:], np.float64)

    @contextlib.contextmanager
    def _explaining(self, place: str) -> Iterator[None]:
        # h5py speaks of B-trees and symbol tables where a user needs the file and the room.
        try:
            yield
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self.path}: {place}: a name or a text there is not in UTF-8; damaged, or not "
                "made by fedapa"
            ) from error
        except _DAMAGE as error:
            raise DataError(
                f"{self.path}: {place}: damaged or incomplete ({one_line(str(error)):.200})"
            ) from error


class StoreWriter:
    """Adds rooms and recordings to an open HDF5 file; made by ``write_store``.

    ``check`` is asked before and after whatever is added: it raises when the disk is full or
    Ctrl-C was pressed.
    """

    def __init__(self, file: h5py.File, check: Callable[[], None]) -> None:
        self._file = file
        self._check = check

    def note(self, notes: Mapping[str, Any]) -> None:
        """What is known about the store as a whole."""
        self._check()
        for name in sorted(notes):
            self._file.attrs[name] = notes[name]

    def add_room(self, room: str, *, synthetic: bool, about: Mapping[str, Any]) -> None:
        """A room, with what is known about it."""
        self._check()
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
        label: Label | None,
        amplitude: npt.NDArray[Any],
        timestamps: npt.NDArray[np.float64],
        day: str = "",
        rate: float = 0.0,
        scale: float | None = None,
        part: str = "",
        activity: str | None = None,
    ) -> None:
        """One recording of packets: amplitude [packets, subcarriers, links].

        ``part = "continuous"`` marks one for counting over time, neither learned nor tested. A
        label of None is none: the recording is marked as ``"unlabelled"``. ``activity`` is a second
        label beside a count.
        """
        if len(timestamps) != len(amplitude):
            raise DataError(
                f"recording '{name}': {len(amplitude)} packets and {len(timestamps)} time stamps; "
                "give one for each packet"
            )
        group = self._new(room, name, label=label, day=day, rate=rate, part=part, activity=activity)
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
        group.attrs["mean_rate"] = packet_rates(timestamps)[1]
        self._check()

    def add_features(
        self,
        room: str,
        name: str,
        *,
        label: Label | None,
        features: npt.NDArray[np.float32],
        day: str = "",
        part: str = "",
    ) -> None:
        """One recording of finished feature vectors: features [windows, features]."""
        group = self._new(room, name, label=label, day=day, part=part)
        group.create_dataset("features", data=features)
        self._check()

    def _new(
        self,
        room: str,
        name: str,
        *,
        label: Label | None,
        day: str,
        rate: float = 0.0,
        part: str = "",
        activity: str | None = None,
    ) -> h5py.Group:
        self._check()
        place = f"room '{room}', recording '{name}'"
        _check_activity(activity, label, place)
        for text, what in ((label, "label"), (activity, "activity"), (day, "day")):
            check_length(text, what, place)
        if label is None and not part:
            part = UNLABELLED
        _check_part(part, place)
        _check_labelled(label is not None, part, place)
        if room not in self._file:
            raise DataError(f"recording '{name}': there is no room '{room}' yet; add it first")
        group = self._file[room].create_group(check_name(name, f"room '{room}', recording"))
        group.attrs["synthetic"] = self._file[room].attrs["synthetic"]
        if label is not None:
            group.attrs["label"] = label
        group.attrs["day"] = day
        group.attrs["rate"] = rate
        if part:
            group.attrs["part"] = part
        if activity is not None:
            group.attrs["activity"] = activity
        return group


@contextlib.contextmanager
def write_store(path: str | Path) -> Iterator[StoreWriter]:
    """A new store; it appears at ``path`` when the block ends well, whole or not at all.

    Meanwhile no other process can write it, and Ctrl-C waits for the next thing that is added.
    """
    path = Path(path)
    with held_back() as raise_interrupt, locked(path):
        refuse_existing(path)
        with replaced(path, raise_interrupt) as (file, check):
            begin_store(file)
            yield StoreWriter(file, check)


def refuse_existing(path: Path) -> None:
    """A new store does not take the place of anything, least of all of a device or a pipe."""
    if path.is_file():
        raise DataError(f"{path}: already exists; remove it or choose another name")
    if path.exists():
        raise DataError(f"{path}: is no regular file; choose a name for a new one")


def begin_store(file: h5py.File) -> None:
    """Make an empty HDF5 file a store without rooms."""
    file.attrs["format"] = _FORMAT
    file.attrs["version"] = _VERSION
    file.attrs["synthetic"] = False


def noted(attributes: h5py.AttributeManager, place: str) -> dict[str, Any]:
    """Attributes as plain values: numbers, text, and arrays of numbers."""
    notes: dict[str, Any] = {}
    size = 0
    try:
        for name in sorted(attributes):
            value = notes[name] = _plain(attribute(attributes, name, place))
            size += value.nbytes if isinstance(value, np.ndarray) else len(str(value))
            if size > _MOST_NOTED:
                raise DataError(
                    f"{place}: its attributes have more than {_MOST_NOTED} bytes; expected notes: "
                    "damaged, or not made by fedapa"
                )
    except UnicodeDecodeError as error:
        raise DataError(f"{place}: a name or a text of its attributes is not in UTF-8") from error
    except _DAMAGE as error:
        raise DataError(
            f"{place}: its attributes are damaged ({one_line(str(error)):.200})"
        ) from error
    for name, value in notes.items():
        numbers = isinstance(value, np.ndarray) and value.dtype.kind in "biuf"
        if not isinstance(value, bool | int | float | str) and not numbers:
            raise DataError(
                f"{place}: its attribute '{one_line(name):.80}' is {value!r:.80}; expected "
                "a number, a text or an array of numbers"
            )
    return notes


def _plain(value: object) -> object:
    """HDF5 attributes come back as numpy scalars; JSON and people want Python's."""
    if isinstance(value, np.generic):
        value = value.item()
    return value.decode() if isinstance(value, bytes) else value


def _text(value: object, name: str, place: str) -> str:
    if not isinstance(value, str) or readable(value) != value:
        raise DataError(f"{place}: its attribute '{name}' is {value!r:.80}; expected text in UTF-8")
    check_length(value, name, place)
    return value


def check_length(text: object, name: str, place: str) -> None:
    """Labels and days are shown in tables and kept with every window."""
    if isinstance(text, str) and len(text) > _LONGEST_TEXT:
        raise DataError(
            f"{place}: its {name} '{one_line(text[:80])}…' has {len(text)} letters; expected at "
            f"most {_LONGEST_TEXT}"
        )


def _check_part(part: object, place: str) -> str:
    if not isinstance(part, str) or part not in _PARTS:
        raise DataError(
            f"{place}: part is {part!r:.80}; expected 'continuous', 'unlabelled', 'train', or none"
        )
    return part


def _check_labelled(labelled: bool, part: str, place: str) -> None:
    """A recording has a label, or says that it has none."""
    if labelled and part == UNLABELLED:
        raise DataError(f"{place}: part is 'unlabelled', and it has a label; which is it?")
    if not labelled and part != UNLABELLED:
        raise DataError(
            f"{place}: damaged or incomplete: it has no label, and its part is {part!r}; only one "
            "of part 'unlabelled' has none"
        )


def _label_of(group: h5py.Group, part: str, place: str) -> Label | None:
    _check_labelled("label" in group.attrs, part, place)
    if part == UNLABELLED:
        return None
    label = _plain(attribute(group.attrs, "label", place))
    if isinstance(label, bool) or not isinstance(label, int | str):
        raise DataError(f"{place}: label {label!r:.80} is no count and no text")
    if isinstance(label, int) and label < 0:
        raise DataError(f"{place}: label {label!r:.80} is no count and no text")
    return _text(label, "label", place) if isinstance(label, str) else label


def _activity_of(group: h5py.Group, label: Label | None, place: str) -> str | None:
    if "activity" not in group.attrs:
        return None
    activity = _text(_plain(attribute(group.attrs, "activity", place)), "activity", place)
    _check_activity(activity, label, place)
    return activity


def _check_activity(activity: str | None, label: Label | None, place: str) -> None:
    """A second label stands beside a count, and says something."""
    if activity is not None and (not activity or not isinstance(label, int)):
        beside = "no label" if label is None else f"label {label!r:.80}"
        raise DataError(
            f"{place}: activity {activity!r:.80} beside {beside}; expected a text beside a count: "
            "where there is no count the activity is the label"
        )


def _number(
    attributes: h5py.AttributeManager, name: str, place: str, *, default: float | None = None
) -> float:
    value = _plain(attribute(attributes, name, place, default))
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise DataError(f"{place}: its attribute '{name}' is {value!r:.80}; expected a number")
    return float(value)


def _truth(attributes: h5py.AttributeManager, name: str, place: str) -> bool:
    value = _plain(attribute(attributes, name, place))
    if not isinstance(value, bool | int):
        raise DataError(f"{place}: its attribute '{name}' is {value!r:.80}; expected yes or no")
    return bool(value)
