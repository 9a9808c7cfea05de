"""`kill -9` of an in-process run at random moments: it goes on, and ends with the same bytes.

::

    python -m tests.federation.kills --moments 50

One folder after the other is run, killed and gone on with, at moments that are drawn from the
whole time that a run takes, until so many kills have hit. Each folder that is finished has to be,
byte by byte, what a run without a kill left. Children are forks of a server that has imported
everything and done nothing else: a moment is one of the run, not of Python's start, and no child
has a lock or a pool of threads that somebody else was using.
"""

import argparse
import multiprocessing
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fedapa import Plan, run
from fedapa.experiments.presets import preset

_PATIENCE = 1800.0
"""s that a run may take on a busy machine."""
APART = frozenset(["seconds.jsonl", "environment.json", "name", ".lock"])
"""What differs from run to run: times, what it was made with and when it was resumed, its name."""


def content(folder: Path) -> dict[str, bytes]:
    """A run's files by their path, but for those that differ; states without the run's name."""
    name = (folder / "name").read_text().strip()
    return {
        str(path.relative_to(folder)).replace(name, "RUN"): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in APART
    }


def _carry_out(plan: Plan, out: Path, workers: int) -> None:
    torch.set_num_threads(1)
    try:
        run(plan, out=out, resume=True, workers=workers)
    except BaseException:
        traceback.print_exc()
        raise


def run_for(plan: Plan, out: Path, seconds: float, *, workers: int = 0) -> bool:
    """Whether a run in a process of its own was killed, after so long; False: it had ended."""
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload([_carry_out.__module__])
    process = forks.Process(target=_carry_out, args=(plan, out, workers))
    process.start()
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join()
        return True
    assert process.exitcode == 0, f"{out}: the run ended by {process.exitcode}"
    return False


@dataclass
class Killed:
    """What came of it."""

    moments: int = 0
    folders: int = 0
    """Runs that were finished and compared."""
    seconds: float = 0.0
    """That a run takes without a kill."""
    after: Counter[str] = field(default_factory=Counter)
    """What there was of a run when it was killed: kills by the rounds in its record."""


def kill_often(
    plan: Plan,
    folder: Path,
    moments: int,
    *,
    seed: int = 0,
    workers: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> Killed:
    """Kill runs of a plan so often; raises where a finished one is not what it should be."""
    rng = random.Random(f"kills {seed}")
    whole = folder / "whole"
    assert not run_for(plan, whole, _PATIENCE, workers=workers)  # also fills caches
    began = time.monotonic()
    assert not run_for(plan, folder / "again", _PATIENCE, workers=workers)
    killed = Killed(seconds=time.monotonic() - began)
    expected = content(whole)
    assert content(folder / "again") == expected, "two runs without a kill differ"
    while killed.moments < moments:
        out = folder / f"killed-{killed.folders}"
        while killed.moments < moments:
            if not run_for(plan, out, rng.uniform(0, killed.seconds), workers=workers):
                break
            killed.moments += 1
            killed.after[_reached(out)] += 1
        run_for(plan, out, _PATIENCE, workers=workers)
        _compare(content(out), expected, out)
        killed.folders += 1
        say(f"{killed.moments} kills, {killed.folders} runs finished, all equal")
        shutil.rmtree(out)
    return killed


def _reached(out: Path) -> str:
    if not (out / "plan.toml").is_file():
        return "before its plan"
    lines = out / "rounds.jsonl"
    rounds = len(lines.read_bytes().splitlines()) if lines.is_file() else 0
    if (out / "summary.json").is_file():
        return "after its summary"
    return f"after {rounds} rounds"


def _compare(got: dict[str, bytes], expected: dict[str, bytes], out: Path) -> None:
    different = [name for name in expected if got.get(name) != expected[name]]
    more = sorted(set(got) - set(expected))
    assert not different, f"{out}: other bytes in {', '.join(different)}"
    assert not more, f"{out}: left over: {', '.join(more)}"


def smoke_plan(**values: Any) -> Plan:
    """The smoke preset, FedAPA, six rounds."""
    return Plan.of(preset("smoke"), {"rounds": 6, **values})


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.federation.kills",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--moments", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=0, help="processes that train rooms")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="fedapa-kills-"))
    began = time.monotonic()

    def say(sentence: str) -> None:
        sys.stdout.write(f"{sentence}, {time.monotonic() - began:.0f} s\n")
        sys.stdout.flush()

    killed = kill_often(
        smoke_plan(), folder, options.moments, seed=options.seed, workers=options.workers, say=say
    )
    shutil.rmtree(folder)  # where it breaks, the folders stay
    told = ", ".join(f"{number} {when}" for when, number in sorted(killed.after.items()))
    say(
        f"{killed.moments} kills (seed {options.seed}; {told}) of SIMULATED smoke runs of "
        f"{killed.seconds:.1f} s: {killed.folders} runs finished, every byte as without a kill"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
