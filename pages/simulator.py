"""``python -m pages simulator``: every figure of docs/simulator.md, measured anew."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from fedapa.evaluation.difficulty import difficulty
from fedapa.experiments.fig4 import distribution_caption
from fedapa.randomness import Key
from fedapa.report.figures.data import distribution_figure
from fedapa.report.style import save
from fedapa.simulator.recording import record
from fedapa.simulator.room import furniture_of
from fedapa.stores.distribution import planned
from fedapa.stores.simulated import simulated_store
from fedapa.stores.simulated_rooms import preset_of
from pages import credibility, figures

__all__ = ["write_figures"]


def write_figures(folder: Path) -> Iterator[Path]:
    """Draw all figures into ``folder``; yields the path of each one when it is written."""
    makers: dict[str, Callable[[], Figure]] = {
        "plans": _plans,
        "waterfalls": _waterfalls,
        "single-path": _single_path,
        "spectra": _spectra,
        "energy": _energy,
        "cross-section": _cross_section,
        "blocking": _blocking,
        "reciprocity": _reciprocity,
        "receiver": _receiver,
        "fig4": _fig4,
        "leak": _leak,
        "difficulty": _difficulty,
    }
    for name, make in makers.items():
        path = folder / f"{name}.png"
        save(make(), path)
        yield path


def _plans() -> Figure:
    rooms = []
    for place in preset_of("six-rooms").places:
        room = place.scene.room
        furniture = furniture_of(room, key=Key(0) / "simulated" / room.name, day=0)
        seats = np.asarray(room.seats).reshape(-1, 2)
        ends = np.asarray(room.transmitter), np.asarray(room.receiver)
        rooms.append((room.name, room.size[:2], *ends, seats, furniture.places[:, :2]))
    return figures.plans_figure(rooms)


def _waterfalls() -> Figure:
    scene = credibility.scene_of("classroom")
    scene = replace(scene, radio=replace(scene.radio, rate=125.0))
    amplitudes = {}
    for people in (0, 1, 5, 20):
        capture = record(scene, people=people, day=0, packets=1000, key=Key(0) / "waterfall")
        amplitude = _live(capture.csi[:, :, 0, 0], scene.radio.live)
        whole = (amplitude < 0.05 * np.median(amplitude)).mean(axis=1) < 0.2
        amplitudes[_people(people)] = amplitude[whole][::2]
    return figures.waterfalls_figure(
        amplitudes, seconds=8.0, title="Classroom, 80 MHz, 125 packets/s"
    )


def _single_path() -> Figure:
    distances = np.geomspace(0.6, 30, 12)
    expected = [credibility.free_space(distance)[0] for distance in distances]
    losses = [credibility.single_path(distance)[0] for distance in distances]
    return figures.lines_figure(
        {"Friis": (distances, np.asarray(expected)), "simulated": (distances, np.asarray(losses))},
        x="distance (m)",
        y="loss (dB)",
        title="One path in empty space, 5.21 GHz",
        points=["simulated"],
        log="x",
    )


def _spectra() -> Figure:
    spectra = credibility.spectra((0, 1, 5, 20))
    curves = {
        _people(people): (spectra.frequencies, decibels)
        for people, decibels in spectra.decibels.items()
    }
    return figures.lines_figure(
        curves,
        x="Doppler frequency (Hz)",
        y="amplitude spectrum (dB/Hz)",
        title="Living room, all receiver faults on, 1000 packets/s",
        log="x",
    )


def _energy() -> Figure:
    energy = credibility.doppler_energy((1, 2, 3, 5, 8, 10, 15, 20), recordings=12)
    counts = np.asarray(energy.counts, float)
    curves = {
        "simulated walkers": (counts, energy.moving),
        "if everybody added the same": (counts, energy.moving[0] * counts),
    }
    return figures.lines_figure(
        curves,
        x="people",
        y="moving power / power of the empty room",
        title="Conference room",
        errors={"simulated walkers": energy.deviation},
    )


def _cross_section() -> Figure:
    sections = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
    curves = {}
    for people in (2, 5, 10):
        moving = [
            credibility.doppler_energy((people,), recordings=8, cross_section=section).moving[0]
            for section in sections
        ]
        curves[f"{people} people"] = (np.asarray(sections), np.asarray(moving))
    return figures.lines_figure(
        curves,
        x="radar cross-section of a person (m²); 0.5 to 1 is used",
        y="moving power / power of the empty room",
        title="Conference room: the assumption swept",
    )


def _blocking() -> Figure:
    curves: dict[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]] = {}
    for people in (3, 9):
        blocking = credibility.blocking(people)
        counts = np.arange(people + 1, dtype=float)
        curves[f"{people} walkers, simulated"] = counts, blocking.observed
        model = f"{people} walkers, binomial with p = {blocking.chance:.3f}"
        curves[model] = counts, blocking.binomial
    return figures.lines_figure(
        curves,
        x="people in the direct path",
        y="share of the time",
        title="Blocking against the model of Depatla et al. (2015)",
        points=[name for name in curves if "simulated" in name],
    )


def _reciprocity() -> Figure:
    there, back = credibility.reciprocity()
    times = np.arange(len(there)) / 500
    subcarrier = there.shape[1] // 2
    return figures.lines_figure(
        {
            "transmitter to receiver": (times, 20 * np.log10(np.abs(there[:, subcarrier]))),
            "ends exchanged": (times[::25], 20 * np.log10(np.abs(back[::25, subcarrier]))),
            "difference": (times, 20 * np.log10(np.abs(there - back)[:, subcarrier] + 1e-9)),
        },
        x="time (s)",
        y="channel at one subcarrier (dB)",
        title="Living room, five walkers: reciprocity",
        points=["ends exchanged"],
    )


def _receiver() -> Figure:
    panels: list[tuple[str, npt.NDArray[Any], str, str]] = []
    for name, csi, times, live in credibility.receiver_effects(packets=5000):
        amplitude = _live(csi, live)
        if name in ("slow gain", "gain steps"):
            panels.append((name, amplitude.mean(axis=1), "packet", "mean amplitude"))
            continue
        csi, times, amplitude = csi[:300], times[:300], amplitude[:300]
        if name in ("loss", "jitter"):
            panels.append((name, np.diff(times) * 1000, "packet", "interval (ms)"))
        elif name in ("timing", "phase"):
            panels.append((name, np.angle(csi[:, live]), "packet", "subcarrier (phase)"))
        elif name == "null subcarriers":
            panels.append((name, np.log10(np.abs(csi) + 1), "packet", "all subcarriers"))
        elif name in ("ripple", "8 bits"):
            panels.append((name, amplitude[0], "subcarrier", "amplitude"))
        else:
            panels.append((name, amplitude, "packet", "subcarrier"))
    return figures.effects_figure(panels)


def _fig4() -> Figure:
    counted = planned(preset_of("six-rooms"))
    return distribution_figure(counted.windows, counted.labels, distribution_caption(counted))


def _leak() -> Figure:
    accuracies = credibility.leak()
    groups = {
        split: {"nearest neighbour": 100 * accuracy}
        for split, accuracy in accuracies.items()
        if split != "chance"
    }
    return figures.bars_figure(
        groups,
        y="accuracy (%)",
        title="Recordings with labels drawn at random: only a leak can beat chance",
        floor=("chance", 100 * accuracies["chance"]),
    )


def _difficulty() -> Figure:
    scores = difficulty(simulated_store("quick", 0))
    groups: dict[str, dict[str, float]] = {}
    for score in scores:
        bars = groups.setdefault(score.split, {})
        bars[score.model] = bars.get(score.model, 0.0) + 100 * score.accuracy / 6
    chance = 100 * float(np.mean([score.chance for score in scores]))
    return figures.bars_figure(
        groups,
        y="mean accuracy over rooms (%)",
        title="Simple models on the quick preset",
        floor=("commonest class", chance),
    )


def _people(number: int) -> str:
    return "1 person" if number == 1 else f"{number} people"


def _live(csi: npt.NDArray[np.complex64], live: npt.NDArray[np.bool_]) -> npt.NDArray[np.float32]:
    return np.asarray(np.abs(csi[:, live]), np.float32)
