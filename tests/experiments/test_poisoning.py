"""The study of rooms that lie: what is run, who is scored, what is lost."""

from dataclasses import replace

import pytest

from benchmarks.poisoning import bars
from fedapa.cli import experiments
from fedapa.cli.experiments import base_of
from fedapa.errors import PlanError
from fedapa.evaluation.results import Row, Setting
from fedapa.experiments.poisoning import BASE, POISONING, losses, poisoning
from fedapa.federation.attack import KINDS
from fedapa.federation.plan import Plan
from tests.report import made


def test_every_attack_is_run_with_and_without_a_defence_and_the_bars_are_a_part_of_it() -> None:
    cases = {case.name: case for case in POISONING.cases(BASE.plan)}
    bars = {case.name for case in poisoning(bars=True).cases(BASE.plan)}
    assert bars < set(cases)
    for kind in KINDS:
        for rooms in (10, 30):
            assert f"fedjoin-{rooms}-{kind}-30" in cases
            assert f"fedjoin-{rooms}-{kind}-30-guard" in bars
            assert {f"fedjoin-{rooms}-broken-30", f"fedavg-{rooms}-broken-30"} <= bars
            assert f"fedavg-{rooms}-{kind}-30-guard-trimmed" in bars
            for alone in ("guard", "trimmed"):  # each half by itself is measured, too
                assert f"fedavg-{rooms}-{kind}-30-{alone}" in set(cases) - bars
        for share in (10, 20, 30, 40):
            for name in ("fedjoin-10", "fedjoin-30", "fedavg-10"):
                assert f"{name}-{kind}-{share}" in cases
            change = cases[f"fedjoin-10-{kind}-{share}-guard"].change
            assert change["attack"] == {"kind": kind, "share": share / 100}
            assert f"fedjoin-30-{kind}-{share}-guard" in cases
            assert f"fedavg-10-{kind}-{share}-guard-trimmed" in cases
    defended = [name for name in bars if "guard" in name or "trimmed" in name]
    assert all(name.endswith("trimmed") == ("fedavg" in name) for name in defended)
    plan = Plan.of(BASE.plan.document(), cases["fedavg-30-random-30-guard"].change)
    assert (plan.data.partition_rooms, plan.data.train_recordings) == (30, 1)
    assert plan.defence is not None
    assert plan.defence.cosine > 0
    assert len(set(cases)) == len(POISONING.cases(BASE.plan))


def test_one_number_of_rooms_can_be_asked_for_and_attacks_cannot() -> None:
    dealt = {"data": {"partition": "dirichlet", "partition_rooms": 4}}
    only = replace(BASE, changes=(dealt,)).plan
    assert {name.split("-")[1] for name in (case.name for case in POISONING.cases(only))} == {"4"}
    for key, change in (
        ("defence", {"defence": "guard"}),
        ("precision", {"precision": "int8"}),
        ("privacy", {"privacy": {"epsilon": 1.0}}),
    ):
        with pytest.raises(PlanError, match=f"poisoning: {key} would change every case"):
            POISONING.cases(Plan.of(BASE.plan.document(), change))


def test_the_command_does_what_the_benchmark_measures() -> None:
    """The defaults of the command are written out there, to answer --help at once."""
    assert experiments._USUAL_ROUNDS["poisoning"] == BASE.rounds
    changed = base_of(
        "quick", "simulated", None, 12, 0, list(experiments._USUAL_CHANGES["poisoning"])
    )
    assert changed.plan == BASE.plan


def test_the_bars_are_two_numbers_and_the_worst(capsys: pytest.CaptureFixture[str]) -> None:
    rounds = made.setting().rounds

    def row(line: str, share: float, accuracy: float) -> Row:
        own = made.row(line, line, {rounds: accuracy})
        return replace(own, name=f"{line}@{share:g}", group=line, value=share)

    def setting(attacked: float) -> Setting:
        rows = [
            *(row("nobody", share, 0.6) for share in (0.0, 30.0)),
            row("nobody, guard", 0.0, 0.594),
            row("random, guard", 30.0, attacked),
            row("scaled, guard", 30.0, 0.61),
            row("broken", 30.0, 0.55),  # 5 points: no lie, and no bar
        ]
        return replace(made.setting(), rows=rows, horizons=[rounds])

    both = replace(made.results(), settings=[setting(0.59), setting(0.575)])
    assert bars(both) == {"loss_at_30": 2.5, "loss_unattacked": 0.6}
    told = capsys.readouterr().err
    assert "random 30 %, guard: +2.50" in told
    assert "every liar shut out: +5.00" in told
    with pytest.raises(ValueError, match="nothing was measured with random"):
        bars(replace(both, settings=[setting(float("nan"))]))


def test_losses_by_hand() -> None:
    """Clean 60 %, under attack 40 %, with the guard 59 %, Local 50 %: lost are 20 points without,
    1 with it, and 9 of the gain over Local are left. Unattacked the guard costs half a point. With
    every liar shut out 59.5 % would be left: half a point, the least that shutting out can do."""
    rounds = made.setting().rounds

    def row(line: str, share: float, accuracy: float) -> Row:
        own = made.row(line, line, {rounds: accuracy})
        return replace(own, name=f"{line}@{share:g}", group=line, value=share)

    rows = [
        *(row("Local", share, 0.5) for share in (0.0, 30.0)),
        *(row("nobody", share, 0.6) for share in (0.0, 30.0)),
        *(row("nobody, guard", share, 0.595) for share in (0.0, 30.0)),
        row("random", 30.0, 0.4),
        row("random, guard", 30.0, 0.59),
        row("broken", 30.0, 0.595),
    ]
    setting: Setting = replace(made.setting(), rows=rows, horizons=[rounds])
    still, attacked, shut_out = losses(setting)
    assert (shut_out.attack, shut_out.defence, shut_out.defended) == ("broken", "", None)
    assert shut_out.undefended == pytest.approx([0.005] * len(shut_out.undefended or []))
    assert (still.attack, still.share, still.defence) == ("nobody", 0.0, "guard")
    assert still.defended == pytest.approx([0.005] * len(still.defended or []))
    assert (attacked.attack, attacked.share) == ("random", 30.0)
    assert attacked.undefended == pytest.approx([0.2] * len(attacked.undefended or []))
    assert attacked.defended == pytest.approx([0.01] * len(attacked.defended or []))
    assert attacked.left == pytest.approx([0.09] * len(attacked.left or []))
    assert POISONING.table is not None
    (_, second, _) = POISONING.table(setting).rows
    assert second[0] == "random"
    assert any(cell.startswith("+20.0") for cell in second)
