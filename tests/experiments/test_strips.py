"""Visits are counted as a live counter would: by the model file, from the packets."""

from pathlib import Path

import numpy as np
import pytest

from fedapa.experiments import strips
from fedapa.experiments.strips import counted_visits
from fedapa.federation.plan import Plan
from fedapa.federation.run import run
from fedapa.report.figures.strips import strips as figure_of
from fedapa.report.page import Lead, write_run_page
from fedapa.rooms.model_file import load_model
from fedapa.stores.simulated_captures import last_tasks, record_task_visits
from fedapa.stores.simulated_rooms import preset_of
from fedapa.windows.stream import Windower


def test_a_strip_is_what_the_model_file_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rooms learn; of the other four there is no model file and so no strip."""
    monkeypatch.setattr(strips, "SECONDS", 20.0)
    rooms = ("hotel room", "open office")
    plan = Plan(
        rounds=1,
        algorithm="local",
        data={"simulated": "smoke", "only": rooms, "view": "statistics"},
        model={"architecture": "counter"},
    )
    finished = run(plan, out=tmp_path, workers=0)
    shown = counted_visits(finished)
    assert [strip.room for strip in shown] == list(rooms)
    task = next(
        each
        for each in last_tasks(preset_of("smoke"), seed=0, workers=1)
        if each.place.scene.room.name == "open office"
    )
    assert (task.day, task.count) == (1, 5)
    visits, capture = record_task_visits(task, 20.0)
    model = load_model(tmp_path / "models" / "open office.safetensors")
    windows = Windower(model.recipe).feed(capture)
    (_, strip) = shown
    np.testing.assert_array_equal(strip.counted, model.count(windows))
    np.testing.assert_array_equal(strip.times, windows.ends)
    np.testing.assert_array_equal(strip.present, visits.counts(windows.ends))
    assert (strip.people.min(), strip.people.max()) == (0, 5)

    lead = Lead("Two minutes", "The area is how many there were.", figure_of(shown, "SIMULATED"))
    write_run_page(tmp_path / "page.html", [finished], title="A page", lead=lead)
    page = (tmp_path / "page.html").read_text()
    places = [page.index(words) for words in ("is right in", "Two minutes", strip.sentence)]
    assert places == sorted(places)
    assert places[-1] < page.index("<table"), "people first, then tables"
    for words in (
        "Local: every room trains alone",
        "MAE, the mean absolute error",
        "Split recording",
    ):
        assert words in page
