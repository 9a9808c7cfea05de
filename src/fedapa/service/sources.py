"""Sources: where packets come from: a capture file, a Nexmon or ESP32 receiver, the simulator.

All have one small protocol. ``poll(now)`` gives what has come by then and never waits, so that one
loop serves a hundred rooms; no thread is started but to open a line again, and no clock is asked
but the operating system's stamp of a datagram. ``follow`` and ``follow_async`` poll until a source
ends::

    with NexmonUdp(5500) as source:
        for piece in follow(source):
            counter.feed(piece.capture, piece.received)

Garbage is skipped and counted in ``statistics``. A line that breaks is opened again, later and
later.
"""

import abc
import asyncio
import contextlib
import os
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from fedapa.csi.capture import Capture
from fedapa.csi.nexmon_writer import nexmon_packet
from fedapa.csi.pcap import pcap_header, pcap_record
from fedapa.csi.reading import CaptureStream, read_chunks
from fedapa.errors import CaptureError, PlanError, SourceError, nearest
from fedapa.files import readable
from fedapa.processes import one_thread

if TYPE_CHECKING:  # the simulator takes half a second to import, and receivers do without
    from fedapa.stores.simulated import Task

__all__ = [
    "CaptureFile",
    "Esp32Serial",
    "Esp32Tcp",
    "NexmonUdp",
    "Piece",
    "SimulatedStay",
    "SimulatedVisits",
    "Source",
    "Statistics",
    "follow",
    "follow_async",
]

_Floats: TypeAlias = npt.NDArray[np.float64]

_REASONS = 32
"""That are told apart; garbage can give any number of them."""
_PAUSE = 0.1
"""s between two looks at a source that has nothing."""
_AT_ONCE = 500
"""Packets or datagrams of one poll: a flood must not keep the other rooms waiting."""
_BYTES = 1 << 18
"""Read from a line at a time."""
_DATAGRAM = 4096
"""Bytes; a frame of 160 MHz has 2066."""
_WAITING = 1 << 22
"""Bytes of datagrams that may wait at a port while we are busy; many systems allow only 200 kB."""
_KERNEL_STAMP = 35
"""SO_TIMESTAMPNS: Linux says when a datagram came; Python has no name for it."""
_WAITS = (1.0, 30.0)
"""s before a broken line is opened again: at first, and at most."""
_EMPTY = 0.25
"""Share of the levels of simulated visits at which nobody is there."""
_LATE = 1.0
"""s: by more than that nothing is late; a clock was set back."""
_LONGEST_PAUSE = 60.0
"""s in a replay: a longer one is a clock that was set forward, or nothing to wait for."""
_CONNECTING = 5.0
"""s until an address that does not answer is given up."""


@dataclass(frozen=True, eq=False)
class Piece:
    """Packets, the last of which was received at ``received``."""

    capture: Capture
    received: float
    """s; of a source that is not paced the stamps of its packets."""
    people: npt.NDArray[np.int64] | None = None
    """[packets] who really were there; only the simulator knows."""


@dataclass(frozen=True)
class Statistics:
    """What came from a source so far."""

    packets: int = 0
    received: float | None = None
    """When the last packet came; None before the first."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Frames, lines and datagrams that were left out, by reason."""
    opened: int = 1
    """How often the line was opened."""
    problem: str = ""
    """Why nothing comes at the moment, in words."""


class Source(abc.ABC):
    """Packets as they come."""

    name: str
    """For people: what it is and where."""
    synthetic = False
    """Whether its packets are known to be simulated before any has come."""
    ended = False
    """Nothing will come any more."""

    def __init__(self) -> None:
        self._packets = 0
        self._received: float | None = None

    @abc.abstractmethod
    def poll(self, now: float) -> list[Piece]:
        """What has come until ``now`` and was not given yet; some of it, where it is much."""

    @property
    def statistics(self) -> Statistics:
        """What came so far."""
        return Statistics(packets=self._packets, received=self._received, skipped=self._skipped())

    def _skipped(self) -> dict[str, int]:
        return {}

    def close(self) -> None:
        """Let go of files and sockets; it has ended."""
        self.ended = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _given(self, pieces: list[Piece]) -> list[Piece]:
        for piece in pieces:
            self._packets += piece.capture.packets
            self._received = piece.received
        return pieces


def follow(source: Source, clock: Callable[[], float] = time.time) -> Iterator[Piece]:
    """The pieces of a source until it ends, waiting for each."""
    while True:
        pieces = source.poll(clock())
        yield from pieces
        if source.ended:
            return
        if not pieces:
            time.sleep(_PAUSE)


