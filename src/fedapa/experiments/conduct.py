"""Carry an experiment out: every run once, all cores, interrupted at any point and gone on with.

::

    OUT/runs/ALGORITHM-DIGEST/   one run, shared by all experiments that need it
    OUT/EXPERIMENT/results.json  every seed; beside it tables, figures and a page

The digest is of the plan and of the data's content: a changed file or simulator is another run.
Runs are independent, so each has a process of its own, and as many go on as there are cores.
"""

import hashlib
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedapa import processes
from fedapa.algorithms import find
from fedapa.algorithms.algorithm import settings_of
from fedapa.algorithms.caring import Caring
from fedapa.errors import FedapaError, PlanError, RosterError, RunError
from fedapa.evaluation.record import LAST, dump
from fedapa.evaluation.results import Results, Row, Setting
from fedapa.experiments.experiment import MODEL, Base, Experiment, Nets
from fedapa.experiments.settled import Settled, settle
from fedapa.federation import rounds
from fedapa.federation.cohort import number_of
from fedapa.federation.engines.in_process import InProcess
from fedapa.federation.environment import environment
from fedapa.federation.plan import DataPlan, Plan, differences
from fedapa.federation.prepare import (
    agree_by_cards,
    check_batches,
    check_nets,
    check_training,
    prepare_rooms,
)
from fedapa.federation.run import Run, run
from fedapa.files import folder_aside
from fedapa.learning.fit import Training
from fedapa.learning.private import Privacy
from fedapa.processes import Show, available_cores, unseen
from fedapa.report.runs import Runs, setting_of
from fedapa.stores.simulated_rooms import preset_hash, preset_of
from fedapa.stores.store import Store
from fedapa.toml import parse_toml, read_toml
from fedapa.windows.labels import Label
from fedapa.windows.views import find_view

__all__ = [
    "Conducted",
    "Execution",
    "conduct",
    "finish",
    "folder_name",
    "holds_features",
    "refuse_results",
]


@dataclass(frozen=True)
class Execution:
    """How experiments are carried out."""

    seeds: int
    """How many; they are 0, 1, 2, …"""
    out: Path
    """The directory of runs and results; experiments there share their runs."""
    resume: bool = False
    """Whether to go on with unfinished runs there, and make results again that are there."""
    workers: int | None = None
    """Runs side by side; by default one a core."""
    show: Show = unseen
    """Called as work goes on."""
    command: str = ""
    """How a user asked for this, noted in the results."""


@dataclass(frozen=True, eq=False)
class Conducted:
    """A carried out experiment: its results, and the runs behind them."""

    results: Results
    runs: Runs


