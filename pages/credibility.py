"""The measurements that say whether the simulator can be believed.

Each function makes one experiment with the simulator and returns numbers. The tests compare them
with what physics or a publication says; ``python -m pages simulator`` draws them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import signal, stats

from fedapa.randomness import Key
from fedapa.simulator.channel import SUBCARRIER_SPACING, Channel, Radio, shadow
from fedapa.simulator.people import Body, Crowd, Motion, crowd_of
from fedapa.simulator.receiver import Receiver
from fedapa.simulator.recording import Scene, record
from fedapa.simulator.room import SPEED_OF_LIGHT, Furniture, Scatterers, SimulatedRoom, furniture_of
from fedapa.stores.simulated_rooms import preset_of
from fedapa.windows.split import SplitKind, split_windows

__all__ = [
    "Blocking",
    "Energy",
    "Spectra",
    "blocking",
    "body_echo",
    "doppler_energy",
    "free_space",
    "gain_spectrum",
    "leak",
    "quiet_receiver",
    "receiver_effects",
    "reciprocity",
    "scene_of",
    "single_path",
    "spectra",
    "walkers",
]

Array: TypeAlias = npt.NDArray[np.float64]

_EMPTY = Scatterers(np.empty((0, 3)), np.empty(0))


def scene_of(room: str, *, preset: str = "six-rooms") -> Scene:
    """The scene of that name in a preset."""
    return next(place.scene for place in preset_of(preset).places if place.scene.room.name == room)


def nobody() -> Crowd:
    """A crowd of none."""
    hall = SimulatedRoom("hall", (50.0, 50.0, 10.0), (1.0, 1.0, 1.0), (2.0, 1.0, 1.0))
    return crowd_of(hall, people=0, duration=1.0, key=Key(0), body=Body(), motion=Motion())


def single_path(distance: float, *, radio: Radio | None = None) -> tuple[float, float]:
    """Loss in dB and delay in seconds, read off the channel of two antennas in empty space.

    The delay is the slope of the phase over the subcarriers, as a receiver would estimate it.
    """
    radio = radio or Radio()
    hall = SimulatedRoom("hall", (50.0, 50.0, 10.0), (1.0, 25.0, 5.0), (1.0 + distance, 25.0, 5.0))
    free = replace(hall, reflections=0, furniture=Furniture(pieces=0))
    response = Channel(free, radio, _EMPTY, nobody()).response(np.zeros(1))[0].astype(complex)
    subcarriers = radio.subcarriers[radio.live].astype(float)
    slope = np.polyfit(subcarriers * SUBCARRIER_SPACING, np.unwrap(np.angle(response)), 1)[0]
    carrier = np.polyval(np.polyfit(subcarriers, np.abs(response), 2), 0.0)
    return float(-20 * np.log10(carrier)), float(-slope / (2 * np.pi))


def free_space(distance: float, *, radio: Radio | None = None) -> tuple[float, float]:
    """What Friis and the speed of light say: loss in dB and delay in seconds."""
    carrier = (radio or Radio()).carrier
    loss = 20 * np.log10(4 * np.pi * distance * carrier / SPEED_OF_LIGHT)
    return float(loss), distance / SPEED_OF_LIGHT


def still(place: tuple[float, float, float], cross_section: float) -> Crowd:
    """One motionless scattering point, for comparison with the radar equation."""
    points = np.zeros((1000, 1, 5, 3), np.float32)
    points[...] = place
    shares = np.array([[cross_section, 0, 0, 0, 0]], np.float32)
    narrow = np.array([0.01], np.float32)
    return Crowd(points, -0.5, shares, narrow, narrow, seated=np.array([False]))


def body_echo(place: tuple[float, float, float], cross_section: float) -> tuple[float, float]:
    """Echo of a point body in free space, in dB: simulated, and by the bistatic radar equation."""
    hall = SimulatedRoom(
        "hall", (30.0, 30.0, 10.0), (5.0, 5.0, 5.0), (15.0, 5.0, 5.0), reflections=0
    )
    times = np.zeros(1)
    with_body = Channel(hall, Radio(), _EMPTY, still(place, cross_section)).response(times)
    without = Channel(hall, Radio(), _EMPTY, nobody()).response(times)
    echo = 10 * np.log10(np.mean(np.abs(with_body - without) ** 2))
    there = np.linalg.norm(np.subtract(place, hall.transmitter))
    back = np.linalg.norm(np.subtract(place, hall.receiver))
    wavelength = SPEED_OF_LIGHT / Radio().carrier
    radar = wavelength**2 * cross_section / ((4 * np.pi) ** 3 * there**2 * back**2)
    return float(echo), float(10 * np.log10(radar))


def walkers(scene: Scene, people: int, *, seconds: float, key: Key) -> Crowd:
    """People who all walk about."""
    motion = replace(scene.motion, seated=0.0, pausing=0.3, pause=2.0)
    return crowd_of(
        scene.room, people=people, duration=seconds, key=key, body=scene.body, motion=motion
    )


@dataclass(frozen=True)
class Spectra:
    """Amplitude spectra of recordings, by number of people."""

    frequencies: Array
    """[bins] Hz."""
    decibels: dict[int, Array]
    """[bins] power density against the frame's own power, dB per Hz, by number of people."""


