"""Cards: what the server may know of a room, before and after it has built itself.

They come from elsewhere: whoever makes one finds its values checked, one sentence for the first
that cannot be. What a room says in words is one printable line, whatever it sent: it is shown on
terminals, in reports and in other rooms.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

from fedapa.errors import DataError, one_line
from fedapa.windows.labels import Label, check_name
from fedapa.windows.split import SplitKind

__all__ = ["LARGEST_SET", "DataCard", "RoomCard"]

LARGEST_SET = 1 << 26
"""Classes × width at most: the server keeps a set of prototypes for each room."""
_MOST = 1 << 62
"""Windows or FLOPs at most: what is reckoned with them fits into a float."""
_PARTS = frozenset(["train", "validation", "test"])
_LONGEST_REASON = 200
_LONGEST_WHY = 10 * _LONGEST_REASON
"""One reason for each kind that is stricter than the split, and the rooms that gave them; or two
reasons why views are left out."""


@dataclass(frozen=True)
class DataCard:
    """What a room tells of its windows, so that classes and nets can be agreed on."""

    name: str
    labels: tuple[Label, ...]
    """Those that it holds, each once."""
    window_shape: tuple[int, ...]
    """[packets, subcarriers], or [features]. Where the rooms choose the view (``auto``), of the one
    that suits this room best."""
    parts: Mapping[str, int]
    """Windows in each part of its split: train, validation, test. Where the rooms choose the split
    (``auto``), of the strictest that this one allows."""
    synthetic: bool = False
    allowed_splits: Mapping[SplitKind, int] = field(default_factory=dict)
    """The splits that can be agreed on, each with its train windows."""
    refused_splits: Mapping[SplitKind, str] = field(default_factory=dict)
    """The splits that it does not allow, each with the reason: "has no …"."""
    view_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Of its windows under each view that they can have; none where they came finished."""
    refused_views: Mapping[str, str] = field(default_factory=dict)
    """The views that they cannot have, each with the reason and a remedy."""
    view_scores: Mapping[SplitKind, Mapping[str, float]] = field(default_factory=dict)
    """Where the rooms choose the view: how well it suits, 0 to 1, by split and by view."""
    activities: tuple[str, ...] = ()
    """Where nets have two tasks: the second labels that it holds, each once."""

    def __post_init__(self) -> None:
        """Refuse what no room has."""
        where = f"card of room '{check_name(self.name, 'room')}'"
        if not self.labels:
            raise DataError(f"{where}: names no label; give every window one")
        _check_labels(where, self.labels)
        _check_labels(where, self.activities)
        _check_window_shape(where, self.window_shape)
        _check_parts(where, self.parts)
        _check_words(where, "view", (*self.view_shapes, *self.refused_views))
        for told in ("refused_splits", "refused_views"):
            words = {key: one_line(reason) for key, reason in getattr(self, told).items()}
            object.__setattr__(self, told, words)
        for kind in sorted({*self.allowed_splits, *self.refused_splits}):
            if kind not in get_args(SplitKind):
                known = ", ".join(get_args(SplitKind))
                raise DataError(f"{where}: split '{kind:.80}' is unknown; expected {known}")
            if self.allowed_splits.get(kind, 0) < 0:
                raise DataError(
                    f"{where}: split '{kind}' leaves {self.allowed_splits[kind]} train windows; "
                    "expected 0 or more"
                )
            reason = self.refused_splits.get(kind, "")
            _check_length(where, f"why not split '{kind}'", reason, _LONGEST_REASON)
        for view, shape in self.view_shapes.items():
            _check_window_shape(f"{where}: view '{view:.80}'", shape)
        for view, reason in self.refused_views.items():
            _check_length(where, f"why not view '{view:.80}'", reason, 2 * _LONGEST_REASON)
        for kind, scores in self.view_scores.items():
            for view, value in scores.items():
                if kind not in self.allowed_splits or view not in self.view_shapes:
                    raise DataError(
                        f"{where}: a score of view '{view:.80}' under split '{kind:.80}', and it "
                        "allows not both"
                    )
                if not 0 <= value <= 1:
                    raise DataError(f"{where}: view '{view}' scores {value}; expected 0 to 1")


