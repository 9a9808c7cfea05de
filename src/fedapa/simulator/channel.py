"""The channel: static paths, shadowed by people, plus the echoes of people, tone by tone.

The equations are in docs/simulator.md. What moves is written as few slowly varying coefficients
times fixed responses over the tones,

    H(t, f) = H_static(f) + Σ_i shadow_i(t) · response_i(f) + Σ_n echo_n(t) · delay_n(f),

so that thousands of moving paths cost one small matrix product: each path is spread with a smooth
kernel onto a grid of delays, and each delay of the grid is turned into tones.
"""

import functools
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fedapa.errors import PlanError
from fedapa.simulator.people import MOTION_RATE, Crowd
from fedapa.simulator.room import (
    SPEED_OF_LIGHT,
    Room,
    Scatterers,
    image_sources,
    mirrors,
    reflection,
)

__all__ = ["TONE_SPACING", "Channel", "Radio", "shadow"]

Array: TypeAlias = npt.NDArray[np.float64]
Single: TypeAlias = npt.NDArray[np.float32]
Complex: TypeAlias = npt.NDArray[np.complex64]

TONE_SPACING = 312_500.0
"""Hz between neighbouring tones of IEEE 802.11 a to ac."""

_LIVE = {20: (28, 0), 40: (58, 1), 80: (122, 1)}
_TAPS = 4
_FRACTIONS = 4096
_BETA = 2.3 * _TAPS
_SINC_TAPS = 16


@dataclass(frozen=True)
class Radio:
    """What is sent: carrier, bandwidth and packet rate."""

    carrier: float = 5.21e9
    """Hz. Channel 42, the 80 MHz channel most captures of this kind use (IEEE 802.11ac)."""
    bandwidth: int = 80
    """MHz: 20, 40 or 80 (IEEE 802.11ac)."""
    rate: float = 1000.0
    """Hz, packets sent per second; 125 to 1000 in this project."""

    @property
    def tones(self) -> npt.NDArray[np.int16]:
        """All centred tone numbers, null ones included: 64, 128 or 256."""
        half = self.bandwidth * 32 // 20
        return np.arange(-half, half, dtype=np.int16)

    @property
    def live(self) -> npt.NDArray[np.bool_]:
        """Which of ``tones`` carry data or pilots: 56, 114 or 242 of them (IEEE 802.11ac)."""
        last, gap = _LIVE[self.bandwidth]
        magnitude = np.abs(self.tones)
        return (magnitude > gap) & (magnitude <= last)

    def check(self) -> None:
        """Raise if no such radio is simulated."""
        if self.bandwidth not in _LIVE:
            raise PlanError(f"bandwidth of {self.bandwidth} MHz; choose 20, 40 or 80")
        if not 125 <= self.rate <= 1000:
            raise PlanError(f"packet rate of {self.rate:g} Hz; choose 125 to 1000")
        if not 2.3e9 <= self.carrier <= 7.2e9:
            raise PlanError(f"carrier of {self.carrier:g} Hz; choose 2.3e9 to 7.2e9")


