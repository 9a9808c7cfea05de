"""What a room looks at before it connects: its store, its key, the server and whether it knows us.

A process of its own does it and ends: what it imports would stay in one that waits.
"""

import json
import os
import shlex
import ssl
import sys
import time
from pathlib import Path

import httpx

from fedapa import __version__
from fedapa.errors import DataError, FedapaError, RunError, files_trouble
from fedapa.federation.network.app import app_bundle
from fedapa.federation.network.certificates import fingerprint, read_public_key
from fedapa.federation.network.place import Connection, Place
from fedapa.federation.network.proxy import HELLO, clock_trouble, validity_trouble
from fedapa.stores.store import Store
from fedapa.windows.labels import choose_rooms

__all__ = ["UnreachableError", "check_place", "check_server", "main"]


class UnreachableError(RunError):
    """The server may be back soon."""


def check_place(place: Place) -> None:
    """Refuse a store without this room, and a folder without a key."""
    with Store(Path(place.data)) as store:
        choose_rooms(store.rooms, only=[place.room], without=None, place=place.data)
    _own_key(Path(place.folder))


def check_server(connection: Connection, folder: Path, room: str) -> None:
    """Refuse, with the reason, a server that would refuse us or that is not ours."""
    where = connection.server
    try:
        context = ssl.create_default_context(cafile=str(connection.authority))
        with httpx.Client(base_url=f"https://{where}", verify=context, timeout=10) as client:
            about = client.get(HELLO).raise_for_status().json()
            now = time.time()
            own = _own_key(folder)
            enrolled = client.get(f"{HELLO}/{fingerprint(own)}")
    except ssl.SSLError as error:
        raise RunError(
            f"{connection.authority}: holds no certificate ({error}); get ca.crt from whoever runs "
            "the server"
        ) from error
    except httpx.ConnectError as error:
        if trouble := validity_trouble(error):
            raise RunError(f"{where}: {trouble}") from error
        if "certificate" in str(error).lower():
            raise RunError(
                f"{where}: its certificate is not of the authority in {connection.authority} "
                f"({error}); get ca.crt from whoever runs the server, and call the server by the "
                "name in its certificate"
            ) from error
        raise UnreachableError(
            f"{where}: cannot be reached ({error}); see that the server is started and its port "
            "open"
        ) from error
    except (httpx.HTTPError, ValueError) as error:
        raise UnreachableError(
            f"{where}: does not answer as a server of fedapa ({str(error).splitlines()[0]}); see "
            "that it is the port of 'fedapa server start'"
        ) from error
    if trouble := clock_trouble(now - float(about["time"])):
        raise RunError(f"{where}: {trouble}")
    if about["release"] != __version__ or about["app"] != app_bundle()[1]:
        raise RunError(
            f"{where}: has fedapa {about['release']} (app {about['app'][:12]}), this room has "
            f"{__version__} (app {app_bundle()[1][:12]}); install the same release on both"
        )
    if enrolled.status_code == 410:
        raise RunError(
            f"{where}: does not know the key of this room any more, it was expelled; make a new "
            "room with 'fedapa room init' and hand its room.pub to whoever runs the server"
        )
    if enrolled.status_code == 404:
        raise RunError(
            f"{where}: does not know the key of this room; hand {folder / 'room.pub'} to whoever "
            "runs the server: fedapa server enrol DIR room.pub --name NAME"
        )
    if (known := enrolled.json().get("room")) != room:
        raise RunError(
            f"{where}: knows this room as '{known}', and it is started as '{room}'; start it with "
            f"--room '{known}', or have the key enrolled by the other name"
        )


def _own_key(folder: Path) -> bytes:
    path = folder / "room.pub"
    if not path.is_file() or not (folder / "room.key").is_file():
        raise DataError(f"{folder}: holds no key; make one with 'fedapa room init {folder}'")
    if not os.access(folder / "room.key", os.R_OK):
        user = os.geteuid()
        raise DataError(
            f"{folder / 'room.key'}: user {user} may not read it; give it to that user: chown -R "
            f"{user} {shlex.quote(str(folder))}"
        )
    return read_public_key(path.read_text(), str(path))


def _told(error: FedapaError | OSError) -> dict[str, str]:
    """The kind of an error, by which the room knows whether to try again, and its sentence."""
    if trouble := files_trouble(error):
        return {"unreachable": trouble}
    kinds = {UnreachableError: "unreachable", DataError: "data", FedapaError: "refused"}
    kind = next((word for one, word in kinds.items() if isinstance(error, one)), "unreachable")
    return {kind: str(error)}


def main() -> None:
    """Look at everything of the room in the arguments; what is wrong is told as a line of JSON."""
    place = Place(**json.loads(sys.argv[1]))
    server, authority = sys.argv[2:]
    told: dict[str, str] = {}
    try:
        check_place(place)
        check_server(Connection(server, Path(authority)), Path(place.folder), place.room)
    except (FedapaError, OSError) as error:
        told = _told(error)
    sys.stdout.write(json.dumps(told) + "\n")
