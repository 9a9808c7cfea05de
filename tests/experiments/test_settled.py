"""One view in all rows and seeds of a comparison, and nothing refused after training began."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedapa.errors import DataError, PlanError
from fedapa.experiments.compare import compare
from fedapa.experiments.conduct import Conducted, Execution, conduct
from fedapa.experiments.experiment import CHOSEN, Base
from fedapa.experiments.settled import settle
from fedapa.federation.plan import Plan
from fedapa.federation.prepare import agree_by_cards
from fedapa.report.captions import caption
from fedapa.stores.store import write_store
from tests.conftest import MakeStore


def _base(store: Path, **data: Any) -> Base:
    changes = {"data": {"window": 32, "overlap": 0.0, **data}, "model": {"width": 8}}
    return Base("quick", str(store), rounds=1, long_rounds=0, changes=[changes])


def _done(base: Base, out: Path, *names: str, seeds: int = 1) -> Conducted:
    return conduct(compare(base, algorithms=names), base, Execution(seeds, out, workers=1))


@pytest.fixture
def store(make_store: MakeStore) -> Path:
    counts = {0: 5, 1: 5}
    return make_store({"cafe": counts, "hall": counts}, packets=64)


def test_the_first_seeds_view_is_that_of_all_rows_and_seeds(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def agree(plan: Plan, *args: Any, **kwargs: Any) -> Any:
        asked.append(plan.seed)
        return agree_by_cards(plan, *args, **kwargs)

    monkeypatch.setattr("fedapa.experiments.settled.agree_by_cards", agree)
    base = _base(store)
    done = _done(base, tmp_path / "out", "local", "fedavg", seeds=2)
    assert asked == [0]
    assert len({run.plan.data.view for run in done.runs.values()}) == 1
    assert len({run.data["windows"] for run in done.runs.values()}) == 1
    why = done.results.settings[0].data["view_why"]
    assert why.startswith("chosen once, with seed 0: ")


def test_fewer_train_recordings_choose_no_other_view(store: Path) -> None:
    whole, fewer = (
        settle(compare(base), base, CHOSEN).base.plan.data.view
        for base in (_base(store), _base(store, train_recordings=1))
    )
    assert whole == fewer != "auto"


def test_the_caption_says_whose_view_is_another(store: Path, tmp_path: Path) -> None:
    done = _done(_base(store, view="motion"), tmp_path / "out", "linear", "local", "forest")
    told = caption(done.results.settings[0])
    assert "view motion (Linear model and Random forest: view statistics)" in told


def test_models_of_numbers_are_left_out_where_windows_cannot_be_numbers(tmp_path: Path) -> None:
    """One packet per second is too slow for statistics."""
    with write_store(tmp_path / "slow.h5") as made:
        for room in ("a", "b"):
            made.add_room(room, synthetic=False, about={"device": "test"})
            for take in range(8):
                amplitude = np.random.default_rng(take).uniform(1, 2, (64, 6, 1)).astype(np.float32)
                made.add_recording(
                    *(room, f"{take}"),
                    label=take % 2,
                    amplitude=amplitude,
                    timestamps=np.arange(64.0),
                    rate=1.0,
                )
    base = _base(tmp_path / "slow.h5")
    settled = settle(compare(base), base, CHOSEN)
    assert not {"linear", "forest"} & {case.name for case in settled.cases}
    assert "Linear model and Random forest: left out" in settled.notes[0]
    with pytest.raises(DataError, match="'statistics' needs"):  # who asks for it is told
        _done(base, tmp_path / "out", "local", "forest")
    assert not (tmp_path / "out" / "runs").exists()


def test_settings_of_nets_do_not_stop_models_of_numbers(store: Path, tmp_path: Path) -> None:
    base = _base(store, view="amplitude")
    asked = {"training": {"augment": ["gain"]}, "answer": "nearest"}
    base = Base(base.preset, base.file, rounds=1, long_rounds=0, changes=[*base.changes, asked])
    done = _done(base, tmp_path / "out", "local", "linear", "forest")
    answers = {name: run.plan.answer for (_, name, _), run in done.runs.items()}
    assert answers == {"local": "nearest", "linear": "median", "forest": "median"}
    assert any("there are no prototypes" in note for note in done.results.notes)


def test_training_that_does_nothing_is_refused_before_any_run(store: Path, tmp_path: Path) -> None:
    base = _base(store, view="statistics")
    asked = {"training": {"augment": ["gain"]}}
    base = Base(base.preset, base.file, rounds=1, long_rounds=0, changes=[*base.changes, asked])
    with pytest.raises(PlanError, match="'gain' changes nothing"):
        _done(base, tmp_path / "out", "forest", "local")
    assert not (tmp_path / "out" / "runs").exists()
