"""The soak: rooms on the network engine for minutes, with kills, cuts, liars and strangers.

::

    python -m tests.federation.network.soak                    # `make soak`: 12 rooms, 20 minutes
    python -m tests.federation.network.soak --minutes 5 --rooms 6

Everything that is injected is noted with its time in ``injected.jsonl``, and the run's own record
is held against it in the end (``judge``): rounds are whole, none is lost or changed later; a room
is absent only where it was hit, and never took part while it was away; each lie is rejected by
name, and nothing else is; strangers are in the log of refusals; every room ends with a net that
counts. Memory and open files of every process that lives for minutes stay as they are. Not in CI:
it needs two cores for twenty minutes.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric import ec

from fedapa import Plan, load_model
from fedapa.errors import FedapaError
from fedapa.evaluation.record import JsonLines
from tests.conftest import write_takes
from tests.federation.network.loopback import Cable, Federation, wait_until
from tests.federation.network.test_loopback import client_of, signed

_SETTLING = 40.0
"""s after an outage in which a room may still be coming back: its programs start again."""
_GROWTH = 24 << 20
"""Bytes by which a process may be larger in the last third of its life than in the second."""
_MORE_FILES = 24
_LONG_LIFE = 120.0
"""s that a process has to live to be judged by its growth."""
LIES = ("NaN", "huge", "other shape", "no frame", "another round", "cut off")


# ---- the liar ----------------------------------------------------------------------------------

LIAR = '''"""Loaded by Python at its start: this room's replies are lies in some rounds.

