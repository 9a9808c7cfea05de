"""Table 3: the paper's bytes by formula, and ours for real."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedapa.algorithms import find, names
from fedapa.experiments.experiment import Base
from fedapa.experiments.sizes import Sizes, sizes_of
from fedapa.experiments.table3 import (
    Cost,
    communication,
    communication_table,
    formulas,
)
from fedapa.models.cost import count_parameters
from fedapa.processes import unseen
from fedapa.stores.simulated_rooms import preset_of
from tests.cli.test_cli import fedapa, one_sentence
from tests.conftest import MakeStore


@pytest.fixture(scope="module")
def costs() -> dict[str, Cost]:
    return communication()


def test_the_papers_numbers(costs: dict[str, Cost]) -> None:
    """4·2·463,748 = 3,709,984 B, 4·(6 + 1)·21·256 = 150,528 B; 1 − 150,528/3,709,984 = 95.94 %."""
    for name in ("fedavg", "caring", "wifederated"):
        assert costs[name].by_formula == 3_709_984
    assert costs["fedapa"].by_formula == 150_528
    sheet = communication_table(costs)
    rows = {row[0]: row for row in sheet.rows}
    assert rows["FedAvg"][2] == "3,710"
    assert rows["FedAPA"][2] == "150.53"
    assert "−95.94 % by formula" in sheet.note


def test_every_algorithm_is_in_it_that_sends_messages_of_nets(costs: dict[str, Cost]) -> None:
    assert set(costs) == {
        name for name in names() if not find(name).pools and not find(name).needs_features
    }


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


def test_the_formula_at_other_sizes() -> None:
    """MLP, 10 features, width 16, 3 classes: 11·256 + 257·16 + 17·3 = 6,979; 5 sets of 3·16."""
    sizes = Sizes(rooms=4, classes=3, width=16, outputs=3, window=(10,))
    known = formulas(sizes)
    for name, numbers in (("fedavg", 6_979), ("fedrep", 6_979 - 51), ("fedapa", 5 * 24)):
        formula = known[name]
        assert formula is not None and formula[1] == 2 * numbers
    assert "fedbn" not in known  # the MLP has no BatchNorm to keep
    for name, cost in communication(sizes).items():
        assert cost.by_formula is not None
        assert cost.by_formula <= cost.arrays <= cost.by_formula + 40, name  # and masks


def test_the_command_needs_no_flags(tmp_path: Path) -> None:
    ran = fedapa("reproduce", "table3", "--json", cwd=tmp_path)
    assert json.loads(ran.stdout)["fedapa"]["by_formula"] == 150_528
    made = tmp_path / "runs" / "reproduce" / "table3"
    assert {path.suffix for path in made.iterdir()} == {".json", ".md", ".tex", ".html"}


def test_rooms_left_out_and_another_width_change_the_sizes(tmp_path: Path) -> None:
    """Bus and hotel room: counts 0 to 20, so 21 classes; (2 + 1) sets of 21 × 64, 4 B each."""
    words = ("--only", "bus", "--only", "hotel room", "--set", "model.width=64", "--json")
    words = (*words, "--out", str(tmp_path))
    costs = json.loads(fedapa("reproduce", "table3", *words).stdout)
    assert costs["paper"]["fedapa"]["by_formula"] == 150_528
    assert costs["rooms"]["data"] == "SIMULATED data: simulated rooms 'six-rooms'"
    assert costs["rooms"]["fedapa"]["by_formula"] == 4 * (2 + 1) * 21 * 64
    words = ("--only", "hotel room", *words[4:])
    nets = json.loads(fedapa("reproduce", "architectures", *words).stdout)
    tiny = Sizes(rooms=1, classes=4, width=64, outputs=4).build("tiny")
    assert nets["rooms"]["tiny"]["parameters"] == count_parameters(tiny)


def test_planned_sizes_are_those_of_the_rooms_once_made() -> None:
    base = Base(preset="smoke", changes=({"data": {"without": ["bus", "classroom"]}},))
    window = preset_of("smoke").window
    made = replace(base, changes=(*base.changes, {"data": {"window": window}}))
    assert sizes_of(base, unseen) == sizes_of(made, unseen)
    assert sizes_of(Base(preset="paper"), unseen) is None


@pytest.mark.parametrize("name", ["table3", "architectures", "fig4"])
def test_a_change_that_would_do_nothing_is_refused(name: str) -> None:
    said = one_sentence(fedapa("reproduce", name, "--set", "training.epochs=2", code=2))
    assert f"--set training.epochs: changes nothing in {name}, which depends on data" in said


def test_a_room_that_is_not_there_is_refused() -> None:
    said = one_sentence(fedapa("reproduce", "table3", "--without", "buss", code=2))
    assert "there is no room 'buss'; did you mean 'bus'?" in said


def test_the_sizes_of_other_rooms(make_store: MakeStore, tmp_path: Path) -> None:
    usual = ("--preset", "smoke", "--data", make_store(), "--json")
    usual = (*usual, "--set", "data.window=16", "--out", tmp_path)
    found = json.loads(fedapa("reproduce", "table3", *usual).stdout)
    assert found["paper"]["fedapa"]["by_formula"] == 150_528
    assert found["rooms"]["data"] == "real data: rooms.h5"
    assert found["rooms"]["fedapa"]["by_formula"] == 4 * (2 + 1) * 3 * 256
    nets = json.loads(fedapa("reproduce", "architectures", *usual).stdout)
    assert nets["paper"]["large"]["parameters"] == 463_748
    assert nets["rooms"]["large"]["parameters"] == 463_748 - 17 * 257  # three outputs, not twenty
    counted = json.loads(fedapa("reproduce", "fig4", *usual).stdout)
    assert (counted["data"], counted["window"]) == ("real", 16)
    assert counted["windows"]["hall"] == {"0": 12, "2": 12}
    assert "real data: rooms.h5" in (tmp_path / "table3" / "results.md").read_text()
    assert "real data: rooms.h5" in (tmp_path / "fig4" / "results.md").read_text()
    assert (tmp_path / "fig4" / "fig4.png").is_file()


@pytest.mark.parametrize("name", ["table3", "fig4", "architectures"])
@pytest.mark.parametrize("option", [("--seeds", "3"), ("--resume",)])
def test_what_trains_nothing_has_no_option_of_training(name: str, option: tuple[str, ...]) -> None:
    assert f"No such option: {option[0]}" in fedapa("reproduce", name, *option, code=2).stderr
