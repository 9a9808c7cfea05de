"""The benchmarks' own arithmetic: what is remembered, compared and written down."""

import importlib
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import (
    _growth,
    _history,
    _messages,
    _page,
    _paths,
    _server,
    aggregation,
    live,
    passes,
    startup,
    training,
)
from benchmarks.__main__ import main, names
from fedapa import Plan, Room
from fedapa.experiments.presets import preset
from fedapa.federation import rounds
from fedapa.federation.engines.in_process import InProcess
from fedapa.models import fast
from fedapa.models.cost import layers
from fedapa.randomness import Key
from fedapa.stores.simulated_rooms import preset_of
from fedapa.windows.split import split_windows


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


def test_without_names_only_speed_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured: list[str] = []
    for name in names():
        module = importlib.import_module(f"benchmarks.{name}")
        monkeypatch.setattr(module, "measure", lambda name=name: measured.append(name) or {})
    monkeypatch.setattr("sys.argv", ["benchmarks", "--json"])
    monkeypatch.setattr(_history, "append", lambda figures: None)
    monkeypatch.setattr(_page, "write", lambda: None)
    assert main() == 0
    others = ("counting", "joining", "live", "peers", "poisoning", "scale", "stillness")
    assert measured == [name for name in names() if name not in others]


def test_an_option_of_another_benchmark_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "counting", "--seeds", "1"])
    assert main() == 2
    assert capsys.readouterr().err == (
        "--seeds is for the benchmark 'joining'; name it, or leave it out\n"
    )


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
    block |= {"forward_of_gemm": 0.812, "inputs_of_gemm": 0.398, "weights_of_gemm": 0.521}
    for net, share in (("middle", 0.654), ("large", 0.812)):
        found[net]["convolutions"] = {
            "block2": block,
            "share_of_step": share,
            "gemm_gflops_one_core": 171.5,
            "gain_at_gemm": 1.43,
        }
    for net in ("tiny", "middle", "large"):
        found[net] |= {"reading_wall": 0.123, "without_gradient_at_quick": 0.432}
    found["large"] |= {"train_of_gemm": 0.512, "without_gradient": 0.398}
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
    mixing["100000"]["errors_at_tau_0.1"] = {
        "alike": {"1024": 0.04, "256": 0.08},
        "clustered": {"1024": 0.05, "256": 0.1},
    }
    entry["machine"] |= {"family": "6", "model": "207", "stepping": "2", "flags": "0123abcd"}
    shown = _page.render(entry)
    assert "(family 6, model 207, stepping 2), " in shown
    assert "torch's convolutions are 65 % of a step; with all of them" in shown
    assert "(171.5 GFLOP/s) a step would be 1.43 times as fast.\n  The other 35 % are" in shown
    assert "| middle | 2 | gradient of the input | 40.0 | 0.398 |" in shown
    assert (
        "all cores: 0.456, not reached; its training pass alone on one core: 0.512, reac" in shown
    )
    assert "0.398 at a quarter is within it, 0.432 at 0.39 is **above** it." in shown
    assert "The loop.\n\nThe share." in shown
    assert shown.count("| 0.456 |") == 4
    assert shown.count("| 0.123 |") == 4
    assert "| 1.11 | 0.0155 |" in shown
    assert "40.5 s for 10,000 rooms with `peers = 8` (to decode the uploads 1 s" in shown
    assert "| 256 | 0.02 | 0.06 |\n| 1,024 | 0.01 | 0.03 |" in shown
    assert "| 256 | 0.08 | 0.1 |\n| 1,024 | 0.04 | 0.05 |" in shown
    assert "| mixed | 3.1 | 70.0 | 20.0 | 7.0 |" in shown
    assert "4.25 s, 2.5 s of it before the workers start" in shown
    assert _page.NOT_YET not in shown
    del entry["figures"]["startup"]
    assert _page.NOT_YET in _page.render(entry)


@pytest.mark.parametrize(
    ("commit", "aim"),
    [
        ("1827b5ad2b-dirty", "not measured in this entry."),
        # 0.3 + 0.074 · 0.39 · 4
        ("44a9b31d00", "0.374 at a quarter is within it, 0.415 at 0.39 is **above** it."),
    ],
)
def test_entries_without_the_newer_figures_say_so(commit: str, aim: str) -> None:
    entries = [json.loads(line) for line in _history.PATH.read_text().splitlines()]
    shown = _page.render(next(entry for entry in entries if entry["commit"] == commit))
    assert f"at most for mixed: {aim}\n" in shown
    assert f"its training pass alone on one core: {_page.NOT_YET}" in shown
    assert f"the rooms most alike weigh more:\n\n{_page.NOT_YET}" in shown
    assert "{" not in shown and "None" not in shown


