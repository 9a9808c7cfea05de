"""Counts of a capture file: the live counter on packets that are all there already."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from fedapa.errors import DataError
from fedapa.rooms.model_file import CountingModel
from fedapa.service.counter import Count, CounterSettings, LiveCounter, misfit
from fedapa.service.sources import CaptureFile, follow

__all__ = ["FileCounts", "count_file"]


@dataclass(frozen=True)
class FileCounts:
    """What was counted in a file."""

    counts: tuple[Count, ...]
    begin: float
    """s, the stamp of the first packet."""
    seconds: float
    """How long the recording is."""
    packets: int
    skipped: dict[str, int]
    """Frames and packets left out, by reason."""
    faulty: dict[str, int]
    """Windows of which nothing could be said, by reason."""

    def sentence(self) -> str:
        """The answer: how many people there were most of the time, and in all."""
        told = [count.count for count in self.counts if count.count is not None]
        least, most = min(told), max(told)
        usual, times = Counter(told).most_common(1)[0]
        minutes, seconds = divmod(round(self.seconds), 60)
        lasting = f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
        if least == most:
            answer = f"{_people(most)} all the time"
        else:
            share = 100 * times / len(told)
            answer = f"{least} to {most} people, {usual} most often ({share:.0f} % of the counts)"
        doubts = sum(count.state != "counting" for count in self.counts)
        unsure = f"; {doubts} of {len(self.counts)} counts are unsure" if doubts else ""
        return f"{answer}, in {lasting}{unsure}"


def _people(count: int) -> str:
    return "nobody" if count == 0 else "1 person" if count == 1 else f"{count} people"


def count_file(
    model: CountingModel,
    path: Path,
    *,
    settings: CounterSettings,
    chip: str | None = None,
) -> FileCounts:
    """Count the people of a capture file; raises where the model and the file do not fit."""
    source, counter = CaptureFile(path, paced=False, chip=chip), LiveCounter(model, settings)
    named = f"the model of room '{model.room}'"
    counts: list[Count] = []
    begin = end = 0.0
    for piece in follow(source):
        if not counter.packets:
            begin = float(piece.capture.timestamps[0])
            if fault := misfit(model, piece.capture):
                raise DataError(f"{path} and {named} do not fit: {fault}")
        counts += counter.feed(piece.capture, piece.received)
        end = piece.received
    counts += counter.finish()
    if counter.latest is None:
        raise DataError(f"{path}: {named} finds no window in it: {_missing(counter)}")
    first = next(place for place, count in enumerate(counts) if count.count is not None)
    return FileCounts(
        counts=tuple(counts[first:]),  # before the first window there is nothing to say
        begin=begin,
        seconds=end - begin,
        packets=counter.packets,
        skipped={**source.statistics.skipped, **counter.skipped, **counter.dropped},
        faulty=dict(counter.faulty),
    )


def _missing(counter: LiveCounter) -> str:
    """Why no window of a file could be counted, and a remedy."""
    faults = counter.faulty.most_common(1)
    recipe = counter.model.recipe
    lasting = "" if recipe.window_seconds is None else f" ({recipe.window_seconds:.3g} s)"
    if faults and not faults[0][0].startswith("cut off"):
        return faults[0][0]
    gaps = f", cut by {counter.faulty.total()} gaps" if counter.faulty else ""
    return (
        f"{counter.packets} packets{gaps}, a window has {recipe.window}{lasting}; give a longer "
        "capture"
    )