async def follow_async(
    source: Source, clock: Callable[[], float] = time.time
) -> AsyncIterator[Piece]:
    """The same in an event loop."""
    while True:
        pieces = source.poll(clock())
        for piece in pieces:
            yield piece
        if source.ended:
            return
        await asyncio.sleep(0 if pieces else _PAUSE)


class _Paced(Source):
    """Packets that are known beforehand, given when their time has come, or at once."""

    def __init__(self, *, paced: bool) -> None:
        super().__init__()
        self._paced = paced
        self._waiting: Piece | None = None
        self._due: _Floats | None = None
        """When each packet that waits is due, on a clock that does not jump with the packets'."""
        self._stamp: float | None = None
        self._correction = 0.0
        """What that clock is ahead of the packets' own by now."""
        self._shift: float | None = None
        """What it lacks to the clock of ``poll``."""
        self._polled = -float("inf")

    @abc.abstractmethod
    def _next(self) -> Piece | None:
        """The next packets, ``received`` by their own clock; None: there are no more."""

    def poll(self, now: float) -> list[Piece]:
        """What is due by now; of a source that is not paced the next packets, whenever."""
        if self._shift is not None and now < self._polled - _LATE:  # the clock was set back
            self._shift += now - self._polled
        self._polled = now
        made: list[Piece] = []
        while sum(piece.capture.packets for piece in made) < _AT_ONCE and not self.ended:
            if self._waiting is None:
                self._waiting = self._next()
            if self._waiting is None:
                self.ended = True
                break
            piece, self._waiting = self._waiting, None
            if not self._paced:
                made.append(piece)
                continue
            times = self._times(piece.capture.timestamps) if self._due is None else self._due
            if self._shift is None:
                self._shift = now - float(times[0])
            due = int(np.searchsorted(times, now - self._shift, side="right"))
            before, after = _cut(piece, due)
            if before is not None:
                made.append(replace(before, received=float(times[due - 1]) + self._shift))
            self._due = None
            if after is not None:
                self._waiting, self._due = after, times[due:]
                break
        return self._given(made)

    def _times(self, stamps: _Floats) -> _Floats:
        """When packets are due: as stamped, but a jump of their clock is a short pause or none."""
        last = stamps[0] if self._stamp is None else self._stamp
        steps = np.diff(stamps, prepend=last)
        jumps = np.where(steps < -_LATE, -steps, np.minimum(0, _LONGEST_PAUSE - steps))
        corrections = self._correction + np.cumsum(jumps)
        times = np.maximum(stamps + corrections, last + self._correction)
        self._stamp, self._correction = float(stamps[-1]), float(corrections[-1])
        return np.maximum.accumulate(times)


def _cut(piece: Piece, at: int) -> tuple[Piece | None, Piece | None]:
    """The packets before and after a place."""
    if at >= piece.capture.packets:
        return piece, None
    halves: list[Piece | None] = []
    for rows in (slice(0, at), slice(at, None)):
        part = piece.capture.part(rows)
        people = None if piece.people is None else piece.people[rows]
        halves.append(Piece(part, piece.received, people) if part.packets else None)
    return halves[0], halves[1]


class CaptureFile(_Paced):
    """A capture file, at the speed at which it was recorded or as fast as can be."""

    def __init__(self, path: str | Path, *, paced: bool = True, chip: str | None = None) -> None:
        super().__init__(paced=paced)
        self.name = f"file {readable(Path(path).name)}"  # where it lies is nobody's business
        self._chunks = read_chunks(path, chip, salvage=True, size=1 << 20)
        self._told: dict[str, int] = {}
        self._waiting = self._next()  # a file that is no capture is told at once
        assert self._waiting is not None  # ``read_chunks`` raises where there are no packets
        self.synthetic = self._waiting.capture.synthetic

    def _next(self) -> Piece | None:
        capture = next(self._chunks, None)
        if capture is None:
            return None
        self._told |= capture.skipped
        return Piece(capture, float(capture.timestamps.max()))

    def _skipped(self) -> dict[str, int]:
        return self._told


