"""The benchmarks' own arithmetic: what is remembered, compared and written down."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import (
    _growth,
    _history,
    _messages,
    _page,
    _server,
    aggregation,
    passes,
    startup,
    training,
)
from benchmarks.__main__ import main, names
from fedapa import Plan, Room
from fedapa.federation import rounds
from fedapa.federation.engines.in_process import InProcess


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


CPUINFO = """processor\t: 0
cpu family\t: 6
model\t\t: 207
model name\t: A Processor
stepping\t: 2
flags\t\t: fpu avx2 avx512f

processor\t: 1
model\t\t: 1
"""


def test_a_machine_is_its_processors_model_and_flags() -> None:
    found = _history.described(CPUINFO)
    flags = found.pop("flags")
    assert found == {"processor": "A Processor", "family": "6", "model": "207", "stepping": "2"}
    assert len(flags) == 8
    assert _history.described(CPUINFO.replace("fpu avx2", "avx2 fpu"))["flags"] == flags
    assert _history.described(CPUINFO.replace(" avx512f", ""))["flags"] != flags
    assert _history.described("Features\t: fp asimd\nCPU part\t: 0xd0c\n").keys() == {
        "model",
        "flags",
    }
    assert _history.described("") == {}


def test_an_entry_that_does_not_tell_the_model_is_of_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "history.jsonl"
    named = {"processor": "A Processor", "cores": 2, "system": "Linux"}
    monkeypatch.setattr(_history, "machine", lambda: named)
    _history.append({"a": 1.0}, path)
    assert _history.last(path) is not None
    monkeypatch.setattr(_history, "machine", lambda: named | {"model": "207"})
    assert _history.last(path) is None
    _history.append({"a": 2.0}, path)
    assert (_history.last(path) or {})["figures"] == {"a": 2.0}


@pytest.mark.parametrize(("speed", "warned"), [(130.0, True), (115.0, False), (75.0, True)])
def test_a_comparison_names_its_entry_and_warns_of_another_speed(
    speed: float, warned: bool
) -> None:
    before = {
        "commit": "0123456789",
        "date": "2026-01-02",
        "figures": {"training": {"gemm_gflops": 100.0}, "aggregation": {"gemm_ratio": 9.0}},
    }
    now = {"training": {"gemm_gflops": speed}, "aggregation": {"gemm_ratio": 1.0}}
    first, *rest = _history.compared(now, before)
    assert "commit 0123456789, 2026-01-02" in first
    assert ["compare ratios, not times" in line for line in rest] == [True] * warned
    assert _history.compared(now, None) == ["no earlier entry of this machine"]


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
    block = {"forward_ms": 20.5, "inputs_ms": 40.0, "weights_ms": 30.0}
    for net, share in (("middle", 0.654), ("large", 0.812)):
        found[net]["convolutions"] = {"block2": block, "share_of_step": share}
    for net in ("tiny", "middle", "large"):
        found[net]["reading_wall"] = 0.123
    trained = entry["figures"]["training"]
    trained["notes"] = {"eager": "The loop.", "share_of_gemm": "The share."}
    for net in ("tiny", "middle", "large", "mixed"):
        trained[net] |= {"gflop_per_window": 1.0, "share_of_gemm": 0.456}
    mixing = entry["figures"]["aggregation"]
    mixing["10000"]["server_round"] = {
        "seconds": 40.5,
        "uploads": 1.0,
        "merge": 30.0,
        "downloads": 8.0,
        "checkpoint": 1.5,
        "peak_mb": 4000.0,
        "peers": 8,
        "download_mb": 1900.0,
    }
    mixing["100000"] |= {"gemm_ratio": 1.11, "relative_error": 0.0155}
    mixing["100000"]["errors"] = {
        "alike": {"1024": 0.01, "256": 0.02},
        "clustered": {"1024": 0.03, "256": 0.06},
    }
    shown = _page.render(entry)
    assert "block 2 (65 % of a step; a batch on one core takes 20.5 ms forward, 40 for" in shown
    assert "the convolutions themselves (81 % of a step)" in shown
    assert "The loop.\n\nThe share." in shown
    assert shown.count("| 0.456 |") == 4
    assert shown.count("| 0.123 |") == 4
    assert "| 1.11 | 0.0155 |" in shown
    assert "40.5 s for 10,000 rooms with `peers = 8` (to decode the uploads 1 s" in shown
    assert "| 256 | 0.02 | 0.06 |\n| 1,024 | 0.01 | 0.03 |" in shown
    assert "| mixed | 3.1 | 70.0 | 20.0 | 7.0 |" in shown
    assert "4.25 s, 2.5 s of it before the workers start" in shown
    assert _page.NOT_YET not in shown
    del entry["figures"]["startup"]
    assert _page.NOT_YET in _page.render(entry)


def test_a_share_that_counts_too_many_flops_is_not_shown() -> None:
    entry = json.loads(_history.PATH.read_text().splitlines()[-1])
    trained = entry["figures"]["training"]
    trained.pop("notes", None)
    for net in ("tiny", "middle", "large", "mixed"):
        trained[net].pop("gflop_per_window", None)
        trained[net]["share_of_gemm"] = 0.98765
    shown = _page.render(entry)
    assert "0.98765" not in shown
    assert _page.UNEQUAL in shown


@pytest.mark.parametrize(
    ("net", "expected"),
    [
        # 10 × 6 become 5 × 3 positions of 256 channels, 9 products each; then 256 × 21.
        ("tiny", 2 * (2 * 9 * 256 * 15) + 3 * (2 * 256 * 21)),
        # 16 channels of 5 × 3, 32 of 3 × 2, a head of 32 × 256 with its biases, 256 × 21.
        (
            "middle",
            2 * (2 * 9 * 16 * 15)
            + 3 * (2 * 9 * 16 * 32 * 6)
            + 3 * (2 * 32 * 256 + 256)
            + 3 * (2 * 256 * 21),
        ),
    ],
)
def test_flops_of_a_step_by_hand(
    net: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice the first convolution, whose input needs no gradient; thrice everything else."""
    monkeypatch.setattr(training, "SHAPE", (10, 6))
    (room,) = training.make_rooms(tmp_path, (net,))
    assert training.products_of_a_step(room) == expected


