"""docs/performance.md and its figure from the last entry of the history."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import _growth, _history, _messages

__all__ = ["FIGURE", "PAGE", "render", "write"]

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
FIGURE = PAGE.parent / "figures" / "aggregation.svg"
TEMPLATE = Path(__file__).parent / "_performance.md"


def write() -> None:
    """Make the page anew."""
    entries = [json.loads(line) for line in _history.PATH.read_text().splitlines()]
    PAGE.write_text(render(entries[-1]))
    _growth.draw(entries[-1]["figures"]["aggregation"], FIGURE)


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
                for net in nets
                if net in passes
            ],
        ),
        "profile": _profile({net: passes[net]["round"] for net in nets if "round" in passes[net]})
        if "mixed" in passes
        else NOT_YET,
        "startup": f"{figures['startup']['seconds']:g} s, "
        f"{figures['startup']['before_workers']:g} s of it before the workers start"
        if "startup" in figures
        else NOT_YET,
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
    }
    parts["messages_told"], rows = _messages.lines(json.loads(_messages.PATH.read_text()))
    parts["messages"] = _table(MESSAGES, rows)
    text = TEMPLATE.read_text()
    for name, part in parts.items():
        text = text.replace("{" + name + "}", part)
    return text


AGGREGATION = ("seconds", "peak_mb", "gemm_ratio")
MESSAGES = (
    "messages",
    "KB a round and room",
    "to float32",
    "accuracy %, mean ± std over seeds",
    "minus float32, paired",
    "by seed",
)
NOT_YET = "not measured in this entry"


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)])


def _profile(rounds: Mapping[str, Mapping[str, float]]) -> str:
    """Where a round's time goes, in percent."""
    spent = ("reading", "train", "prototypes", "score")
    rows = [
        (net, *(f"{100 * shares[name]:.1f}" for name in spent)) for net, shares in rounds.items()
    ]
    return _table(("net", "reading %", "training %", "prototypes %", "score %"), rows)
