"""``fedapa serve`` from end to end: options become rooms, and rooms are served until a signal.

Mistakes are told before anything starts: a run that is not there, a source that cannot be, a port
in use. What may come back by itself is no mistake: a serial or TCP receiver that is away makes its
room ``unavailable`` and is tried again.
"""

import contextlib
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from fedapa.errors import PlanError, SourceError, nearest
from fedapa.service.access import check_token, is_loopback, make_token
from fedapa.service.app import create_app
from fedapa.service.counter import CounterSettings
from fedapa.service.history import History
from fedapa.service.model_watch import ModelWatch, simulated_from, watch_rooms
from fedapa.service.serving import RoomServer, ServedRoom
from fedapa.service.sources import (
    CaptureFile,
    Esp32Serial,
    Esp32Tcp,
    NexmonUdp,
    SimulatedVisits,
    Source,
)
from fedapa.service.spelling import KINDS, spelled
from fedapa.service.training import training_router

if TYPE_CHECKING:
    from fedapa.service.mqtt import MqttPublisher, MqttSettings

__all__ = ["Serving", "made_rooms", "serve_until_stopped"]

_MOST_ROOMS = 100
_DRAIN = 2
"""s that open connections may take to end."""


@dataclass(frozen=True, kw_only=True)
class Serving:
    """What is to be served, and where."""

    run: Path
    sources: Sequence[str]
    """Each [ROOM=]SOURCE; none: nobody is counted, the run's training is shown."""
    rooms: Sequence[str] = ()
    """Only these; none: all that have a source."""
    host: str = "127.0.0.1"
    port: int = 8080
    token: str | None = None
    settings: CounterSettings = field(default_factory=CounterSettings)
    history: Path | None = None
    """None: beside the models."""
    keep: float = 7.0
    """Days."""
    chip: str | None = None
    mqtt: "MqttSettings | None" = None
    """The broker that is told of counts; None: none."""


