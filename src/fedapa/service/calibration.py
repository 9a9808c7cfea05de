"""Calibration: labelled takes of a new room, an empty one first, each judged before it is kept.

A state machine that prints nothing and asks no clock: whoever guides the owner says when a take
begins, hands packets on as they come, and is told what became of the take::

    calibration = Calibration("kitchen", CalibrationSettings(), day="2026-03-01")
    while (step := calibration.step) is not None:
        calibration.begin(now)
        while (outcome := calibration.feed(capture, now)) is None: ...
        if outcome.take is not None:
            save_take(store, "kitchen", outcome.take)

A take that is refused is asked for again: ``step`` stays. Nobody's count is guessed: what a take
shows is what the owner says, and only an empty room can contradict that, by moving.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fedapa.csi.capture import Capture, data_kind, packet_rates
from fedapa.csi.reading import read_capture
from fedapa.errors import DataError, PlanError
from fedapa.files import readable
from fedapa.service.stillness import FEWEST_SECONDS, MARGIN, Stillness, still
from fedapa.stores.append import StoreAppender, append_store
from fedapa.stores.imported.earlier import identity, imported_before, refuse_second_label
from fedapa.stores.imported.sources import Source as FileSource
from fedapa.stores.store import Store
from fedapa.windows.clean import Cleaner, kept_places
from fedapa.windows.labels import check_name
from fedapa.windows.recipe import Recipe

__all__ = [
    "Calibration",
    "CalibrationSettings",
    "KnownRoom",
    "Outcome",
    "Step",
    "Take",
    "capture_take",
    "known_room",
    "save_take",
]

_SHORTEST = 4.0
"""s of a take with people: one window."""
_LONGEST_GAP = 1.0
"""s without a packet that a take may have."""
_SET_BACK = 0.5
"""s by which packets may be out of order."""
_UNSTEADY = 0.1
"""Share of the seconds that may have less than half of the usual packets."""
_OTHER_RATE = 0.2
"""Share by which the packet rate of a take may differ from that of the room's others."""
_MOST_SECONDS = 3600.0


@dataclass(frozen=True, kw_only=True)
class CalibrationSettings:
    """What is asked of the owner, and of the packets."""

    counts: tuple[int, ...] = (0, 1, 2, 3)
    """Numbers of people, in the order in which they are asked for; 0 first."""
    takes: int = 2
    """Of each count on a day."""
    seconds: float = 30.0
    """How long a take is."""
    timeout: float = 10.0
    """s without a packet, after which the source has stopped."""
    least_rate: float = 20.0
    """Packets per second; with fewer, steps of a walker look like noise."""
    margin: float = MARGIN
    """By how much an empty room may be above the noise floor, at least."""
    keep_moving: bool = False
    """Keep an empty room in which something moved, and say so in the store."""

    def __post_init__(self) -> None:
        if not self.counts or len(set(self.counts)) != len(self.counts) or min(self.counts) < 0:
            raise PlanError(
                f"counts = {list(self.counts)}; list numbers of people, each once, e.g. 0,1,2,3"
            )
        if self.takes < 1:
            raise PlanError(f"takes = {self.takes}; at least 1 of every count is needed")
        least = (FEWEST_SECONDS if 0 in self.counts else _SHORTEST) + 1  # a packet may be lost
        if not least <= self.seconds <= _MOST_SECONDS:
            raise PlanError(
                f"seconds = {self.seconds:g}; choose {least:g} to {_MOST_SECONDS:g}: whether "
                "anything moves, and how, is not seen in less"
            )
        for name, usual in (("margin", MARGIN), ("least_rate", 20), ("timeout", 10)):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise PlanError(f"{name} = {value:g}; choose a number above 0, e.g. {usual:g}")


