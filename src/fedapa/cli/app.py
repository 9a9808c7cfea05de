"""The command line as a whole: its commands, and what becomes of their errors.

Commands import what they need when they run: ``--help`` answers at once.
"""

import sys
from typing import Annotated

import typer

from fedapa.cli.algorithms import algorithms
from fedapa.cli.calibrate import calibrate
from fedapa.cli.captures import import_, inspect, label
from fedapa.cli.count import count
from fedapa.cli.experiments import compare, reproduce
from fedapa.cli.export import export
from fedapa.cli.join import join
from fedapa.cli.network import doctor, room, server
from fedapa.cli.output import end_unread, fail, flush, take_any_stream
from fedapa.cli.report import report
from fedapa.cli.run import demo, run
from fedapa.cli.serve import serve
from fedapa.cli.simulate import simulate
from fedapa.cli.tune import tune
from fedapa.errors import FedapaError, files_trouble
from fedapa.processes import fork_from_here

__all__ = ["app", "main"]

_EXTRAS = {
    "flwr": "flower",
    "uvicorn": "flower",
    "httpx": "flower",
    "cryptography": "flower",
    "ray": "simulation",
    "fastapi": "serve",
    "sse_starlette": "serve",
    "prometheus_client": "serve",
    "plotly": "serve",
    "paho": "mqtt",
}
"""What comes with an extra of its own."""


app = typer.Typer(
    name="fedapa",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


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


# In the order of the help.
app.command()(demo)
app.command()(run)
app.command()(count)
app.command()(serve)
app.command()(calibrate)
app.command()(join)
app.command()(inspect)
app.command("import")(import_)
app.command()(label)
app.command()(compare)
app.command()(tune)
app.command()(report)
app.command()(export)
app.command()(algorithms)
app.command()(simulate)
app.add_typer(reproduce, name="reproduce")
app.add_typer(server, name="server")
app.add_typer(room, name="room")
app.command()(doctor)


def main() -> None:
    """Run the command line; a user's mistake is one sentence and exit code 2."""
    take_any_stream()
    fork_from_here()
    try:
        try:
            app()
        finally:
            flush()
    except FedapaError as error:
        fail(files_trouble(error) or str(error))
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # typer has met it
            end_unread()
        if ended.code == 130:  # typer's answer to Ctrl-C
            sys.stderr.write("stopped; nothing is half written, a run goes on with --resume\n")
            # Python remembers an interrupt in an exec, such as a dataclass makes while it is
            # imported, and would end by a signal instead of by this code; another one forgets it.
            exec("")
        raise
    except BrokenPipeError:
        end_unread()
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        said = files_trouble(error) or f"{place}{error.strerror or error}"
        fail(f"{said}; nothing saved before was lost")
    except ModuleNotFoundError as error:
        if extra := _EXTRAS.get((error.name or "").partition(".")[0]):
            extra = "serve" if "serve" in sys.argv and extra == "flower" else extra
            fail(
                f"this command needs {error.name}; in a checkout of fedapa: pip install -e "
                f"'.[{extra}]'"
            )
        if error.name not in ("torch", "matplotlib", "sklearn", "tensorboard"):
            raise
        fail(
            f"this command needs {error.name}; in a checkout of fedapa: pip install torch==2.13.0, "
            "then pip install -e '.[train]'"
        )
