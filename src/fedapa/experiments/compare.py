"""``fedapa compare``: chosen algorithms on a user's own rooms, the same report as Table 1's."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedapa.algorithms import find
from fedapa.algorithms.fedavg import FedAvg
from fedapa.algorithms.forest import RandomForest
from fedapa.algorithms.linear import Linear
from fedapa.algorithms.local import Local
from fedapa.errors import PlanError, nearest
from fedapa.evaluation.results import REFERENCE
from fedapa.experiments.experiment import CHOSEN, Base, Case, Experiment, Nets
from fedapa.experiments.experiment import algorithms as cases_of
from fedapa.federation.plan import DataPlan
from fedapa.stores.store import Store

__all__ = ["compare"]

_CHOSEN = (
    Local.name,
    FedAvg.name,
    REFERENCE,
    find(REFERENCE).control,
    Linear.name,
    RandomForest.name,
)


def compare(
    base: Base,
    *,
    algorithms: Sequence[str] | None = None,
    architecture: str | None = None,
    reference: str | None = None,
) -> Experiment:
    """The comparison of algorithms on the rooms of ``base``.

    ``reference`` is the algorithm whose differences to all others are shown: FedAPA unless another
    is named, or the first that is no control where FedAPA is not among them.
    """
    named = architecture or "auto"
    nets = CHOSEN if named == "auto" else Nets("rooms", f"Nets: {named}", named)
    alone = _all_differ(named, base.plan.data)
    usual = [name for name in _CHOSEN if not (alone and find(name).averages_weights)]
    chosen = list(dict.fromkeys(algorithms or usual))
    if reference is not None and reference not in chosen:
        raise PlanError(
            f"reference '{reference}' is none of the algorithms that are compared; "
            f"{nearest(reference, chosen)}"
        )
    federated = [
        name for name in chosen if find(name) is not Local and find(name).group != "control"
    ]
    first = REFERENCE if REFERENCE in chosen else (federated or chosen)[0]
    return Experiment(
        "compare",
        "Comparison on these rooms",
        lambda _: [_case(name, asked=bool(algorithms)) for name in chosen],
        (nets,),
        reference=reference or first,
    )


def _case(name: str, *, asked: bool) -> Case:
    # The reference decides nothing here: another one is another view of the same runs. And who
    # chose the methods sees them side by side, whether the paper has them or not.
    (case,) = cases_of(name)
    group = "control" if case.group == "control" else "paper"
    return replace(case, group=group, optional=case.optional and not asked)


def _all_differ(nets: str, data: DataPlan) -> bool:
    """Whether no two rooms have the same net, so that there are no weights to average."""
    if nets != "by-size" or data.file is None:
        return False
    with Store(Path(data.file)) as store:
        return len(data.rooms_of(store)) <= 3
