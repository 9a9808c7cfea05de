"""The receiver: what a cheap network card makes of the channel before anybody sees it.

The equations are in docs/simulator.md. Every effect has its own setting, and zero switches it off.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, ConfigDict, Strict

from fedapa.csi.capture import SIMULATED_DEVICE, Capture
from fedapa.errors import PlanError
from fedapa.randomness import Key
from fedapa.simulator.channel import SUBCARRIER_SPACING, Channel, Radio
from fedapa.simulator.settings import KNOWN_KEYS_ONLY, Number, check_settings, within

__all__ = [
    "Receiver",
    "Schedule",
    "arriving_share",
    "check_receiver",
    "receive",
    "receive_pieces",
    "schedule",
]

Array: TypeAlias = npt.NDArray[np.float64]
Complex: TypeAlias = npt.NDArray[np.complex64]

_CHUNK = 1000  # packets whose channel is made at once
_BLOCK = 200  # packets received at once: they stay in the processor's cache
_THERMAL = -173.98
"""dBm/Hz at 290 K: k·T."""


def _printable(device: str) -> str:
    if not (device.isprintable() and 1 <= len(device) <= 64):
        raise ValueError("choose 1 to 64 printable letters")
    return device


@dataclass(frozen=True)
class Receiver:
    """Radio front end and firmware of one receiver."""

    __pydantic_config__: ClassVar[ConfigDict] = KNOWN_KEYS_ONLY

    device: Annotated[str, Strict(), AfterValidator(_printable)] = SIMULATED_DEVICE
    """What the capture says about its maker."""
    bits: Literal[8, 16] = 16
    """Bits of a real or imaginary part: 16 as Broadcom 43455c0 delivers, 8 as Espressif does."""
    level: Annotated[Number, within(0, 0.25)] = 0.03
    """Root mean square of a frame by full scale after gain control. Assumption: about 1000 of
    32767, as the amplitudes in public 43455c0 captures."""
    transmit_power: Annotated[Number, within(-100, 200)] = 15.0
    """dBm over the whole band. Access points send 15 to 20 dBm (ETSI EN 301 893 allows 23)."""
    noise_figure: Annotated[Number, within(0, 50)] = 6.0
    """dB. Assumption: 5 to 8 dB for integrated Wi-Fi receivers."""
    distortion: Annotated[Number, within(-200, 0)] = -32.0
    """dB of each frame's own power that becomes noise: phase noise, nonlinearity, channel
    estimation. The transmitter constellation error of 256-QAM 5/6 (IEEE 802.11ac, table 22-20)."""
    drift: Annotated[Number, within(0, 20)] = 0.5
    """dB, standard deviation of the slow gain. Assumption: temperature."""
    drift_time: Annotated[Number, within(0.1, 1e06)] = 20.0
    """s over which the slow gain forgets. Assumption."""
    day_gain: Annotated[Number, within(0, 20)] = 1.0
    """dB, standard deviation of the gain from day to day. Assumption."""
    agc_step: Annotated[Number, within(0, 20)] = 3.0
    """dB between two gain settings of the automatic gain control; 0 is a fixed gain. Assumption:
    amplifiers and attenuators switch in steps of 1 to 6 dB."""
    agc_error: Annotated[Number, within(0, 20)] = 0.3
    """dB, standard deviation of the level the gain control measures on a preamble. Assumption."""
    ripple: Annotated[Number, within(0, 20)] = 1.5
    """dB, standard deviation of the gain over the band, fixed per receiver: filters. Assumption:
    1 to 2 dB, as empty-room frames of public captures show."""
    edge: Annotated[Number, within(0, 40)] = 3.0
    """dB lost at the outermost subcarriers. Assumption: as above."""
    timing: Annotated[Number, within(0, 1000)] = 30.0
    """ns, standard deviation of the start of the FFT window of a packet (Xie et al. 2015 report
    tens of ns of packet detection delay)."""
    phase: Annotated[Number, within(0, np.pi)] = np.pi
    """rad, half the range of a packet's common phase; free-running oscillators make it uniform."""
    loss: Annotated[Number, within(0, 0.5)] = 0.01
    """Share of the packets that never arrive. Assumption: a quiet channel."""
    jitter: Annotated[Number, within(0, 0.2)] = 0.05
    """Standard deviation of the sending time by the packet interval: medium access. Assumption."""
    narrow: Annotated[Number, within(0, 0.5)] = 0.003
    """Share of frames that fill only a part of the band, if that is wider than 20 MHz. Assumption:
    control frames slip into every capture; public captures hold them too."""
    junk: Annotated[Number, within(0, 1000)] = 30.0
    """Greatest amplitude in null subcarriers by the frame's own; leakage and uninitialised memory.
    Assumption: the public 43455c0 sample has far more at one subcarrier, far less at others."""


