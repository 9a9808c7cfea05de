"""``fedapa server``, ``fedapa room`` and ``fedapa doctor``: rooms on machines of their own."""

import contextlib
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedapa.cli.options import ByStillness, Json
from fedapa.cli.output import print_json, print_out
from fedapa.errors import DataError

if TYPE_CHECKING:
    from fedapa.report.tables.table import Table

__all__ = ["doctor", "room", "server"]

server = typer.Typer(
    no_args_is_help=True, help="The server of rooms on other machines: keys, runs, who is there."
)
room = typer.Typer(no_args_is_help=True, help="One room that learns with others over a network.")

ServerFolder = Annotated[Path, typer.Argument(metavar="DIR", help="The server's folder.")]
RoomFolder = Annotated[Path, typer.Argument(metavar="DIR", help="The room's folder.")]


_LAST_TOLD = 5
_MISTAKES_TOLD = 8.0
"""s within which 'fedapa serve' ends where it cannot begin."""


def _say(sentence: str) -> None:
    print_out(f"{time.strftime('%H:%M:%S')} {sentence}")


@server.command("init")
def server_init(
    folder: ServerFolder,
    name: Annotated[str, typer.Option(help="The host that rooms call: a DNS name or an address.")],
    port: Annotated[int, typer.Option(min=1, max=65535, help="Where rooms connect.")] = 8443,
    listen: Annotated[
        str, typer.Option(help="The address of that port; 127.0.0.1: this machine alone.")
    ] = "0.0.0.0",
    inner_port: Annotated[
        int, typer.Option(min=1, max=65535, help="For the SuperLink, on loopback.")
    ] = 18443,
) -> None:
    """Make a server: an authority, a certificate for its name, nobody enrolled.

    Example: fedapa server init server --name example.org
    """
    from fedapa.federation.network.server_folder import ServerFolder as Folder
    from fedapa.federation.network.server_folder import Settings

    made = Folder.make(folder, Settings(name, port, listen, inner_port))
    print_out(f"Server in {folder}; start it with: fedapa server start {folder}")
    print_out(f"Give every room this certificate: {made.authority}")


@server.command("start")
def server_start(
    folder: ServerFolder,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Instead of the one it was made with.")
    ] = None,
) -> None:
    """Serve rooms until Ctrl-C or 'fedapa server stop'; a run that was going on goes on.

    Example: fedapa server start server
    """
    from fedapa.federation.network.server import serve
    from fedapa.federation.network.server_folder import ServerFolder as Folder

    opened = Folder.open(folder)
    if port is not None:
        opened.save_port(port)
    serve(opened, _say)


@server.command("stop")
def server_stop(folder: ServerFolder) -> None:
    """End the server of a folder; its run goes on with the next start.

    Example: fedapa server stop server
    """
    from fedapa.federation.network.server import stop
    from fedapa.federation.network.server_folder import ServerFolder as Folder

    stop(Folder.open(folder))
    print_out("Stopped; a run goes on with the next 'fedapa server start'.")


@server.command()
def enrol(
    folder: ServerFolder,
    key: Annotated[Path, typer.Argument(metavar="ROOM.PUB", help="The room's public key.")],
    name: Annotated[str, typer.Option(help="What the room is called, e.g. kitchen.")],
) -> None:
    """Let a room take part, by its public key; also while a run goes on.

    Example: fedapa server enrol server room.pub --name kitchen
    """
    from fedapa.federation.network.server_folder import ServerFolder as Folder

    opened = Folder.open(folder)
    if not key.is_file():
        raise DataError(f"{key}: no such file; expected the room.pub that 'fedapa room init' wrote")
    opened.enrol(key.read_text(), name)
    print_out(f"Room '{name}' may take part, with key {opened.short_key(name)}.")


@server.command()
def expel(
    folder: ServerFolder,
    name: Annotated[str, typer.Argument(metavar="ROOM", help="What the room is called.")],
) -> None:
    """Refuse a room's key from now on, for good.

    Example: fedapa server expel server kitchen
    """
    from fedapa.federation.network.server_folder import ServerFolder as Folder

    Folder.open(folder).expel(name)
    print_out(f"Room '{name}' is refused from now on.")


