"""The channel: static paths, shadowed by people, plus the echoes of people, by subcarrier.

The equations are in docs/simulator.md. What moves is written as few slowly varying coefficients
times fixed responses over the subcarriers,

    H(t, f) = H_static(f) + Σ_i shadow_i(t) · response_i(f) + Σ_n echo_n(t) · delay_n(f),

(H_static changes with the number of people: they absorb)

so that thousands of moving paths cost one small matrix product: each path is spread with a smooth
kernel onto a grid of delays, and each delay of the grid is turned into subcarriers.
"""

import functools
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict

from fedapa.csi.subcarriers import all_subcarriers, used_subcarriers
from fedapa.simulator.delays import DelayGrid
from fedapa.simulator.people import MOTION_RATE, POINTS, Crowd
from fedapa.simulator.room import (
    SPEED_OF_LIGHT,
    Scatterers,
    SimulatedRoom,
    image_sources,
    mirrors,
    reflection,
)
from fedapa.simulator.settings import KNOWN_KEYS_ONLY, Number, within

__all__ = ["SEATED_RATE", "SUBCARRIER_SPACING", "Channel", "Radio", "shadow"]

Array: TypeAlias = npt.NDArray[np.float64]
Single: TypeAlias = npt.NDArray[np.float32]
Complex: TypeAlias = npt.NDArray[np.complex64]

SUBCARRIER_SPACING = 312_500.0
"""Hz between neighbouring subcarriers of IEEE 802.11 a to ac."""

SEATED_RATE = 62.5
"""Hz at which the motion of seated people is sampled: a fidget makes at most 17 Hz of Doppler."""

_SINC_TAPS = 16
_FRACTIONS = 8192  # of a sample, told apart in interpolation
_FAR_FIELD = np.float32(0.5)  # m; the radar equation does not hold nearer to an antenna
_BLOCK = 30_000  # paths worked on at a time: their arrays stay in the processor's cache


@dataclass(frozen=True)
class Radio:
    """What is sent: carrier, bandwidth and packet rate."""

    __pydantic_config__: ClassVar[ConfigDict] = KNOWN_KEYS_ONLY

    carrier: Annotated[Number, within(2.3e9, 7.2e9)] = 5.21e9
    """Hz. Channel 42, the 80 MHz channel most captures of this kind use (IEEE 802.11ac)."""
    bandwidth: Literal[20, 40, 80] = 80
    """MHz: 20, 40 or 80 (IEEE 802.11ac)."""
    rate: Annotated[Number, within(125, 1000)] = 1000.0
    """Hz, packets sent per second; 125 to 1000. Assumption: what people ping at; the captures that
    the paper builds on have about 1000."""

    @property
    def subcarriers(self) -> npt.NDArray[np.int16]:
        """All centred subcarrier indices, null ones included: 64, 128 or 256."""
        return np.array(all_subcarriers(self.bandwidth), np.int16)

    @property
    def live(self) -> npt.NDArray[np.bool_]:
        """Which of ``subcarriers`` carry data or pilots: 56, 114 or 242 of them (IEEE 802.11ac)."""
        return _live(self.bandwidth)


@functools.cache
def _live(bandwidth: int) -> npt.NDArray[np.bool_]:
    live = np.isin(all_subcarriers(bandwidth), used_subcarriers(bandwidth))
    live.flags.writeable = False  # everybody gets this one
    return live


@dataclass(frozen=True)
class _Group:
    """Bodies whose motion is sampled at one rate."""

    bodies: npt.NDArray[np.int64]
    rate: float
    gains: Single
    """[ways, body points] of the echoes; body points in the order (point, body)."""

    def only(self, here: npt.NDArray[np.bool_]) -> "_Group":
        """Those of the bodies that are ``here``."""
        points = np.tile(here, POINTS)
        return _Group(self.bodies[here], self.rate, self.gains[:, points])


