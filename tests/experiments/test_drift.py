"""Drift: what is chosen on validation days, and a whole study of a small store."""

import json
from pathlib import Path

import numpy as np
import pytest

from fedapa.errors import PlanError
from fedapa.evaluation.results import Results
from fedapa.experiments.conduct import Execution
from fedapa.experiments.drift import CHOSEN_LINE, DRIFT, Watched, chosen_of, watch
from fedapa.experiments.experiment import Base
from fedapa.experiments.reproduce import reproduce
from fedapa.federation.run import Run
from fedapa.stores.store import write_store
from tests.cli.test_cli import fedapa, one_sentence
from tests.conftest import MakeStore

_LINES = ("nothing", "normaliser", "empty", "prototypes", "both")


def _store(path: Path, days: int = 6, drift: float = 1.5) -> Path:
    """Two rooms of feature vectors, 0 to 2 people, whose windows move with every day."""
    stream = np.random.default_rng(0)
    with write_store(path) as store:
        for room in ("cafe", "hall"):
            store.add_room(room, synthetic=True, about={"device": "test"})
            way = stream.normal(size=(3, 8))
            for day in range(1, days + 1):
                moved = stream.normal(size=8) * drift * (day > 2)
                for count in range(3):
                    windows = way[count] * 3 + moved + stream.normal(size=(14, 8))
                    store.add_features(
                        room,
                        f"day {day} P={count}",
                        label=count,
                        features=windows.astype(np.float32),
                        day=str(day),
                    )
    return path


def _scored(**errors: list[float]) -> Watched:
    """One validation day, 3: an error for each room, all equally often right."""
    given = {line: errors.get(line, errors["nothing"]) for line in _LINES}
    return {
        line: {
            3: {
                f"room {place}": {"accuracy": 0.5, "mae_median": error}
                for place, error in enumerate(told)
            }
        }
        for line, told in given.items()
    }


def test_what_wins_on_validation_days_is_chosen() -> None:
    """Gains of 0.2 and 0.4: mean 0.3, standard error 0.1·√2/√2 = 0.1, so it wins."""
    watched = _scored(nothing=[1.0, 1.0], prototypes=[0.8, 0.6], empty=[0.95, 0.9])
    assert chosen_of(watched, [3]) == "prototypes"


def test_nothing_is_chosen_where_nothing_wins() -> None:
    """A gain in one room and none in the other has a mean as large as its standard error."""
    assert chosen_of(_scored(nothing=[1.0, 1.0], empty=[0.8, 1.0]), [3]) == "nothing"
    assert chosen_of(_scored(nothing=[1.0, 1.0]), [3]) == "nothing"
    # A smaller error that is right less often is no gain.
    watched = _scored(nothing=[1.0, 1.0], normaliser=[0.5, 0.5])
    worse = {room: {**own, "accuracy": 0.4} for room, own in watched["normaliser"][3].items()}
    assert chosen_of({**watched, "normaliser": {3: worse}}, [3]) == "nothing"
    # Categories have no error in people: the share that is wrong decides.
    shares = {line: {3: {"a": {"accuracy": 0.8 if line == "both" else 0.5}}} for line in _LINES}
    assert chosen_of(shares, [3]) == "both"


