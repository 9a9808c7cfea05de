"""Whether the fast path changes what is learned: the same runs by both, figures into paths.json.

``python -m benchmarks._paths`` trains FedAPA by the preset tables with nets by size, seed by seed:
by the fast path, by the plain one, and by the plain one with a learning rate that is off by 10⁻⁷
of itself. The last is the measure: a change of the size of rounding, which no path can be nearer
than. Runs take minutes, so they are no part of ``make bench``.
"""

import json
import multiprocessing
import statistics
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from fedapa import Plan, run
from fedapa.experiments.presets import preset
from fedapa.federation.environment import environment
from fedapa.models import fast

__all__ = ["PATH", "gather", "lines", "one"]

PATH = Path(__file__).parent / "paths.json"
WAYS = ("fast", "plain", "plain, learning rate · (1 + 10⁻⁷)")
SEEDS = (0, 1, 2)


def one(way: str, seed: int, change: Mapping[str, Any]) -> dict[str, Any]:
    """One run in this process, and what it ended with."""
    plan = Plan.of(preset("tables"), {"seed": seed, "model": {"architecture": "by-size"}}, change)
    usual = fast.fits
    if way == WAYS[2]:
        rate = plan.training.learning_rate * (1 + 1e-7)
        plan = Plan.of(plan.document(), {"training": {"learning_rate": rate}})
    if way != "fast":
        fast.fits = lambda *_: False
    try:
        finished = run(plan, workers=0)
    finally:
        fast.fits = usual
    return {
        "data": "SIMULATED" if finished.synthetic else "real",
        "source": finished.data["source"],
        "split": finished.data["split"],
        "rounds": finished.plan.rounds,
        "first_round": finished.records[0]["mean"]["accuracy"],
        "accuracy": finished.summary["over_rooms"]["mean"]["accuracy"],
    }


def gather(figures: Mapping[tuple[str, int], Mapping[str, Any]]) -> dict[str, Any]:
    """(way, seed) → what a run ended with, as one object."""
    first = next(iter(figures.values()))
    ways: dict[str, dict[str, Any]] = {}
    for (way, seed), ended in figures.items():
        ways.setdefault(way, {})[str(seed)] = {
            key: ended[key] for key in ("first_round", "accuracy")
        }
    about = {key: first[key] for key in ("data", "source", "split", "rounds")}
    return {**about, "commit": environment(0)["commit"], "ways": ways}


def lines(figures: Mapping[str, Any]) -> tuple[str, list[tuple[str, ...]]]:
    """What was run, and a row for each way: accuracy, and seed by seed its distance from plain."""
    plain = figures["ways"]["plain"]
    rows = []
    for way, seeds in figures["ways"].items():
        values = [100 * seeds[seed]["accuracy"] for seed in sorted(seeds)]
        rows.append(
            (
                way,
                f"{statistics.mean(values):.1f}",
                *(
                    "–" if way == "plain" else _apart(seeds, plain, moment)
                    for moment in ("first_round", "accuracy")
                ),
            )
        )
    told = (
        f"Data: {figures['data']} ({figures['source']}), split {figures['split']}, fedapa with "
        f"nets by size, {figures['rounds']} rounds, seeds {', '.join(sorted(plain))}, commit "
        f"{figures['commit'][:10] + figures['commit'][40:]}."
    )
    return told, rows


def _apart(seeds: Mapping[str, Any], plain: Mapping[str, Any], moment: str) -> str:
    apart: Sequence[float] = [
        100 * (seeds[seed][moment] - plain[seed][moment]) for seed in sorted(seeds)
    ]
    return ", ".join(f"{value:+.1f}" for value in apart)


def _main() -> int:
    asked = [(way, seed) for way in WAYS for seed in SEEDS]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        ended = list(pool.map(one, *zip(*asked, strict=True), [{}] * len(asked)))
    figures = gather(dict(zip(asked, ended, strict=True)))
    PATH.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")
    from benchmarks import _page

    _page.write()
    return 0


if __name__ == "__main__":
    raise SystemExit(_main())
