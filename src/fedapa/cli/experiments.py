"""``fedapa compare`` and ``fedapa reproduce``: many runs, then tables, figures and a page."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedapa.cli.options import (
    AllLong,
    Changes,
    Json,
    LongRounds,
    OnlyRooms,
    Preset,
    Resume,
    Rounds,
    Seeds,
    SideBySide,
    Source,
    SplitKind,
    ViewName,
    WithoutRooms,
    base_of,
)
from fedapa.cli.output import print_json, print_out
from fedapa.cli.progress import shown_progress

if TYPE_CHECKING:
    from fedapa.experiments.reproduce import Reproduced

__all__ = ["compare", "reproduce"]


reproduce = typer.Typer(
    help="The paper's tables and figures, from this code.", no_args_is_help=True
)


def compare(
    data: Annotated[Path, typer.Argument(help="A store of rooms, see 'fedapa import'.")],
    algorithm: Annotated[
        list[str] | None,
        typer.Option(
            help="Give it once for each; default: local, fedavg (if rooms share a net), fedapa, "
            "fedapa-self, linear and forest."
        ),
    ] = None,
    architecture: Annotated[
        str | None,
        typer.Option(help="counter or mlp (numbers), tiny, middle, large, by-size; default: auto."),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            help="The algorithm whose differences to all others are shown; default: fedapa, or the "
            "first that is neither local nor a control."
        ),
    ] = None,
    preset: Annotated[
        str,
        typer.Option(help="smoke, quick, tables, protocol or paper: view, rounds, learning rate."),
    ] = "quick",
    only: OnlyRooms = None,
    without: WithoutRooms = None,
    seeds: Seeds = 3,
    split: SplitKind = None,
    view: ViewName = None,
    rounds: Rounds = None,
    long_rounds: LongRounds = None,
    all_long: AllLong = False,
    change: Changes = None,
    out: Annotated[Path, typer.Option(help="Directory to write.")] = Path("runs/compare"),
    resume: Resume = False,
    workers: SideBySide = None,
    as_json: Json = False,
) -> None:
    """Compare algorithms on rooms of your own: tables, figures and a page.

    Example: fedapa compare rooms.h5 --algorithm local --algorithm fedapa --seeds 3
    """
    from fedapa.experiments.compare import compare as comparison
    from fedapa.experiments.conduct import Execution
    from fedapa.experiments.reproduce import reproduce as carry_out

    base = base_of(
        preset,
        str(data),
        split,
        rounds,
        long_rounds,
        [*([] if view is None else [f"data.view={view}"]), *(change or [])],
        all_long=all_long,
        only=only,
        without=without,
    )
    _get_workers_ready()
    with shown_progress() as show:
        done = carry_out(
            [
                comparison(
                    base, algorithms=algorithm, architecture=architecture, reference=reference
                )
            ],
            base,
            Execution(seeds, out, resume, workers, show, _as_typed()),
        )
    _print_reproduced(done, as_json)


def _get_workers_ready() -> None:
    """Fork the workers' server before a bar has a thread of its own: afterwards nobody may."""
    from fedapa.processes import get_ready

    get_ready()


Directory = Annotated[Path, typer.Option(help="Directory of the experiments.")]


@reproduce.command("architectures")
def reproduce_architectures(
    classes: Annotated[int, typer.Option(min=1, help="The paper's table has 20.")] = 20,
    width: Annotated[int, typer.Option(min=1, help="Of the embedding.")] = 256,
    preset: Preset = "paper",
    data: Source = "simulated",
    only: OnlyRooms = None,
    without: WithoutRooms = None,
    change: Changes = None,
    out: Directory = Path("runs/reproduce"),
    as_json: Json = False,
) -> None:
    """Parameters and FLOPs of the three nets, counted from the modules.

    As the paper counts them; with another preset, rooms or --set also for those.

    Example: fedapa reproduce architectures
    """
    from fedapa.experiments.reproduce import nets
    from fedapa.experiments.sizes import check_changes

    with shown_progress() as show:
        base = base_of(preset, data, None, None, None, change, only=only, without=without)
        check_changes(base, "architectures", ("data", "model.width", "classes"))
        made = nets(base, out, show, classes=classes, width=width)
    _print_counted(made, as_json)


