"""Table 3: the paper's bytes by formula, and ours for real."""

import json

import pytest

from fedapa.algorithms import find, names
from fedapa.experiments.table3 import Cost, communication, communication_sheet
from tests.test_cli import fedapa


@pytest.fixture(scope="module")
def costs() -> dict[str, Cost]:
    return communication()


def test_the_papers_numbers(costs: dict[str, Cost]) -> None:
    """4·2·463,748 = 3,709,984 B, 4·(6 + 1)·21·256 = 150,528 B; 1 − 150,528/3,709,984 = 95.94 %."""
    for name in ("fedavg", "caring", "wifederated"):
        assert costs[name].by_formula == 3_709_984
    assert costs["fedapa"].by_formula == 150_528
    sheet = communication_sheet(costs)
    rows = {row[0]: row for row in sheet.rows}
    assert rows["FedAvg"][2] == "3,710"
    assert rows["FedAPA"][2] == "150.53"
    assert "−95.94 % by formula" in sheet.note


def test_every_algorithm_is_in_it_but_the_pooled_control(costs: dict[str, Cost]) -> None:
    assert set(costs) == {name for name in names() if not find(name).pools}


def test_what_is_really_sent_is_what_the_formula_says(costs: dict[str, Cost]) -> None:
    """Half a per cent more at most: one output more, BatchNorm statistics, masks. And frames cost
    less than one per cent."""
    for name, cost in costs.items():
        assert cost.by_formula is not None, name
        assert cost.by_formula <= cost.arrays <= 1.005 * cost.by_formula, name
        if cost.arrays:
            assert cost.encoded < 1.01 * cost.arrays, name
        else:
            assert cost.encoded < 200, name


def test_the_command_needs_no_flags() -> None:
    ran = fedapa("reproduce", "table3", "--json")
    assert ran.returncode == 0
    assert json.loads(ran.stdout)["fedapa"]["by_formula"] == 150_528
