"""What a room answers to a server: its cards, and every round through its ``Participant``.

A room has a folder of its own::

    agreed/     plans and agreements that a server told it, each by its digest
    states/     its states, a folder for each run, see participant.py
    models/     the finished net of each run

Nothing that a server says names a file here: the store and the room's name are the owner's.
"""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import numpy as np

from fedapa.errors import FedapaError, PayloadError
from fedapa.federation.checkpoint import Checkpoint
from fedapa.federation.engines.flower import agreed_on
from fedapa.federation.engines.frames import EXCHANGE, INTRODUCE, REFUSED, TELL, UNKNOWN, Frames
from fedapa.federation.messages import (
    Agreement,
    decode_agreement,
    decode_request,
    decode_round,
    encode_card,
    encode_data_card,
    encode_reply,
)
from fedapa.federation.network.place import Place
from fedapa.federation.participant import Participant, introduce
from fedapa.federation.plan import Plan
from fedapa.federation.prepare import (
    check_batches,
    check_nets,
    check_training,
    cut_windows,
    make_room,
    survey_rooms,
    tell_data,
)
from fedapa.payload import Array
from fedapa.rooms.room import Room
from fedapa.toml import parse_toml
from fedapa.windows.labels import check_name

__all__ = ["answer"]


def answer(place: Place, action: str, frames: Frames) -> Frames:
    """A room's answer to one message; what it cannot do is a sentence in place of it."""
    actions: Mapping[str, Callable[[Place, Frames], Frames]] = {
        TELL: _tell,
        INTRODUCE: _introduce,
        EXCHANGE: _exchange,
    }
    try:
        if action not in actions:
            raise PayloadError(f"'{action:.60}' is nothing that a room is asked")
        return actions[action](place, frames)
    except FedapaError as error:
        return {REFUSED: str(error).encode()}
    except OSError as error:
        return {REFUSED: f"{error.strerror or error}; nothing is half written".encode()}


def _tell(place: Place, frames: Frames) -> Frames:
    plan = _plan(place, _frame(frames, "plan").decode())
    (origins,) = survey_rooms(plan)
    return {"card": encode_data_card(tell_data(plan, origins))}


def _introduce(place: Place, frames: Frames) -> Frames:
    text, frame = _frame(frames, "plan").decode(), _frame(frames, "agreement")
    name = agreed_on(text, frame)
    room = _room(place, text, frame)
    plan = _plan(place, text)
    check_batches([room], plan.training.batch_size)
    check_training([room], plan.build())
    check_nets([room])
    _agreed(place, name).save({"plan": text, "agreement": _array(frame)})
    return {"card": encode_card(introduce(room))}


def _exchange(place: Place, frames: Frames) -> Frames:
    name = _frame(frames, "agreed").decode()
    known = _agreed(place, name).load()
    if known is None:
        return {UNKNOWN: b""}
    text, frame = str(known["plan"]), cast(Array, known["agreement"]).tobytes()
    round = decode_round(_frame(frames, "round"))
    request = decode_request(_frame(frames, "request"))
    folder = Path(place.folder)
    participant = Participant(
        algorithm=_plan(place, text).build(),
        room=_room(place, text, frame),
        folder=folder / "states",
        model_path=folder / "models" / request.run / f"{place.room}.safetensors",
    )
    return {"reply": encode_reply(participant.exchange(round, request))}


def _agreed(place: Place, name: str) -> Checkpoint:
    return Checkpoint(Path(place.folder) / "agreed" / check_name(name, "agreement"))


def _plan(place: Place, text: str) -> Plan:
    """A server's plan with this room's own data."""
    document = parse_toml(text, "plan of the server")
    data = {**document.get("data", {}), "file": place.data, "only": [place.room]}
    return Plan(**{**document, "data": data})


@functools.lru_cache(maxsize=1)
def _made(place: Place, text: str, agreement: bytes, written: float) -> Room:
    plan = _plan(place, text)
    agreed: Agreement = decode_agreement(agreement)
    (windows,) = cut_windows(plan, view=agreed.view)
    return make_room(plan, windows, agreed=agreed)


def _room(place: Place, text: str, agreement: bytes) -> Room:
    """The room, made again where its store was written since."""
    return _made(place, text, agreement, Path(place.data).stat().st_mtime)


def _frame(frames: Frames, name: str) -> bytes:
    if name not in frames:
        raise PayloadError(f"the message of the server lacks a {name}")
    return frames[name]


def _array(frame: bytes) -> Array:
    return np.frombuffer(frame, np.uint8)