def test_the_page_names_the_turns_and_captures_and_simulator() -> None:
    entry = json.loads(_history.PATH.read_text().splitlines()[-1])
    entry["figures"]["captures"]["nexmon"] = {"ours": 1234567, "csiread": None, "ratio": None}
    entry["figures"]["simulator"]["windows_per_second_per_core_at_250_hz"] = 22.75
    shown = _page.render(entry)
    assert f"| Nexmon, 80 MHz | 1,234,567 | {_page.NOT_YET} | {_page.NOT_YET} |" in shown
    assert "| 250 | 4 s | 22.75 |" in shown
    assert "best of 2 turns for Tiny and mixed and of 3 for the\nothers" in shown
    assert training.TURNS == {"tiny": 2, "middle": 3, "large": 3, "mixed": 2}


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
    monkeypatch.setattr("fedapa.rooms.room._SMALL", 0)  # else nobody asks for windows that are kept
    rooms = training.make_rooms(tmp_path, ("tiny", "middle"))
    plan = Plan(rounds=2, algorithm={"name": "fedapa", "warm_rounds": 1})
    algorithm = plan.build()
    seen: list[tuple[str, bytes]] = []
    tensors = Room.tensors

    def watch(asked: Room, index: Any) -> Any:
        seen.append((asked.name, index.tobytes()))
        return tensors(asked, index)

    monkeypatch.setattr(Room, "tensors", watch)
    with InProcess(algorithm, rooms, folder=tmp_path, workers=0) as engine:
        steps = rounds.run(algorithm, engine, plan, dict(rounds.begin(algorithm, engine, plan)))
        next(steps)
        seen.clear()
        next(steps)
        ours = sorted(seen)
        steps.close()
    seen.clear()
    next(training._eager_rounds(rooms, plan, first=2))
    assert sorted(seen) == ours
    assert len(ours) == 2 * (1 + 1 + 2)  # a test batch, all to train and two for prototypes


def test_errors_of_a_sample_fall_and_all_rooms_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregation, "SAMPLES", (20, 320))
    monkeypatch.setattr(aggregation, "CLASSES", 3)
    found = aggregation._errors(320)
    assert [*found] == ["0.5", "0.1"]
    for temperature, kinds in found.items():
        for kind, errors in kinds.items():
            assert errors["20"] > 0.01, (temperature, kind)
            assert errors["320"] < 1e-5, (temperature, kind)
            # Where the rooms most alike weigh more, a sample that lacks them is farther off.
            assert found["0.1"][kind]["20"] > found["0.5"][kind]["20"]


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
    # 0.6 s for a quarter are 0.936 s for 0.39: 2.936 of 8.
    assert shares["without_gradient_at_quick"] == 0.367
    assert shares["reading"] == 0.05
    assert shares["round"]["reading"] == round(0.9 / 10.6, 3)
    assert sum(shares["round"].values()) == pytest.approx(1, abs=2e-3)