def test_the_study_goes_through_the_days(tmp_path: Path) -> None:
    """Days 1, 2 train, 3, 4 validate, 5, 6 test; one seed, two rounds; then again from its runs."""
    store = _store(tmp_path / "rooms.h5")
    words = [
        *("reproduce", "drift", "--data", store, "--seeds", "1", "--rounds", "2"),
        *("--set", "model.width=8", "--workers", "1", "--out", tmp_path / "out"),
    ]
    shown = fedapa(*words).stdout
    assert "Chosen on validation days: right in" in shown
    assert "of the windows of day 5, 6" in shown
    assert "Chosen, seed by seed:" in shown
    folder = tmp_path / "out" / "drift"
    results = Results.load(folder / "results.json")
    assert [setting.name for setting in results.settings] == ["local", "fedjoin"]
    for setting in results.settings:
        assert list(setting.final) == [5, 6]
        by_line = {group: [row.value for row in line] for group, line in setting.lines.items()}
        assert by_line.pop("Chosen on validation days") == [5, 6]
        assert set(by_line) == {
            *("Nothing", "Normaliser", "Empty room", "Prototypes", "Normaliser and prototypes"),
            "10 labelled windows",
        }
        assert all(days == [3, 4, 5, 6] for days in by_line.values())
        (outcome,) = setting.rows[0].outcomes
        assert set(outcome.at["2"]["rooms"]) == {"cafe", "hall"}
        assert (tmp_path / "out" / outcome.run / "summary.json").is_file()
    for name in ("index.html", "results.md", "local-sweep.png", "fedjoin-days.tex"):
        assert (folder / name).stat().st_size > 0, name
    page = (folder / "index.html").read_text()
    assert "SIMULATED" in page
    assert "A figure is of the model files" in page
    before = (folder / "results.json").read_text()
    again = json.loads(fedapa(*words, "--resume", "--json").stdout)
    after = json.loads((folder / "results.json").read_text())
    assert after["settings"] == json.loads(before)["settings"], "following is repeatable"
    assert "chosen-5" in again["drift"]["settings"]["local"]


def test_ten_labelled_windows_are_scored_by_nobody(tmp_path: Path) -> None:
    store = _store(tmp_path / "rooms.h5", days=3)
    base = Base("quick", file=str(store), rounds=1, changes=({"model": {"width": 8}},))
    how = Execution(1, tmp_path / "out", workers=1)
    (done,) = reproduce([DRIFT], base, how)
    assert done.tables[0].headings[1:] == ["day 2", "day 3"] * 2
    run = Run.load(next((tmp_path / "out" / "runs").glob("local-*")))
    watched, validating, testing = watch(run)
    assert (validating, testing) == ([2], [3])
    assert CHOSEN_LINE not in watched
    shares = [32 * scores["accuracy"] for scores in watched["nothing"][3].values()]
    np.testing.assert_allclose(shares, np.round(shares), atol=1e-9)  # 42 windows, 10 with a label


def test_nets_with_batch_norm_have_a_line_for_it(make_store: MakeStore, tmp_path: Path) -> None:
    """Four days of packets, seen as amplitudes: the middle net, which has BatchNorm."""
    store = make_store({"cafe": {0: 4, 1: 4}, "hall": {0: 4, 1: 4}}, packets=96)
    changes = {"model": {"width": 8}, "data": {"view": "amplitude", "window": 16, "overlap": 0.0}}
    base = Base("quick", file=str(store), rounds=1, changes=(changes,))
    (done,) = reproduce([DRIFT], base, Execution(1, tmp_path / "out", workers=1))
    for table in done.tables:
        by_title = {row[0]: row[1:] for row in table.rows}
        assert "BatchNorm" in by_title
    assert any("batchnorm" in said for said in done.about)


@pytest.mark.parametrize(
    ("changes", "split", "words"),
    [
        ((), "recording", "split = 'recording', but it trains on the first days.*--split later"),
        (({"data": {"validation": 0.0}},), None, "leaves no day to choose on"),
        (({"data": {"train_recordings": 1}},), None, "with all labels of their first days"),
    ],
)
def test_what_drift_cannot_be_asked(
    tmp_path: Path, changes: tuple[dict[str, dict[str, float]], ...], split: str | None, words: str
) -> None:
    base = Base("quick", split=split, changes=changes)
    with pytest.raises(PlanError, match=words):
        reproduce([DRIFT], base, Execution(1, tmp_path))


def test_rooms_of_too_few_days_are_refused(tmp_path: Path) -> None:
    store = _store(tmp_path / "rooms.h5", days=2)
    said = one_sentence(fedapa("reproduce", "drift", "--data", store, "--out", tmp_path, code=2))
    assert "room 'cafe': split = 'later', but it was recorded on 2 of at least 3 days" in said
