"""Workers come from a server that has imported everything, or are spawned where there is none."""

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import forkserver

import pytest

from fedapa.federation.engines import processes
from fedapa.federation.engines.in_process import start_worker


def _seen(name: str) -> tuple[str | None, bool]:
    return os.environ.get(name), "torch" in sys.modules


def _ask(name: str) -> tuple[str | None, bool]:
    with ProcessPoolExecutor(
        1,
        mp_context=processes.context(),
        initializer=start_worker,
        initargs=(processes.variables(),),
    ) as pool:
        return pool.submit(_seen, name).result(timeout=120)


def test_workers_have_the_environment_of_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    processes.get_ready()  # the server is there before the variable is
    for value in ("one", "two"):
        monkeypatch.setenv("FEDAPA_TEST_VARIABLE", value)
        assert _ask("FEDAPA_TEST_VARIABLE") == (value, True)


def test_without_a_server_workers_are_spawned(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise OSError("AF_UNIX path too long")

    monkeypatch.setattr(forkserver, "ensure_running", refused)
    assert processes.context().get_start_method() == "spawn"
    monkeypatch.setenv("FEDAPA_TEST_VARIABLE", "three")
    assert _ask("FEDAPA_TEST_VARIABLE") == ("three", True)


def test_there_is_no_server_until_it_is_trusted() -> None:
    assert processes.context().get_start_method() == "spawn"
