"""What crosses between the server and a room, and its one versioned form in our codec.

::

    room → server    DataCard    what the server must know of its windows
    server → room    Agreement   the classes and the nets that follow from all of them
    room → server    RoomCard    what the server may know of the room
    server → room    Round       which round it is, and its random stream
                     Request     the download, and what to do with it
    room → server    Reply       the score, the upload, what to record

A message is a frame of ``fedapa.payload``: its kind, the version of these forms, then its content.
Plain facts are one JSON text that is checked against the types of the dataclass; arrays and encoded
payloads are arrays. Whatever arrives is a whole message or a ``PayloadError`` of one sentence.

``Round`` and both cards stand in lower layers, where algorithms use them; their form is here.
"""

import functools
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar, cast

import numpy as np
from pydantic import TypeAdapter, ValidationError

from fedapa.algorithms.algorithm import Round
from fedapa.answers import BINS, calibration_error
from fedapa.errors import DataError, FedapaError, PayloadError
from fedapa.evaluation.metrics import (
    METRICS,
    THRESHOLDS,
    area_bounds,
    presence_at_half,
    score,
    tells_presence,
)
from fedapa.payload import Array, Precision, Tree, decode, encode
from fedapa.rooms.card import DataCard, RoomCard
from fedapa.windows.labels import Label, check_name
from fedapa.windows.split import SplitKind

__all__ = [
    "ADDED",
    "LONGEST_NOTE",
    "Agreement",
    "Rejected",
    "Reply",
    "Request",
    "card_of",
    "card_tree",
    "check_reply",
    "decode_agreement",
    "decode_card",
    "decode_data_card",
    "decode_reply",
    "decode_request",
    "decode_round",
    "encode_agreement",
    "encode_card",
    "encode_data_card",
    "encode_reply",
    "encode_request",
    "encode_round",
]

_VERSION = 1
_T = TypeVar("_T")
ADDED = frozenset(["participated", "bytes_up", "bytes_down", "trust"])
"""What the server itself notes of a room in a record; no report may have these names."""
LONGEST_NOTE = 500
"""Letters that a room may say in a sentence."""
_LONGEST_WORD = 100
"""Letters of the name of a number; it stands in every line of the record."""
_MOST_REPORTED = 100
"""Numbers that a room may report beside its scores, and times that it may tell."""
_MOST_VALUES = 10_000
"""In a reply: scores, reports and times by name."""


@dataclass(frozen=True)
class Agreement:
    """What all rooms of a federation have in common, and the net that each can afford."""

    classes: tuple[Label, ...]
    window_shape: tuple[int, ...]
    nets: Mapping[str, str]
    """room → architecture."""
    split: SplitKind
    """How every room splits its windows."""
    why: str = ""
    """Why this way, in words."""
    view: str | None = None
    """What every room makes of its windows; none where they came finished."""
    view_why: str = ""
    """Why this view, in words."""
    activities: tuple[str, ...] = ()
    """The classes of a second task; mostly none."""

    def __post_init__(self) -> None:
        """Refuse classes that are no class list; the nets are checked by who builds them."""
        _check_classes("classes", self.classes)
        if self.activities:
            _check_classes("activities", self.activities)


def _check_classes(what: str, labels: Sequence[Label]) -> None:
    if len(labels) < 2 or len(set(labels)) < len(labels):
        raise DataError(
            f"{what} {list(labels)}: expected two or more, each once; there is nothing to tell "
            "apart"
        )


@dataclass(frozen=True)
class Request:
    """What the server asks of a room in one exchange."""

    download: bytes | None
    """The encoded payload; ``None`` for a room that sits this round out."""
    train: bool
    """Whether to train; the last exchange only scores."""
    keep_model: bool = False
    """Whether to write the deployed net to its file."""
    precision: Precision = "float32"
    """In how many bits the floats of the upload travel."""
    run: str = "run"
    """Names the run: a room does not answer from states of another. It becomes a folder's name."""

    def __post_init__(self) -> None:
        """Refuse a name of the run that would lead elsewhere."""
        check_name(self.run, "run")


