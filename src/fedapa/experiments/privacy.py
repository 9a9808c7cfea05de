"""``fedapa reproduce privacy``: what noised prototypes cost in accuracy.

Expected shape: accuracy and MAE against ε, 1 to 30, 10,000 (clipped, hardly any noise) and without
either, a line for each of FedAPA and FedProto with windows protected and with recordings protected,
and Local across: nothing travels.
With little ε no class is sure enough to be told, so that lines begin at Local and end, on the
right, at what exact prototypes give. Recordings are few, so their lines stay at Local for longest.
"""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from fedapa.algorithms.fedapa import FedAPA
from fedapa.algorithms.fedproto import FedProto
from fedapa.algorithms.local import Local
from fedapa.experiments.experiment import CHOSEN, Case, Experiment, algorithms, refuse_untitled
from fedapa.federation.plan import Plan
from fedapa.learning.private import Unit

__all__ = ["PRIVACY"]

_HARDLY = 10_000.0
"""Hardly any noise: what clipping, and sending less often, do by themselves."""
_EPSILONS = (1.0, 3.0, 10.0, 30.0, _HARDLY)
_RELEASES = 5
"""Among which ε is divided, at most: one in every sixth of thirty rounds."""
_CLIPS = {FedAPA.name: 1.0, FedProto.name: 2.0}
"""Chosen among 0.5, 1, 2, 4, 8 and 16 on validation windows of simulated rooms, with ε = 10 for
windows: by FedProto's nearest prototypes 2 and 4 were alike, and the smaller needs less noise; of
FedAPA none was clearly better than the default (docs/results/privacy.md)."""


def _cases(plan: Plan) -> Sequence[Case]:
    refuse_untitled("privacy", plan)
    every = -(-plan.rounds // _RELEASES)
    cases = algorithms(Local.name)
    for kind in (FedAPA, FedProto):
        for unit in get_args(Unit):
            group = f"{kind.title}, {unit}"
            for epsilon in _EPSILONS:
                noised: Mapping[str, Any] = {
                    "epsilon": epsilon,
                    "unit": unit,
                    "every": every,
                    "clip": _CLIPS[kind.name],
                }
                change = {"algorithm": kind.name, "privacy": noised}
                mark = f"{epsilon:,g}"
                name = f"{kind.name}-{unit}-{epsilon:g}"
                cases.append(Case(name, change, f"{group}, ε {mark}", group, mark))
            cases.append(
                Case(
                    f"{kind.name}-{unit}-none",
                    {"algorithm": kind.name},
                    f"{group}, no noise",
                    group,
                    "no noise",
                )
            )
    return cases


PRIVACY = Experiment(
    "privacy",
    "Privacy: accuracy by ε",
    _cases,
    (CHOSEN,),
    parameter="ε",
    notes=(
        "ε (δ = 0.00001) bounds what the noised prototypes of a room tell of one window, or of one "
        "recording, if its net is taken as given. The net was trained on the same windows without "
        "noise, so it is no guarantee for them (docs/differential-privacy.md).",
        f"With noise a room sends its set in every k-th round, {_RELEASES} times at most; without "
        "noise in every round, so that the two differ by that, too. A class whose number is not "
        "three deviations above its noise is not told.",
        f"With ε = {_HARDLY:,g} there is hardly any noise: what is left of a difference to no "
        "noise comes of the clip and of the fewer sets.",
        "Noise comes from the operating system: these runs do not repeat bit for bit.",
    ),
    fixed=True,
    reference=Local.name,
)
