"""What we call of Flower beyond its public names, in one place: an update of Flower is read here.

Flower starts a fresh process for each message, with the code that came with it. We do what those
processes do ourselves: a room runs its own installation and nothing that a server sent, it waits
without torch, and a server's run is one process that survives what happens around it.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
from flwr.app import Context, Error, Message
from flwr.common.constant import ErrorCode, SubStatus
from flwr.common.serde import fab_to_proto, run_from_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
    UnregisterNodeRequest,
)
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullTaskInputRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.constant import NodeStatus, TaskType
from flwr.supercore.error import FlowerError
from flwr.supercore.fab import Fab
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
)
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity

from fedapa.errors import RunError

if TYPE_CHECKING:
    from flwr.superlink.grid import HttpGrid

__all__ = ["Control", "NodeSeen", "Tasks", "serverapp_grid"]


@dataclass(frozen=True)
class NodeSeen:
    """What the SuperLink knows of a room's node."""

    node: int
    online: bool
    online_until: float
    """Seconds since 1970; by then it lost its heartbeat, or will."""


class Control:
    """The SuperLink's control interface, which is open to whoever reaches it: loopback alone."""

    def __init__(self, address: str, authority: Path) -> None:
        from flwr.supercore.control import ControlHttpClient  # a waiting room has no use for it

        self._client = ControlHttpClient.from_server_address(
            server_address=address,
            insecure=False,
            root_certificates=authority.read_bytes(),
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        )

    def register(self, public_key: bytes, name: str) -> int:
        """A node for a room's key; its number."""
        with _explained(f"room '{name}' cannot be enrolled"):
            request = RegisterNodeRequest(public_key=public_key, name=name)
            return int(self._client.RegisterNode(request).node_id)

    def unregister(self, node: int) -> None:
        """From now on the node's key is refused."""
        with _explained(f"node {node} cannot be expelled"):
            self._client.UnregisterNode(UnregisterNodeRequest(node_id=node))

    def nodes(self) -> dict[int, NodeSeen]:
        """Every registered node.

        The SuperLink lists those that were registered, too, and unregisters none of them twice.
        """
        with _explained("the nodes cannot be listed"):
            told = self._client.ListNodes(ListNodesRequest()).nodes_info
        return {
            int(node.node_id): NodeSeen(
                int(node.node_id), node.status == "online", float(node.online_until)
            )
            for node in told
            if node.status != NodeStatus.UNREGISTERED
        }

    def start_run(self, bundle: bytes, fab_hash: str) -> int:
        """A run of the app; its number."""
        with _explained("the run cannot be started"):
            fab = fab_to_proto(Fab(fab_hash, bundle, {}))
            return int(self._client.StartRun(StartRunRequest(fab=fab)).run_id)

    def stop_run(self, run: int) -> None:
        """Forget a run of an earlier process; one that ended by itself is fine too."""
        with contextlib.suppress(httpx.HTTPError):
            self._client.StopRun(StopRunRequest(run_id=run))

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    """An error of the SuperLink as one sentence."""
    try:
        yield
    except httpx.HTTPStatusError as error:
        told = FlowerError.from_json(error.response.text)
        reason = told.message if told else f"status {error.response.status_code}"
        raise RunError(f"{what}: {reason}") from error
    except httpx.HTTPError as error:
        raise RunError(f"{what}: the SuperLink does not answer ({error})") from error


class Tasks:
    """The work that a SuperLink or a SuperNode has to give, for one process that does it."""

    def __init__(self, address: str, kind: TaskType, *, authority: Path | None = None) -> None:
        self._address, self._kind = address, kind
        self._authority = None if authority is None else authority.read_bytes()
        self._client = self._connected([])

    def _connected(self, more: Sequence[RuntimeTokenHttpInterceptor]) -> RuntimeHttpClient:
        component = self._kind.value
        return RuntimeHttpClient.from_server_address(
            server_address=self._address,
            insecure=self._authority is None,
            root_certificates=self._authority,
            interceptors=[RuntimeVersionHttpInterceptor(component_name=component), *more],
        )

    def acquire(self) -> str | None:
        """The token of a task that waits, if there is one; httpx.HTTPError where nobody is."""
        request = AcquireTaskRequest(supported_task_types=[self._kind.value])
        answer = self._client.AcquireTask(request)
        return str(answer.token) if answer.HasField("task") and answer.token else None

    def answer(self, token: str, work: Callable[[Message, Context, str], Message]) -> None:
        """Do one task of a SuperNode: ``work`` makes a reply of message, context and app hash."""
        # It loads what a waiting room has no use for.
        from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message

        client = self._connected([RuntimeTokenHttpInterceptor(token)])
        with contextlib.closing(client), _beating(client):
            message, context, _, fab = pull_task_input(client)
            try:
                reply = work(message, context, fab.hash_str)
                status, details = SubStatus.COMPLETED, ""
            except Exception as error:
                # The SuperNode waits for a reply, whatever it is.
                details = f"{type(error).__name__}: {error}"[:300]
                code = ErrorCode.CLIENT_APP_RAISED_EXCEPTION
                reply, status = Message(Error(code, details), reply_to=message), SubStatus.FAILED
            push_message(client, reply, context)
            client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=details))

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


@contextlib.contextmanager
def _beating(client: RuntimeHttpClient) -> Iterator[None]:
    """Say every few seconds that the task is being done.

    Flower's own way ends the process when the task is gone: a room outlives a task, and a run whose
    task is gone finds that out when it next looks for replies.
    """

    def beat() -> bool:
        with contextlib.suppress(httpx.HTTPError):
            client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
        return True

    sender = HeartbeatSender(beat)
    sender.start()
    try:
        yield
    finally:
        # It may be waiting for an answer that does not come; it is a daemon, nobody needs it.
        threading.Thread(target=sender.stop, daemon=True).start()


@contextlib.contextmanager
def serverapp_grid(address: str, authority: Path, token: str) -> "Iterator[HttpGrid]":
    """The grid of a run whose task this process has acquired."""
    from flwr.superlink.grid import HttpGrid  # neither for this

    grid = HttpGrid(
        runtime_api_address=address, root_certificates=authority.read_bytes(), token=token
    )
    client = grid._runtime_client
    status, details = SubStatus.FAILED, "the process ended"
    try:
        with _beating(client):
            task = client.PullTaskInput(PullTaskInputRequest())
            TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
            TaskIdentity.node_id = task.context.node_id
            grid.set_run(run_from_proto(task.run))
            yield grid
            status, details = SubStatus.COMPLETED, ""
    finally:
        grid._retry_invoker.max_tries = 1
        with contextlib.suppress(httpx.HTTPError):
            client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=details))
        grid.close()
