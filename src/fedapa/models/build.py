"""From the name of an architecture to a net, and which net a room gets."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor, nn

from fedapa.errors import PlanError, nearest
from fedapa.models.convnet import LargeConvNet4, MiddleConvNet4, TinyConvNet4
from fedapa.models.counter import CounterNet
from fedapa.models.mlp import FeatureMLP
from fedapa.models.model import Model
from fedapa.randomness import Key

__all__ = [
    "ARCHITECTURES",
    "assign_by_size",
    "build_model",
    "is_for_vectors",
    "undrawn",
    "usual_net",
]

_CONVNETS: dict[str, type[TinyConvNet4 | MiddleConvNet4 | LargeConvNet4]] = {
    net.architecture: net for net in (TinyConvNet4, MiddleConvNet4, LargeConvNet4)
}
_FLAT: dict[str, type[FeatureMLP | CounterNet]] = {
    net.architecture: net for net in (FeatureMLP, CounterNet)
}
"""For windows that are vectors of numbers."""
ARCHITECTURES = (*_CONVNETS, *_FLAT)
_USUAL = {True: CounterNet.architecture, False: MiddleConvNet4.architecture}
"""By whether windows are vectors. Large has 28 times the weights of Middle and counts worse."""


def build_model(
    architecture: str,
    *,
    classes: int,
    width: int,
    window_shape: Sequence[int],
    key: Key,
    normalise_embedding: bool = False,
    links: int = 1,
) -> Model:
    """A net with initial weights drawn from ``key``, fit for windows of that shape.

    ``links`` are those whose subcarriers stand side by side in a window of packets.
    """
    if architecture not in ARCHITECTURES:
        raise PlanError(f"architecture '{architecture}': {nearest(architecture, ARCHITECTURES)}")
    flat = len(window_shape) == 1
    if flat != (architecture in _FLAT):
        remedy = (
            "use architecture = 'counter' or 'mlp'"
            if flat
            else "use tiny, middle or large, or data.view = 'statistics'"
        )
        raise PlanError(
            f"architecture '{architecture}' does not fit windows of shape {tuple(window_shape)}; "
            f"{remedy}"
        )
    with key.as_torch_default():
        if architecture in _FLAT:
            return _FLAT[architecture](
                classes, width, features=window_shape[0], normalise_embedding=normalise_embedding
            )
        if window_shape[1] % links:
            raise PlanError(
                f"windows of {window_shape[1]} columns are not those of {links} links, which have "
                "as many subcarriers each"
            )
        return _CONVNETS[architecture](
            classes, width, normalise_embedding=normalise_embedding, links=links
        )


@contextlib.contextmanager
def undrawn() -> Iterator[None]:
    """Nets that are built meanwhile have any weights: for who replaces them all at once.

    To draw those of a large net takes longer than the rest of building it.
    """
    draws = {name: getattr(nn.init, name) for name in ("kaiming_uniform_", "uniform_")}
    for name in draws:
        setattr(nn.init, name, _left_as_it_is)
    try:
        yield
    finally:
        for name, draw in draws.items():
            setattr(nn.init, name, draw)


def _left_as_it_is(tensor: Tensor, *_: object, **__: object) -> Tensor:
    return tensor


def is_for_vectors(architecture: str) -> bool:
    """Whether a net takes vectors of numbers, not matrices."""
    return architecture in _FLAT


def usual_net(window_shape: Sequence[int]) -> str:
    """The net for windows of a shape where nobody chose one: ours, or the paper's middle one."""
    return _USUAL[len(window_shape) == 1]


def assign_by_size(sizes: Mapping[str, int]) -> dict[str, str]:
    """Nets by rank of train size in thirds: the smallest rooms get Tiny, the largest Large."""
    ranked = sorted(sizes, key=lambda room: (sizes[room], room))
    nets = tuple(_CONVNETS)
    return {room: nets[rank * len(nets) // len(ranked)] for rank, room in enumerate(ranked)}
