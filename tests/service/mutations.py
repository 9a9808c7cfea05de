"""Mutated requests to the live service, and what a hostile broker says to it.

Requests are bytes on a connection to the real app on loopback: each is answered by an HTTP status
below 500 or the connection is closed. A broker that says anything is left and tried again; the
thread that talks to it lives on, and counts are taken as before.
"""

import contextlib
import random
import socket
import struct
import threading
import time
from pathlib import Path
from unittest import mock

from fedapa.service import mqtt
from fedapa.service.home_assistant import Topics, discovery_of
from fedapa.service.mqtt import MqttPublisher, MqttSettings
from fedapa.service.training import training_router
from tests.fuzz import Make, Subject, mutate
from tests.service.telling import Site, Telling, document_of

_TOKEN = "a-token-of-the-test-1"
_PATIENCE, _SOON = 30.0, 1.0
"""s: for an answer, and until a request is taken for one that has no end."""

# ---- HTTP --------------------------------------------------------------------------------------

_PATHS = (
    *("/", "/api/rooms", "/api/rooms/cafe", "/api/rooms/big%20hall/history", "/metrics"),
    *("/api/rooms/cafe/history?since=0&until=5&points=10", "/healthz", "/openapi.json"),
    *("/api/rooms/cafe/waterfall?seconds=5", "/api/training", f"/?token={_TOKEN}"),
)
_NOWHERE = ("/static/../index.html", "/api/rooms/nowhere", "/api/training/weights?round=1")
_PIECES = (
    *(b"nan", b"-1", b"1e999", b"%00", b"%ff%fe", b"..%2f..%2f", b"\xc3\xa9", b"//", b"%", b"'"),
    *(b"9" * 400, b"&" * 50, b"round=0", b"since=inf", b"\r\n\r\n", b" ", b"\0", b"[]", b"a=b;c"),
)


class Http(Subject):
    """Requests with and without a token, through uvicorn."""

    kind = "http"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        service = Telling([document_of("cafe"), document_of("big hall", synthetic=True)])
        self._site = Site(
            service,
            folder / "counts.db",
            token=_TOKEN,
            routers=[training_router(folder / "no run")],
        )
        self._site.__enter__()
        self._site.remember("cafe", 1)
        bearer = f"Authorization: Bearer {_TOKEN}"
        cookie = f"Cookie: fedapa_token_{self._site.port}={_TOKEN}; other=1"
        self.seeds = [_request("GET", path, bearer) for path in _PATHS]
        self.seeds += [_request("GET", "/api/rooms", cookie), _request("GET", "/healthz")]
        self._begun_with = [
            *self.seeds,
            *(_request("GET", path, cookie) for path in _NOWHERE),
            _request("POST", "/api/rooms", cookie, body=b'{"a": 1}'),
            _request("HEAD", "/", cookie),
        ]

    def mutated(self, rng: random.Random) -> bytes:
        data = rng.choice(self._begun_with)
        if rng.random() < 0.4:
            return mutate(data, rng, self._begun_with)
        for _ in range(rng.choice((1, 1, 2, 3))):
            line = data.find(b" HTTP")  # the target is what the service itself reads
            at = rng.randrange(4, line if line > 4 and rng.random() < 0.7 else len(data))
            piece = rng.choice(_PIECES)
            data = data[:at] + piece + data[at + rng.choice((0, 0, 1, 4)) :]
        return data

    def attempt(self, data: bytes, rng: random.Random) -> str:
        answer = b""
        place = ("127.0.0.1", self._site.port)
        with contextlib.suppress(ConnectionError), socket.create_connection(place, 60) as line:
            # An end of the headers, or nearly every damaged request would be waited for.
            line.sendall(data + b"\r\n\r\n")
            line.settimeout(_PATIENCE if data in self.seeds else _SOON)
            with contextlib.suppress(TimeoutError):
                answer = line.recv(65536)
            if not answer:  # it waits for more, which never comes
                line.settimeout(_PATIENCE)
                line.shutdown(socket.SHUT_WR)
                answer = line.recv(65536)
        if not answer:
            return "refused"  # closed without a word: no request was seen
        assert answer.startswith(b"HTTP/1."), answer[:80]
        status = int(answer.split(b" ", 2)[1])
        assert status < 500 or status in (501, 503, 505), answer[:200]
        return "read" if status < 400 else "refused"

    def close(self) -> None:
        self._site.__exit__()


