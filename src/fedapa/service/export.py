"""Export: a room's model as one ONNX file for other programs, and a card that says what it is.

The file has normaliser, net, temperature and weights; its input are views as
``Windower(recipe)`` makes them, and the recipe is in the notes. The card is in the notes, too, and
beside the file in Markdown: rooms, days, receiver, split, metrics beside those of simpler models,
and whether anything of it is real. Needs no torch.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedapa.csi.capture import data_kind
from fedapa.errors import DataError, PlanError, RunError, one_line
from fedapa.files import write_bytes, write_text
from fedapa.models.onnx_bytes import with_weights
from fedapa.rooms.model_file import find_model, load_model, read_parts
from fedapa.toml import read_toml

__all__ = ["METRICS", "Exported", "export_onnx"]

METRICS = {
    "accuracy": "accuracy",
    "within_one": "within ±1",
    "mae_median": "MAE",
    "presence": "presence",
    "ece": "calibration error",
    "mae_30s": "MAE over 30 s",
}
"""On a card: by the name that a run's summary has."""
_CARD = 1


@dataclass(frozen=True)
class Exported:
    """What was written."""

    file: Path
    page: Path
    card: Mapping[str, Any]


def export_onnx(
    place: Path, out: Path, *, room: str | None = None, beside: Sequence[Path] = ()
) -> Exported:
    """Write a room's model as ``out``, and its card as Markdown beside it.

    Args:
        place: a run's folder, or a model file.
        out: the file to make, .onnx; the page has its name and ends in .md. Folders are made.
        room: whose model; a run of one room needs no name.
        beside: finished runs on the same data, whose metrics stand beside, e.g. the forest's.
    """
    if out.suffix.lower() != ".onnx":
        raise PlanError(f"--out {out}: name a file that ends in .onnx, e.g. kitchen.onnx")
    path = find_model(place, room)
    model = load_model(path)  # refuses what is damaged, and is the parity's other side
    if model.activities:
        raise DataError(
            f"{path}: its net also tells activities, and an exported one tells one thing; train a "
            "net with data.tasks = 'label' and export that"
        )
    about, arrays = read_parts(path)
    folder = path.parent.parent if path.parent.name == "models" else None
    card = _card(about, path, folder, beside)
    weights = {
        name: value
        for name, value in arrays.items()
        if value.dtype == model.prototypes.dtype and name != "prototypes"
    }
    content = with_weights(
        arrays["graph"].tobytes(),
        weights,
        temperature=model.temperature,
        classes=len(model.classes),
        notes={"fedapa.card": json.dumps(card, sort_keys=True)},
    )
    write_bytes(out, content)
    page = out.with_suffix(".md")
    digest = hashlib.sha256(content).hexdigest()
    write_text(page, _page(card, out.name, digest))
    return Exported(out, page, card)


