"""LiveCounter: packets in, counts out; what a room's model says of now, and how sure it is.

Windows are those of ``Windower(model.recipe)`` and their probabilities those of
``CountingModel.probabilities``, to the bit: what is served is what was tested. Over them runs the
filter of ``belief``. It prints nothing, starts nothing and asks no clock: the time of everything
that comes is given, so a file, a socket and a test are counted alike::

    counter = LiveCounter(load_model(path))
    for piece in source:
        for count in counter.feed(piece.capture, piece.received):
            ...                      # a Count every 5 s
    counter.tick(now)                # time passes and nothing comes: a Count with no people in it

Whatever comes, it goes on: packets of another receiver, of a clock that was set back, or out of
order are left out and counted in ``skipped``; windows of which nothing can be said in ``faulty``.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from fedapa.adaptation import Adaptation, Followed, Recentre, recentred
from fedapa.adaptation import begin as begin_following
from fedapa.answers import expected_count, median_class
from fedapa.csi.capture import Capture
from fedapa.errors import DataError, PlanError
from fedapa.rooms.model_file import CountingModel
from fedapa.service.belief import evidence_of, interval_of, people_of, transitions, updated
from fedapa.service.stillness import StillnessMeter
from fedapa.windows.clean import Cleaner, kept_places
from fedapa.windows.stream import Windower, Windows, window_shape

__all__ = ["Count", "CounterSettings", "LiveCounter", "State", "WindowAnswer", "misfit"]

State: TypeAlias = Literal["counting", "unsure", "unavailable"]
_Floats: TypeAlias = npt.NDArray[np.float64]

_LATE = 1.0
"""s: a packet that is older than one before it by no more came out of order; by more, the clock
was set back, and the packets before and after are not one recording."""
_FEWEST_IN_GAP = 10
"""Packets that are missing in a row where a gap begins, if that is longer than the recipe's."""
_OFF = 0.25
"""Share by which a window may take longer or shorter than the recipe's."""
_SAME = 1e-6
"""s: of a window and a count that are due at one time the window comes first."""
_SHORTEST = 0.1
"""s between two counts; of less there is no use."""
_MOST_STILL = 60
"""Pairs of seconds: a minute."""
_REASONS = 32
"""That are told apart; a stranger's packets can give any number of them."""


