"""The server: a SuperLink on loopback, the proxy in front of it, and the process of a run.

One process holds the three together and starts again what ended. Killed at any moment it begins
where it was: who is enrolled, which run goes on and how far it is are files.
"""

import asyncio
import contextlib
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import filelock
import uvicorn

from fedapa.errors import FedapaError, RunError, files_trouble
from fedapa.federation.network.app import app_bundle
from fedapa.federation.network.child import end_child, start_child
from fedapa.federation.network.connections import Impatient, allow_many_files, tell_briefly
from fedapa.federation.network.flower_calls import Control
from fedapa.federation.network.logs import keep_short
from fedapa.federation.network.proxy import Proxy
from fedapa.federation.network.run_status import CRASHED, RunStatus
from fedapa.federation.network.server_folder import Job, ServerFolder
from fedapa.files import write_text

__all__ = ["is_free", "running_process", "serve", "stop"]

Say = Callable[[str], None]

_PATIENCE = 180.0
"""Seconds that a SuperLink may take to begin; on a weak machine it imports for long."""
_LOOK = 1.0
"""Seconds between two looks at the children."""
_SOON_AFTER, _LATEST_AFTER = 5.0, 300.0
"""Seconds until the process of a run that ended is started again, the longer the more often it
did without a round in between."""
_TRIES = 3
"""Of a run that errors end: so often without a round in between are enough."""


def serve(server: ServerFolder, say: Say) -> None:
    """Serve until a signal ends it; says in sentences what happens."""
    settings = server.settings
    # Who only asks whether a server runs holds the lock for a moment.
    lock = filelock.FileLock(server.path / ".lock", timeout=1)
    try:
        with lock:
            for port, address in (
                (settings.inner_port, "127.0.0.1"),
                (settings.port, settings.listen),
            ):
                if not is_free(address, port):
                    raise RunError(
                        f"{address}:{port} is taken by another program; end it, or choose another "
                        "--port"
                    )
            write_text(server.path / "server.pid", str(os.getpid()))
            # uvicorn raises it again when it has ended; then the children are ended in order.
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            try:
                asyncio.run(_Server(server, say).serve())
            finally:
                (server.path / "server.pid").unlink(missing_ok=True)
    except filelock.Timeout as error:
        raise RunError(
            f"{server.path}: its server runs already (process {running_process(server)}); end it "
            f"with 'fedapa server stop {server.path}'"
        ) from error


def running_process(server: ServerFolder) -> int | None:
    """The process that serves a folder, if there is one."""
    try:
        with filelock.FileLock(server.path / ".lock", timeout=0):
            return None
    except filelock.Timeout:
        with contextlib.suppress(OSError, ValueError):
            return int((server.path / "server.pid").read_text())
        return None


def stop(server: ServerFolder, *, patience: float = 60.0) -> None:
    """End the server of a folder; its run goes on with the next start."""
    process = running_process(server)
    if process is None:
        raise RunError(f"{server.path}: its server does not run")
    os.kill(process, signal.SIGTERM)
    until = time.monotonic() + patience
    while running_process(server) is not None:
        if time.monotonic() > until:
            raise RunError(
                f"process {process} does not end after {patience:.0f} s; see what 'fedapa server "
                f"start' printed, and end it with 'kill -9 {process}'"
            )
        time.sleep(0.2)


def is_free(address: str, port: int) -> bool:
    """Whether nobody listens there."""
    with contextlib.closing(socket.socket()) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((address, port))
        except OSError:
            return False
    return True