def conduct(experiment: Experiment, base: Base, how: Execution) -> Conducted:
    """Do the runs that are missing and collect all of them."""
    seeds, out, workers = how.seeds, how.out, how.workers
    if seeds < 1:
        raise PlanError(f"seeds {seeds}: at least one is needed")
    settled = [(nets, settle(experiment, base, nets, how.show)) for nets in experiment.settings]
    plans: dict[tuple[str, str, int], Plan] = {}
    federations: dict[Path, Plan] = {}
    for nets, alike in settled:
        for case in alike.cases:
            for seed in range(seeds):
                plan = experiment.plan(alike.base, nets, case, seed)
                if case.joins is not None:
                    theirs = experiment.federation(alike.base, nets, case, seed)
                    plan, joined = _in_turn(plan, theirs, out / "runs")
                    federations |= joined
                plans[nets.name, case.name, seed] = plan
    followed = experiment.follow is not None
    earlier = _earlier(out / experiment.name / "results.json") if how.resume else {}
    if earlier and not followed:
        plans = _as_long_as_before(plans, earlier, out / "runs", rounds=base.plan.rounds)
    folders = {key: out / "runs" / folder_name(plan) for key, plan in plans.items()}
    missing = _missing({folders[key]: plan for key, plan in plans.items()})
    first = _missing(federations)
    if not how.resume:
        _refuse_leftovers(out, experiment, {**first, **missing})
    _refuse_less(out / experiment.name / "results.json", plans, followed=followed)
    _check([*first.values(), *missing.values()], how.show)
    cores = available_cores() if workers is None else max(1, workers)
    for stage in (first, missing):  # nobody joins what is not finished
        begun = {folder: _begin_with_shorter(folder, plan) for folder, plan in stage.items()}
        _carry_out(begun, cores, how.show)
    runs = {key: Run.load(folder) for key, folder in folders.items()}
    settings = [
        _setting(experiment, alike, nets, runs, out, earlier.get(nets.name))
        for nets, alike in settled
    ]
    results = Results(
        experiment=experiment.name,
        title=experiment.title,
        preset=base.preset,
        settings=settings,
        seeds=list(range(seeds)),
        environment={**environment(workers), "command": how.command},
        parameter=experiment.parameter,
        notes=[
            *experiment.notes,
            *dict.fromkeys(note for _, alike in settled for note in alike.notes),
            *_notes(plans.values()),
            *_unequal(settings, runs),
            *_who_takes_part(plans.values(), len(settings[0].data["rooms"])),
            *_who_learns_unlabelled(plans.values(), settings),
        ],
    )
    if base.file is not None:  # a run may have been made when its data lay elsewhere
        runs = {key: replace(done, plan=_by(done.plan, base.file)) for key, done in runs.items()}
    if experiment.follow is not None:
        results = experiment.follow(results, runs, how.show)
    (out / experiment.name).mkdir(parents=True, exist_ok=True)
    results.save(out / experiment.name / "results.json")
    return Conducted(results, runs)


def finish(
    plans: Mapping[Path, Plan], *, workers: int | None, show: Show = unseen
) -> dict[Path, Run | FedapaError]:
    """Do the runs of some folders that are missing there; a run that fails is no harm to others.

    Returns the finished runs, and why the others have not finished.
    """
    missing = _missing(plans)
    _check(missing.values(), show)
    failed: dict[Path, FedapaError] = {}
    _carry_out(missing, available_cores() if workers is None else workers, show, failed)
    return {folder: failed.get(folder) or Run.load(folder) for folder in plans}


def _missing(plans: Mapping[Path, Plan]) -> dict[Path, Plan]:
    """The runs that are not finished; refuses finished ones that were made with other settings."""
    missing = {}
    for folder, plan in plans.items():
        if (folder / "summary.json").is_file():
            _check_finished(folder, plan)
        else:
            missing[folder] = _as_begun(folder, plan)
    return missing


def _in_turn(plan: Plan, theirs: Plan, runs: Path) -> tuple[Plan, dict[Path, Plan]]:
    """The plan whose rooms each join the federation of the others, and those federations.

    All know of the same classes, also of those that the new room alone has.
    """
    # Neither hangs on the algorithm or the seed: asked once for all of them.
    document = theirs.document()
    asked = {name: document[name] for name in document if name in ("classes", "data", "model")}
    rooms, classes = _told(Plan.of(asked).toml())
    if len(rooms) < 2:
        raise PlanError("there is one room, so no federation of others that it could join")
    federations = {}
    joins = {}
    for room in rooms:
        without = sorted({*(theirs.data.without or ()), room})
        others = Plan.of(theirs.document(), {"classes": classes, "data": {"without": without}})
        folder = runs / folder_name(others)
        federations[folder] = others
        joins[room] = str(folder)
    return Plan.of(plan.document(), {"classes": classes, "joins": joins}), federations


@lru_cache(maxsize=64)
def _told(plan: str) -> tuple[tuple[str, ...], tuple[Label, ...]]:
    """The rooms of a plan, and their classes."""
    agreed = agree_by_cards(Plan(**parse_toml(plan, "a plan")), workers=None)
    return tuple(sorted(agreed.nets)), agreed.classes


