"""Flower: rooms on other machines, reached through a Grid of Flower's, our codec's bytes inside.

Rooms and server exchange three kinds of messages; each is asked for by the name of an action::

    query.tell        plan                        → data card
    query.introduce   plan, agreement             → card
    train.exchange    which plan, round, request  → reply, or that it knows of no such plan; and its
                                                    card where the room has new recordings

The first two are said once to a room, the third in every round. A room keeps plan and agreement in
a file, and the third names them by their digest. Nodes of Flower have numbers; rooms are known by
their own names, so that results depend neither on numbers nor on who came first.

What the engine knows of rooms is in a file: a server that was killed does not ask again, and a room
that is out of reach stays in the roster. Nobody is waited for longer than the plan's deadline.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, cast

import numpy as np
import tomli_w
from flwr.app import Message

from fedapa.algorithms.algorithm import Roster, Round
from fedapa.errors import FedapaError, PayloadError, RosterError, one_line
from fedapa.federation.checkpoint import Checkpoint
from fedapa.federation.engines.frames import (
    EXCHANGE,
    INTRODUCE,
    REFUSED,
    TELL,
    UNKNOWN,
    Frames,
    pack,
    unpack,
)
from fedapa.federation.messages import (
    Agreement,
    Rejected,
    Reply,
    Request,
    decode_agreement,
    decode_card,
    decode_data_card,
    decode_reply,
    encode_agreement,
    encode_card,
    encode_data_card,
    encode_request,
    encode_round,
)
from fedapa.federation.plan import Plan
from fedapa.payload import Tree, digest
from fedapa.rooms.card import DataCard, RoomCard

__all__ = ["Flower", "Grid", "agreed_on", "for_rooms"]

_LARGEST_REPLY = 256 * 2**20
"""Bytes that are looked at; an upload of a room is checked more closely (rounds.py)."""
_LONGEST_SENTENCE = 400
_GRACE = 5.0
"""Seconds after the deadline until a message is not delivered any more: nobody would look."""
_AFTER_ERROR = 5.0
"""Seconds until a room that was lost is asked again."""
_NEWCOMER = 60.0
"""Seconds at most that a round waits for rooms that would join."""
_AFTER_REFUSAL = 300.0
"""Seconds until a room that does not fit, or did not tell, is asked again whether it would join."""


class Grid(Protocol):
    """What the engine uses of ``flwr.serverapp.Grid``."""

    def get_node_ids(self) -> Iterable[int]:
        """The nodes that are connected."""

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages; their ids, or nothing for one that could not be sent."""

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies to these messages that came since."""


def for_rooms(plan: Plan) -> str:
    """What rooms are told of a plan: nothing of the server's files, nothing that may change.

    A longer run is the same run to a room; how many rounds there are is in every round.
    """
    document = plan.document()
    for key in ("rounds", "network"):
        document.pop(key, None)
    for key in ("file", "only", "without"):
        document["data"].pop(key, None)
    return tomli_w.dumps(document)


def agreed_on(plan: str, agreement: bytes) -> str:
    """What a plan and an agreement are called in later messages."""
    return digest(plan.encode() + agreement)


@dataclass
class _Known:
    """What the server knows of a room."""

    data: DataCard
    card: RoomCard


@dataclass
class Flower:
    """An engine; whoever has the grid ends it."""

    grid: Grid
    plan: Plan
    agree: Callable[[Sequence[DataCard]], Agreement]
    """What the rooms have in common, see prepare.py."""
    nodes: Callable[[], Mapping[str, int]]
    """The rooms that may take part now, and the node of each; people enrol and expel at any
    time."""
    folder: Path
    """The run's."""
    say: Callable[[str], None] = lambda _: None
    """Told in sentences what is waited for and what was refused."""
    poll: float = 0.5
    """Seconds between two looks for replies."""
    seen: dict[str, float] = field(default_factory=dict)
    """room → when it answered last, in seconds since 1970."""

    def __post_init__(self) -> None:
        """Take up what an earlier server of this run knew."""
        self._file = Checkpoint(self.folder / "network")
        self._agreed: Agreement | None = None
        self._known: dict[str, _Known] = {}
        self._refused: dict[str, str] = {}
        self._not_before: dict[str, float] = {}  # newcomer → when it may be asked again
        self._toml = for_rooms(self.plan)
        if (saved := self._file.load()) is not None:
            self._agreed = decode_agreement(_bytes(saved["agreed"]), str(self._file.path))
            for room, entry in cast(Mapping[str, Tree], saved["rooms"]).items():
                data = decode_data_card(_bytes(entry["data"]), str(self._file.path))
                card = decode_card(_bytes(entry["card"]), str(self._file.path))
                self._known[room] = _Known(data, card)

    # ---- who is there ----------------------------------------------------------------------------

    def roster(self) -> Roster:
        """The cards of all rooms that may take part and ever introduced themselves, by name."""
        enrolled = self.nodes()
        for room in [room for room in self._known if room not in enrolled]:
            self.say(f"room '{room}' was expelled")
            del self._known[room]
            self._save()
        if self._agreed is None:
            self._found(enrolled)
        else:
            self._admit([room for room in self._online(enrolled) if self._may_join(room)])
        return tuple(self._known[room].card for room in sorted(self._known))

    def _found(self, enrolled: Mapping[str, int]) -> None:
        """The first agreement, with every enrolled room that tells its data in time."""
        told = self._ask(TELL, {room: {"plan": self._toml.encode()} for room in enrolled})
        cards = {}
        for room in sorted(told):
            try:
                cards[room] = self._data_card(room, told[room])
            except FedapaError as error:
                self._refuse(room, error)
        if len(cards) < max(1, self.plan.network.quorum):
            raise RosterError(
                f"{len(cards)} of {len(enrolled)} enrolled rooms told their data within "
                f"{self.plan.network.deadline:g} s, and {max(1, self.plan.network.quorum)} are "
                "needed; see that rooms are started and reach this server"
            )
        agreed = self.agree(list(cards.values()))
        self._introduce(agreed, cards)

    def _may_join(self, room: str) -> bool:
        return room not in self._known and self._not_before.get(room, 0.0) <= time.monotonic()

    def _admit(self, rooms: Sequence[str]) -> None:
        """Rooms that came later: each fits into what was agreed on, or is refused by name."""
        asked = {room: {"plan": self._toml.encode()} for room in rooms}
        told = self._ask(TELL, asked, patience=_NEWCOMER)
        for room in rooms:
            if room in told:
                self._admit_one(room, told[room])
            if room not in self._known:  # others shall not wait for it in every round
                self._not_before[room] = time.monotonic() + _AFTER_REFUSAL

    def _admit_one(self, room: str, told: Frames) -> None:
        agreed = cast(Agreement, self._agreed)
        try:
            card = self._data_card(room, told)
            wider = self.agree([*(known.data for known in self._known.values()), card])
            for what in ("classes", "window_shape", "split", "view"):
                if (new := getattr(wider, what)) != (old := getattr(agreed, what)):
                    raise RosterError(
                        f"with it the {what.replace('_', ' ')} would be {new}, and the run has "
                        f"{old}; start a new run with all rooms, or leave this one out"
                    )
        except FedapaError as error:
            self._refuse(room, error)
            return
        nets = {**agreed.nets, room: wider.nets[room]}
        self._introduce(replace(agreed, nets=nets), {room: card}, patience=_NEWCOMER)

    def _introduce(
        self, agreed: Agreement, cards: Mapping[str, DataCard], *, patience: float = math.inf
    ) -> None:
        """Tell rooms what was agreed on and get to know them."""
        asked = {
            room: {"plan": self._toml.encode(), "agreement": _own(agreed, room)} for room in cards
        }
        for room, frames in sorted(self._ask(INTRODUCE, asked, patience=patience).items()):
            try:
                card = decode_card(_only(frames, "card"), f"card of room '{room}'")
                _check_room(room, card.name)
            except FedapaError as error:
                self._refuse(room, error)
                continue
            self._known[room] = _Known(cards[room], card)
            self._refused.pop(room, None)
        if self._known:
            self._agreed = agreed
            self._save()

    def _data_card(self, room: str, frames: Frames) -> DataCard:
        card = decode_data_card(_only(frames, "card"), f"data card of room '{room}'")
        _check_room(room, card.name)
        return card

    def _refuse(self, room: str, error: FedapaError) -> None:
        """Say once why a room does not take part."""
        if self._refused.get(room) != str(error):
            self._refused[room] = str(error)
            self.say(f"room '{room}' is refused: {one_line(str(error))}")

    def _save(self) -> None:
        if self._agreed is None:
            return
        rooms: Tree = {
            room: {
                "data": _array(encode_data_card(known.data)),
                "card": _array(encode_card(known.card)),
            }
            for room, known in sorted(self._known.items())
        }
        self._file.save({"agreed": _array(encode_agreement(self._agreed)), "rooms": rooms})

    # ---- one exchange ----------------------------------------------------------------------------

    def exchange(
        self, round: Round, requests: Mapping[str, Request]
    ) -> Mapping[str, Reply | Rejected]:
        """Every room that is reached in time answers its request; replies come sorted by room."""
        agreed = cast(Agreement, self._agreed)
        now = encode_round(round)
        asked = {
            room: {
                "agreed": agreed_on(self._toml, _own(agreed, room)).encode(),
                "card": digest(encode_card(self._known[room].card)).encode(),
                "round": now,
                "request": encode_request(request),
            }
            for room, request in requests.items()
        }
        answers = self._ask(EXCHANGE, asked, group=str(round.number))
        if lost := [room for room in sorted(answers) if UNKNOWN in answers[room]]:
            self._introduce(agreed, {room: self._known[room].data for room in lost})
            again = {
                room: {**asked[room], "card": digest(encode_card(self._known[room].card)).encode()}
                for room in lost
            }
            answers.update(self._ask(EXCHANGE, again, group=str(round.number)))
        replies: dict[str, Reply | Rejected] = {}
        for room, frames in sorted(answers.items()):
            try:
                frame = self._with_new_card(room, frames)
                if len(frame) > _LARGEST_REPLY:
                    raise PayloadError(f"its reply has {len(frame)} bytes")
                replies[room] = decode_reply(frame, "its reply")
            except FedapaError as error:
                replies[room] = Rejected(str(error)[:_LONGEST_SENTENCE])
        return replies

    def _with_new_card(self, room: str, frames: dict[str, bytes]) -> bytes:
        """The reply of a room; its card, where its store has grown, is that of the next round."""
        if set(frames) != {"reply", "card"}:
            return _only(frames, "reply")
        card = decode_card(frames["card"], f"new card of room '{room}'")
        _check_room(room, card.name)
        self._known[room] = replace(self._known[room], card=card)
        self._save()
        return frames["reply"]

    def _online(self, enrolled: Mapping[str, int]) -> list[str]:
        connected = set(self.grid.get_node_ids())
        return sorted(room for room, node in enrolled.items() if node in connected)

    def _ask(
        self,
        action: str,
        asked: Mapping[str, Frames],
        *,
        group: str = "",
        patience: float = math.inf,
    ) -> dict[str, dict[str, bytes]]:
        """What rooms answer until the deadline: each is asked when it is there, once at a time.

        A room that was lost on the way is asked again when it is back; it answers what it has
        done already from its files. What came first counts, a second answer is dropped.
        """
        until = time.monotonic() + min(patience, self.plan.network.deadline)
        answers: dict[str, dict[str, bytes]] = {}
        on_the_way: dict[str, str] = {}  # message → room
        not_before: dict[str, float] = {}
        waiting = set(asked)
        while waiting and (left := until - (now := time.monotonic())) > 0:
            nodes = self.nodes()
            waiting &= set(nodes)  # nobody waits for a room that was expelled
            free = waiting - set(on_the_way.values())
            there = [
                room
                for room in self._online(nodes)
                if room in free and not_before.get(room, now) <= now
            ]
            if there:
                messages = [
                    Message(
                        pack(asked[room]), nodes[room], action, ttl=left + _GRACE, group_id=group
                    )
                    for room in there
                ]
                sent = self.grid.push_messages(messages)
                for room, number in zip(there, sent, strict=False):
                    if number:
                        on_the_way[number] = room
            for message in self.grid.pull_messages(list(on_the_way)) if on_the_way else ():
                # An error of Flower's own has no node: what it replies to says whose it is.
                room = on_the_way.pop(message.metadata.reply_to_message_id, "")
                if room not in waiting:
                    continue
                if message.has_error():
                    reason = one_line(message.error.reason or "an error of Flower")
                    self.say(f"room '{room}' did not answer: {reason[:_LONGEST_SENTENCE]}")
                    not_before[room] = now + _AFTER_ERROR
                    continue
                waiting.discard(room)
                self.seen[room] = time.time()
                answers[room] = _frames(message, room)
            if waiting:
                time.sleep(self.poll)
        return answers


