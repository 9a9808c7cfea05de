"""The proxy in front of the SuperLink: TLS, enrolled keys and a room's paths; nothing else passes.

The SuperLink has everything on one port, also what starts runs and registers keys, and asks nobody
there who he is. So it listens on loopback alone and rooms reach it through here. A request passes
if its path is one that a room needs, its key is enrolled and its clock is right; every other one is
refused with a reason, which is logged. The SuperLink checks the signature itself.

``GET /fedapa`` tells a room the server's time, release and app; ``GET /fedapa/KEY`` under what name
its key is enrolled.
"""

import base64
import datetime
import json
import ssl
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import httpx

from fedapa import __version__
from fedapa.federation.network.certificates import fingerprint
from fedapa.federation.network.server_folder import ServerFolder

__all__ = ["HELLO", "LARGEST_BODY", "PATHS", "Proxy", "clock_trouble", "validity_trouble"]

HELLO = "/fedapa"
PATHS = frozenset(
    f"/v1/fleet/{action}"
    for action in (
        "activate-node",
        "deactivate-node",
        "send-node-heartbeat",
        "pull-messages",
        "push-messages",
        "get-run",
        "get-fab",
        "push-object",
        "pull-object",
        "confirm-message-received",
    )
)
"""What a room needs. It registers by 'fedapa server enrol', never by itself."""
LARGEST_BODY = 32 * 2**20
"""Of one request; Flower cuts arrays into pieces of 5 MiB."""
_AHEAD, _BEHIND = 5.0, 300.0
"""Seconds that a room's clock may differ; Flower refuses more."""
_KEY, _TIME = b"flwr-public-key", b"flwr-timestamp"
_HOPS = frozenset([b"connection", b"host", b"keep-alive", b"transfer-encoding", b"content-length"])

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def clock_trouble(ahead: float) -> str:
    """What is wrong with a clock that is so many seconds ahead of the server's; mostly nothing."""
    if -_BEHIND < ahead < _AHEAD:
        return ""
    word = "ahead of" if ahead > 0 else "behind"
    return (
        f"the room's clock is {abs(ahead):.0f} s {word} the server's; set it, e.g. by 'timedatectl "
        "set-ntp true'"
    )


def validity_trouble(error: Exception) -> str:
    """What to say of a certificate that is not valid now: mostly the clock is wrong, not it."""
    if not any(word in str(error) for word in ("not yet valid", "has expired")):
        return ""
    now = time.strftime("%Y-%m-%d %H:%M")
    return (
        f"its certificate is not valid at this machine's time, {now} ({error}); set the clock, "
        "e.g. by 'timedatectl set-ntp true', or, where that is right, make a new server folder"
    )


class Proxy:
    """An ASGI application."""

    def __init__(self, server: ServerFolder, app_hash: str) -> None:
        self._server, self._hash = server, app_hash
        self._stamp = -1.0
        self._keys: dict[bytes, str] = {}
        context = ssl.create_default_context(cafile=str(server.authority))
        self._client = httpx.AsyncClient(
            base_url=f"https://{server.inner_address}",
            verify=context,
            timeout=httpx.Timeout(120, connect=5),
            limits=httpx.Limits(max_connections=None),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            if self._client is not None:
                await self._client.aclose()
            return
        if scope["type"] != "http":
            return
        path, method = str(scope["path"]), str(scope["method"])
        where = (scope.get("client") or ("",))[0]
        if path.startswith(HELLO) and method == "GET":
            await self._hello(path, where, send)
            return
        headers = dict(scope["headers"])
        twice = sum(name in (_KEY, _TIME) for name, _ in scope["headers"]) > 2
        if reason := "two keys or times" if twice else self._reason(path, method, headers):
            self._server.note_refused(reason, path=path[:80], address=where)
            status = 401 if path in PATHS else 403
            await _say(send, status, {"code": 0, "message": reason})
            return
        body = await _body(receive)
        if body is None:
            reason = f"a request of more than {LARGEST_BODY} bytes"
            room = self._room(headers)
            self._server.note_refused(reason, path=path, address=where, room=room)
            await _say(send, 413, {"code": 0, "message": reason})
            return
        await self._pass_on(path, scope, body, send)

    async def _hello(self, path: str, where: str, send: Send) -> None:
        key = path[len(HELLO) :].strip("/")
        if not key:
            about = {"time": time.time(), "release": __version__, "app": self._hash}
            await _say(send, 200, about)
            return
        names = {fingerprint(known): room for known, room in self._enrolled().items()}
        if key in names:
            await _say(send, 200, {"room": names[key]})
        elif key in self._server.expelled():
            self._server.note_refused(f"key {key} was expelled", path=HELLO, address=where)
            await _say(send, 410, {"message": "this key was expelled"})
        else:
            reason = f"key {key[:22]} is not enrolled"
            self._server.note_refused(reason, path=HELLO, address=where)
            await _say(send, 404, {"message": "this key is not enrolled"})

    def _reason(self, path: str, method: str, headers: dict[bytes, bytes]) -> str:
        """Why a request does not pass; nothing where it does."""
        if path not in PATHS or method != "POST":
            return "no path that a room needs"
        key = _public_key(headers)
        if key not in self._enrolled():
            return f"key {fingerprint(key)} is not enrolled" if key else "no key"
        try:
            told = datetime.datetime.fromisoformat(headers.get(_TIME, b"").decode("ascii"))
            return clock_trouble(told.timestamp() - time.time())
        except (ValueError, OverflowError):
            return "no time"

    def _room(self, headers: dict[bytes, bytes]) -> str:
        return self._enrolled().get(_public_key(headers), "")

    def _enrolled(self) -> dict[bytes, str]:
        if (stamp := self._server.stamp()) != self._stamp:
            self._keys, self._stamp = self._server.keys(), stamp
        return self._keys

    async def _pass_on(self, path: str, scope: Scope, body: bytes, send: Send) -> None:
        headers = [(name, value) for name, value in scope["headers"] if name not in _HOPS]
        try:
            answer = await self._client.post(path, content=body, headers=headers)
        except httpx.HTTPError:
            await _say(send, 502, {"code": 0, "message": "the SuperLink does not answer"})
            return
        kept = [(n.lower(), v) for n, v in answer.headers.raw if n.lower() not in _HOPS]
        # httpx has unpacked what was compressed.
        kept = [(name, value) for name, value in kept if name != b"content-encoding"]
        await _send(send, answer.status_code, answer.content, kept)


def _public_key(headers: dict[bytes, bytes]) -> bytes:
    try:
        return base64.b64decode(headers.get(_KEY, b""), validate=True)
    except ValueError:
        return b""


async def _body(receive: Receive) -> bytes | None:
    """What a request carries; none where it is too much, the rest unread."""
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        event = await receive()
        if event["type"] != "http.request":
            return b""
        part = event.get("body", b"")
        size += len(part)
        if size > LARGEST_BODY:
            return None
        parts.append(part)
        more = bool(event.get("more_body"))
    return b"".join(parts)


async def _say(send: Send, status: int, content: dict[str, Any]) -> None:
    body = json.dumps(content).encode()
    await _send(send, status, body, [(b"content-type", b"application/json")])


async def _send(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    headers = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        event = await receive()
        await send({"type": f"{event['type']}.complete"})
        if event["type"] == "lifespan.shutdown":
            return
