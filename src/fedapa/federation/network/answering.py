"""What a room answers to a server: its cards, and every round through its ``Participant``.

A room has a folder of its own::

    agreed/     plans and agreements that a server told it, each by its digest
    states/     its states, a folder for each run, see participant.py
    models/     the finished net of each run

Nothing that a server says names a file here: the store and the room's name are the owner's.
"""

import contextlib
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np

from fedapa.errors import DataError, FedapaError, PayloadError, PlanError, files_trouble
from fedapa.federation.checkpoint import Checkpoint
from fedapa.federation.engines.flower import agreed_on
from fedapa.federation.engines.frames import EXCHANGE, INTRODUCE, REFUSED, TELL, UNKNOWN, Frames
from fedapa.federation.messages import (
    decode_agreement,
    decode_request,
    decode_round,
    encode_data_card,
    encode_reply,
)
from fedapa.federation.network.growing import Stage, first_stage, next_stage, room_at
from fedapa.federation.network.place import Place, trouble_of
from fedapa.federation.participant import Participant
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
from fedapa.learning.private import Privacy
from fedapa.payload import Array, Tree
from fedapa.rooms.room import Room
from fedapa.stores.materialise import RoomWindows
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
        # Where its files are is the room's own business.
        told = files_trouble(error) or str(error)
        told = told.replace(place.folder, "its folder").replace(place.data, "its store")
        return {REFUSED: told.encode()}
    except OSError as error:
        told = trouble_of(error, Path(place.folder)).replace(place.folder, "its folder")
        return {REFUSED: f"{told}; nothing is half written".encode()}


def _tell(place: Place, frames: Frames) -> Frames:
    plan = _plan(place, _text(frames, "plan"))
    (origins,) = survey_rooms(plan)
    return {"card": encode_data_card(tell_data(plan, origins))}


def _introduce(place: Place, frames: Frames) -> Frames:
    text, frame = _text(frames, "plan"), _frame(frames, "agreement")
    name = agreed_on(text, frame)
    plan, agreed = _plan(place, text), decode_agreement(frame)
    if (known := _load(place, name)) is not None:
        # Told again: no recording changes its part, unless some are gone.
        with contextlib.suppress(DataError):
            stage = _grown(place, name, known)
            _room(place, known, stage.name)
            return {"card": stage.card}
    room = make_room(plan, _windows(place, text, frame), agreed=agreed)
    check_batches([room], plan.training.batch_size)
    check_training([room], plan.build())
    check_nets([room])
    stage = first_stage(room, _windows(place, text, frame))
    _save(place, name, _Agreed(text, frame, {stage.name: stage}))
    return {"card": stage.card}


def _exchange(place: Place, frames: Frames) -> Frames:
    """The reply and, where the store has grown meanwhile, the card of the room from now on.

    The round itself is answered as the server knows the room: it checks replies by the card.
    """
    name, known_as = _text(frames, "agreed"), _text(frames, "card")
    known = _load(place, name)
    if known is None or known_as not in known.stages:
        return {UNKNOWN: b""}
    round = decode_round(_frame(frames, "round"))
    request = decode_request(_frame(frames, "request"))
    folder = Path(place.folder)
    participant = Participant(
        algorithm=_plan(place, known.plan).build(),
        room=_room(place, known, known_as),
        folder=folder / "states",
        model_path=folder / "models" / request.run / f"{place.room}.safetensors",
        known_as=known_as,
        earlier=frozenset(known.stages),
    )
    reply = encode_reply(participant.exchange(round, request))
    newest = _grown(place, name, known)
    return {"reply": reply, **({} if newest.name == known_as else {"card": newest.card})}


def _grown(place: Place, name: str, known: "_Agreed") -> Stage:
    """The newest stage; a new one where recordings have come."""
    last = list(known.stages.values())[-1]
    windows = _windows(place, known.plan, known.agreement)
    plan, agreed = _plan(place, known.plan), decode_agreement(known.agreement)
    if set(windows.recordings) <= set(last.looked_at):
        return last
    if (found := next_stage(plan, agreed, windows, last)) is None:
        return last
    stage, _ = found
    _save(place, name, replace(known, stages={**known.stages, stage.name: stage}))
    return stage


