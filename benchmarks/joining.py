"""What a federation gives a new room with few labels: the bars of docs/joining.md.

SIMULATED quick rooms, whole recordings held out, seeds 0, 1, 2; each room in turn joins a finished
federation of the others, mean over rooms, then over seeds. ``--wical FILE`` does the same with the
real Wi-CaL store, blocks of time held out, 3 windows in place of one recording. This measures
counting, not speed: ``make bench`` leaves it out.
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedapa.errors import FedapaError
from fedapa.evaluation.results import Setting
from fedapa.experiments.conduct import Execution, conduct
from fedapa.experiments.experiment import CHOSEN, Base, Case, Experiment
from fedapa.experiments.joining import new_room_case
from fedapa.federation.plan import Plan

OF_SPEED = False
METHODS = {
    "ours": "fedjoin",
    "local": "local",
    "fedavg_tuned": "fedavg",
    "pooled": "pooled-newcomer",
}
LABELS: Mapping[str, Mapping[str, Any]] = {
    "one_take": {"train_recordings": 1},
    "half_takes": {"train_recordings": 8},
    "unseen": {"train_classes": "lower"},
    "all_labels": {},
}
WICAL: Mapping[str, Mapping[str, Any]] = {
    "one_take": {"train_windows": 3},
    "half_takes": {"train_windows": 10},
    "unseen": {"train_classes": "lower"},
    "all_labels": {},
}
"""It has one recording of every count, so that labels are counted in windows."""


def options(parser: argparse.ArgumentParser) -> None:
    """What this benchmark may be asked for."""
    parser.add_argument("--wical", metavar="FILE", help="joining: also in this store of Wi-CaL")
    parser.add_argument("--seeds", type=int, default=3, help="joining: how many; default 3")
    parser.add_argument("--out", metavar="DIR", help="joining: keep the runs, and go on with them")


def measure(wical: str | None = None, seeds: int = 3, out: str | None = None) -> dict[str, Any]:
    """Shares of one, and people."""
    if wical is not None and not Path(wical).is_file():
        raise FedapaError(f"--wical {wical}: no such file; make it with 'fedapa import'")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(out or folder)
        made = _scores(LABELS, Base("quick", split="recording"), seeds, place / "quick")
        if wical is not None:
            base = Base("quick", file=wical, split="blocked")
            made["wical"] = _scores(WICAL, base, seeds, place / "wical")
    return made


def _scores(
    labels: Mapping[str, Mapping[str, Any]], base: Base, seeds: int, out: Path
) -> dict[str, Any]:
    def cases(plan: Plan) -> Sequence[Case]:
        return [
            new_room_case(plan, name, few, f"{method} {kind}", 0)
            for kind, few in labels.items()
            for method, name in METHODS.items()
        ]

    asked = Experiment("joining", "Joining", cases, (CHOSEN,), parameter="labels", fixed=True)
    (setting,) = conduct(asked, base, Execution(seeds, out, resume=True)).results.settings
    return {
        kind: {method: _figures(setting, f"{method} {kind}", kind) for method in METHODS}
        for kind in labels
    }


def _figures(setting: Setting, mark: str, kind: str) -> dict[str, float | None]:
    """Accuracy, MAE of the median, share within two people; unseen: of those counts alone."""
    row = next(row for row in setting.rows if row.name.endswith(mark))
    within = "unseen_within_two" if kind == "unseen" else "within_two"
    found = {"accuracy": "accuracy", "mae": "mae_median", "within_two": within}
    values = {name: row.metrics(setting.rounds, metric) for name, metric in found.items()}
    return {name: None if own is None else float(np.mean(own)) for name, own in values.items()}
