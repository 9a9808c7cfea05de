"""``fedapa calibrate``: a guide that collects labelled takes of a new room, the empty one first."""

import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedapa.cli.options import Json
from fedapa.cli.output import print_json, print_out
from fedapa.errors import DataError, FedapaError, PlanError

if TYPE_CHECKING:
    from fedapa.service.calibration import Calibration, CalibrationSettings, Outcome, Step
    from fedapa.service.room_quality import Quality
    from fedapa.service.sources import Source
    from fedapa.service.stillness import Stillness

__all__ = ["calibrate"]

_PAUSE = 0.05
"""s between two looks at a source."""
_MARKS = "▁▂▃▄▅▆▇█"
_PLAIN_MARKS = ".:-=+*#@"
_MOST_MARKS = 60
"""Of a plot; more seconds are drawn together."""
_DRAINED = 100
"""Looks at a source that empty what waited in it before a take."""


def calibrate(
    room: Annotated[str, typer.Argument(help="The name of the new room.")],
    source: Annotated[
        str | None,
        typer.Option(
            help="Where packets come from: udp[:[ADDRESS:]PORT], serial:DEVICE, tcp:HOST:PORT, or "
            "simulator[:PRESET] (SIMULATED, as fast as can be; ROOM is one of its rooms).",
        ),
    ] = None,
    capture: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COUNT=FILE", help="A finished take instead of a source; once for each."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The store to make or to add to; default: ROOM.h5.")
    ] = None,
    counts: Annotated[
        str, typer.Option(help="Numbers of people, in this order; the empty room is first.")
    ] = "0,1,2,3",
    takes: Annotated[int, typer.Option(help="Of each count on a day.")] = 2,
    seconds: Annotated[float, typer.Option(help="How long a take is.")] = 30.0,
    delay: Annotated[
        float, typer.Option(help="Seconds from ENTER to the take, to leave the room in.")
    ] = 10.0,
    day: Annotated[
        str | None, typer.Option(help="What the store calls the day; default: today's date.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not wait for ENTER; a refused take ends it.")
    ] = False,
    keep_moving: Annotated[
        bool,
        typer.Option(
            "--keep-moving",
            help="Keep an empty room in which something moved; the store says that it did.",
        ),
    ] = False,
    margin: Annotated[
        float,
        typer.Option(help="By how much the empty room may be above the noise floor, at least."),
    ] = 0.15,
    least_rate: Annotated[
        float, typer.Option(help="Packets per second that a take needs, at least.")
    ] = 20.0,
    timeout: Annotated[
        float, typer.Option(help="Seconds without a packet, until the source has stopped.")
    ] = 10.0,
    seed: Annotated[int, typer.Option(help="Of the simulator.")] = 0,
    chip: Annotated[
        str | None, typer.Option(help="Of Nexmon packets that do not tell it, e.g. 4358.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Collect labelled takes of a new room: an empty one first, then a few counts.

    It says what to do, refuses an empty room in which something moves, and tells after every count
    how good the room is by now. What is finished is kept: the same command goes on.

    Example: fedapa calibrate kitchen --source udp:5500

    fedapa calibrate kitchen --capture 0=empty.pcap --capture 1=one.pcap
    """
    from fedapa.service.calibration import Calibration, CalibrationSettings, known_room

    settings = CalibrationSettings(
        counts=_counts(counts),
        takes=takes,
        seconds=seconds,
        margin=margin,
        keep_moving=keep_moving,
        least_rate=least_rate,
        timeout=timeout,
    )
    store = out or Path(f"{room}.h5")
    today = day or time.strftime("%Y-%m-%d")
    known = known_room(store, room)
    if (source is None) == (not capture):
        raise PlanError(
            "say where packets come from: --source udp:5500 and the like, or --capture COUNT=FILE "
            "once for each take; one of the two"
        )
    files = sorted((_labelled(text) for text in capture or []), key=lambda take: take[0] > 0)
    calibration = Calibration(
        room, settings, day=today, known=known, order=[count for count, _ in files] or None
    )
    guide = _Guide(calibration, store, print_out if not as_json else _to_stderr)
    if known.takes:
        guide.say(f"{store} has {len(known.takes)} takes of room '{room}'; new ones are added.")
    days = len({told for _, told in known.takes} - {today})
    try:
        if source is None:
            guide.take_files([path for _, path in files], chip)
        else:
            with _opened(source, room, settings, seed=seed, chip=chip, days=days) as opener:
                guide.take_live(opener, delay=delay, yes=yes)
    except KeyboardInterrupt:
        guide.say(f"Stopped. {guide.kept()}; the same command goes on.")
        raise typer.Exit(130) from None
    except FedapaError as error:
        raise type(error)(f"{error} ({guide.kept()})") from error
    if as_json:
        print_json(guide.summary())
    elif guide.saved or known.takes:
        guide.say_end()


def _counts(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise PlanError(
            f"--counts {text}: write numbers of people with commas between, e.g. 0,1,2,3"
        ) from None


def _labelled(text: str) -> tuple[int, Path]:
    count, equals, path = text.partition("=")
    if not equals or not count.isascii() or not count.isdigit() or not path:
        raise PlanError(f"--capture {text}: write COUNT=FILE, e.g. 0=empty.pcap")
    return int(count), Path(path)


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")


# ---- sources ------------------------------------------------------------------------------------

_Opener = Callable[["Step"], "Source"]


@contextmanager
def _opened(
    text: str,
    room: str,
    settings: "CalibrationSettings",
    *,
    seed: int,
    chip: str | None,
    days: int,
) -> Iterator[_Opener]:
    """What gives the source of a take: a receiver's is one and the same, a simulated one is new."""
    from fedapa.service.calibration import Step
    from fedapa.service.sources import Esp32Serial, Esp32Tcp, NexmonUdp, SimulatedStay, Source
    from fedapa.service.spelling import spelled

    asked = spelled(text)
    if asked.kind == "file":
        raise PlanError(
            f"--source {text}: of a file say how many it shows: --capture 0={asked.place}"
        )
    if asked.kind == "simulator":

        def stay(step: "Step") -> Source:
            return SimulatedStay(
                room,
                step.count,
                preset=asked.place or "quick",
                seed=seed,
                day=days,
                number=step.number,
                seconds=settings.seconds + 2,
                paced=False,
            )

        # A room that there is none of, or that is too small, is told before anybody waits.
        stay(Step(max(settings.counts), 0, settings.takes)).close()
        yield stay
        return
    receiver: Source
    if asked.kind == "udp":
        receiver = NexmonUdp(asked.port, address=asked.place, chip=chip)
    elif asked.kind == "tcp":
        receiver = Esp32Tcp(asked.place, asked.port)
    else:
        receiver = Esp32Serial(asked.place)
    with receiver:
        yield lambda step: receiver


# ---- the guide ----------------------------------------------------------------------------------


@dataclass
class _Guide:
    """Says what to do, shows how it goes, saves what is kept."""

    calibration: "Calibration"
    store: Path
    say: Callable[[str], None]
    saved: list[dict[str, Any]] = field(default_factory=list)
    quality: "Quality | None" = None

    def take_live(self, opener: _Opener, *, delay: float, yes: bool) -> None:
        """All takes that are asked for, or those until the owner has enough."""
        calibration, total = self.calibration, self.calibration.left
        while (step := calibration.step) is not None:
            self.say(f"\n{_instruction(step, calibration.settings.seconds, total)}")
            if not yes and not _go_on("ENTER begins the take, q stops: "):
                self.say(f"Stopped. {self.kept()}; the same command goes on.")
                return
            source = opener(step)
            outcome = self._collect(source, 0.0 if source.synthetic else delay)
            if not self._settled(outcome, yes=yes) and yes:
                raise DataError(outcome.sentence)

    def take_files(self, paths: list[Path], chip: str | None) -> None:
        """Each file is a take."""
        from fedapa.service.calibration import capture_take

        for path in paths:
            capture, notes = capture_take(path, chip)
            step = self.calibration.step
            assert step is not None  # as many as there are files
            self.say(f"\n{path}: {_people(step.count)}")
            outcome = self.calibration.add(capture, notes)
            if not self._settled(outcome, yes=True):
                raise DataError(f"{path}: {outcome.sentence}")

    def _settled(self, outcome: "Outcome", *, yes: bool) -> bool:
        """Save a take that is kept; show why one is not. Whether it is kept."""
        if outcome.take is None and outcome.moved and outcome.stillness is not None:
            self.say(_plot(outcome.stillness))
        if outcome.take is None and not yes:
            self.say(f"Refused: {outcome.sentence}.")
            if outcome.moved and _answer("ENTER to go on, or write 'keep': ") == "keep":
                outcome = self.calibration.keep()
        if outcome.take is None:
            return False
        self._save(outcome)
        return True

    def _save(self, outcome: "Outcome") -> None:
        from fedapa.service.calibration import save_take
        from fedapa.service.room_quality import room_quality

        take = outcome.take
        assert take is not None
        save_take(self.store, self.calibration.room, take)
        self.saved.append(
            {
                "count": take.count,
                "day": take.day,
                "name": take.name,
                "packets": take.capture.packets,
                "seconds": take.seconds,
                "rate": take.rate,
                **{key: value for key, value in take.notes.items() if key != "content"},
            }
        )
        stop = "" if outcome.sentence.endswith("?") else "."
        self.say(f"Take of {_people(take.count)} {outcome.sentence}{stop}")
        self.quality = room_quality(self.store, self.calibration.room)
        self.say(f"The room by now: {self.quality.sentence()}.")

    def _collect(self, source: "Source", delay: float) -> "Outcome":
        """One take from a source that is open."""
        calibration = self.calibration
        if not source.synthetic:
            for _ in range(_DRAINED):  # what came while nobody looked is of no take
                if not source.poll(time.time()):
                    break
        with _shown(calibration.settings.seconds) as show:
            began = time.monotonic()
            while (waited := time.monotonic() - began) < delay:
                source.poll(time.time())
                show(0.0, f"begins in {delay - waited:.0f} s")
                time.sleep(_PAUSE)
            calibration.begin(time.monotonic())
            while True:
                pieces = source.poll(time.time())
                for piece in pieces:
                    if (outcome := calibration.feed(piece.capture, time.monotonic())) is not None:
                        return outcome
                lasted, packets = calibration.progress
                rate = f"{packets / lasted:.0f} packets per second" if lasted > 0 else "no packets"
                show(lasted, source.statistics.problem or rate)
                outcome = calibration.end() if source.ended else calibration.tick(time.monotonic())
                if outcome is not None:
                    return outcome
                if not pieces:
                    time.sleep(_PAUSE)

    # ---- what is told at the end ----

    def kept(self) -> str:
        """What is in the store, in words."""
        if not self.saved:
            return "no take was added"
        takes = "1 finished take is" if len(self.saved) == 1 else f"{len(self.saved)} takes are"
        return f"{takes} kept in {self.store}"

    def summary(self) -> dict[str, Any]:
        """For scripts."""
        quality = self.quality
        told: dict[str, Any] = {
            "out": str(self.store),
            "room": self.calibration.room,
            "takes": self.saved,
            "left": self.calibration.left,
        }
        if quality is not None:
            told["quality"] = {
                "sentence": quality.sentence(),
                "too_few": quality.too_few,
                "takes": {str(count): number for count, number in quality.takes.items()},
                "windows": quality.windows,
                "curve": [
                    {"takes": one.takes, "accuracy": one.accuracy, "mae": one.mae}
                    for one in quality.curve
                ],
                "floor": {
                    "answer": quality.commonest,
                    "accuracy": quality.floor_accuracy,
                    "mae": quality.floor_mae,
                },
            }
        return told

    def say_end(self) -> None:
        """What there is, and what to do with it."""
        from fedapa.csi.capture import data_kind
        from fedapa.stores.store import Store

        with Store(self.store) as store:
            recordings = store.recordings(self.calibration.room)
        by_count = Counter(one.label for one in recordings if isinstance(one.label, int))
        told = ", ".join(f"{times} of {count}" for count, times in sorted(by_count.items()))
        kind = data_kind(recordings[0].synthetic)
        self.say(f"\nStore: {self.store}: room '{self.calibration.room}', takes: {told}; {kind}")
        data = f"--data {shlex.quote(str(self.store))}"
        self.say(
            f"Next: fedapa run {data}, or fedapa join RUN {data} with a finished federation, or "
            f"fedapa room start … {data} in one that runs"
        )


def _people(count: int) -> str:
    return {0: "the empty room", 1: "1 person"}.get(count, f"{count} people")


def _instruction(step: "Step", seconds: float, total: int) -> str:
    """What to do now."""
    which = f"take {step.number + 1} of {step.of}" if step.of > 1 else "one take"
    if step.count == 0:
        return (
            f"The empty room, {which}: everybody leaves, doors shut, fans off. For {seconds:g} s "
            "nothing may move in it."
        )
    stay = "stays" if step.count == 1 else "stay"
    other = "" if step.number == 0 else " Sit and stand in other places than before."
    return (
        f"{_people(step.count)[0].upper()}{_people(step.count)[1:]}, {which}: {stay} in the room "
        f"for {seconds:g} s, as usual: sitting, standing, walking.{other}"
    )


def _answer(question: str) -> str:
    """What the owner types; raises where nobody can."""
    sys.stderr.write(question)
    sys.stderr.flush()
    line = sys.stdin.readline() if sys.stdin is not None else ""
    if not line:
        sys.stderr.write("\n")
        raise PlanError(
            "nobody answers: the input has ended; start it in a terminal, or with --yes, which "
            "does not wait for ENTER"
        )
    return line.strip().lower()


def _go_on(question: str) -> bool:
    return _answer(question) not in ("q", "quit", "stop")


def _plot(stillness: "Stillness") -> str:
    """How much moved in every second, as a line of marks, and where that was too much."""
    import numpy as np

    encoding = (sys.stdout.encoding or "ascii").lower()
    marks = _MARKS if encoding.startswith("utf") else _PLAIN_MARKS
    levels, together = stillness.levels, 1
    if len(levels) > _MOST_MARKS:
        together = -(-len(levels) // _MOST_MARKS)
        padded = np.pad(levels, (0, -len(levels) % together), mode="edge")
        levels = padded.reshape(-1, together).max(axis=1)
    top = max(float(levels.max()), 2 * stillness.sudden)
    share = np.log(np.maximum(levels, 1.0)) / np.log(top)
    line = "".join(marks[min(len(marks) - 1, int(one * len(marks)))] for one in share)
    under = "".join("^" if level > stillness.sudden else " " for level in levels)
    every = "a second" if together == 1 else f"{together} s"
    drawn = f"  {line}  motion, {every} a mark, from 1 to {top:.3g} times the noise floor"
    if "^" in under:
        drawn += f"\n  {under.rstrip()}  above the limit of {stillness.sudden:.1f}"
    return drawn


_ShowTake = Callable[[float, str], None]


@contextmanager
def _shown(seconds: float) -> Iterator[_ShowTake]:
    """How far a take is: a bar on a terminal, nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, note: None
        return
    left, note = TextColumn("{task.fields[left]}"), TextColumn("{task.fields[note]}", markup=False)
    with Progress(BarColumn(), left, note, console=console, transient=True) as shown:
        task = shown.add_task("", total=seconds, left="", note="")

        def show(done: float, note: str) -> None:
            remaining = f"{max(0.0, seconds - done):.0f} s left"
            shown.update(task, completed=min(done, seconds), left=remaining, note=note)

        yield show
