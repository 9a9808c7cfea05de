"""The mutation run: whatever is read, damaged or hostile, gives a value or a refusal in words.

One driver for every kind of input; what is mutated and what must hold stands beside the tests of
the part that reads it (``mutations.py``)::

    python -m tests.fuzz                         # 100,000 inputs of every kind: `make fuzz`
    python -m tests.fuzz --inputs 2000 --kind stores --kind captures
    python -m tests.fuzz --minutes 10            # as far as that goes; the next call goes on

An input is known by (kind, seed, number), so that a breaking one can be made again. It breaks by
any exception but a refusal, by the end of the process, by taking longer than ``Subject.seconds``
of a processor or a minute in all, or when memory or open files grow over the inputs. Each kind
runs in a process of its own: a library that crashes there is a finding, not the end of the run.
"""

import argparse
import importlib
import json
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from fedapa.files import write_text

_NUMBERS = (0, 1, 2, 3, 4, 7, 8, 15, 16, 127, 128, 255, 256, 1000, 32767, 32768, 65535)
_WIDE = (0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 100_000, 262_144, 262_145, 1 << 24)
_PEAK = 64 << 20
"""Bytes beside ten times the input that one input may take for a while, or a kind may keep."""
_STAYS = 24 << 20
"""Bytes by which a process may be larger at the end than when it was warm: 250 an input."""
_WARM = 2000
"""Inputs after which caches are full and arenas as large as they become."""
_FILES = 8
"""Descriptors that may be open at the end beside those of the beginning."""
MODULES = {
    "captures": "tests.csi.mutations",
    "stores": "tests.stores.mutations",
    "manifests": "tests.stores.mutations",
    "plans": "tests.federation.mutations",
    "runs": "tests.federation.mutations",
    "messages": "tests.federation.mutations",
    "models": "tests.rooms.mutations",
    "http": "tests.service.mutations",
    "mqtt": "tests.service.mutations",
}
"""kind → the module whose ``subjects()`` has it; "captures:intel" is one of the captures."""


# ---- mutations ---------------------------------------------------------------------------------


