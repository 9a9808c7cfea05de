"""The command line. Commands import what they need when they run: ``--help`` answers at once."""

import contextlib
import json
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedapa.errors import FedapaError, PlanError

if TYPE_CHECKING:
    from fedapa.experiments.experiment import Base
    from fedapa.experiments.reproduce import Reproduced
    from fedapa.federation.prepare import Progress

__all__ = ["app", "main"]

app = typer.Typer(
    name="fedapa",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for scripts.")]
Workers = Annotated[
    int | None,
    typer.Option(
        min=0, help="Processes that train rooms side by side; default: cores. 0: in this process."
    ),
]


SideBySide = Annotated[
    int | None, typer.Option("--workers", min=1, help="Runs side by side; default: cores.")
]
Preset = Annotated[
    str, typer.Option(help="smoke (does it work?), quick (an hour) or paper (days on a CPU).")
]
Source = Annotated[
    str,
    typer.Option(help="A store of rooms, or 'simulated': the preset's SIMULATED rooms."),
]
Seeds = Annotated[int, typer.Option(min=1, help="How many: 0, 1, 2 …")]
SplitKind = Annotated[
    str | None,
    typer.Option("--split", help="recording (the default), blocked, or random (leaks)."),
]
Rounds = Annotated[
    int | None, typer.Option(min=1, help="Instead of the preset's; a quarter is warm-up.")
]
LongRounds = Annotated[
    int | None,
    typer.Option(min=0, help="Of the long horizon; default: four times the rounds. 0: none."),
]
AllLong = Annotated[
    bool,
    typer.Option("--all-long", help="All methods run to the long horizon, where that can be."),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with what --out holds; afresh if it is empty.")
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other key, e.g. data.decimate=2."),
]


def _show_version(wanted: bool) -> None:
    if wanted:
        from fedapa import __version__

        sys.stdout.write(f"fedapa {__version__}\n")
        raise typer.Exit


@app.callback()
def fedapa(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Rooms learn to count people from Wi-Fi channel state information, together.

    Raw data stays in its room. Start with: fedapa demo
    """


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Directory to write.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(min=0)] = 0,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Fewer or more than the demo's own.")
    ] = None,
    workers: Workers = None,
) -> None:
    """Six simulated rooms with different nets: Local against FedAPA, a table and a page.

    An interrupted demo goes on where it stopped; a finished one is shown again.

    Example: fedapa demo --out runs/demo
    """
    from fedapa.experiments.demo import demo as run_demo
    from fedapa.report.tables import comparison, per_room, rich_table

    with _display() as show:
        runs, page = run_demo(out, seed=seed, rounds=rounds, workers=workers, progress=show)
    _print(rich_table(per_room(runs)))
    _print(rich_table(comparison(runs)))
    _print("The rooms are SIMULATED: this shows the software, not how well it counts in yours.")
    _print(f"Page with the curves: {page}")


@app.command()
def run(
    plan: Annotated[
        Path | None, typer.Argument(help="A plan (TOML); flags override it.", show_default=False)
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="smoke (seconds), quick (minutes, the default) or paper (hours)."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="A store of rooms; default: the preset's SIMULATED rooms.")
    ] = None,
    algorithm: Annotated[str | None, typer.Option(help="See 'fedapa algorithms'.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Communication rounds.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of the split, the weights, the batches.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="recording, blocked, or random (paper-like, leaks).")
    ] = None,
    architecture: Annotated[
        str | None, typer.Option(help="tiny, middle, large, by-size, or mlp for features.")
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
    as_json: Json = False,
) -> None:
    """Run one federated algorithm on some rooms.

    Example: fedapa run --preset quick --algorithm fedapa --seed 1 --out runs/first
    """
    if workers != 0:
        _get_workers_ready()
    from fedapa.experiments.presets import preset as preset_values
    from fedapa.federation.plan import Plan, read_toml
    from fedapa.federation.run import run as carry_out
    from fedapa.report.tables import comparison, per_room, rich_table

    given = read_toml(plan) if plan is not None else {}
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
        "data": _given(file=None if data is None else str(data), split=split),
        "model": _given(architecture=architecture),
    }
    layers = [preset_values(base)] if base is not None else []
    layers += [given, _given(**flags), *(_assignment(text) for text in change or [])]
    resolved = Plan.of(*layers)
    folder = out or Path("runs") / f"{resolved.algorithm['name']}-{resolved.seed}"
    with _display() as show:
        finished = carry_out(
            resolved,
            out=folder,
            resume=resume,
            workers=workers,
            tensorboard=tensorboard,
            progress=lambda now: show(resolved.algorithm["name"], now),
        )
    if as_json:
        _print_json({"out": str(folder), **finished.summary})
        return
    _print(rich_table(per_room([finished])))
    _print(rich_table(comparison([finished])))
    _print(f"Everything about this run: {folder}")


@app.command()
def inspect(
    files: Annotated[list[Path], typer.Argument(help="Captures of any known format.")],
    chip: Annotated[
        str | None, typer.Option(help="Of a Nexmon capture that does not tell it, e.g. 4358.")
    ] = None,
    window: Annotated[int, typer.Option(min=1, help="Packets a window.")] = 1000,
    salvage: Annotated[
        bool, typer.Option("--salvage", help="Leave damaged parts out instead of stopping.")
    ] = False,
    plot: Annotated[
        bool, typer.Option("--plot", help="Also draw FILE.png: amplitude over time and frequency.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the pictures; default: beside the files.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object whose 'files' lists them.")
    ] = False,
) -> None:
    """Say what captures hold: device, band, rate, loss, usable windows, and what is left out.

    Example: fedapa inspect kitchen.pcap --plot
    """
    from fedapa.report.captures import inspection_table
    from fedapa.windows.inspection import inspect_capture

    if out is not None and not plot:
        raise PlanError("--out is for the pictures; give --plot too, or leave it out")
    names = Counter(path.name for path in set(files))
    if out is not None and (twice := [name for name, times in names.items() if times > 1]):
        raise PlanError(
            f"--out {out}: several files are named {twice[0]}, their pictures would be one; leave "
            "--out out, or give it for each of them"
        )
    found = []
    wrong = []
    for path in files:
        try:
            found.append(inspect_capture(path, chip=chip, salvage=salvage, window=window))
            if plot:
                from fedapa.report.waterfall import draw_waterfall

                picture = (out or path.parent) / f"{path.name}.png"
                draw_waterfall(path, picture, chip=chip, salvage=salvage)
                if not as_json:
                    _print(f"Picture: {picture}")
        except FedapaError as error:
            wrong.append(str(error))
    if as_json and found:
        _print_json({"files": [each.as_dict() for each in found]})
    elif not as_json:
        for each in found:
            _print(inspection_table(each))
    if wrong:
        _fail("\nfedapa: ".join(wrong))


@app.command("import")
def import_(
    source: Annotated[Path, typer.Argument(help="A folder, a CSV manifest, or Wi-CaL's .npz.")],
    out: Annotated[Path, typer.Option(help="The store to make or to add to.")],
    pattern: Annotated[
        str | None,
        typer.Option(help="What paths mean, e.g. '{room}/{day}/P={count}.pcap'; {label}: text."),
    ] = None,
    layout: Annotated[
        str | None, typer.Option(help="wical: that set's own tree of feature CSVs.")
    ] = None,
    chip: Annotated[
        str | None, typer.Option(help="Of Nexmon captures that do not tell it, e.g. 4358.")
    ] = None,
    window: Annotated[
        int | None, typer.Option(min=1, help="Packets a window: noted for runs on this store.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Put packets onto an even grid of so many a second.")
    ] = None,
    longest_gap: Annotated[
        float | None,
        typer.Option(help="With --rate: part recordings at silences of so many seconds; else 0.5."),
    ] = None,
    low_pass: Annotated[
        float | None,
        typer.Option(
            help="Remove what is faster than so many Hz, e.g. 30; uneven packets: --rate."
        ),
    ] = None,
    gate: Annotated[
        float | None,
        typer.Option(help="Drop frames with a 20 MHz part weaker than this share; 0: none."),
    ] = None,
    salvage: Annotated[
        bool, typer.Option("--salvage", help="Leave damaged parts of files out.")
    ] = False,
    skip_unreadable: Annotated[
        bool, typer.Option("--skip-unreadable", help="Leave out files that are no captures.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make a store of rooms from captures; labels come from their paths or from a manifest.

    Example: fedapa import captures --pattern '{room}/{day}/P={count}.pcap' --out rooms.h5
    """
    from fedapa.report.captures import import_summary, import_table
    from fedapa.stores.imported.captures import import_captures
    from fedapa.stores.imported.preparation import Preparation
    from fedapa.stores.imported.sources import sources_by_manifest, sources_by_pattern
    from fedapa.stores.wical import import_wical
    from fedapa.windows.clean import EMPTY

    others: list[Path] = []
    if layout is not None:
        if layout != "wical":
            raise PlanError(f"--layout {layout} is unknown; known: wical")
        if pattern is not None:
            raise PlanError("--layout wical has its own pattern; leave --pattern out")
        of_packets = {
            "--chip": chip is not None,
            "--window": window is not None,
            "--rate": rate is not None,
            "--longest-gap": longest_gap is not None,
            "--low-pass": low_pass is not None,
            "--gate": gate is not None,
            "--salvage": salvage,
            "--skip-unreadable": skip_unreadable,
        }
        if given := [name for name, told in of_packets.items() if told]:
            raise PlanError(
                f"--layout wical holds features, not packets; leave {', '.join(given)} out"
            )
        rows = import_wical(source, out)
    else:
        if pattern is not None:
            sources, others = sources_by_pattern(source, pattern)
        elif source.is_file():
            sources = sources_by_manifest(source)
        elif not source.exists():
            raise PlanError(f"{source}: no such folder or manifest")
        else:
            raise PlanError(
                f"{source}: say what its paths mean, e.g. --pattern '{{room}}/{{day}}/"
                "P={count}.pcap', or give a CSV manifest instead of a folder"
            )
        preparation = Preparation(
            chip=chip,
            salvage=salvage,
            skip_unreadable=skip_unreadable,
            gate=EMPTY if gate is None else gate,
            rate=rate,
            longest_gap=longest_gap,
            low_pass=low_pass,
        )
        with _bar("reading captures") as show:
            rows = import_captures(
                sources, out, preparation=preparation, window=window, progress=show
            )
    if as_json:
        _print_json({"out": str(out), "unmatched": len(others), **import_summary(rows)})
        return
    _print(import_table(rows))
    if others:
        _print(f"{len(others)} files do not fit the pattern and were left alone, e.g. {others[0]}")
    _print(f"Store: {out}")


@app.command()
def compare(
    data: Annotated[Path, typer.Argument(help="A store of rooms, see 'fedapa import'.")],
    algorithm: Annotated[
        list[str] | None,
        typer.Option(
            help="Give it once for each; default: local, fedavg (if rooms share a net), fedapa, "
            "fedapa-self."
        ),
    ] = None,
    architecture: Annotated[
        str | None, typer.Option(help="tiny, middle, large, by-size; default: by-size, or mlp.")
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            help="The algorithm whose differences to all others are shown; default: fedapa, or the "
            "first that is neither local nor a control."
        ),
    ] = None,
    preset: Annotated[
        str, typer.Option(help="smoke, quick or paper: rounds and learning rate.")
    ] = "quick",
    seeds: Seeds = 3,
    split: SplitKind = None,
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
    from fedapa.experiments.compare import compare as carry_out

    base = _base(preset, str(data), split, rounds, long_rounds, change, all_long=all_long)
    with _stages() as show:
        done = carry_out(
            base,
            algorithms=algorithm,
            architecture=architecture,
            reference=reference,
            seeds=seeds,
            out=out,
            resume=resume,
            workers=workers,
            show=show,
            command=_typed(),
        )
    _print_done(done, as_json)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Directories of finished runs on one data.")],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option()] = "FedAPA report",
) -> None:
    """One HTML page with tables and curves of finished runs.

    Example: fedapa report runs/local-0 runs/fedapa-0 --out report.html
    """
    from fedapa.federation.run import Run
    from fedapa.report.page import write_page
    from fedapa.report.tables import check_comparable

    loaded = [Run.load(path) for path in runs]
    for path, other in zip(runs[1:], loaded[1:], strict=True):
        check_comparable(runs[0], loaded[0], path, other)
    write_page(out, loaded, title=title)
    _print(f"Page: {out}")


@app.command()
def algorithms(as_json: Json = False) -> None:
    """List the algorithms: what travels, where from, and their settings.

    Example: fedapa algorithms
    """
    from fedapa.algorithms import find, names, summary_of
    from fedapa.algorithms.algorithm import settings_of
    from fedapa.report.tables import Sheet, rich_table

    found = {name: find(name) for name in names()}
    if as_json:
        _print_json(
            {
                name: {
                    "title": kind.title,
                    "summary": summary_of(kind),
                    "travels": kind.travels,
                    "citation": kind.citation,
                    "settings": settings_of(kind),
                }
                for name, kind in found.items()
            }
        )
        return
    headings = ["Name", "What", "What travels", "Source"]
    rows = [[name, summary_of(kind), kind.travels, kind.citation] for name, kind in found.items()]
    _print(rich_table(Sheet("Algorithms", headings, rows, text_columns=4)))
    for name, kind in found.items():
        settings = ", ".join(f"{key} = {value}" for key, value in settings_of(kind).items())
        _print(f"{name}: {settings or 'no settings of its own'}")


@app.command()
def simulate(
    out: Annotated[Path | None, typer.Option(help="The store to make; it must not exist.")] = None,
    pcap: Annotated[
        Path | None,
        typer.Option(help="Folder for the takes as Nexmon captures, to be imported."),
    ] = None,
    preset: Annotated[
        str, typer.Option(help="smoke (a second), quick (seconds) or six-rooms (1.4 GB, minutes).")
    ] = "quick",
    rooms: Annotated[
        Path | None, typer.Option(help="A TOML file that changes or adds rooms; docs/simulator.md.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of everything that is drawn.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Processes; the numbers do not change.")] = 1,
) -> None:
    """Make a store of SIMULATED rooms: recordings of 0 to 20 people on several days.

    Example: fedapa simulate --preset six-rooms --seed 0 --workers 2 --out rooms.h5
    """
    from fedapa.stores.own import changed_preset, read_rooms
    from fedapa.stores.simulated import preset_hash, preset_of, write_simulated
    from fedapa.stores.simulated_captures import PATTERN, write_simulated_captures

    chosen = preset_of(preset)
    if rooms is not None:
        chosen = changed_preset(chosen, read_rooms(rooms))
    if out is None and pcap is None:
        raise PlanError("say where to: --out FILE for a store, --pcap FOLDER for captures")
    about = f"SIMULATED rooms, preset {chosen.name} ({preset_hash(chosen)})"
    if out is not None:
        with _bar("simulating rooms") as show:
            write_simulated(chosen, seed=seed, out=out, workers=workers, progress=show)
        _print(f"{out}: {about}, {out.stat().st_size / 1e6:.1f} MB")
    if pcap is not None:
        with _bar("simulating captures") as show:
            write_simulated_captures(chosen, seed=seed, folder=pcap, workers=workers, progress=show)
        _print(f"{pcap}: {about}; import them with --pattern '{PATTERN}'")


reproduce = typer.Typer(
    help="The paper's tables and figures, from this code.", no_args_is_help=True
)
app.add_typer(reproduce, name="reproduce")


Counted = Annotated[
    int,
    typer.Option(
        "--seeds",
        min=1,
        help="So that one line fits all experiments; nothing is drawn in this one.",
    ),
]
Renew = Annotated[
    bool,
    typer.Option(
        "--resume", help="So that one line fits all; this one takes seconds and is made anew."
    ),
]
Directory = Annotated[Path, typer.Option(help="Directory of the experiments.")]


@reproduce.command("architectures")
def reproduce_architectures(
    classes: Annotated[int, typer.Option(min=1, help="The paper's table has 20.")] = 20,
    width: Annotated[int, typer.Option(min=1, help="Of the embedding.")] = 256,
    preset: Preset = "paper",
    data: Source = "simulated",
    change: Changes = None,
    out: Directory = Path("runs/reproduce"),
    _seeds: Counted = 3,
    _resume: Renew = False,
    as_json: Json = False,
) -> None:
    """Parameters and FLOPs of the three nets, counted from the modules.

    As the paper counts them; with another preset or a file also for those rooms.

    Example: fedapa reproduce architectures
    """
    from fedapa.experiments.reproduce import nets

    with _stages() as show:
        base = _base(preset, data, None, None, None, change)
        made = nets(base, out, show, classes=classes, width=width)
    _print_counted(made, as_json)


@reproduce.command("table3")
def reproduce_table3(
    preset: Preset = "paper",
    data: Source = "simulated",
    change: Changes = None,
    out: Directory = Path("runs/reproduce"),
    _seeds: Counted = 3,
    _resume: Renew = False,
    as_json: Json = False,
) -> None:
    """Bytes per round and room of every algorithm: the paper's formula, then really encoded.

    At the paper's sizes; with another preset or a file also at the sizes of those rooms.

    Example: fedapa reproduce table3
    """
    from fedapa.experiments.reproduce import table3

    with _stages() as show:
        made = table3(_base(preset, data, None, None, None, change), out, show)
    _print_counted(made, as_json)


@reproduce.command("fig4")
def reproduce_fig4(
    preset: Preset = "quick",
    data: Source = "simulated",
    change: Changes = None,
    out: Annotated[
        Path, typer.Option(help="Directory of the experiments, or a picture: .png, .svg or .pdf.")
    ] = Path("runs/reproduce"),
    _seeds: Counted = 3,
    _resume: Renew = False,
    as_json: Json = False,
) -> None:
    """Windows by room and number of people: the data distribution of the six rooms.

    Example: fedapa reproduce fig4 --preset paper --out fig4.png
    """
    from fedapa.experiments.reproduce import fig4
    from fedapa.report.pictures import picture_kind

    # A directory may be called "v0.1".
    picture = out if out.suffix[1:].isalpha() and not out.is_dir() else None
    if picture is not None:
        picture_kind(picture)
    # The simulator's own name for the rooms of preset paper.
    base = _base("paper" if preset == "six-rooms" else preset, data, None, None, None, change)
    _print_counted(fig4(base, out, picture=picture), as_json)


def _print_counted(made: "Reproduced", as_json: bool) -> None:
    """What needed no training; a script gets the values as they are."""
    if as_json:
        _print_json(made.summary)
        return
    _print_done([made], as_json=False)


Data = Annotated[
    Path | None, typer.Option(help="A store of rooms; default: the preset's SIMULATED rooms.")
]


def _experiment_command(name: str, about: str) -> None:
    """Give an experiment its command: all of them take the same options."""

    @reproduce.command(name, help=f"{about}\n\nExample: fedapa reproduce {name} --preset quick")
    def command(
        preset: Preset = "quick",
        data: Source = "simulated",
        seeds: Seeds = 3,
        split: SplitKind = None,
        setting: Annotated[
            list[str] | None,
            typer.Option(help="statistical or model; default: those of the paper's."),
        ] = None,
        rounds: Rounds = None,
        long_rounds: LongRounds = None,
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

        base = _base(preset, data, split, rounds, long_rounds, change, all_long=all_long)
        with _stages() as show:
            done = experiments.reproduce(
                name,
                base,
                seeds=seeds,
                settings=setting,
                out=out,
                resume=resume,
                workers=workers,
                show=show,
                command=_typed(),
            )
        _print_done(done, as_json)


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
    ("all", "Every table and figure into one directory, and one page with all of them."),
):
    _experiment_command(_name, _about)


@reproduce.command("difficulty")
def reproduce_difficulty(
    data: Data = None,
    preset: Annotated[str, typer.Option(help="smoke, quick or six-rooms.")] = "quick",
    seed: Annotated[int, typer.Option(min=0)] = 0,
    window: Annotated[
        int | None, typer.Option(min=1, help="Packets; default: what the store recommends.")
    ] = None,
    as_json: Json = False,
) -> None:
    """How far simple models get on the rooms, under all three splits.

    Example: fedapa reproduce difficulty --preset quick
    """
    from dataclasses import asdict

    from fedapa.experiments.difficulty import difficulty, difficulty_sheet
    from fedapa.report.tables import rich_table
    from fedapa.stores.store import Store

    with _bar("simulating rooms") as show:
        store = _simulated_or(data, preset, seed, show)
    with _bar("rooms") as show:
        scores = difficulty(store, seed=seed, window=window, progress=show)
    if as_json:
        _print_json([asdict(score) for score in scores])
        return
    with Store(store) as opened:
        synthetic = opened.synthetic
    _print(rich_table(difficulty_sheet(scores, store.name, synthetic=synthetic)))


@reproduce.command("simulator")
def reproduce_simulator(
    out: Annotated[Path, typer.Option(help="Directory for the pictures.")] = Path("docs/figures"),
) -> None:
    """The pictures of docs/simulator.md: what the simulator does, beside what physics says.

    Example: fedapa reproduce simulator --out docs/figures
    """
    from fedapa.experiments.simulator import write_pictures

    with _bar("pictures") as show:
        for path in write_pictures(out, progress=show):
            _print(str(path))


def main() -> None:
    """Run the command line; a user's mistake is one sentence and exit code 2."""
    try:
        app()
    except FedapaError as error:
        _fail(str(error))
    except SystemExit as ended:
        if ended.code == 130:  # typer's answer to Ctrl-C
            sys.stderr.write(
                "stopped; what was being written is gone, a run goes on with --resume\n"
            )
        raise
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        _fail(f"{place}{error.strerror or error}; nothing saved before was lost")
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "matplotlib", "sklearn", "tensorboard"):
            raise
        _fail(f"this command needs {error.name}: pip install torch==2.13.0, then 'fedapa[train]'")