@dataclass(frozen=True)
class Receiver:
    """Who sends packets: a room has one."""

    device: str
    bandwidth: int
    subcarriers: tuple[int, ...]
    """Those that are kept."""
    links: int
    synthetic: bool

    @classmethod
    def of(cls, capture: Capture) -> "Receiver":
        """The receiver of a capture."""
        return cls(
            device=capture.device,
            bandwidth=capture.bandwidth,
            subcarriers=tuple(capture.subcarriers[kept_places(capture, None)].tolist()),
            links=math.prod(capture.csi.shape[2:]),
            synthetic=capture.synthetic,
        )

    def other_than(self, before: "Receiver") -> str:
        """How it differs, in words; nothing where it does not."""
        for what, mine, theirs in (
            ("receiver", self.device, before.device),
            ("bandwidth in MHz", self.bandwidth, before.bandwidth),
            ("number of links", self.links, before.links),
            ("number of subcarriers", len(self.subcarriers), len(before.subcarriers)),
            ("subcarriers", self.subcarriers, before.subcarriers),
            ("data", data_kind(self.synthetic), data_kind(before.synthetic)),
        ):
            if mine != theirs:
                return f"{what} {mine}, before it was {theirs}"
        return ""


@dataclass(frozen=True)
class KnownRoom:
    """What a store holds of a room already."""

    takes: tuple[tuple[int, str], ...] = ()
    """Count and day of each recording that has a count."""
    receiver: Receiver | None = None
    """None: there is no such room yet."""
    rate: float | None = None
    """Packets per second of its recordings, in the median."""


@dataclass(frozen=True)
class Step:
    """A take that is asked for."""

    count: int
    number: int
    """Which take of that count on that day, from 0."""
    of: int
    """How many takes of every count."""


@dataclass(frozen=True, eq=False)
class Take:
    """One recording of a known number of people."""

    count: int
    day: str
    name: str
    capture: Capture
    seconds: float
    rate: float
    """Packets per second, gaps and all."""
    stillness: Stillness | None
    """None where the take is too short to tell."""
    notes: Mapping[str, str | float | bool] = field(default_factory=dict)
    """What the store keeps beside label and day."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of a take."""

    step: Step
    sentence: str
    """What happened, and where it is refused what to do."""
    take: Take | None = None
    """To be saved; None: refused."""
    stillness: Stillness | None = None
    """The evidence, where there is one."""
    moved: bool = False
    """Refused because an empty room moved; ``Calibration.keep`` keeps it nevertheless."""


