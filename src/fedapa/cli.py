"""The command line. Commands import what they need when they run: ``--help`` answers at once."""

import contextlib
import json
import os
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedapa.errors import FedapaError, PlanError

if TYPE_CHECKING:
    from fedapa.federation.run import Progress

__all__ = ["app", "main"]

app = typer.Typer(
    name="fedapa",
    help="Rooms learn to count people from Wi-Fi channel state information, together, "
    "without sharing raw data.",
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
        bool, typer.Option("--resume", help="Go on with the run in --out; afresh if there is none.")
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write TensorBoard scalars.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run one federated algorithm on some rooms.

    Example: fedapa run --preset quick --algorithm fedapa --seed 1 --out runs/first
    """
    from fedapa.experiments.presets import preset as preset_values
    from fedapa.federation.plan import Plan, read_toml
    from fedapa.federation.run import run as carry_out
    from fedapa.report.tables import comparison, per_room, rich_table

    given = read_toml(plan) if plan is not None else {}
    base = preset or given.pop("preset", None) or (None if plan is not None else "quick")
    flags: dict[str, Any] = {
        "rounds": rounds,
        "seed": seed,
        "participation": participation,
        "selection": selection,
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

    loaded = [Run.load(path) for path in runs]
    for path, other in zip(runs[1:], loaded[1:], strict=True):
        if sorted(other.data["rooms"]) != sorted(loaded[0].data["rooms"]):
            raise PlanError(f"{path}: has other rooms than {runs[0]}; report them on their own")
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
    out: Annotated[Path, typer.Option(help="The store to make; it must not exist.")],
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
    from fedapa.rooms.own import changed_preset, read_rooms
    from fedapa.rooms.simulated import preset_hash, preset_of, write_simulated

    chosen = preset_of(preset)
    if rooms is not None:
        chosen = changed_preset(chosen, read_rooms(rooms))
    with _bar("simulating rooms") as show:
        write_simulated(chosen, seed=seed, out=out, workers=workers, progress=show)
    size = out.stat().st_size / 1e6
    _print(f"{out}: SIMULATED rooms, preset {chosen.name} ({preset_hash(chosen)}), {size:.1f} MB")


reproduce = typer.Typer(
    help="The paper's tables and figures, from this code.", no_args_is_help=True
)
app.add_typer(reproduce, name="reproduce")


@reproduce.command("architectures")
def reproduce_architectures(
    classes: Annotated[int, typer.Option(min=1, help="The paper's table has 20.")] = 20,
    width: Annotated[int, typer.Option(min=1, help="Of the embedding.")] = 256,
    as_json: Json = False,
) -> None:
    """Parameters and FLOPs of the three nets, counted from the modules.

    Example: fedapa reproduce architectures
    """
    from fedapa.experiments.architectures import architectures as count
    from fedapa.experiments.architectures import layer_sheet
    from fedapa.report.tables import rich_table

    if as_json:
        _print_json(count(classes=classes, width=width))
    else:
        _print(rich_table(layer_sheet(classes=classes, width=width)))


@reproduce.command("table3")
def reproduce_table3(as_json: Json = False) -> None:
    """Bytes per round and room of every algorithm: the paper's formula, then really encoded.

    Example: fedapa reproduce table3
    """
    from dataclasses import asdict

    from fedapa.experiments.table3 import communication, communication_sheet
    from fedapa.report.tables import rich_table

    costs = communication()
    if as_json:
        _print_json({name: asdict(cost) for name, cost in costs.items()})
    else:
        _print(rich_table(communication_sheet(costs)))


Data = Annotated[
    Path | None, typer.Option(help="A store of rooms; default: the preset's SIMULATED rooms.")
]


@reproduce.command("fig4")
def reproduce_fig4(
    data: Data = None,
    preset: Annotated[str, typer.Option(help="smoke, quick or six-rooms.")] = "quick",
    seed: Annotated[int, typer.Option(min=0)] = 0,
    window: Annotated[
        int | None, typer.Option(min=1, help="Packets; default: what the store recommends.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The picture: .png, .svg or .pdf.")] = Path("fig4.png"),
    as_json: Json = False,
) -> None:
    """Windows by room and number of people: the data distribution of the six rooms.

    Example: fedapa reproduce fig4 --preset six-rooms --out fig4.png
    """
    from fedapa.experiments.fig4 import distribution, distribution_sheet
    from fedapa.report.pictures import distribution_figure, save
    from fedapa.report.tables import rich_table

    with _bar("simulating rooms") as show:
        found = distribution(_simulated_or(data, preset, seed, show), window=window)
    picture = distribution_figure(
        found.windows, found.labels, window=found.window, synthetic=found.synthetic
    )
    save(picture, out)
    if as_json:
        _print_json({"windows": found.windows, "window": found.window, "out": str(out)})
        return
    _print(rich_table(distribution_sheet(found)))
    _print(f"Picture: {out}")


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
    from fedapa.windows.store import Store

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
    except KeyboardInterrupt:
        sys.stderr.write("stopped; a run goes on with --resume\n")
        raise SystemExit(130) from None
    except BrokenPipeError:
        # The reader of our output (head, less) is gone; nothing is left to say to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
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
    Console(width=width, highlight=False, soft_wrap=isinstance(what, str)).print(what)


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=1, sort_keys=True) + "\n")


def _simulated_or(
    data: Path | None, preset: str, seed: int, show: Callable[[int, int], None]
) -> Path:
    from fedapa.rooms.simulated import simulated_store

    return data if data is not None else simulated_store(preset, seed, progress=show)


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