def _card(
    about: Mapping[str, Any], path: Path, folder: Path | None, beside: Sequence[Path]
) -> dict[str, Any]:
    recipe = about["recipe"]
    card: dict[str, Any] = {
        "card": _CARD,
        "data": data_kind(about["synthetic"]),
        "room": about["room"],
        "classes": about["classes"],
        "architecture": about["architecture"],
        "answer": about["answer"],
        "temperature": about["temperature"],
        "reach": about["reach"],
        "window_shape": about["window_shape"],
        "recipe": recipe,
        "receiver": {
            "device": recipe["device"],
            "bandwidth": recipe["bandwidth"],
            "subcarriers": None if recipe["subcarriers"] is None else len(recipe["subcarriers"]),
            "links": recipe["link_count"],
            "packet_rate": recipe["packet_rate"],
        },
        "train_windows": about["train_windows"],
        "days": about["days"],
        "model_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
    if folder is None or not (folder / "summary.json").is_file():
        if beside:
            raise PlanError(
                f"{path}: is in no run's folder, so that --beside has nothing to stand by"
            )
        return card
    return {**card, **_of_run(folder, about["room"], beside)}


def _of_run(folder: Path, room: str, beside: Sequence[Path]) -> dict[str, Any]:
    """What a run's folder knows of a room's model."""
    summary, data = _json(folder / "summary.json"), _json(folder / "data.json")
    plan = read_toml(folder / "plan.toml")
    try:
        own = data["rooms"][room]
        metrics = {_title(plan): _metrics(summary["rooms"][room])}
        for other in beside:
            there = _json(other / "data.json")
            if there["rooms"].get(room, {}).get("test") != own["test"] or (
                there["split"],
                there["source"],
            ) != (data["split"], data["source"]):
                raise PlanError(
                    f"{other}: is a run on other data or another split than {folder}; give one on "
                    "the same"
                )
            theirs = _json(other / "summary.json")["rooms"][room]
            metrics[_title(read_toml(other / "plan.toml"))] = _metrics(theirs)
        floor = {"class frequencies": "prior", "commonest class": "constant"}
        for title, kind in floor.items():
            metrics[title] = _metrics(summary["blind"][kind]["rooms"][room])
        return {
            "rooms": sorted(data["rooms"]),
            "source": data["source"],
            "split": data["split"],
            "recordings": own["recordings"],
            "test_windows": own["test"],
            "algorithm": plan["algorithm"]["name"],
            "rounds": summary["rounds"],
            "seed": plan["seed"],
            "metrics": metrics,
            "commit": _json(folder / "environment.json").get("commit"),
        }
    except (KeyError, TypeError) as error:
        raise RunError(f"{folder}: {error} is missing; not a whole run, run it again") from error


def _title(plan: Mapping[str, Any]) -> str:
    return str(plan["algorithm"]["name"])


def _metrics(values: Mapping[str, float]) -> dict[str, float]:
    return {name: values[name] for name in METRICS if name in values}


def _json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: cannot be read ({error}); name the folder of a run") from error
    if not isinstance(values, dict):
        raise DataError(f"{path}: holds no table; not a whole run, run it again")
    return values


def _page(card: Mapping[str, Any], file: str, digest: str) -> str:
    """The card for people, the answer first."""
    receiver, metrics = card["receiver"], card.get("metrics", {})
    own: Mapping[str, float] = next(iter(metrics.values()), {})
    error = f", {own['mae_median']:.1f} people off" if "mae_median" in own else ""
    known = f": right in {100 * own['accuracy']:.0f} % of its test windows{error}" if own else ""
    lines = [
        f"# Model of room '{card['room']}' ({card['data']} data)",
        "",
        f"Counts {card['classes'][0]} to {card['classes'][-1]} people{known}.",
        "",
        f"- File: `{file}`, SHA-256 `{digest}`",
        f"- Made from a model file with SHA-256 `{card['model_sha256']}`",
        f"- Receiver: {receiver['device'] or 'not noted'}, {receiver['bandwidth']} MHz, "
        f"{receiver['subcarriers']} subcarriers, {receiver['links']} links, "
        f"{receiver['packet_rate']} packets per second. It counts nothing from another one.",
        f"- Input `windows` [B, {', '.join(map(str, card['window_shape']))}]: view "
        f"'{card['recipe']['view']}' of windows of {card['recipe']['window']} packets, made by "
        "the recipe in the file's notes. Outputs `logits`, `probabilities`, `embedding`.",
        f"- Trained on {card['train_windows']} windows, days: "
        f"{', '.join(card['days']) or 'not noted'}",
    ]
    if metrics:
        tested = card["recordings"].get("test", "?")
        lines += [
            f"- Run: {card['algorithm']} with rooms {', '.join(card['rooms'])}; {card['source']}; "
            f"seed {card['seed']}, {card['rounds']} rounds, commit {card['commit']}",
            f"- Split `{card['split']}`: {card['test_windows']} test windows of {tested} "
            "recordings",
            "",
            "| " + " | ".join(["", *METRICS.values()]) + " |",
            "|" + "---|" * (len(METRICS) + 1),
            *(_row(title, values) for title, values in metrics.items()),
        ]
    # Days, receivers and sources are words of others: none may look like a line of ours.
    return "\n".join(map(one_line, lines)) + "\n"


def _row(title: str, values: Mapping[str, float]) -> str:
    cells = [f"{values[name]:.2f}" if name in values else "–" for name in METRICS]
    return f"| {title} | {' | '.join(cells)} |"