@dataclass(frozen=True, eq=False)
class Reply:
    """What a room answers."""

    round: int
    """The number of the round that it answers; a late reply is known by it."""
    scores: Mapping[str, float]
    """Metrics on its test windows of the state before this round's training; those of an
    alternative (``Algorithm.alternatives``) as "name.metric"."""
    confusion: Array
    """[C, C] by (true, predicted)."""
    reliability: Array = field(default_factory=lambda: np.zeros((0, 3)))
    """[bins, 3] how sure and how right it was, see ``answers.reliability``; no bins, not told."""
    roc: Array = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    """[thresholds, 2] false alarms and hits, see ``metrics.roc``; no rows, not told."""
    upload: bytes | None = None
    report: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    """How long scoring and training took; outside every equality."""
    note: str = ""
    """What the people at the server should know, as a sentence; mostly nothing."""
    diverged: str = ""
    """Why there is no upload though it was asked to train, as a sentence; mostly nothing."""
    withheld: str = ""
    """Why it trained and sends no upload, as a sentence; mostly nothing."""

    def __post_init__(self) -> None:
        """Refuse what would spoil a record: other names, and numbers that cannot be."""
        for name in ("scores", "report", "seconds"):
            for word, value in getattr(self, name).items():
                if not word.isprintable():
                    raise PayloadError(f"{name}: the name {word!r:.60} cannot be printed")
                if len(word) > _LONGEST_WORD:
                    raise PayloadError(
                        f"{name}: the name {word:.60} … has {len(word)} letters; expected "
                        f"{_LONGEST_WORD} at most"
                    )
                if type(value) not in (int, float) or not abs(value) <= sys.float_info.max:
                    raise PayloadError(f"{name}.{word} is {value!r:.60}; expected a finite number")
        for name in ("report", "seconds"):
            if len(getattr(self, name)) > _MOST_REPORTED:
                raise PayloadError(
                    f"{name} has {len(getattr(self, name))} numbers; expected {_MOST_REPORTED} at "
                    "most"
                )
        for word, value in self.scores.items():
            _check_score(word, value)
        if self.scores and not {"accuracy", "macro_f1"} <= set(self.scores):
            raise PayloadError("scores lack accuracy or macro_f1; expected both, or no score")
        for name in ("note", "diverged", "withheld"):
            if len(getattr(self, name)) > LONGEST_NOTE:
                raise PayloadError(f"its {name} has more than {LONGEST_NOTE} letters")
        if self.diverged and self.upload is not None:
            raise PayloadError("it says that its training diverged, and has an upload")
        if self.withheld and self.upload is not None:
            raise PayloadError("it says that it withholds its upload, and has one")
        for word in self.report:
            if word in ADDED or word.rpartition(".")[2] in METRICS:
                raise PayloadError(
                    f"report.{word}: this name is the server's; report it by another"
                )


@dataclass(frozen=True)
class Rejected:
    """What an engine has of a room that sent something which is no reply."""

    reason: str
    """Why it is none, as a sentence."""


def _check_score(word: str, value: float) -> None:
    alternative, dot, metric = ("", "", word) if word in METRICS else word.partition(".")
    if metric not in METRICS or (dot and not alternative):
        raise PayloadError(
            f"scores.{word:.60} is unknown; expected {', '.join(METRICS)}, of an alternative as "
            "name.metric"
        )
    in_people = METRICS[metric].in_people
    if value < 0 or (value > 1 and not in_people):
        expected = "0 or more" if in_people else "0 to 1"
        raise PayloadError(f"scores.{word:.60} is {value}; expected {expected}")


