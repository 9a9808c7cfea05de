"""The same work as a plain Flower app: FedAvg of the plain net on Flower's simulation engine (Ray).

What a user of Flower would write: a ClientApp that loads the weights it gets, trains an epoch with
plain torch and sends them back, and scores when it is asked; a ServerApp with Flower's own FedAvg.
A client's windows stay in the memory of the process that served it last.
"""

import functools
from collections.abc import Callable
from pathlib import Path

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from torch import Tensor
from torch.nn import functional as F

from benchmarks._eager import Data, Net, score, train
from benchmarks._work import WORKS

__all__ = ["client", "simulate"]

client = ClientApp()


@functools.lru_cache(maxsize=128)
def _data(folder: str, number: int, windows: int) -> Data:
    return Data(Path(folder), number, windows)


def _asked(message: Message, context: Context) -> tuple[Net, Data]:
    """The net with the weights of a message, and the windows of the client."""
    config = message.content["config"]
    work = WORKS[str(config["work"])]
    torch.set_num_threads(1)
    net = Net(work.net, work.shape)
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    number = int(context.node_config["partition-id"])
    return net, _data(str(config["folder"]), number, work.train)


def _cross_entropy(logits: Tensor, _: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits, labels)


@client.train()
def _train(message: Message, context: Context) -> Message:
    net, data = _asked(message, context)
    train(net, data, _cross_entropy, torch.randperm(len(data.train)))
    told = MetricRecord({"num-examples": len(data.train)})
    content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": told})
    return Message(content=content, reply_to=message)


@client.evaluate()
def _evaluate(message: Message, context: Context) -> Message:
    net, data = _asked(message, context)
    told = MetricRecord({"accuracy": score(net, data), "num-examples": len(data.test)})
    return Message(content=RecordDict({"metrics": told}), reply_to=message)


ROUNDS = 10_000
"""More than anybody takes: the program is ended by who measures it."""


def simulate(name: str, folder: Path, *, workers: int, wait: Callable[[], None]) -> None:
    """Rounds of a work on Ray, each when ``wait`` returns."""
    from flwr.simulation import run_simulation

    work = WORKS[name]
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        net = Net(work.net, work.shape)
        config = {"work": name, "folder": str(folder)}

        def after(*_: object) -> None:
            wait()

        FedAvg(min_available_nodes=work.rooms).start(
            grid=grid,
            initial_arrays=ArrayRecord(net.state_dict()),
            num_rounds=ROUNDS,
            train_config=ConfigRecord(config),
            evaluate_config=ConfigRecord(config),
            evaluate_fn=after,
        )

    run_simulation(
        server_app=server,
        client_app=client,
        num_supernodes=work.rooms,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": workers, "include_dashboard": False, "log_to_driver": False},
        },
    )
