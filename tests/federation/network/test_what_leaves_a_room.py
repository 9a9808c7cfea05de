"""Every byte that rooms send in a run of FedAPA, searched for what must stay with them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fedapa import Plan
from fedapa.federation.engines.frames import unpack
from fedapa.federation.prepare import prepare_rooms
from fedapa.payload import decode, leaves
from fedapa.randomness import Key
from fedapa.rooms.model_file import read_weights
from fedapa.rooms.room import Room
from fedapa.stores.imported.captures import import_captures
from fedapa.stores.imported.preparation import Preparation
from fedapa.stores.imported.sources import sources_by_pattern
from fedapa.windows.recipe import Recipe
from tests.csi.capture_bytes import ethernet, nexmon_datagram, pcap, udp
from tests.federation.fake_grid import FakeGrid, nodes_of
from tests.federation.test_flower import engine_of, plan_of
from tests.federation.test_flower import run as carry_out

MACS = {"cafe": bytes.fromhex("24d7eb1f9ac3"), "hall": bytes.fromhex("7cdfa1e5b842")}
SHORTEST = 12
"""Bytes of a needle: three numbers in a row are found by chance in no message of a few KB."""


def capture(room: str, label: int, take: int) -> bytes:
    """A take as a Raspberry Pi writes it, with the address of whoever sent."""
    draw = (Key(0) / room / label / take).numpy()

    def packet(number: int) -> bytes:
        csi = draw.normal(0, 200 * (label + 1), (64, 2)).astype("<i2").tobytes()
        return nexmon_datagram(csi, bandwidth=20, mac=MACS[room], sequence=number)

    return pcap([(1000 + 0.01 * number, ethernet(udp(packet(number)))) for number in range(64)])


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captures")
    for room in MACS:
        for label in range(3):
            for take in range(4):
                path = folder / room / f"day{take}" / f"P={label}.pcap"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(capture(room, label, take))
    return folder


@pytest.fixture(scope="module")
def store(captures: Path) -> Path:
    sources, _ = sources_by_pattern(captures, "{room}/{day}/P={label}.pcap")
    path = captures.parent / f"{captures.name}.h5"
    import_captures(sources, path, preparation=Preparation(recipe=Recipe()))
    return path


def sent(store: Path, plan: Plan, folder: Path) -> list[bytes]:
    """Everything that rooms said in a run: each frame, and each upload inside one."""
    grid = FakeGrid(nodes_of(store, MACS, folder / "rooms"))
    engine = engine_of(grid, plan, folder / "server")
    carry_out(plan, out=folder / "server", engine=engine)
    found = []
    for _, content in grid.said:
        for frame in unpack(content, "said").values():
            found.append(frame)
            found += [
                value.tobytes()
                for _, value in leaves(decode(frame))
                if isinstance(value, np.ndarray)
            ]
    return found


def written(mac: bytes) -> list[bytes]:
    """An address as bytes, either way round, and as people write it."""
    text = mac.hex()
    pairs = [text[place : place + 2] for place in range(0, 12, 2)]
    spellings = [
        text,
        ":".join(pairs),
        "-".join(pairs),
        ".".join(text[i : i + 4] for i in (0, 4, 8)),
    ]
    return [mac, mac[::-1], *(word.encode() for each in spellings for word in (each, each.upper()))]


def pieces(values: NDArray[np.floating]) -> Iterator[bytes]:
    """The beginning of every row, in the precisions that numbers might travel in."""
    for row in np.asarray(values).reshape(-1, np.shape(values)[-1] if np.ndim(values) else 1):
        for kind in ("<f2", "<f4", "<f8"):
            piece = row[:16].astype(kind).tobytes()
            if len(piece) >= SHORTEST and len(set(piece)) > 3:
                yield piece


def windows_of(room: Room) -> list[bytes]:
    """Windows as the store has them and as the net gets them."""
    return [*pieces(room.windows), *pieces(room.normaliser(room.windows))]


def weights_of(folder: Path) -> list[bytes]:
    """The weights of every net that a room holds: after the last trainings and at the end."""
    states = sorted(folder.rglob("*.state"))
    trained = [
        value
        for path in states
        for name, value in leaves(decode(path.read_bytes()))
        if name.startswith("state/model/") and np.size(value) > 3  # of three many are alike
    ]
    finished = [
        value
        for path in sorted(folder.rglob("*.safetensors"))
        for value in read_weights(path).values()
    ]
    assert states
    assert finished
    return [
        piece
        for values in (*trained, *finished)
        for piece in pieces(np.asarray(values, np.float64).ravel()[None])
    ]


def hits(needles: list[bytes], haystack: list[bytes]) -> int:
    whole = b"|".join(haystack)
    return sum(needle in whole for needle in set(needles))


def test_no_window_no_weight_and_no_address_is_in_a_message(
    captures: Path, store: Path, tmp_path: Path
) -> None:
    """FedAvg, whose messages are weights, shows that weights would be found."""
    plan = plan_of(store, rounds=2)
    messages = sent(store, plan, tmp_path)
    rooms = prepare_rooms(plan)
    windows = [piece for room in rooms for piece in windows_of(room)]
    weights = weights_of(tmp_path / "rooms")
    addresses = [spelling for mac in MACS.values() for spelling in written(mac)]
    assert sum(map(len, messages)) > 10_000
    assert len(windows) > 1000
    assert len(weights) > 10
    assert hits(windows, messages) == 0
    assert hits(weights, messages) == 0
    assert hits(addresses, messages) == 0
    # The search finds what there is.
    assert hits(addresses, [path.read_bytes() for path in captures.rglob("*.pcap")]) == len(MACS)
    assert hits(windows, [np.asarray(room.windows).tobytes() for room in rooms]) > 500
    fedavg = tmp_path / "fedavg"
    messages = sent(store, plan_of(store, rounds=2, algorithm="fedavg"), fedavg)
    assert hits(weights_of(fedavg / "rooms"), messages) > 10
    assert hits(windows, messages) == 0
    assert hits(addresses, messages) == 0


def test_a_class_with_too_few_windows_stays_at_home(store: Path, tmp_path: Path) -> None:
    """In process the same is tested with the round loop (tests/federation/test_rounds.py)."""
    plan = plan_of(store, rounds=2, algorithm={"name": "fedapa", "minimum_samples": 1000})
    grid = FakeGrid(nodes_of(store, MACS, tmp_path / "rooms"))
    carry_out(plan, out=tmp_path / "server", engine=engine_of(grid, plan, tmp_path / "server"))
    uploads = [
        decode(np.asarray(tree["upload"]).tobytes())
        for _, content in grid.said
        for frame in unpack(content, "said").values()
        if isinstance((tree := decode(frame)).get("upload"), np.ndarray)
    ]
    assert uploads
    assert all(np.asarray(upload["prototypes"]).size == 0 for upload in uploads)
    assert not any(np.any(upload["present"]) for upload in uploads)
