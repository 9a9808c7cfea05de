"""The paper's protocol: what its runs are, one cause at a time, and margins by hand."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedapa.algorithms import find
from fedapa.evaluation.outcomes import outcome_of
from fedapa.evaluation.results import Results, Row, Setting
from fedapa.experiments.conduct import Execution, folder_name
from fedapa.experiments.experiment import MODEL, STATISTICAL, Base, Nets
from fedapa.experiments.protocol import CAUSES, PROTOCOL
from fedapa.experiments.reproduce import published, reproduce
from fedapa.federation.plan import differences
from fedapa.report.figures.margins import margins_figure
from fedapa.report.figures.sweeps import sweep
from fedapa.report.tables.margins import AS_IT_IS, margins_of, margins_table, train_loss_at
from tests.conftest import MakeStore
from tests.report import made
from tests.report.test_page import check_text

SHORT = Base("protocol", rounds=100, long_rounds=200, changes=[{"algorithm": {"warm_rounds": 50}}])
"""Causes for half of the rounds, the protocol as it is for all of them."""


def test_the_protocol_is_the_papers() -> None:
    plans = [PROTOCOL.plan(Base("protocol"), STATISTICAL, case, 0) for case in _rows()]
    assert [plan.algorithm["name"] for plan in plans] == ["local", "fedapa", "fedapa-self"]
    for plan in plans:
        assert (plan.rounds, plan.training.learning_rate) == (200, 0.01)
        assert (plan.data.split, plan.data.test, plan.data.validation) == ("random", 0.2, 0)
    assert plans[1].algorithm["warm_rounds"] == plans[2].algorithm["warm_rounds"] == 50
    assert published("protocol") == published("table1")


def _rows() -> list[object]:
    return list(PROTOCOL.cases(Base("protocol").plan))


def test_a_cause_changes_one_thing() -> None:
    """One key of the plan each; shorter windows are still as many, by the same stride."""
    base = Base("protocol", long_rounds=0)
    cases = {case.name: case for case in CAUSES.cases(base.plan)}
    plans = {name: CAUSES.plan(base, STATISTICAL, case, 0) for name, case in cases.items()}
    usual = plans["as-it-is-fedapa"].document()
    changed = {
        name.removesuffix("-fedapa"): differences(usual, plan.document())
        for name, plan in plans.items()
        if plan.algorithm["name"] == "fedapa"
    }
    assert changed.pop("as-it-is") == []
    assert len(changed) == 8
    for name, keys in changed.items():
        assert len(keys) == 1, (name, keys)
    assert plans["twice-the-windows-local"].data.stride == 375
    assert plans["windows-half-as-long-local"].data.window == 62


def test_the_protocol_as_it_is_may_run_as_long_as_the_papers() -> None:
    """Then its runs are those of the whole protocol, with equal nets and with nets by size."""
    whole = {
        folder_name(PROTOCOL.plan(Base("protocol"), nets, case, 1))
        for nets in (STATISTICAL, MODEL)
        for case in PROTOCOL.cases(Base("protocol").plan)
    }
    plans = [CAUSES.plan(SHORT, STATISTICAL, case, 1) for case in CAUSES.cases(SHORT.plan)]
    assert {folder_name(plan) for plan in plans if plan.rounds == 200} == whole
    assert {plan.rounds for plan in plans} == {100, 200}
    assert {plan.algorithm.get("warm_rounds", 50) for plan in plans} == {50}


def _line(name: str, level: float, cause: str = AS_IT_IS, **more: float) -> Row:
    kind = find(name)
    row = made.row(f"{cause}-{name}", kind.title, {20: level}, value=cause, **more)
    outcomes = [replace(one, train_loss=[2.0] * 15 + [0.5] * 5) for one in row.outcomes]
    return replace(row, outcomes=outcomes)


def _setting() -> Setting:
    """As it is: Local 60, self 61, FedAPA 64 %, the same in every seed; blocked: 50, 51, and
    FedAPA 49, 50, 51 %."""
    rows = [
        _line("local", 0.60, apart=0.0),
        _line("fedapa-self", 0.61, apart=0.0),
        _line("fedapa", 0.64, apart=0.0),
        _line("local", 0.50, "split blocked", apart=0.0),
        _line("fedapa-self", 0.51, "split blocked", apart=0.0),
        _line("fedapa", 0.50, "split blocked", apart=0.01),
    ]
    return replace(made.setting(), rows=rows, horizons=[20], rounds=20)


def test_a_margin_is_its_losses_and_its_exchange_by_hand() -> None:
    """Blocked: FedAPA − Local is −1, 0, 1 points, so 0 ± 4.303/√3 = 2.48; as it is 4 points with
    every seed, so the margin moved by −5, −4, −3: −4 ± 2.48."""
    base, blocked = margins_of(_setting())
    assert base.whole.mean == pytest.approx(0.04)
    assert base.whole.mean == pytest.approx(base.losses.mean + base.exchange.mean)
    assert base.moved is None
    assert blocked.whole.mean == pytest.approx(0.0)
    assert blocked.moved is not None
    assert blocked.moved.low == pytest.approx(-0.0648, abs=1e-4)
    assert train_loss_at(blocked.local, 20) == pytest.approx(0.5)
    assert train_loss_at(blocked.local, 15) == pytest.approx(2.0)
    assert train_loss_at(blocked.local, 40) is None
    cells = margins_table(_setting()).rows[1]
    assert cells[:2] == ["split blocked", "50.0 ± 0.0"]
    assert cells[5] == "−4.0 [−6.5, −1.5] *"
    assert cells[-1] == "0.5"
    check_text(margins_figure(_setting()))


def test_nine_causes_stand_below_an_axis_without_lying_over_each_other() -> None:
    words = dict.fromkeys(str(case.value) for case in CAUSES.cases(Base("protocol").plan))
    rows = [
        _line(name, 0.5, cause) for cause in words for name in ("local", "fedapa", "fedapa-self")
    ]
    setting = replace(_setting(), rows=rows)
    check_text(sweep(made.results([setting], parameter=CAUSES.parameter), setting))
    check_text(margins_figure(setting))


def test_the_train_loss_is_the_mean_over_the_rooms_that_tell_it() -> None:
    """Two rooms with 1 and 3, then one that sat out: 2, then 3."""
    rooms = [{"a": {"loss_ce": 1.0}, "b": {"loss_ce": 3.0}}, {"a": {}, "b": {"loss_ce": 3.0}}]
    records = [
        {
            "round": number,
            "mean": {},
            "std": {},
            "rooms": {name: {**own, "bytes_up": 0, "bytes_down": 0} for name, own in told.items()},
        }
        for number, told in enumerate(rooms, start=1)
    ]
    assert outcome_of(records, [], seed=0, run="", commits=[]).train_loss == [2.0, 3.0]


def test_a_store_has_no_other_takes_and_no_windows_between_windows(make_store: MakeStore) -> None:
    causes = {case.value for case in CAUSES.cases(_on(make_store()).plan)}
    assert not {"many takes", "twice the windows"} & causes
    assert {AS_IT_IS, "split blocked", "half the windows", "windows half as long"} <= causes


def _on(store: Path) -> Base:
    change = {"data": {"window": 8, "stride": 8}, "model": {"width": 8}}
    return Base("protocol", str(store), rounds=1, long_rounds=0, changes=[change])


def test_causes_leave_a_figure_a_table_and_the_train_loss(
    make_store: MakeStore, tmp_path: Path
) -> None:
    base = _on(make_store({room: {0: 1, 1: 1} for room in ("a", "b")}, packets=160))
    few = [case for case in CAUSES.cases(base.plan) if case.value in (AS_IT_IS, "half the windows")]
    experiment = replace(CAUSES, settings=(Nets("tiny", "tiny nets", "tiny"),), cases=lambda _: few)
    (shown,) = reproduce([experiment], base, Execution(seeds=1, out=tmp_path, workers=1))
    (setting,) = Results.load(tmp_path / "causes" / "results.json").settings
    assert {len(row.outcomes[0].train_loss) for row in setting.rows if row.value} == {1}
    assert shown.tables[0].title == "FedAPA minus Local, one cause at a time"
    assert [row[0] for row in shown.tables[0].rows] == ["as it is, 1 round", "half the windows"]
    assert (tmp_path / "causes" / "answer-0.png").is_file()
    (unequal,) = [said for said in shown.about if "different windows" in said]
    assert unequal.endswith("(as it is: 80; half the windows: 40).")  # each once, not three times
    # A reply that was remembered over a kill has no seconds: the page is written all the same.
    for times in tmp_path.glob("runs/*/seconds.jsonl"):
        lines = [json.loads(line) for line in times.read_text().splitlines()]
        lines[0]["rooms"]["a"] = {}
        times.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    reproduce([experiment], base, Execution(seeds=1, out=tmp_path, workers=1, resume=True))
