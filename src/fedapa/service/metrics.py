"""Metrics for Prometheus: made from the rooms at the moment they are asked for.

A room that is unavailable has no ``fedapa_people``: a gap, never an old count. Labels are rooms and
a few fixed words.
"""

import os
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from fedapa import __version__
from fedapa.service.history import KEPT, History
from fedapa.service.serving import RoomServer

__all__ = ["CONTENT_TYPE", "collectors_of", "text_of"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_STATES = ("counting", "unsure", "unavailable")


class _Rooms(Collector):
    def __init__(self, server: RoomServer, history: History | None) -> None:
        self._server, self._history = server, history

    def describe(self) -> Iterator[Metric]:
        """Nothing, so that registering asks no room."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Every room now."""
        people = GaugeMetricFamily(
            "fedapa_people",
            "People counted; none while it is unavailable.",
            labels=["room"],
        )
        confidence = GaugeMetricFamily(
            "fedapa_confidence_ratio", "Belief in that count, 0 to 1.", labels=["room"]
        )
        states = GaugeMetricFamily(
            "fedapa_room_state", "1 for the state that the room is in.", labels=["room", "state"]
        )
        simulated = GaugeMetricFamily(
            "fedapa_simulated", "1 where packets or model are SIMULATED.", labels=["room"]
        )
        rate = GaugeMetricFamily(
            "fedapa_packets_per_second", "Packets of the last 10 s per second.", labels=["room"]
        )
        packets = CounterMetricFamily("fedapa_packets", "Packets that came.", labels=["room"])
        dropped = CounterMetricFamily(
            "fedapa_packets_dropped",
            "Packets and lines left out.",
            labels=["room", "reason"],
        )
        seconds = HistogramMetricFamily(
            "fedapa_inference_seconds",
            "Seconds for packets that completed a window: clean, view, infer.",
            labels=["room"],
        )
        rounds = CounterMetricFamily(
            "fedapa_rounds",
            "Models of training rounds that were taken up or refused.",
            labels=["room", "result"],
        )
        for name, room in self._server.rooms.items():
            told = room.document()
            if not told:
                continue
            if told["count"] is not None:
                people.add_metric([name], told["count"])
                confidence.add_metric([name], told["confidence"])
            for state in _STATES:
                states.add_metric([name, state], float(told["state"] == state))
            simulated.add_metric([name], float(told["synthetic"]))
            rate.add_metric([name], told["rate"])
            packets.add_metric([name], told["packets"])
            for reason, number in room.dropped.items():
                dropped.add_metric([name, reason], number)
            buckets, total = room.inference.buckets()
            seconds.add_metric([name], buckets, total)
            rounds.add_metric([name, "taken"], room.models_taken)
            rounds.add_metric([name, "refused"], room.models_refused)
        build = InfoMetricFamily("fedapa_build", "The release.", {"version": __version__})
        yield from (people, confidence, states, simulated, rate, packets, dropped, seconds, rounds)
        yield build
        if self._history is not None:
            kept = self._history.state == KEPT
            yield GaugeMetricFamily("fedapa_history_kept", "1 while history is kept.", float(kept))


def collectors_of(server: RoomServer, history: History | None = None) -> CollectorRegistry:
    """The metrics of a server, and memory and processor time of this process."""
    collectors = CollectorRegistry()
    collectors.register(_Rooms(server, history))
    ProcessCollector("", os.getpid, "/proc", collectors)
    return collectors


def text_of(collectors: CollectorRegistry) -> bytes:
    """As Prometheus reads them."""
    return generate_latest(collectors)
