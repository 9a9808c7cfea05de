"""What a message of Flower carries: frames of ours by name, and the names of what is asked.

This module imports neither torch nor anything that does: a room that waits needs no more.
"""

from collections.abc import Mapping

from flwr.app import Array, ArrayRecord, RecordDict

from fedapa.errors import PayloadError

__all__ = ["EXCHANGE", "INTRODUCE", "REFUSED", "TELL", "UNKNOWN", "Frames", "pack", "unpack"]

TELL, INTRODUCE, EXCHANGE = "query.tell", "query.introduce", "train.exchange"
REFUSED = "refused"
"""The name of the one frame of a reply that is a sentence: why a room does not do what it is
asked."""
UNKNOWN = "unknown"
"""The name of the one, empty frame of a reply: the room has lost its files, tell it again."""
_FRAMES = "fedapa"
_STYPE = "fedapa.payload"
Frames = Mapping[str, bytes]


def pack(frames: Frames) -> RecordDict:
    """Frames as what a message of Flower carries, byte by byte as they are."""
    arrays = {
        name: Array("uint8", (len(frame),), _STYPE, frame) for name, frame in sorted(frames.items())
    }
    return RecordDict({_FRAMES: ArrayRecord(arrays)})


def unpack(content: RecordDict, source: str) -> dict[str, bytes]:
    """The frames that a message carries; anything else is refused."""
    records = content.array_records
    if set(content) != {_FRAMES} or set(records) != {_FRAMES}:
        raise PayloadError(f"{source}: holds {sorted(content)}; expected frames of ours alone")
    frames = {}
    for name, array in records[_FRAMES].items():
        if array.stype != _STYPE:
            raise PayloadError(f"{source}: its {name:.40} is a {array.stype:.40}; expected a frame")
        frames[name] = array.data
    return frames
