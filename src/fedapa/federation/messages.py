"""What crosses between the server and a room, and its one versioned form in our codec.

::

    server → room    Round      which round it is, and its random stream
                     Request    the download, and what to do with it
    room → server    RoomCard   what the server may know of the room
                     Reply      the score, the upload, what to record

A message is a frame of ``fedapa.payload``: its kind, the version of these forms, then its content.
Plain facts are one JSON text that is checked against the types of the dataclass; arrays and encoded
payloads are arrays. Whatever arrives is a whole message or a ``PayloadError`` of one sentence.

``Round`` and ``RoomCard`` stand in lower layers, where algorithms use them; their form is here.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar, cast

import numpy as np
from pydantic import TypeAdapter, ValidationError

from fedapa.algorithms.algorithm import Round
from fedapa.errors import PayloadError
from fedapa.payload import Array, Precision, Tree, decode, encode
from fedapa.rooms.card import RoomCard

__all__ = [
    "Reply",
    "Request",
    "card_of",
    "card_tree",
    "decode_card",
    "decode_reply",
    "decode_request",
    "decode_round",
    "encode_card",
    "encode_reply",
    "encode_request",
    "encode_round",
]

_VERSION = 1
_T = TypeVar("_T")


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
    run: str = ""
    """Names the run: a room does not answer from states of another."""


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
    upload: bytes | None = None
    report: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    """How long scoring and training took; outside every equality."""


# ---- server → room -------------------------------------------------------------------------------


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


def encode_reply(reply: Reply) -> bytes:
    """A reply as a frame."""
    numbers = {name: dict(getattr(reply, name)) for name in ("scores", "report", "seconds")}
    arrays = {"confusion": reply.confusion, "upload": _as_array(reply.upload)}
    return _encode("reply", {"round": reply.round, **numbers, **arrays})


def decode_reply(frame: bytes, source: str = "reply") -> Reply:
    """The reply in a frame of ``encode_reply``."""
    tree = _open("reply", frame, source)
    number, matrix = tree.get("round"), tree.get("confusion")
    if type(number) is not int:
        raise PayloadError(f"{source}: does not say which round it answers")
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or matrix.dtype.kind not in "iu":
        raise PayloadError(f"{source}: its confusion matrix is no table of counts")
    return Reply(
        round=number,
        scores=_numbers(tree, "scores", source),
        confusion=matrix,
        upload=_as_bytes(tree, "upload", source),
        report=_numbers(tree, "report", source),
        seconds=_numbers(tree, "seconds", source),
    )


# ---- what all of them share ----------------------------------------------------------------------


def _tree(kind: str, content: Tree) -> Tree:
    return {"message": kind, "version": _VERSION, **content}


def _encode(kind: str, content: Tree) -> bytes:
    return encode(_tree(kind, content))


def _open(kind: str, frame: bytes, source: str) -> Tree:
    """The tree of a message of this kind and version; anything else is refused."""
    return _refused_unless(kind, decode(frame, source), source)


def _refused_unless(kind: str, tree: Tree, source: str) -> Tree:
    if tree.get("message") != kind:
        raise PayloadError(f"{source}: expected a {kind}, got {tree.get('message', 'no message')}")
    if tree.get("version") != _VERSION:
        raise PayloadError(
            f"{source}: a {kind} of version {tree.get('version')}, this fedapa reads version "
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
            raise ValueError(f"'{odd[0]}' is {'unknown' if odd[0] in facts else 'missing'}")
        text = json.dumps({**facts, **dict.fromkeys(others)})
        return replace(TypeAdapter(kind).validate_json(text, strict=True), **others)  # type: ignore[type-var]
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise PayloadError(f"{source}: {place}: {first['msg'].lower()}") from error
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"{source}: not a whole message ({error})") from error


def _numbers(tree: Tree, name: str, source: str) -> dict[str, float]:
    values = tree.get(name)
    if not isinstance(values, Mapping):
        raise PayloadError(f"{source}: has no {name}")
    for word, value in values.items():
        if not isinstance(value, int | float):
            raise PayloadError(f"{source}: {name}.{word} is no number")
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
