"""``fedapa reproduce table3``: what a room sends and receives in a round, by formula and for real.

Expected by the paper's formula at N = 6 rooms, 21 classes, width 256 and 463,748 parameters, with
KB = 1000 B: FedAvg, CARING and WiFederated 3,710 KB, FedAPA 150.53 KB (−95.94 %). Beside it stand
the bytes of a real exchange of ours: the arrays, and the frames that carry them. It needs no data:
rooms of noise have messages of the same size. With ``--preset`` or ``--data`` a second table has
the sizes of those rooms.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from torch import nn

from fedapa import algorithms
from fedapa.algorithms.algorithm import Algorithm, Dimensions, Round
from fedapa.algorithms.fedapa import FedAPA
from fedapa.algorithms.fedavg import FedAvg
from fedapa.learning.fit import Training
from fedapa.models.build import build_model
from fedapa.models.cost import count_parameters
from fedapa.models.model import Model
from fedapa.payload import array_bytes, encode
from fedapa.randomness import Key
from fedapa.report.tables.table import Table
from fedapa.rooms.room import Room

__all__ = ["PAPER", "Cost", "Sizes", "communication", "communication_table", "formulas"]


@dataclass(frozen=True)
class Sizes:
    """What the bytes of a round depend on."""

    rooms: int
    """N."""
    classes: int
    """|C|."""
    width: int
    """D."""
    outputs: int
    """Of the net whose parameters the formula counts."""
    architecture: str = "large"
    shape: tuple[int, ...] = (8, 8)
    """Of a window; messages of convolutional nets do not depend on it."""
    rooms_named: str = ""
    """Whose sizes these are, for the table's note."""

    @cached_property
    def net(self) -> Model:
        """The net that the formula counts."""
        return build_model(
            self.architecture,
            classes=self.outputs,
            width=self.width,
            window_shape=self.shape,
            key=Key(0),
        )


PAPER = Sizes(rooms=6, classes=21, width=256, outputs=20)
"""As the paper has them: 21 classes of prototypes, but a net with 20 outputs."""


def formulas(sizes: Sizes) -> dict[str, tuple[str, int]]:
    """The numbers up and down per room and round, four bytes each, of algorithms that say so."""
    net = sizes.net
    norms = [layer for layer in net.modules() if isinstance(layer, nn.BatchNorm2d)]
    dimensions = Dimensions(
        rooms=sizes.rooms,
        classes=sizes.classes,
        width=sizes.width,
        parameters=count_parameters(net),
        batch_norm=sum(count_parameters(layer) for layer in norms),
        classifier=count_parameters(net.classifier),
    )
    said = {kind.name: kind().sends(dimensions) for kind in _exchanging(sizes)}
    return {name: formula for name, formula in said.items() if formula is not None}


def _exchanging(sizes: Sizes) -> list[type[Algorithm]]:
    """The algorithms that exchange messages between such nets."""
    has_norms = any(isinstance(layer, nn.BatchNorm2d) for layer in sizes.net.modules())
    kinds = [algorithms.find(name) for name in algorithms.names()]
    return [kind for kind in kinds if not kind.pools and (has_norms or not kind.needs_batch_norm)]


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
    room, known = _room(sizes), formulas(sizes)
    costs = {}
    for kind in _exchanging(sizes):
        formula, numbers = known.get(kind.name, (None, None))
        arrays, encoded = _exchange(kind(training=Training(batch_size=64)), room, sizes.rooms)
        by_formula = None if numbers is None else 4 * numbers
        costs[kind.name] = Cost(formula, by_formula, arrays, encoded)
    return costs


def _room(sizes: Sizes) -> Room:
    """A room of noise that holds every class, with such a net."""
    labels = np.repeat(np.arange(sizes.classes), 3)
    stream = (Key(0) / "table3").numpy()
    windows = stream.normal(size=(len(labels), *sizes.shape)).astype(np.float32)
    return Room.of("room 0", windows, labels, architecture=sizes.architecture, width=sizes.width)


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
    rows = []
    for name, cost in costs.items():
        over = f"{cost.encoded / cost.arrays:.4f}" if cost.arrays else "–"
        rows.append(
            [
                algorithms.find(name).title,
                cost.formula or "–",
                "–" if cost.by_formula is None else _kilobytes(cost.by_formula),
                _kilobytes(cost.arrays),
                _kilobytes(cost.encoded),
                over,
            ]
        )
    ours, theirs = costs[FedAPA.name], costs[FedAvg.name]
    saved = 1 - (ours.by_formula or 0) / (theirs.by_formula or 1)
    really = 1 - ours.encoded / theirs.encoded
    net = sizes.net
    counted = f"Σw = {count_parameters(net):,} parameters ({type(net).__name__} with "
    if sizes is PAPER:
        counted += (
            f"{sizes.outputs} outputs, as the paper has it), the exchange is real, with "
            f"{sizes.classes} outputs, BatchNorm statistics, masks and framing"
        )
    else:
        counted += (
            f"{sizes.outputs} outputs), the exchange is real, with BatchNorm statistics where the "
            "net has them, masks and framing"
        )
    return Table(
        title="Communication per round and room (KB = 1000 B)"
        + (f", sizes of {sizes.rooms_named}" if sizes.rooms_named else ""),
        headings=["Algorithm", "Formula × 4 B", "Formula", "Arrays", "Encoded", "Encoded/arrays"],
        rows=rows,
        note=f"N = {sizes.rooms} rooms, |C| = {sizes.classes} classes, width D = {sizes.width}; "
        f"the formula counts {counted}; FedAPA against FedAvg: {_less(saved)} by formula, "
        f"{_less(really)} encoded",
        text_columns=2,
    )


def _less(share: float) -> str:
    # Prototypes of many classes may weigh more than a small net.
    return f"{'−' if share >= 0 else '+'}{100 * abs(share):.2f} %"


def _kilobytes(number: int) -> str:
    # As the paper prints them: two decimals below a thousand, none above.
    return f"{number / 1000:,.{0 if number >= 1_000_000 else 2}f}"
