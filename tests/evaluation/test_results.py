"""Statistics of experiments by hand, and results that survive their file."""

import math
from pathlib import Path

import numpy as np
import pytest

from fedapa.errors import RunError
from fedapa.evaluation.results import (
    Outcome,
    Results,
    Row,
    Setting,
    outcome_at,
    paired,
    reached,
    running_mean,
    spread,
    still_gaining,
)


def _record(number: int, kitchen: float, cafe: float) -> dict:
    rooms = {
        name: {"accuracy": value, "macro_f1": value, "bytes_up": 1, "bytes_down": 2}
        for name, value in (("kitchen", kitchen), ("cafe", cafe))
    }
    return {"round": number, "rooms": rooms, "mean": {"accuracy": (kitchen + cafe) / 2}}


def _outcome(
    seed: int, curve: list[float | None], at: dict | None = None, **others: object
) -> Outcome:
    moved = [10 * (number + 1) for number in range(len(curve))]
    return Outcome(seed, f"runs/x-{seed}", "abc", {"accuracy": curve}, moved, at or {}, **others)


def _setting(rows: list[Row]) -> Setting:
    data = {"source": "hand", "synthetic": True, "split": "recording", "rooms": {"a": {}, "b": {}}}
    return Setting("statistical", "by hand", 4, [2, 4], rows, data)


def test_paired_difference_by_hand():
    """d = 0.1, 0.05, 0.1: d̄ = 1/12, s = 0.0288675, t(0.975, 2) = 4.302653.

    Half the interval is 4.302653 · 0.0288675 / √3 = 0.0717109.
    """
    found = paired([0.5, 0.6, 0.7], [0.4, 0.55, 0.6])
    assert found.mean == pytest.approx(1 / 12)
    assert found.low == pytest.approx(1 / 12 - 0.0717109, abs=1e-6)
    assert found.high == pytest.approx(1 / 12 + 0.0717109, abs=1e-6)
    assert found.is_clear
    assert not paired([0.5, 0.6], [0.6, 0.5]).is_clear
    assert not paired([0.5, 0.75], [0.25, 0.5]).is_clear  # the same twice: no width, no certainty


def test_one_seed_has_no_spread_and_no_interval():
    assert spread([0.3]).deviation is None
    assert paired([0.3], [0.1]).low is None
    assert not paired([0.3], [0.1]).is_clear


def test_spread_divides_by_one_less_than_the_seeds():
    """0.1 and 0.3: mean 0.2, s = √(2 · 0.01 / 1) = 0.1414214."""
    assert spread([0.1, 0.3]).mean == pytest.approx(0.2)
    assert spread([0.1, 0.3]).deviation == pytest.approx(0.1414214, abs=1e-7)


def test_a_figure_is_the_mean_of_the_last_five_rounds_up_to_its_horizon():
    """Rounds 1 … 8 of kitchen are 0.1 … 0.8; at 7 the mean is that of 3 … 7, 0.5; cafe is 0."""
    records = [_record(number, number / 10, 0.0) for number in range(1, 9)]
    found = outcome_at(records, 7)
    assert found is not None
    assert found["rooms"]["kitchen"]["accuracy"] == pytest.approx(0.5)
    assert found["mean"]["accuracy"] == pytest.approx(0.25)
    assert found["std"]["accuracy"] == pytest.approx(0.25)  # over the two rooms
    assert outcome_at(records, 9) is None


def test_rounds_of_another_net_do_not_count():
    records = [_record(number, number / 10, number / 10) for number in range(1, 9)]
    found = outcome_at(records, 7, scored=[2, 4, 8])
    assert found is not None
    assert found["mean"]["accuracy"] == pytest.approx(0.4)
    assert outcome_at(records, 7, scored=[1, 8]) is None


def test_running_mean_looks_back_five_rounds():
    assert running_mean([1, 2, 3, 4, 5, 6, 7]) == pytest.approx([1, 1.5, 2, 2.5, 3, 4, 5])


def test_running_mean_leaves_out_rounds_without_a_score():
    """Round 1 knows nothing; 2 to 6 know 0.2; 7 has 0.2 left behind and sees 0.6 alone."""
    means = running_mean([None, 0.2, None, None, None, None, 0.6, None])
    assert means == pytest.approx([np.nan, 0.2, 0.2, 0.2, 0.2, 0.2, 0.6, 0.6], nan_ok=True)


def test_a_band_has_gaps_where_a_seed_has_no_score():
    row = Row("x", "X", "paper", [_outcome(0, [None, 0.4]), _outcome(1, [0.4, 0.2])])
    mean, apart = row.band()
    assert mean == pytest.approx([np.nan, 0.35], nan_ok=True)
    assert apart == pytest.approx([np.nan, 0.1 / math.sqrt(2)], nan_ok=True)


def test_rounds_without_a_score_reach_nothing_and_gain_nothing():
    """Quarters of two rounds: 0.1 alone, then 0.3 and 0.5, a rise of 0.3; or nothing in one."""
    outcome = _outcome(0, [None, None, None, None, None, 0.9, 0.9, 0.9])
    assert reached(outcome, 0.5) == (6, 60)
    assert reached(_outcome(0, [None] * 8), 0.0) is None
    gaining = Row("x", "X", "paper", [_outcome(0, [0.1, 0.1, 0.1, 0.1, None, 0.1, 0.2, 0.6])])
    assert still_gaining(gaining) == pytest.approx(0.3)
    silent = Row("x", "X", "paper", [_outcome(0, [0.1, 0.1, 0.1, 0.1, None, None, 0.2, 0.6])])
    assert still_gaining(silent) is None


