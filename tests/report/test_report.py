"""Pages and tables: complete, self-contained, honest about their data."""

import re
from pathlib import Path

import pytest

from fedapa import Plan, run
from fedapa.federation.run import Run
from fedapa.report import figures
from fedapa.report.page import write_page
from fedapa.report.tables import caption, comparison, per_room, titles
from tests.conftest import MakeStore


@pytest.fixture
def runs(make_store: MakeStore, tmp_path: Path) -> list[Run]:
    store = make_store(synthetic=True)
    plans = [
        Plan(
            rounds=3,
            data={"file": str(store), "window": 16, "split": "random"},
            model={"architecture": "middle", "width": 8},
            algorithm=name,
        )
        for name in ("local", "fedapa")
    ]
    return [run(plan, out=tmp_path / plan.algorithm["name"], workers=0) for plan in plans]


def test_every_number_names_its_data_split_and_seed(runs: list[Run]) -> None:
    for word in ("SIMULATED", "split random", "seed 0", "3 rounds"):
        assert word in caption(runs[0])


def test_the_table_has_algorithms_and_blind_predictors(runs: list[Run]) -> None:
    sheet = comparison(runs)
    assert [row[0] for row in sheet.rows] == [
        "Local",
        "FedAPA",
        "Always the commonest class",
        "Class frequencies",
    ]
    mean = runs[1].summary["over_rooms"]["mean"]["accuracy"]
    assert sheet.rows[1][1].startswith(f"{100 * mean:.1f} ±")
    assert all(len(row) == len(sheet.headings) for row in (*sheet.rows,))
    assert all(len(row) == len(per_room(runs).headings) for row in per_room(runs).rows)


def test_the_page_needs_no_network_and_no_script(runs: list[Run], tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_page(path, runs, title="Rooms & <friends>")
    text = path.read_text()
    assert "Rooms &amp; &lt;friends&gt;" in text
    assert "<script" not in text
    # Names of XML vocabularies are not addresses that anything fetches.
    outside = re.findall(r'(?:src|href)="(https?:[^"]*)"', text)
    assert not outside
    assert text.count("<svg") == 3
    assert text.count(">SIMULATED<") >= 3


def test_equal_runs_have_equal_figures(runs: list[Run]) -> None:
    one, two = (figures.svg(figures.accuracy_curves(runs)) for _ in range(2))
    assert one == two


def test_runs_of_one_algorithm_are_told_apart_by_their_settings(
    runs: list[Run], make_store: MakeStore, tmp_path: Path
) -> None:
    from dataclasses import replace

    hotter = Plan.of(runs[1].plan.document(), {"algorithm": {"temperature": 0.9}})
    names = titles([runs[1], replace(runs[1], plan=hotter)])
    assert names == ["FedAPA (temperature = 0.5)", "FedAPA (temperature = 0.9)"]


def test_local_has_no_weight_matrix(runs: list[Run]) -> None:
    assert figures.weight_matrix(runs[0]) is None
    assert figures.weight_matrix(runs[1]) is not None


def test_second_figures_have_a_row_and_pooled_windows_no_price(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """FedProto is scored by classifier and by nearest mean; what Pooled moves is windows."""
    store = make_store()
    plans = [
        Plan(
            rounds=2,
            data={"file": str(store), "window": 16, "split": "random"},
            model={"architecture": "middle", "width": 8},
            algorithm=name,
        )
        for name in ("fedproto", "pooled")
    ]
    runs = [run(plan, out=tmp_path / plan.algorithm["name"], workers=0) for plan in plans]
    rows = {row[0]: row for row in comparison(runs).rows}
    nearest = runs[0].summary["also"]["nearest"]["over_rooms"]["mean"]["accuracy"]
    assert rows["FedProto (nearest)"][1].startswith(f"{100 * nearest:.1f} ±")
    assert rows["FedProto"][-1] != "–"
    assert rows["Pooled"][-1] == "–"
