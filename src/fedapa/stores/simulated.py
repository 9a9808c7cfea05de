"""Six simulated rooms in three sizes, written as a store; documented in docs/simulator.md.

``smoke`` is for tests, ``quick`` for a demo on a laptop, ``six-rooms`` has windows of 1000 packets
by 242 tones. The places are the same in all three; bandwidth, packet rates, counts and the length
of the takes differ. Everything in them is marked synthetic.
"""

import hashlib
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from fedapa.csi.capture import Capture
from fedapa.errors import DataError, PlanError, RunError, nearest
from fedapa.files import cache_folder
from fedapa.payload import Tree, decode, encode
from fedapa.processes import Progress, Show, Workers, unseen
from fedapa.randomness import Key
from fedapa.simulator.channel import Radio
from fedapa.simulator.people import Motion
from fedapa.simulator.receiver import Receiver
from fedapa.simulator.room import Furniture, Room, Walls, capacity
from fedapa.simulator.take import Scene, check_scene, take
from fedapa.stores.store import write_store
from fedapa.windows.clean import Amplitudes, clean
from fedapa.windows.labels import check_name
from fedapa.windows.recipe import Recipe

__all__ = [
    "PRESETS",
    "Place",
    "Preset",
    "Task",
    "check_preset",
    "preset_hash",
    "preset_of",
    "run_tasks",
    "simulated_store",
    "tasks_of",
    "write_simulated",
]


_VERSION = 2
"""Raised when the same parameters give other numbers; part of every hash."""


