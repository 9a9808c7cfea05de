"""``fedapa reproduce privacy``: every case is a plan, and without noise it is the plain one."""

from fedapa.experiments.experiment import CHOSEN, Base
from fedapa.experiments.privacy import PRIVACY


def test_every_case_is_a_plan_and_no_noise_is_one_run_for_both_units() -> None:
    base = Base(preset="quick")
    plans = {case.name: PRIVACY.plan(base, CHOSEN, case, 0) for case in PRIVACY.cases(base.plan)}
    assert len(plans) == 1 + 2 * 2 * 5
    assert plans["fedapa-window-none"] == plans["fedapa-recording-none"]
    assert not plans["fedapa-window-none"].privacy.is_on
    noised = plans["fedproto-recording-3"].privacy
    assert (noised.epsilon, noised.unit, noised.planned(30)) == (3.0, "recording", 5)
    for mark in ("window-1", "recording-30"):
        assert plans[f"fedapa-{mark}"].privacy.clip == 1.0


def test_lines_are_methods_by_what_is_protected_with_local_across() -> None:
    cases = PRIVACY.cases(Base(preset="quick").plan)
    lines = {case.group for case in cases if case.value is not None}
    assert lines == {
        f"{method}, {unit}" for method in ("FedAPA", "FedProto") for unit in ("window", "recording")
    }
    assert [case.name for case in cases if case.value is None] == ["local"]