def _fail(sentence: str) -> None:
    sys.stderr.write(f"fedapa: {sentence}\n")
    raise SystemExit(2)


def _get_workers_ready() -> None:
    """Let the processes that will train import torch while this one does."""
    from fedapa.processes import get_ready

    get_ready()


def _given(**values: Any) -> dict[str, Any]:
    """The values that were really given, so that nothing is overridden by a default."""
    return {key: value for key, value in values.items() if value is not None and value != {}}


def _assignment(text: str) -> dict[str, Any]:
    """``data.window=500`` as {"data": {"window": 500}}."""
    path, equals, value = text.partition("=")
    if not equals or not path:
        raise PlanError(f"--set {text}: write KEY=VALUE, e.g. training.learning_rate=0.02")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value  # a bare word is a string
    section, dot, key = path.partition(".")
    return {section: {key: parsed}} if dot else {section: parsed}


def _print(what: Any) -> None:
    from rich.console import Console

    # A pipe has no width of its own; tables must not be folded to 80 columns there.
    width = None if sys.stdout.isatty() else 160
    # Names of rooms and files are printed as they are: "[x]" is no colour.
    console = Console(width=width, markup=False, highlight=False)
    console.print(what, soft_wrap=isinstance(what, str))


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=1, sort_keys=True) + "\n")


