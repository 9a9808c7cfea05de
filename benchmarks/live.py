"""Counting live: what a window costs, and how well visits are followed: the bars of docs/live.md.

``window_ms`` is one window of 1000 packets of 80 MHz (242 live subcarriers) cleaned, viewed and
counted by onnxruntime, in milliseconds of one core. ``visitors`` are SIMULATED: people come and go
in the quick rooms for two hours each, on a day that nobody trained on; FedAPA, whole recordings
held out. ``mae`` is the mean over rooms, ``empty`` the share of all counts of empty rooms that say
so, ``notice_s`` the median over all newcomers of the seconds until the served count is higher than
when they came. The counter's settings are the defaults, which were chosen in rooms of the seeds 4
and 5. ``rooms_100`` and ``first_count_s`` are those of ``_rooms``. This measures counting, too, and
takes long: ``make bench`` leaves it out.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import _rooms
from fedapa.csi.capture import Capture
from fedapa.csi.subcarriers import all_subcarriers, live
from fedapa.rooms.model_file import load_model
from fedapa.service.counter import LiveCounter
from fedapa.service.sources import SimulatedVisits, follow
from fedapa.windows.recipe import Recipe
from fedapa.windows.stream import Windower

OF_SPEED = False
DEVICE = "nexmon 43455c0"
PACKETS, RATE = 1000, 250.0
NETS = {
    "tiny": ("tiny", "amplitude"),
    "large": ("large", "amplitude"),
    "ours": ("counter", "statistics"),
}
REPEATS = 30
PARTS = ("window_ms", "rooms_100", "first_count_s", "visitors")


def options(parser: argparse.ArgumentParser) -> None:
    """What this benchmark may be asked for."""
    parser.add_argument("--hours", type=float, default=2.0, help="live: of visits; default 2")
    parser.add_argument("--rooms-seed", type=int, default=0, help="live: default 0")
    parser.add_argument("--run", metavar="DIR", help="live: models of a run that is there already")
    parser.add_argument("--minutes", type=float, default=10.0, help="live: of replay; default 10")
    parser.add_argument("--part", action="append", choices=PARTS, help="live: only this one")


def measure(
    hours: float = 2.0,
    rooms_seed: int = 0,
    run: str | None = None,
    minutes: float = 10.0,
    part: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Milliseconds, people, shares of one, seconds, megabytes."""
    chosen, made = part or PARTS, {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "window_ms" in chosen:
            made["window_ms"] = {net: _milliseconds(*NETS[net], folder) for net in NETS}
        if {"rooms_100", "first_count_s"} & set(chosen):
            model = _model_file("counter", "statistics", _rooms.WINDOW, _rooms.RATE, folder)
            datagrams = _rooms.datagrams_of(_capture(PACKETS, _rooms.RATE), folder)
        if "rooms_100" in chosen:
            made["rooms_100"] = _rooms.rooms_100(model, datagrams, minutes)
        if "first_count_s" in chosen:
            made["first_count_s"] = _rooms.first_count_s(model, datagrams)
        if "visitors" in chosen:
            trained = Path(run) if run else _trained(rooms_seed, folder / "run")
            made["visitors"] = _visitors(trained, rooms_seed, 3600 * hours)
    return made


# ---- what a window costs ------------------------------------------------------------------------


def _milliseconds(architecture: str, view: str, folder: Path) -> float:
    model = load_model(_model_file(architecture, view, PACKETS, RATE, folder))
    capture = _capture(PACKETS, RATE)
    times = []
    with threadpool_limits(1):
        for _ in range(REPEATS):
            windower = Windower(model.recipe)
            began = time.thread_time()
            windows = windower.feed(capture)
            model.look(windows)
            times.append(time.thread_time() - began)
            assert len(windows) == 1
    return 1000 * float(np.median(times))


def _capture(packets: int, rate: float) -> Capture:
    draw = np.random.default_rng(0)
    subcarriers = np.array(all_subcarriers(80), np.int16)
    parts = draw.normal(0, 700, (packets, len(subcarriers), 2)).astype(np.float32)
    return Capture(
        csi=np.ascontiguousarray(parts).view(np.complex64)[..., None],
        timestamps=np.arange(packets) / rate,
        rssi=np.full(packets, -50, np.float32),
        device=DEVICE,
        bandwidth=80,
        subcarriers=subcarriers,
    )


def _model_file(architecture: str, view: str, window: int, rate: float, folder: Path) -> Path:
    """The model file of a net that learned nothing: it costs as much as one that did."""
    from dataclasses import replace

    from fedapa.rooms.model_file import save_model
    from fedapa.rooms.room import Room

    kept = np.array(all_subcarriers(80), np.int16)
    kept = kept[live(DEVICE, 80, kept)]
    recipe = Recipe(
        device=DEVICE,
        bandwidth=80,
        subcarriers=tuple(kept.tolist()),
        link_count=1,
        packet_rate=rate,
        window=window,
        stride=_rooms.STRIDE if window == _rooms.WINDOW else None,
        view=view,
    )
    windows = np.stack([Windower(recipe).feed(_capture(window, rate)).values[0]] * 4)
    labels = [0, 0, 1, 1]
    room = Room.of("bench", windows, labels, classes=range(21), architecture=architecture, seed=0)
    room = replace(room, recipe=replace(recipe, normaliser=room.normaliser))
    model = room.build().eval()
    path = folder / f"{architecture}.safetensors"
    save_model(path, room, model, np.zeros((21, model.width)), np.ones(21, np.int64), reach=1.0)
    return path


# ---- how well visits are followed ---------------------------------------------------------------


def _trained(seed: int, out: Path) -> Path:
    from fedapa.experiments.presets import preset
    from fedapa.federation.plan import Plan
    from fedapa.federation.run import run

    data = {"split": "recording", "simulated_seed": seed}
    plan = Plan.of(preset("quick"), {"seed": seed, "algorithm": "fedapa", "data": data})
    return run(plan, out=out).folder


def _visitors(folder: Path, seed: int, seconds: float) -> dict[str, Any]:
    models = sorted((folder / "models").glob("*.safetensors"))
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as workers:
        jobs = {
            model.stem: workers.submit(_followed, str(model), seed, seconds) for model in models
        }
        made = {room: job.result() for room, job in jobs.items()}
    waits = np.concatenate([np.asarray(room.pop("waits"), float) for room in made.values()])
    return {
        "mae": float(np.mean([room["mae"] for room in made.values()])),
        "empty": sum(room["empty_told"] for room in made.values())
        / max(1, sum(room["empty_counts"] for room in made.values())),
        "notice_s": float(np.median(waits)),
        "rooms": made,
    }


def _followed(path: str, seed: int, seconds: float) -> dict[str, Any]:
    """In a worker: one room's visits and what was served."""
    model = load_model(path)
    source = SimulatedVisits(model.room, seed=seed, paced=False, seconds=seconds)
    counter = LiveCounter(model)
    counts, stamps, people = [], [], []
    for piece in follow(source):
        counts += counter.feed(piece.capture, piece.received)
        assert piece.people is not None
        stamps.append(piece.capture.timestamps)
        people.append(piece.people)
    return scores(
        [count.time for count in counts if count.count is not None],
        [count.count for count in counts if count.count is not None],
        np.concatenate(stamps),
        np.concatenate(people),
    ) | {
        "unsure": float(np.mean([count.state == "unsure" for count in counts])),
        "lost": sum(count.count is None for count in counts),
    }


def scores(
    times: Sequence[float], served: Sequence[int | None], stamps: np.ndarray, people: np.ndarray
) -> dict[str, Any]:
    """How far counts at ``times`` are from the people at ``stamps``, and who was noticed when."""
    when, told = np.asarray(times, float), np.asarray(served, float)
    truth = people[np.maximum(0, np.searchsorted(stamps, when, side="right") - 1)]
    arrivals = stamps[1:][np.diff(people) > 0]
    waits = []
    for arrival in arrivals:
        after = int(np.searchsorted(when, arrival))
        if 0 < after < len(when):
            more = np.flatnonzero(told[after:] > told[after - 1])
            waits.append(float(when[after + more[0]] - arrival) if len(more) else float("inf"))
    empty = truth == 0
    return {
        "mae": float(np.abs(told - truth).mean()),
        "empty_counts": int(empty.sum()),
        "empty_told": int((told[empty] == 0).sum()),
        "waits": waits,
    }
