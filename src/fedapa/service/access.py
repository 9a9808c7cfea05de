"""Who may ask: this machine by its own names, others by a token.

On loopback the ``Host`` of every request must be a name of loopback: a page of another site whose
name was made to point here (DNS rebinding) has another. With a token every request must have it:
``Authorization: Bearer TOKEN``, or the cookie that ``/?token=TOKEN`` sets once. Browsers keep
cookies by host, whatever the port, so its name has the port: one host may have two services. Only
``/healthz`` answers without, and then says no more than its status. Every answer forbids browsers
to load anything from elsewhere.
"""

import hmac
import ipaddress
import secrets
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedapa.errors import PlanError

__all__ = ["Guard", "check_token", "is_loopback", "make_token"]

_SHORTEST = 16
"""Characters of a token."""
_HEADERS = {
    # Plotly styles its charts itself; scripts come from files of ours only.
    "content-security-policy": "default-src 'self'; img-src 'self' data: blob:; "
    "style-src 'self' 'unsafe-inline'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches that address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def make_token() -> str:
    """A token that nobody guesses."""
    return secrets.token_urlsafe(24)


def check_token(token: str) -> None:
    """Refuse one that is soon guessed, or that no header can hold."""
    if len(token) < _SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise PlanError(
            f"the access token has {len(token)} characters; choose {_SHORTEST} or more, without "
            "spaces, in plain letters and digits"
        )


class Guard:
    """Stands in front of the service."""

    def __init__(self, app: ASGIApp, *, token: str | None = None, loopback: bool = True) -> None:
        """A guard.

        Args:
            app: what it stands in front of.
            token: that every request must have; None: none.
            loopback: only this machine can ask, so that requests must be for its own names.
        """
        self._app, self._token, self._loopback = app, token, loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, redirect or refuse a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._refusal(scope)
        await (answer or self._app)(scope, receive, marked)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if self._loopback and not _is_own_name(headers.get("host", "")):
            return PlainTextResponse(
                "This address is for names of this machine alone: localhost or 127.0.0.1.\n", 421
            )
        if self._token is None:
            scope.setdefault("state", {})["trusted"] = True
            return None
        asked = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))
        if scope["method"] == "GET" and self._is_token(asked.get("token", "")):
            return self._welcome(scope, asked)
        trusted = self._is_token(_bearer(headers)) or self._is_token(_cookie(scope, headers))
        scope.setdefault("state", {})["trusted"] = trusted
        if trusted or scope["path"] == "/healthz":
            return None
        return PlainTextResponse(
            "An access token is needed: open /?token=TOKEN once, or send it as 'Authorization: "
            "Bearer TOKEN'. 'fedapa serve' printed it, or it is in FEDAPA_TOKEN there.\n",
            401,
            {"www-authenticate": "Bearer"},
        )

    def _is_token(self, given: str) -> bool:
        assert self._token is not None
        return hmac.compare_digest(given.encode(), self._token.encode())

    def _welcome(self, scope: Scope, asked: dict[str, str]) -> Response:
        """Keep the token in a cookie and take it out of the address."""
        rest = urlencode({name: value for name, value in asked.items() if name != "token"})
        path = "/" + scope["path"].lstrip("/")  # "//host" would be another site
        answer = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
        assert self._token is not None
        name = _cookie_name(scope)
        answer.set_cookie(name, self._token, httponly=True, samesite="strict", path="/")
        return answer


def _is_own_name(host: str) -> bool:
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    return is_loopback(name.lower())


def _bearer(headers: Headers) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _cookie_name(scope: Scope) -> str:
    _, port = scope.get("server") or ("", None)
    return f"fedapa_token_{port}" if port else "fedapa_token"  # a socket of the system has none


def _cookie(scope: Scope, headers: Headers) -> str:
    try:
        kept = SimpleCookie(headers.get("cookie", "")).get(_cookie_name(scope))
    except CookieError:
        return ""
    return "" if kept is None else kept.value
