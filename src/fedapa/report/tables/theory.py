"""The convergence theory, assumption by assumption, beside what a run measured."""

import math

from fedapa.evaluation.theory import Theory
from fedapa.report.tables.table import Table

__all__ = ["theory_table"]

_NONE = "not measured"
_ROUNDING = 1e-6
"""A vector of length one is longer by so much at most, in single precision."""


def theory_table(theory: Theory, *, rooms: int, temperature: float | None, about: str) -> Table:
    """What the theorems assume or allow, what the run had, and whether the one fits the other.

    Args:
        theory: of a diagnosed run.
        rooms: N.
        temperature: τ of the aggregation; none where it has none.
        about: data, seed and commit, for the note.
    """
    made, largest = theory.constants, theory.largest
    rate = theory.largest_rate
    rows = [
        _row(
            "Longest embedding ‖r‖ (Assumption 3)",
            "1 at most",
            largest["embedding_longest"],
            largest["embedding_longest"] <= 1 + _ROUNDING,
        )
    ]
    if temperature is not None and theory.is_coupled:
        bound = math.sqrt(rooms) / (2 * temperature)  # Assumption 4's example
        rows.append(
            _row(
                "‖ΔQ‖/‖ΔP‖, L_agg (Assumption 4)",
                f"√N/(2τ) = {_number(bound)} at most",
                made.aggregation,
                made.aggregation <= bound,
            )
        )
    rows.append(
        _row(
            "Learning rate η (all)",
            _NONE if rate is None else f"1/L = {_number(rate)} at most",
            theory.rate,
            None if rate is None else theory.rate <= rate,
        )
    )
    rows.append(
        _row(
            "Jump by new prototypes (Lemma 3)",
            f"{_number(theory.refresh_bound)} at most" if theory.is_coupled else _NONE,
            largest["jump_refresh"],
            None,  # its constants are made of these jumps: it cannot fail
        )
    )
    if theory.within:
        number, reached, promised = min(theory.within, key=lambda entry: entry[1] - entry[2])
        rows.append(
            _row(
                f"Descent in round {number} (Corollary 1)",
                f"{_number(promised)} at least",
                reached,
                reached >= promised,
            )
        )
    else:
        missing = "no round had gradients (--gradients-every)"
        rows.append(["Corollary 1, Theorems 1 and 2", missing, "–", "–"])
    if theory.one_round:
        nearest = min(theory.one_round, key=lambda entry: entry[2] - entry[1])
        number, reached, allowed = nearest  # where it holds by the least, or fails by the most
        rows.append(
            _row(
                f"Objective after round {number} (Theorem 1)",
                f"{_number(allowed)} at most",
                reached,
                reached <= allowed,
            )
        )
    if theory.stationary is not None:
        found, allowed = theory.stationary
        rows.append(
            _row(
                "Mean ‖∇L‖² after warm-up (Theorem 2)",
                f"{_number(allowed)} at most",
                found,
                found <= allowed,
            )
        )
    if theory.is_coupled:
        floor = "far below 1 to say something"
        rows.append(_row("Floor of that bound over G², v", floor, theory.vacuity, None))
    return Table(
        title="The convergence theory, measured",
        headings=["Quantity", "The theory has", "Measured", "Holds"],
        rows=rows,
        note=(
            "Largest over rooms and rounds; means over rooms for the theorems. The constants in "
            "bounds are the largest that this run showed, L from two points of a round: the true "
            "ones may be larger. Lemma 3's is made of the jumps themselves, so it always holds. "
            "Momentum, weight decay and BatchNorm are not in the theory. "
            f"docs/theory.md explains every line. {about}"
        ),
        text_columns=2,
    )


def _row(what: str, has: str, measured: float, holds: bool | None) -> list[str]:
    said = "–" if holds is None else ("yes" if holds else "no")
    return [what, has, _number(measured), said]


def _number(value: float) -> str:
    return f"{value:.5g}"