def check_reply(reply: Reply, card: RoomCard) -> None:
    """Refuse a reply that does not fit the card of its room."""
    counts, tested = np.asarray(reply.confusion, np.int64), card.parts["test"]
    where = f"reply of room '{card.name}' to round {reply.round}"
    classes = card.first_classes
    if counts.shape != (classes, classes):
        raise PayloadError(
            f"{where}: its confusion matrix is {counts.shape}, its card has {classes} classes"
        )
    # No entry beyond the whole: a sum of such entries might wrap round to it.
    if (counts < 0).any() or (counts > tested).any() or counts.sum() != tested:
        raise PayloadError(
            f"{where}: its confusion matrix has entries from {counts.min()} to {counts.max()} and "
            f"the sum {counts.sum()}, its card has {tested} test windows"
        )
    if bool(reply.scores) != bool(tested):
        raise PayloadError(
            f"{where}: has {len(reply.scores)} scores, its card has {tested} test windows"
        )
    if len(reply.reliability):
        _check_reliability(where, reply, tested)
    if len(reply.roc):
        _check_roc(where, reply, card)
    told = score(counts, card.labels or range(classes)) if tested else {}
    for metric in told if card.labels else ("accuracy", "macro_f1"):
        if metric not in reply.scores and metric == "macro_f1_answered":
            continue  # a reply that an earlier version kept is still one
        if tested and not math.isclose(told[metric], reply.scores.get(metric, -1), abs_tol=1e-9):
            raise PayloadError(
                f"{where}: {metric} is {reply.scores.get(metric, 'missing')}, its confusion matrix "
                f"says {told[metric]:.6g}"
            )


def _check_reliability(where: str, reply: Reply, tested: int) -> None:
    table = np.asarray(reply.reliability, np.float64)
    number, (confidence, right) = table[:, 0], table[:, 1:].T
    possible = np.isfinite(table).all() and (table >= 0).all() and (right <= number).all()
    if not possible or (confidence > number + 1e-6).any() or number.sum() != tested:
        raise PayloadError(
            f"{where}: its reliability cannot be that of {tested} test windows: {table.tolist()}"
        )
    told, error = reply.scores.get("ece"), calibration_error(table)
    if told is not None and not math.isclose(told, error, abs_tol=1e-9):
        raise PayloadError(f"{where}: ece is {told}, its reliability says {error:.6g}")


def _check_roc(where: str, reply: Reply, card: RoomCard) -> None:
    """Refuse points that other windows made than the confusion matrix, or other probabilities."""
    table, labels = np.asarray(reply.roc, np.int64), card.labels
    if not tells_presence(labels):
        raise PayloadError(f"{where}: has a ROC of presence, its classes are {list(labels)}")
    real = np.asarray(reply.confusion, np.int64).sum(axis=1)
    occupied = np.asarray(labels, np.int64) > 0
    whole = [int(real[~occupied].sum()), int(real[occupied].sum())]
    if table[0].tolist() != whole or (table < 0).any() or (np.diff(table, axis=0) > 0).any():
        raise PayloadError(
            f"{where}: its ROC cannot be that of {whole[0]} empty and {whole[1]} occupied test "
            f"windows: {table.tolist()}"
        )
    told, share = reply.scores.get("presence"), presence_at_half(table)
    if told is not None and not math.isclose(told, share, abs_tol=1e-9):
        raise PayloadError(f"{where}: presence is {told}, its ROC says {share:.6g}")
    area, bounds = reply.scores.get("presence_auc"), area_bounds(table)
    if area is not None and (bounds is None or not bounds[0] - 1e-9 <= area <= bounds[1] + 1e-9):
        possible = "nothing" if bounds is None else f"{bounds[0]:.6g} to {bounds[1]:.6g}"
        raise PayloadError(f"{where}: presence_auc is {area}, its ROC says {possible}")


# ---- server → room -------------------------------------------------------------------------------


def encode_agreement(agreed: Agreement) -> bytes:
    """What was agreed on as a frame."""
    return _encode("agreement", {"facts": _facts(asdict(agreed))})


def decode_agreement(frame: bytes, source: str = "agreement") -> Agreement:
    """The agreement in a frame of ``encode_agreement``."""
    return _checked(Agreement, _open("agreement", frame, source), source)


