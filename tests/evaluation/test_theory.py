"""The theory from records, worked by hand."""

from typing import Any

import pytest

from fedapa.evaluation.theory import theory_of
from fedapa.report.tables.theory import theory_table


def record(number: int, *, server: dict[str, float], **room: float) -> dict[str, Any]:
    """A round of one room, which learns at 0.1 in two steps with λ = 1."""
    fixed = {"rate": 0.1, "steps": 2.0, "squared_gradient": 4.0, "weight": 1.0}
    return {
        "round": number,
        "rooms": {
            "a": {
                **{f"theory_{name}": value for name, value in {**fixed, **room}.items()},
            }
        },
        "server": {f"theory_{name}": value for name, value in server.items()},
    }


def test_constants_and_bounds_by_hand() -> None:
    """Ĝ = 2, η S Ĝ = 0.4. Round 1 moves P by 0.8 and Q by 0.4: k̂ = 2, L̂_agg = 0.5. Φ then changes
    by −0.6: ĉ = 0.6/1.2 = 0.5, Γ̂ = 0.75. Refresh may cost 1·0.75·2·0.4 = 0.6; v = 2·0.75·2/2 = 1.5.
    Theorem 1 in round 2, L̂ = 5, σ̂² = 3, gradients 2 and 4: 10 − 0.05·2·3 + 5·0.01/2·2·3 + 0.6 =
    10.45. Theorem 2 over rounds 2 and 3, K = 4: 2·10/0.4 + 5·0.1·3 + 2·0.75·2·2 = 57.5."""
    moved = {"prototypes_moved": 0.8, "mixtures_moved": 0.4}
    records = [
        record(1, server=moved, penalty=3.0),
        record(
            2,
            server={},
            penalty=2.0,
            penalty_change=-0.6,
            jump_refresh=-0.6,
            objective_before=10.0,
            descent=0.1,
            gradient_before=2.0,
            gradient_after=4.0,
            smoothness=5.0,
            variance=3.0,
        ),
        record(3, server={}, penalty=2.0, objective_before=9.0, jump_refresh=0.1),
    ]
    theory = theory_of(records, warm_rounds=1)
    assert theory is not None
    made = theory.constants
    assert (made.gradient, made.movement, made.aggregation) == (2.0, pytest.approx(2.0), 0.5)
    assert (made.penalty, made.coupling, made.bound) == pytest.approx((0.5, 0.75, 3.0))
    assert theory.refresh_bound == pytest.approx(0.6)
    assert theory.vacuity == pytest.approx(1.5)
    assert theory.largest["jump_refresh"] == 0.6
    assert theory.largest_rate == pytest.approx(0.2)
    assert theory.one_round == ((2, 9.0, pytest.approx(10.45)),)
    assert theory.within == ((2, 0.1, pytest.approx(0.15)),), "0.05·2·3 − 5·0.01/2·2·3: it fails"
    assert theory.stationary == (pytest.approx(3.0), pytest.approx(57.5))


def test_a_run_that_nobody_diagnosed_says_nothing() -> None:
    assert theory_of([{"round": 1, "rooms": {"a": {"lambda": 1.0}}, "server": {}}]) is None


def test_without_epochs_of_gradients_there_are_no_theorems() -> None:
    theory = theory_of([record(1, server={}), record(2, server={}, objective_before=1.0)])
    assert theory is not None
    assert theory.one_round == ()
    assert theory.stationary is None
    assert theory.largest_rate is None


_MEASURED = {
    "objective_before": 1.0,
    "penalty_change": 0.2,
    "jump_refresh": 0.2,
    "gradient_before": 1.0,
    "gradient_after": 1.0,
    "smoothness": 1.0,
    "variance": 1.0,
}


