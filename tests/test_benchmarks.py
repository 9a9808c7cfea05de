"""The benchmarks' own arithmetic: what is remembered, compared and written down."""

import importlib
import json
from pathlib import Path

import pytest

from benchmarks import _history, _page
from benchmarks.__main__ import main, names


def test_every_benchmark_can_be_measured() -> None:
    assert {"aggregation", "captures", "passes", "simulator", "training"} <= set(names())
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