@dataclass(frozen=True)
class Place:
    """A scene and what is recorded in it."""

    scene: Scene
    counts: tuple[int, ...]
    """Numbers of people recorded."""
    days: int
    """Days of recording; overnight furniture and antennas move."""
    takes: int
    """Takes of every count on every day, each with seats and steps of its own."""
    windows: int
    """Windows in a take of the smaller counts; takes with many people are shorter."""

    def windows_of(self, count: int) -> int:
        """Windows in a take with ``count`` people: a crowd has less patience."""
        return self.windows - (count > max(self.counts) / 2) * (self.windows // 4)


@dataclass(frozen=True)
class Preset:
    """Places and the window they are meant to be cut into."""

    name: str
    window: int
    """Packets of a window."""
    places: tuple[Place, ...]


def _seats(
    x: tuple[float, float], columns: int, y: tuple[float, float], rows: int
) -> tuple[tuple[float, float], ...]:
    return tuple(
        (round(float(a), 3), round(float(b), 3))
        for a in np.linspace(*x, columns)
        for b in np.linspace(*y, rows)
    )


_LIVING_ROOM = Scene(
    Room(
        "living room",
        size=(6.0, 4.5, 2.6),
        transmitter=(0.5, 0.7, 1.1),
        receiver=(5.4, 3.7, 0.9),
        walls=Walls(west="brick", north="glass", floor="floorboard"),
        furniture=Furniture(pieces=14),
        seats=_seats((2.0, 3.4), 3, (0.8, 3.6), 2),
    ),
    motion=Motion(seated=0.5),
)
_CLASSROOM = Scene(
    Room(
        "classroom",
        size=(10.0, 8.0, 3.0),
        transmitter=(0.4, 4.2, 2.5),
        receiver=(9.5, 3.4, 1.2),
        walls=Walls(west="concrete", north="glass", ceiling="ceiling board"),
        furniture=Furniture(pieces=30, cross_section=(0.05, 0.3)),
        seats=_seats((2.5, 8.5), 6, (1.0, 7.0), 6),
    ),
    motion=Motion(seated=0.8),
)
_BUS = Scene(
    Room(
        "bus",
        size=(11.5, 2.4, 2.2),
        transmitter=(0.5, 1.5, 2.0),
        receiver=(10.9, 0.9, 1.7),
        walls=Walls(
            west="glass", east="metal", south="glass", north="glass", floor="metal", ceiling="metal"
        ),
        furniture=Furniture(pieces=24, drift=0.002, moved_share=0.0, cross_section=(0.05, 0.3)),
        seats=_seats((2.0, 10.0), 9, (0.5, 1.9), 2),
    ),
    receiver=Receiver(loss=0.03, jitter=0.1),
    motion=Motion(seated=0.75, speed=(0.3, 1.0), pause=15.0, pausing=0.9, sway=0.02),
)
_CONFERENCE_ROOM = Scene(
    Room(
        "conference room",
        size=(7.0, 5.0, 2.8),
        transmitter=(0.4, 2.5, 2.2),
        receiver=(6.5, 4.4, 1.0),
        walls=Walls(south="glass", ceiling="ceiling board"),
        furniture=Furniture(pieces=12, cross_section=(0.1, 0.6)),
        seats=_seats((1.8, 5.2), 6, (1.5, 3.5), 2),
    ),
    motion=Motion(seated=0.85),
)
_HOTEL_ROOM = Scene(
    Room(
        "hotel room",
        size=(4.6, 3.4, 2.5),
        transmitter=(0.4, 2.9, 0.9),
        receiver=(4.1, 0.5, 1.2),
        walls=Walls(west="concrete", east="glass", south="brick", north="brick"),
        furniture=Furniture(pieces=10),
        seats=_seats((1.6, 3.4), 2, (0.8, 2.4), 2),
    ),
    receiver=Receiver(bits=8, level=0.2, noise_figure=8.0, ripple=2.0),
    motion=Motion(seated=0.6, pause=8.0),
)
_OPEN_OFFICE = Scene(
    Room(
        "open office",
        size=(16.0, 10.0, 2.9),
        transmitter=(1.0, 5.0, 2.6),
        receiver=(13.5, 6.5, 1.1),
        walls=Walls(west="glass", north="glass", ceiling="ceiling board"),
        furniture=Furniture(pieces=40),
        seats=_seats((2.5, 14.0), 8, (1.5, 8.5), 4),
    ),
    receiver=Receiver(transmit_power=18.0, loss=0.02, ripple=1.0),
    motion=Motion(seated=0.8),
)
_SCENES = (_LIVING_ROOM, _CLASSROOM, _BUS, _CONFERENCE_ROOM, _HOTEL_ROOM, _OPEN_OFFICE)

_CARRIERS = {20: 5.18e9, 40: 5.19e9, 80: 5.21e9}
"""Hz: channels 36, 38 and 42 of IEEE 802.11ac."""


def _preset(
    name: str,
    window: int,
    bandwidth: int,
    plans: tuple[tuple[float, tuple[int, ...], int, int, int], ...],
) -> Preset:
    """A preset from (packet rate, counts, days, takes, windows) of each scene in turn."""
    places = tuple(
        Place(
            replace(scene, radio=Radio(_CARRIERS[bandwidth], bandwidth, rate)),
            counts,
            days,
            takes,
            windows,
        )
        for scene, (rate, counts, days, takes, windows) in zip(_SCENES, plans, strict=True)
    )
    return Preset(name, window, places)


_ALL = {
    preset.name: preset
    for preset in (
        _preset(
            "smoke",
            64,
            20,
            (
                (125.0, (0, 1, 2, 3), 2, 2, 4),
                (125.0, (0, 2, 4, 6, 8), 2, 2, 4),
                (125.0, (0, 1, 2, 4, 8), 2, 2, 4),
                (125.0, (0, 1, 3, 5), 2, 2, 4),
                (125.0, (0, 1), 2, 2, 3),
                (125.0, (0, 2, 5), 2, 2, 3),
            ),
        ),
        _preset(
            "quick",
            125,
            20,
            (
                (125.0, (0, 1, 2, 3, 4, 5), 4, 2, 3),
                (125.0, (0, 2, 5, 8, 12, 16, 20), 4, 2, 3),
                (125.0, (0, 1, 2, 4, 6, 8, 12, 16, 20), 4, 2, 4),
                (125.0, (0, 1, 2, 3, 4, 6, 8, 10), 4, 2, 3),
                (125.0, (0, 1, 2, 3), 3, 2, 3),
                (125.0, (0, 1, 2, 4, 6, 9, 12), 4, 2, 3),
            ),
        ),
        _preset(
            "six-rooms",
            1000,
            80,
            (
                (1000.0, tuple(range(7)), 4, 3, 4),
                (500.0, tuple(range(0, 21, 2)), 4, 3, 4),
                (1000.0, tuple(range(21)), 4, 3, 4),
                (500.0, tuple(range(11)), 4, 3, 4),
                (125.0, tuple(range(4)), 4, 2, 4),
                (250.0, tuple(range(13)), 4, 2, 5),
            ),
        ),
    )
}

PRESETS: tuple[str, ...] = tuple(_ALL)
"""Names of the presets, from small to large."""


def preset_of(name: str) -> Preset:
    """The preset of that name."""
    if name not in _ALL:
        raise PlanError(f"preset '{name}'; {nearest(name, _ALL)}")
    return _ALL[name]


def preset_hash(preset: Preset) -> str:
    """16 hexadecimal digits that change with any parameter of the preset."""
    return hashlib.blake2b(repr((_VERSION, preset)).encode(), digest_size=8).hexdigest()


def check_preset(preset: Preset) -> None:
    """Raise before anything is written if a take of the preset cannot be."""
    for place in preset.places:
        room = place.scene.room
        check_name(room.name, "room")  # it becomes a folder of captures
        check_scene(place.scene)
        for what in ("days", "takes", "windows"):
            if not 1 <= (number := getattr(place, what)) <= 10_000:
                raise PlanError(f"room '{room.name}': {what} = {number}; choose 1 to 10000")
        if len(set(place.counts)) != len(place.counts) or not place.counts:
            raise PlanError(f"room '{room.name}': counts = {place.counts}; list each one once")
        for count in place.counts:
            if not 0 <= count <= capacity(room):
                raise PlanError(
                    f"room '{room.name}': {count} people on {room.size[0]:g} × {room.size[1]:g} m; "
                    f"0 to {capacity(room)} fit"
                )


@dataclass(frozen=True)
class Task:
    """One take to be made."""

    place: Place
    count: int
    day: int
    number: int
    window: int
    seed: int

    @property
    def packets(self) -> int:
        """Packets that the store keeps of the take."""
        return self.place.windows_of(self.count) * self.window

    def capture(self) -> Capture:
        """The take, with some packets more: a few may yet be taken for narrow frames."""
        scene = self.place.scene
        # One thread: the same sums in the same order whatever the number of workers.
        with threadpool_limits(1, "blas"):
            return take(
                scene,
                people=self.count,
                day=self.day,
                packets=self.packets + self.packets // 50 + 8,
                number=self.number,
                key=Key(self.seed) / "simulated" / scene.room.name,
            )


def tasks_of(preset: Preset, *, seed: int, workers: int) -> list[Task]:
    """Every take of a preset, after all that was asked for is found possible."""
    check_preset(preset)
    if not 0 <= seed < 2**63:
        raise PlanError(f"seed = {seed}; choose 0 to {2**63 - 1}")
    if workers < 1:
        raise PlanError(f"workers = {workers}; at least 1 is needed")
    return [
        Task(place, count, day, number, preset.window, seed)
        for place in preset.places
        for count in place.counts
        for day in range(place.days)
        for number in range(place.takes)
    ]


def _record(task: Task) -> bytes:
    where = f"room '{task.place.scene.room.name}', {task.count} people"
    return encode(_pack(clean(task.capture()), task.packets, where))


def _pack(cleaned: Amplitudes, packets: int, where: str) -> Tree:
    """The first ``packets`` of a cleaned take in sixteen bits of its own range.

    That is finer than the receiver's quantisation, and half of single precision.
    """
    amplitude = cleaned.amplitude[:packets]
    if not amplitude.any():
        raise DataError(
            f"{where}: no packet of a take has a signal; raise hardware.level or "
            "hardware.transmit_power"
        )
    scale = float(amplitude.max()) / 65535
    packed = np.rint(amplitude * np.float32(1 / scale)).astype(np.uint16)
    return {"amplitude": packed, "scale": scale, "timestamps": cleaned.timestamps[:packets]}


def write_simulated(
    preset: str | Preset,
    *,
    seed: int,
    out: Path,
    workers: int = 1,
    show: Show = unseen,
) -> None:
    """Write the store of a preset; equal seeds give equal values for any number of workers.

    Args:
        preset: one of ``PRESETS``, or places of one's own.
        seed: of everything that is drawn.
        out: the file to make; it must not exist.
        workers: processes to use.
        show: called after each recording.
    """
    chosen = preset_of(preset) if isinstance(preset, str) else preset
    tasks = tasks_of(chosen, seed=seed, workers=workers)
    if out.exists():
        raise DataError(f"{out}: already exists; remove it or choose another name")
    with write_store(out) as store:
        store.note(
            {
                "window": chosen.window,
                "preset": chosen.name,
                "preset_hash": preset_hash(chosen),
                "seed": seed,
                "source": "SIMULATED by fedapa; not measured",
            }
        )
        for place in chosen.places:
            scene = place.scene
            store.add_room(
                scene.room.name,
                synthetic=True,
                about={
                    "carrier": scene.radio.carrier,
                    "rate": scene.radio.rate,
                    "size": scene.room.size,
                    "recipe": Recipe(
                        device=scene.receiver.device,
                        bandwidth=scene.radio.bandwidth,
                        subcarriers=tuple(scene.radio.tones[scene.radio.live].tolist()),
                        link_count=1,
                    ).to_json(),
                    "source": "SIMULATED by fedapa; not measured",
                },
            )
        for done, (task, frame) in enumerate(run_tasks(_record, tasks, workers), 1):
            recorded: dict[str, Any] = decode(frame, "take of a worker")
            store.add_recording(
                task.place.scene.room.name,
                f"people {task.count:02d} day {task.day} take {task.number}",
                label=task.count,
                amplitude=recorded["amplitude"],
                timestamps=recorded["timestamps"],
                day=str(task.day),
                rate=task.place.scene.radio.rate,
                scale=recorded["scale"],
            )
            show(Progress("simulating rooms", done, len(tasks), "recordings"))


def run_tasks(
    work: Callable[[Task], bytes], tasks: Sequence[Task], workers: int
) -> Iterator[tuple[Task, bytes]]:
    """Each task and what ``work`` makes of it, in order, by so many processes."""
    if workers == 1:
        for task in tasks:
            yield task, work(task)
        return
    with Workers(
        min(workers, len(tasks)), context=multiprocessing.get_context("spawn")
    ) as processes:
        # Bounded lookahead: finished takes wait for the writer, not for the memory to fill.
        waiting = [(task, processes.submit(work, task)) for task in tasks[: 2 * workers]]
        for upcoming in [*tasks[2 * workers :], *[None] * len(waiting)]:
            task, job = waiting.pop(0)
            try:
                if upcoming is not None:
                    waiting.append((upcoming, processes.submit(work, upcoming)))
                made = job.result()
            except BrokenProcessPool as error:
                raise RunError(
                    "a worker died while it simulated a take, perhaps for lack of memory; "
                    "nothing was written; try again with fewer --workers"
                ) from error
            yield task, made


def simulated_store(
    preset: str,
    seed: int,
    *,
    workers: int = 1,
    show: Show = unseen,
) -> Path:
    """The store of a preset, made once and kept in the cache folder."""
    chosen = preset_of(preset)
    path = cache_folder() / "simulated" / f"{preset}-{seed}-{preset_hash(chosen)}.h5"
    if not path.exists():
        write_simulated(preset, seed=seed, out=path, workers=workers, show=show)
    return path
