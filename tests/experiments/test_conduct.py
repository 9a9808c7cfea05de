"""Experiments share their runs, survive interruption and say what runs say."""

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedapa import algorithms
from fedapa.errors import DataError, PlanError, RosterError, RunError
from fedapa.evaluation.results import Results
from fedapa.experiments.conduct import Execution, conduct, folder_name, holds_features
from fedapa.experiments.experiment import (
    CHOSEN,
    MODEL,
    STATISTICAL,
    Base,
    Case,
    Experiment,
    Nets,
)
from fedapa.experiments.experiment import algorithms as cases_of
from fedapa.experiments.joining import (
    FEW_LABELS,
    ONBOARDING,
    UNSEEN_COUNTS,
    WHAT_TRAVELS,
    new_room_case,
)
from fedapa.experiments.learning_curve import LEARNING_CURVE
from fedapa.experiments.presets import preset
from fedapa.experiments.settled import settle
from fedapa.experiments.sweeps import FIG8A, FIG8B, FIG9A, FIG9B, PARTICIPATION, TABLE2
from fedapa.experiments.table1 import FIG6, FIG7, TABLE1
from fedapa.experiments.windows import WINDOWS
from fedapa.federation.plan import DataPlan, Plan
from fedapa.federation.prepare import prepare_rooms
from fedapa.federation.run import Run
from fedapa.processes import Progress
from fedapa.report.captions import caption
from fedapa.report.tables.newcomers import until_it_counts
from fedapa.stores.simulated_rooms import preset_of
from tests.conftest import MakeStore

TINY = Nets("tiny", "tiny nets", "tiny")


def _experiment(*names: str, nets: Nets = TINY, long: bool = False) -> Experiment:
    cases = [replace(case, long=long) for case in cases_of(*names)]
    return Experiment("trial", "A trial", lambda _: cases, (nets,))


def _plans(experiment: Experiment, base: Base) -> dict[tuple[str, str], str]:
    return {
        (nets.name, case.name): folder_name(experiment.plan(base, nets, case, 0))
        for nets in experiment.settings
        for case in experiment.cases(base.plan)
    }


def _wait_for_a_begun_run(folder: Path) -> None:
    """Until some run has rounds and no end: only then is there something to go on with."""
    for _ in range(6000):
        begun = {path.parent for path in folder.glob("*/rounds.jsonl") if path.stat().st_size}
        if any(not (run / "summary.json").exists() for run in begun):
            return
        time.sleep(0.01)
    raise AssertionError("no run was ever half done")


@pytest.mark.parametrize("name", ["smoke", "tables", "paper"])
def test_a_run_done_for_table_1_is_not_done_again(name: str):
    base = Base(name)
    first = _plans(TABLE1, base)
    for other in (TABLE2, FIG6, FIG7, FIG8A, FIG8B, FIG9A, FIG9B, PARTICIPATION):
        mine = _plans(other, base)
        assert mine["model" if other is not FIG6 else "statistical", "fedapa"] in first.values()
        shared = {key: folder for key, folder in mine.items() if key in first}
        assert shared == {key: first[key] for key in shared}
    # Pooled, the linear model and the forest are one run for both settings.
    assert len(set(first.values())) == len(first) - 3


@pytest.mark.parametrize("name", ["smoke", "tables", "paper"])
def test_the_papers_presets_say_what_their_tables_are_of(name: str):
    """A default that changes must not change a table of the paper."""
    pinned = {"view": "amplitude", "links": "first", "split": "recording", "validation_of": "room"}
    assert pinned.items() <= preset(name)["data"].items()
    assert preset(name)["model"]["architecture"] != "auto"


def test_the_papers_nets_are_the_default_of_experiments_and_a_counter_that_of_runs():
    assert Base().preset == "tables"
    assert Base().plan.data.simulated == preset("quick")["data"]["simulated"] == "quick"
    plan = Plan.of(preset("quick"))
    assert (plan.data.view, plan.data.links, plan.data.split) == ("auto", "all", "auto")
    assert plan.model.architecture == "auto"


def test_table_1_has_every_method_and_every_control():
    named = {case.name for case in TABLE1.cases(Base("tables").plan)}
    cells = {"fedapa-average", "fedapa-average-clients", "fedapa-mixture", "fedapa-fixed"}
    few_labels = {"fedjoin-alone", "fedjoin-shuffled", "pooled-newcomer"}
    others = {"fedpcl-self", "fedproto-self"}
    assert named == set(algorithms.names()) - cells - few_labels - others


