"""Who passes the proxy, and who does not: without any process, through its interface."""

import asyncio
import base64
import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from fedapa import __version__
from fedapa.federation.network.certificates import fingerprint, read_public_key
from fedapa.federation.network.proxy import LARGEST_BODY, PATHS, Proxy, clock_trouble
from fedapa.federation.network.room import make_room_folder
from fedapa.federation.network.server_folder import ServerFolder, Settings


@pytest.fixture
def server(tmp_path: Path) -> ServerFolder:
    made = ServerFolder.make(tmp_path / "server", Settings("localhost", 1, "127.0.0.1", 9))
    made.enrol(make_room_folder(tmp_path / "kitchen"), "kitchen")
    return made


def key_of(folder: Path) -> bytes:
    return read_public_key((folder / "room.pub").read_text(), "test")


def headers(key: bytes, seconds: float = 0.0) -> dict[str, str]:
    told = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    return {
        "flwr-public-key": base64.b64encode(key).decode(),
        "flwr-timestamp": told.isoformat(),
    }


class Passed(Proxy):
    """A proxy whose SuperLink says what it got."""

    def __init__(self, server: ServerFolder) -> None:
        super().__init__(server, "hash")

        def answer(request: httpx.Request) -> httpx.Response:
            return httpx.Response(200, json={"path": request.url.path, "got": len(request.content)})

        self._client = httpx.AsyncClient(
            base_url="http://superlink", transport=httpx.MockTransport(answer)
        )


def ask(proxy: Proxy, method: str, path: str, **values: Any) -> httpx.Response:
    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(proxy)
        async with httpx.AsyncClient(transport=transport, base_url="http://proxy") as client:
            return await client.request(method, path, **values)

    return asyncio.run(asked())


@pytest.mark.parametrize("path", sorted(PATHS))
def test_what_a_room_needs_passes_as_it_is(server: ServerFolder, path: str) -> None:
    key = key_of(server.path.parent / "kitchen")
    answer = ask(Passed(server), "POST", path, headers=headers(key), content=b"x" * 1000)
    assert answer.json() == {"path": path, "got": 1000}
    assert server.refused() == []


def refusal(server: ServerFolder, path: str, told: Mapping[str, str], **values: Any) -> Any:
    answer = ask(Passed(server), values.pop("method", "POST"), path, headers=told, **values)
    assert "got" not in answer.json()
    return answer.status_code, answer.json()["message"]


def test_a_stranger_does_not_pass(server: ServerFolder, tmp_path: Path) -> None:
    path, kitchen = "/v1/fleet/pull-messages", key_of(tmp_path / "kitchen")
    make_room_folder(tmp_path / "stranger")
    stranger = key_of(tmp_path / "stranger")
    assert refusal(server, path, {}) == (401, "no key")
    unknown = f"key {fingerprint(stranger)} is not enrolled"
    assert refusal(server, path, headers(stranger)) == (401, unknown)
    assert refusal(server, path, {**headers(kitchen), "flwr-timestamp": "now"}) == (401, "no time")
    status, reason = refusal(server, path, headers(kitchen, seconds=-3600))
    assert (status, "clock is 3600 s behind" in reason) == (401, True)
    assert refusal(server, path, headers(kitchen), method="GET")[0] == 401
    server.expel("kitchen")
    assert "is not enrolled" in refusal(server, path, headers(kitchen))[1]
    assert len(server.refused()) == 6


def test_no_other_path_passes(server: ServerFolder, tmp_path: Path) -> None:
    told = headers(key_of(tmp_path / "kitchen"))
    for path in (
        "/v1/control/start-run",
        "/v1/fleet/register-node",
        "/v1/fleet/pull-messages/",
        "/v1/fleet//pull-messages",
        "/v1/fleet/pull-messages%2f..%2f..%2fcontrol%2fstart-run",
        "/",
    ):
        assert refusal(server, path, told) == (403, "no path that a room needs"), path


def test_a_request_that_is_too_large_is_not_read_to_its_end(
    server: ServerFolder, tmp_path: Path
) -> None:
    told = headers(key_of(tmp_path / "kitchen"))
    content = bytes(LARGEST_BODY + 1)
    status, reason = refusal(server, "/v1/fleet/push-object", told, content=content)
    assert (status, "more than" in reason) == (413, True)
    assert server.refused()[-1]["room"] == "kitchen"


def test_a_superlink_that_is_away_is_a_gateway_error(server: ServerFolder, tmp_path: Path) -> None:
    """Which a SuperNode takes for an outage and tries again."""
    told = headers(key_of(tmp_path / "kitchen"))
    answer = ask(Proxy(server, "hash"), "POST", "/v1/fleet/pull-messages", headers=told)
    assert answer.status_code == 502


def test_the_greeting_tells_time_release_and_under_what_name_a_key_is_enrolled(
    server: ServerFolder, tmp_path: Path
) -> None:
    about = ask(Passed(server), "GET", "/fedapa").json()
    assert (about["release"], about["app"]) == (__version__, "hash")
    short = fingerprint(key_of(tmp_path / "kitchen"))
    assert ask(Passed(server), "GET", f"/fedapa/{short}").json() == {"room": "kitchen"}
    assert ask(Passed(server), "GET", "/fedapa/unknown").status_code == 404
    server.expel("kitchen")
    assert ask(Passed(server), "GET", f"/fedapa/{short}").status_code == 410
    assert [line["reason"] for line in server.refused()] == [
        "key unknown is not enrolled",
        f"key {short} was expelled",
    ]
    assert all(line["address"] for line in server.refused()), "who asked is logged"


def test_whose_key_counts_is_never_a_question(server: ServerFolder, tmp_path: Path) -> None:
    """The SuperLink would look at the first one, the proxy at the last."""
    told = headers(key_of(tmp_path / "kitchen"))
    stranger = make_room_folder(tmp_path / "stranger").encode()
    twice = [("flwr-public-key", base64.b64encode(stranger).decode()), *told.items()]
    answer = ask(Passed(server), "POST", "/v1/fleet/pull-messages", headers=twice)
    assert (answer.status_code, answer.json()["message"]) == (401, "two keys or times")


@pytest.mark.parametrize(
    ("ahead", "word"),
    [(0, ""), (4, ""), (-299, ""), (6, "6 s ahead of"), (-3600, "3600 s behind")],
)
def test_a_clock_may_differ_as_much_as_flower_allows(ahead: float, word: str) -> None:
    trouble = clock_trouble(ahead)
    assert word in trouble
    assert bool(trouble) == bool(word)
