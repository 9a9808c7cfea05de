"""What rooms that lie cost the honest ones: the bars of docs/results/poisoning.md.

SIMULATED quick rooms dealt to 10 and to 30, seeds 0, 1, 2, one labelled recording of every class;
30 % of the rooms attack. Loss is the accuracy of honest rooms without attack and without defence,
minus that with both, in points: FedJoin with the defence "guard" and FedAvg with a trimmed mean
behind it ("guard-trimmed"), the worst attack, method and number of rooms, mean over seeds. What
each of them lost is told on the side (stderr), and what they lose where every liar is shut out from
the start: the least that shutting liars out can reach. This measures counting, not speed: ``make
bench`` leaves it out. About a quarter of an hour of a processor.
"""

import argparse
import math
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedapa.evaluation.results import Results
from fedapa.experiments.conduct import Execution, conduct
from fedapa.experiments.poisoning import BASE, losses, poisoning
from fedapa.federation.attack import BROKEN

OF_SPEED = False


def options(parser: argparse.ArgumentParser) -> None:
    """What this benchmark may be asked for."""
    parser.add_argument("--seeds", type=int, default=3, help="poisoning: how many; default 3")
    parser.add_argument("--out", metavar="DIR", help="poisoning: keep the runs, go on with them")
    parser.add_argument("--rooms", type=int, help="poisoning: only so many; default 10 and 30")


def measure(seeds: int = 3, out: str | None = None, rooms: int | None = None) -> dict[str, float]:
    """Points."""
    dealt = {"data": {"partition": "dirichlet", "partition_rooms": rooms}}
    base = BASE if rooms is None else replace(BASE, changes=(*BASE.changes, dealt))
    with tempfile.TemporaryDirectory() as folder:
        how = Execution(seeds, Path(out or folder), resume=True)
        return bars(conduct(poisoning(bars=True), base, how).results)


def bars(results: Results) -> dict[str, float]:
    """The worst of all methods, numbers of rooms and attacks."""
    still: list[float] = []
    attacked: list[float] = []
    for setting in results.settings:
        for one in losses(setting):
            if one.attack == BROKEN:
                least = 100 * float(np.mean(one.undefended or [math.nan]))
                sys.stderr.write(f"{setting.title}, every liar shut out: {least:+.2f}\n")
                continue
            points = 100 * float(np.mean(one.defended or [math.nan]))
            sys.stderr.write(
                f"{setting.title}, {one.attack} {one.share:g} %, {one.defence}: {points:+.2f}\n"
            )
            if math.isnan(points):  # max() might pass over it
                raise ValueError(f"{setting.title}: nothing was measured with {one.attack}")
            (attacked if one.share else still).append(points)
    return {"loss_at_30": round(max(attacked), 3), "loss_unattacked": round(max(still), 3)}
