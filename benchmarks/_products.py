"""The bare matrix products of a round: the same shapes, and nothing between them.

A convolution is the product of its patches [B · positions, 9 · channels] with its weights, patches
neither made nor put back. Per batch of training every layer has three products (its output, the
gradient of its weights and that of its input), the first layer two; the cosines with the mixture
and with everybody's sets have two, since prototypes get no gradient. A batch that is scored or
measured for prototypes has the first product of every layer. All are ``torch.mm`` on one thread
into buffers that stay.
"""

from collections.abc import Iterator

import torch

from benchmarks._eager import CHANNELS, HIDDEN
from benchmarks._work import BATCH, CLASSES, WIDTH, Work, batches

__all__ = ["flops_of_training", "product_rounds", "products"]


def products(work: Work) -> list[tuple[int, int, int]]:
    """Of one window: rows, length and columns of the product that each layer is."""
    made: list[tuple[int, int, int]] = []
    if work.net == "mlp":
        made += [(1, work.shape[0], HIDDEN), (1, HIDDEN, WIDTH)]
    else:
        height, width = work.shape
        given = 1
        for channels in CHANNELS[work.net]:
            height, width = (height + 1) // 2, (width + 1) // 2
            made.append((height * width, 9 * given, channels))
            given = channels
        if work.net != "tiny":
            made.append((1, given, WIDTH))
    return [*made, (1, WIDTH, CLASSES)]


def flops_of_training(work: Work) -> int:
    """Of a room's epoch, without the cosines: twice the first layer, thrice all others."""
    first, *others = (2 * rows * length * columns for rows, length, columns in products(work))
    return work.train * (2 * first + 3 * sum(others))


class _Layer:
    """Buffers for a batch."""

    def __init__(self, batch: int, rows: int, length: int, columns: int) -> None:
        self.given, self.pull_given = (torch.ones(batch * rows, length) for _ in range(2))
        self.made = torch.ones(batch * rows, columns)
        self.weight, self.pull_weight = (torch.ones(columns, length) for _ in range(2))

    def forward(self) -> None:
        torch.mm(self.given, self.weight.t(), out=self.made)

    def of_weights(self) -> None:
        torch.mm(self.made.t(), self.given, out=self.pull_weight)

    def of_input(self) -> None:
        torch.mm(self.made, self.weight, out=self.pull_given)


def product_rounds(work: Work) -> Iterator[None]:
    """Round after round of all rooms' products."""
    sizes = {*batches(work.train), *batches(work.test), BATCH}
    layers = {size: [_Layer(size, *one) for one in products(work)] for size in sizes}
    cosines = {size: _Layer(size, 1, WIDTH, (1 + work.rooms) * CLASSES) for size in sizes}
    while True:
        for _ in range(work.rooms):
            for size in (*batches(work.test), *batches(work.train)):  # scores and prototypes
                for layer in layers[size]:
                    layer.forward()
            for size in batches(work.train):
                for layer in layers[size]:
                    layer.forward()
                cosines[size].forward()
                cosines[size].of_input()
                for place, layer in reversed([*enumerate(layers[size])]):
                    layer.of_weights()
                    if place:
                        layer.of_input()
        yield