@reproduce.command("table3")
def reproduce_table3(
    preset: Preset = "paper",
    data: Source = "simulated",
    only: OnlyRooms = None,
    without: WithoutRooms = None,
    change: Changes = None,
    out: Directory = Path("runs/reproduce"),
    as_json: Json = False,
) -> None:
    """Bytes per round and room of every algorithm: the paper's formula, then really encoded.

    At the paper's sizes; with another preset, rooms or --set also at the sizes of those.

    Example: fedapa reproduce table3
    """
    from fedapa.experiments.reproduce import table3
    from fedapa.experiments.sizes import check_changes

    with shown_progress() as show:
        base = base_of(preset, data, None, None, None, change, only=only, without=without)
        check_changes(base, "table3", ("data", "model.width", "classes"))
        made = table3(base, out, show)
    _print_counted(made, as_json)


@reproduce.command("fig4")
def reproduce_fig4(
    preset: Preset = "tables",
    data: Source = "simulated",
    only: OnlyRooms = None,
    without: WithoutRooms = None,
    change: Changes = None,
    out: Annotated[
        Path, typer.Option(help="Directory of the experiments, or a figure: .png, .svg or .pdf.")
    ] = Path("runs/reproduce"),
    as_json: Json = False,
) -> None:
    """Windows by room and number of people: the data distribution of the six rooms.

    Example: fedapa reproduce fig4 --preset paper --out fig4.png
    """
    from fedapa.experiments.reproduce import fig4
    from fedapa.experiments.sizes import check_changes
    from fedapa.report.style import figure_kind

    # A directory may be called "v0.1".
    figure = out if out.suffix[1:].isalpha() and not out.is_dir() else None
    if figure is not None:
        figure_kind(figure)
    # The simulator's own name for the rooms of preset paper.
    base = base_of(
        "paper" if preset == "six-rooms" else preset,
        data,
        None,
        None,
        None,
        change,
        only=only,
        without=without,
    )
    check_changes(base, "fig4", ("data",))
    _print_counted(fig4(base, out, file=figure), as_json)


def _print_counted(made: "Reproduced", as_json: bool) -> None:
    """What needed no training; a script gets the values as they are."""
    if as_json:
        print_json(made.summary)
        return
    _print_reproduced([made], as_json=False)


Data = Annotated[
    Path | None, typer.Option(help="A store of rooms; default: the preset's SIMULATED rooms.")
]


# As experiments.reproduce has them; not imported from there, so that --help answers at once.
_OF_THE_COUNTER = (
    *("learning-curve", "onboarding", "unseen-counts"),
    *("few-labels", "what-travels", "drift", "tasks", "privacy", "links", "poisoning"),
)


_OF_THE_PROTOCOL = ("protocol", "causes")
_SHORT = (*_OF_THE_PROTOCOL, "privacy", "poisoning")
"""Those without a long horizon, unless somebody asks for one."""
_USUAL_ROUNDS = {"poisoning": 12}
_USUAL_CHANGES = {"poisoning": ("training.epochs=12",)}
"""As the study says (experiments.poisoning.BASE); --rounds and --set are taken instead."""