What it says in a round is always the same, also when it is asked again; each lie is noted.
"""

import importlib.abc
import importlib.machinery
import json
import os
import random
import sys
import time

NAME = "fedapa.federation.network.answering"
LIES = json.loads(os.environ["SOAK_LIES"])


def lying(module):
    import numpy
    from dataclasses import replace
    from fedapa.federation.messages import decode_reply, decode_round, encode_reply
    from fedapa.payload import decode, encode

    honest = module.answer

    def floats(tree, change):
        made = {}
        for name, value in tree.items():
            if isinstance(value, dict):
                value = floats(value, change)
            elif isinstance(value, numpy.ndarray) and value.dtype.kind == "f":
                value = change(value)
            made[name] = value
        return made

    def lie(what, frame):
        reply = decode_reply(frame)
        if what == "no frame":
            return b"nothing of this kind"
        if what == "cut off":
            return frame[: len(frame) // 2]
        if what == "another round":
            return encode_reply(replace(reply, round=reply.round + 1))
        changes = {
            "NaN": lambda value: numpy.full_like(value, numpy.nan),
            "huge": lambda value: numpy.full_like(value, 1e12),
            "other shape": lambda value: value[:, :1],
        }
        upload = floats(decode(reply.upload), changes[what])
        return encode_reply(replace(reply, upload=encode(upload)))

    def answer(place, action, frames):
        made = honest(place, action, frames)
        if action != "train.exchange" or "reply" not in made:
            return made
        number = decode_round(frames["round"]).number
        draw = random.Random(f"{os.environ['SOAK_SEED']} {number}")
        trained = decode_reply(made["reply"]).upload is not None
        if draw.random() < 0.5 or not trained:
            return made
        what = draw.choice(LIES)
        with open(os.environ["SOAK_NOTES"], "a") as notes:
            notes.write(json.dumps({"at": time.time(), "round": number, "what": what}) + "\\n")
        return {**made, "reply": lie(what, made["reply"])}

    module.answer = answer


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != NAME:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        run = spec.loader.exec_module

        def executed(module):
            run(module)
            lying(module)

        spec.loader.exec_module = executed
        return spec


sys.meta_path.insert(0, Finder())
'''


# ---- what is injected --------------------------------------------------------------------------


@dataclass(frozen=True)
class Injected:
    """One thing that was done to the federation."""

    what: str
    """kill room, kill supernode, cut, kill server, kill superlink, kill run, stranger"""
    target: str
    """A room, or "server"."""
    begin: float
    end: float
    """s since 1970; when whatever was killed was started again, or the cable was mended."""


@dataclass(frozen=True)
class Line:
    """A line of the record as it was first seen."""

    at: float
    text: str


@dataclass
class Sample:
    """A process at some moments of its life."""

    role: str
    moments: list[tuple[float, int, int]] = field(default_factory=list)
    """(s since 1970, resident bytes, open files)"""


# ---- the judge: all of it without a process ----------------------------------------------------


def judge(
    records: Sequence[Mapping[str, Any]],
    seen: Sequence[Line],
    injected: Sequence[Injected],
    lies: Sequence[Mapping[str, Any]],
    *,
    liar: str,
    ends: Mapping[int, float],
    deadline: float,
) -> list[str]:
    """What is wrong with the record of a run, in sentences; nothing where all is as injected.

    Args:
        records: the lines of the run at its end.
        seen: the lines as they came, before they could be cut off.
        injected: what was done.
        lies: what the liar said: "at", "round" and "what".
        liar: its name.
        ends: round → when its line was first seen, s since 1970.
        deadline: s that a round waits for a room.
    """
    wrong: list[str] = []
    numbers = [record["round"] for record in records]
    if numbers != list(range(1, len(records) + 1)):
        wrong.append(f"rounds are {numbers}; expected 1 to {len(records)}, each once")
    texts = {record["round"]: json.dumps(record, sort_keys=True) for record in records}
    last_seen = {json.loads(line.text)["round"]: line for line in seen}
    kills = [one for one in injected if one.what in ("kill server", "kill run", "kill superlink")]
    for number, line in sorted(last_seen.items()):
        if number not in texts:
            wrong.append(f"round {number} was in the record and is lost")
        # A run that was killed after the line and before its checkpoint does that round again.
        elif texts[number] != json.dumps(json.loads(line.text), sort_keys=True) and not any(
            abs(kill.begin - line.at) < deadline + _SETTLING for kill in kills
        ):
            wrong.append(f"round {number} was changed after it was written")
    told = {entry["round"]: entry["what"] for entry in lies}
    for record in records:
        number, rejected = record["round"], record.get("rejected", {})
        for room, reason in rejected.items():
            if room != liar:
                wrong.append(f"round {number}: honest room '{room}' was rejected: {reason}")
            elif number not in told:
                wrong.append(f"round {number}: '{liar}' did not lie and was rejected: {reason}")
        took_part = record["rooms"].get(liar, {}).get("participated", False)
        if number in told and took_part:
            wrong.append(f"round {number}: a lie ({told[number]}) of '{liar}' was taken")
        elif (
            number in told
            and number in ends
            and liar not in rejected
            and not _hits(liar, number, injected, ends, deadline)
        ):
            wrong.append(f"round {number}: a lie ({told[number]}) of '{liar}' is not recorded")
        wrong += _absences(
            record, injected, ends, deadline=deadline, lied=number in told, liar=liar
        )
    return wrong


def _uploads_of(number: int, ends: Mapping[int, float]) -> tuple[float, float]:
    """Between when the uploads of a round came.

    Between the lines of the two rounds before it: a line is written when the next exchange has
    brought its scores.
    """
    return ends.get(number - 2, 0.0), ends.get(number - 1, ends[number])


def _hits(
    room: str,
    number: int,
    injected: Sequence[Injected],
    ends: Mapping[int, float],
    deadline: float,
) -> list[Injected]:
    """What may have kept a room away from a round."""
    begin, end = _uploads_of(number, ends)
    return [
        one
        for one in injected
        if one.target in (room, "server")
        and one.what != "stranger"  # who is refused keeps nobody away
        and one.begin < end
        and one.end + _SETTLING + deadline > begin
    ]


def unexcused(
    records: Sequence[Mapping[str, Any]],
    injected: Sequence[Injected],
    ends: Mapping[int, float],
    deadline: float,
) -> int:
    """Rooms in rounds whose absence would have been wrong: what the judge could see at all."""
    return sum(
        not _hits(room, record["round"], injected, ends, deadline)
        for record in records
        if record["round"] in ends
        for room in record["rooms"]
    )


def _absences(
    record: Mapping[str, Any],
    injected: Sequence[Injected],
    ends: Mapping[int, float],
    *,
    deadline: float,
    lied: bool,
    liar: str,
) -> Iterator[str]:
    """Absences that nobody made, and presences that cannot be."""
    number = record["round"]
    if number not in ends:
        return
    begin, end = _uploads_of(number, ends)
    for room in record.get("missing", {}).get("upload", ()):
        if room == liar and lied:
            continue
        if not _hits(room, number, injected, ends, deadline):
            yield f"round {number}: room '{room}' is absent, and nothing was done to it"
    for room, entry in record["rooms"].items():
        away = [
            one
            for one in injected
            if one.target == room and one.what == "kill room" and one.begin < begin < end < one.end
        ]
        if away and entry.get("participated"):
            yield f"round {number}: room '{room}' took part and was dead all the time"


def grown(samples: Mapping[int, Sample]) -> list[str]:
    """Processes that became larger, in sentences."""
    wrong = []
    for pid, sample in sorted(samples.items()):
        first = sample.moments[0][0]
        life = sample.moments[-1][0] - first
        if life < _LONG_LIFE:
            continue
        thirds: list[list[tuple[float, int, int]]] = [[], [], []]
        for moment in sample.moments:
            thirds[min(2, int(3 * (moment[0] - first) / life))].append(moment)
        if not thirds[1] or not thirds[2]:
            continue
        (before, files), (after, more) = (
            (statistics.median(m[1] for m in part), statistics.median(m[2] for m in part))
            for part in thirds[1:]
        )
        if after - before > _GROWTH:
            wrong.append(
                f"{sample.role} (process {pid}) grew by {(after - before) / 2**20:.0f} MB within "
                f"{life / 3:.0f} s"
            )
        if more - files > _MORE_FILES:
            wrong.append(f"{sample.role} (process {pid}) has {more - files:.0f} more files open")
    return wrong


# ---- processes ---------------------------------------------------------------------------------


def family(pid: int) -> list[int]:
    """A process and all that it started, by /proc."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(entry.name))
    found, left = [], [pid]
    while left:
        one = left.pop()
        found.append(one)
        left += parents.get(one, [])
    return found


