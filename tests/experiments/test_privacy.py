"""``fedapa reproduce privacy``: every case is a plan, and without noise it is the plain one."""

from pathlib import Path

import pytest

from fedapa.errors import PlanError
from fedapa.experiments import conduct
from fedapa.experiments.experiment import CHOSEN, Base
from fedapa.experiments.privacy import PRIVACY
from fedapa.federation.plan import Plan
from fedapa.federation.run import Run


def test_every_case_is_a_plan_and_no_noise_is_one_run_for_both_units() -> None:
    base = Base(preset="quick")
    plans = {case.name: PRIVACY.plan(base, CHOSEN, case, 0) for case in PRIVACY.cases(base.plan)}
    assert len(plans) == 1 + 2 * 2 * 6
    assert plans["fedapa-window-none"] == plans["fedapa-recording-none"]
    assert not plans["fedapa-window-none"].privacy.is_on
    noised = plans["fedproto-recording-3"].privacy
    assert (noised.epsilon, noised.unit, noised.planned(30)) == (3.0, "recording", 5)
    assert plans["fedproto-recording-10000"].privacy.epsilon == 1e4
    for mark in ("window-1", "recording-30"):
        assert plans[f"fedapa-{mark}"].privacy.clip == 1.0


def test_what_no_title_speaks_of_is_refused() -> None:
    for key, change in (
        ("privacy", {"privacy": {"epsilon": 1.0}}),
        ("precision", {"precision": "int8"}),
        ("attack", {"attack": {"kind": "scaled"}}),
    ):
        with pytest.raises(PlanError, match=f"privacy: {key} would change every case"):
            PRIVACY.cases(Base(preset="quick", changes=(change,)).plan)


def test_lines_are_methods_by_what_is_protected_with_local_across() -> None:
    cases = PRIVACY.cases(Base(preset="quick").plan)
    lines = {case.group for case in cases if case.value is not None}
    assert lines == {
        f"{method}, {unit}" for method in ("FedAPA", "FedProto") for unit in ("window", "recording")
    }
    assert [case.name for case in cases if case.value is None] == ["local"]


@pytest.mark.parametrize("rounds", [1, 4, 7, 9, 12, 14, 29, 30])
def test_a_room_sends_five_times_at_most_whatever_the_rounds(rounds: int) -> None:
    base = Base(preset="quick", rounds=rounds)
    (case,) = (case for case in PRIVACY.cases(base.plan) if case.name == "fedapa-window-1")
    planned = PRIVACY.plan(base, CHOSEN, case, 0).privacy.planned(rounds)
    assert planned is not None
    assert min(rounds, 3) <= planned <= 5
    assert any("5 times at most" in note for note in PRIVACY.notes)


def test_a_longer_run_with_noise_does_not_begin_with_a_spent_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "can_go_on", lambda folder: True)
    for noised in ({}, {"privacy": {"epsilon": 3.0, "releases": 2}}):
        short, long = (
            Plan.of(Base(preset="smoke").plan.document(), noised, {"rounds": rounds})
            for rounds in (2, 4)
        )
        done = tmp_path / conduct.folder_name(short)
        done.mkdir()
        (done / "plan.toml").write_text(short.toml())
        (done / "summary.json").write_text("{}")
        folder = tmp_path / conduct.folder_name(long)
        conduct._begin_with_shorter(folder, long)
        assert folder.exists() != long.privacy.is_on