@server.command("run")
def server_run(
    folder: ServerFolder,
    plan: Annotated[Path, typer.Argument(help="A plan (TOML), as for 'fedapa run'.")],
    name: Annotated[
        str | None, typer.Option(help="Of the run; default: the name of the plan's file.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Tell what happens until the run has ended.")
    ] = False,
) -> None:
    """Run a plan with the rooms that are enrolled; the same name again goes on with that run.

    Example: fedapa server run server plan.toml
    """
    from fedapa.federation.network.operating import begin_run, follow
    from fedapa.federation.network.server_folder import ServerFolder as Folder

    opened = Folder.open(folder)
    called = name or plan.stem
    begin_run(opened, plan, called)
    if wait:
        follow(opened, called, _say)
        return
    print_out(f"Run '{called}' begins; see: fedapa server status {folder}")


@server.command()
def status(folder: ServerFolder, as_json: Json = False) -> None:
    """Who is there, how far the run is, what was refused.

    Example: fedapa server status server --json
    """
    from fedapa.evaluation.record import UPLOAD, suspicion
    from fedapa.federation.network.operating import status_of
    from fedapa.federation.network.server_folder import ServerFolder as Folder
    from fedapa.report.tables.table import rich_table

    told: dict[str, Any] = status_of(Folder.open(folder))
    if as_json:
        print_json(told)
        return
    print_out(rich_table(_status_table(told)))
    run = told["run"]
    if "name" in run:
        accuracy = run.get("mean", {}).get("accuracy")
        scored = "" if accuracy is None else f", accuracy {100 * accuracy:.1f} %"
        total = f" of {run['rounds']}" if run.get("rounds") else ""
        done = f"round {run.get('round') or 0}{total}"
        print_out(f"Run '{run['name']}': {run['state']}, {done}{scored}.")
    if not told["server"]["running"]:
        so = ", and the run goes on" if run.get("wanted") else ""
        print_out(f"The server does not run; start it with 'fedapa server start {folder}'{so}.")
    if "privacy" in run:
        print_out(f"Privacy: {run['privacy']}")
    for entry in told["not_taken"][-_LAST_TOLD:]:
        print_out(
            f"Round {entry['round']}: the upload of room '{entry['room']}' "
            f"{UPLOAD[entry['what']]}: {entry['reason']}."
        )
    for one in told["suspects"]:
        print_out(suspicion(one))
    if told["refused"]:
        print_out(f"Refused requests: {told['refused']}; see log/refused.jsonl.")
    for sentence in (*told["sentences"], *run.get("end", []), *filter(None, [told["trouble"]])):
        print_out(sentence)


def _status_table(told: dict[str, Any]) -> "Table":
    from fedapa.report.tables.table import Table

    def row(name: str, about: dict[str, Any]) -> list[str]:
        seen = about["last_seen"]
        ago = "never" if seen is None else f"{max(0, time.time() - seen):.0f} s ago"
        state = "expelled" if about["expelled"] else "here" if about["online"] else "away"
        numbers = (about["round"], about["windows"], about["bytes"], about["rejected"])
        cells = [name, state, ago, *("–" if number is None else str(number) for number in numbers)]
        spent = about.get("privacy")
        return [*cells, *(["–" if spent is None else f"{spent['epsilon']:.3g}"] if private else [])]

    private = any(about.get("privacy") for about in told["rooms"].values())
    headings = ["Room", "State", "Last seen", "Round", "Windows", "Bytes", "Rejected"]
    headings += ["ε spent"] if private else []
    rows = [row(name, about) for name, about in told["rooms"].items()]
    return Table("Rooms", headings, rows, text_columns=3)


@room.command("init")
def room_init(folder: RoomFolder) -> None:
    """Make a room's key pair and print the public key, to be handed to whoever runs the server.

    Example: fedapa room init kitchen
    """
    from fedapa.federation.network.certificates import fingerprint, read_public_key
    from fedapa.federation.network.room import make_room_folder

    public = make_room_folder(folder)
    short = fingerprint(read_public_key(public, "the public key"))
    print_out(f"Hand {folder / 'room.pub'} to whoever runs the server:")
    print_out(public)
    print_out(f"'fedapa server enrol' will call it {short}; compare the two.")


