"""Network links: how long rounds take where rooms compute and send with some speed and delay.

A round is over when the slowest of its rooms has answered. A room receives the download (bytes d),
trains (seconds c) and sends its upload (bytes u)::

    seconds of a round = max over its rooms of  2·delay + 8·d/down + c + 8·u/up

with down and up in bit/s. Bytes and seconds are those that a run recorded. c is the median of a
room's rounds, which all train the same windows: the first also starts a process, and others may
have met a busy machine. Scoring is left out, since nobody scores test windows in use, and so is the
server, which merges in milliseconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median
from typing import Any

from fedapa.evaluation.results import Outcome, Row, reached

__all__ = ["LINKS", "Exchanged", "Link", "exchanged", "seconds_of", "training_of", "until"]

Exchanged = Sequence[Mapping[str, Sequence[float]]]
"""A round each: room → bytes down, bytes up, seconds of training; only of rooms that took part."""


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

    def seconds(self, down: float, up: float, training: float) -> float:
        """Of a room's part of a round: download, training, upload."""
        return 2 * self.delay + 8 * down / self.down + training + 8 * up / self.up


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
    records: Sequence[Mapping[str, Any]], times: Sequence[Mapping[str, Any]]
) -> list[dict[str, list[float]]]:
    """What each round of a run moved and cost, by room.

    Args:
        records: one per round, round 1 first.
        times: one per exchange, the first that of round 1; a last one only scores.
    """
    return [
        {
            room: [entry["bytes_down"], entry["bytes_up"], round(spent["rooms"][room]["train"], 4)]
            for room, entry in record["rooms"].items()
            if entry["participated"] and "train" in spent["rooms"].get(room, {})
        }
        for record, spent in zip(records, times, strict=False)
    ]


def training_of(rounds: Exchanged) -> dict[str, float]:
    """Seconds that each room trains in a round: the median of its rounds."""
    rooms = sorted({room for told in rounds for room in told})
    return {room: median(told[room][2] for told in rounds if room in told) for room in rooms}


def seconds_of(rounds: Exchanged, link: Link) -> list[float]:
    """Seconds from the start to the end of each round of a run."""
    training = training_of(rounds)
    each = (
        max(
            (link.seconds(down, up, training[room]) for room, (down, up, _) in told.items()),
            default=0.0,
        )
        for told in rounds
    )
    return list(accumulate(each))


def until(row: Row, accuracy: float, link: Link) -> list[float] | None:
    """Seconds until a row's five-round mean is that good, a seed each; none if some never is."""
    found = []
    for outcome in row.outcomes:
        there = reached(outcome, accuracy)
        if there is None or not outcome.exchanged:
            return None
        found.append(_at(outcome, there[0], link))
    return found


def _at(outcome: Outcome, number: int, link: Link) -> float:
    return seconds_of(outcome.exchanged, link)[number - 1]
