"""Mutated requests to the live service, and what a hostile broker says to it.

Requests are bytes on a connection to the real app on loopback: each is answered by an HTTP status
below 500 or the connection is closed. A broker that says anything is left and tried again; the
thread that talks to it lives on, and counts are taken as before.
"""

import contextlib
import random
import re
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
from tests.service.test_training import begin, record, write

_TOKEN = "a-token-of-the-test-1"
_PATIENCE, _SOON = 30.0, 0.3
"""s: for an answer, and until a request is taken for one that has no end."""

# ---- HTTP --------------------------------------------------------------------------------------

_PATHS = (
    *("/", "/api/rooms", "/api/rooms/cafe", "/api/rooms/big%20hall/history", "/metrics"),
    *("/api/rooms/cafe/history?since=0&until=5&points=10", "/healthz", "/openapi.json"),
    *("/api/rooms/cafe/waterfall?seconds=5", "/api/training", f"/?token={_TOKEN}"),
    *("/api/training/weights?round=2", "/static/page.js", "/api/rooms/cafe/history"),
)
_NOWHERE = ("/static/../index.html", "/api/rooms/nowhere", "/api/training/weights?round=99")
_PIECES = (
    *(b"nan", b"-1", b"1e999", b"%00", b"%ff%fe", b"..%2f..%2f", b"\xc3\xa9", b"//", b"%", b"'"),
    *(b"9" * 400, b"&" * 50, b"round=0", b"since=inf", b"\r\n\r\n", b" ", b"\0", b"[]", b"a=b;c"),
)
_TARGETS = (
    *("/", "/api/rooms", "/api/rooms/ROOM", "/metrics", "/healthz", "/openapi.json", "/docs"),
    *("/api/rooms/ROOM/history", "/api/rooms/ROOM/history", "/api/rooms/ROOM/waterfall"),
    *("/api/training", "/api/training/weights", "/api/events", "/static/FILE", "/api/rooms/"),
)
_ROOMS = (
    *("cafe", "cafe", "big%20hall", "nowhere", "caf%C3%A9", "..", "%2e%2e", "cafe%00", "cafe/"),
    *("%ff", "a" * 3000, "%252f", "cafe%2Fhistory", "CAFE", "+", "%0d%0aSet-Cookie:a=b"),
)
_FILES = ("page.js", "page.css", "..%2fapp.py", "%2e%2e/app.py", "nowhere", "", "/etc/passwd", ".")
_NAMES = ("since", "until", "points", "seconds", "round", "token", "", "since[]", "%00")
_VALUES = (
    *("0", "1", "5", "10", "1e9", "2", "3.5", "1700000000", "20"),
    *("-1", "nan", "inf", "-inf", "1e308", "1e-320", "1e999", "", "x", "0x10", "%00", "%ff", "1_0"),
    *("9" * 400, "5001", "5000", "30.000001", "null", "[]", "%D9%A3", "9223372036854775808", "+5"),
)
_HEADERS = (
    *("Range: bytes=0-10", "Range: bytes=5-1", "Range: bytes=0-0,2-3,-1", "Range: lines=x"),
    *(f"Range: bytes={'0-1,' * 200}2-3", "If-None-Match: *", 'If-None-Match: "a", W/"b"'),
    *("If-Modified-Since: never", "If-Range: x", "Accept: text/event-stream", "Accept: nothing"),
    *("Accept-Encoding: gzip, br;q=nan", "Origin: http://evil.example", "Origin: null"),
    *("Host: evil.example", "Host: [::1", "Host:", "X-Forwarded-For: 1.2.3.4, \xff"),
    *("X-Forwarded-Proto: https", "Upgrade: websocket", "Connection: Upgrade", "Expect: magic"),
    *("Cookie: fedapa_token=x; ; =; a", "Cookie: " + "a=b; " * 300, "Authorization: Basic YTpi"),
    *("Authorization: Bearer", "Authorization: Bearer \xe9", f"Authorization: bearer {_TOKEN}"),
    *("X-Long: " + "y" * 9000, "Content-Type: application/json", "Last-Event-ID: 1e9"),
    *("Sec-Fetch-Site: cross-site", "Transfer-Encoding: gzip", "Content-Length: -1"),
    *("Content-Length: 99999999999", "Content-Length: 3", "Transfer-Encoding: chunked"),
)
_METHODS = ("GET",) * 12 + ("HEAD", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get", "X")
_WHOLE = re.compile(rb"[A-Z]+ /[^ \r\n]* HTTP/1\.1\r\n(?:[!-9;-~]+:[^\r\n]*\r\n)+\r\n")
_WAITS = re.compile(rb"\r\n(?:content-length|transfer-encoding|expect|upgrade):", re.IGNORECASE)
_MOST = 1 << 18
"""Bytes of an answer that are read; who goes away earlier is a client, too."""


class Http(Subject):
    """Requests with and without a token, through uvicorn.

    Most are whole requests with odd targets, values and headers, which the service itself reads;
    the others are damaged bytes, most of which its server refuses.
    """

    kind = "http"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        service = Telling([document_of("cafe"), document_of("big hall", synthetic=True)])
        run = begin(folder / "run")
        write(run, *(record(number) for number in range(1, 4)))
        self._site = Site(
            service,
            folder / "counts.db",
            token=_TOKEN,
            routers=[training_router(run)],
        )
        self._site.__enter__()
        self._site.remember("cafe", 1)
        self._bearer = f"Authorization: Bearer {_TOKEN}"
        self._cookie = f"Cookie: fedapa_token_{self._site.port}={_TOKEN}; other=1"
        self.seeds = [_request("GET", path, self._bearer) for path in _PATHS]
        self.seeds += [_request("GET", "/api/rooms", self._cookie), _request("GET", "/healthz")]
        self._begun_with = [
            *self.seeds,
            *(_request("GET", path, self._cookie) for path in _NOWHERE),
            _request("POST", "/api/rooms", self._cookie, body=b'{"a": 1}'),
            _request("HEAD", "/", self._cookie),
        ]

    def mutated(self, rng: random.Random) -> bytes:
        kind = rng.random()
        if kind < 0.6:
            return self._odd(rng)
        data = rng.choice(self._begun_with)
        if kind < 0.8:
            return mutate(data, rng, self._begun_with)
        for _ in range(rng.choice((1, 1, 2, 3))):
            line = data.find(b" HTTP")  # the target is what the service itself reads
            at = rng.randrange(4, line if line > 4 and rng.random() < 0.7 else len(data))
            piece = rng.choice(_PIECES)
            data = data[:at] + piece + data[at + rng.choice((0, 0, 1, 4)) :]
        return data

    def _odd(self, rng: random.Random) -> bytes:
        """A request in good form, mostly of somebody who may ask."""
        target = rng.choice(_TARGETS)
        target = target.replace("ROOM", rng.choice(_ROOMS)).replace("FILE", rng.choice(_FILES))
        if wanted := rng.choice((0, 1, 1, 2, 3)):
            asked = [f"{rng.choice(_NAMES)}={rng.choice(_VALUES)}" for _ in range(wanted)]
            target += "?" + "&".join(asked)
        headers = [rng.choice((self._bearer, self._bearer, self._cookie, "X-Nobody: 1"))]
        headers += [rng.choice(_HEADERS) for _ in range(rng.choice((0, 0, 1, 1, 3)))]
        body = rng.choice((b"", b"", b"", b"", b"{}", b"5\r\nhello\r\n0\r\n\r\n", b"\0" * 100))
        return _request(rng.choice(_METHODS), target, *headers, body=body)

    def attempt(self, data: bytes, rng: random.Random) -> str:
        whole = _WHOLE.fullmatch(data) is not None and not _WAITS.search(data)
        answer = b""
        place = ("127.0.0.1", self._site.port)
        with contextlib.suppress(ConnectionError), socket.create_connection(place, 60) as line:
            # An end of the headers, or nearly every damaged request would be waited for.
            line.sendall(data if whole else data + b"\r\n\r\n")
            line.settimeout(_PATIENCE if whole else _SOON)
            with contextlib.suppress(TimeoutError):
                answer = line.recv(65536)
            if not answer and not whole:  # it waits for more, which never comes
                line.settimeout(_PATIENCE)
                line.shutdown(socket.SHUT_WR)
                answer = line.recv(65536)
            if answer and whole:
                answer = _rest_of(answer, line, nothing=data.startswith(b"HEAD "))
        if not answer:
            assert not whole, "a whole request has no answer"
            return "refused"  # closed without a word: no request was seen
        assert answer.startswith(b"HTTP/1."), answer[:80]
        status = int(answer.split(b" ", 2)[1])
        assert status < 500 or status in (501, 503, 505), answer[:200]
        return "read" if status < 400 else "refused"

    def close(self) -> None:
        self._site.__exit__()


def _rest_of(answer: bytes, line: socket.socket, *, nothing: bool) -> bytes:
    """A whole answer, as long as it says; of one without an end its first bytes."""
    while b"\r\n\r\n" not in answer:
        more = line.recv(65536)
        assert more, f"cut off: {answer[:200]!r}"
        answer += more
    head, _, body = answer.partition(b"\r\n\r\n")
    said = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    if nothing or said is None:
        return answer
    missing = int(said[1]) - len(body)
    while missing > 0 and len(answer) < _MOST:
        more = line.recv(65536)
        assert more, f"{missing} bytes are missing: {answer[:200]!r}"
        answer += more
        missing -= len(more)
    return answer


def _request(method: str, path: str, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers]
    lines += [f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


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