@dataclass(frozen=True, kw_only=True)
class CounterSettings:
    """How often it counts, how people come and go, and when it says that it does not know."""

    every: float = 5.0
    """s from one count to the next."""
    timeout: float = 10.0
    """s without a packet, after which the room is unavailable."""
    arrivals: float = 0.001
    """How many people may come in per second, as a share of the room's greatest count: how fast a
    count goes up without being seen."""
    departures: float = 0.00025
    """How many may leave, as such a share: how fast it goes down."""
    presence: float = 0.5
    """s after which what was seen of whether anybody is there has faded to a third."""
    memory: float = 6.0
    """The same of how many there are."""
    stillness: int = 4
    """Pairs of seconds in which nothing moved, by which nobody is believed to be there, whatever
    the model says (decision 0111); 0: the model alone tells."""
    recentre: Recentre = "prototypes"
    """What the belief follows the day by, without labels and within bounds (decision 0091): all
    prototypes, the empty room alone, or "no": nothing."""
    coverage: float = 0.8
    """Share of the belief that lies within the interval from ``lo`` to ``hi``."""
    least_confidence: float = 0.1
    """Below it the state is unsure."""
    farthest: float = 1.5
    """Times the reach of the room's prototypes, beyond which a window is like nothing it knows."""

    def __post_init__(self) -> None:
        for name in ("every", "timeout"):
            if not _SHORTEST <= getattr(self, name) < math.inf:
                raise PlanError(
                    f"{name} = {getattr(self, name)}; choose {_SHORTEST:g} seconds or more"
                )
        for name in ("arrivals", "departures", "presence", "memory", "farthest"):
            value = getattr(self, name)
            if not (0 < value < math.inf):
                raise PlanError(f"{name} = {value}; choose a number above 0")
        if not 0 <= self.stillness <= _MOST_STILL:
            raise PlanError(f"stillness = {self.stillness}; choose 0 to {_MOST_STILL}")
        if self.recentre not in get_args(Recentre):
            known = ", ".join(get_args(Recentre))
            raise PlanError(f"recentre = {self.recentre!r}; choose one of {known}")
        for name in ("coverage", "least_confidence"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise PlanError(f"{name} = {value}; choose 0 to below 1")


@dataclass(frozen=True, eq=False, kw_only=True)
class WindowAnswer:
    """What the model said of one window alone."""

    time: float
    """When the window ended, on the clock of those who receive."""
    probabilities: npt.NDArray[np.float32]
    """[C] as ``CountingModel.probabilities`` has them."""
    distance: float
    """From the nearest prototype, in reaches of the room; 0 where nobody knows it."""


@dataclass(frozen=True, kw_only=True)
class Count:
    """How many people are in a room at one moment, as far as it is known."""

    room: str
    time: float
    """s, on the clock of those who receive."""
    state: State
    reason: str = ""
    """Why it is not ``counting``, in words."""
    count: int | None = None
    """People; None where the room is unavailable."""
    lo: int | None = None
    hi: int | None = None
    """``CounterSettings.coverage`` of the belief is from ``lo`` to ``hi``."""
    confidence: float | None = None
    """The belief in ``count``."""
    people: tuple[int, ...] = ()
    """Numbers of people that there may be."""
    belief: tuple[float, ...] = ()
    """How probable each of ``people`` is."""
    raw: int | None = None
    """What the last window says alone, by its most probable class."""
    synthetic: bool = False
    """Whether the packets are simulated, or the windows that the model learned from."""

    def document(self) -> dict[str, Any]:
        """Plain values for JSON."""
        given = {name: getattr(self, name) for name in self.__dataclass_fields__}
        listed = {"people": list(self.people), "belief": [round(p, 6) for p in self.belief]}
        sure = None if self.confidence is None else round(self.confidence, 6)
        return {**given, **listed, "confidence": sure, "time": round(self.time, 3)}


def misfit(model: CountingModel, capture: Capture) -> str:
    """Why a model can count nothing in packets like these, in words; nothing where it can."""
    recipe = model.recipe
    try:
        Cleaner(recipe).check(capture)
        kept = len(kept_places(capture, recipe.subcarriers))
    except DataError as error:
        return str(error)
    shape = window_shape(kept, math.prod(capture.csi.shape[2:]), recipe)
    if shape != model.window_shape:
        made, asked = (" × ".join(map(str, sides)) for sides in (shape, model.window_shape))
        return f"its windows are {made}, the model counts {asked}; use a model of this receiver"
    return ""


class LiveCounter:
    """Counts the people of one room from its packets as they come."""

    def __init__(
        self,
        model: CountingModel,
        settings: CounterSettings = CounterSettings(),  # noqa: B008
    ) -> None:
        if not all(type(label) is int for label in model.classes):
            raise DataError(
                f"the model of room '{model.room}' tells {model.classes[0]!r} and others apart, "
                "no numbers of people; use a model that counts"
            )
        self.model, self.settings = model, settings
        self._classes = [int(label) for label in model.classes]
        self._people = people_of(self._classes)
        self._follow_from(model)
        self._kinds: dict[tuple[object, ...], str] = {}
        self._synthetic = model.synthetic
        self.packets = 0
        """That came, skipped ones too."""
        self.skipped: Counter[str] = Counter()
        """Packets left out before they came to the windower, by reason."""
        self.faulty: Counter[str] = Counter()
        """Windows that said nothing, by reason."""
        self._dropped: Counter[str] = Counter()
        self.latest: WindowAnswer | None = None
        self.last: Count | None = None
        self._now: float | None = None
        self._due = math.inf
        self._heard = -math.inf
        self._stamp: float | None = None
        self._refused = ""
        self._faulted = ""
        self._distances: list[float] = []
        self._belief: _Floats = np.full(len(self._people), 1 / len(self._people))
        self._windower = Windower(model.recipe)
        self._before: int | None = None
        self._meter = StillnessMeter(settings.stillness) if settings.stillness else None

    def take(self, model: CountingModel) -> None:
        """Count with another model of the room from now on; what is believed stays."""
        if [*model.classes] != self._classes:
            raise DataError(
                f"the model of room '{model.room}' has classes {list(model.classes)}, the one "
                f"before {self._classes}; start a new counter for it"
            )
        if model.recipe != self.model.recipe:
            self._dropped += self._windower.dropped
            self._windower, self._before = Windower(model.recipe), None
        self.model = model
        self._follow_from(model)
        self._kinds.clear()

    def _follow_from(self, model: CountingModel) -> None:
        """What is followed begins with what was trained."""
        self._adaptation = Adaptation(recentre=self.settings.recentre)
        self._trained = model.trained
        can = not self._adaptation.is_off and bool(model.present.any())
        self._followed: Followed | None = begin_following(self._trained) if can else None

    @property
    def dropped(self) -> Counter[str]:
        """Packets left out while windows were made, by reason."""
        return self._dropped + self._windower.dropped

    def feed(self, capture: Capture, received: float) -> list[Count]:
        """Take packets, the last of which came at ``received``; the counts that are due by then."""
        received = self._known(received)
        stamps = capture.timestamps
        lasted = max(0.0, float(stamps[-1] - stamps[0])) if self._now is None and len(stamps) else 0
        self._set_clock(received - lasted)
        self.packets += capture.packets
        if not capture.packets:
            return self._pass(received)
        if fault := self._fault(capture):
            self._skip(fault, capture.packets)
            self._refused = fault
            return self._pass(received)
        self._synthetic = capture.synthetic or self.model.synthetic
        made: list[Count] = []
        for run, times in self._runs(capture, received):
            made += self._pass(float(times[0]), including=False)
            self._heard = float(times[-1])
            self._refused = ""
            if self._meter is not None:
                self._meter.feed(run)
            made += self._take_windows(self._windows(run), self._heard, float(run.timestamps[-1]))
        return made + self._pass(received)

    def tick(self, now: float) -> list[Count]:
        """Time passes: the counts that are due, also where no packet comes."""
        now = self._known(now)
        self._set_clock(now)
        return self._pass(now)

    def finish(self) -> list[Count]:
        """The source has ended: what windows that waited for more packets still say."""
        if self._now is None or self._stamp is None:
            return []
        made = self._take_windows(self._end_recording(), self._now, self._stamp)
        return made + self._pass(self._now)

    # ---- packets --------------------------------------------------------------------------------

    def _fault(self, capture: Capture) -> str:
        kind = (
            capture.device,
            capture.bandwidth,
            capture.csi.shape[1:],
            capture.subcarriers.tobytes(),
        )
        if kind not in self._kinds:
            if len(self._kinds) >= _REASONS:
                self._kinds.clear()
            self._kinds[kind] = misfit(self.model, capture)
        return self._kinds[kind]

    def _skip(self, reason: str, packets: int = 1) -> None:
        known = reason in self.skipped or len(self.skipped) < _REASONS
        self.skipped[reason if known else "other reasons"] += packets

    def _runs(self, capture: Capture, received: float) -> Iterator[tuple[Capture, _Floats]]:
        """Packets without gaps and in order, and when each was received.

        Nothing was received before what came last time, whatever the packets' own clock says.
        """
        while capture.packets:
            stamps = capture.timestamps
            known = -math.inf if self._stamp is None else self._stamp
            behind = np.maximum(np.maximum.accumulate(stamps), known) - stamps
            set_back = behind > _LATE
            end = int(set_back.argmax()) if set_back.any() else capture.packets
            if late := int((behind[:end] > 0).sum()):
                self._skip("out of order", late)
            yield from self._parts(capture.part(np.flatnonzero(behind[:end] == 0)), received)
            if end < capture.packets:
                self._break("a clock that was set back")
            capture = capture.part(slice(end, None))

    def _parts(self, capture: Capture, received: float) -> Iterator[tuple[Capture, _Floats]]:
        """Packets in order, cut at gaps."""
        if not capture.packets:
            return
        assert self._now is not None
        stamps = capture.timestamps
        times = np.maximum(received - (stamps[-1] - stamps), self._now)
        steps = np.diff(stamps, prepend=stamps[0] if self._stamp is None else self._stamp)
        edges = np.flatnonzero(steps > self._gap()).tolist()
        after_gap = set(edges)
        for begin, end in zip([0, *edges], [*edges, len(stamps)], strict=True):
            if begin == end:
                continue
            if begin in after_gap:
                self._break("a gap")
            self._stamp = float(stamps[end - 1])
            yield capture.part(slice(begin, end)), times[begin:end]

    def _gap(self) -> float:
        """S without a packet that end a recording; where packets are resampled it is known."""
        recipe = self.model.recipe
        if recipe.rate is not None:
            return math.inf
        return max(recipe.gap, _FEWEST_IN_GAP / (recipe.packet_rate or math.inf))

    def _break(self, reason: str) -> None:
        """Packets before and after are not one recording."""
        self._end_recording()
        self._stamp = None
        if self._meter is not None:
            self._meter.restart()
        self._count_fault(f"cut off by {reason}")

    def _end_recording(self) -> Windows:
        """What waited for later packets; the next packets begin anew."""
        try:
            with np.errstate(all="ignore"):
                made = self._windower.finish()
        except (DataError, ArithmeticError, ValueError) as error:
            made = self._restart(str(error), 0)
        self._before = None
        return made

    def _windows(self, run: Capture) -> Windows:
        try:
            with np.errstate(all="ignore"):  # what overflows is a faulty window, below
                return self._windower.feed(run)
        except (DataError, ArithmeticError, ValueError) as error:  # no eigenvalues of infinity
            return self._restart(str(error), run.packets)

    def _restart(self, reason: str, packets: int) -> Windows:
        if packets:
            self._skip(reason, packets)
        self._refused = reason
        self._dropped += self._windower.dropped
        self._windower = Windower(self.model.recipe)
        self._before = None
        nothing = np.empty(0)
        return Windows(nothing.astype(np.float32), nothing.astype(np.int64), nothing, nothing, ())

    # ---- windows --------------------------------------------------------------------------------

    def _take_windows(self, windows: Windows, received: float, stamp: float) -> list[Count]:
        """Each window at its time; ``received`` is when the packet of that ``stamp`` came."""
        made: list[Count] = []
        for place in range(len(windows)):
            assert self._now is not None
            ended = min(received, max(self._now, received - (stamp - float(windows.ends[place]))))
            made += self._pass(ended, including=False)
            start, before = int(windows.starts[place]), self._before
            self._before = start
            lasted = float(windows.ends[place] - windows.times[place])
            finite = np.isfinite(windows.values[place]).all()
            unusable = "" if finite else "holds NaN or infinity"
            self._faulted = windows.faults[place] or unusable or self._rate_fault(lasted)
            if self._faulted:
                self._count_fault(self._faulted)
                continue
            length = self.model.recipe.window or 1
            share = 1.0 if before is None else min(1.0, (start - before) / length)
            first = self._is_unavailable()
            odds = 0.0 if self._meter is None else self._meter.odds(float(windows.ends[place]))
            self._learn(windows.values[place : place + 1], ended, share * self._span(), odds)
            if first:
                made.append(self._serve(ended))
        return made

    def _rate_fault(self, lasted: float) -> str:
        """Packets that come too fast or too slowly make windows that nobody trained on."""
        recipe = self.model.recipe
        if recipe.rate is not None or recipe.packet_rate is None or recipe.window is None:
            return ""
        expected = max(1, recipe.window - 1) / recipe.packet_rate
        if abs(lasted - expected) <= _OFF * expected:
            return ""
        rate = expected * recipe.packet_rate / lasted if lasted > 0 else math.inf
        return (
            f"about {float(f'{rate:.2g}'):g} packets per second, the model is for "
            f"{recipe.packet_rate:.4g}: set "
            "the sender to that rate, or import with --rate and train again"
        )

    def _count_fault(self, reason: str) -> None:
        known = reason in self.faulty or len(self.faulty) < _REASONS
        self.faulty[reason if known else "other reasons"] += 1

    def _learn(
        self, window: npt.NDArray[np.float32], ended: float, new: float, still: float
    ) -> None:
        """One window with ``new`` s of packets: the belief moves on, then takes in what it says.

        ``still`` are the odds that nobody is there, by what moved.
        """
        model = self.model
        probabilities, distances, embeddings = model.look(window)
        distance = float(distances[0]) / model.reach if model.reach else 0.0
        told: npt.NDArray[np.floating] = self._of_today(probabilities[0], embeddings[0], distance)
        if (empty := self._trained.empty) is not None and still / (1 + still) > told[empty]:
            told = _with_nobody(told, empty, still / (1 + still))
        evidence = evidence_of(told, self._classes, model.present)
        # By the packets, too: they may come in bursts, when no time passes between windows.
        seconds = math.inf if self.latest is None else max(new, ended - self.latest.time)
        self._belief = updated(
            self._believed(ended),
            evidence,
            self._people,
            seconds,
            presence=self.settings.presence,
            memory=self.settings.memory,
        )
        self.latest = WindowAnswer(time=ended, probabilities=probabilities[0], distance=distance)
        self._distances.append(distance)

    def _of_today(
        self,
        told: npt.NDArray[np.float32],
        embedding: npt.NDArray[np.float32],
        distance: float,
    ) -> npt.NDArray[np.floating]:
        """[C] a window's probabilities, numbers of people as they look today.

        Nobody keeps what it has: an empty room looks the same on every day, nearly.
        """
        if self._followed is None:
            return told
        todays, after = recentred(self._adaptation, self._trained, self._followed, embedding, told)
        if distance <= self.settings.farthest:  # what is like nothing it knows moves nothing
            self._followed = after
        if (empty := self._trained.empty) is not None:
            return _with_nobody(todays, empty, float(told[empty]))
        return todays

    def _believed(self, now: float) -> _Floats:
        """[S] the belief, carried on from the last window."""
        if self.latest is None:
            return self._belief
        greatest = max(1, *np.asarray(self._classes)[self.model.present].tolist())
        moved = transitions(
            len(self._people),
            now - self.latest.time,
            arrivals=self.settings.arrivals * greatest,
            departures=self.settings.departures * greatest,
        )
        return self._belief @ moved

    # ---- counts ---------------------------------------------------------------------------------

    def _known(self, time: float) -> float:
        """A time as it was given; one that is none is that of before."""
        return time if math.isfinite(time) else self._now or 0.0

    def _set_clock(self, now: float) -> None:
        """The first time, and a clock that was set back: everything moves with it."""
        if self._now is None:
            self._now = self._heard = now
            self._due = now + self.settings.every
        elif now < self._now - _LATE:
            back = self._now - now
            self._now, self._heard, self._due = now, self._heard - back, self._due - back
            if self.latest is not None:
                self.latest = replace(self.latest, time=self.latest.time - back)

    def _pass(self, until: float, *, including: bool = True) -> list[Count]:
        """The counts that are due until then; of a long silence the first and the last."""
        made: list[Count] = []
        while True:
            silent = self._heard + self.settings.timeout
            expires = self.last is not None and self.last.state != "unavailable"
            at = min(self._due, silent) if expires and silent > (self._now or 0) else self._due
            if at > until + (_SAME if including else -_SAME):
                break
            made.append(self._serve(at))
            if made[-1].state == "unavailable":
                missed = math.floor((until - self._due) / self.settings.every)
                self._due += max(0, missed) * self.settings.every
        self._now = until if self._now is None else max(until, self._now)
        return made

    def _serve(self, at: float) -> Count:
        self._due = at + self.settings.every
        self.last = self._count(at)
        self._distances.clear()
        return self.last

    def _span(self) -> float:
        """S of a window, as far as it is known."""
        return self.model.recipe.window_seconds or 0.0

    def _is_unavailable(self) -> bool:
        return self.last is None or self.last.state == "unavailable"

    def _absence(self, at: float) -> str:
        """Why nothing can be said of that moment, in words; nothing where something can."""
        longest, window = self.settings.timeout, self.latest
        age = math.inf if window is None else at - window.time
        if self._refused and age >= longest:
            return f"packets do not fit: {self._refused}"
        if at >= self._heard + longest:  # as ``_pass`` has it, to the last digit
            return f"no packets for {at - self._heard:.0f} s"
        if self._faulted and age >= longest:
            return f"windows cannot be counted: {self._faulted}"
        if window is None:
            return "the first window is not complete yet"
        if age >= longest + self._span() + self.model.recipe.delay:
            return f"no whole window for {age:.0f} s"
        return ""

    def _count(self, at: float) -> Count:
        room, synthetic = self.model.room, self._synthetic
        if absence := self._absence(at):
            return Count(
                room=room, time=at, state="unavailable", reason=absence, synthetic=synthetic
            )
        assert self.latest is not None
        belief = self._believed(at)
        place = self._answer(belief)
        confidence = float(belief[place])
        away = float(np.median(self._distances or [self.latest.distance]))
        state: State = "unsure"
        if away > self.settings.farthest:
            reason = f"{away:.1f} times as far from every prototype as this room's windows are"
        elif confidence < self.settings.least_confidence:
            reason = f"the count is less than {100 * self.settings.least_confidence:g} % probable"
        else:
            state, reason = "counting", ""
        lo, hi = interval_of(belief, self._people, self.settings.coverage)
        return Count(
            room=room,
            time=at,
            state=state,
            reason=reason,
            count=int(self._people[place]),
            lo=lo,
            hi=hi,
            confidence=confidence,
            people=tuple(self._people.tolist()),
            belief=tuple(belief.tolist()),
            raw=self._classes[int(self.latest.probabilities.argmax())],
            synthetic=synthetic,
        )

    def _answer(self, belief: _Floats) -> int:
        """The place of the count that is served, as the model answers."""
        if self.model.answer == "median":
            return int(median_class(belief, self._people.tolist()))
        if self.model.answer == "expected":
            mean = float(expected_count(belief, self._people.tolist()))
            return int(np.abs(self._people - mean).argmin())
        return int(belief.argmax())


def _with_nobody(
    told: npt.NDArray[np.floating], empty: int, chance: float
) -> npt.NDArray[np.floating]:
    """[C] probabilities with this one of nobody; all others share the rest as before."""
    others = max(float(told.sum() - told[empty]), np.finfo(np.float64).tiny)
    changed = told * ((1 - chance) / others)
    changed[empty] = chance
    return changed