def check_receiver(receiver: Receiver, where: str) -> None:
    """Raise if there can be no such receiver."""
    check_settings(receiver, where)
    least = 2 / (2 ** (receiver.bits - 1) - 1)  # two steps of the quantiser
    if receiver.level < least:
        raise PlanError(f"{where}level = {receiver.level}; choose {least:g} to 0.25")


@dataclass(frozen=True)
class Schedule:
    """Which packets arrive, when, and how wide they are."""

    times: Array
    """[packets] s, ascending."""
    wide: npt.NDArray[np.bool_]
    """[packets] True where the frame fills the whole band."""


def arriving_share(receiver: Receiver, radio: Radio) -> float:
    """Share of the packets sent that arrive and fill the whole band."""
    return (1 - receiver.loss) * (1 - _narrow_share(receiver, radio))


def _narrow_share(receiver: Receiver, radio: Radio) -> float:
    return receiver.narrow if radio.bandwidth > 20 else 0.0


def schedule(receiver: Receiver, radio: Radio, *, packets: int, key: Key) -> Schedule:
    """The arrivals until ``packets`` whole-band frames are there."""
    draw = (key / "schedule").numpy()
    part_band = _narrow_share(receiver, radio)
    sent = int(packets / arriving_share(receiver, radio) * 1.1) + 64
    while True:
        times = (np.arange(sent) + draw.normal(0.0, receiver.jitter, sent)) / radio.rate
        times = np.round(np.sort(times - min(times[0], 0.0)), 6)  # capture files keep microseconds
        arrived = draw.random(sent) >= receiver.loss
        times, wide = times[arrived], (draw.random(sent) >= part_band)[arrived]
        if wide.sum() >= packets:
            end = int(np.searchsorted(np.cumsum(wide), packets)) + 1
            return Schedule(times[:end], wide[:end])
        sent *= 2


def receive(
    channel: Channel, receiver: Receiver, arrivals: Schedule, *, key: Key, device: Key, day: int
) -> Capture:
    """The capture of one recording; ``key`` is the recording's, ``device`` the receiver's own."""
    radio, count = channel.radio, len(arrivals.times)
    csi = np.empty((count, len(radio.subcarriers)), np.complex64)
    rssi = np.empty(count, np.float32)
    for part, frames, heard in _blocks(
        channel, receiver, arrivals, key=key, device=device, day=day
    ):
        csi[part], rssi[part] = frames, heard
    return _capture(radio, receiver, arrivals.times, csi, rssi)


def receive_pieces(
    channel: Channel, receiver: Receiver, arrivals: Schedule, *, key: Key, device: Key, day: int
) -> Iterator[Capture]:
    """The capture of ``receive`` in pieces, each made when it is asked for."""
    for part, csi, rssi in _blocks(channel, receiver, arrivals, key=key, device=device, day=day):
        yield _capture(channel.radio, receiver, arrivals.times[part], csi, rssi)


