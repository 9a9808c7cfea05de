"""What many tests share: a cache of their own, and rooms small enough to train in milliseconds."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

from fedapa.randomness import Key
from fedapa.rooms.room import Room
from fedapa.stores.store import write_store

# Busy machines are slow, not wrong; and a red test must be red again when it is looked at.
settings.register_profile("fedapa", deadline=None, derandomize=True)
settings.load_profile("fedapa")

# A shell that starts something in the background has it ignore Ctrl-C, and its children, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Tests neither read nor fill the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    before = os.environ.get("FEDAPA_CACHE")
    os.environ["FEDAPA_CACHE"] = str(folder)
    yield folder
    if before is None:
        del os.environ["FEDAPA_CACHE"]
    else:
        os.environ["FEDAPA_CACHE"] = before


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As in workers: sums come in one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real captures beside the checkout; none of them is part of the repository."""
    beside = Path(__file__).resolve().parents[1].parent / "shared" / "data"
    folder = Path(os.environ.get("FEDAPA_SHARED_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no real captures at {folder}; set FEDAPA_SHARED_DATA to where they are")
    return folder


def hear_ctrl_c() -> None:
    """For ``preexec_fn``: shells start background jobs deaf to SIGINT, and children inherit it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


MakeRooms = Callable[..., list[Room]]


@pytest.fixture
def make_rooms() -> MakeRooms:
    """Rooms of noise whose level grows with the count: learnable, tiny, unequal."""

    def make(
        counts: Sequence[Sequence[int]] = ((0, 1, 2), (0, 1), (1, 2)),
        *,
        windows_per_class: int = 8,
        shape: tuple[int, ...] = (12, 10),
        architecture: str | Sequence[str] = "middle",
        width: int = 16,
        seed: int = 0,
    ) -> list[Room]:
        classes = sorted({count for room in counts for count in room})
        rooms = []
        for number, held in enumerate(counts):
            stream = (Key(seed) / "test rooms" / number).numpy()
            labels = np.repeat(held, windows_per_class)
            noise = stream.normal(size=(len(labels), *shape))
            level = labels.reshape(-1, *(1 for _ in shape))
            windows = (noise * (1 + level) + 3 * number + level).astype(np.float32)
            net = architecture if isinstance(architecture, str) else architecture[number]
            rooms.append(
                Room.of(
                    f"room {number}",
                    windows,
                    labels.tolist(),
                    classes=classes,
                    architecture=net,
                    width=width,
                    seed=seed,
                )
            )
        return rooms

    return make


Takes = dict[str, dict[int | str | None, int]]
"""room → label → recordings of it."""


def write_takes(
    path: Path,
    rooms: Takes | None = None,
    *,
    packets: int = 64,
    subcarriers: int = 6,
    synthetic: bool = False,
) -> None:
    """A store with takes of packets, of noise that grows with the count."""
    rooms = rooms or {"cafe": {0: 3, 1: 3, 2: 3}, "hall": {0: 3, 2: 3}}
    with write_store(path) as store:
        for room, labels in rooms.items():
            store.add_room(room, synthetic=synthetic, about={"device": "test"})
            for label, takes in labels.items():
                for take in range(takes):
                    stream = (Key(0) / room / str(label) / take).numpy()
                    level = 1 + label if isinstance(label, int) else len(str(label))
                    amplitude = 5 + level * stream.normal(size=(packets, subcarriers, 1))
                    store.add_recording(
                        room,
                        f"{label}-{take}",
                        label=label,
                        amplitude=amplitude.astype(np.float32),
                        timestamps=np.arange(packets) / 100,
                        day=f"day {take}",
                        rate=100.0,
                    )


MakeStore = Callable[..., Path]


@pytest.fixture
def make_store(tmp_path: Path) -> MakeStore:
    """A store with takes of packets: {room: {label or None: takes}}, some windows a take."""

    def make(
        rooms: Takes | None = None,
        *,
        packets: int = 64,
        subcarriers: int = 6,
        name: str = "rooms.h5",
        synthetic: bool = False,
    ) -> Path:
        path = tmp_path / name
        write_takes(path, rooms, packets=packets, subcarriers=subcarriers, synthetic=synthetic)
        return path

    return make