def serve_until_stopped(serving: Serving, say: Callable[[str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM, then end in order."""
    loopback = is_loopback(serving.host)
    token, new_token = serving.token or None, False
    if token is not None:
        check_token(token)
    elif not loopback:
        token, new_token = make_token(), True
    history = None
    if serving.sources:  # else nobody is counted, and a folder whose run begins later stays empty
        history = History(serving.history or _history_beside(serving.run), days=serving.keep)
    rooms = made_rooms(serving)
    server = RoomServer(rooms)
    with contextlib.ExitStack() as ends:
        for room in rooms:
            ends.callback(room.close)
        listening = ends.enter_context(_bound(serving.host, serving.port))
        publisher = _publisher(serving.mqtt, server, say)
        app = create_app(
            server,
            history=history,
            publisher=publisher,
            token=token,
            loopback=loopback,
            routers=[training_router(serving.run)],
        )
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=_DRAIN,
            ws="none",  # there are none; by default uvicorn imports a deprecated library for them
        )
        ends.enter_context(_ended_by_signals())
        if history is not None:
            ends.enter_context(history)
            ends.callback(server.listen(history.add))
        if publisher is not None:
            ends.enter_context(publisher)
            ends.callback(server.listen(publisher.publish))
        ends.enter_context(server)
        if publisher is not None:
            for document in server.documents():  # rooms that cannot be counted yet are there, too
                publisher.publish(document)
        for sentence in _greeting(server, serving, listening, token if new_token else None):
            say(sentence)
        uvicorn.Server(config).run(sockets=[listening])
    say("stopped")


def _publisher(
    settings: "MqttSettings | None", server: RoomServer, say: Callable[[str], None]
) -> "MqttPublisher | None":
    if settings is None:
        return None
    from fedapa.service.mqtt import MqttPublisher  # an extra of its own

    return MqttPublisher(settings, server.rooms, say=say)


def made_rooms(serving: Serving) -> list[ServedRoom]:
    """The rooms with their sources, each checked as far as can be before it starts."""
    if not serving.sources:
        _check_only_training(serving)
        return []
    watches = watch_rooms(serving.run, list(serving.rooms) or None)
    chosen = _assigned(serving.sources, watches, only=bool(serving.rooms))
    if len(chosen) > _MOST_ROOMS:
        raise PlanError(
            f"{len(chosen)} rooms; one process serves {_MOST_ROOMS}, choose some with --room"
        )
    made: list[ServedRoom] = []
    try:
        for name, spec in chosen.items():
            source = _source(name, spec, serving)
            made.append(ServedRoom(name, watches[name], source, serving.settings))
    except Exception:
        for room in made:
            room.close()
        raise
    return made


def _check_only_training(serving: Serving) -> None:
    """Refuse what means nothing where nobody is counted."""
    given = {"--room": serving.rooms, "--mqtt": serving.mqtt, "--history": serving.history}
    for option, value in given.items():
        if value:
            raise PlanError(f"{option}: nobody is counted without --source, e.g. simulator")


def _assigned(
    specs: Sequence[str], watches: Mapping[str, ModelWatch], *, only: bool
) -> dict[str, str]:
    """Room → source, of those that have one; a source without a name is for the rooms left."""
    given: dict[str, str] = {}
    # Names of files have "=" in them, too.
    named = {
        text: next((name for name in watches if text.startswith(f"{name}=")), "") for text in specs
    }
    for text in sorted(specs, key=lambda text: not named[text]):  # those with a name first
        room = named[text]
        spec = text[len(room) + 1 :] if room else text
        plain = text.partition(":")[0] in KINDS or Path(text).exists()
        if not room and not plain and "=" in text:
            wrong = text.partition("=")[0]
            raise PlanError(
                f"--source {text}: there is no room '{wrong}'; {nearest(wrong, watches)}"
            )
        names = [room] if room else [name for name in watches if name not in given]
        if room in given:
            raise PlanError(f"--source {text}: room '{room}' has a source already, {given[room]}")
        if not names:
            raise PlanError(f"--source {text}: every room has a source already; leave it out")
        if len(names) > 1 and spec.partition(":")[0] != "simulator":
            raise PlanError(
                f"--source {text}: is for one room, and there are {len(names)} "
                f"({', '.join(names)}); say --source ROOM={spec}, once for each room"
            )
        given |= dict.fromkeys(names, spec)
    if only and (without := [name for name in watches if name not in given]):
        raise PlanError(
            f"--room {without[0]}: has no source; say --source '{without[0]}=udp:5500' or another"
        )
    return {name: given[name] for name in watches if name in given}


def _source(room: str, spec: str, serving: Serving) -> Source:
    """The source that a spec names; what cannot work is raised at once.

    A serial or TCP receiver may be away and come back: it is waited for.
    """
    asked = spelled(spec)
    if asked.kind == "simulator":
        return _simulated(room, asked.place, serving.run)
    if asked.kind == "udp":
        return NexmonUdp(asked.port, address=asked.place, chip=serving.chip)
    if asked.kind == "tcp":
        return Esp32Tcp(asked.place, asked.port, patient=True)
    if asked.kind == "serial":
        return Esp32Serial(asked.place, patient=True)
    return CaptureFile(asked.place, chip=serving.chip)


def _simulated(room: str, preset: str, run: Path) -> Source:
    learned = simulated_from(run)
    chosen = preset or (learned[0] if learned else "quick")
    seed = learned[1] if learned else 0
    try:
        return SimulatedVisits(room, preset=chosen, seed=seed)
    except PlanError as error:
        raise PlanError(
            f"--source simulator: {error}; a room of yours has packets of its own: --source "
            f"'{room}=udp:5500', a serial device, TCP or a file"
        ) from error


def _history_beside(run: Path) -> Path:
    return run / "live" / "counts.db" if run.is_dir() else run.with_suffix(".counts.db")


@contextlib.contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    """A socket at the address, before anything else starts."""
    place = f"{host}:{port}"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise SourceError(f"--host {host}: is no address ({error.strerror or error})") from error
    with contextlib.closing(listening):
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(100)
        except OSError as error:
            raise SourceError(
                f"{place}: cannot be served at ({error.strerror or error}); end what uses the "
                "port, or choose another with --port"
            ) from error
        yield listening


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Ctrl-C and SIGTERM end the block; whatever was entered in it is left in order."""

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _greeting(
    server: RoomServer, serving: Serving, listening: socket.socket, new_token: str | None
) -> Iterator[str]:
    """What people should know, the address first."""
    port = listening.getsockname()[1]
    # "localhost" may be either of two addresses, and only one is listened at.
    host = listening.getsockname()[0] if serving.host == "localhost" else serving.host
    shown = f"[{host}]" if ":" in host else host
    if shown in ("0.0.0.0", "[::]"):
        shown = socket.gethostname()
    documents = server.documents()
    simulated = [one["room"] for one in documents if one["synthetic"]]
    kind = "" if not simulated else " SIMULATED" if len(simulated) == len(documents) else ""
    address = f"http://{shown}:{port}/{f'?token={new_token}' if new_token else ''}"
    if documents:
        rooms = f"room{'s' if len(documents) > 1 else ''} ({', '.join(server.rooms)})"
        yield f"{len(documents)}{kind} {rooms}: {address}"
    else:
        yield f"Training of {serving.run.resolve().name}: {address}#/training"
        yield "Nobody is counted; that needs --source, e.g. --source simulator"
        if not serving.run.exists():  # it may be started before the run
            yield (
                f"{serving.run}: there is no run yet; the page waits for: fedapa run --out "
                f"{serving.run}"
            )
    if simulated and not kind:
        yield f"SIMULATED, packets or model: {', '.join(simulated)}"
    if new_token:
        yield (
            "That address has a new access token, shown once: set FEDAPA_TOKEN to keep one. It "
            "crosses the network unencrypted; in front of others put a proxy with TLS."
        )
    for one in documents:
        if one["model_problem"]:
            yield f"room '{one['room']}': {one['model_problem']}"
    yield "Ctrl-C ends it."