@dataclass(frozen=True)
class RoomCard:
    """What the server may know of a room: never a window, only what a message shows anyway."""

    name: str
    architecture: str
    windows: int
    """Train windows, the weight n_i of weighted means."""
    classes: int
    """Of all its tasks: the length of the class axis of nets, prototypes and messages."""
    width: int
    shapes: Mapping[str, tuple[int, ...]]
    """Parameters and buffers of its net, by name."""
    labels: tuple[Label, ...] = ()
    """What the classes of its first task mean; all rooms of a federation need the same list."""
    further: Mapping[str, tuple[Label, ...]] = field(default_factory=dict)
    """The classes of its other tasks, which follow them; mostly none."""
    norms: frozenset[str] = frozenset()
    """Those of its arrays that belong to a BatchNorm, found by the type of the module."""
    buffers: frozenset[str] = frozenset()
    """Those of its arrays that are not trained but counted, such as BatchNorm's statistics."""
    validation: int = 0
    """Validation windows."""
    flops: int = 0
    """Of one window through its net."""
    pooled: bool = False
    """Whether it trains on everybody's windows; a control, see rooms/pool.py."""
    parts: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(sorted(_PARTS), 0))
    """Windows in each part of its own split: train, validation, test."""
    recordings: Mapping[str, int] = field(default_factory=dict)
    """Recordings in each of them, among the continuous ones and, where there are such windows,
    among those without a label; nothing where it does not know."""
    continuous: int = 0
    """Windows of continuous recordings."""
    unlabelled: int = 0
    """Windows to learn from without a label."""
    split: str = "given"
    """How they were split."""
    split_why: str = ""
    """Why they were split this way, in words; nothing where nobody said."""
    window_shape: tuple[int, ...] = ()
    """[packets, subcarriers], or [features]."""
    windows_are: str = ""
    """What its windows are, in words: how long, of how many links, under which view."""
    view_why: str = ""
    """Why they are seen this way, in words; nothing where nobody said."""
    synthetic: bool = False
    fingerprint: str = ""
    """A short name for its data: other windows, labels, splits or normalisers have another."""
    blind: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What predictors reach there that never look at a window: predictor → metrics."""

    def __post_init__(self) -> None:
        """Refuse what no room has."""
        where = f"card of room '{check_name(self.name, 'room')}'"
        for told in ("windows", "validation", "flops", "continuous", "unlabelled"):
            if getattr(self, told) < 0:
                raise DataError(f"{where}: {told} is {getattr(self, told)}; expected 0 or more")
            if getattr(self, told) > _MOST:
                raise DataError(f"{where}: {told} is above {_MOST}; expected the number of a room")
        for told in ("classes", "width"):
            if getattr(self, told) < 1:
                raise DataError(f"{where}: {told} is {getattr(self, told)}; expected 1 or more")
        if self.classes * self.width > LARGEST_SET:
            raise DataError(
                f"{where}: {self.classes} classes of width {self.width} are more numbers than "
                f"{LARGEST_SET}; use a smaller width"
            )
        _check_labels(where, self.labels)
        for labels in self.further.values():
            _check_labels(where, labels)
        if self.first_classes < 1 or (self.labels and len(self.labels) != self.first_classes):
            numbers = [len(self.labels), *map(len, self.further.values())]
            sums = " + ".join(map(str, numbers))
            raise DataError(f"{where}: {self.classes} classes and {sums} labels")
        for name, shape in self.shapes.items():
            if any(side < 0 for side in shape):
                raise DataError(f"{where}: its array '{name}' has shape {tuple(shape)}")
        if unknown := sorted((self.norms | self.buffers) - set(self.shapes)):
            raise DataError(f"{where}: '{unknown[0]}' is none of its arrays")
        if self.window_shape:
            _check_window_shape(where, self.window_shape)
        _check_parts(where, self.parts)
        further = {"unlabelled": self.unlabelled} if self.unlabelled else {}
        known = {**self.parts, "continuous": self.continuous, **further}
        _check_recordings(where, self.recordings, known)
        for told in ("split_why", "windows_are", "view_why"):
            _check_length(where, told, getattr(self, told), _LONGEST_WHY)
            object.__setattr__(self, told, one_line(getattr(self, told)))
        _check_words(where, "fact", (self.architecture, self.split, self.fingerprint))
        _check_words(where, "name", (*self.shapes, *self.further, *self.blind))
        for predictor, metrics in self.blind.items():
            if not all(math.isfinite(value) for value in metrics.values()):
                raise DataError(f"{where}: scores of '{predictor}' are not finite: {dict(metrics)}")

    @property
    def first_classes(self) -> int:
        """The classes of its first task."""
        return self.classes - sum(map(len, self.further.values()))


def _check_labels(where: str, labels: Sequence[Label]) -> None:
    if len(set(labels)) < len(labels):
        raise DataError(f"{where}: names a label twice in {list(labels)}; name each once")


def _check_window_shape(where: str, shape: Sequence[int]) -> None:
    if len(shape) not in (1, 2) or any(side < 1 for side in shape):
        raise DataError(
            f"{where}: windows of shape {tuple(shape)}; expected (packets, subcarriers) or "
            "(features,)"
        )


def _check_words(where: str, what: str, words: Iterable[str]) -> None:
    for word in words:
        if not word.isprintable():
            raise DataError(f"{where}: the {what} {word!r:.80} cannot be printed; rename it")


def _check_length(where: str, what: str, text: str, longest: int) -> None:
    if len(text) > longest:
        raise DataError(f"{where}: {what}: {len(text)} letters; expected at most {longest}")


def _check_parts(where: str, parts: Mapping[str, int]) -> None:
    if set(parts) != _PARTS or any(number < 0 for number in parts.values()):
        raise DataError(
            f"{where}: parts are {dict(parts)}; expected the number of train, validation and test "
            "windows"
        )


def _check_recordings(
    where: str, recordings: Mapping[str, int], windows: Mapping[str, int]
) -> None:
    if not recordings:
        return
    known = set(recordings) == set(windows)
    if not known or any(not 0 <= recordings[part] <= windows[part] for part in windows):
        raise DataError(
            f"{where}: recordings are {dict(recordings)} for windows {dict(windows)}; expected for "
            "each part at most as many as it has windows"
        )
