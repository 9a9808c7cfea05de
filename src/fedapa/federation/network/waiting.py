"""Waiting for work at a SuperNode without Flower's libraries, which would only take memory there.

It is one request of Flower's, AcquireTask, written and read here as Flower's own client does; a
test compares the two. Whoever does the work has the libraries (working.py).
"""

import http.client
import importlib.metadata

__all__ = ["Waiting"]

_TYPE = "flwr-clientapp"
_TEXT = 2
"""How protobuf marks a field with a length: text, bytes or another message."""
_TYPES_FIELD, _TOKEN_FIELD = 1, 2
_HEADERS = {
    "content-type": "application/protobuf",
    "accept": "application/protobuf",
    "flwr-package-name": "flwr",
    "flwr-component-name": _TYPE,
}
_PATIENCE = 30.0


class Waiting:
    """Asks the SuperNode at a port of this machine for work."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)
        self._headers = {**_HEADERS, "flwr-package-version": importlib.metadata.version("flwr")}

    def acquire(self) -> str | None:
        """The token of a task that waits, if there is one; OSError where nobody answers."""
        try:
            self._connection.request(
                "POST", "/v1/runtime/acquire-task", request_bytes(), self._headers
            )
            answer = self._connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()  # the next request connects again
            raise ConnectionError(str(error) or type(error).__name__) from error
        if answer.status != http.client.OK:
            raise ConnectionError(f"status {answer.status}")
        return token_of(content)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def request_bytes() -> bytes:
    """AcquireTaskRequest for the kind of task that a room does."""
    return bytes([_TYPES_FIELD << 3 | _TEXT, len(_TYPE)]) + _TYPE.encode()


def token_of(content: bytes) -> str | None:
    """The token in an AcquireTaskResponse; none where no task waits."""
    place = 0
    while place < len(content):
        tag, place = _number(content, place)
        size, place = _number(content, place)
        if tag & 7 != _TEXT or place + size > len(content):
            raise ConnectionError("its answer is none of Flower's")
        if tag >> 3 == _TOKEN_FIELD:
            return content[place : place + size].decode() or None
        place += size
    return None


def _number(content: bytes, place: int) -> tuple[int, int]:
    """A number of protobuf's, seven bits in a byte, and where it ends."""
    value = shift = 0
    while place < len(content):
        byte = content[place]
        value, shift, place = value | (byte & 0x7F) << shift, shift + 7, place + 1
        if byte < 0x80:
            return value, place
    raise ConnectionError("its answer is cut short")
