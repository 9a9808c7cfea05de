"""Worker processes: where they come from, that their results arrive, that they end."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import forkserver
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import pytest

from fedapa import processes
from fedapa.processes import start_training_worker
from tests.conftest import hear_ctrl_c


def _seen(name: str) -> bytes:
    return f"{os.environ.get(name)} {'torch' in sys.modules}".encode()


def _ask(name: str) -> bytes:
    with processes.Workers(
        1,
        context=processes.importing_once(),
        initializer=start_training_worker,
        initargs=(processes.variables(),),
    ) as pool:
        return pool.submit(_seen, name).result()


def test_workers_have_the_environment_of_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    processes.get_ready()  # the server is there before the variable is
    for value in ("one", "two"):
        monkeypatch.setenv("FEDAPA_TEST_VARIABLE", value)
        assert _ask("FEDAPA_TEST_VARIABLE") == f"{value} True".encode()


def test_without_a_server_workers_are_spawned(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise OSError("AF_UNIX path too long")

    monkeypatch.setattr(forkserver, "ensure_running", refused)
    assert processes.importing_once().get_start_method() == "spawn"
    monkeypatch.setenv("FEDAPA_TEST_VARIABLE", "three")
    assert _ask("FEDAPA_TEST_VARIABLE") == b"three True"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers are spawned")
def test_on_linux_there_is_a_server() -> None:
    assert processes.importing_once().get_start_method() == "forkserver"


def _sleep(seconds: float) -> bytes:
    time.sleep(seconds)
    return b""


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
            workers.submit(_sleep, 60).result()


def test_results_come_whole_and_leave_no_file() -> None:
    with processes.Workers(2, context=multiprocessing.get_context("spawn")) as workers:
        folder = Path(workers._results.name)
        jobs = [workers.submit(bytes, number) for number in range(20)]
        assert [job.result() for job in jobs] == [bytes(number) for number in range(20)]
        assert not list(folder.iterdir())
        failed = workers.submit(bytes.fromhex, "no")
        with pytest.raises(ValueError, match="non-hexadecimal"):
            failed.result()
    assert not folder.exists()


def test_what_goes_through_the_pipe_is_written_in_one_piece(tmp_path: Path) -> None:
    sent = processes._keep(tmp_path, bytes, (10_000_000,), {})
    assert len(ForkingPickler.dumps(sent)) < 4096  # PIPE_BUF: such a write is whole or absent


def test_given_up_work_ends_at_once() -> None:
    spawn = multiprocessing.get_context("spawn")
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt), processes.Workers(1, context=spawn) as workers:
        workers.submit(_sleep, 500)
        raise KeyboardInterrupt
    assert time.monotonic() - begun < 100


def test_results_of_a_killed_command_are_removed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import multiprocessing, os, signal\n"
        "from fedapa.processes import Workers\n"
        "if __name__ == '__main__':\n"
        "    workers = Workers(1, context=multiprocessing.get_context('spawn'))\n"
        "    workers.submit(bytes, 5).future.result()\n"
        "    assert os.listdir(os.environ['TMPDIR'])\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    folder = tmp_path / "temporary"
    folder.mkdir()
    ended = subprocess.run([sys.executable, script], env={**os.environ, "TMPDIR": str(folder)})
    assert ended.returncode == -signal.SIGKILL
    for _ in range(200):
        if not list(folder.glob("fedapa-*")):
            return
        time.sleep(0.1)
    pytest.fail(f"left behind: {list(folder.iterdir())}")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no server")
def test_the_server_is_deaf_to_interrupts_while_it_imports() -> None:
    script = (
        "import os, signal, time\n"
        "from multiprocessing import forkserver\n"
        "from fedapa.processes import get_ready\n"
        "get_ready()\n"
        "for _ in range(20):\n"
        "    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGINT)\n"
        "    time.sleep(0.05)\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(10)\n"
        "except KeyboardInterrupt:\n"
        "    print('heard')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=hear_ctrl_c,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "heard\n", "")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers are spawned")
def test_workers_of_a_command_are_forked_from_it_and_end_with_it(tmp_path: Path) -> None:
    """What the command had in memory when its server came is in workers; torch too. A killed
    command takes its server along."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal, sys, time\n"
        "from multiprocessing import forkserver\n"
        "from fedapa import processes\n"
        "MARK = [0]\n"
        "def look():\n"
        '    return f\'{sys.modules["__main__"].MARK} {"torch" in sys.modules}\'.encode()\n'
        "if __name__ == '__main__':\n"
        "    processes.fork_from_here()\n"
        "    MARK[0] = 7\n"
        "    assert processes.get_ready()\n"
        "    MARK[0] = 8\n"
        "    with processes.Workers(1, context=processes.importing_once()) as pool:\n"
        "        print(pool.submit(look).result().decode())\n"
        "    print(forkserver._forkserver._forkserver_pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    seen, server = ended.stdout.splitlines()
    assert seen == "[7] True", ended.stderr
    for _ in range(200):
        if not Path(f"/proc/{server}").exists():
            return
        time.sleep(0.1)
    pytest.fail("its server is still there")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers are spawned")
def test_a_process_with_threads_is_not_forked() -> None:
    script = (
        "import threading\n"
        "from fedapa import processes\n"
        "assert processes._is_single()\n"
        "import fedapa.federation.engines.in_process\n"
        "assert processes._is_single(), 'what is imported starts no thread'\n"
        "wait = threading.Event()\n"
        "threading.Thread(target=wait.wait, daemon=True).start()\n"
        "assert not processes._is_single()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers are spawned")
def test_workers_read_a_store_that_the_command_had_open_before_they_came(tmp_path: Path) -> None:
    """HDF5 in a fork would take the command's handle for its own, and that is closed there."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "import h5py\n"
        "from fedapa import processes\n"
        "def read(path):\n"
        "    with h5py.File(path) as store:\n"
        "        return bytes(store['values'][:].tolist())\n"
        "if __name__ == '__main__':\n"
        "    with h5py.File(sys.argv[1], 'w') as store:\n"
        "        store['values'] = list(b'seen')\n"
        "    processes.fork_from_here()\n"
        "    with h5py.File(sys.argv[1]) as store:\n"
        "        with processes.Workers(1, context=processes.importing_once()) as pool:\n"
        "            print(pool.submit(read, sys.argv[1]).result().decode())\n"
    )
    ended = subprocess.run(
        [sys.executable, script, tmp_path / "store.h5"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.stdout == "seen\n", ended.stderr