def gain_spectrum(amplitude: npt.NDArray[np.float32], rate: float) -> tuple[Array, Array]:
    """Doppler spectrum of amplitudes [packets, subcarriers], mean over subcarriers, dB per Hz.

    Each packet is divided by its own mean, which takes out gain steps and drift.
    """
    level = amplitude / amplitude.mean(axis=1, keepdims=True)
    level = level / level.mean(axis=0)
    bins, density = signal.welch(level, rate, nperseg=min(512, len(level)), axis=0)
    return bins[1:], 10 * np.log10(density[1:].mean(axis=1))


def spectra(counts: Sequence[int], *, room: str = "living room", packets: int = 4000) -> Spectra:
    """Spectra of recordings with ``counts`` people at 1000 Hz, every receiver effect on."""
    scene = scene_of(room)
    scene = replace(scene, radio=replace(scene.radio, rate=1000.0))
    decibels, frequencies = {}, np.empty(0)
    for count in counts:
        capture = record(scene, people=count, day=0, packets=packets, key=Key(0) / "spectra")
        live = np.abs(capture.csi[:, scene.radio.live, 0, 0])
        whole = live[(live < 0.05 * np.median(live)).mean(axis=1) < 0.2]
        frequencies, decibels[count] = gain_spectrum(whole, scene.radio.rate)
    return Spectra(frequencies, decibels)


@dataclass(frozen=True)
class Energy:
    """Moving power against the number of people."""

    counts: tuple[int, ...]
    moving: Array
    """[counts] power that varies with time, by the power of the empty room's channel."""
    deviation: Array
    """[counts] standard error over recordings."""


def doppler_energy(
    counts: Sequence[int],
    *,
    room: str = "conference room",
    recordings: int = 6,
    cross_section: float | None = None,
) -> Energy:
    """Power of what moves, from the channel alone, mean over recordings where everybody walks."""
    scene = scene_of(room)
    if cross_section is not None:
        scene = replace(scene, body=replace(scene.body, cross_section=(cross_section,) * 2))
    radio = replace(scene.radio, rate=125.0, bandwidth=20, carrier=5.18e9)
    times = np.arange(500) / radio.rate
    furniture = furniture_of(scene.room, key=Key(0), day=0)
    reference = np.mean(
        np.abs(Channel(scene.room, radio, furniture, nobody()).response(times)) ** 2
    )
    values = np.zeros((len(counts), recordings))
    for row, count in enumerate(counts):
        for number in range(recordings if count else 1):
            crowd = walkers(scene, count, seconds=4.0, key=Key(number) / "energy" / count)
            response = Channel(scene.room, radio, furniture, crowd).response(times)
            values[row, number] = np.mean(np.var(response, axis=0)) / reference
    return Energy(
        tuple(counts), values.mean(axis=1), values.std(axis=1) / np.sqrt(max(recordings - 1, 1))
    )