class SimulatedVisits(_Paced):
    """A simulated room in which people come and go; it says how many really are there.

    It is a day that no recording of the preset has. Every second phase people come or go in its
    first half, until there are as many as was drawn by lot: nobody in a quarter of the cases, else
    1 to the greatest count. Then other people are there, on other seats, as many as were: seats of
    who leaves are not taken again, and in the end everybody would walk.
    """

    synthetic = True

    def __init__(
        self,
        room: str,
        *,
        preset: str = "quick",
        seed: int = 0,
        phase: float = 60.0,
        paced: bool = True,
        seconds: float | None = None,
    ) -> None:
        """Visits to a room.

        Args:
            room: its name in the preset.
            preset: of simulated rooms.
            seed: of everything that is drawn; that of the rooms the model learned in.
            phase: s; after two of them the number of people is another.
            paced: at the speed of real packets, or as fast as they can be made.
            seconds: when it ends; None: never.
        """
        super().__init__(paced=paced)
        self._task = _last_task(room, preset, seed)
        if phase <= 0:
            raise PlanError(f"phase = {phase:g}; choose a number of seconds above 0")
        self.name = f"SIMULATED {room}"
        self._phase = phase
        self._until = float("inf") if seconds is None else seconds
        self._stream = self._pieces()

    def _next(self) -> Piece | None:
        with one_thread():
            return next(self._stream, None)

    def _pieces(self) -> Iterator[Piece]:
        from fedapa.simulator.recording import stream_visits
        from fedapa.simulator.visits import visits_through

        task, begin, number = self._task, 0.0, 0
        draw = (task.key / "live levels").numpy()
        people = _level(draw, task.count)
        while begin < self._until:
            levels = [people, _level(draw, task.count)]
            visits = visits_through(task.key / "live visits" / number, levels, phase=self._phase)
            last = begin
            for capture in stream_visits(
                task.place.scene, visits, day=task.day + 1, key=task.key, number=number
            ):
                stamps = capture.timestamps + begin
                present = visits.counts(capture.timestamps)
                last = float(stamps[-1])
                yield Piece(replace(capture, timestamps=stamps), last, present)
                if last >= self._until:
                    return
            begin, people, number = last + 1 / task.place.scene.radio.rate, levels[1], number + 1


class SimulatedStay(_Paced):
    """A simulated room in which so many people stay: what an owner does who is asked for a take."""

    synthetic = True

    def __init__(
        self,
        room: str,
        people: int,
        *,
        preset: str = "quick",
        seed: int = 0,
        day: int = 0,
        number: int = 0,
        seconds: float = 60.0,
        paced: bool = True,
    ) -> None:
        """People who stay in a room.

        Args:
            room: its name in the preset.
            people: how many.
            preset: of simulated rooms.
            seed: of everything that is drawn.
            day: which of the days that neither a recording nor visits of the preset have.
            number: which take of that day with so many people.
            seconds: when it ends.
            paced: at the speed of real packets, or as fast as they can be made.
        """
        from fedapa.simulator.recording import stream_visits
        from fedapa.simulator.room import capacity
        from fedapa.simulator.visits import staying

        super().__init__(paced=paced)
        task = _last_task(room, preset, seed)
        scene = task.place.scene
        if people > capacity(scene.room):
            raise PlanError(
                f"room '{room}': {people} people on {scene.room.size[0]:g} × "
                f"{scene.room.size[1]:g} m; 0 to {capacity(scene.room)} fit"
            )
        self.name = f"SIMULATED {room}"
        self._people = people
        visits = staying(people, seconds, f"room '{room}': ")
        # Visits have the day after the last recording.
        self._stream = stream_visits(
            scene, visits, day=task.day + 2 + day, key=task.key, number=number
        )

    def _next(self) -> Piece | None:
        with one_thread():
            capture = next(self._stream, None)
        if capture is None:
            return None
        present = np.full(capture.packets, self._people, np.int64)
        return Piece(capture, float(capture.timestamps[-1]), present)


def _last_task(room: str, preset: str, seed: int) -> "Task":
    from fedapa.stores.simulated_captures import last_tasks
    from fedapa.stores.simulated_rooms import preset_of

    tasks = last_tasks(preset_of(preset), seed=seed, workers=1)
    found = {task.place.scene.room.name: task for task in tasks}
    if room not in found:
        raise PlanError(
            f"room '{room}' is none of the simulated rooms '{preset}'; {nearest(room, found)}"
        )
    return found[room]


def _level(draw: np.random.Generator, greatest: int) -> int:
    """How many people are there next; large rooms would hardly ever be empty by an even lot."""
    return int(draw.integers(1, greatest + 1)) if greatest and draw.random() >= _EMPTY else 0


