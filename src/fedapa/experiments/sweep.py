"""A sweep: FedAPA with one parameter at several values, its default shared with Table 1."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedapa.experiments.experiment import Case

__all__ = ["sweep"]


def sweep(
    changes: Mapping[float, Mapping[str, Any]], *, default: float, name: str
) -> Sequence[Case]:
    """One case a value; the default's is plain FedAPA, so that its run is Table 1's.

    Args:
        changes: value → what it changes in the plan.
        default: the preset's value.
        name: of the parameter, for the rows' names.
    """
    return [
        Case(
            "fedapa" if value == default else f"{name}-{value:g}",
            {"algorithm": {"name": "fedapa"}} if value == default else change,
            title=f"{value:g} (default)" if value == default else f"{value:g}",
            group="sweep",
            value=value,
            long=value == default,
        )
        for value, change in changes.items()
    ]