@dataclass(frozen=True)
class Blocking:
    """How many of some walkers stand in the direct path, and what that does to it."""

    people: int
    observed: Array
    """[people + 1] share of the time with so many in the path."""
    binomial: Array
    """[people + 1] the published model: independent people, each in the path with ``chance``."""
    chance: float
    """Share of the time that a single walker is in the path, from recordings of its own."""
    loss: Array
    """[people + 1] mean loss of the direct path in dB with so many in it; NaN where unseen."""


def blocking(
    people: int, *, room: str = "conference room", seconds: float = 240.0, recordings: int = 8
) -> Blocking:
    """Statistics of the direct path among walkers, beside Depatla et al., JSAC 2015.

    Their model: people walk independently, so the number in the path is binomial, and each one
    multiplies the direct amplitude by about the same factor.
    """
    scene = scene_of(room)
    low = scene.room.size[2] / 2
    # A level link at chest height: everybody who crosses the line is in the path.
    level = replace(
        scene.room,
        transmitter=(*scene.room.transmitter[:2], min(low, 1.2)),
        receiver=(*scene.room.receiver[:2], min(low, 1.2)),
    )
    scene = replace(scene, room=level)
    chance = float(
        np.mean(
            [
                inside.mean()
                for number in range(people * recordings)
                for inside, _ in [_in_path(scene, 1, seconds, Key(number) / "one")]
            ]
        )
    )
    histogram, losses = np.zeros(people + 1), np.zeros(people + 1)
    for number in range(recordings):
        inside, left = _in_path(scene, people, seconds, Key(number) / "many")
        blockers = inside.sum(axis=1)
        histogram += np.bincount(blockers, minlength=people + 1)
        decibels = -20 * np.log10(left.prod(axis=1))
        losses += np.bincount(blockers, decibels, minlength=people + 1)
    with np.errstate(invalid="ignore"):
        loss = losses / histogram
    return Blocking(
        people,
        histogram / histogram.sum(),
        stats.binom.pmf(np.arange(people + 1), people, chance),
        chance,
        loss,
    )


def _in_path(
    scene: Scene, people: int, seconds: float, key: Key
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float32]]:
    """[times, people] who is in the direct path, and what each leaves of its amplitude."""
    crowd = walkers(scene, people, seconds=seconds, key=key)
    torso = crowd.at(np.arange(0, seconds, 0.1), np.arange(people))[:, :, 0]
    room = scene.room
    begin, way = np.asarray(room.transmitter), np.subtract(room.receiver, room.transmitter)
    run = np.hypot(way[0], way[1])
    offset = torso[..., :2] - begin[:2]
    along = offset @ way[:2] / run
    aside = (offset[..., 1] * way[0] - offset[..., 0] * way[1]) / run
    inside = (along > 0) & (along < run) & (np.abs(aside) < crowd.widths / 2)
    left = shadow(
        torso[None, ..., :2],
        begin[None],
        receiver=np.asarray(room.receiver),
        widths=crowd.widths,
        heights=crowd.heights,
        wavelength=SPEED_OF_LIGHT / scene.radio.carrier,
        floors=np.zeros(1),
        senses=np.ones(1),
    )[0]
    return inside, left


def reciprocity(*, room: str = "living room", people: int = 5) -> tuple[Array, Array]:
    """[times, subcarriers] amplitude of the channel both ways, with people in the room."""
    scene = scene_of(room)
    crowd = walkers(scene, people, seconds=2.0, key=Key(0) / "reciprocity")
    furniture = furniture_of(scene.room, key=Key(0), day=0)
    back = replace(scene.room, transmitter=scene.room.receiver, receiver=scene.room.transmitter)
    times = np.arange(1000) / 500
    one, other = (
        Channel(way, scene.radio, furniture, crowd).response(times) for way in (scene.room, back)
    )
    return np.asarray(one, np.complex128), np.asarray(other, np.complex128)


