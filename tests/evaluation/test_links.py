"""Time on a link, worked out by hand."""

from dataclasses import replace

import pytest

from fedapa.evaluation.links import LINKS, Link, exchanged, seconds_of, until
from fedapa.experiments.experiment import Base
from fedapa.experiments.links import LINKS_STUDY
from fedapa.report.figures.links import links_figure
from fedapa.report.tables.links import asked_accuracies, links_table, seconds_text
from tests.report import made
from tests.report.test_page import check_text

SLOW = Link("slow", down=8000, up=4000, delay=0.5, source="by hand")


def test_a_round_is_as_long_as_its_slowest_room() -> None:
    """1000 bytes down at 8 kbit/s are 1 s, 500 up at 4 kbit/s 1 s, two delays 1 s: with 2 s of
    training 5 s. Another room trains 4.5 s and sends nothing: 5.5 s, so the round has those; in
    the next the first room is alone."""
    first, second = [1000, 500, 2.0], [0, 0, 4.5]
    assert SLOW.seconds(*first) == pytest.approx(5.0)
    rounds = [{"a": first, "b": second}, {"a": first}]
    assert seconds_of(rounds, SLOW) == pytest.approx([5.5, 10.5])
    slow_start = [{"a": [1000, 500, 60.0]}, *({"a": first} for _ in range(4))]
    assert seconds_of(slow_start, SLOW) == pytest.approx([5, 10, 15, 20, 25])


def test_what_was_exchanged_is_what_a_run_recorded() -> None:
    """Of rooms that took part; the last exchange only scores."""
    entry = {"bytes_down": 10, "bytes_up": 20, "participated": True}
    records = [
        {"rooms": {"a": entry, "b": {**entry, "participated": False}}},
        {"rooms": {"a": entry, "b": entry}},
    ]
    spent = {"score": 9.0, "train": 1.5}
    times = [{"rooms": {"a": spent, "b": spent}}] * 2 + [{"rooms": {"a": {"score": 9.0}}}]
    assert exchanged(records, times) == [
        {"a": [10, 20, 1.5]},
        {"a": [10, 20, 1.5], "b": [10, 20, 1.5]},
    ]


def _with_exchanged(row: made.Row, down: float, training: float) -> made.Row:
    outcomes = [
        replace(one, exchanged=[{"a": [down, down, training]}] * one.rounds) for one in row.outcomes
    ]
    return replace(row, outcomes=outcomes)


def test_time_to_an_accuracy_by_hand() -> None:
    """Local is at 60 % with all seeds from round 10 on but for the mean of five rounds, which gets
    there in round 15; without bytes a round on Wi-Fi is 0.01 s of delay and 1.19 s of training."""
    plain = made.setting()
    local, fedavg = (
        made.row(name, "paper", {5: 0.4, 10: 0.5, 20: 0.6}, title=name, apart=0.0)
        for name in ("local", "fedavg")
    )
    rows = [
        _with_exchanged(local, 0, 1.19),
        _with_exchanged(fedavg, 2.5e6, 1.19),
        *(row for row in plain.rows if row.group == "blind"),
    ]
    setting = replace(plain, rows=rows, horizons=[5, 10, 20])
    wifi = LINKS[0]
    assert until(rows[0], 0.6, wifi) == pytest.approx([15 * 1.2] * 3)
    assert until(rows[1], 0.6, wifi) == pytest.approx([15 * 3.2] * 3)  # 20 Mbit each way: 2 s
    assert until(rows[0], 0.9, wifi) is None
    assert asked_accuracies(setting)[-1] == pytest.approx(0.6)
    table = links_table(setting)
    assert [row[0] for row in table.rows] == ["local", "fedavg"]
    assert table.rows[0][-3] == "18.0 s"
    assert table.rows[1][-1] == "4.6 h"  # 15 · (3 + 1.19 + 769.2 + 322.6) s on NB-IoT
    check_text(links_figure(setting))


def test_times_are_told_as_one_says_them() -> None:
    assert [seconds_text(each) for each in (4.24, 600, 9000)] == ["4.2 s", "10 min", "2.5 h"]


def test_the_study_varies_one_thing_of_fedapa_at_a_time() -> None:
    plan = Base(preset="quick").plan
    cases = {case.title: case for case in LINKS_STUDY.cases(plan)}
    assert {"Local", "FedAvg", "FedAPA", "FedAPA, ρ = 0.33", "FedAPA, int8"} <= set(cases)
    made_plans = {
        title: LINKS_STUDY.plan(Base(preset="quick"), LINKS_STUDY.settings[0], case, 0)
        for title, case in cases.items()
    }
    assert {plan.rounds for plan in made_plans.values()} == {30}
    assert made_plans["FedAPA, one peer"].algorithm["peers"] == 1
    assert made_plans["FedAPA, epochs 1"].training.epochs == 1
    assert made_plans["FedAPA, int8, one peer"].precision == "int8"
