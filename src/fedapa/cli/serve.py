"""``fedapa serve``: rooms counted live, on a page and for other programs."""

from pathlib import Path
from typing import Annotated

import typer

from fedapa.cli.mqtt import (
    Broker,
    BrokerAuthority,
    BrokerPassword,
    BrokerTls,
    BrokerUser,
    DiscoveryPrefix,
    TopicPrefix,
    mqtt_settings,
)
from fedapa.cli.options import ByStillness
from fedapa.cli.output import print_out

__all__ = ["serve"]


def serve(
    run: Annotated[
        Path,
        typer.Option(
            help="Folder of a run, of 'fedapa room' or of 'fedapa server', or a model file."
        ),
    ],
    source: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[ROOM=]SOURCE",
            help="Where packets come from: simulator, udp[:[ADDRESS:]PORT], serial:DEVICE, "
            "tcp:HOST:PORT, file:PATH or a capture; once for each room that has its own. Without: "
            "nobody is counted, the run's training is shown.",
        ),
    ] = None,
    room: Annotated[
        list[str] | None, typer.Option(help="Only this room; give it once for each.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to serve at; any but loopback needs an access token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8080,
    token: Annotated[
        str | None,
        typer.Option(envvar="FEDAPA_TOKEN", help="Access token; better in $FEDAPA_TOKEN."),
    ] = None,
    every: Annotated[float, typer.Option(help="Seconds from one count to the next.")] = 5.0,
    stillness: ByStillness = True,
    history: Annotated[
        Path | None,
        typer.Option(help="SQLite file of all counts; default: live/counts.db in the run."),
    ] = None,
    keep: Annotated[float, typer.Option(help="Days that a count is kept.")] = 7.0,
    chip: Annotated[
        str | None, typer.Option(help="Of Nexmon packets that do not tell it, e.g. 4358.")
    ] = None,
    mqtt: Broker = None,
    mqtt_user: BrokerUser = None,
    mqtt_password_file: BrokerPassword = None,
    mqtt_tls: BrokerTls = False,
    mqtt_ca: BrokerAuthority = None,
    mqtt_prefix: TopicPrefix = None,
    mqtt_discovery: DiscoveryPrefix = None,
) -> None:
    """Count people in one or several rooms until Ctrl-C: a page, an API, metrics.

    Example: fedapa serve --run runs/demo/fedapa --source simulator

    fedapa serve --run runs/ours --source kitchen=udp:5500 --source hall=tcp:10.0.0.7:3333

    A run that is trained, in process or by a server, can be followed: fedapa serve --run runs/ours
    """
    from fedapa.service.counter import CounterSettings
    from fedapa.service.running import Serving, serve_until_stopped

    wanted = Serving(
        run=run,
        sources=tuple(source or ()),
        rooms=tuple(room or ()),
        host=host,
        port=port,
        token=token,
        settings=CounterSettings(
            every=every, stillness=CounterSettings.stillness if stillness else 0
        ),
        history=history,
        keep=keep,
        chip=chip,
        mqtt=mqtt_settings(
            mqtt,
            user=mqtt_user,
            password_file=mqtt_password_file,
            tls=mqtt_tls,
            ca=mqtt_ca,
            prefix=mqtt_prefix,
            discovery=mqtt_discovery,
            every=every,
        ),
    )
    serve_until_stopped(wanted, print_out)