def _frames(message: Message, room: str) -> dict[str, bytes]:
    """The frames of a room's answer; one that has none of ours is a refusal."""
    try:
        return unpack(message.content, f"answer of room '{room}'")
    except PayloadError as error:
        return {REFUSED: str(error).encode()}


def _only(frames: Frames, name: str) -> bytes:
    """The one frame that an answer should have; a room's own sentence is raised as it is."""
    if REFUSED in frames:
        sentence = frames[REFUSED].decode(errors="replace")
        raise PayloadError(one_line(sentence[:_LONGEST_SENTENCE]))
    if set(frames) != {name}:
        raise PayloadError(f"its answer holds {sorted(frames)}; expected a {name}")
    return frames[name]


def _check_room(room: str, name: str) -> None:
    if name != room:
        raise RosterError(
            f"it is enrolled as '{room}' and calls itself '{name:.64}'; start it with --room "
            f"'{room}', or enrol its key by the other name"
        )


def _own(agreed: Agreement, room: str) -> bytes:
    """The agreement as one room is told it: who joins later changes nothing for it."""
    return encode_agreement(replace(agreed, nets={room: agreed.nets[room]}))


def _array(frame: bytes) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
    return np.frombuffer(frame, np.uint8)


def _bytes(value: object) -> bytes:
    return cast("np.ndarray[tuple[int], np.dtype[np.uint8]]", value).tobytes()
