"""``fedapa reproduce table3``: what a room sends and receives in a round, by formula and for real.

Expected by the paper's formula at N = 6 rooms, 21 classes, width 256 and 463,748 parameters, with
KB = 1000 B: FedAvg, CARING and WiFederated 3,710 KB, FedAPA 150.53 KB (−95.94 %). Beside it stand
the bytes of a real exchange of ours: the arrays, and the frames that carry them. It needs no data:
rooms of noise have messages of the same size.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedapa import algorithms
from fedapa.algorithms.algorithm import Algorithm, Round
from fedapa.learning.fit import Training
from fedapa.payload import array_bytes, encode
from fedapa.randomness import Key
from fedapa.report.tables import Sheet
from fedapa.rooms.room import Room

__all__ = ["Cost", "communication", "communication_sheet"]

ROOMS, CLASSES, WIDTH = 6, 21, 256  # N, |C|, D
PARAMETERS = 463_748
"""Σ_w as the paper counts it: LargeConvNet4 with 20 outputs."""
NORM = 2 * (16 + 32 + 64 + 128 + 256)
"""Scales and shifts of its BatchNorms."""
HEAD = (WIDTH + 1) * 20
"""Its classifier."""
PROJECTION = 2 * (WIDTH + 1) * 256
"""MOON's side branch, two layers of 256."""
SET = CLASSES * WIDTH
"""A set of prototypes."""

_WEIGHTS = ("2·Σw", 2 * PARAMETERS)
_MEAN = ("2·|C|·D", 2 * SET)
_PEERS = ("(N + 1)·|C|·D", (ROOMS + 1) * SET)
FORMULAS: Mapping[str, tuple[str, int]] = {
    "caring": _WEIGHTS,
    "fedala": _WEIGHTS,
    "fedamp": _WEIGHTS,
    "fedapa": _PEERS,
    "fedapa-average": _MEAN,
    "fedapa-average-clients": _PEERS,
    "fedapa-fixed": _PEERS,
    "fedapa-mixture": _MEAN,
    "fedapa-self": ("0", 0),
    "fedavg": _WEIGHTS,
    "fedbn": ("2·(Σw − ΣBN)", 2 * (PARAMETERS - NORM)),
    "fedpcl": _PEERS,
    "fedproc": ("2·Σw + 2·|C|·D", 2 * PARAMETERS + 2 * SET),
    "fedproto": _MEAN,
    "fedrep": ("2·Σθ", 2 * (PARAMETERS - HEAD)),
    "local": ("0", 0),
    "local-more-epochs": ("0", 0),
    "moon": ("2·(Σw + Σz)", 2 * (PARAMETERS + PROJECTION)),
    "wifederated": _WEIGHTS,
}
"""Numbers up and down per room and round, four bytes each."""


@dataclass(frozen=True)
class Cost:
    """What one room exchanges in one round, up and down together, in bytes."""

    formula: str | None
    by_formula: int | None
    arrays: int
    """Of the arrays in a real exchange."""
    encoded: int
    """Of the frames that carried them."""


def communication() -> dict[str, Cost]:
    """The cost of every algorithm that exchanges messages, by name."""
    room = _room()
    found = {}
    for name in algorithms.names():
        kind = algorithms.find(name)
        if kind.pools:
            continue  # it moves windows, not messages
        formula, numbers = FORMULAS.get(name, (None, None))
        arrays, encoded = _exchange(kind(training=Training(batch_size=64)), room)
        found[name] = Cost(formula, None if numbers is None else 4 * numbers, arrays, encoded)
    return found


def _room() -> Room:
    """A room of noise that holds every class, with the paper's net."""
    labels = np.repeat(np.arange(CLASSES), 3)
    stream = (Key(0) / "table3").numpy()
    windows = stream.normal(size=(len(labels), 8, 8)).astype(np.float32)
    return Room.of("room 0", windows, labels, architecture="large", width=WIDTH)


def _exchange(algorithm: Algorithm, room: Room) -> tuple[int, int]:
    """Bytes of arrays and of frames: round 1's upload of a room and round 2's download to it.

    One room trains; the others are its twins, and their messages have the size of its own.
    """
    first, second = (Round(number, 2, Key(0) / "round" / number) for number in (1, 2))
    names = [f"room {number}" for number in range(ROOMS)]
    server = algorithm.open([replace(room.card, name=name) for name in names], Key(0))
    _, upload, _ = algorithm.train(room, algorithm.join(room, Key(0)), first)
    server = algorithm.merge(server, dict.fromkeys(names, upload), first)
    messages = (upload, algorithm.download(server, room.name, second))
    return sum(map(array_bytes, messages)), sum(len(encode(message)) for message in messages)


def communication_sheet(costs: Mapping[str, Cost]) -> Sheet:
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
    ours, theirs = costs["fedapa"], costs["fedavg"]
    saved = 1 - (ours.by_formula or 0) / (theirs.by_formula or 1)
    really = 1 - ours.encoded / theirs.encoded
    return Sheet(
        title="Communication per round and room (KB = 1000 B)",
        headings=["Algorithm", "Formula × 4 B", "Formula", "Arrays", "Encoded", "Encoded/arrays"],
        rows=rows,
        note=f"N = {ROOMS} rooms, |C| = {CLASSES} classes, width D = {WIDTH}; the formula counts "
        f"Σw = {PARAMETERS:,} parameters (LargeConvNet4 with 20 outputs, as the paper has it), the "
        "exchange is real, with 21 outputs, BatchNorm statistics, masks and framing; FedAPA against"
        f" FedAvg: −{100 * saved:.2f} % by formula, −{100 * really:.2f} % encoded",
        text_columns=2,
    )


def _kilobytes(number: int) -> str:
    # As the paper prints them: two decimals below a thousand, none above.
    return f"{number / 1000:,.{0 if number >= 1_000_000 else 2}f}"