class Calibration:
    """Asks for takes, collects their packets, judges them."""

    def __init__(
        self,
        room: str,
        settings: CalibrationSettings,
        *,
        day: str,
        known: KnownRoom | None = None,
        order: Sequence[int] | None = None,
    ) -> None:
        """A calibration of a room.

        Args:
            room: its name in the store.
            settings: what is asked for.
            day: what the store calls today.
            known: what the store has of the room; takes of this day are not asked for again.
            order: instead of the settings' counts and takes, the count of each take in turn.
        """
        self.room = check_name(room, "room")
        self.settings = settings
        self.day = day
        known = known or KnownRoom()
        made = Counter(count for count, told in known.takes if told == day)
        self._steps = _steps_of(order, made) if order else _rounds_of(settings, made)
        has_empty = any(count == 0 for count, _ in known.takes)
        if self._steps and self._steps[0].count and not has_empty:
            raise PlanError(
                f"room '{room}' has no take of the empty room yet, and it comes first; put 0 "
                "before the other counts"
            )
        self._receiver, self._rate = known.receiver, known.rate
        self._pieces: list[Capture] | None = None
        self._heard = 0.0
        self._heard_receiver: Receiver | None = None
        """Of the take that has begun."""
        self._since, self._until = math.inf, -math.inf
        self._refused: Take | None = None

    @property
    def step(self) -> Step | None:
        """The take that is asked for now; None: all are there."""
        return self._steps[0] if self._steps else None

    @property
    def left(self) -> int:
        """Takes that are still asked for."""
        return len(self._steps)

    @property
    def taking(self) -> bool:
        """Whether a take has begun and not ended."""
        return self._pieces is not None

    def begin(self, now: float) -> None:
        """A take begins: packets from now on are of it."""
        if self.step is None:
            raise PlanError(f"room '{self.room}': all takes are there; ask for more")
        self._pieces, self._heard, self._refused = [], now, None
        self._since, self._until, self._heard_receiver = math.inf, -math.inf, None

    @property
    def progress(self) -> tuple[float, int]:
        """Seconds and packets of the take so far."""
        if not self._pieces:
            return 0.0, 0
        return self._until - self._since, sum(piece.packets for piece in self._pieces)

    def feed(self, capture: Capture, now: float) -> Outcome | None:
        """Packets that came; the outcome with the last of a take."""
        if self._pieces is None or not capture.packets:
            return None
        self._heard = now
        told = Receiver.of(capture)
        before = self._receiver or self._heard_receiver or told
        if other := told.other_than(before):
            return self._refuse(
                f"the receiver changed: {other}; a room has one receiver: set it as it was, or "
                "calibrate another room in another store"
            )
        self._pieces.append(capture)
        self._heard_receiver = told
        stamps = capture.timestamps
        self._since = min(self._since, float(stamps.min()))
        self._until = max(self._until, float(stamps.max()))
        if self._until - self._since < self.settings.seconds:
            return None
        whole = Capture.joined(self._pieces)
        until = self._since + self.settings.seconds
        return self._judge(whole.part(np.flatnonzero(whole.timestamps <= until)))

    def tick(self, now: float) -> Outcome | None:
        """Time passed; the outcome where the source has stopped."""
        if self._pieces is None or now - self._heard < self.settings.timeout:
            return None
        lasted, packets = self.progress
        after = f" after {lasted:.1f} s of {self.settings.seconds:g}" if packets else ""
        return self._refuse(
            f"no packets for {self.settings.timeout:g} s{after}: the source stopped; see that the "
            "sender sends and the receiver is on, then take it again"
        )

    def end(self) -> Outcome | None:
        """The source has ended."""
        if self._pieces is None:
            return None
        lasted, packets = self.progress
        return self._refuse(
            f"the source ended after {lasted:.1f} s of {self.settings.seconds:g} and {packets} "
            "packets; give one that lasts, or shorter takes"
        )

    def add(self, capture: Capture, notes: Mapping[str, str]) -> Outcome:
        """A whole take at once, as a capture file has it, however long it is."""
        if self.step is None:
            raise PlanError(f"room '{self.room}': all takes are there; ask for more")
        before = self._receiver
        self._pieces, self._refused = [], None
        if before is not None and (other := Receiver.of(capture).other_than(before)):
            return self._refuse(
                f"the receiver changed: {other}; a room has one receiver: give a capture of that "
                "one, or calibrate another room in another store"
            )
        return self._judge(capture, notes)

    def keep(self) -> Outcome:
        """Keep the empty take that was refused because something moved; the store will say so."""
        take = self._refused
        if take is None:
            raise PlanError(f"room '{self.room}': no take was refused because something moved")
        return self._keep(replace(take, notes={**take.notes, "kept_despite_motion": True}))

    # ---- judging --------------------------------------------------------------------------------

    def _refuse(self, sentence: str, **told: object) -> Outcome:
        self._pieces = None
        assert self.step is not None
        return Outcome(self.step, sentence, **told)  # type: ignore[arg-type]

    def _judge(self, capture: Capture, notes: Mapping[str, str] | None = None) -> Outcome:
        step = self.step
        assert step is not None
        lasted = float(capture.timestamps.max() - capture.timestamps.min())
        least = FEWEST_SECONDS if step.count == 0 else _SHORTEST
        if lasted < least:
            return self._refuse(
                f"the take is {lasted:.1f} s long; {_whom(step.count)} needs at least {least:g} s: "
                "take a longer one"
            )
        if fault := self._rate_fault(capture, lasted):
            return self._refuse(fault)
        stillness: Stillness | None = None
        try:
            stillness = still(capture, margin=self.settings.margin)
        except DataError as error:
            if step.count == 0:
                return self._refuse(f"{error}; take a longer one, with more packets per second")
        take = Take(
            count=step.count,
            day=self.day,
            name=f"people {step.count:02d} day {self.day} take {step.number}",
            capture=capture,
            seconds=lasted,
            rate=packet_rates(capture.timestamps)[1],
            stillness=stillness,
            notes=dict(notes or {}),
        )
        if stillness is not None:
            noted = {"motion_level": stillness.level, "motion_limit": stillness.limit}
            take = replace(take, notes={**take.notes, **noted})
        if step.count == 0 and stillness is not None and not stillness.is_still:
            self._refused = take
            if self.settings.keep_moving:
                return self.keep()
            remedy = "leave it, shut doors and windows, stop fans and pets, and take it again"
            spans = stillness.spans()
            if len(spans) == 1 and not spans[0][0] and stillness.level <= stillness.limit:
                remedy = "wait longer after leaving it, and take it again"
            return self._refuse(
                f"the empty room is not empty or not still: {stillness.evidence()}; {remedy}",
                stillness=stillness,
                moved=True,
            )
        return self._keep(take)

    def _keep(self, take: Take) -> Outcome:
        step = self._steps.pop(0)
        self._pieces = self._refused = None
        self._receiver = Receiver.of(take.capture)
        self._rate = take.rate if self._rate is None else self._rate
        told = f"kept: {take.seconds:.0f} s, {take.rate:.0f} packets per second"
        if take.stillness is not None and step.count == 0:
            told += f"; {take.stillness.evidence()}"
        elif take.stillness is not None and take.stillness.is_still:
            told += f"; nothing moved in it: was {_whom(step.count)} really there?"
        if "kept_despite_motion" in take.notes:
            told += "; kept nevertheless, the store says so"
        return Outcome(step, told, take, take.stillness)

    def _rate_fault(self, capture: Capture, lasted: float) -> str:
        """Why packets came too rarely or unevenly, and a remedy; nothing where they did not."""
        in_bursts, rate = packet_rates(capture.timestamps)
        few_packets = (
            f"{rate:.3g} packets per second are too few, at least {self.settings.least_rate:g} are "
            "needed; let the sender send more often"
        )
        if max(in_bursts, rate) < self.settings.least_rate:
            return few_packets
        back = np.diff(capture.timestamps)
        if back.min() < -_SET_BACK:
            return (
                f"the receiver's clock was set back by {-back.min():.1f} s after packet "
                f"{back.argmin() + 1}; see that it does not restart, and take it again"
            )
        stamps = np.sort(capture.timestamps) - capture.timestamps.min()
        gaps = np.diff(stamps)
        if gaps.max() > _LONGEST_GAP:
            return (
                f"packets came unevenly: none for {gaps.max():.1f} s at second "
                f"{stamps[gaps.argmax()]:.0f}; bring sender and receiver closer, or free the "
                "channel, and take it again"
            )
        if rate < self.settings.least_rate:
            return few_packets
        by_second = np.bincount(stamps.astype(np.int64))[: max(1, int(lasted))]
        few = float(np.mean(by_second < np.median(by_second) / 2))
        if few > _UNSTEADY:
            return (
                f"packets came unevenly: {100 * few:.0f} % of the seconds have less than half of "
                f"the usual {np.median(by_second):.0f}; bring sender and receiver closer, or free "
                "the channel, and take it again"
            )
        if self._rate is not None and abs(rate - self._rate) > _OTHER_RATE * self._rate:
            return (
                f"{rate:.3g} packets per second, the takes before had {self._rate:.3g}; set the "
                "sender as it was"
            )
        return ""


