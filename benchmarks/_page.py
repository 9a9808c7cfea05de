"""docs/performance.md from the last entry of the history."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import _history

__all__ = ["render", "write"]

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
TEMPLATE = Path(__file__).parent / "_performance.md"


def write() -> None:
    """Make the page anew."""
    entries = [json.loads(line) for line in _history.PATH.read_text().splitlines()]
    PAGE.write_text(render(entries[-1]))


def render(entry: Mapping[str, Any]) -> str:
    """The page: what the template says, with the tables of this entry."""
    figures, machine = entry["figures"], entry["machine"]
    training, passes = figures["training"], figures["passes"]
    nets = ("tiny", "middle", "large", "mixed")
    sizes = sorted(figures["aggregation"], key=int)
    parts = {
        "machine": f"{machine['processor']}, {machine['cores']} cores, {entry['date']}, commit "
        f"{entry['commit']}; matrix products reach {training['gemm_gflops']:g} GFLOP/s",
        "training": _table(
            ("net", "eager", "ours", "ratio", "share of GEMM", "MB a worker"),
            [
                (
                    net,
                    *(training[net][key] for key in ("eager", "ours", "ratio", "share_of_gemm")),
                    training[net]["peak_mb_per_worker"],
                )
                for net in nets
            ],
        ),
        "passes": _table(
            ("net", "prototypes", "score", "together", "reading"),
            [
                (
                    net,
                    *(passes[net][key] for key in ("prototypes", "score", "without_gradient")),
                    passes[net]["reading"],
                )
                for net in nets[:3]
            ],
        ),
        "contrast": ", ".join(
            f"{100 * share:.1f} % for {rooms} rooms" for rooms, share in passes["contrast"].items()
        ),
        "aggregation": _table(
            ("rooms", "seconds", "peak MB", "to bare products", "error of Q"),
            [
                (
                    size,
                    *(figures["aggregation"][size].get(key, "–") for key in AGGREGATION),
                    figures["aggregation"][size].get("relative_error", "exact"),
                )
                for size in sizes
            ],
        ),
        "growth": _growth({int(size): figures["aggregation"][size]["seconds"] for size in sizes}),
    }
    text = TEMPLATE.read_text()
    for name, part in parts.items():
        text = text.replace("{" + name + "}", part)
    return text


AGGREGATION = ("seconds", "peak_mb", "gemm_ratio")


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)])


def _growth(seconds: Mapping[int, float]) -> str:
    """A bar a size, one sign for a factor of about 1.6: how the cost grows."""
    least = min(seconds.values())
    lines = []
    for rooms, taken in sorted(seconds.items()):
        signs, ratio = 1, taken / least
        while ratio >= 1.6:
            signs, ratio = signs + 1, ratio / 1.6
        lines.append(f"{rooms:>7,} rooms  {'█' * signs} {taken:.3g} s")
    return "```text\n" + "\n".join(lines) + "\n```"