class Channel:
    """The channel of one room on one day with one crowd in it."""

    def __init__(
        self, room: SimulatedRoom, radio: Radio, furniture: Scatterers, crowd: Crowd
    ) -> None:
        self.room, self.radio, self.crowd = room, radio, crowd
        self._offsets: Array = (
            radio.subcarriers[radio.live].astype(float) * SUBCARRIER_SPACING
        )  # Hz
        self._frequencies = radio.carrier + self._offsets
        self._wavelength = SPEED_OF_LIGHT / radio.carrier
        near, far, lengths = self._static_paths(furniture)
        # For each number of people that there may be, [numbers, subcarriers].
        numbers = [crowd.bodies] if crowd.present is None else range(crowd.bodies + 1)
        self._still = np.stack(
            [
                (far * np.exp(-self._crowding(people) * lengths / 2)[:, None]).sum(axis=0)
                for people in numbers
            ]
        )
        self._near = near
        self._grid = DelayGrid(self._offsets, longest=self._longest(), speed=SPEED_OF_LIGHT)
        delayed = self._grid.responses() * (radio.carrier / self._frequencies)
        self._basis = np.concatenate([near, delayed]).astype(np.complex64)
        # Echoes meet walls as at 45°: an assumption, no worse than that of the cross-section.
        faces = [
            complex(reflection(material, np.sqrt(0.5), radio.carrier, upright=face < 4))
            for face, material in enumerate(room.walls.names)
            if room.reflections
        ]
        bounce = np.array([1.0, *faces, *faces])[:, None]  # [ways, 1]
        self._echo_phases = np.angle(bounce).astype(np.float32)
        self._groups = [
            self._group(members, rate, np.abs(bounce))
            for members, rate in (
                (np.flatnonzero(~crowd.seated), MOTION_RATE),
                (np.flatnonzero(crowd.seated), SEATED_RATE),
            )
            if len(members)
        ]

    def _group(self, members: npt.NDArray[np.int64], rate: float, bounce: Array) -> _Group:
        strength = np.sqrt(self.crowd.cross_sections[members].T.ravel() / (4 * np.pi))
        gains = self._wavelength / (4 * np.pi) * bounce * strength
        return _Group(members, rate, gains.astype(np.float32))

    def _crowding(self, people: float) -> float:
        """1/m, room electromagnetics (Andersen et al. 2007).

        Bodies thin a path's power by exp(−N·ACS·length / V); shadowed paths get their losses body
        by body instead.
        """
        return people * self.crowd.absorption / self.room.volume

    def _longest(self) -> float:
        """m, no echo by one wall is longer."""
        side = np.asarray(self.room.size)
        mirrored = np.sum(side**2) + 3 * np.max(side) ** 2
        return float(np.linalg.norm(side) + np.sqrt(mirrored))

    # What never moves.

    def _static_paths(
        self, furniture: Scatterers
    ) -> tuple[npt.NDArray[np.complex128], npt.NDArray[np.complex128], Array]:
        """Responses [paths, subcarriers] of direct and once-reflected paths; of others; lengths."""
        room, receiver = self.room, np.asarray(self.room.receiver)
        images = image_sources(room.transmitter, room, room.reflections)
        ways = receiver - images.places  # [images, 3]
        lengths = np.linalg.norm(ways, axis=1)
        gains = np.ones(len(lengths), np.complex128)
        for face, material in enumerate(room.walls.names):
            cosines = np.abs(ways[:, face // 2]) / lengths
            coefficient = reflection(material, cosines, self.radio.carrier, upright=face < 4)
            gains *= coefficient ** images.bounces[:, face]
        paths = gains[:, None] * self._free_space(lengths)
        to_piece = np.linalg.norm(furniture.places - room.transmitter, axis=1)
        from_piece = np.linalg.norm(furniture.places - receiver, axis=1)
        # Radar equation: √σ / (√(4π) d₁ d₂) beside 1 / (d₁ + d₂) of a mirror.
        pieces = np.sqrt(furniture.cross_sections / (4 * np.pi)) / (
            np.maximum(to_piece, _FAR_FIELD) * np.maximum(from_piece, _FAR_FIELD)
        )
        around = to_piece + from_piece
        echoes = (pieces * around)[:, None] * self._free_space(around)
        single = images.order <= 1
        # In the order (direct, x = 0, x = X, …) whatever order the images came in.
        order = np.argmax(images.bounces[single], axis=1) + (images.order[single] > 0)
        return (
            paths[single][np.argsort(order)],
            np.concatenate([paths[~single], echoes]),
            np.concatenate([lengths[~single], around]),
        )

    def _free_space(self, lengths: Array) -> npt.NDArray[np.complex128]:
        """[paths, subcarriers] λ / (4π d) · exp(−j 2π f d / c): Friis, isotropic antennas."""
        wavelengths = SPEED_OF_LIGHT / self._frequencies
        turns = lengths[:, None] * self._frequencies / SPEED_OF_LIGHT
        return np.asarray(
            wavelengths / (4 * np.pi * lengths[:, None]) * np.exp(-2j * np.pi * turns)
        )

    # What people do.

    def _people(self, times: Array) -> Array:
        """[times] people in the room; who stands in the doorway counts in part."""
        everybody = np.arange(self.crowd.bodies)
        return np.asarray(self.crowd.present_at(times, everybody).sum(axis=1, dtype=np.float64))

    def _echo_losses(self, times: Array) -> Single:
        """1/m by which the others thin an echo's amplitude: one value, or [times, 1, 1]."""
        bodies = self.crowd.bodies
        if self.crowd.present is None:
            return np.asarray(-self._crowding(bodies) * (1 - 1 / bodies) / 2, np.float32)
        others = np.maximum(self._people(times) - 1, 0)[:, None, None]
        return np.asarray(-self._crowding(1) * others / 2, np.float32)

    def _echoes(self, points: Single, group: _Group, present: Single, losses: Single) -> Complex:
        """[times, delays] echoes of body points [times, bodies, points, 3] on the delay grid."""
        room = self.room
        # Neighbours in memory are different people, who rarely fall on one place of the grid:
        # adding to the same place again and again would make the processor wait.
        flat = points.swapaxes(1, 2).reshape(len(points), -1, 3)
        there = _distances(flat, room.transmitter, room)  # [times, 7, body points]
        back = _distances(flat, room.receiver, room)
        if not room.reflections:
            there, back = there[:, :1], back[:, :1]
        # Thirteen ways each: direct, by a wall to the body, by a wall from the body.
        # Everything is written where it is needed: arrays of this size are dear to make.
        forth = there.shape[1]
        lengths = np.empty((len(flat), 2 * forth - 1, flat.shape[1]), np.float32)
        np.add(there, back[:, :1], out=lengths[:, :forth])
        np.add(there[:, :1], back[:, 1:], out=lengths[:, forth:])
        for distances in (there, back):
            np.maximum(distances, _FAR_FIELD, out=distances)
            np.divide(np.float32(1), distances, out=distances)
        gains = np.empty_like(lengths)
        np.multiply(there, back[:, :1], out=gains[:, :forth])
        np.multiply(there[:, :1], back[:, 1:], out=gains[:, forth:])
        gains *= group.gains
        spare = lengths * losses
        gains *= np.exp(spare, out=spare)
        if self.crowd.present is not None:
            gains *= np.tile(present, POINTS)[:, None, :]
        phases = lengths * np.float32(1 / self._wavelength)
        phases -= np.floor(phases, out=spare)
        phases *= np.float32(-2 * np.pi)
        phases += self._echo_phases
        return self._grid.gather(lengths, gains, phases)

    def _shadows(self, points: Single, group: _Group, present: Single) -> Single:
        """[times, near paths] what people leave of the direct and the once-reflected paths."""
        room, crowd = self.room, self.crowd
        torso = points[:, :, 0, :]  # [times, people, 3]
        transmitter = np.asarray(room.transmitter)
        # A path by a wall, unfolded, is straight: bodies shadow its second leg, mirrored bodies
        # its first. In the floor and the ceiling they stand on their heads.
        legs = [(transmitter, torso, 0.0, 1.0)]
        if len(self._near) > 1:
            sources, mirrored = mirrors(transmitter, room), mirrors(torso, room)
            ground = [(0.0, 1.0)] * 4 + [(0.0, -1.0), (2 * room.size[2], -1.0)]
            legs += [(source, torso, 0.0, 1.0) for source in sources]
            legs += [
                (source, image, floor, sense)
                for source, image, (floor, sense) in zip(sources, mirrored, ground, strict=True)
            ]
        left = shadow(
            np.stack([body[..., :2] for _, body, _, _ in legs]),
            np.stack([source for source, _, _, _ in legs]),
            receiver=np.asarray(room.receiver),
            widths=crowd.widths[group.bodies],
            heights=crowd.heights[group.bodies],
            wavelength=self._wavelength,
            floors=np.array([floor for _, _, floor, _ in legs]),
            senses=np.array([sense for _, _, _, sense in legs]),
        )  # [legs, times, bodies]
        if crowd.present is not None:
            left = 1 - present * (1 - left)
        left = left.prod(axis=-1)  # [legs, times]
        if len(self._near) > 1:
            left[1:7] *= left[7:]
        return np.ascontiguousarray(left[: len(self._near)].T)

    def coefficients(self, times: Array) -> Complex:
        """[times, near paths + delays] what multiplies the fixed responses at these times."""
        total = np.zeros((len(times), len(self._basis)), np.complex64)
        count = len(self._near)
        total[:, :count] = 1
        for group in self._groups:
            # Motion is slower than packets: evaluate it at its own rate, then interpolate.
            slower = self.radio.rate > group.rate
            moments = _around(times, group.rate) if slower else times
            present = self.crowd.present_at(moments, group.bodies)
            here = np.asarray(present.any(axis=0), np.bool_)
            if not here.any():
                continue
            if not here.all():
                group, present = group.only(here), present[:, here]
            points = self.crowd.at(moments, group.bodies)
            losses = np.broadcast_to(self._echo_losses(moments), (len(moments), 1, 1))
            block = max(1, _BLOCK // group.gains.size)
            parts = [slice(i, i + block) for i in range(0, len(points), block)]
            echoes = np.concatenate(
                [self._echoes(points[part], group, present[part], losses[part]) for part in parts]
            )
            left = self._shadows(points, group, present)
            if slower:
                mix = _sinc((times - moments[0]) * group.rate, len(moments))
                left = mix @ left
                echoes = (mix @ echoes.view(np.float32)).view(np.complex64)
            total[:, :count] *= left
            total[:, count:] += echoes
        return total

    @property
    def direct(self) -> float:
        """Amplitude of the free direct path at the carrier."""
        way = np.subtract(self.room.receiver, self.room.transmitter)
        return float(self._wavelength / (4 * np.pi * np.linalg.norm(way)))

    def response(self, times: Array) -> Complex:
        """[times, live subcarriers] the channel at these times."""
        if not self.crowd.bodies:
            still = (self._still[0] + self._near.sum(axis=0)).astype(np.complex64)
            return np.broadcast_to(still, (len(times), len(still))).copy()
        moving = self.coefficients(times) @ self._basis
        still = self._still.astype(np.complex64)
        if self.crowd.present is None:
            moving += still[0]
        else:
            people = self._people(times)
            below = np.minimum(people.astype(np.int64), len(still) - 2)
            share = (people - below).astype(np.float32)[:, None]
            moving += still[below] + share * (still[below + 1] - still[below])
        return np.asarray(moving)


def shadow(
    bodies: Single,
    sources: Array,
    *,
    receiver: Array,
    widths: Single,
    heights: Single,
    wavelength: float,
    floors: Array,
    senses: Array,
) -> Single:
    """[paths, times, people] amplitude left of straight paths by upright screens.

    The four-edge knife model of 3GPP TR 38.901, section 7.6.4.2 (blockage model B):
    1 − (F_left + F_right)(F_top + F_bottom), F = ± atan(π/2 · √(π/λ · (D₁ + D₂ − r))) / π,
    positive where the edge is beyond the path.

    Args:
        bodies: [paths, times, people, 2] where the screens stand.
        sources: [paths, 3] where the paths begin.
        receiver: [3] where they end.
        widths: [people] of the screens.
        heights: [people] of the screens.
        wavelength: in metres, as all lengths.
        floors: [paths] height of the floor the screens stand on.
        senses: [paths] 1 if they stand upright, −1 if mirrored.
    """
    ways = (receiver - sources).astype(np.float32)
    runs = np.maximum(np.hypot(ways[:, 0], ways[:, 1]), np.float32(1e-3))  # over the floor
    ahead = ways[:, :2] / runs[:, None]
    offset = bodies - sources[:, None, None, :2].astype(np.float32)
    first, second = offset[..., 0], offset[..., 1]
    run, x, y = runs[:, None, None], ahead[:, 0, None, None], ahead[:, 1, None, None]
    along = first * x + second * y  # [paths, times, people]
    aside = second * x - first * y
    rest = run - along
    before, after = along**2, rest**2
    half = widths / 2
    top = (floors[:, None] + senses[:, None] * heights).astype(np.float32)[:, None, :]
    bottom = np.asarray(floors, np.float32)[:, None, None]
    up = np.asarray(senses, np.float32)[:, None, None]
    begin, end = sources[:, 2, None, None].astype(np.float32), np.float32(receiver[2])
    level: Single = np.asarray(begin + (end - begin) / run * along, np.float32)
    total = np.linalg.norm(ways, axis=1)[:, None, None]

    def edge(start: Single, stop: Single, straight: Single, beyond: Single) -> Single:
        detour = np.sqrt(before + start**2) + np.sqrt(after + stop**2) - straight
        root = np.sqrt(np.maximum(detour, 0) * np.float32(np.pi / wavelength))
        angle = np.arctan(np.float32(np.pi / 2) * root)
        return np.asarray(np.copysign(angle, beyond), np.float32)

    right: Single = np.asarray(aside + half, np.float32)
    left: Single = np.asarray(half - aside, np.float32)
    across = edge(right, right, run, right) + edge(left, left, run, left)
    over = edge(top - begin, top - end, total, up * (top - level))
    under = edge(bottom - begin, bottom - end, total, up * (level - bottom))
    # A screen beside or behind an antenna is none; fade it over 20 cm instead of switching.
    inside = np.clip(np.minimum(along, rest) / np.float32(0.2), 0, 1)
    return np.asarray(1 - inside * across * (over + under) / np.float32(np.pi**2), np.float32)


def _distances(points: Single, antenna: tuple[float, float, float], room: SimulatedRoom) -> Single:
    """[times, 7, points] from the antenna and its six first images to each point."""
    squares = [(points[..., axis] - np.float32(antenna[axis])) ** 2 for axis in range(3)]
    direct = squares[0] + squares[1] + squares[2]
    result = np.empty((len(points), 7, points.shape[1]), np.float32)
    result[:, 0] = direct
    for axis, side in enumerate(room.size):
        for end, wall in enumerate((0.0, side)):
            image = np.float32(2 * wall - antenna[axis])
            result[:, 1 + 2 * axis + end] = (
                direct - squares[axis] + (points[..., axis] - image) ** 2
            )
    return np.sqrt(result, out=result)


def _around(times: Array, rate: float) -> Array:
    """Moments at ``rate`` that reach far enough on both sides of ``times`` to interpolate."""
    first = int(np.floor(times[0] * rate)) - _SINC_TAPS // 2 + 1
    last = int(np.floor(times[-1] * rate)) + _SINC_TAPS // 2
    return np.arange(first, last + 1) / rate


def _sinc(places: Array, samples: int) -> Single:
    """[places, samples] band-limited interpolation: a sinc under a Kaiser window of 16 samples."""
    before = places.astype(np.int64)
    taps = _sinc_taps()[np.rint((places - before) * _FRACTIONS).astype(np.int64)]
    matrix = np.zeros((len(places), samples), np.float32)
    first = before - _SINC_TAPS // 2 + 1
    np.put_along_axis(matrix, first[:, None] + np.arange(_SINC_TAPS), taps, axis=1)
    return matrix


@functools.cache
def _sinc_taps() -> Single:
    """[fractions, taps] of the interpolation, for fractions of a sample from 0 to 1."""
    fractions = np.arange(_FRACTIONS + 1) / _FRACTIONS
    away = fractions[:, None] + _SINC_TAPS // 2 - 1 - np.arange(_SINC_TAPS)
    inside = np.maximum(1 - (2 * away / _SINC_TAPS) ** 2, 0)
    from scipy.special import i0  # half a second to import, and most runs simulate nothing

    return np.asarray(np.sinc(away) * i0(7.0 * np.sqrt(inside)) / i0(7.0), np.float32)