class Channel:
    """The channel of one room on one day with one crowd in it."""

    def __init__(self, room: Room, radio: Radio, furniture: Scatterers, crowd: Crowd) -> None:
        self.room, self.radio, self.crowd = room, radio, crowd
        self._offsets = radio.tones[radio.live] * TONE_SPACING  # [tones] Hz from the carrier
        self._frequencies = radio.carrier + self._offsets
        # Room electromagnetics (Andersen et al. 2007): bodies thin a path's power by
        # exp(−N·ACS·length / V); shadowed paths get their losses body by body instead.
        self._crowding = crowd.people * crowd.absorption / room.volume
        near, far = self._static_paths(furniture)
        self._still = (far * np.exp(-self._crowding * self._far_lengths / 2)[:, None]).sum(axis=0)
        self._near = near  # [7, tones]
        self._grid()

    # What never moves.

    def _static_paths(
        self, furniture: Scatterers
    ) -> tuple[npt.NDArray[np.complex128], npt.NDArray[np.complex128]]:
        """Responses [paths, tones]: direct and once-reflected paths, and all others."""
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
            np.maximum(to_piece, 0.5) * np.maximum(from_piece, 0.5)
        )
        around = to_piece + from_piece
        echoes = (pieces * around)[:, None] * self._free_space(around)
        single = images.order <= 1
        self._far_lengths = np.concatenate([lengths[~single], around])
        # In the order (direct, x = 0, x = X, …) whatever order the images came in.
        order = np.argmax(images.bounces[single], axis=1) + (images.order[single] > 0)
        return paths[single][np.argsort(order)], np.concatenate([paths[~single], echoes])

    def _free_space(self, lengths: Array) -> npt.NDArray[np.complex128]:
        """[paths, tones] λ / (4π d) · exp(−j 2π f d / c): Friis between isotropic antennas."""
        wavelengths = SPEED_OF_LIGHT / self._frequencies
        turns = lengths[:, None] * self._frequencies / SPEED_OF_LIGHT
        return np.asarray(
            wavelengths / (4 * np.pi * lengths[:, None]) * np.exp(-2j * np.pi * turns)
        )

    # What people do.

    def _grid(self) -> None:
        """The delays that echoes are spread on, and what each of them is over the tones."""
        side, widest = np.asarray(self.room.size), max(self.room.size)
        longest = np.linalg.norm(side) + np.sqrt(np.sum(side**2) + 3 * widest**2)
        # Twice as fine as the band needs, so that a kernel of four taps is accurate to 60 dB.
        self._step = SPEED_OF_LIGHT / (2 * (2 * np.abs(self._offsets).max() + TONE_SPACING))
        self._delays = int(longest / self._step) + _TAPS + 2
        fractions = np.arange(_FRACTIONS + 1) / _FRACTIONS
        self._weights = _kernel(fractions[:, None] + 1 - np.arange(_TAPS)).astype(np.float32)
        per_step = self._offsets * self._step / SPEED_OF_LIGHT  # cycles per grid step
        fine = np.linspace(-_TAPS / 2, _TAPS / 2, 4001)
        spectrum = np.trapezoid(
            _kernel(fine) * np.cos(2 * np.pi * per_step[:, None] * fine), fine, axis=1
        )
        # Grid point n stands for a path of (n − 1) steps: the kernel reaches one point further.
        turns = (np.arange(self._delays)[:, None] - 1) * per_step
        delayed = np.exp(-2j * np.pi * turns) / spectrum * (self.radio.carrier / self._frequencies)
        self._basis = np.concatenate([self._near, delayed]).astype(np.complex64)

    def _echoes(self, points: Single) -> Complex:
        """[times, delays] echoes of body points [times, people, points, 3] on the delay grid."""
        times = len(points)
        room, crowd = self.room, self.crowd
        carrier = self.radio.carrier
        flat = points.reshape(times, -1, 3)
        strength = np.sqrt(crowd.cross_sections.ravel() / (4 * np.pi))
        there = _distances(flat, room.transmitter, room)  # [times, 7, body points]
        back = _distances(flat, room.receiver, room)
        lengths = np.concatenate([there + back[:, :1], there[:, :1] + back[:, 1:]], axis=1)
        spread = np.concatenate(
            [
                1 / (_apart(there) * _apart(back[:, :1])),
                1 / (_apart(there[:, :1]) * _apart(back[:, 1:])),
            ],
            axis=1,
        )
        # Walls as at 45° incidence: within 2 dB of the true angle for most of a room.
        faces = np.array(
            [
                reflection(material, np.sqrt(0.5), carrier, upright=face < 4)
                for face, material in enumerate(room.walls.names)
            ]
        )
        bounce = np.concatenate([[1.0], faces, faces])[:, None]
        others = self._crowding * (1 - 1 / crowd.people)
        spread *= (np.abs(bounce) * strength).astype(np.float32)
        spread *= np.float32(SPEED_OF_LIGHT / carrier / (4 * np.pi))
        spread *= np.exp(lengths * np.float32(-others / 2))
        turns = lengths * np.float32(carrier / SPEED_OF_LIGHT)
        turns -= np.floor(turns)
        phases = np.angle(bounce).astype(np.float32) - np.float32(2 * np.pi) * turns
        echoes = np.empty(lengths.shape, np.complex64)
        np.multiply(spread, np.cos(phases), out=echoes.real)
        np.multiply(spread, np.sin(phases), out=echoes.imag)
        place = lengths * np.float32(1 / self._step)
        first = place.astype(np.int32)
        place -= first
        weights = self._weights[(place * np.float32(_FRACTIONS)).astype(np.int32)]
        taps = echoes[..., None] * weights  # [times, paths, points, taps]
        columns = first[..., None] + np.arange(_TAPS, dtype=np.int32)
        rows = np.arange(times + 1, dtype=np.int32) * np.int32(taps[0].size)
        spread_out = sparse.csr_array(
            (taps.ravel(), columns.ravel(), rows), shape=(times, self._delays)
        )
        return np.asarray(spread_out.toarray(), np.complex64)

    def _shadows(self, points: Single) -> Single:
        """[times, 7] what people leave of the direct and the once-reflected paths."""
        room, crowd = self.room, self.crowd
        wavelength = SPEED_OF_LIGHT / self.radio.carrier
        left = np.ones((len(points), 7), np.float32)
        receiver = np.asarray(room.receiver)
        torso = points[:, :, 0, :]  # [times, people, 3]
        shadowed = functools.partial(
            shadow,
            receiver=receiver,
            widths=crowd.widths,
            heights=crowd.heights,
            wavelength=wavelength,
        )
        sources = [np.asarray(room.transmitter), *mirrors(np.asarray(room.transmitter), room)]
        bodies = [torso, *mirrors(torso, room)]
        for path, source in enumerate(sources):
            left[:, path] = shadowed(torso, source, floor=0.0).prod(axis=1)
            if path == 0:
                continue
            # The leg before the wall, unfolded: the mirrored body stands on the mirrored floor.
            height = room.size[2]
            floor = {5: 0.0, 6: 2 * height}.get(path, 0.0)
            sense = -1.0 if path >= 5 else 1.0
            left[:, path] *= shadowed(bodies[path], source, floor=floor, sense=sense).prod(axis=1)
        return left

    def coefficients(self, times: Array) -> Complex:
        """[times, 7 + delays] what multiplies the fixed responses at these times."""
        if self.radio.rate <= MOTION_RATE:
            return self._coefficients(times)
        # Motion is far slower than packets: evaluate at the motion rate and interpolate.
        begin = np.floor(times[0] * MOTION_RATE) - _SINC_TAPS // 2 + 1
        samples = int(np.ceil(times[-1] * MOTION_RATE) - begin) + _SINC_TAPS // 2 + 1
        moments = (begin + np.arange(samples)) / MOTION_RATE
        slow = self._coefficients(moments)  # [samples, 7 + delays]
        fast = _sinc(times * MOTION_RATE - begin, samples) @ slow.view(np.float32)
        return np.asarray(fast.view(np.complex64))

    def _coefficients(self, times: Array) -> Complex:
        points = self.crowd.at(times)
        parts = [self._shadows(points).astype(np.complex64), self._echoes(points)]
        return np.concatenate(parts, axis=1)

    def response(self, times: Array) -> Complex:
        """[times, live tones] the channel at these times."""
        if not self.crowd.people:
            still = self._still + self._near.sum(axis=0)
            return np.broadcast_to(still.astype(np.complex64), (len(times), len(still))).copy()
        return self.coefficients(times) @ self._basis + self._still.astype(np.complex64)