def test_prototypes_that_stay_in_rooms_have_no_bounds() -> None:
    """Nobody saw them move, which is no movement of 0 that every jump would be above."""
    theory = theory_of([record(number, server={}, **_MEASURED) for number in (1, 2, 3)])
    assert theory is not None
    assert (theory.is_coupled, theory.one_round, theory.stationary) == (False, (), None)
    table = theory_table(theory, rooms=3, temperature=0.5, about="")
    told = {row[0]: row[1:] for row in table.rows}
    assert told["Jump by new prototypes (Lemma 3)"] == ["not measured", "0.2", "–"]
    assert not any("L_agg" in name or ", v" in name for name in told)


def test_rounds_that_were_not_diagnosed_part_the_others() -> None:
    moved = {"prototypes_moved": 0.1, "mixtures_moved": 0.1}
    one, two = (
        theory_of([record(number, server=moved, **_MEASURED) for number in numbers])
        for numbers in ((1, 2), (1, 5))
    )
    assert one is not None
    assert two is not None
    assert ([number for number, *_ in one.one_round], two.one_round) == ([1], ())
    assert (one.constants.penalty, two.constants.penalty) == (pytest.approx(1.0), 0.0)


def test_the_weight_is_that_of_the_objective() -> None:
    """FedProto's attraction, for one."""
    theory = theory_of([record(1, server={}, weight=0.3)])
    assert theory is not None
    assert theory.weight == 0.3


def test_a_rate_that_falls_is_that_of_its_round() -> None:
    """η = 0.1 and then 0.05, two steps, Ĝ = 2: ways 0.4 and 0.2. P moves by 0.4 in both, so k̂ = 2
    by the second, and what that refresh may cost is what it did: with Φ changing by 0.3 and Q not
    moving, ĉ = 0.75 = Γ̂, 0.75·2·0.2 = 0.3. Theorem 2 over rounds 2 and 3: Σ η S = 0.1 + 0.1,
    2·1/0.2 + 1·1·(0.05·0.1 + 0.05·0.1)/0.2 + 2·0.75·2·2 = 16.05."""
    moved = {"prototypes_moved": 0.4, "mixtures_moved": 0.0}
    still = {**_MEASURED, "penalty_change": 0.3, "jump_refresh": 0.3}
    theory = theory_of(
        [
            record(1, server=moved, **still),
            record(2, server=moved, **{**still, "rate": 0.05}),
            record(3, server={}, **{**still, "rate": 0.05}),
        ],
        warm_rounds=1,
    )
    assert theory is not None
    assert theory.constants.movement == pytest.approx(2.0)
    (_, _, first), (_, reached, second) = theory.one_round
    promised = 0.05 / 2 * 2 * 1 - 0.05**2 / 2 * 2
    assert second == pytest.approx(reached - promised + 0.3), "no less than what was seen"
    assert first == pytest.approx(1 - (0.1 - 0.01) + 0.6)
    assert theory.stationary == (pytest.approx(1.0), pytest.approx(16.05))


def test_a_round_is_held_against_the_next_by_the_rooms_that_took_part_in_both() -> None:
    """Room b, with an objective of 100, comes in round 2 and was not there in round 1: neither the
    theorem nor ĉ hears of it."""
    moved = {"prototypes_moved": 0.1, "mixtures_moved": 0.1}
    first, second = (record(number, server=moved, **_MEASURED) for number in (1, 2))
    second["rooms"]["b"] = {
        **second["rooms"]["a"],
        "theory_objective_before": 100.0,
        "theory_penalty_change": 50.0,
    }
    theory = theory_of([first, second])
    assert theory is not None
    assert theory.constants.penalty == pytest.approx(1.0)
    ((_, reached, _),) = theory.one_round
    assert reached == 1.0


def test_vectors_of_length_one_are_no_longer_than_one_but_for_rounding() -> None:
    theory = theory_of([record(1, server={}, embedding_longest=1.0000002)])
    assert theory is not None
    table = theory_table(theory, rooms=3, temperature=None, about="")
    assert table.rows[0][-1] == "yes"
