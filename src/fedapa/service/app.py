"""The live service as a FastAPI app: rooms, history, events, metrics, health, and the page.

It only reads: what is counted is ``serving.RoomServer``'s, what was counted ``history.History``'s.
Nothing in it comes from outside this machine; FastAPI's own pages of documentation do, so they are
off, and ``/openapi.json`` has the description.
"""

import asyncio
import contextlib
import importlib.resources
import json
import math
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, FastAPI, HTTPException, Query, Request
from fastapi.responses import FileResponse, PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, Field
from sse_starlette.sse import EventSourceResponse

from fedapa import __version__
from fedapa.errors import nearest
from fedapa.service.access import Guard
from fedapa.service.history import History
from fedapa.service.metrics import CONTENT_TYPE, collectors_of, text_of
from fedapa.service.serving import Document, RoomServer, ServedRoom

if TYPE_CHECKING:
    from fedapa.service.mqtt import MqttPublisher

__all__ = ["create_app"]

_STUCK = 10.0
"""s without a turn through the rooms, after which the service is degraded."""
_MOST_POINTS = 5000
_PING = 15
"""s between two signs of life to who listens to events."""
_PLOTLY_KEPT = "private, max-age=86400"


class ModelDocument(BaseModel):
    """The model that a room counts with."""

    algorithm: str
    round: int | None
    hash: str = Field(description="Of the file, SHA-256, its first 12 digits.")
    path: str = Field(description="Name of the file.")
    classes: list[int | str]


class RoomDocument(BaseModel):
    """A room at one moment."""

    room: str
    state: Literal["counting", "unsure", "unavailable"]
    reason: str = Field(description="Why it is not counting, in words.")
    count: int | None = Field(description="People; null while the room is unavailable.")
    lo: int | None = Field(description="With hi: the interval that has 80 % of the belief.")
    hi: int | None
    confidence: float | None = Field(description="The belief in count, 0 to 1.")
    raw: int | None = Field(description="What the last window says alone.")
    people: list[int] = Field(description="Numbers of people that there may be.")
    belief: list[float] = Field(description="How probable each of them is.")
    time: float = Field(description="Of the count, in seconds since 1970.")
    synthetic: bool = Field(description="SIMULATED: its packets, or what the model learned from.")
    true_people: int | None = Field(description="Who really is there; only the simulator knows.")
    rate: float = Field(description="Packets per second over the last 10 s.")
    packets: int
    skipped: dict[str, int] = Field(description="Packets and frames left out, by reason.")
    problem: str = Field(description="Why nothing comes from the source at the moment.")
    source: str
    every: float = Field(description="Seconds from one count to the next.")
    model: ModelDocument | None
    model_problem: str = Field(description="Why a newer model file is not used.")


class ServiceDocument(BaseModel):
    """The service itself."""

    name: str
    version: str
    started: float
    synthetic: bool = Field(description="Whether any room is SIMULATED.")
    history: str = Field(description="kept, or why it is not.")


class RoomsDocument(BaseModel):
    """Everything now."""

    service: ServiceDocument
    rooms: list[RoomDocument]


class HistoryDocument(BaseModel):
    """Counts of a room by column, oldest first."""

    room: str
    times: list[float]
    count: list[int | None]
    lo: list[int | None]
    hi: list[int | None]
    confidence: list[float | None]
    state: list[str]
    true_people: list[int | None]


class WaterfallDocument(BaseModel):
    """The last packets of a room."""

    room: str
    times: list[float]
    subcarriers: list[int]
    amplitude_db: list[list[float]]


def create_app(
    service: RoomServer,
    *,
    history: History | None = None,
    publisher: "MqttPublisher | None" = None,
    token: str | None = None,
    loopback: bool = True,
    routers: Sequence[APIRouter] = (),
) -> FastAPI:
    """The app of a server that somebody else starts and stops.

    Args:
        service: what counts.
        history: what was counted; None: nothing is kept.
        publisher: what tells a broker; None: no broker is told.
        token: that every request must have; None: none.
        loopback: only this machine can ask; then only by its own names.
        routers: more to serve.
    """
    app = FastAPI(
        title="FedAPA",
        version=__version__,
        description="How many people are in each room, now and before.",
        docs_url=None,
        redoc_url=None,
    )
    app.include_router(_rooms_router(service, history))
    app.include_router(_watching_router(service, history, publisher))
    for router in routers:
        app.include_router(router)
    app.include_router(_page_router())
    app.mount("/static", _Page(directory=_page_folder()))
    app.add_middleware(Guard, token=token, loopback=loopback)
    return app


# ---- counts -------------------------------------------------------------------------------------