def shadow(
    bodies: Single,
    source: Array,
    *,
    receiver: Array,
    floor: float,
    widths: Single,
    heights: Single,
    wavelength: float,
    sense: float = 1.0,
) -> Single:
    """[times, people] amplitude left of a straight path by each upright screen.

    The four-edge knife model of 3GPP TR 38.901, section 7.6.4.2 (blockage model B):
    1 − (F_left + F_right)(F_top + F_bottom), F = ± atan(π/2 · √(π/λ · (D₁ + D₂ − r))) / π,
    positive where the edge is beyond the path. ``floor`` and ``sense`` place a mirrored body.
    """
    way = receiver - source
    run = float(np.hypot(way[0], way[1]))
    if run < 0.1:
        return np.ones(bodies.shape[:2], np.float32)
    ahead = (way[:2] / run).astype(np.float32)
    offset = bodies[..., :2] - source[:2].astype(np.float32)
    along = offset @ ahead  # [times, people]
    aside = offset @ np.array([-ahead[1], ahead[0]], np.float32)
    rest = np.float32(run) - along
    climb = np.float32(way[2] / run)
    level = np.float32(source[2]) + climb * along
    total = np.float32(np.linalg.norm(way))
    edges = []
    for edge in (aside + widths / 2, widths / 2 - aside):
        detour = np.sqrt(along**2 + edge**2) + np.sqrt(rest**2 + edge**2) - np.float32(run)
        edges.append(np.copysign(_edge(detour, wavelength), edge))
    crown = np.float32(floor) + np.float32(sense) * heights
    for place, beyond in ((crown, sense), (np.full_like(crown, floor), -sense)):
        detour = (
            np.sqrt(along**2 + (place - np.float32(source[2])) ** 2)
            + np.sqrt(rest**2 + (place - np.float32(receiver[2])) ** 2)
            - total
        )
        edges.append(np.copysign(_edge(detour, wavelength), np.float32(beyond) * (place - level)))
    # A screen beside or behind an antenna is none; fade it over 20 cm instead of switching.
    inside = np.clip(np.minimum(along, rest) / np.float32(0.2), 0, 1)
    left = 1 - inside * (edges[0] + edges[1]) * (edges[2] + edges[3])
    return np.asarray(left, np.float32)