def _capture(
    radio: Radio, receiver: Receiver, times: Array, csi: Complex, rssi: npt.NDArray[np.float32]
) -> Capture:
    return Capture(
        csi=csi[:, :, None, None],
        timestamps=times,
        rssi=rssi,
        device=receiver.device,
        bandwidth=radio.bandwidth,
        subcarriers=radio.subcarriers,
        synthetic=True,
    )


def _blocks(
    channel: Channel, receiver: Receiver, arrivals: Schedule, *, key: Key, device: Key, day: int
) -> Iterator[tuple[slice, Complex, npt.NDArray[np.float32]]]:
    """Which packets, their CSI [packets, subcarriers] and RSSI [packets], some at a time."""
    radio, times = channel.radio, arrivals.times
    count, nulls = len(times), np.flatnonzero(~radio.live)
    draw = (key / "receiver").numpy()
    full = 2.0 ** (receiver.bits - 1) - 1
    ripple = _ripple(receiver, radio, device)
    gain = _slow_gain(receiver, times, draw) + (device / "day" / day).numpy().normal(
        0.0, receiver.day_gain
    )
    phase = draw.uniform(-receiver.phase, receiver.phase, count)
    delay = draw.normal(0.0, receiver.timing * 1e-9, count)
    measured = draw.normal(0.0, receiver.agc_error, count)
    noise_floor = _power(
        _THERMAL
        + 10 * np.log10(radio.bandwidth * 1e6)
        + receiver.noise_figure
        - receiver.transmit_power
    )  # by transmitted power, as |H|² is
    fixed = 20 * np.log10(channel.direct)  # dB, the gain of a receiver without control
    decades = (device / "junk").numpy().uniform(-2, 0, len(nulls))
    junk = (full * receiver.level * receiver.junk * 10**decades).astype(np.float32)
    for start in range(0, count, _CHUNK):
        signal = channel.response(times[start : start + _CHUNK])  # [packets, live]
        for begin in range(0, len(signal), _BLOCK):
            block = signal[begin : begin + _BLOCK]
            part = slice(start + begin, start + begin + len(block))
            narrow = ~arrivals.wide[part]
            block[narrow] *= _narrow_band(radio, draw, int(narrow.sum()))
            power = np.square(block.view(np.float32)).sum(axis=1, dtype=np.float64) / len(ripple)
            _rotate(block, radio, delay[part], phase[part])
            block *= ripple
            _add_noise(block, noise_floor + power * _power(receiver.distortion), draw)
            level = 10 * np.log10(power + noise_floor) + gain[part]
            # The control takes out whole steps of what it measures; the rest stays visible.
            if receiver.agc_step:
                steps = np.round((level + measured[part]) / receiver.agc_step)
                setting = receiver.agc_step * steps
            else:
                setting = np.full(len(level), fixed)
            scale = full * receiver.level * 10 ** ((gain[part] - setting) / 20)
            block *= scale.astype(np.float32)[:, None]
            _quantise(block, full)
            csi = np.empty((len(block), len(radio.subcarriers)), np.complex64)
            for subcarriers, places in _runs(radio):
                csi[:, subcarriers] = block[:, places]
            csi[:, nulls] = _junk(junk, draw, packets=len(block), full=full)
            yield part, csi, np.round(level + receiver.transmit_power).astype(np.float32)


def _power(decibels: float) -> float:
    return float(10 ** (decibels / 10))


def _ripple(receiver: Receiver, radio: Radio, device: Key) -> Complex:
    """[live] the receiver's own response over the band: four slow waves and falling edges."""
    draw = (device / "ripple").numpy()
    place = radio.subcarriers[radio.live] / (radio.bandwidth * 1.6)  # −1 … 1
    waves = np.arange(1, 5)[:, None]
    weights = draw.normal(0.0, 1.0, (2, 4, 1)) / np.sqrt(waves)
    angles = draw.uniform(0.0, 2 * np.pi, (2, 4, 1))
    shapes = (weights * np.sin(np.pi * waves * place + angles)).sum(axis=1)  # [2, live]
    shapes /= shapes.std(axis=1, keepdims=True)
    decibels = receiver.ripple * shapes[0] - receiver.edge * (place / np.abs(place).max()) ** 8
    # A filter's phase bends as its gain does: 0.15 rad for each dB of ripple.
    return np.asarray(
        10 ** (decibels / 20) * np.exp(1j * 0.15 * receiver.ripple * shapes[1]), np.complex64
    )