def _rooms_router(service: RoomServer, history: History | None) -> APIRouter:
    router = APIRouter(prefix="/api", tags=["rooms"])

    def found(name: str) -> ServedRoom:
        if name not in service.rooms:
            raise HTTPException(404, f"there is no room '{name}'; {nearest(name, service.rooms)}")
        return service.rooms[name]

    @router.get("/rooms", response_model=RoomsDocument)
    async def rooms() -> dict[str, Any]:
        """Every room now."""
        documents = service.documents()
        return {
            "service": {
                "name": "fedapa",
                "version": __version__,
                "started": service.started,
                "synthetic": any(document["synthetic"] for document in documents),
                "history": _history_state(history),
            },
            "rooms": documents,
        }

    @router.get("/rooms/{room}", response_model=RoomDocument)
    async def room_now(room: str) -> Document:
        """One room now."""
        return found(room).document()

    @router.get("/rooms/{room}/history", response_model=HistoryDocument)
    def room_history(
        room: str,
        since: Annotated[float | None, Query(description="Seconds since 1970.")] = None,
        until: Annotated[float | None, Query(description="Seconds since 1970.")] = None,
        points: Annotated[int, Query(ge=1, le=_MOST_POINTS)] = 500,
    ) -> dict[str, Any]:
        """Its counts, by default of the last hour; of many the last one in each of ``points``."""
        found(room)
        end = service.wall_time() if until is None else until
        begin = end - 3600 if since is None else since
        if not (math.isfinite(begin) and math.isfinite(end)):
            raise HTTPException(422, "since and until: give seconds since 1970")
        if history is None:
            raise HTTPException(404, "no history is kept; start the service with --history FILE")
        columns = history.read(room, begin, end, points)
        return {"room": room, "times": columns.pop("time"), **columns}

    @router.get("/rooms/{room}/waterfall", response_model=WaterfallDocument)
    def room_waterfall(
        room: str, seconds: Annotated[float, Query(gt=0, le=30)] = 20.0
    ) -> dict[str, Any]:
        """Amplitudes of its last packets in dB: 200 moments, 64 subcarriers at most."""
        return found(room).waterfall(seconds)

    @router.get("/events", response_class=EventSourceResponse)
    async def events() -> EventSourceResponse:
        """Server-sent events: ``count`` with a room's document, one for each room at once."""
        return EventSourceResponse(_counts(service), ping=_PING)

    return router


async def _counts(service: RoomServer) -> AsyncIterator[dict[str, str]]:
    """Documents as they come; who reads slowly gets the newest of each room."""
    loop = asyncio.get_running_loop()
    waiting: dict[str, Document] = {one["room"]: one for one in service.documents()}
    there_is = asyncio.Event()
    there_is.set()

    def note(document: Document) -> None:
        waiting.pop(document["room"], None)  # the newest is last
        waiting[document["room"]] = document
        there_is.set()

    def hear(document: Document) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(note, document)

    end = service.listen(hear)
    try:
        while True:
            await there_is.wait()
            there_is.clear()
            while waiting:
                document = waiting.pop(next(iter(waiting)))
                yield {"event": "count", "data": json.dumps(document)}
    finally:
        end()


# ---- for those who watch over it ----------------------------------------------------------------


def _watching_router(
    service: RoomServer, history: History | None, publisher: "MqttPublisher | None"
) -> APIRouter:
    router = APIRouter(tags=["service"])
    collectors = collectors_of(service, history)

    @router.get("/metrics", response_class=PlainTextResponse)
    def metrics() -> Response:
        """For Prometheus."""
        return Response(text_of(collectors), media_type=CONTENT_TYPE)

    @router.get("/healthz")
    async def healthz(request: Request) -> dict[str, Any]:
        """``ok``, or ``degraded`` and why; it answers in any case."""
        problems = _problems(service, history)
        broker = None if publisher is None else publisher.health
        if broker is not None and not broker.connected:
            problems.append(f"MQTT broker {broker.broker}: {broker.problem}")
        told: dict[str, Any] = {"status": "degraded" if problems else "ok"}
        if request.scope.get("state", {}).get("trusted"):
            states = [document["state"] for document in service.documents()]
            told |= {
                "problems": problems,
                "rooms": {state: states.count(state) for state in sorted(set(states))},
                "history": _history_state(history),
                "mqtt": None if broker is None else broker.document(),
                "version": __version__,
            }
        return told

    return router


def _history_state(history: History | None) -> str:
    if history is None:
        return "not kept: the service was started without --history"
    return f"{history.state}; {history.note}" if history.note else history.state


def _problems(service: RoomServer, history: History | None) -> list[str]:
    problems = [
        f"room '{one['room']}' is unavailable: {one['reason']}"
        for one in service.documents()
        if one["state"] == "unavailable"
    ]
    problems += [
        f"room '{one['room']}' keeps its older model: {one['model_problem']}"
        for one in service.documents()
        if one["model_problem"] and one["model"] is not None
    ]
    if history is not None and history.problem:
        problems.append(f"history: {history.problem}")
    if service.stalled > _STUCK:
        problems.append(f"no room was looked at for {service.stalled:.0f} s")
    return problems


# ---- the page -----------------------------------------------------------------------------------


def _page_folder() -> Path:
    return Path(str(importlib.resources.files("fedapa.service") / "page"))


class _Page(StaticFiles):
    """Files of the page; a browser asks each time whether they are new."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        answer = super().file_response(*args, **kwargs)
        answer.headers["cache-control"] = "no-cache"
        return answer


def _page_router() -> APIRouter:
    router = APIRouter(include_in_schema=False)
    plotly = Path(str(importlib.resources.files("plotly") / "package_data" / "plotly.min.js"))

    @router.get("/")
    def index() -> Response:
        headers = {"cache-control": "no-cache"}
        return FileResponse(_page_folder() / "index.html", headers=headers)

    @router.get("/api/training", status_code=204)
    async def no_training() -> None:
        """Where no run is followed; a router that follows one comes before this one."""

    @router.get("/static/plotly.min.js")
    def charts() -> Response:
        headers = {"cache-control": _PLOTLY_KEPT}
        return FileResponse(plotly, media_type="text/javascript", headers=headers)

    return router
