"""What would go wrong, looked for before it does: each finding with a remedy."""

import contextlib
import importlib.metadata
import os
import shutil
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from fedapa import __version__
from fedapa.errors import FedapaError, files_trouble
from fedapa.federation.network.certificates import fingerprint, last_day, read_public_key
from fedapa.federation.network.proxy import HELLO, clock_trouble, validity_trouble
from fedapa.federation.network.server import is_free, running_process
from fedapa.federation.network.server_folder import ServerFolder

__all__ = ["Finding", "examine"]

_PACKAGES = ("flwr", "torch", "numpy", "h5py", "cryptography")
_SOON = 60
"""Days before its last that a certificate is worth a word."""
_LITTLE = 1 << 30
"""Bytes on a disk that are soon too few."""
_DEVICES = ("/dev/ttyUSB0", "/dev/ttyACM0")
"""Where a receiver on a cable is, mostly."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    bad: bool
    said: str
    """What was found and, where it is bad, what to do."""

    def sentence(self) -> str:
        """For people."""
        return f"{'BAD ' if self.bad else 'good'}  {self.what}: {self.said}"

    def told(self) -> dict[str, object]:
        """For scripts."""
        return {"what": self.what, "bad": self.bad, "said": self.said}


def examine(
    folder: Path | None = None, *, server: str | None = None, authority: Path | None = None
) -> list[Finding]:
    """Everything that can be looked at with what is known."""
    findings = [*_versions(), *_disk(folder or Path()), *_devices()]
    if folder is not None and (folder / "server.json").is_file():
        findings += _of_server(ServerFolder.open(folder))
    elif folder is not None:
        findings += _of_room(folder)
    if server is not None:
        findings += _reach(server, authority, folder)
    return findings


def _versions() -> Iterator[Finding]:
    found = sys.version_info[:2] >= (3, 11)
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("Python", not found, version if found else f"{version}; install 3.11 or newer")
    yield Finding("fedapa", False, __version__)
    for package in _PACKAGES:
        try:
            yield Finding(package, False, importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            extra = "train" if package == "torch" else "flower"
            install = f"in a checkout of fedapa: pip install '.[{extra}]'"
            yield Finding(package, True, f"is missing; {install}")


def _disk(folder: Path) -> Iterator[Finding]:
    place = folder.resolve()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    said = f"{free / 2**30:.1f} GiB free at {place}"
    yield Finding("disk", free < _LITTLE, said + ("; make room" if free < _LITTLE else ""))
    may = os.access(place, os.W_OK)
    yield Finding("writing", not may, f"{place}" + ("" if may else " is not writable; chown it"))


def _devices() -> Iterator[Finding]:
    for name in _DEVICES:
        device = Path(name)
        if device.exists():
            may = os.access(device, os.R_OK)
            remedy = "" if may else "; add this user to the group 'dialout' and log in again"
            yield Finding("device", not may, f"{name} {'can' if may else 'cannot'} be read{remedy}")


def _certificate(path: Path) -> Finding:
    try:
        days = (last_day(path).timestamp() - time.time()) / 86400
    except (OSError, FedapaError) as error:
        return Finding("certificate", True, f"{path}: {error}")
    said = f"{path.name} is valid for {days:.0f} days"
    if days < _SOON:
        return Finding("certificate", True, f"{said}; make a new server folder and enrol the rooms")
    return Finding("certificate", False, said)


def _private(path: Path) -> Finding:
    if not path.is_file():
        return Finding("key", True, f"{path} is missing; put it back, or make a new folder")
    open_to_others = path.stat().st_mode & 0o077
    said = f"{path.name} is this user's alone"
    if open_to_others:
        said = f"{path} can be read by others; chmod 600 {path}"
    return Finding("key", bool(open_to_others), said)


def _of_server(server: ServerFolder) -> Iterator[Finding]:
    settings = server.settings
    yield _certificate(server.path / "ca.crt")
    yield _certificate(server.path / "server.crt")
    for name in ("ca.key", "server.key"):
        # The authority's key may be kept elsewhere.
        if name == "server.key" or (server.path / name).is_file():
            yield _private(server.path / name)
    process = running_process(server)
    said = "does not run" if process is None else f"runs (process {process})"
    yield Finding("server", False, said)
    for port, address in ((settings.port, settings.listen), (settings.inner_port, "127.0.0.1")):
        free = is_free(address, port)
        if process is None:
            said = "is free" if free else "is taken by another program; end it, or use --port"
            yield Finding("port", not free, f"{address}:{port} {said}")
        else:
            said = "nobody listens; see log/superlink.log" if free else "listens"
            yield Finding("port", free, f"{address}:{port} {said}")
    with contextlib.suppress(OSError):
        socket.getaddrinfo(settings.name, settings.port)
        yield Finding("name", False, f"{settings.name} has an address")
        return
    yield Finding("name", True, f"{settings.name} has no address; rooms cannot find this server")


def _of_room(folder: Path) -> Iterator[Finding]:
    yield _private(folder / "room.key")
    there = (folder / "room.pub").is_file()
    said = "room.pub is there" if there else f"room.pub is missing; fedapa room init {folder}"
    yield Finding("public key", not there, said)


def _reach(server: str, authority: Path | None, folder: Path | None) -> Iterator[Finding]:
    if authority is None:
        yield Finding("server", True, "give its certificate, too: --ca ca.crt")
        return
    yield _certificate(authority)
    try:
        context = ssl.create_default_context(cafile=str(authority))
        with httpx.Client(base_url=f"https://{server}", verify=context, timeout=10) as client:
            about = client.get(HELLO).raise_for_status().json()
            key = _short_key(folder)
            enrolled = client.get(f"{HELLO}/{key}") if key else None
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        if trouble := validity_trouble(error):
            yield Finding("clock", True, f"{server}: {trouble}")
            return
        if trouble := files_trouble(error):
            yield Finding("files", True, trouble)
            return
        yield Finding(
            "server",
            True,
            f"{server} cannot be reached ({error}); is it HOST:PORT of a server that is started, "
            "is its port open, is ca.crt its own?",
        )
        return
    yield Finding("server", False, f"{server} answers")
    ahead = time.time() - float(about["time"])
    trouble = clock_trouble(ahead)
    yield Finding("clock", bool(trouble), trouble or f"{abs(ahead):.1f} s from the server's")
    same = about["release"] == __version__
    said = f"both have fedapa {__version__}"
    if not same:
        said = f"the server has fedapa {about['release']}, here is {__version__}; install the same"
    yield Finding("release", not same, said)
    if enrolled is not None:
        known = enrolled.status_code == httpx.codes.OK
        said = f"its key {key} is not enrolled; hand room.pub to whoever runs the server"
        if enrolled.status_code == httpx.codes.GONE:
            said = f"its key {key} was expelled; make a new room with 'fedapa room init'"
        if known:
            said = f"as '{enrolled.json()['room']}', with key {key}"
        yield Finding("enrolled", not known, said)


def _short_key(folder: Path | None) -> str:
    """The fingerprint of a room's key; nothing where there is none, which is found elsewhere."""
    path = (folder or Path()) / "room.pub"
    try:
        return fingerprint(read_public_key(path.read_text(), str(path)))
    except (OSError, FedapaError):
        return ""