def test_models_of_numbers_see_the_same_windows_as_statistics(make_store: MakeStore):
    """Where nets see amplitude the forest sees numbers of the same windows, in the same split."""
    base = Base(
        "tables", str(make_store()), changes=[{"data": {"window": 32}, "model": {"width": 8}}]
    )
    local, forest = (case for case in cases_of("local", "forest"))
    plans = [TABLE1.plan(base, STATISTICAL, case, 0) for case in (local, forest)]
    assert [plan.data.view for plan in plans] == ["amplitude", "statistics"]
    for seen, numbers in zip(*(prepare_rooms(plan) for plan in plans), strict=True):
        assert (seen.recipe.view, numbers.recipe.view) == ("amplitude", "statistics")
        for part in ("train", "validation", "test"):
            assert getattr(seen.split, part).tolist() == getattr(numbers.split, part).tolist()


def test_table_2_is_the_full_square():
    cells = {
        (plan["mixture"], plan["peers"])
        for case in TABLE2.cases(Base("tables").plan)
        if (plan := TABLE2.plan(Base("tables"), MODEL, case, 0).algorithm)["name"]
        not in ("local", "fedapa-self")
    }
    assert cells == {(mix, peers) for mix in ("average", "adaptive") for peers in ("none", "all")}


def test_sweeps_are_those_of_the_paper():
    def values(experiment: Experiment, base: Base) -> list[object]:
        return [case.value for case in experiment.cases(base.plan)]

    assert values(FIG8A, Base("paper")) == [128, 256, 512]
    assert values(FIG8B, Base("paper")) == [25, 50, 100]
    assert values(FIG8B, Base("tables")) == [4, 8, 15]  # an eighth, a quarter, a half of 30
    assert values(FIG9A, Base("paper")) == [0.1, 0.5, 0.7, 1.5]
    assert values(FIG9B, Base("paper")) == ["0.1", "0.5", "1.0", "warm-up"]
    plan = FIG9A.plan(Base("tables"), MODEL, FIG9A.cases(Base("tables").plan)[0], 0)
    assert plan.algorithm["temperature"] == plan.algorithm["aggregation_temperature"] == 0.1


def test_smaller_windows_are_as_many(make_store: MakeStore):
    plans = [
        WINDOWS.plan(Base("tables"), WINDOWS.settings[0], case, 0).data
        for case in WINDOWS.cases(Base("tables").plan)
    ]
    assert {(each.simulated, each.stride) for each in plans} == {("six-rooms", 1000)}
    assert [(each.window, each.subcarrier_step) for each in plans] == [
        (packets, step) for step in (1, 4) for packets in (1000, 250, 125)
    ]
    few = Base("tables", file=str(make_store()), changes=({"data": {"window": 16}},))
    assert [case.value for case in WINDOWS.cases(few.plan)] == [16, 4, 2]  # six tones stay


def test_horizons_are_a_quarter_half_all_and_long():
    assert Base("tables").horizons == [8, 15, 30, 120]
    assert Base("tables", rounds=12, long_rounds=0).horizons == [3, 6, 12]
    assert Base("tables", rounds=12).plan.algorithm["warm_rounds"] == 3
    with pytest.raises(PlanError, match="must be more than the 30 rounds"):
        _ = Base("tables", long_rounds=20).longest


def test_all_rows_run_long_on_request_but_those_that_plan_ahead():
    for everybody, long in ((False, {"local", "fedapa", "fedapa-self"}), (True, None)):
        base = Base("tables", all_long=everybody)
        rounds = {
            case.name: TABLE1.plan(base, MODEL, case, 0).rounds for case in TABLE1.cases(base.plan)
        }
        ahead = {"fedproc", "wifederated", "local-more-epochs"}
        assert {name for name, each in rounds.items() if each == 120} == (
            long or rounds.keys() - ahead
        )
        assert set(rounds.values()) == {30, 120}


def test_a_file_has_its_own_windows_under_every_preset():
    """The simulated rooms recommend theirs; a preset's would override what a store says."""
    assert [Base(name).plan.data.window for name in ("smoke", "tables", "paper")] == [None] * 3
    assert preset_of(Base("paper").plan.data.simulated).window == 1000


