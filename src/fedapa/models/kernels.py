"""Compiled inner loops of the nets and of the forest, for one core.

``ConvEncoder`` decides when they run, ``fast.py`` gives them their gradients. The first layer sees
one channel, so a convolution is a product of weights with 9-vectors of neighbouring pixels, here
with a 1 behind them for the bias: 10 *taps*. Its loops are written as vector instructions, because
what makes them fast is that weights and sums stay in registers while positions stream by; the rest
is plain loops that a compiler handles well.

Everything is in one file: numba's cache looks at the file of a function only to see what changed.
"""

from typing import Any

import numba
import numpy as np
from llvmlite import binding, ir
from numba.core import cgutils, types
from numba.extending import intrinsic

__all__ = [
    "LANES",
    "TAPS",
    "TILE",
    "active_sums",
    "added",
    "channel_moments",
    "contrast_gradient",
    "contrast_slopes",
    "cut_and_kept",
    "descend",
    "directions",
    "first_layer",
    "first_layer_gradient",
    "likelihood",
    "mean_shares",
    "norm_gradient",
    "norm_gradient_terms",
    "norm_sums",
    "norm_terms",
    "normalise",
    "patch_moments",
    "pooled_gradient",
    "pooled_sums",
    "rectified",
    "rectified_and_kept",
    "rectified_and_kept_gradient",
    "rectified_gradient",
    "rectified_pool",
    "rectified_sums",
    "shared_likelihood",
    "standardise",
    "tempered",
    "untempered",
]

TAPS = 10
"""3 × 3 neighbours and the constant 1."""


TILE = 512
"""Values per step of the loops over activations: some positions of all channels side by side."""


def _lanes() -> int:
    """Floats in one vector register: weights and sums need 21 registers at once.

    numba compiles for another processor if NUMBA_CPU_NAME and NUMBA_CPU_FEATURES name one; tests
    use that to run the narrower loops where wider ones would be taken.
    """
    told = numba.config.CPU_FEATURES  # type: ignore[attr-defined]
    features = (
        binding.get_host_cpu_features()
        if told is None
        else {word[1:]: word.startswith("+") for word in told.split(",")}
    )
    if features.get("avx512f"):
        return 16
    return 8 if features.get("avx2") else 4


LANES = _lanes()
"""Channels that one pass of the first layer's loops works on."""

_FLOAT, _DOUBLE, _INT = ir.FloatType(), ir.DoubleType(), ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, LANES)
_WIDE = ir.VectorType(_DOUBLE, LANES)


def _load(builder: Any, address: Any, kind: Any) -> Any:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=4)


def _store(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=4)


def _plus(builder: Any, address: Any, size: int) -> Any:
    return builder.add(address, ir.Constant(_INT, size))


def _fma(builder: Any, one: Any, other: Any, added: Any) -> Any:
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
    name = f"llvm.fma.v{LANES}f32"
    function = cgutils.get_or_insert_function(builder.module, kind, name)  # type: ignore[no-untyped-call]
    return builder.call(function, [one, other, added])


def _splat(builder: Any, scalar: Any) -> Any:
    lone = builder.insert_element(
        ir.Constant(_VECTOR, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0)
    )
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), LANES), None)
    return builder.shuffle_vector(lone, lone, everywhere)