def encode_round(round: Round) -> bytes:
    """A round as a frame."""
    return _encode("round", {"facts": _facts(asdict(round))})


def decode_round(frame: bytes, source: str = "round") -> Round:
    """The round in a frame of ``encode_round``."""
    return _checked(Round, _open("round", frame, source), source)


def encode_request(request: Request) -> bytes:
    """A request as a frame."""
    facts = {name: getattr(request, name) for name in ("train", "keep_model", "precision", "run")}
    return _encode("request", {"facts": _facts(facts), "download": _as_array(request.download)})


def decode_request(frame: bytes, source: str = "request") -> Request:
    """The request in a frame of ``encode_request``."""
    tree = _open("request", frame, source)
    return _checked(Request, tree, source, download=_as_bytes(tree, "download", source))


# ---- room → server -------------------------------------------------------------------------------


def encode_data_card(card: DataCard) -> bytes:
    """What a room tells of its windows as a frame."""
    return _encode("data card", {"facts": _facts(asdict(card))})


def decode_data_card(frame: bytes, source: str = "data card") -> DataCard:
    """The card in a frame of ``encode_data_card``."""
    return _checked(DataCard, _open("data card", frame, source), source)


def encode_card(card: RoomCard) -> bytes:
    """A room's card as a frame."""
    return encode(card_tree(card))


def decode_card(frame: bytes, source: str = "card") -> RoomCard:
    """The card in a frame of ``encode_card``."""
    return card_of(decode(frame, source), source)


def card_tree(card: RoomCard) -> Tree:
    """A room's card as a tree, to stand in a state."""
    return _tree("card", {"facts": _facts(asdict(card))})


def card_of(tree: Tree, source: str = "card") -> RoomCard:
    """The card in a tree of ``card_tree``."""
    return _checked(RoomCard, _refused_unless("card", tree, source), source)


def encode_reply(reply: Reply, *, timed: bool = True, whole: bool = True) -> bytes:
    """A reply as a frame; without its seconds, or without its upload, as if it had none."""
    numbers = {name: dict(getattr(reply, name)) for name in ("scores", "report", "seconds")}
    if not timed:
        numbers["seconds"] = {}
    arrays = {
        "confusion": reply.confusion,
        "reliability": reply.reliability,
        "roc": reply.roc,
        "upload": _as_array(reply.upload) if whole else None,
    }
    told = {"diverged": reply.diverged, "withheld": reply.withheld}
    said: Tree = {name: sentence for name, sentence in told.items() if sentence}
    return _encode("reply", {"round": reply.round, "note": reply.note, **said, **numbers, **arrays})


def decode_reply(frame: bytes, source: str = "reply", *, upload: bytes | None = None) -> Reply:
    """The reply in a frame of ``encode_reply``, with an upload that came beside it."""
    tree = _refused_unless("reply", decode(frame, source, most=_MOST_VALUES), source)
    number, matrix = tree.get("round"), tree.get("confusion")
    note, diverged = tree.get("note"), tree.get("diverged", "")
    withheld = tree.get("withheld", "")
    if type(number) is not int:
        raise PayloadError(f"{source}: does not say which round it answers")
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or matrix.dtype.kind not in "iu":
        raise PayloadError(f"{source}: its confusion matrix is no table of counts")
    table = tree.get("reliability")
    if (
        not isinstance(table, np.ndarray)
        or table.dtype != np.float64
        or table.shape not in ((0, 3), (BINS, 3))
    ):
        raise PayloadError(f"{source}: its reliability is no table of {BINS} × 3 numbers")
    points = tree.get("roc", np.zeros((0, 2), np.int64))  # states of before have none
    if (
        not isinstance(points, np.ndarray)
        or points.dtype != np.int64
        or points.shape not in ((0, 2), (len(THRESHOLDS), 2))
    ):
        raise PayloadError(f"{source}: its ROC is no table of {len(THRESHOLDS)} × 2 counts")
    for name, said in (("note", note), ("diverged", diverged), ("withheld", withheld)):
        if not isinstance(said, str) or len(said) > LONGEST_NOTE:
            raise PayloadError(f"{source}: its {name} is no text of at most {LONGEST_NOTE} letters")
    try:
        return Reply(
            round=number,
            scores=_numbers(tree, "scores", source),
            confusion=matrix,
            reliability=table,
            roc=points,
            upload=_as_bytes(tree, "upload", source) if upload is None else upload,
            report=_numbers(tree, "report", source),
            seconds=_numbers(tree, "seconds", source),
            note=cast(str, note),
            diverged=cast(str, diverged),
            withheld=cast(str, withheld),
        )
    except PayloadError as error:
        told = str(error).removeprefix(f"{source}: ")
        raise PayloadError(f"{source}: {told:.1000}") from error


