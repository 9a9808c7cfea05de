"""The results pages: their tables are those of the results beside it, their data is named."""

import json
from pathlib import Path

import pytest

from fedapa.errors import PlanError
from fedapa.evaluation.results import Results
from fedapa.report.inserted import filled

RESULTS = Path(__file__).parents[1] / "docs" / "results"
STUDIES = sorted(RESULTS.glob("*/*/results.json"))


@pytest.mark.parametrize("name", ["simulated", "wiar", "wical"])
def test_every_table_on_a_page_is_made_from_the_results(name: str) -> None:
    page = (RESULTS / f"{name}.md").read_text()
    assert filled(page, RESULTS) == page
    assert page.count("<!-- table:") >= 3
    assert page.count("\n| Method |") + page.count("\n| Against |") <= page.count("<!-- table:")


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: "/".join(path.parts[-3:-1]))
def test_committed_results_name_their_data_split_seeds_and_commit(path: Path) -> None:
    results = Results.load(path)
    assert json.loads(path.read_text())["data"] == results.kind
    assert len(results.seeds) >= 3
    assert results.commits
    assert not any("+changes" in commit for commit in results.commits)
    for setting in results.settings:
        assert setting.data["split"] in ("recording", "blocked", "random")
        assert "/" not in setting.data["source"], "a path of somebody's machine"
    text = (path.parent / "results.md").read_text()
    assert ("SIMULATED" in text) == results.synthetic


def test_a_table_that_does_not_exist_is_named(tmp_path: Path) -> None:
    results = Results("table1", "T", "quick", [], [0], {})
    (tmp_path / "set").mkdir()
    results.save(tmp_path / "set" / "results.json")
    with pytest.raises(PlanError, match="table of set: 'model' is unknown"):
        filled("<!-- table: set model overall -->\n<!-- end -->", tmp_path)