def test_the_long_run_has_the_short_ones_settings():
    """Its first rounds are the short run's: only then is it read at earlier horizons too."""
    base = Base("tables")
    local, *_ = (case for case in TABLE1.cases(base.plan) if case.name == "fedapa")
    plan = TABLE1.plan(base, STATISTICAL, local, 0)
    assert (plan.rounds, plan.algorithm["warm_rounds"]) == (120, 8)


def test_a_run_is_named_by_what_its_data_holds(tmp_path: Path):
    for name, content in (("a.h5", b"x"), ("b.h5", b"x"), ("c.h5", b"y")):
        (tmp_path / name).write_bytes(content)
    names = [
        folder_name(Base("tables", file=str(tmp_path / name)).plan)
        for name in ("a.h5", "b.h5", "c.h5")
    ]
    assert names[0] == names[1] != names[2]
    with pytest.raises(PlanError, match=r"gone\.h5: cannot be read"):
        folder_name(Base("tables", file=str(tmp_path / "gone.h5")).plan)


def test_every_setting_has_a_run_of_its_own():
    base, usual = Base("tables"), folder_name(Base("tables").plan)
    for change in (
        {"seed": 1},
        {"rounds": 31},
        {"participation": 0.5},
        {"data": {"split": "blocked"}},
        {"model": {"width": 128}},
        {"training": {"learning_rate": 0.01}},
        {"algorithm": {"temperature": 0.1}},
    ):
        assert folder_name(Plan.of(base.plan.document(), change)) != usual


def test_a_finished_run_with_another_default_is_refused(tmp_path: Path):
    """Runs are found by what differs from the defaults: an old run must not pass for a new one."""
    base = Base("smoke", rounds=1, long_rounds=0)
    experiment = _experiment("local")
    conduct(experiment, base, Execution(seeds=1, out=tmp_path, workers=1))
    (plan,) = tmp_path.glob("runs/*/plan.toml")
    plan.write_text(plan.read_text().replace("momentum = 0.5", "momentum = 0.9"))
    with pytest.raises(RunError, match=r"other settings \(training.momentum: 0.9 → 0.5\)"):
        conduct(experiment, base, Execution(seeds=1, out=tmp_path, workers=1, resume=True))


def test_an_unknown_setting_is_named():
    with pytest.raises(PlanError, match=r"setting 'modell' is unknown.*model"):
        TABLE1.under(["modell"], features=False)


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 3},
        {"algorithm": "local"},
        {"algorithm": {"name": "local"}},
        {"model": {"architecture": "tiny"}},
        {"data": {"file": "other.h5"}},
    ],
)
def test_what_cases_decide_cannot_be_changed_for_all_of_them(change: dict):
    with pytest.raises(PlanError, match="cannot be set for a whole experiment"):
        _ = Base("tables", changes=(change,)).plan


def test_an_experiment_about_its_setting_has_no_other():
    for experiment, other in ((FIG6, "model"), (FIG7, "statistical"), (WINDOWS, "model")):
        with pytest.raises(PlanError, match=f"{experiment.name} has one setting only"):
            experiment.under([other], features=False)
    for experiment in (FIG7, WINDOWS):
        with pytest.raises(PlanError, match="means nothing for feature vectors"):
            experiment.under(None, features=True)
    with pytest.raises(PlanError, match="leave --setting out"):
        TABLE1.under(["model"], features=True)
    assert TABLE1.under(["model", "model"], features=False).settings == (MODEL,)


def test_all_rooms_take_part_in_the_row_that_says_so():
    base = Base("tables", changes=({"participation": 0.5},))
    *_, everybody = PARTICIPATION.cases(base.plan)
    assert PARTICIPATION.plan(base, MODEL, everybody, 0).participation == 1


@pytest.mark.parametrize(
    ("rooms", "said"),
    [
        ("ab", "Rooms that take part in a round: ρ = 0.33: 1 of 2; ρ = 0.67: 1 of 2."),
        ("a", "There is one room, with nobody to learn from: rows differ by how it trains alone."),
    ],
)
def test_results_tell_how_many_rooms_a_share_is(
    rooms: str, said: str, make_store: MakeStore, tmp_path: Path
):
    store = make_store({room: {0: 4, 1: 4} for room in rooms}, packets=32)
    change = {"data": {"window": 16}, "model": {"width": 16}, "training": {"batch_size": 4}}
    base = Base("smoke", str(store), "random", rounds=1, long_rounds=0, changes=(change,))
    shares = [Case(f"{share}", {"participation": share}, "x") for share in (1.0, 0.67, 0.33)]
    experiment = Experiment("trial", "A trial", lambda _: shares, (TINY,))
    assert said in conduct(experiment, base, Execution(seeds=1, out=tmp_path / "out")).results.notes


