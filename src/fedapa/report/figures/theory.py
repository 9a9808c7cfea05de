"""What each round did to the objective, and how far prototypes moved what rooms get of them."""

import math

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedapa.evaluation.theory import Theory
from fedapa.report.style import drawn, look

__all__ = ["theory_figure"]

_TERMS = {
    "descent": "steps of the round (descent)",
    "jump_schedule": "warm-up: λ grew",
    "jump_refresh": "new prototypes",
}


def theory_figure(theory: Theory, *, rooms: int, temperature: float | None, about: str) -> Figure:
    """Changes of the objective by their cause, round by round, and ‖ΔQ‖/‖ΔP‖ with its bound.

    Args:
        theory: of a diagnosed run.
        rooms: N.
        temperature: τ of the aggregation; none where it has none.
        about: data, seed and commit, for the caption.
    """
    rounds = np.asarray(theory.rounds)
    said = (
        "Left: by how much the objective L_t changed in each round, mean over rooms: down by the "
        "room's own steps, up or down by the growing weight of the prototype losses and by new "
        "prototypes. Right: how far the rooms' mixtures moved for a move of the prototypes. "
        f"{about}"
    )
    with drawn(2.9, said) as figure:
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        for number, (name, label) in enumerate(_TERMS.items()):
            sign = -1 if name == "descent" else 1
            style = {**look(number), "markevery": max(1, len(rounds) // 6), "lw": 1.2}
            left.plot(rounds, sign * np.asarray(theory.terms[name]), label=label, **style)
        left.axhline(0, color="0.6", lw=0.6)
        left.set(xlabel="round", ylabel="change of the objective")
        left.legend(fontsize="small")
        style = {**look(0), "markevery": max(1, len(rounds) // 6), "lw": 1.2}
        right.plot(rounds, theory.aggregation, label="measured", **style)
        if temperature is not None:
            bound = math.sqrt(rooms) / (2 * temperature)
            right.axhline(bound, color="0.4", ls="--", lw=1, label="√N/(2τ)")
        right.set(xlabel="round", ylabel="‖ΔQ‖ / ‖ΔP‖", ylim=(0, None))
        right.legend(fontsize="small")
        for axes in (left, right):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        return figure
