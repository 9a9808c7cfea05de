"""``fedapa run`` and ``fedapa demo``: rooms learn together, and what came of it is printed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedapa.cli.options import (
    Json,
    OnlyRooms,
    SplitKind,
    ViewName,
    WithoutRooms,
    Workers,
    assignment,
    data_flags,
    given_only,
)
from fedapa.cli.output import print_json, print_out
from fedapa.cli.progress import shown_progress

if TYPE_CHECKING:
    from fedapa.evaluation.results import Results
    from fedapa.federation.run import Run

__all__ = ["demo", "run"]


def demo(
    out: Annotated[Path, typer.Option(help="Directory to write.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(min=0)] = 0,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Fewer or more than the demo's own.")
    ] = None,
    workers: Workers = None,
) -> None:
    """Six simulated rooms: Local, FedAPA and two simple models count people; tables and a page.

    An interrupted demo goes on where it stopped; a finished one is shown again.

    Example: fedapa demo --out runs/demo
    """
    if workers != 0:
        _get_workers_ready()
    from fedapa.experiments.demo import demo as run_demo

    with shown_progress() as show:
        results, page = run_demo(out, seed=seed, rounds=rounds, workers=workers, show=show)
    _print_tables(results)
    print_out(
        f"The rooms are {results.kind}: this shows the software, not how well it counts in yours."
    )
    print_out(f"Page with two minutes of counting in every room, tables and curves: {page}")
    _print_answer(results)


def run(
    plan: Annotated[
        Path | None, typer.Argument(help="A plan (TOML); flags override it.", show_default=False)
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="smoke (seconds), quick (a counter in minutes, the default), tables or paper (the "
            "paper's nets, hours)."
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="A store of rooms; default: the preset's SIMULATED rooms.")
    ] = None,
    only: OnlyRooms = None,
    without: WithoutRooms = None,
    algorithm: Annotated[str | None, typer.Option(help="See 'fedapa algorithms'.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Communication rounds.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of the split, the weights, the batches.")
    ] = None,
    split: SplitKind = None,
    view: ViewName = None,
    architecture: Annotated[
        str | None,
        typer.Option(help="auto, counter or mlp (numbers), tiny, middle, large or by-size."),
    ] = None,
    participation: Annotated[
        float | None, typer.Option(help="Share of rooms in a round, above 0 up to 1.")
    ] = None,
    selection: Annotated[
        str | None, typer.Option(help="Which rooms those are: uniform, diverse or capable.")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="Of the numbers in messages: float32, float16 or int8.")
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any other key, e.g. data.window=500."),
    ] = None,
    workers: Workers = None,
    engine: Annotated[
        str,
        typer.Option(help="in-process, or flower-simulation: Ray's processes, for many rooms."),
    ] = "in-process",
    device: Annotated[str | None, typer.Option(help="cpu or cuda.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory to write; default: runs/ALGORITHM-SEED.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out, also to more --rounds.")
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write TensorBoard scalars.")
    ] = False,
    diagnose: Annotated[
        bool,
        typer.Option(
            "--diagnose",
            help="Also record what the convergence theory speaks of; for fedapa, its variants and "
            "fedproto (docs/theory.md).",
        ),
    ] = False,
    gradients_every: Annotated[
        int,
        typer.Option(
            metavar="K", min=0, help="With --diagnose: an epoch of gradients every K rounds; 0: no."
        ),
    ] = 0,
    as_json: Json = False,
) -> None:
    """Run one federated algorithm on some rooms.

    Example: fedapa run --preset quick --algorithm fedapa --seed 1 --out runs/first
    """
    _check_engine(engine, tensorboard=tensorboard, diagnose=diagnose)
    _check_gradients(gradients_every, diagnose=diagnose)
    if workers != 0 and engine == "in-process":
        _get_workers_ready()
    from fedapa.algorithms import find
    from fedapa.evaluation.record import suspects, suspicion
    from fedapa.experiments.presets import preset as preset_values
    from fedapa.federation.plan import Plan
    from fedapa.federation.prepare import told_short
    from fedapa.federation.run import run as carry_out
    from fedapa.report.captions import choices, without_labels
    from fedapa.report.runs import results_of
    from fedapa.toml import read_toml

    given = {}
    if plan is not None:
        _check_plan_file(plan)
        given = read_toml(plan)
    named = given.pop("preset", None)
    base = preset or named or (None if plan is not None else "quick")
    flags: dict[str, Any] = {
        "rounds": rounds,
        "seed": seed,
        "participation": participation,
        "selection": selection,
        "precision": precision,
        "device": device,
        "algorithm": algorithm,
        "data": data_flags(data, split=split, view=view, only=only, without=without),
        "model": given_only(architecture=architecture),
    }
    layers = [preset_values(base)] if base is not None else []
    layers += [given, given_only(**flags), *(assignment(text) for text in change or [])]
    resolved = Plan.of(*layers)
    folder = out or Path("runs") / f"{resolved.algorithm['name']}-{resolved.seed}"
    with shown_progress() as show:
        if engine == "in-process":
            finished = carry_out(
                resolved,
                out=folder,
                resume=resume,
                workers=workers,
                tensorboard=tensorboard,
                diagnose=gradients_every if diagnose else None,
                show=show,
            )
        else:
            from fedapa.federation.network.simulation import simulate_run
            from fedapa.processes import available_cores

            number = workers or available_cores()
            finished = simulate_run(resolved, folder, resume=resume, workers=number, show=show)
    if as_json:
        print_json({"out": str(folder), **finished.summary})
        return
    results = results_of([finished], title="")[0]
    _print_answer(results)
    _print_tables(results)
    unlabelled = without_labels(finished.data)
    for sentence in (*choices(finished.data), *unlabelled):
        print_out(sentence)
    kind = find(resolved.algorithm["name"])
    if kind.fits_once:
        print_out(f"Note: {kind.title} is fitted once: settings of training do not matter to it.")
    if unlabelled and not kind.learns_unlabelled:
        print_out(
            f"Note: {kind.title} does not learn from windows without a label, they only help to "
            "normalise; fedjoin does."
        )
    if unlabelled and kind.learns_unlabelled and resolved.answerable == "all":
        print_out(
            "Note: a room with windows without a label may answer any class that the federation "
            "knows; --set answerable=room keeps it to those that it recorded."
        )
    alone = resolved.algorithm.get("labelled_rounds", 0)
    if unlabelled and kind.learns_unlabelled and alone >= resolved.rounds:
        print_out(
            "Note: windows without a label only help to normalise here: rooms learn from labels "
            f"alone for {alone} rounds, and there are {resolved.rounds}; "
            f"--set algorithm.labelled_rounds={resolved.rounds // 3} leaves them two thirds."
        )
    for note in (*told_short(resolved), *finished.summary.get("notes", [])):
        print_out(f"Note: {note}")
    for one in suspects(finished.records):
        print_out(suspicion(one))
    _print_privacy(finished)
    print_out(f"Everything about this run: {folder}")


def _check_gradients(every: int, *, diagnose: bool) -> None:
    from fedapa.errors import PlanError

    if every and not diagnose:
        raise PlanError("--gradients-every: only with --diagnose; give both or leave it out")


def _check_engine(engine: str, *, tensorboard: bool, diagnose: bool) -> None:
    from fedapa.errors import PlanError, nearest

    known = ("in-process", "flower-simulation")
    if engine not in known:
        raise PlanError(f"--engine {engine}: there is no such engine; {nearest(engine, known)}")
    if engine != "in-process" and tensorboard:
        raise PlanError("--tensorboard: only with --engine in-process; leave it out")
    if engine != "in-process" and diagnose:
        raise PlanError("--diagnose: only with --engine in-process; leave it out")


def _check_plan_file(path: Path) -> None:
    """Refuse what is often given in place of a plan, with what to do instead."""
    from fedapa.errors import PlanError
    from fedapa.stores.hdf5 import is_hdf5

    plan = path / "plan.toml"
    if plan.is_file():
        raise PlanError(
            f"{path}: is the folder of a run, not a plan; go on with it by 'fedapa run {plan} "
            f"--out {path} --resume', or run {plan} again with another --out"
        )
    if path.is_dir():
        raise PlanError(
            f"{path}: is a folder; expected a plan, a TOML file; rooms are given with --data, the "
            "folder to write with --out"
        )
    if is_hdf5(path):
        raise PlanError(f"{path}: is a store of rooms, not a plan; give it with --data {path}")
    if not path.exists():
        raise PlanError(
            f"{path}: no such file; expected a plan, a TOML file; without one a --preset is run"
        )


def _print_answer(results: "Results") -> None:
    """Who counts best, in one sentence, after all rounds."""
    from fedapa.evaluation.verdict import answers

    for sentence in answers(results):
        print_out(sentence)


def _print_privacy(finished: "Run") -> None:
    """What noised sets have cost, with the condition that it holds under; nothing without noise."""
    spent, privacy = finished.summary.get("privacy"), finished.plan.privacy
    if spent and privacy.epsilon is not None:
        most = max(own["epsilon"] for own in spent.values())
        print_out(
            f"Privacy: ε is {most:.3g} of {privacy.epsilon:g} at most, over {len(spent)} rooms "
            f"(δ = {privacy.delta:g}, unit: {privacy.unit}), for the net taken as given; no "
            "guarantee for recordings (docs/differential-privacy.md)"
        )


def _print_tables(results: "Results") -> None:
    """Rooms and methods, after all rounds."""
    from fedapa.report.tables.comparison import over_time, overall, presence, rooms
    from fedapa.report.tables.table import rich_table

    for setting in results.settings:
        shown = [row.name for row in setting.rows if row.group != "blind"]
        print_out(rich_table(rooms(setting, shown)))
        print_out(rich_table(overall(setting)))
        for table in (presence(setting), over_time(setting, ["mae"])):
            if table is not None:
                print_out(rich_table(table))


def _get_workers_ready() -> None:
    """Let the processes that will train import torch while this one does."""
    from fedapa.processes import get_ready

    get_ready()
