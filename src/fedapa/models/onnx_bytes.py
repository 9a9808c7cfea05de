"""The bytes of an ONNX model: as much of its protobuf as our nets need, and no package for it.

Six messages (model, graph, node, attribute, tensor, value) of numbered fields; the numbers are
those of onnx.proto. Equal graphs have equal bytes. Weights stay out: an initialiser is a name and a
shape, and whoever runs the graph gives the arrays (decision 0065).
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Attribute", "Graph", "Node", "Value", "opens_no_file"]

_FLOAT32, _INT64 = 1, 7  # element types of a tensor
_FLOAT, _INTEGER, _INTEGERS = 1, 2, 7  # kinds of an attribute
_OPSET = 17  # of September 2022; every onnxruntime since 1.13 reads it
_IR_VERSION = 8
_EXTERNAL = 1

Attribute = int | float | Sequence[int]


@dataclass(frozen=True)
class Node:
    """One operation."""

    kind: str
    """As ONNX calls it: Conv, Relu …"""
    inputs: Sequence[str]
    output: str
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


@dataclass(frozen=True)
class Value:
    """A float32 array that goes into or comes out of a graph; words are sides of any length."""

    name: str
    shape: Sequence[int | str]


@dataclass(frozen=True)
class Graph:
    """What is computed, in the order of the nodes."""

    nodes: Sequence[Node]
    inputs: Sequence[Value]
    outputs: Sequence[Value]
    weights: Sequence[Value]
    """Arrays that whoever runs the graph gives by name."""
    numbers: Mapping[str, Sequence[int] | float] = field(default_factory=dict)
    """Small constants: axes, thresholds."""

    def bytes(self) -> bytes:
        """The model as ONNX's protobuf."""
        parts = [
            *(_message(1, _node(node, number)) for number, node in enumerate(self.nodes)),
            _text(2, "fedapa"),
            *(_message(5, _weight(value)) for value in self.weights),
            *(_message(5, _number(name, value)) for name, value in sorted(self.numbers.items())),
            *(_message(11, _value(value)) for value in self.inputs),
            *(_message(12, _value(value)) for value in self.outputs),
        ]
        operators = _text(1, "") + _varint_field(2, _OPSET)
        return b"".join(
            [
                _varint_field(1, _IR_VERSION),
                _text(2, "fedapa"),
                _message(7, b"".join(parts)),
                _message(8, operators),
            ]
        )


def _node(node: Node, number: int) -> bytes:
    return b"".join(
        [
            *(_text(1, name) for name in node.inputs),
            _text(2, node.output),
            _text(3, f"{node.kind} {number}"),
            _text(4, node.kind),
            *(_message(5, _attribute(name, v)) for name, v in sorted(node.attributes.items())),
        ]
    )


def _attribute(name: str, value: Attribute) -> bytes:
    if isinstance(value, float):
        return _text(1, name) + _key(2, 5) + struct.pack("<f", value) + _varint_field(20, _FLOAT)
    if isinstance(value, int):
        return _text(1, name) + _varint_field(3, value) + _varint_field(20, _INTEGER)
    numbers = b"".join(_varint_field(8, number) for number in value)
    return _text(1, name) + numbers + _varint_field(20, _INTEGERS)


def _weight(value: Value) -> bytes:
    sides = b"".join(_varint_field(1, int(side)) for side in value.shape)
    name = _text(8, value.name)
    return sides + _varint_field(2, _FLOAT32) + name + _place() + _varint_field(14, _EXTERNAL)


def _place() -> bytes:
    # ONNX wants a file for what is not here; it is never opened, the array is given in memory.
    return _message(13, _text(1, "location") + _text(2, "given"))


def opens_no_file(graph: bytes, weights: int) -> bool:
    """Whether so many weights are all that a graph wants from outside itself.

    A graph that somebody else made may name any file of the system instead.
    """
    return graph.count(b"location") == graph.count(_place()) == weights


def _number(name: str, value: Sequence[int] | float) -> bytes:
    if isinstance(value, float):
        return _varint_field(2, _FLOAT32) + _text(8, name) + _message(9, struct.pack("<f", value))
    raw = struct.pack(f"<{len(value)}q", *value)
    return (
        _varint_field(1, len(value)) + _varint_field(2, _INT64) + _text(8, name) + _message(9, raw)
    )


def _value(value: Value) -> bytes:
    sides = b"".join(
        _message(1, _text(2, side) if isinstance(side, str) else _varint_field(1, side))
        for side in value.shape
    )
    tensor = _varint_field(1, _FLOAT32) + _message(2, sides)
    return _text(1, value.name) + _message(2, _message(1, tensor))


def _key(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def _varint_field(number: int, value: int) -> bytes:
    return _key(number, 0) + _varint(value)


def _message(number: int, content: bytes) -> bytes:
    return _key(number, 2) + _varint(len(content)) + content


def _text(number: int, content: str) -> bytes:
    return _message(number, content.encode())


def _varint(value: int) -> bytes:
    """Seven bits at a time, the lowest first; a negative number as its 64-bit complement."""
    rest = value & (1 << 64) - 1
    made = bytearray()
    while rest > 127:
        made.append(rest & 127 | 128)
        rest >>= 7
    made.append(rest)
    return bytes(made)