def program_of(pid: int) -> str:
    """Which of our programs a process is: superlink, supernode, run, worker, check, or fedapa."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        for place, word in enumerate(words[:-2]):
            if word == b"fedapa.federation.network.child":
                return words[place + 2].decode()
        return "fedapa"
    return ""


def child_program(pid: int, program: str) -> int | None:
    return next((one for one in family(pid) if program_of(one) == program), None)


# ---- the soak ----------------------------------------------------------------------------------


@dataclass
class Soak:
    """A federation that is not left alone."""

    folder: Path
    rooms: Sequence[str]
    seed: int
    deadline: float
    say: Callable[[str], None]
    injected: list[Injected] = field(default_factory=list)
    seen: list[Line] = field(default_factory=list)
    ends: dict[int, float] = field(default_factory=dict)
    samples: dict[int, Sample] = field(default_factory=dict)
    due: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    """What is to be done later: things that were broken are mended."""
    down: set[str] = field(default_factory=set)
    """Rooms, or "server", that something is being done to."""

    def __post_init__(self) -> None:
        self.rng = random.Random(f"soak {self.seed}")
        store = self.folder / "rooms.h5"
        write_takes(store, {room: {0: 3, 1: 3, 2: 3} for room in self.rooms})
        self.federation = Federation(self.folder, store)
        self.cables: dict[str, Cable] = {}
        self.liar, self.lies = self.rooms[-1], self.folder / "lies.jsonl"
        hook = self.folder / "liar"
        hook.mkdir()
        (hook / "sitecustomize.py").write_text(LIAR)
        self.lying = {
            "PYTHONPATH": os.pathsep.join([str(hook), os.environ.get("PYTHONPATH", "")]),
            "SOAK_LIES": json.dumps(LIES),
            "SOAK_SEED": str(self.seed),
            "SOAK_NOTES": str(self.lies),
        }

    def plan_file(self, rounds: int | str) -> Path:
        plan = Plan.of(
            {
                "rounds": rounds,
                "data": {"window": 16},
                "model": {"architecture": "tiny", "width": 8},
                "training": {"batch_size": 4, "learning_rate": 0.05},
                "network": {"deadline": self.deadline, "quorum": 2},
            }
        )
        path = self.folder / "soak.toml"
        path.write_text(plan.toml())
        return path

    def start(self) -> Path:
        """The server, its rooms and a run without a last round."""
        for room in self.rooms:
            self.federation.enrol(room)
        self.federation.start_server()
        for room in self.rooms:
            self.cables[room] = Cable(self.federation.server.settings.port)
            self.start_room(room)
        self.federation.wait_for_rooms(*self.rooms)
        return self.federation.begin(self.plan_file("open"))

    def start_room(self, room: str) -> None:
        direct = self.federation.address
        self.federation.address = f"localhost:{self.cables[room].port}"
        try:
            self.federation.start_room(room, **(self.lying if room == self.liar else {}))
        finally:
            self.federation.address = direct

    # ---- faults --------------------------------------------------------------------------------

    def note(self, what: str, target: str, begin: float) -> None:
        one = Injected(what, target, begin, time.time())
        self.injected.append(one)
        with (self.folder / "injected.jsonl").open("a") as file:
            file.write(json.dumps(asdict(one)) + "\n")

    def inject(self) -> None:
        """One fault, by chance; what is broken is mended later, by ``look``."""
        free = [room for room in self.rooms if room not in self.down]
        kinds: list[tuple[int, Callable[[], None]]] = [(2, self.come_as_stranger)]
        if free and len(self.down) < len(self.rooms) // 3:
            kinds += [(4, self.kill_room), (3, self.cut), (2, self.kill_supernode)]
        if "server" not in self.down:
            kinds += [(1, self.kill_server), (1, self.kill_superlink), (1, self.kill_run)]
        weights = [weight for weight, _ in kinds]
        self.rng.choices([fault for _, fault in kinds], weights)[0]()

    def _free_room(self) -> str:
        return self.rng.choice([room for room in self.rooms if room not in self.down])

    def later(self, target: str, what: str, begin: float, seconds: float, mend: Any) -> None:
        """``mend`` after so long, and note then what was done and for how long."""
        self.down.add(target)

        def done() -> None:
            mend()
            self.down.discard(target)
            self.note(what, target, begin)

        self.due.append((time.monotonic() + seconds, done))

    def kill_room(self) -> None:
        room, begin = self._free_room(), time.time()
        self.say(f"kill -9 of room '{room}'")
        self.federation.kill(room)
        self.later(room, "kill room", begin, self.rng.uniform(1, 60), lambda: self.start_room(room))

    def cut(self) -> None:
        room, begin = self._free_room(), time.time()
        self.say(f"the cable of '{room}' is cut")
        self.cables[room].part()
        self.later(room, "cut", begin, self.rng.uniform(1, 45), self.cables[room].mend)

    def kill_supernode(self) -> None:
        room, begin = self._free_room(), time.time()
        pid = child_program(self.federation.processes[room].pid, "supernode")
        if pid is not None:
            self.say(f"kill -9 of the SuperNode of '{room}'")
            os.kill(pid, signal.SIGKILL)
            # It is started again by the room, at once; Flower takes it back after a minute.
            self.later(room, "kill supernode", begin, 60.0, lambda: None)

    def kill_server(self) -> None:
        begin = time.time()
        self.say("kill -9 of the server")
        self.federation.kill("server")
        self.later(
            "server",
            "kill server",
            begin,
            self.rng.uniform(1, 20),
            self.federation.start_server,
        )

    def kill_superlink(self) -> None:
        self._kill_of_server("superlink")

    def kill_run(self) -> None:
        self._kill_of_server("run")

    def _kill_of_server(self, program: str) -> None:
        begin = time.time()
        pid = child_program(self.federation.processes["server"].pid, program)
        if pid is not None:
            self.say(f"kill -9 of the server's {program}")
            os.kill(pid, signal.SIGKILL)
            self.later("server", f"kill {program}", begin, 10.0, lambda: None)

    def come_as_stranger(self) -> None:
        """Ask with a key that nobody enrolled; while the server is down nobody hears it."""
        begin, key = time.time(), ec.generate_private_key(ec.SECP384R1())
        with contextlib.suppress(httpx.HTTPError), client_of(self.federation) as client:
            status = client.post("/v1/fleet/pull-messages", headers=signed(key)).status_code
            assert status == 401, status
            self.note("stranger", "server", begin)

    # ---- what is seen --------------------------------------------------------------------------

    def look(self, out: Path) -> None:
        """Mend what is due, note new lines of the record and how large processes are."""
        for entry in [entry for entry in self.due if entry[0] <= time.monotonic()]:
            self.due.remove(entry)
            entry[1]()
        known = {line.text for line in self.seen}
        path = out / "rounds.jsonl"
        if path.is_file():
            whole, _, _ = path.read_text().rpartition("\n")
            for text in whole.splitlines():
                if text not in known:
                    self.seen.append(Line(time.time(), text))
                    self.ends.setdefault(json.loads(text)["round"], time.time())
        for name, process in self.federation.processes.items():
            for pid in family(process.pid):
                with contextlib.suppress(OSError):
                    self.sample(pid, name)

    def sample(self, pid: int, name: str) -> None:
        program = program_of(pid)
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        sample = self.samples.setdefault(pid, Sample(f"{program} of {name}"))
        sample.moments.append((time.time(), pages * os.sysconf("SC_PAGE_SIZE"), files))

    def mend_all(self, out: Path) -> None:
        while self.due:
            self.due = [(0.0, mend) for _, mend in self.due]
            self.look(out)
        for room in self.rooms:
            if self.federation.processes[room].poll() is not None:
                raise AssertionError(f"room '{room}' ended: {self.federation.said(room)[-500:]}")

    def finish(self, out: Path) -> None:
        """Wait until all take part, give the run a last round, and wait for its end."""

        def together() -> bool:
            self.look(out)
            if not self.seen:
                return False
            rooms = json.loads(self.seen[-1].text)["rooms"]
            honest = [room for room in self.rooms if room != self.liar]
            return all(rooms.get(room, {}).get("participated") for room in honest)

        wait_until(together, "a round of all honest rooms", 900)
        last = JsonLines(out / "rounds.jsonl").read()[-1]["round"] + 4
        self.federation.begin(self.plan_file(last))
        self.federation.wait_for_end()
        self.look(out)

    def wrong(self, out: Path) -> list[str]:
        """What is not as it should be, in sentences."""
        lies = JsonLines(self.lies).read()
        records = JsonLines(out / "rounds.jsonl").read()
        wrong = judge(
            records,
            self.seen,
            self.injected,
            lies,
            liar=self.liar,
            ends=self.ends,
            deadline=self.deadline,
        )
        strangers = sum(one.what == "stranger" for one in self.injected)
        refused = sum("not enrolled" in one["reason"] for one in self.federation.server.refused())
        if refused < strangers:
            wrong.append(f"{strangers} strangers came, {refused} are in the log of refusals")
        wrong += grown(self.samples)
        name = (out / "name").read_text().strip()
        for room in self.rooms:
            path = self.folder / room / "models" / name / f"{room}.safetensors"
            try:
                load_model(path)
            except FedapaError as error:
                wrong.append(f"room '{room}' has no model at the end: {error}")
        left = list(self.folder.rglob("*.partial"))
        wrong += [f"{path} was left behind" for path in left if "flower" not in path.parts]
        return wrong

    def told(self, out: Path) -> str:
        """What was done and seen, in one line."""
        kinds = Counter(one.what for one in self.injected)
        lies = JsonLines(self.lies).read()
        records = JsonLines(out / "rounds.jsonl").read()
        absent = sum(len(record.get("missing", {}).get("upload", ())) for record in records)
        rejected = sum(len(record.get("rejected", {})) for record in records)
        lives = [sample for sample in self.samples.values() if len(sample.moments) > 1]
        long = [one for one in lives if one.moments[-1][0] - one.moments[0][0] >= _LONG_LIFE]
        free = unexcused(records, self.injected, self.ends, self.deadline)
        done = ", ".join(f"{number} × {what}" for what, number in sorted(kinds.items()))
        return (
            f"{len(records)} rounds, {len(self.rooms)} rooms; injected: {done}, "
            f"{len({entry['round'] for entry in lies})} rounds with a lie; recorded: {absent} "
            f"absences, {rejected} rejections; {free} of {len(records) * len(self.rooms)} uploads "
            f"had no fault to excuse an absence; {len(self.samples)} processes, {len(long)} of "
            f"them for {_LONG_LIFE:.0f} s or longer"
        )

    def end(self) -> None:
        self.federation.end()
        for cable in self.cables.values():
            cable.close()


def soak(
    folder: Path,
    *,
    minutes: float,
    rooms: int,
    seed: int,
    deadline: float,
    pause: float,
    say: Callable[[str], None],
) -> tuple[list[str], str]:
    """What went wrong, in sentences, and what was done, in one line."""
    names = [f"room-{number:02d}" for number in range(1, rooms + 1)]
    one = Soak(folder, names, seed, deadline, say)
    try:
        out = one.start()
        wait_until(lambda: one.look(out) or one.seen, "a first round", 900)
        say(f"the first round is done; {minutes:g} minutes of faults begin")
        until, due = time.monotonic() + 60 * minutes, time.monotonic()
        while time.monotonic() < until:
            if time.monotonic() >= due:
                one.inject()
                due = time.monotonic() + one.rng.uniform(pause / 6, pause)
            one.look(out)
            time.sleep(1.0)
        say("all is mended; the run comes to its end")
        one.mend_all(out)
        one.finish(out)
        return one.wrong(out), one.told(out)
    finally:
        one.end()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.federation.network.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=20.0, help="of faults")
    parser.add_argument("--rooms", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--deadline", type=float, default=40.0, help="s of a round")
    parser.add_argument(
        "--pause",
        type=float,
        default=60.0,
        help="s between two faults at most, a sixth of it at least: with fewer faults there are "
        "more uploads without an excuse, with more of them more happens at once",
    )
    options = parser.parse_args(arguments)
    folder, began = Path(tempfile.mkdtemp(prefix="fedapa-soak-")), time.monotonic()

    def say(sentence: str) -> None:
        sys.stdout.write(f"{time.monotonic() - began:6.0f} s  {sentence}\n")
        sys.stdout.flush()

    say(f"seed {options.seed}, files in {folder}")
    wrong, told = soak(
        folder,
        minutes=options.minutes,
        rooms=options.rooms,
        seed=options.seed,
        deadline=options.deadline,
        pause=options.pause,
        say=say,
    )
    say(told)
    for sentence in wrong:
        say(f"WRONG: {sentence}")
    if wrong:
        say(f"{len(wrong)} things are wrong; all files are kept in {folder}")
        return 1
    shutil.rmtree(folder)
    say("nothing is lost, memory and open files are flat, the record is what was injected")
    return 0


if __name__ == "__main__":
    sys.exit(main())
