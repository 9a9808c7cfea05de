"""The benchmarks' own arithmetic: what is remembered, compared and written down."""

import importlib
import json
from pathlib import Path

import pytest

from benchmarks import _growth, _history, _messages, _page, passes, startup
from benchmarks.__main__ import main, names


def test_every_benchmark_can_be_measured() -> None:
    assert {"aggregation", "captures", "passes", "simulator", "startup", "training"} <= set(names())
    for name in names():
        assert callable(importlib.import_module(f"benchmarks.{name}").measure), name


def test_an_unknown_benchmark_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "trainin"])
    assert main() == 2
    assert "no benchmark 'trainin'" in capsys.readouterr().err


def test_numbers_are_compared_where_both_times_have_them() -> None:
    now = {"a": {"ratio": 3.0, "new": 1.0}, "b": 2.0, "none": None}
    before = {"a": {"ratio": 2.0}, "b": 4.0, "gone": 1.0}
    assert _history.changes(now, before) == {"a.ratio": 1.5, "b": 0.5}
    assert _history.changes(now, None) == {}


def test_the_history_keeps_machines_apart(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    assert _history.last(path) is None
    _history.append({"a": 1.0}, path)
    other = {"commit": "x", "date": "2026-01-01", "machine": {"cores": 999}, "figures": {"a": 9.0}}
    with path.open("a") as file:
        file.write(json.dumps(other) + "\n")
    found = _history.last(path)
    assert found is not None
    assert found["figures"] == {"a": 1.0}


def test_the_page_is_made_from_the_last_entry() -> None:
    last = _history.PATH.read_text().splitlines()[-1]
    assert _page.render(json.loads(last)) == _page.PAGE.read_text()


def test_the_figure_is_made_from_the_last_entry(tmp_path: Path) -> None:
    last = json.loads(_history.PATH.read_text().splitlines()[-1])
    _growth.draw(last["figures"]["aggregation"], tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").read_bytes() == _page.FIGURE.read_bytes()


def test_what_was_not_measured_yet_is_said_and_what_was_is_shown() -> None:
    entry = json.loads(_history.PATH.read_text().splitlines()[-1])
    found = entry["figures"]["passes"]
    for net in ("tiny", "middle", "large"):
        found[net]["round"] = {"reading": 0.0312, "train": 0.7, "prototypes": 0.2, "score": 0.07}
    found["mixed"] = found["large"]
    entry["figures"]["startup"] = {"seconds": 4.25, "before_workers": 2.5}
    shown = _page.render(entry)
    assert "| mixed | 3.1 | 70.0 | 20.0 | 7.0 |" in shown
    assert "4.25 s, 2.5 s of it before the workers start" in shown
    assert _page.NOT_YET not in shown
    del entry["figures"]["startup"]
    assert _page.NOT_YET in _page.render(entry)


def test_shares_of_a_round_by_hand() -> None:
    """Training 8 s, prototypes 2 s, score 0.6 s; reading 0.4 s for 32 train windows, so 0.1 s for 8
    test windows: 0.9 s of 10.6 s."""
    shares = passes._shares({"train": 8.0, "prototypes": 2.0, "score": 0.6, "reading": 0.4})
    assert shares["without_gradient"] == 0.325
    assert shares["reading"] == 0.05
    assert shares["round"]["reading"] == round(0.9 / 10.6, 3)
    assert sum(shares["round"].values()) == pytest.approx(1, abs=2e-3)


def test_the_start_of_a_run_by_hand() -> None:
    """10 s in all, exchanges of 4, 1 and 0.5 s: 4.5 s are none, 3 s of the first are workers."""
    assert startup.seconds_of_start(10.0, [4.0, 1.0, 0.5]) == (7.5, 4.5)


def test_paired_differences_of_runs_by_hand() -> None:
    """Accuracies 50 and 60 % against 51 and 63 %: +1 and +3 points, mean 2, deviation √2."""
    told, rows = _messages.lines(
        {
            "data": "SIMULATED",
            "source": "rooms",
            "split": "recording",
            "algorithm": "fedapa",
            "architecture": "large",
            "rounds": 3,
            "blind": 0.125,
            "commits": ["0123456789" * 4 + "+changes"],
            "runs": {
                "float32": {"accuracy": {"0": 0.5, "1": 0.6}, "bytes": {"0": 4000.0, "1": 4000.0}},
                "int8": {"accuracy": {"0": 0.51, "1": 0.63}, "bytes": {"0": 1000.0, "1": 1000.0}},
            },
        }
    )
    assert "SIMULATED" in told and "seeds 0, 1" in told and "0123456789+changes" in told
    assert "right in 12.5 %" in told
    assert rows[0] == ("float32", "4.0", "1.00", "55.0 ± 7.1", "–", "–")
    assert rows[1] == ("int8", "1.0", "0.25", "57.0 ± 8.5", "+2.0 ± 1.4", "+1.0, +3.0")