def _rounds_of(settings: CalibrationSettings, made: Counter[int]) -> list[Step]:
    """Every count once, then every count again: whenever the owner stops, it is all in balance."""
    return [
        Step(count, number, settings.takes)
        for number in range(settings.takes)
        for count in settings.counts
        if number >= made[count]
    ]


def _steps_of(order: Sequence[int], made: Counter[int]) -> list[Step]:
    """One step for each count in turn."""
    total, steps = Counter(order), []
    taken = Counter(made)
    for count in order:
        steps.append(Step(count, taken[count], made[count] + total[count]))
        taken[count] += 1
    return steps


def _whom(count: int) -> str:
    return {0: "an empty room", 1: "1 person"}.get(count, f"{count} people")


# ---- stores and files ---------------------------------------------------------------------------


def known_room(path: Path, room: str) -> KnownRoom:
    """What a store holds of a room; nothing where there is no such store or room."""
    if not path.exists():
        return KnownRoom()
    with Store(path) as store:
        if room not in store.rooms:
            return KnownRoom()
        recordings = store.recordings(room)
        recipe = store.recipe(room)
    if any(isinstance(recording.label, str) or recording.is_features for recording in recordings):
        raise DataError(
            f"{path}: room '{room}' holds categories or finished features, not counts of packets; "
            "choose another --out"
        )
    needed = ("device", "bandwidth", "subcarriers")
    if missing := [name for name in needed if getattr(recipe, name) is None]:
        raise DataError(
            f"{path}: room '{room}' does not say its {', '.join(missing)}, so new takes may be of "
            "another receiver; choose another --out"
        )
    rates = [recording.mean_rate for recording in recordings if recording.mean_rate > 0]
    return KnownRoom(
        takes=tuple(
            (recording.label, recording.day)
            for recording in recordings
            if isinstance(recording.label, int) and not recording.part
        ),
        receiver=Receiver(
            device=str(recipe.device),
            bandwidth=int(recipe.bandwidth or 0),
            subcarriers=tuple(recipe.subcarriers or ()),
            links=recordings[0].shape[2],
            synthetic=any(recording.synthetic for recording in recordings),
        ),
        rate=float(np.median(rates)) if rates else None,
    )


