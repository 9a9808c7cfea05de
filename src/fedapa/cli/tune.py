"""``fedapa tune``: settings of one algorithm, chosen on validation windows."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedapa.cli.options import (
    Changes,
    Json,
    OnlyRooms,
    SideBySide,
    SplitKind,
    ViewName,
    WithoutRooms,
    assignment,
    data_flags,
    given_only,
)
from fedapa.cli.output import print_json, print_out
from fedapa.cli.progress import shown_progress

__all__ = ["tune"]


def tune(
    algorithm: Annotated[str, typer.Argument(help="See 'fedapa algorithms'.")],
    data: Annotated[
        Path | None, typer.Option(help="A store of rooms; default: the preset's SIMULATED rooms.")
    ] = None,
    budget: Annotated[
        int,
        typer.Option(min=1, help="Trials, each a whole run; the same for all that you compare."),
    ] = 10,
    preset: Annotated[
        str,
        typer.Option(help="smoke, quick, tables, protocol or paper: view, rounds, learning rate."),
    ] = "quick",
    only: OnlyRooms = None,
    without: WithoutRooms = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Instead of the preset's; a quarter is warm-up.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Of the split, the weights, the batches and the trials.")
    ] = 0,
    split: SplitKind = None,
    view: ViewName = None,
    architecture: Annotated[
        str | None,
        typer.Option(help="auto, counter or mlp (numbers), tiny, middle, large or by-size."),
    ] = None,
    metric: Annotated[
        str, typer.Option(help="What is best: accuracy, macro_f1 or mae (the least).")
    ] = "accuracy",
    validation: Annotated[
        float,
        typer.Option(
            help="Share of the windows that are not for the test on which trials are scored."
        ),
    ] = 0.2,
    change: Changes = None,
    out: Annotated[Path, typer.Option(help="Directory to write.")] = Path("runs/tune"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the search in --out, also to more trials.")
    ] = False,
    workers: SideBySide = None,
    as_json: Json = False,
) -> None:
    """Choose an algorithm's settings on validation windows; the choice is a plan for 'fedapa run'.

    Test windows are not looked at. The first trial is the preset as it is.

    Example: fedapa tune fedamp --data rooms.h5 --budget 10 --out runs/tune
    """
    from fedapa.algorithms import find
    from fedapa.errors import PlanError, nearest
    from fedapa.experiments.presets import preset as preset_values
    from fedapa.experiments.tune import GOALS, trials_table
    from fedapa.experiments.tune import tune as search
    from fedapa.federation.plan import Plan
    from fedapa.report.tables.table import rich_table

    goal = next((name for name in GOALS if name == metric), None)
    if goal is None:
        raise PlanError(f"--metric {metric}: is none to choose by; {nearest(metric, GOALS)}")
    usual = {} if rounds is None else find(algorithm).settings_for(rounds)
    flags: dict[str, Any] = {
        "seed": seed,
        "rounds": rounds,
        "algorithm": {"name": algorithm, **usual},
        "data": data_flags(data, split=split, view=view, only=only, without=without),
        "model": given_only(architecture=architecture),
    }
    plan = Plan.of(
        preset_values(preset), given_only(**flags), *(assignment(text) for text in change or [])
    )
    if plan.algorithm["name"] != algorithm:
        raise PlanError("--set algorithm.name: is the command's first word; leave it out")
    with shown_progress() as show:
        found = search(
            plan,
            budget=budget,
            out=out,
            goal=goal,
            validation=validation,
            resume=resume,
            workers=workers,
            show=show,
        )
    if as_json:
        print_json({"out": str(found.file), **found.summary()})
        return
    print_out(found.answer)
    print_out(rich_table(trials_table(found)))
    for trial in found.trials:
        if trial.problem:
            print_out(f"Note: trial {trial.number} failed: {trial.problem}")
    print_out(f"Plan with this choice: fedapa run {found.file}")
