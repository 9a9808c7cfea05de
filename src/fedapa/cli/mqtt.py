"""Options of ``fedapa serve`` for Home Assistant, and what becomes of them."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedapa.errors import PlanError

if TYPE_CHECKING:
    from fedapa.service.mqtt import MqttSettings

__all__ = [
    "Broker",
    "BrokerAuthority",
    "BrokerPassword",
    "BrokerTls",
    "BrokerUser",
    "DiscoveryPrefix",
    "TopicPrefix",
    "mqtt_settings",
]

_PANEL = "Home Assistant"
_EXPIRE = 60
"""s without a count, after which Home Assistant shows none."""

Broker = Annotated[
    str | None,
    typer.Option(
        "--mqtt",
        metavar="HOST[:PORT]",
        help="Tell Home Assistant of every count through this MQTT broker.",
        rich_help_panel=_PANEL,
    ),
]
BrokerUser = Annotated[
    str | None,
    typer.Option("--mqtt-user", metavar="NAME", help="At the broker.", rich_help_panel=_PANEL),
]
BrokerPassword = Annotated[
    Path | None,
    typer.Option(
        "--mqtt-password-file",
        metavar="FILE",
        help="Its first line is the password; or set $FEDAPA_MQTT_PASSWORD.",
        rich_help_panel=_PANEL,
    ),
]
BrokerTls = Annotated[
    bool,
    typer.Option(
        "--mqtt-tls",
        help="Encrypt; trust authorities that the system trusts.",
        rich_help_panel=_PANEL,
    ),
]
BrokerAuthority = Annotated[
    Path | None,
    typer.Option(
        "--mqtt-ca",
        metavar="FILE",
        help="Encrypt; trust this authority's certificate (PEM) alone.",
        rich_help_panel=_PANEL,
    ),
]
TopicPrefix = Annotated[
    str | None,
    typer.Option(
        "--mqtt-prefix",
        metavar="WORD",
        help="Of topics, default: fedapa; two services at one broker need two.",
        rich_help_panel=_PANEL,
    ),
]
DiscoveryPrefix = Annotated[
    str | None,
    typer.Option(
        "--mqtt-discovery",
        metavar="WORD",
        help="Home Assistant's discovery prefix, default: homeassistant.",
        rich_help_panel=_PANEL,
    ),
]


def mqtt_settings(
    broker: str | None,
    *,
    user: str | None,
    password_file: Path | None,
    tls: bool,
    ca: Path | None,
    prefix: str | None,
    discovery: str | None,
    every: float,
) -> "MqttSettings | None":
    """What the options ask for; None without a broker."""
    given = {
        "--mqtt-user": user,
        "--mqtt-password-file": password_file,
        "--mqtt-tls": tls or None,
        "--mqtt-ca": ca,
        "--mqtt-prefix": prefix,
        "--mqtt-discovery": discovery,
    }
    if broker is None:
        alone = [option for option, value in given.items() if value is not None]
        if alone:
            raise PlanError(f"{alone[0]}: there is no broker; give --mqtt HOST, too")
        return None
    from fedapa.service.home_assistant import Topics
    from fedapa.service.mqtt import MqttSettings, read_password

    known = Topics()
    return MqttSettings.at(
        broker,
        user=user or "",
        password=read_password(password_file),
        tls=tls,
        ca=ca,
        topics=Topics(
            known.prefix if prefix is None else prefix,
            known.discovery if discovery is None else discovery,
        ),
        expire_after=max(_EXPIRE, math.ceil(3 * every)),
    )
