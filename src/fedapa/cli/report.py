"""``fedapa report``: a page about finished runs."""

from pathlib import Path
from typing import Annotated

import typer

from fedapa.cli.output import print_out

__all__ = ["report"]


def report(
    runs: Annotated[list[Path], typer.Argument(help="Directories of finished runs on one data.")],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option()] = "FedAPA report",
) -> None:
    """One HTML page with tables and curves of finished runs.

    Example: fedapa report runs/local-0 runs/fedapa-0 --out report.html
    """
    from fedapa.report.page import write_run_page
    from fedapa.report.runs import load_runs

    write_run_page(out, load_runs(runs), title=title)
    print_out(f"Page: {out}")
