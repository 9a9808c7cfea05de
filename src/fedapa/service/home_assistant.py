"""What Home Assistant is told of a room: topics and payloads; ``mqtt`` is how they travel.

A room is a device with three entities: people, occupied, confidence. ``discovery_of`` announces it,
retained; ``state_of`` is each count, not retained, so that nobody who subscribes later gets an
old one. Whether it can be believed at all is in two retained topics that both have to say
``online``: the service's and the room's::

    homeassistant/device/fedapa_kitchen/config    the device; empty: there is none any more
    fedapa/status                                 online, offline; offline is the last will
    fedapa/kitchen/availability                   online, offline
    fedapa/kitchen/state                          {"count": 3, …}
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from fedapa import __version__
from fedapa.errors import PlanError

__all__ = ["OFFLINE", "ONLINE", "Topics", "discovery_of", "free_slug", "is_ours", "state_of"]

ONLINE, OFFLINE = b"online", b"offline"
_LONGEST = 48
"""Letters of a room's name in a topic."""


@dataclass(frozen=True)
class Topics:
    """Where things are said."""

    prefix: str = "fedapa"
    """Of what this service says; two services at one broker need two."""
    discovery: str = "homeassistant"
    """What Home Assistant calls its discovery prefix."""

    def __post_init__(self) -> None:
        for name in ("prefix", "discovery"):
            text = getattr(self, name)
            if not re.fullmatch(r"[^+#$/\s\0][^+#\s\0]*", text) or "" in text.split("/"):
                raise PlanError(
                    f"MQTT topic prefix {text!r}: write words without spaces, + and #, with single "
                    "slashes between them, e.g. fedapa or site/fedapa"
                )

    @property
    def status(self) -> str:
        """Whether the service runs; the will is said here."""
        return f"{self.prefix}/status"

    @property
    def birth(self) -> str:
        """Where Home Assistant says that it has started."""
        return f"{self.discovery}/status"

    @property
    def configs(self) -> str:
        """All devices of whomever."""
        return f"{self.discovery}/device/+/config"

    def config(self, slug: str) -> str:
        """What the device of a room is."""
        return f"{self.discovery}/device/{self.device(slug)}/config"

    def state(self, slug: str) -> str:
        """How many people there are."""
        return f"{self.prefix}/{slug}/state"

    def availability(self, slug: str) -> str:
        """Whether the room can be counted."""
        return f"{self.prefix}/{slug}/availability"

    def device(self, slug: str) -> str:
        """The identifier of a room's device, unique at a broker."""
        return f"{_words(self.prefix)}_{slug}"

    def slug_of(self, config: str) -> str:
        """The room of such a topic; nothing where it is no device of this prefix."""
        device, own = config.split("/")[-2], self.device("")
        return device.removeprefix(own) if device.startswith(own) else ""


def _words(name: str) -> str:
    """Small letters and digits of ASCII, underscores between: ``Café 2/b`` is ``cafe_2_b``."""
    plain = unicodedata.normalize("NFKD", name.lower()).encode("ascii", "ignore").decode()
    # An accent that was taken off leaves no gap; every other sign does.
    return "_".join(re.findall(r"[a-z0-9]+", plain))[:_LONGEST].strip("_")


def free_slug(room: str, taken: Collection[str]) -> str:
    """A room's name as a part of a topic that is not ``taken``.

    The second of two names that come to the same gets digits of its hash, which are the same after
    every start; so does a name of which no letter is left.
    """
    slug = _words(room) or "room"
    digits = hashlib.sha256(room.encode("utf-8", "surrogatepass")).hexdigest()
    if slug not in taken and slug == _words(room):
        return slug
    return next(made for size in range(6, 65) if (made := f"{slug}_{digits[:size]}") not in taken)


def discovery_of(
    topics: Topics, slug: str, room: str, *, synthetic: bool, expire_after: int
) -> bytes:
    """The device of a room and its three entities.

    Confidence has no device class that would name it, and Home Assistant would call it "MQTT
    Sensor"; so it has a name.
    """
    device = topics.device(slug)
    about = {"ids": [device], "name": room, "mf": "FedAPA", "sw": __version__}
    if synthetic:  # in the name, so that every entity and every chart has it
        about |= {"name": f"SIMULATED {room}", "mdl": "SIMULATED data"}
    return _json(
        {
            "dev": about,
            "o": {"name": "fedapa", "sw": __version__},
            "cmps": {
                "people": {
                    "p": "sensor",
                    "name": "People",
                    "unique_id": f"{device}_people",
                    "state_class": "measurement",
                    "unit_of_measurement": "people",
                    "icon": "mdi:account-group",
                    "value_template": "{{ value_json.count }}",
                    "expire_after": expire_after,
                },
                "occupied": {
                    "p": "binary_sensor",
                    "unique_id": f"{device}_occ",
                    "device_class": "occupancy",
                    "value_template": "{{ 'ON' if value_json.count>0 else 'OFF' }}",
                    "expire_after": expire_after,
                },
                "confidence": {
                    "p": "sensor",
                    "name": "Confidence",
                    "unique_id": f"{device}_conf",
                    "entity_category": "diagnostic",
                    "unit_of_measurement": "%",
                    "value_template": "{{ value_json.confidence_pct }}",
                },
            },
            "state_topic": topics.state(slug),
            "qos": 1,
            "availability": [{"topic": topics.status}, {"topic": topics.availability(slug)}],
            "availability_mode": "all",
        }
    )


def state_of(document: Mapping[str, Any]) -> bytes | None:
    """What is said of a count; None where there is none: an unavailable room has no state.

    A template that compares nothing with 0 fails, so nothing is never sent; availability tells it.
    """
    if document["state"] == "unavailable" or document.get("count") is None:
        return None
    sure = document.get("confidence")
    return _json(
        {
            "count": document["count"],
            "raw": document.get("raw"),
            "lo": document.get("lo"),
            "hi": document.get("hi"),
            "confidence_pct": None if sure is None else round(100 * sure),
            "quality": document["state"],
            "model": _model_of(document.get("model") or {}),
            "ts": round(document["time"], 3),
        }
    )


def _model_of(model: Mapping[str, Any]) -> str:
    """``fedapa round 30 1a2b3c4d``, as far as it is known."""
    round_number = model.get("round")
    words = (
        str(model.get("algorithm") or ""),
        "" if round_number is None else f"round {round_number}",
        str(model.get("hash") or "")[:8],
    )
    return " ".join(word for word in words if word)


def is_ours(topics: Topics, payload: bytes) -> bool:
    """Whether a service with this prefix announced that device."""
    try:
        told = json.loads(payload)
        return bool(
            told["o"]["name"] == "fedapa" and told["availability"][0]["topic"] == topics.status
        )
    except (ValueError, LookupError, TypeError):
        return False


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