# ---- what all of them share ----------------------------------------------------------------------


def _tree(kind: str, content: Tree) -> Tree:
    return {"message": kind, "version": _VERSION, **content}


def _encode(kind: str, content: Tree) -> bytes:
    return encode(_tree(kind, content))


def _open(kind: str, frame: bytes, source: str) -> Tree:
    """The tree of a message of this kind and version; anything else is refused."""
    return _refused_unless(kind, decode(frame, source), source)


def _refused_unless(kind: str, tree: Tree, source: str) -> Tree:
    told, version = tree.get("message", "no message"), tree.get("version")
    # By type first: whoever sent it may have put an array there, which is equal to nothing.
    if not isinstance(told, str) or told != kind:
        got = told if isinstance(told, str) else type(told).__name__
        raise PayloadError(f"{source}: expected a {kind}, got {got:.60}")
    if type(version) is not int or version != _VERSION:
        got = str(version) if type(version) in (int, str) else type(version).__name__
        raise PayloadError(
            f"{source}: a {kind} of version {got:.60}, this fedapa reads version "
            f"{_VERSION}; install the same release of fedapa for the server and for all rooms"
        )
    return tree


def _facts(values: Mapping[str, Any]) -> str:
    return json.dumps(values, sort_keys=True, default=sorted)  # sets, too, in one order


def _checked(kind: type[_T], tree: Tree, source: str, **others: object) -> _T:
    """The dataclass from its facts, every type checked, and its values that are no facts."""
    text = tree.get("facts")
    try:
        facts = json.loads(text) if isinstance(text, str) else None
        if not isinstance(facts, dict):
            raise ValueError("there are no facts")
        known = {entry.name for entry in fields(cast(Any, kind))} - set(others)
        if odd := sorted(known ^ set(facts)):
            raise ValueError(f"'{odd[0]:.60}' is {'unknown' if odd[0] in facts else 'missing'}")
        text = json.dumps({**facts, **dict.fromkeys(others)})
        made = _adapter(cast(Any, kind)).validate_json(text, strict=True)
        return cast(_T, replace(made, **others))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise PayloadError(f"{source}: {place:.200}: {first['msg'].lower():.300}") from error
    except FedapaError as error:
        raise PayloadError(f"{source}: {error!s:.1000}") from error
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"{source}: not a whole message ({error!s:.1000})") from error


@functools.cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    """What checks the types of a message; to make one takes longer than to check a hundred."""
    return TypeAdapter(kind)


def _numbers(tree: Tree, name: str, source: str) -> dict[str, float]:
    values = tree.get(name)
    if not isinstance(values, Mapping):
        raise PayloadError(f"{source}: has no {name}")
    return cast(dict[str, float], dict(values))


def _as_array(content: bytes | None) -> Array | None:
    return None if content is None else np.frombuffer(content, np.uint8)


def _as_bytes(tree: Tree, name: str, source: str) -> bytes | None:
    if name not in tree:
        raise PayloadError(f"{source}: says nothing of a {name}")
    value = tree[name]
    if value is None:
        return None
    if not isinstance(value, np.ndarray) or value.dtype != np.uint8 or value.ndim != 1:
        raise PayloadError(f"{source}: its {name} is no bytes")
    return value.tobytes()
