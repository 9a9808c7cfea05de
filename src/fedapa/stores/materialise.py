"""Recordings become windows, once, in contiguous files that workers memory-map.

``materialise(store, recipe)`` gives one ``RoomWindows`` per room: a float32 array on disk
[windows, …] as the recipe's view has them (or [windows, features]) and, in memory, each window's
label and where it came from. The files live in the cache folder and are keyed by the store's
identity and the recipe, so the second run on the same data starts at once. Each has a digest of its
values: a file that holds other values than were written is made again.
"""

import contextlib
import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedapa.errors import DataError
from fedapa.files import cache_folder, write_bytes
from fedapa.processes import Progress, Show, side_by_side, unseen
from fedapa.stores.arrays import ArrayFile, kept_array
from fedapa.stores.packets import even_rate, packets_of, rows_of, segment_lengths
from fedapa.stores.store import LABELLED_LATER, Recording, Store
from fedapa.windows.labels import Label, sorted_labels
from fedapa.windows.normalise import Normaliser
from fedapa.windows.recipe import Recipe
from fedapa.windows.stream import (
    Windower,
    Windows,
    kept_sides,
    segment_starts,
    silent_in,
    unheard,
    value_fault,
    window_shape,
)
from fedapa.windows.views import VIEWS, find_view, seen_by

__all__ = [
    "WORTH_WORKERS",
    "RoomWindows",
    "Surveyed",
    "materialise",
    "recording_windows",
    "seen_as",
    "short_recordings",
    "survey",
]