def _edge(detour: Single, wavelength: float) -> Single:
    root = np.sqrt(np.maximum(detour, 0) * np.float32(np.pi / wavelength))
    return np.asarray(np.arctan(np.float32(np.pi / 2) * root) / np.float32(np.pi), np.float32)


def _distances(points: Single, antenna: tuple[float, float, float], room: Room) -> Single:
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


def _apart(distances: Single) -> Single:
    # The radar equation is a far-field one: nobody is nearer than half a metre to it.
    return np.maximum(distances, np.float32(0.5))


def _kernel(place: Array) -> Array:
    """The exponential of a semicircle (Barnett et al. 2019): narrow here and in its spectrum."""
    inside = np.maximum(1 - (2 * place / _TAPS) ** 2, 0)
    return np.where(np.abs(place) <= _TAPS / 2, np.exp(_BETA * (np.sqrt(inside) - 1)), 0.0)


def _sinc(places: Array, samples: int) -> Single:
    """[places, samples] band-limited interpolation: a sinc under a Kaiser window of 16 samples."""
    first = places.astype(np.int64) - _SINC_TAPS // 2 + 1
    taps = first[:, None] + np.arange(_SINC_TAPS)
    away = places[:, None] - taps
    window = np.i0(7.0 * np.sqrt(np.maximum(1 - (2 * away / _SINC_TAPS) ** 2, 0))) / np.i0(7.0)
    matrix = np.zeros((len(places), samples), np.float32)
    np.put_along_axis(matrix, taps, (np.sinc(away) * window).astype(np.float32), axis=1)
    return matrix