def _row_loop(kind: str) -> Any:
    """A loop over the positions of one row of the first layer's output.

    Its arguments are addresses and sizes in bytes: the padded image at the row's first neighbour,
    one image row, how many positions, weights [10, LANES], sums [·, LANES] in float64, and an
    array with LANES floats for each position, ``step`` apart.

    Args:
        kind: ``active`` adds the taps where the channel is positive; ``rectified`` adds what the
            channel gives if positive; ``write`` puts that into the array; ``pull`` adds the taps
            times the array's values where the channel is positive, i.e. the weights' gradient.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        image, pitch, count, weights, sums, array, step = arguments
        size = 4 * LANES
        zero = ir.Constant(_VECTOR, [0.0] * LANES)
        one = ir.Constant(_VECTOR, [1.0] * LANES)
        weight = [_load(builder, _plus(builder, weights, size * k), _VECTOR) for k in range(TAPS)]
        number = {"active": TAPS, "pull": TAPS, "rectified": 1, "write": 0}[kind]
        entry = builder.block
        loop, done = builder.append_basic_block("position"), builder.append_basic_block("done")
        builder.branch(loop)

        builder.position_at_end(loop)
        index = builder.phi(_INT)
        index.add_incoming(ir.Constant(_INT, 0), entry)
        totals = [builder.phi(_VECTOR) for _ in range(number)]
        for total in totals:
            total.add_incoming(zero, entry)
        corner = builder.add(image, builder.shl(index, ir.Constant(_INT, 3)))  # stride 2, 4 bytes
        taps = []
        for row in range(3):
            start = builder.add(corner, builder.mul(pitch, ir.Constant(_INT, row)))
            for column in range(3):
                value = _load(builder, _plus(builder, start, 4 * column), _FLOAT)
                taps.append(_splat(builder, value))
        taps.append(one)
        channel = weight[9]
        for k in range(9):
            channel = _fma(builder, weight[k], taps[k], channel)
        place = builder.add(array, builder.mul(index, step))
        # Comparisons are such that NaN counts as positive: it must reach the loss and be noticed.
        new = []
        if kind == "active":
            on = builder.fcmp_unordered(">", channel, zero)
            for total, tap in zip(totals, taps, strict=True):
                new.append(builder.select(on, builder.fadd(total, tap), total))
        elif kind == "pull":
            on = builder.fcmp_unordered(">", channel, zero)
            pull = builder.select(on, _load(builder, place, _VECTOR), zero)
            for total, tap in zip(totals, taps, strict=True):
                new.append(_fma(builder, pull, tap, total))
        else:
            off = builder.fcmp_ordered("<", channel, zero)
            rectified = builder.select(off, zero, channel)
            if kind == "rectified":
                new.append(builder.fadd(totals[0], rectified))
            else:
                _store(builder, rectified, place)
        following = _plus(builder, index, 1)
        index.add_incoming(following, loop)
        for total, value in zip(totals, new, strict=True):
            total.add_incoming(value, loop)
        builder.cbranch(builder.icmp_signed("<", following, count), loop, done)

        # A row is short enough for float32; rows are added in float64.
        builder.position_at_end(done)
        for k, value in enumerate(new):
            address = _plus(builder, sums, 8 * LANES * k)
            before = _load(builder, address, _WIDE)
            _store(builder, builder.fadd(before, builder.fpext(value, _WIDE)), address)
        return context.get_dummy_value()

    def typed(typing: Any, *arguments: Any) -> Any:
        return types.void(*(types.int64 for _ in arguments)), emit

    def row(typing, image, pitch, count, weights, sums, array, step):
        return typed(typing, image, pitch, count, weights, sums, array, step)

    row.__name__ = row.__qualname__ = f"row_{kind}"
    return intrinsic(row)


_row_active = _row_loop("active")
_row_rectified = _row_loop("rectified")
_row_write = _row_loop("write")
_row_pull = _row_loop("pull")


@numba.njit(cache=True, error_model="numpy")
def standardise(windows, index, mean, deviation, made):
    """(window − mean)/deviation of the windows at ``index``, read once and written once.

    Args:
        windows: [windows, packets, subcarriers] float32.
        index: [B], each below the number of windows: nothing is checked here.
        mean: [subcarriers] float32.
        deviation: [subcarriers] float32.
        made: [B, packets, subcarriers] float32; the result, in the bits that numpy gives.
    """
    for n in range(len(index)):
        window, out = windows[index[n]], made[n]
        for i in range(len(window)):
            for j in range(len(mean)):
                out[i, j] = (window[i, j] - mean[j]) / deviation[j]


@numba.njit(cache=True)
def _pad(window, padded):
    """A window into the middle of a frame of zeros."""
    height, width = window.shape
    for i in range(height):
        for j in range(width):
            padded[i + 1, j + 1] = window[i, j]


@numba.njit(cache=True)
def active_sums(windows, weights, sums):
    """Σ over positions of the taps where a channel is positive.

    Args:
        windows: [B, H, W] float32.
        weights: [blocks, 10, LANES] float32, LANES channels a block.
        sums: [B, blocks, 10, LANES] float64, zero; the result.
    """
    batch, height, width = windows.shape
    padded = np.zeros((height + 2, width + 2), np.float32)
    rows, count, pitch = (height + 1) // 2, (width + 1) // 2, 4 * (width + 2)
    for b in range(batch):
        _pad(windows[b], padded)
        for block in range(len(weights)):
            for i in range(rows):
                _row_active(
                    padded.ctypes.data + 2 * i * pitch,
                    pitch,
                    count,
                    weights[block].ctypes.data,
                    sums[b, block].ctypes.data,
                    0,
                    0,
                )


@numba.njit(cache=True)
def rectified_sums(windows, weights, sums):
    """Σ over positions of each channel where it is positive; sums is [B, blocks, LANES]."""
    batch, height, width = windows.shape
    padded = np.zeros((height + 2, width + 2), np.float32)
    rows, count, pitch = (height + 1) // 2, (width + 1) // 2, 4 * (width + 2)
    for b in range(batch):
        _pad(windows[b], padded)
        for block in range(len(weights)):
            for i in range(rows):
                _row_rectified(
                    padded.ctypes.data + 2 * i * pitch,
                    pitch,
                    count,
                    weights[block].ctypes.data,
                    sums[b, block].ctypes.data,
                    0,
                    0,
                )


@numba.njit(cache=True)
def first_layer(windows, weights, made):
    """Convolve, normalise and rectify in one pass.

    Args:
        windows: [B, H, W] float32.
        weights: [blocks, 10, LANES] float32, BatchNorm folded in.
        made: [B, rows, columns, blocks · LANES] float32; the result.
    """
    batch, height, width = windows.shape
    padded = np.zeros((height + 2, width + 2), np.float32)
    rows, count, pitch = (height + 1) // 2, (width + 1) // 2, 4 * (width + 2)
    for b in range(batch):
        _pad(windows[b], padded)
        for i in range(rows):
            for block in range(len(weights)):
                _row_write(
                    padded.ctypes.data + 2 * i * pitch,
                    pitch,
                    count,
                    weights[block].ctypes.data,
                    0,
                    made[b, i].ctypes.data + 4 * LANES * block,
                    4 * LANES * len(weights),
                )


@numba.njit(cache=True)
def first_layer_gradient(windows, weights, pull, sums):
    """The gradient of ``first_layer``'s weights; nothing was kept, channels are made again.

    Args:
        windows: [B, H, W] float32.
        weights: [blocks, 10, LANES] float32.
        pull: [B, rows, columns, blocks · LANES] float32, the gradient of what it made.
        sums: [blocks, 10, LANES] float64, zero; the result.
    """
    batch, height, width = windows.shape
    padded = np.zeros((height + 2, width + 2), np.float32)
    rows, count, pitch = (height + 1) // 2, (width + 1) // 2, 4 * (width + 2)
    for b in range(batch):
        _pad(windows[b], padded)
        for i in range(rows):
            for block in range(len(weights)):
                _row_pull(
                    padded.ctypes.data + 2 * i * pitch,
                    pitch,
                    count,
                    weights[block].ctypes.data,
                    sums[block].ctypes.data,
                    pull[b, i].ctypes.data + 4 * LANES * block,
                    4 * LANES * len(weights),
                )


@numba.njit(cache=True, fastmath={"reassoc", "contract"})
def patch_moments(windows, first, second):
    """Σ u and Σ u·uᵀ of all patches of all windows, in float64.

    Args:
        windows: [B, H, W] float32.
        first: [9], zero; the result.
        second: [9, 9], zero; the result.
    """
    batch, height, width = windows.shape
    count = (width + 1) // 2
    # Columns of equal parity side by side: each tap of a row is then a slice, and neighbouring
    # rows of the output share one line of it.
    lines = np.zeros((2 * height + 4) * (count + 1))
    for b in range(batch):
        for i in range(height):
            odd = (2 * i + 2) * (count + 1)
            even = odd + count + 1
            for j in range(width // 2):
                lines[even + j] = windows[b, i, 2 * j]
                lines[odd + j + 1] = windows[b, i, 2 * j + 1]
            if width % 2:
                lines[even + count - 1] = windows[b, i, width - 1]
        for i in range((height + 1) // 2):
            for k in range(9):
                start = (4 * i + 2 * (k // 3) + k % 3 % 2) * (count + 1) + k % 3 // 2
                one = lines[start : start + count]
                total = 0.0
                for j in range(count):
                    total += one[j]
                first[k] += total
                for m in range(k + 1):
                    start = (4 * i + 2 * (m // 3) + m % 3 % 2) * (count + 1) + m % 3 // 2
                    other = lines[start : start + count]
                    product = 0.0
                    for j in range(count):
                        product += one[j] * other[j]
                    second[k, m] += product
    for k in range(9):
        for m in range(k):
            second[m, k] = second[k, m]


# Below, activations are [B, positions · C], channels last, and what belongs to a channel is [TILE],
# repeated so that one step of the inner loop covers several positions.


@numba.njit(cache=True, fastmath={"contract"})
def channel_moments(values, pivot, first, second):
    """Σ (z − pivot) and Σ (z − pivot)², [TILE] float64; float32 within a window."""
    size = values.shape[1]
    one, two = np.empty(len(pivot), np.float32), np.empty(len(pivot), np.float32)
    for b in range(len(values)):
        one[:] = 0
        two[:] = 0
        for start in range(0, size, len(pivot)):
            part = values[b, start : start + len(pivot)]
            for c in range(len(part)):
                off = part[c] - pivot[c]
                one[c] += off
                two[c] += off * off
        for c in range(len(pivot)):
            first[c] += one[c]
            second[c] += two[c]


@numba.njit(cache=True, fastmath={"contract"})
def normalise(values, scale, shift, made):
    """relu(scale·z + shift); ``made`` may be ``values``."""
    size = values.shape[1]
    zero = np.float32(0)
    for b in range(len(values)):
        for start in range(0, size, len(scale)):
            part, out = values[b, start : start + len(scale)], made[b, start : start + len(scale)]
            for c in range(len(part)):
                value = part[c] * scale[c] + shift[c]
                out[c] = zero if value < zero else value


@numba.njit(cache=True, fastmath={"contract"})
def norm_sums(values, pull, scale, shift, mean, first, second):
    """Σ g and Σ g·(z − mean) where the channel is positive, [TILE] float64; g is ``pull``."""
    size = values.shape[1]
    zero = np.float32(0)
    one, two = np.empty(len(scale), np.float32), np.empty(len(scale), np.float32)
    for b in range(len(values)):
        one[:] = 0
        two[:] = 0
        for start in range(0, size, len(scale)):
            part, back = values[b, start : start + len(scale)], pull[b, start : start + len(scale)]
            for c in range(len(part)):
                value = part[c] * scale[c] + shift[c]
                gradient = zero if value <= zero else back[c]
                one[c] += gradient
                two[c] += gradient * (part[c] - mean[c])
        for c in range(len(scale)):
            first[c] += one[c]
            second[c] += two[c]


@numba.njit(cache=True, fastmath={"contract"})
def norm_gradient(values, pull, scale, shift, mean, offset, slope):
    """scale·g·1[positive] + offset + slope·(z − mean), written over ``pull``."""
    size = values.shape[1]
    zero = np.float32(0)
    for b in range(len(values)):
        for start in range(0, size, len(scale)):
            part, back = values[b, start : start + len(scale)], pull[b, start : start + len(scale)]
            for c in range(len(part)):
                value = part[c] * scale[c] + shift[c]
                gradient = zero if value <= zero else back[c] * scale[c]
                back[c] = gradient + offset[c] + slope[c] * (part[c] - mean[c])


@numba.njit(cache=True, fastmath={"contract"})
def rectified_pool(values, total):
    """Per window Σ relu(z), [B, TILE] float64; float32 within a window."""
    size, tile = values.shape[1], total.shape[1]
    zero = np.float32(0)
    one = np.empty(tile, np.float32)
    for b in range(len(values)):
        one[:] = 0
        for start in range(0, size, tile):
            part = values[b, start : start + tile]
            for c in range(len(part)):
                one[c] += zero if part[c] < zero else part[c]
        for c in range(tile):
            total[b, c] = one[c]


@numba.njit(cache=True, fastmath={"contract"})
def pooled_sums(values, scale, shift, mean, total, positive, distance):
    """Per window Σ relu(scale·z + shift), how often positive, and Σ (z − mean) there.

    The results are [B, TILE] float64: all that the backward pass needs to know of a window.
    """
    size = values.shape[1]
    zero, unit = np.float32(0), np.float32(1)
    one, two = np.empty(len(scale), np.float32), np.empty(len(scale), np.float32)
    three = np.empty(len(scale), np.float32)
    for b in range(len(values)):
        one[:] = 0
        two[:] = 0
        three[:] = 0
        for start in range(0, size, len(scale)):
            part = values[b, start : start + len(scale)]
            for c in range(len(part)):
                value = part[c] * scale[c] + shift[c]
                one[c] += zero if value <= zero else value
                two[c] += zero if value <= zero else unit
                three[c] += zero if value <= zero else part[c] - mean[c]
        for c in range(len(scale)):
            total[b, c] = one[c]
            positive[b, c] = two[c]
            distance[b, c] = three[c]


@numba.njit(cache=True, fastmath={"contract"})
def pooled_gradient(values, pull, scale, shift, mean, offset, slope, made):
    """As ``norm_gradient`` where g is one row a window, already times scale: [B, TILE]."""
    size = values.shape[1]
    zero = np.float32(0)
    for b in range(len(values)):
        for start in range(0, size, len(scale)):
            part, out = values[b, start : start + len(scale)], made[b, start : start + len(scale)]
            for c in range(len(part)):
                value = part[c] * scale[c] + shift[c]
                gradient = zero if value <= zero else pull[b, c]
                out[c] = gradient + offset[c] + slope[c] * (part[c] - mean[c])


@numba.njit(cache=True)
def mean_shares(windows, roots, feature, threshold, left, right, shares, made):
    """The class shares of the leaves that each window falls into, averaged over trees.

    Args:
        windows: [B, F] float32.
        roots: [trees] the first node of each tree.
        feature: [nodes] what a node asks for; below 0 it is a leaf.
        threshold: [nodes] float64; up to it a window goes left.
        left: [nodes] the next node; in a leaf the row of its shares.
        right: [nodes] the next node.
        shares: [leaves, C] float32.
        made: [B, C] float64, zero; the result.
    """
    for b in range(len(windows)):
        for tree in range(len(roots)):
            node = roots[tree]
            while feature[node] >= 0:
                small = windows[b, feature[node]] <= threshold[node]
                node = left[node] if small else right[node]
            for c in range(shares.shape[1]):
                made[b, c] += shares[left[node], c]
        for c in range(shares.shape[1]):
            made[b, c] /= len(roots)


@numba.njit(cache=True)
def norm_terms(first, second, number, pivot, gain, bias, epsilon, made, tiles):
    """BatchNorm's terms from the sums of ``channel_moments``.

    Args:
        first: Σ (z − pivot) [TILE].
        second: Σ (z − pivot)² [TILE].
        number: values in each channel.
        pivot: [C] float32.
        gain: γ [C] float32.
        bias: β [C] float32.
        epsilon: what is added to the variance.
        made: [5, C] float64; the result: mean, variance, 1 / deviation, scale and shift.
        tiles: [3, TILE] float32; the result: scale, shift and mean, repeated.
    """
    channels, tile = len(pivot), len(first)
    for c in range(channels):
        one, two = 0.0, 0.0
        for k in range(c, tile, channels):
            one += first[k]
            two += second[k]
        off = one / number
        variance = two / number - off * off
        variance = 0.0 if variance < 0.0 else variance
        mean = np.float64(pivot[c]) + off
        inverse = 1.0 / np.sqrt(variance + epsilon)
        scale = np.float64(gain[c]) * inverse
        shift = np.float64(bias[c]) - scale * mean
        made[0, c], made[1, c], made[2, c], made[3, c] = mean, variance, inverse, scale
        made[4, c] = shift
        for k in range(c, tile, channels):
            tiles[0, k], tiles[1, k], tiles[2, k] = scale, shift, mean


@numba.njit(cache=True)
def norm_gradient_terms(first, second, number, terms, gradients, tiles):
    """What ``norm_gradient`` needs of the sums of ``norm_sums``.

    Args:
        first: Σ g [TILE].
        second: Σ g · (z − mean) [TILE].
        number: values in each channel.
        terms: ``norm_terms`` [5, C].
        gradients: [2, C] float32; the result, of γ and of β.
        tiles: [2, TILE] float32; the result: offset and slope.
    """
    channels, tile = terms.shape[1], len(first)
    for c in range(channels):
        one, two = 0.0, 0.0
        for k in range(c, tile, channels):
            one += first[k]
            two += second[k]
        inverse, scale = terms[2, c], terms[3, c]
        two = two * inverse
        gradients[0, c], gradients[1, c] = two, one
        offset, slope = -scale * one / number, -scale * inverse * two / number
        for k in range(c, tile, channels):
            tiles[0, k], tiles[1, k] = offset, slope


# ---- a step of a dense net without autograd -----------------------------------------------------
# Arrays are [values], or as said; each loop gives the bits of the torch operations that it fuses:
# it rounds where they round, and multiplies and adds at once where they do.


def _fused(typing, one, other, added):
    """Gives one · other + added, rounded once, as torch's ``add`` with ``alpha`` does."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_FLOAT, [_FLOAT] * 3)
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.fma.f32")  # type: ignore[no-untyped-call]
        return builder.call(function, arguments)

    return types.float32(types.float32, types.float32, types.float32), emit


