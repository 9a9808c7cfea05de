"""``fedapa compare``: chosen algorithms on a user's own rooms, the same report as Table 1's."""

from collections.abc import Sequence
from pathlib import Path

from fedapa.errors import PlanError, nearest
from fedapa.evaluation.results import REFERENCE
from fedapa.experiments.conduct import Show, conduct, holds_features
from fedapa.experiments.experiment import Base, Case, Experiment, Nets
from fedapa.experiments.experiment import algorithms as cases_of
from fedapa.experiments.reproduce import Reproduced, shown
from fedapa.stores.store import Store

__all__ = ["compare"]

_CHOSEN = ("local", "fedavg", "fedapa", "fedapa-self")
_CONTROLS = ("fedapa-self", "fedpcl-self", "fedproto-self", "local-more-epochs", "pooled")
_LONG = ("local", "fedapa", "fedapa-self")
"""Rows that also run until Local has stopped improving, as in Table 1."""


def compare(
    base: Base,
    *,
    algorithms: Sequence[str] | None = None,
    architecture: str | None = None,
    reference: str | None = None,
    seeds: int,
    out: Path,
    resume: bool = False,
    workers: int | None = None,
    show: Show = lambda *_: None,
    command: str = "",
) -> list[Reproduced]:
    """Run the algorithms on the rooms of ``base`` and write tables, figures and a page.

    ``reference`` is the algorithm whose differences to all others are shown: FedAPA unless another
    is named, or the first that is no control where FedAPA is not among them.
    """
    nets = architecture or ("mlp" if holds_features(base.file) else "by-size")
    usual = [name for name in _CHOSEN if name != "fedavg" or not _all_differ(nets, base.file)]
    chosen = list(dict.fromkeys(algorithms or usual))
    if reference is not None and reference not in chosen:
        raise PlanError(
            f"reference '{reference}' is none of the algorithms that are compared; "
            f"{nearest(reference, chosen)}"
        )
    federated = [name for name in chosen if name != "local" and name not in _CONTROLS]
    first = REFERENCE if REFERENCE in chosen else (federated or chosen)[0]
    experiment = Experiment(
        "compare",
        "Comparison on these rooms",
        lambda _: [case for name in chosen for case in _cases(name)],
        (Nets("rooms", f"Nets: {nets}", nets),),
        reference=reference or first,
    )
    done = conduct(
        experiment,
        base,
        seeds=seeds,
        out=out,
        resume=resume,
        workers=workers,
        show=show,
        command=command,
    )
    return [shown(done, out)]


def _cases(name: str) -> Sequence[Case]:
    # The reference decides nothing here: another one is another view of the same runs.
    group = "control" if name in _CONTROLS else "paper"
    return cases_of(name, group=group, long=name in _LONG)


def _all_differ(nets: str, file: str | None) -> bool:
    """Whether no two rooms have the same net, so that there are no weights to average."""
    if nets != "by-size" or file is None:
        return False
    with Store(Path(file)) as store:
        return len(store.rooms) <= 3
