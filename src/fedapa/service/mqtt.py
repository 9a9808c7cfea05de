"""MqttPublisher: tells a broker of every room's counts, in the words of ``home_assistant``.

Counting never waits for it. ``publish`` keeps the newest document of a room and returns; a thread
of its own talks to the broker, and where that is slow or away, older counts are left out. Each
connection is a new client, since one that reconnects would first deliver what it still held::

    with MqttPublisher(MqttSettings.at("broker.lan"), rooms=["kitchen"]) as publisher:
        server.listen(publisher.publish)
"""

import contextlib
import os
import secrets
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from fedapa.errors import PlanError
from fedapa.service.home_assistant import (
    OFFLINE,
    ONLINE,
    Topics,
    discovery_of,
    free_slug,
    is_ours,
    state_of,
)

__all__ = ["PASSWORD_VARIABLE", "MqttHealth", "MqttPublisher", "MqttSettings", "read_password"]

PASSWORD_VARIABLE = "FEDAPA_MQTT_PASSWORD"
_PORT, _TLS_PORT = 1883, 8883
_KEEPALIVE = 20
"""s: after one and a half of them without a sign the broker says the last will."""
_WAITS = (1.0, 60.0)
"""s before the next try: at first, and at most."""
_STEADY = 10.0
"""s that a connection has to last until the next wait is a short one again."""
_ANSWER = 10.0
"""s in which a broker has to answer a greeting."""
_FAREWELL = 2.0
"""s in which it has to take note of the end."""
_SETTLED = 1.0
"""s after which everything retained has come that there was."""
_IN_FLIGHT = 20
"""Messages that wait for the broker's word; meanwhile newer counts replace older ones."""


