"""One net or two: two runs become one row, and what their difference is by hand."""

from dataclasses import replace

import pytest

from fedapa.experiments.experiment import Base
from fedapa.experiments.tasks import TASKS, one_or_two, two_nets
from tests.report import made


def rows(*, apart: float = 0.02) -> list[made.Row]:
    """Two nets reach 60 % of the counts and 90 % of the activities, one net 62 % and 86 %; of the
    one net the activity is told beside the count."""
    one, count = (
        made.row(name, "paper", {20: level}, title=f"FedAPA, {title}", apart=apart)
        for name, level, title in (
            ("fedapa-one", 0.62, "one net"),
            ("fedapa-two", 0.60, "two nets"),
        )
    )
    outcomes = []
    for outcome in one.outcomes:
        figures = outcome.at["20"]
        mean = {**figures["mean"], "activity.accuracy": 0.86 + 0.01 * outcome.seed}
        outcomes.append(replace(outcome, at={"20": {**figures, "mean": mean}}))
    activity = made.row("fedapa-two-activity", "paper", {20: 0.9}, people=False, apart=0.0)
    return [replace(one, outcomes=outcomes), count, activity]


def test_two_nets_are_one_row_with_the_scores_of_both() -> None:
    one, two = two_nets(rows())
    assert (one.name, two.name) == ("fedapa-one", "fedapa-two")
    assert two.metrics(20, "accuracy") == pytest.approx([0.58, 0.60, 0.62])
    assert two.metrics(20, "activity.accuracy") == pytest.approx([0.9, 0.9, 0.9])
    assert two.metrics(20, "activity.mae") is None, "activities have no distance"
    assert two.room(20, made.ROOMS[0], "activity.accuracy") == pytest.approx([0.85, 0.85, 0.85])
    assert two.outcomes[0].bytes == [2 * moved for moved in one.outcomes[0].bytes]


def test_one_net_minus_two_by_hand() -> None:
    """Accuracy: 2 points with every seed. Activity: −4, −3, −2 points, so −3 with a deviation of
    1: ± 4.303/√3 = 2.48."""
    setting = replace(made.setting(), rounds=20, rows=two_nets(rows()))
    table = one_or_two(setting)
    (cells,) = table.rows
    assert cells[:2] == ["FedAPA", "+2.0 [+2.0, +2.0]"]
    assert cells[3] == "−3.0 [−5.5, −0.5] *"
    assert table.headings[1] == "Accuracy (points)"


def test_each_method_is_run_with_one_net_and_with_two() -> None:
    plan = Base(preset="quick").plan
    cases = TASKS.cases(plan)
    assert len(cases) == 9
    tasks = [TASKS.plan(Base(preset="quick"), TASKS.settings[0], case, 0).data for case in cases]
    assert [data.tasks for data in tasks] == ["both", "label", "activity"] * 3
    assert {data.simulated for data in tasks} == {"activities"}
