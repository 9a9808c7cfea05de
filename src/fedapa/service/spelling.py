"""How a source is spelled on the command line.

``udp[:[ADDRESS:]PORT]`` Nexmon datagrams at a port, by default 5500 of this machine;
``tcp:HOST:PORT`` lines of an ESP32 that a program hands on; ``serial:DEVICE`` those at a serial
device; ``file:PATH`` or ``PATH`` a capture; ``simulator[:PRESET]`` a SIMULATED room.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from fedapa.errors import PlanError, nearest

__all__ = ["KINDS", "Spelled", "spelled"]

Kind = Literal["simulator", "udp", "serial", "tcp", "file"]
KINDS = ("simulator", "udp", "serial", "tcp", "file")
"""What a text begins with that names a source, but for files, which may stand alone."""
_UDP_PORT = 5500
"""Where Nexmon sends."""


@dataclass(frozen=True)
class Spelled:
    """What a text names."""

    kind: Kind
    place: str
    """Address, host, device, path or preset; empty where none is said."""
    port: int = 0
    """Of udp and tcp."""


def spelled(text: str) -> Spelled:
    """The source that ``text`` names; raises where it names none."""
    kind, _, rest = text.partition(":")
    if kind not in KINDS:
        if not Path(text).exists() and not Path(text).suffix:
            raise PlanError(f"--source {text}: unknown; {nearest(kind, KINDS)}; or name a file")
        return Spelled("file", text)
    if kind in ("udp", "tcp"):
        place, colon, port = rest.rpartition(":")
        if kind == "udp":
            address = place if colon else "127.0.0.1"
            return Spelled("udp", address, _port(port or str(_UDP_PORT), text))
        if not place:
            raise PlanError(f"--source {text}: name address and port, e.g. tcp:10.0.0.7:3333")
        return Spelled("tcp", place, _port(port, text))
    if not rest and kind != "simulator":
        example = "serial:/dev/ttyUSB0" if kind == "serial" else "file:now.pcap"
        raise PlanError(f"--source {text}: says no more than its kind; write e.g. {example}")
    return Spelled(cast(Kind, kind), rest)


def _port(text: str, spec: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 65536:
        raise PlanError(f"--source {spec}: '{text}' is no port; choose 1 to 65535")
    return int(text)
