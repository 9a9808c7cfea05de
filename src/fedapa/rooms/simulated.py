"""Simulated rooms as stores: made once from a preset and a seed, then cached."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedapa.randomness import Key
from fedapa.windows.slide import cache_folder
from fedapa.windows.store import write_store

__all__ = ["PRESETS", "simulated_store", "write_simulated"]

PRESETS = ("smoke", "quick", "six-rooms")


def simulated_store(
    preset: str,
    seed: int,
    *,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """The store of a preset, from the cache or made now."""
    path = cache_folder() / f"simulated-{preset}-{seed}-v0.h5"
    if not path.is_file():
        write_simulated(preset, seed=seed, out=path, workers=workers, progress=progress)
    return path


def write_simulated(
    preset: str,
    *,
    seed: int,
    out: Path,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Placeholder."""
    window = {"smoke": 64, "quick": 125, "six-rooms": 1000}[preset]
    takes = {"smoke": 4, "quick": 5, "six-rooms": 5}[preset]
    rooms = {
        "hotel room": 4,
        "living room": 6,
        "conference room": 9,
        "classroom": 15,
        "open office": 13,
        "bus": 21,
    }
    with write_store(out) as store:
        store._file.attrs["window"] = window
        for number, (room, most) in enumerate(rooms.items()):
            if progress:
                progress(number, len(rooms))
            store.add_room(room, synthetic=True, about={"device": "simulated"})
            step = 3 if preset == "smoke" else 1
            tones = np.arange(-28, 28)
            base_stream = (Key(seed) / room).numpy()
            delays = base_stream.uniform(10e-9, 80e-9, 12)
            gains = base_stream.exponential(1.0, 12)
            for count in range(0, most, step):
                for take in range(takes):
                    stream = (Key(seed) / room / count / take).numpy()
                    packets = window * (2 + number % 3)
                    time = np.arange(packets) / 125
                    static = (
                        gains
                        * np.exp(
                            -2j
                            * np.pi
                            * np.outer(tones * 312.5e3, delays + stream.normal(0, 1e-9, 12))
                        )
                    ).sum(1)
                    field = np.broadcast_to(static, (packets, 56)).copy()
                    for _ in range(count):
                        speed = stream.uniform(0.2, 1.2)
                        phase = 2 * np.pi * (speed * time / 0.058 * 2 + stream.uniform())
                        delay = stream.uniform(20e-9, 100e-9)
                        field += (
                            0.4
                            * np.exp(1j * phase)[:, None]
                            * np.exp(-2j * np.pi * tones * 312.5e3 * delay)
                        )
                    field += stream.normal(0, 0.1, field.shape) + 1j * stream.normal(
                        0, 0.1, field.shape
                    )
                    store.add_recording(
                        room,
                        f"day{take}-P{count}",
                        label=count,
                        amplitude=np.abs(field).astype(np.float32)[:, :, None],
                        timestamps=time,
                        day=f"day{take}",
                        rate=125.0,
                    )