def test_results_tell_who_learns_from_windows_without_a_label(
    make_store: MakeStore, tmp_path: Path
):
    store = make_store({"a": {0: 4, 1: 4, None: 1}, "b": {0: 4, 1: 4}}, packets=32)
    change = {"data": {"window": 16}, "model": {"width": 16}, "training": {"batch_size": 4}}
    base = Base("smoke", str(store), "random", rounds=1, long_rounds=0, changes=(change,))
    for names, said in (
        (("local", "fedjoin"), "Of all rows only those of FedJoin learn from windows without a"),
        (("local",), "No row learns from windows without a label; fedjoin would."),
    ):
        out = Execution(seeds=1, out=tmp_path / names[-1], workers=1)
        notes = conduct(_experiment(*names), base, out).results.notes
        assert any(note.startswith(said) for note in notes)


def test_a_run_goes_on_when_its_file_is_called_by_another_path(
    make_store: MakeStore, tmp_path: Path
):
    counts = {0: 4, 1: 4}
    store = make_store({"a": counts, "b": counts}, packets=32)
    (tmp_path / "other").symlink_to(tmp_path, target_is_directory=True)
    change = {"data": {"window": 16}, "model": {"width": 16}, "training": {"batch_size": 4}}

    def base(path: Path) -> Base:
        return Base("smoke", str(path), split="random", rounds=3, long_rounds=0, changes=(change,))

    def interrupt(progress: Progress) -> None:
        if progress.stage == "training":
            _wait_for_a_begun_run(out / "runs")
            raise KeyboardInterrupt

    experiment, out = _experiment("local"), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        conduct(experiment, base(store), Execution(seeds=2, out=out, workers=1, show=interrupt))
    again = base(tmp_path / "other" / store.name)
    done = conduct(experiment, again, Execution(seeds=2, out=out, workers=1, resume=True))
    assert {run.plan.data.file for run in done.runs.values()} == {again.file}
    assert done.results.settings[0].data["source"] == store.name


def test_commits_of_a_resumed_run_are_all_told(tmp_path: Path):
    base, experiment = Base("smoke", rounds=1, long_rounds=0), _experiment("local")
    conduct(experiment, base, Execution(seeds=1, out=tmp_path, workers=1))
    (path,) = tmp_path.glob("runs/*/environment.json")
    made_with = json.loads(path.read_text())
    resumed = [{**made_with, "commit": "b"}]
    path.write_text(json.dumps({**made_with, "commit": "a", "resumed": resumed}))
    results = conduct(experiment, base, Execution(seeds=1, out=tmp_path, resume=True)).results
    assert results.commits == ["a", "b"]
    assert "commit a, b" in caption(results.settings[0])


def test_windows_that_are_not_as_many_are_told(make_store: MakeStore, tmp_path: Path):
    """Takes of 40 packets hold one window of 32, and two of 8 at the same stride."""
    counts = {0: 4, 1: 4}
    store = make_store({"a": counts, "b": counts}, packets=40)
    change = {"data": {"window": 32}, "model": {"width": 16}, "training": {"batch_size": 4}}
    base = Base("smoke", str(store), split="random", rounds=1, changes=(change,))
    results = conduct(WINDOWS, base, Execution(seeds=1, out=tmp_path / "out", workers=1)).results
    assert "32 packets (full): 16; 8 packets: 32; 4 packets: 32" in results.notes[-1]