def save_take(path: Path, room: str, take: Take) -> None:
    """Add a take to the store, which is whole before and after; a new one is made."""
    receiver = Receiver.of(take.capture)
    with append_store(path) as store:
        if room in store.rooms():
            recipe = store.recipe(room) or Recipe()
        else:
            recipe = Recipe(
                device=receiver.device,
                bandwidth=receiver.bandwidth,
                subcarriers=receiver.subcarriers,
                link_count=receiver.links,
            )
            about = {"recipe": recipe.to_json(), "source": _source(receiver.synthetic)}
            store.add_room(room, synthetic=receiver.synthetic, about=about)
        _refuse_second(store, path, room, take)
        cleaner = Cleaner(recipe)
        pieces = [*cleaner.feed(take.capture), *cleaner.finish()]
        segments = sorted({piece.segment for piece in pieces})
        if not segments:
            raise DataError(
                f"room '{room}', {take.name}: no packet is left after cleaning; look at a capture "
                "with 'fedapa inspect'"
            )
        for number, segment in enumerate(segments, 1):
            name = take.name if len(segments) == 1 else f"{take.name} part {number}"
            store.add_stream(
                room,
                _free_name(store, room, name),
                [(one.amplitude, one.timestamps) for one in pieces if one.segment == segment],
                label=take.count,
                day=take.day,
                notes=take.notes,
            )


def _source(synthetic: bool) -> str:
    return "SIMULATED by fedapa; not measured" if synthetic else "fedapa calibrate"


def _free_name(store: StoreAppender, room: str, name: str) -> str:
    """The name, or the next one that no recording of the room has."""
    free, number = name, 2
    while store.has(room, free):
        free, number = f"{name} again {number}", number + 1
    return free


def _refuse_second(store: StoreAppender, path: Path, room: str, take: Take) -> None:
    """The same capture is one take."""
    content = str(take.notes.get("content", ""))
    if not content:
        return
    digest = content.split(" ")[0]
    source = FileSource(Path(str(take.notes["source"])), room, take.count, take.day, take.name)
    earlier = imported_before(store).get(digest, [])
    refuse_second_label(source, earlier, path)
    if any(other.room == room for other in earlier):
        raise DataError(
            f"{take.notes['source']}: is in {path.name} already, as '{earlier[0].name}'; one take "
            "counts once: record another"
        )


def capture_take(path: Path, chip: str | None = None) -> tuple[Capture, dict[str, str]]:
    """A capture file as a take, and what the store notes of it."""
    capture = read_capture(path, chip)
    digest = hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    source = FileSource(path, "", 0, "", path.stem)
    return capture, {"source": readable(path.name), "content": identity(digest, source)}
