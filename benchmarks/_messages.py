"""What fewer bits and fewer peers cost: finished runs figures into messages.json.

``python -m benchmarks._messages RUN…`` reads the directories of ``fedapa run``; docs/performance.md
shows what was gathered last. Runs take minutes each, so they are no part of ``make bench``.
"""

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedapa.federation.run import Run

__all__ = ["PATH", "gather", "lines"]

PATH = Path(__file__).parent / "messages.json"


def gather(runs: Sequence[Run]) -> dict[str, Any]:
    """The runs' accuracy and bytes by what travels, seed by seed."""
    shown: dict[str, dict[str, Any]] = {}
    for run in runs:
        peers = run.plan.algorithm.get("peers", "all")
        name = run.plan.precision + ("" if peers == "all" else f", peers = {peers}")
        entry = shown.setdefault(name, {"accuracy": {}, "bytes": {}})
        entry["accuracy"][str(run.plan.seed)] = run.summary["over_rooms"]["mean"]["accuracy"]
        entry["bytes"][str(run.plan.seed)] = run.summary["bytes"]["per_round_and_room"]
    first = runs[0]
    return {
        "data": "SIMULATED" if first.synthetic else "real",
        "source": first.data["source"],
        "split": first.data["split"],
        "algorithm": first.plan.algorithm["name"],
        "architecture": first.plan.model.architecture,
        "rounds": first.plan.rounds,
        "blind": statistics.mean(
            run.summary["blind"]["constant"]["mean"]["accuracy"] for run in runs
        ),
        "commits": sorted({run.environment["commit"] for run in runs}),
        "runs": shown,
    }


def lines(figures: Mapping[str, Any]) -> tuple[str, list[tuple[str, ...]]]:
    """What was run, and a row for each way to send: bytes, accuracy, and the paired difference."""
    usual = figures["runs"]["float32"]
    rows = []
    for name, entry in figures["runs"].items():
        seeds = sorted(entry["accuracy"])
        values = [100 * entry["accuracy"][seed] for seed in seeds]
        pairs = [100 * (entry["accuracy"][seed] - usual["accuracy"][seed]) for seed in seeds]
        size = statistics.mean(entry["bytes"].values())
        rows.append(
            (
                name,
                f"{size / 1000:.1f}",
                f"{size / statistics.mean(usual['bytes'].values()):.2f}",
                _spread(values, "{:.1f}"),
                "–" if entry is usual else _spread(pairs, "{:+.1f}"),
                "–" if entry is usual else ", ".join(f"{pair:+.1f}" for pair in pairs),
            )
        )
    seeds = ", ".join(sorted(usual["accuracy"]))
    commits = ", ".join(commit[:10] + commit[40:] for commit in figures["commits"])
    told = (
        f"Data: {figures['data']} ({figures['source']}), split {figures['split']}, "
        f"{figures['algorithm']} with nets {figures['architecture']}, {figures['rounds']} rounds, "
        f"seeds {seeds}, commit {commits}. Always saying the commonest class is right in "
        f"{100 * figures['blind']:.1f} %."
    )
    return told, rows


def _spread(values: Sequence[float], form: str) -> str:
    if len(values) < 2:
        return form.format(values[0])
    return f"{form.format(statistics.mean(values))} ± {statistics.stdev(values):.1f}"


def _main() -> int:
    runs = [Run.load(folder) for folder in sys.argv[1:]]
    PATH.write_text(json.dumps(gather(runs), indent=1) + "\n")
    from benchmarks import _page

    _page.write()
    return 0


if __name__ == "__main__":
    sys.exit(_main())