def _simulated_or(
    data: Path | None, preset: str, seed: int, show: Callable[[int, int], None]
) -> Path:
    from fedapa.stores.simulated import simulated_store

    return data if data is not None else simulated_store(preset, seed, progress=show)


def _base(
    preset: str,
    data: str,
    split: str | None,
    rounds: int | None,
    long_rounds: int | None,
    change: list[str] | None,
    *,
    all_long: bool = False,
) -> "Base":
    from fedapa.experiments.experiment import Base

    return Base(
        preset=preset,
        file=None if data == "simulated" else data,
        split=split,
        rounds=rounds,
        long_rounds=long_rounds,
        all_long=all_long,
        changes=tuple(_assignment(text) for text in change or []),
    )


def _typed() -> str:
    """The command as it was typed, for the page that it makes; of whole paths only the names."""
    import shlex

    words = [word.partition("=") for word in sys.argv[1:]]
    said = [_path_name(option) + equals + _path_name(value) for option, equals, value in words]
    return shlex.join(["fedapa", *said])


def _path_name(word: str) -> str:
    return Path(word).name if Path(word).is_absolute() else word


def _print_done(done: "list[Reproduced]", as_json: bool) -> None:
    from fedapa.report.tables import rich_table

    if as_json:
        _print_json({each.name: each.summary for each in done})
        return
    for each in done:
        for sheet in each.sheets:
            _print(rich_table(sheet))
        for sentence in each.sentences:
            _print(sentence)
        what = "Page with tables and figures" if each.page.suffix == ".html" else "Picture"
        _print(f"{what}: {each.page}")