_VERSION = 6  # part of the cache key: raise it when the same recipe gives other numbers
_NORMALISER_VERSION = 3  # raise it when the same windows give other numbers: they are kept in files
_SHOWN = 60
"""Letters of a class in a reason."""
_NAMED = 3
"""Recordings that are named where there may be many."""
WORTH_WORKERS = 1 << 25
"""Bytes of packets: fewer are cut in less time than workers take to start."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Surveyed:
    """Where the windows of one room come from: all but their values."""

    room: str
    labels: tuple[Label | None, ...]
    """For each window its label; None where its recording has none."""
    recordings: tuple[str, ...]
    """For each window, the recording it was cut from."""
    days: tuple[str, ...]
    """For each window, the day of that recording; empty where it is not known."""
    continuous: tuple[bool, ...]
    """For each window, whether that recording is for counting over time only."""
    starts: npt.NDArray[np.int64]
    """For each window, its first row in that recording."""
    spans: int
    """Rows of the recording a window covers: two windows overlap if their starts are closer."""
    step: int
    """Rows of the recording from one window to the next."""
    synthetic: bool
    recipe: Recipe
    """How they were made, from packet to window; it has no normaliser yet."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Of a window under each view that this room can have; none where windows came finished."""
    refused_views: Mapping[str, str] = field(default_factory=dict)
    """The views that it cannot have, each with the reason and a remedy."""
    sources: tuple[Recording, ...] = ()
    """The room's recordings as its store lists them, which takes a while; dealt rooms have none."""
    activities: tuple[str | None, ...] = ()
    """For each window its second label; None where its recording has none, and empty where no
    recording of the room has one."""
    strata: tuple[str | None, ...] = ()
    """For each window count and activity together, where every such pair has two recordings: splits
    are then a share of each pair, whatever a run learns, so that runs of one task and of both test
    on the same windows. Empty elsewhere: splits are then a share of each label."""
    train_only: tuple[bool, ...] = ()
    """For each window whether its recording was labelled later: it trains and is never held out.
    Empty where none was."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RoomWindows(Surveyed):
    """The windows of one room: values on disk, labels and origins in memory."""

    path: Path
    """An .npy file, float32 [windows, packets, subcarriers] or [windows, features]."""
    digest: str
    """Of all values: other windows have another one."""

    def open(self) -> npt.NDArray[np.float32]:
        """The values, memory-mapped; every process that opens them shares one copy."""
        return np.load(self.path, mmap_mode="r")  # type: ignore[no-any-return]

    def normaliser(self, train: npt.NDArray[np.int64]) -> Normaliser:
        """Of the train windows; kept beside the values: paper-size ones take seconds to read."""
        chosen = hashlib.blake2b(train.astype("<i8").tobytes(), digest_size=12).hexdigest()
        file = self.path.with_name(f"{self.path.stem}.{chosen}.{_NORMALISER_VERSION}.normaliser")
        values = self.open()
        shape = (2, values.shape[-1])
        with contextlib.suppress(OSError, ValueError):
            content = file.read_bytes()
            numbers, check = content[:-16], content[-16:]
            if check == self._check(numbers):
                mean, deviation = np.frombuffer(numbers, "<f4").astype(np.float32).reshape(shape)
                return Normaliser(mean, deviation)
        made = Normaliser.of(values, train)
        with contextlib.suppress(OSError):  # a cache that cannot be written costs time, not the run
            numbers = np.stack([made.mean, made.deviation]).astype("<f4").tobytes()
            write_bytes(file, numbers + self._check(numbers))
        return made

    def _check(self, numbers: bytes) -> bytes:
        return hashlib.blake2b(self.digest.encode() + numbers, digest_size=16).digest()


def materialise(
    path: Path,
    recipe: Recipe,
    *,
    rooms: Sequence[str] | None = None,
    workers: int = 1,
    show: Show = unseen,
) -> tuple[RoomWindows, ...]:
    """The windows of a store's rooms, cut once and cached; sorted by room.

    Args:
        path: the store.
        recipe: how to cut; what was done to the packets before, the store says itself.
        rooms: those to cut; by default all.
        workers: processes to cut rooms in, where that is worth while; the windows do not change.
        show: told of every room.
    """
    with Store(path) as store:
        folder = cache_folder() / "windows" / _cache_key(path, recipe)
        chosen = store.rooms if rooms is None else tuple(sorted(rooms))
        new = [room for room in chosen if not (folder / f"{room}.npy").exists()]
        several = workers > 1 and len(new) > 1 and _bytes_of(store, new) >= WORTH_WORKERS
        if several:
            words = (str(path), recipe.to_json(), str(folder))
            tasks = [(room, *words) for room in new]
            side_by_side(
                _cut_in_worker,
                tasks,
                workers=workers,
                stage="cutting windows",
                unit="rooms",
                show=show,
            )
        windows = []
        for done, room in enumerate(chosen, start=1):
            windows.append(_room_windows(store, room, recipe, folder))
            if not several:
                show(Progress("cutting windows", done, len(chosen), "rooms"))
    return tuple(windows)


def survey(
    path: Path, recipe: Recipe, *, rooms: Sequence[str] | None = None
) -> tuple[Surveyed, ...]:
    """What ``materialise`` would cut and which views those windows can have, without their values.

    A view that needs a signal everywhere is none for a room with a dead link or a silent
    subcarrier, unless bad windows are dropped: then it is one, and ``amplitude`` is none, since it
    would have other windows than the rest. ``refused_views`` says so.
    """
    plain = replace(recipe, view="amplitude")
    surveyed = []
    with Store(path) as store:
        for room in store.rooms if rooms is None else tuple(sorted(rooms)):
            recordings = store.recordings(room)
            own = _recipe_of_room(store, room, recordings, plain)
            dropping = own.bad_windows == "drop"
            cut: list[tuple[Recording, int]] = []
            silence = _Silence()
            for recording, start, silent in _surveyed(store, room, recordings, own):
                silence.add(recording, silent)
                if not (dropping and silent.any()):
                    cut.append((recording, start))
            if not cut:
                raise DataError(
                    f"{path}: room '{room}': every window has a dead link or a silent subcarrier; "
                    f'{silence.remedy()}, or use data.view = "amplitude"'
                )
            found = Surveyed(**_origins(store, room, recordings, own, _about(cut, own)))
            if silence.windows:
                why = silence.dropped() if dropping else silence.refused()
                usable = {
                    view: shape
                    for view, shape in found.shapes.items()
                    if find_view(view).needs_signal == dropping
                }
                refused = {view: why for view in found.shapes if view not in usable}
                found = replace(
                    found, shapes=usable, refused_views={**found.refused_views, **refused}
                )
            surveyed.append(found)
    return tuple(surveyed)


def short_recordings(
    path: Path, recipe: Recipe, *, rooms: Sequence[str] | None = None
) -> list[str]:
    """What recordings are too short for, a sentence each; nothing where all of them give windows.

    Windows that are shorter than asked for, recordings that give none, and classes of which none is
    left.

    Args:
        path: the store.
        recipe: how it is cut.
        rooms: those to look at; by default all.
    """
    told = []
    with Store(path) as store:
        for room in store.rooms if rooms is None else tuple(sorted(rooms)):
            recordings = store.recordings(room)
            if any(recording.is_features for recording in recordings):
                continue
            own = _recipe_of_room(store, room, recordings, replace(recipe, view="amplitude"))
            lasting = own.window_seconds
            length = f"{own.window} packets" + ("" if lasting is None else f" ({lasting:.3g} s)")
            if own.shortened:
                told.append(
                    f"Room '{room}': windows are of {length}, shorter than asked ({own.shortened})"
                )
            cut = [one for one in recordings if _starts_in(store, one, own)]
            short = [one for one in recordings if one not in cut]
            if short:
                names = ", ".join(one.name for one in short[:_NAMED])
                more = ", …" if len(short) > _NAMED else ""
                told.append(
                    f"Room '{room}': {len(short)} of {len(recordings)} recordings are left out, "
                    f"shorter than a window of {length} ({names}{more}); record longer ones, or "
                    "use a shorter window"
                )
            lost = {one.label for one in short} - {one.label for one in cut}
            if lost - {None}:
                classes = ", ".join(map(str, sorted_labels(lost)))
                told.append(
                    f"Room '{room}': nothing is left of class {classes:.{_SHOWN}}, all of its "
                    "recordings are shorter than a window; the room cannot learn it"
                )
    return told


@dataclass
class _Silence:
    """What was zero throughout some windows of a room."""

    seen: int = 0
    """Windows that were looked at."""
    windows: int = 0
    """Those with something silent."""
    first: str = ""
    """The first of them, in words."""
    places: npt.NDArray[np.bool_] | None = None
    """[links, subcarriers] that were silent in any."""

    def add(self, recording: Recording, silent: npt.NDArray[np.bool_]) -> None:
        """Another window, and what of it was silent [links, subcarriers]."""
        self.seen += 1
        if not silent.any():
            return
        self.windows += 1
        self.first = self.first or f"recording '{recording.name}' {unheard(silent)}"
        self.places = silent if self.places is None else self.places | silent

    def refused(self) -> str:
        """Why views that need a signal have none, and what to do."""
        return f"{self.first}, in {self.windows} of {self.seen} windows; {self.remedy()}"

    def dropped(self) -> str:
        """Why the view that would keep such windows is none where they are dropped."""
        return (
            f"{self.windows} of {self.seen} windows are dropped that it would keep ({self.first})"
        )

    def remedy(self) -> str:
        """What to set so that every window has a signal."""
        ways = ["data.bad_windows=drop"] if self.windows < self.seen else []
        if self.places is not None and len(self.places) > 1 and not self.places[0].any():
            ways.append("data.links=first")
        elif self.places is not None:
            steps = range(2, 1 + self.places.shape[1] // 3)
            thin = [step for step in steps if not self.places[:, ::step].any()]
            ways += [f"data.subcarrier_step={thin[0]}"] if thin else []
        said = " or ".join(f"--set {way}" for way in ways)
        return said or "mend the recordings, or leave the room out: --without"


def _surveyed(
    store: Store, room: str, recordings: Sequence[Recording], recipe: Recipe
) -> Iterator[tuple[Recording, int, npt.NDArray[np.bool_]]]:
    """The windows of one room by recording, first row and what in it is silent [links, …]."""
    nothing = np.zeros((1, 1), bool)
    if recipe.decimate == 1 and all(_plainly_usable(store, one, recipe) for one in recordings):
        _refuse_unequal(store, room, recordings, recipe)
        for recording in recordings:
            for start in _starts_in(store, recording, recipe):
                yield recording, start, nothing
        return
    for recording, start, window in _usable_windows(store, room, recordings, recipe):
        features = recording.is_features
        silent = nothing if features else silent_in(_by_link(window, recording, recipe))
        yield recording, start, silent


def _plainly_usable(store: Store, recording: Recording, recipe: Recipe) -> bool:
    """Whether every window of a recording is usable, whatever its view, by one look at its rows.

    Where every value is a number above zero and no packet is constant, nothing is silent, and no
    window is constant. It may be so without that: then each window must be looked at.
    """
    if recording.is_features or not _starts_in(store, recording, recipe):
        return False
    for part in packets_of(store, recording, recipe):
        rows = part.amplitude.reshape(len(part.amplitude), -1)
        low, high = rows.min(axis=1), rows.max(axis=1)
        if not ((low > 0) & (high < np.inf) & (low < high)).all():  # a NaN is neither
            return False
    return True


def seen_as(
    path: Path, origins: Surveyed, views: Sequence[str], chosen: Collection[int]
) -> Iterator[tuple[npt.NDArray[np.float32], ...]]:
    """Some of the surveyed windows of a room, in their order, each under every one of ``views``."""
    own = replace(origins.recipe, view="amplitude")
    wanted = {(origins.recordings[n], int(origins.starts[n])) for n in chosen}
    names = {recording for recording, _ in wanted}
    rate = own.window_rate or 0.0
    with Store(path) as store:
        for recording in (one for one in origins.sources if one.name in names):
            for windows in recording_windows(store, recording, own):
                for start, window in zip(windows.starts.tolist(), windows.values, strict=True):
                    if (recording.name, start) in wanted:
                        by_link = _by_link(window, recording, own)
                        yield seen_by(views, by_link, rate)


def _by_link(
    window: npt.NDArray[np.float32], recording: Recording, recipe: Recipe
) -> npt.NDArray[np.float32]:
    """A window [packets, links · subcarriers] as [packets, links, subcarriers]."""
    return window.reshape(len(window), *_window_sides(recording, recipe))


def _window_sides(recording: Recording, recipe: Recipe) -> tuple[int, int]:
    """Links and subcarriers of a window."""
    _, subcarriers, links = recording.shape
    return kept_sides(subcarriers, links, recipe)


def _bytes_of(store: Store, rooms: Sequence[str]) -> int:
    """What recordings of these rooms hold, as single precision."""
    return 4 * sum(math.prod(one.shape) for room in rooms for one in store.recordings(room))


def _cut_in_worker(room: str, path: str, recipe: str, folder: str) -> bytes:
    """In a worker: the windows of one room, which stay in a file."""
    with Store(Path(path)) as store:
        cut = Recipe.of_document(json.loads(recipe), place="task of a worker")
        _room_windows(store, room, cut, Path(folder))
    return b""


def _cache_key(path: Path, recipe: Recipe) -> str:
    status = path.resolve().stat()
    identity = (str(path.resolve()), status.st_size, status.st_mtime_ns, recipe.to_json(), _VERSION)
    return hashlib.blake2b(repr(identity).encode(), digest_size=12).hexdigest()


def _room_windows(store: Store, room: str, recipe: Recipe, folder: Path) -> RoomWindows:
    recordings = store.recordings(room)
    own = _recipe_of_room(store, room, recordings, recipe)
    kept = kept_array(
        folder / f"{room}.npy", lambda out: _cut_room(store, room, recordings, own, out)
    )
    return RoomWindows(
        **_origins(store, room, recordings, own, kept.about), path=kept.path, digest=kept.digest
    )


def _origins(
    store: Store, room: str, recordings: Sequence[Recording], recipe: Recipe, about: dict[str, Any]
) -> dict[str, Any]:
    """The values of ``Surveyed`` from what was noted when the windows were cut."""
    features = any(recording.is_features for recording in recordings)
    each = {name: tuple(about[name]) for name in ("labels", "recordings", "days", "continuous")}
    return {
        "room": room,
        **each,
        "starts": np.asarray(about["starts"], np.int64),
        "spans": about["spans"],
        "step": about["step"],
        "synthetic": any(recording.synthetic for recording in recordings),
        "recipe": Recipe(source="features") if features else recipe,
        "sources": tuple(recordings),
        **_second_labels(recordings, each["recordings"]),
        **_labelled_later(recordings, each["recordings"]),
        **({} if features else _views(recordings[0], recipe)),
    }


def _labelled_later(recordings: Sequence[Recording], windows: Sequence[str]) -> dict[str, Any]:
    """``train_only`` of windows, by the recording that each was cut from; mostly nothing."""
    later = {one.name for one in recordings if one.part == LABELLED_LATER}
    return {"train_only": tuple(name in later for name in windows)} if later else {}


def _second_labels(recordings: Sequence[Recording], windows: Sequence[str]) -> dict[str, Any]:
    """``activities`` and ``strata`` of windows, by the recording that each was cut from."""
    if all(recording.activity is None for recording in recordings):
        return {}
    pairs = {
        one.name: None if one.label is None else f"{one.label} {one.activity or ''}".strip()
        for one in recordings
        if one.part != "continuous"
    }
    used = {name for name in windows if pairs.get(name) is not None}
    later = {one.name for one in recordings if one.part == LABELLED_LATER}  # never held out
    numbers = Counter(pairs[name] for name in used - later)
    activity = {one.name: one.activity for one in recordings}
    told = tuple(activity[name] for name in windows)
    if min(numbers.values(), default=0) < 2:
        return {"activities": told}
    return {"activities": told, "strata": tuple(pairs.get(name) for name in windows)}


def _views(recording: Recording, recipe: Recipe) -> dict[str, dict[str, Any]]:
    """The shape of a window under each view that such a recording can have; else the reason."""
    subcarriers = _window_sides(recording, recipe)[1]
    shapes, refused = {}, {}
    for view in VIEWS:
        seen = replace(recipe, view=view)
        if fault := seen.view_fault(subcarriers):
            refused[view] = fault
        else:
            shapes[view] = _window_shape(recording, seen)
    return {"shapes": shapes, "refused_views": refused}


def _recipe_of_room(
    store: Store, room: str, recordings: Sequence[Recording], cut: Recipe
) -> Recipe:
    """How this room's packets become windows: its receiver's, with packets for seconds.

    Windows of so many seconds are cut from an even grid where the stored packets are uneven.
    Recordings without a label are not asked, nor those that got one later: however many are added,
    what is tested stays the same.
    """
    if any(recording.is_features for recording in recordings):
        return cut
    asked = [one for one in recordings if one.label is not None and one.part != LABELLED_LATER]
    recordings = asked or recordings
    own = store.recipe(room).cut_like(cut)
    if own.link_count is None:
        own = replace(own, link_count=recordings[0].shape[2])
    if own.rate is None and own.packet_rate is None:
        rates = [recording.rate for recording in recordings if recording.rate > 0]
        own = replace(own, packet_rate=float(np.median(rates)) if rates else None)
    if own.rate is None and own.window is None and own.seconds is not None:
        own = replace(own, rate=even_rate(store, recordings, own))
    try:
        wanted = own.wanted(store.window)
    except DataError as error:
        raise DataError(f"{store.path}: room '{room}': {error}") from error
    longest, why = _longest(store, recordings, own, wanted or 0)
    sized = own.sized(recommended=store.window, longest=longest, why=why)
    try:
        sized.check_view(_window_sides(recordings[0], sized)[1])
    except DataError as error:
        raise DataError(f"{store.path}: room '{room}': {error}") from error
    return sized


def _longest(
    store: Store, recordings: Sequence[Recording], recipe: Recipe, wanted: int
) -> tuple[int, str]:
    """Packets of the longest window that fits into at least half of every label's recordings.

    And why it is not ``wanted``, in words, where it is not.
    """
    parts: dict[Label | None, list[tuple[int, ...]]] = {}
    for recording in recordings:
        parts.setdefault(recording.label, []).append(segment_lengths(store, recording, recipe))
    fitting = {label: _half_have(within, max) for label, within in parts.items()}
    longest = min(fitting.values(), default=0)
    if longest >= wanted:
        return longest, ""
    asked = f"{wanted} packets" if recipe.seconds is None else f"{recipe.seconds:g} s"
    if not any(sum(within) >= wanted for held in parts.values() for within in held):
        return longest, f"no recordings for {asked}"
    short = [label for label in sorted_labels(fitting) if fitting[label] < wanted]
    label = min(short, key=lambda label: fitting[label])
    who = f"class {label}"[:_SHOWN] if len(short) < len(fitting) else "every class"
    if _half_have(parts[label], sum) >= wanted:
        return longest, (
            f"not {asked}: half of the recordings of {who} have no such time without a gap of "
            f"{recipe.gap:g} s; record without gaps"
        )
    without = ""
    if len(fitting) - len(short) > 1:  # what is left can still be told apart
        without = f", or leave them out: --set data.window={wanted}"
    return longest, (
        f"not {asked}: half of the recordings of {who} are shorter; record longer ones{without}"
    )


def _half_have(parts: Sequence[tuple[int, ...]], of: Callable[[tuple[int, ...]], int]) -> int:
    """Packets that half of some recordings have or more; ``of`` counts those in one's parts."""
    return int(np.median([of(within) if within else 0 for within in parts]))


