"""What is kept of a study: all rows and seeds, less of what no table shows."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedapa.evaluation.results import Results
from fedapa.report.tables.comparison import overall
from pages.kept import keep, lean

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def test_a_lean_study_has_the_same_table(tmp_path: Path) -> None:
    study = RESULTS / "wical" / "fig9a"
    whole = Results.load(study / "results.json")
    keep(study, tmp_path / "kept")
    kept = Results.load(tmp_path / "kept" / "results.json")
    for before, after in zip(whole.settings, kept.settings, strict=True):
        assert list(after.horizons) == [h for h in before.horizons if h >= before.rounds]
        assert overall(after).rows == overall(before).rows
        assert [len(row.outcomes) for row in after.rows] == [
            len(row.outcomes) for row in before.rows
        ]
    sizes = [(folder / "results.json").stat().st_size for folder in (study, tmp_path / "kept")]
    assert sizes[1] < 0.7 * sizes[0]
    assert (tmp_path / "kept" / "results.md").read_text() == (study / "results.md").read_text()
    assert {path.name for path in tmp_path.rglob("*.png")} == {p.name for p in study.glob("*.png")}


@pytest.mark.parametrize("study", ["wical/fig9a", "poisoning"])
def test_what_is_lean_stays_as_it_is(study: str) -> None:
    once = lean(Results.load(RESULTS / study / "results.json"))
    assert lean(once) == once


def test_of_rooms_that_lie_means_are_kept_alone() -> None:
    whole = Results.load(RESULTS / "wical" / "fig9a" / "results.json")
    told = lean(replace(whole, experiment="poisoning")).settings[0].rows[0].outcomes[0].at
    assert all(own["mean"] and not own["rooms"] for own in told.values())


def test_a_folder_without_results_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="holds no results"):
        keep(tmp_path, tmp_path / "kept")