class _Server:
    def __init__(self, server: ServerFolder, say: Say) -> None:
        self._server, self._say = server, say
        self._superlink: subprocess.Popen[bytes] | None = None
        self._run: subprocess.Popen[bytes] | None = None
        self._run_not_before = 0.0
        self._asked = 0.0
        # How often the run's process ended, and by errors, without a round in between.
        self._ends = self._crashes = 0
        self._ended_in: Any = None  # the round
        self._stamp = -1.0
        self._trouble = ""

    async def serve(self) -> None:
        settings = self._server.settings
        _, app_hash = await asyncio.to_thread(app_bundle)
        allow_many_files()
        tell_briefly(self._say)
        config = uvicorn.Config(
            Proxy(self._server, app_hash),
            host=settings.listen,
            port=settings.port,
            http=Impatient,
            ws="none",
            ssl_certfile=str(self._server.path / "server.crt"),
            ssl_keyfile=str(self._server.path / "server.key"),
            ssl_version=ssl.PROTOCOL_TLS_SERVER,
            log_level="error",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=3,
        )
        proxy = uvicorn.Server(config)
        try:
            await asyncio.to_thread(self._start_superlink)
            watching = asyncio.create_task(self._watch(proxy))
            self._say(f"listening on {settings.listen}:{settings.port} as {settings.name}")
            await proxy.serve()
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
        finally:
            self._end()

    async def _watch(self, proxy: uvicorn.Server) -> None:
        """Start again what ended; tell the SuperLink who was enrolled and expelled."""
        while not proxy.should_exit:
            trouble = ""
            try:
                await asyncio.to_thread(self._look)
            except FedapaError as error:
                trouble = files_trouble(error) or str(error)
            except Exception as error:  # whatever it is, somebody has to go on watching
                trouble = files_trouble(error) or f"{type(error).__name__}: {error}"
            if trouble != self._trouble:  # said once, not every second
                self._trouble = trouble
                self._say(trouble or "all is well again")
            await asyncio.sleep(_LOOK)

    def _look(self) -> None:
        for name in ("run", "superlink"):
            keep_short(self._server.log(name))
        if trouble := self._server.disk_trouble():
            raise RunError(trouble)  # what needs the disk would only end again
        if self._superlink is None or self._superlink.poll() is not None:
            self._say("the SuperLink ended; starting it again")
            end_child(self._run)
            self._run = None
            self._start_superlink()
        if (stamp := self._server.stamp()) != self._stamp:
            self._tell_superlink()
            self._stamp = stamp if self._server.stamp() == stamp else -1.0
        self._look_after_run()

    def _look_after_run(self) -> None:
        job = self._server.job()
        if job is None or not job.wanted:
            if self._run is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._run.wait(timeout=_SOON_AFTER)  # it has ended its work
                end_child(self._run)
                self._say(f"run '{'' if job is None else job.run}' has ended")
            self._run = None
            return
        if job.since != self._asked:
            end_child(self._run)  # by another plan from now on
            self._ends = self._crashes = 0
        elif self._run is not None:
            if (code := self._run.poll()) is not None:
                self._run = None
                latest = self._server.job()  # it may have ended well since the first look
                if latest is not None and latest.wanted:
                    self._after_end(latest, code)
            return
        elif time.monotonic() < self._run_not_before:
            return
        self._asked = job.since
        self._run = start_child(
            "run",
            [str(self._server.path)],
            log=self._server.log("run"),
            home=self._server.home,
        )

    def _after_end(self, job: Job, code: int) -> None:
        """Tell why the process of a run ended; it is started again, or has failed too often."""
        status = RunStatus.of(self._server, job.run, self._say)
        error, reached = status.values.pop("error", ""), status.values.get("round")
        if reached != self._ended_in:
            self._ends, self._crashes, self._ended_in = 0, 0, reached
        self._ends += 1
        self._crashes += code == CRASHED
        pause = min(_SOON_AFTER * 2 ** (self._ends - 1), _LATEST_AFTER)
        self._run_not_before = time.monotonic() + pause
        log = self._server.log("run")
        again = f"it goes on from its checkpoint in {pause:.0f} s; see {log}"
        if code < 0:
            memory = " (mostly for lack of memory: give the machine more)"
            sentence = (
                f"run '{job.run}': its process was killed by signal {-code}"
                f"{memory if -code == signal.SIGKILL else ''}; {again}"
            )
        elif code != CRASHED:
            sentence = f"run '{job.run}': {error or f'its process ended with code {code}'}; {again}"
        elif self._crashes < _TRIES:
            sentence = f"run '{job.run}' ended by an error ({error}); {again}"
        else:
            plan = self._server.plan_file(job.run)
            sentence = (
                f"run '{job.run}' ended by an error ({error}), {self._crashes} times in round "
                f"{(reached or 0) + 1}; {log} says where: mend it, then go on with 'fedapa server "
                f"run {self._server.path} {plan}'"
            )
            status.say(sentence, state="failed")
            self._server.save_job(replace(job, wanted=False))
            return
        status.say(sentence, state="interrupted")

    def _start_superlink(self) -> None:
        server, settings = self._server, self._server.settings
        server.home.mkdir(exist_ok=True)
        self._superlink = start_child(
            "superlink",
            [
                "--host=127.0.0.1",
                f"--port={settings.inner_port}",
                f"--ssl-ca-certfile={server.authority}",
                f"--ssl-certfile={server.path / 'server.crt'}",
                f"--ssl-keyfile={server.path / 'server.key'}",
                "--enable-supernode-auth",
                f"--database={server.home / 'state.db'}",
                "--isolation=process",
                "--disable-runtime-dependency-installation",
            ],
            log=server.log("superlink"),
            home=server.home,
        )
        until = time.monotonic() + _PATIENCE
        while not self._answers():
            if self._superlink.poll() is not None or time.monotonic() > until:
                raise RunError(f"the SuperLink does not start; see {server.log('superlink')}")
            time.sleep(0.3)
        self._stamp = -1.0

    def _answers(self) -> bool:
        with contextlib.closing(socket.socket()) as tried:
            tried.settimeout(1)
            if tried.connect_ex(("127.0.0.1", self._server.settings.inner_port)):
                return False
        try:
            with contextlib.closing(self._control()) as control:
                control.nodes()
        except FedapaError:
            return False
        return True

    def _tell_superlink(self) -> None:
        with contextlib.closing(self._control()) as control:
            known = control.nodes()
            keys = {room: key for key, room in self._server.keys().items()}
            for room, entry in self._server.rooms().items():
                if entry.expelled and entry.node in known:
                    control.unregister(entry.node)
                    self._say(f"room '{room}' was expelled")
                elif not entry.expelled and entry.node not in known:
                    self._server.note_node(room, control.register(keys[room], room))
                    self._say(f"room '{room}' is enrolled")

    def _control(self) -> Control:
        return Control(self._server.inner_address, Path(self._server.authority))

    def _end(self) -> None:
        end_child(self._run)
        end_child(self._superlink)
