"""What we ask Flower's control interface for."""

from types import SimpleNamespace
from typing import Any

from flwr.proto.control_pb2 import ListNodesResponse
from flwr.proto.node_pb2 import NodeInfo

from fedapa.federation.network.flower_calls import Control


def test_a_node_that_was_unregistered_is_no_node() -> None:
    """The SuperLink lists it for good and refuses to unregister it again: whoever expelled a room
    could then neither enrol another one nor start the server again."""
    told = ListNodesResponse(
        nodes_info=[
            NodeInfo(node_id=number, status=status)
            for number, status in enumerate(("registered", "online", "offline", "unregistered"))
        ]
    )
    client: Any = SimpleNamespace(ListNodes=lambda _: told)
    control = Control.__new__(Control)
    control._client = client
    assert {number: node.online for number, node in control.nodes().items()} == {
        0: False,
        1: True,
        2: False,
    }