@dataclass(frozen=True, eq=False)
class _Agreed:
    """What a server told, and what the room told it of its recordings since."""

    plan: str
    agreement: bytes
    stages: Mapping[str, Stage]
    """By the digests of their cards, the first one first."""


def _file(place: Place, name: str) -> Checkpoint:
    return Checkpoint(Path(place.folder) / "agreed" / check_name(name, "agreement"))


def _save(place: Place, name: str, agreed: _Agreed) -> None:
    stages: Tree = {
        f"{number:06d}": stage.tree() for number, stage in enumerate(agreed.stages.values())
    }
    _file(place, name).save(
        {
            "plan": agreed.plan,
            "agreement": np.frombuffer(agreed.agreement, np.uint8),
            "stages": stages,
        }
    )


def _load(place: Place, name: str) -> _Agreed | None:
    tree = _file(place, name).load()
    if tree is None:
        return None
    told = cast(Mapping[str, Tree], tree["stages"])
    stages = [Stage.of(told[number]) for number in sorted(told)]
    return _Agreed(
        plan=str(tree["plan"]),
        agreement=cast(Array, tree["agreement"]).tobytes(),
        stages={stage.name: stage for stage in stages},
    )


def _plan(place: Place, text: str) -> Plan:
    """A server's plan with this room's own data."""
    document = parse_toml(text, "plan of the server")
    given = document.get("data", {})
    if not isinstance(given, Mapping):
        raise PlanError(f"plan of the server: data is {given!r:.40}; expected a section")
    data = {**given, "file": place.data, "only": [place.room]}
    plan = Plan(**{**document, "data": data})
    if place.epsilon is not None:
        _check_privacy(plan.privacy, place, place.epsilon)
    return plan


def _check_privacy(asked: Privacy, place: Place, most: float) -> None:
    """Refuse a plan by which more would leave than the room's owner allows."""
    if asked.epsilon is None:
        raise PlanError(
            f"the room's owner lets noised prototypes leave, with ε = {most:g} at most, and the "
            f"plan has no noise; set privacy.epsilon to {most:g} or less, with fedapa or fedproto"
        )
    if asked.epsilon > most:
        raise PlanError(
            f"privacy.epsilon is {asked.epsilon:g}, and the room's owner allows {most:g} at most; "
            "set a smaller one"
        )
    if asked.delta > place.delta:
        raise PlanError(
            f"privacy.delta is {asked.delta:g}, and the room's owner allows {place.delta:g} at "
            "most; set a smaller one"
        )
    if place.unit == "recording" != asked.unit:
        raise PlanError(
            f'privacy.unit is "{asked.unit}", and the room\'s owner wants whole recordings '
            'protected; set it to "recording"'
        )


@functools.lru_cache(maxsize=2)
def _cut(place: Place, text: str, agreement: bytes, written: int) -> RoomWindows:
    (windows,) = cut_windows(_plan(place, text), view=decode_agreement(agreement).view)
    return windows


def _windows(place: Place, text: str, agreement: bytes) -> RoomWindows:
    """The room's windows, cut again where its store was written since."""
    return _cut(place, text, agreement, Path(place.data).stat().st_mtime_ns)


def _loaded(place: Place, name: str) -> _Agreed:
    known = _load(place, name)
    if known is None:
        raise PayloadError("the room has lost its files while it worked")
    return known


@functools.lru_cache(maxsize=2)
def _made(place: Place, text: str, agreement: bytes, stage: str, written: int) -> Room:
    known = _loaded(place, agreed_on(text, agreement))
    windows = _cut(place, text, agreement, written)
    plan, agreed = _plan(place, text), decode_agreement(agreement)
    return room_at(plan, agreed, windows, known.stages[stage])


def _room(place: Place, known: "_Agreed", stage: str) -> Room:
    written = Path(place.data).stat().st_mtime_ns
    return _made(place, known.plan, known.agreement, stage, written)


def _frame(frames: Frames, name: str) -> bytes:
    if name not in frames:
        raise PayloadError(f"the message of the server lacks a {name}")
    return frames[name]


def _text(frames: Frames, name: str) -> str:
    try:
        return _frame(frames, name).decode()
    except UnicodeDecodeError:
        raise PayloadError(f"the {name} in the message of the server is no text") from None