def test_the_eager_loop_gets_the_engines_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Round 2 of both: the same windows in the same order, normalised by the same code."""
    monkeypatch.setattr(training, "SHAPE", (10, 6))
    rooms = training.make_rooms(tmp_path, ("tiny", "middle"))
    plan = Plan(rounds=2, algorithm={"name": "fedapa", "warm_rounds": 1})
    algorithm = plan.build()
    seen: list[tuple[str, bytes]] = []
    tensors = Room.tensors

    def watch(room: Room, index: Any) -> Any:
        seen.append((room.name, index.tobytes()))
        return tensors(room, index)

    monkeypatch.setattr(Room, "tensors", watch)
    with InProcess(algorithm, rooms, run="test", folder=tmp_path, workers=0) as engine:
        steps = rounds.run(algorithm, engine, plan, dict(rounds.begin(algorithm, engine, plan)))
        next(steps)
        seen.clear()
        next(steps)
        ours = sorted(seen)
        steps.close()
    seen.clear()
    next(training._eager_rounds(rooms, plan, first=2))
    assert sorted(seen) == ours
    assert len(ours) == 2 * (1 + 2 + 2)  # a test batch, two to train and two for prototypes


def test_errors_of_a_sample_fall_and_all_rooms_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregation, "SAMPLES", (20, 320))
    monkeypatch.setattr(aggregation, "CLASSES", 3)
    for kind, errors in aggregation._errors(320).items():
        assert errors["20"] > 0.01, kind
        assert errors["320"] < 1e-5, kind


def test_a_round_of_the_server_is_measured_in_its_parts() -> None:
    found = _server.measure_round(12)
    parts = ("uploads", "merge", "downloads", "checkpoint")
    assert sum(found[part] for part in parts) == pytest.approx(found["seconds"], abs=3e-3)
    # A mixture and 8 sets of 21 × 256 floats for each of 12 rooms, and the frames around them.
    assert found["download_mb"] == pytest.approx(12 * 9 * 21 * 256 * 4 / 1e6, rel=0.05)


def test_shares_of_a_round_by_hand() -> None:
    """Training 8 s, prototypes 2 s, score 0.6 s; reading 0.4 s for 32 train windows, so 0.1 s for 8
    test windows: 0.9 s of 10.6 s."""
    seconds = {"train": 8.0, "prototypes": 2.0, "score": 0.6, "reading": 0.4}
    shares = passes._shares(seconds, {"train": 10.0, "reading": 0.7})
    assert shares["reading_wall"] == 0.07
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
