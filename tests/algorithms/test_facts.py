"""What tables and figures know of an algorithm is said in its file, and is true."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

import fedapa
from fedapa.algorithms import base_of, find, is_variant, names
from fedapa.algorithms.algorithm import Algorithm, Dimensions
from fedapa.algorithms.fedapa import FedAPA
from fedapa.algorithms.fedavg import FedAvg
from fedapa.algorithms.local import Local
from fedapa.algorithms.wifederated import LocalMoreEpochs

SIZES = Dimensions(rooms=6, classes=3, width=4, parameters=100, batch_norm=10, classifier=15)


@pytest.mark.parametrize("name", [name for name in names() if find(name).control])
def test_a_control_exchanges_nothing(name: str) -> None:
    control = find(find(name).control)
    assert control.group == "control"
    assert control.travels == "nothing"
    assert control().sends(SIZES) == ("0", 0)


def test_facts_of_one_method_are_not_those_of_the_next() -> None:
    @dataclass(frozen=True)
    class Newcomer(FedAvg):
        name: ClassVar[str] = "newcomer"

    assert (FedAvg.group, Newcomer.group) == ("paper", "more")
    assert (FedAvg.year, Newcomer.year, Newcomer.look) == (2017, 0, None)
    assert Newcomer.averages_weights, "what follows from the code is inherited"


def test_a_variant_is_of_the_algorithm_that_it_changes() -> None:
    assert {base_of(find(name)) for name in names() if is_variant(find(name))} == {
        FedAPA,
        Local,
        *(find(name) for name in ("fedjoin", "fedproto", "fedpcl")),
    }
    assert base_of(LocalMoreEpochs) is Local, "though it stands in another's file"


def test_an_algorithm_need_not_say_what_it_sends() -> None:
    assert Algorithm().sends(SIZES) is None


@pytest.mark.parametrize(
    ("algorithm", "formula", "numbers"),
    [
        (FedAPA(), "(N + 1)·|C|·D", 7 * 12),
        (FedAPA(peers="none"), "2·|C|·D", 24),
        (FedAPA(peers=2), "(k + 2)·|C|·D", 4 * 12),
        (FedAPA(peers=9), "(N + 1)·|C|·D", 7 * 12),
        (FedAPA(mixture="own"), "0", 0),
        (find("fedbn")(), "2·(Σw − ΣBN)", 2 * 90),
        (find("fedrep")(), "2·Σθ", 2 * 85),
        (find("moon")(projection=2), "2·(Σw + Σz)", 2 * (100 + 5 * 2 + 3 * 2)),
        (find("fedproc")(), "2·Σw + 2·|C|·D", 2 * 112),
    ],
)
def test_a_formula_follows_the_settings(algorithm: Algorithm, formula: str, numbers: int) -> None:
    """Six rooms, 3 classes × width 4 = 12 numbers in a set, 100 weights of which 10 and 15."""
    assert algorithm.sends(SIZES) == (formula, numbers)


def test_copies_cost_epochs_too() -> None:
    """30 rounds of 1 epoch, and ten copies (5, 10, 15, 20, 25 and the last five) of 10 epochs; the
    point at 25 is not among the last five, 26 to 30."""
    assert Local().work(30) == 30
    assert LocalMoreEpochs().work(30) == 30 + 10 * 10


def test_no_other_module_knows_an_algorithm_by_name() -> None:
    """But for the two that everything is about, the sweeps of FedAPA's own variants, and the
    simple models of difficulty.py, which are no algorithms and are called like two of them."""
    source = Path(fedapa.__file__).parent
    known = [name for name in names() if name not in (FedAPA.name, Local.name)]
    for path in sorted(source.rglob("*.py")):
        if path.parent.name != "algorithms" and path.name not in ("sweeps.py", "difficulty.py"):
            code = re.sub(r"#.*", "", path.read_text())
            assert not [name for name in known if f'"{name}"' in code], path
