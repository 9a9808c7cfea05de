"""The first tables of docs/performance.md: what ``python -m benchmarks peers --keep`` measured."""

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["BARS", "answer", "bars", "rounds", "told"]

WORK = {
    "quick_large": "Large, 125 × 56, 6 rooms, FedAPA",
    "quick_middle": "Middle, 125 × 56, 6 rooms, FedAPA",
    "quick_tiny": "Tiny, 125 × 56, 6 rooms, FedAPA",
    "paper_large": "Large, 1000 × 242, 6 rooms, FedAPA",
    "paper_middle": "Middle, 1000 × 242, 6 rooms, FedAPA",
    "paper_tiny": "Tiny, 1000 × 242, 6 rooms, FedAPA",
    "features": "FeatureMLP, 85 numbers, 6 rooms, FedAPA",
    "rooms_100": "Large, 125 × 56, 100 rooms, FedAvg",
    "rooms_1000": "FeatureMLP, 85 numbers, 1,000 rooms, FedAPA with 10 peers",
}
PROGRAMS = ("ours", "eager", "eager_same_allocator", "products", "flower")
BARS = (
    ("quick_large", "eager_ratio", "at least", 1.6),
    ("quick_large", "eager_same_allocator_ratio", "at least", 1.4),
    ("quick_large", "share_of_products", "at least", 0.6),
    ("paper_large", "eager_same_allocator_ratio", "at least", 1.5),
    ("features", "eager_ratio", "at least", 2.5),
    ("features", "share_of_products", "at least", 0.6),
    ("rooms_100", "flower_ratio", "at least", 3.0),
    ("rooms_1000", "seconds_per_round", "at most", 5.0),
    ("rooms_1000", "peak_mb", "at most", 2048.0),
    ("startup_cpu_s", "", "at most", 4.0),
)
NAMES = {
    "eager_ratio": "plain loop over ours",
    "eager_same_allocator_ratio": "plain loop with our allocator setting over ours",
    "share_of_products": "bare products over ours",
    "flower_ratio": "Flower over ours",
    "seconds_per_round": "elapsed seconds per round, two cores",
    "peak_mb": "most memory, MB",
    "": "processor seconds until rooms learn",
}
Rows = list[tuple[str, ...]]


def rounds(kept: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    """Processor seconds of a round by each program, and elapsed time of ours beside the load."""
    head = (
        *("work", "ours", "plain loop", "plain loop, our allocator setting", "bare products"),
        *("Flower on Ray", "ours, elapsed", "load"),
    )
    rows = []
    for name, words in WORK.items():
        if name not in kept:
            continue
        figures = kept[name]["figures"]
        used = figures["processor_seconds"]
        low, high = figures["load"]
        rows.append(
            (
                words,
                *(f"{used[who]:.3g}" if who in used else "–" for who in PROGRAMS),
                f"{figures['elapsed_seconds']['ours']:.3g}",
                f"{low:g}–{high:g}",
            )
        )
    return head, rows


def bars(kept: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    """Each aim, what was measured, and whether that is enough."""
    rows = []
    for part, figure, side, aim in BARS:
        if part not in kept:
            continue
        figures = kept[part]["figures"]
        value = float(figures[figure] if figure else figures)
        enough = value >= aim if side == "at least" else value <= aim
        work = WORK.get(part, "`fedapa run --preset quick`")
        verdict = "reached" if enough else "**not reached**"
        shown = f"{value:.4g}"
        if figure == "seconds_per_round":  # elapsed: others of a busy machine are in it
            low, high = figures["load"]
            shown += f" at a load of {low:g}–{high:g}; {figures['processor_seconds']['ours']:.3g} s"
            shown += " of processor time"
        rows.append((work, NAMES[figure], f"{side} {aim:g}", shown, verdict))
    return ("work", "figure", "aim", "measured", ""), rows


def answer(kept: Mapping[str, Any]) -> str:
    """Where the plain loop takes more than a round of ours, and where less."""
    more, less = [], []
    for name, words in WORK.items():
        ratio = kept.get(name, {}).get("figures", {}).get("eager_ratio")
        if ratio is not None:
            (more if ratio > 1 else less).append(f"{ratio:g} times for {words.rsplit(', ', 2)[0]}")
    sentences = [
        f"Of the processor time of a round of ours, a plain PyTorch loop takes **{where}**: "
        + "; ".join(named)
        for where, named in (("less", less), ("more", more))
        if named
    ]
    return ".\n".join(sentences) + "."


def told(kept: Mapping[str, Any], processor: Sequence[str]) -> str:
    """Where and when: one sentence if all parts are of one run, else one for each commit."""
    by: dict[tuple[str, str], list[str]] = {}
    for name, entry in sorted(kept.items()):
        by.setdefault((entry["commit"], entry["date"]), []).append(name)
    runs = "; ".join(
        f"commit {commit}, {date}" + (f" ({', '.join(names)})" if len(by) > 1 else "")
        for (commit, date), names in sorted(by.items())
    )
    return f"Measured on: {', '.join(processor)}; {runs}."
