"""Time on a link, worked out by hand."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from fedapa.evaluation.links import (
    LINKS,
    Link,
    bytes_of,
    exchanged,
    seconds_of,
    training_of,
    until,
)
from fedapa.evaluation.results import Results
from fedapa.experiments.conduct import Execution
from fedapa.experiments.experiment import Base, Nets
from fedapa.experiments.links import LINKS_STUDY
from fedapa.experiments.reproduce import reproduce
from fedapa.report.figures.links import links_figure
from fedapa.report.tables.links import asked_accuracies, links_table, seconds_text
from tests.conftest import MakeStore
from tests.report import made
from tests.report.test_page import check_text

SLOW = Link("slow", down=8000, up=4000, delay=0.5, source="by hand")


def test_a_round_is_as_long_as_its_slowest_room() -> None:
    """1000 bytes down at 8 kbit/s are 1 s, 500 up at 4 kbit/s 1 s, two delays 1 s: with 2 s of
    training 5 s. Another room trains 4.5 s and sends nothing, so the round has those and the 1.5 s
    of the answer; in the next the first room is alone."""
    first, second = [1000, 500, 2.0], [0, 0, 4.5]
    rounds = [{"a": first, "b": second}, {"a": first}]
    assert seconds_of(rounds, SLOW) == pytest.approx([6.0, 11.0])
    assert bytes_of(rounds) == [1500, 3000]
    slow_start = [{"a": [1000, 500, 60.0]}, *({"a": first} for _ in range(4))]
    assert seconds_of(slow_start, SLOW) == pytest.approx([5, 10, 15, 20, 25])


def test_what_was_exchanged_is_what_a_run_recorded() -> None:
    """Room b sits out and gets the answer to round 1, since it takes part in round 2; then it gets
    no answer. The last exchange only scores."""
    entry = {"bytes_down": 10, "bytes_up": 20, "participated": True}
    sits_out = {"bytes_down": 0, "bytes_up": 0, "participated": False}
    records = [
        {"rooms": {"a": entry, "b": {**sits_out, "bytes_down": 10}, "c": sits_out}},
        {"rooms": {"a": entry, "b": {**entry, "bytes_down": 0}, "c": sits_out}},
    ]
    spent = {"score": 9.0, "train": 7.0, "train_processor": 1.5}
    times = [{"rooms": dict.fromkeys("abc", spent)}] * 2 + [{"rooms": {"a": {"score": 9.0}}}]
    told = exchanged(records, times)
    assert told == [
        {"a": [10, 20, 1.5], "b": [10, 0, 0.0]},
        {"a": [10, 20, 1.5], "b": [0, 20, 1.5]},
    ]
    assert training_of(told) == {"a": 1.5, "b": 1.5}
    forgotten = [times[0], {"rooms": {"a": spent, "b": {}}}]
    assert exchanged(records, forgotten)[1] == {"a": [10, 20, 1.5], "b": [0, 20, 0.0]}
    twice = exchanged([records[1]] * 2, forgotten)
    assert [rooms["b"] for rooms in twice] == [[0, 20, 1.5]] * 2
    earlier = [{"rooms": {"a": {"score": 9.0, "train": 7.0}}}]
    assert exchanged(records, earlier)[0]["a"] == [10, 20, 7.0]


def test_who_sits_out_costs_what_it_receives() -> None:
    """a trains and sends (0.5 + 2 + 1 s), b gets the answer (0.5 + 1 s): no byte is lost."""
    rounds = [{"a": [0, 500, 2.0], "b": [1000, 0, 0.0]}, {"b": [0, 500, 4.0], "a": [1000, 0, 0.0]}]
    assert seconds_of(rounds, SLOW) == pytest.approx([5.0, 12.0])
    assert bytes_of(rounds) == [1500, 3000]


def test_a_room_alone_waits_for_no_link() -> None:
    entry = {"bytes_down": 72, "bytes_up": 72, "participated": True}
    told = exchanged([{"rooms": {"a": entry}}], [{"rooms": {"a": {"train": 2.0}}}], alone=True)
    assert told == [{"a": [0, 0, 2.0]}]
    assert seconds_of(told, SLOW) == [2.0]


def test_runs_tell_what_their_rounds_exchanged(make_store: MakeStore, tmp_path: Path) -> None:
    """With a share of the rooms nothing is lost; Local's empty messages are no traffic."""
    change = {"data": {"window": 16}, "model": {"width": 8}, "training": {"batch_size": 4}}
    store = make_store({room: {0: 2, 1: 2} for room in "abc"})
    base = Base("smoke", str(store), "random", rounds=3, long_rounds=0, changes=[change])
    names = ("local", "fedapa-ρ=0.33")
    few = [case for case in LINKS_STUDY.cases(base.plan) if case.name in names]
    nets = (Nets("tiny", "tiny nets", "tiny"),)
    experiment = replace(LINKS_STUDY, settings=nets, cases=lambda _: few)
    reproduce([experiment], base, Execution(seeds=1, out=tmp_path, workers=1))
    (setting,) = Results.load(tmp_path / "links" / "results.json").settings
    local, third = (setting.row(name).outcomes[0] for name in names)
    # Its name has a dot and is a row of its own: to go on, with more seeds for one, is allowed.
    reproduce([experiment], base, Execution(seeds=2, out=tmp_path, workers=1, resume=True))
    assert bytes_of(third.exchanged) == third.bytes
    assert bytes_of(local.exchanged) == [0, 0, 0]
    assert [sum(spent > 0 for _, _, spent in told.values()) for told in third.exchanged] == [1] * 3


def _with_exchanged(row: made.Row, down: float, training: float) -> made.Row:
    outcomes = [
        replace(one, exchanged=[{"a": [down, down, training]}] * one.rounds) for one in row.outcomes
    ]
    return replace(row, outcomes=outcomes)


def test_time_to_an_accuracy_by_hand() -> None:
    """Local is at 60 % with all seeds from round 10 on but for the mean of five rounds, which gets
    there in round 15; without bytes a round is its 1.19 s of training alone."""
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
    on_wifi = partial(seconds_of, link=wifi)
    assert until(rows[0], 0.6, on_wifi) == pytest.approx([15 * 1.19] * 3)
    assert until(rows[1], 0.6, on_wifi) == pytest.approx([15 * 3.2] * 3)  # 20 Mbit each way: 2 s
    assert until(rows[1], 0.6, bytes_of) == pytest.approx([15 * 5e6] * 3)
    assert until(rows[0], 0.9, on_wifi) is None
    # Both rows begin with 40 % and end with 60: a third and two thirds of the way, and the end.
    assert asked_accuracies(setting) == [0.47, 0.53, 0.6]
    table = links_table(setting)
    assert [row[0] for row in table.rows] == ["local", "fedavg"]
    assert [table.rows[0][column] for column in (1, -3)] == ["0.0", "17.8 s"]
    assert table.rows[1][-1] == "4.6 h"  # 15 · (3 + 1.19 + 769.2 + 322.6) s on NB-IoT
    check_text(links_figure(setting))
    untimed = replace(setting, rows=[_with_exchanged(local, 0, 0.0), *rows[1:]])
    assert links_table(untimed).rows[0][2] == "0.00"  # every reply was remembered over a kill


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