@room.command("start")
def room_start(
    folder: RoomFolder,
    server: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where the server is.")],
    ca: Annotated[Path, typer.Option(help="The server's ca.crt.")],
    data: Annotated[Path, typer.Option(help="The store with this room's recordings.")],
    room: Annotated[str, typer.Option(help="The room's name, in the store and at the server.")],
    once: Annotated[
        bool, typer.Option("--once", help="End when the server refuses the room; do not try again.")
    ] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Count people, too, as 'fedapa serve' does.")
    ] = False,
    source: Annotated[
        str | None,
        typer.Option(metavar="SOURCE", help="With --serve: e.g. udp:5500, serial:DEVICE."),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="With --serve: of the page.")] = 8080,
    host: Annotated[str, typer.Option(help="With --serve: address of the page.")] = "127.0.0.1",
    stillness: ByStillness = True,
    epsilon: Annotated[
        float | None,
        typer.Option(
            min=1e-3,
            max=1e4,
            metavar="E",
            help="Refuse plans without noise, and those with a larger privacy.epsilon; default: "
            "the plan decides.",
        ),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            min=1e-10, max=1e-3, metavar="D", help="With --epsilon: the largest δ; default: 1e-5."
        ),
    ] = None,
    unit: Annotated[
        Literal["recording", "window"] | None,
        typer.Option(
            help="With --epsilon: what noise has to protect, whole recordings or, which is less, "
            "single windows; default: recording."
        ),
    ] = None,
) -> None:
    """Learn with others until Ctrl-C; reconnects after any outage, says what it is doing.

    Example: fedapa room start kitchen --server example.org:8443 --ca ca.crt
    --data rooms.h5 --room kitchen

    With --serve and --source udp:5500 the room also counts live, with its newest model.

    With --epsilon 10 it takes part only where the plan's noise is as strong (extra 'privacy').
    """
    from fedapa.errors import PlanError
    from fedapa.federation.network.place import Connection, Place
    from fedapa.federation.network.room import serve as learn

    for name, given in (("delta", delta), ("unit", unit)):
        if given is not None and epsilon is None:
            raise PlanError(f"--{name} {given}: goes with --epsilon, the largest ε of a plan")
    limits = {"epsilon": epsilon, "delta": delta, "unit": unit}
    allowed: dict[str, Any] = {name: given for name, given in limits.items() if given is not None}
    place = Place(room, str(data.resolve()), str(folder.resolve()), **allowed)
    connection = Connection(server, ca.resolve())
    if limits_told := place.limits():
        _say(limits_told)
    with contextlib.ExitStack() as ends:
        if source is not None and not serve:
            raise PlanError(f"--source {source}: is for counting; say --serve, too")
        if serve:
            asked = ["--host", host, "--port", str(port)]
            asked += [] if stillness else ["--no-stillness"]
            ends.enter_context(_counting_beside(folder, room, source, asked))
        learn(place, connection, _say, once=once)


@contextlib.contextmanager
def _counting_beside(
    folder: Path, room: str, source: str | None, asked: Sequence[str]
) -> Iterator[None]:
    """``fedapa serve`` as a child: it has no torch, and ends when the room does.

    ``asked`` are the options of serving that are handed on.
    """
    from fedapa.errors import PlanError
    from fedapa.federation.network.child import end_child, start_child

    if source is None:
        raise PlanError("--serve: say where packets come from, e.g. --source udp:5500")
    arguments = ["--run", str(folder), "--room", room, "--source", f"{room}={source}"]
    child = start_child("fedapa", ["serve", *arguments, *asked], log=None, home=folder / "flower")
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            # Mistakes are told before it serves: it has said why.
            raise typer.Exit(child.wait(_MISTAKES_TOLD) or 2)
        threading.Thread(target=_tell_of_end, args=(child,), daemon=True).start()
        yield
    finally:
        end_child(child)


def _tell_of_end(child: "subprocess.Popen[bytes]") -> None:
    if code := child.wait():
        _say(f"counting ended with code {code}; the room goes on learning")


def doctor(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[DIR]", help="A server's or a room's folder.", show_default=False),
    ] = None,
    server: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="A server to reach from here.")
    ] = None,
    ca: Annotated[Path | None, typer.Option(help="That server's ca.crt.")] = None,
    as_json: Json = False,
) -> None:
    """Look for what would go wrong: versions, ports, certificates, clock, disk, devices.

    Example: fedapa doctor kitchen --server example.org:8443 --ca ca.crt
    """
    from fedapa.federation.network.doctor import examine

    findings = examine(folder, server=server, authority=ca)
    if as_json:
        print_json({"findings": [finding.told() for finding in findings]})
    else:
        for finding in findings:
            print_out(finding.sentence())
    if any(finding.bad for finding in findings):
        raise typer.Exit(1)