def _setting(
    experiment: Experiment,
    alike: Settled,
    nets: Nets,
    runs: Runs,
    out: Path,
    earlier: Setting | None,
) -> Setting:
    """A setting with the results of its runs; long horizons that were there before stay."""
    rounds, marks = alike.base.plan.rounds, alike.base.horizons
    longest = max(done.plan.rounds for key, done in runs.items() if key[0] == nets.name)
    before = () if earlier is None else earlier.horizons
    marks = sorted({*marks, *(mark for mark in before if rounds < mark <= longest)})
    reference = experiment.reference_among(alike.cases)
    empty = Setting(nets.name, nets.title, rounds, marks, [], {}, reference=reference)
    cases = [
        (
            Row(case.name, case.title, case.group, [], value=case.value),
            [done for key, done in runs.items() if key[:2] == (nets.name, case.name)],
        )
        for case in alike.cases
    ]
    setting = setting_of(empty, cases, below=out, exchanged=experiment.keeps_exchanged)
    if experiment.combined is not None:
        setting = replace(setting, rows=experiment.combined(setting.rows))
    why = {"view_why": alike.view_why} if alike.view_why else {}
    return replace(setting, data={**setting.data, **why})


def _by(plan: Plan, file: str) -> Plan:
    return Plan.of(plan.document(), {"data": {"file": file}})


def _as_begun(folder: Path, plan: Plan) -> Plan:
    """The plan by the path that the run there was begun with, if the same data lies there too."""
    try:
        begun = str(read_toml(folder / "plan.toml")["data"]["file"])
    except (PlanError, LookupError, TypeError):
        return plan  # nothing was begun, or it is for the run to explain
    same = Path(begun).is_file() and folder_name(_by(plan, begun)) == folder.name
    return _by(plan, begun) if same else plan


def _begin_with_shorter(folder: Path, plan: Plan) -> Plan:
    """Where a run with fewer rounds is done, go on from a copy of it instead of from nothing.

    Not where rooms add noise: those of the shorter run have spent their budget on fewer rounds.
    Returns the plan by the path that the copied run was begun with.
    """
    kind = find(plan.algorithm["name"])
    if folder.exists() or kind.plans_ahead or plan.privacy.is_on:
        return plan
    by_rounds: dict[int, tuple[Path, Plan]] = {}
    for summary in folder.parent.glob(f"{kind.name}-*/summary.json"):
        done, shorter = summary.parent, Plan(**read_toml(summary.parent / "plan.toml"))
        if shorter.rounds >= plan.rounds:
            continue
        file = shorter.data.file
        same = plan if file is None or not Path(file).is_file() else _by(plan, file)
        wanted = Plan.of(same.document(), {"rounds": shorter.rounds})
        alike = same.data.file == file and folder_name(wanted) == done.name
        if alike and Run.can_go_on(done):
            by_rounds[shorter.rounds] = done, same
    if not by_rounds:
        return plan
    source, same = by_rounds[max(by_rounds)]
    with folder_aside(folder) as partial:
        shutil.copytree(source, partial, dirs_exist_ok=True)
    return same


def holds_features(data: DataPlan) -> bool:
    """Whether nets see vectors of numbers: by the view, or because a store holds no packets."""
    if data.view != "auto" and find_view(data.view).is_flat:
        return True
    if data.file is None:
        return False
    with Store(Path(data.file)) as store:
        rooms = data.rooms_of(store)
        return any(recording.is_features for room in rooms for recording in store.recordings(room))


def folder_name(plan: Plan) -> str:
    """A run's folder: its algorithm, and a digest of what decides its numbers.

    Values left to default are not in the digest, so that plans may gain settings without losing
    their runs; a default that changed is found by ``_check_finished``. The same file by another
    path is the same run; the same path with other rooms is not.
    """
    kind = find(plan.algorithm["name"])
    chosen = plan.model_dump(mode="python", exclude_defaults=True)
    chosen["training"] = _changed(asdict(plan.training), asdict(Training()))
    chosen["algorithm"] = _changed(plan.algorithm, settings_of(kind))
    if plan.privacy.is_on:
        chosen["privacy"] = _changed(asdict(plan.privacy), asdict(Privacy()))
    chosen.setdefault("data", {})["file"] = _content(plan.data.file, plan.data.simulated)
    if plan.joins:  # the names of runs are digests
        chosen["joins"] = {room: Path(folder).name for room, folder in plan.joins.items()}
    digest = hashlib.blake2b(dump(chosen).encode(), digest_size=6).hexdigest()
    return f"{kind.name}-{digest}"