def _slow_gain(receiver: Receiver, times: Array, draw: np.random.Generator) -> Array:
    """[packets] dB: a first-order Gauss–Markov process, sampled each second and joined."""
    seconds = int(times[-1]) + 3
    forget = float(np.exp(-1 / receiver.drift_time))
    shocks = draw.normal(0.0, receiver.drift, seconds)
    level = np.empty(seconds)
    level[0] = shocks[0]
    for second in range(1, seconds):
        level[second] = forget * level[second - 1] + np.sqrt(1 - forget**2) * shocks[second]
    return np.interp(times, np.arange(seconds), level)


def _rotate(signal: Complex, radio: Radio, delay: Array, phase: Array) -> None:
    """Multiply by exp(j(φ − 2π k Δf δ)), made as a product of coarse and fine steps of k."""
    slope = -2 * np.pi * SUBCARRIER_SPACING * delay[:, None]
    coarse = _turn(slope * radio.subcarriers[::16] + phase[:, None])
    fine = _turn(slope * np.arange(16))
    turns = (coarse[:, :, None] * fine[:, None, :]).reshape(len(delay), -1)  # (T, K/16, 16)
    for subcarriers, places in _runs(radio):
        signal[:, places] *= turns[:, subcarriers]


def _turn(angle: Array) -> Complex:
    """exp(j·angle) in single precision."""
    single = angle.astype(np.float32)
    turn = np.empty(single.shape, np.complex64)
    np.cos(single, out=turn.real)
    np.sin(single, out=turn.imag)
    return turn


def _runs(radio: Radio) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
    """The live subcarriers below and above the carrier: where among all, where among the live."""
    live = np.flatnonzero(radio.live)
    half = len(live) // 2
    below = slice(int(live[0]), int(live[half - 1]) + 1)
    above = slice(int(live[half]), int(live[-1]) + 1)
    return (below, slice(0, half)), (above, slice(half, None))


def _add_noise(signal: Complex, power: Array, draw: np.random.Generator) -> None:
    """Add circular Gaussian noise of [packets] power: a Rayleigh radius at a uniform angle."""
    uniform = draw.random((2, *signal.shape), np.float32)
    radius = np.sqrt(-np.log1p(-uniform[0])) * np.sqrt(power).astype(np.float32)[:, None]
    angle = np.float32(2 * np.pi) * uniform[1]
    signal.real += radius * np.cos(angle)
    signal.imag += radius * np.sin(angle)


def _narrow_band(radio: Radio, draw: np.random.Generator, frames: int) -> npt.NDArray[np.float32]:
    """[frames, live] 1 where a narrow frame sends: 20 MHz somewhere, or half of the band."""
    place = (radio.subcarriers[radio.live] + radio.bandwidth * 1.6) / (radio.bandwidth * 3.2)
    share = draw.choice([20 / radio.bandwidth, 0.5], frames)
    begin = share * np.floor(draw.random(frames) / share)
    inside = (place >= begin[:, None]) & (place < (begin + share)[:, None])
    return np.asarray(inside, np.float32)


def _quantise(signal: Complex, full: float) -> None:
    parts = signal.view(np.float32)
    np.rint(parts, out=parts)
    np.clip(parts, -full, full, out=parts)


def _junk(
    levels: npt.NDArray[np.float32], draw: np.random.Generator, *, packets: int, full: float
) -> Complex:
    """[packets, nulls] what stands where nothing was sent: a level by subcarrier, and noise."""
    values = draw.standard_normal((packets, len(levels), 2), np.float32)
    values *= levels[:, None]
    junk = values.view(np.complex64)[..., 0]
    _quantise(junk, full)
    return junk
