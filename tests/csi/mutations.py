"""The mutation run: any bytes give a Capture or a CaptureError, soon and in little memory.

Read whole, in chunks or as a stream, sound bytes give the same packets.

``make fuzz`` runs it over every format; the tests run a few thousand inputs of it.
"""

import argparse
import random
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedapa.csi.capture import Capture
from fedapa.csi.reading import CaptureStream, read_capture, read_chunks
from fedapa.errors import CaptureError
from tests.csi.capture_bytes import SEEDS

_NUMBERS = (0, 1, 2, 3, 4, 7, 8, 15, 16, 127, 128, 255, 256, 1000, 32767, 32768, 65535)
_WIDE = (0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 100_000, 262_144, 262_145, 1 << 24)
_SECONDS = 5.0
_MEMORY = 64 << 20


def mutate(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """A few random changes of the kinds that damaged and hostile files show."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        if not out:
            break
        at = rng.randrange(len(out))
        kind = rng.randrange(9)
        if kind == 0:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            out[at] = rng.choice((0, 1, 127, 128, 255, ord(","), ord("\n"), ord("["), ord("-")))
        elif kind == 2:
            size = rng.choice((2, 4))
            number = rng.choice(_NUMBERS if size == 2 else _NUMBERS + _WIDE)
            out[at : at + size] = number.to_bytes(size, rng.choice(("little", "big")))
        elif kind == 3:
            del out[at:]
        elif kind == 4:
            del out[at : at + rng.choice((1, 2, 4, 16, 100))]
        elif kind == 5:
            out[at:at] = rng.randbytes(rng.choice((1, 2, 4, 16, 100)))
        elif kind == 6:
            out[at:at] = out[max(0, at - rng.randrange(400)) : at]
        elif kind == 7:
            other = rng.choice(others)
            cut = rng.randrange(len(other))
            out[at:] = other[cut:]
        else:
            # The first bytes decide most: change them more often than chance would.
            out[rng.randrange(min(64, len(out)))] = rng.randrange(256)
    return bytes(out)


def check_capture(capture: Capture) -> None:
    """What every capture promises."""
    packets, subcarriers, rx, tx = capture.csi.shape
    assert packets > 0 and subcarriers > 0 and rx > 0 and tx > 0
    assert capture.csi.dtype == np.complex64
    assert np.isfinite(capture.csi).all()
    assert capture.timestamps.shape == capture.rssi.shape == (packets,)
    assert np.isfinite(capture.timestamps).all()
    assert capture.subcarriers.shape == (subcarriers,)
    assert (np.diff(capture.subcarriers) > 0).all()
    assert all(count > 0 for count in capture.skipped.values())


def check_equal(parts: list[Capture], whole: Capture) -> None:
    """What was read in parts is what was read at once."""
    for name in ("csi", "timestamps", "rssi"):
        together = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_array_equal(together, getattr(whole, name), name)


def of_kind(captures: list[Capture], whole: Capture) -> list[Capture]:
    """The parts that are like the capture that was read whole; a stream gives the others too."""
    return [
        each
        for each in captures
        if (each.device, each.bandwidth, each.csi.shape[1:], each.synthetic)
        == (whole.device, whole.bandwidth, whole.csi.shape[1:], whole.synthetic)
    ]


def try_bytes(data: bytes, path: Path, rng: random.Random) -> str:
    """Read bytes in each way there is; returns what came of it."""
    path.write_bytes(data)
    whole = None
    try:
        whole = read_capture(path)
        check_capture(whole)
    except CaptureError as error:
        assert path.name in str(error), error
    way = rng.randrange(3)
    parts: list[Capture] = []
    try:
        if way == 0:
            check_capture(read_capture(path, salvage=True))
        elif way == 1:
            parts = list(read_chunks(path, size=rng.choice((100, 1000, 10_000))))
        else:
            stream = CaptureStream(path.name)
            at = 0
            while at < len(data):
                size = rng.choice((1, 50, 700, 5000)) if len(data) < 10_000 else 5000
                parts += stream.feed(data[at : at + size])
                at += size
            parts += stream.finish()
    except CaptureError:
        parts = []
    for part in parts:
        check_capture(part)
    if whole is not None and parts:
        alike = of_kind(parts, whole)
        # A Nexmon chip that the frames do not tell is inferred from the bytes that came first,
        # and a stream does not tell kinds apart that differ in the antennas' names alone.
        inferred = not alike and whole.device.startswith("nexmon")
        mixed = way == 2 and any("where most are" in reason for reason in whole.skipped)
        if not inferred and not mixed:
            check_equal(alike, whole)
    return "error" if whole is None else "capture"


@dataclass
class Outcome:
    """What a run over one format came to."""

    counts: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    """Seconds that one input took at most."""
    grown: int = 0
    """Bytes by which memory grew over all inputs."""


def run(form: str, inputs: int, seed: int, folder: Path) -> Outcome:
    """Mutate sound files of one format; an input that breaks a promise raises, and is kept."""
    rng = random.Random(f"{form} {seed}")
    seeds = SEEDS[form]
    others = [data for family in SEEDS.values() for data in family]
    outcome = Outcome()
    path = folder / f"mutated-{form}.bin"
    for data in seeds:
        assert try_bytes(data, path, rng) == "capture"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for number in range(inputs):
        data = mutate(rng.choice(seeds), rng, others)
        began = time.monotonic()
        try:
            outcome.counts[try_bytes(data, path, rng)] += 1
        except BaseException as error:
            error.add_note(f"{form}: input {number} of seed {seed}; kept as {path}")
            raise
        outcome.slowest = max(outcome.slowest, time.monotonic() - began)
        assert outcome.slowest < _SECONDS, f"{path}: took too long"
        outcome.grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        assert outcome.grown < _MEMORY + 10 * len(data), f"{path}: took {outcome.grown >> 20} MB"
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000, help="per format")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("formats", nargs="*", default=sorted(SEEDS))
    options = parser.parse_args()
    for form in options.formats or sorted(SEEDS):
        began = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix="fedapa-fuzz-"))
        outcome = run(form, options.inputs, options.seed, folder)
        shutil.rmtree(folder)  # only now: a breaking input is kept
        sys.stdout.write(
            f"{form}: {options.inputs} inputs, {outcome.counts['capture']} captures, "
            f"{outcome.counts['error']} errors, no crash, {time.monotonic() - began:.0f} s, "
            f"slowest {outcome.slowest:.2f} s, memory grown by {outcome.grown / 2**20:.1f} MB\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
