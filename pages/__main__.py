"""Make this repository's own pages anew: ``python -m pages``, or ``python -m pages simulator``.

``results`` fills the tables of docs/results/*.md, docs/results/earlier/*.md and docs/privacy.md
from the results.json files of docs/results, draws the overview of the present experiments and fills
and draws when exchange helps; ``algorithms`` fills docs/algorithms.md. Both take seconds and are
the default. ``html`` writes all pages as HTML, and every study with its figures as SVG, into
build/pages, in minutes. ``simulator`` draws every figure of docs/simulator.md from measurements
made anew, in minutes.
"""

import argparse
import sys
from pathlib import Path

from fedapa.errors import FedapaError
from fedapa.evaluation.results import Results
from fedapa.files import write_text
from fedapa.report.style import save
from pages import algorithms, inserted
from pages.gains import gains_figure, gains_of, with_table
from pages.html import write_html
from pages.overview import EXPERIMENTS, overview_of
from pages.poisoning import losses_figure
from pages.simulator import write_figures

DOCS = Path(__file__).parents[1] / "docs"


def _results() -> None:
    folder = DOCS / "results"
    for page in sorted([*folder.glob("*.md"), *(folder / "earlier").glob("*.md")]):
        write_text(page, inserted.filled(page.read_text(), page.parent))
    private = DOCS / "privacy.md"
    write_text(private, inserted.filled(private.read_text(), folder))
    save(overview_of(folder, EXPERIMENTS), folder / "overview.png", dpi=150)
    told = folder / "poisoning" / "results.json"
    if told.is_file():  # the study is not whole yet
        save(losses_figure(Results.load(told)), folder / "poisoning.png", dpi=150)
    gains, page = gains_of(folder), folder / "when.md"
    write_text(page, with_table(page.read_text(), gains))
    save(gains_figure(gains), folder / "when.png", dpi=150)


def _algorithms() -> None:
    write_text(algorithms.PAGE, algorithms.filled(algorithms.PAGE.read_text()))


def _simulator() -> None:
    for path in write_figures(DOCS / "figures"):
        sys.stdout.write(f"{path}\n")


def _html() -> None:
    out = DOCS.parent / "build" / "pages"
    written = write_html(DOCS, out)
    sys.stdout.write(
        f"{len(written)} pages, the first to read: {out / 'results' / 'README.html'}\n"
    )


_MAKERS = {
    "results": _results,
    "algorithms": _algorithms,
    "html": _html,
    "simulator": _simulator,
}


def main() -> int:
    """Make the pages that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m pages", description=__doc__)
    parser.add_argument("page", nargs="*", help=f"default: results algorithms; {list(_MAKERS)}")
    wanted = parser.parse_args().page or ["results", "algorithms"]
    if unknown := sorted(set(wanted) - set(_MAKERS)):
        sys.stderr.write(f"no page '{unknown[0]}'; known: {', '.join(_MAKERS)}\n")
        return 2
    try:
        for page in wanted:
            _MAKERS[page]()
    except FedapaError as problem:
        sys.stderr.write(f"{problem}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
