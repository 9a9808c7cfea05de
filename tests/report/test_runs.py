"""A run is results with one seed: the same tables, figures and page; nothing in its files harms."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedapa import Plan, run
from fedapa.errors import FedapaError, RunError
from fedapa.evaluation.results import Setting
from fedapa.federation.run import Run
from fedapa.report.captions import caption
from fedapa.report.figures.curves import convergence
from fedapa.report.figures.rooms import weights_over_time
from fedapa.report.page import write_run_page
from fedapa.report.runs import load_runs, results_of, titles
from fedapa.report.style import svg
from fedapa.report.tables.comparison import overall, rooms
from tests.conftest import MakeStore
from tests.report.made import plan_of, trained


@pytest.fixture
def runs(make_store: MakeStore, tmp_path: Path) -> list[Run]:
    return list(trained(make_store, tmp_path).values())


def setting_of(runs: list[Run]) -> Setting:
    (setting,) = results_of(runs, title="Some runs")[0].settings
    return setting


def test_every_number_names_its_data_split_and_seed(runs: list[Run]) -> None:
    for word in ("SIMULATED", "split random", "seed 0", "3 rounds"):
        assert word in caption(setting_of(runs))


def test_the_table_has_algorithms_and_blind_predictors(runs: list[Run]) -> None:
    setting = setting_of(runs)
    table = overall(setting)
    assert [row[0] for row in table.rows] == [
        "Local",
        "FedAPA",
        "Always the commonest class",
        "Class frequencies",
    ]
    whole = runs[1].summary["over_rooms"]
    mean, deviation = whole["mean"]["accuracy"], whole["std"]["accuracy"]
    assert table.rows[1][1:3] == [f"{100 * mean:.1f}", f"± {100 * deviation:.1f}"]
    assert table.headings[1:3] == ["Accuracy (%)", "±"]
    assert "over rooms; one seed" in table.note
    by_room = rooms(setting, ["local", "fedapa"])
    assert [row[:2] for row in by_room.rows] == [["cafe", "middle"], ["hall", "middle"]]
    for each in (table, by_room):
        assert all(len(row) == len(each.headings) for row in each.rows)


def test_the_page_needs_no_network_and_no_script(runs: list[Run], tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_run_page(path, runs, title="Rooms & <friends>")
    text = path.read_text()
    assert "Rooms &amp; &lt;friends&gt;" in text
    assert "<script" not in text
    # Names of XML vocabularies are not addresses that anything fetches.
    outside = re.findall(r'(?:src|href)="(https?:[^"]*)"', text)
    assert not outside
    # curves, bars, curves by room, confusion matrices, reliability, ROC and FedAPA's weights
    assert text.count("<svg") == 7
    assert "Presence AUC (%)" in text
    assert text.count("SIMULATED data") >= 5
    assert "SIMULATED rooms" in text
    for run_ in runs:  # what made it, and its plan
        assert f"{run_.environment['workers']}" in text
        assert run_.environment["commit"] in text
    assert text.count("<summary>Plan of ") == 2
    assert str(tmp_path) not in text.replace(str(path), ""), "where data lies is nobody's business"


def test_equal_runs_have_equal_figures(runs: list[Run]) -> None:
    one, two = (svg(convergence(setting_of(runs))) for _ in range(2))
    assert one == two


def test_one_seed_has_a_band_over_rooms(runs: list[Run]) -> None:
    axes = convergence(setting_of(runs)).axes[0]
    assert len(axes.collections) == 2
    (local, *_) = setting_of(runs).rows
    assert local.outcomes[0].over_rooms == [record["std"]["accuracy"] for record in runs[0].records]


def test_runs_of_one_algorithm_are_told_apart_by_their_settings(
    runs: list[Run], tmp_path: Path
) -> None:
    hotter = Plan.of(runs[1].plan.document(), {"algorithm": {"temperature": 0.9}})
    both = [runs[1], replace(runs[1], plan=hotter)]
    assert titles(both) == ["FedAPA (temperature = 0.5)", "FedAPA (temperature = 0.9)"]
    write_run_page(tmp_path / "page.html", both, title="Two")
    assert "FedAPA (temperature = 0.9)" in (tmp_path / "page.html").read_text()


def test_local_has_no_weight_matrix(runs: list[Run]) -> None:
    assert weights_over_time(runs[0]) is None
    figure = weights_over_time(runs[1])
    assert figure is not None
    last = runs[1].records[-1]["server"]["weights"]
    shown = {text.get_text() for axes in figure.findobj() for text in getattr(axes, "texts", ())}
    assert {f"{value:.2f}".lstrip("0") for row in last for value in row} <= shown


def test_the_entropy_of_weights_is_drawn_as_it_was_recorded(runs: list[Run]) -> None:
    """Of the weights class by class; that of their mean over classes is never less."""
    recorded = {
        room: [record["rooms"][room]["entropy"] for record in runs[1].records]
        for room in runs[1].data["rooms"]
    }
    figure = weights_over_time(runs[1])
    assert figure is not None
    (axes,) = (axes for axes in figure.axes if axes.get_ylabel() == "entropy (nats)")
    lines = {str(line.get_label()): line.get_ydata() for line in axes.lines}
    for room, entropy in recorded.items():
        assert lines[room] == pytest.approx(entropy)


def test_alternatives_have_a_row_and_pooled_windows_no_price(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """FedProto is scored by classifier and by nearest mean; what Pooled moves is windows."""
    store = make_store()
    runs = [
        run(plan_of(store, name, rounds=2), out=tmp_path / name, workers=0)
        for name in ("fedproto", "pooled")
    ]
    rows = {row[0]: row for row in overall(setting_of(runs)).rows}
    nearest = runs[0].summary["alternatives"]["nearest"]["over_rooms"]["mean"]["accuracy"]
    assert rows["FedProto (nearest)"][1] == f"{100 * nearest:.1f}"
    assert rows["FedProto"][-1] != "–"
    assert rows["Pooled"][-1] == "–"


def changed(value: Any, change: Callable[[Any], Any]) -> Any:
    """A document with every leaf changed, and names of things beside it too."""
    if isinstance(value, dict):
        return {key: changed(below, change) for key, below in value.items()}
    if isinstance(value, list):
        return [changed(below, change) for below in value]
    return change(value)


def test_no_text_of_a_run_becomes_part_of_the_page(runs: list[Run], tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"

    def poison(value: Any) -> Any:
        return f"{value}{evil}" if isinstance(value, str) else value

    for name in ("environment.json", "data.json"):
        path = runs[1].folder / name
        document = changed(json.loads(path.read_text()), poison)
        if name == "environment.json":
            document |= {"workers": evil, "cores": evil, "packages": {evil: evil}}
        path.write_text(json.dumps(document))
    plan = runs[1].folder / "plan.toml"
    plan.write_text(plan.read_text().replace("trained.h5", "<script>trained.h5"))
    poisoned = Run.load(runs[1].folder)
    assert evil in str(poisoned.environment) and evil in str(poisoned.data)
    write_run_page(tmp_path / "page.html", [poisoned], title=evil)
    text = (tmp_path / "page.html").read_text()
    assert "&lt;script&gt;alert(1)" in text
    assert "<script" not in text


@pytest.mark.parametrize(
    ("file", "key"),
    [
        ("data.json", "rooms"),
        ("data.json", "source"),
        ("data.json", "classes"),
        ("data.json", "window_shape"),
        ("summary.json", "blind"),
        ("summary.json", "confusion"),
        ("environment.json", "commit"),
        ("environment.json", "packages"),
        ("rounds.jsonl", "rooms"),
        ("rounds.jsonl", "mean"),
        ("rounds.jsonl", "server"),
    ],
)
def test_null_in_a_runs_files_is_one_sentence(
    runs: list[Run], tmp_path: Path, file: str, key: str
) -> None:
    path = runs[1].folder / file
    text = path.read_text()
    whole = text.splitlines() if file == "rounds.jsonl" else [text]
    documents = [{**json.loads(document), key: None} for document in whole]
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))
    try:
        write_run_page(tmp_path / "page.html", [Run.load(runs[1].folder)], title="Nothing")
    except FedapaError as error:
        assert isinstance(error, RunError)
        assert str(runs[1].folder) in str(error)
        assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("rounds.jsonl", '"bytes_up"', '"bytes_upp"', "bytes_up: field required"),
        ("rounds.jsonl", '"cafe"', '"coffee"', "room 'coffee' is not in data.json"),
        ("rounds.jsonl", '"weights": [[', '"weights": [[1.0], [', "weights is not 2 × 2"),
        ("rounds.jsonl", '"macro_f1"', '"macro"', "one of accuracy and macro_f1"),
        ("summary.json", '"prior"', '"before"', "blind.prior: field required"),
        (
            "summary.json",
            '"roc": {"cafe": [[',
            '"roc": {"cafe": [[1, ',
            "roc.cafe has not 2 columns",
        ),
    ],
)
def test_files_that_lack_what_a_report_shows_are_refused_as_they_are_read(
    runs: list[Run], file: str, old: str, new: str, told: str
) -> None:
    path = runs[1].folder / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(RunError, match=re.escape(told)):
        Run.load(runs[1].folder)


def test_a_run_of_an_algorithm_that_is_not_installed_is_not_called_damaged(
    runs: list[Run],
) -> None:
    path = runs[1].folder / "plan.toml"
    path.write_text(path.read_text().replace('name = "fedapa"', 'name = "ditto"'))
    with pytest.raises(RunError, match="'ditto' is not installed here; install") as caught:
        load_runs([runs[1].folder])
    assert "damaged" not in str(caught.value)


def test_a_mistake_of_our_own_is_not_called_a_damaged_file(
    runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*_: object, **__: object) -> None:
        raise KeyError("ours")

    monkeypatch.setattr("fedapa.report.runs.outcome_of", wrong)
    with pytest.raises(KeyError, match="ours"):
        results_of(runs, title="Some runs")


def test_a_folder_without_a_run_is_told_what_to_name(runs: list[Run], tmp_path: Path) -> None:
    with pytest.raises(
        RunError, match=r"no finished run of its own; name those in it, e\.g\. .*local"
    ):
        load_runs([tmp_path])
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match="name a folder that 'fedapa run' wrote"):
        load_runs([tmp_path / "empty"])
    assert [run_.folder for run_ in load_runs([runs[0].folder])] == [runs[0].folder]
