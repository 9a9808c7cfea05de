"""Cutting recordings into windows, once, into contiguous files that workers memory-map.

``materialise(store, cut)`` gives one ``RoomWindows`` a room: a float32 array on disk
[windows, packets, subcarriers] (or [windows, features]) and, in memory, each window's label and
where it came from. The files live in the cache folder and are keyed by the store's identity and
the cut, so the second run on the same data starts at once.
"""

import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedapa.errors import DataError
from fedapa.files import aside, cache_folder, write_text
from fedapa.processes import Progress, Show, unseen
from fedapa.stores.store import Recording, Store
from fedapa.windows.labels import Label

__all__ = [
    "Cut",
    "RoomWindows",
    "cut_recording",
    "materialise",
    "window_starts",
]

_VERSION = 1  # part of the cache key: raise it when the same cut gives other numbers


@dataclass(frozen=True)
class Cut:
    """How windows are cut from a recording."""

    length: int = 1000
    """Packets a window spans, before decimation."""
    stride: int | None = None
    """Packets from one window to the next; ``None`` is ``length``: no overlap."""
    decimate: int = 1
    """Keep every n-th packet after a zero-phase low-pass."""
    tone_step: int = 1
    """Keep every n-th subcarrier of each link, from the first."""
    links: Literal["first", "stack"] = "first"
    """The first antenna pair, or all side by side along the subcarriers."""
    bad_windows: Literal["refuse", "drop"] = "refuse"
    """What to do with a window that holds NaN or infinity or never changes."""


@dataclass(frozen=True, eq=False)
class RoomWindows:
    """The windows of one room: values on disk, labels and origins in memory."""

    room: str
    path: Path
    """An .npy file, float32 [windows, packets, subcarriers] or [windows, features]."""
    labels: tuple[Label, ...]
    recordings: tuple[str, ...]
    """For each window, the take it was cut from."""
    starts: npt.NDArray[np.int64]
    """For each window, its first row in that take."""
    spans: int
    """Rows of the take a window covers: two windows overlap if their starts are closer."""
    synthetic: bool

    def open(self) -> npt.NDArray[np.float32]:
        """The values, memory-mapped; every process that opens them shares one copy."""
        return np.load(self.path, mmap_mode="r")  # type: ignore[no-any-return]


def materialise(path: Path, cut: Cut, *, show: Show = unseen) -> tuple[RoomWindows, ...]:
    """The windows of every room in a store, cut once and cached; sorted by room."""
    with Store(path) as store:
        folder = cache_folder() / "windows" / _cache_key(path, cut)
        index = folder / "index.json"
        if not index.is_file():
            rooms = {}
            for done, room in enumerate(store.rooms, start=1):
                rooms[room] = _cut_room(store, room, cut, folder / f"{room}.npy")
                show(Progress("cutting windows", done, len(store.rooms), "rooms"))
            write_text(index, json.dumps({"source": path.name, "cut": asdict(cut), "rooms": rooms}))
    found = json.loads(index.read_text())["rooms"]
    windows = tuple(
        RoomWindows(
            room=room,
            path=folder / f"{room}.npy",
            labels=tuple(entry["labels"]),
            recordings=tuple(entry["recordings"]),
            starts=np.asarray(entry["starts"], np.int64),
            spans=entry["spans"],
            synthetic=entry["synthetic"],
        )
        for room, entry in sorted(found.items())
    )
    _check_equal_shapes(path, windows)
    return windows


def _cache_key(path: Path, cut: Cut) -> str:
    status = path.resolve().stat()
    how = asdict(cut)
    if cut.tone_step == 1:
        del how["tone_step"]  # windows that were cached before there was a choice stay good
    identity = (str(path.resolve()), status.st_size, status.st_mtime_ns, how, _VERSION)
    return hashlib.blake2b(repr(identity).encode(), digest_size=12).hexdigest()