def _experiment_command(name: str, about: str) -> None:
    """Give an experiment its command: all of them take the same options."""
    usual = "quick" if name in _OF_THE_COUNTER else "tables"
    usual = "protocol" if name in _OF_THE_PROTOCOL else usual
    usual_long = 0 if name in _SHORT else None  # which says how many rounds there are
    usual_rounds = _USUAL_ROUNDS.get(name)

    @reproduce.command(name, help=f"{about}\n\nExample: fedapa reproduce {name} --preset {usual}")
    def command(
        preset: Preset = usual,
        data: Source = "simulated",
        only: OnlyRooms = None,
        without: WithoutRooms = None,
        seeds: Seeds = 3,
        split: SplitKind = None,
        setting: Annotated[
            list[str] | None,
            typer.Option(help="statistical or model; default: those of the paper's."),
        ] = None,
        method: Annotated[
            list[str] | None,
            typer.Option(help="Only this algorithm; give it once for each.", metavar="NAME"),
        ] = None,
        tuned: Annotated[
            Path | None,
            typer.Option(
                help="The --out of 'fedapa tune': every method with the settings chosen there.",
                metavar="DIR",
            ),
        ] = None,
        rounds: Rounds = usual_rounds,
        long_rounds: LongRounds = usual_long,
        all_long: AllLong = False,
        change: Changes = None,
        out: Annotated[
            Path, typer.Option(help="Directory; experiments there share their runs.")
        ] = Path("runs/reproduce"),
        resume: Resume = False,
        workers: SideBySide = None,
        as_json: Json = False,
    ) -> None:
        from fedapa.experiments import reproduce as experiments
        from fedapa.experiments.conduct import Execution

        base = base_of(
            preset,
            data,
            split,
            rounds,
            long_rounds,
            [*_USUAL_CHANGES.get(name, ()), *(change or ())],
            all_long=all_long,
            only=only,
            without=without,
        )
        _get_workers_ready()
        wanted = experiments.chosen(name, base, setting, method)
        if tuned is not None:
            from fedapa.experiments.tuned import tuned as with_choices

            wanted = [with_choices(one, base, tuned, seeds=seeds) for one in wanted]
        with shown_progress() as show:
            done = experiments.reproduce(
                wanted,
                base,
                Execution(seeds, out, resume, workers, show, _as_typed()),
            )
            if name == "all":
                done = experiments.with_counted(done, base, out, show)
        _print_reproduced(done, as_json)


for _name, _about in (
    ("table1", "The overall comparison, in both heterogeneity settings."),
    ("table2", "The ablation: mixture or mean, with and without the peers' prototypes."),
    ("fig6", "Accuracy over rounds with equal nets."),
    ("fig7", "Accuracy over rounds with nets that differ."),
    ("fig8a", "FedAPA by the width of its embedding."),
    ("fig8b", "FedAPA by its warm-up rounds."),
    ("fig9a", "FedAPA by its temperature."),
    ("fig9b", "A fixed weight of the prototype losses against the warm-up."),
    ("participation", "FedAPA with fewer rooms in a round, chosen in three ways."),
    ("windows", "What smaller windows cost against the paper's."),
    ("protocol", "Local, FedAPA and self-prototypes under the paper's protocol."),
    ("causes", "Which part of the protocol moves FedAPA's margin over Local, one at a time."),
    ("learning-curve", "How many recordings of every count must be labelled."),
    ("onboarding", "What a new room with few labels gets from a federation of others."),
    ("unseen-counts", "A new room that has labels for half of its counts only."),
    ("few-labels", "All rooms have few labels, and many windows without any."),
    ("what-travels", "Accuracy beside bytes: FedJoin with less in its messages."),
    ("drift", "Trained on the first days: what later days cost, and what helps without labels."),
    ("links", "Bytes, and time on Wi-Fi, 4G and NB-IoT, until rooms reach an accuracy."),
    ("tasks", "One net that tells count and activity, against a net for each."),
    ("privacy", "Accuracy by ε: what noised prototypes cost, by window and by recording."),
    ("poisoning", "Some rooms lie: what the honest ones lose, with and without a defence."),
    ("all", "Every table and figure of the paper into one directory, and one page of them."),
):
    _experiment_command(_name, _about)