@contextlib.contextmanager
def _stages() -> "Iterator[Callable[[str, int, int], None]]":
    """Stage by stage how much is done, on a terminal; a line a minute elsewhere."""
    import time

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console, disable=not console.is_terminal, transient=True) as bars:
        task = bars.add_task("", total=None)
        said = time.monotonic()

        def show(what: str, done: int, total: int) -> None:
            nonlocal said
            bars.update(task, description=what, completed=done, total=total)
            if not console.is_terminal and time.monotonic() - said > 60:
                sys.stderr.write(f"{what}: {done} of {total}\n")
                said = time.monotonic()

        yield show


@contextlib.contextmanager
def _bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """How much of one long thing is done, on a terminal; nothing elsewhere."""
    from rich.console import Console
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    with Bars(console=console, disable=not console.is_terminal, transient=True) as bars:
        task = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


@contextlib.contextmanager
def _display() -> Iterator[Callable[[str, "Progress"], None]]:
    """Rounds, accuracy so far and time left, on a terminal; nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[accuracy]}"),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console, disable=not console.is_terminal) as bars:
        tasks: dict[tuple[str, str], Any] = {}

        def show(name: str, now: "Progress") -> None:
            key = (name, now.stage)
            if key not in tasks:
                for other in tasks.values():
                    bars.stop_task(other)
                label = name if now.stage == "round" else now.stage
                tasks[key] = bars.add_task(label, total=now.total, accuracy="")
            accuracy = "" if now.accuracy is None else f"accuracy {100 * now.accuracy:.1f} %"
            bars.update(tasks[key], completed=now.done, accuracy=accuracy)

        yield show


if __name__ == "__main__":
    main()
