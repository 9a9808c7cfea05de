"""RoomServer: up to a hundred rooms counted by one thread, and told to whoever listens.

A room is a source, a ``LiveCounter`` and a watch on its model file. One thread polls them in turn
and never waits for any; another one loads models that are new. Rooms fail alone: what goes wrong
in one makes that room ``unavailable``, with the reason, and the others go on. Counters run by a
clock that never jumps; documents have the time of the day.
"""

import bisect
import itertools
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from fedapa.csi.capture import Capture
from fedapa.csi.subcarriers import live
from fedapa.errors import FedapaError
from fedapa.service.counter import Count, CounterSettings, LiveCounter
from fedapa.service.model_watch import ModelWatch, ServedModel
from fedapa.service.sources import Piece, Source

__all__ = ["Document", "Durations", "RoomServer", "ServedRoom", "Waterfall"]

Document: TypeAlias = dict[str, Any]
"""A room at one moment, as plain values for JSON."""

_PERIOD = 0.25
"""s between two looks at a room."""
_REFRESH = 1.0
"""s after which rate and packets of a document are new, also where there was no count."""
_LOOK = 2.0
"""s between two looks for newer models."""
_RATE_OVER = 10.0
"""s over which the rate of packets is taken."""
_JUMP = 1.0
"""s by which the time of the day may be off before documents follow it."""
_SHOWN_ROWS, _SHOWN_COLUMNS = 200, 64
_ROW_EVERY = 0.1
"""s between two rows that are kept for a waterfall."""
_KEPT_ROWS = 300
"""30 s of them."""
_QUIETEST = 1e-3
"""Amplitude below which nothing is told apart; the logarithm of 0 is none."""

_log = logging.getLogger(__name__)


class Waterfall:
    """The last packets of a room as amplitudes in dB: one in 0.1 s, 64 subcarriers at most.

    Its memory is taken at once and does not grow: a hundred rooms have one each.
    """

    def __init__(self) -> None:
        self._times: npt.NDArray[np.float64] = np.full(_KEPT_ROWS, -np.inf)
        self._tenths: npt.NDArray[np.int16] = np.full((_KEPT_ROWS, _SHOWN_COLUMNS), 0, np.int16)
        """[rows, columns] tenths of a dB, as a ring."""
        self._next = 0
        self._last = -np.inf
        self._subcarriers: npt.NDArray[np.int16] = np.empty(0, np.int16)
        self._kind: object = None
        self._places: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._lock = threading.Lock()

    def add(self, capture: Capture, received: float) -> None:
        """Keep some of these packets, the last of which came at ``received``."""
        if not capture.packets:
            return
        kind = (capture.device, capture.bandwidth, capture.subcarriers.tobytes())
        stamps = capture.timestamps
        times = received - (stamps[-1] - stamps)
        with self._lock:
            if kind != self._kind:
                self._kind = kind
                self._places = _places(capture)
                self._subcarriers = capture.subcarriers[self._places]
                self._clear()
            if times[0] < self._last - 1:  # a clock that was set back
                self._clear()
            chosen = []
            for row in np.flatnonzero(np.diff(np.floor(times / _ROW_EVERY), prepend=-1)).tolist():
                if times[row] - self._last >= _ROW_EVERY / 2:
                    self._last = float(times[row])
                    chosen.append(row)
            chosen = chosen[-_KEPT_ROWS:]
            if chosen:
                amplitude = np.abs(capture.csi[chosen][:, self._places, 0, 0])
                slots = (self._next + np.arange(len(chosen))) % _KEPT_ROWS
                self._times[slots] = times[chosen]
                self._tenths[slots, : len(self._places)] = _tenths(amplitude)
                self._next = int(slots[-1] + 1) % _KEPT_ROWS

    def _clear(self) -> None:
        self._times[:] = self._last = -np.inf

    def document(self, seconds: float, shift: float = 0.0) -> Document:
        """The last seconds, 200 rows at most; ``shift`` is added to all times."""
        with self._lock:
            order = np.roll(np.arange(_KEPT_ROWS), -self._next)  # the oldest first
            order = order[self._times[order] > self._last - seconds]
            step = -(-len(order) // _SHOWN_ROWS) or 1
            order = order[::-1][::step][::-1]  # the newest is among them
            times, subcarriers = self._times[order], self._subcarriers.tolist()
            tenths = self._tenths[order, : len(subcarriers)]
        return {
            "times": (times + shift).round(3).tolist(),
            "subcarriers": subcarriers,
            "amplitude_db": (tenths / 10).tolist(),
        }


def _places(capture: Capture) -> npt.NDArray[np.int64]:
    """Of subcarriers that carry something, 64 at most, evenly."""
    places = np.arange(len(capture.subcarriers))
    try:
        alive = places[live(capture.device, capture.bandwidth, capture.subcarriers)]
    except FedapaError:  # a receiver of which nobody knows its null subcarriers
        alive = places
    places = alive if len(alive) else places
    chosen = np.linspace(0, len(places) - 1, min(len(places), _SHOWN_COLUMNS)).round()
    return np.asarray(places[chosen.astype(np.int64)], np.int64)


def _tenths(amplitude: npt.NDArray[np.float32]) -> npt.NDArray[np.int16]:
    heard = np.where(np.isfinite(amplitude), amplitude, 0)
    return (200 * np.log10(np.maximum(heard, np.float32(_QUIETEST)))).round().astype(np.int16)


class Durations:
    """How long something took each time, in a few classes; its size does not grow."""

    BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)

    def __init__(self) -> None:
        self._numbers = [0] * (len(self.BOUNDS) + 1)
        self._total = 0.0

    def add(self, seconds: float) -> None:
        """One more."""
        self._numbers[bisect.bisect_left(self.BOUNDS, seconds)] += 1
        self._total += seconds

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """How many took at most so long, as Prometheus has it, and the sum of all."""
        bounds = [*(f"{bound:g}" for bound in self.BOUNDS), "+Inf"]
        counted = itertools.accumulate(self._numbers)
        return [(b, float(n)) for b, n in zip(bounds, counted, strict=True)], self._total


