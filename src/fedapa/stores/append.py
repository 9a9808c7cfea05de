"""Adding to a store: recordings of any length, a piece at a time, all of them or none.

A store that exists is copied aside, the copy is added to, and only a finished copy takes its
place: whatever happens, there is a whole store at the path.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from fedapa.csi.capture import packet_rates
from fedapa.errors import DataError
from fedapa.files import locked
from fedapa.interrupts import held_back
from fedapa.stores.hdf5 import replaced
from fedapa.stores.store import (
    LABELLED_LATER,
    UNLABELLED,
    Store,
    StoreWriter,
    begin_store,
    check_length,
    noted,
)
from fedapa.windows.labels import Label
from fedapa.windows.recipe import Recipe

__all__ = ["Piece", "StoreAppender", "append_store"]

Piece = tuple[npt.NDArray[np.float32], npt.NDArray[np.float64]]
"""amplitude [packets, subcarriers, links] and timestamps [packets]."""


class StoreAppender(StoreWriter):
    """Adds rooms and recordings to a store that may have some; made by ``append_store``."""

    def rooms(self) -> tuple[str, ...]:
        """Rooms that are there already, sorted."""
        return tuple(sorted(self._file))

    def about(self, room: str) -> dict[str, Any]:
        """What is noted about a room."""
        return noted(self._file[room].attrs, f"room '{room}'")

    def recipe(self, room: str) -> Recipe | None:
        """How a room's packets came to be what they are; None where that is not noted."""
        text = self.about(room).get("recipe")
        return None if text is None else Recipe.of_json(text, place=f"room '{room}'")

    def rename(self, room: str, name: str, new: str, notes: Mapping[str, Any]) -> None:
        """Give a recording another name and further notes."""
        self._file[room].move(name, new)
        for key, value in sorted(notes.items()):
            self._file[room][new].attrs[key] = value

    def relabel(
        self, room: str, name: str, label: Label | None, activity: str | None = None
    ) -> None:
        """Give a recording without a label one, or take its label away.

        Who has been without a label once may have been learned from: it trains and never tests.
        """
        self._check()
        for text, what in ((label, "label"), (activity, "activity")):
            check_length(text, what, f"{room}/{name}")
        attributes = self._file[room][name].attrs
        for key in ("label", "activity"):
            if key in attributes:
                del attributes[key]
        attributes["part"] = UNLABELLED if label is None else LABELLED_LATER
        if label is not None:
            attributes["label"] = label
        if activity is not None:
            attributes["activity"] = activity
        self._check()

    def has(self, room: str, name: str) -> bool:
        """Whether a room has a recording of that name."""
        return room in self._file and name in self._file[room]

    def recordings(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Room, recording and what is noted about it, for all that is there already."""
        for room in self.rooms():
            for name in sorted(self._file[room]):
                yield room, name, noted(self._file[room][name].attrs, f"{room}/{name}")

    def add_stream(
        self,
        room: str,
        name: str,
        pieces: Iterable[Piece],
        *,
        label: Label | None,
        day: str = "",
        part: str = "",
        activity: str | None = None,
        notes: Mapping[str, Any] | None = None,
    ) -> int:
        """One recording, written as it comes; returns its packets. One without is not kept."""
        group = self._new(room, name, label=label, day=day, part=part, activity=activity)
        for key, value in sorted((notes or {}).items()):
            group.attrs[key] = value
        rows: h5py.Dataset | None = None
        stamps: h5py.Dataset | None = None
        packets = 0
        for amplitude, timestamps in pieces:
            if not len(amplitude):
                continue
            if rows is None or stamps is None:
                rows, stamps = _datasets(group, amplitude)
            for dataset, values in ((rows, amplitude), (stamps, timestamps)):
                dataset.resize(packets + len(values), axis=0)
                dataset[packets:] = values
            packets += len(amplitude)
            self._check()
        if stamps is None:
            del self._file[room][name]
            return 0
        group.attrs["rate"], group.attrs["mean_rate"] = packet_rates(stamps[:])
        return packets


def _datasets(
    group: h5py.Group, amplitude: npt.NDArray[np.float32]
) -> tuple[h5py.Dataset, h5py.Dataset]:
    subcarriers, links = amplitude.shape[1:]
    # About 256 KB a chunk: a window of 1000 × 242 touches a handful of them. A short recording
    # comes in one piece and gets a chunk of its own size: chunks are stored whole.
    chunk = max(1, min(len(amplitude), 2**18 // (subcarriers * links * 4)))
    return (
        group.create_dataset(
            "amplitude",
            (0, subcarriers, links),
            np.float32,
            maxshape=(None, subcarriers, links),
            chunks=(chunk, subcarriers, links),
        ),
        group.create_dataset(
            "timestamps", (0,), np.float64, maxshape=(None,), chunks=(min(len(amplitude), 2**12),)
        ),
    )


@contextlib.contextmanager
def append_store(path: str | Path) -> Iterator[StoreAppender]:
    """A store to add to, new or not; it changes at ``path`` when the block ends well.

    Meanwhile no other process can write it, and Ctrl-C waits for the next thing that is added.
    """
    path = Path(path)
    if path.is_dir():
        raise DataError(f"{path}: is a folder; expected a store to add to, or a new name")
    with held_back() as raise_interrupt, locked(path):
        there = path.exists()
        if there:
            with Store(path) as store:  # is it one, of a version we know, that leads nowhere else?
                store.read_notes()
        with replaced(path, raise_interrupt) as (file, check):
            if not there:
                begin_store(file)
            yield StoreAppender(file, check)