def test_a_band_is_over_seeds_up_to_the_shortest_curve():
    """Five-round means 0.2, 0.3 and 0.4, 0.3: means 0.3, 0.3, deviations √(2 · 0.01), 0."""
    row = Row("x", "X", "paper", [_outcome(0, [0.2, 0.4]), _outcome(1, [0.4, 0.2, 0.9])])
    mean, apart = row.band()
    assert mean == pytest.approx([0.3, 0.3])
    assert apart == pytest.approx([0.1414214, 0.0], abs=1e-7)


def test_a_band_of_one_seed_is_over_rooms():
    """The deviation over rooms, 0.1 and 0.3, as a five-round mean: 0.1, 0.2; none if not kept."""
    mean, apart = Row("x", "X", "paper", [_outcome(0, [0.2, 0.4], over_rooms=[0.1, 0.3])]).band()
    assert mean == pytest.approx([0.2, 0.3])
    assert apart == pytest.approx([0.1, 0.2])
    assert not len(Row("x", "X", "paper", [_outcome(0, [0.2, 0.4])]).band()[1])


def test_reaching_an_accuracy_counts_rounds_and_bytes():
    """Five-round means of 0, 0, 0, 0, 1, 1, 1 are 0.2, 0.4, 0.6 at rounds 5, 6, 7."""
    outcome = _outcome(0, [0, 0, 0, 0, 1, 1, 1])
    assert reached(outcome, 0.4) == (6, 60)
    assert reached(outcome, 0.7) is None


def test_one_lucky_round_reaches_nothing():
    assert reached(_outcome(0, [0.9, 0, 0, 0, 0, 0]), 0.5) is None


def test_still_gaining_compares_the_last_two_quarters():
    """Quarters of 0.1 … 0.8 by two: 0.55 and 0.75."""
    row = Row("local", "Local", "paper", [_outcome(0, [number / 10 for number in range(1, 9)])])
    assert still_gaining(row) == pytest.approx(0.2)
    assert still_gaining(Row("local", "Local", "paper", [_outcome(0, [0.1, 0.2])])) is None


def _at(value: float) -> dict:
    rooms = {"a": {"accuracy": value}, "b": {"accuracy": 0.5}}
    return {"4": {"mean": {"accuracy": value}, "std": {"accuracy": 0}, "rooms": rooms}}


def test_rows_are_compared_over_equal_seeds_only():
    mine = Row("a", "A", "paper", [_outcome(seed, [0.1] * 4, _at(0.6)) for seed in (0, 1)])
    theirs = Row("b", "B", "paper", [_outcome(seed, [0.1] * 4, _at(0.4)) for seed in (0, 1)])
    other = Row("c", "C", "paper", [_outcome(seed, [0.1] * 4, _at(0.4)) for seed in (0, 2)])
    setting = _setting([mine, theirs, other])
    found = setting.against(mine, theirs, 4)
    assert found is not None
    assert found.mean == pytest.approx(0.2)
    assert setting.against(mine, other, 4) is None
    assert setting.against(mine, theirs, 2) is None
    assert setting.rooms_led(mine, theirs, 4) == (2, 4)  # room b ties


def test_a_figure_that_some_rooms_lack_says_so_to_scripts():
    """Seed 0 has it in one of two rooms, seed 1 in both."""
    at = {"mean": {"accuracy": 0.5, "mae_60s": 1.0}, "rooms": {"a": {}, "b": {}}}
    few = {"4": {**at, "fewer_rooms": {"mae_60s": 1}}}
    row = Row("x", "X", "paper", [_outcome(0, [], few), _outcome(1, [], {"4": at})])
    summary = Results("e", "E", "", [_setting([row])], [0, 1], {}).summary()
    figures = summary["settings"]["statistical"]["x"]["4"]
    assert figures["mae_60s"]["fewer_rooms"] == [1, 2]
    assert figures["mae_60s"]["mean"] == 1.0
    assert set(figures["accuracy"]) == {"mean", "deviation", "number"}


def test_rounding_is_no_lead():
    low = {"4": {"mean": {}, "std": {}, "rooms": {"a": {"accuracy": 0.3}, "b": {"accuracy": 0.3}}}}
    sum_ = {"4": {**low["4"], "rooms": {"a": {"accuracy": 0.1 + 0.2}, "b": {"accuracy": 0.3}}}}
    mine = Row("a", "A", "paper", [_outcome(0, [0.1] * 4, sum_)])
    theirs = Row("b", "B", "paper", [_outcome(0, [0.1] * 4, low)])
    assert _setting([mine, theirs]).rooms_led(mine, theirs, 4) == (0, 2)


def test_results_survive_their_file(tmp_path: Path):
    row = Row("a", "A", "paper", [_outcome(0, [0.1, 0.2], _at(0.25), scored=[2])], value=0.5)
    results = Results("table1", "T", "quick", [_setting([row])], [0], {"commit": "abc"})
    results.save(tmp_path / "results.json")
    again = Results.load(tmp_path / "results.json")
    assert again.settings[0].rows[0].outcomes[0] == row.outcomes[0]
    assert again.settings[0].rows[0].value == 0.5
    assert again.commits == ["abc"]
    assert again.kind == "SIMULATED"
    again.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "results.json").read_bytes()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 1}'])
def test_a_file_without_results_is_one_sentence(tmp_path: Path, text: str):
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(RunError, match="holds no results"):
        Results.load(tmp_path / "results.json")
