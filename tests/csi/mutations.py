"""Mutated captures: any bytes give a Capture or a CaptureError, soon and in little memory.

Read whole, in chunks or as a stream, sound bytes give the same packets.
"""

import random
from functools import partial
from pathlib import Path

import numpy as np

from fedapa.csi.capture import Capture
from fedapa.csi.reading import CaptureStream, read_capture, read_chunks
from fedapa.errors import CaptureError
from tests.csi.capture_bytes import SEEDS
from tests.fuzz import Make, Subject, mutate


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
    return "refused" if whole is None else "read"


class Captures(Subject):
    """Files of one format."""

    def __init__(self, folder: Path, form: str) -> None:
        super().__init__(folder)
        self.seeds = SEEDS[form]
        self._others = [data for family in SEEDS.values() for data in family]
        self._path = folder / f"mutated-{form}.bin"

    def mutated(self, rng: random.Random) -> bytes:
        return mutate(rng.choice(self.seeds), rng, self._others)

    def attempt(self, data: bytes, rng: random.Random) -> str:
        return try_bytes(data, self._path, rng)


def subjects() -> dict[str, Make]:
    return {f"captures:{form}": partial(Captures, form=form) for form in sorted(SEEDS)}
