"""Many rooms on one machine or cluster through Flower's simulation engine, which is Ray.

The same client app as on a network answers, in Ray's processes; the same round loop asks. What is
different is who starts processes: with hundreds of rooms, or several machines, Ray does it better
than one pool of workers (docs/deploy.md).
"""

import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flwr.app import ConfigRecordValues, Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedapa.errors import PlanError, RunError
from fedapa.federation.engines.flower import Flower
from fedapa.federation.engines.frames import pack, unpack
from fedapa.federation.network.app import make_client_app
from fedapa.federation.network.place import Place
from fedapa.federation.network.running import check_plan
from fedapa.federation.plan import Plan
from fedapa.federation.prepare import agree, store_of
from fedapa.federation.run import OPEN_ALONE, Run, run
from fedapa.processes import Show, unseen
from fedapa.stores.store import Store

__all__ = ["simulate_run"]

_WHO = "query.who"


@dataclass(frozen=True)
class _Rooms:
    """Every room of a store, by the number that the simulation gives a node."""

    names: tuple[str, ...]
    data: str
    folder: str

    def place(self, context: Context) -> Place:
        """The room of a node."""
        name = self.names[int(context.node_config["partition-id"])]
        return Place(name, self.data, str(Path(self.folder) / name))


def simulate_run(
    plan: Plan, out: Path, *, resume: bool = False, workers: int = 1, show: Show = unseen
) -> Run:
    """Carry out a plan on Flower's simulation engine; ``workers`` rooms at a time."""
    check_plan(plan)
    if plan.total is None:
        raise PlanError(OPEN_ALONE)
    if sys.platform == "win32":
        raise PlanError("--engine flower-simulation: Ray needs Linux or macOS; use in-process")
    from flwr.simulation import run_simulation

    store = store_of(plan, show)
    with Store(store) as opened:
        names = plan.data.rooms_of(opened)
    rooms = _Rooms(tuple(names), str(store.resolve()), str((out / "rooms").resolve()))
    finished: list[Run | BaseException] = []
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            nodes = _names(grid, len(names))
            out.mkdir(parents=True, exist_ok=True)
            engine = Flower(grid, plan, lambda cards: agree(plan, cards), lambda: nodes, out)
            finished.append(run(plan, out=out, resume=resume, engine=engine, show=show))
        except BaseException as error:  # Flower would only log it
            finished.append(error)

    resources: dict[str, ConfigRecordValues] = {"num_cpus": 1, "num_gpus": 0.0}
    run_simulation(
        server_app=server,
        client_app=_client_app(rooms),
        num_supernodes=len(names),
        backend_config={
            "client_resources": resources,
            "init_args": {"num_cpus": workers, "include_dashboard": False, "log_to_driver": False},
        },
    )
    if not finished:
        raise RunError("the simulation ended before the run began; see what Ray said")
    if isinstance(finished[0], BaseException):
        raise finished[0]
    _gather_models(out, names)
    return finished[0]


def _client_app(rooms: _Rooms) -> ClientApp:
    """The app of a room, for whichever node it is called."""

    def answering(place: Place, action: str, frames: Mapping[str, bytes]) -> Mapping[str, bytes]:
        import torch

        from fedapa.federation.network.answering import answer

        torch.set_num_threads(1)  # as in workers: sums come in one order
        return answer(place, action, frames)

    app = make_client_app(answering, rooms.place)

    @app.query(_WHO.partition(".")[2])
    def who(message: Message, context: Context) -> Message:
        return Message(pack({"name": rooms.place(context).room.encode()}), reply_to=message)

    return app


def _names(grid: Grid, number: int) -> dict[str, int]:
    """Room → node: the simulation numbers nodes as it likes."""
    while len(nodes := list(grid.get_node_ids())) < number:
        time.sleep(0.1)
    sent = grid.push_messages([Message(pack({"ask": b""}), node, _WHO) for node in nodes])
    waiting, names = set(sent), {}
    while waiting:
        for reply in grid.pull_messages(waiting):
            waiting.discard(reply.metadata.reply_to_message_id)
            if reply.has_error():
                raise RunError(f"a node of the simulation failed: {reply.error.reason}")
            name = unpack(reply.content, "name of a room")["name"].decode()
            names[name] = reply.metadata.src_node_id
        time.sleep(0.05)
    return names


def _gather_models(out: Path, names: tuple[str, ...]) -> None:
    """The finished nets where those of any run are."""
    name = (out / "name").read_text().strip()
    (out / "models").mkdir(exist_ok=True)
    for room in names:
        file = f"{room}.safetensors"
        made = out / "rooms" / room / "models" / name / file
        if made.is_file():
            shutil.copyfile(made, out / "models" / file)
