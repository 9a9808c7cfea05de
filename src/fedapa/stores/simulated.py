"""Stores of simulated rooms: every recording of a preset, made by worker processes.

Everything in them is marked synthetic. Which rooms there are is said in ``simulated_rooms``. What a
worker is to record travels as JSON: nothing of ours is pickled between processes.
"""

import json
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedapa.csi.capture import Capture
from fedapa.errors import DataError, PlanError, RunError
from fedapa.files import cache_folder, locked
from fedapa.payload import Tree, decode, encode
from fedapa.processes import Job, Progress, Show, Workers, one_thread, unseen
from fedapa.randomness import Key
from fedapa.simulator.recording import Scene, record
from fedapa.stores.simulated_rooms import (
    Place,
    Preset,
    check_preset,
    place_of,
    preset_hash,
    preset_of,
)
from fedapa.stores.store import refuse_existing, write_store
from fedapa.windows.clean import Amplitudes, clean
from fedapa.windows.recipe import Recipe

__all__ = ["Task", "run_tasks", "simulated_store", "tasks_of", "write_simulated"]


_SEATED = {"sitting": 1.0, "walking": 0.0}
"""motion.seated of an activity."""


@dataclass(frozen=True)
class Task:
    """One recording to be made."""

    place: Place
    count: int
    day: int
    number: int
    window: int
    seed: int
    part: str = ""
    """What the recording is for, as in ``Recording.part``."""
    activity: str | None = None
    """What the people do, as in ``Recording.activity``."""

    @property
    def packets(self) -> int:
        """Packets that the store keeps of the recording."""
        if self.part and self.place.continuous:
            return int(self.place.continuous.seconds * self.place.scene.radio.rate)
        return self.place.packets_of(self.count, self.window)

    @property
    def key(self) -> Key:
        """The scene's."""
        return Key(self.seed) / "simulated" / self.place.scene.room.name

    @property
    def _scene(self) -> Scene:
        scene = self.place.scene
        if self.activity not in _SEATED:
            return scene
        return replace(scene, motion=replace(scene.motion, seated=_SEATED[self.activity]))

    def to_json(self) -> str:
        """The task as text, exactly."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Task":
        """The task of ``to_json``."""
        values = json.loads(text)
        place = values.pop("place")
        return cls(place=place_of(place, place["scene"]["room"]["name"]), **values)

    def capture(self) -> Capture:
        """The recording, with some packets more: a few may yet be taken for narrow frames."""
        with one_thread():
            return record(
                self._scene,
                people=self.count,
                day=self.day,
                packets=self.packets + self.packets // 50 + 8,
                number=self.number,
                key=self.key,
            )


def tasks_of(preset: Preset, *, seed: int, workers: int) -> list[Task]:
    """Every recording of a preset; what was asked for is possible."""
    check_preset(preset)
    if not 0 <= seed < 2**63:
        raise PlanError(f"seed = {seed}; choose 0 to {2**63 - 1}")
    if workers < 1:
        raise PlanError(f"workers = {workers}; at least 1 is needed")
    tasks = [
        Task(place, count, day, number, preset.window, seed, activity=activity)
        for place in preset.places
        for count in place.counts
        for day in range(place.days)
        for number, activity in _recordings(place, count)
    ]
    # The long ones first: at the end one worker would wait for the other.
    return [
        Task(place, count, place.days + day, 0, preset.window, seed, "continuous")
        for place in preset.places
        if place.continuous
        for count in place.counts
        for day in range(place.continuous.days)
    ] + tasks


def _recordings(place: Place, count: int) -> Iterator[tuple[int, str | None]]:
    """The recordings of a count on one day: their numbers, and what the people do.

    No two have a number in common, so that seats and steps differ between activities, too.
    """
    told: Sequence[str | None] = [None]
    if place.activities is not None:
        told = place.activities if count else ["empty"]
    for place_in_list, activity in enumerate(told):
        for number in range(place.recordings):
            yield place_in_list * place.recordings + number, activity


def _record(task: Task) -> bytes:
    where = f"room '{task.place.scene.room.name}', {task.count} people"
    return encode(_pack(clean(task.capture()), task.packets, where))


def _pack(cleaned: Amplitudes, packets: int, where: str) -> Tree:
    """The first ``packets`` of a cleaned recording in sixteen bits of its own range.

    That is finer than the receiver's quantisation, and half of single precision.
    """
    amplitude = cleaned.amplitude[:packets]
    if not amplitude.any():
        raise DataError(
            f"{where}: no packet of a recording has a signal; raise hardware.level or "
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
        preset: one of ``SIMULATED_PRESETS``, or rooms of one's own.
        seed: of everything that is drawn.
        out: the file to make; it must not exist.
        workers: processes to use.
        show: called after each recording.
    """
    chosen = preset_of(preset) if isinstance(preset, str) else preset
    tasks = tasks_of(chosen, seed=seed, workers=workers)
    refuse_existing(out)
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
                        subcarriers=tuple(scene.radio.subcarriers[scene.radio.live].tolist()),
                        link_count=1,
                    ).to_json(),
                    "source": "SIMULATED by fedapa; not measured",
                },
            )
        for done, (task, frame) in enumerate(run_tasks(_record, tasks, workers), 1):
            recorded: dict[str, Any] = decode(frame, "recording of a worker")
            store.add_recording(
                task.place.scene.room.name,
                f"people {task.count:02d} day {task.day} take {task.number}",
                label=task.count,
                amplitude=recorded["amplitude"],
                timestamps=recorded["timestamps"],
                day=str(task.day),
                rate=task.place.scene.radio.rate,
                scale=recorded["scale"],
                part=task.part,
                activity=task.activity,
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

        def begin(task: Task) -> Job:
            return processes.submit(_do, work, task.to_json())

        # Bounded lookahead: finished recordings wait for the writer, not for the memory to fill.
        waiting = [(task, begin(task)) for task in tasks[: 2 * workers]]
        for upcoming in [*tasks[2 * workers :], *[None] * len(waiting)]:
            task, job = waiting.pop(0)
            try:
                if upcoming is not None:
                    waiting.append((upcoming, begin(upcoming)))
                made = job.result()
            except BrokenProcessPool as error:
                raise RunError(
                    "a worker died while it simulated a recording, perhaps for lack of memory; "
                    "nothing was written; try again with fewer --workers"
                ) from error
            yield task, made


def _do(work: Callable[[Task], bytes], task: str) -> bytes:
    """In a worker: one task."""
    return work(Task.from_json(task))


def simulated_store(
    preset: str,
    seed: int,
    *,
    workers: int = 1,
    show: Show = unseen,
) -> Path:
    """The store of a preset, made once and kept in the cache folder.

    A process that comes while another makes it waits for that one's.
    """
    chosen = preset_of(preset)
    path = cache_folder() / "simulated" / f"{preset}-{seed}-{preset_hash(chosen)}.h5"
    if not path.exists():
        with locked(path.with_suffix(".made"), wait=True):
            if not path.exists():
                write_simulated(preset, seed=seed, out=path, workers=workers, show=show)
    return path