@reproduce.command("leaks")
def reproduce_leaks(
    attack: Annotated[
        list[str] | None,
        typer.Option(
            help="membership, reconstruction or identity; give it once for each. Default: all.",
            metavar="NAME",
        ),
    ] = None,
    preset: Preset = "quick",
    data: Source = "simulated",
    only: OnlyRooms = None,
    without: WithoutRooms = None,
    seeds: Seeds = 3,
    split: SplitKind = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Only this algorithm; give it once for each.", metavar="NAME"),
    ] = None,
    rounds: Rounds = None,
    change: Changes = None,
    out: Directory = Path("runs/reproduce"),
    resume: Resume = False,
    workers: SideBySide = None,
    as_json: Json = False,
) -> None:
    """What a stranger learns from what rooms send: attacks on the messages of a run.

    Was a recording used for training, what did the windows of a class look like, and whose set is
    this: with prototypes and with weights, plain and with what is said to protect them. Split is
    recording, or blocked where a room has one recording of a count.

    Example: fedapa reproduce leaks --attack membership --rounds 10
    """
    from fedapa.experiments.conduct import Execution
    from fedapa.experiments.leaks import reproduce_leaks as carry_out
    from fedapa.report.tables.leaks import leak_tables
    from fedapa.report.tables.table import rich_table

    base = base_of(preset, data, split, rounds, None, change, only=only, without=without)
    _get_workers_ready()
    with shown_progress() as show:
        done = carry_out(
            base,
            Execution(seeds, out, resume, workers, show, _as_typed()),
            attacks=attack,
            methods=method,
        )
    if as_json:
        print_json(done.results)
        return
    for table in leak_tables(done.results).values():
        print_out(rich_table(table))
    print_out(f"Page with tables and figure: {done.page}")


@reproduce.command("difficulty")
def reproduce_difficulty(
    data: Data = None,
    preset: Annotated[str, typer.Option(help="smoke, quick, long, takes or six-rooms.")] = "quick",
    seed: Annotated[int, typer.Option(min=0)] = 0,
    window: Annotated[
        int | None, typer.Option(min=1, help="Packets; default: what the store recommends.")
    ] = None,
    as_json: Json = False,
) -> None:
    """How far simple models get on the rooms, under every split that they allow.

    Example: fedapa reproduce difficulty --preset quick
    """
    from dataclasses import asdict

    from fedapa.evaluation.difficulty import difficulty
    from fedapa.experiments.difficulty import difficulty_table
    from fedapa.report.tables.table import rich_table
    from fedapa.stores.simulated import simulated_store
    from fedapa.stores.store import Store

    with shown_progress() as show:
        store = data if data is not None else simulated_store(preset, seed, show=show)
        scores = difficulty(store, seed=seed, window=window, show=show)
    if as_json:
        print_json([asdict(score) for score in scores])
        return
    with Store(store) as opened:
        synthetic = opened.synthetic
    print_out(rich_table(difficulty_table(scores, store.name, synthetic=synthetic)))


def _as_typed() -> str:
    """The command as it was typed, for the page that it makes; of whole paths only the names."""
    import shlex

    words = [word.partition("=") for word in sys.argv[1:]]
    said = [_path_name(option) + equals + _path_name(value) for option, equals, value in words]
    return shlex.join(["fedapa", *said])


def _path_name(word: str) -> str:
    return Path(word).name if Path(word).is_absolute() else word


def _print_reproduced(done: "list[Reproduced]", as_json: bool) -> None:
    from fedapa.report.tables.table import rich_table

    if as_json:
        print_json({experiment.name: experiment.summary for experiment in done})
        return
    for experiment in done:
        for sentence in experiment.answers:
            print_out(sentence)
        for table in experiment.tables:
            print_out(rich_table(table))
        for sentence in experiment.about:
            print_out(sentence)
        what = "Page with tables and figures" if experiment.page.suffix == ".html" else "Figure"
        print_out(f"{what}: {experiment.page}")
