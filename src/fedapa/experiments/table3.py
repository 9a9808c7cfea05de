"""``fedapa reproduce table3``: what a room sends and receives in a round, by formula and for real.

Expected by the paper's formula at N = 6 rooms, 21 classes, width 256 and 463,748 parameters, with
KB = 1000 B: FedAvg, CARING and WiFederated 3,710 KB, FedAPA 150.53 KB (−95.94 %). Beside it stand
the bytes of a real exchange of ours: the arrays, and the frames that carry them. It needs no data:
rooms of noise have messages of the same size. With ``--preset`` or ``--data`` a second table has
the sizes of those rooms.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from torch import nn

from fedapa import algorithms
from fedapa.algorithms.algorithm import Algorithm, Dimensions, Round
from fedapa.algorithms.fedapa import FedAPA
from fedapa.algorithms.fedavg import FedAvg
from fedapa.experiments.sizes import PAPER, Sizes
from fedapa.learning.fit import Training
from fedapa.models.cost import count_parameters
from fedapa.payload import array_bytes, encode
from fedapa.randomness import Key
from fedapa.report.tables.table import Table
from fedapa.rooms.room import Room

__all__ = ["Cost", "communication", "communication_table", "formulas"]


def formulas(sizes: Sizes) -> dict[str, tuple[str, int] | None]:
    """The numbers up and down per room and round, four bytes each, of every algorithm.

    None where its file does not say; without those that exchange no messages between such nets.
    """
    net = sizes.build(sizes.nets[-1])
    norms = [layer for layer in net.modules() if isinstance(layer, nn.BatchNorm2d)]
    dimensions = Dimensions(
        rooms=sizes.rooms,
        classes=sizes.classes,
        width=sizes.width,
        parameters=count_parameters(net),
        batch_norm=sum(count_parameters(layer) for layer in norms),
        classifier=count_parameters(net.classifier),
    )
    kinds = [algorithms.find(name) for name in algorithms.names()]
    return {
        kind.name: kind().sends(dimensions)
        for kind in kinds
        if not kind.pools and not kind.needs_features and (norms or not kind.needs_batch_norm)
    }


@dataclass(frozen=True)
class Cost:
    """What one room exchanges in one round, up and down together, in bytes."""

    formula: str | None
    by_formula: int | None
    arrays: int
    """Of the arrays in a real exchange."""
    encoded: int
    """Of the frames that carried them."""


def communication(sizes: Sizes = PAPER) -> dict[str, Cost]:
    """The cost of every algorithm that exchanges messages, by name."""
    room, costs = _room(sizes), {}
    for name, said in formulas(sizes).items():
        algorithm = algorithms.find(name)(training=Training(batch_size=64))
        formula, numbers = said or (None, None)
        by_formula = None if numbers is None else 4 * numbers
        costs[name] = Cost(formula, by_formula, *_exchange(algorithm, room, sizes.rooms))
    return costs


def _room(sizes: Sizes) -> Room:
    """A room of noise that holds every class, with the largest net."""
    labels = np.repeat(np.arange(sizes.classes), 3)
    # Messages of convolutional nets do not depend on the window's shape.
    shape = sizes.window if len(sizes.window) == 1 else (8, 8)
    stream = (Key(0) / "table3").numpy()
    windows = stream.normal(size=(len(labels), *shape)).astype(np.float32)
    return Room.of("room 0", windows, labels, architecture=sizes.nets[-1], width=sizes.width)


def _exchange(algorithm: Algorithm, room: Room, rooms: int) -> tuple[int, int]:
    """Bytes of arrays and of frames: round 1's upload of a room and round 2's download to it.

    One room trains; the others are its twins, and their messages have the size of its own.
    """
    first, second = (Round(number, 2, Key(0) / "round" / number) for number in (1, 2))
    names = [f"room {number}" for number in range(rooms)]
    server = algorithm.open([replace(room.card, name=name) for name in names], Key(0))
    _, upload, _ = algorithm.train(room, algorithm.join(room, Key(0)), first)
    server = algorithm.merge(server, dict.fromkeys(names, upload), first)
    messages = (upload, algorithm.download(server, room.name, second))
    return sum(map(array_bytes, messages)), sum(len(encode(message)) for message in messages)


def communication_table(costs: Mapping[str, Cost], sizes: Sizes = PAPER) -> Table:
    """The table: formula, what it gives, and what was really exchanged."""
    rows = [
        [
            algorithms.find(name).title,
            cost.formula or "–",
            "–" if cost.by_formula is None else _kilobytes(cost.by_formula),
            _kilobytes(cost.arrays),
            _kilobytes(cost.encoded),
            f"{cost.encoded / cost.arrays:.4f}" if cost.arrays else "–",
        ]
        for name, cost in costs.items()
    ]
    ours, theirs = costs[FedAPA.name], costs[FedAvg.name]
    saved = 1 - (ours.by_formula or 0) / (theirs.by_formula or 1)
    really = 1 - ours.encoded / theirs.encoded
    net = sizes.build(sizes.nets[-1])
    outputs = f"{sizes.outputs} outputs" + ("" if sizes.named else ", as the paper has it")
    measured = f"{sizes.classes} outputs, BatchNorm statistics"
    if sizes.named:
        measured = "BatchNorm statistics where the net has them"
    return Table(
        title="Communication per round and room (KB = 1000 B)"
        + (f", sizes of {sizes.named}" if sizes.named else ""),
        headings=["Algorithm", "Formula × 4 B", "Formula", "Arrays", "Encoded", "Encoded/arrays"],
        rows=rows,
        note=f"N = {sizes.rooms} rooms, |C| = {sizes.classes} classes, width D = {sizes.width}; "
        f"the formula counts Σw = {count_parameters(net):,} parameters ({type(net).__name__} with "
        f"{outputs}), the exchange is real, with {measured}, masks and framing; FedAPA against "
        f"FedAvg: {_less(saved)} by formula, {_less(really)} encoded",
        text_columns=2,
    )


def _less(share: float) -> str:
    # Prototypes of many classes may weigh more than a small net.
    return f"{'−' if share >= 0 else '+'}{100 * abs(share):.2f} %"


def _kilobytes(number: int) -> str:
    # As the paper prints them: two decimals below a thousand, none above.
    return f"{number / 1000:,.{0 if number >= 1_000_000 else 2}f}"