def quiet_receiver() -> Receiver:
    """A receiver without a single fault, as far as 16 bits go."""
    return Receiver(
        transmit_power=200.0,  # noise far below anything
        distortion=-200.0,
        drift=0.0,
        day_gain=0.0,
        agc_step=0.0,
        agc_error=0.0,
        ripple=0.0,
        edge=0.0,
        timing=0.0,
        phase=0.0,
        loss=0.0,
        jitter=0.0,
        narrow=0.0,
        junk=0.0,
    )


EFFECTS: dict[str, dict[str, float]] = {
    "none": {},
    "noise": {"transmit_power": -10.0},
    "distortion": {"distortion": -20.0},
    "slow gain": {"drift": 2.0, "drift_time": 2.0},
    "gain steps": {"agc_step": 3.0, "agc_error": 0.5},
    "ripple": {"ripple": 1.5, "edge": 3.0},
    "8 bits": {"bits": 8, "level": 0.03},
    "timing": {"timing": 30.0},
    "phase": {"phase": float(np.pi)},
    "loss": {"loss": 0.2},
    "jitter": {"jitter": 0.2},
    "narrow frames": {"narrow": 0.1},
    "null subcarriers": {"junk": 30.0},
}
"""One setting of a fault each, strong enough to be seen."""


def receiver_effects(
    names: Sequence[str] = tuple(EFFECTS), *, people: int = 0, packets: int = 1000
) -> Iterator[tuple[str, npt.NDArray[np.complex64], Array, npt.NDArray[np.bool_]]]:
    """For each fault on its own: its name, csi [packets, subcarriers], timestamps, live ones."""
    scene = scene_of("living room")
    for name in names:
        faulty = replace(quiet_receiver(), **EFFECTS[name])  # type: ignore[arg-type]
        capture = record(
            replace(scene, receiver=faulty),
            people=people,
            day=0,
            packets=packets,
            key=Key(0) / "effects",
        )
        yield name, capture.csi[:, :, 0, 0], capture.timestamps, scene.radio.live


def leak(*, room: str = "open office", recordings: int = 40, windows: int = 4) -> dict[str, float]:
    """Accuracy of a nearest neighbour on raw windows when labels mean nothing, by split.

    Every recording has the same number of people and one of four labels drawn at random: there is
    nothing to learn, so whatever beats chance has recognised the recording instead of the label.
    Only each packet's gain is taken out, or its steps would be all that a distance sees.
    """
    scene = scene_of(room, preset="quick")
    packets = 125
    draw = (Key(0) / "leak").numpy()
    labels, origins, starts, values = [], [], [], []
    meaningless = draw.permutation(np.arange(recordings) % 4)
    for number in range(recordings):
        capture = record(
            scene,
            people=5,
            day=number // 2,
            number=number,
            packets=windows * packets,
            key=Key(0) / "leak",
        )
        amplitude = np.abs(capture.csi[:, scene.radio.live, 0, 0])
        for start in range(0, windows * packets, packets):
            window = amplitude[start : start + packets]
            values.append((window / window.mean(axis=1, keepdims=True)).ravel())
            labels.append(int(meaningless[number]))
            origins.append(f"recording {number}")
            starts.append(start)
    raw, truth = np.stack(values), np.asarray(labels)
    squares = np.square(raw).sum(axis=1)
    apart = squares[:, None] + squares - 2 * raw @ raw.T
    kinds: tuple[SplitKind, ...] = ("random", "blocked", "recording")
    accuracies = {"chance": 0.25}
    for kind in kinds:
        right = []
        for seed in range(20):
            parts = split_windows(
                room,
                labels,
                origins,
                np.asarray(starts),
                spans=packets,
                kind=kind,
                key=Key(seed) / "leak",
                validation=0.0,
            )
            nearest = parts.train[apart[np.ix_(parts.test, parts.train)].argmin(axis=1)]
            right.append(np.mean(truth[nearest] == truth[parts.test]))
        accuracies[kind] = float(np.mean(right))
    return accuracies
