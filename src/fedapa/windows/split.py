"""Which windows train, validate and test, in three ways; every result names the one it used.

``random``     window by window; paper-like, and it leaks: neighbours in one recording are alike,
               so a test window has near twins in train.
``blocked``    blocks of time are held out of recordings, with a gap on both sides that nobody uses.
``recording``  whole recordings are held out: nothing of a test recording was ever seen.

The test part is a share of every class. A class too small to be split goes to train whole: it must
be learnable before it can be tested. Validation is a share of what is left, held out the same way
but over the room as a whole (a recording or a block of *every* class would cost small rooms half of
their training windows), and it is taken away for every algorithm alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fedapa.errors import DataError
from fedapa.randomness import Key
from fedapa.windows.labels import Label

__all__ = ["Split", "SplitKind", "split_windows"]

SplitKind: TypeAlias = Literal["random", "blocked", "recording"]
_Index: TypeAlias = npt.NDArray[np.int64]

_VALIDATION_BLOCK = 1 / 3
"""Of a recording: few large blocks lose fewer windows to gaps than many small ones."""


@dataclass(frozen=True, eq=False)
class Split:
    """Indices of windows, each sorted; the gaps of a blocked split are in none of them."""

    train: _Index
    validation: _Index
    test: _Index
    kind: str = "given"
    """How they were split: random, blocked, recording, or given by somebody."""


@dataclass(frozen=True, eq=False)
class _Windows:
    labels: npt.NDArray[np.str_]
    recordings: npt.NDArray[np.str_]
    starts: _Index
    spans: int


def split_windows(
    room: str,
    labels: Sequence[Label],
    recordings: Sequence[str],
    starts: _Index,
    *,
    spans: int,
    kind: SplitKind,
    key: Key,
    test: float = 0.2,
    validation: float = 0.1,
) -> Split:
    """Split the windows of one room; raises DataError where nothing could be tested.

    Args:
        room: its name, for the error.
        labels: for each window its class.
        recordings: for each window the recording it was cut from.
        starts: for each window its first row in that recording.
        spans: rows that a window covers.
        kind: the way to split.
        key: the stream that decides which windows are held out.
        test: share of each class to test on.
        validation: share of the rest to validate on.
    """
    words = np.asarray([str(label) for label in labels])
    windows = _Windows(words, np.asarray(recordings), starts, spans)
    rest, held_out = [], []
    for label in np.unique(words):
        mine = np.flatnonzero(words == label)
        kept, held = _hold_out(windows, mine, kind, test, block=test, key=key / "test" / str(label))
        rest.append(kept)
        held_out.append(held)
    if not sum(map(len, held_out)):
        raise DataError(
            f"room '{room}': split = '{kind}' leaves nothing to test: "
            + {
                "random": "every class has a single window; record more",
                "blocked": "every recording is shorter than three windows; use a shorter window "
                "(--set data.window=…) or split = 'recording'",
                "recording": "no class has two recordings; use split = 'blocked'",
            }[kind]
        )
    remaining = np.sort(np.concatenate(rest))
    train, checked = _hold_out(
        windows, remaining, kind, validation, block=_VALIDATION_BLOCK, key=key / "validation"
    )
    tested = np.sort(np.concatenate(held_out))
    return Split(train=train, validation=checked, test=tested, kind=kind)


def _hold_out(
    windows: _Windows, index: _Index, kind: SplitKind, share: float, *, block: float, key: Key
) -> tuple[_Index, _Index]:
    """Divide ``index`` into what is kept and about ``share`` of it that is held out."""
    if share == 0 or len(index) < 2:
        return index, index[:0]
    budget = max(1, round(len(index) * share))
    if kind == "blocked":
        return _hold_out_blocks(windows, index, budget, block, key)
    # The unit that is held out: a window of its own, or a recording.
    units = windows.recordings[index] if kind == "recording" else index
    held = np.zeros(len(index), bool)
    for unit in key.numpy().permutation(np.unique(units)):
        chosen = units == unit
        label = windows.labels[index[chosen][0]]
        others = (windows.labels[index] == label) & ~held & ~chosen
        if others.any():  # never the last unit of a class
            held |= chosen
        if held.sum() >= budget:
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
        if len(mine) < 3:
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