def _cut_room(store: Store, room: str, cut: Cut, target: Path) -> dict[str, Any]:
    """Write the windows of one room; returns its entry in the index."""
    recordings = store.recordings(room)
    kinds = {recording.is_features for recording in recordings}
    if len(kinds) > 1:
        raise DataError(f"{store.path}: room '{room}' mixes packets and features; split it in two")
    pieces = [
        (recording, start) for recording in recordings for start in window_starts(recording, cut)
    ]
    if not pieces:
        longest = max((recording.shape[0] for recording in recordings), default=0)
        raise DataError(
            f"{store.path}: room '{room}' has no windows: its longest recording has {longest} "
            f"packets, a window needs {cut.length}; choose a shorter window"
        )
    labels: list[Label] = []
    origins: list[str] = []
    starts: list[int] = []
    with aside(target) as partial:
        shape = _window_shape(recordings[0], cut)
        out = np.lib.format.open_memmap(
            partial, mode="w+", dtype=np.float32, shape=(len(pieces), *shape)
        )
        _reserve(partial)
        for recording, start, window in _windows(store, pieces, cut):
            if window.shape != shape:
                raise DataError(
                    f"{store.path}: room '{room}': recording '{recording.name}' gives windows of "
                    f"{window.shape}, '{recordings[0].name}' of {shape}; all takes of a room need "
                    "the same subcarriers and links"
                )
            fault = _fault(window)
            if fault and cut.bad_windows == "refuse":
                raise DataError(
                    f"{store.path}: room '{room}', window {len(labels)} (recording "
                    f"'{recording.name}', from row {start}) {fault}; mend the recording or set "
                    'bad_windows = "drop"'
                )
            if not fault:
                out[len(labels)] = window
                labels.append(recording.label)
                origins.append(recording.name)
                starts.append(start)
        out.flush()
        del out
        if not labels:
            raise DataError(f"{store.path}: room '{room}': all {len(pieces)} windows are unusable")
        if len(labels) < len(pieces):
            _shorten(partial, len(labels))
    return {
        "labels": labels,
        "recordings": origins,
        "starts": starts,
        "spans": 1 if recordings[0].is_features else cut.length,
        "synthetic": any(recording.synthetic for recording in recordings),
    }


def _reserve(path: Path) -> None:
    """Claim the space of a mapped file now: a full disk is an error here, and a crash later."""
    with path.open("rb+") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


def _shorten(path: Path, rows: int) -> None:
    kept = np.array(np.load(path, mmap_mode="r")[:rows])
    with path.open("wb") as file:
        np.save(file, kept)


def window_starts(recording: Recording, cut: Cut) -> range:
    """The rows at which windows begin."""
    if recording.is_features:
        return range(recording.shape[0])
    return range(0, recording.shape[0] - cut.length + 1, cut.stride or cut.length)


def _window_shape(recording: Recording, cut: Cut) -> tuple[int, ...]:
    if recording.is_features:
        return recording.shape[1:]
    _, subcarriers, links = recording.shape
    tones = -(-subcarriers // cut.tone_step)
    return -(-cut.length // cut.decimate), tones * (links if cut.links == "stack" else 1)


def _windows(
    store: Store, pieces: list[tuple[Recording, int]], cut: Cut
) -> Iterator[tuple[Recording, int, npt.NDArray[np.float32]]]:
    for recording, start in pieces:
        if recording.is_features:
            yield recording, start, store.read(recording, start, start + 1)[0]
        else:
            read = functools.partial(store.read, recording)
            yield recording, start, cut_recording(read, start, recording.shape[0], cut)


def cut_recording(
    read: Callable[[int, int], npt.NDArray[np.float32]], start: int, rows: int, cut: Cut
) -> npt.NDArray[np.float32]:
    """One window [packets, subcarriers] starting at row ``start`` of a take of ``rows`` rows.

    With decimation the rows around the window are read too, as far as the filter reaches, so that
    a window does not depend on which other windows are cut.
    """
    margin = 10 * cut.decimate if cut.decimate > 1 else 0  # half the length of the filter
    first = max(0, start - margin)
    last = min(rows, start + cut.length + margin)
    part = read(first, last)[:, :: cut.tone_step]  # (packets, subcarriers, links)
    part = part[:, :, 0] if cut.links == "first" else _side_by_side(part)
    if cut.decimate > 1:
        from scipy import signal  # a second to import, and rarely needed

        taps = signal.firwin(2 * margin + 1, 0.8 / cut.decimate)
        part = signal.oaconvolve(
            np.pad(part, ((margin, margin), (0, 0)), mode="edge"), taps[:, None], "valid", axes=0
        )
    inside = part[start - first : start - first + cut.length : cut.decimate]
    return np.ascontiguousarray(inside, np.float32)


def _side_by_side(part: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    packets, subcarriers, links = part.shape
    return part.transpose(0, 2, 1).reshape(packets, links * subcarriers)  # (packets, links·tones)


def _fault(window: npt.NDArray[np.float32]) -> str:
    if not np.isfinite(window).all():
        return "holds NaN or infinity"
    if window.size > 1 and window.min() == window.max():
        return f"is constant ({window.flat[0]:g} everywhere)"
    return ""


def _check_equal_shapes(path: Path, windows: tuple[RoomWindows, ...]) -> None:
    shapes = {each.room: each.open().shape[1:] for each in windows}
    first, *others = shapes
    for other in others:
        if shapes[other] != shapes[first]:
            raise DataError(
                f"{path}: room '{other}' has windows of {shapes[other]}, room '{first}' of "
                f"{shapes[first]}; rooms that learn together need one window shape: import them "
                "with the same bandwidth, or leave one out"
            )
