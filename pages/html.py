"""The pages as HTML, and every committed study with its figures as SVG, in one folder.

Every docs page becomes a page that links to the others as the Markdown does; a study becomes what
``fedapa reproduce`` wrote of it: index.html, tables as LaTeX, figures as SVG and PNG, made anew
from its results.json. What needs a run's own files (confusion matrices, maps) is left out there.
"""

import json
import re
import shutil
from pathlib import Path

from markdown_it import MarkdownIt

from fedapa.evaluation.results import Results
from fedapa.experiments.reproduce import EXPERIMENTS, published
from fedapa.report.page import Report, write_report
from fedapa.report.style import save
from pages.gains import gains_figure, gains_of
from pages.overview import EXPERIMENTS as SHOWN
from pages.overview import overview_of

__all__ = ["as_html", "write_html"]

_STUDY = re.compile(r'(href="(?![a-z]+:)(?:[^"#]*/)?)results\.md(#[^"]*)?"')
_PAGE = re.compile(r'(href="(?![a-z]+:)[^"#]*)\.md(#[^"]*)?"')
_DRAWN = re.compile(r'(src="(?:overview|when))\.png"')
_WORDS = re.compile(r"<(t[hd])>")
"""A cell of a column that the Markdown does not align."""
_HEADING = re.compile(r"<h([1-6])>(.*?)</h\1>")


def write_html(docs: Path, out: Path) -> list[Path]:
    """Write all pages and studies of ``docs`` into ``out``; the pages."""
    written = []
    for page in sorted(docs.rglob("*.md")):
        if page.name == "results.md":  # of a study, which has a page of its own
            continue
        target = out / page.relative_to(docs).with_suffix(".html")
        target.parent.mkdir(parents=True, exist_ok=True)
        report = Report(page.stem)
        report.parts = [as_html(page.read_text())]
        written.append(report.page(target))
    for image in sorted([*docs.rglob("*.png"), *docs.rglob("*.svg")]):
        target = out / image.relative_to(docs)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(image, target)
    results = docs / "results"
    save(overview_of(results, SHOWN), out / "results" / "overview.svg")
    save(gains_figure(gains_of(results)), out / "results" / "when.svg")
    for path in sorted(results.rglob("results.json")):
        written.append(_study(path, out / path.parent.relative_to(docs)))
    return written


def as_html(text: str) -> str:
    """A page's Markdown as HTML: links lead to the HTML of other pages, headings have anchors."""
    body: str = MarkdownIt("commonmark").enable("table").render(text)
    body = _STUDY.sub(lambda found: f'{found[1]}index.html{found[2] or ""}"', body)
    body = _PAGE.sub(lambda found: f'{found[1]}.html{found[2] or ""}"', body)
    body = _DRAWN.sub(r'\1.svg"', body)
    # Columns of words; those of numbers are aligned in the Markdown, and their cells do not break.
    body = _WORDS.sub(r'<\1 style="text-align:left; white-space:normal; min-width:6rem">', body)
    return _HEADING.sub(_with_anchor, body)


def _with_anchor(heading: re.Match[str]) -> str:
    """As readers of Markdown make anchors: letters, digits and dashes of the heading."""
    plain = re.sub(r"<[^>]*>|&\w+;", "", heading[2]).lower()
    anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
    return f'<h{heading[1]} id="{anchor}">{heading[2]}</h{heading[1]}>'


def _study(path: Path, folder: Path) -> Path:
    """A committed study as its own page; one of another form as its Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    if "format" not in json.loads(path.read_text()):
        told = path.with_name("results.md")
        report = Report(path.parent.name)
        report.parts = [as_html(told.read_text()) if told.is_file() else ""]
        return report.page(folder / "index.html")
    results = Results.load(path)
    experiment = EXPERIMENTS.get(results.experiment.removesuffix("-tuned"))
    table, figure = (None, None) if experiment is None else (experiment.table, experiment.figure)
    return write_report(
        folder,
        results,
        {},
        published=published(results.experiment),
        first=[] if table is None else [table(setting) for setting in results.settings],
        figures=[] if figure is None else [figure(setting) for setting in results.settings],
    )
