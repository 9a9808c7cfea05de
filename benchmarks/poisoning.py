"""What rooms that lie cost the honest ones: the bars of docs/results/poisoning.md.

SIMULATED quick rooms dealt to 10 and to 30, seeds 0, 1, 2, one labelled recording of every class;
30 % of the rooms attack. Loss is the accuracy of honest rooms without attack and without defence,
minus that with both, in points: FedJoin and FedAvg with the recommended
defence "guard", the worst attack, method and number of rooms, mean over seeds. ``by_method`` has
all of them, also FedAvg with the trimmed mean. This measures counting, not speed: ``make bench``
leaves it out.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedapa.experiments.conduct import Execution, conduct
from fedapa.experiments.poisoning import BASE, losses, poisoning

OF_SPEED = False
_RECOMMENDED = "guard"


def options(parser: argparse.ArgumentParser) -> None:
    """What this benchmark may be asked for."""
    parser.add_argument("--seeds", type=int, default=3, help="poisoning: how many; default 3")
    parser.add_argument("--out", metavar="DIR", help="poisoning: keep the runs, go on with them")
    parser.add_argument("--rooms", type=int, help="poisoning: only so many; default 10 and 30")


def measure(seeds: int = 3, out: str | None = None, rooms: int | None = None) -> dict[str, Any]:
    """Points, by method too."""
    dealt = {"data": {"partition": "dirichlet", "partition_rooms": rooms}}
    base = BASE if rooms is None else replace(BASE, changes=(*BASE.changes, dealt))
    with tempfile.TemporaryDirectory() as folder:
        how = Execution(seeds, Path(out or folder), resume=True)
        results = conduct(poisoning(bars=True), base, how).results
    by_method: dict[str, Any] = {}
    for setting in results.settings:
        for one in losses(setting):
            own = by_method.setdefault(f"{setting.name}-{one.defence}", {"at_30": {}})
            points = round(100 * float(np.mean(one.defended or [np.nan])), 3)
            if one.share:
                own["at_30"][one.attack] = points
            else:
                own["unattacked"] = points
    guarded = [own for name, own in by_method.items() if name.endswith(f"-{_RECOMMENDED}")]
    return {
        "loss_at_30": max(max(own["at_30"].values()) for own in guarded),
        "loss_unattacked": max(own["unattacked"] for own in guarded),
        "by_method": by_method,
    }
