"""Connections that strangers keep open."""

import asyncio
import contextlib
import errno
import resource
from typing import Any

import pytest
import uvicorn

from fedapa.federation.network import connections
from fedapa.federation.network.connections import Impatient, allow_many_files, tell_briefly
from tests.federation.network.loopback import free_port

REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n"


class Hasty(Impatient):
    silence = 0.2


async def _slow(scope: Any, receive: Any, send: Any) -> None:
    await asyncio.sleep(1.0)
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


def said_on_a_connection(*parts: bytes) -> bytes:
    """What a server answers to these parts, each a while after the one before, until it closes."""

    async def said() -> bytes:
        port = free_port()
        config = uvicorn.Config(
            _slow,
            port=port,
            http=Hasty,
            ws="none",
            lifespan="off",
            log_config=None,
            timeout_keep_alive=30,
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for part in parts:
                writer.write(part)
                await asyncio.sleep(0.05)
            got = []
            with contextlib.suppress(ConnectionError):
                while part := await asyncio.wait_for(reader.read(4096), 10):
                    got.append(part)
            return b"".join(got)
        finally:
            writer.close()
            server.should_exit = True
            await serving

    return asyncio.run(said())


@pytest.mark.parametrize("parts", [(), (REQUEST,), (REQUEST, b"X-Slow: a\r\n", b"X-Slower: b\r\n")])
def test_a_connection_without_a_whole_request_is_closed(parts: tuple[bytes, ...]) -> None:
    assert said_on_a_connection(*parts) == b""


def test_an_answer_may_take_longer_and_the_silence_after_it_is_short() -> None:
    assert said_on_a_connection(REQUEST + b"\r\n").startswith(b"HTTP/1.1 204")


def test_a_second_request_that_never_ends_is_closed_too() -> None:
    answered = said_on_a_connection(REQUEST + b"\r\n" + REQUEST)
    assert answered.count(b"HTTP/1.1 204") == 1


def test_more_files_are_allowed_where_the_user_may_have_them() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before[1]), before[1]))
        allow_many_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(1 << 16, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_that_no_connection_can_be_taken_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    async def crowded() -> None:
        tell_briefly(said.append)
        for _ in range(3):
            asyncio.get_running_loop().call_exception_handler(
                {"message": "accept", "exception": OSError(errno.EMFILE, "Too many open files")}
            )

    asyncio.run(crowded())
    assert len(said) == 1
    assert "ulimit -n" in said[0] and "LimitNOFILE" in said[0]
    monkeypatch.setattr(connections, "_BETWEEN", 0.0)
    asyncio.run(crowded())
    assert len(said) == 4
