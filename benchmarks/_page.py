"""docs/performance.md and its figure from the last entry of the history."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import _beside, _growth, _history, _messages, _paths
from benchmarks.passes import AT_QUICK, at_quick

__all__ = ["FIGURE", "PAGE", "render", "write"]

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
FIGURE = PAGE.parent / "figures" / "aggregation.svg"
PEERS = Path(__file__).parent / "peers.json"
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
    many = figures["aggregation"][sizes[-1]]
    parts = {
        "machine": f"{_processor(machine)}, {machine['cores']} cores, {entry['date']}, commit "
        f"{entry['commit']}",
        "gemm": f"{training['gemm_gflops']:g} GFLOP/s",
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
        "middle": _limit(passes["middle"]),
        "large": _limit(passes["large"]),
        "half": _half(training["large"], passes["large"]),
        "convolutions": _convolutions(passes),
        "at_quick": f"{AT_QUICK:g}",
        "passes": _table(
            (
                *("net", "prototypes", "score", "together", f"together at {AT_QUICK:g}"),
                *("reading", "reading, elapsed"),
            ),
            [
                (
                    net,
                    *(passes[net][key] for key in ("prototypes", "score", "without_gradient")),
                    _at_quick(passes[net]),
                    passes[net]["reading"],
                    passes[net].get("reading_wall", NOT_YET),
                )
                for net in nets
                if net in passes
            ],
        ),
        "aim": _aim(passes["mixed"]) if "mixed" in passes else NOT_YET,
        "profile": _profile({net: passes[net]["round"] for net in nets if "round" in passes[net]})
        if "mixed" in passes
        else NOT_YET,
        "startup": f"{figures['startup']['seconds']:g} s, "
        f"{figures['startup']['before_workers']:g} s of it before the workers start"
        if "startup" in figures
        else NOT_YET,
        "contrast": ", ".join(
            f"{100 * passes['contrast'][rooms]:.1f} % for {rooms} rooms"
            for rooms in sorted(passes["contrast"], key=int)
        ),
        "aggregation": _table(
            ("rooms", "seconds", "peak MB", "time over bare products", "error of Q"),
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
        "samples": _samples(many, "errors"),
        "samples_at_a_lower_temperature": _samples(many, "errors_at_tau_0.1"),
        "captures": _captures(figures["captures"]),
        "simulator": _simulator(figures["simulator"]),
    }
    parts["messages_told"], rows = _messages.lines(json.loads(_messages.PATH.read_text()))
    parts["messages"] = _table(MESSAGES, rows)
    parts["paths_told"] = parts["paths"] = "Not measured yet."
    if _paths.PATH.is_file():
        parts["paths_told"], rows = _paths.lines(json.loads(_paths.PATH.read_text()))
        parts["paths"] = _table(PATHS, rows)
    kept = json.loads(PEERS.read_text())
    parts["peers_answer"] = _beside.answer(kept)
    parts["peers_rounds"] = _table(*_beside.rounds(kept))
    parts["peers_bars"] = _table(*_beside.bars(kept))
    machines = {
        f"{_processor(one['machine'])}, {one['machine']['cores']} cores" for one in kept.values()
    }
    parts["peers_told"] = _beside.told(kept, sorted(machines))
    text = TEMPLATE.read_text()
    for name, part in parts.items():
        text = text.replace("{" + name + "}", part)
    return text


AGGREGATION = ("seconds", "peak_mb", "gemm_ratio")
MESSAGES = (
    "messages",
    "KB per round and room",
    "to float32",
    "accuracy %, mean ± std over seeds",
    "minus float32, paired",
    "by seed",
)
PATHS = (
    "nets",
    "accuracy %, mean over seeds",
    "minus plain, after round 1, by seed",
    "minus plain, at the end, by seed",
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


def _processor(machine: Mapping[str, Any]) -> str:
    """Its name, and what tells it from others of that name."""
    told = [f"{key} {machine[key]}" for key in ("family", "model", "stepping") if key in machine]
    return machine["processor"] + (f" ({', '.join(told)})" if told else "")


def _at_quick(passes: Mapping[str, Any]) -> float:
    """The share of both passes at ``AT_QUICK``; entries without it have what it is made of."""
    share: float = passes.get(
        "without_gradient_at_quick", round(at_quick(passes["prototypes"], passes["score"]), 3)
    )
    return share


AIM = 0.4


def _aim(mixed: Mapping[str, Any]) -> str:
    """Whether both passes are as short as they should be, at either share of test windows."""
    shares = {"a quarter": mixed["without_gradient"], f"{AT_QUICK:g}": _at_quick(mixed)}
    return ", ".join(
        f"{share:g} at {where} is {'**above** it' if share > AIM else 'within it'}"
        for where, share in shares.items()
    )


def _limit(passes: Mapping[str, Any]) -> str:
    """What torch's convolutions take of a step, and what a step would gain if they were faster."""
    if "convolutions" not in passes:
        return f"torch's convolutions: {NOT_YET}"
    convolutions = passes["convolutions"]
    share = convolutions["share_of_step"]
    if "gain_at_gemm" in convolutions:
        gain = (
            f"with all of them at the speed of a GEMM on one core "
            f"({convolutions['gemm_gflops_one_core']:g} GFLOP/s) a step would be "
            f"{convolutions['gain_at_gemm']:g} times as fast"
        )
    else:
        gain = f"what a step would gain with all of them at the speed of a GEMM: {NOT_YET}"
    return (
        f"torch's convolutions are {100 * share:.0f} % of a step; {gain}.\n"
        f"  The other {100 * (1 - share):.0f} % are the first layer, BatchNorm with ReLU, the "
        "head, the classifier, the loss, the step of SGD, and reading "
        f"({100 * passes['reading']:.0f} %)"
    )


