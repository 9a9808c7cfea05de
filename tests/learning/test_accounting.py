"""What Gaussian releases cost, against values that were published or follow by hand."""

import math

import pytest

from fedapa.errors import PlanError
from fedapa.learning import accounting
from fedapa.learning.accounting import composed, epsilon_of, noise_multiplier


def test_one_release_costs_what_its_formula_says() -> None:
    """δ(ε) = Φ(1/(2z) − εz) − e^ε Φ(−1/(2z) − εz), Balle and Wang 2018, eqn 6 (Δ = 1).

    With z = 1 and ε = 1: Φ(−0.5) = 0.3085375 and e·Φ(−1.5) = 2.7182818 · 0.0668072 = 0.1816008, so
    δ = 0.1269367.
    """
    assert epsilon_of([1.0], 0.1269367) == pytest.approx(1.0, abs=1e-5)


def test_two_releases_cost_as_much_as_one_with_less_noise() -> None:
    """1/3² + 1/4² = 25/144, so z = 12/5; and 1 + 1 = 2, so z = 1/√2."""
    assert composed([3.0, 4.0]) == pytest.approx(2.4)
    assert composed([1.0, 1.0]) == pytest.approx(math.sqrt(0.5))
    assert epsilon_of([3.0, 4.0], 1e-5) == pytest.approx(epsilon_of([2.4], 1e-5))
    assert epsilon_of([], 1e-5) == 0.0


def test_the_library_composes_to_the_same_by_another_way() -> None:
    """Its accountant of privacy loss distributions never tells less, and hardly more."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent(4.0), 30)
    told = accountant.get_epsilon(1e-5)
    ours = epsilon_of([4.0] * 30, 1e-5)
    assert ours <= told < ours + 1e-3
    assert ours == pytest.approx(6.3257, abs=1e-3)


def test_planned_releases_spend_the_budget_and_no_more() -> None:
    z = noise_multiplier(3.0, 1e-5, 10)
    assert epsilon_of([z] * 10, 1e-5) == pytest.approx(3.0, abs=1e-6)
    assert epsilon_of([z] * 11, 1e-5) > 3.1


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("delta", [1e-10, 1e-3])
@pytest.mark.parametrize("releases", [2, 1000])
def test_what_a_plan_may_ask_for_is_divided_without_loss(
    epsilon: float, delta: float, releases: int
) -> None:
    """None of the releases is lost to rounding, one more is too many, and nothing is warned of."""
    z = noise_multiplier(epsilon, delta, releases)
    assert accounting.SMALLEST < z < accounting.LARGEST
    assert 0 < epsilon_of([z] * releases, delta) <= epsilon * (1 + 1e-9)
    assert epsilon_of([z] * (releases + 1), delta) > epsilon * (1 + 1e-5)


def test_any_multiplier_of_a_ledger_has_a_finite_cost_without_a_warning() -> None:
    assert 0 < epsilon_of([accounting.LARGEST] * 3, 1e-10) < 1e-6
    assert 1e13 < epsilon_of([accounting.SMALLEST] * 1000, 1e-10) < math.inf


def test_without_the_library_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(PlanError, match=r"in a checkout of fedapa: pip install '\.\[privacy\]'"):
        accounting.check_accountant()