@dataclass(frozen=True, kw_only=True)
class MqttSettings:
    """Where the broker is, who we are to it, and under which topics we speak."""

    host: str
    port: int = _PORT
    user: str = ""
    password: str = field(default="", repr=False)
    tls: bool = False
    ca: Path | None = None
    """The certificate of the authority that signed the broker's; without it, the system's."""
    topics: Topics = field(default_factory=Topics)
    expire_after: int = 60
    """s without a count, after which Home Assistant shows none."""

    def __post_init__(self) -> None:
        if not self.host or not 0 < self.port < 65536:
            raise PlanError(
                f"MQTT broker {self.host}:{self.port}: write HOST or HOST:PORT with a port from 1 "
                "to 65535"
            )
        if self.password and not self.user:
            raise PlanError("an MQTT password needs a user name; give --mqtt-user")
        if self.expire_after < 1:
            raise PlanError(f"expire_after = {self.expire_after}; choose 1 second or more")

    @classmethod
    def at(
        cls,
        address: str,
        *,
        user: str = "",
        password: str = "",
        tls: bool = False,
        ca: Path | None = None,
        topics: Topics | None = None,
        expire_after: int = 60,
    ) -> Self:
        """Settings for ``HOST`` or ``HOST:PORT``; an authority's certificate asks for TLS."""
        tls = tls or ca is not None
        host, port = _split(address)
        return cls(
            host=host,
            port=port if port is not None else _TLS_PORT if tls else _PORT,
            user=user,
            password=password,
            tls=tls,
            ca=ca,
            topics=topics or Topics(),
            expire_after=expire_after,
        )

    @property
    def broker(self) -> str:
        """For people."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def context(self) -> ssl.SSLContext | None:
        """Whom to trust; None without TLS."""
        if not self.tls:
            return None
        try:
            return ssl.create_default_context(cafile=self.ca)
        except OSError as error:  # SSLError is one
            raise PlanError(
                f"{self.ca}: no certificate can be read ({error.strerror or error}); give the "
                "authority's in PEM format"
            ) from error


def _split(address: str) -> tuple[str, int | None]:
    """Host and port of ``host``, ``host:1883``, ``::1`` or ``[::1]:1883``."""
    wrong = PlanError(f"MQTT broker {address!r}: write HOST or HOST:PORT, e.g. broker.lan:1883")
    if "://" in address or "/" in address or "@" in address:
        raise wrong
    if address.startswith("["):
        host, _, rest = address[1:].partition("]")
    elif address.count(":") > 1:
        host, rest = address, ""
    else:
        host, colon, port = address.partition(":")
        rest = colon + port
    if not rest:
        return host, None
    if not rest.startswith(":") or not rest[1:].isascii() or not rest[1:].isdigit():
        raise wrong
    return host, int(rest[1:])


def read_password(file: Path | None, environment: Mapping[str, str] = os.environ) -> str:
    """The first line of a file, else what the environment has; ps would show an argument."""
    if file is None:
        return environment.get(PASSWORD_VARIABLE, "")
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"{file}: the MQTT password cannot be read: {error}") from error
    if not lines or not lines[0]:
        raise PlanError(f"{file}: the first line is empty; write the MQTT password there")
    return lines[0]


@dataclass(frozen=True)
class MqttHealth:
    """How it goes with the broker."""

    broker: str
    connected: bool = False
    problem: str = "not connected yet"
    """Why it is not connected, in words; nothing where it is."""
    since: float = 0.0
    """s since 1970: when that began."""
    published: int = 0
    """Messages that the broker has acknowledged."""

    def document(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


@dataclass
class _Room:
    """What is known of a room, and what the broker was told of it."""

    slug: str
    document: Mapping[str, Any] | None = None
    received: float = 0.0
    """When the document came, on a clock that nobody sets."""
    gone: bool = False
    config: bytes = b""
    availability: bytes = b""

    def forget(self) -> None:
        """Whoever listens now was told nothing."""
        self.config = self.availability = b""


class _Line:
    """One connection: a client, and what it has heard."""

    def __init__(
        self, settings: MqttSettings, name: str, heard: Callable[[MQTTMessage], None]
    ) -> None:
        self._settings = settings
        self._heard = heard
        self.answer: ReasonCode | None = None
        self.unacknowledged: set[int] = set()
        self.acknowledged = 0
        made = Client(CallbackAPIVersion.VERSION2, client_id=name, reconnect_on_failure=False)
        if settings.user:
            made.username_pw_set(settings.user, settings.password or None)
        if context := settings.context():
            made.tls_set_context(context)
        made.will_set(settings.topics.status, OFFLINE, qos=1, retain=True)
        made.on_connect = self._answered
        made.on_publish = self._took
        made.on_message = self._got
        made.on_disconnect = self._ended
        self._client = made

    def open(self) -> None:
        """Connect and greet; the answer comes later."""
        self._client.connect(self._settings.host, self._settings.port, keepalive=_KEEPALIVE)

    @property
    def is_open(self) -> bool:
        return self._client.socket() is not None

    def close(self) -> None:
        """In good order: the broker keeps the will for itself."""
        with contextlib.suppress(OSError):
            self._client.disconnect()

    def send(self, topic: str, payload: bytes, retain: bool) -> None:
        info = self._client.publish(topic, payload, qos=1, retain=retain)
        self.unacknowledged.add(info.mid)

    def subscribe(self, *topics: str) -> None:
        self._client.subscribe([(topic, 1) for topic in topics])

    def turn(self, seconds: float, bell: socket.socket) -> None:
        """Read and write what there is; wait so long, or until the bell rings."""
        line = self._client.socket()
        if line is None:
            return
        # What TLS has already taken from the socket is not seen by select.
        held = isinstance(line, ssl.SSLSocket) and line.pending() > 0
        writing = [line] if self._client.want_write() else []
        readable, writable, _ = select.select([line, bell], writing, [], 0 if held else seconds)
        if bell in readable:
            bell.recv(4096)
        if held or line in readable:
            self._client.loop_read()
        if line in writable:
            self._client.loop_write()
        self._client.loop_misc()

    # Callbacks of the client, on the thread that turns.

    def _answered(
        self, _: Client, __: Any, flags: ConnectFlags, answer: ReasonCode, ___: Properties | None
    ) -> None:
        self.answer = answer

    def _took(
        self, _: Client, __: Any, message: int, reason: ReasonCode, ___: Properties | None
    ) -> None:
        self.unacknowledged.discard(message)
        self.acknowledged += 1

    def _got(self, _: Client, __: Any, message: MQTTMessage) -> None:
        self._heard(message)

    def _ended(
        self, _: Client, __: Any, flags: DisconnectFlags, reason: ReasonCode, ___: Properties | None
    ) -> None:
        self.unacknowledged.clear()


def _nobody_hears(sentence: str) -> None:
    pass


class MqttPublisher:
    """Tells a broker of counts, and goes on telling whatever becomes of the broker."""

    def __init__(
        self,
        settings: MqttSettings,
        rooms: Iterable[str] | None = None,
        *,
        say: Callable[[str], None] = _nobody_hears,
    ) -> None:
        """Who knows all ``rooms`` names them: what is left at the broker of others is removed."""
        settings.context()  # a certificate that cannot be read is told now
        self.settings, self._say = settings, say
        self._topics = settings.topics
        self._lock = threading.Lock()
        self._rooms: dict[str, _Room] = {}
        self._owed: dict[str | None, None] = {}
        """Rooms of which there is something to tell, in order; None is the service itself."""
        self._removes = rooms is not None
        for room in sorted(rooms or ()):  # of names that come to the same always the same is first
            self._add(room)
        # The same after every break: the broker then drops the line before it, will and all.
        self._name = f"fedapa-{secrets.token_hex(6)}"
        self._bell, self._rope = socket.socketpair()
        for end in (self._bell, self._rope):
            end.setblocking(False)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="mqtt", daemon=True)
        self._health = MqttHealth(settings.broker, since=time.time())
        self._line: _Line | None = None
        self._published = 0
        self._online = False
        self._first = True
        """Nothing at the broker is of this process yet."""
        self._rival = False
        self._settled = 0.0
        self._leftovers: set[str] = set()

    # ---- for those who count: nothing here waits ------------------------------------------------

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def publish(self, document: Mapping[str, Any]) -> None:
        """Tell of a count as soon as that can be, unless a newer one of the room comes before."""
        with self._lock:
            room = self._rooms.get(document["room"]) or self._add(document["room"])
            room.document, room.received, room.gone = document, time.monotonic(), False
            self._owed[document["room"]] = None
        self._ring()

    def remove(self, room: str) -> None:
        """A room is no longer served: its device disappears."""
        with self._lock:
            if room not in self._rooms:
                return
            self._rooms[room].gone = True
            self._owed[room] = None
        self._ring()

    @property
    def health(self) -> MqttHealth:
        """How it goes with the broker."""
        with self._lock:
            known = self._health
            count = self._published + (self._line.acknowledged if self._line else 0)
        return MqttHealth(known.broker, known.connected, known.problem, known.since, count)

    def stop(self) -> None:
        """Say ``offline`` and leave; after a few seconds leave without."""
        self._stopping.set()
        self._ring()
        if self._thread.is_alive():
            self._thread.join(_FAREWELL + 4)
        if not self._thread.is_alive():
            self._bell.close()
            self._rope.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _add(self, room: str) -> _Room:
        self._rooms[room] = _Room(free_slug(room, {known.slug for known in self._rooms.values()}))
        return self._rooms[room]

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # it rings already, or nobody is there any more
            self._rope.send(b".")

    # ---- the thread -----------------------------------------------------------------------------

    def _work(self) -> None:
        shortest, longest = _WAITS
        wait = shortest
        while not self._stopping.is_set():
            begun = time.monotonic()
            try:
                problem = self._connection()
            except Exception as error:  # whatever a broker sends, the next connection may be good
                problem = f"unexpected {type(error).__name__}: {error}"
            finally:
                self._online = False
            if self._stopping.is_set():
                return
            self._note(problem)
            wait = shortest if time.monotonic() - begun > _STEADY else wait
            self._stopping.wait(wait)
            wait = min(2 * wait, longest)

    def _connection(self) -> str:
        """From the greeting to the end; why it ended, in words."""
        line = _Line(self.settings, self._name, self._hear)
        try:
            line.open()
        except (OSError, ValueError) as error:
            return _in_words(error, self.settings)
        with self._lock:
            self._line = line
        try:
            if refusal := self._refusal(line):
                return refusal
            self._note("")
            self._welcome(line)
            while line.is_open:
                if self._stopping.is_set():
                    self._leave(line)
                    return ""
                self._tidy(line)
                self._tell(line)
                line.turn(1.0, self._bell)
            return "the broker ended the connection"
        finally:
            self._first = self._first and line.answer is None
            line.close()
            with self._lock:
                self._published += line.acknowledged
                self._line = None

    def _refusal(self, line: _Line) -> str:
        end = time.monotonic() + _ANSWER
        while line.answer is None and line.is_open and not self._stopping.is_set():
            if time.monotonic() > end:
                return f"no answer within {_ANSWER:g} s; is that the port of an MQTT broker?"
            line.turn(0.5, self._bell)
        if line.answer is None:
            hint = "" if self.settings.tls else ", and does it want TLS (--mqtt-tls, --mqtt-ca)"
            return f"the connection ended before an answer; is it the right port{hint}?"
        if not line.answer.is_failure:
            return ""
        said = str(line.answer).lower()
        if said not in ("not authorized", "bad user name or password"):
            return f"the broker refuses us: {said}"
        if not self.settings.user:
            return "the broker asks for a user name; give --mqtt-user and --mqtt-password-file"
        return (
            f"the broker refuses user '{self.settings.user}' or the password ({said}); mend "
            "--mqtt-user or the password"
        )

    def _welcome(self, line: _Line) -> None:
        """After each connection: everything again, for the broker may have lost it."""
        topics = self._topics
        self._settled = time.monotonic() + _SETTLED
        line.subscribe(topics.status, topics.birth)
        if self._first and self._removes:
            line.subscribe(topics.configs)
        with self._lock:
            for room in self._rooms.values():
                room.forget()
            # Rooms first: when the service comes online, no room shows what it was before.
            self._owed = {**dict.fromkeys(self._rooms), None: None}
        self._online = True

    def _hear(self, message: MQTTMessage) -> None:
        topics = self._topics
        if message.topic == topics.birth and message.payload == ONLINE:
            with self._lock:
                for room in self._rooms.values():
                    room.forget()
                self._owed |= dict.fromkeys(self._rooms)
        elif message.topic == topics.status:
            if message.retain and message.payload == ONLINE and self._first:
                self._rival = True
            elif not message.retain and message.payload == OFFLINE and self._online:
                # The will of a line that broke long ago, or a second service that ended.
                with self._lock:
                    self._owed[None] = None
        elif message.retain and is_ours(topics, bytes(message.payload)):
            self._leftovers.add(topics.slug_of(message.topic))

    def _tidy(self, line: _Line) -> None:
        """Remove rooms of former times, once, unless somebody else serves them."""
        if not self._first or time.monotonic() < self._settled:
            return
        self._first = False
        if self._rival:
            self._say(
                f"MQTT {self.settings.broker}: {self._topics.status} said online before we came; "
                "if a second service uses this prefix, give one of them another (--mqtt-prefix)"
            )
            return
        with self._lock:
            known = {room.slug for room in self._rooms.values()}
        for slug in sorted(self._leftovers - known - {""}):
            for topic in (self._topics.config(slug), self._topics.availability(slug)):
                line.send(topic, b"", True)

    def _tell(self, line: _Line) -> None:
        while line.is_open and len(line.unacknowledged) < _IN_FLIGHT:
            with self._lock:
                if not self._owed:
                    return
                room = next(iter(self._owed))
                del self._owed[room]
                messages = self._messages(room)
            for topic, payload, retain in messages:
                line.send(topic, payload, retain)

    def _messages(self, name: str | None) -> list[tuple[str, bytes, bool]]:
        """What there is to tell: topic, payload, whether the broker keeps it."""
        topics = self._topics
        if name is None:
            return [(topics.status, ONLINE, True)]
        room = self._rooms[name]
        config, availability = topics.config(room.slug), topics.availability(room.slug)
        if room.gone:
            del self._rooms[name]
            return [(config, b"", True), (availability, b"", True)]
        made: list[tuple[str, bytes, bool]] = []
        state = None
        if room.document is not None:
            device = discovery_of(
                topics,
                room.slug,
                name,
                synthetic=bool(room.document.get("synthetic")),
                expire_after=self.settings.expire_after,
            )
            if device != room.config:
                room.config = device
                made.append((config, device, True))
            if time.monotonic() - room.received < self.settings.expire_after:
                state = state_of(room.document)
        # The count before "online": else the one of before the silence would be seen again.
        if state is not None:
            made.append((topics.state(room.slug), state, False))
        here = OFFLINE if state is None else ONLINE
        if here != room.availability:
            room.availability = here
            made.append((availability, here, True))
        return made

    def _leave(self, line: _Line) -> None:
        with self._lock:
            slugs = [room.slug for room in self._rooms.values()]
        for topic in (*map(self._topics.availability, slugs), self._topics.status):
            line.send(topic, OFFLINE, True)
        end = time.monotonic() + _FAREWELL
        while line.unacknowledged and line.is_open and time.monotonic() < end:
            line.turn(0.1, self._bell)

    def _note(self, problem: str) -> None:
        """Keep how it goes; say it where it changed."""
        with self._lock:
            before = self._health
            if (before.connected, before.problem) == (not problem, problem):
                return
            self._health = MqttHealth(before.broker, not problem, problem, time.time())
        if problem:
            now, later = _WAITS
            rest = f"counting goes on, next tries after {now:g} to {later:g} s"
            self._say(f"MQTT {before.broker}: {problem}; {rest}")
        else:
            self._say(f"MQTT {before.broker}: connected; Home Assistant is told of every count")


def _in_words(error: Exception, settings: MqttSettings) -> str:
    """Why no connection could be made."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted ({error.verify_message}); give the certificate of its "
            "authority with --mqtt-ca"
        )
    if isinstance(error, ssl.SSLError):
        return f"TLS cannot be agreed on ({error.reason or error}); is that its port for TLS?"
    if isinstance(error, socket.gaierror | UnicodeError):
        return f"the host name '{settings.host}' is not known; mend --mqtt or the name server"
    if isinstance(error, ConnectionRefusedError):
        return "no broker listens there; start it or mend the port"
    if isinstance(error, TimeoutError):
        return "nobody answers there; check the address and the firewall"
    return str(getattr(error, "strerror", None) or error)