class _Decoded(Source):
    """Bytes from outside, decoded by a reader of ``csi``."""

    def __init__(self, *, form: str, chip: str | None = None) -> None:
        super().__init__()
        self._form, self._chip = form, chip
        self._gone: Counter[str] = Counter()
        self._stream = self._fresh()

    def _fresh(self) -> CaptureStream:
        return CaptureStream(self.name, self._chip, form=self._form)

    def _decode(self, parts: list[bytes], received: float) -> list[Piece]:
        before = self._stream.skipped
        try:
            captures = self._stream.feed(b"".join(parts))
        except CaptureError as error:  # of one frame; the others may be sound
            if len(parts) > 1:
                self._begin_anew(before)
                return [piece for part in parts for piece in self._decode([part], received)]
            self._begin_anew(Counter(self._stream.skipped) + Counter([str(error)[:200]]))
            return []
        return self._given([Piece(capture, received) for capture in captures if capture.packets])

    def _begin_anew(self, skipped: Mapping[str, int]) -> None:
        for reason, number in skipped.items():
            known = reason in self._gone or len(self._gone) < _REASONS
            self._gone[reason if known else "other reasons"] += number
        self._stream = self._fresh()

    def _skipped(self) -> dict[str, int]:
        return dict(self._gone + Counter(self._stream.skipped))


