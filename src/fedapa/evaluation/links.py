"""Network links: how long rounds take where rooms compute and send with some speed and delay.

A round is over when its answer has arrived. The rooms that take part train (seconds c) and send an
upload (bytes u); when the slowest has done so, the server answers those that take part in the next
round (bytes d), which may be others::

    seconds of a round =  max over those that train of  c + delay + 8·u/up
                        + max over those answered of    delay + 8·d/down

with down and up in bit/s. Where nothing is sent there is no delay: a room alone waits for no link.
Bytes and seconds are those that a run recorded. c is processor time, so that other work on the
machine does not count, and the median of a room's rounds, which all train the same windows. (Runs
from before it was kept have wall time.) Scoring is left out, since nobody scores test windows in
use, and so is the server, which merges in milliseconds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median
from typing import Any

from fedapa.evaluation.results import Row, reached

__all__ = [
    "LINKS",
    "Exchanged",
    "Link",
    "bytes_of",
    "exchanged",
    "seconds_of",
    "training_of",
    "until",
]

Exchanged = Sequence[Mapping[str, Sequence[float]]]
"""A round each: room → bytes of its answer, bytes up, seconds of training. Of rooms that took part,
and of those that sat out and got the answer, since they take part next: they have 0 seconds."""


@dataclass(frozen=True)
class Link:
    """A network link between a room and the server."""

    name: str
    down: float
    """bit/s to the room."""
    up: float
    """bit/s from the room."""
    delay: float
    """s, one way."""
    source: str
    """Where these numbers come from, in words."""

    def sending(self, size: float) -> float:
        """Seconds until so many bytes of a room are at the server; none where there are none."""
        return self.delay + 8 * size / self.up if size else 0.0

    def receiving(self, size: float) -> float:
        """Seconds until so many bytes are at a room; none where there are none."""
        return self.delay + 8 * size / self.down if size else 0.0


LINKS = (
    Link("Wi-Fi", 20e6, 20e6, 0.005, "what a cheap 802.11n board sustains by TCP on 20 MHz"),
    Link(
        "4G",
        10e6,
        5e6,
        0.05,
        "the peak rates of an LTE category 1 modem (3GPP release 8), and a usual delay",
    ),
    Link(
        "NB-IoT",
        26e3,
        62e3,
        1.5,
        "the sustained peak rates of category NB1 (3GPP release 13, half duplex, several tones), "
        "and a delay at the short end of what is usual there",
    ),
)
"""From fast to slow."""


def exchanged(
    records: Sequence[Mapping[str, Any]],
    times: Sequence[Mapping[str, Any]],
    *,
    alone: bool = False,
) -> list[dict[str, list[float]]]:
    """What each round of a run moved and cost, by room.

    Args:
        records: one per round, round 1 first.
        times: one per exchange, the first that of round 1; a last one only scores. An interrupted
            round whose reply was remembered has none: it counts as the room's others.
        alone: whether nothing travels; its empty messages weigh nothing then.
    """
    told = []
    for record, spent in zip(records, times, strict=False):
        rooms = {}
        for room, entry in record["rooms"].items():
            own = spent["rooms"].get(room, {})
            down, up = (0, 0) if alone else (entry["bytes_down"], entry["bytes_up"])
            if entry["participated"]:
                rooms[room] = [down, up, own.get("train_processor", own.get("train"))]
            elif down:
                rooms[room] = [down, 0, 0.0]
        told.append(rooms)
    usual = training_of(told)
    return [
        {
            room: [down, up, round(usual.get(room, 0.0) if spent is None else spent, 4)]
            for room, (down, up, spent) in rooms.items()
        }
        for rooms in told
    ]


def training_of(rounds: Exchanged) -> dict[str, float]:
    """Seconds that each room trains in a round: the median of those in which it does."""
    spent: dict[str, list[float]] = {}
    for told in rounds:
        for room, (_, _, training) in told.items():
            if training:
                spent.setdefault(room, []).append(training)
    return {room: median(every) for room, every in sorted(spent.items())}


def seconds_of(rounds: Exchanged, link: Link) -> list[float]:
    """Seconds from the start to the end of each round of a run."""
    usual = training_of(rounds)
    each = []
    for told in rounds:
        trained = (usual[room] + link.sending(up) for room, (_, up, spent) in told.items() if spent)
        answered = (link.receiving(down) for down, _, _ in told.values())
        each.append(max(trained, default=0.0) + max(answered, default=0.0))
    return list(accumulate(each))


def bytes_of(rounds: Exchanged) -> list[float]:
    """Bytes of all rooms, both ways, from the start to the end of each round of a run."""
    return list(accumulate(sum(down + up for down, up, _ in told.values()) for told in rounds))


def until(
    row: Row, accuracy: float, along: Callable[[Exchanged], list[float]]
) -> list[float] | None:
    """What a row has spent when its five-round mean is that good, a seed each.

    Args:
        row: with what its rounds exchanged.
        accuracy: a share.
        along: what is spent up to each round: ``bytes_of``, or seconds on some link.

    None where some seed never is that good.
    """
    found = []
    for outcome in row.outcomes:
        there = reached(outcome, accuracy)
        if there is None or len(outcome.exchanged) < there[0]:
            return None
        found.append(along(outcome.exchanged)[there[0] - 1])
    return found