def _request(method: str, path: str, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers]
    lines += [f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join([*lines, "", ""]).encode() + body


# ---- MQTT --------------------------------------------------------------------------------------


def _packet(kind: int, content: bytes, flags: int = 0) -> bytes:
    size, length = len(content), bytearray()
    while True:
        length.append(size % 128 | (128 if size > 127 else 0))
        size //= 128
        if not size:
            return bytes([kind << 4 | flags]) + bytes(length) + content


def _publish(topic: str, payload: bytes, *, retain: bool, qos: int = 1) -> bytes:
    name = topic.encode()
    number = struct.pack(">H", 7) if qos else b""
    content = struct.pack(">H", len(name)) + name + number + payload
    return _packet(3, content, (qos << 1) | retain)


class Mqtt(Subject):
    """What a broker says after it was greeted: its answer, and messages under our topics."""

    kind = "mqtt"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        topics = Topics()
        device = discovery_of(topics, "old", "old room", synthetic=False, expire_after=60)
        welcome = _packet(2, b"\0\0")
        heard = [
            _publish(topics.status, b"online", retain=True),
            _publish(topics.status, b"offline", retain=False),
            _publish(topics.birth, b"online", retain=False, qos=0),
            _publish(topics.config("old"), device, retain=True),
        ]
        granted = _packet(9, struct.pack(">HBB", 1, 1, 1))
        taken = _packet(4, struct.pack(">H", 3))
        self.seeds = [
            welcome + granted + b"".join(heard),
            welcome + taken * 3 + heard[3] + _packet(13, b""),
            welcome + b"".join(reversed(heard)) + _packet(6, struct.pack(">H", 7), 2),
            _packet(2, b"\0\5"),
        ]
        self._patches = [mock.patch.object(mqtt, "_WAITS", (0.0, 0.0))]
        self._patches += [mock.patch.object(mqtt, name, 0.0) for name in ("_STEADY", "_SETTLED")]
        for patch in self._patches:
            patch.start()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(_PATIENCE)
        address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._publisher = MqttPublisher(MqttSettings.at(address), rooms=["cafe"])
        self._publisher.start()

    def mutated(self, rng: random.Random) -> bytes:
        data = rng.choice(self.seeds)
        if rng.random() < 0.3:
            return mutate(data, rng, self.seeds)
        whole, rest = data[:4], data[4:]  # a broker that lets us in, then says anything
        return whole + mutate(rest or b"\x30\0", rng, self.seeds)

    def attempt(self, data: bytes, rng: random.Random) -> str:
        self._publisher.publish(document_of("cafe"))
        line, _ = self._listening.accept()
        with line:
            line.settimeout(_PATIENCE)
            try:
                greeting = line.recv(4096)
                assert greeting[:1] == b"\x10", greeting
                line.sendall(data)
                line.shutdown(socket.SHUT_WR)
                while line.recv(65536):
                    pass
            except OSError:  # it hung up, or waits for more: both are answers
                pass
        assert self._publisher._thread.is_alive(), "the thread that talks to the broker has ended"
        problem = self._publisher.health.problem
        return "refused" if problem.startswith("unexpected") else "read"

    def close(self) -> None:
        stopping = threading.Thread(target=self._publisher.stop)
        stopping.start()
        end = time.monotonic() + 10
        while stopping.is_alive() and time.monotonic() < end:
            time.sleep(0.05)
        self._listening.close()
        for patch in self._patches:
            patch.stop()


def subjects() -> dict[str, Make]:
    return {"http": Http, "mqtt": Mqtt}
