"""``fedapa reproduce`` and ``fedapa compare`` as a user meets them."""

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedapa import processes
from fedapa.cli import experiments
from fedapa.cli.experiments import _OF_THE_COUNTER, _OF_THE_PROTOCOL
from fedapa.evaluation.results import Results
from fedapa.experiments.compare import compare
from fedapa.experiments.conduct import Execution
from fedapa.experiments.experiment import Base
from fedapa.experiments.protocol import OF_THE_PROTOCOL
from fedapa.experiments.reproduce import (
    EXPERIMENTS,
    OF_THE_COUNTER,
    _beside_the_paper,
    _papers,
    published,
    reproduce,
)
from fedapa.experiments.sizes import PAPER
from fedapa.experiments.table3 import formulas
from fedapa.processes import Show
from tests.cli.test_cli import fedapa, one_sentence
from tests.conftest import MakeStore

SMALL = ("--set", "data.window=16", "--set", "model.width=16", "--set", "training.batch_size=4")


def _store(make_store: MakeStore) -> Path:
    counts = {0: 4, 1: 4, 2: 4}
    return make_store({"cafe": counts, "kitchen": counts, "office": counts}, packets=32)


def test_workers_have_their_server_before_a_bar_has_its_thread(
    make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process with a thread is not forked: its workers' server would import torch once more."""
    order: list[str] = []

    @contextlib.contextmanager
    def progress() -> Iterator[Show]:
        order.append("bar")
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(processes, "get_ready", lambda: order.append("server"))
    monkeypatch.setattr(experiments, "shown_progress", progress)
    (figure,) = (each for each in experiments.reproduce.registered_commands if each.name == "fig6")
    store = _store(make_store)
    with pytest.raises(KeyboardInterrupt):
        experiments.compare(store, out=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        figure.callback(data=str(store), out=tmp_path)
    assert order == ["server", "bar"] * 2


def test_compare_leaves_tables_figures_and_a_page(make_store: MakeStore, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [
        *("compare", _store(make_store), "--algorithm", "local", "--algorithm", "fedapa"),
        *("--architecture", "tiny", "--rounds", "4", "--seeds", "2", "--split", "random"),
        *("--preset", "tables", *SMALL, "--out", out),
    ]
    done = fedapa(*words)
    assert "FedAPA" in done.stdout
    assert "Always the commonest class" in done.stdout
    folder = out / "compare"
    page = (folder / "index.html").read_text()
    assert not re.search(r"<script|<link|src=[\"']http|url\(http", page)
    assert "real data" in page
    assert str(tmp_path) not in page  # where files lie is nobody's business
    assert str(tmp_path) not in (folder / "results.json").read_text()
    for name in ("results.json", "results.md", "rooms-overall-4.tex", "rooms-convergence.png"):
        assert (folder / name).stat().st_size > 0, name
    assert "already holds results" in one_sentence(fedapa(*words, code=2))
    # The second time nothing is trained, and a script gets one object.
    again = json.loads(fedapa(*words, "--resume", "--json").stdout)
    assert (again["compare"]["data"], again["compare"]["split"]) == ("real", "random")
    assert set(again["compare"]["settings"]["rooms"]["local"]) == {"1", "2", "4", "16"}
    figures = again["compare"]["settings"]["rooms"]["fedapa"]["4"]["accuracy"]
    assert figures["number"] == 2
    assert 0 <= figures["mean"] <= 1
    assert "FedAPA minus each other row" in (folder / "results.md").read_text()
    shown = fedapa(*words, "--resume", "--reference", "local").stdout
    answer = shown.splitlines()[0]
    assert "of the test windows" in answer
    assert answer in page
    assert "Split: random (the plan asks for it)" in shown
    assert "Local minus each other row" in (folder / "results.md").read_text()
    assert len(list((out / "runs").iterdir())) == 4, "another view trains nothing"
    wrong = one_sentence(fedapa(*words, "--resume", "--reference", "fedavg", code=2))
    assert "reference 'fedavg' is none of the algorithms that are compared" in wrong


@pytest.mark.parametrize(
    ("chosen", "reference"),
    [
        (["local", "fedapa", "fedavg"], "fedapa"),
        (["local", "pooled", "fedavg"], "fedavg"),
        (["local", "pooled"], "local"),
    ],
)
def test_without_fedapa_another_row_is_measured_against_the_others(
    chosen: list[str], reference: str, make_store: MakeStore, tmp_path: Path
) -> None:
    change = {"data": {"window": 16}, "model": {"width": 16}, "training": {"batch_size": 4}}
    base = Base("smoke", str(_store(make_store)), "random", rounds=1, changes=(change,))
    experiment = compare(base, algorithms=chosen, architecture="tiny")
    reproduce([experiment], base, Execution(seeds=1, out=tmp_path, workers=1))
    (setting,) = Results.load(tmp_path / "compare" / "results.json").settings
    assert setting.reference == reference


def test_a_sweep_from_the_command_line(make_store: MakeStore, tmp_path: Path) -> None:
    done = fedapa(
        *("reproduce", "fig9b", "--preset", "smoke", "--data", _store(make_store)),
        *("--rounds", "2", "--long-rounds", "0", "--seeds", "1", "--split", "random"),
        *(*SMALL, "--out", tmp_path),
    )
    assert "warm-up (default)" in done.stdout
    for setting in ("statistical", "model"):
        assert (tmp_path / "fig9b" / f"{setting}-sweep.png").is_file()
    assert len(list((tmp_path / "runs").iterdir())) == 2 * 4


@pytest.mark.slow
def test_everything_at_once_shares_runs_and_has_one_page(tmp_path: Path) -> None:
    fedapa(
        *("reproduce", "all", "--preset", "smoke", "--rounds", "2", "--long-rounds", "0"),
        *("--seeds", "1", "--setting", "model", "--set", "model.width=16", "--out", tmp_path),
    )
    page = (tmp_path / "index.html").read_text()
    assert not (tmp_path / "fig6").exists()  # equal nets are another setting
    apart = (*OF_THE_PROTOCOL, *OF_THE_COUNTER)
    shown = set(EXPERIMENTS) - {"fig6", *(one.name for one in apart)}
    for name in (*shown, "table3", "architectures", "fig4"):
        assert f'id="{name}"' in page, name
        assert (tmp_path / name / "results.json").is_file(), name
    made = [path.name.partition("-")[0] for path in (tmp_path / "runs").iterdir()]
    assert made.count("moon") == 1


_LEAKS = ("leaks", "--preset", "smoke", "--rounds", "1", "--seeds", "1")


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    for words, expected in (
        (("table1", "--preset", "quik"), "preset 'quik' is unknown"),
        (("table1", "--data", "nowhere.h5"), "nowhere.h5"),
        (("table1", "--setting", "both"), "setting 'both' is unknown"),
        (("table1", "--long-rounds", "7"), "long rounds 7"),
        (("fig8a", "--set", "data.windov=3"), "unknown key"),
        (("fig8b", "--set", "algorithm.name=local"), "algorithm.name: cannot be set"),
        (("fig7", "--setting", "statistical"), "fig7 has one setting only"),
        (("table1", "--method", "fedprot"), "method 'fedprot' is not in table1; did you mean"),
        (("all", "--method", "fedproto"), "all: has every method"),
        (
            (*_LEAKS, "--method", "fedproto", "--set", "training.learning_rate=10"),
            "'bus' sent in 0 of 1 round: it diverged, its training ended with NaN or infinity",
        ),
        (
            (*_LEAKS, "--method", "fedavg", "--attack", "reconstruction"),
            "leaks: reconstruction asks nothing of FedAvg",
        ),
    ):
        done = fedapa("reproduce", *words, "--out", tmp_path / "out", code=2)
        assert expected in one_sentence(done)
    assert not (tmp_path / "out").exists()


def test_every_experiment_opens_with_its_command_and_what_to_expect() -> None:
    folder = Path(__file__).parents[2] / "src" / "fedapa" / "experiments"
    said = "".join(path.read_text() for path in folder.glob("*.py"))
    for name in EXPERIMENTS:
        opening = said.partition(f'"""``fedapa reproduce {name}``: ')[2].partition('"""')[0]
        assert "Expected shape:" in opening, name


def test_the_commands_know_which_experiments_are_of_the_counter_and_of_the_protocol() -> None:
    assert tuple(experiment.name for experiment in OF_THE_COUNTER) == _OF_THE_COUNTER
    assert tuple(experiment.name for experiment in OF_THE_PROTOCOL) == _OF_THE_PROTOCOL


def test_the_papers_numbers_stand_apart() -> None:
    """Table 1 and 2 as decisions.md has them; sweeps were published as pictures."""
    one, two = published("table1"), published("table2")
    assert one is not None
    assert two is not None
    assert one["statistical"]["fedapa"] == {"accuracy": 0.8725, "macro_f1": 0.8591, "mae": 0.23}
    assert one["model"]["local"] == {"accuracy": 0.4681, "macro_f1": 0.3945, "mae": 1.26}
    assert two["model"]["fedapa"] == one["model"]["fedapa"]
    assert two["statistical"]["fedapa-average-clients"]["mae"] == 0.38
    assert published("fig8a") is None


def test_a_sweep_says_what_the_paper_finds_best() -> None:
    (note,) = _beside_the_paper(EXPERIMENTS["fig9a"]).notes
    assert "The paper finds 0.5 best, on private data" in note
    assert _beside_the_paper(EXPERIMENTS["table1"]) is EXPERIMENTS["table1"]


def test_the_papers_bytes_are_those_of_its_formula() -> None:
    for name, kilobytes in _papers()["table3"].items():
        formula = formulas(PAPER)[name]
        assert formula is not None
        assert 4 * formula[1] / 1000 == pytest.approx(kilobytes, abs=0.05)
