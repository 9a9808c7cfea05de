"""A Grid without processes: it calls the real client app, every message through Flower's codec."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flwr.app import Context, Error, Message, RecordDict
from flwr.app.message import make_message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.supercore.task_identity import TaskIdentity

from fedapa.federation.network.app import client_app

Tamper = Callable[[str, Message], Iterable[Message]]


def through_codec(message: Message, number: str) -> Message:
    """The message as it comes out at the other end, with the id that the SuperLink gives."""
    copy = message_from_proto(message_to_proto(message))
    copy.metadata.__dict__["_message_id"] = number
    return copy


@dataclass
class FakeGrid:
    """Rooms by name; who is not ``online`` is not reached, ``tamper`` changes what rooms say."""

    rooms: Mapping[str, Mapping[str, str]]
    """room → the configuration of its node."""
    online: set[str] = field(default_factory=set)
    tamper: Tamper = lambda room, reply: [reply]
    asked: list[tuple[str, str, RecordDict]] = field(default_factory=list)
    """Everything that went to a room: (room, action, content)."""
    said: list[tuple[str, RecordDict]] = field(default_factory=list)
    """Everything that rooms sent."""

    def __post_init__(self) -> None:
        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
        self.online = self.online or set(self.rooms)
        # Numbers that sort in another way than names: nothing may hang on them.
        self.numbers = {room: 1000 - place for place, room in enumerate(sorted(self.rooms))}
        self._replies: list[Message] = []
        self._count = itertools.count(1)

    def nodes(self) -> dict[str, int]:
        return dict(self.numbers)

    def get_node_ids(self) -> list[int]:
        return [self.numbers[room] for room in self.online]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        names = {number: room for room, number in self.numbers.items()}
        sent = []
        for message in messages:
            number, room = f"message {next(self._count)}", names[message.metadata.dst_node_id]
            sent.append(number)
            arrived = through_codec(message, number)
            self.asked.append((room, message.metadata.message_type, arrived.content))
            context = Context(
                1, message.metadata.dst_node_id, dict(self.rooms[room]), RecordDict(), {}
            )
            reply = through_codec(client_app(arrived, context), f"reply to {number}")
            self.said.append((room, reply.content))
            self._replies[:0] = self.tamper(room, reply)  # the last to be asked is heard first
        return sent

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        wanted = set(message_ids)
        found = [one for one in self._replies if one.metadata.reply_to_message_id in wanted]
        self._replies = [one for one in self._replies if one not in found]
        return found


def lost(reply: Message) -> Message:
    """What Flower says of a node that went away: an error whose node is none."""
    metadata = reply.metadata
    metadata.__dict__["_src_node_id"] = 1
    return make_message(metadata=metadata, error=Error(5, "Node Unavailable"))


def nodes_of(store: Path, rooms: Iterable[str], folder: Path) -> dict[str, dict[str, str]]:
    """The configuration of each room's node, all with one store."""
    return {
        room: {"room": room, "data": str(store), "folder": str(folder / room)} for room in rooms
    }
