"""Rooms that say what a test has them say, served by the real app on loopback."""

import math
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self, cast

import uvicorn

from fedapa.service.app import create_app
from fedapa.service.history import History
from fedapa.service.serving import Document, Durations, RoomServer


def document_of(room: str, **changes: Any) -> Document:
    """A room that counts 3 people, once a minute: slow tests do not make its count an old one."""
    belief = [0.02, 0.06, 0.2, 0.55, 0.12, 0.05]
    model = {
        "algorithm": "fedapa",
        "round": 20,
        "hash": "0123456789ab",
        "path": f"{room}.safetensors",
        "classes": [0, 1, 2, 3, 4, 5],
    }
    told = {
        "room": room,
        "state": "counting",
        "reason": "",
        "count": 3,
        "lo": 2,
        "hi": 4,
        "confidence": 0.55,
        "raw": 3,
        "people": list(range(6)),
        "belief": belief,
        "time": time.time(),
        "synthetic": False,
        "true_people": None,
        "rate": 99.6,
        "packets": 1234,
        "skipped": {},
        "problem": "",
        "source": "UDP 5500",
        "every": 60.0,
        "model": model,
        "model_problem": "",
    }
    return {**told, **changes}


def silent(reason: str = "no packets for 10 s") -> dict[str, Any]:
    """What an unavailable room says."""
    nothing = dict.fromkeys(("count", "lo", "hi", "confidence", "raw"))
    return {
        **nothing,
        "state": "unavailable",
        "reason": reason,
        "people": [],
        "belief": [],
        "rate": 0.0,
    }


class TellingRoom:
    """Stands for a ``ServedRoom``."""

    def __init__(self, told: Document) -> None:
        self.told = told
        self.inference = Durations()
        self.dropped: dict[str, int] = {}
        self.models_taken, self.models_refused = 1, 0

    def document(self) -> Document:
        return self.told

    def waterfall(self, seconds: float) -> Document:
        """Slow waves over 64 subcarriers, ten packets a second, until the room is silent."""
        packets = 0 if self.told["state"] == "unavailable" else round(10 * seconds)
        times = [time.time() - (packets - 1 - place) / 10 for place in range(packets)]
        subcarriers = list(range(-122, 123, 4))
        levels = [
            [10 * math.sin(0.03 * place + moment) - abs(place) / 12 for place in subcarriers]
            for moment in times
        ]
        told = {"times": times, "subcarriers": subcarriers, "amplitude_db": levels}
        return {"room": self.told["room"], **told}


class Telling:
    """Stands for a ``RoomServer``: counts nothing, says what it is told, to all who listen."""

    behind = stalled = 0.0

    def __init__(self, documents: Sequence[Document]) -> None:
        self.rooms = {told["room"]: TellingRoom(told) for told in documents}
        self.started = time.time()
        self._listeners: list[Callable[[Document], None]] = []

    def listen(self, callback: Callable[[Document], None]) -> Callable[[], None]:
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    def documents(self) -> list[Document]:
        return [room.document() for room in self.rooms.values()]

    def wall_time(self) -> float:
        return time.time()

    def tell(self, room: str, **changes: Any) -> None:
        """A new count of a room."""
        told = {**self.rooms[room].told, "time": time.time(), **changes}
        self.rooms[room].told = told
        for listener in list(self._listeners):
            listener(told)


class Site:
    """The app on a free port of loopback; it can go away and come back to the same port."""

    def __init__(
        self, service: Telling | RoomServer, history: Path | None = None, **settings: Any
    ) -> None:
        self.service, self._settings = service, settings
        self.history = None if history is None else History(history)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}/"

    def __enter__(self) -> Self:
        if self.history is not None:
            self.history.start()
        self.up()
        return self

    def __exit__(self, *error: object) -> None:
        self.down()
        if self.history is not None:
            self.history.stop()

    def up(self) -> None:
        """Serve, again if it was down."""
        if self._listening.fileno() < 0:
            self._listening = socket.create_server(("127.0.0.1", self.port))
        service = cast(RoomServer, self.service)
        app = create_app(service, history=self.history, **self._settings)
        config = uvicorn.Config(
            app, log_level="error", lifespan="off", ws="none", timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._listening]}, daemon=True
        )
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive(), "the app did not start"
            time.sleep(0.01)

    def down(self) -> None:
        """End every connection, as a service that is stopped does."""
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(timeout=10)
        self._listening.close()

    def remember(self, room: str, hours: float, *, simulated: bool = False) -> None:
        """A history of visits: a wave of people, a while of silence, some counts unsure."""
        assert self.history is not None
        every = max(5.0, 3600 * hours / 1500)
        for step in range(int(3600 * hours / every), 0, -1):
            moment = time.time() - step * every
            people = max(0, round(2.5 + 3 * math.sin(moment / (600 * hours))))
            off = (step // 40) % 5 == 4
            told = {
                "count": max(0, people - off),
                "lo": max(0, people - 1),
                "hi": people + 1,
                "true_people": people if simulated else None,
                "synthetic": simulated,
                "state": "unsure" if off else "counting",
            }
            gone = silent() if 0.55 < step * every / (3600 * hours) < 0.62 else {}
            self.history.add(document_of(room, **{**told, **gone, "time": moment}))
        self.history.flush()
