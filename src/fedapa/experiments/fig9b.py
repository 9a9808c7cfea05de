"""``fedapa reproduce fig9b``: a fixed weight λ of the prototype losses against the warm-up.

Expected shape: accuracy (and MAE) with λ = 0.1, 0.5, 1 from the start and with the cosine warm-up
to 1, every seed a dot. The paper finds the warm-up best.
"""

from collections.abc import Sequence

from fedapa.experiments.experiment import MODEL, Case, Experiment, algorithms
from fedapa.federation.plan import Plan

__all__ = ["FIG9B"]


def _cases(_: Plan) -> Sequence[Case]:
    fixed = [
        Case(
            f"fixed-{value}",
            {"algorithm": {"name": "fedapa-fixed", "maximum": value}},
            title=f"λ = {value}",
            group="sweep",
            value=str(value),
        )
        for value in (0.1, 0.5, 1.0)
    ]
    (default,) = algorithms("fedapa", group="sweep", long=True)
    return [
        *fixed,
        Case(
            default.name,
            default.change,
            title="warm-up (default)",
            group="sweep",
            value="warm-up",
            long=True,
        ),
    ]


FIG9B = Experiment(
    "fig9b", "Figure 9b: fixed λ against the warm-up", _cases, (MODEL,), parameter="λ"
)