_multiply_add: Any = intrinsic(_fused)


@numba.njit(cache=True)
def descend(values, slopes, velocity, rate, decay, momentum, is_first):
    """One step of SGD in place: v ← momentum · v + (g + decay · w), w ← w − rate · v.

    Without momentum ``velocity`` stays as it is, without decay g is not touched. In a first step
    the old velocity is none, whatever stands there.
    """
    back = -rate
    for i in range(len(values)):
        slope = slopes[i]
        if decay != 0:
            slope = _multiply_add(values[i], decay, slope)
        if momentum != 0:
            if not is_first:
                slope = velocity[i] * momentum + slope
            velocity[i] = slope
        values[i] = _multiply_add(slope, back, values[i])


@numba.njit(cache=True)
def cut_and_kept(given, least, most, kept, factor, scale, made):
    """Numbers cut at both ends, some dropped, all scaled: hardtanh, dropout and ``Scale``."""
    for i in range(len(given)):
        value = given[i]
        value = least if value < least else value
        value = most if value > most else value
        made[i] = value * (kept[i] * factor) * scale


@numba.njit(cache=True)
def rectified(given, made):
    """Rectified: relu(z)."""
    zero = np.float32(0)
    for i in range(len(given)):
        made[i] = zero if given[i] < zero else given[i]


