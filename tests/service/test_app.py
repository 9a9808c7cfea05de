"""The API tells rooms, history, events, metrics and health, to those who may ask."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI

from fedapa.errors import DataError
from fedapa.service.app import _counts, create_app
from fedapa.service.history import History
from fedapa.service.serving import RoomServer, ServedRoom

from .made import Clocks, Given, Models, level_model

TOKEN = "a-token-of-the-test-1"


class Client:
    """Asks an app, without a network; keeps its cookies."""

    def __init__(self, app: FastAPI, *, port: int = 8080) -> None:
        self._app, self._port, self._cookies = app, port, httpx.Cookies()

    def get(
        self, path: str, headers: dict[str, str] | None = None, *, follow_redirects: bool = True
    ) -> httpx.Response:
        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(self._app),
                base_url=f"http://127.0.0.1:{self._port}",
                cookies=self._cookies,
                follow_redirects=follow_redirects,
            ) as client:
                answer = await client.get(path, headers=headers)
                self._cookies = client.cookies
                return answer

        return asyncio.run(ask())


class Service:
    """Two rooms that were counted for a while, the second with a blank in its name."""

    def __init__(self, folder: Path) -> None:
        self.clocks = Clocks()
        self.sources = {"cafe": Given(), "big hall": Given(synthetic=True)}
        self.models = {name: Models(level_model()) for name in self.sources}
        self.server = RoomServer(
            [ServedRoom(name, self.models[name], self.sources[name]) for name in self.sources],
            steady=self.clocks.steady,
            wall=self.clocks.wall,
        )
        self.server.look_for_models()
        self.history = History(folder / "counts.db", clock=self.clocks.wall)
        self.history.start()
        self.server.listen(self.history.add)
        self.seconds(12)

    def seconds(self, seconds: int, *, silent: str = "") -> None:
        for _ in range(seconds):
            self.clocks.now += 1
            for name, source in self.sources.items():
                if name != silent:
                    source.put([2] * 10, self.clocks.now)
            self.server.step()

    def client(self, **options: Any) -> Client:
        return Client(create_app(self.server, history=self.history, **options))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.history.stop()


def test_rooms_are_told_with_the_service(service: Service) -> None:
    told = service.client().get("/api/rooms").json()
    assert told["service"]["name"] == "fedapa"
    assert told["service"]["history"] == "kept"
    assert told["service"]["synthetic"] is True
    assert [room["room"] for room in told["rooms"]] == ["cafe", "big hall"]
    room = told["rooms"][0]
    assert (room["state"], room["count"], room["synthetic"]) == ("counting", 2, False)
    assert room == service.server.rooms["cafe"].document()  # nothing is lost on the way


def test_one_room_is_told_and_an_unknown_one_is_a_sentence(service: Service) -> None:
    client = service.client()
    assert client.get("/api/rooms/big hall").json()["room"] == "big hall"
    answer = client.get("/api/rooms/caffe")
    assert answer.status_code == 404
    assert answer.json()["detail"] == "there is no room 'caffe'; did you mean 'cafe'?"


def test_history_is_told_by_column(service: Service) -> None:
    client = service.client()
    told = client.get("/api/rooms/cafe/history").json()
    assert told["room"] == "cafe"
    assert told["count"][-1] == 2
    assert len(told["times"]) == len(told["state"]) == len(told["lo"]) >= 2
    assert client.get("/api/rooms/cafe/history?since=0&until=5").json()["times"] == []
    assert client.get("/api/rooms/cafe/history?since=0&points=1").json()["count"] == [2]
    for wrong in ("since=nan", "points=0", "points=1000000", "since=yesterday"):
        assert client.get(f"/api/rooms/cafe/history?{wrong}").status_code == 422
    assert client.get("/api/rooms/nowhere/history").status_code == 404


def test_without_history_that_is_told(service: Service) -> None:
    client = Client(create_app(service.server))
    answer = client.get("/api/rooms/cafe/history")
    assert answer.status_code == 404
    assert "--history" in answer.json()["detail"]


def test_the_waterfall_has_the_last_packets(service: Service) -> None:
    told = service.client().get("/api/rooms/cafe/waterfall?seconds=5").json()
    assert 40 <= len(told["times"]) <= 51
    assert told["subcarriers"] == [-3, -2, -1, 1, 2, 3]
    assert len(told["amplitude_db"][0]) == 6
    assert told["amplitude_db"][0][0] == pytest.approx(9.5, abs=0.3)  # 20 log10 3


def test_events_begin_with_every_room_and_go_on_as_counts_come(service: Service) -> None:
    async def heard() -> list[dict[str, Any]]:
        stream = _counts(service.server)
        events = [await anext(stream) for _ in range(2)]
        service.seconds(6)  # every room counts once more
        events += [await anext(stream) for _ in range(2)]
        await stream.aclose()
        return [json.loads(event["data"]) for event in events if event["event"] == "count"]

    told = asyncio.run(heard())
    assert [one["room"] for one in told] == ["cafe", "big hall", "cafe", "big hall"]
    assert told[2]["time"] > told[0]["time"]
    assert len(service.server._listeners) == 1  # who leaves is forgotten; history stays


def test_who_reads_slowly_gets_the_newest_count_of_each_room(service: Service) -> None:
    async def heard() -> list[dict[str, Any]]:
        stream = _counts(service.server)
        await anext(stream)
        service.seconds(60)
        await asyncio.sleep(0.05)
        rest = [await anext(stream) for _ in range(2)]
        await stream.aclose()
        return [json.loads(event["data"]) for event in rest]

    told = asyncio.run(heard())
    assert {one["room"] for one in told} == {"cafe", "big hall"}
    assert min(one["time"] for one in told) >= service.clocks.now - 5


def test_health_names_what_is_wrong_and_answers_all_the_same(service: Service) -> None:
    client = service.client()
    service.history.note = "a damaged history was set aside"  # and a new one is written
    assert client.get("/healthz").json()["status"] == "ok"
    assert client.get("/healthz").json()["history"] == "kept; a damaged history was set aside"
    service.seconds(12, silent="cafe")
    service.models["big hall"].found.append(DataError("big hall.safetensors: is damaged"))
    service.server.look_for_models()
    service.seconds(2, silent="cafe")
    service.history.state = "not kept: database or disk is full"
    answer = client.get("/healthz")
    assert answer.status_code == 200
    told = answer.json()
    assert told["status"] == "degraded"
    assert told["rooms"] == {"counting": 1, "unavailable": 1}
    assert [problem.partition(":")[0] for problem in told["problems"]] == [
        "room 'cafe' is unavailable",
        "room 'big hall' keeps its older model",
        "history",
    ]


def test_the_description_names_every_path_and_nothing_is_loaded_from_outside(
    service: Service,
) -> None:
    client = service.client()
    described = client.get("/openapi.json").json()
    assert set(described["paths"]) == {
        "/api/rooms",
        "/api/rooms/{room}",
        "/api/rooms/{room}/history",
        "/api/rooms/{room}/waterfall",
        "/api/events",
        "/metrics",
        "/healthz",
    }
    for page in ("/docs", "/redoc"):
        assert client.get(page).status_code == 404
    policy = client.get("/").headers["content-security-policy"]
    assert policy.startswith("default-src 'self';")


def test_the_page_and_its_charts_come_from_here(service: Service) -> None:
    client = service.client()
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert client.get("/static/index.html").status_code == 200
    charts = client.get("/static/plotly.min.js")
    assert len(charts.content) > 1_000_000
    assert "max-age" in charts.headers["cache-control"]
    again = client.get("/static/plotly.min.js", headers={"range": "bytes=0-99"})
    assert len(again.content) == 100
    for outside in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/nothing.js", "/static/"):
        assert client.get(outside).status_code == 404


def test_more_can_be_served(service: Service) -> None:
    router = APIRouter()

    @router.get("/api/more")
    def more() -> str:
        return "more"

    assert service.client(routers=[router]).get("/api/more").json() == "more"


# ---- who may ask --------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1:8080", ""])
def test_on_loopback_another_name_is_refused(service: Service, host: str) -> None:
    answer = service.client().get("/api/rooms", headers={"host": host})
    assert answer.status_code == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8080", "[::1]:8080"])
def test_on_loopback_its_own_names_are_heard(service: Service, host: str) -> None:
    assert service.client().get("/api/rooms", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "path", ["/", "/api/rooms", "/metrics", "/openapi.json", "/static/plotly.min.js", "/api/events"]
)
def test_without_the_token_nothing_is_told(service: Service, path: str) -> None:
    client = service.client(token=TOKEN, loopback=False)
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}):
        answer = client.get(path, headers=headers)
        assert answer.status_code == 401
        assert "cafe" not in answer.text
    assert client.get(f"{path}?token=wrong").status_code == 401


def test_health_without_the_token_is_its_status_alone(service: Service) -> None:
    client = service.client(token=TOKEN, loopback=False)
    assert client.get("/healthz").json() == {"status": "ok"}
    trusted = client.get("/healthz", headers={"authorization": f"Bearer {TOKEN}"})
    assert "rooms" in trusted.json()


def test_the_token_in_the_address_becomes_a_cookie(service: Service) -> None:
    client = service.client(token=TOKEN, loopback=False)
    answer = client.get(f"/api/rooms?token={TOKEN}&points=3", follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/api/rooms?points=3"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert client.get("/api/rooms").status_code == 200  # the client keeps the cookie
    elsewhere = client.get(f"//evil.example/?token={TOKEN}", follow_redirects=False)
    assert not elsewhere.headers.get("location", "").startswith("//")


def test_two_services_of_one_host_have_a_cookie_each(service: Service) -> None:
    """Browsers keep cookies by host, whatever the port."""
    tokens = {8080: TOKEN, 8081: "another-token-of-the-test"}
    apps = {port: create_app(service.server, token=tokens[port], loopback=False) for port in tokens}
    clients = {port: Client(app, port=port) for port, app in apps.items()}
    clients[8080].get(f"/?token={tokens[8080]}")
    clients[8081]._cookies = clients[8080]._cookies
    clients[8081].get(f"/?token={tokens[8081]}")
    clients[8080]._cookies = clients[8081]._cookies
    assert [client.get("/api/rooms").status_code for client in clients.values()] == [200, 200]
