"""Workers come from a server that has imported everything, or are spawned where there is none."""

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import forkserver
from pathlib import Path

import pytest

from fedapa import processes
from fedapa.federation.engines.in_process import start_worker


def _seen(name: str) -> tuple[str | None, bool]:
    return os.environ.get(name), "torch" in sys.modules


def _ask(name: str) -> tuple[str | None, bool]:
    with processes.Workers(
        1,
        context=processes.importing_once(),
        initializer=start_worker,
        initargs=(processes.variables(),),
    ) as pool:
        return pool.submit(_seen, name).result()


def test_workers_have_the_environment_of_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    processes.get_ready()  # the server is there before the variable is
    for value in ("one", "two"):
        monkeypatch.setenv("FEDAPA_TEST_VARIABLE", value)
        assert _ask("FEDAPA_TEST_VARIABLE") == (value, True)


def test_without_a_server_workers_are_spawned(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise OSError("AF_UNIX path too long")

    monkeypatch.setattr(forkserver, "ensure_running", refused)
    assert processes.importing_once().get_start_method() == "spawn"
    monkeypatch.setenv("FEDAPA_TEST_VARIABLE", "three")
    assert _ask("FEDAPA_TEST_VARIABLE") == ("three", True)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers are spawned")
def test_on_linux_there_is_a_server() -> None:
    assert processes.importing_once().get_start_method() == "forkserver"


def _large(killed_after: float | None) -> bytes:
    if killed_after is not None:

        def end() -> None:
            time.sleep(killed_after)
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=end, daemon=True).start()
    return bytes(300_000_000)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.05, 0.2, 0.3, 0.4])
def test_a_worker_killed_while_it_sends_a_large_result_is_noticed(seconds: float) -> None:
    spawn = multiprocessing.get_context("spawn")
    with processes.Workers(1, context=spawn) as workers:
        try:
            assert len(workers.submit(_large, seconds).result()) == 300_000_000
        except BrokenProcessPool:
            return
        with pytest.raises(BrokenProcessPool):  # it was quicker; its end is noticed all the same
            workers.submit(time.sleep, 60).result()


def test_results_come_whole_and_leave_no_file() -> None:
    with processes.Workers(2, context=multiprocessing.get_context("spawn")) as workers:
        folder = Path(workers._results.name)
        jobs = [workers.submit(divmod, number, 7) for number in range(20)]
        assert [job.result() for job in jobs] == [divmod(number, 7) for number in range(20)]
        assert not list(folder.iterdir())
        failed = workers.submit(divmod, 1, 0)
        with pytest.raises(ZeroDivisionError):
            failed.result()
    assert not folder.exists()


def test_what_goes_through_the_pipe_is_written_in_one_piece(tmp_path: Path) -> None:
    sent = processes._keep(tmp_path, bytes, (10_000_000,), {})
    assert len(pickle.dumps(sent)) < 4096  # PIPE_BUF: such a write is whole or absent


def test_given_up_work_ends_at_once() -> None:
    spawn = multiprocessing.get_context("spawn")
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt), processes.Workers(1, context=spawn) as workers:
        workers.submit(time.sleep, 500)
        raise KeyboardInterrupt
    assert time.monotonic() - begun < 100
