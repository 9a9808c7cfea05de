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
                    *(training[net][key] for key in ("eager", "ours", "ratio")),
                    # Entries without a count of FLOPs have a share that counts too many.
                    training[net]["share_of_gemm"]
                    if "gflop_per_window" in training[net]
                    else NOT_YET,
                    training[net]["peak_mb_per_worker"],
                )
                for net in nets
            ],
        ),
        "training_notes": "\n\n".join(training["notes"].values())
        if "notes" in training
        else UNEQUAL,
        "middle": _middle(passes["middle"]),
        "large": _convolving(passes["large"]),
        "passes": _table(
            ("net", "prototypes", "score", "together", "reading", "reading, wall"),
            [
                (
                    net,
                    *(passes[net][key] for key in ("prototypes", "score", "without_gradient")),
                    passes[net]["reading"],
                    passes[net].get("reading_wall", NOT_YET),
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
                    *(figures["aggregation"][size].get(key, NOT_YET) for key in AGGREGATION),
                    figures["aggregation"][size].get("relative_error", "exact"),
                )
                for size in sizes
            ],
        ),
        "server_round": _server_round(figures["aggregation"]),
        "samples": _samples(figures["aggregation"][sizes[-1]]),
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
UNEQUAL = (
    "In this entry the eager loop normalised whole parts by numpy and took its batches in order, "
    "where our engine shuffles and reads batch by batch, and it had no turn to warm up. Either may "
    "have made it slower than it need be."
)


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


def _convolving(passes: Mapping[str, Any]) -> str:
    """What the convolutions by torch take."""
    if "convolutions" not in passes:
        return NOT_YET
    return f"{100 * passes['convolutions']['share_of_step']:.0f} % of a step"


def _middle(passes: Mapping[str, Any]) -> str:
    """What Middle's one convolution by torch takes."""
    if "convolutions" not in passes:
        return NOT_YET
    block = passes["convolutions"]["block2"]
    return (
        f"{_convolving(passes)}; a batch on one core takes "
        f"{block['forward_ms']:g} ms forward, {block['inputs_ms']:g} for the gradient of its input "
        f"and {block['weights_ms']:g} for that of its weights"
    )


def _server_round(aggregation: Mapping[str, Mapping[str, Any]]) -> str:
    """What a whole round of the server takes."""
    for rooms, each in aggregation.items():
        if "server_round" in each:
            found = each["server_round"]
            parts = ", ".join(
                f"{words} {found[name]:g} s"
                for name, words in (
                    ("uploads", "to decode the uploads"),
                    ("merge", "to merge them"),
                    ("downloads", "to make the downloads"),
                    ("checkpoint", "to encode the checkpoint"),
                )
            )
            return (
                f"{found['seconds']:g} s for {int(rooms):,} rooms with `peers = {found['peers']}` "
                f"({parts}), {found['peak_mb']:g} MB at most, {found['download_mb']:g} MB of "
                "downloads"
            )
    return NOT_YET


def _samples(many: Mapping[str, Any]) -> str:
    """The error of Q by size of the sample."""
    if "errors" not in many:
        return NOT_YET
    alike, clustered = many["errors"]["alike"], many["errors"]["clustered"]
    return _table(
        ("sample", "rooms alike", "rooms in clusters"),
        [(f"{int(size):,}", alike[size], clustered[size]) for size in sorted(alike, key=int)],
    )
