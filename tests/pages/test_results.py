"""The results pages: their tables are those of the results beside them, their data is named."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from fedapa.errors import PlanError
from fedapa.evaluation.results import Results
from pages.gains import Case, _cell, _of_case, gains_figure, gains_of, with_table
from pages.inserted import filled
from pages.overview import EXPERIMENTS, overview, overview_of
from tests.report import made
from tests.report.test_page import check_text

RESULTS = Path(__file__).parents[2] / "docs" / "results"
LEAKS_THERE = sorted((RESULTS / "leaks").rglob("results.json"))
EXPERIMENTS_THERE = sorted(set(RESULTS.rglob("results.json")) - set(LEAKS_THERE))


@pytest.mark.parametrize("name", ["earlier/simulated", "joining", "wiar", "wical"])
def test_every_table_on_a_page_is_made_from_the_results(name: str) -> None:
    path = RESULTS / f"{name}.md"
    page = path.read_text()
    assert filled(page, path.parent) == page
    assert page.count("<!-- table:") >= 3
    assert page.count("\n| Method |") + page.count("\n| Against |") <= page.count("<!-- table:")


def test_the_page_of_gains_is_made_from_the_results() -> None:
    gains, page = gains_of(RESULTS), (RESULTS / "when.md").read_text()
    assert with_table(page, gains) == page
    check_text(gains_figure(gains))
    apart = {(gain.case.label, gain.kind): gain.against for gain in gains}
    assert apart["Wi-CaL (real)", "fedapa"] == "Self-prototypes"
    assert apart["Wi-CaL (real)", "fedavg"] == apart["lower half labelled", "fedapa"] == "Local"


def test_a_gain_is_paired_by_seed_and_told_with_its_interval() -> None:
    """Seeds gain 10, 12 and 14 points: 12 ± 4.303 · 2/√3 = 12 ± 4.97."""
    found = made.participation()
    rows = [
        made.row(name, name, dict.fromkeys(found.settings[0].horizons, level), apart=apart)
        for name, level, apart in (("local", 0.5, 0.0), ("fedavg", 0.62, 0.02))
    ]
    setting = replace(found.settings[0], rows=rows)
    (gain,) = _of_case(Case("a group", "a label", "", ""), setting)
    assert (gain.kind, gain.against) == ("fedavg", rows[0].title)
    assert "**+12.0 [+7.0, +17.0]**" in _cell(gain)


def test_no_page_has_both_earlier_and_present_results() -> None:
    """A page says of which it is by where it lies; an earlier one says why, and what repeats it."""
    for page in RESULTS.glob("*.md"):
        assert "<!-- table: earlier" not in page.read_text(), page
    assert not any("earlier" in experiment for experiment in EXPERIMENTS)
    for page in (RESULTS / "earlier").glob("*.md"):
        assert "<!-- table: ../" not in page.read_text(), page
        assert re.search(r"\*\*Earlier\.\*\* .*commit [0-9a-f]{7,}", page.read_text()), page


@pytest.mark.parametrize("path", EXPERIMENTS_THERE, ids=lambda path: "/".join(path.parts[-3:-1]))
def test_committed_results_name_their_data_split_seeds_and_commit(path: Path) -> None:
    results = Results.load(path)
    assert json.loads(path.read_text())["data"] == results.kind
    # At the paper's size of windows a seed takes 40 minutes on two cores: one, as its page says.
    assert len(results.seeds) >= 3 or path.parent.name == "one-seed-1000"
    assert results.commits
    assert not any("+changes" in commit for commit in results.commits)
    for setting in results.settings:
        # Windows drawn at random only where the page is about what that is worth.
        random = ("random",) if path.parts[-3] == "protocol" else ()
        assert setting.data["split"] in ("day", "recording", "blocked", "later", *random)
        assert "/" not in setting.data["source"], "a path of somebody's machine"
    text = (path.parent / "results.md").read_text()
    assert ("SIMULATED" in text) == results.synthetic


@pytest.mark.parametrize("path", LEAKS_THERE, ids=lambda path: path.parent.name)
def test_committed_attacks_name_their_data_split_seeds_and_commit(path: Path) -> None:
    results = json.loads(path.read_text())
    assert results["commits"]
    assert not any("+changes" in commit for commit in results["commits"])
    assert results["rooms"]["split"] in ("recording", "blocked")
    assert "/" not in results["rooms"]["source"], "a path of somebody's machine"
    text = (path.parent / "results.md").read_text()
    assert ("SIMULATED" in text) == (results["data"] == "SIMULATED")


@pytest.mark.parametrize("page", [RESULTS / "leaks.md", RESULTS.parent / "privacy.md"])
def test_every_table_of_attacks_is_made_from_the_results(page: Path) -> None:
    text = page.read_text()
    assert filled(text, RESULTS) == text
    assert text.count("<!-- leaks:")


def test_a_table_that_does_not_exist_is_named(tmp_path: Path) -> None:
    results = Results("table1", "T", "quick", [], [0], {})
    (tmp_path / "set").mkdir()
    results.save(tmp_path / "set" / "results.json")
    with pytest.raises(PlanError, match="table of set: 'model' is unknown"):
        filled("<!-- table: set model overall -->\n<!-- end -->", tmp_path)
    made.results([made.setting()]).save(tmp_path / "set" / "results.json")
    name = made.setting().name
    for kind, said in (
        ("diferences", "'diferences' is unknown"),
        ("differences:fedprot", "differences of 'fedprot' are not there"),
        ("overall:local", "overall of 'local' are not there"),
    ):
        with pytest.raises(PlanError, match=said):
            filled(f"<!-- table: set {name} {kind} -->\n<!-- end -->", tmp_path)
    text = filled(f"<!-- table: set {name} differences:local -->\n<!-- end -->", tmp_path)
    assert "Local minus each other row" in text


def test_the_overview_refuses_what_it_cannot_show(tmp_path: Path) -> None:
    setting = made.setting()
    rows = [row for row in setting.rows if row.name in ("local", "fedapa")]
    control = made.row("fedapa-self", "control", dict.fromkeys(setting.horizons, 0.4), title="Self")
    whole = replace(setting, rows=[*rows, control])
    for name, each in (("whole", whole), ("part", replace(setting, rows=rows))):
        (tmp_path / name).mkdir()
        made.results([each]).save(tmp_path / name / "results.json")
    for words, said in (
        ([], "no experiment is named"),
        (["whole"], "write NAME=EXPERIMENT:SETTING"),
        ([f"A=nowhere:{setting.name}"], "results.json: is not there"),
        (["A=whole:modell"], "setting 'modell' is unknown"),
        ([f"A=part:{setting.name}"], "has no row 'fedapa-self'"),
        ([f"A=whole:{setting.name}"] * 2, "'A': names two experiments"),
    ):
        with pytest.raises(PlanError, match=said):
            overview_of(tmp_path, words)
    panels = overview_of(tmp_path, [f"A=whole:{setting.name}"]).axes
    assert [axes.get_title() for axes in panels] == ["against Local", "against Self"]


def test_the_overview_shows_differences_with_their_intervals() -> None:
    setting = made.setting()
    figure = overview({"These rooms": setting}, ["local"])
    (axes,) = figure.axes
    local, ours = setting.row("local"), setting.row("fedapa")
    assert local is not None
    assert ours is not None
    found = [setting.against(ours, local, horizon, "accuracy") for horizon in setting.horizons]
    points = [line for line in axes.lines if len(line.get_xdata()) == 1]
    whiskers = [line for line in axes.lines if line.get_linewidth() == 1.2]
    for each, point, whisker in zip(found, points, whiskers, strict=True):
        assert each is not None
        assert point.get_xdata()[0] == pytest.approx(100 * each.mean)
        assert list(whisker.get_xdata()) == pytest.approx([100 * each.low, 100 * each.high])
        assert (point.get_markerfacecolor() != "white") == each.is_clear
    assert {each.is_clear for each in found if each} == {True, False}


def test_the_committed_experiments_make_an_overview_without_texts_over_one_another() -> None:
    check_text(overview_of(RESULTS, EXPERIMENTS))
