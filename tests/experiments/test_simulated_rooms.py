"""The commands around simulated rooms: simulate, fig4, difficulty, simulator."""

import json
from pathlib import Path

import numpy as np
import pytest

from fedapa.evaluation.difficulty import difficulty, window_statistics
from fedapa.experiments.difficulty import difficulty_table
from fedapa.experiments.fig4 import distribution_caption, distribution_table
from fedapa.randomness import Key
from fedapa.report.figures.data import distribution_figure
from fedapa.report.style import save
from fedapa.stores.distribution import distribution, planned
from fedapa.stores.simulated import simulated_store
from fedapa.stores.simulated_rooms import preset_of
from tests.cli.test_cli import fedapa, one_sentence
from tests.conftest import MakeStore


@pytest.mark.slow
def test_simulate_makes_a_store_and_refuses_to_make_it_twice(tmp_path: Path) -> None:
    words = ("simulate", "--preset", "smoke", "--seed", "0", "--out", "rooms.h5")
    done = fedapa(*words, cwd=tmp_path)
    assert "SIMULATED" in done.stdout
    assert done.stderr.splitlines()[-1].startswith("simulating rooms: ")
    before = (tmp_path / "rooms.h5").read_bytes()
    assert "already exists" in one_sentence(fedapa(*words, cwd=tmp_path, code=2))
    assert (tmp_path / "rooms.h5").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["rooms.h5"]


@pytest.mark.parametrize(
    ("rooms", "complaint"),
    [
        ("[bus]\ntransmitter = [50.0, 1.0, 1.0]\n", "is outside the room"),
        ("[bus]\nreceiver = [11.5, 1.0, 1.0]\n", "is on a wall"),
        ("[bus]\ncounts = [0, 999]\n", "999 people"),
        ("[bus]\nrate = 1\n", "rate = 1; choose 125 to 1000"),
    ],
)
def test_impossible_rooms_are_exit_code_2(rooms: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(rooms)
    words = ("simulate", "--preset", "smoke", "--rooms", "own.toml", "--out", "rooms.h5")
    assert complaint in one_sentence(fedapa(*words, cwd=tmp_path, code=2))
    assert [path.name for path in tmp_path.iterdir()] == ["own.toml"]


def test_an_unknown_preset_is_exit_code_2(tmp_path: Path) -> None:
    done = fedapa("simulate", "--preset", "quik", "--out", "a.h5", cwd=tmp_path, code=2)
    assert "did you mean 'quick'" in one_sentence(done)


@pytest.mark.slow
def test_fig4_counts_windows_and_draws_them(tmp_path: Path) -> None:
    words = ("reproduce", "fig4", "--preset", "smoke", "--json", "--out", "fig4.svg")
    found = json.loads(fedapa(*words, cwd=tmp_path).stdout)
    assert found["windows"]["bus"] == {"0": 16, "1": 16, "2": 16, "4": 16, "8": 12}
    assert "SIMULATED" in (tmp_path / "fig4.svg").read_text()
    assert "SIMULATED" in fedapa("reproduce", "fig4", "--preset", "smoke", cwd=tmp_path).stdout
    fedapa("reproduce", "fig4", "--preset", "smoke", "--out", "v0.1", cwd=tmp_path)
    assert (tmp_path / "v0.1" / "fig4" / "fig4.png").is_file()
    bad = fedapa("reproduce", "fig4", "--preset", "smoke", "--out", "a.bmp", cwd=tmp_path, code=2)
    assert ".png, .svg or .pdf" in one_sentence(bad)


@pytest.mark.slow
def test_what_is_planned_is_what_is_made() -> None:
    made = distribution(simulated_store("smoke", 0))
    assert planned(preset_of("smoke")).windows == made.windows


def test_fig4_of_real_rooms_does_not_say_simulated(make_store: MakeStore, tmp_path: Path) -> None:
    found = distribution(make_store(), window=16)
    assert found.windows == {"cafe": {0: 12, 1: 12, 2: 12}, "hall": {0: 12, 2: 12}}
    closer = distribution(make_store(name="again.h5"), window=16, stride=8)
    assert closer.windows["hall"] == {0: 21, 2: 21}  # 7 in each of the 3 takes of 64 packets
    assert "SIMULATED" not in distribution_table(found).note
    figure = distribution_figure(found.windows, found.labels, distribution_caption(found))
    save(figure, tmp_path / "a.svg")
    assert "SIMULATED" not in (tmp_path / "a.svg").read_text()


def test_fig4_has_counts_by_size_and_categories_by_name(make_store: MakeStore) -> None:
    store = make_store({"a": {10: 1, 2: 1}, "b": {"walk": 1, "sit": 1}})
    found = distribution(store, window=16)
    assert found.labels == (2, 10, "sit", "walk")
    assert [list(held) for held in found.windows.values()] == [[2, 10], ["sit", "walk"]]
    assert distribution_table(found).title == "Windows by room and class"


def test_fig4_shows_windows_without_a_label_beside_the_others(make_store: MakeStore) -> None:
    found = distribution(make_store({"a": {0: 1, 1: 1, None: 2}, "b": {0: 1, 1: 1}}), window=16)
    table = distribution_table(found)
    assert list(table.headings) == ["Room", "0", "1", "No label", "All"]
    assert table.rows == [["a", "4", "4", "8", "16"], ["b", "4", "4", "–", "8"]]
    caption = distribution_caption(found)
    figure = distribution_figure(found.windows, found.labels, caption, unlabelled=found.unlabelled)
    heights = [bar.get_height() for bar in figure.axes[0].patches]
    assert heights == [4, 4, 8]


def test_statistics_do_not_see_the_receivers_gain() -> None:
    window = (Key(0).numpy().uniform(5, 10, (50, 56))).astype(np.float32)
    assert window_statistics(7 * window) == pytest.approx(window_statistics(window), abs=1e-3)


@pytest.mark.slow
def test_simple_models_beat_chance_and_are_far_from_perfect_on_held_out_takes() -> None:
    """What the note on the simulator asks of the data, whatever the physics gave."""
    scores = difficulty(simulated_store("quick", 0), splits=("random", "recording"))

    def mean(split: str, model: str) -> float:
        chosen = [s.accuracy for s in scores if (s.split, s.model) == (split, model)]
        return float(np.mean(chosen))

    chance = float(np.mean([score.chance for score in scores]))
    assert chance + 0.05 < mean("recording", "linear") < 0.6
    assert chance + 0.1 < mean("recording", "forest") < 0.7
    assert mean("random", "forest") > mean("recording", "forest") + 0.05
    assert "SIMULATED" in difficulty_table(scores, "quick", synthetic=True).note