@numba.njit(cache=True)
def rectified_and_kept(given, kept, factor, made):
    """Rectified, and some of it dropped: ``kept`` is 0 or 1."""
    zero = np.float32(0)
    for i in range(len(given)):
        made[i] = (zero if given[i] < zero else given[i]) * (kept[i] * factor)


@numba.njit(cache=True)
def rectified_gradient(pull, given):
    """The gradient of ``rectified``, written over ``pull``."""
    zero = np.float32(0)
    for i in range(len(given)):
        pull[i] = zero if given[i] <= zero else pull[i]


@numba.njit(cache=True)
def rectified_and_kept_gradient(pull, given, kept, factor):
    """The gradient of ``rectified_and_kept``, written over ``pull``."""
    zero = np.float32(0)
    for i in range(len(given)):
        pull[i] = zero if given[i] <= zero else pull[i] * (kept[i] * factor)


@numba.njit(cache=True)
def added(pull, other):
    """The sum, written over ``pull``."""
    for i in range(len(pull)):
        pull[i] = pull[i] + other[i]


@numba.njit(cache=True)
def directions(vectors, length, shortest, made):
    """Vectors [rows, D] over their lengths [rows]; zero where one is too short to have any."""
    for row in range(len(vectors)):
        divisor = length[row] if length[row] > shortest else np.float32(np.inf)
        for k in range(vectors.shape[1]):
            made[row, k] = vectors[row, k] / divisor