def _cut_room(
    store: Store, room: str, recordings: Sequence[Recording], recipe: Recipe, out: ArrayFile
) -> dict[str, Any]:
    """Write the windows of one room; returns what is known about them."""
    cut = []
    for recording, start, window in _usable_windows(store, room, recordings, recipe):
        out.append(window)
        cut.append((recording, start))
    return _about(cut, recipe)


def _about(cut: Sequence[tuple[Recording, int]], recipe: Recipe) -> dict[str, Any]:
    """What is known of windows by the recording and the row that each begins at."""
    return {
        "labels": [recording.label for recording, _ in cut],
        "recordings": [recording.name for recording, _ in cut],
        "days": [recording.day for recording, _ in cut],
        "continuous": [recording.part == "continuous" for recording, _ in cut],
        "starts": [start for _, start in cut],
        "spans": 1 if cut[0][0].is_features else recipe.window,
        "step": 1 if cut[0][0].is_features else recipe.step,
    }


def _usable_windows(
    store: Store, room: str, recordings: Sequence[Recording], recipe: Recipe
) -> Iterator[tuple[Recording, int, npt.NDArray[np.float32]]]:
    """The windows of one room with their recording and first row; refuses or drops bad ones."""
    kinds = {recording.is_features for recording in recordings}
    if len(kinds) > 1:
        raise DataError(f"{store.path}: room '{room}' mixes packets and features; split it in two")
    if not any(_starts_in(store, recording, recipe) for recording in recordings):
        most = max((recording.shape[0] for recording in recordings), default=0)
        if not most:
            raise DataError(
                f"{store.path}: room '{room}' holds no packets; leave it out: --without"
            )
        lengths = [segment_lengths(store, recording, recipe) for recording in recordings]
        longest = max((packets for within in lengths for packets in within), default=0)
        evenly = "" if recipe.rate is None else f" without a gap of {recipe.gap:g} s"
        raise DataError(
            f"{store.path}: room '{room}' has no windows: its longest recording has {longest} "
            f"packets{evenly}, a window needs {recipe.window}; choose a shorter window, e.g. --set "
            f"data.window={most}"
        )
    _refuse_unequal(store, room, recordings, recipe)
    seen = usable = 0
    last_fault = ""
    for recording in recordings:
        for windows in recording_windows(store, recording, recipe):
            for start, window, fault in zip(
                windows.starts.tolist(), windows.values, windows.faults, strict=True
            ):
                if fault and recipe.bad_windows == "refuse":
                    raise DataError(
                        f"{store.path}: room '{room}', window {seen} (recording "
                        f"'{recording.name}', from row {start}) {fault}; mend the recording or "
                        f"--set data.bad_windows=drop{_without_link(fault)}"
                    )
                seen += 1
                last_fault = fault
                if not fault:
                    usable += 1
                    yield recording, start, window
    if not usable:
        raise DataError(
            f"{store.path}: room '{room}': all {seen} windows are unusable: the last one "
            f"{last_fault}; mend the recordings{_without_link(last_fault)}, or leave the room out: "
            "--without" + (", or use data.view=amplitude" if "of which view" in last_fault else "")
        )


