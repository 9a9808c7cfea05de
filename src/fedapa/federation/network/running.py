"""The process of a run at the server: rounds over Flower until it is finished, whatever happens.

It goes on from the run's checkpoint, also under another run of Flower's. Where too few rooms answer
or the disk is full it pauses, says so, and tries again.
"""

import contextlib
import errno
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import httpx
from flwr.supercore.constant import TaskType

from fedapa.errors import (
    FedapaError,
    PausedError,
    RosterError,
    RunError,
    files_trouble,
    one_line,
)
from fedapa.federation import run_files
from fedapa.federation.checkpoint import Checkpoint
from fedapa.federation.engines.flower import Flower, Grid
from fedapa.federation.messages import Agreement
from fedapa.federation.network.app import app_bundle
from fedapa.federation.network.flower_calls import Control, Tasks, serverapp_grid
from fedapa.federation.network.run_status import CRASHED, RunStatus
from fedapa.federation.network.server_folder import ServerFolder
from fedapa.federation.plan import Plan
from fedapa.federation.prepare import agree
from fedapa.federation.run import run
from fedapa.files import write_text
from fedapa.processes import Progress
from fedapa.rooms.card import DataCard
from fedapa.toml import read_toml

__all__ = ["carry_out_job", "check_plan", "main"]

_AGAIN = 10.0
"""Seconds until a run that pauses looks again."""
_LONGEST_REASON = 300


def check_plan(plan: Plan) -> None:
    """Refuse what means nothing where each room has its data for itself."""
    data, build = plan.data, plan.build()
    reasons = {
        "data.partition": data.partition != "rooms",
        "data.few_labels_in": data.few_labels_in is not None,
        "joins": bool(plan.joins),
        "attack": plan.attack is not None,
    }
    for key, given in reasons.items():
        if given:
            raise RosterError(
                f"{key}: needs all rooms in one process, and here each is by itself; leave it out, "
                "or use 'fedapa run' without --engine"
            )
    if build.pools or build.pools_in_turn:
        raise RosterError(
            f"{build.title} needs everybody's windows in one place, and rooms on a network keep "
            "theirs; use another algorithm, or 'fedapa run'"
        )


def _carry_out(grid: Grid, server: ServerFolder, plan: Plan, out: Path, status: RunStatus) -> None:
    """All rounds that are left, with pauses."""

    def agreeing(cards: Sequence[DataCard]) -> Agreement:
        return agree(plan, cards)

    out.mkdir(parents=True, exist_ok=True)
    engine = Flower(grid, plan, agreeing, server.nodes, out, say=status.say)

    def show(progress: Progress) -> None:
        done = {"round": progress.done, "rounds": progress.total, "note": progress.note}
        status.note(state="running", seen=engine.seen, **done)

    while True:
        try:
            status.note(state="running")
            run(plan, out=out, resume=True, engine=engine, show=show)
            status.note(state="finished", seen=engine.seen)
            return
        except (PausedError, RosterError) as error:
            _pause(status, str(error))
            _wait_for_rooms(grid, server, plan)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            place = f"{error.filename}: " if error.filename else ""
            _pause(status, f"{place}{error.strerror}; nothing is half written, make room")
            time.sleep(_AGAIN)


def _pause(status: RunStatus, sentence: str) -> None:
    if status.values.get("pause") != sentence:
        status.say(sentence)
    status.note(state="paused", pause=sentence)


def _wait_for_rooms(grid: Grid, server: ServerFolder, plan: Plan) -> None:
    """Until as many are connected as the plan wants, or one where it does not say."""
    while True:
        time.sleep(_AGAIN)
        there = set(grid.get_node_ids()) & set(server.nodes().values())
        if len(there) >= max(1, min(plan.network.quorum, len(server.nodes()))):
            return


@contextlib.contextmanager
def _grid(server: ServerFolder) -> Iterator[Grid]:
    """A grid of a new run of Flower's; the one of an earlier process is ended."""
    job = server.job()
    control = Control(server.inner_address, server.authority)
    with contextlib.closing(control):
        if job is not None and job.flower_run is not None:
            control.stop_run(job.flower_run)
        number = control.start_run(*app_bundle())
        if job is not None:
            server.save_job(replace(job, flower_run=number))
    tasks = Tasks(server.inner_address, TaskType.SERVER_APP, authority=server.authority)
    with contextlib.closing(tasks):
        while (token := tasks.acquire()) is None:
            time.sleep(0.2)
    with serverapp_grid(server.inner_address, server.authority, token) as grid:
        yield grid


def carry_out_job(server: ServerFolder, grid: Grid) -> None:
    """The run that goes on at a server; how it ended is in the status."""
    job = server.job()
    if job is None:
        raise RunError(f"{server.path}: there is no run to carry out")
    status = RunStatus.of(server, job.run, _print)
    status.values.pop("error", None)  # of an earlier process
    try:
        plan = _reachable(server, job.run, Plan(**read_toml(server.plan_file(job.run))), status)
        _carry_out(grid, server, plan, server.run(job.run), status)
    except FedapaError as error:
        status.say(files_trouble(error) or str(error), state="failed")
    latest = server.job()
    # Asked for again meanwhile, maybe with more rounds, it is still wanted.
    if latest is not None and latest.run == job.run and latest.since == job.since:
        server.save_job(replace(latest, wanted=False))


def _reachable(server: ServerFolder, run: str, plan: Plan, status: RunStatus) -> Plan:
    """The plan; an open run that has passed the number it is given ends after its next round.

    Rounds go on while somebody looks how many there were.
    """
    out = server.run(run)
    state = Checkpoint(out / "checkpoint").load()
    if state is None or run_files.read_plan(out).total is not None or plan.total is None:
        return plan
    if (coming := cast(int, state["round"])) <= plan.rounds:
        return plan
    status.say(f"{plan.rounds} rounds are done already; the run ends after round {coming}")
    later = Plan(**{**plan.document(), "rounds": coming})
    write_text(server.plan_file(run), later.toml())
    return later


def main() -> None:
    """Carry out the job of the server in the folder that the first argument names."""
    server = ServerFolder.open(Path(sys.argv[1]))
    try:
        with _grid(server) as grid:
            carry_out_job(server, grid)
    except (RunError, httpx.HTTPError) as error:  # the SuperLink is gone: the next one goes on
        _print(str(error))
        _note_end(server, error, str(error))
        sys.exit(1)
    except Exception as error:
        traceback.print_exc()
        _note_end(server, error, f"{type(error).__name__}: {error}")
        sys.exit(CRASHED)


def _note_end(server: ServerFolder, error: Exception, said: str) -> None:
    """Leave the reason to the server, which tells it and starts the run again (server.py)."""
    with contextlib.suppress(FedapaError):  # the status itself may be damaged
        if (job := server.job()) is not None:
            reason = one_line(files_trouble(error) or said)[:_LONGEST_REASON]
            RunStatus.of(server, job.run, _print).note(error=reason)


def _print(sentence: str) -> None:
    """To the log, where there is room for it."""
    with contextlib.suppress(OSError):
        sys.stdout.write(sentence + "\n")