def _changed(values: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if usual.get(key) != value}


def _check_finished(folder: Path, plan: Plan) -> None:
    """Refuse a finished run whose plan is not the wanted one: a default has changed since."""
    wanted, finished = plan.document(), Run.load(folder).plan.document()
    for document in (wanted, finished):  # whose content is in the folder's name
        document["data"].pop("file", None)
        document.pop("joins", None)
    if changed := differences(finished, wanted):
        raise RunError(
            f"{folder}: was made with other settings ({'; '.join(changed)}); choose another --out"
        )


def _content(store: str | None, simulated: str) -> str:
    """What the data is, by its content."""
    if store is None:
        return f"simulated {preset_hash(preset_of(simulated))}"
    path = Path(store)
    try:
        about = path.stat()
        return _digest(path, about.st_size, about.st_mtime_ns)
    except OSError as error:
        raise PlanError(f"{path}: cannot be read ({error.strerror})") from error


@lru_cache(maxsize=8)
def _digest(path: Path, size: int, changed: int) -> str:
    """Of a file's content; size and time only tell when to read it again."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:24]


def refuse_results(out: Path, experiment: Experiment) -> None:
    """Refuse to write over results that nobody asked to renew."""
    if (out / experiment.name / "results.json").is_file():
        raise RunError(
            f"{out / experiment.name}: already holds results; add --resume to complete or renew "
            "them from the runs there, or choose another --out"
        )


def _refuse_leftovers(out: Path, experiment: Experiment, missing: Mapping[Path, Plan]) -> None:
    refuse_results(out, experiment)
    begun = [folder for folder in missing if folder.is_dir() and any(folder.iterdir())]
    if begun:
        raise RunError(
            f"{out}: holds {len(begun)} unfinished runs of this experiment (e.g. "
            f"{begun[0].name}); go on with --resume or choose another --out"
        )


def _earlier(path: Path) -> dict[str, Setting]:
    """The settings of results that are there, by name."""
    if not path.is_file():
        return {}
    return {setting.name: setting for setting in Results.load(path).settings}


def _as_long_as_before(
    plans: Mapping[tuple[str, str, int], Plan],
    earlier: Mapping[str, Setting],
    runs: Path,
    *,
    rounds: int,
) -> dict[tuple[str, str, int], Plan]:
    """The plans, those of rows that ran further before with as many rounds as then.

    Their runs are done, so that costs nothing, and figures of a longer horizon are not lost to who
    leaves --all-long or --long-rounds out. A comparison of other rounds is another one.
    """
    longer = dict(plans)
    for (name, case, seed), plan in plans.items():
        setting = earlier.get(name)
        row = None if setting is None or setting.rounds != rounds else setting.row(case)
        if row is None or find(plan.algorithm["name"]).plans_ahead:
            continue
        ran = max(outcome.rounds for outcome in row.outcomes)
        if ran > plan.rounds:
            whole = Plan.of(plan.document(), {"rounds": ran})
            if (runs / folder_name(whole) / "summary.json").is_file():
                longer[name, case, seed] = whole
    return longer


def _refuse_less(
    path: Path, plans: Mapping[tuple[str, str, int], Plan], *, followed: bool = False
) -> None:
    """Refuse to replace results by those of fewer seeds, settings, methods or rounds.

    They would be lost. Values of a sweep may change, with the rounds for one. Where runs are
    ``followed``, every case has a setting.
    """
    if not path.is_file():
        return
    earlier = Results.load(path)
    asked, cases, seeds = (set(names) for names in zip(*plans, strict=True))
    settings = cases if followed else asked
    lost = [setting.name for setting in earlier.settings if setting.name not in settings]
    rows = [row for setting in earlier.settings for row in setting.rows if row.group != "blind"]
    methods = {row.name for row in rows if row.value is None}
    # "fedproto.nearest" is another net of case "fedproto"; "fedapa-ρ=0.33" is a case of its own.
    lost += sorted(
        name for name in methods - cases if name.rpartition(".")[0] not in {*cases, *methods}
    )
    lost += [f"seed {seed}" for seed in earlier.seeds if seed not in seeds]
    for setting in earlier.settings:
        for row in setting.rows:
            wanted = plans.get((setting.name, row.name, 0))
            ran = max(outcome.rounds for outcome in row.outcomes)
            if wanted is not None and ran > wanted.rounds:
                lost.append(f"{row.name} to round {ran} in setting {setting.name}")
    if lost:
        raise RunError(
            f"{path}: also holds {', '.join(lost)}; ask for at least as much, or choose another "
            "--out"
        )


def _check(plans: Iterable[Plan], show: Show) -> None:
    """Make the data ready and refuse what no run could do, before any run has cost time."""
    prepared: dict[str, Any] = {}
    split, begun = set(), set()
    for plan in plans:
        document = plan.document()
        data = repr((document["data"], document.get("classes")))
        rooms_of = data + repr(document["model"])
        if rooms_of not in prepared or (data, plan.seed) not in split:
            # Every seed splits anew, whatever the nets: a split that fails must not do so late.
            split.add((data, plan.seed))
            prepared[rooms_of] = prepare_rooms(plan, show, workers=None)
            check_batches(prepared[rooms_of], plan.training.batch_size)
            check_nets(prepared[rooms_of])
        algorithm = plan.build()
        check_training(prepared[rooms_of], algorithm)
        if (rooms_of, repr(document["algorithm"])) not in begun:
            begun.add((rooms_of, repr(document["algorithm"])))
            engine = InProcess(algorithm, prepared[rooms_of], folder=Path(), workers=0)
            try:
                rounds.begin(algorithm, engine, plan)
            except (PlanError, RosterError) as error:
                if plan.model.architecture != MODEL.architecture:
                    raise
                remedy = "; or leave nets that differ out with --setting statistical"
                raise type(error)(f"{error}{remedy}") from error


def _carry_out(
    missing: Mapping[Path, Plan],
    workers: int,
    show: Show,
    failed: dict[Path, FedapaError] | None = None,
) -> None:
    """Run what is missing, several at a time, the longest first.

    The first run that fails ends all; where there is a place for errors, they are put there.
    """
    if not missing:
        return
    total = sum(plan.rounds for plan in missing.values())
    order = sorted(
        missing.items(), key=lambda item: (-item[1].build().work(item[1].rounds), item[0])
    )
    with processes.Workers(
        min(workers, len(missing)),
        context=processes.importing_once(),
        initializer=processes.start_training_worker,
        initargs=(processes.variables(),),
    ) as pool:
        jobs = {folder: pool.submit(_one, plan.document(), folder) for folder, plan in order}
        folders = {job.future: folder for folder, job in jobs.items()}
        pending = set(folders)
        while pending:
            done, pending = wait(pending, timeout=1.0, return_when=FIRST_COMPLETED)
            for folder in sorted(folders[future] for future in done):
                try:
                    _finished(jobs[folder], folder)
                except FedapaError as error:
                    if failed is None or isinstance(error.__cause__, BrokenProcessPool):
                        raise
                    failed[folder] = error
            rounds_done = [
                min(_rounds_done(folder), plan.rounds) for folder, plan in missing.items()
            ]
            note = f"{len(jobs) - len(pending)} of {len(jobs)} runs"
            show(processes.Progress("training", sum(rounds_done), total, "rounds", note))


def _finished(job: processes.Job, folder: Path) -> None:
    try:
        job.result()
    except BrokenProcessPool as error:
        raise RunError(
            f"{folder}: its process died; out of memory? Use fewer --workers and --resume"
        ) from error


def _rounds_done(folder: Path) -> int:
    try:
        return (folder / "rounds.jsonl").read_bytes().count(b"\n")
    except OSError:
        return 0


def _one(document: Mapping[str, Any], folder: Path) -> bytes:
    run(Plan(**document), out=folder, resume=True, workers=0)
    return b""  # what it made lies in its folder


# ---- what results say beside their figures ------------------------------------------------------


def _notes(plans: Collection[Plan]) -> list[str]:
    """What must be known of some rows wherever they stand."""
    kinds = {find(plan.algorithm["name"]) for plan in plans}
    built = [(plan.build(), plan.rounds) for plan in plans]
    tuned = sorted({it.title for it, last in built if it.scored_rounds(last) is not None})
    pooled = " and ".join(sorted(kind.title for kind in kinds if kind.pools))
    said = []
    if pooled and any(plan.model.architecture == MODEL.architecture for plan in plans):
        said.append(
            f"{pooled} is one LargeConvNet4 on everybody's windows, also where nets differ."
        )
    if tuned:
        said.append(
            f"Scored only where a fine-tuned copy exists: {'; '.join(tuned)}. That is in the last "
            f"{LAST} rounds and at five points before: the figure at an earlier horizon is that of "
            f"such points among the {LAST} rounds up to there, mostly a single one."
        )
    if any(plan.data.validation == 0 for plan in plans):
        weighed = " CARING weighs rooms by accuracy on train windows." * (Caring in kinds)
        said.append(
            f"There are no validation windows: probabilities are as the nets give them.{weighed}"
        )
    answers = {plan.answer for plan in plans}
    if "nearest" in answers and len(answers) > 1:
        titles = " and ".join(sorted(kind.title for kind in kinds if kind.fits_once))
        said.append(
            f"{titles}: answers by the median of the probabilities; there are no prototypes."
        )
    return [*said, *sorted({kind.remark for kind in kinds} - {""})]


def _unequal(settings: Sequence[Setting], runs: Runs) -> list[str]:
    """Rows whose windows are not as many as those of the first: said, not hidden."""
    said = []
    for setting in settings:
        found = {row.title: runs.get((setting.name, row.name, 0)) for row in setting.rows}
        there = {title: done for title, done in found.items() if done is not None}
        # Where some have fewer labels on purpose, what is tested must still be the same.
        few = any(done.plan.data.fewer for done in there.values())
        parts = ["test"] if few else ["test", "validation", "train"]
        numbers = {
            title: sum(room[part] for room in done.data["rooms"].values() for part in parts)
            for title, done in there.items()
        }
        if len(set(numbers.values())) > 1:
            told = "; ".join(f"{name}: {number}" for name, number in _briefly(setting, numbers))
            said.append(f"{setting.title}: the rows have different windows and splits ({told}).")
    return said


def _briefly(setting: Setting, numbers: Mapping[str, int]) -> list[tuple[str, int]]:
    """Numbers by the rows' titles; by their values where several lines have the same at each."""
    values = {row.title: str(row.value) for row in setting.rows if row.title in numbers}
    by_value = {(values[title], number) for title, number in numbers.items()}
    if len(setting.lines) < 2 or len(by_value) > len(set(values.values())):
        return list(numbers.items())
    return list(dict.fromkeys((values[title], number) for title, number in numbers.items()))


def _who_learns_unlabelled(plans: Collection[Plan], settings: Sequence[Setting]) -> list[str]:
    """Which rows learn from windows that never had a label; nothing where there are none."""
    rooms = [room for setting in settings for room in setting.data["rooms"].values()]
    if any(plan.data.fewer for plan in plans) or not any(room.get("unlabelled") for room in rooms):
        return []
    kinds = [find(plan.algorithm["name"]) for plan in plans]
    titles = sorted({kind.title for kind in kinds if kind.learns_unlabelled})
    if not titles:
        return ["No row learns from windows without a label; fedjoin would."]
    return [f"Of all rows only those of {' and '.join(titles)} learn from windows without a label."]


def _who_takes_part(plans: Collection[Plan], rooms: int) -> list[str]:
    """How many rooms a share of them is, and whether there is anybody to learn from."""
    if rooms == 1:
        return ["There is one room, with nobody to learn from: rows differ by how it trains alone."]
    told = "; ".join(
        f"ρ = {share:g}: {number_of(share, rooms)} of {rooms}"
        for share in sorted({plan.participation for plan in plans} - {1.0})
    )
    return [f"Rooms that take part in a round: {told}."] if told else []