class NexmonUdp(_Decoded):
    """Datagrams of Nexmon receivers; from this machine alone unless another address is given."""

    def __init__(
        self, port: int = 5500, *, address: str = "127.0.0.1", chip: str | None = None
    ) -> None:
        self.name = f"udp {address}:{port}"
        super().__init__(form="nexmon", chip=chip)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _WAITING)
            with contextlib.suppress(OSError):  # elsewhere a datagram has the time of the poll
                self._socket.setsockopt(socket.SOL_SOCKET, _KERNEL_STAMP, 1)
            self._socket.bind((address, port))
        except (OSError, OverflowError) as error:
            self._socket.close()
            raise SourceError(
                f"{self.name}: cannot listen there ({_reason(error)}); choose a port that is free, "
                "1 to 65535, and an address of this machine"
            ) from error
        self.port = int(self._socket.getsockname()[1])

    def _fresh(self) -> CaptureStream:
        stream = super()._fresh()
        stream.feed(pcap_header())
        return stream

    def poll(self, now: float) -> list[Piece]:
        """The datagrams that wait at the port, each with the time at which it came."""
        came: list[tuple[float, bytes]] = []
        while len(came) < _AT_ONCE and not self.ended:
            try:
                datagram, told, _, _ = self._socket.recvmsg(_DATAGRAM, 64)
            except BlockingIOError:
                break
            except OSError as error:  # an address that went away, with its network
                self._gone[f"cannot be read: {_reason(error)}"] += 1
                break
            came.append((_stamp(told, now), datagram))
        # The system begins to stamp a little after it was asked to: what came before then has the
        # time at which it was read, which is later than that of the next.
        moments = np.minimum.accumulate([moment for moment, _ in came][::-1])[::-1]
        records = [
            pcap_record(moment // 10**6, moment % 10**6, nexmon_packet(datagram))
            for moment, (_, datagram) in zip(
                np.rint(1e6 * moments).astype(np.int64).tolist(), came, strict=True
            )
        ]
        return self._decode(records, now) if records else []

    def close(self) -> None:
        """Leave the port to others."""
        super().close()
        self._socket.close()


def _stamp(told: list[tuple[int, int, bytes]], now: float) -> float:
    """When a datagram came, by the operating system; else when it was read."""
    for level, kind, content in told:
        if (level, kind) == (socket.SOL_SOCKET, _KERNEL_STAMP) and len(content) == 16:
            seconds, nanoseconds = struct.unpack("qq", content)
            return float(seconds + nanoseconds * 1e-9)
    return max(0.0, now)


class _Opening:
    """A line that is being opened by a thread: an address that does not answer takes seconds."""

    def __init__(self, connect: Callable[[], int]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._given_up = False
        self.handle: int | None = None
        self.error: OSError | None = None
        self._thread = threading.Thread(target=self._open, name="fedapa line", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether there is a handle or an error."""
        return not self._thread.is_alive()

    def give_up(self) -> None:
        """Nobody wants it any more."""
        with self._lock:
            self._given_up = True
            if self.handle is not None:
                os.close(self.handle)
            self.handle = None

    def _open(self) -> None:
        try:
            handle = self._connect()
        except OSError as error:
            self.error = error
            return
        with self._lock:
            if self._given_up:
                os.close(handle)
            else:
                self.handle = handle


class _Line(_Decoded):
    """Text of an ESP32 from a line that may break; then it is opened again, later and later."""

    def __init__(self, *, patient: bool) -> None:
        super().__init__(form="esp32")
        self._opened = 0
        self._problem = ""
        self._wait = _WAITS[0]
        self._again = -float("inf")
        self._handle: int | None = None
        self._opening: _Opening | None = None
        if patient:
            return
        try:
            self._take(self._connect())
        except OSError as error:
            raise SourceError(
                f"{self.name}: cannot be opened ({_reason(error)}); {self.remedy}"
            ) from (error)

    remedy: str

    @abc.abstractmethod
    def _connect(self) -> int:
        """Open the line; its handle, which never waits."""

    def _take(self, handle: int) -> None:
        self._handle = handle
        self._opened += 1
        self._problem = ""

    def _reopened(self, now: float) -> bool:
        """Whether the line stands; otherwise it is on its way, or its time has not come."""
        if self._opening is None:
            # Longer than ever waited for: the clock was set back.
            if 0 < self._again - now <= _WAITS[1]:
                return False
            self._opening = _Opening(self._connect)
        if not self._opening.done:
            return False
        opened, self._opening = self._opening, None
        if opened.handle is None:
            self._lost(now, "nothing came of it" if opened.error is None else _reason(opened.error))
            return False
        self._take(opened.handle)
        return True

    def poll(self, now: float) -> list[Piece]:
        """The lines that are complete."""
        if self.ended or (self._handle is None and not self._reopened(now)):
            return []
        assert self._handle is not None
        try:
            content = os.read(self._handle, _BYTES)
        except BlockingIOError:
            return []
        except OSError as error:
            self._lost(now, _reason(error))
            return []
        if not content:
            self._lost(now, "the other side ended it")
            return []
        self._wait = _WAITS[0]
        return self._decode([content], now)

    def _lost(self, now: float, why: str) -> None:
        self._release()
        self._problem = f"{why}; opened again in {self._wait:.0f} s"
        self._again = now + self._wait
        self._wait = min(_WAITS[1], 2 * self._wait)

    def _release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
        self._handle = None

    @property
    def statistics(self) -> Statistics:
        """What came so far, and whether the line stands."""
        return replace(super().statistics, opened=self._opened, problem=self._problem)

    def close(self) -> None:
        """Let go of the line."""
        super().close()
        if self._opening is not None:
            self._opening.give_up()
        self._release()


class Esp32Tcp(_Line):
    """Lines of an ESP32 that a program hands on at an address, as ser2net does."""

    remedy = "start what hands the lines on there, or give its address and port"

    def __init__(self, host: str, port: int, *, patient: bool = False) -> None:
        """Lines from an address.

        Args:
            host: a name or an address.
            port: where the lines are.
            patient: wait for who is not there yet, instead of raising.
        """
        self.name = f"tcp {host}:{port}"
        self._place = (host, port)
        super().__init__(patient=patient)

    def _connect(self) -> int:
        try:
            line = socket.create_connection(self._place, timeout=_CONNECTING)
        except OverflowError as error:
            raise OSError(str(error)) from error
        line.setblocking(False)
        return line.detach()


class Esp32Serial(_Line):
    """Lines of an ESP32 at a serial device, e.g. /dev/ttyUSB0; not on Windows."""

    remedy = "plug the receiver in, name its device, and see that you may read it"

    def __init__(self, device: str | Path, *, baud: int = 921_600, patient: bool = False) -> None:
        """Lines from a device.

        Args:
            device: e.g. /dev/ttyUSB0.
            baud: its speed.
            patient: wait for a device that is not there yet, instead of raising.
        """
        self.name = f"serial {device}"
        self._device, self._baud = Path(device), baud
        super().__init__(patient=patient)

    def _connect(self) -> int:
        import termios
        import tty

        speed = getattr(termios, f"B{self._baud}", None)
        if speed is None:
            raise OSError(f"{self._baud} baud is none of the speeds of this system")
        handle = os.open(self._device, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
        try:
            if not os.isatty(handle):
                raise OSError("is no serial device")
            tty.setraw(handle)
            settings = termios.tcgetattr(handle)
            settings[4] = settings[5] = speed
            termios.tcsetattr(handle, termios.TCSANOW, settings)
        except (OSError, termios.error) as error:
            os.close(handle)
            raise OSError(str(error)) from error
        return handle


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