HALF = 0.5


def _half(training: Mapping[str, Any], passes: Mapping[str, Any]) -> str:
    """Large against half of the GEMM's speed: the whole round and its training pass."""

    def judged(share: float) -> str:
        return f"{share:g}, {'reached' if share >= HALF else 'not reached'}"

    whole = judged(training["share_of_gemm"]) if "gflop_per_window" in training else NOT_YET
    alone = judged(passes["train_of_gemm"]) if "train_of_gemm" in passes else NOT_YET
    return f"the whole round on all cores: {whole}; its training pass alone on one core: {alone}"


CONVOLUTION = {
    "forward": "forward",
    "inputs": "gradient of the input",
    "weights": "gradient of the weights",
}


def _convolutions(passes: Mapping[str, Any]) -> str:
    """Each pass of each convolution by torch."""
    rows = [
        (net, block.removeprefix("block"), words, times[f"{name}_ms"], times.get(f"{name}_of_gemm"))
        for net in ("middle", "large")
        for block, times in sorted(passes[net].get("convolutions", {}).items())
        if block.startswith("block")
        for name, words in CONVOLUTION.items()
    ]
    if not rows:
        return NOT_YET
    head = ("net", "block", "pass", "ms per batch", "share of one-core GEMM")
    if all(row[-1] is not None for row in rows):
        return _table(head, rows)
    return (
        _table(head[:-1], [row[:-1] for row in rows])
        + f"\n\nThe share of one-core GEMM: {NOT_YET}."
    )


def _captures(captures: Mapping[str, Mapping[str, Any]]) -> str:
    """Packets per second of both readers."""
    names = {"nexmon": "Nexmon, 80 MHz", "intel5300": "Intel 5300, 3 × 2 antennas"}
    return _table(
        ("captures", "ours", "csiread", "ratio"),
        [
            (
                words,
                *(
                    NOT_YET if captures[name][reader] is None else f"{captures[name][reader]:,}"
                    for reader in ("ours", "csiread", "ratio")
                ),
            )
            for name, words in names.items()
        ],
    )


def _simulator(simulator: Mapping[str, float]) -> str:
    """Windows per second and core by packet rate."""
    speed = "windows_per_second_per_core"
    rates = {1000: speed, 250: f"{speed}_at_250_hz", 125: f"{speed}_at_125_hz"}
    return _table(
        ("packets per second", "a window spans", "windows per second and core"),
        [(rate, f"{1000 // rate} s", simulator.get(key, NOT_YET)) for rate, key in rates.items()],
    )


def _server_round(aggregation: Mapping[str, Mapping[str, Any]]) -> str:
    """What a whole round of the server takes."""
    for rooms, measured in aggregation.items():
        if "server_round" in measured:
            server = measured["server_round"]
            parts = ", ".join(
                f"{words} {server[name]:g} s"
                for name, words in (
                    ("uploads", "to decode the uploads"),
                    ("merge", "to merge them"),
                    ("downloads", "to make the downloads"),
                    ("checkpoint", "to encode the checkpoint"),
                )
            )
            return (
                f"{server['seconds']:g} s for {int(rooms):,} rooms with "
                f"`peers = {server['peers']}` ({parts}), {server['peak_mb']:g} MB at most, "
                f"{server['download_mb']:g} MB of downloads"
            )
    return NOT_YET


def _samples(many: Mapping[str, Any], name: str) -> str:
    """The error of Q by size of the sample."""
    if name not in many:
        return NOT_YET
    alike, clustered = many[name]["alike"], many[name]["clustered"]
    return _table(
        ("sample", "rooms alike", "rooms in clusters"),
        [(f"{int(size):,}", alike[size], clustered[size]) for size in sorted(alike, key=int)],
    )
