"""Which windows train, validate and test, in five ways; every result names the one it used.

``random``     window by window; it leaks: neighbours in one recording are alike, so a test window
               has near twins in train.
``blocked``    blocks of time are held out of recordings, with a gap on both sides that nobody uses.
``recording``  whole recordings are held out: nothing of a test recording was ever seen.
``day``        whole days are held out: furniture and gain of a test day were never seen.
``later``      the same in the order of time: train on the first days, validate on the days after
               them, test on the last; for what happens to a counter that nobody trains again.

The test part is a share of every class. A class too small to be split goes to train whole: it must
be learnable before it can be tested. Validation is a share of what is left, held out the same way
but over the room as a whole (a recording or a block of *every* class would cost small rooms half of
their training windows), and it is taken away for every algorithm alike. Who tunes on it may ask for
a share of every class that can afford it (``validation_of = "class"``).

Days are held out of the room as a whole, for test and for validation: a day with some classes in
train and others in test would be known. No day is held out that is the last of a class. ``later``
keeps to the order of time instead: windows of a class that the first days lack are in no part,
nor are windows without a label of other days than those. Its shares are of the days.

Where windows overlap, train and ``unlabelled`` have all of them; every other part has windows that
do not overlap each other. Continuous recordings are for counting over time: in no part but
``continuous``. Windows that never had a label are in no part but ``unlabelled``; those that got one
later train and are never held out.

A room may have few labels: those of some train windows can be taken away, and the windows with
them, or they are kept as ``unlabelled``. Then validation windows have no label either.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fedapa.errors import DataError
from fedapa.randomness import Key
from fedapa.windows.labels import NO_CLASS, Label, sorted_labels

__all__ = [
    "STRICTEST_FIRST",
    "LabelledClasses",
    "Part",
    "Split",
    "SplitChoice",
    "SplitKind",
    "ValidationOf",
    "by_date",
    "check_learnable",
    "lying_apart",
    "refused_splits",
    "split_windows",
    "with_fewer_labels",
]

SplitKind: TypeAlias = Literal["random", "blocked", "recording", "day", "later"]
SplitChoice: TypeAlias = Literal[SplitKind, "auto"]
"""auto: the strictest kind that all rooms of a run allow; never ``later``, which is a question of
its own."""
Part: TypeAlias = Literal["train", "validation", "test", "continuous", "unlabelled"]
LabelledClasses: TypeAlias = Literal["all", "lower", "upper", "alternate"]
"""Which classes of a room have labels, of those in its train part, in their order: all, the lower
or the upper half (each with the middle one), or every second, beginning with the first."""
ValidationOf: TypeAlias = Literal["room", "class"]
_Index: TypeAlias = npt.NDArray[np.int64]

STRICTEST_FIRST: tuple[SplitKind, ...] = ("day", "recording", "blocked", "random")

_VALIDATION_BLOCK = 1 / 3
"""Of a recording: few large blocks lose fewer windows to gaps than many small ones."""
_UNITS_TO_VALIDATE = 4
"""A class gives to validation, where every class does, if it has so many units: one is tested, one
validates, and two are left to learn from."""
_BLOCKED_WINDOWS = 3
"""A recording that a block is held out of: the block, its gap, and something to learn from."""
_DAYS = 3
"""For test, for validation and to learn from."""
_SHOWN = 60
"""Letters of a label in a reason."""


def _no_windows() -> _Index:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Split:
    """Indices of windows, each sorted; some may be in none of them.

    Those are the gaps of a blocked split, and what overlaps a test or validation window.
    """

    train: _Index
    validation: _Index
    test: _Index
    kind: str = "given"
    """How they were split: random, blocked, recording, day, or given by somebody."""
    continuous: _Index = field(default_factory=_no_windows)
    """Windows of continuous recordings, which neither train nor validate nor test."""
    why: str = ""
    """Why they were split this way, in words; nothing where nobody said."""
    unlabelled: _Index = field(default_factory=_no_windows)
    """Windows to learn from without a label: nobody may look at what their labels would be."""
    withheld: _Index = field(default_factory=_no_windows)
    """The train windows before labels were taken away, for a control in which a room has all of its
    labels while another has few (rooms/pool.py); none where none were."""

    @property
    def seen(self) -> _Index:
        """The windows that a normaliser is made of: those to learn from, with a label or not."""
        return np.union1d(self.train, self.unlabelled)

    def scoring_validation(self) -> "Split":
        """Validation windows in the place of the test: test and continuous ones are in no part."""
        return replace(self, test=self.validation, continuous=_no_windows())

    @property
    def sizes(self) -> dict[str, int]:
        """Windows in each part that learning needs: train, validation, test."""
        return {part: len(getattr(self, part)) for part in ("train", "validation", "test")}


@dataclass(frozen=True, eq=False)
class _Windows:
    """What is known of the windows of one room, each array [windows]."""

    names: npt.NDArray[np.str_]
    """[classes] labels as text, sorted."""
    classes: _Index
    """For each window its place in ``names``, or ``NO_CLASS``."""
    recordings: npt.NDArray[np.str_]
    days: npt.NDArray[np.str_]
    starts: _Index
    spans: int
    continuous: npt.NDArray[np.bool_]
    train_only: npt.NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        labels: Sequence[Label | None],
        recordings: Sequence[str],
        starts: _Index,
        *,
        spans: int,
        days: Sequence[str] | None,
        continuous: Sequence[bool] | None,
        train_only: Sequence[bool] | None,
    ) -> "_Windows":
        labelled = np.asarray([label is not None for label in labels], bool)
        texts = np.asarray([str(label) for label in labels if label is not None], np.str_)
        classes = np.full(len(labels), NO_CLASS, np.int64)
        names, classes[labelled] = np.unique(texts, return_inverse=True)
        return cls(
            names=names,
            classes=classes,
            recordings=np.asarray(recordings),
            days=np.asarray(days if days is not None else [""] * len(labels)),
            starts=starts,
            spans=spans,
            continuous=np.asarray(continuous if continuous is not None else [False] * len(labels)),
            train_only=np.asarray(train_only or [False] * len(labels), bool),
        )

    @property
    def learned(self) -> _Index:
        """The windows that are split."""
        held = self.continuous | self.train_only
        return np.flatnonzero(~held & (self.classes != NO_CLASS))

    def further(self, held_out: Collection[str]) -> _Index:
        """The labelled windows that train whatever the split, but for those of days held out."""
        mine = self.train_only & ~self.continuous & (self.classes != NO_CLASS)
        return np.flatnonzero(mine & ~np.isin(self.days, sorted(set(held_out) - {""})))

    def units(self, index: _Index, kind: SplitKind) -> npt.NDArray[np.str_] | _Index:
        """What is held out whole, for each window: a day, a recording, or the window itself."""
        if kind == "day":
            return self.days[index]
        return self.recordings[index] if kind == "recording" else index

    def unit_numbers(self, kind: SplitKind) -> dict[str, int]:
        """How many units each class has."""
        return {
            name: len(np.unique(self.units(mine, kind)))
            for name, mine in self.by_class(self.learned)
        }

    def by_class(self, index: _Index) -> Iterator[tuple[str, _Index]]:
        """Those of ``index``, class by class."""
        for place, name in enumerate(self.names):
            mine = index[self.classes[index] == place]
            if len(mine):
                yield str(name), mine

    def without_overlaps(self, index: _Index) -> _Index:
        """Those that do not overlap."""
        return lying_apart(index, self.recordings, self.starts, spans=self.spans)

    @property
    def overlap(self) -> bool:
        """Whether some share packets."""
        return len(self.without_overlaps(self.learned)) < len(self.learned)


def lying_apart(
    index: _Index, recordings: Sequence[str] | npt.NDArray[np.str_], starts: _Index, *, spans: int
) -> _Index:
    """Of each recording the first window, then every next that overlaps none before it.

    Args:
        index: the windows to choose from.
        recordings: for each window the recording it was cut from.
        starts: for each window its first row in that recording.
        spans: rows that a window covers.
    """
    ends: dict[str, int] = {}
    kept = []
    for window in index[np.argsort(starts[index], kind="stable")].tolist():
        recording, start = str(recordings[window]), int(starts[window])
        if start >= ends.get(recording, start):
            ends[recording] = start + spans
            kept.append(window)
    return np.sort(np.asarray(kept, np.int64))


def check_learnable(
    room: str,
    labels: Sequence[Label | None],
    continuous: Sequence[bool] | None = None,
    train_only: Sequence[bool] | None = None,
) -> None:
    """Refuse a room that has nothing to split, whatever the kind.

    Args:
        room: its name, for the error.
        labels: for each window its class; None is no label.
        continuous: for each window whether its recording is a continuous one; by default none is.
        train_only: for each window whether its recording was labelled later; by default none was.
    """
    times = continuous if continuous is not None else [False] * len(labels)
    apart = [label for label, over_time in zip(labels, times, strict=True) if not over_time]
    if not apart:
        raise DataError(
            f"room '{room}' has continuous recordings only: there is nothing to learn from; record "
            "some of each count, or leave the room out"
        )
    if all(label is None for label in apart):
        raise DataError(
            f"room '{room}' has no windows with a label: there is nothing to test; import labelled "
            "recordings of two classes or more into it, or leave the room out"
        )
    later = train_only or [False] * len(labels)
    told = zip(labels, times, later, strict=True)
    if all(label is None or over_time or after for label, over_time, after in told):
        raise DataError(
            f"room '{room}' has no label but those that 'fedapa label' gave: such recordings may "
            "have been learned from before, so they train and never test; import labelled "
            "recordings of two classes or more into it, or leave the room out"
        )


def split_windows(
    room: str,
    labels: Sequence[Label | None],
    recordings: Sequence[str],
    starts: _Index,
    *,
    spans: int,
    kind: SplitKind,
    key: Key,
    days: Sequence[str] | None = None,
    continuous: Sequence[bool] | None = None,
    train_only: Sequence[bool] | None = None,
    test: float = 0.2,
    validation: float = 0.1,
    validation_of: ValidationOf = "room",
) -> Split:
    """Split the windows of one room; raises DataError where nothing could be tested.

    Args:
        room: its name, for the error.
        labels: for each window its class; None is no label: such a window is never held out.
        recordings: for each window the recording it was cut from.
        starts: for each window its first row in that recording.
        spans: rows that a window covers.
        kind: the way to split.
        key: the stream that decides which windows are held out.
        days: for each window the day of its recording, empty where it is not known.
        continuous: for each window whether its recording is a continuous one; by default none is.
        train_only: for each window whether its recording was labelled later, when it may have been
            learned from without a label: it trains and is never held out; by default none is.
        test: share of each class to test on; of the room's windows where days are held out, of
            its days where they are held out in their order.
        validation: share of the rest to validate on.
        validation_of: the rest of the room as a whole, or of every class with four units or more
            (recordings or days; windows where the split is random or blocked).
    """
    check_learnable(room, labels, continuous, train_only)
    windows = _Windows.of(
        *(labels, recordings, starts),
        spans=spans,
        days=days,
        continuous=continuous,
        train_only=train_only,
    )
    _refuse_impossible(room, windows, kind)
    if kind == "later":
        return _in_time(room, windows, test, validation)
    rest, tested = _hold_out_test(windows, kind, test, key / "test")
    if not len(tested):
        raise DataError(
            f"room '{room}': split = '{kind}' leaves nothing to test: "
            + {
                "random": "every class has a single window; record more",
                "blocked": "every recording is shorter than three windows; use a shorter window "
                "(--set data.window=…) or split = 'recording'",
                "recording": "no class has two recordings; use split = 'blocked'",
                "day": "every day is the only one of some class; record every class on two days, "
                "or use split = 'recording'",
            }[kind]
        )
    train, checked = _hold_out_validation(
        windows, rest, kind, validation, of=validation_of, key=key / "validation"
    )
    days_out = windows.days[np.concatenate([tested, checked])].tolist() if kind == "day" else ()
    return Split(
        train=np.union1d(train, windows.further(days_out)),
        validation=windows.without_overlaps(checked),
        test=windows.without_overlaps(tested),
        kind=kind,
        continuous=windows.without_overlaps(np.flatnonzero(windows.continuous)),
        unlabelled=_unlabelled(windows, np.concatenate([tested, checked]), kind),
    )


def _unlabelled(windows: _Windows, held_out: _Index, kind: SplitKind) -> _Index:
    """Windows without a label; of days that are held out, nobody sees any."""
    unlabelled = ~windows.continuous & (windows.classes == NO_CLASS)
    if kind == "day":
        days = set(windows.days[held_out].tolist()) - {""}
        unlabelled &= ~np.isin(windows.days, sorted(days))
    return np.flatnonzero(unlabelled)


def by_date(days: Collection[str]) -> list[str]:
    """Days in their order, each once: numbers in their names count as numbers, so 2 before 10."""
    return sorted(
        set(days),
        key=lambda day: [
            (not part.isdecimal(), int(part) if part.isdecimal() else 0, part)
            for part in re.split(r"(\d+)", day)
        ],
    )


def _in_time(room: str, windows: _Windows, test: float, validation: float) -> Split:
    """The first days, those after them, and the last."""
    learned = windows.learned
    days = by_date(windows.days[learned].tolist())
    if len(days) < _DAYS:
        raise DataError(
            f"room '{room}': split = 'later', but it was recorded on {len(days)} of at least "
            f"{_DAYS} days; record more, or use another split"
        )
    tested = min(max(1, round(len(days) * test)), len(days) - 2)
    rest = len(days) - tested
    checked = min(max(1, round(rest * validation)), rest - 1) if validation else 0
    place = {day: number for number, day in enumerate(days)}
    numbers = [place[day] for day in windows.days[learned].tolist()]
    parts = np.searchsorted([rest - checked, rest], numbers, side="right")  # 0, 1, 2
    train = learned[parts == 0]
    known = np.isin(windows.classes[learned], windows.classes[train])
    for number, part in ((1, "validation"), (2, "test")):
        if (number == 2 or checked) and not (known & (parts == number)).any():
            raise DataError(
                f"room '{room}' has no {part} windows with split = 'later': the days for it "
                f"({', '.join(days[rest:] if number == 2 else days[rest - checked : rest]):.80}) "
                "hold none of the classes of its first days; record every class on the first days"
            )
    return Split(
        train=np.union1d(train, windows.further(days[rest - checked :])),
        validation=windows.without_overlaps(learned[(parts == 1) & known]),
        test=windows.without_overlaps(learned[(parts == 2) & known]),
        kind="later",
        continuous=windows.without_overlaps(np.flatnonzero(windows.continuous)),
        unlabelled=np.flatnonzero(
            ~windows.continuous
            & (windows.classes == NO_CLASS)
            & np.isin(windows.days, days[: rest - checked])
        ),
    )


def with_fewer_labels(
    split: Split,
    labels: Sequence[Label | None],
    recordings: Sequence[str],
    starts: _Index,
    *,
    key: Key,
    most_recordings: int | None = None,
    most_windows: int | None = None,
    classes: LabelledClasses = "all",
    keep: bool = False,
) -> Split:
    """The same split with fewer labels in train.

    Which recordings is drawn once for all numbers: those of a smaller number are among those of a
    larger. Windows are labelled as people do it, one after the other from some time on, and of a
    smaller number are among those of a larger, too.

    Args:
        split: with all labels.
        labels: for each window its class; of a train window there is one.
        recordings: for each window the recording it was cut from.
        starts: for each window its first row in that recording.
        key: the stream that decides which labels stay.
        most_recordings: of each class that keep their labels.
        most_windows: of each class that keep their labels.
        classes: those that keep any.
        keep: whether the other windows are kept without their labels; then the labels of validation
            windows are taken away, too.
    """
    named = np.asarray([str(label) for label in labels])
    origins = np.asarray(recordings)
    taken: list[_Index] = []
    for name in _labelled(sorted_labels({labels[place] for place in split.train}), classes):
        mine = split.train[named[split.train] == str(name)]
        if most_recordings is not None:
            order = (key / str(name)).numpy().permutation(np.unique(origins[mine]))
            mine = mine[np.isin(origins[mine], order[:most_recordings])]
        if most_windows is not None:
            mine = mine[np.lexsort((starts[mine], origins[mine]))]
            stream = (key / "windows" / str(name)).numpy()
            first = int(stream.integers(len(mine)))
            mine = np.roll(mine, -first)[:most_windows]
        taken.append(mine)
    train = np.sort(np.concatenate(taken))
    fewer = replace(split, train=train, withheld=split.train)
    if not keep:
        return fewer
    rest = np.union1d(np.setdiff1d(split.train, train), split.validation)
    return replace(fewer, validation=_no_windows(), unlabelled=np.union1d(rest, split.unlabelled))


def _labelled(classes: Sequence[Label], which: LabelledClasses) -> Sequence[Label]:
    """Those of sorted classes that have labels; at least two, or there is nothing to tell apart."""
    half = max(2, (len(classes) + 1) // 2)
    chosen = {
        "all": classes,
        "lower": classes[:half],
        "upper": classes[-half:],
        "alternate": classes[::2],
    }[which]
    return chosen if len(chosen) > 1 else classes[:2]


def refused_splits(
    labels: Sequence[Label | None],
    recordings: Sequence[str],
    starts: _Index,
    *,
    spans: int,
    days: Sequence[str] | None = None,
    continuous: Sequence[bool] | None = None,
    train_only: Sequence[bool] | None = None,
) -> dict[SplitKind, str]:
    """The kinds that a room does not allow, each with the reason: "has no …".

    Stricter than ``split_windows``, which leaves a small class to train: who lets the data choose
    (``auto``) wants every class tested, or at least to be known from another day. Windows without
    a label are not asked.
    """
    windows = _Windows.of(
        *(labels, recordings, starts),
        spans=spans,
        days=days,
        continuous=continuous,
        train_only=train_only,
    )
    reasons: dict[SplitKind, str] = {
        "day": _day_fault(windows),
        "recording": _few(windows, "recording", "has a single recording of class {}"),
        "blocked": _block_fault(windows),
        "random": "has windows that overlap" if windows.overlap else "",
    }
    return {kind: reason for kind, reason in reasons.items() if reason}


def _day_fault(windows: _Windows) -> str:
    days = np.unique(windows.days[windows.learned])
    if "" in days:
        return "has recordings without a day"
    if len(days) < _DAYS:
        return f"was recorded on {len(days)} of at least {_DAYS} days"
    return _few(windows, "day", "has class {} on a single day")


def _few(windows: _Windows, kind: SplitKind, reason: str) -> str:
    """The reason, with the first class that has a single unit; nothing if all have two."""
    few = [name for name, number in windows.unit_numbers(kind).items() if number < 2]
    return reason.format(few[0][:_SHOWN]) if few else ""


def _block_fault(windows: _Windows) -> str:
    for name, mine in windows.by_class(windows.learned):
        if not any(_holds_block(windows, cut) for cut in _by_recording(windows, mine)):
            return f"has no recording of {_BLOCKED_WINDOWS} windows of class {name[:_SHOWN]}"
    return ""


def _by_recording(windows: _Windows, index: _Index) -> Iterator[_Index]:
    for recording in np.unique(windows.recordings[index]):
        yield index[windows.recordings[index] == recording]


def _holds_block(windows: _Windows, index: _Index) -> bool:
    """Whether a window can be held out of a recording with a gap behind it, and one be left."""
    starts = windows.starts[index]
    return len(index) >= _BLOCKED_WINDOWS and starts.max() - starts.min() > windows.spans


def _refuse_impossible(room: str, windows: _Windows, kind: SplitKind) -> None:
    learned = windows.learned
    without = learned[windows.days[learned] == ""]
    if kind in ("day", "later") and len(without):
        raise DataError(
            f"room '{room}': split = '{kind}', but recording '{windows.recordings[without[0]]}' "
            "has no day; import with {day} in the pattern, or use split = 'recording'"
        )
    if kind == "random" and windows.overlap:
        raise DataError(
            f"room '{room}': split = 'random', but its windows overlap, so train and test would "
            "share packets; use split = 'recording', or a stride as long as the window"
        )


def _hold_out_test(
    windows: _Windows, kind: SplitKind, share: float, key: Key
) -> tuple[_Index, _Index]:
    """What is left, and the test part with all windows that overlap in it."""
    learned = windows.learned
    if kind == "day":
        return _hold_out(windows, learned, kind, share, block=share, key=key)
    return _joined(
        _hold_out(windows, mine, kind, share, block=share, key=key / name)
        for name, mine in windows.by_class(learned)
    )


def _hold_out_validation(
    windows: _Windows, index: _Index, kind: SplitKind, share: float, *, of: ValidationOf, key: Key
) -> tuple[_Index, _Index]:
    """Divide ``index`` into train and validation, the latter with all that overlap in it."""
    if of == "room":
        return _hold_out(windows, index, kind, share, block=_VALIDATION_BLOCK, key=key)
    numbers = windows.unit_numbers(kind)
    large = {name for name, number in numbers.items() if number >= _UNITS_TO_VALIDATE}
    if kind == "day":
        return _hold_out(
            windows, index, kind, share, block=_VALIDATION_BLOCK, key=key, covering=large
        )
    return _joined(
        _hold_out(
            windows,
            mine,
            kind,
            share if name in large else 0.0,
            block=_VALIDATION_BLOCK,
            key=key / name,
        )
        for name, mine in windows.by_class(index)
    )


def _joined(divided: Iterator[tuple[_Index, _Index]]) -> tuple[_Index, _Index]:
    kept, held = zip(*divided, strict=True)
    return np.sort(np.concatenate(kept)), np.sort(np.concatenate(held))


def _hold_out(
    windows: _Windows,
    index: _Index,
    kind: SplitKind,
    share: float,
    *,
    block: float,
    key: Key,
    covering: Collection[str] = (),
) -> tuple[_Index, _Index]:
    """Divide ``index`` into what is kept and about ``share`` of it that is held out.

    More is held out where it takes more to hold some of every class in ``covering``.
    """
    if share == 0 or len(index) < 2:
        return index, index[:0]
    budget = max(1, round(len(index) * share))
    if kind == "blocked":
        return _hold_out_blocks(windows, index, budget, block, key)
    units, classes = windows.units(index, kind), windows.classes[index]
    held = np.zeros(len(index), bool)
    left = np.bincount(classes, minlength=len(windows.names))  # [classes] windows that are kept
    missing = np.isin(windows.names, list(covering))
    for unit in key.numpy().permutation(np.unique(units)):
        chosen = units == unit
        taken = np.bincount(classes[chosen], minlength=len(left))
        wanted = held.sum() < budget or taken[missing].any()
        if wanted and not ((taken > 0) & (taken == left)).any():  # never the last unit of a class
            held |= chosen
            left -= taken
            missing &= taken == 0
        if held.sum() >= budget and not missing.any():
            break
    return index[~held], index[held]


def _hold_out_blocks(
    windows: _Windows, index: _Index, budget: int, block: float, key: Key
) -> tuple[_Index, _Index]:
    kept, held = np.ones(len(index), bool), np.zeros(len(index), bool)
    stream = key.numpy()
    for recording in stream.permutation(np.unique(windows.recordings[index])):
        mine = np.flatnonzero(windows.recordings[index] == recording)
        mine = mine[np.argsort(windows.starts[index[mine]])]
        if len(mine) < _BLOCKED_WINDOWS:
            continue
        size = min(max(1, round(len(mine) * block)), budget - int(held.sum()))
        for first in stream.permutation(len(mine) - size + 1):
            inside = mine[first : first + size]
            # The gap: nothing that is kept overlaps a held-out window or touches its edge.
            starts = windows.starts[index[mine]]
            low, high = windows.starts[index[inside[0]]], windows.starts[index[inside[-1]]]
            near = (starts >= low - windows.spans) & (starts <= high + windows.spans)
            if not near.all():  # something of the recording must be left to learn from
                kept[mine[near]] = False
                held[inside] = True
                break
        if held.sum() >= budget:
            break
    return index[kept], index[held]