class ServedRoom:
    """One room: its source, its counter, its newest model; ``RoomServer`` drives it.

    ``document`` and ``waterfall`` may be asked by any thread.
    """

    def __init__(
        self,
        name: str,
        watch: ModelWatch,
        source: Source,
        settings: CounterSettings = CounterSettings(),  # noqa: B008
    ) -> None:
        """A room that is not counted yet.

        Args:
            name: of the room.
            watch: where its models come from.
            source: of its packets; closed with the room.
            settings: of its counter.
        """
        self.name, self.settings = name, settings
        self._watch, self._source = watch, source
        self._served: ServedModel | None = None
        self._newest: ServedModel | None = None
        """That was loaded; only the thread that loads sets it, so that none is lost between two."""
        self._taken: ServedModel | None = None
        """The last one that was tried; served, unless it was refused."""
        self._refused = ""
        self._counter: LiveCounter | None = None
        self._finished = False
        self._failed = self._logged = ""
        """Why counting failed, until the room counts again; and what of it was logged."""
        self._lost = False
        """Whether nothing comes from the source, for a reason that was logged."""
        self._skipped: Counter[str] = Counter()
        """Of counters that are no more."""
        self._people: int | None = None
        self._packets = 0
        self._arrivals: deque[tuple[float, int]] = deque()
        self._began: float | None = None
        self._waterfall = Waterfall()
        self._shift = 0.0
        self._last: Count | None = None
        self._told = -float("inf")
        self.inference = Durations()
        """Of pieces that completed a window: clean, view, infer."""
        self.models_taken = 0
        self.models_refused = 0
        self._document: Document = {}

    # ---- for any thread -------------------------------------------------------------------------

    def document(self) -> Document:
        """The room now; counts are never older than the counter lets them be."""
        return self._document

    def waterfall(self, seconds: float = 20.0) -> Document:
        """The last seconds of amplitudes."""
        return {"room": self.name, **self._waterfall.document(seconds, self._shift)}

    @property
    def dropped(self) -> dict[str, int]:
        """Packets, frames and lines left out, by a few fixed words."""
        counter = self._counter
        skipped = self._skipped.copy()
        if counter is not None:
            skipped += counter.skipped
        cleaned = 0 if counter is None else counter.dropped.total()
        late = skipped.pop("out of order", 0)
        return {
            "unreadable": sum(self._source.statistics.skipped.values()),
            "out_of_order": late,
            "does_not_fit": skipped.total(),
            "cleaned": cleaned,
        }

    # ---- for the thread that serves -------------------------------------------------------------

    def look_for_model(self) -> None:
        """Load a newer model, if there is one; by the thread that loads."""
        try:
            newer = self._watch.newer()
        except FedapaError as error:
            self.models_refused += 1
            _log.warning("room %s: %s", self.name, error)
            return
        if newer is not None:
            self._newest = newer

    def step(self, now: float, shift: float = 0.0) -> list[Document]:
        """Take what has come by now; the documents of new counts.

        Args:
            now: s, by a clock that never jumps.
            shift: what it lacks to the time of the day.
        """
        self._shift = shift
        self._began = now if self._began is None else self._began
        self._take_model()
        made: list[Count] = []
        failed = False
        try:
            for piece in self._source.poll(now):
                made += self._count(piece)
            if self._counter is not None:
                if self._source.ended and not self._finished:
                    self._finished = True
                    made += self._counter.finish()
                made += self._counter.tick(now)
            if any(count.state != "unavailable" for count in made):
                self._failed = ""
        except Exception as error:  # of this room; the others go on
            reason = f"{type(error).__name__}: {error}"[:200]
            if reason != self._logged:  # it may fail with every window
                self._logged = reason
                _log.exception("room %s", self.name)
            self._fail(reason)
            failed = True
        if self._arrivals and self._arrivals[0][0] < now - _RATE_OVER - 2 * _PERIOD:
            while self._arrivals and self._arrivals[0][0] < now - _RATE_OVER:
                self._arrivals.popleft()
        documents = [self._publish(count, now) for count in made]
        if failed and self._document.get("state") != "unavailable":
            documents.append(self._publish(None, now))  # nobody keeps the count of before
        if not documents and now - self._told >= _REFRESH:
            self._publish(self._last, now)
        return documents

    def announce(self, now: float, shift: float = 0.0) -> None:
        """Have a document before anything has come."""
        self._shift = shift
        self._began = now
        self._take_model()
        self._publish(None, now)

    def close(self) -> None:
        """Let go of the source."""
        self._source.close()

    def _take_model(self) -> None:
        newer = self._newest
        if newer is self._taken:
            return
        self._taken = newer
        assert newer is not None
        try:
            if self._counter is not None and newer.model.classes == self._counter.model.classes:
                self._counter.take(newer.model)
            else:
                fresh = LiveCounter(newer.model, self.settings)
                self._retire()
                self._counter = fresh
        except FedapaError as error:
            self._refused = str(error)
            self.models_refused += 1
            return
        self._served, self._refused = newer, ""
        self.models_taken += 1

    def _retire(self) -> None:
        if self._counter is not None:
            self._skipped += self._counter.skipped + self._counter.dropped
        self._counter = None

    def _fail(self, reason: str) -> None:
        self._failed = reason
        self._retire()
        self._last = None
        if self._served is not None:
            self._counter = LiveCounter(self._served.model, self.settings)

    def _count(self, piece: Piece) -> list[Count]:
        self._packets += piece.capture.packets
        self._arrivals.append((piece.received, piece.capture.packets))
        self._waterfall.add(piece.capture, piece.received)
        if piece.people is not None and len(piece.people):
            self._people = int(piece.people[-1])
        if self._counter is None:
            return []
        window = self._counter.latest
        began = time.perf_counter()
        made = self._counter.feed(piece.capture, piece.received)
        if self._counter.latest is not window:
            self.inference.add(time.perf_counter() - began)
        return made

    def _publish(self, count: Count | None, now: float) -> Document:
        self._last, self._told = count, now
        source, served = self._source, self._served
        statistics = source.statistics
        skipped = self._skipped + Counter(statistics.skipped)
        problem = statistics.problem or ("it has ended" if source.ended else "")
        if statistics.problem and not self._lost:
            _log.warning("room %s: %s: %s", self.name, source.name, statistics.problem)
        self._lost = bool(statistics.problem)
        if self._counter is not None:
            skipped += self._counter.skipped + self._counter.dropped
        if count is None:
            synthetic = served is not None and served.model.synthetic
            count = Count(
                room=self.name,
                time=now,
                state="unavailable",
                reason=self._absence(problem),
                synthetic=synthetic,
            )
        told = count.document()
        if self._failed and count.state == "unavailable" and self._failed not in told["reason"]:
            told["reason"] = f"{self._failure()}; {told['reason']}"
        if problem and count.state == "unavailable" and problem not in told["reason"]:
            told["reason"] = f"{told['reason']}; the source: {problem}"
        self._document = {
            **told,
            "room": self.name,
            "synthetic": count.synthetic or source.synthetic,
            "time": round(count.time + self._shift, 3),
            "true_people": self._people,
            "rate": round(self._rate(now), 1),
            "packets": self._packets,
            "skipped": dict(skipped),
            "problem": problem,
            "source": source.name,
            "every": self.settings.every,
            "model": None if served is None else served.document(),
            "model_problem": self._watch.problem or self._refused,
        }
        return self._document

    def _absence(self, problem: str) -> str:
        """Why there is no count before the first one."""
        if self._failed:
            return self._failure()
        if self._counter is None:
            return self._watch.problem or self._refused or "there is no model of this room yet"
        return problem or "the first window is not complete yet"

    def _failure(self) -> str:
        return f"counting failed ({self._failed}); begun anew"

    def _rate(self, now: float) -> float:
        assert self._began is not None
        lasted = min(_RATE_OVER, max(1.0, now - self._began))
        return sum(packets for at, packets in self._arrivals if at > now - lasted) / lasted