def test_an_experiment_is_the_same_after_an_interruption(tmp_path: Path):
    base = Base("smoke", rounds=3, long_rounds=6)
    experiment = _experiment("local", "fedapa", long=True)
    whole = conduct(experiment, base, Execution(seeds=2, out=tmp_path / "whole", workers=2))

    def interrupt(progress: Progress) -> None:
        if progress.stage == "training":
            _wait_for_a_begun_run(tmp_path / "cut" / "runs")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        conduct(
            experiment, base, Execution(seeds=2, out=tmp_path / "cut", workers=1, show=interrupt)
        )
    with pytest.raises(RunError, match=r"unfinished runs of this experiment.*--resume"):
        conduct(experiment, base, Execution(seeds=2, out=tmp_path / "cut", workers=1))
    again = conduct(
        experiment, base, Execution(seeds=2, out=tmp_path / "cut", workers=1, resume=True)
    )

    assert again.results.settings == whole.results.settings
    assert Results.load(tmp_path / "cut" / "trial" / "results.json").seeds == [0, 1]
    # At the last horizon the figures are the run's own summary.
    (setting,) = again.results.settings
    assert setting.horizons == [1, 2, 3, 6]
    for row in setting.rows[:2]:
        for outcome in row.outcomes:
            summary = Run.load(tmp_path / "cut" / outcome.run).summary
            assert outcome.at["6"]["mean"] == summary["over_rooms"]["mean"]
            assert outcome.bytes[-1] == sum(
                summary["bytes"][way] for way in ("bytes_up", "bytes_down")
            )
    assert [row.name for row in setting.rows] == ["local", "fedapa", "constant", "prior"]

    with pytest.raises(RunError, match="already holds results"):
        conduct(experiment, base, Execution(seeds=2, out=tmp_path / "cut"))
    with pytest.raises(
        RunError, match=r"results\.json: also holds seed 1; ask for at least as much"
    ):
        conduct(experiment, base, Execution(seeds=1, out=tmp_path / "cut", resume=True))
    fewer = replace(experiment, cases=lambda _: cases_of("local"))
    with pytest.raises(RunError, match="also holds fedapa;"):
        conduct(fewer, base, Execution(seeds=2, out=tmp_path / "cut", resume=True))
    # Who asks for a shorter long horizon, or for none, loses no figure and trains nothing.
    for long_rounds, marks in ((0, [1, 2, 3, 6]), (5, [1, 2, 3, 5, 6])):
        less = Base("smoke", rounds=3, long_rounds=long_rounds)
        kept = conduct(experiment, less, Execution(seeds=2, out=tmp_path / "cut", resume=True))
        assert kept.results.settings[0].horizons == marks
        for row, before in zip(kept.results.settings[0].rows, setting.rows, strict=True):
            for outcome, old in zip(row.outcomes, before.outcomes, strict=True):
                assert outcome.at["6"] == old.at["6"]
    with pytest.raises(RunError, match="also holds local to round 6 in setting tiny, fedapa"):
        fewer_rounds = Base("smoke", rounds=2, long_rounds=0)
        conduct(experiment, fewer_rounds, Execution(seeds=2, out=tmp_path / "cut", resume=True))
    # Another experiment there finds its runs done: nothing is left to do.
    began = {path: path.stat().st_mtime_ns for path in (tmp_path / "cut" / "runs").iterdir()}
    shutil.copytree(tmp_path / "cut" / "runs", tmp_path / "new" / "runs")
    other = Experiment("other", "", lambda _: cases_of("fedapa"), (TINY,))
    conduct(other, base, Execution(seeds=2, out=tmp_path / "cut"))
    assert began == {
        path: path.stat().st_mtime_ns for path in (tmp_path / "cut" / "runs").iterdir()
    }


def test_a_longer_horizon_goes_on_from_the_shorter_runs(tmp_path: Path):
    experiment = _experiment("local", "fedproc", long=True)
    short = Base("smoke", rounds=2, long_rounds=4)
    conduct(experiment, short, Execution(seeds=1, out=tmp_path, workers=1))
    longer = conduct(
        experiment,
        Base("smoke", rounds=2, long_rounds=6),
        Execution(seeds=1, out=tmp_path, resume=True, workers=1),
    )
    fresh = conduct(
        experiment,
        Base("smoke", rounds=2, long_rounds=6),
        Execution(seeds=1, out=tmp_path / "b", workers=1),
    )
    for name in ("local", "fedproc"):
        grown, once = (found.runs["tiny", name, 0] for found in (longer, fresh))
        assert grown.records == once.records
        # FedProc's schedule is another from its first round on, so it was not gone on with.
        assert ("resumed" in grown.environment) == (name == "local")
    assert len(list((tmp_path / "runs").iterdir())) == 4  # the shorter ones are still there


def test_what_no_run_could_do_is_refused_before_any_starts(tmp_path: Path):
    cases = [*cases_of("local"), Case("pooled", {"algorithm": "pooled"}, "Pooled")]
    mixed = Nets("mixed", "", "by-size")
    experiment = Experiment("trial", "", lambda _: cases, (mixed,))
    with pytest.raises(RosterError, match="Pooled is one net for all"):
        conduct(experiment, Base("smoke"), Execution(seeds=1, out=tmp_path))
    assert not (tmp_path / "runs").exists()