@numba.njit(cache=True)
def tempered(scores, absent, temperature):
    """Cosines [rows, C] over τ in place, −∞ where a class is absent [C]."""
    for row in range(len(scores)):
        for c in range(scores.shape[1]):
            value = scores[row, c] / temperature
            scores[row, c] = np.float32(-np.inf) if absent[c] else value


@numba.njit(cache=True)
def untempered(pull, absent, temperature):
    """The gradient of ``tempered``, written over ``pull``."""
    for row in range(len(pull)):
        for c in range(pull.shape[1]):
            value = pull[row, c] / temperature
            pull[row, c] = np.float32(0) if absent[c] else value


@numba.njit(cache=True)
def likelihood(scores, labels, pulled, loss, pull):
    """Mean of −log p at the label, and its gradient; summed as torch sums it.

    Args:
        scores: [B · n, C] the logarithms of probabilities, n rows of each window.
        labels: [B].
        pulled: the gradient of the loss.
        loss: [1]; the result.
        pull: as ``scores``; the result.
    """
    levels = 8
    rows, repeats = len(scores), len(scores) // len(labels)
    width = 0
    while (1 << width) < rows:
        width += 1
    power = max(4, width // levels)
    mask = (1 << power) - 1
    slope = -(pulled / np.float32(rows))
    sums = np.zeros(levels, np.float32)
    for row in range(rows):
        label = labels[row // repeats]
        for c in range(scores.shape[1]):
            pull[row, c] = 0
        pull[row, label] = slope
        sums[0] -= scores[row, label]
        for level in range(levels - 1):
            if row & (mask << (level * power)):
                break
            sums[level + 1] += sums[level]
            sums[level] = 0
    total = np.float32(0)
    for level in range(levels):
        total += sums[level]
    loss[0] = total / np.float32(rows)


@numba.njit(cache=True)
def shared_likelihood(scores, labels, shares, slopes, losses, pull):
    """−log p at the label times the row's share, and the gradient of their sum.

    Args:
        scores: [B · n, C] the logarithms of probabilities, n rows of each window.
        labels: [B].
        shares: [n], how much each of a window's rows counts.
        slopes: [n], the gradient of −log p in each of them.
        losses: [B · n]; the result.
        pull: as ``scores``; the result.
    """
    repeats = len(shares)
    for row in range(len(scores)):
        label = labels[row // repeats]
        for c in range(scores.shape[1]):
            pull[row, c] = 0
        pull[row, label] = -slopes[row % repeats]
        losses[row] = shares[row % repeats] * -scores[row, label]


@numba.njit(cache=True)
def contrast_slopes(directions, pull, length, shortest, made):
    """−g · (u / |r|), whose sum over a row is what the length of r gets of the gradient g of u.

    Args:
        directions: u [rows, D].
        pull: g [kinds, rows, D] of each contrast.
        length: |r| [rows].
        shortest: below, r has no direction.
        made: as ``pull``; the result.
    """
    for kind in range(len(pull)):
        for row in range(len(directions)):
            divisor = length[row] if length[row] > shortest else np.float32(np.inf)
            for k in range(directions.shape[1]):
                made[kind, row, k] = -pull[kind, row, k] * (directions[row, k] / divisor)


@numba.njit(cache=True)
def contrast_gradient(directions, pull, sums, length, shortest, made):
    """The gradient of r from those of its directions, the last contrast first.

    Args:
        directions: u [rows, D].
        pull: g [kinds, rows, D].
        sums: [kinds, rows] of ``contrast_slopes``.
        length: |r| [rows].
        shortest: below, r has no direction.
        made: [rows, D]; the result.
    """
    for row in range(len(directions)):
        divisor = length[row] if length[row] > shortest else np.float32(np.inf)
        for kind in range(len(pull) - 1, -1, -1):
            share = sums[kind, row]
            for k in range(directions.shape[1]):
                value = pull[kind, row, k] / divisor
                if kind < len(pull) - 1:
                    value = made[row, k] + value
                made[row, k] = value + directions[row, k] * share
