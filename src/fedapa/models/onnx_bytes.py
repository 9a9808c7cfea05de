"""The bytes of an ONNX model: as much of its protobuf as our nets need, and no package for it.

Six messages (model, graph, node, attribute, tensor, value) of numbered fields; the numbers are
those of onnx.proto. Equal graphs have equal bytes. Weights stay out: an initialiser is a name and a
shape, and whoever runs the graph gives the arrays (decision 0065). ``with_weights`` puts them in,
for programs that know nothing of our files.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["Attribute", "Graph", "Node", "Value", "wanted_weights", "with_weights"]

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
        return b"".join(
            [
                _varint_field(1, _IR_VERSION),
                _text(2, "fedapa"),
                _message(7, b"".join(parts)),
                _message(8, _operators()),
            ]
        )


def _operators() -> bytes:
    return _text(1, "") + _varint_field(2, _OPSET)


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
    place = _message(13, _place()) + _varint_field(14, _EXTERNAL)
    return sides + _varint_field(2, _FLOAT32) + _text(8, value.name) + place


def _place() -> bytes:
    # ONNX wants a file for what is not here; it is never opened, the array is given in memory.
    return _text(1, "location") + _text(2, "given")


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


# ---- reading what somebody else may have made ---------------------------------------------------

_VARINT, _BYTES, _FOUR_BYTES = 0, 2, 5  # how a field is written
_MODEL_FIELDS = {1: _VARINT, 2: _BYTES, 7: _BYTES, 8: _BYTES}
_GRAPH_FIELDS = {1: _BYTES, 2: _BYTES, 5: _BYTES, 11: _BYTES, 12: _BYTES}
_NODE_FIELDS = {1: _BYTES, 2: _BYTES, 3: _BYTES, 4: _BYTES, 5: _BYTES}
_ATTRIBUTE_FIELDS = {1: _BYTES, 2: _FOUR_BYTES, 3: _VARINT, 8: _VARINT, 20: _VARINT}
_TENSOR_FIELDS = {1: _VARINT, 2: _VARINT, 8: _BYTES, 9: _BYTES, 13: _BYTES, 14: _VARINT}


def wanted_weights(model: bytes) -> list[str]:
    """Names of the arrays that a graph of ours wants to be given.

    A graph that somebody else made may name any file of the system, in many places. So whatever
    ``Graph.bytes`` would not write is a ValueError: no tensors and graphs within attributes, no
    functions, no operators of others, no field twice that is there once.
    """
    parts = _fields(model, _MODEL_FIELDS, once={1, 2, 7, 8})
    if parts[8] != [_operators()] or not parts[7]:
        raise ValueError("its operators are others")
    graph = _fields(parts[7][0], _GRAPH_FIELDS, once={2})
    for node in graph[1]:
        for attribute in _fields(node, _NODE_FIELDS, once={3, 4})[5]:
            _fields(attribute, _ATTRIBUTE_FIELDS, once={1, 2, 3, 20})
    names = []
    for content in graph[5]:
        tensor = _fields(content, _TENSOR_FIELDS, once={2, 8, 9, 13, 14})
        if tensor[13] or tensor[14]:
            if tensor[13] != [_place()] or tensor[9]:
                raise ValueError("an array of it is elsewhere")
            names += [name.decode() for name in tensor[8]]
    return names


def _fields(content: bytes, known: Mapping[int, int], *, once: set[int]) -> dict[int, list[bytes]]:
    """The fields of a message by number; numbers themselves are not needed, so they stay bytes."""
    fields: dict[int, list[bytes]] = {number: [] for number in known}
    for number, wire, value in _read(content):
        if known.get(number) != wire:
            raise ValueError(f"field {number} is none of ours")
        fields[number].append(value)
    for number in once:
        if len(fields[number]) > 1:
            raise ValueError(f"field {number} is there {len(fields[number])} times")
    return fields


def _read(content: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Number, kind and bytes of each field."""
    at = 0
    while at < len(content):
        key, at = _read_varint(content, at)
        number, wire = key >> 3, key & 7
        begin = at
        if wire == _VARINT:
            _, at = _read_varint(content, at)
        elif wire == _BYTES:
            size, begin = _read_varint(content, at)
            at = begin + size
        else:
            at += 4  # nothing else of ours has another length
        if at > len(content):
            raise ValueError("it ends too early")
        yield number, wire, content[begin:at]


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends; only as ``_varint`` writes it, so that nobody reads another."""
    value = 0
    for place, byte in enumerate(content[at : at + 10]):
        value |= (byte & 127) << 7 * place
        if byte < 128:
            end = at + place + 1
            if _varint(value) != content[at:end]:
                break
            return value, end
    raise ValueError("a number is not as it should be")


# ---- a graph that needs nothing else -----------------------------------------------------------


def with_weights(
    model: bytes,
    weights: Mapping[str, npt.NDArray[np.float32]],
    *,
    temperature: float,
    classes: int,
    notes: Mapping[str, str],
) -> bytes:
    """The same model with its arrays inside, a further output and notes.

    Args:
        model: the bytes of a graph of ours with an output ``logits`` [B, C].
        weights: the arrays that it wants, by name.
        temperature: T of the output ``probabilities`` [B, C] = softmax(logits / T).
        classes: C.
        notes: what a program may read of the model, by name.
    """
    wanted_weights(model)  # nothing else is rewritten
    parts = _fields(model, _MODEL_FIELDS, once={1, 2, 7, 8})
    content: list[bytes] = []
    nodes = 0
    for number, _, value in _read(parts[7][0]):
        nodes += number == 1
        if number == 5:
            tensor = _fields(value, _TENSOR_FIELDS, once={2, 8, 9, 13, 14})
            if tensor[14]:
                value = _array(tensor[8][0].decode(), weights)
        content.append(_message(number, value))
    scaled = Node("Div", ["logits", "temperature"], "scaled logits")
    softmax = Node("Softmax", ["scaled logits"], "probabilities", {"axis": 1})
    content += [
        _message(1, _node(scaled, nodes)),
        _message(1, _node(softmax, nodes + 1)),
        _message(5, _number("temperature", float(temperature))),
        _message(12, _value(Value("probabilities", ("batch", classes)))),
    ]
    return b"".join(
        [
            _varint_field(1, _IR_VERSION),
            _text(2, "fedapa"),
            _message(7, b"".join(content)),
            _message(8, _operators()),
            *(_message(14, _text(1, name) + _text(2, notes[name])) for name in sorted(notes)),
        ]
    )


def _array(name: str, weights: Mapping[str, npt.NDArray[np.float32]]) -> bytes:
    values = np.ascontiguousarray(weights[name], "<f4")
    sides = b"".join(_varint_field(1, side) for side in values.shape)
    raw = _message(9, values.tobytes())
    return sides + _varint_field(2, _FLOAT32) + _text(8, name) + raw