def mutate(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
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


_TEXTS = ("", " ", "\0", "../../etc/passwd", "a/b", "é" * 70, "\ud800", "nan", "x" * 5000, "{room}")
_ODD_NUMBERS = (0, -1, 1, 2, 1e308, -1e308, 1e-320, 10**30, 2**63, -(2**63), 0.5, float("nan"))


def odd_value(rng: random.Random) -> Any:
    """What nobody expects in a document."""
    kind = rng.randrange(8)
    if kind == 0:
        return rng.choice((None, True, False))
    if kind in (1, 2, 3):
        return rng.choice(_ODD_NUMBERS)
    if kind == 4:
        return rng.choice(_TEXTS)
    if kind == 5:
        return [rng.choice(_ODD_NUMBERS) for _ in range(rng.choice((0, 1, 3)))]
    if kind == 6:
        return {rng.choice(_TEXTS): rng.choice(_ODD_NUMBERS)}
    return rng.choice((float("inf"), -float("inf"), [[]], {}, [{}], 10**4000))


def mutate_tree(value: Any, rng: random.Random, odd: Callable[[random.Random], Any]) -> Any:
    """A document with one place changed: a value replaced, taken away, doubled or renamed."""
    if isinstance(value, Mapping) and value:
        word = rng.choice(sorted(value))
        kept = dict(value)
        kind = rng.randrange(12)
        if kind == 0:
            del kept[word]
        elif kind == 1:
            kept[rng.choice(_TEXTS)] = kept.pop(word)
        elif kind == 2:
            kept[word] = kept[rng.choice(sorted(kept))]
        elif kind == 3:
            kept[word] = odd(rng)
        else:
            kept[word] = mutate_tree(kept[word], rng, odd)
        return kept
    if isinstance(value, list) and value:
        place = rng.randrange(len(value))
        kind = rng.randrange(8)
        if kind == 0:
            return value[:place] + value[place + 1 :]
        if kind == 1:
            return [*value, value[place]]
        if kind == 2:
            return odd(rng)
        return [
            *value[:place],
            mutate_tree(value[place], rng, odd),
            *value[place + 1 :],
        ]
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    if plain and abs(value) < 1e300 and rng.random() < 0.3:
        return rng.choice((-value, value + 1, value * 1000, value / 3, int(value)))
    return odd(rng)


# ---- subjects ----------------------------------------------------------------------------------


class Subject:
    """One kind of input: sound ones to begin with, and what must hold of every other."""

    kind: ClassVar[str] = ""
    seconds: ClassVar[float] = 5.0
    """Of a processor that one input may take."""
    peak: ClassVar[int] = _PEAK

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seeds: Sequence[bytes] = ()

    def mutated(self, rng: random.Random) -> bytes:
        """A damaged or hostile input."""
        return mutate(rng.choice(self.seeds), rng, self.seeds)

    def attempt(self, data: bytes, rng: random.Random) -> str:
        """Read it in the ways that it is read; "read", or "refused". Anything else raises."""
        raise NotImplementedError

    def close(self) -> None:
        """End what was begun."""


Make = Callable[[Path], Subject]


def names_of(kinds: Sequence[str] = ()) -> list[str]:
    """The names of these kinds, or of all; captures have one for each format.

    A ValueError names one that is unknown.
    """
    wanted = list(kinds) or list(MODULES)
    for kind in wanted:
        known = list(MODULES)
        if kind not in known and kind.partition(":")[0] == "captures":
            known = list(_subjects(MODULES["captures"]))
        if kind not in known:
            raise ValueError(f"unknown kind '{kind}'; known: {', '.join(known)}")
    return [
        name
        for kind in wanted
        for name in (_subjects(MODULES[kind]) if kind == "captures" else [kind])
    ]


def _subjects(module: str) -> dict[str, Make]:
    made: dict[str, Make] = importlib.import_module(module).subjects()
    return made


# ---- the run -----------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What a run over one kind came to."""

    kind: str
    seed: int = 0
    done: int = 0
    """Inputs tried."""
    counts: dict[str, int] = field(default_factory=dict)
    """By what came of them."""
    seconds: float = 0.0
    slowest: float = 0.0
    """Seconds of a processor that one input took at most."""
    peak: int = 0
    """Bytes that an input took at most for a while."""
    stays: int = 0
    """Bytes by which the process was larger at its end than when it was warm."""
    files: int = 0
    """Descriptors that were open at the end beside those of the beginning."""

    def line(self) -> str:
        """For people."""
        told = ", ".join(f"{number} {what}" for what, number in sorted(self.counts.items()))
        return (
            f"{self.kind}: {self.done} inputs of seed {self.seed} ({told}), no crash, "
            f"{self.seconds:.0f} s, slowest {self.slowest:.2f} s, peak {self.peak / 2**20:+.1f} MB,"
            f" stays {self.stays / 2**20:+.1f} MB, open files {self.files:+d}"
        )


def memory_now() -> int:
    """Resident bytes of this process; its peak where the system does not tell."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return peak_memory()
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def open_files() -> int:
    """Descriptors of this process; 0 where the system does not tell."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


Tick = Callable[[int, Outcome], bool]


def run(
    name: str,
    inputs: int,
    *,
    folder: Path,
    seed: int = 0,
    start: int = 0,
    tick: Tick = lambda number, outcome: True,
) -> Outcome:
    """Inputs ``start`` to ``inputs`` of a kind, in this process; one that breaks a promise raises.

    ``tick`` is asked before each input whether to go on. The breaking input is kept in ``folder``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    subject = _subjects(MODULES[name.partition(":")[0]])[name](folder)
    outcome = Outcome(name, seed, start)
    counts: Counter[str] = Counter()
    kept = folder / f"{name.replace(':', '-')}.input"
    try:
        for data in subject.seeds:
            made = subject.attempt(data, random.Random(0))
            assert made == "read", f"{name}: a sound input is {made}"
        files, peak, warm = open_files(), peak_memory(), memory_now()
        for number in range(start, inputs):
            if not tick(number, outcome):
                break
            rng = random.Random(f"{name} {seed} {number}")
            data = subject.mutated(rng)
            kept.write_bytes(data)
            began = time.process_time()  # a busy machine is slow, not wrong; who hangs is killed
            try:
                counts[subject.attempt(data, rng)] += 1
                took = time.process_time() - began
                outcome.slowest = max(outcome.slowest, took)
                assert took < subject.seconds, f"took {took:.1f} s"
                outcome.peak = max(outcome.peak, peak_memory() - peak)
                most = subject.peak + 10 * len(data)
                assert outcome.peak < most, f"took {outcome.peak >> 20} MB"
            except BaseException as error:
                error.add_note(f"{name}: input {number} of seed {seed}; kept as {kept}")
                raise
            outcome.done, outcome.counts = number + 1, dict(counts)
            if number - start == _WARM:
                warm, peak = memory_now(), peak_memory() - outcome.peak
        outcome.stays = memory_now() - warm
        outcome.files = open_files() - files
        assert outcome.stays < _PEAK, f"{name}: grew by {outcome.stays >> 20} MB"
        if outcome.done - start > 2 * _WARM:
            assert outcome.stays < _STAYS, f"{name}: grew by {outcome.stays >> 20} MB"
        assert outcome.files <= _FILES, f"{name}: {outcome.files} more files are open"
    finally:
        subject.close()
    return outcome


# ---- the command -------------------------------------------------------------------------------


def _work(
    name: str, inputs: int, seed: int, start: int, folder: str, until: float, beat: Any, answer: Any
) -> None:
    """In a process of its own; ``beat`` has when the present input began, and its number."""

    parent = os.getppid()

    def tick(number: int, outcome: Outcome) -> bool:
        beat[0], beat[1] = time.monotonic(), number
        return time.monotonic() < until and os.getppid() == parent

    warnings.simplefilter("error")  # as in the tests
    try:
        answer.send(run(name, inputs, folder=Path(folder), seed=seed, start=start, tick=tick))
    except BaseException:
        answer.send(traceback.format_exc())


def apart(
    name: str, inputs: int, *, seed: int, start: int, folder: Path, until: float
) -> Outcome | str:
    """As ``run``, in a process of its own; where it breaks, what there is to say of it."""
    context = multiprocessing.get_context("spawn")
    beat, (near, far) = context.Array("d", [0.0, 0.0]), context.Pipe(duplex=False)
    process = context.Process(
        target=_work, args=(name, inputs, seed, start, str(folder), until, beat, far), daemon=True
    )
    process.start()
    far.close()
    while not near.poll(1.0) and process.is_alive():
        began, number = beat[0], int(beat[1])
        if began and time.monotonic() - began > 60:
            process.kill()
            process.join()
            return f"{name}: input {number} of seed {seed} hangs; kept in {folder}"
    try:
        told: Outcome | str = near.recv()
    except EOFError:
        process.join()
        told = (
            f"{name}: input {int(beat[1])} of seed {seed} ended the process by {process.exitcode}"
        )
        told += f"; kept in {folder}"
    process.join()
    return told


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--inputs", type=int, default=100_000, help="of each kind")
    parser.add_argument("--kind", action="append", default=[], help=f"of {', '.join(MODULES)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="for all of them")
    parser.add_argument("--afresh", action="store_true", help="forget how far the last call came")
    parser.add_argument(
        "--progress", type=Path, default=Path("build/fuzz.json"), help="how far it is"
    )
    options = parser.parse_args(arguments)
    if options.inputs < 1:
        parser.error(f"--inputs {options.inputs}: at least one is needed")
    try:
        names = names_of(options.kind)
    except ValueError as error:
        parser.error(str(error))
    began = time.monotonic()
    before = {} if options.afresh else _progress(options.progress)
    left, broken = [], 0
    for name in names:
        place = f"{name} {options.seed}"
        start = int(before.get(place, {}).get("done", 0))
        if start >= options.inputs:
            _say(f"{name}: {start} inputs of seed {options.seed} were done before")
            continue
        folder, kind_began = Path(tempfile.mkdtemp(prefix="fedapa-fuzz-")), time.monotonic()
        told = apart(
            name,
            options.inputs,
            seed=options.seed,
            start=start,
            folder=folder,
            until=began + 60 * options.minutes,
        )
        if isinstance(told, str):
            _say(told)
            broken += 1
            continue
        shutil.rmtree(folder)  # a breaking input is kept
        told.counts = dict(Counter(before.get(place, {}).get("counts", {})) + Counter(told.counts))
        told.seconds = before.get(place, {}).get("seconds", 0.0) + time.monotonic() - kind_began
        before[place] = asdict(told)
        write_text(options.progress, json.dumps(before, indent=1, sort_keys=True))
        _say(told.line())
        if told.done < options.inputs:
            left.append(name)
    seconds = time.monotonic() - began
    if broken:
        _say(f"{broken} of {len(names)} kinds broke, after {seconds:.0f} s")
        return 1
    if left:
        _say(f"{seconds:.0f} s are over; the same command goes on with: {', '.join(left)}")
        return 0
    options.progress.unlink(missing_ok=True)  # the next call begins anew
    _say(f"{len(names)} kinds, {options.inputs} inputs each, {seconds:.0f} s: nothing broke")
    return 0


def _progress(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