def _without_link(fault: str) -> str:
    """Another remedy, where a link is dead that is not the first."""
    dead = "dead link" in fault and "link 1 of" not in fault
    return " or --set data.links=first" if dead else ""


def _refuse_unequal(
    store: Store, room: str, recordings: Sequence[Recording], recipe: Recipe
) -> None:
    """Refuse recordings of one room that give windows of different shapes."""
    shape = _window_shape(recordings[0], recipe)
    for recording in recordings:
        if _window_shape(recording, recipe) != shape and _starts_in(store, recording, recipe):
            raise DataError(
                f"{store.path}: room '{room}': recording '{recording.name}' gives windows of "
                f"{_window_shape(recording, recipe)}, '{recordings[0].name}' of {shape}; all "
                "recordings of a room need the same subcarriers and links"
            )


def recording_windows(store: Store, recording: Recording, recipe: Recipe) -> Iterator[Windows]:
    """The windows of a stored recording, some at a time; feature rows are windows already."""
    if recording.is_features:
        start = 0
        for part in rows_of(store, recording):
            faults = tuple(value_fault(row) for row in part)
            unknown = np.full(len(part), np.nan)
            yield Windows(part, np.arange(start, start + len(part)), unknown, unknown, faults)
            start += len(part)
        return
    windower = Windower(recipe)
    for packets in packets_of(store, recording, recipe):
        yield windower.feed(packets)
    yield windower.finish()


def _starts_in(store: Store, recording: Recording, recipe: Recipe) -> Sequence[int]:
    """The rows of a recording at which windows begin."""
    if recording.is_features:
        return range(recording.shape[0])
    return segment_starts(segment_lengths(store, recording, recipe), recipe)


def _window_shape(recording: Recording, recipe: Recipe) -> tuple[int, ...]:
    if recording.is_features:
        return recording.shape[1:]
    _, subcarriers, links = recording.shape
    return window_shape(subcarriers, links, recipe)