def test_the_six_rooms_have_so_many_test_windows() -> None:
    """The page says 0.37. Counted from the preset, without simulating anything."""
    six, plan = preset_of("six-rooms"), Plan.of(preset("tables")).data
    train = test = 0
    for place in six.places:
        takes = itertools.product(place.counts, range(place.days), range(place.recordings))
        cut = [
            (*take, window)
            for take in takes
            for window in range(place.packets_of(take[0], six.window) // six.window)
        ]
        split = split_windows(
            place.scene.room.name,
            [count for count, *_ in cut],
            [str(take) for *take, _ in cut],
            np.array([window * six.window for *_, window in cut]),
            spans=six.window,
            kind=plan.split,
            key=Key(0) / place.scene.room.name,
            test=plan.test,
            validation=plan.validation,
        )
        train, test = train + len(split.train), test + len(split.test)
    assert test / train == pytest.approx(0.37, abs=0.01)


def test_convolutions_beside_a_gemm_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GEMM of 2000 FLOPs in 2 s, 1 s at best: 2000 FLOP/s. Convolutions of 1000 FLOPs would take
    0.5 s; they take 1 + 2 + 0.5 and 1 + 1 + 2.5 s, 8 of 10 s, and would take 3: 10 s become 5."""
    monkeypatch.setattr(passes, "GEMM", 10)
    found = passes._beside_gemm(
        {
            "block2": {"forward": 1.0, "inputs": 2.0, "weights": 0.5, "gemm": 2.0},
            "block3": {"forward": 1.0, "inputs": 1.0, "weights": 2.5, "gemm": 1.0},
        },
        {"block2": 1000.0, "block3": 1000.0},
        10.0,
    )
    assert found["block2"] == {
        "forward_ms": 1000.0,
        "inputs_ms": 2000.0,
        "weights_ms": 500.0,
        "forward_of_gemm": 0.5,
        "inputs_of_gemm": 0.25,
        "weights_of_gemm": 1.0,
    }
    assert found["block3"]["weights_of_gemm"] == 0.2
    assert found["share_of_step"] == 0.8
    assert found["gain_at_gemm"] == 2.0


def test_the_flops_of_convolutions_are_those_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10 × 6 become 5 × 3 and then 3 × 2 positions of 32 channels out of 16."""
    monkeypatch.setattr(training, "SHAPE", (10, 6))
    monkeypatch.setattr(passes, "GEMM", 16)
    (room,) = training.make_rooms(tmp_path, ("middle",))
    asked: dict[str, float] = {}
    monkeypatch.setattr(passes, "_beside_gemm", lambda seconds, flops, step: asked.update(flops))
    passes._convolutions(room, 1.0)
    counted = {layer.name: layer.flops for layer in layers(room.build(), (10, 6))}
    assert asked == {"block2": passes.BATCH * 2 * 9 * 16 * 32 * 6}
    assert asked["block2"] == passes.BATCH * counted["encoder.block2.conv"]


def test_the_share_of_a_training_pass_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "SHAPE", (10, 6))
    rooms = training.make_rooms(tmp_path, ("tiny", "middle"))
    asked = training.TRAIN * sum(map(training.products_of_a_step, rooms))
    found = passes._of_gemm(rooms, {"train": 4.0, "gemm": 2 * passes.GEMM**3 / asked})
    assert found["train_of_gemm"] == 0.25


def test_passes_are_timed_in_turns_with_a_gemm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "SHAPE", (10, 6))
    monkeypatch.setattr(passes, "GEMM", 16)
    seconds, wall = passes._best_seconds(training.make_rooms(tmp_path, ("tiny",)))
    assert set(seconds) == {"train", "prototypes", "score", "reading", "gemm"}
    assert all(0 < each < 60 for each in (*seconds.values(), *wall.values()))
    assert aggregation._looped(3)["loop_ratio"] > 0


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


def test_both_paths_learn_the_same_from_a_small_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the plain way is really the plain one: the fast path is not asked."""
    small = {"rounds": 1, "data": {"simulated": "smoke"}, "model": {"width": 8}}
    seen: list[str] = []
    encode = fast.encode

    def counted(*given: Any) -> Any:
        seen.append("fast")
        return encode(*given)

    monkeypatch.setattr(fast, "encode", counted)
    found = {(way, 0): _paths.one(way, 0, small) for way in _paths.WAYS[1:]}
    assert not seen
    found = {(_paths.WAYS[0], 0): _paths.one(_paths.WAYS[0], 0, small), **found}
    assert seen
    told, rows = _paths.lines(_paths.gather(found))
    assert "SIMULATED" in told
    assert [row[0] for row in rows] == list(_paths.WAYS)
    assert rows[1][2:] == ("–", "–")
    apart = [float(row[3]) for row in (rows[0], rows[2])]
    assert max(map(abs, apart)) < 5  # points after one round


def test_visits_are_scored_by_hand() -> None:
    """Packets each second; nobody until 10 s, one until 20 s, then two; counts every 5 s.

    Errors are 0, 0, 1, 0, 1, 0 (at 0, 5, 10, 15, 20, 25 s): 2 / 6. Empty at 0 and 5 s, called so.
    The first newcomer comes at 10 s and is seen at 15 s, the second at 20 s and seen at 25 s.
    """
    stamps = np.arange(30.0)
    people = np.repeat([0, 1, 2], 10)
    found = live.scores([0, 5, 10, 15, 20, 25], [0, 0, 0, 1, 1, 2], stamps, people)
    assert found["mae"] == pytest.approx(2 / 6)
    assert (found["empty_counts"], found["empty_told"]) == (2, 2)
    assert found["waits"] == [5, 5]
