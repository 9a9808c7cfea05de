"""A net as an ONNX graph, for counting without torch: raw windows in, logits and embedding out.

The normaliser comes first, so that what goes in is what a ``Windower`` makes. The graph is walked
off the modules by their types: a new net of these layers needs nothing here. The weights are not
in it; they have the names of ``state_dict``, and are given when it is run.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from fedapa.errors import DataError
from fedapa.models.model import SHORTEST, Counter, Model, Scale
from fedapa.models.onnx_bytes import Attribute, Graph, Node, Value

__all__ = ["graph_of"]


def graph_of(model: Counter, window_shape: Sequence[int]) -> bytes:
    """The graph of a net in eval mode, as bytes of an ONNX model.

    Input ``windows`` [B, packets, subcarriers] (any number of packets) or [B, features]; outputs
    ``logits`` [B, C] and ``embedding`` [B, D]. Further inputs of the net are ``normaliser.mean``
    and ``normaliser.deviation`` [subcarriers]. What is no net is refused.
    """
    if not isinstance(model, Model):
        raise DataError(model.unsaved)
    walk = _Walk()
    features = window_shape[-1]
    sides = ("batch", features) if len(window_shape) == 1 else ("batch", "packets", features)
    mean = walk.weight("normaliser.mean", (features,))
    deviation = walk.weight("normaliser.deviation", (features,))
    at = walk.add("Sub", ["windows", mean])
    at = walk.add("Div", [at, deviation])
    if len(window_shape) > 1:
        links = getattr(model.encoder, "links", 1)
        sides_by_link = [0, -1, links, features // links]  # 0: as it is; -1: what is left
        at = walk.add("Reshape", [at, walk.number("links", sides_by_link)])
        at = walk.add("Transpose", [at], perm=(0, 2, 1, 3))  # (B, links, packets, subcarriers)
    at = walk.through(model.encoder, "encoder", at)
    if model.normalise_embedding:
        at = walk.unit(at)
    embedding = walk.add("Identity", [at], output="embedding")
    walk.linear(model.classifier, "classifier", embedding, output="logits")
    outputs = [
        Value("logits", ("batch", model.classes)),
        Value("embedding", ("batch", model.width)),
    ]
    return Graph(walk.nodes, [Value("windows", sides)], outputs, walk.weights, walk.numbers).bytes()


class _Walk:
    """The nodes so far; each method adds some and returns the name of what comes out."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.weights: list[Value] = []
        self.numbers: dict[str, Sequence[int] | float] = {}

    def add(
        self, kind: str, inputs: Sequence[str], output: str | None = None, **attributes: Attribute
    ) -> str:
        name = output or f"value {len(self.nodes)}"
        self.nodes.append(Node(kind, inputs, name, attributes))
        return name

    def weight(self, name: str, shape: Sequence[int]) -> str:
        self.weights.append(Value(name, tuple(shape)))
        return name

    def number(self, name: str, value: Sequence[int] | float) -> str:
        self.numbers[name] = value
        return name

    def through(self, module: nn.Module, path: str, at: str) -> str:
        """One module after what is named ``at``."""
        if isinstance(module, nn.Sequential):
            for name, child in module.named_children():
                at = self.through(child, f"{path}.{name}", at)
            return at
        if isinstance(module, nn.Conv2d):
            return self._convolution(module, path, at)
        if isinstance(module, nn.BatchNorm2d):
            names = ("weight", "bias", "running_mean", "running_var")
            arrays = [self.weight(f"{path}.{n}", getattr(module, n).shape) for n in names]
            return self.add("BatchNormalization", [at, *arrays], epsilon=module.eps)
        if isinstance(module, nn.Linear):
            return self.linear(module, path, at)
        if isinstance(module, nn.ReLU):
            return self.add("Relu", [at])
        if isinstance(module, nn.Dropout):
            return at  # a net that counts drops nothing
        if isinstance(module, nn.Hardtanh):
            ends = [
                self.number(f"{path} {name}", float(value))
                for name, value in (("least", module.min_val), ("most", module.max_val))
            ]
            return self.add("Clip", [at, *ends])
        if isinstance(module, Scale):
            return self.add("Mul", [at, self.number(f"{path} factor", module.factor)])
        if isinstance(module, nn.AdaptiveAvgPool2d) and module.output_size == 1:
            return self.add("GlobalAveragePool", [at])
        if isinstance(module, nn.Flatten):
            return self.add("Flatten", [at], axis=1)
        raise DataError(
            f"{path}: a {type(module).__name__} has no ONNX form here; build the net of Conv2d, "
            "BatchNorm2d, Linear, ReLU, Hardtanh, Dropout, Scale, AdaptiveAvgPool2d(1) and "
            "Flatten, or add it to models/graph.py"
        )

    def linear(self, module: nn.Linear, path: str, at: str, output: str | None = None) -> str:
        arrays = [self.weight(f"{path}.weight", module.weight.shape)]
        if isinstance(module.bias, Tensor):
            arrays.append(self.weight(f"{path}.bias", module.bias.shape))
        return self.add("Gemm", [at, *arrays], output, transB=1)

    def _convolution(self, module: nn.Conv2d, path: str, at: str) -> str:
        arrays = [self.weight(f"{path}.weight", module.weight.shape)]
        if module.bias is not None:
            arrays.append(self.weight(f"{path}.bias", module.bias.shape))
        if isinstance(module.padding, str) or module.padding_mode != "zeros":
            raise DataError(
                f"{path}: padding '{module.padding}' has no ONNX form here; use numbers"
            )
        return self.add(
            "Conv",
            [at, *arrays],
            kernel_shape=module.kernel_size,
            strides=module.stride,
            pads=(*module.padding, *module.padding),
            dilations=module.dilation,
            group=module.groups,
        )

    def unit(self, at: str) -> str:
        """Vectors of length one; one without a direction becomes zero, as ``models.unit``."""
        length = self.add("ReduceL2", [at], axes=[1], keepdims=1)
        enough = self.add("Greater", [length, self.number("shortest", float(SHORTEST))])
        divisor = self.add("Where", [enough, length, self.number("endless", float("inf"))])
        return self.add("Div", [at, divisor])