def test_nets_that_differ_in_too_few_rooms_can_be_left_out(
    make_store: MakeStore, tmp_path: Path
) -> None:
    base = Base("smoke", file=str(make_store()), rounds=1, changes=({"data": {"window": 16}},))
    with pytest.raises(RosterError, match="or leave nets that differ out with --setting"):
        conduct(_experiment("fedavg", nets=MODEL), base, Execution(seeds=1, out=tmp_path))
    assert not (tmp_path / "runs").exists()


def test_every_seeds_split_is_tried_before_any_run(
    make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(plan: Plan, *args: Any, **kwargs: Any) -> Any:
        if plan.seed == 2:
            raise DataError("this split leaves nothing to test")
        return prepare_rooms(plan, *args, **kwargs)

    monkeypatch.setattr("fedapa.experiments.conduct.prepare_rooms", prepare)
    base = Base("smoke", file=str(make_store()), rounds=1, changes=({"data": {"window": 16}},))
    with pytest.raises(DataError, match="leaves nothing"):
        conduct(_experiment("local", "fedapa"), base, Execution(seeds=3, out=tmp_path))
    assert not (tmp_path / "runs").exists()


def test_alternatives_have_rows_and_fine_tuned_copies_their_rounds(tmp_path: Path):
    experiment = _experiment("fedproto", "local-more-epochs")
    base = Base("smoke", rounds=4, long_rounds=0)
    done = conduct(experiment, base, Execution(seeds=1, out=tmp_path, workers=2))
    (setting,) = done.results.settings
    assert [row.name for row in setting.rows][:3] == [
        "fedproto",
        "fedproto.nearest",
        "local-more-epochs",
    ]
    first, second, tuned = setting.rows[:3]
    assert first.outcomes[0].curve["accuracy"] != second.outcomes[0].curve["accuracy"]
    assert first.outcomes[0].scored is None
    assert tuned.outcomes[0].scored == [1, 2, 3, 4]
    assert second.moves
    assert second.outcomes[0].bytes == first.outcomes[0].bytes  # the same messages, read otherwise
    assert any("Local, equal epochs" in note for note in done.results.notes)


def test_features_leave_out_what_the_mlp_cannot_do():
    plan = Base("tables").plan
    features = TABLE1.under(None, features=True)
    names = [case.name for case in TABLE1.cases(plan)]
    assert [case.name for case in features.cases(plan)] == [n for n in names if n != "fedbn"]
    assert any("FedBN is left out" in note for note in features.notes)
    assert TABLE2.under(None, features=True).notes == TABLE2.notes


def test_simulated_rooms_hold_no_features():
    assert not holds_features(DataPlan())


def test_a_learning_curve_is_of_the_same_test_windows(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """Five recordings of each count: one tests, one validates; 1, 2 and all three train."""
    store = make_store({"cafe": {0: 5, 1: 5}, "hall": {0: 5, 2: 5}}, packets=64)
    base = Base(
        preset="quick",
        file=str(store),
        split="recording",
        rounds=1,
        long_rounds=0,
        changes=[{"data": {"window": 32, "overlap": 0.0, "validation": 0.2}}],
    )
    done = conduct(LEARNING_CURVE, base, Execution(1, tmp_path / "out", workers=1))
    (setting,) = done.results.settings
    assert {name: [row.value for row in line] for name, line in setting.lines.items()} == {
        title: [1, 2, 3] for title in ("Local", "FedAPA", "Linear model", "Random forest")
    }
    rooms = {name: run.data["rooms"]["cafe"] for (_, name, _), run in done.runs.items()}
    assert {room["test"] for room in rooms.values()} == {4}
    assert [rooms[f"local-{number}"]["train"] for number in (1, 2, 3)] == [4, 8, 12]
    assert len({rooms[name]["fingerprint"] for name in ("local-2", "fedapa-2")}) == 1


def test_a_learning_curve_counts_what_is_left_to_train_on(make_store: MakeStore) -> None:
    """Of four recordings one tests and one validates, though a share of a fifth would be less."""
    store = make_store({"cafe": {0: 4, 1: 3}, "hall": {0: 4, 1: 4}}, packets=64)
    data = {"window": 32, "overlap": 0.0, "validation": 0.1}
    base = Base("quick", str(store), split="recording", rounds=1, changes=[{"data": data}])
    assert sorted({case.value for case in LEARNING_CURVE.cases(base.plan)}) == [1, 2]


def test_each_room_in_turn_joins_the_others(make_store: MakeStore, tmp_path: Path) -> None:
    """One federation for each room serves both numbers of labels; a third run adds nothing."""
    counts = {0: 5, 1: 5, 2: 5}
    store = make_store({"cafe": counts, "hall": counts, "den": {0: 5, 1: 5}}, packets=64)
    data = {"window": 32, "overlap": 0.0, "validation": 0.1}
    base = Base(
        "quick", str(store), split="recording", rounds=1, long_rounds=0, changes=[{"data": data}]
    )

    def cases(plan: Plan) -> list[Case]:
        return [
            new_room_case(plan, name, labels, str(number), number)
            for name in ("local", "fedjoin", "pooled-newcomer")
            for number, labels in ((1, {"train_recordings": 1}), (3, {}))
        ]

    asked = Experiment("trial", "A trial", cases, (CHOSEN,), parameter="labels", fixed=True)
    out = tmp_path / "out"
    done = conduct(asked, base, Execution(1, out, workers=1))
    runs = {name: run for (_, name, _), run in done.runs.items()}
    assert {run.plan.classes for run in runs.values()} == {None, (0, 1, 2)}
    poor, rich = runs["fedjoin-1"], runs["fedjoin-3"]
    assert poor.plan.joins == rich.plan.joins
    for room, folder in poor.plan.joins.items():
        assert room not in Run.load(folder).data["rooms"]
        assert len(Run.load(folder).data["rooms"]) == 2
    assert len(list((out / "runs").iterdir())) == 6 + 3
    about = poor.data["rooms"]["cafe"]
    assert (about["train"], about["validation"]) == (3 * 2, 0)
    assert about["unlabelled"] == 3 * 2 * 2 + 3 * 2, "the other train recordings, and validation"
    (setting,) = done.results.settings
    table = until_it_counts(setting, done.runs, parameter="labels")
    assert table is not None
    found = {(row[0], row[1]): row for row in table.rows}
    cells = found["FedJoin", "1"]
    assert cells[2] == f"{np.mean([room['train'] for room in poor.data['rooms'].values()]):.0f}"
    assert cells[3] == "1.0", "one round is all there was"
    assert float(cells[4]) >= 0
    before = np.mean([room["accuracy"] for room in poor.before["rooms"].values()])
    assert cells[5] == f"{100 * before:.1f}"
    assert cells[6] == f"{100 * poor.records[0]['mean']['accuracy']:.1f}"
    (poor.folder / "before.json").unlink()  # as runs of earlier code are
    kept = {key: Run.load(run.folder) for key, run in done.runs.items()}
    assert (older := until_it_counts(setting, kept, parameter="labels")) is not None
    assert {row[5] for row in older.rows if row[:2] == ["FedJoin", "1"]} == {"–"}
    alone = {key: run for key, run in done.runs.items() if not run.plan.joins}
    assert until_it_counts(setting, alone, parameter="labels") is None, "nobody joins there"
    again = conduct(asked, base, Execution(1, out, resume=True, workers=1))
    assert again.results.summary()["settings"] == done.results.summary()["settings"]


def test_unseen_counts_have_figures_of_their_own(make_store: MakeStore, tmp_path: Path) -> None:
    counts = {0: 5, 1: 5, 2: 5, 4: 5}
    store = make_store({"cafe": counts, "hall": counts}, packets=64)
    data = {"window": 32, "overlap": 0.0}
    base = Base(
        "quick", str(store), split="recording", rounds=1, long_rounds=0, changes=[{"data": data}]
    )
    lower = replace(UNSEEN_COUNTS, cases=lambda plan: UNSEEN_COUNTS.cases(plan)[:2])
    done = conduct(lower, base, Execution(1, tmp_path / "out", workers=1))
    (setting,) = done.results.settings
    assert [row.title for row in setting.rows[:2]] == [
        "Local, lower half labelled",
        "FedAvg, lower half labelled",
    ]
    local = setting.rows[0]
    assert local.metrics(1, "unseen_accuracy") == [0.0], "it has never heard of two or four people"
    assert local.metrics(1, "unseen_mae") is not None


def test_another_net_is_left_out_where_it_cannot_be(make_store: MakeStore) -> None:
    counts = {0: 5, 1: 5, 2: 5, 3: 5}
    store = make_store({"cafe": counts, "hall": counts}, packets=64)
    asked = replace(
        UNSEEN_COUNTS, cases=lambda plan: [c for c in UNSEEN_COUNTS.cases(plan) if c.joins]
    )
    for view, there in (("statistics", True), ("amplitude", False)):
        data = {"window": 32, "overlap": 0.0, "view": view}
        base = Base("quick", str(store), split="recording", rounds=1, changes=[{"data": data}])
        settled = settle(asked, base, CHOSEN)
        nets = [case for case in settled.cases if "carried over" in case.title]
        assert (len(nets) == 6) == there
        assert any("takes vectors, not matrices" in note for note in settled.notes) != there
    few = make_store({"cafe": {0: 5, 1: 5}, "hall": {0: 5, 1: 5}}, packets=64, name="few.h5")
    with pytest.raises(PlanError, match="unseen-counts: the rooms have the classes 0, 1; 4 counts"):
        settle(asked, replace(base, file=str(few)), CHOSEN)


def test_onboarding_has_every_method_and_says_what_is_counted(make_store: MakeStore) -> None:
    counts = {0: 5, 1: 5}
    store = make_store({"cafe": counts, "hall": counts}, packets=64)
    data = {"window": 32, "overlap": 0.0}
    base = Base("quick", str(store), split="recording", rounds=1, changes=[{"data": data}])
    cases = ONBOARDING.cases(base.plan)
    by_name = {case.name: case for case in cases}
    assert by_name["local-1"].change["data"] == {"train_recordings": 1, "unlabelled": "keep"}
    assert by_name["local-3"].change["data"] == {}
    assert by_name["local-1"].joins is None
    assert by_name["local-1"].change["algorithm"] == {"name": "local"}
    short = FEW_LABELS.cases(replace(base, rounds=6).plan)
    guessing = next(case for case in short if case.name == "fedjoin-unlabelled-1")
    assert guessing.change["algorithm"]["labelled_rounds"] == 2, "of six rounds"
    assert by_name["fedavg-1"].joins == {"algorithm": "fedavg"}
    assert {case.name for case in cases} >= {"fedjoin-2", "pooled-newcomer-3", "forest-1", "moon-1"}
    assert "moon-2" not in by_name
    single = make_store({"cafe": {0: 1, 1: 1}, "hall": {0: 1, 1: 1}}, packets=640, name="one.h5")
    base = replace(base, file=str(single), split="blocked")
    first = ONBOARDING.cases(base.plan)[0]
    assert first.change["data"]["train_windows"] == 3
    cases = ONBOARDING.cases(base.plan)
    assert ONBOARDING.reference_among(cases) == "fedjoin-3", "the smallest number there is"
    assert ONBOARDING.reference_among([case for case in cases if case.name == "local-3"]) not in {
        case.name for case in cases
    }
    assert WHAT_TRAVELS.reference_among(WHAT_TRAVELS.cases(base.plan)) == "fedjoin"


def test_an_experiment_with_some_of_its_methods() -> None:
    few = TABLE1.with_methods(["local", "fedproto"])
    assert [case.name for case in few.cases(Base("tables").plan)] == ["local", "fedproto"]
    sweep = FIG8B.with_methods(["fedapa"])  # whose cases name no algorithm
    plan = Base("tables").plan
    assert [case.name for case in sweep.cases(plan)] == [case.name for case in FIG8B.cases(plan)]


def test_what_travels_has_bytes_that_fall(make_store: MakeStore, tmp_path: Path) -> None:
    """Weights in every second round cost half of them; int8 a quarter; alone nothing travels."""
    counts = {0: 5, 1: 5}
    store = make_store({"cafe": counts, "hall": counts}, packets=64)
    changes = [{"data": {"window": 32, "overlap": 0.0, "view": "statistics"}}]
    base = Base("quick", str(store), split="recording", rounds=5, long_rounds=0, changes=changes)
    wanted = {"fedjoin", "fedjoin-every-2", "fedjoin-int8", "fedjoin-alone"}

    def cases(plan: Plan) -> list[Case]:
        return [case for case in WHAT_TRAVELS.cases(plan) if case.name in wanted]

    done = conduct(replace(WHAT_TRAVELS, cases=cases), base, Execution(1, tmp_path, workers=1))
    (setting,) = done.results.settings
    sizes = {row.name: row.outcomes[0].bytes[-1] for row in setting.rows if row.name in wanted}
    whole = sizes["fedjoin"]
    assert 0.4 * whole < sizes["fedjoin-every-2"] < 0.6 * whole
    assert 0.2 * whole < sizes["fedjoin-int8"] < 0.35 * whole
    assert sizes["fedjoin-alone"] < 0.01 * whole