class RoomServer:
    """Counts in all rooms by one thread, and tells every new count to whoever listens."""

    def __init__(
        self,
        rooms: Sequence[ServedRoom],
        *,
        steady: Callable[[], float] | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """A server that is not started.

        Args:
            rooms: that it counts in.
            steady: a clock that never jumps.
            wall: the time of the day.
        """
        self.rooms: Mapping[str, ServedRoom] = MappingProxyType({room.name: room for room in rooms})
        begun = time.time() - time.monotonic()
        self._steady = steady or (lambda: begun + time.monotonic())
        self._wall = wall
        self._shift = 0.0
        self._listeners: list[Callable[[Document], None]] = []
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self.started = wall()
        self.behind = 0.0
        """s by which the last turn through all rooms was late."""
        self._turned = self._steady()

    def listen(self, callback: Callable[[Document], None]) -> Callable[[], None]:
        """Have every new count's document told, in the thread that serves; what ends it."""
        self._listeners = [*self._listeners, callback]

        def end() -> None:
            self._listeners = [each for each in self._listeners if each is not callback]

        return end

    def documents(self) -> list[Document]:
        """Every room now."""
        return [room.document() for room in self.rooms.values()]

    def wall_time(self) -> float:
        """The time of the day, as documents have it."""
        return self._wall()

    @property
    def stalled(self) -> float:
        """S since the last turn through all rooms; many where the thread is stuck."""
        return max(0.0, self._steady() - self._turned) if self._threads else 0.0

    def look_for_models(self) -> None:
        """Load models that are newer."""
        for room in self.rooms.values():
            try:
                room.look_for_model()
            except Exception:  # of this room; models of the others are looked for, and the next
                _log.exception("room %s: its newest model", room.name)

    def step(self) -> None:
        """One turn through all rooms."""
        now = self._steady()
        if abs(self._wall() - now - self._shift) > _JUMP:
            self._shift = self._wall() - now
        for room in self.rooms.values():
            for document in room.step(self._steady(), self._shift):
                self._tell(document)
            if self._stopping.is_set():
                break
        self._turned = self._steady()

    def start(self) -> None:
        """Load the models, then count until ``stop``."""
        self.look_for_models()
        for room in self.rooms.values():
            room.announce(self._steady(), self._shift)
        for work, name in ((self._serve, "fedapa rooms"), (self._watch, "fedapa models")):
            thread = threading.Thread(target=work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """End the threads and let go of the sources."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(timeout=10)
        for room in self.rooms.values():
            room.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _serve(self) -> None:
        pause = 0.0
        while not self._stopping.wait(pause):
            began = self._steady()
            self.step()
            took = self._steady() - began
            self.behind = max(0.0, took - _PERIOD)
            pause = max(0.0, _PERIOD - took)

    def _watch(self) -> None:
        while not self._stopping.wait(_LOOK):
            self.look_for_models()

    def _tell(self, document: Document) -> None:
        for listener in self._listeners:
            try:
                listener(document)
            except Exception:  # a listener's own; counting goes on
                _log.exception("a listener to room %s", document["room"])
