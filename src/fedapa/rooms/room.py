"""Room: its windows, its split, its recipe and the net it can afford."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedapa.answers import Answer
from fedapa.errors import DataError
from fedapa.models import kernels
from fedapa.models.build import build_model, undrawn
from fedapa.models.cost import flops
from fedapa.models.model import Counter, Model, batch_norm_arrays, embed_each, unset_copy
from fedapa.randomness import Key
from fedapa.rooms.card import RoomCard
from fedapa.rooms.task import LABEL, Task, blocks_of, places_of
from fedapa.stores.arrays import array_digest
from fedapa.windows.labels import NO_CLASS, Label, class_indices, sorted_labels
from fedapa.windows.normalise import Normaliser
from fedapa.windows.origins import Origins
from fedapa.windows.recipe import Recipe
from fedapa.windows.split import Part, Split, SplitKind, split_windows

__all__ = ["Room", "cut_batches", "normalised"]

_DEFAULT_KEY = Key(0)
_LOOK = 16  # windows at a time through a net without gradient; 4 to 32 take the same time
_AT_ONCE = 2**22  # bytes: train windows up to here are normalised in one go
_SMALL = 2**20  # bytes: all windows of a room up to here are normalised once and for all rounds


@dataclass(frozen=True, eq=False)
class Room:
    """One place that learns; the constructor stores, ``Room.of`` splits and normalises arrays."""

    name: str
    windows: npt.NDArray[np.float32]
    """[windows, packets, subcarriers] or [windows, features]; memory-mapped in workers."""
    labels: npt.NDArray[np.int64]
    """[windows] class indices; ``NO_CLASS`` for windows without a label, which are in no part but
    ``split.unlabelled``."""
    classes: tuple[Label, ...]
    """What the indices mean: counts, or categories."""
    split: Split
    recipe: Recipe
    """Everything from a receiver's packet to the net's input, the normaliser included."""
    architecture: str = "large"
    width: int = 256
    normalise_embedding: bool = False
    answer: Answer = "head"
    """How what it deploys answers, see ``fedapa.answers``."""
    answerable: tuple[int, ...] | None = None
    """The classes that it may answer; none is any of them."""
    initialisation: Literal["common", "own"] = "common"
    """Rooms with equal nets start from equal weights: cosines between rooms mean little if not."""
    key: Key = _DEFAULT_KEY
    device: str = "cpu"
    synthetic: bool = False
    view_why: str = ""
    """Why its windows are seen as they are, in words; nothing where nobody said."""
    origins: Origins | None = None
    """Which windows follow each other; None where nobody said."""
    further: tuple[Task, ...] = ()
    """The tasks beside ``labels`` and ``classes``; mostly none."""
    days: tuple[str, ...] = ()
    """Of its train windows, sorted; none where nobody noted them."""

    @classmethod
    def of(
        cls,
        name: str,
        windows: npt.NDArray[np.float32],
        labels: Sequence[Label | None] | npt.NDArray[np.int64],
        *,
        recordings: Sequence[str] | None = None,
        classes: Sequence[Label] | npt.NDArray[np.int64] | None = None,
        days: Sequence[str] | None = None,
        split: SplitKind = "random",
        architecture: str = "large",
        width: int = 256,
        seed: int = 0,
    ) -> "Room":
        """A room from arrays: split, normalised, ready to learn.

        Args:
            name: what to call it.
            windows: [windows, packets, subcarriers] or [windows, features].
            labels: a count or a category for each window; None where it has none.
            recordings: the one each window comes from; by default one per class.
            classes: all classes of the federation; by default those of this room.
            days: the day of each window, for a split by days.
            split: random, blocked, recording or day.
            architecture: tiny, middle, large, or mlp for features.
            width: of the embedding.
            seed: decides the split and the initial weights.
        """
        plain = _plain(labels)
        windows = _checked_windows(name, windows, plain)
        known = sorted_labels(plain)
        if classes is not None:
            known = tuple(label for label in _plain(classes) if label is not None)
        origins = list(recordings) if recordings is not None else [str(label) for label in plain]
        index = class_indices(name, plain, known)
        starts = np.arange(len(plain))
        parts = split_windows(
            name,
            plain,
            origins,
            starts,
            spans=1,
            kind=split,
            key=Key(seed) / "split" / name,
            days=days,
        )
        return cls(
            name=name,
            windows=windows,
            labels=index,
            classes=known,
            split=parts,
            recipe=Recipe(source="arrays", normaliser=Normaliser.of(windows, parts.seen)),
            architecture=architecture,
            width=width,
            key=Key(seed),
            origins=None if recordings is None else Origins.of(origins, starts, spans=1),
        )

    @property
    def normaliser(self) -> Normaliser:
        """z-score of the windows that the room learns from."""
        if self.recipe.normaliser is None:
            raise DataError(
                f"room '{self.name}': its recipe has no normaliser; make it with Room.of, or "
                "replace(recipe, normaliser=Normaliser.of(windows, split.train))"
            )
        return self.recipe.normaliser

    @functools.cached_property
    def tasks(self) -> tuple[Task, ...]:
        """What is asked of its windows, its label first."""
        return Task(LABEL, self.classes, self.labels), *self.further

    @functools.cached_property
    def blocks(self) -> tuple[slice, ...]:
        """Where the classes of each task stand on the class axis of its net."""
        return blocks_of(self.tasks)

    @functools.cached_property
    def outputs(self) -> int:
        """The length of that axis: the classes of all tasks."""
        return int(self.blocks[-1].stop)

    @functools.cached_property
    def places(self) -> npt.NDArray[np.int64]:
        """The classes of its windows on that axis: [windows], or [windows, tasks] of several."""
        return places_of(self.tasks)

    @functools.cached_property
    def held(self) -> list[int]:
        """The classes that it has train windows of, as places on that axis, sorted."""
        there = np.unique(self.places[self.split.train])
        return there[there != NO_CLASS].tolist()  # type: ignore[no-any-return]

    def units(self, kind: Literal["window", "recording"]) -> npt.NDArray[np.int64]:
        """[train windows] the number of what each of them belongs to: itself, or its recording."""
        if kind == "window":
            return np.arange(len(self.split.train))
        if self.origins is None:
            raise DataError(
                f"room '{self.name}': does not say which windows are of one recording; give its "
                "recordings, or protect windows (privacy.unit = 'window')"
            )
        return self.origins.recordings[self.split.train]

    @functools.cached_property
    def digest(self) -> str:
        """Of all values of the windows; ``replace`` makes a room that computes it anew."""
        return array_digest(self.windows)

    def with_digest(self, digest: str) -> "Room":
        """The same room, told the digest of its windows by who has computed it."""
        told = replace(self)
        vars(told)["digest"] = digest  # where a cached property keeps what it computed
        return told

    @functools.cached_property
    def card(self) -> RoomCard:
        """What the server may know of this room."""
        net = _outline(*self.net_facts)
        return RoomCard(
            name=self.name,
            architecture=self.architecture,
            windows=len(self.split.train),
            classes=self.outputs,
            width=self.width,
            shapes=dict(net.shapes),
            labels=self.classes,
            further={task.name: task.classes for task in self.further},
            norms=net.norms,
            buffers=net.buffers,
            validation=len(self.split.validation),
            flops=net.flops,
            parts=self.split.sizes,
            recordings=self._recordings(),
            continuous=len(self.split.continuous),
            unlabelled=len(self.split.unlabelled),
            split=self.split.kind,
            split_why=self.split.why,
            window_shape=tuple(self.windows.shape[1:]),
            windows_are=self.recipe.sentence(),
            view_why=self.view_why,
            synthetic=self.synthetic,
        )

    def _recordings(self) -> dict[str, int]:
        """Recordings in each part; nothing where nobody said which windows are of one."""
        if self.origins is None:
            return {}
        parts = {part: getattr(self.split, part) for part in get_args(Part)}
        if not len(self.split.unlabelled):  # most rooms have none
            del parts["unlabelled"]
        return {part: self.origins.number(index) for part, index in parts.items()}

    @property
    def net_facts(self) -> tuple[str, int, int, tuple[int, ...], bool, int]:
        """What its net looks like, whatever its weights.

        Architecture, outputs, width, shape of a window, whether embeddings have length one, links.
        """
        return (
            self.architecture,
            self.outputs,
            self.width,
            tuple(self.windows.shape[1:]),
            self.normalise_embedding,
            self.recipe.links_used,
        )

    def build(self) -> Model:
        """This room's net with its initial weights, on its device."""
        start = self.key / "initial weights" / self.architecture
        model = build_model(
            self.architecture,
            classes=self.outputs,
            width=self.width,
            window_shape=self.windows.shape[1:],
            key=start if self.initialisation == "common" else start / self.name,
            normalise_embedding=self.normalise_embedding,
            links=self.recipe.links_used,
        )
        model.blocks = self.blocks
        return model if self.device == "cpu" else model.to(self.device)

    def blank(self) -> Model:
        """As ``build``, with any weights: for who replaces them all, in a tenth of the time."""
        model = unset_copy(_blank(*self.net_facts))
        model.blocks = self.blocks
        return model if self.device == "cpu" else model.to(self.device)

    def batches(
        self, size: int, key: Key, *, share: float = 1.0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """The train windows once, in the order that ``key`` draws, normalised, in batches.

        Nothing is dropped; a last batch of one joins its neighbour, because BatchNorm cannot
        normalise a single value. ``share`` takes the first part of that order only.
        """
        order = key.numpy().permutation(self.split.train)
        order = order[: max(1, round(share * len(order)))]
        if self.windows[:1].nbytes * len(order) > _AT_ONCE:
            for chosen in cut_batches(order, size):
                yield self.tensors(chosen)
            return
        windows, labels = self.tensors(order)  # one by one small windows are mostly calls
        places = np.arange(len(order))
        for chosen in cut_batches(places, size):
            some = slice(int(chosen[0]), int(chosen[-1]) + 1)
            yield windows[some], labels[some]

    def inspect(self, part: Part) -> Iterator[tuple[Tensor, Tensor]]:
        """The windows of a part in their own order, in batches for a pass without gradient."""
        if self.windows.nbytes > _SMALL or self.device != "cpu":
            yield from self._looks(part)
            return
        if part not in self._looked:
            self._looked[part] = list(self._looks(part))
        yield from self._looked[part]

    def _looks(self, part: Part) -> Iterator[tuple[Tensor, Tensor]]:
        index = getattr(self.split, part)
        for first in range(0, len(index), _LOOK):
            yield self.tensors(index[first : first + _LOOK])

    @functools.cached_property
    def _looked(self) -> dict[Part, list[tuple[Tensor, Tensor]]]:
        """The batches of ``inspect`` of a small room: every round asks for the same."""
        return {}

    @torch.no_grad()
    def embeddings(self, model: Model, part: Part = "train") -> tuple[Tensor, Tensor]:
        """Embeddings [n, D] of the windows of a part, in eval mode (eqn_4's sum), and their labels.

        Labels are as in ``tensors``.
        """
        model.eval()
        pairs = list(self.inspect(part))
        made = embed_each(model, (windows for windows, _ in pairs))
        return torch.cat(made), torch.cat([labels for _, labels in pairs])

    @torch.no_grad()
    def all_scores(self, counter: Counter, part: Part = "test") -> npt.NDArray[np.floating]:
        """Scores [n, outputs] of a part, of all tasks end to end, a net in eval mode."""
        counter.eval()
        scores = [counter.scores(windows).cpu().numpy() for windows, _ in self.inspect(part)]
        return np.concatenate([np.empty((0, self.outputs), np.float32), *scores])

    def scores(
        self, counter: Counter, part: Part = "test", *, task: int = 0
    ) -> tuple[npt.NDArray[np.floating], npt.NDArray[np.int64]]:
        """Scores [n, C] and true class indices [n] of a part in one task, by its place.

        Of the windows that have a class in it: every window of a part has one in the first task,
        but for those of ``unlabelled``.
        """
        return self.in_task(self.all_scores(counter, part), part, task=task)

    def in_task(
        self, scores: npt.NDArray[np.floating], part: Part, *, task: int = 0
    ) -> tuple[npt.NDArray[np.floating], npt.NDArray[np.int64]]:
        """Of the scores of all tasks of a part those of one, as ``scores`` gives them."""
        truth = self.tasks[task].labels[getattr(self.split, part)]
        told = slice(None) if task == 0 else truth != NO_CLASS
        return scores[:, self.blocks[task]][told], truth[told]

    def predict(
        self, counter: Counter, part: Part = "test"
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Predicted and true class indices of a part."""
        scores, truth = self.scores(counter, part)
        return scores.argmax(axis=1), truth

    def tensors(self, index: npt.NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Some windows, normalised, and their labels, on the room's device.

        Labels are places on the class axis of all tasks: [B], or [B, tasks] of several.
        """
        if self.windows.nbytes <= _SMALL:
            made = self._normalised[index]
        else:
            made = normalised(self.normaliser, self.windows, index)
        windows, labels = torch.from_numpy(made), torch.from_numpy(self.places[index])
        return windows.to(self.device), labels.to(self.device)

    @functools.cached_property
    def _normalised(self) -> npt.NDArray[np.float32]:
        """All windows of a small room, as they go through nets."""
        return normalised(self.normaliser, self.windows, np.arange(len(self.windows)))


@dataclass(frozen=True)
class _Outline:
    """What a card tells of a net."""

    shapes: Mapping[str, tuple[int, ...]]
    norms: frozenset[str]
    buffers: frozenset[str]
    flops: int


@functools.lru_cache(maxsize=64)
def _blank(
    architecture: str,
    outputs: int,
    width: int,
    window_shape: tuple[int, ...],
    normalise_embedding: bool,
    links: int,
) -> Model:
    """A net that nobody trains, once for all rooms with such a net."""
    with undrawn():
        return build_model(
            architecture,
            classes=outputs,
            width=width,
            window_shape=window_shape,
            key=_DEFAULT_KEY,
            normalise_embedding=normalise_embedding,
            links=links,
        )


@functools.lru_cache(maxsize=64)
def _outline(
    architecture: str,
    outputs: int,
    width: int,
    window_shape: tuple[int, ...],
    normalise_embedding: bool,
    links: int,
) -> _Outline:
    """Once for all rooms with such a net: it is run on shapes."""
    model = _blank(architecture, outputs, width, window_shape, normalise_embedding, links)
    return _Outline(
        shapes={name: tuple(value.shape) for name, value in model.state_dict().items()},
        norms=batch_norm_arrays(model),
        buffers=frozenset(name for name, _ in model.named_buffers()),
        flops=flops(model, window_shape),
    )


def normalised(
    normaliser: Normaliser,
    windows: npt.NDArray[np.float32],
    index: npt.NDArray[np.int64 | np.bool_],
) -> npt.NDArray[np.float32]:
    """Some windows as ``normaliser(windows[index])``: the same bits, in one pass where possible.

    Args:
        normaliser: the room's.
        windows: [windows, packets, subcarriers] or [windows, features].
        index: [B], places or a mask of all windows.
    """
    if index.dtype == np.bool_:  # the kernel would take it for places 0 and 1
        if index.shape != (len(windows),):
            raise IndexError(f"a mask {index.shape} for {len(windows)} windows")
        index = np.flatnonzero(index)
    given = np.asarray(windows)  # a memory map, too, as a plain array
    usual = given.ndim == 3 and given.dtype == np.float32 and given.flags.c_contiguous
    within = len(index) > 0 and 0 <= index.min() <= index.max() < len(given)
    if not usual or not within or given.shape[-1:] != normaliser.mean.shape:
        return normaliser(given[index])
    made = np.empty((len(index), *given.shape[1:]), np.float32)
    kernels.standardise(given, index, normaliser.mean, normaliser.deviation, made)
    return made


def cut_batches(order: npt.NDArray[np.int64], size: int) -> Iterator[npt.NDArray[np.int64]]:
    """Consecutive parts of ``order``; a last part of one joins its neighbour."""
    edges = list(range(0, len(order), size))
    if len(edges) > 1 and len(order) - edges[-1] == 1:
        edges.pop()
    for first, last in zip(edges, [*edges[1:], len(order)], strict=True):
        yield order[first:last]


def _plain(labels: Sequence[Label | None] | npt.NDArray[np.int64]) -> list[Label | None]:
    """Labels without numpy's own kinds of numbers and text."""
    return [label.item() if isinstance(label, np.generic) else label for label in labels]


def _checked_windows(
    name: str, windows: npt.NDArray[Any], labels: Sequence[Label | None]
) -> npt.NDArray[np.float32]:
    """Somebody's array as the windows of a room, or a sentence about what is wrong with it."""
    values = windows if isinstance(windows, np.memmap) else np.asarray(windows)
    if values.ndim not in (2, 3) or values.dtype.kind not in "fiu":
        raise DataError(
            f"room '{name}': windows of shape {values.shape} and type {values.dtype}; expected "
            "numbers [windows, packets, subcarriers] or [windows, features]"
        )
    if len(values) != len(labels):
        raise DataError(f"room '{name}': {len(values)} windows and {len(labels)} labels")
    if len(set(labels) - {None}) < 2:
        raise DataError(f"room '{name}' has a single class: there is nothing to tell apart")
    for number in range(len(values)):
        if not np.isfinite(values[number]).all():
            raise DataError(f"room '{name}', window {number} holds NaN or infinity")
    return values.astype(np.float32, copy=False)
